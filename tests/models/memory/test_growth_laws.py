"""Laws through a few points, against exact laws, NumPy's least squares and simulated noise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyscale.models.memory.amm.growth_laws import OTHERS, Fits, fit_laws

INPUTS = np.array([10.0, 12, 15, 17, 20])


def degrees(fits: Fits) -> list[int | None]:
    return [fits.laws[index].degree for index in fits.chosen]


@pytest.mark.theory
@pytest.mark.parametrize(
    ("coefficients", "degree"), [([7], 0), ([2, 3], 1), ([0, 1, 2], 2), ([-4, 0, 1, 2], 3), ([0], 0)]
)
def test_exact_polynomials_are_recognised(coefficients, degree):
    """2 x^3 + x^2 - 4 and such, from 10..20 to 400: to the last digit, without a band."""
    fits = fit_laws(INPUTS, np.polynomial.Polynomial(coefficients)(INPUTS)[:, None], 3)
    assert degrees(fits) == [degree]
    assert fits.is_exact.tolist() == [True]
    assert not fits.is_at_bound.any()
    at = fits.at(400)
    assert np.rint(at.value[0]) == np.polynomial.Polynomial(coefficients)(400)
    assert at.value[0] == at.low[0] == at.high[0]


POWERS_OF_TWO = 2.0 ** np.arange(6, 12)
LAWS = {
    "binary search": (lambda n: np.log2(n) + 1, ((0, 1),)),
    "square root": (lambda n: 3 * np.sqrt(n) + 7, ((0.5, 0),)),
    "butterflies": (lambda n: n / 2 * np.log2(n), ((1, 1),)),
    "n^1.5": (lambda n: n**1.5 - 2, ((1.5, 0),)),
    "n^2 log n": (lambda n: n**2 * np.log2(n), ((2, 1),)),
    "bits reversed": (lambda n: n - np.log2(n) - 1, ((0, 1), (1, 0))),
    "comparisons of a merge sort": (lambda n: n * np.log2(n) - n + 1, ((1, 0), (1, 1))),
    "a block of several loops": (lambda n: n * np.log2(n) + n + np.log2(n) + 1, ((0, 1), (1, 0), (1, 1))),
}


@pytest.mark.theory
@pytest.mark.parametrize("name", LAWS)
def test_exact_laws_are_recognised(name):
    """From 64..2048 to 65536: exact, without a band."""
    law, terms = LAWS[name]
    fits = fit_laws(POWERS_OF_TWO, law(POWERS_OF_TWO)[:, None], 3, OTHERS)
    assert fits.laws[fits.chosen[0]].terms == terms
    assert fits.is_exact.tolist() == [True]
    at = fits.at(65536)
    assert at.value[0] == pytest.approx(law(65536), rel=1e-9)
    assert at.value[0] == at.low[0] == at.high[0]


@pytest.mark.theory
@pytest.mark.parametrize(("num_points", "terms"), [(3, ((1, 0),)), (4, ((1, 1),))])
def test_few_points_choose_a_polynomial_but_the_band_holds_the_law(num_points, terms):
    """Three points are on a law of two coefficients too easily; with a fourth it is told."""
    inputs = POWERS_OF_TWO[:num_points]
    fits = fit_laws(inputs, LAWS["butterflies"][0](inputs)[:, None], 3, OTHERS)
    assert fits.laws[fits.chosen[0]].terms == terms
    at = fits.at(65536)
    assert at.low[0] <= 65536 * 8 * (1 + 1e-9)
    assert at.high[0] >= 65536 * 8 * (1 - 1e-9)


@pytest.mark.theory
@pytest.mark.parametrize("few", [0, 2])
@pytest.mark.parametrize("coefficients", [[300.0], [10.0, 2.0]])
def test_noise_chooses_no_other_law(coefficients, few):
    """Of constants and lines with 1 % of noise, nine tenths stay polynomials."""
    generator = np.random.default_rng(6)
    inputs = np.array([100.0, 200, 300, 400, 600, 800])
    truth = np.polynomial.Polynomial(coefficients)(inputs)[:, None]
    fits = fit_laws(inputs, truth * generator.normal(1, 0.01, (len(inputs), 1000)), 3, OTHERS, few)
    assert np.mean([degree is not None for degree in degrees(fits)]) > 0.9


@pytest.mark.theory
@pytest.mark.parametrize("name", ["butterflies", "square root", "binary search", "n^1.5"])
@pytest.mark.parametrize("noise", [0.002, 0.02])
def test_bands_hold_laws_with_noise(name, noise):
    """At eight times the largest input, whichever law noisy points choose (fewer than 95 %: the same points choose)."""
    law, _ = LAWS[name]
    generator = np.random.default_rng(7)
    inputs = np.array([100.0, 200, 300, 400, 600, 800])
    values = law(inputs)[:, None] * generator.normal(1, noise, (len(inputs), 500))
    at = fit_laws(inputs, values, 3, OTHERS, few=2).at(6400)
    assert ((at.low <= law(6400)) & (law(6400) <= at.high)).mean() > 0.7


@pytest.mark.theory
def test_no_law_falls_below_zero():
    """A concave series, of which a parabola would turn down again."""
    inputs = np.array([100.0, 200, 400, 700, 1000, 2000, 4000, 8000])
    touched = np.array([7.0, 13, 25, 41, 61, 103, 163, 240])  # lines that 100 binary searches touch
    at = fit_laws(inputs, touched[:, None], 3, OTHERS, few=0.5).at(16000)
    assert at.low[0] <= 350 <= at.high[0]
    assert at.value[0] == pytest.approx(350, rel=0.1)


@given(
    st.lists(st.integers(-1000, 1000), min_size=1, max_size=4),
    st.lists(st.integers(1, 100), min_size=5, max_size=10, unique=True),
    st.integers(1, 1000),
)
@pytest.mark.property
def test_whole_polynomials_stay_whole(coefficients, inputs, target):
    law = np.polynomial.Polynomial(coefficients)
    inputs = np.array(inputs, float)
    at = fit_laws(inputs, law(inputs)[:, None], 3).at(target)
    # errors of 1e-16 of the largest value at the points, times how much an extrapolated cubic leaps
    scale = np.abs(law(inputs)).max() * max(1, (target / np.ptp(inputs)) ** 3)
    assert at.value[0] == pytest.approx(law(target), abs=0.3 + 1e-9 * scale)


@pytest.mark.theory
def test_exact_fits_are_of_the_lowest_degree():
    """Beyond it the fits are exact, too, and rounding would decide between them."""
    slopes = np.random.default_rng(1).integers(1, 10**9, 2000)
    inputs = np.sort(np.random.default_rng(8).choice(100, 8, False) + 1.0)
    fits = fit_laws(inputs, inputs[:, None] * slopes + 7, 3)
    assert fits.is_exact.all()
    assert set(degrees(fits)) == {1}


@pytest.mark.theory
def test_a_cubic_needs_five_points():
    cubic = (INPUTS**3)[:, None]
    assert degrees(fit_laws(INPUTS, cubic, 3)) == [3]
    of_four = fit_laws(INPUTS[:4], cubic[:4], 3)
    assert degrees(of_four) == [2]
    assert not of_four.is_exact[0]
    assert of_four.is_at_bound[0]
    assert len(fit_laws(INPUTS[:3], cubic[:3], 3).left_out_error) == 2  # a constant and a line


@pytest.mark.peer
@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_values_and_left_out_errors_are_those_of_numpy(degree):
    values = np.random.default_rng(1).normal(size=(7, 3))
    inputs = np.array([3.0, 5, 8, 9, 12, 17, 21])
    fits = fit_laws(inputs, values, 3)
    for series in range(3):
        errors = []
        for i in range(7):
            others = np.arange(7) != i
            law = np.polynomial.Polynomial.fit(inputs[others], values[others, series], degree)
            errors.append((law(inputs[i]) - values[i, series]) ** 2)
        assert fits.left_out_error[degree, series] == pytest.approx(np.mean(errors), rel=1e-9)
        if degrees(fits)[series] == degree:
            whole = np.polynomial.Polynomial.fit(inputs, values[:, series], degree)
            assert fits.at(30).value[series] == pytest.approx(whole(30), rel=1e-9)


@pytest.mark.theory
def test_equally_good_degrees_leave_the_lowest():
    """Of noise around a constant a parabola leaves a little less, and extrapolates it to anything."""
    noise = np.random.default_rng(2).normal(size=(6, 400))
    fits = fit_laws(np.arange(1.0, 7), 100 + noise, 3)
    assert np.mean(np.array(degrees(fits)) == 0) > 0.75


@pytest.mark.theory
@pytest.mark.parametrize("law", [[50.0], [10.0, 2.0], [5.0, 1.0, 0.5]])
def test_bands_hold_what_they_say(law):
    """Of 95 % bands of noisy points, at twice the largest input; a little fewer are right, since the same points choose
    the degree."""
    generator = np.random.default_rng(3)
    inputs, target = np.arange(2.0, 10), 18.0
    truth = np.polynomial.Polynomial(law)
    values = truth(inputs)[:, None] + generator.normal(size=(len(inputs), 2000))
    at = fit_laws(inputs, values, 3).at(target)
    new = truth(target) + generator.normal(size=2000)
    held = ((at.low <= new) & (new <= at.high)).mean()
    assert held > 0.85
    assert (at.low <= at.value).all()
    assert (at.value <= at.high).all()


@pytest.mark.contract
def test_series_are_independent_of_each_other():
    values = np.random.default_rng(4).normal(size=(5, 30))
    values[:, 3] = INPUTS
    together = fit_laws(INPUTS, values, 3)
    for series in range(30):
        alone = fit_laws(INPUTS, values[:, [series]], 3)
        assert alone.chosen[0] == together.chosen[series]
        assert alone.at(50).high[0] == pytest.approx(together.at(50).high[series])


@pytest.mark.contract
@pytest.mark.parametrize(
    ("inputs", "values", "message"),
    [
        ([1, 2], [[1], [2]], "at least 3 inputs"),
        ([1, 2, 2], [[1], [2], [3]], "not all different"),
        ([1, 2, 3], [[1], [2], [np.nan]], "not finite"),
        ([1, 2, np.inf], [[1], [2], [3]], "not finite"),
        ([1, 2, 3], [[1], [2]], "one row for each"),
        ([1, 2, 3], [1, 2, 3], "one row for each"),
    ],
)
def test_bad_points_are_refused(inputs, values, message):
    with pytest.raises(ValueError, match=message):
        fit_laws(np.array(inputs, float), np.array(values, float), 3)


@pytest.mark.contract
def test_no_series_are_no_error():
    at = fit_laws(INPUTS, np.empty((5, 0)), 3).at(40)
    assert len(at.value) == len(at.low) == len(at.high) == 0
