"""Regular and irregular kernels, by pictures like the source's (IPDPS 2014, figure 8)."""

from __future__ import annotations

import numpy as np
import pytest

from manyscale.sampling.tbpoint.kinds import classify


def test_equal_blocks() -> None:
    found = classify(np.full(1849, 4096), np.array([1849]))
    assert (found.pattern, found.is_regular, found.variation) == ("even", True, 0)
    assert classify(np.random.default_rng(0).normal(1000, 50, 500), np.array([500])).pattern == "even"


def test_rows_of_a_grid() -> None:
    """In each row of 20 blocks the middle ones have more to do than those at the edges."""
    row = 1000 + 1000 * np.sin(np.linspace(0, np.pi, 20))
    noise = np.random.default_rng(1).normal(1, 0.03, 2000)
    found = classify(np.tile(row, 100) * noise, np.array([2000]))
    assert (found.pattern, found.period) == ("periodic", 20)
    assert found.explained > 0.95


def test_launches_that_repeat() -> None:
    """A sparse matrix, multiplied again and again: rows differ without order, but launches do not."""
    sizes = np.random.default_rng(2).lognormal(7, 0.6, 765)
    found = classify(np.tile(sizes, 10), np.full(10, 765))
    assert (found.pattern, found.explained) == ("repeated", pytest.approx(1))
    assert not classify(sizes, np.array([765])).is_regular


def test_stretches() -> None:
    """Blocks of four kinds, one after the other."""
    sizes = np.repeat([1000.0, 2000.0, 1500.0, 400.0], [300, 200, 100, 400])
    assert classify(sizes, np.array([1000])).pattern == "stretches"


@pytest.mark.parametrize("seed", range(5))
def test_irregular(seed: int) -> None:
    """A graph: each launch finds other vertices; and sizes without any order."""
    rng = np.random.default_rng(seed)
    share = np.sin(np.linspace(0.1, 3, 41)) ** 4
    graph = np.concatenate([rng.binomial(256, part, 259) * rng.lognormal(0, 0.5, 259) * 20 + 30 for part in share])
    assert classify(graph, np.full(41, 259)).pattern == "none"
    assert classify(rng.lognormal(7, 0.8, 18158), np.array([18158])).pattern == "none"


def test_noise_is_not_explained_by_long_periods() -> None:
    found = classify(np.random.default_rng(3).lognormal(7, 0.5, 400), np.array([400]))
    assert found.explained < 0.5
    assert not found.is_regular


def test_nothing_to_classify() -> None:
    assert classify(np.zeros(0), np.zeros(0, int)).is_regular
    assert classify(np.zeros(5), np.array([5])).is_regular
    with pytest.raises(ValueError, match="launches of 5 blocks, but 4 sizes"):
        classify(np.ones(4), np.array([5]))
