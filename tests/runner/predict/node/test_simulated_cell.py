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

from manyscale.models.node.instruction_stream import PieceStream
from manyscale.models.node.program.node_program import Action, NodeProgram
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.models.node.shared import run_kernel
from manyscale.models.node.shared.run import AnalyticalPhases
from manyscale.runner.predict.node.cells import analytical_cell, sampled_uncertainty, taskpoint_sampling
from manyscale.runner.predict.node.cells.cell_units import _at_speed_1, _core_times
from manyscale.runner.predict.node.cells.open_cell import OpenCell
from manyscale.runner.predict.node.cells.sampled_kernel import no_lines, skipped_lines
from manyscale.runner.predict.node.cells.sampled_uncertainty import _depends, _share_of_makespan, relative_half_width
from manyscale.runner.predict.node.cells.simulated_cell import _by_intervals, _run_before
from manyscale.runner.predict.node.cells.taskpoint_sampling import MOST_PARTS, TaskPointPieces, _classes_of_pieces
from manyscale.sampling.taskpoint.estimate import ForwardedErrors
from manyscale.sampling.taskpoint.options import TaskPointChoice

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


@pytest.mark.theory
def test_the_runtime_system_s_time_is_known_of_analytical_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three instances of 5 ns; 4 ns of two cores in the runtime system are no time of the program's."""
    cell = cell_of(tasks_program(3), 2, [5] * 3)
    instances = np.zeros(4, run_kernel.INSTANCE)
    piece_ps, overhead_ps = np.full(3, 5_000), np.array([3_000, 1_000])
    phases = AnalyticalPhases(np.array([12_000]), piece_ps, instances, np.zeros(3), overhead_ps)
    monkeypatch.setattr(analytical_cell, "predict", lambda *_: analytical_cell.Predicted(phases, ()))
    monkeypatch.setattr(OpenCell, "issued", np.zeros(4))  # of the workload
    found = _by_intervals(cell, {"cores": 2}, {})
    assert _core_times(cell.program, found, 0, 1, cell.node).tolist() == [[15_000, 4_000, 0]]


def share(program: NodeProgram, cores: int, forwarded: list[int], of_mean: float, of_own: float = 0.0) -> float:
    """r of a cell whose pieces take their times in ``program``, of which those were fast-forwarded as one group."""
    cell = cell_of(program, cores, [1] * program.num_pieces)
    result = SimpleNamespace(piece_ps=program.piece_ps, core_stack=np.zeros((cores, 1)))
    count = len(forwarded)
    errors = ForwardedErrors(
        np.array(forwarded), program.piece_ps[forwarded].astype(float), np.zeros(count, np.int64), np.array([of_mean]),
        np.full(count, of_own), 3.0, 0.0, 0.0, 3.0, 0.0,
    )  # fmt: skip
    return _share_of_makespan(cell, result, errors, 1.0)


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
def test_twice_of_what_stale_caches_hide_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """To an interval of 1 % of 1,000 cycles: 50 cycles hidden, on whichever side, are 10 % more. Four independent
    instances of 1 us on two cores add their grain beside: 1 us of the phase's 2."""
    found = SimpleNamespace(
        errors=SimpleNamespace(instance=np.arange(4), cycles=np.full(4, 1000.0)), busy_cycles=1000.0,
        half_width_cycles=10.0, relative_half_width=0.01,
    )  # fmt: skip
    monkeypatch.setattr(sampled_uncertainty, "estimate", lambda _: found)
    cell, result = cell_of(tasks_program(4), 2, [1000] * 4), SimpleNamespace(makespan_ps=np.array([2_000_000]))
    for hidden, expected in ((0.0, 0.01), (50.0, 0.11), (-50.0, 0.11)):
        assert relative_half_width(cell, result, None, hidden) == pytest.approx(expected + 0.5)


@pytest.mark.theory
@pytest.mark.parametrize(
    ("fast_forward", "knows_lines", "hidden"), [("stale", True, 7), ("warm", True, 0), ("stale", False, 0)]
)
def test_only_stale_caches_hide_something(
    monkeypatch: pytest.MonkeyPatch, fast_forward: str, knows_lines: bool, hidden: float
) -> None:
    monkeypatch.setattr(taskpoint_sampling, "hidden_cycles", lambda *_: 7.0)
    monkeypatch.setattr(taskpoint_sampling, "relative_half_width", lambda *given: given[3])
    cell = cell_of(tasks_program(1), 2, [1000])
    asked = TaskPointChoice.model_validate({"fast_forward": fast_forward})
    pieces = TaskPointPieces(cell, 2, asked, np.zeros(2, np.int32), None)
    one = np.zeros(1, np.int32), np.zeros(1, bool), np.zeros(1, np.int64)
    pieces.watch(skipped_lines(np.array([0, 0, 1]), *one, 2, 4, 8) if knows_lines else no_lines(2))
    assert pieces.half_width(cell, None) == hidden


@pytest.mark.theory
def test_times_of_slow_cores_are_told_at_speed_1() -> None:
    """Of three instances the second ran for 2 us on a core of half the speed; the rank's first core is its node's
    second."""
    found = SimpleNamespace(piece_ps=np.full(3, 2e6), row=np.arange(1, 4), arrays={"core": np.array([0, 1, 0])})
    machine = SimpleNamespace(core_kinds=("fast", "slow"), core_speeds=(4.0, 1.0, 0.5, 0.25))
    assert _at_speed_1(tasks_program(3), found, machine, {"first_core": 1, "cores": 2}).tolist() == [2e6, 1e6, 2e6]


@pytest.mark.theory
def test_a_chain_passes_on_what_its_times_err() -> None:
    """Its makespan is its busy time."""
    chain = tasks_program(60, edges=[(k, k + 1) for k in range(1, 60)])
    assert share(chain, 2, list(range(60)), 0.2, 0.1) == pytest.approx(1)


@pytest.mark.theory
def test_what_is_not_on_the_way_that_decides_passes_on_nothing() -> None:
    """A chain of 4 x 100 us in detail, and beside it, on the other core, 10 us that may err by half."""
    steps = [[(CREATE, k) for k in range(1, 6)], *[[(COMPUTE, 10**8)]] * 4, [(COMPUTE, 10**7)]]
    program = node_program(steps, [(1, 2), (2, 3), (3, 4)])
    assert share(program, 2, [4], 0.5) == 0.0


@pytest.mark.theory
def test_two_of_three_equal_parts() -> None:
    """After a task of 100 us two of 100 us at once, one of each kind in detail: makespan 200, busy time 300; if the
    last one takes x more, the makespan grows by x: relative to both, 1.5 times as much; if it takes less, nothing
    moves. Of equal squares up and 0 down the root mean square is 1.5 / sqrt(2)."""
    program = node_program(
        [[(CREATE, k) for k in (1, 2, 3)], *[[(COMPUTE, 10**8)]] * 3], [(1, 2), (1, 3)]
    )  # fmt: skip
    assert share(program, 2, [2], 0.01) == pytest.approx(1.5 / np.sqrt(2), rel=0.1)


@pytest.mark.theory
def test_schedules_that_small_differences_change() -> None:
    """Times that agree to 0.1 %, and makespans of 110 or 160 us each, by chance."""
    program = anomalous(12, 10**8)
    assert share(program, 2, list(range(program.num_pieces)), 0.0) > 10


@pytest.mark.theory
def test_which_cells_are_scheduled_again() -> None:
    """Not where instances do not wait for each other, nor where the replay schedules them."""
    program = anomalous(1, 10**8)
    action = program.step_action.copy()
    action[action == WAIT] = Action.operation
    for each, depends in ((program, True), (replace(program, step_action=action), False), (tasks_program(9), False)):
        assert _depends(cell_of(each, 2, [1] * each.num_pieces)) == depends
