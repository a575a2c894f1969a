"""What of a node program is serial: closed forms, and never more than a schedule shows the initial task alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from node_programs import Steps, node_program
from scheduled_programs import drawn_program, run

from manyscale.models.node.program.node_program import Action, NodeProgram
from manyscale.models.node.program.serial_parts import serial_parts

COMPUTE, CREATE, WAIT = Action.compute, Action.create, Action.wait_children


def serial(program: NodeProgram, **keywords: float) -> list[float]:
    return serial_parts(program, program.piece_ps, **keywords).tolist()


@pytest.mark.theory
@pytest.mark.parametrize(
    ("steps", "others", "loops", "expected"),
    [
        ([(COMPUTE, 7)], [], [], 7),
        # before the first task, not while it may run, and after the wait
        ([(COMPUTE, 1), (CREATE, 1), (COMPUTE, 10), (WAIT, 0), (COMPUTE, 100)], [[(COMPUTE, 50)]], [], 101),
        ([(COMPUTE, 1), (CREATE, 1), (COMPUTE, 10), (Action.barrier, 0), (COMPUTE, 100)], [[(COMPUTE, 50)]], [], 101),
        # a loop is over when the initial task goes on; one that it does not wait for may not be
        ([(COMPUTE, 1), (Action.loop, 0), (COMPUTE, 10)], [[(COMPUTE, 50)]], [(1, 2)], 11),
        ([(COMPUTE, 1), (Action.loop_nowait, 0), (COMPUTE, 10)], [[(COMPUTE, 50)]], [(1, 2)], 1),
        # an undeferred instance is executed by the same core
        ([(COMPUTE, 1), (Action.call, 1), (COMPUTE, 10)], [[(COMPUTE, 50)]], [], 61),
        # a group waits for what was created in it
        (
            [(COMPUTE, 1), (Action.begin_group, 0), (CREATE, 1), (COMPUTE, 10), (Action.end_group, 0), (COMPUTE, 100)],
            [[(COMPUTE, 50)]], [], 101,
        ),
        # and not for what was created before
        (
            [(CREATE, 1), (Action.begin_group, 0), (CREATE, 2), (Action.end_group, 0), (COMPUTE, 100)],
            [[(COMPUTE, 50)], [(COMPUTE, 50)]], [], 0,
        ),
        # children of children may be left after a wait for children, not after a barrier
        (
            [(CREATE, 1), (WAIT, 0), (COMPUTE, 10), (Action.barrier, 0), (COMPUTE, 100)],
            [[(CREATE, 2)], [(COMPUTE, 50)]], [], 100,
        ),
    ],
)  # fmt: skip
def test_what_the_initial_task_does_alone(
    steps: Steps, others: list[Steps], loops: list[tuple[int, int]], expected: int
) -> None:
    assert serial(node_program([steps, *others], loops=loops)) == [expected]


@pytest.mark.theory
def test_each_phase_begins_with_nothing_left() -> None:
    steps = [(COMPUTE, 3), (CREATE, 1), (COMPUTE, 10), (COMPUTE, 5)]
    program = node_program([steps, [(COMPUTE, 50)]], phases=[(3, 1), (1, 0)])
    assert serial(program) == [3, 5]
    assert serial(program, creator_speedup=2.0) == [1.5, 5]  # it creates in the first one alone


@pytest.mark.property
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 30), st.integers(2, 9), st.booleans())
def test_other_cores_are_idle_meanwhile(seed: int, num_cores: int, costly: bool) -> None:
    """Idle for as long as all of them are while the initial task works alone; without costs, all its serial time is
    seen in the stretches when no other instance runs."""
    program = drawn_program(seed)
    costs = {"create": 2, "schedule": 3, "complete": 1} if costly else {}
    result = run(program, num_cores, **costs)
    (found,) = serial(program)
    assert found <= program.piece_ps.sum()
    if not costly:
        assert (num_cores - 1) * found <= result.idle_ps.sum()
        assert found <= alone(program, result.stretches)


def alone(program: NodeProgram, stretches: np.ndarray) -> int:
    """Time in which exactly one core has an instance."""
    at = np.concatenate((stretches["start_ps"], stretches["end_ps"]))
    step = np.repeat([1, -1], len(stretches))
    order = np.lexsort((step, at))
    running = np.cumsum(step[order])
    return int(np.diff(at[order])[running[:-1] == 1].sum()) if len(at) else 0
