"""Cycles of a small GPU, each number from its latencies, intervals and bandwidths by the pipeline that sm_kernel.py and
memory_kernel.py describe.

A block that begins at cycle t issues first at t + 2, and a launch is over a cycle after its last block. A dependent
instruction follows after the unit's latency and the pipeline. What is compared is the whole time where it follows from
these, else what one more instruction adds.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
from typing import Any

import numpy as np
import pytest
from gpu_programs import (
    BARRIER,
    Instruction,
    atomic,
    copy,
    integer,
    launch,
    load,
    load_shared,
    other,
    special,
    store,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from manyscale.models.gpu import detailed
from manyscale.models.gpu.launch_trace import UnitClass
from manyscale.models.gpu.parameters import UNITS, Gpu

BEGIN, END = 2, 1
PIPELINE, FRONT = 4, 2  # of it before a unit
LATENCY = 6  # of a unit
DEPENDENT = LATENCY + PIPELINE
SHARED, L1, L2, DRAM = 20, 30, 100, 150  # latencies of the parameters
L1_HIT = FRONT + 1 + L1
MISS = L2 + 7  # from a miss in L1 to its fill: out 1, crossbar 2, lookup in L2 1, reply 1, in 2
WRITEBACK = 2  # from L1 to a register
L2_HIT = L1_HIT + MISS + WRITEBACK
DRAM_QUEUES = 4
FROM_DRAM = L2_HIT + DRAM + DRAM_QUEUES
PAST_L1 = L2_HIT - L1 - 1  # without its lookup
SCHEDULERS = 4
LINE = 4  # sectors


def gpu(**changes: Any) -> Gpu:
    """One SM; changes of a group are added to it."""
    content: dict[str, Any] = {
        "sms": 1, "frequency": "1 GHz", "compute_capability": 80, "warps": 32, "threads": 1024, "blocks": 8,
        "registers": 65536, "schedulers": SCHEDULERS, "pipeline": f"{PIPELINE} cycles",
        "units": {name: {"latency": f"{LATENCY} cycles", "interval": "1 cycle"} for name in UNITS},
        "shared_memory": {"size": "64 KiB", "latency": f"{SHARED} cycles"},
        "l1": {"size": "16 KiB", "ways": 4, "latency": f"{L1} cycles", "mshrs": 1024, "merges": 8, "banks": 4,
               "write": "through"},
        "l2": {"size": "256 KiB", "ways": 8, "latency": f"{L2} cycles", "mshrs": 1024, "merges": 8, "slices": 2,
               "write": "back", "kept_between_launches": True},
        "dram": {"channels": 1, "bandwidth": "32 GB/s", "latency": f"{DRAM} cycles"},
    }  # fmt: skip
    for name, value in changes.items():
        content[name] = {**content[name], **value} if isinstance(value, dict) else value
    return Gpu.model_validate(content)


def run(blocks, target=None, memory=None, **of_launch):
    return detailed.simulate(launch(blocks, **of_launch), target or gpu(), memory)[0]


def cycles(blocks, target=None, memory=None, **of_launch):
    return run(blocks, target, memory, **of_launch).busy_cycles


def read_before(sectors, target):
    """L2 after a launch that read these."""
    return detailed.simulate(launch([[[load(10 + i % 100, sector) for i, sector in enumerate(sectors)]]]), target)[1]


def chain(count, of=integer):
    return [of(2, 2)] * count


def independent(count, of=integer):
    return [of(10 + i % 100, 200) for i in range(count)]


def lines(count, first=0):
    """A sector of each of so many lines, which fall into all banks of L1."""
    return [LINE * line + line % 4 for line in range(first, first + count)]


def chased(sectors, **more):
    """Loads whose address is what the one before read."""
    return [load(2, sector, source=2, **more) for sector in sectors]


def shared_chain(words, count):
    return [dataclasses.replace(load_shared(2, words), sources=(2,))] * count


# units


@pytest.mark.theory
@pytest.mark.parametrize("count", [1, 10, 40])
@pytest.mark.parametrize(("latency", "pipeline"), [(6, 4), (2, 5), (21, 2), (1, 7)])
def test_a_dependent_chain_takes_latency_and_pipeline_each(latency, pipeline, count):
    target = gpu(pipeline=f"{pipeline} cycles", units={"sfu": {"latency": f"{latency} cycles", "interval": "1 cycle"}})
    assert cycles([[chain(count, special)]], target) == BEGIN + count * (latency + pipeline) + END


@pytest.mark.theory
@pytest.mark.parametrize(("warps", "schedulers"), [(4, 4), (8, 4), (8, 2), (8, 1), (1, 1)])
@pytest.mark.parametrize("interval", [1, 3, 8])
def test_each_scheduler_issues_one_instruction_an_interval(warps, schedulers, interval):
    target = gpu(
        schedulers=schedulers, units={"int": {"latency": f"{LATENCY} cycles", "interval": f"{interval} cycle"}}
    )
    times = [cycles([[independent(n)] * warps], target) for n in (20, 60)]
    assert times[1] - times[0] == warps // schedulers * 40 * interval
    if interval == 1 and warps <= 2 * schedulers:  # (EXITs of more warps end later)
        fetched_last = 1 if schedulers == 4 else 0  # of four warps that need instructions in a cycle, the last waits
        assert times[0] == BEGIN + fetched_last + (warps // schedulers * 20 - 1) + DEPENDENT + END


@pytest.mark.theory
def test_units_of_two_classes_work_side_by_side():
    """Integer and special instructions in turn, each class one in four cycles: one instruction in two."""
    interval = {"latency": f"{LATENCY} cycles", "interval": "4 cycles"}
    target = gpu(units={"int": interval, "sfu": interval})
    mixed = [each for i in range(20) for each in (integer(10 + i, 200), special(50 + i, 200))]
    alone = independent(40)
    assert cycles([[alone]], target) - cycles([[alone[:20]]], target) == 20 * 4
    assert cycles([[mixed]], target) - cycles([[mixed[:20]]], target) == 20 * 2


@pytest.mark.theory
def test_a_register_is_not_written_before_an_earlier_write_to_it():
    """Writes to the same register wait for each other, as reads do."""
    assert cycles([[[integer(2, 200)] * 10]]) == cycles([[chain(10)]])


# memory of an SM


@pytest.mark.theory
@pytest.mark.parametrize("words", [1, 2, 8, 32])
def test_conflicts_of_shared_memory(words):
    """k words of a bank take k cycles, of a chain as of many warps."""
    of_chain = [cycles([[shared_chain(words, n)]]) for n in (10, 20)]
    assert of_chain[1] - of_chain[0] == 10 * (FRONT + words + SHARED + 1)
    of_many = [cycles([[[load_shared(10 + i, words) for i in range(n)]] * 8]) for n in (20, 40)]
    assert of_many[1] - of_many[0] == 8 * 20 * words


@pytest.mark.theory
@pytest.mark.parametrize(("latency", "pipeline", "front"), [(30, 4, 2), (25, 5, 3), (40, 7, 4)])
def test_a_chain_of_hits_in_l1(latency, pipeline, front):
    target = gpu(pipeline=f"{pipeline} cycles", l1={"latency": f"{latency} cycles"})
    times = [cycles([[chased([0] * n)]], target) for n in (2, 12)]
    assert times[1] - times[0] == 10 * (front + 1 + latency)


@pytest.mark.theory
@pytest.mark.parametrize(("sectors", "each"), [((0,), 1), ((0, 1, 2, 3), 1), ((0, 4), 2), ((0, 4, 8, 12), 4),
                                              ((0, 1, 4, 5), 2), (tuple(range(16)), 4)])  # fmt: skip
def test_banks_of_l1_give_a_sector_a_cycle_each(sectors, each):
    """``each``: the most sectors of an instruction in one of four banks."""
    warm = [load(2, *sectors), integer(3, 2)]
    times = [cycles([[[*warm, *(load(10 + i, *sectors) for i in range(n))]] * 4]) for n in (20, 60)]
    assert times[1] - times[0] == 4 * 40 * each


@pytest.mark.theory
@pytest.mark.parametrize("sectors", [1, 2, 4, 8])
def test_requests_of_an_instruction_are_its_sectors(sectors):
    result = run([[[load(10 + i, *range(8 * i, 8 * i + sectors)) for i in range(10)]] * 2])
    assert (result.l1_accesses, result.l1_misses, result.l2_accesses, result.dram_reads) == (
        20 * sectors, 10 * sectors, 10 * sectors, 10 * sectors,
    )  # fmt: skip


@pytest.mark.theory
def test_requests_for_a_sector_on_its_way_are_one_miss():
    result = run([[[load(10 + i, 0) for i in range(8)]]])
    assert (result.l1_accesses, result.l1_misses, result.l2_accesses) == (8, 1, 1)


@pytest.mark.theory
def test_a_miss_holds_as_many_requests_as_are_merged():
    """Behind them the next one waits for the fill, with all of its bank, here for DRAM; then it hits."""
    other_bank, same_bank = 4 * LINE + 1, 4 * LINE
    for sector, waits in ((other_bank, False), (same_bank, True)):
        lines_read = [*(load(10 + i, 0) for i in range(3)), load(20, sector)]
        times = [cycles([[lines_read]], gpu(l1={"merges": merges})) for merges in (3, 2)]
        assert (times[1] - times[0] > MISS) == waits


@pytest.mark.theory
@pytest.mark.parametrize(("ways", "hits"), [(4, True), (2, False)])
def test_the_line_used_last_is_kept(ways, hits):
    """Three lines of a set, and the first again: with two ways it is gone. (The other ways of L1 are in more sets.)"""
    target = gpu(l1={"ways": ways})
    sets = 16 * 1024 // (128 * ways)
    of_set = [LINE * sets * i for i in range(3)]
    result = run([[chased([*of_set, of_set[0]])]], target)
    assert result.l1_misses == (3 if hits else 4)
    touched = run([[chased([of_set[0], of_set[1], of_set[0], of_set[2], of_set[0]])]], target)
    assert touched.l1_misses == 3


@pytest.mark.theory
@pytest.mark.parametrize(("written", "misses"), [(1, 0), (2, 1)])
def test_written_lines_stay_in_l1_up_to_their_share(written, misses):
    """One set of four lines, half of which may be written ones: as long as there are fewer, the oldest of the others
    makes room for a fifth. Then the first line, which was written whole, is read again."""
    target = gpu(l1={"size": "512 B", "dirty_share": 0.5})
    stores = [store(LINE * i) for i in range(written)]
    others = chased([LINE * i for i in range(written, 5)])
    before = run([[[*stores, *others]]], target)
    after = run([[[*stores, *others, *chased([0])]]], target)
    assert before.l1_misses == 5
    assert after.l1_misses - before.l1_misses == misses


@pytest.mark.theory
def test_memory_instructions_that_wait_hold_up_the_others_of_their_scheduler():
    """Of five accesses to shared memory of 32 cycles each, the load/store unit takes the first two cycles after its
    issue; while three wait, they hold the operand collectors and no other instruction is issued."""
    third_taken = BEGIN + 2 + 2 * 32
    warp = [*(load_shared(10 + i, 32) for i in range(5)), *chain(40)]
    assert cycles([[warp]], gpu(schedulers=1)) == third_taken + 40 * DEPENDENT + END


# L2 and DRAM


@pytest.mark.theory
@pytest.mark.parametrize(("latency", "interconnect"), [(100, 0), (60, 0), (100, 8)])
def test_a_chain_of_hits_in_l2(latency, interconnect):
    target = gpu(l2={"latency": f"{latency} cycles"}, interconnect=f"{interconnect} cycles")
    far = lines(12)
    times = [cycles([[chased(far[:n])]], target, read_before(far, target)) for n in (2, 12)]
    assert times[1] - times[0] == 10 * (L2_HIT - L2 + latency + 2 * interconnect)


@pytest.mark.theory
@pytest.mark.parametrize("latency", [150, 300])
def test_a_chain_in_dram(latency):
    target = gpu(dram={"latency": f"{latency} cycles"})
    times = [cycles([[chased(lines(n))]], target) for n in (2, 12)]
    assert times[1] - times[0] == 10 * (FROM_DRAM - DRAM + latency)


TIMING = {"frequency": "1 GHz", "banks": 16, "bank_groups": 4, "row": "2 KiB", "rcd": 11, "cl": 13, "wl": 3, "rp": 17,
          "ras": 23, "rc": 41, "rrd": 5, "ccd": 2, "ccdl": 3, "cdlr": 5, "wr": 7}  # fmt: skip


@pytest.mark.theory
@pytest.mark.parametrize(("step", "more"), [(2 * LINE, 13), (8 * 16 * 2 * LINE, 17 + 11 + 13)])
@pytest.mark.parametrize("ratio", [1, 2])
def test_a_chain_in_rows_of_dram(step, more, ratio):
    """Lines of one row take CL, those of other rows of its bank RP + RCD + CL. A row of 2 KiB has every other line of
    4 KiB, and the next one of its bank begins 16 / 2 such stretches later. (A DRAM of half the frequency takes twice
    as long.)"""
    timing = {**TIMING, "frequency": f"{1000 // ratio} MHz"}
    target = gpu(dram={"timing": timing})
    times = [cycles([[chased([step * i for i in range(n)])]], target) for n in (2, 12)]
    assert times[1] - times[0] == 10 * (FROM_DRAM + ratio * more)


@pytest.mark.theory
@pytest.mark.parametrize(
    ("step", "timing", "each"),
    [
        (2 * LINE, {"ccdl": 3}, 3),  # a row: column commands of a bank group
        (2 * LINE, {"ccdl": 6}, 6),
        (8 * 16 * 2 * LINE, {"rc": 61, "ras": 23, "rp": 17}, 61),  # rows of a bank: from one activation to the next,
        (8 * 16 * 2 * LINE, {"rc": 1, "ras": 33, "rp": 17}, 33 + 17),  # or open and closed again
    ],
)
def test_a_stream_in_rows_of_dram(step, timing, each):
    """Loads that depend on nothing, eight of them a row at most."""
    target = gpu(dram={"timing": {**TIMING, **timing}})
    loads = [load(10 + i, step * i, bypasses_l1=True) for i in range(8)]
    assert cycles([[loads]], target) - cycles([[loads[:4]]], target) == 4 * each


@pytest.mark.theory
def test_those_who_wait_for_a_sector_are_answered_one_a_cycle():
    """Eight SMs that read the same one, which comes from DRAM once."""
    alone, together = (run([[[load(2, 0)]]] * sms, gpu(sms=sms)) for sms in (1, 8))
    assert together.dram_reads == 1
    assert together.busy_cycles - alone.busy_cycles == 7


@pytest.mark.theory
@pytest.mark.parametrize(("bandwidth", "each"), [(16, 2), (8, 4), (4, 8)])
def test_a_stream_takes_its_bytes_over_the_bandwidth(bandwidth, each):
    """Sectors of 32 B at so many B a cycle, from all SMs."""
    target = gpu(sms=2, dram={"bandwidth": f"{bandwidth} GB/s"})

    def blocks(count):
        return [
            [[load(10 + i, 8 * i + 4 * block + warp) for i in range(count)] for warp in range(4)] for block in range(2)
        ]

    times = [cycles(blocks(n), target) for n in (16, 32)]
    assert times[1] - times[0] == 2 * 4 * 16 * each


@pytest.mark.theory
@pytest.mark.parametrize("channels", [1, 2])
def test_bandwidth_is_that_of_all_channels(channels):
    """4 B a cycle, whether one gives them or two share them."""
    target = gpu(dram={"bandwidth": "4 GB/s", "channels": channels})
    times = [cycles([[[load(10 + i, 8 * i + w) for i in range(n)] for w in range(8)]], target) for n in (16, 32)]
    assert times[1] - times[0] == 8 * 16 * 8


@pytest.mark.theory
@pytest.mark.parametrize(("sms", "slices", "each"), [(1, 1, 1), (2, 1, 2), (4, 1, 4), (1, 2, 1), (4, 2, 2)])
def test_ports_of_l2(sms, slices, each):
    """A slice takes a request a cycle, and an SM gets a reply a cycle: SMs over slices, but not below one.

    Collectors change the order of an SM's requests, so that the slices are not asked in turn: then a request may wait
    behind one for the other slice, which leaves at least 0.75 of the rate of two (Karol et al., IEEE Trans. Commun.
    35(12), 1987, table I).
    """
    target = gpu(sms=sms, blocks=1, l2={"slices": slices})

    def blocks(count):
        return [
            [[load(10 + i, LINE * (4 * i + w), bypasses_l1=True) for i in range(count)] for w in range(4)]
        ] * sms  # fmt: skip

    memory = read_before(range(0, LINE * 128, LINE), target)
    times = []
    for count in (16, 32):
        times.append(cycles(blocks(count), target, memory))
    least = 4 * 16 * each
    assert 1 <= (times[1] - times[0]) / least <= (1 / 0.75 if min(sms, slices) > 1 else 1)


@pytest.mark.theory
@pytest.mark.parametrize("entries", [1, 2, 4, 8])
def test_entries_for_misses_limit_loads(entries):
    """n misses that depend on nothing take n * (from miss to fill) / entries."""
    target = gpu(l1={"mshrs": entries})
    far = lines(64)
    memory = read_before(far, target)
    times = [
        cycles([[[load(10 + i, sector) for i, sector in enumerate(far[:n])]]], target, memory) for n in (16, 64)
    ]  # fmt: skip
    assert times[1] - times[0] == 48 // entries * MISS


@pytest.mark.theory
@pytest.mark.parametrize("entries", [1, 2, 4])
def test_entries_of_l2_limit_loads(entries):
    """The same for those of a slice, whose misses come back from DRAM: way and queues, and a cycle for the lookup."""
    target = gpu(l2={"mshrs": entries, "slices": 1})
    times = [cycles([[[load(10 + i, sector) for i, sector in enumerate(lines(n))]]], target) for n in (16, 64)]
    assert times[1] - times[0] == 48 // entries * (DRAM + DRAM_QUEUES + 1)


@pytest.mark.theory
@pytest.mark.parametrize(("merges", "waits"), [(2, False), (1, True)])
def test_a_miss_of_l2_holds_as_many_requests_as_are_merged(merges, waits):
    """Two SMs read a sector that comes from DRAM; a third one, behind them, what L2 has. If the second request finds
    no room it holds up its slice."""
    target = gpu(sms=3, l2={"slices": 1, "merges": merges})
    far = 64 * LINE
    result = run([[[load(2, sector)]] for sector in (far, far, 0)], target, read_before([0], target))
    assert result.block_end[2] - (BEGIN + (FROM_DRAM if waits else L2_HIT)) in range(5)


@pytest.mark.theory
def test_a_launch_finds_in_l2_what_those_before_it_read():
    kept, forgets = gpu(), gpu(l2={"kept_between_launches": False})
    far = lines(20)
    for target, reads in ((kept, 0), (forgets, 20)):
        result = run([[chased(far)]], target, read_before(far, target))
        assert (result.l1_misses, result.l2_misses, result.dram_reads) == (20, reads, reads)


@pytest.mark.theory
@pytest.mark.parametrize(("touched", "misses"), [([0, 1, 2, 0], 4), ([0, 1, 0, 2, 0], 3)])
def test_l2_replaces_the_line_that_was_not_used_for_longest(touched, misses):
    """A set of two lines."""
    target = gpu(l2={"size": "256 B", "ways": 2, "slices": 1})
    assert run([[chased([LINE * i for i in touched], bypasses_l1=True)]], target).l2_misses == misses


@pytest.mark.theory
@pytest.mark.parametrize(
    ("policy", "allocates", "stores", "misses", "reads"),
    [  # bytes that stores write of a sector that is then read: misses of L1 with the load, reads of DRAM
        ("through", True, [0xFFFFFFFF], 1, 0),
        ("through", True, [0xFFFF, 0xFFFF0000], 1, 0),
        ("through", True, [0xF], 2, 1),
        ("through", False, [0xFFFFFFFF], 2, 0),
        ("evict", True, [0xFFFFFFFF], 2, 0),
        ("evict", True, [0xFFFF, 0xFFFF0000], 3, 0),
    ],
)
def test_a_sector_can_be_read_once_it_was_written_whole(policy, allocates, stores, misses, reads):
    target = gpu(l1={"write": policy, "write_allocate": allocates})
    result = run([[[*(store(0, written=written) for written in stores), load(2, 0)]]], target)
    assert (result.l1_accesses, result.l1_misses, result.dram_reads) == (len(stores) + 1, misses, reads)


@pytest.mark.theory
@pytest.mark.parametrize(("policy", "misses"), [("through", 1), ("evict", 2)])
def test_a_store_to_a_sector_that_was_read(policy, misses):
    result = run([[[load(3, 0), store(0, source=3, written=1), load(2, 0)]]], gpu(l1={"write": policy}))
    assert (result.l1_accesses, result.l1_misses, result.dram_reads) == (3, misses, 1)


@pytest.mark.theory
@pytest.mark.parametrize("sectors", [1, 4])
def test_l2_writes_back_what_it_replaces(sectors):
    """A set of two lines, of which three are written to: the sectors of one go to DRAM."""
    target = gpu(l2={"size": "256 B", "ways": 2, "slices": 1})
    stores = [store(*range(LINE * i, LINE * i + sectors)) for i in range(3)]
    result = run([[[*stores, *chain(60)]]], target)  # (time to write it)
    assert (result.l2_misses, result.dram_writes) == (3 * sectors, sectors)


@pytest.mark.theory
def test_a_block_ends_with_the_acknowledgement_of_its_stores():
    """L1's lookup, the way of a miss, and no register to write to."""
    assert cycles([[[store(0)]]]) == BEGIN + L2_HIT - WRITEBACK + END


@pytest.mark.theory
def test_a_warp_waits_for_its_atomics():
    """Each takes the way past L1 and back, whether or not the next one needs its result."""
    memory = read_before([0], gpu())
    times = [cycles([[[atomic(10 + i, 0) for i in range(n)]]], None, memory) for n in (2, 12)]
    assert times[1] - times[0] == 10 * PAST_L1


# warps and blocks


@pytest.mark.theory
def test_a_barrier_waits_for_the_slowest_warp():
    """Phases of chains of 1 to 4 instructions, another warp the slowest in each: its three waits, the barrier a cycle
    later, and all go on in the next."""
    blocks = [
        [[each for p in range(n) for each in (*chain(1 + (w + p) % 4), BARRIER)] for w in range(4)] for n in (4, 12)
    ]
    times = [cycles([block]) for block in blocks]
    assert times[1] - times[0] == 8 * (3 * DEPENDENT + 2)


@pytest.mark.theory
def test_a_warp_that_has_ended_holds_up_no_barrier():
    ends_early = [chain(5), *[[*chain(20), BARRIER, *independent(1)]] * 3]
    assert cycles([ends_early]) == BEGIN + 19 * DEPENDENT + 2 + DEPENDENT + END


@pytest.mark.theory
def test_a_warp_that_has_exited_and_still_waits_for_its_stores_holds_up_no_barrier():
    """The store's acknowledgement comes after the others' barrier. (Its warp is the fourth to be fetched.)"""
    ends_early = [[store(0)], *[[*chain(5), BARRIER, *independent(4)]] * 3]
    assert BEGIN + 4 * DEPENDENT + 2 + 4 + DEPENDENT < L2_HIT
    assert cycles([ends_early]) == cycles([[[store(0)]]]) + 1


@pytest.mark.theory
def test_a_memory_barrier_waits_for_loads():
    fenced = [load(2, 0), other(UnitClass.memory_barrier), *chain(10, special)]
    free = [load(3, 0), *chain(10, special)]
    assert cycles([[fenced]]) == BEGIN + FROM_DRAM + 10 * DEPENDENT + END
    assert cycles([[free]]) == BEGIN + FROM_DRAM + END


@pytest.mark.theory
@pytest.mark.parametrize(("left", "waits"), [(0, True), (1, False)])
def test_a_warp_waits_for_all_but_so_many_groups_of_copies(left, waits):
    """The first group hits in L2 and the second does not, nor does it end after the chain that follows."""
    group, wait = other(UnitClass.copy_group), other(UnitClass.copy_wait, immediate=left)
    memory = read_before([0], gpu())
    warp = [copy(0), group, copy(64 * LINE), group, wait, *chain(20)]
    first, second = BEGIN + L2_HIT, BEGIN + 2 + FROM_DRAM
    assert cycles([[warp]], None, memory) == (second if waits else first) + 20 * DEPENDENT + END


@pytest.mark.theory
@pytest.mark.parametrize(
    ("limit", "of_launch"),
    [
        ({"blocks": 4}, {}),
        ({"warps": 8}, {}),
        ({"threads": 64 * 4}, {}),
        ({"registers": 4 * 2 * 512}, {"registers": 16}),
        ({"registers": 5 * 2 * 768 - 1}, {"registers": 17}),  # 17 * 32 are allocated as 3 * 256
        ({"shared_memory": {"size": "4 KiB"}}, {"shared": 1024}),
        ({"shared_memory": {"size": "5119 B"}}, {"shared": 1000}),  # allocated as 8 * 128 B
        ({"shared_memory": {"size": "8 KiB", "per_block_reserved": "1 KiB"}}, {"shared": 1024}),
    ],
)
def test_blocks_run_in_rounds_of_those_that_fit(limit, of_launch):
    """Blocks of two warps, four at a time on each of two SMs or one: an SM takes one a cycle."""
    for sms, rounds in ((1, 3), (2, 2)):
        result = run([[chain(10)] * 2] * (4 * sms * rounds), gpu(sms=sms, **limit), **of_launch)
        assert result.busy_cycles == rounds * (BEGIN + 10 * DEPENDENT) + 3 + END
        begins = np.sort(result.block_begin)
        assert begins[: 4 * sms].tolist() == np.repeat(np.arange(4), sms).tolist()
        assert begins[4 * sms] == BEGIN + 10 * DEPENDENT


@pytest.mark.theory
def test_a_block_goes_to_the_sm_that_has_room_first():
    sizes = [30, 3, 4, 5, 6, 7, 2, 2, 9, 1, 1, 4]
    result = run([[chain(n)] for n in sizes], gpu(sms=3, blocks=1))
    free = [(0, 0), (0, 1), (0, 2)]
    for block, size in enumerate(sizes):
        begin, sm = heapq.heappop(free)
        end = begin + BEGIN + DEPENDENT * size
        assert (result.block_sm[block], result.block_begin[block], result.block_end[block]) == (sm, begin, end)
        heapq.heappush(free, (end, sm))
    assert result.busy_cycles == max(free)[0] + END


@pytest.mark.theory
def test_of_sms_that_have_room_in_the_same_cycle_the_one_behind_the_last_goes_first():
    """One ends two short blocks as the other ends a long one; n instructions take n + 11 cycles."""
    result = run([[independent(n)] for n in (1, 13, 1, 1, 1)], gpu(sms=2, blocks=1))
    assert result.block_end.tolist() == [12, 24, 24, 36, 36]
    assert result.block_sm.tolist() == [0, 1, 0, 1, 0]


@pytest.mark.theory
def test_launch_latency_comes_on_top():
    result = run([[chain(10)]], gpu(launch_latency="1234 cycles"))
    assert (result.cycles, result.busy_cycles) == (1234 + 103, 103)


@pytest.mark.theory
@pytest.mark.parametrize(
    ("scheduler", "first", "second"),
    [  # cycles in which the last instructions of two warps are issued, the second of which may begin at 3
        ("loose-round-robin", 2 + 2 * 20, 3 + 2 * 20),
        ("greedy-then-oldest", 2 + 20, 2 + 41),
        ("oldest-first", 2 + 20, 2 + 41),
        ("two-level", 2 + 20, 2 + 41),
    ],
)
def test_which_of_two_free_warps_goes_first(scheduler, first, second):
    """Two blocks of a warp of 20 instructions and EXIT each, which takes its unit's cycle."""
    result = run([[independent(20)], [independent(20)]], gpu(schedulers=1, scheduler=scheduler, active_warps=1))
    before_exit = 2 if scheduler == "loose-round-robin" else 1
    assert result.block_end.tolist() == [first - before_exit + DEPENDENT, second - before_exit + DEPENDENT]


@pytest.mark.theory
@pytest.mark.parametrize(
    ("scheduler", "first", "second"),
    [  # cycles in which the last instructions before EXIT are issued
        ("oldest-first", 2 + 2 * DEPENDENT, 52 + 3),  # the first warp takes three slots of the second: two and EXIT
        ("greedy-then-oldest", 54 + DEPENDENT, 52),  # it goes on only after the EXIT of the second, at 53
        ("two-level", 2 + 2 * DEPENDENT, 24 + 49),  # waiting for a unit it remains the active one
    ],
)
def test_which_warp_goes_first_where_the_older_one_waits(scheduler, first, second):
    """A warp of three dependent instructions, and one of 50 that depend on nothing."""
    result = run([[chain(3)], [independent(50)]], gpu(schedulers=1, scheduler=scheduler, active_warps=1))
    assert result.block_end.tolist() == [first + DEPENDENT, second + DEPENDENT]


@pytest.mark.theory
@pytest.mark.parametrize("scheduler", ["oldest-first", "greedy-then-oldest"])
def test_the_oldest_warp_is_the_one_that_was_dispatched_first(scheduler):
    """Not that of the lowest slot: the third block takes the first one's, and goes on once the second has ended. Their
    last instructions are issued in cycles 2, 63 (from 4 on) and 94 (from 65 on)."""
    result = run([[independent(n)] for n in (1, 60, 30)], gpu(schedulers=1, blocks=2, scheduler=scheduler))
    assert result.block_end.tolist() == [2 + DEPENDENT, 63 + DEPENDENT, 94 + DEPENDENT]


@pytest.mark.theory
def test_a_two_level_scheduler_swaps_a_warp_that_waits_for_memory():
    """It makes room for the other, whose 30 instructions hide in its wait."""
    warps = [[load(2, 0), *chain(1)], independent(30)]
    assert cycles([warps], gpu(schedulers=1, scheduler="two-level", active_warps=1)) == (
        BEGIN + FROM_DRAM + DEPENDENT + END
    )


# what is told of a launch


@pytest.mark.theory
@pytest.mark.parametrize(
    ("cause", "warp", "waits"),
    [
        ("dependency", chain(10), 9 * (DEPENDENT - 1)),
        ("dram", [load(2, 0), integer(3, 2)], FROM_DRAM - 1),
        ("l1", [load(2, 0), integer(2, 2), load(2, 0, source=2), integer(3, 2)], L1_HIT - 1),
        ("shared", [load_shared(2, 8), integer(3, 2)], FRONT + 8 + SHARED),
    ],
)
def test_a_cycle_without_an_instruction_has_its_cause(cause, warp, waits):
    """Of one warp. EXIT follows in the next cycle, and what is in flight then drains."""
    result = run([[warp]], gpu(schedulers=1))
    stack = dict(zip(detailed.CAUSES, result.stack, strict=True))
    assert stack[cause] == waits
    assert stack["issue"] == result.warp_instructions == len(warp) + 1
    assert stack["empty"] == BEGIN + END
    assert result.stack.sum() == result.busy_cycles


@pytest.mark.theory
@pytest.mark.parametrize(("cause", "more"), [("unit", 10 * 2), ("load_store", 0)])
def test_an_instruction_that_waits_for_its_unit_has_that_as_its_cause(cause, more):
    """Once the registers before it are full, each waits the interval but the cycle of its issue."""
    target = gpu(schedulers=1, units={"int": {"latency": f"{LATENCY} cycles", "interval": "3 cycles"}})
    waits = [run([[independent(n)]], target).stack[detailed.CAUSES.index(cause)] for n in (20, 30)]
    assert waits[1] - waits[0] == more


@pytest.mark.theory
def test_an_instruction_that_waits_for_the_load_store_unit_has_that_as_its_cause():
    """Accesses to shared memory of eight cycles each."""
    waits = [
        run([[[load_shared(10 + i, 8) for i in range(n)]]], gpu(schedulers=1)).stack[
            detailed.CAUSES.index("load_store")
        ]
        for n in (20, 30)
    ]
    assert waits[1] - waits[0] == 10 * 7


@pytest.mark.theory
def test_waiting_at_a_barrier_and_for_l2_are_causes():
    barrier = run([[[*chain(10), BARRIER], [BARRIER]]], gpu(schedulers=2))
    # the second scheduler's warp waits from its barrier, in its first cycle, to the EXIT behind that of the other
    assert barrier.stack[detailed.CAUSES.index("barrier")] == 9 * DEPENDENT + 1
    near = run([[[load(2, 0), integer(3, 2)]]], gpu(schedulers=1), read_before([0], gpu()))
    assert near.stack[detailed.CAUSES.index("l2")] == L2_HIT - 1


@pytest.mark.theory
def test_those_who_wait_for_a_fill_get_it_one_a_cycle():
    """Eight loads of a sector wait for its fill; the last result comes seven cycles after the first."""
    loads = [load(10 + i, 0) for i in range(8)]
    first, last = (cycles([[[*loads, *([integer(2, used)] * 10)]]]) for used in (10, 17))
    assert last - first == 7


@pytest.mark.theory
def test_a_load_s_wait_is_that_for_the_farthest_level_that_answers_it():
    """One of its sectors is on its way from DRAM already and comes before the other, which L2 has."""
    memory = read_before([0], gpu())
    far = 64 * LINE + 1  # in another bank of L1
    warp = [load(3, far), *chain(20), load(4, 0, far), integer(5, 4)]
    stack = run([[warp]], gpu(schedulers=1), memory).stack
    assert 20 * DEPENDENT + L2_HIT > FROM_DRAM
    assert stack[detailed.CAUSES.index("l2")] == 0
    assert stack[detailed.CAUSES.index("dram")] == L2_HIT - 1


@pytest.mark.theory
def test_occupancy_is_of_the_warps_that_an_sm_has_room_for():
    assert run([[chain(10)] * 8]).occupancy == 8 / 32
    # two of three blocks at a time: the third alone for the second half
    halves = run([[chain(10)] * 8] * 3, gpu(blocks=2)).occupancy
    assert halves == pytest.approx(1.5 * 8 / 32, rel=0.01)


programs = st.lists(
    st.one_of(
        st.builds(integer, st.integers(2, 9), st.integers(2, 9)),
        st.builds(special, st.integers(2, 9), st.integers(2, 9)),
        st.builds(load, st.integers(2, 9), st.integers(0, 400), source=st.integers(2, 9)),
        st.builds(store, st.integers(0, 400), source=st.integers(2, 9), written=st.sampled_from([15, 0xFFFFFFFF])),
        st.builds(load_shared, st.integers(2, 9), st.integers(1, 8)),
        st.builds(atomic, st.integers(2, 9), st.integers(0, 8)),
        st.just(BARRIER),
    ),
    max_size=25,
)
same_length = st.integers(1, 4).flatmap(  # blocks whose warps all have a program of their own
    lambda warps: st.lists(st.lists(programs, min_size=warps, max_size=warps), min_size=1, max_size=8)
)
arithmetic = st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=12)


@pytest.mark.property
@settings(max_examples=40, deadline=None)
@given(blocks=same_length, sms=st.integers(1, 3), slots=st.integers(1, 3), scheduler=st.integers(0, 3))
def test_what_holds_for_any_launch(blocks, sms, slots, scheduler):
    names = ("loose-round-robin", "greedy-then-oldest", "oldest-first", "two-level")
    target = gpu(sms=sms, blocks=slots, scheduler=names[scheduler], active_warps=1)
    trace = launch(blocks)
    result, memory = detailed.simulate(trace, target)
    # every cycle of every scheduler is accounted for, every instruction and block once
    assert result.stack.sum() == result.busy_cycles * result.sms_with_blocks * SCHEDULERS
    assert result.stack.min() >= 0
    assert result.stack[detailed.CAUSES.index("issue")] == result.warp_instructions == trace.num_instructions
    assert result.ipc.sum() == trace.num_instructions
    assert result.sms_with_blocks == min(sms, len(blocks))
    assert 0 <= result.block_sm.min() <= result.block_sm.max() < result.sms_with_blocks
    assert np.all(result.block_begin < result.block_end)
    assert result.busy_cycles == result.block_end.max() + END
    assert np.all(np.diff(result.block_begin) >= 0)
    for sm in range(result.sms_with_blocks):  # never more than fit
        own = result.block_sm == sm
        begins, ends = result.block_begin[own], result.block_end[own]
        assert max(int(((begins <= at) & (ends > at)).sum()) for at in begins) <= slots
    # requests are those of the instructions; what a level answers does not reach the next
    requests = [each for block in blocks for warp in block for each in warp if each.sectors]
    of_l1 = [each for each in requests if each.access != atomic(2, 0).access]
    assert result.l1_accesses == len(of_l1)
    stores = sum(each.access == store(0).access for each in of_l1)
    assert result.l1_misses <= result.l1_accesses
    assert result.l2_accesses <= result.l1_misses + stores + len(requests) - len(of_l1)
    # the same again, and the same after L2 was emptied
    again, _ = detailed.simulate(trace, target)
    for field in dataclasses.fields(result):
        assert np.array_equal(getattr(result, field.name), getattr(again, field.name)), field.name
    assert memory.free[0] >= 0


@pytest.mark.property
@settings(max_examples=30, deadline=None)
@given(blocks=arithmetic)
def test_more_sms_are_never_slower_for_blocks_that_wait_for_nothing(blocks):
    """One block at a time on an SM, in the order of the launch: each begins no later with an SM more. (Blocks that
    share an SM, L2 or DRAM hinder each other otherwise then, and some take longer.)"""
    trace = launch([[chain(n) if dependent else independent(n)] for n, dependent in blocks])
    found = [detailed.simulate(trace, gpu(sms=sms, blocks=1))[0] for sms in (1, 2, 3)]
    for fewer, more in itertools.pairwise(found):
        assert np.all(more.block_begin <= fewer.block_begin)
        assert more.busy_cycles <= fewer.busy_cycles


def test_a_difference_is_seen():
    """Of these tests themselves: another latency gives other cycles."""
    slower: Instruction = integer(2, 2)
    target = gpu(units={"int": {"latency": f"{LATENCY + 1} cycles", "interval": "1 cycle"}})
    assert cycles([[[slower] * 10]], target) == cycles([[[slower] * 10]]) + 10
