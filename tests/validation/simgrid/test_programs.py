"""Small MPI programs, traced and timed by SimGrid, in what its own replay cannot do.

Synchronous and buffered sends, wildcards, waitany and polling, non-blocking collectives, persistent requests,
MPI_PROC_NULL, messages to oneself, ... (programs/*.c). The trace is replayed, and the end of every rank compared with
when the *program* ended in SimGrid 3.32 (not its replay). Golden: stored traces and times, made by golden.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from simgrid import golden, peer
from simgrid.comparison import CONTRACT_S, TIGHT_S, assert_same_times, worst_difference
from simgrid.prediction import predict

# SimGrid lets a long buffered send travel only when its receive is posted (tests/validation/DEVIATIONS.md, 6)
LATE_IN_SIMGRID = ("bsend", "eager")
CASES = [(name, start) for name in golden.names() for start in golden.STARTS if (name, start) != LATE_IN_SIMGRID]
needs_peer = pytest.mark.skipif(not peer.available(), reason="SimGrid is not installed")


def compare(trace: Path, start: str, ends: object, title: str) -> float:
    prediction = predict(trace, start == "eager")
    return assert_same_times(dict(enumerate(prediction.rank_ends_s)), dict(enumerate(ends)), TIGHT_S, title)


def test_there_are_at_least_twenty_programs_and_data_for_each() -> None:
    names = golden.names()
    assert len(names) >= 20
    assert all(golden.trace(name, "match").is_file() and len(golden.ends(name, "eager")) > 1 for name in names)
    stored = {path.name.split(".")[0] for path in golden.DATA.glob("*.txt")}
    assert stored == set(names)


@pytest.mark.golden
@pytest.mark.parametrize(("name", "start"), CASES)
def test_every_rank_ends_when_the_program_did(name: str, start: str) -> None:
    compare(golden.trace(name, start), start, golden.ends(name, start), f"{name}, {start}")


@pytest.mark.known_gap
def test_long_buffered_sends_leave_at_once_with_eager_start() -> None:
    name, start = LATE_IN_SIMGRID
    predicted = dict(enumerate(predict(golden.trace(name, start), True).rank_ends_s))
    reference = dict(enumerate(golden.ends(name, start)))
    assert worst_difference(predicted, reference)[0] > CONTRACT_S
    assert all(predicted[rank] <= reference[rank] for rank in reference)


@pytest.mark.peer
@pytest.mark.slow
@needs_peer
@pytest.mark.parametrize(("name", "start"), [(name, start) for name in golden.names() for start in golden.STARTS])
def test_the_golden_data_are_simgrids(name: str, start: str, tmp_path: Path) -> None:
    text, ends = golden.make(tmp_path, name, start)
    assert text == golden.trace(name, start).read_text()
    assert_same_times(dict(enumerate(golden.ends(name, start))), dict(enumerate(ends)), 1e-12, name)
    if (name, start) != LATE_IN_SIMGRID:
        compare(tmp_path / "ti.txt", start, ends, f"{name}, {start}")


@pytest.mark.peer
@needs_peer
@pytest.mark.parametrize("name", ["waitany", "icollectives_in_flight", "master_worker"])
def test_a_program_can_be_run_now(name: str, tmp_path: Path) -> None:
    _, ends = golden.make(tmp_path, name, "match")
    compare(tmp_path / "ti.txt", "match", ends, name)
