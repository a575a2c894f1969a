"""Systematic samples inside units: numbers by hand, and the statistics on populations that are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyscale.sampling import stratified
from manyscale.sampling.simprof.two_stage import Inside, components, estimate, pieces, variance_inside

KINDS: tuple[Inside, Inside] = ("successive", "random")


@given(st.integers(1, 300), st.data())
def test_a_systematic_sample(size: int, data: st.DataObject) -> None:
    """So many different pieces, ascending, spaced evenly to one."""
    count = data.draw(st.integers(1, size))
    found = pieces(size, count, np.random.default_rng(data.draw(st.integers(0, 2**32))))
    assert len(found) == count
    assert found[0] >= 0
    assert found[-1] < size
    assert set(np.diff(found)) <= {size // count, -(-size // count)}


@pytest.mark.parametrize(("size", "count"), [(10, 3), (7, 7), (9, 2), (8, 4)])
def test_each_piece_is_drawn_equally_often(size: int, count: int) -> None:
    """With probability count / size, within four standard errors, also where the one is no multiple of the other."""
    random = np.random.default_rng(3)
    rounds = 8000
    seen = np.bincount(np.concatenate([pieces(size, count, random) for _ in range(rounds)]), minlength=size) / rounds
    share = count / size
    assert seen == pytest.approx(np.full(size, share), abs=4 * np.sqrt(share * (1 - share) / rounds) + 1e-12)


def test_more_pieces_than_there_are() -> None:
    for count in (0, 6):
        with pytest.raises(ValueError, match="cannot be drawn of 5"):
            pieces(5, count, np.random.default_rng(0))


def test_variances_inside_by_hand() -> None:
    """Of 1, 2, 4 of 12: differences 1 and 2: 5 / 4; around their mean 7/3: (16 + 1 + 25) / 9 / 2; times 3/4 / 3."""
    values = np.array([1.0, 2.0, 4.0])
    assert variance_inside(values, 12) == pytest.approx(5 / 4 * 0.75 / 3)
    assert variance_inside(values, 12, "random") == pytest.approx(42 / 9 / 2 * 0.75 / 3)
    assert variance_inside(values, 3) == 0


def test_a_trend_is_not_taken_for_noise() -> None:
    """Systematic samples of a line differ by one spacing at most; differences of neighbours hardly see it."""
    line = np.arange(100.0)
    assert variance_inside(line[::10], 100) < variance_inside(line[::10], 100, "random") / 10


def test_an_estimate_by_hand() -> None:
    """Phase of 4 units, two drawn with 2 of 4 pieces (1, 3), (4, 8): means 2 and 6, s1^2 = 8; inside differences give 2
    and 8, halves of which by 2/4: 0.5 and 2. Phase of one unit, all its pieces. Weights 0.8 and 0.2."""
    values = [[np.array([1.0, 3.0]), np.array([4.0, 8.0])], [np.array([5.0, 5.0, 5.0, 9.0])]]
    found = estimate(np.array([4, 1]), values, 4, 0.95)
    assert found.mean == pytest.approx(0.8 * 4 + 0.2 * 6)
    between, inside = 0.64 * 0.5 * 8 / 2, 0.64 * (0.5 + 2) / (4 * 2)
    assert found.standard_error == pytest.approx(np.sqrt(between + inside))
    assert found.degrees == pytest.approx((between + inside) ** 2 / (between**2 / 1 + inside**2 / 2))


def test_all_pieces_of_all_units_are_no_error() -> None:
    found = estimate(np.array([2, 1]), [[np.ones(3), np.full(3, 4.0)], [np.arange(3.0)]], 3, 0.95)
    assert (found.mean, found.low, found.high) == pytest.approx((2, 2, 2), rel=1e-12)
    assert found.standard_error == 0


def test_whole_units_are_the_stratified_sample() -> None:
    random = np.random.default_rng(1)
    values = [[random.random(5) for _ in range(n)] for n in (3, 4)]
    sizes = np.array([9, 20])
    found = estimate(sizes, values, 5, 0.9)
    other = stratified.estimate(sizes, [np.array([each.mean() for each in own]) for own in values], 0.9)
    assert (found.mean, found.low, found.high) == pytest.approx((other.mean, other.low, other.high), rel=1e-12)


@pytest.mark.parametrize(("values", "said"), [
    ([[], [np.ones(2)]], "nothing was drawn of a phase"),
    ([[np.ones(2)], [np.ones(2)]], "one unit of a phase says nothing"),
    ([[np.ones(2), np.ones(2)], [np.ones(1)]], "one piece of a unit says nothing"),
])  # fmt: skip
def test_what_cannot_be_estimated(values: list[list[np.ndarray]], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        estimate(np.array([5, 1]), values, 4, 0.95)


def population(random: np.random.Generator, sizes: tuple[int, ...], inner: int, trend: float) -> list[np.ndarray]:
    """[phase] float64[units, pieces]: units that differ, pieces that differ around a ``trend`` in each unit."""
    found = []
    for phase, size in enumerate(sizes):
        own = 1 + phase + 0.3 * (phase + 1) * random.standard_normal((size, 1))
        found.append(own + 0.5 * random.standard_normal((size, inner)) + trend * np.linspace(-1, 1, inner))
    return found


@pytest.mark.parametrize(("sizes", "drawn", "count"), [
    ((60, 100), (6, 14), 3),  # few units of each phase, few pieces
    ((60, 100), (6, 14), 1),  # one piece of each
    ((8, 20), (8, 20), 4),    # all units: all of the error is inside
    ((8, 40), (8, 10), 5),
])  # fmt: skip
def test_it_is_unbiased_and_intervals_hold_as_often_as_they_say(
    sizes: tuple[int, ...], drawn: tuple[int, ...], count: int
) -> None:
    """1,000 draws of pieces, whose order is another in each: the mean within three standard errors, the estimated
    variance near the draws' own, 95 % of intervals within three standard errors (0.7 points each)."""
    random = np.random.default_rng(11)
    phases = population(random, sizes, 20, 0.0)
    truth = float(np.concatenate(phases).mean())
    rounds = 1000
    rows = []
    for _ in range(rounds):
        values = [
            [random.permutation(own[unit])[pieces(20, count, random)] for unit in random.choice(len(own), n, False)]
            for own, n in zip(phases, drawn, strict=True)
        ]
        found = [estimate(np.array(sizes), values, 20, 0.95, kind) for kind in KINDS]
        rows.append([(each.mean, each.standard_error**2, each.low <= truth <= each.high) for each in found])
    for mean, variance, held in np.moveaxis(np.array(rows), 0, 2):
        assert mean.mean() == pytest.approx(truth, abs=3 * mean.std() / np.sqrt(rounds))
        assert variance.mean() == pytest.approx(mean.var(), rel=0.15)
        assert held.mean() == pytest.approx(0.95, abs=0.021)


def test_a_trend_in_all_units() -> None:
    """Unbiased. A line of step b between pieces drawn shifts means by b^2 / 12 with the begin, of which differences of
    neighbours see b^2 / (2 m): less, with 8 pieces, so that intervals hold in nine of ten draws. As if drawn at random,
    they are twice as wide and hold always."""
    random = np.random.default_rng(2)
    (own,) = population(random, (12,), 40, 2.0)
    truth, rows = float(own.mean()), []
    for _ in range(800):
        values = [[unit[pieces(40, 8, random)] for unit in own]]
        found = [estimate(np.array([12]), values, 40, 0.95, kind) for kind in KINDS]
        rows.append([(each.mean, each.low <= truth <= each.high, each.standard_error) for each in found])
    (mean, held, error), (_, always, wide) = np.moveaxis(np.array(rows), 0, 2)
    assert mean.mean() == pytest.approx(truth, abs=3 * mean.std() / np.sqrt(len(mean)))
    assert 0.87 < held.mean() < 0.95
    assert always.mean() > 0.99
    assert error.mean() < 0.6 * wide.mean()


def test_components() -> None:
    """Units' means differ by 0.3 (variance 0.09), pieces by 0.5 (0.25), within a tenth of each."""
    random = np.random.default_rng(4)
    (own,) = population(random, (3000,), 50, 0.0)
    values = [[unit[pieces(50, 5, random)] for unit in own]]
    found = components(np.array([3000]), values, 50)
    assert found.between == pytest.approx(0.09 + 0.25 / 50, rel=0.1)
    assert found.inside == pytest.approx(0.25, rel=0.1)
    assert found.share_inside(5, 50) == pytest.approx(0.045 / (0.095 + 0.045), rel=0.1)
    assert found.share_inside(50, 50) == 0
