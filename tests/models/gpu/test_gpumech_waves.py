"""GPUMech's extended form on launches of many waves of blocks: what is skipped, and what forbids it.

Launches here are small; the bound below which nothing is skipped is taken away.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from gpu_programs import integer, launch, load, store

from manyscale.models.gpu.gpumech import model as gpumech
from manyscale.models.gpu.gpumech import waves
from manyscale.models.gpu.parameters import Gpu
from manyscale.runner.problems import load_yaml
from manyscale.runner.study.targets import shipped_targets

CHAIN = 7  # cycles from an integer instruction to the next that needs it
SMS, WAVES = 2, 60


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch):
    monkeypatch.setattr(waves, "LEAST_INSTRUCTIONS", 0)


@pytest.fixture(scope="module")
def gpu():
    """Two SMs, a block on each at a time."""
    content = load_yaml(shipped_targets()["rtx3070"])["node"]["gpu"]
    return Gpu.model_validate(content | {"sms": SMS, "blocks": 1})


def chain(length):
    return [integer(1, 1)] * length


def reading(block, length=20, reach=1 << 20):
    """A warp that reads and writes lines of its own, of ``reach`` different ones."""
    at = 4 * (block * 16 % reach)
    body = [each for i in range(16) for each in (load(2, at + 4 * i), integer(3, 2))]
    return [*body, store(1 << 26, source=3), *chain(length)]


def both(blocks, gpu):
    """What is predicted, and what a replay of all blocks says."""
    profile = gpumech.collect(launch([[warp] for warp in blocks]), gpu, representative=False)
    whole = dataclasses.replace(profile, waves=profile.waves[:0])
    return gpumech.predict(profile, gpu), gpumech.predict(whole, gpu)


def skipped(found):
    return int((found.block_sm < 0).sum())


def test_a_wave_of_arithmetic_takes_as_long_as_its_chain(gpu):
    """A block's life is 300 x 7 cycles, and a few to begin and to end."""
    found, _ = both([chain(300)] * (SMS * WAVES), gpu)
    assert skipped(found) == SMS * (WAVES - waves.FIRST_WAVES - waves.LAST_WAVES)
    assert found.cycles == pytest.approx(WAVES * 300 * CHAIN, rel=0.01)
    assert 0 < found.half_width <= 0.02  # waves are equal: it is what may differ unnoticed


@pytest.mark.parametrize("reach", [1 << 20, 64])
def test_what_is_skipped_takes_as_long_as_in_a_whole_replay(gpu, reach):
    found, whole = both([reading(block, reach=reach) for block in range(SMS * WAVES)], gpu)
    assert skipped(found) >= SMS * WAVES // 2
    assert found.cycles == pytest.approx(whole.cycles, rel=0.02)
    assert abs(found.cycles - whole.cycles) <= found.half_width * found.cycles + 0.005 * whole.cycles
    assert (found.l1_misses, found.l2_misses) == (whole.l1_misses, whole.l2_misses)
    assert sum(found.stack.values()) == pytest.approx(found.cpi, rel=1e-12)
    ran = found.block_sm >= 0
    assert np.all(np.diff(found.block_begin[ran]) >= 0)
    assert found.block_end.max() == pytest.approx(found.cycles, abs=2)
    assert np.all(found.block_begin[~ran] == -1)


def longer(block):
    return reading(block, 20 if block < SMS * WAVES * 3 // 4 else 40)


def one_long(block):
    return reading(block, 2000 if block == SMS * WAVES // 2 else 20)


def other_data(block):
    """The same instructions; from the middle on blocks read what is in L2."""
    return reading(block if block < SMS * WAVES // 2 else block % 8)


@pytest.mark.parametrize("of_block", [longer, one_long, other_data])
def test_nothing_is_skipped_where_blocks_differ(gpu, of_block):
    found, whole = both([of_block(block) for block in range(SMS * WAVES)], gpu)
    assert skipped(found) == 0
    assert (found.cycles, found.half_width, found.stack) == (whole.cycles, 0, whole.stack)


def test_nothing_is_skipped_of_few_waves_or_instructions(gpu, monkeypatch):
    few, _ = both([chain(300)] * (SMS * (2 * waves.FIRST_WAVES - 1)), gpu)
    monkeypatch.setattr(waves, "LEAST_INSTRUCTIONS", 1_000_000)
    small, _ = both([chain(300)] * (SMS * WAVES), gpu)
    assert skipped(few) == skipped(small) == 0
