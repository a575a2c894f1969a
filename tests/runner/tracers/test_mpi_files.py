"""Files that an MPI program reads and writes take what the target's storage says: times from that definition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi_traces import MpiTrace, Tracing
from tracer_programs import Mpi

from manyscale.models.machine.storage import Storage, accesses, storage_times
from manyscale.models.workload import SCHEMAS, Workload
from manyscale.runner.api import studies
from manyscale.runner.readers import workload_folder

pytestmark = pytest.mark.theory
MB, MS = 10**6, 10**9


@pytest.fixture
def trace(mpi: Mpi, compiled: Callable[..., Path], tracer_cache: Path, tmp_path: Path) -> MpiTrace:
    return Tracing(mpi, compiled, tracer_cache, tmp_path)("write_all.c")


def times(workload: Workload, nodes: list[int], **keys: str) -> list[list[int]]:
    """What each rank's accesses take, ms."""
    taken = storage_times(workload, Storage.model_validate(keys), np.array(nodes))
    found = accesses(workload)
    return [(taken[found.row[found.rank == rank]] / MS).tolist() for rank in range(4)]


def test_bytes_of_files_are_recorded(trace: MpiTrace) -> None:
    found = accesses(trace.workload)
    own = [found.bytes[found.rank == rank].tolist() for rank in range(4)]
    assert own == [[16 * MB, MB, 8], [16 * MB, MB, MB, 0], [16 * MB, MB, 0], [16 * MB, 0, 0]]
    assert [bool(each) for each in found.is_collective[found.rank == 1]] == [True, True, False, True]
    assert [bool(each) for each in found.is_open[found.rank == 1]] == [False, False, False, True]
    table = trace.workload.tables["operations"].to_pylist()
    mine = [table[row] for row in found.row[found.rank == 0]]
    assert [(row["bytes"], row["receive_bytes"]) for row in mine] == [(16 * MB, 0), (0, MB), (8, 0)]
    assert not [note for note in trace.workload.notes if note.severity != "informs"]


def test_accesses_take_latency_and_what_is_slower(trace: MpiTrace) -> None:
    """64 MB at 1 GB/s are 64 ms; the 32 MB of two ranks of a node at 0.25 GB/s 128 ms, of one 64 ms."""
    shared = {"latency": "2 ms", "bandwidth": "1 GB/s"}
    last = 2 + 8e-6
    assert times(trace.workload, [0, 1, 2, 3], **shared) == [
        pytest.approx(each) for each in ([66, 5, last], [66, 5, 3, last], [66, 5, last], [66, 5, last])
    ]
    by_node = {**shared, "node_bandwidth": "0.25 GB/s"}
    assert times(trace.workload, [0, 0, 1, 1], **by_node)[1] == pytest.approx([130, 10, 6, 2 + 32e-6])
    assert times(trace.workload, [0, 1, 2, 3], **by_node)[1] == pytest.approx([66, 6, 6, 2 + 32e-6])
    assert times(trace.workload, [0, 0, 0, 1], **by_node)[3] == pytest.approx([194, 14, 2 + 32e-6])


def test_the_run_takes_it(trace: MpiTrace, tmp_path: Path) -> None:
    """Nothing computes, so that the difference of two runs is what the storage takes: 66, 5, 3 and 2 ms."""
    tables = {**trace.workload.tables, "phases": SCHEMAS["phases"].empty_table()}
    tables["phase_times"] = SCHEMAS["phase_times"].empty_table()
    tables["counters"] = SCHEMAS["counters"].empty_table()
    folder = tmp_path / "workload"
    workload_folder.write(replace(trace.workload, tables=tables), folder)

    def run(**target: Any) -> tuple[float, set[str]]:
        study = {"workload": {"path": str(folder)}, "target": {"name": "crossbar256", **target}}
        result = studies.run(study)
        return result.statistics["application.makespan"].value, {note.code for note in result.notes}

    without, codes = run()
    assert "storage-unnamed" in codes
    assert not {"lone-accesses", "open-accesses", "storage-free"} & codes
    taken, codes = run(storage={"latency": "2 ms", "bandwidth": "1 GB/s"})
    assert taken - without == pytest.approx(0.076, rel=1e-3)
    assert "open-accesses" in codes
    assert not {"storage-unnamed", "lone-accesses", "setting-without-effect"} & codes
