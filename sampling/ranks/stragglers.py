"""Stragglers: how slow the slowest of many ranks is expected to be, from the speeds of a few.

A rank's speed is what its work takes over what ranks of its role take: a factor, whose logarithm is measured per rank
as its distance from the mean of the role's. Distances of all roles are pooled; their variance is the sum of squares
over the degrees of freedom (ranks less roles). The largest of n independent draws of a distribution with quantiles Q
has the expectation

    E = integral of Q(u) n u^(n - 1) over u from 0 to 1

(David and Nagaraja, Order Statistics, 3rd ed., section 3.1). Of n normal ones it grows as sqrt(2 ln n); of draws from
the measured values themselves it cannot exceed the largest of these, which is why a fitted distribution is the default.

Assumptions: speeds of ranks are independent and log-normal; a rank's speed holds for all that it does in a step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.special import log_ndtr

_REACH: Final = 14.0  # standard deviations to both sides: the density outside is below 1e-42
_POINTS: Final = 5601


def largest_lognormal(count: int, deviation: float) -> float:
    """Expected largest of ``count`` draws of exp(``deviation`` x standard normal)."""
    return _expected(count, lambda z: np.exp(deviation * z))


def largest_normal(count: int) -> float:
    """Expected largest of ``count`` standard normal draws."""
    return _expected(count, lambda z: z)


def largest_measured(values: np.ndarray, count: int) -> float:
    """Expected largest of ``count`` draws, with replacement, of the values."""
    ordered = np.sort(values)
    below = (np.arange(len(ordered) + 1) / len(ordered)) ** count  # that all draws are among the lowest so many
    return float(ordered @ np.diff(below))


def _expected(count: int, value: object) -> float:
    """The trapezoidal rule, which converges faster than any power of the step for such densities."""
    z = np.linspace(-_REACH, _REACH, _POINTS)
    density = count * np.exp(-0.5 * z**2 + (count - 1) * log_ndtr(z)) / np.sqrt(2 * np.pi)
    return float(np.sum(value(z) * density) * (z[1] - z[0]))  # type: ignore[operator]


@dataclass(frozen=True)
class Spread:
    """How the speeds of like ranks differ. ``distances`` float64[ranks]: of the logarithm of each rank's time from its
    role's mean, 0 for a rank that is alone in its role; ``says`` bool[ranks]: whether others are of its role;
    ``num_roles``: those with several ranks."""

    distances: np.ndarray
    says: np.ndarray
    num_roles: int

    @property
    def num_ranks(self) -> int:
        """Of the roles with several."""
        return int(self.says.sum())

    @property
    def is_known(self) -> bool:
        return self.num_ranks > self.num_roles

    @property
    def deviation(self) -> float:
        """Standard deviation of the logarithms, 0 where it is not known."""
        if not self.is_known:
            return 0.0
        return float(np.sqrt(np.sum(self.distances**2) / (self.num_ranks - self.num_roles)))


def spread(times: np.ndarray, role: np.ndarray) -> Spread:
    """``times`` float64[ranks], whose ranks with the same number in ``role`` int64[ranks] are alike; ranks of time 0
    say nothing."""
    distances = np.zeros(len(times))
    says = times > 0
    _, index, counts = np.unique(role[says], return_inverse=True, return_counts=True)
    logarithms = np.log(times[says])
    mean = np.bincount(index, logarithms) / counts if len(counts) else np.empty(0)
    has_others = counts[index] > 1
    distances[says] = np.where(has_others, logarithms - mean[index], 0.0)
    says[says] = has_others
    return Spread(distances, says, int((counts > 1).sum()))
