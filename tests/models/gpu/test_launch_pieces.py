"""A launch that comes in pieces of its blocks takes what it takes as a whole; a program is its trace's arrays."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from gpu_programs import integer, launch, load, pieces, store
from gpu_small import chain
from gpu_small import gpu as small

from manyscale.models.gpu import detailed
from manyscale.models.gpu.detailed import l2_of, simulate, simulate_pieces
from manyscale.models.gpu.l2 import warm
from manyscale.models.gpu.launch_program import launch_program
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload.launch_trace import LaunchTrace
from manyscale.runner.problems import load_yaml
from manyscale.runner.study.targets import shipped_targets

BLOCKS = 40


@pytest.fixture(scope="module")
def gpu() -> Gpu:
    whole = Gpu.model_validate(load_yaml(shipped_targets()["rtx3070"])["node"]["gpu"])
    return whole.model_copy(update={"sms": 2, "blocks": 3})


def whole() -> LaunchTrace:
    """Blocks of several lengths, which load what others stored."""
    blocks = [
        [
            [
                *(integer(1, 1) for _ in range(5 + 7 * block % 30)),
                load(2, *range(8 * block + warp, 2000 + 8 * block + warp, 125)),
                store(900 - block, source=2),
            ]
            for warp in range(3)
        ]
        for block in range(BLOCKS)
    ]
    return launch(blocks)


@pytest.mark.parametrize("blocks", [1, 7, 39])
def test_pieces_take_what_the_whole_takes(gpu: Gpu, blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets of the IPC are few, so that their length depends on how many instructions the launch has."""
    monkeypatch.setattr(detailed, "IPC_BUCKETS", 4)
    expected, _ = simulate(whole(), gpu)
    found, _ = simulate_pieces(pieces(whole(), blocks), gpu, num_instructions=whole().num_instructions)
    for field in fields(expected):
        one, other = getattr(expected, field.name), getattr(found, field.name)
        assert np.array_equal(one, other), field.name


def test_loads_that_wait_when_more_comes_read_what_they_would() -> None:
    """Block 0 ends, and its requests are forgotten, while loads of block 1 wait for the load/store unit."""
    waiting = [load(10 + i, *range(4000 + 32 * i, 4032 + 32 * i)) for i in range(60)]
    trace = launch([[[load(3, *range(17)), integer(4, 3)]], [waiting], [chain(5)], [chain(5)]])
    found, _ = simulate_pieces(pieces(trace, 2), small(blocks=2))
    assert found.block_begin[2] == found.block_end[0] < found.block_end[1]
    assert found.l1_misses == found.dram_reads == 17 + 60 * 32  # no sector twice


def test_l2_is_as_the_whole_leaves_it(gpu: Gpu) -> None:
    one, other = l2_of(gpu), l2_of(gpu)
    warm.touch(whole(), gpu, one)
    warm.touch_pieces(pieces(whole(), 7), gpu, other)
    assert np.any(one.tag >= 0)
    assert np.array_equal(one.tag, other.tag)
    assert np.array_equal(one.last_use, other.last_use)


def test_what_is_traced_is_not_copied(gpu: Gpu) -> None:
    """Whether it can be written to (a store maps what cannot) or not."""
    trace = whole()
    for is_writeable in (True, False):
        trace.sector.flags.writeable = trace.instruction.flags.writeable = is_writeable
        program = launch_program(trace, gpu)
        assert np.shares_memory(program.request, trace.sector)
        assert np.shares_memory(program.instruction, trace.instruction)
        assert not any(array.flags.writeable for array in program)
