"""A part of a GPU, and which blocks run on it."""

from __future__ import annotations

import pytest

from .measure_parts import Thinned, fewest_sms, part_of
from .measure_waves import gpu_of


@pytest.mark.parametrize("name", ["rtx3070", "h100", "fermi-tbpoint"])
def test_a_part_has_its_share(name: str) -> None:
    """Of bandwidth exactly, of the capacity of L2 as near as whole ways come."""
    gpu = gpu_of(name)
    sms = fewest_sms(gpu)
    part = part_of(gpu, sms)
    share = sms / gpu.sms
    assert part.dram.bandwidth_ps_per_byte * share == pytest.approx(gpu.dram.bandwidth_ps_per_byte)
    assert part.dram.channels / gpu.dram.channels == pytest.approx(share, rel=0.11)
    assert part.l2.size_bytes / gpu.l2.size_bytes == pytest.approx(share, rel=0.5 / part.l2.ways)
    assert part.l2.num_sets == gpu.l2.num_sets


def test_the_whole_is_a_part() -> None:
    gpu = gpu_of("rtx3070")
    assert part_of(gpu, gpu.sms) == gpu


def test_blocks_by_hand() -> None:
    """Two of each wave of eight, from a place 0.618 further in each; of the last, of four blocks, one."""
    assert Thinned(20, 8, 2, 0.0).chosen == [0, 1, 12, 13, 16]
    assert Thinned(20, 8, 8, 0.5).chosen == list(range(20))
    choice = Thinned(20, 8, 2, 0.0)
    assert choice.next() == (0, 0)
    choice.dispatched(0, 0, 0.0)
    choice.dispatched(1, 0, 0.0)
    assert choice.next() == (2, 12)
    for block in (12, 13, 16):
        choice.dispatched(block, 0, 0.0)
    assert choice.next() == (17, 20)
