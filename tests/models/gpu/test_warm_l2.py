"""What accesses leave in L2: the lines used last, sectors that were read or written whole."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_launches import Launch, trace_of

from manyscale.models.gpu import detailed
from manyscale.models.gpu.l2 import warm as warm_l2
from manyscale.models.gpu.parameters import Gpu
from manyscale.runner.problems import load_yaml
from manyscale.runner.study.targets import shipped_targets

LINE = 4  # sectors


@pytest.fixture(scope="module")
def small_gpu():
    """One slice of L2: 16 sets of 2 ways; lines of 128 B in sectors of 32 B."""
    content = load_yaml(shipped_targets()["rtx3070"])["node"]["gpu"]
    l2 = {**content["l2"], "size": "4 KiB", "ways": 2, "slices": 1}
    return Gpu.model_validate({**content, "sms": 1, "l2": l2, "dram": {**content["dram"], "channels": 1}})


def left(gpu, *accesses):
    """{line: (valid sectors, dirty sectors)} after ``accesses``: lists of (sector, bytes written)."""
    memory = detailed.l2_of(gpu)
    for each in accesses:
        trace = trace_of(1, Launch("a", (1,)))
        object.__setattr__(trace, "sector", np.array([sector for sector, _ in each], np.int64))
        object.__setattr__(trace, "written", np.array([written for _, written in each], np.uint32))
        warm_l2.touch(trace, gpu, memory)
    held = memory.tag >= 0
    lines = zip(memory.tag[held].tolist(), memory.line[held], strict=True)
    return {tag: (int(line["valid"]), int(line["dirty"])) for tag, line in lines}


def reads(*sectors):
    return [(sector, 0) for sector in sectors]


def test_a_read_leaves_its_sector(small_gpu):
    assert left(small_gpu, reads(0, 2)) == {0: (0b0101, 0)}


def test_a_sector_written_in_part_cannot_be_read(small_gpu):
    assert left(small_gpu, [(0, 0xFFFF)]) == {0: (0, 1)}
    assert left(small_gpu, [(0, 0xFFFF), (0, 0xFFFF0000)]) == {0: (1, 1)}


def test_the_lines_used_last_remain(small_gpu):
    """As many lines as fit of a sweep over four times as many, whatever their sets: each set keeps its last two."""
    lines = range(128)
    found = left(small_gpu, reads(*(line * LINE for line in lines)))
    assert len(found) == 32
    again = left(small_gpu, reads(*(line * LINE for line in [*lines, *lines])))
    assert again == found
    # of a set's lines, one that is used again in between remains
    rarely = left(small_gpu, reads(*(each * LINE for line in range(1, 128) for each in (0, line))))
    assert 0 in rarely


def test_launches_follow_each_other(small_gpu):
    assert left(small_gpu, reads(0), reads(1)) == {0: (0b0011, 0)}
    forgets = small_gpu.model_copy(update={"l2": small_gpu.l2.model_copy(update={"kept_between_launches": False})})
    assert left(forgets, reads(0), reads(1)) == {0: (0b0010, 0)}
