"""The MPI tracer as a whole: what it stands in for, hard cases, and the replay of what it traces."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from mpi_traces import Tracing
from tracer_programs import Mpi, need

import manyscale
from manyscale.runner.readers import workload_folder
from manyscale.runner.readers.raw_trace.mpi_calls import CALLS, COLLECTIVE_NAMES, NAMES, UNREPEATED
from manyscale.runner.readers.raw_trace.reader import choose_ranks
from manyscale.runner.readers.raw_trace.tasks import build as build_tasks
from manyscale.runner.tracers import build, counters, generate

pytestmark = pytest.mark.theory


@pytest.fixture
def trace(mpi: Mpi, compiled: Callable[..., Path], tracer_cache: Path, tmp_path: Path) -> Tracing:
    return Tracing(mpi, compiled, tracer_cache, tmp_path)


def test_the_table_of_calls() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert set(NAMES) > UNREPEATED
    assert len(COLLECTIVE_NAMES) == 22  # MPI 3.1: 17 collectives and 5 of neighbours
    assert {f"MPI_I{name[4].lower()}{name[5:]}" for name in COLLECTIVE_NAMES} < set(NAMES)
    assert [call.name for call in CALLS if call.recipe and call.around] == []
    with pytest.raises(ValueError, match="unknown MPI library 'lam'; known: mpich, openmpi"):
        generate.wrappers("lam")


def test_every_call_is_stood_in_for_by_both_names(mpi: Mpi, tracer_cache: Path) -> None:
    need("nm")
    library = build.tracer(mpi.name, tracer_cache)
    listed = subprocess.run(["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True)
    symbols = {line.split()[-1] for line in listed.stdout.splitlines()}
    since = {call.name: call.since for call in CALLS}
    expected = {name for name in since if mpi.name == "mpich" or since[name] == 3} | {"MPI_Pcontrol"}
    assert expected <= symbols
    assert {f"P{name}" for name in expected} <= symbols


def test_many_requests_at_once(trace: Tracing) -> None:
    traced = trace("many_requests.c", 2)
    receives = traced.talk(1, "tag", "receive_bytes", "request", "completes")
    assert receives[:1000] == [("irecv", i, i, i, []) for i in range(1000)]
    assert receives[1000:] == [("wait", 0, 0, -1, [i]) for i in reversed(range(1000))]
    sends = traced.talk(0, "tag", "bytes", "request")
    assert sends[:1000] == [("isend", i, i, i) for i in range(1000)]
    assert sorted(traced.talk(0, "completes")[1000][1]) == list(range(1000))  # type: ignore[call-overload]


def test_page_faults_are_counted_without_openmp(trace: Tracing) -> None:
    """700 pages between two of the barriers, by each rank; what is touched again, or by MPI, is not among them."""
    tables, _ = build_tasks(trace("first_touch.c", 2, level=2).processes)
    rows = tables["page_faults"].to_pylist()
    for rank in range(2):
        (touched,) = (row["num_faults"] for row in rows if row["rank"] == rank and row["num_faults"] > 50)
        assert 700 <= touched <= 712


def test_calls_of_all_threads_are_recorded(trace: Tracing) -> None:
    """The first thread's 3 messages, in halves, since the other one's 5 may come between."""
    traced = trace("threads.c", 1)
    for kind in ("isend", "irecv"):
        tags = [tag for name, tag in traced.talk(0, "tag") if name == kind]
        assert sorted(tags) == [0] * 3 + [1] * 5
    assert traced.processes[0].end["other_threads"] == 0
    notes = choose_ranks(Path(), traced.processes)[1]
    assert [(note.code, note.severity) for note in notes] == [("threads-in-one-order", "changes")]


def test_calls_of_threads_that_the_program_did_not_announce_forbid_a_number(trace: Tracing) -> None:
    traced = trace("threads.c", 1, "funneled")
    assert traced.processes[0].end["other_threads"] == 5
    assert [note.severity for note in choose_ranks(Path(), traced.processes)[1] if note.code == "calls-lost"] == [
        "forbids"
    ]


def test_partitioned_communication(trace: Tracing) -> None:
    if trace.mpi.name != "mpich":
        pytest.skip("Open MPI 4 is of MPI 3.1")
    traced = trace("partitions.c", 2)
    columns = ("peer", "tag", "bytes", "receive_bytes", "request", "completes")
    for rank, first in enumerate((("isend", 1, 3, 64, 0), ("irecv", 0, 3, 0, 64))):
        assert traced.talk(rank, *columns) == [
            each for i in range(2) for each in ((*first, i, []), ("wait", -2, 0, 0, 0, -1, [i]))
        ]
    # the message goes when the last of its partitions is ready
    names = traced.calls(0)
    row = [row[0] for row in traced.rows(0)].index("isend")
    assert names[1 + row] == "MPI_Pready"
    assert names[1 : row + 1] == ["MPI_Psend_init", "MPI_Start", "MPI_Pready", "MPI_Pready", "MPI_Pready"]


def test_sessions(trace: Tracing) -> None:
    if trace.mpi.name != "mpich":
        pytest.skip("Open MPI 4 is of MPI 3.1")
    traced = trace("sessions.c")
    processes, notes = choose_ranks(Path(), traced.processes)
    assert [process.rank for process in processes] == [0, 1, 2, 3]
    assert notes == []
    members = traced.workload.tables["communicators"].column("members").to_pylist()
    for rank in range(4):
        assert [(row[0], members[row[1]]) for row in traced.talk(rank, "communicator_id")] == [  # type: ignore[index]
            ("allreduce", [0, 1, 2, 3]), ("bcast", [rank % 2, 2 + rank % 2]),
        ]  # fmt: skip


def test_mpi_4(trace: Tracing) -> None:
    if trace.mpi.name != "mpich":
        pytest.skip("Open MPI 4 is of MPI 3.1")
    traced = trace("mpi4.c", 2)
    columns = ("peer", "tag", "bytes", "receive_bytes", "completes")
    for rank in range(2):
        other = 1 - rank
        assert traced.talk(rank, *columns) == [
            ("recv", 0, 1, 0, 28, []) if rank else ("send", 1, 1, 28, 0, []),
            ("isend", other, 5 + rank, 8, 0, []),
            ("irecv", other, 6 - rank, 0, 8, []),
            ("wait", -2, 0, 0, 0, [0, 1]),
            ("iallreduce", -2, 0, 12, 12, []),
            ("wait", -2, 0, 0, 0, [2]),
            ("iallreduce", -2, 0, 12, 12, []),
            ("wait", -2, 0, 0, 0, [3]),
            ("alltoallv", -2, 0, 0, 0, []),
        ]
        assert traced.talk(rank, "send_counts", "receive_counts")[-1] == ("alltoallv", [4, 8], [4 * (1 + rank)] * 2)


def test_counters_are_read_where_they_can_be(trace: Tracing, monkeypatch: pytest.MonkeyPatch) -> None:
    # counters of the kernel's stand in for those of hardware, which a virtual machine may not have
    for name, value in counters.environment(("task-clock", "page-faults"), at_events=False).items():
        monkeypatch.setenv(name, value)
    traced = trace("ring.c", 2)
    if not any("counters" in each for each in traced.processes[0].definitions):
        pytest.skip("perf_event_open does not work here (perf_event_paranoid)")
    counted = traced.workload.tables["counters"].to_pylist()
    duration = traced.workload.column("phases", "duration_ps")
    clock = {row["phase_id"]: row["value"] for row in counted if row["counter"] == "task-clock"}
    for phase in np.argsort(duration)[-10:].tolist():  # 5 stretches of computing on each rank
        # of one unit and one phase; on a machine that others use, too, two clocks of the kernel differ by a fifth
        assert clock[phase] * 1000 == pytest.approx(duration[phase], rel=0.5)
    assert traced.rows(0, "peer", "receive_bytes")[:2] == [("irecv", 1, 800), ("isend", 1, 0)]


@pytest.mark.parametrize("program", ["point_to_point.c", "communicators.c", "neighbours.c"])
def test_traces_replay_with_the_computing_that_was_traced(trace: Tracing, tmp_path: Path, program: str) -> None:
    traced = trace(program)
    workload_folder.write(traced.workload, tmp_path / "workload")
    chosen = {"path": str(tmp_path / "workload"), "time": "cpu"}  # of the thread that calls, as is summed below
    study = {"schema": 1, "workload": chosen, "target": "crossbar256"}
    manyscale.run(study, tmp_path / "run", report=False)
    timeline = pq.read_table(tmp_path / "run" / "timeline" / "ranks.parquet").to_pandas()
    compute = timeline[timeline["state"] == "compute"]
    replayed = (compute["end_ps"] - compute["start_ps"]).groupby(compute["rank"]).sum()
    cpu_ns = [int(each.operations["cpu_ns"].sum()) + each.end["rest_cpu_ns"] for each in traced.processes]
    assert np.array_equal(replayed.to_numpy(), 1000 * np.array(cpu_ns))
