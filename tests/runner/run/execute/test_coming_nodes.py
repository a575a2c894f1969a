"""Runs on clusters whose nodes come, go and are unfit: several nodes on this machine, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import coming_nodes
import numpy as np
import pytest
from coming_nodes import NUM_UNITS, unit

from manyscale.runner.run.execute.local import LocalExecutor
from manyscale.runner.run.store import Store

pytestmark = pytest.mark.slow


def told(tmp_path: Path) -> tuple[dict[str, Any], str]:
    """What coming_nodes.py found, and the lines that users see."""
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        Path(folder, "ray").mkdir()
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        own = {"RAY_TMPDIR": folder, "RAY_AUTH_MODE": "disabled", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, coming_nodes.__file__, str(tmp_path)]
        done = subprocess.run(command, env=inherited | own, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line for line in done.stderr.splitlines() if line.startswith("manyscale: ")]
    return json.loads(done.stdout.splitlines()[-1]), "\n".join(lines)


def test_nodes_come_late_go_and_are_left_out_and_the_run_goes_on(tmp_path: Path) -> None:
    found, lines = told(tmp_path)
    assert found["waited"] == "a node with CPUs: the cluster has none yet"
    assert "waiting for a node with CPUs: the cluster has none yet (8 CPUs are asked for)" in lines
    assert found["keys"] == len(found["errors"]) == NUM_UNITS
    assert not any(found["errors"])
    nodes = found["nodes"]
    (unfit,) = [node for node in nodes if node["state"] == "left out"]
    assert unfit["reason"].startswith("it has numpy 0.1, here it is ")
    assert f"node {unfit['node']} is left out: it has numpy 0.1" in lines
    worked = [node for node in nodes if node["units"]]
    assert sorted(node["state"] for node in worked) == ["gone", "there"]
    assert sum(node["units"] for node in worked) == NUM_UNITS  # none counted twice
    expected, remote = Store(tmp_path / "expected"), Store(tmp_path / "units")
    units = [unit(index, 0) for index in range(NUM_UNITS)]
    for outcome in LocalExecutor().map(units, {"values": np.arange(5)}, expected):
        key = outcome.key
        assert remote.path(key).read_bytes() == expected.path(key).read_bytes()
