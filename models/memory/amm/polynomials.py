"""Polynomials through a few points, for many series at once: what each is at another input, and how sure that is.

* Fit: least squares, degree 0 to ``max_degree``; a degree needs DEGREES_OF_FREEDOM points more than it has, so that
  something is left to judge it by: a line three points, a cubic five.
* Choice: the lowest degree that goes through all points to rounding (EXACT), as counts of nested loops do. Otherwise
  least squared error when each point is left out in turn; degrees within TIE of it leave the lowest (as SimPoint's rule
  of nine tenths, and for the same reason: what is left out is within the points, while the question lies beyond them).
* Band: of a single new value, from the residuals by Student's t and the fit's own uncertainty (Draper and Smith,
  "Applied Regression Analysis", ch. 1 and 5), widened to the predictions of all fits that leave one point out, and to
  those of the degrees that did almost as well (RIVAL times the squared error). Exact fits have none.

Assumptions: the errors of a series are alike and independent; the law of the points holds on. Unlike
``sampling.extrapolation``, whose laws are powers of a number of ranks with relative errors, series may be zero, and are
fitted by the thousand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.special import stdtrit

CONFIDENCE: Final = 0.95
DEGREES_OF_FREEDOM: Final = 1
EXACT: Final = 1e-9  # of the largest value: what rounding leaves of an exact fit
TIE: Final = 2.0
RIVAL: Final = 4.0
FEWEST_POINTS: Final = 3


@dataclass(frozen=True)
class Prediction:
    """Values at one input: ``value``, ``low`` and ``high`` float64[series]; equal where the fit is exact."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class Polynomials:
    """Fits to ``values`` float64[points, series] at ``inputs`` float64[points].

    ``degree`` int64[series]: as chosen; ``is_exact`` bool[series]; ``left_out_error`` float64[degrees, series]: mean
    squared error of leaving one point out.
    """

    inputs: np.ndarray
    values: np.ndarray
    degree: np.ndarray
    is_exact: np.ndarray
    left_out_error: np.ndarray

    @property
    def is_at_bound(self) -> np.ndarray:
        """bool[series]: whether the highest degree that was allowed fits best, though not exactly: the law may be of a
        higher one."""
        return (self.degree == len(self.left_out_error) - 1) & ~self.is_exact

    def at(self, input_size: float) -> Prediction:
        """What the series are at an input. O(degrees x points x series)."""
        value = np.zeros(self.values.shape[1])
        low, high = np.full_like(value, np.inf), np.full_like(value, -np.inf)
        chosen_error = self.left_out_error[self.degree, np.arange(len(value))]
        for degree in range(len(self.left_out_error)):
            is_chosen = self.degree == degree
            is_rival = is_chosen | ((self.left_out_error[degree] <= RIVAL * chosen_error) & ~self.is_exact)
            series = np.flatnonzero(is_rival)
            if not len(series):
                continue
            mean, half, left_out = self._predicted(degree, series, input_size)
            half[~is_chosen[series]] = 0  # of rivals only the value counts
            half[self.is_exact[series]] = 0
            low[series] = np.minimum(low[series], mean - half)
            high[series] = np.maximum(high[series], mean + half)
            is_spread = is_chosen[series] & ~self.is_exact[series]
            low[series[is_spread]] = np.minimum(low[series], left_out.min(axis=0))[is_spread]
            high[series[is_spread]] = np.maximum(high[series], left_out.max(axis=0))[is_spread]
            value[is_chosen] = mean[is_chosen[series]]
        return Prediction(value, low, high)

    def _predicted(
        self, degree: int, series: np.ndarray, input_size: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(float64[s] values, float64[s] half-widths by Student's t, float64[points, s] values with a point left
        out)."""
        basis, weights = _basis(self.inputs, degree, input_size)
        values = self.values[:, series]
        residual = values - basis @ (basis.T @ values)
        freedom = len(self.inputs) - degree - 1
        variance = (residual**2).sum(axis=0) / max(freedom, 1)
        half = stdtrit(max(freedom, 1), (1 + CONFIDENCE) / 2) * np.sqrt(variance * (1 + weights @ weights))
        mean = weights @ (basis.T @ values)
        influence = (basis @ weights) / (1 - (basis**2).sum(axis=1))
        return mean, half, mean - influence[:, None] * residual


def fit_polynomials(inputs: np.ndarray, values: np.ndarray, max_degree: int) -> Polynomials:
    """The best polynomial of each series.

    ``inputs`` float64[points], each another; ``values`` float64[points, series]. Degrees are those up to ``max_degree``
    that the number of points allows. Raises ValueError for fewer than FEWEST_POINTS points, for equal inputs, and for
    values that are not finite. O(degrees x points^2 x series).
    """
    inputs, values = np.asarray(inputs, np.float64), np.asarray(values, np.float64)
    if values.ndim != 2 or len(inputs) != len(values):
        raise ValueError(f"{len(inputs)} inputs and values of shape {values.shape}; one row for each is needed")
    if len(inputs) < FEWEST_POINTS:
        raise ValueError(f"a trend needs at least {FEWEST_POINTS} inputs, not {len(inputs)}")
    if len(np.unique(inputs)) < len(inputs):
        raise ValueError(f"inputs {', '.join(f'{each:g}' for each in inputs)} are not all different")
    if not (np.isfinite(inputs).all() and np.isfinite(values).all()):
        raise ValueError("an input or a value is not finite")
    num_degrees = 1 + min(max_degree, len(inputs) - 1 - DEGREES_OF_FREEDOM)
    error, is_exact = np.empty((num_degrees, values.shape[1])), np.empty((num_degrees, values.shape[1]), bool)
    largest = np.abs(values).max(axis=0, initial=0)
    for degree in range(num_degrees):
        basis, _ = _basis(inputs, degree, inputs[0])
        residual = values - basis @ (basis.T @ values)
        is_exact[degree] = np.abs(residual).max(axis=0, initial=0) <= EXACT * largest
        error[degree] = ((residual / (1 - (basis**2).sum(axis=1))[:, None]) ** 2).mean(axis=0)
    degree_chosen = np.argmax(error <= TIE * error.min(axis=0), axis=0)
    has_exact: np.ndarray = np.asarray(is_exact.any(axis=0))
    degree_chosen[has_exact] = np.argmax(is_exact, axis=0)[has_exact]
    return Polynomials(inputs, values, degree_chosen, has_exact, error)


def _basis(inputs: np.ndarray, degree: int, input_size: float) -> tuple[np.ndarray, np.ndarray]:
    """(float64[points, degree + 1] orthonormal polynomials at the inputs, float64[degree + 1] the same at
    ``input_size``). Inputs are scaled to [-1, 1], where powers up to the third are well conditioned."""
    middle, half = (inputs.max() + inputs.min()) / 2, (inputs.max() - inputs.min()) / 2
    orthonormal, triangle = np.linalg.qr(np.vander((inputs - middle) / half, degree + 1, increasing=True))
    powers = ((input_size - middle) / half) ** np.arange(degree + 1)
    return orthonormal, np.linalg.solve(triangle.T, powers)
