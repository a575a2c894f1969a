"""What windows say that pieces take, against what follows by hand (as test_core.py: width 4, reorder buffer 64, 1 GHz),
and against the detailed model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from block_programs import LINE, Op, Task, alu, blocks, load, node, run_tasks, store, stream_of, tasks_program

from manyscale.models.machine import Node
from manyscale.models.memory.access_stream import sites_of
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.models.node.shared.costs import PieceCosts, piece_costs
from manyscale.models.node.shared.occupancy import COLUMNS, empty_caches, nothing_runs
from manyscale.models.node.shared.occupancy_kernel import fill
from manyscale.models.node.shared.piece_lines import PieceLines, lines_of_pieces
from manyscale.models.node.shared.run import run_phases
from manyscale.models.node.shared.windows import DEFAULT, PieceWindows, windows_from, windows_of_pieces
from manyscale.models.workload import Workload
from manyscale.models.workload.detail_tables import InstructionClass as Kind

pytestmark = pytest.mark.slow  # its kernels take a quarter of a minute to compile

COUNT = 8192  # executions: more instructions than are kept whole
CHAIN = blocks([Op(Kind.fp_add, (32, 33), (32,))] * 4)


def profiled(workload: Workload, tasks: Sequence[Task]) -> tuple[PieceLines, PieceWindows]:
    stream, pieces = stream_of(workload, tasks)
    lines = lines_of_pieces(stream, pieces, sites_of(workload))
    return lines, windows_of_pieces(tasks_program(len(tasks)), stream, pieces, lines, workload)


def costs_of(workload: Workload, tasks: Sequence[Task], machine: Node, *, warm: bool = False) -> PieceCosts:
    found, windows = profiled(workload, tasks)
    return piece_costs(windows, found, workload, machine, warm=warm)[0]


def cycles_of(workload: Workload, tasks: Sequence[Task], machine: Node, *, warm: bool = False) -> np.ndarray:
    """float64[tasks]: of each, one after the other on one core."""
    found, windows = profiled(workload, tasks)
    program, caches = tasks_program(len(tasks)), empty_caches(found, machine, 1)
    if warm:
        pieces, columns = np.arange(len(found.first)), np.zeros(int(caches.control["levels"][0]) + COLUMNS)
        rows = (found.first, found.end, found.line, found.use, found.visits)
        fill(caches, pieces, 0 * pieces, *rows, columns, np.zeros(0, np.int8))
        nothing_runs(caches)
    instructions = stream_of(workload, tasks)[1].num_instructions
    costs = piece_costs(windows, found, workload, machine, warm=warm)[0]
    run = run_phases(program, machine, 1, RuntimeSystem(), instructions, windows.sample_of, costs, found, caches)
    return np.asarray(run.instances["cycles"][1:])


def cpi(
    workload: Workload, machine: Node, addresses: Sequence[int] = (), *, count: int = COUNT, warm: bool = False
) -> float:
    """Of one task that executes block 0."""
    tasks = [([0] * count, addresses)]
    return float(
        cycles_of(workload, tasks, machine, warm=warm)[0] / stream_of(workload, tasks)[1].num_instructions.sum()
    )


def lines(count: int, of: int) -> list[int]:
    return [LINE * (k % of) for k in range(count)]


@pytest.mark.theory
@pytest.mark.parametrize("latency", [1, 3, 7])
def test_a_chain_takes_its_latency(latency: int):
    """Each waits for the one before, across iterations."""
    machine = node(costs=[(Kind.fp_add, latency, 0.5)])
    assert cpi(CHAIN, machine) == pytest.approx(latency, rel=1e-3)


@pytest.mark.theory
def test_a_recurrence_over_iterations_bounds_them():
    """One of eight instructions waits for the iteration before: 6 cycles, not the 2 of the width."""
    program = blocks([Op(Kind.fp_add, (32,), (32,)), *alu(7)])
    assert cpi(program, node(costs=[(Kind.fp_add, 6, 0.5)])) == pytest.approx(6 / 8, rel=1e-3)
    assert cpi(program, node(costs=[(Kind.fp_add, 1, 0.5)])) == pytest.approx(2 / 8, rel=1e-3)


@pytest.mark.theory
def test_width_and_units_bound_what_waits_for_nothing():
    assert cpi(blocks(alu(8)), node()) == pytest.approx(1 / 4, rel=1e-3)
    assert cpi(blocks(alu(8)), node(width=2)) == pytest.approx(1 / 2, rel=1e-3)
    divisions = blocks([Op(Kind.fp_div, (33,), (32,)), *alu(3)])
    assert cpi(divisions, node(costs=[(Kind.fp_div, 13, 5)])) == pytest.approx(5 / 4, rel=1e-3)


@pytest.mark.theory
@pytest.mark.parametrize(("working_set", "latency"), [(4, 4), (256, 14), (4096, 50)])
def test_a_pointer_chase_takes_the_latency_of_its_level(working_set: int, latency: int):
    """L1D of 64 lines, L2 of 1,024 in sets of 4: distances far from both. First uses, of which no window shows one, are
    few: each takes its whole latency beside what windows take."""
    chase = blocks([load(1, address=1), *alu(3)])
    found = cpi(chase, node(), lines(4 * COUNT, working_set), count=4 * COUNT, warm=True)
    assert found == pytest.approx(latency / 4, rel=0.02)


@pytest.mark.theory
@pytest.mark.parametrize(("distance", "buffers", "at_once"), [(8, 64, 8), (32, 64, 2), (64, 64, 1), (4, 4, 4)])
def test_misses_overlap_as_far_as_reorder_buffer_and_line_fill_buffers_reach(distance: int, buffers: int, at_once: int):
    program = blocks([load(1), *alu(distance - 1)])
    found = cpi(program, node(memory_latency=200, line_fill_buffers=buffers), lines(COUNT, COUNT))
    assert found * distance == pytest.approx(200 / at_once, rel=0.05)  # of windows of some 100 misses


@pytest.mark.theory
def test_stores_overlap_as_far_as_the_store_buffer_reaches():
    program = blocks([store(1), *alu(3)])
    found = cpi(program, node(memory_latency=200, store_buffer=8), lines(COUNT, COUNT))
    assert found * 4 == pytest.approx(200 / 8, rel=0.05)


@pytest.mark.theory
def test_a_line_of_a_chain_costs_its_latency_and_what_it_waits():
    """Beyond the 4 cycles of the first cache; new lines, of which none is the piece's own. A window has half as many
    as that cache."""
    shared = node(cores=4, costs=[(Kind.fp_add, 1, 0.25)])
    caches = {**shared.caches, "L2": shared.caches["L2"].model_copy(update={"shared_by_cores": 4})}
    chain = blocks([load(1, address=1), *([Op(Kind.fp_add, (1,), (1,))] * 31)])
    costs = costs_of(chain, [([0] * COUNT, lines(COUNT, COUNT))], shared.model_copy(update={"caches": caches}))
    assert costs.base[0] * 32 == pytest.approx(4 + 31, rel=0.02)
    assert costs.line[0, 1] == pytest.approx(14 - 4, rel=0.02)
    assert costs.memory[0] == pytest.approx(50 - 4 + costs.wait, rel=0.02)
    assert costs.wait.tolist() == [0, 50, 200]
    assert costs.port[0] == pytest.approx(1, rel=0.02)


def test_instances_of_many_kinds_take_what_the_detailed_model_says():
    """Kept whole, each instance runs as there: to the cycle where all lines are new, or the only ones of a cache."""
    program = blocks([load(1, address=1), store(2), *alu(3)], [Op(Kind.fp_add, (32,), (32,)), load(3), *alu(9)])
    rng = np.random.default_rng(1)
    tasks = []
    for task in range(6):
        ids = rng.integers(0, 2, 100 + 50 * task)
        number = int((ids == 0).sum() * 2 + (ids == 1).sum())
        tasks.append((ids.tolist(), [LINE * (100_000 * task + k) for k in range(number)]))
    machine = node(costs=[(Kind.fp_add, 4, 0.5)], memory_latency=90, store_buffer=20)
    truth = run_tasks(program, machine, tasks).instances["cycles"]
    assert cycles_of(program, tasks, machine) == pytest.approx(truth[1:], rel=0.01)


def test_few_of_many_equal_instances_are_kept():
    program = blocks([load(1), *alu(7)])
    tasks = [([0] * 500, [LINE * (500 * task + k) for k in range(500)]) for task in range(400)]
    _, windows = profiled(program, tasks)
    assert windows.num_samples <= DEFAULT.many
    assert int(windows.instructions.sum()) < 400 * 500 * 8 / 5
    assert set(windows.sample_of.tolist()) == set(range(windows.num_samples))
    kept = windows_from(windows.arrays())
    assert all(np.array_equal(value, windows.arrays()[name]) for name, value in kept.arrays().items())
