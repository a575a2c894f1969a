"""``manyscale status`` of a run that works, and of one that has ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def test_a_run_tells_its_units_nodes_rate_and_time_left(cli: Any, tmp_path: Path) -> None:
    assert cli("run", "lulesh-8", "-o", "run", "--no-report").status == 0
    run = tmp_path / "run"
    ended = cli("status", "run")
    assert ended.out.startswith("run: complete; 9 units finished (9 simulated, 0 reused, 0 failed)")
    assert "left" not in ended.out
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["status"] = "running"
    del manifest["checksum"]
    (run / "manifest.json").write_text(json.dumps(manifest))
    said = json.loads((run / "status.json").read_text())
    node = {"node": "a (10.0.0.1)", "cpus": 8, "workers": 3, "units": 30, "state": "there", "reason": ""}
    said |= {"phase": "replaying", "done": 30, "total": 120, "rate": 0.5, "seconds_left": 180, "nodes": [node]}
    (run / "status.json").write_text(json.dumps(said))
    working = cli("status", "run")
    assert working.status == 0
    assert "\nreplaying 30/120 (25 %), 0.5/s, 3 min left; 0 units left at this stage\n" in working.out
    assert "\na (10.0.0.1): 3 workers on 8 CPUs, 30 units finished, there\n" in working.out
