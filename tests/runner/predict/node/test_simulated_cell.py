"""What a sampled cell tells TaskPoint and asks of schedules: classes of pieces, what ran before, how far schedules
differ."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "models" / "node"))
from block_programs import tasks_program
from node_memory import caches, node
from node_programs import node_program

from manyscale.models.node.burst import run_phases
from manyscale.models.node.instruction_stream import PieceStream
from manyscale.models.node.program.node_program import Action, NodeProgram
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.runner.predict.node.open_cell import OpenCell
from manyscale.runner.predict.node.sampled_uncertainty import _of_schedules
from manyscale.runner.predict.node.simulated_cell import _run_before
from manyscale.runner.predict.node.taskpoint_sampling import MOST_PARTS, _classes_of_pieces

CREATE, COMPUTE, WAIT = Action.create, Action.compute, Action.wait_children


def cell_of(program: NodeProgram, cores: int, instructions: list[int]) -> OpenCell:
    """At 1 GHz; the workload and its stream are not needed for what is asked here."""
    none = np.zeros(program.num_pieces, np.int64)
    pieces = PieceStream(none, none, none, np.array(instructions))
    machine = node(cores, caches({"L1D": (1024, 2, 1), "L2": (4096, 4, cores)}))
    return OpenCell(
        None, program, None, pieces, np.zeros(program.num_pieces, bool), 0, program.num_phases, machine, RuntimeSystem()
    )


@pytest.mark.theory
def test_classes_by_part_of_the_instance() -> None:
    """Instances 1 and 2 of class 0 have two pieces with instructions, instance 3 of class 1 six, mixed with others and
    with empty ones. The first pieces of a class are one class, the second ones another; from the fourth on all are."""
    assert MOST_PARTS == 4
    owner = np.array([1, 3, 2, 1, 1, 2, 3, 3, 3, 3, 3])
    instructions = np.array([9, 9, 9, 0, 9, 9, 9, 9, 9, 9, 9])
    found = _classes_of_pieces(owner, instructions, np.array([5, 0, 0, 1]))
    meant = ["0a", "1a", "0a", None, "0b", "0b", "1b", "1c", "1d", "1d", "1d"]
    for i, one in enumerate(meant):
        for j, other in enumerate(meant):
            if one and other:
                assert (found[i] == found[j]) == (one == other), (i, j)
    assert found.min() >= 0
    assert found.max() < 7  # close together: TaskPoint has a history for each


@pytest.mark.theory
@pytest.mark.parametrize("cores", [1, 4])
def test_independent_equal_instances_ran_in_turn(cores: int) -> None:
    """They end in the order of their creation, and of so many in a row, each core executes one."""
    cell = cell_of(tasks_program(12), cores, [1000] * 12)
    order, core = _run_before(cell, cores, 0, None)
    assert order.tolist() == list(range(1, 13))
    for first in range(0, 12, cores):
        assert sorted(core[first : first + cores].tolist()) == list(range(cores))
    assert np.array_equal(core[:cores], core[cores : 2 * cores])


@pytest.mark.theory
def test_what_ran_before_goes_by_instructions() -> None:
    """The first has as many as all others: it ends last, and they run on the other core."""
    cell = cell_of(tasks_program(5), 2, [4000, 1000, 1000, 1000, 900])
    order, core = _run_before(cell, 2, 0, None)
    assert order.tolist() == [2, 3, 4, 5, 1]
    assert len(set(core[:4].tolist())) == 1
    assert core[4] != core[0]


@pytest.mark.theory
def test_what_the_replay_schedules_ran_in_traced_order() -> None:
    """A phase with an MPI operation: as the profile says instances were begun, on one core after the other."""
    operation = [(Action.operation, 0), (COMPUTE, 1)]
    program = node_program([[(CREATE, k) for k in (1, 2, 3)], [(COMPUTE, 1)], operation, [(COMPUTE, 1)]])
    order, core = _run_before(cell_of(program, 2, [1000] * 3), 2, 0, SimpleNamespace(order=np.array([0, 3, 1, 2])))
    assert order.tolist() == [2, 3, 1]
    assert core.tolist() == [0, 1, 0]


def half_width(program: NodeProgram, cores: int, deviation: float = 0.0) -> float:
    """Of a cell whose pieces take their times in ``program``, and whose samples have a relative deviation."""
    cell = cell_of(program, cores, [1] * program.num_pieces)
    makespan = run_phases(program, cores, cell.runtime, program.piece_ps, 0, program.num_phases).makespan_ps[0]
    result = SimpleNamespace(makespan_ps=makespan, piece_ps=program.piece_ps, core_stack=np.zeros((cores, 1)))
    classes = SimpleNamespace(deviation=np.array([deviation, np.nan]), cycles=np.array([100.0, 0.0]))
    return _of_schedules(cell, result, SimpleNamespace(classes=classes))


def anomalous(count: int, long_ps: int) -> NodeProgram:
    """Recursion on two cores, ``count`` times: two equal parts (10 us); behind the first a long one, behind the second
    two halves of it. If the first part ends first, the long one takes a core and the halves the other; if the second
    does, both cores take a half first, and the long one alone lasts as long again."""
    steps: list[list[tuple[Action, int]]] = [[]]
    edges = []
    for k in range(count):
        a, b, long, half, other = range(5 * k + 1, 5 * k + 6)
        steps[0] += [(CREATE, number) for number in (a, b, long, half, other)] + [(WAIT, 0)]
        steps += [[(COMPUTE, ps)] for ps in (10**7, 10**7, long_ps, long_ps // 2, long_ps // 2)]
        edges += [(a, long), (b, half), (b, other)]
    return node_program(steps, edges)


@pytest.mark.theory
def test_schedules_of_independent_instances_leave_nothing_open() -> None:
    """Whatever their times: which core takes which does not change what all of them take."""
    assert half_width(tasks_program(40), 4, deviation=0.3) == 0.0


@pytest.mark.theory
def test_schedules_that_small_differences_change() -> None:
    """Times that agree to 0.1 %, and makespans of 110 or 160 us each, by chance: of twelve in a row the deviation is
    25 / 135 / sqrt(12) = 5 %. A chain of equal ones, without such a choice, has 0.1 % / sqrt(60), and the half-width of
    four schedules is 3.2 times the deviation found."""
    assert half_width(anomalous(12, 10**8), 2) > 0.01
    chain = tasks_program(60, edges=[(k, k + 1) for k in range(1, 60)])
    assert 0 < half_width(chain, 2) < 0.002


@pytest.mark.theory
def test_schedules_know_how_far_samples_differ() -> None:
    """A chain of 16 whose times have a deviation of 20 %: its sum has 5 %, instead of 0.1 % / 4. Chance leaves factors
    of a few to four schedules."""
    chain = tasks_program(16, edges=[(k, k + 1) for k in range(1, 16)])
    assert half_width(chain, 2, deviation=0.2) > 20 * half_width(chain, 2)


@pytest.mark.theory
def test_schedules_of_what_the_replay_schedules_are_its_matter() -> None:
    program = anomalous(12, 10**8)
    action = program.step_action.copy()
    action[action == WAIT] = Action.operation
    assert (
        _of_schedules(
            cell_of(replace(program, step_action=action), 2, [1] * program.num_pieces),
            SimpleNamespace(makespan_ps=np.array([1]), piece_ps=program.piece_ps, core_stack=np.zeros((2, 1))),
            SimpleNamespace(classes=None),
        )
        == 0.0
    )
