"""GPUMech's extended form where SMs hold each other up at slices of L2, sets of L1 are full, or no block is left on an
SM, by closed forms that the cycle-level model is held to as well."""

from __future__ import annotations

import gpu_small as small
import pytest
from gpu_programs import atomic, integer, launch, load, store

from manyscale.models.gpu import detailed
from manyscale.models.gpu.gpumech import model as gpumech
from manyscale.models.gpu.gpumech import part
from manyscale.models.gpu.l2.slices import slice_of_line
from manyscale.models.gpu.memory_state import memory_limits


def _both(trace, target):
    found = gpumech.predict(gpumech.collect(trace, target), target).cycles
    return found, detailed.simulate(trace, target)[0].busy_cycles


def _lines(target, slices):
    """A line of each of these slices, in their order."""
    limits = memory_limits(target)
    first = {}
    for line in range(1000):
        first.setdefault(int(slice_of_line(line, limits.slices, limits.hash_shift, limits.hash_masks)), line)
    return [first[each] for each in slices]


@pytest.mark.theory
@pytest.mark.parametrize("sms", [4, 8])
def test_sms_that_store_the_same_lines_move_from_slice_to_slice_together(sms):
    """A warp of each SM stores four sectors of a line of one slice after the other, slices of falling numbers (so that
    no SM passes two requests in a cycle). Whose turn it is goes round, and an SM that comes anew finds that it is its
    own: so the first one has its fourth sector pass when all have had three, and the next slice begins then."""
    target = small.gpu(sms=sms, l2={"slices": 16, "size": "1 MiB"}, dram={"bandwidth": "4096 GB/s"})
    made = []
    for count in (3, 5):
        lines = _lines(target, range(9, 9 - count, -1))
        warp = [store(*range(4 * line, 4 * line + 4), source=1) for line in lines]
        made.append(_both(launch([[warp]] * sms), target))
    for before, after in zip(*made, strict=True):
        assert after - before == 2 * (3 * sms + 1)


@pytest.mark.theory
def test_lines_that_share_a_full_set_wait_for_the_one_whose_place_they_get():
    """One load of lines that share a set of four ways: four at a time are on their way to memory."""
    target = small.gpu(l1={"size": "2 KiB", "write_allocate": True})
    assert target.l1.num_sets == 4
    trip = small.MISS + small.DRAM + small.DRAM_QUEUES
    first = None
    for number in (1, 5, 9, 13):
        trace = launch([[[load(10, *(16 * 4 * i for i in range(number))), integer(11, 10)]]])
        found = _both(trace, target)
        first = first or found
        for cycles, alone in zip(found, first, strict=True):
            assert cycles - alone == pytest.approx((number - 1) // 4 * trip, rel=0.02)


@pytest.mark.theory
def test_l1_of_an_sm_without_blocks_is_emptied():
    """Blocks that read the same line, one after the other on an SM that holds one of them at a time: all miss. On an SM
    that holds two the second one finds what the first one read."""
    blocks = [[[load(10, 0), integer(11, 10)]], [[integer(1, 1)] * 500 + [load(10, 0), integer(11, 10)]]]
    misses = {}
    for most in (1, 2):
        target = small.gpu(blocks=most)
        trace = launch(blocks)
        found = gpumech.predict(gpumech.collect(trace, target), target).l1_misses
        misses[most] = found, detailed.simulate(trace, target)[0].l1_misses
    assert misses == {1: (2, 2), 2: (1, 1)}


@pytest.mark.parametrize(("lines", "followed"), [(1, 0), (8, 0), (4096, 8)])
def test_all_sms_are_followed_where_atomics_go_to_few_lines(lines, followed, monkeypatch):
    """A line is of one slice, which all SMs wait for: no SM with its part of the slices stands for others. (Else 8
    of 32: six at least, and a part of the channels that divides them.)"""
    monkeypatch.setattr(part, "LEAST_INSTRUCTIONS", 1000)
    monkeypatch.setattr(part, "WANTED", 100)
    target = small.gpu(sms=32, l2={"slices": 32, "size": "1 MiB"}, dram={"channels": 16})
    blocks = [[[integer(2, 2)] * 30 + [atomic(10, 4 * (64 * i % lines))]] for i in range(640)]
    assert len(part.followed_sms(launch(blocks), target)) == followed


@pytest.mark.theory
def test_a_block_begins_a_turnaround_behind_the_one_in_whose_place_it_comes():
    """Four blocks, one at a time: three turnarounds. Two SMs with a block each: the second begins an interval later."""
    blocks = [[[integer(2, 2)] * 50]] * 4
    at_once, paced = (
        _both(launch(blocks), small.gpu(blocks=1, dispatch=given)) for given in ({}, {"turnaround": "70 cycles"})
    )
    assert [after - before for before, after in zip(at_once, paced, strict=True)] == [3 * 70, 3 * 70]
    at_once, paced = (
        _both(launch(blocks[:2]), small.gpu(sms=2, dispatch=given)) for given in ({}, {"interval": "40 cycles"})
    )
    assert [after - before for before, after in zip(at_once, paced, strict=True)] == [40, 40]
