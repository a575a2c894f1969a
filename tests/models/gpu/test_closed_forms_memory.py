"""Cycles and counts of L2 and DRAM of a small GPU (gpu_small.py), each number from its latencies and bandwidths as
memory_kernel.py describes them (see test_closed_forms_sm.py).
"""

from __future__ import annotations

import pytest
from gpu_programs import (
    atomic,
    copy,
    launch,
    load,
    store,
)
from gpu_small import (
    BEGIN,
    DEPENDENT,
    DRAM,
    DRAM_QUEUES,
    END,
    FROM_DRAM,
    L2,
    L2_HIT,
    LINE,
    MISS,
    PAST_L1,
    WRITEBACK,
    chain,
    chased,
    cycles,
    gpu,
    lines,
    read_before,
    run,
)

from manyscale.models.gpu.groups import simulate_in_groups

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
@pytest.mark.parametrize(
    ("sectors", "past_l1", "each"), [(1, 1, 8), (1, 4, 8), (2, 1, 8), (2, 2, 4), (2, 4, 4), (4, 8, 2)]
)
@pytest.mark.parametrize("way", ["past L1", "through L1", "copies"])
def test_a_stream_from_l2_takes_its_sectors_over_what_ports_and_unit_pass(way, sectors, past_l1, each):
    """Accesses of 8 sectors that depend on nothing, from one SM and one slice. L1 looks up 4 sectors a cycle."""
    if way == "through L1":
        each = 8 // sectors
    target = gpu(l2={"slices": 1}, crossbar={"sectors": sectors, "past_l1": past_l1})

    def block(count):
        own = [[range(8 * (4 * i + w), 8 * (4 * i + w) + 8) for i in range(count)] for w in range(4)]
        if way == "copies":
            return [[copy(*eight, bypasses_l1=True) for eight in warp] for warp in own]
        return [[load(10 + i, *eight, bypasses_l1=way == "past L1") for i, eight in enumerate(warp)] for warp in own]

    memory = read_before(range(8 * 4 * 64), target)
    times = [cycles([block(count)], target, memory) for count in (32, 64)]
    assert times[1] - times[0] == 4 * 32 * each


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


@pytest.mark.theory
def test_acknowledgements_that_come_faster_than_an_sm_takes_them():
    """Two slices wait for a miss, thousands of stores behind it, which they then answer one a cycle each, and the SM
    takes one a cycle. None is forgotten: all is done while the last misses of the slices are on their way."""
    target = gpu(l2={"mshrs": 1, "slices": 2}, dram={"latency": "8000 cycles"})
    misses = [load(10 + i, sector) for i, sector in enumerate(lines(8))]

    def stores(count):
        return [
            [store(*range(128 * warp + 4 * i, 128 * warp + 4 * i + 4)) for i in range(count)] for warp in range(1, 16)
        ]

    few, many = ([[misses, *stores(count)]] for count in (12, 24))
    assert cycles(many, target) == cycles(few, target)
    assert simulate_in_groups(launch(many), target)[0].busy_cycles == cycles(few, target)


@pytest.mark.theory
def test_acknowledgements_of_any_number():
    """The slices begin with theirs of 24,000 or 30,000 stores once the first misses are there, 20,000 cycles later, and
    make two a cycle; the SM takes one a cycle until it has all, behind the second misses."""
    target = gpu(l2={"mshrs": 1, "slices": 2}, dram={"latency": "20000 cycles"})
    misses = [load(10 + i, sector) for i, sector in enumerate(lines(4))]

    def stores(count):
        line = [store(*range(first, first + 4)) for first in range(4 * 16, 4 * 16 * 2, 4)]
        return [[line[warp]] * count for warp in range(15)]

    times = [cycles([[misses, *stores(count)]], target) for count in (400, 500)]
    assert times[0] == pytest.approx(20_000 + 24_000, abs=100)  # (some come before the misses)
    assert times[1] - times[0] == 15 * 4 * 100
    in_groups = simulate_in_groups(launch([[misses, *stores(400)]]), target)[0]
    assert in_groups.busy_cycles == times[0]


@pytest.mark.theory
@pytest.mark.parametrize(("side_pool", "held_up"), [(4, 0), (3, DRAM + DRAM_QUEUES + 8 - 10 * DEPENDENT)])
def test_who_waits_in_the_side_pool_holds_up_no_slice(side_pool, held_up):
    """Eight SMs read a sector that comes from DRAM, of whom its miss holds four; a ninth reads others of the slice
    from L2, ten instructions later. Without room for the eighth it waits for the fill, and is answered behind the
    eight, one a cycle."""
    target = gpu(sms=9, blocks=1, l2={"merges": 4, "slices": 1, "side_pool": side_pool})
    far = [LINE * i for i in range(1, 4)]
    last = [*chain(10), *(load(2, sector, source=2) for sector in far)]
    alone, together = (
        cycles([[others]] * 8 + [[last]], target, read_before(far, target)) for others in (chain(1), [load(2, 0)])
    )
    assert together - alone == held_up


@pytest.mark.theory
def test_stores_cannot_run_ahead_of_what_is_written_back():
    """Each store takes a line in which four sectors were written: 4 x 4 cycles of DRAM, and no SM waits for that; with
    64 writes on their way, slices do."""
    target = gpu(l2={"size": "2 KiB"}, dram={"bandwidth": "8 GB/s", "writes": 64})
    times = [
        cycles([[[store(*range(LINE * i, LINE * i + LINE)) for i in range(w, n, 8)] for w in range(8)]], target)
        for n in (256, 640)
    ]
    assert times[1] - times[0] == pytest.approx(384 * 4 * 4, rel=0.02)
