"""TBPoint between launches: features, clusters, and who stands for whom."""

from __future__ import annotations

import numpy as np
import pytest

from manyscale.sampling.tbpoint.launches import (
    AUTO_FREEDOM,
    LaunchCounts,
    LaunchSample,
    choose,
    draw,
    features,
)
from manyscale.sampling.tbpoint.rules import LaunchSampling


def counts(
    thread: list[float] | np.ndarray, kernel: list[int] | None = None, cov: list[float] | None = None, **more: object
) -> LaunchCounts:
    """Launches of 32 threads a warp instruction, one in ten of which makes a request."""
    thread = np.array(thread, float)
    given: dict[str, object] = {
        "kernel": np.zeros(len(thread), int) if kernel is None else np.array(kernel),
        "thread_instructions": thread,
        "warp_instructions": thread / 32,
        "memory_requests": thread / 320,
        "block_size_cov": None if cov is None else np.array(cov),
    }
    return LaunchCounts(**(given | more))  # type: ignore[arg-type]


@pytest.mark.theory
def test_features_by_hand() -> None:
    """Eq. 2: each by its mean over the launches; the variation of block sizes (100, 100 and 160, 40: 0 and 0.6, the
    source's example) as it is."""
    given = LaunchCounts(
        np.zeros(2, int), np.array([200, 600]), np.array([10, 30]), np.array([4, 0]), np.array([0.0, 0.6])
    )
    assert features(given) == pytest.approx(np.array([[0.5, 0.5, 2.0, 0.0], [1.5, 1.5, 0.0, 0.6]]))


@pytest.mark.theory
def test_divergence_parts_launches_of_one_size() -> None:
    """The source's example: 32 thread instructions in one warp instruction, or in 32."""
    given = LaunchCounts(np.zeros(2, int), np.array([32, 32]), np.array([1, 32]), np.array([0, 0]))
    assert choose(given).num_clusters == 2
    assert features(given)[:, 2].tolist() == [0, 0]


def test_kernels_are_clustered_by_themselves() -> None:
    """Launches of one size of two kernels, and the mean is that of a kernel."""
    sample = choose(counts([100, 100, 100, 7000, 7000], kernel=[4, 4, 9, 9, 9]))
    assert sample.cluster.tolist() == [0, 0, 1, 2, 2]
    assert features(counts([100, 300], kernel=[0, 1]))[:, 0].tolist() == [1, 1]


def test_unmeasured_variation_is_left_out() -> None:
    assert features(counts([100, 200], cov=[np.nan, np.nan])).shape == (2, 3)
    assert choose(counts([100, 100], cov=[0.0, 0.11])).num_clusters == 2
    assert choose(counts([100, 100], cov=[0.0, 0.09])).num_clusters == 1


def test_basic_blocks_part_launches_that_count_alike() -> None:
    """8 % of the instructions in another block: sqrt(2) x 0.08 = 0.113 apart; 7 %: 0.099."""
    for share, clusters in ((0.08, 2), (0.07, 1)):
        vectors = np.array([[0.5, 0.5, 0.0], [0.5, 0.5 - share, share]]) * 1000
        given = counts([100, 100], block_counts=vectors)
        assert choose(given, LaunchSampling(bbv_scale=1.0)).num_clusters == clusters
        assert choose(given).num_clusters == 1
    with pytest.raises(ValueError, match="no basic-block vectors"):
        choose(counts([1, 2]), LaunchSampling(bbv_scale=1.0))


def test_representative_is_nearest_to_the_centre() -> None:
    """Sizes 100, 101, 104 have their centre at 101.67."""
    sample = choose(counts([104, 100, 101, 900]))
    assert sample.cluster.tolist() == [0, 0, 0, 1]
    assert sample.chosen.tolist() == [2, 3]
    assert sample.representative.tolist() == [2, 2, 2, 3]
    assert not sample.is_drawn


def test_of_equal_launches_the_middle_one_is_taken() -> None:
    assert choose(counts([100] * 9)).chosen.tolist() == [4]


def test_plan_covers_the_population() -> None:
    plan = choose(counts([100] * 9 + [500] * 3)).plan("detailed")
    assert (plan.population, plan.element_id.tolist(), plan.weight.tolist()) == (12, [4, 10], [9, 3])
    assert plan.element_kind == "launch"


def test_several_representatives() -> None:
    sample = choose(counts([100] * 9 + [500] * 3), LaunchSampling(representatives=5))
    assert sample.num_chosen.tolist() == [5, 3]
    assert sample.is_drawn
    assert sample.plan("detailed").weight.sum() == pytest.approx(12)


def test_automatic_number() -> None:
    """One in each cluster, two where features repeat, then more where a draw stands for the most, until there are
    AUTO_FREEDOM above one: of 40,000 instructions, down to 40,000 / 7 a draw; then 6,003 / 1; then 40,000 / 8."""
    sizes = [1000.0] * 40 + [2000.0, 2001.0, 2002.0] + [9000.0]
    sample = choose(counts(sizes), LaunchSampling(representatives="auto"))
    assert sample.cluster_sizes.tolist() == [40, 3, 1]
    assert sample.num_chosen.tolist() == [8, 2, 1]
    assert sum(sample.num_chosen - 1) == AUTO_FREEDOM
    few = choose(counts([100.0] * 3), LaunchSampling(representatives="auto"))
    assert few.num_chosen.tolist() == [3]


def test_draws_are_nested_and_seeded() -> None:
    label = np.repeat([0, 1], [50, 20])
    few, many = (draw(label, np.array(number), seed=7) for number in ([3, 2], [10, 5]))
    assert set(few) < set(many)
    assert np.bincount(label[many]).tolist() == [10, 5]
    assert draw(label, np.array([3, 2]), seed=7).tolist() == few.tolist()
    assert draw(label, np.array([3, 2]), seed=8).tolist() != few.tolist()


def test_draws_are_fair() -> None:
    label = np.zeros(10, int)
    often = np.bincount(np.concatenate([draw(label, np.array([2]), seed) for seed in range(3000)]))
    assert often == pytest.approx(np.full(10, 600), abs=5 * np.sqrt(600 * 0.8))


def test_representatives_take_turns() -> None:
    label = np.array([0, 0, 0, 1, 0, 1])
    sample = LaunchSample(np.zeros(6, int), label, np.array([1, 4, 5]), True, np.zeros((6, 1)), 0.0, 0)
    assert sample.representative[[1, 4, 5]].tolist() == [1, 4, 5]
    assert sample.representative[3] == 5
    assert set(sample.representative[[0, 2]]) <= {1, 4}


def test_wrong_counts() -> None:
    with pytest.raises(ValueError, match="no launches"):
        choose(counts([]))
    with pytest.raises(ValueError, match="warp_instructions of launch 1 is -2"):
        counts([1, 2], warp_instructions=np.array([1, -2]))
    with pytest.raises(ValueError, match="memory_requests has 1 launches, kernel has 2"):
        counts([1, 2], memory_requests=np.array([1]))
