"""SimPoint's choices, on intervals whose clusters are known."""

from __future__ import annotations

import numpy as np
import pytest

from manyscale.sampling import simpoint
from manyscale.sampling.simpoint import SimPointRules, bic, choose, find_clusters


def phases(*lengths: int, noise: float = 0.001, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Points of phases one after the other, each at a corner of its own; and the phase of each."""
    truth = np.repeat(np.arange(len(lengths)), lengths)
    points = np.eye(15)[truth % 15] * (1 + truth[:, None] // 15)
    return points + noise * np.random.default_rng(seed).standard_normal(points.shape), truth


def test_bic_by_hand() -> None:
    """Two clusters of 3 and 1 points in one dimension with distortion 8: variance 8/4 = 2, so the likelihood is
    3 ln 3 - 4 ln 4 - 2 (ln 4 pi + 1); less 2 x 2 / 2 x ln 4."""
    expected = 3 * np.log(3) - 4 * np.log(4) - 2 * (np.log(4 * np.pi) + 1) - 2 * np.log(4)
    assert bic(np.array([3.0, 1.0]), 8.0, 1) == pytest.approx(expected, rel=1e-14)


def test_bic_is_finite_where_all_points_are_centres() -> None:
    assert np.isfinite(bic(np.array([1.0, 1.0]), 0.0, 15))


@pytest.mark.parametrize("search", ["exhaustive", "binary"])
@pytest.mark.parametrize("count", [2, 5, 9])
def test_as_many_clusters_as_phases(search: str, count: int) -> None:
    points, truth = phases(*([40] * count))
    found, trials = find_clusters(points, np.ones(len(points)), SimPointRules(search=search), 1)
    assert found.num_clusters == count
    assert len({(a, b) for a, b in zip(found.label.tolist(), truth.tolist(), strict=True)}) == count
    assert len(trials) == 15 if search == "exhaustive" else len(trials) < 15


def test_weights_are_shares_of_instructions() -> None:
    points, truth = phases(10, 30)
    instructions = np.where(truth == 0, 600.0, 100.0)
    found = choose(points, instructions, SimPointRules(), 0)
    assert found.weight.sum() == pytest.approx(1, abs=1e-15)
    assert truth[found.point].tolist() == [0, 1]
    assert found.weight.tolist() == pytest.approx([2 / 3, 1 / 3])


def test_the_middle_of_alike_intervals_represents_them() -> None:
    """Equal vectors: the nearest to the centre is the first, the one in the middle of the run is not."""
    points, _ = phases(21, 11, noise=0)
    assert choose(points, np.ones(32), SimPointRules(), 0).point.tolist() == [10, 26]
    assert choose(points, np.ones(32), SimPointRules(representative="nearest"), 0).point.tolist() == [0, 21]
    assert choose(points, np.ones(32), SimPointRules(representative="early"), 0).point.tolist() == [0, 21]


def test_an_early_point_may_be_a_little_farther() -> None:
    points = np.zeros((5, 15))
    points[:, 0] = [0.9, -1.2, 0.8, -1.1, 0.6]  # centre -0.0: distances 0.9, 1.2, 0.8, 1.1, 0.6
    rules = SimPointRules(max_k=1, representative="early", early_slack=0.4)
    assert choose(points, np.ones(5), rules, 0).point.tolist() == [2]
    assert choose(points, np.ones(5), rules.model_copy(update={"early_slack": 0.6}), 0).point.tolist() == [0]


def test_intervals_weigh_by_their_instructions_where_points_are_early() -> None:
    """Places 0, 1 and 2 with 1, 1 and 6 instructions: the centre lies at 13/8, so 2 is nearest, at 3/8, and 1 at 5/8;
    of equal ones the centre is 1."""
    points = np.zeros((3, 15))
    points[:, 0] = [0, 1, 2]
    instructions = np.array([1.0, 1.0, 6.0])
    for slack, weights, point in (0.6, "instructions", 2), (0.7, "instructions", 1), (0.7, "equal", 1), (0, "equal", 1):
        rules = SimPointRules(max_k=1, representative="early", early_slack=slack, weights=weights)
        assert choose(points, instructions, rules, 0).point.tolist() == [point]


def test_coverage_is_of_instructions() -> None:
    """Ten intervals with most of the instructions, ninety with few."""
    points, truth = phases(10, 90, noise=0)
    instructions = np.where(truth == 0, 90.0, 1.0)
    found = choose(points, instructions, SimPointRules(coverage=0.9), 0)
    assert truth[found.point].tolist() == [0]
    assert found.weight.tolist() == [1.0]


def test_coverage_leaves_out_the_smallest_clusters() -> None:
    points, truth = phases(60, 37, 3)
    found = choose(points, np.ones(100), SimPointRules(coverage=0.95), 0)
    assert truth[found.point].tolist() == [0, 1]
    assert found.weight.tolist() == pytest.approx([60 / 97, 37 / 97])
    assert len(choose(points, np.ones(100), SimPointRules(coverage=0.98), 0).point) == 3


def test_a_sample_decides_where_there_are_many_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    points, truth = phases(400, 700, 900)
    monkeypatch.setattr(simpoint, "ENOUGH", 100)
    found = choose(points, np.ones(2000), SimPointRules(), 3)
    assert truth[found.point].tolist() == [0, 1, 2]
    assert found.weight.tolist() == pytest.approx([0.2, 0.35, 0.45])


def test_nothing_to_choose_from() -> None:
    with pytest.raises(ValueError, match="no intervals that execute anything"):
        choose(np.zeros((0, 15)), np.zeros(0), SimPointRules(), 0)
    with pytest.raises(ValueError, match="no intervals that execute anything"):
        choose(np.zeros((3, 15)), np.zeros(3), SimPointRules(), 0)


def test_the_same_seed_gives_the_same_points() -> None:
    points = np.random.default_rng(0).random((300, 15))
    one, same, other = (choose(points, np.ones(300), SimPointRules(), seed) for seed in (1, 1, 2))
    assert np.array_equal(one.point, same.point)
    assert one.trials == same.trials
    assert one.trials != other.trials
