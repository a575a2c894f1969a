"""The analytical node against closed forms: LRU stacks, queues, bounds of bandwidth, and the scheduler."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import cycle
from typing import Any

import numpy as np
import pytest
from node_memory import DRAM, caches, node
from node_programs import Steps, node_program

from manyscale.models.kernels import read_only
from manyscale.models.machine import Node
from manyscale.models.memory.access_stream import Sites
from manyscale.models.node.burst import run_phases as scheduled
from manyscale.models.node.instruction_stream import InstructionStream, PieceStream
from manyscale.models.node.program.node_program import Action, NodeProgram
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.models.node.shared.costs import PieceCosts, split_by_leaders
from manyscale.models.node.shared.occupancy import (
    COLUMNS,
    FOUGHT,
    PASSED,
    TAKEN,
    TAKEN_FAR,
    WRITTEN,
    Occupancy,
    empty_caches,
)
from manyscale.models.node.shared.occupancy_kernel import fill
from manyscale.models.node.shared.piece_lines import PieceLines, lines_of_pieces
from manyscale.models.node.shared.run import AnalyticalPhases, run_phases

LOADED, STORED = 1, 2
RUNTIME = RuntimeSystem()


def piece_lines(pieces: list[list[tuple[int, int]]]) -> PieceLines:
    """(line, use) of each piece, in their order."""
    ends = np.cumsum([len(each) for each in pieces])
    rows = [row for each in pieces for row in each]
    line, use = (np.array([row[k] for row in rows]) for k in range(2))
    return PieceLines(
        64, read_only(np.concatenate(([0], ends[:-1])), np.int64), read_only(ends, np.int64),
        read_only(line, np.int32), read_only(use, np.uint8), read_only(np.ones(len(rows)), np.uint8),
        read_only(np.arange(int(line.max(initial=-1)) + 1), np.int64),
    )  # fmt: skip


def served(lines: PieceLines, on: Node, cores: list[int]) -> np.ndarray:
    """float64[pieces, columns], piece after piece."""
    occupancy = empty_caches(lines, on, max(cores) + 1)
    result = np.zeros((len(cores), int(occupancy.control["levels"][0]) + COLUMNS))
    for piece, core in enumerate(cores):
        use_one(occupancy, lines, piece, core, result[piece])
    return result


def use_one(occupancy: Occupancy, lines: PieceLines, piece: int, core: int, result: np.ndarray) -> None:
    each = (np.array([piece]), np.array([core]))
    fill(
        occupancy, *each, lines.first, lines.end, lines.line, lines.use, lines.visits, result, np.zeros(0, np.int8)
    )  # fmt: skip


def costs(base: float, per_line: float, levels: int, *, latency: float = 100.0, exposed: float = 1.0) -> PieceCosts:
    """One sample: each line of main memory takes ``per_line``, and ``exposed`` of what it waits; others nothing."""
    wait = np.array([0.0, latency, 4 * latency])
    none, memory = np.zeros(1), (per_line + exposed * wait)[None, :]
    return PieceCosts(
        wait, np.array([base]), np.zeros((1, levels)), memory, memory, np.ones(1, np.int64), np.zeros((1, levels + 1)),
        np.zeros((1, 3)), *[none] * 7, np.zeros(levels + 2), none, none, np.array([base]),
    )  # fmt: skip


def flat(count: int, edges: list[tuple[int, int]] | None = None) -> NodeProgram:
    instances: list[Steps] = [[(Action.create, number + 1) for number in range(count)]]
    instances += [[(Action.compute, 0)] for _ in range(count)]
    return node_program(instances, edges or [])


def run(
    program: NodeProgram, on: Node, cores: int, lines: PieceLines, cost: PieceCosts, instructions: list[int]
) -> AnalyticalPhases:
    count = len(instructions)
    return run_phases(
        program, on, cores, RUNTIME, np.array(instructions), np.zeros(count, np.int32), cost, lines,
        empty_caches(lines, on, cores),
    )  # fmt: skip


def one_level(cores: int, lines: int, **memory: Any) -> Node:
    """A cache that all share, and main memory of 100 ns at 1 GHz."""
    plain = {"latency": "100 ns", "bandwidth": "inf B/s"}
    return node(cores, caches({"L1": (64 * lines, lines, cores)}), memory=plain | memory)


# ---- what caches hold ----


@pytest.mark.theory
def test_a_loop_over_lines_hits_if_they_fit_and_else_never() -> None:
    for size, hits in ((256, 256), (300, 0)):
        loop = [(line, LOADED) for line in range(size)]
        found = served(piece_lines([loop, loop]), one_level(1, 256), [0, 0])
        assert found[0, 1] == size  # main memory
        assert found[1, 0] == hits


@pytest.mark.theory
def test_tasks_that_share_a_cache_split_it_by_their_rates() -> None:
    """Between two uses of its 16 lines by one core, another streams k times as many: they stay while 16 (1 + k) lines
    fit (to an epoch, 1/16 of the cache)."""
    capacity, own = 256, 16
    on = one_level(2, capacity)
    for k in range(1, 24):
        loop = [(line, LOADED) for line in range(own)]
        stream = cycle(range(own, 1000))
        pieces = [loop]
        for _ in range(10):
            pieces += [[(next(stream), LOADED) for _ in range(own * k)], loop]
        found = served(piece_lines(pieces), on, [0] + [1, 0] * 10)[-1]
        needed = own * (1 + k)
        if needed <= capacity - capacity // 16:
            assert found[0] == own, k
        elif needed > capacity + capacity // 16:
            assert found[1] == own, k


@pytest.mark.theory
def test_what_another_core_has_written_comes_from_the_shared_cache() -> None:
    on = node(2, caches({"L1": (64 * 64, 64, 1), "L2": (64 * 1024, 1024, 2)}))
    read, write = [(0, LOADED)], [(0, LOADED | STORED)]
    found = served(piece_lines([read, read, read, write, read, read]), on, [0, 0, 1, 1, 0, 1])
    # memory; own; shared, as the other has read it; own, given up by the other; written by the other; own
    assert [int(np.argmax(row[:3])) for row in found] == [2, 0, 1, 0, 1, 0]
    assert found[:, 2 + TAKEN].tolist() == [0, 0, 0, 1, 0, 0]
    assert found[:, 2 + PASSED].tolist() == [0, 0, 0, 0, 1, 0]


@pytest.mark.theory
def test_a_modified_line_comes_from_another_socket_once_and_is_taken_from_it_by_a_store() -> None:
    """By MESI: the first load of the other socket finds it modified there, and writes it back; then both hold it."""
    on = node(4, caches({"L1": (64 * 64, 64, 1), "L2": (64 * 1024, 1024, 2)}), sockets=2)
    load, store, both = [(0, LOADED)], [(0, STORED)], [(0, LOADED | STORED)]
    found = served(piece_lines([store, load, load, load, both, both]), on, [0, 2, 3, 2, 2, 0])
    # memory; the other socket; the own socket's cache; own; own, and taken from the other; the other, and taken
    assert [int(np.argmax(row[:4])) for row in found] == [2, 3, 1, 0, 0, 3]
    assert found[:, 2 + TAKEN_FAR].tolist() == [0, 0, 0, 0, 1, 1]
    assert found[:, 2 + WRITTEN].tolist() == [0, 1, 0, 0, 0, 1]


@pytest.mark.theory
@pytest.mark.parametrize(("mine", "theirs"), [(2, 2), (5, 3), (9, 1), (1, 9)])
def test_of_visits_in_any_order_those_find_a_line_gone_that_follow_the_other_core(mine: int, theirs: int) -> None:
    """Of a and b visits in any order a b / (a + b) of each follow one of the other kind, but for one."""
    on = node(2, caches({"L1": (64 * 64, 64, 1), "L2": (64 * 1024, 1024, 2)}))
    lines = piece_lines([[(0, LOADED | STORED)], [(0, LOADED | STORED)]])
    lines = replace(lines, visits=np.array([theirs, mine], np.uint8))
    occupancy, found = empty_caches(lines, on, 2), np.zeros(2 + COLUMNS)
    for piece in range(2):
        use_one(occupancy, lines, piece, piece, found)
    a, b = mine - 1, theirs - 1
    expected = a * b / (a + b) if a and b else 0.0
    assert found[2 + FOUGHT] == pytest.approx(expected)
    assert occupancy.owed[0].tolist() == pytest.approx([expected, 0.0])


@pytest.mark.theory
def test_who_stores_once_owes_nothing_to_those_that_come_often() -> None:
    """A creator stores to a line once; two tasks load it nine times each: it has not been gone for them but once."""
    on = node(3, caches({"L1": (64 * 64, 64, 1), "L2": (64 * 1024, 1024, 3)}))
    lines = piece_lines([[(0, STORED)], [(0, LOADED)], [(0, LOADED)]])
    lines = replace(lines, visits=np.array([1, 9, 9], np.uint8))
    occupancy, found = empty_caches(lines, on, 3), np.zeros(2 + COLUMNS)
    for piece in range(3):
        use_one(occupancy, lines, piece, piece, found)
        assert found[2 + FOUGHT] == 0.0
    assert not occupancy.owed.any()


@pytest.mark.theory
def test_a_stream_that_its_prefetcher_knows_waits_for_its_cache() -> None:
    """Two steps confirm it: the third line fetches two, and each after it up to two more, from task to task."""
    fetches = {"streams": 4, "confirm": 2, "degree": 2, "distance": 20, "page": "4 KiB"}
    on = node(1, caches({"L1": (64 * 64, 64, 1), "L2": (64 * 1024, 1024, 1)}, L2={"prefetcher": fetches}))
    lines = piece_lines([[(line, LOADED) for line in range(4)], [(line, LOADED) for line in range(4, 20)]])
    occupancy, where, found = empty_caches(lines, on, 1), np.zeros(20, np.int8), np.zeros(2 + COLUMNS)
    fill(
        occupancy, np.arange(2), np.zeros(2, np.int64), lines.first, lines.end, lines.line, lines.use, lines.visits,
        found, where,
    )  # fmt: skip
    assert where.tolist() == [2, 2, 2] + [1] * 17
    assert found[2] == 16  # they come from main memory all the same


@pytest.mark.theory
@pytest.mark.parametrize("count", [1, 4, 5, 10])
def test_lines_that_follow_another_closely_wait_with_it(count: int) -> None:
    """Of lines from main memory one after the other, each fourth leads three; with three others between, each leads."""
    together = [(k, LOADED) for k in range(count)]
    held = [(100 + k, LOADED) for k in range(3 * count)]
    apart = [row for k in range(count) for row in [(200 + k, LOADED), *held[3 * k : 3 * k + 3]]]
    cost = costs(1.0, 0.0, 1)._replace(
        led=np.full((1, 3), 70.0), memory=np.full((1, 3), 5.0), reach=np.full(1, 4, np.int64)
    )
    found = run(flat(3), one_level(1, 256), 1, piece_lines([held, together, apart]), cost, [1000] * 3)
    leading = -(-count // 4)
    assert found.instances["cycles"][2:].tolist() == pytest.approx(
        [1000 + 70 * leading + 5 * (count - leading), 1000 + 70 * count]
    )


@pytest.mark.theory
def test_lines_that_are_stored_to_first_cost_their_share_of_the_latency() -> None:
    lines = piece_lines([[(k, STORED) for k in range(8)] + [(100 + k, LOADED) for k in range(4)]])
    cost = costs(1.0, 30.0, 1, exposed=0.0)._replace(store=np.full(1, 0.25), latency=np.array([0.0, 200.0, 0.0]))
    found = run(flat(1), one_level(1, 256), 1, lines, cost, [1000])
    assert found.instances["cycles"][1] == pytest.approx(1000 + 8 * 50 + 4 * 30)


@pytest.mark.theory
def test_costs_of_leading_lines_make_up_what_windows_took() -> None:
    """Where all lines come from main memory one of r leads; where one of APART does, it is alone."""
    for every, apart, together in ((20.0, 90.0, 3.0), (31.0, 172.0, 4.3), (10.0, 60.0, 1.0), (50.0, 50.0, 6.0)):
        reach, led, memory = split_by_leaders(
            np.full((1, 3), every), np.full((1, 3), apart), np.array([together]), np.full(3, 500.0)
        )
        assert led[0] == pytest.approx(min(apart, every * reach[0]))
        assert (led[0] + (reach[0] - 1) * memory[0]) / reach[0] == pytest.approx(every)


@pytest.mark.theory
def test_every_line_that_is_stored_to_is_written_back_once_when_it_has_to_give_way() -> None:
    capacity, count = 64, 1000
    pieces = [[(line, STORED)] for line in range(count)]
    found = served(piece_lines(pieces), one_level(1, capacity), [0] * count)
    written = found[:, 1 + 3].sum()
    assert count - capacity - capacity // 16 <= written <= count - capacity + capacity // 16


@pytest.mark.property
def test_lines_of_pieces_are_those_of_their_accesses() -> None:
    """Against sets in plain Python: order of first uses, kinds of uses, accesses across two lines."""
    draw = random.Random(4)
    blocks = [[(False, 8)], [(True, 8)], [(False, 16), (True, 4)]]
    offsets = np.cumsum([0, *map(len, blocks)])
    sites = Sites(
        np.repeat(np.arange(3), np.diff(offsets)).astype(np.int32), np.array([s for b in blocks for s, _ in b]),
        np.array([n for b in blocks for _, n in b], np.int32), offsets,
    )  # fmt: skip
    ids = [draw.randrange(3) for _ in range(400)]
    accesses = [(store, size, draw.randrange(40_000) // 4 * 4) for each in ids for store, size in blocks[each]]
    cuts = [0, 1, 100, 250, 400]
    until = np.concatenate(([0], np.cumsum([len(blocks[each]) for each in ids])))
    pieces = PieceStream(np.array(cuts[:-1]), np.array(cuts[1:]), until[cuts[:-1]], np.diff(cuts))
    stream = InstructionStream(
        0, read_only(np.array(ids), np.int32), read_only(np.array([a for *_, a in accesses]), np.uint64),
        np.array([0, 400]), np.array([0, len(accesses)]),
    )  # fmt: skip
    found = lines_of_pieces(stream, pieces, sites)
    for piece in range(4):
        expected: dict[int, int] = {}
        for store, size, address in accesses[until[cuts[piece]] : until[cuts[piece + 1]]]:
            for line in range(address // 64, (address + size - 1) // 64 + 1):
                expected[line] = expected.get(line, 0 if store else LOADED) | (STORED if store else 0)
        rows = slice(found.first[piece], found.end[piece])
        assert found.line_number[found.line[rows]].tolist() == list(expected)
        assert found.use[rows].tolist() == list(expected.values())


# ---- time ----


@pytest.mark.contract
def test_without_lines_pieces_are_scheduled_as_in_bursts() -> None:
    """Any graph: an instruction is a cycle of 1 ns."""
    draw = random.Random(1)
    for cores in (1, 3, 8):
        count = 60
        edges = {(a, draw.randrange(a + 1, count + 1)) for a in range(1, count) if draw.random() < 0.6}
        program = flat(count, sorted(edges))
        instructions = [draw.randrange(1, 5000) for _ in range(count)]
        found = run(program, one_level(cores, 64), cores, piece_lines([[]] * count), costs(1.0, 0.0, 1), instructions)
        expected = scheduled(program, cores, RUNTIME, np.array(instructions) * 1000)
        assert found.makespan_ps[0] == expected.makespan_ps[0, 0]
        assert found.instances["cycles"][1:] == pytest.approx(instructions)


def streams(count: int, lines: int) -> PieceLines:
    """Tasks that each read lines of their own once."""
    return piece_lines([[(lines * task + k, LOADED) for k in range(lines)] for task in range(count)])


@pytest.mark.theory
def test_nothing_shared_is_a_core_alone() -> None:
    """What lies in a core's own caches takes no longer for the others."""
    on = node(4, caches({"L1": (64 * 256, 256, 1)}), memory={"latency": "100 ns", "bandwidth": "inf B/s"})
    loop = [[(64 * task + k, LOADED) for k in range(64)] for task in range(4)]
    lines = piece_lines(loop)
    occupancy = empty_caches(lines, on, 4)
    for piece in range(4):
        use_one(occupancy, lines, piece, piece, np.zeros(1 + COLUMNS))
    found = run_phases(
        flat(4), on, 4, RUNTIME, np.full(4, 10_000), np.zeros(4, np.int32), costs(1.0, 80.0, 1), lines, occupancy
    )
    assert found.instances["cycles"][1:] == pytest.approx(10_000)
    assert found.served[0] == 256


@pytest.mark.theory
@pytest.mark.parametrize("cores", [1, 2, 4, 16, 64])
def test_cores_on_a_channel_take_what_demand_or_capacity_says(cores: int) -> None:
    """n tasks of t = 30,000 ns that each bring 1,000 lines through a channel of 8 ns a line: at least max(t, n 8,000),
    at most the sum of both, and what the channel serves where cores ask for several times as much."""
    on = one_level(cores, 64, node_bandwidth="8 GB/s")
    found = run(flat(cores), on, cores, streams(cores, 1000), costs(1.0, 10.0, 1), [20_000] * cores)
    nanoseconds = found.makespan_ps[0] / 1000
    bound = max(30_000, 8_000 * cores)
    assert bound * 0.999 <= nanoseconds <= 30_000 + 8_000 * cores
    if cores == 64:
        assert nanoseconds <= 1.02 * bound


@pytest.mark.theory
def test_waits_are_those_of_a_queue_with_constant_service() -> None:
    """At the load r that comes out, each line has waited s r / 2 (1 - r) for those of the other cores."""
    cores, service, lines, base = 3, 8.0, 1000, 30_000
    on = one_level(cores, 64, node_bandwidth="8 GB/s")
    found = run(flat(cores), on, cores, streams(cores, lines), costs(1.0, 0.0, 1), [base] * cores)
    cycles = found.makespan_ps[0] / 1000
    load = cores * lines * service / cycles
    assert 0.5 < load < 0.9
    wait = (1 - 1 / cores) * service * load / (2 * (1 - load))
    assert cycles == pytest.approx(base + lines * wait, rel=2e-3)


@pytest.mark.theory
def test_what_ends_leaves_the_others_its_bandwidth() -> None:
    """Two tasks share a channel that serves but one of them, until the shorter ends; then the other goes on alone."""
    on = one_level(2, 64, node_bandwidth="8 GB/s")
    lines = piece_lines([[(k, LOADED) for k in range(1000)], [(5000 + k, LOADED) for k in range(4000)]])
    found = run(flat(2), on, 2, lines, costs(1e-9, 0.0, 1, exposed=0.05), [1000, 4000])
    short, long = found.instances["cycles"][1:]
    assert short == pytest.approx(2 * 8000, rel=0.05)
    assert long == pytest.approx(8000 + 32_000, rel=0.05)


@pytest.mark.theory
def test_rows_that_have_to_be_opened_bound_what_dram_serves() -> None:
    """Lines of 2 channels x 4 banks, each of another row of its bank: 46 ns for each and bank, so 46 / 8 ns a line."""
    on = one_level(8, 64, dram=DRAM, latency="100 ns")
    rows = 16 * 2 * 4  # lines of a row in all banks
    count = 500
    pieces = [
        [((task * count + k) * rows + 2 * 16 * (k % 4) + k % 2, LOADED) for k in range(count)] for task in range(8)
    ]
    found = run(flat(8), on, 8, piece_lines(pieces), costs(1e-6, 0.0, 1, exposed=0.05), [1000] * 8)
    assert found.served[1 + 4] == 8 * count
    assert found.makespan_ps[0] / 1000 == pytest.approx(8 * count * 46 / 8, rel=0.05)
