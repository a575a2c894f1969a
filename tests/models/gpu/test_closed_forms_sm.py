"""Cycles of an SM of a small GPU (gpu_small.py), each number from its latencies and intervals by the pipeline that
gpu/sm/kernel.py describes.

A block that begins at cycle t issues first at t + 2, and a launch is over a cycle after its last block. A dependent
instruction follows after the unit's latency and the pipeline. What is compared is the whole time where it follows from
these, else what one more instruction adds.
"""

from __future__ import annotations

import pytest
from gpu_programs import (
    integer,
    load,
    load_shared,
    special,
    store,
)
from gpu_small import (
    BEGIN,
    DEPENDENT,
    END,
    FRONT,
    LATENCY,
    LINE,
    MISS,
    SHARED,
    chain,
    chased,
    cycles,
    gpu,
    independent,
    run,
    shared_chain,
)

# units


@pytest.mark.theory
@pytest.mark.parametrize("count", [1, 10, 40])
@pytest.mark.parametrize(("latency", "pipeline"), [(6, 4), (2, 5), (21, 2), (1, 7), (40_000, 4)])
def test_a_dependent_chain_takes_latency_and_pipeline_each(latency, pipeline, count):
    target = gpu(pipeline=f"{pipeline} cycles", units={"sfu": {"latency": f"{latency} cycles", "interval": "1 cycle"}})
    assert cycles([[chain(count, special)]], target) == BEGIN + count * (latency + pipeline) + END


@pytest.mark.theory
@pytest.mark.parametrize(("warps", "schedulers"), [(4, 4), (8, 4), (8, 2), (8, 1), (1, 1)])
@pytest.mark.parametrize("interval", [1, 3, 8, 40_000])
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
