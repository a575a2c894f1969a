"""Large loops and serial parts cut into windows: what each holds, and that together they are the whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from node_programs import node_program

from manyscale.models.node.burst import run_phases
from manyscale.models.node.program.node_program import Action, LoopFlag, NodeProgram
from manyscale.models.node.program.regions import cut_at_waits
from manyscale.models.node.program.windows import with_windows
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem

COMPUTE, CREATE, WAIT, LOOP = Action.compute, Action.create, Action.wait_children, Action.loop
CORES = 2


def program() -> NodeProgram:
    """A serial piece; two tasks; a loop of a chunk a core; one of 64 chunks; a small loop; times are instructions."""
    steps = [
        (COMPUTE, 4000), (CREATE, 1), (CREATE, 2), (WAIT, 0), (LOOP, 0), (COMPUTE, 30), (LOOP, 1), (LOOP, 2),
        (COMPUTE, 50),
    ]  # fmt: skip
    others = [[(COMPUTE, 70)]] * 2 + [[(COMPUTE, 5000)]] * 2 + [[(COMPUTE, 200)]] * 64 + [[(COMPUTE, 100)]] * 2
    return replace(node_program([steps, *others], loops=[(3, 5), (5, 69), (69, 71)]), num_cores=CORES)


def makespans(found: NodeProgram, **costs: str) -> list[int]:
    runtime = RuntimeSystem.model_validate({"create": "0 ns", "schedule": "0 ns", "complete": "0 ns", **costs})
    return run_phases(found, CORES, runtime, found.piece_ps).makespan_ps[0].tolist()


@pytest.mark.theory
def test_windows_are_like_parts_and_make_up_the_whole() -> None:
    whole = program()
    windows = with_windows(whole, whole.piece_ps, 1000)
    assert windows.num_cut == 3
    # an eighth longer than they have to be; of the second loop with 8 chunks of each core, where length alone says 11
    assert windows.num_windows == 3 + 8 + 4
    assert np.bincount(windows.piece, windows.program.piece_ps).tolist() == whole.piece_ps.tolist()
    assert windows.program.piece_ps.tolist() == windows.shares(whole.piece_ps).tolist()
    assert np.array_equal(whole.piece_instance[windows.piece], windows.row[windows.program.piece_instance])
    assert np.array_equal(whole.instance_id[windows.row], windows.program.instance_id)
    assert np.unique(windows.row[windows.row_is_part]).tolist() == [3, 4]
    assert makespans(windows.program) == makespans(whole) == [4000 + 70 + 5000 + 30 + 6400 + 100 + 50]


@pytest.mark.theory
@pytest.mark.parametrize(("length", "num_short"), [(20_000, 0), (15_000, 11), (7_000, 10 + 25)])
def test_short_windows_are_counted(length: int, num_short: int) -> None:
    """80,000 instructions in turn; two chunks of 100,000, in eight windows of 12,500 for each core, in 11 of 9,090 or
    in 25; 16 chunks of 4,000 are never short."""
    whole = program()
    assert with_windows(whole, 20 * whole.piece_ps, length).num_short == num_short


@pytest.mark.theory
def test_windows_fork_and_hand_out_chunks_as_their_loop_does() -> None:
    """Two cores begin a parallel region in 3 ns, once, or for each of eight windows; and ask 32 times each for one of
    64 chunks, at 1 ns."""
    flags = np.array([LoopFlag.forks, 0, LoopFlag.asked, 0, 0, 0], np.uint8)
    whole = replace(program(), loop_flags=flags)
    windows = with_windows(whole, whole.piece_ps, 1000)
    found = windows.program
    assert len(found.loop_flags) == len(found.first_chunk) - 1
    costs = {"fork": "3 ns", "chunk": "1 ns"}
    assert makespans(whole, **costs) == [makespans(whole)[0] + 3000 + 32 * 1000]
    assert makespans(found, **costs) == [makespans(whole)[0] + 8 * 3000 + 32 * 1000]
    assert windows.of_loop.tolist() == [1, 1, 1, *[8] * 16, *[4] * 64, 1, 1]


@pytest.mark.theory
def test_regions_end_behind_windows() -> None:
    whole = program()
    windows = with_windows(whole, whole.piece_ps, 1000)
    found = cut_at_waits(windows.program, windows.program.piece_ps, 1000, windows.may_end)
    # serial windows; tasks and the first window of a loop; its others; 16 chunks on two cores; what is left
    assert makespans(found) == [1333, 1333, 1334, 695, *[625] * 7, 1630, *[1600] * 3, 150]


@pytest.mark.theory
@pytest.mark.parametrize(
    ("steps", "others", "loops"),
    [
        ([(COMPUTE, 999), (LOOP, 0)], [[(COMPUTE, 499)]] * 2, [(1, 3)]),  # too short
        ([(LOOP, 0), (COMPUTE, 1)], [[(COMPUTE, 2000)]] * 3, [(1, 4)]),  # more chunks than cores, not many
        ([(Action.loop_nowait, 0), (COMPUTE, 9000)], [[(COMPUTE, 9000)]] * 2, [(1, 3)]),  # not waited for
        ([(LOOP, 0), (COMPUTE, 1)], [[(COMPUTE, 9000), (Action.acquire, 0), (Action.release, 0)]], [(1, 2)]),
        ([(CREATE, 1), (COMPUTE, 9000), (WAIT, 0)], [[(COMPUTE, 9000)]], []),  # beside a task
        ([(Action.acquire, 0), (COMPUTE, 9000), (Action.release, 0)], [], []),
    ],
)  # fmt: skip
def test_what_is_not_cut(steps: list, others: list, loops: list) -> None:
    whole = replace(node_program([steps, *others], loops=loops, num_locks=1), num_cores=CORES)
    windows = with_windows(whole, whole.piece_ps, 250)
    assert windows.num_windows == 0
    assert windows.program is whole
