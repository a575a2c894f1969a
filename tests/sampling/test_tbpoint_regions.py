"""TBPoint inside a launch: epochs, their clusters, and the table of regions."""

from __future__ import annotations

import numpy as np
import pytest

from manyscale.sampling.tbpoint.regions import NO_REGION, BlockProfile, block_profile, find_regions
from manyscale.sampling.tbpoint.rules import RegionRules


def profile(stall: list[float], instructions: list[int] | int = 1000) -> BlockProfile:
    """A block for each stall probability."""
    number = np.broadcast_to(instructions, len(stall)).astype(np.int64)
    return BlockProfile(number, 32 * number, np.rint(np.array(stall) * number).astype(np.int64))


@pytest.mark.golden
def test_example_of_the_source() -> None:
    """Figure 6: four epochs of 0.2, of which the last two have outliers, and four of another stall probability: the
    first two are one region, the last four another."""
    epoch = [0.2] * 4
    uneven = [0.02, 0.38, 0.02, 0.38]  # mean 0.2, coefficient of variation 0.9
    found = find_regions(profile([*epoch, *epoch, *uneven, *uneven, *[0.4] * 16]), 4)
    assert found.stall_probability == pytest.approx([0.2] * 4 + [0.4] * 4)
    assert found.of_epoch.tolist() == [0, 0, NO_REGION, NO_REGION, 1, 1, 1, 1]
    assert found.rows.tolist() == [[0, 0, 7], [1, 16, 31]]
    assert found.of_block.tolist() == [0] * 8 + [NO_REGION] * 8 + [1] * 16


@pytest.mark.theory
def test_stall_probability_is_the_mean_of_the_blocks() -> None:
    """Eq. 5: (1/10 + 30/100) / 2, not 31 / 110."""
    found = find_regions(BlockProfile(np.array([10, 100]), np.array([1, 1]), np.array([1, 30])), 2)
    assert found.stall_probability == pytest.approx([0.2])
    assert found.variation == pytest.approx([29 / 31])  # of 1 and 30; of 10 and 100 it is 90 / 110


def test_variation_of_instructions_counts_too() -> None:
    """Blocks of 1000 and 3000 instructions with the same requests: coefficient of variation 0.5."""
    given = BlockProfile(np.array([1000, 3000]), np.array([1, 1]), np.array([100, 100]))
    assert find_regions(given, 2).of_block.tolist() == [NO_REGION] * 2
    assert find_regions(given, 2, RegionRules(variation=0.5)).of_block.tolist() == [0, 0]


def test_region_that_comes_back_keeps_its_number() -> None:
    found = find_regions(profile([0.1] * 4 + [0.5] * 2 + [0.1] * 2), 2)
    assert found.rows.tolist() == [[0, 0, 3], [1, 4, 5], [0, 6, 7]]


@pytest.mark.theory
def test_scale_of_the_threshold() -> None:
    """Stall probabilities of 0.010 and 0.013: 0.26 apart by their mean, 0.003 as they are."""
    given = profile([0.010, 0.013] * 2)
    assert find_regions(given, 1).num_regions == 2
    assert find_regions(given, 1, RegionRules(scale="none")).num_regions == 1
    assert find_regions(given, 1, RegionRules(threshold=0.27)).num_regions == 1


def test_other_occupancies_need_no_other_profile() -> None:
    """Blocks in turn of two kinds: alike in epochs of two, each a region of its own in epochs of one."""
    given = profile([0.2, 0.25] * 6)
    assert find_regions(given, 2).rows.tolist() == [[0, 0, 11]]
    assert len(find_regions(given, 1).rows) == 12
    assert find_regions(given, 5).rows.tolist() == [[0, 0, 11]]  # two epochs, the last one of seven blocks
    assert find_regions(given, 5).of_epoch.tolist() == [0, 0]
    assert find_regions(given, 100).rows.tolist() == [[0, 0, 11]]


def test_blocks_without_instructions_or_requests() -> None:
    found = find_regions(BlockProfile(np.array([0, 0, 5, 5]), np.zeros(4, int), np.zeros(4, int)), 2)
    assert found.stall_probability.tolist() == [0, 0]
    assert found.rows.tolist() == [[0, 0, 3]]
    empty = find_regions(BlockProfile(np.zeros(0, int), np.zeros(0, int), np.zeros(0, int)), 3)
    assert (len(empty.rows), empty.num_regions) == (0, 0)


def test_profile_of_a_trace() -> None:
    """Blocks of two warps, of none, of one without instructions, and of one."""
    found = block_profile(
        block_warps=np.array([0, 2, 2, 3, 4]),
        warp_instructions=np.array([0, 2, 3, 3, 5]),
        active=np.array([32, 1, 16, 2, 4], np.uint8),
        requests=np.array([0, 200, 200, 0, 7], np.uint8),
    )
    assert found.warp_instructions.tolist() == [3, 0, 0, 2]
    assert found.thread_instructions.tolist() == [49, 0, 0, 6]
    assert found.memory_requests.tolist() == [400, 0, 0, 7]
    assert block_profile(*(np.zeros(1, int),) * 2, *(np.zeros(0, np.uint8),) * 2).num_blocks == 0


@pytest.mark.golden
def test_variation_of_sizes() -> None:
    """The source's example of a feature: blocks of 160 and 40 thread instructions."""
    assert BlockProfile(np.ones(2), np.array([160, 40]), np.ones(2)).size_variation == pytest.approx(0.6)
    assert BlockProfile(np.ones(2), np.array([100, 100]), np.ones(2)).size_variation == 0


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="occupancy is 0"):
        find_regions(profile([0.1]), 0)
    with pytest.raises(ValueError, match="columns of"):
        BlockProfile(np.ones(2), np.ones(3), np.ones(2))


def test_blocks_at_the_edge_of_the_grid_are_in_the_last_epoch() -> None:
    """Ten blocks on a GPU that holds four, the last of which has half as much to do: two epochs in one region. A
    launch of fewer blocks than that is one epoch; one of none has none."""
    size = np.array([100] * 9 + [50])
    found = find_regions(BlockProfile(size, size, size // 10), 4)
    assert found.rows.tolist() == [[0, 0, 9]]
    assert found.of_block.tolist() == [0] * 10
    assert len(find_regions(BlockProfile(size[:3], size[:3], size[:3]), 4).of_epoch) == 1
    assert not len(find_regions(BlockProfile(size[:0], size[:0], size[:0]), 4).of_epoch)
