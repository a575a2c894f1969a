"""Traces of whole runs, held to a strict check: ranks that call MPI in tasks, repeated iterations, simulated cells."""

from __future__ import annotations

import gzip
import json
from bisect import bisect_right
from collections import defaultdict
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import paraver_check
import pyarrow.parquet as pq
import pytest

import manyscale

pytestmark = [pytest.mark.slow, pytest.mark.contract]

RUNS = {
    "inside tasks": {"workload": {"path": "jacobi-8"}},
    "repeated": {
        "workload": {"path": "multizone-8", "repeat": {"iterations": 4, "jitter": 0.1}}, "timeline": {"ranks": [1, 2]},
    },
    "simulated": {
        "workload": {"path": "multizone-8", "detail": "multizone-8-detail"}, "model": {"cpu": "detailed"},
        "sampling": {"ranks": [7]},
    },
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_a_run_s_traces_hold_what_its_tables_do(tmp_path: Path, name: str) -> None:
    study = {"schema": 1, "target": "marenostrum3", "mapping": {"cores_per_rank": 4}, **RUNS[name]}
    found = manyscale.run(study, tmp_path / "run", executor="local")
    cores = pq.read_table(tmp_path / "run" / "timeline" / "cores.parquet").to_pylist()
    trace = paraver_check.check(next((tmp_path / "run").glob("trace.prv*")))
    shown = {row["rank"] for row in cores}
    assert [threads for threads, _ in trace.threads] == [4 if rank in shown else 1 for rank in range(8)]
    ids = {row["instance_id"] for row in cores if (row["start_ps"] + 500) // 1000 < (row["end_ps"] + 500) // 1000}
    events = [pairs for mine in trace.events.values() for _, pairs in mine]
    assert {pairs[60000028] - 1 for pairs in events if pairs.get(60000028, 0)} == ids
    if name == "inside tasks":
        waits = sum(end - begin for mine in trace.states.values() for begin, end, state in mine if state not in (1, 7))
        assert waits == pytest.approx(found.statistics["cores.blocked"].value * 1e9, rel=1e-6)
        assert {thread for (_, thread), mine in trace.events.items() for _, pairs in mine if 50000001 in pairs} > {1}
    if name == "simulated":
        known = pq.read_table(tmp_path / "run" / "timeline" / "task_instances.parquet").to_pylist()
        for number, column in ((42000050, "instructions"), (42000000, "first_cache_misses")):
            assert sum(pairs.get(number, 0) for pairs in events) == sum(row[column] for row in known) > 0
    check_slices(tmp_path / "run" / "trace.json.gz", cores)


def check_slices(path: Path, cores: list[dict[str, Any]]) -> None:
    """Slices of a track follow each other, and arrows begin and end in slices."""
    text = gzip.decompress(path.read_bytes()).decode()
    events = json.loads(text, parse_float=Decimal)["traceEvents"]
    slices = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            begin = int(event["ts"] * 1000)  # Perfetto cuts to nanoseconds
            slices[event["pid"], event["tid"]].append((begin, begin + int(event["dur"] * 1000)))
    for mine in slices.values():
        mine.sort()
        assert all(one[1] <= other[0] for one, other in pairwise(mine))
    known = sum("instance_id" in event.get("args", {}) for event in events)
    assert known == len(cores)
    for event in events:
        if event["ph"] in "sf":
            time, mine = int(event["ts"] * 1000), slices[event["pid"], event["tid"]]
            begin, end = mine[bisect_right(mine, (time, 1 << 62)) - 1]
            assert begin <= time < max(end, begin + 1)
