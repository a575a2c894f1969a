"""What executions, shares and distances of a few runs are at another input: trends of many series, some of which only
some of the runs show.

A series is predicted from the runs around the one nearest to the input in which it goes on without a break. Fewer than
FEWEST_POINTS of them leave it as it is in the nearest (a count then grows as all others do together), in the widest of
bands.

Counts that exactly follow a law are those of loops. Others, of branches that data decide, are a share of loops (of
those that grow alike, or else of all), which is a polynomial in 1/x: it tends to a limit, while polynomials in x
through such counts leave all bounds. Where loops are few (recursion), decisions are a share of all decisions together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.memory.amm.growth_laws import (
    FEWEST_POINTS,
    OTHERS,
    RIVAL,
    TIE,
    Prediction,
    clearly_better,
    fit_laws,
)
from manyscale.models.memory.amm.profile_parts import Part
from manyscale.models.memory.reuse_profile import COLD

MOST: Final = 2**53  # accesses, distances: what a float64 counts to
MAX_SHARE_DEGREE: Final = 2
TINY: Final = 1e-300


def deepest_loop(inputs: np.ndarray, counts: np.ndarray, max_degree: int) -> int:
    """The highest degree that a program's ``counts`` [runs, series] can have: that of those which are exactly
    polynomials, if these are most of the counts. Else ``max_degree``: the others may need more runs to be told."""
    fits = fit_laws(inputs, counts, max_degree, OTHERS, few=TIE)
    if not _are_most(fits.is_exact, counts[np.argmax(inputs)]):
        return max_degree
    return max(1, int(np.ceil(fits.power[fits.is_exact].max(initial=0))))


def counts_at(
    inputs: np.ndarray, measured: np.ndarray, input_size: float, max_degree: int
) -> tuple[Prediction, np.ndarray]:
    """Whole counts of each series of ``measured`` float64[runs, series] at an input, and which of them may be of a
    higher degree (bool[series]). Series that too few runs show grow as all others do together."""
    nearest = nearest_run(inputs, input_size)
    value, low, high = np.zeros((3, measured.shape[1]))
    is_open, is_short = np.zeros(measured.shape[1], bool), np.zeros(measured.shape[1], bool)
    loops = _loops(inputs, measured, max_degree)
    for runs, series in _alike(neighbours(measured > 0, nearest)):
        is_short[series] = 0 < len(runs) < FEWEST_POINTS
        if len(runs) < FEWEST_POINTS:
            continue
        counts = measured[np.ix_(runs, series)]
        at, is_open[series] = _decisions_at(
            inputs[runs], counts, [each[runs] for each in loops], input_size, max_degree
        )
        value[series], low[series], high[series] = at.value, at.low, at.high
    known = measured[nearest, ~is_short].sum()
    value[is_short] = measured[nearest, is_short] * (value.sum() / known if known else 1.0)
    low[is_short], high[is_short] = 0, 2 * value[is_short]
    return Prediction(*(np.rint(np.clip(each, 0, MOST)) for each in (value, low, high))), is_open


def _loops(inputs: np.ndarray, measured: np.ndarray, max_degree: int) -> list[np.ndarray]:
    """What counts may be shares of, float64[runs] each: all loops together, then those of each law; where loops are
    few, all that is no loop."""
    fits = fit_laws(inputs, measured, max_degree, OTHERS, few=TIE)
    if not _are_most(fits.is_exact, measured[np.argmax(inputs)]):
        return [measured[:, ~fits.is_exact].sum(axis=1)]
    kinds = [fits.is_exact & (fits.chosen == law) for law in np.unique(fits.chosen[fits.is_exact]).tolist() if law]
    return [measured[:, which].sum(axis=1) for which in (fits.is_exact, *kinds)]


@dataclass(frozen=True)
class _Candidate:
    """One way to predict each of some series: ``at`` the input, mean squared ``error`` of leaving a point out,
    ``num_coefficients``, whether its law may be of a higher degree and whether it grows as the series itself."""

    at: Prediction
    error: np.ndarray
    num_coefficients: np.ndarray
    is_open: np.ndarray
    is_alike: np.ndarray


def _decisions_at(
    inputs: np.ndarray, counts: np.ndarray, loops: Sequence[np.ndarray], input_size: float, max_degree: int
) -> tuple[Prediction, np.ndarray]:
    """(counts [runs, series] at an input, bool[series]: which may be of a higher degree): by their own law where that
    is exact, else as a share of those ``loops`` that fit best, if these grow otherwise RIVAL times as well. Their own
    law, if clearly better, takes the place of these; what fits almost as well widens the band."""
    own = fit_laws(inputs, counts, max_degree, OTHERS, few=TIE)
    yes = np.ones(counts.shape[1], bool)
    found = [_Candidate(own.at(input_size), own.chosen_error, own.num_coefficients, own.is_at_bound, yes)]
    for loop in loops:
        if loop.min() > 0:
            of_loop = fit_laws(inputs, loop[:, None], max_degree, OTHERS, few=TIE)
            shared = fit_laws(1 / inputs, counts / loop[:, None], MAX_SHARE_DEGREE)
            at, share = (_above_zero(each) for each in (of_loop.at(input_size), shared.at(1 / input_size)))
            whole = Prediction(share.value * at.value, share.low * at.low, share.high * at.high)
            is_alike = own.chosen == of_loop.chosen[0]
            is_open = yes & of_loop.is_at_bound
            found.append(_Candidate(whole, shared.scaled_error(loop), shared.num_coefficients, is_open, is_alike))
    series = np.arange(counts.shape[1])
    error, number = (np.array(each) for each in zip(*((one.error, one.num_coefficients) for one in found), strict=True))
    best = np.zeros(counts.shape[1], np.int64)
    if len(found) > 1:
        best = 1 + np.argmin([one.error * np.where(one.is_alike, 1, RIVAL) for one in found[1:]], axis=0)
        clearly = clearly_better(len(inputs), number[0], number[best, series])
        best[own.is_exact | (clearly * error[0] < error[best, series])] = 0
    is_near = (error <= RIVAL * error[best, series]) & ~own.is_exact
    is_near[best, series] = True
    low = np.where(is_near, [one.at.low for one in found], np.inf).min(axis=0)
    high = np.where(is_near, [one.at.high for one in found], -np.inf).max(axis=0)
    value = np.array([one.at.value for one in found])[best, series]
    return Prediction(value, low, high), np.array([one.is_open for one in found])[best, series]


def _above_zero(prediction: Prediction) -> Prediction:
    return Prediction(*(np.maximum(each, 0) for each in (prediction.value, prediction.low, prediction.high)))


def shares_at(
    parts: Sequence[Part],
    site: np.ndarray,
    inputs: np.ndarray,
    accesses: np.ndarray,
    total: np.ndarray,
    input_size: float,
    keeps_counts: bool,
    max_count_degree: int,
) -> Prediction:
    """Each part's share of its site's accesses (``accesses`` [runs, sites], ``total`` [sites] at the input); those of a
    site add up to 1."""
    value, low, high = np.zeros((3, len(parts)))
    is_count = np.zeros(len(parts), bool)
    scale, at = (1 / inputs, 1 / input_size) if keeps_counts else (inputs, input_size)
    for runs, series in _alike(_used(parts, len(inputs))):
        counts = np.column_stack([parts[i].counts for i in series])
        measured = counts / accesses[np.ix_(runs, site[series])]
        if len(runs) < FEWEST_POINTS:
            value[series], high[series] = measured[nearest_run(inputs[runs], input_size)], 1
            continue
        its = fit_laws(scale[runs], measured, MAX_SHARE_DEGREE).at(at)
        value[series], low[series], high[series] = its.value, its.low, its.high
        if keeps_counts:
            fits = fit_laws(inputs[runs], counts, max_count_degree, OTHERS, few=1 / TIE)
            is_kept = fits.is_exact | np.array([parts[i].is_cold for i in series])
            kept, count = series[is_kept], fits.at(input_size)
            is_count[kept] = True
            for share, each in ((value, count.value), (low, count.low), (high, count.high)):
                share[kept] = each[is_kept] / total[site[kept]]
    value, low, high = (np.clip(each, 0, 1) for each in (value, low, high))
    for otherwise in (high, np.ones_like(high)):  # of sites none of whose parts is left
        value = np.where(np.bincount(site, value)[site] > 0, value, otherwise)
    value = _adding_up(site, value, is_count)
    return Prediction(value, np.minimum(low, value), np.maximum(high, value))


def distances_at(
    parts: Sequence[Part], inputs: np.ndarray, input_size: float, max_degree: int
) -> tuple[list[list[np.ndarray]], np.ndarray]:
    """(each part's distances at an input, as predicted, low and high: whole numbers int64[bins]; bool[parts]: whether
    they may be of a higher degree)."""
    result: list[list[np.ndarray]] = [[np.empty(0)] * len(parts) for _ in range(3)]
    is_open = np.zeros(len(parts), bool)
    for runs, series in _alike(_used(parts, len(inputs))):
        values = np.concatenate([parts[i].distances for i in series], axis=1)
        bounds = np.cumsum([0] + [parts[i].distances.shape[1] for i in series])
        if len(runs) < FEWEST_POINTS:
            known = values[nearest_run(inputs[runs], input_size)]
            at = Prediction(known, np.zeros_like(known), np.full_like(known, np.inf))
            bin_is_open = np.ones(values.shape[1], bool)
        else:
            fits = fit_laws(inputs[runs], values, max_degree, OTHERS)
            at, bin_is_open = fits.at(input_size), fits.is_at_bound
        for j, i in enumerate(series):
            bins = slice(bounds[j], bounds[j + 1])
            least = COLD if parts[i].is_cold else 0
            for k, each in enumerate((at.value, at.low, at.high)):
                result[k][i] = np.rint(np.clip(each[bins], least, MOST)).astype(np.int64)
            is_open[i] = bin_is_open[bins].mean() > 0.5
    return result, is_open


def band_of_shares(site: np.ndarray, distance: np.ndarray, shares: Prediction) -> tuple[np.ndarray, ...]:
    """Shares as predicted, with as much as the band allows of the near parts (by mean ``distance``), and of the far."""
    result = [shares.value]
    for order in (np.lexsort((distance, site)), np.lexsort((-distance, site))):
        least = np.bincount(site, shares.low)
        low = shares.low / np.maximum(least, 1)[site]
        extra = (shares.high - shares.low)[order]
        before = np.cumsum(extra) - extra
        first = np.concatenate(([True], np.diff(site[order]) != 0))
        before -= np.maximum.accumulate(np.where(first, before, 0))
        filled = low.copy()
        filled[order] += np.clip(np.maximum(1 - least, 0)[site[order]] - before, 0, extra)
        result.append(filled)
    return tuple(result)


def _are_most(which: np.ndarray, counts: np.ndarray) -> bool:
    return bool(counts[which].sum() >= counts.sum() / 2 > 0)


def nearest_run(inputs: np.ndarray, input_size: float) -> int:
    """The index of the input that is nearest to ``input_size``."""
    return int(np.argmin(np.abs(inputs - input_size)))


def neighbours(is_there: np.ndarray, nearest: int) -> np.ndarray:
    """bool[runs, series]: the runs around ``nearest`` in which a series of ``is_there`` bool[runs, series] goes on
    without a break."""
    result = is_there.copy()
    for i in range(nearest - 1, -1, -1):
        result[i] &= result[i + 1]
    for i in range(nearest + 1, len(result)):
        result[i] &= result[i - 1]
    return result


def _alike(used: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(indices of runs, indices of series) for every set of runs that series of ``used`` bool[runs, series] share."""
    sets, which = np.unique(used, axis=1, return_inverse=True)
    for i in range(sets.shape[1]):
        yield np.flatnonzero(sets[:, i]), np.flatnonzero(which.ravel() == i)


def _used(parts: Sequence[Part], num_runs: int) -> np.ndarray:
    """bool[runs, parts]: the runs that each part is predicted from."""
    result = np.zeros((num_runs, len(parts)), bool)
    for i, part in enumerate(parts):
        result[part.runs, i] = True
    return result


def _adding_up(site: np.ndarray, share: np.ndarray, is_count: np.ndarray) -> np.ndarray:
    """Shares that add up to 1 for each site: those that ``is_count`` stay if they can, the others divide the rest."""
    counted, others = np.bincount(site, share * is_count), np.bincount(site, share * ~is_count)
    is_full = (counted > 1) | ((others == 0) & (counted > 0))
    of_counted = np.where(is_full, 1 / np.maximum(counted, TINY), 1.0)
    of_others = np.maximum(1 - counted, 0) / np.maximum(others, TINY)
    return share * np.where(is_count, of_counted[site], of_others[site])
