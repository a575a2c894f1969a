"""Trends in the number of ranks: what a quantity measured on a few rank counts is on another, and how sure that is.

Method: a few simple forms are fitted, and the one that predicts best what it was not shown is taken, as in Calotoiu,
Hoefler, Poke, Wolf, "Using automated performance modeling to find scalability bugs in complex codes" (SC 2013), whose
normal form has terms P^i log^j P; here a small fixed set, since three or four rank counts cannot tell more apart.

* Forms: a; a + b log2 P; a P^b; a + b P^c with c in EXPONENTS (the laws of volumes, surfaces and edges of blocks in one
  to three dimensions). Linear forms are fitted by least squares of the relative error, the power law in logs.
* Choice: least mean relative error when each rank count is left out in turn; equal ones (TIE) leave the simplest. A
  form that is not positive on the way to the target is no candidate. Two rank counts: the power law through both,
  without an error. One: held constant, without an error.
* Interval: of a single new value, from the residuals in logs by Student's t and the fit's own uncertainty (delta
  method; Draper and Smith, "Applied Regression Analysis", ch. 3). Degrees of freedom are n - 2 for the constant, too,
  since it was chosen among forms of two parameters. It is widened to the largest error of leaving one out, and to the
  predictions of the forms that did almost as well (RIVAL times the error).

The same few values choose the form, so intervals hold less than they say: of values with 5 % of noise, predicted at
1.7 to 3.4 times the largest rank count, three rank counts held 27 to 91 % (by law), four 75 to 95 %, five 85 to 94 %;
with 1 % of noise 69 to 99, 90 to 97 and 93 to 98 % (six laws, 100 draws each).

Assumptions: relative errors are alike and independent; the law that held up to the largest rank count holds on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Final

import numpy as np
from scipy.special import stdtrit

CONFIDENCE: Final = 0.95
EXPONENTS: Final = tuple(Fraction(text) for text in ("-1", "-2/3", "-1/2", "-1/3", "1/3", "1/2", "2/3", "1"))
RIVAL: Final = 2.0
MOST_PARAMETERS: Final = 2
TIE: Final = 1e-9  # of relative error: what rounding makes of equal forms


@dataclass(frozen=True)
class Form:
    """A law of the number of ranks P; ``exponent`` is c of a + b P^c."""

    name: str
    exponent: float = 0.0

    @property
    def num_parameters(self) -> int:
        return 1 if self.name == "a" else 2

    def basis(self, ranks: np.ndarray) -> np.ndarray:
        """float64[n, parameters]: what the parameters are multiplied with (for the power law in logs)."""
        ranks = np.asarray(ranks, float)
        one = np.ones_like(ranks)
        if self.name == "a":
            return one[:, None]
        if self.name == "a P^b":
            return np.column_stack((one, np.log(ranks)))
        return np.column_stack((one, ranks**self.exponent if self.exponent else np.log2(ranks)))

    def fit(self, ranks: np.ndarray, values: np.ndarray) -> np.ndarray:
        """float64[parameters]: least squares of the relative error (of logs for the power law)."""
        if self.name == "a" and np.all(values == values[0]):
            return values[:1].astype(float)  # exactly, as message counts need it
        basis = self.basis(ranks)
        if self.name == "a P^b":
            return np.linalg.lstsq(basis, np.log(values))[0]
        return np.linalg.lstsq(basis / values[:, None], np.ones(len(values)))[0]

    def at(self, parameters: np.ndarray, ranks: np.ndarray) -> np.ndarray:
        """float64[n]: the law's values."""
        product = self.basis(ranks) @ parameters
        return np.exp(product) if self.name == "a P^b" else product

    def log_gradient(self, parameters: np.ndarray, ranks: np.ndarray) -> np.ndarray:
        """float64[n, parameters]: derivative of the logarithm of the value by each parameter."""
        basis = self.basis(ranks)
        return basis if self.name == "a P^b" else basis / (basis @ parameters)[:, None]

    def shown(self, parameters: np.ndarray) -> tuple[float, ...]:
        """a and b as the name has them."""
        first = np.exp(parameters[0]) if self.name == "a P^b" else parameters[0]
        return tuple(float(value) for value in (first, *parameters[1:]))


CONSTANT: Final = Form("a")
POWER: Final = Form("a P^b")
FORMS: Final = (
    CONSTANT,
    Form("a + b log2 P"),
    POWER,
    *(Form(f"a + b P^({exponent})", float(exponent)) for exponent in EXPONENTS),
)  # the simpler ones first


@dataclass(frozen=True)
class Trend:
    """A quantity's law, fitted to ``values`` at ``ranks``, and what it says of ``target`` ranks.

    ``ci_low`` and ``ci_high`` bound a new value with CONFIDENCE; ``error`` is the mean relative error of leaving one
    rank count out. All three are None where fewer than three rank counts leave nothing to judge by.
    """

    form: Form
    parameters: tuple[float, ...]
    ranks: tuple[int, ...]
    values: tuple[float, ...]
    target: int
    prediction: float
    ci_low: float | None = None
    ci_high: float | None = None
    error: float | None = None

    def at(self, num_ranks: int) -> float:
        """The law's value on a number of ranks."""
        return float(self.form.at(self._fitted, np.array([num_ranks]))[0])

    @cached_property
    def _fitted(self) -> np.ndarray:
        return self.form.fit(np.array(self.ranks, float), np.array(self.values))

    def ratio(self, num_ranks: int, template: int) -> float:
        """What turns the value on ``template`` ranks into that on ``num_ranks``; exactly 1 if constant."""
        return self.at(num_ranks) / self.at(template)


def fit_trend(ranks: Sequence[int], values: Sequence[float], target: int) -> Trend:
    """The trend of positive ``values`` measured on increasing numbers of ``ranks``, for ``target`` ranks.

    Raises ValueError if there is no value, ranks do not increase, or a value is not positive and finite.
    """
    at, measured = np.array(ranks, float), np.array(values, float)
    if not len(at) or len(at) != len(measured):
        raise ValueError(f"{len(at)} rank counts and {len(measured)} values; one value for each is needed")
    if np.any(np.diff(at) <= 0) or at[0] < 1 or target < 1:
        raise ValueError(f"rank counts {', '.join(str(each) for each in ranks)} to {target} do not increase from 1")
    if not np.all(np.isfinite(measured) & (measured > 0)):
        raise ValueError("a value is not positive; a trend has none of zero")
    if len(at) < 3:
        return _without_error(CONSTANT if len(at) == 1 else POWER, at, measured, target)
    if np.all(measured == measured[0]):
        value = float(measured[0])
        return replace(_without_error(CONSTANT, at, measured, target), ci_low=value, ci_high=value, error=0.0)
    candidates = [
        (error, form)
        for form in FORMS
        if form.num_parameters < len(at) and (error := _left_out(form, at, measured, target)) is not None
    ]
    means = [float(error.mean()) for error, _ in candidates]
    chosen = next(i for i, mean in enumerate(means) if mean <= min(means) + TIE)
    rivals = [form for mean, (_, form) in zip(means, candidates, strict=True) if mean <= RIVAL * means[chosen] + TIE]
    form = candidates[chosen][1]
    parameters = form.fit(at, measured)
    prediction = float(form.at(parameters, np.array([target]))[0])
    low, high = _interval(form, parameters, at, measured, target, float(candidates[chosen][0].max()))
    others = [float(rival.at(rival.fit(at, measured), np.array([target]))[0]) for rival in rivals]
    return Trend(
        *(form, form.shown(parameters), tuple(ranks), tuple(measured.tolist()), target, prediction),
        ci_low=min(low, *others, prediction),
        ci_high=max(high, *others, prediction),
        error=means[chosen],
    )


def _without_error(form: Form, ranks: np.ndarray, values: np.ndarray, target: int) -> Trend:
    if np.all(values == values[0]):
        form = CONSTANT
    parameters = form.fit(ranks, values)
    prediction = float(form.at(parameters, np.array([target]))[0])
    where = tuple(int(each) for each in ranks)
    return Trend(form, form.shown(parameters), where, tuple(values.tolist()), target, prediction)


def _left_out(form: Form, ranks: np.ndarray, values: np.ndarray, target: int) -> np.ndarray | None:
    """float64[n]: relative error at each rank count of the form fitted to the others; None if the form, fitted to all,
    is not positive from the first rank count to the target."""
    way = np.geomspace(min(ranks[0], target), max(ranks[-1], target), 64)
    if np.any(form.at(form.fit(ranks, values), way) <= 0):
        return None
    errors = np.empty(len(ranks))
    for i in range(len(ranks)):
        others = np.arange(len(ranks)) != i
        parameters = form.fit(ranks[others], values[others])
        errors[i] = abs(form.at(parameters, ranks[i : i + 1])[0] / values[i] - 1)
    return errors


def _interval(
    form: Form, parameters: np.ndarray, ranks: np.ndarray, values: np.ndarray, target: int, floor: float
) -> tuple[float, float]:
    """Bounds of a new value on ``target`` ranks; ``floor`` is the least relative half-width."""
    residual = np.log(values / form.at(parameters, ranks))
    freedom = len(ranks) - MOST_PARAMETERS
    design = form.log_gradient(parameters, ranks)
    new = form.log_gradient(parameters, np.array([target]))[0]
    variance = float(residual @ residual) / freedom
    leverage = float(new @ np.linalg.pinv(design.T @ design) @ new)
    half = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * np.sqrt(variance * (1 + leverage))
    half = min(max(half, float(np.log1p(floor))), MOST_HALF_WIDTH)
    prediction = float(form.at(parameters, np.array([target]))[0])
    return prediction * float(np.exp(-half)), prediction * float(np.exp(half))


MOST_HALF_WIDTH: Final = float(np.log(1e6))  # a factor that says "unknown", and that a float holds
