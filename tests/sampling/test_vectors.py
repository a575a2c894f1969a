"""Sparse vectors: normalised, projected, side by side."""

from __future__ import annotations

import numpy as np
import pytest

from manyscale.sampling.vectors import Vectors, side_by_side


def rows(*each: dict[int, float]) -> Vectors:
    first = np.cumsum([0, *map(len, each)])
    column = np.array([column for row in each for column in row], np.int64)
    return Vectors(first, column, np.array([value for row in each for value in row.values()], float))


def dense(vectors: Vectors, columns: int) -> np.ndarray:
    return vectors.times(np.eye(columns))


def test_normalised_rows_sum_to_one_and_empty_ones_stay_empty() -> None:
    found = rows({0: 3, 5: 1}, {}, {2: 7}, {}).normalised()
    assert found.sums().tolist() == [1, 0, 1, 0]
    assert found.value.tolist() == [0.75, 0.25, 1.0]


def test_a_given_matrix_is_multiplied() -> None:
    matrix = np.arange(12.0).reshape(4, 3)
    assert rows({0: 1, 3: 2}, {}).times(matrix).tolist() == [[18, 21, 24], [0, 0, 0]]
    with pytest.raises(ValueError, match="the matrix has 4 rows, a vector has column 4"):
        rows({4: 1}).times(matrix)


def test_a_projection_is_linear_and_depends_on_columns_alone() -> None:
    """What other rows and columns there are changes nothing, so that vectors can be projected as they are read."""
    together = rows({0: 1, 9: 2}, {10**9: 1.0}).projected(4, 15)
    assert np.array_equal(rows({10**9: 1.0}).projected(4, 15)[0], together[1])
    parts = rows({0: 1.0}, {9: 1.0}).projected(4, 15)
    assert together[0] == pytest.approx(parts[0] + 2 * parts[1], rel=1e-14)
    assert not np.array_equal(rows({0: 1.0}).projected(5, 15)[0], parts[0])


def test_numbers_of_a_projection_are_even_and_independent() -> None:
    """Mean 0, variance 1/3, each half as often below 0, neighbours uncorrelated: within four standard errors."""
    count = 4000
    drawn = rows(*({column: 1.0} for column in range(count))).projected(11, 15)
    assert drawn.min() >= -1
    assert drawn.max() < 1
    size = drawn.size
    assert abs(drawn.mean()) < 4 / np.sqrt(3 * size)
    assert drawn.var() == pytest.approx(1 / 3, abs=4 * np.sqrt(4 / 45 / size))
    quarters = np.histogram(drawn, 4, (-1, 1))[0] / size
    assert quarters == pytest.approx([0.25] * 4, abs=4 * np.sqrt(3 / 16 / size))
    assert abs(np.corrcoef(drawn[:-1].ravel(), drawn[1:].ravel())[0, 1]) < 4 / np.sqrt(size)
    assert abs(np.corrcoef(drawn[:, :-1].ravel(), drawn[:, 1:].ravel())[0, 1]) < 4 / np.sqrt(size)


def test_distances_survive_a_projection() -> None:
    """Johnson and Lindenstrauss: squared distances times d/3, on average over the seeds."""
    random = np.random.default_rng(1)
    pair = rows(*(dict(enumerate(random.random(50))) for _ in range(2)))
    difference = dense(pair, 50)
    true = float(((difference[0] - difference[1]) ** 2).sum())
    found = [((pair.projected(seed, 15)[0] - pair.projected(seed, 15)[1]) ** 2).sum() / 5 for seed in range(300)]
    assert np.mean(found) == pytest.approx(true, rel=0.1)


def test_threads_stand_side_by_side() -> None:
    both = side_by_side([rows({0: 1}, {1: 2}), rows({}, {0: 3, 1: 4})], [0, 2])
    assert dense(both, 4).tolist() == [[1, 0, 0, 0], [0, 2, 3, 4]]
