"""k-means: against scikit-learn's from the same beginnings, and on clusters that cannot be missed."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans

from manyscale.sampling.simpoint import kmeans


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("k", [1, 2, 7, 20])
def test_from_the_same_centres_as_scikit_learn(k: int, weighted: bool) -> None:
    random = np.random.default_rng(k)
    points = random.random((500, 15))
    weight = random.random(500) + 0.1 if weighted else np.ones(500)
    begin = points[random.choice(500, k, replace=False)]
    ours = kmeans.from_centres(points, weight, begin, 300)
    theirs = KMeans(k, init=begin, n_init=1, max_iter=300, tol=0, algorithm="lloyd").fit(points, sample_weight=weight)
    assert ours.centre == pytest.approx(theirs.cluster_centers_, abs=1e-12)
    assert np.array_equal(ours.label, theirs.labels_)
    assert ours.distortion(weight) == pytest.approx(theirs.inertia_)


def test_clusters_far_apart_are_found_by_every_seed() -> None:
    random = np.random.default_rng(3)
    truth = np.repeat(np.arange(12), 30)
    centres = 100 * random.random((12, 15))
    points = centres[truth] + random.random((360, 15))
    for seed in range(20):
        found = kmeans.cluster(points, np.ones(360), 12, seed)
        assert len({(a, b) for a, b in zip(found.label.tolist(), truth.tolist(), strict=True)}) == 12


def test_no_more_clusters_than_different_points() -> None:
    points = np.repeat(np.eye(3), 5, axis=0)
    found = kmeans.cluster(points, np.ones(15), 7, 0)
    assert found.num_clusters == 3
    assert found.distance.tolist() == [0.0] * 15


def test_a_weight_counts_as_so_many_points() -> None:
    points = np.array([[0.0], [1.0], [10.0]])
    once = kmeans.from_centres(points, np.array([3.0, 1.0, 1.0]), np.array([[0.0], [10.0]]))
    assert once.centre.ravel().tolist() == [0.25, 10.0]
    assert once.weight(np.array([3.0, 1.0, 1.0])).tolist() == [4.0, 1.0]
    assert once.distortion(np.array([3.0, 1.0, 1.0])) == pytest.approx(3 * 0.25**2 + 0.75**2)


def test_a_cluster_that_loses_all_points_is_left_out() -> None:
    points = np.array([[0.0], [1.0]])
    found = kmeans.from_centres(points, np.ones(2), np.array([[0.0], [1.0], [50.0]]))
    assert found.num_clusters == 2
    assert found.label.tolist() == [0, 1]


def test_the_same_seed_gives_the_same_clusters() -> None:
    points = np.random.default_rng(0).random((300, 4))
    one, same = (kmeans.cluster(points, np.ones(300), 9, 5) for _ in range(2))
    assert np.array_equal(one.centre, same.centre)
    assert not np.array_equal(one.centre, kmeans.cluster(points, np.ones(300), 9, 6).centre)
