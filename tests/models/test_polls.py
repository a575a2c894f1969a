"""What only polling did: the rule, on runs of polls written by hand, and its way to a prediction."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from manyscale.models.workload import PhaseKind
from manyscale.models.workload.polls import Poll, polling, without_polls
from manyscale.runner.readers import simgrid_ti
from manyscale.runner.study.traces import read_workload
from manyscale.runner.study.workload import WorkloadChoice

pytestmark = pytest.mark.theory
_WORDS = {"!": Poll.failed, "+": Poll.found, "0": Poll.idle, "?": Poll.unknown, "|": Poll.ends, ",": Poll.beside}


def left_out(run: str) -> str:
    """``run``: calls by _WORDS, each after work of as many units as dots before it. The work that only polling did is
    given back as x."""
    role, operation, duration, place = [], [], [], []
    units = 0
    for at, sign in enumerate(run):
        if sign == ".":
            units += 1
            continue
        if units:
            operation.append(len(role))
            duration.append(units)
            place.append((at - units, at))
            units = 0
        role.append(_WORDS[sign])
    marked = polling(np.array(role, np.int8), np.array(operation, np.int64), np.array(duration, np.int64))
    result = list(run)
    for (first, end), gone in zip(place, marked, strict=True):
        if gone:
            result[first:end] = "x" * (end - first)
    return "".join(result)


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        # while (!flag) { work; test }: the first piece is done in any case
        ("|.!.!.!.+...|", "|.!x!x!x+...|"),
        ("|.+..|", "|.+..|"),
        # a loop with a time limit calls MPI_Wtime, too
        ("|.!.,.!.,+|", "|.!x,x!x,+|"),
        # what is done with the first of two messages is work; both tests of a round, the first request null by then
        ("|.!.+.....!.!.+|", "|.!x+.....!x!x+|"),
        ("|.!!.+!.0!.0+..|", "|.!!x+!x0!x0+..|"),
        # the last test of the last round has nothing to ask for
        ("|.!0.!0.+0..|", "|.!0x!0x+0..|"),
        # work with tests between, to drive communication: ended by a wait, or going on after the success
        ("|.!.!.!.|", "|.!.!.!.|"),
        ("|.!.!.+.0.0.|", "|.!.!.+.0.0.|"),
        ("|.!.+.!.|.|", "|.!.+.!.|.|"),
        # MPI_Iprobe, whose outcome OTF2 does not record: a receive follows the last one
        ("|.?.?.?|..|", "|.?x?x?|..|"),
        # runs are apart
        ("|.!.!|.!.+|.!.|", "|.!.!|.!x+|.!.|"),
        ("", ""),
    ],
)
def test_what_only_polling_did(run: str, expected: str) -> None:
    assert left_out(run) == expected


def trace(folder: Path) -> Path:
    """Rank 0 polls three times for a message of rank 1, with 200 us between, and then computes 1 ms."""
    path = folder / "polls.txt"
    path.write_text(
        "0 init 1\n0 irecv 1 5 8 6\n0 compute 2e5\n0 test 1 0 5\n0 compute 2e5\n0 test 1 0 5\n0 sleep 2e-4\n"
        "0 test 1 0 5\n0 compute 1e6\n0 finalize\n1 init 1\n1 send 0 5 8 6\n1 finalize\n"
    )
    return path


def test_polls_are_left_out_or_kept(tmp_path: Path) -> None:
    path = trace(tmp_path)
    marked = simgrid_ti.read(path)
    both = [PhaseKind.compute, PhaseKind.polled_compute, PhaseKind.polled_sleep, PhaseKind.compute]
    assert marked.column("phases", "kind").tolist() == both
    dropped = read_workload(WorkloadChoice(path=str(path)))
    assert dropped.column("phases", "duration_ps").tolist() == [2e8, 1e9]
    assert dropped.column("phases", "kind").tolist() == [PhaseKind.compute, PhaseKind.compute]
    kept = read_workload(WorkloadChoice(path=str(path), polls="keep"))
    assert kept.column("phases", "duration_ps").tolist() == [2e8, 2e8, 2e8, 1e9]
    assert kept.column("phases", "kind").tolist() == [0, 0, PhaseKind.sleep, 0]
    said = {note.code: note for note in (*dropped.notes, *kept.notes)}
    assert (said["polls-left-out"].severity, said["polls-left-out"].count) == ("changes", 2)
    assert "0.0004 s" in said["polls-left-out"].text
    assert said["polls-kept"].severity == "informs"


def test_a_loop_of_polls_takes_what_its_work_takes(cli, write_trace, tmp_path: Path) -> None:
    """Four times: a barrier without waiting, then polls with 0.2 ms before each, then 1 ms on even ranks and 2 ms on
    odd ones. Even ranks polled nine times in the traced run. On an ideal machine each time takes 0.2 + 2 ms."""
    poll = ["compute 2e5", "testall"]
    ranks = {
        rank: ["init", *4 * ["ibarrier", *(1 if rank % 2 else 9) * poll, f"compute {1 + rank % 2}e6"], "finalize"]
        for rank in range(4)
    }
    trace = write_trace(ranks)
    for polls, expected in (("drop", 4 * 2.2e-3), ("keep", 4 * 2.8e-3)):
        output = tmp_path / polls
        further = ("--set", f"workload.polls={polls}", "--no-report")
        assert cli("run", "--workload", trace, "--target", "crossbar256", "-o", output, *further).status == 0
        makespan = json.loads((output / "stats.json").read_text())["application.makespan"]["value"]
        assert makespan == pytest.approx(expected, rel=0.02)


def test_counters_of_the_phases_that_stay(tmp_path: Path) -> None:
    marked = simgrid_ti.read(trace(tmp_path))
    rows = [{"phase_id": phase, "counter": "cycles", "value": 10 + phase} for phase in range(4)]
    counters = type(marked.tables["counters"]).from_pylist(rows, marked.tables["counters"].schema)
    dropped, _ = without_polls(replace(marked, tables={**marked.tables, "counters": counters}), keep=False)
    assert dropped.tables["counters"].to_pylist() == [
        {"phase_id": 0, "counter": "cycles", "value": 10},
        {"phase_id": 1, "counter": "cycles", "value": 13},
    ]
