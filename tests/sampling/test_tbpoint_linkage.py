"""Complete linkage: the tree of scipy's, however it is computed; never a cluster wider than the threshold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist

from manyscale.sampling.tbpoint import linkage as tbpoint_linkage
from manyscale.sampling.tbpoint.linkage import cluster, line_cut

THRESHOLD = 0.1


def are_same(label: np.ndarray, other: np.ndarray) -> bool:
    return bool(np.array_equal(label[:, None] == label, other[:, None] == other))


def of_scipy(points: np.ndarray, threshold: float = THRESHOLD) -> np.ndarray:
    found: np.ndarray = fcluster(linkage(points, "complete"), threshold, "distance")
    return found


def widest(points: np.ndarray, label: np.ndarray) -> float:
    return max(pdist(points[label == one]).max(initial=0.0) for one in range(label.max() + 1))


def test_partitions_are_told_apart() -> None:
    assert are_same(np.array([0, 0, 1]), np.array([5, 5, 2]))
    assert not are_same(np.array([0, 0, 1]), np.array([0, 1, 1]))
    assert widest(np.array([[0.0], [3.0], [4.0]]), np.array([0, 1, 1])) == 1.0


@pytest.mark.theory
def test_line_by_hand() -> None:
    """0, 1, 2.5, 6: first 0 and 1 merge (1 apart), then 2.5 (2.5 from 0), then 6."""
    values = np.array([2.5, 0.0, 6.0, 1.0])
    for threshold, expected in ((0.9, [2, 0, 3, 1]), (1.0, [1, 0, 2, 0]), (2.5, [0, 0, 1, 0]), (6.0, [0, 0, 0, 0])):
        assert line_cut(values, threshold).tolist() == expected, threshold


@pytest.mark.parametrize("count", [40, tbpoint_linkage._FEW, tbpoint_linkage._FEW + 1, 600])
def test_a_line_of_few_and_of_many_values(count: int) -> None:
    """Few are cut by Python, many by the kernel: scipy's tree either way."""
    values = np.random.default_rng(count).random(count) * count / 10
    assert are_same(line_cut(values, THRESHOLD), of_scipy(values[:, None]))


@pytest.mark.theory
def test_line_is_not_the_fewest_intervals() -> None:
    """0, 2, 3, 5 at a threshold of 2: two intervals would do, but 2 and 3 merge first, and leave 0 and 5 alone."""
    assert line_cut(np.array([0.0, 2.0, 3.0, 5.0]), 2.0).tolist() == [0, 1, 1, 2]


@pytest.mark.peer
@pytest.mark.parametrize("scale", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("dimensions", [1, 3])
def test_clusters_are_those_of_scipy(dimensions: int, scale: float) -> None:
    for seed in range(20):
        points = np.random.default_rng(seed).random((150, dimensions)) * scale
        found = cluster(points, THRESHOLD)
        assert are_same(found.label, of_scipy(points)), seed
        assert (found.cell_diagonal, found.num_halvings, found.num_distinct) == (0, 0, 150)


@pytest.mark.property
@given(st.lists(st.integers(0, 40), min_size=1, max_size=60), st.integers(0, 20))
@settings(max_examples=200, deadline=None)
def test_line_is_cut_as_far_as_it_goes(values: list[int], threshold: int) -> None:
    """With ties there are several right trees; each has intervals within the threshold whose neighbours do not fit."""
    line = np.array(values, float)
    label = line_cut(line, float(threshold))
    high = [line[label == one].max() for one in range(label.max() + 1)]
    low = [line[label == one].min() for one in range(label.max() + 1)]
    assert all(top - bottom <= threshold for bottom, top in zip(low, high, strict=True))
    assert all(above > below for below, above in zip(high[:-1], low[1:], strict=True))
    assert all(high[one + 1] - low[one] > threshold for one in range(len(low) - 1))


def test_clusters_are_numbered_as_they_occur() -> None:
    points = np.array([[5.0, 1], [0.0, 1], [5.0, 1], [2.0, 2]])
    assert cluster(points, THRESHOLD).label.tolist() == [0, 1, 0, 2]


def test_equal_points_are_one() -> None:
    found = cluster(np.ones((1000, 4)), 0.0)
    assert (found.num_clusters, found.num_distinct) == (1, 1)
    assert cluster(np.zeros((0, 3)), THRESHOLD).num_clusters == 0


def test_threshold_of_zero_parts_whatever_differs() -> None:
    points = np.array([[0.0, 0.0], [0.0, 1e-9], [1.0, 0.0], [0.0, 0.0]])
    assert cluster(points, 0.0).label.tolist() == [0, 1, 2, 0]


@pytest.mark.property
@pytest.mark.parametrize(("most_cells", "is_halved"), [(400, False), (20, True)])
def test_cells_keep_the_bound(monkeypatch: pytest.MonkeyPatch, most_cells: int, is_halved: bool) -> None:
    """No cluster is wider than the threshold; without halved pieces, no two fit into the threshold less 2 diagonals."""
    monkeypatch.setattr(tbpoint_linkage, "MOST_POINTS", 50)
    monkeypatch.setattr(tbpoint_linkage, "MOST_CELLS", most_cells)
    points = np.random.default_rng(3).random((600, 2)) * [0.5, 0.3]
    found = cluster(points, THRESHOLD)
    assert widest(points, found.label) <= THRESHOLD
    assert (found.num_halvings > 0) == is_halved
    assert found.num_clusters < 3 * of_scipy(points).max()
    if not is_halved:
        bound = THRESHOLD - 2 * found.cell_diagonal
        assert 0 < bound < THRESHOLD
        groups = [points[found.label == one] for one in range(found.num_clusters)]
        for place, one in enumerate(groups):
            for other in groups[:place]:
                assert pdist(np.concatenate((one, other))).max() > bound


def test_gaps_part_populations_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups farther apart than the threshold are clustered one by one, whatever their number."""
    monkeypatch.setattr(tbpoint_linkage, "MOST_POINTS", 40)
    rng = np.random.default_rng(1)
    points = np.concatenate([rng.random((30, 3)) * 0.15 + place for place in range(20)])
    points = points[rng.permutation(len(points))]
    found = cluster(points, THRESHOLD)
    assert found.cell_diagonal == 0
    assert are_same(found.label, of_scipy(points))


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="threshold is -1"):
        cluster(np.ones((2, 2)), -1.0)
    with pytest.raises(ValueError, match="point 1 is not finite"):
        cluster(np.array([[1.0, 2.0], [np.nan, 1.0]]), 0.1)
