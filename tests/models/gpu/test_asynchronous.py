"""Bulk copies, barriers in shared memory and products of warp groups on a small GPU (gpu_small.py), by closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_programs import Instruction, copy, integer, launch, other, pieces
from gpu_small import (
    BEGIN,
    DEPENDENT,
    DRAM,
    DRAM_QUEUES,
    END,
    FRONT,
    L2_HIT,
    MISS,
    PIPELINE,
    SHARED,
    chain,
    cycles,
    gpu,
    read_before,
    run,
)

from manyscale.models.gpu import detailed
from manyscale.models.gpu.groups import simulate_in_groups
from manyscale.models.gpu.l2 import warm
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload.asynchronous import (
    ARRIVES,
    BEGINS,
    COPIES,
    FOLLOWS,
    FROM_SHARED,
    IN_WORDS,
    LOADS,
    PREFETCHES,
    REDUCES,
    TRIES,
    WAITS,
    amounts,
    first_word,
    run_of_rows,
)
from manyscale.models.workload.launch_trace import UnitClass
from manyscale.runner.run.execute.teams import in_threads
from manyscale.runner.study.targets import shipped_content

COPY_LATENCY = 50
FROM_L2 = MISS - 1 + 2  # of a sector: it leaves at once, and is written at the end
EXIT = 1 + PIPELINE - FRONT + 1  # of the last instruction
SECTOR = 32


def begins(barrier: int, arrivals: int) -> Instruction:
    return Instruction(opcode="SYNCS.EXCH.64", operation=(first_word(BEGINS, 1, barrier), arrivals))


def arrives(barrier: int, arrivals: int = 1, num_bytes: int = 0) -> Instruction:
    operation = (first_word(ARRIVES, 1, barrier), amounts(arrivals, num_bytes))
    return Instruction(opcode="SYNCS.ARRIVE.TRANS64", operation=operation)


def waits(barrier: int, parity: int = 0) -> Instruction:
    return Instruction(opcode="SYNCS.PHASECHK.TRANS64.TRYWAIT", operation=(first_word(WAITS, 0, barrier, parity),))


def copies(barrier: int, start: int, row: int, rows: int = 1, stride: int = 0, way: int = LOADS) -> Instruction:
    """Rows of ``row`` bytes from byte ``start`` on, each ``stride`` behind the last."""
    words = (first_word(COPIES, 3, barrier, way), row * rows, *run_of_rows(start, row, rows, stride))
    opcode = "UTMALDG.2D" if way == LOADS else "UTMASTG.2D"
    return Instruction(UnitClass.uniform, opcode=opcode, operation=words)


COMMIT = Instruction(UnitClass.uniform, opcode="UTMACMDFLUSH")
AWAIT_COPIES = Instruction(UnitClass.copy_wait, opcode="DEPBAR.LE")


def target(**more):
    return gpu(bulk_copies={"latency": f"{COPY_LATENCY} cycles", "interval": "1 cycle"}, **more)


def loading(*parts: Instruction) -> list[Instruction]:
    """A warp that begins a barrier at 0 for all that ``parts`` copy, and waits for it."""
    total = sum(each.operation[1] for each in parts)
    return [begins(0, 1), arrives(0, 1, total), *parts, waits(0)]


@pytest.mark.theory
def test_a_copy_waits_for_its_unit_the_way_to_l2_and_all_its_sectors():
    """Sectors that L2 has come one a cycle."""
    warm = list(range(256))
    times = {}
    for sectors in (1, 2, 65):
        memory = read_before(warm, target())
        times[sectors] = cycles([[loading(copies(0, 0, sectors * SECTOR))]], target(), memory, shared=1024)
    assert times[65] - times[1] == 64
    # behind two instructions: the unit, the way to L2 and back, into shared memory, and who waits reads the barrier
    assert times[1] == BEGIN + 2 + COPY_LATENCY + FROM_L2 + SHARED + EXIT + END


@pytest.mark.theory
@pytest.mark.parametrize("sectors", [2, 4])
def test_a_copy_streams_at_the_width_of_the_port(sectors):
    on = target(crossbar={"sectors": sectors}, l2={"slices": 1})
    memory = read_before(list(range(512)), on)
    times = [cycles([[loading(copies(0, 0, each * SECTOR))]], on, memory, shared=1024) for each in (256, 512)]
    assert times[1] - times[0] == 256 // sectors


@pytest.mark.theory
def test_rows_that_lie_apart_take_the_sectors_that_they_touch():
    """64 rows of 48 bytes, 256 apart, from byte 16 on: two sectors each; in one piece they would be 96."""
    memory = read_before(list(range(600)), target())
    found = run([[loading(copies(0, 16, 48, 64, 256))]], target(), memory, shared=1024)
    assert (found.l1_accesses, found.l2_accesses, found.dram_reads) == (0, 128, 0)
    assert run([[loading(copies(0, 32, 48, 64, 48))]], target(), None, shared=1024).l2_accesses == 96


@pytest.mark.theory
@pytest.mark.parametrize(("bandwidth", "each"), [("16 GB/s", 2), ("4 GB/s", 8)])
def test_copies_stream_at_the_bandwidth_of_dram(bandwidth, each):
    def taken(sectors):
        parts = [copies(0, 512 * i, 512) for i in range(sectors // 16)]
        return cycles([[loading(*parts)]], target(dram={"bandwidth": bandwidth}), shared=1024)

    assert taken(512) - taken(256) == 256 * each


@pytest.mark.theory
@pytest.mark.parametrize("length", [1, 5, 30])
def test_a_warp_waits_for_the_arrivals_of_others(length):
    """Two warps arrive when they have computed, each for its 32 threads."""
    waiting = [begins(0, 64), other(UnitClass.barrier), waits(0)]
    arriving = [other(UnitClass.barrier), *chain(length), integer(3, 2), arrives(0, 32)]
    long = [other(UnitClass.barrier), *chain(2 * length), integer(3, 2), arrives(0, 32)]
    times = [cycles([[waiting, arriving, each]], target(), shared=1024) for each in (arriving, long)]
    assert times[1] - times[0] == length * DEPENDENT


@pytest.mark.theory
def test_a_phase_is_waited_for_by_its_parity_and_a_look_holds_nobody_up():
    parts = [begins(0, 1), arrives(0), waits(0, 0), arrives(0), waits(0, 1), arrives(0), waits(0, 0)]
    assert cycles([[parts]], target(), shared=1024) > 0
    with pytest.raises(detailed.StuckError):
        run([[[*parts, waits(0, 1)]]], target(), shared=1024)
    look = Instruction(opcode="SYNCS.PHASECHK.TRANS64.TRYWAIT", operation=(first_word(TRIES),))
    assert cycles([[[begins(0, 1), look]]], target(), shared=1024) == BEGIN + 1 + SHARED + EXIT + END


@pytest.mark.theory
def test_a_group_of_copies_out_of_shared_memory_is_waited_for():
    def taken(*parts):
        return run([[list(parts)]], target(), read_before(list(range(64)), target()), shared=1024)

    stores = copies(0, 0, 64 * SECTOR, way=FROM_SHARED)
    behind = taken(stores, COMMIT, AWAIT_COPIES, *chain(20))
    beside = taken(stores, COMMIT, *chain(20), AWAIT_COPIES)
    assert (behind.l2_accesses, behind.dram_reads) == (64, 0)
    # 64 sectors leave one a cycle, behind the latency of the unit; the chain runs meanwhile or afterwards
    assert behind.busy_cycles - beside.busy_cycles == 20 * DEPENDENT - EXIT
    assert beside.busy_cycles >= COPY_LATENCY + 64 + FROM_L2
    # whole sectors are written without a look at memory; what is added to has to be read
    reads = [
        run([[[copies(0, 0, 4 * SECTOR, way=way), COMMIT]]], target(), None).dram_reads
        for way in (FROM_SHARED, REDUCES)
    ]
    assert reads == [0, 4]


@pytest.mark.theory
def test_a_prefetch_brings_sectors_into_l2_and_holds_nobody_up():
    words = (first_word(COPIES, 3, 0, PREFETCHES), 64 * SECTOR, *run_of_rows(0, 64 * SECTOR))
    fetch = Instruction(UnitClass.uniform, opcode="UTMAPF.L2.2D", operation=words, immediate=IN_WORDS)
    trace = launch([[[fetch, *chain(5)]], [[*chain(100), *loading(copies(0, 0, 64 * SECTOR))]]], shared=1024)
    found, _ = detailed.simulate(trace, target())
    assert (found.dram_reads, found.l2_accesses, found.l2_misses) == (64, 128, 64)
    assert found.block_end[0] - found.block_begin[0] == pytest.approx(5 * DEPENDENT, abs=6)


@pytest.mark.theory
def test_copies_that_a_fence_of_memory_does_not_hold_up():
    """MEMBAR waits for a warp's loads, not for its bulk copies."""
    fence = other(UnitClass.memory_barrier)
    copied = copies(0, 0, 64 * SECTOR)
    plain = [begins(0, 1), arrives(0, 1, 64 * SECTOR), copied, fence, *chain(30), waits(0)]
    alone = [begins(0, 1), arrives(0, 1, 64 * SECTOR), copied, fence, waits(0)]
    times = [cycles([[each]], target(), shared=1024) for each in (plain, alone)]
    assert times[0] - times[1] <= 30 * DEPENDENT - MISS


@pytest.mark.theory
def test_an_arrival_behind_copies_of_a_warp_waits_for_those_before_it():
    """LDGSTS and ARRIVES.LDGSTSBAR: of two copies the second comes from DRAM; what arrives between them does not wait
    for it, what arrives behind it does."""
    follows = Instruction(
        opcode="ARRIVES.LDGSTSBAR.64.ARVCNT", operation=(first_word(FOLLOWS, 1), amounts(1)), unit=UnitClass.int
    )

    def taken(*parts):
        memory = read_before([0], target())
        waiting = [begins(0, 1), other(UnitClass.barrier), waits(0), *chain(100)]
        return cycles([[waiting, [other(UnitClass.barrier), *parts]]], target(), memory, shared=1024)

    none = taken(follows)
    between = taken(copy(0), follows, copy(4000))
    behind = taken(copy(0), copy(4000), follows)
    assert between - none == pytest.approx(L2_HIT, abs=DEPENDENT)
    assert behind - between == pytest.approx(DRAM + DRAM_QUEUES, abs=DEPENDENT)


@pytest.mark.parametrize("sectors", [1, 2, 4])
def test_groups_of_sms_side_by_side_copy_as_those_in_strict_order(sectors):
    blocks = [[loading(copies(0, 4096 * k, 256, 8, 512)) + chain(k % 7)] for k in range(12)]
    trace = launch(blocks, shared=1024)
    on = target(sms=4, dram={"channels": 2}, l2={"slices": 4}, crossbar={"sectors": sectors})
    strict = detailed.simulate(trace, on)[0]
    found = in_threads(2, lambda team: simulate_in_groups(trace, on, None, team))
    assert [each[0].cycles for each in found] == [strict.cycles] * 2
    assert found[0][0].l2_accesses == strict.l2_accesses == 12 * 64


def test_copies_that_are_under_way_when_more_blocks_come_move_what_they_would():
    """Words of block 0, which has ended, are forgotten while block 1's copies have runs of rows before them."""

    def long(first):
        runs = [word for k in range(first, first + 40) for word in run_of_rows(4096 * k, 1024, 1, 0)]
        words = (first_word(COPIES, 1 + len(runs), 0, LOADS), 40 * 1024, *runs)
        return Instruction(UnitClass.uniform, opcode="UTMALDG.2D", operation=words)

    blocks = [[[*loading(copies(0, 0, 1024)), waits(0)]], [loading(long(1), long(41))], [chain(5)], [chain(5)]]
    found = detailed.simulate_pieces(pieces(launch(blocks, shared=1024), 2), target(blocks=2))[0]
    assert found.block_begin[2] == found.block_end[0] < found.block_end[1]
    assert found.l2_accesses == found.dram_reads == 81 * 32


class EverySecond:
    """Of four blocks the first and the third are simulated."""

    def __init__(self):
        self.left = [(0, 0), (1, 2), (3, 4)]

    def next(self):
        return self.left.pop(0)

    def dispatched(self, block, time, issued):
        pass

    ended = dispatched


def test_blocks_that_are_chosen_copy_and_find_what_those_that_are_skipped_copied():
    blocks = [[loading(copies(0, 4096 * k, 1024))] for k in (0, 1, 1, 2)]
    trace = launch(blocks, shared=1024)

    def skipped(memory, first, end):
        warm.touch_blocks(trace, target(), memory, first, end)

    found = [detailed.simulate(trace, target(), None, EverySecond(), each)[0] for each in (None, skipped)]
    assert [(each.l2_accesses, each.dram_reads) for each in found] == [(64, 64), (64, 32)]
    assert np.count_nonzero(found[0].block_end) == 2


def test_an_l2_is_warmed_by_what_copies_move():
    parts = loading(copies(0, 16, 48, 64, 256))
    memory = detailed.l2_of(target())
    warm.touch(launch([[parts]]), target(), memory)
    found = run([[parts]], target(), memory, shared=1024)
    assert (found.l2_accesses, found.dram_reads) == (128, 0)


# products of groups of four warps


def product(is_last: bool = True, opcode: str = "HGMMA.64x256x16.F32") -> Instruction:
    return Instruction(UnitClass.tensor, 2, (2,), opcode=opcode, immediate=int(is_last))


MEET = Instruction(UnitClass.branch, opcode="WARPGROUP.ARRIVE")


def await_products(groups: int = 0) -> Instruction:
    return Instruction(UnitClass.branch, opcode="WARPGROUP.DEPBAR.LE", immediate=groups)


def tensor(interval: int):
    return {"tensor": {"latency": f"{interval} cycles", "interval": f"{interval} cycles"}}


@pytest.mark.theory
def test_products_of_one_accumulator_follow_each_other():
    def taken(count, interval):
        group = [MEET, *[product(False)] * (count - 1), product(), await_products()]
        return cycles([[group] * 4], target(units=tensor(interval)))

    assert taken(40, 64) - taken(8, 64) == 32 * 64


@pytest.mark.theory
def test_a_warp_goes_on_while_its_products_are_computed():
    """And waits for the groups before the last ones only."""
    units = tensor(100)

    def taken(*parts):
        return cycles([[[MEET, *parts]] * 4], target(units=units))

    busy = chain(15)  # 150 cycles
    assert taken(product(), product(), *busy, await_products()) == taken(product(), product(), await_products())
    first, both = (taken(product(), product(), await_products(groups), *chain(40)) for groups in (1, 0))
    assert both - first == 100


@pytest.mark.theory
def test_groups_of_products_end_where_warps_meet_where_the_trace_does_not_say():
    def taken(groups):
        parts = [MEET, product(False), product(False), MEET, product(False), product(False), await_products(groups)]
        return cycles([[[*parts, *chain(60)]] * 4], target(units=tensor(100)))

    assert taken(0) - taken(1) == 2 * 100


@pytest.mark.theory
@pytest.mark.parametrize(
    ("opcode", "each", "share"), [("HGMMA.64x256x16.F32", 128, 1), ("HGMMA.64x8x16.F32", 18, 0.25)]
)
def test_large_products_reach_the_peak_of_an_h100_and_small_ones_do_not(opcode, each, share):
    """64 x 256 x 16 multiply-adds at 2,048 a cycle; 64 x 8 x 16 read 2,304 bytes of shared memory, 128 a cycle."""
    h100 = Gpu.model_validate(shipped_content("h100")["node"]["gpu"])

    def taken(count):
        return cycles([[[MEET, *[product(False, opcode)] * count, product(True, opcode), await_products()]] * 4], h100)

    found = (taken(200) - taken(100)) / 100
    assert found == pytest.approx(each, rel=0.03)
    columns = int(opcode.split("x")[1])
    assert 64 * columns * 16 / found / 2048 <= share * 1.03


@pytest.mark.theory
@pytest.mark.parametrize(("sectors", "products", "expected", "slack"), [(512, 4, 512, 0), (128, 16, 512, 40)])
def test_loads_and_products_of_two_stages_overlap(sectors, products, expected, slack):
    """A warp loads, four multiply: a stage takes what the longer of the two takes, not their sum. Products of a stage
    begin when the last ones have ended, and the barrier was read (``slack``)."""
    full, empty = (0, 8), (16, 24)
    units = tensor(32)

    def taken(stages):
        begin = [each for k in range(2) for each in (begins(full[k], 1), begins(empty[k], 4))]
        load, multiply = [], []
        for k in range(stages):
            place, parity = k % 2, k // 2 % 2
            load += [
                waits(empty[place], 1 - parity), arrives(full[place], 1, sectors * SECTOR),
                copies(full[place], place * sectors * SECTOR, sectors * SECTOR),
            ]  # fmt: skip
            multiply += [
                waits(full[place], parity), MEET, *[product(False)] * (products - 1), product(), await_products(),
                arrives(empty[place]),
            ]  # fmt: skip
        meet = other(UnitClass.barrier)
        memory = read_before(list(range(2 * sectors)), target())
        blocks = [[[*begin, meet, *multiply], *[[meet, *multiply]] * 3, [meet, *load]]]
        return cycles(blocks, target(units=units), memory, shared=1024)

    found = (taken(40) - taken(20)) / 20
    assert expected <= found <= expected + slack
