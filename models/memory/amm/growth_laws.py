"""Laws of growth through a few points, for many series at once: what each is at another input x, and how sure that is.

* Laws: polynomials of degree 0 to ``max_degree``, and sums of a constant and terms x^i log^j x (OTHERS), as counts of
  divide and conquer, trees and blocked codes have. Source: the performance model normal form of Extra-P (Calotoiu et
  al., "Using automated performance modeling to find scalability bugs in complex codes", SC 2013); of its terms a small
  set, since few inputs could not tell more of them apart.
* Fit: least squares. A polynomial needs DEGREES_OF_FREEDOM points more than it has coefficients, so that something is
  left to judge it by: a line three points, a cubic five. Other laws need one more to be chosen, since there are many.
* Choice: the law of fewest coefficients that goes through all points to rounding (EXACT), as counts of loops do.
  Otherwise the squared error when each point is left out in turn decides. Of polynomials, degrees within TIE of the
  least leave the lowest (as SimPoint's rule of nine tenths, and for the same reason: what is left out is within the
  points, while the question lies beyond them). Another law takes its place if it is better with confidence CLEAR, by
  Fisher's F, as if errors of left-out points were independent (with few points this takes a lot); or, where laws other
  than polynomials are as likely (``few``), if it needs fewer coefficients for as much.
* Series of counts and distances do not fall below zero: with OTHERS, laws of more than one term whose last one is
  subtracted are left out.
* Band: of a single new value, from the residuals by Student's t and the fit's own uncertainty (Draper and Smith,
  "Applied Regression Analysis", ch. 1 and 5), or, if that is more, from the errors of left-out points growing as the
  values do; widened to the predictions of all fits that leave one point out, and to those of the laws that did almost
  as well, which the points cannot tell apart: RIVAL times the squared error, or what is not worse with confidence
  CLEAR. Exact fits have none. Of six points from 100 to 800 with 0.2 to 2 % of noise, fourteen to nineteen of twenty
  bands hold the law at 6400.

Assumptions: the errors of a series are independent; the law of the points holds on. Unlike ``sampling.extrapolation``,
whose laws are powers of a number of ranks with relative errors, series may be zero, and are fitted by the thousand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Final

import numpy as np
from scipy.special import fdtri, stdtrit

CONFIDENCE: Final = 0.95
DEGREES_OF_FREEDOM: Final = 1
EXACT: Final = 1e-9  # of the largest value: what rounding leaves of an exact fit
TIE: Final = 2.0
CLEAR: Final = 0.95
RIVAL: Final = 4.0
FEWEST_POINTS: Final = 3

Term = tuple[float, int]  # (i, j) of x^i log^j x


@dataclass(frozen=True)
class Law:
    """A constant, and a coefficient for each of ``terms``. ``degree``: of a polynomial of x, that of its highest power;
    None for other laws."""

    terms: tuple[Term, ...]
    degree: int | None = None

    @property
    def num_coefficients(self) -> int:
        return len(self.terms) + 1

    @property
    def power(self) -> float:
        """The highest power of x, logarithms apart."""
        return max((i for i, _ in self.terms), default=0)


_LOG, _SQRT, _X, _X_LOG, _X_SQRT = (0, 1), (0.5, 0), (1, 0), (1, 1), (1.5, 0)
OTHERS: Final = (
    *(Law((term,)) for term in (_LOG, _SQRT, _X_LOG, _X_SQRT, (2, 1))),
    *(Law(terms) for terms in ((_LOG, _X), (_X, _X_LOG), (_SQRT, _X), (_X, _X_SQRT), (_X, (1, 2)))),
    Law((_LOG, _X, _X_LOG)),
)


@dataclass(frozen=True)
class Prediction:
    """Values at one input: ``value``, ``low`` and ``high`` float64[series]; equal where the fit is exact."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class Fits:
    """Fits of ``laws`` to ``values`` float64[points, series] at ``inputs`` float64[points].

    ``chosen`` int64[series]: the index of each series' law; ``is_exact`` bool[series]; ``left_out_error`` float64[laws,
    series]: mean squared error of leaving one point out.
    """

    inputs: np.ndarray
    values: np.ndarray
    laws: tuple[Law, ...]
    chosen: np.ndarray
    is_exact: np.ndarray
    left_out_error: np.ndarray

    @property
    def chosen_error(self) -> np.ndarray:
        """float64[series]: ``left_out_error`` of each series' law."""
        return self.left_out_error[self.chosen, np.arange(len(self.chosen))]

    def scaled_error(self, scale: np.ndarray) -> np.ndarray:
        """float64[series]: as ``chosen_error``, each point's error times ``scale`` float64[points]."""
        result = np.empty(len(self.chosen))
        for index in np.unique(self.chosen).tolist():
            mine = self.chosen == index
            basis, _, _ = _basis(self.inputs, self.laws[index], self.inputs[0])
            residual = self.values[:, mine] - basis @ (basis.T @ self.values[:, mine])
            result[mine] = ((residual * (scale / (1 - (basis**2).sum(axis=1)))[:, None]) ** 2).mean(axis=0)
        return result

    @property
    def num_coefficients(self) -> np.ndarray:
        """int64[series]: of each series' law."""
        return np.array([law.num_coefficients for law in self.laws])[self.chosen]

    @cached_property
    def power(self) -> np.ndarray:
        """float64[series]: the highest power of x in each series' law."""
        return np.array([law.power for law in self.laws])[self.chosen]

    @property
    def is_at_bound(self) -> np.ndarray:
        """bool[series]: whether the highest degree that was allowed fits best, though not exactly: the law may be of a
        higher one."""
        degree = [-1 if law.degree is None else law.degree for law in self.laws]
        return (np.array(degree)[self.chosen] == max(degree)) & ~self.is_exact

    def at(self, input_size: float) -> Prediction:
        """What the series are at an input. O(laws x points x series)."""
        value = np.zeros(self.values.shape[1])
        low, high = np.full_like(value, np.inf), np.full_like(value, -np.inf)
        chosen_error, number = self.chosen_error, self.num_coefficients
        for index, law in enumerate(self.laws):
            is_chosen = self.chosen == index
            limit = np.maximum(RIVAL, _quantiles(CLEAR, len(self.inputs))[law.num_coefficients, number]) * chosen_error
            is_rival = is_chosen | ((self.left_out_error[index] <= limit) & ~self.is_exact)
            series = np.flatnonzero(is_rival)
            if not len(series):
                continue
            mean, half, left_out = self._predicted(law, series, input_size)
            half[~is_chosen[series]] = 0  # of rivals only the value counts
            half[self.is_exact[series]] = 0
            low[series] = np.minimum(low[series], mean - half)
            high[series] = np.maximum(high[series], mean + half)
            is_spread = is_chosen[series] & ~self.is_exact[series]
            low[series[is_spread]] = np.minimum(low[series], left_out.min(axis=0))[is_spread]
            high[series[is_spread]] = np.maximum(high[series], left_out.max(axis=0))[is_spread]
            value[is_chosen] = mean[is_chosen[series]]
        return Prediction(value, low, high)

    def _predicted(self, law: Law, series: np.ndarray, input_size: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(float64[s] values, float64[s] half-widths by Student's t, float64[points, s] values with a point left
        out)."""
        basis, weights, _ = _basis(self.inputs, law, input_size)
        values = self.values[:, series]
        residual = values - basis @ (basis.T @ values)
        freedom = len(self.inputs) - law.num_coefficients
        variance = (residual**2).sum(axis=0) / max(freedom, 1)
        mean = weights @ (basis.T @ values)
        # errors that grow as the values do
        squares = (values**2).mean(axis=0)
        growth = np.divide(mean**2, squares, out=np.ones_like(mean), where=squares > 0)
        left_out = residual / (1 - (basis**2).sum(axis=1))[:, None]
        spread = np.maximum(variance * (1 + weights @ weights), (left_out**2).mean(axis=0) * growth)
        half = stdtrit(max(freedom, 1), (1 + CONFIDENCE) / 2) * np.sqrt(spread)
        return mean, half, mean - (basis @ weights)[:, None] * left_out


def fit_laws(
    inputs: np.ndarray, values: np.ndarray, max_degree: int, others: Sequence[Law] = (), few: float = 0
) -> Fits:
    """The best law of each series: of polynomials up to ``max_degree``, and of the ``others`` with at most that power.

    ``inputs`` float64[points], each another; ``values`` float64[points, series]. Laws are those that the number of
    points allows. ``few``: another law with fewer coefficients than the best polynomial takes its place with up to so
    many times its squared error. Raises ValueError for fewer than FEWEST_POINTS points, for equal inputs, and for
    values that are not finite. O(laws x points^2 x series).
    """
    inputs, values = np.asarray(inputs, np.float64), np.asarray(values, np.float64)
    if values.ndim != 2 or len(values) != len(inputs):
        raise ValueError(f"{len(inputs)} inputs and values of shape {values.shape}; one row for each is needed")
    if len(inputs) < FEWEST_POINTS:
        raise ValueError(f"a trend needs at least {FEWEST_POINTS} inputs, not {len(inputs)}")
    if len(np.unique(inputs)) < len(inputs):
        raise ValueError(f"inputs {', '.join(f'{each:g}' for each in inputs)} are not all different")
    if not (np.isfinite(inputs).all() and np.isfinite(values).all()):
        raise ValueError("an input or a value is not finite")
    most_coefficients = len(inputs) - DEGREES_OF_FREEDOM
    laws = [Law(tuple((i, 0) for i in range(1, degree + 1)), degree) for degree in range(max_degree + 1)]
    laws += [law for law in others if law.power <= max_degree]
    laws = [law for law in laws if law.num_coefficients <= most_coefficients]
    error, is_exact = np.empty((len(laws), values.shape[1])), np.empty((len(laws), values.shape[1]), bool)
    largest = np.abs(values).max(axis=0, initial=0)
    for index, law in enumerate(laws):
        basis, _, leading = _basis(inputs, law, inputs[0])
        residual = values - basis @ (basis.T @ values)
        is_exact[index] = np.abs(residual).max(axis=0, initial=0) <= EXACT * largest
        error[index] = ((residual / (1 - (basis**2).sum(axis=1))[:, None]) ** 2).mean(axis=0)
        if others and law.num_coefficients > 2:
            falls_below_zero = ((basis[:, -1] @ values) * leading <= 0) & ~is_exact[index]
            error[index, falls_below_zero] = np.inf
    return Fits(inputs, values, tuple(laws), *_chosen(laws, error, is_exact, most_coefficients, few), error)


def clearly_better(num_points: int, coefficients: int | np.ndarray, than: int | np.ndarray) -> np.ndarray:
    """How many times the squared error of a law with ``coefficients`` that of another one, with ``than``, must be for
    the first to be better with confidence CLEAR."""
    return _quantiles(CLEAR, num_points)[than, coefficients]


@cache
def _quantiles(confidence: float, num_points: int) -> np.ndarray:
    """float64[coefficients, other coefficients] of Fisher's F: squared errors of laws fitted to as many points."""
    freedom = num_points - np.arange(num_points)
    return np.asarray(fdtri(freedom[:, np.newaxis], freedom, confidence))


def _chosen(
    laws: Sequence[Law], error: np.ndarray, is_exact: np.ndarray, most_coefficients: int, few: float
) -> tuple[np.ndarray, np.ndarray]:
    """(int64[series] the index of each series' law, bool[series] whether it is exact), from errors and exactness of
    all laws [laws, series]."""
    is_polynomial = np.array([law.degree is not None for law in laws])
    number = np.array([law.num_coefficients for law in laws])
    eligible = is_polynomial | (number < most_coefficients)
    num_polynomials = int(is_polynomial.sum())
    of_polynomials = error[:num_polynomials]
    chosen = np.argmax(of_polynomials <= TIE * of_polynomials.min(axis=0), axis=0)
    best = error[chosen, np.arange(error.shape[1])]
    others = np.flatnonzero(eligible & ~is_polynomial)
    if len(others):
        points = most_coefficients + DEGREES_OF_FREEDOM
        wins = clearly_better(points, number[others][:, None], number[chosen]) * error[others] <= best
        wins |= (error[others] <= few * best) & (number[others][:, None] < number[chosen])
        least = np.where(wins, error[others], np.inf).min(axis=0)
        near = wins & (error[others] <= TIE * least)
        fewest = np.where(near, number[others][:, None], np.inf)
        cost = np.where(fewest == fewest.min(axis=0), error[others], np.inf)  # of equally simple ones, the best
        has_winner = wins.any(axis=0)
        chosen = np.where(has_winner, others[np.argmin(cost, axis=0)], chosen)
    exact = is_exact & eligible[:, None]
    has_exact: np.ndarray = np.asarray(exact.any(axis=0))
    order = np.argsort(number, kind="stable")  # of equally many coefficients, polynomials stand first
    chosen = np.where(has_exact, order[np.argmax(exact[order], axis=0)], chosen)
    return chosen, has_exact


def _basis(inputs: np.ndarray, law: Law, input_size: float) -> tuple[np.ndarray, np.ndarray, float]:
    """(float64[points, coefficients] orthonormal functions at the inputs that span the law, float64[coefficients] the
    same at ``input_size``, what the last of these holds of the law's last term). For polynomials inputs are scaled to
    [-1, 1], where powers up to the third are well conditioned; other terms are scaled by their largest value."""
    if law.degree is not None:
        middle, half = (inputs.max() + inputs.min()) / 2, (inputs.max() - inputs.min()) / 2
        columns = np.vander((inputs - middle) / half, law.degree + 1, increasing=True)
        there = ((input_size - middle) / half) ** np.arange(law.degree + 1)
    else:
        x = np.append(inputs, input_size)
        terms = np.column_stack([np.ones(len(x)), *(x**i * np.log(x) ** j for i, j in law.terms)])
        terms /= np.abs(terms[:-1]).max(axis=0)
        columns, there = terms[:-1], terms[-1]
    orthonormal, triangle = np.linalg.qr(columns)
    return orthonormal, np.linalg.solve(triangle.T, there), 1 / float(triangle[-1, -1])
