"""What production programs do that a tracer must bear (``tests/programs/mpi/hazards.c``): none of it may harm the
program, nor what is recorded after it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from mpi_traces import Tracing
from told import told
from tracer_programs import Mpi

import manyscale
from manyscale.runner.readers import workload_folder

pytestmark = pytest.mark.theory


@pytest.fixture
def trace(mpi: Mpi, compiled: Callable[..., Path], tracer_cache: Path, tmp_path: Path) -> Tracing:
    folder = tmp_path / "t"
    folder.mkdir()
    return Tracing(mpi, compiled, tracer_cache, folder)


def test_a_receive_that_failed_is_not_taken_for_a_later_one(trace: Tracing) -> None:
    traced = trace("hazards.c", 2, "errors")
    for rank in range(2):
        waits = [row[1] for row in traced.talk(rank, "completes") if row[0] == "waitall"]
        assert waits == [[1, 2], [3, 4]]
    assert "calls that returned an error take no part: MPI_Wait 2" in told(traced.workload.notes)


def test_calls_after_one_that_was_left_by_longjmp_are_recorded(trace: Tracing) -> None:
    traced = trace("hazards.c", 2, "jump")
    assert traced.calls(0) == ["MPI_Init", "MPI_Send", "MPI_Barrier", "MPI_Bcast", "MPI_Finalize"]
    assert traced.talk(1, "bytes") == [("barrier", 0), ("bcast", 4)]


def test_the_thread_that_initialises_mpi_is_traced(trace: Tracing) -> None:
    traced = trace("hazards.c", 2, "thread")
    assert [process.rank for process in traced.processes] == [0, 1]
    assert traced.calls(1) == ["MPI_Init_thread", "MPI_Barrier", "MPI_Finalize"]
    assert traced.processes[0].is_finished


def test_receives_that_another_thread_completes_are_not_taken_for_later_ones(trace: Tracing) -> None:
    traced = trace("hazards.c", 1, "waits")
    rows = traced.talk(0, "tag", "request", "completes")
    opened = [(kind, tag, request) for kind, tag, request, _ in rows if kind != "wait"]
    assert [(kind, tag) for kind, tag, _ in opened] == [(kind, i) for i in range(6) for kind in ("irecv", "isend")]
    completed = [number for *_, numbers in rows for number in numbers]  # type: ignore[attr-defined]
    # each message is over before the next begins
    assert [completed[2 * i : 2 * i + 2] for i in range(6)] == [
        [opened[2 * i + 1][2], opened[2 * i][2]] for i in range(6)
    ]


def test_a_file_that_gets_the_descriptor_of_the_trace_is_left_alone(trace: Tracing, tmp_path: Path) -> None:
    traced = trace("hazards.c", 1, "descriptors", str(tmp_path / "file"))
    assert (tmp_path / "file").read_bytes() == b"mine"
    assert traced.calls(0) == ["MPI_Init", *["MPI_Allreduce"] * 10000, "MPI_Finalize"]


@pytest.mark.parametrize("ending", ["quit", "alarm"])
def test_a_process_that_ends_while_it_records(trace: Tracing, ending: str) -> None:
    succeeds = ending == "quit" and trace.mpi.name == "mpich"  # Open MPI's launcher misses MPI_Finalize
    traced = trace("hazards.c", 1, ending, succeeds=succeeds)
    assert traced.status not in (-11, 139)
    assert set(traced.calls(0)) == {"MPI_Init", "MPI_Allreduce"}


def test_communicators_that_were_freed_take_no_memory(trace: Tracing) -> None:
    traced = trace("hazards.c", 1, "communicators")
    grew_kib = int(traced.output.split("grew ")[1])
    assert grew_kib < 1000  # 50 000 communicators, each of which would leave some 80 bytes


def test_a_message_may_outlive_its_communicator(trace: Tracing) -> None:
    traced = trace("hazards.c", 1, "message")
    assert ("recv", 0, 7, 4) in traced.talk(0, "peer", "tag", "receive_bytes")


def test_what_is_said_with_processes_of_other_worlds_is_not_replayed(trace: Tracing, tmp_path: Path) -> None:
    if trace.mpi.name == "mpich":
        pytest.skip("Debian's MPICH 4.0 cannot spawn")
    traced = trace("hazards.c", 2, "spawn")
    assert traced.talk(0, "peer") == [("sendrecv", 1)]
    # the children's communicator, and what is made of it
    assert (
        "communication with processes outside MPI_COMM_WORLD is not replayed: MPI_Allreduce 2, MPI_Barrier 2, "
        "MPI_Comm_disconnect 2, MPI_Intercomm_merge 2"
    ) in told(traced.workload.notes)
    workload_folder.write(traced.workload, tmp_path / "workload")
    study = {"schema": 1, "workload": {"path": str(tmp_path / "workload")}, "target": "crossbar256"}
    manyscale.run(study, tmp_path / "run", report=False, accept=["calls-refused"])


def test_programs_that_are_started_have_what_the_user_preloads(
    trace: Tracing, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for preloaded in ("", "libm.so.6"):
        monkeypatch.setenv("MANYSCALE_TRACE_PRELOAD", preloaded)
        trace("hazards.c", 1, "child", f"echo $LD_PRELOAD > {tmp_path / 'told'}")
        assert (tmp_path / "told").read_text() == f"{preloaded}\n"
        for each in trace.folder.iterdir():
            each.unlink()
