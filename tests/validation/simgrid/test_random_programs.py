"""Random programs: the replay against SimGrid's own, action by action, and what must hold without SimGrid.

Reference: SimGrid 3.32, ``smpirun -replay`` with the flags of peer.py. Tolerance: comparison.TIGHT_S for the end of
every action of every rank and for the makespan.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from simgrid import peer
from simgrid.comparison import TIGHT_S, assert_same_times
from simgrid.prediction import NO_OPERATION, Prediction, predict
from simgrid.random_programs import RandomProgram, generate

QUICK = range(15)
FULL = range(15, 200)
needs_peer = pytest.mark.skipif(not peer.available(), reason="SimGrid is not installed")

# position of the work of a reduction in its line, counted behind the verb; reducescatter has a count per rank first
WORK_FIELD = {"reduce": 2, "allreduce": 2, "scan": 2, "exscan": 2}


def work_s(action: str, num_ranks: int) -> float:
    """The compute that SimGrid's replay does at the end of a reduction; here it is a phase of its own."""
    words = action.split()
    field = num_ranks + 1 if words[0] == "reducescatter" else WORK_FIELD.get(words[0])
    return float(words[field]) * 1e-9 if field else 0.0


def reference_ends(replayed: peer.Replayed) -> dict[tuple[int, int], float]:
    """End of every operation by (rank, operation): init first, finalize last."""
    ends = {}
    for rank, actions in enumerate(replayed.actions):
        operations = [(action, end) for action, end in actions if action.split()[0] not in NO_OPERATION]
        last = actions[-1][1] if actions else 0.0
        times = [0.0, *(end - work_s(action, len(replayed.actions)) for action, end in operations), last]
        ends.update({(rank, index): time for index, time in enumerate(times)})
    return ends


def predicted_ends(prediction: Prediction, lines: tuple[tuple[str, ...], ...]) -> dict[tuple[int, int], float]:
    """As `reference_ends`; the compute before a rank's first operation (init) does not exist there."""
    assert [line[0].split()[0] for line in lines] == ["init"] * len(lines)
    return {
        (rank, index): float(end)
        for rank, ends in enumerate(prediction.operation_ends_s)
        for index, end in enumerate(ends)
    }


def compare(program: RandomProgram, folder: Path) -> float:
    """Largest difference in seconds over all operations and the makespan."""
    flags = peer.POLLING_FLAGS if program.polls else ()
    replayed = peer.replay(folder, program.actions, program.eager, flags)
    prediction = predict(folder / "ti.txt", program.eager)
    title = f"random program {program.seed}"
    ends = predicted_ends(prediction, program.actions)
    return max(
        assert_same_times(ends, reference_ends(replayed), TIGHT_S, title),
        assert_same_times({0: prediction.makespan_s}, {0: replayed.makespan_s}, TIGHT_S, title),
    )


@pytest.mark.peer
@needs_peer
@pytest.mark.parametrize("seed", QUICK)
def test_every_action_ends_when_simgrid_says(seed: int, tmp_path: Path) -> None:
    compare(generate(seed), tmp_path)


@pytest.mark.peer
@pytest.mark.slow
@needs_peer
@pytest.mark.parametrize("seed", FULL)
def test_every_action_of_many_programs_ends_when_simgrid_says(seed: int, tmp_path: Path) -> None:
    compare(generate(seed), tmp_path)


@pytest.mark.property
@pytest.mark.parametrize("seed", range(1000, 1020))
def test_generated_programs_never_deadlock(seed: int, tmp_path: Path) -> None:
    program = generate(seed)
    prediction = predict(peer.write_trace(tmp_path, program.actions), program.eager)
    assert prediction.makespan_s == max(prediction.rank_ends_s)
    assert [len(ends) for ends in prediction.operation_ends_s] == [
        sum(line.split()[0] not in NO_OPERATION for line in lines) for lines in program.actions
    ]


@pytest.mark.property
def test_the_programs_cover_what_they_should() -> None:
    programs = [generate(seed) for seed in (*QUICK, *FULL)]
    verbs = {line.split()[0] for program in programs for lines in program.actions for line in lines}
    assert verbs >= {
        *("init", "finalize", "compute", "sleep", "location", "send", "isend", "recv", "irecv", "sendRecv", "wait"),
        *("test", "waitall", "barrier", "bcast", "reduce", "allreduce", "scan", "exscan", "gather", "gatherv"),
        *("scatter", "scatterv", "allgather", "allgatherv", "alltoall", "alltoallv", "reducescatter", "comm_dup"),
    }
    assert {program.eager for program in programs} == {False, True}
    assert {len(program.actions) for program in programs} == set(range(2, 13))
    assert {lines[0] for program in programs for lines in program.actions} == {"init", "init 1"}
    assert generate(3) == generate(3) != generate(4)


@pytest.mark.peer
@needs_peer
@pytest.mark.parametrize("first_type", range(0, 60, 15))
def test_every_datatype_has_simgrids_size(first_type: int, tmp_path: Path) -> None:
    types = range(first_type, first_type + 15)
    sends = [f"send 1 0 1000 {number}" for number in types]
    receives = [f"recv 0 0 1000 {number}" for number in types]
    lines = (("init", *sends, "finalize"), ("init", *receives, "finalize"))
    replayed = peer.replay(tmp_path, lines)
    prediction = predict(tmp_path / "ti.txt")
    assert_same_times(predicted_ends(prediction, lines), reference_ends(replayed), TIGHT_S)


CORNERS = {
    "one rank": [
        [
            *("compute 100", "isend 0 3 5", "irecv 0 3 5", "waitall 2", "barrier", "allreduce 5 7", "alltoall 3 3"),
            *("reducescatter 5 3", "sendRecv 4 0 4 0 6 6", "bcast 4", "scan 4 9", "gather 4 4", "gatherv 4 4"),
            *("scatterv 4 4", "allgatherv 4 4", "alltoallv 4 4 4 4"),
        ]
    ],
    "both halves of a sendRecv to oneself, at different times": [
        ["irecv 0 0 9000", "compute 50000", "sendRecv 9000 0 100 1 6 6", "wait 0 0 0"],
        ["send 0 0 100"],
    ],
    "a sendRecv from oneself": [
        ["compute 3000", "isend 0 0 90000", "sendRecv 100 1 90000 0 6 6", "compute 5", "wait 0 0 0"],
        ["recv 0 0 100"],
    ],
    "only the root's sizes count in a scatter": [["scatter 100 100"], ["scatter 99999 100"], ["scatter 0 100"]],
    "only the sender's sizes count in a gather": [["gather 0 100"], ["gather 100 0 0 6 6"], ["gather 100 77777"]],
    "types differ, bytes agree": [
        ["bcast 100 0 0", "alltoall 100 800 0 6", "gatherv 100 100 200 0 0 0"],
        ["bcast 800 0 6", "alltoall 800 100 6 0", "gatherv 1600 0 0 0 6 0"],
    ],
    "less than 60 units of work in a reducescatter of doubles": [["reducescatter 3 4 5 0"], ["reducescatter 3 4 5 0"]],
    "a long reducescatter of few elements": [["reducescatter 1 70000 9 0 0"]] * 3,
    "two requests of one key, one wait, then a waitall": [
        ["irecv 0 0 0", "isend 0 0 0", "wait 0 0 0", "compute 5", "waitall 1", "compute 7"]
    ],
    "a wait and a waitall for equal receives that complete at different times": [
        ["irecv 1 0 9000", "irecv 1 0 9000", "wait 1 0 0", "compute 500", "waitall 1", "irecv 1 0 5", "wait 1 0 0"],
        ["send 0 0 9000", "compute 90000", "send 0 0 70", "send 0 0 5"],
    ],
    "fractions of a nanosecond": [["compute 0.25", "compute 0.004", "barrier"], ["compute 1e-3", "barrier"]],
    "waiting for nothing": [["waitall 0", "barrier"], ["waitall 3", "barrier"]],
}


@pytest.mark.peer
@needs_peer
@pytest.mark.parametrize("eager", [False, True], ids=["match", "eager"])
@pytest.mark.parametrize("name", CORNERS)
def test_corner_cases(name: str, eager: bool, tmp_path: Path) -> None:
    lines = tuple(("init", *rank, "finalize") for rank in CORNERS[name])
    replayed = peer.replay(tmp_path, lines, eager)
    prediction = predict(tmp_path / "ti.txt", eager)
    assert_same_times(predicted_ends(prediction, lines), reference_ends(replayed), TIGHT_S, name)


@pytest.mark.peer
@needs_peer
@pytest.mark.parametrize("size", sorted({2**k + d for k in range(1, 21) for d in (-1, 0)}))
def test_alltoall_of_two_ranks_at_the_limits_of_the_table(size: int, tmp_path: Path) -> None:
    """Nine limits below which Open MPI's table, as SimGrid has it, changes the algorithm."""
    lines = (("init", f"alltoall {size} {size}", "finalize"),) * 2
    replayed = peer.replay(tmp_path, lines)
    prediction = predict(tmp_path / "ti.txt")
    assert_same_times(predicted_ends(prediction, lines), reference_ends(replayed), TIGHT_S)
