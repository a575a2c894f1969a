"""What accesses leave in L2, as a simulation leaves it: lines used last, sectors that were read or written whole."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_programs import FULL, atomic, launch, load, store
from gpu_small import gpu

from manyscale.models.gpu import detailed
from manyscale.models.gpu.l2 import warm as warm_l2

LINE = 4  # sectors
WAYS = 2


@pytest.fixture(scope="module")
def small_gpu():
    """One slice of L2: 16 sets of 2 ways; lines of 128 B in sectors of 32 B."""
    return small()


def small(**changes):
    l2 = {"size": "4 KiB", "ways": WAYS, "slices": 1, **changes.pop("l2", {})}
    return gpu(l2=l2, **changes)


def held(memory):
    """{line: (valid sectors, dirty sectors)}"""
    places = memory.tag >= 0
    lines = zip(memory.tag[places].tolist(), memory.line[places], strict=True)
    return {tag: (int(line["valid"]), int(line["dirty"])) for tag, line in lines}


def left(target, *launches):
    memory = detailed.l2_of(target)
    for each in launches:
        warm_l2.touch(each, target, memory)
    return held(memory)


def simulated(target, *launches):
    memory = None
    for each in launches:
        memory = detailed.simulate(each, target, memory)[1]
    return held(memory)


def chased(*sectors, **more):
    """A warp that waits for each of its loads."""
    return [load(10, sector, source=10, **more) for sector in sectors]


def past_l1(*sectors):
    return launch([[chased(*sectors, bypasses_l1=True)]])


def test_a_read_leaves_its_sector(small_gpu):
    assert left(small_gpu, past_l1(0, 2)) == {0: (0b0101, 0)}


def test_a_sector_written_in_part_cannot_be_read(small_gpu):
    assert left(small_gpu, launch([[[store(0, written=0xFFFF)]]])) == {0: (0, 1)}
    both = [store(0, written=0xFFFF), store(0, written=0xFFFF0000)]
    assert left(small_gpu, launch([[both]])) == {0: (1, 1)}


def test_lines_without_sectors_are_written_whole():
    """As a simulation does, whose requests are as large as a line."""
    sectors = {"sector": "128 B"}
    target = small(l1=sectors, l2=sectors)
    part = launch([[[store(1, written=0xFF)]]])
    assert left(target, part) == simulated(target, part) == {0: (1, 1)}
    memory = detailed.l2_of(target)
    warm_l2.touch_blocks(part, target, memory, 0, 1)
    assert held(memory) == {0: (1, 1)}


def test_the_lines_used_last_remain(small_gpu):
    """As many lines as fit of a sweep over four times as many, whatever their sets: each set keeps its last two."""
    lines = range(128)
    found = left(small_gpu, past_l1(*(line * LINE for line in lines)))
    assert len(found) == 32
    again = left(small_gpu, past_l1(*(line * LINE for line in [*lines, *lines])))
    assert again == found
    # of a set's lines, one that is used again in between remains
    rarely = [each * LINE for line in range(1, 128) for each in (0, line)]
    assert 0 in left(small_gpu, past_l1(*rarely))


def test_l2_does_not_see_what_l1_answers(small_gpu):
    """The line that is used again and again remains in L1, and leaves L2."""
    rarely = launch([[chased(*(each * LINE for line in range(1, 128) for each in (0, line)))]])
    assert 0 not in simulated(small_gpu, rarely)
    assert left(small_gpu, rarely) == simulated(small_gpu, rarely)


@pytest.mark.parametrize("access", [store, lambda sector: atomic(10, sector)], ids=["store", "atomic"])
def test_l2_sees_every_store_and_atomic(small_gpu, access):
    often = launch([[[one for line in range(1, 128) for one in (access(0), *chased(line * LINE))]]])
    assert 0 in simulated(small_gpu, often)
    assert left(small_gpu, often) == simulated(small_gpu, often)


def test_blocks_of_all_sms_take_turns():
    """Each block of two sweeps over lines of its own, which would fill L2: of both, the last ones remain."""
    target = small(sms=2)
    sweeps = launch([[chased(*range(first * LINE, (first + 32) * LINE, LINE))] for first in (0, 32)])
    found = left(target, sweeps)
    assert found == simulated(target, sweeps)
    assert sum(line < 32 for line in found) == sum(line >= 32 for line in found) == 16


def test_blocks_wait_for_room():
    """On one SM with room for one block, the second one comes behind the first one."""
    sweeps = launch([[chased(*range(first * LINE, (first + 32) * LINE, LINE))] for first in (0, 32)])
    target = small(blocks=1)
    assert left(target, sweeps) == simulated(target, sweeps)
    assert min(left(target, sweeps)) >= 32


def test_launches_follow_each_other(small_gpu):
    assert left(small_gpu, past_l1(0), past_l1(1)) == {0: (0b0011, 0)}
    forgets = small_gpu.model_copy(update={"l2": small_gpu.l2.model_copy(update={"kept_between_launches": False})})
    assert left(forgets, past_l1(0), past_l1(1)) == {0: (0b0010, 0)}


@pytest.mark.parametrize("size", [32, 64])
def test_most_lines_are_those_of_a_simulation(size):
    """Blocks that read a table at random, stream through lines of their own and write part of them, over L2 of a
    fraction of what they touch. (Block by block, fewer than half of the lines would be.)"""
    target = gpu(sms=8, blocks=2, l2={"size": f"{size} KiB", "slices": 4})
    random = np.random.default_rng(3)

    def warp(number):
        rounds = zip(random.integers(0, 400, 12).tolist(), range(12), strict=True)
        return [
            one
            for table, step in rounds
            for one in (
                load(10, table * LINE, source=10),
                load(11, (1000 + 12 * number + step) * LINE, source=11),
                store((1000 + 12 * number + step) * LINE + 1, source=11, written=FULL if step % 2 else 0xFF),
            )
        ]

    trace = launch([[warp(4 * block + each) for each in range(4)] for block in range(48)])
    found, true = left(target, trace), simulated(target, trace)
    assert len(found) == len(true) == size * 8
    same = found.keys() & true.keys()
    assert len(same) / len(true) > 0.8
    assert sum(found[line] == true[line] for line in same) / len(same) > 0.9
