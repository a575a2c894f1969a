"""Time-independent traces as we write them: read again, they predict the same times to the picosecond."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from validation.simgrid.prediction import predict_workload
from validation.simgrid.random_programs import generate

from manyscale.models.workload import Workload
from manyscale.runner import shipped
from manyscale.runner.errors import UserError
from manyscale.runner.readers import simgrid_ti
from manyscale.runner.report.traces.simgrid_ti import write_trace

pytestmark = pytest.mark.contract


def again(workload: Workload, folder: Path) -> Workload:
    folder.mkdir()
    write_trace(workload, folder)
    return simgrid_ti.read(folder)


def assert_same_times(one: Workload, other: Workload) -> None:
    for eager in (False, True):
        first, second = predict_workload(one, eager), predict_workload(other, eager)
        assert first.rank_ends_s == second.rank_ends_s


@pytest.mark.parametrize("name", ["comd-8", "nas-is-A-8", "lulesh-8", "hpcg-8", "nas-cg-A-8"])
def test_real_traces(tmp_path: Path, name: str) -> None:
    workload = simgrid_ti.read(shipped.folder() / f"{name}.tar.zst")
    second = again(workload, tmp_path / "trace")
    assert_same_times(workload, second)
    assert again(second, tmp_path / "third").digest == second.digest


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(tmp_path: Path, seed: int, write_trace) -> None:  # type: ignore[no-untyped-def]
    program = generate(seed)
    workload = simgrid_ti.read(write_trace(dict(enumerate(program.actions))))
    assert_same_times(workload, again(workload, tmp_path / "again"))


LINES = {
    "wait-any and what is left": [
        "irecv 1 0 5; irecv 1 1 5; irecv -333 2 9; waitAny 3; compute 2.5; waitAny 3; waitall 3",
        "compute 100; send 0 1 5; send 0 0 5; compute 7; send 0 2 9",
    ],
    "a tagless exchange, and one with oneself": [
        "sendRecv 100 1 50 1; sendRecv 8 0 8 0", "sendRecv 50 0 100 0",
    ],
    "nobody": ["send -333 0 5; compute 3; isend -333 1 5; wait 0 -333 1", "compute 8"],
    "collectives": [
        "ibcast 100 1; compute 1; wait -333 -333 -3335; reducescatter 3 5 0 0; allgatherv 3 3 4; gatherv 5 5 7 1",
        "ibcast 100 1; compute 9; wait -333 -333 -3335; reducescatter 3 5 0 0; allgatherv 4 3 4; gatherv 7 5 7 1",
    ],
    "regions and sleep": ["location a.c 7; compute 10; sleep 0.25; location b.c 9; compute 1.125", "compute 1"],
}  # fmt: skip


@pytest.mark.parametrize("name", LINES)
def test_small_traces(tmp_path: Path, name: str, write_trace) -> None:  # type: ignore[no-untyped-def]
    lines = {rank: ["init", *text.split("; "), "finalize"] for rank, text in enumerate(LINES[name])}
    workload = simgrid_ti.read(write_trace(lines))
    second = again(workload, tmp_path / "again")
    assert_same_times(workload, second)
    for column in ("region_id", "duration_ps", "kind"):
        assert np.array_equal(workload.column("phases", column), second.column("phases", column))


def test_a_request_waited_for_out_of_its_order_is_refused(tmp_path: Path, write_trace) -> None:  # type: ignore[no-untyped-def]
    workload = simgrid_ti.read(
        write_trace({0: ["irecv 1 0 8", "irecv 1 0 8", "wait 1 0 0", "wait 1 0 0"], 1: ["send 0 0 8", "send 0 0 8"]})
    )
    operations = workload.tables["operations"]
    lists = operations.column("completes").to_pylist()
    first, second = (row for row, value in enumerate(lists) if value)
    lists[first], lists[second] = lists[second], lists[first]
    index = operations.schema.get_field_index("completes")
    field = operations.schema.field(index)
    import pyarrow as pa

    swapped = operations.set_column(index, field, pa.chunked_array([pa.array(lists, field.type)]))
    disordered = Workload("disordered", 2, {**workload.tables, "operations": swapped})
    with pytest.raises(UserError, match=r"disordered: rank 0, operation \d completes a request out of the order"):
        again(disordered, tmp_path / "again")
