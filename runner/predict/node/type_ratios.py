"""From task instances that were simulated to all others: predicted over traced time by task type, and how sure it is.

A *cell* is one iteration of one rank that was simulated. Its ratio for a task type is the predicted time of the type's
instances over their traced time; instance 0, the initial task, counts as a type of its own. All instances of the ranks
for which the cell's rank stands take their traced time times the mean ratio of that rank's cells (of all cells for
types that these have not, and of all time for types that no cell has), before they are scheduled. Source: MUSA (Grass,
UPC 2017, section 6.3.3), whose burst mode takes such factors; here they follow from the detailed simulation.

The half-width of a ratio's 95 % confidence interval has two parts, independent of each other: that of the samples
inside cells (TaskPoint's), and that of the mean over cells, by Student's t. Where there is only one cell, the spread of
the type's mean traced time over iterations and ranks stands for that of the ratio, which usually varies less.
Types are taken as independent. Assumption: what makes a type slower or faster than traced holds in all iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95


@dataclass(frozen=True)
class CellTimes:
    """``stratum``: the index of its rank among the simulated ones. ``predicted_ps``, ``traced_ps``: float64[types + 1],
    instance 0 last. ``half_width``: of the predicted time, relative, from samples inside the cell."""

    stratum: int
    predicted_ps: np.ndarray
    traced_ps: np.ndarray
    half_width: float = 0.0


@dataclass(frozen=True)
class TypeRatios:
    """``ratio`` float64[strata, types + 1]; ``half_width`` float64[types + 1], relative; ``overall``: of all time;
    ``is_known`` bool[types + 1]: whether any cell has instances of the type."""

    ratio: np.ndarray
    half_width: np.ndarray
    overall: float
    is_known: np.ndarray

    def combined(self, predicted_ps: np.ndarray) -> float:
        """Relative half-width of a total that consists of ``predicted_ps`` float64[types + 1]."""
        total = float(predicted_ps.sum())
        return float(np.sqrt(((predicted_ps * self.half_width) ** 2).sum())) / total if total else 0.0


def type_ratios(cells: Sequence[CellTimes], num_strata: int, traced_spread: np.ndarray) -> TypeRatios:
    """The ratios that cells show. ``traced_spread`` float64[types + 1]: relative standard deviation of the mean traced
    time of a type's instances over iterations and ranks. Raises ValueError where no time was both traced and predicted.
    """
    predicted = np.stack([cell.predicted_ps for cell in cells])
    traced = np.stack([cell.traced_ps for cell in cells])
    stratum = np.array([cell.stratum for cell in cells])
    if not (predicted.sum() > 0 and traced.sum() > 0):
        raise ValueError("what was simulated in detail took no time, or none was traced of it; nothing follows from it")
    both = np.where(traced > 0, predicted, 0.0)  # types of the initial task may be in one of the two alone
    overall = float(both.sum() / traced.sum())
    is_known = traced.sum(axis=0) > 0
    everywhere = np.divide(both.sum(axis=0), traced.sum(axis=0), out=np.full(len(is_known), overall), where=is_known)
    ratio = np.empty((num_strata, len(is_known)))
    for each in range(num_strata):
        mine, base = both[stratum == each].sum(axis=0), traced[stratum == each].sum(axis=0)
        ratio[each] = np.divide(mine, base, out=everywhere.copy(), where=base > 0)
    inside = np.array([cell.half_width for cell in cells])
    return TypeRatios(ratio, _half_width(both, traced, inside, traced_spread, stratum), overall, is_known)


def _half_width(
    predicted: np.ndarray, traced: np.ndarray, inside: np.ndarray, spread: np.ndarray, stratum: np.ndarray
) -> np.ndarray:
    """Relative, of each type. Cells of one stratum are compared with each other; of several strata, the deviations are
    pooled."""
    result = np.zeros(predicted.shape[1])
    for kind in range(len(result)):
        has = traced[:, kind] > 0
        count = int(has.sum())
        ratios = predicted[has, kind] / traced[has, kind] if count else np.empty(0)
        if not count or not ratios.any():
            result[kind] = _quantile(np.inf) * spread[kind]
            continue
        groups = stratum[has]
        freedom = count - len(np.unique(groups))
        if freedom:
            means = {each: ratios[groups == each].mean() for each in np.unique(groups)}
            relative = ratios / np.array([means[each] for each in groups]) - 1
            deviation = np.sqrt((relative**2).sum() / freedom)
            between = _quantile(freedom) * deviation / np.sqrt(count)
        else:
            between = _quantile(np.inf) * spread[kind]
        result[kind] = np.hypot(between, np.sqrt((inside[has] ** 2).sum()) / count)
    return result


def _quantile(freedom: float) -> float:
    """Student's, two-sided, at CONFIDENCE."""
    from scipy.special import ndtri, stdtrit  # scipy.stats takes a second to load

    share = (1 + CONFIDENCE) / 2
    return float(ndtri(share) if np.isinf(freedom) else stdtrit(freedom, share))
