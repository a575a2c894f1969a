"""A core that simulates parts of a stream: closed forms, and against the same instructions inside the whole run.

Width 4, reorder buffer 64, 1 GHz; L1D of 64 lines, L2 of 1,024 (block_programs.node)."""

from __future__ import annotations

import numpy as np
import pytest
from block_programs import LINE, alu, blocks, load, node, run_tasks, store

from manyscale.models.machine import Node
from manyscale.models.memory.access_stream import sites_of
from manyscale.models.memory.distances.last_uses import LastUses
from manyscale.models.node.core.interval_core import IntervalCore, Measured
from manyscale.models.workload import Workload

pytestmark = pytest.mark.slow  # its kernels take half a minute to compile

LOOP = blocks([load(1), *alu(7)])
MIXED = blocks([load(1), *alu(7)], [load(2, address=2), *alu(3)], [store(1), *alu(3)])
L2_CYCLES = 14
FILL = 100  # cycles: an empty reorder buffer and what is asked for first


def ids(values) -> np.ndarray:
    return np.ascontiguousarray(values, np.int32)


def addresses(values) -> np.ndarray:
    return np.ascontiguousarray(values, np.uint64)


def measured(
    workload: Workload, machine: Node, block_ids: np.ndarray, lines: np.ndarray, first: int, end: int, warm: int = 0,
    lead: int = 0,
) -> Measured:  # fmt: skip
    """Executions [first, end), ``warm`` functional ones and ``lead`` in detail before them; one access each."""
    core = IntervalCore(workload, machine)
    begin = first - lead
    core.warm(begin - warm, ids(block_ids[begin - warm : begin]), addresses(lines[begin - warm : begin] * LINE))
    stop = min(end + 1, len(block_ids))
    return core.run(begin, ids(block_ids[begin:stop]), addresses(lines[begin:stop] * LINE), np.array([first, end]))[0]


@pytest.fixture(scope="module")
def random_stream() -> tuple[np.ndarray, np.ndarray]:
    """Blocks of MIXED in an order that is hard to foresee, on lines of a working set between L1D and L2 that moves."""
    random = np.random.default_rng(3)
    count = 60_000
    return random.integers(0, 3, count), random.integers(0, 400, count) + np.arange(count) // 200


@pytest.mark.theory
def test_every_interval_of_a_loop_takes_the_width():
    core = IntervalCore(LOOP, node())
    marks = np.arange(0, 8001, 1000)
    found = core.run(0, ids(np.zeros(8000)), addresses(np.zeros(8000)), marks)
    for each in found[1:]:
        assert each.cycles == pytest.approx(1000 * 8 / 4)
        assert each.stack.sum() == pytest.approx(each.cycles)
        assert each.counts[0, 0] == 1000  # all hits of L1D


@pytest.mark.theory
def test_cold_caches_miss_each_line_once():
    lines = np.arange(3000) % 50
    found = measured(LOOP, node(), np.zeros(3000, int), lines, 1000, 2000)
    assert found.counts[0, 1] == 50
    warm = measured(LOOP, node(), np.zeros(3000, int), lines, 1000, 2000, warm=50)
    assert warm.counts[0, 1] == 0
    half = measured(LOOP, node(), np.zeros(3000, int), lines, 1000, 2000, warm=20)
    assert half.counts[0, 1] == 30


@pytest.mark.theory
def test_marks_change_nothing_and_their_parts_sum_up(random_stream):
    block_ids, lines = random_stream
    parts, whole = (
        IntervalCore(MIXED, node(misprediction="10 cycles")).run(0, ids(block_ids), addresses(lines * LINE), marks)
        for marks in (np.arange(0, 60_001, 5000), np.array([0, 60_000]))
    )
    assert sum(each.cycles for each in parts) == pytest.approx(whole[0].cycles, rel=1e-12)
    assert np.array_equal(sum(each.counts for each in parts), whole[0].counts)
    assert sum(each.stack for each in parts) == pytest.approx(whole[0].stack)
    for each in parts:
        assert each.stack.sum() == pytest.approx(each.cycles)
        assert np.all(each.stack >= -1e-6)


@pytest.mark.contract
@pytest.mark.parametrize("misprediction", ["0 cycles", "10 cycles"])
def test_the_whole_is_what_the_node_model_says(random_stream, misprediction):
    """Of one task on one core, to a picosecond of rounding."""
    block_ids, lines = random_stream
    machine = node(misprediction=misprediction)
    core = IntervalCore(MIXED, machine)
    own = core.run(0, ids(block_ids), addresses(lines * LINE), np.array([0, len(block_ids)]))[0]
    other = run_tasks(MIXED, machine, [(block_ids, lines * LINE)])
    assert int(other.makespan_ps[0]) / 1000 == pytest.approx(own.cycles, abs=0.001)
    assert np.array_equal(own.counts, other.counts[0])


@pytest.mark.contract
def test_what_goes_on_in_pieces_is_not_drained(random_stream):
    """Parts that follow each other are as one, but for a window of instructions that may be fetched once more."""
    block_ids, lines = random_stream
    core = IntervalCore(MIXED, node())
    total = 0.0
    for first in range(0, 60_000, 6000):
        part, at = ids(block_ids[first : first + 6001]), addresses(lines[first : first + 6001] * LINE)
        total += core.run(first, part, at, np.array([first, first + len(part) - (first + 6000 < 60_000)]))[0].cycles
    whole = IntervalCore(MIXED, node()).run(0, ids(block_ids), addresses(lines * LINE), np.array([0, 60_000]))[0]
    assert total == pytest.approx(whole.cycles, rel=1e-12)


@pytest.mark.theory
@pytest.mark.parametrize("lead", [0, 500])
def test_warmed_by_all_before_it_an_interval_takes_what_it_takes_inside(random_stream, lead):
    """Caches and predictor are those of the whole run. Without a lead in detail a pipeline has to fill, and lines that
    are on their way are there at once; with one, the chain of loads may still be a latency of L2 off."""
    block_ids, lines = random_stream
    machine = node(misprediction="10 cycles")
    marks = np.arange(0, 60_001, 5000)
    core = IntervalCore(MIXED, machine)
    inside = core.run(0, ids(block_ids), addresses(lines * LINE), marks)
    for interval in (1, 6, 10):
        first, end = int(marks[interval]), int(marks[interval + 1])
        alone = measured(MIXED, machine, block_ids, lines, first, end, first - lead, lead)
        assert np.array_equal(alone.counts[:3], inside[interval].counts[:3])
        assert alone.cycles == pytest.approx(inside[interval].cycles, abs=FILL if lead == 0 else L2_CYCLES)


@pytest.mark.theory
def test_last_uses_leave_lru_caches_as_the_whole_past_does(random_stream):
    """And a short warm-up behind them teaches the predictor what it takes."""
    block_ids, lines = random_stream
    machine = node(misprediction="10 cycles")
    inside = IntervalCore(MIXED, machine).run(
        0, ids(block_ids), addresses(lines * LINE), np.array([0, 40_000, 45_000])
    )[1]  # fmt: skip
    uses = LastUses(sites_of(MIXED), LINE)
    uses.feed(ids(block_ids[:36_000]), addresses(lines[:36_000] * LINE))
    core = IntervalCore(MIXED, machine)
    core.fill(uses.latest(64 + 1024))
    core.warm(36_000, ids(block_ids[36_000:39_500]), addresses(lines[36_000:39_500] * LINE))
    alone = core.run(39_500, ids(block_ids[39_500:]), addresses(lines[39_500:] * LINE), np.array([40_000, 45_000]))[0]
    assert np.array_equal(alone.counts[:3, :2], inside.counts[:3, :2])  # served and missed
    assert alone.cycles == pytest.approx(inside.cycles, rel=0.01)


@pytest.mark.property
def test_less_warming_never_finds_more(random_stream):
    """LRU caches of an infinite past hold all that those of a shorter one hold."""
    block_ids, lines = random_stream
    misses = [
        int(measured(MIXED, node(), block_ids, lines, 30_000, 31_000, warm).counts[0, 1])
        for warm in (0, 10, 100, 1000, 10_000, 30_000)
    ]
    assert misses == sorted(misses, reverse=True)
