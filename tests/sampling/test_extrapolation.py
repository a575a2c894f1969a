"""Trends in the number of ranks: known laws are found, intervals hold what they say, and bad values are refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from manyscale.sampling.ranks.extrapolation import CONFIDENCE, CONSTANT, POWER, fit_trend

RANKS = (8, 27, 64, 125)
TARGET = 1000


@pytest.mark.theory
@pytest.mark.parametrize(
    ("law", "form", "parameters"),
    [
        (lambda p: 0 * p + 648.0, "a", (648.0,)),
        (lambda p: 5.0 / p, "a P^b", (5.0, -1.0)),
        (lambda p: 7e-3 * p ** (-2 / 3), "a P^b", (7e-3, -2 / 3)),
        (lambda p: 2 + 3 * np.log2(p), "a + b log2 P", (2.0, 3.0)),
        (lambda p: 4 + 100 / p, "a + b P^(-1)", (4.0, 100.0)),
        (lambda p: 1 + 50 * p ** (-2 / 3), "a + b P^(-2/3)", (1.0, 50.0)),
        (lambda p: 10 + 0.5 * p ** (1 / 3), "a + b P^(1/3)", (10.0, 0.5)),
    ],
    ids=["constant", "volume", "surface", "logarithm", "volume and rest", "surface and rest", "edge and rest"],
)
def test_exact_laws_are_found(law: Callable, form: str, parameters: tuple[float, ...]) -> None:
    trend = fit_trend(RANKS, law(np.array(RANKS, float)), TARGET)
    expected = float(law(np.array([float(TARGET)]))[0])
    assert trend.form.name == form
    assert trend.parameters == pytest.approx(parameters, rel=1e-6)
    assert trend.prediction == pytest.approx(expected, rel=1e-9)
    assert trend.error == pytest.approx(0, abs=1e-9)
    assert (trend.ci_low, trend.ci_high) == pytest.approx((expected, expected), rel=1e-6)


@pytest.mark.theory
def test_a_constant_is_exact() -> None:
    """Message sizes are multiplied with this ratio, and must stay what they are."""
    trend = fit_trend(RANKS, [213.5] * 4, TARGET)
    assert trend.prediction == trend.ci_low == trend.ci_high == 213.5
    assert trend.ratio(TARGET, 125) == 1.0


@pytest.mark.theory
def test_two_rank_counts_leave_no_error() -> None:
    trend = fit_trend((8, 64), (8.0, 1.0), 512)  # 64 / P
    assert trend.form == POWER
    assert trend.prediction == pytest.approx(0.125)
    assert (trend.ci_low, trend.ci_high, trend.error) == (None, None, None)
    assert fit_trend((8,), (3.0,), 64).prediction == 3.0


@pytest.mark.theory
def test_interval_is_that_of_a_straight_line_in_logs() -> None:
    """Prediction interval of simple regression: s t sqrt(1 + 1/n + (x - mean)^2 / Sxx)."""
    ranks = np.array([4, 16, 64, 256, 1024])
    log_values = np.log(3.0 * ranks**-0.8) + 0.1 * np.array([1, -2, 0, 2, -1])
    trend = fit_trend(tuple(ranks.tolist()), np.exp(log_values), 4096)
    assert trend.form == POWER
    line = stats.linregress(np.log(ranks), log_values)
    x = np.log(ranks)
    residual = log_values - (line.intercept + line.slope * x)
    s = np.sqrt(residual @ residual / 3)
    half = stats.t.ppf((1 + CONFIDENCE) / 2, 3) * s
    half *= np.sqrt(1 + 1 / 5 + (np.log(4096) - x.mean()) ** 2 / ((x - x.mean()) ** 2).sum())
    middle = line.intercept + line.slope * np.log(4096)
    assert trend.prediction == pytest.approx(np.exp(middle))
    assert trend.ci_low is not None
    assert trend.ci_high is not None
    assert trend.ci_low <= np.exp(middle - half) * (1 + 1e-9)  # other forms may widen it
    assert trend.ci_high == pytest.approx(np.exp(middle + half))


@pytest.mark.theory
@pytest.mark.parametrize("law", [lambda p: 5.0 + 0 * p, lambda p: 1 / p, lambda p: 100 * p ** (-2 / 3)])
def test_intervals_cover_noisy_values(law: Callable) -> None:
    """Five rank counts, 3 % of noise on all, and on the value that is predicted: nominal 95 %, at least 85 % here, as
    the form was chosen by the same values."""
    random = np.random.default_rng(7)
    ranks = np.array([8.0, 16.0, 32.0, 64.0, 128.0])
    draws = 100
    covered = 0
    for _ in range(draws):
        trend = fit_trend((8, 16, 32, 64, 128), law(ranks) * np.exp(0.03 * random.standard_normal(5)), 256)
        value = law(np.array([256.0]))[0] * np.exp(0.03 * random.standard_normal())
        assert trend.ci_low is not None
        assert trend.ci_high is not None
        covered += trend.ci_low <= value <= trend.ci_high
    assert covered >= 0.85 * draws


@pytest.mark.property
@settings(deadline=None, max_examples=40)
@given(st.lists(st.floats(1e-3, 1e3), min_size=3, max_size=5))
def test_intervals_hold_prediction_and_left_out_error(values: list[float]) -> None:
    ranks = (8, 27, 64, 125, 216)[: len(values)]
    trend = fit_trend(ranks, values, 512)
    assert trend == fit_trend(ranks, values, 512)
    assert trend.error is not None
    assert trend.ci_low is not None
    assert trend.ci_high is not None
    assert 0 <= trend.ci_low <= trend.prediction <= trend.ci_high
    width = min(1 + trend.error, 1e6)
    assert trend.ci_high >= trend.prediction * width * (1 - 1e-9)
    assert trend.ci_low <= trend.prediction / width * (1 + 1e-9)


@pytest.mark.theory
def test_forms_that_turn_negative_are_no_candidates() -> None:
    """100 - P holds at the three rank counts, but not at 200."""
    trend = fit_trend((10, 40, 80), (90.0, 60.0, 20.0), 200)
    assert trend.prediction > 0
    assert trend.form != CONSTANT or trend.ci_low is not None


@pytest.mark.parametrize(
    ("ranks", "values", "message"),
    [
        ((8, 8), (1.0, 2.0), "do not increase"),
        ((8, 27), (1.0,), "one value for each"),
        ((), (), "one value for each"),
        ((8, 27), (1.0, 0.0), "not positive"),
        ((8, 27), (1.0, float("nan")), "not positive"),
    ],
)
def test_bad_values_are_refused(ranks: tuple[int, ...], values: tuple[float, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_trend(ranks, values, 64)
