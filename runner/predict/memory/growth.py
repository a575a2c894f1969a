"""How distances of blocks grow with the input: what was traced, and the extrapolation's curve through and beyond it.

AMM's figure 4 (right) draws bins of the growing distances of a block; here a block's accesses, in the order of their
distances, are cut into fourths, and each fourth's mean distance is a line. First uses, which have none, are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from manyscale.models.memory.amm.profile_extrapolation import extrapolate
from manyscale.models.memory.reuse_profile import COLD, ReuseProfile
from manyscale.runner.predict.memory.predict_result import RECIPES, PredictResult

NUM_PARTS: Final = 4
NUM_POINTS: Final = 16  # of a curve
MOST_BLOCKS: Final = 20  # that growth is looked for in
LEAST_GROWTH: Final = 1.05  # of a part's mean distance, from the smallest traced input to the largest predicted one


@dataclass(frozen=True)
class Growth:
    """Mean distances (float64[], in lines) of one fourth (0 the nearest) of a block's accesses, against the input.

    ``traced_sizes`` and ``traced``: measured at the runs that execute the block. ``sizes``, ``value``, ``low`` and
    ``high``: the extrapolation with its band.
    """

    block: int
    fourth: int
    traced_sizes: np.ndarray
    traced: np.ndarray
    sizes: np.ndarray
    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


def mean_distances(profile: ReuseProfile) -> np.ndarray:
    """float64[4]: the mean distance of each fourth of a profile's accesses in the order of their distances; NaN without
    any. O(entries log entries)."""
    used = profile.distance != COLD
    order = np.argsort(profile.distance[used], kind="stable")
    distance, count = profile.distance[used][order].astype(np.float64), profile.count[used][order]
    total = count.sum()
    if not total > 0:
        return np.full(NUM_PARTS, np.nan)
    until = np.concatenate(([0.0], np.cumsum(count)))
    summed = np.concatenate(([0.0], np.cumsum(distance * count)))
    cuts = np.interp(np.linspace(0, until[-1], NUM_PARTS + 1), until, summed)
    return np.diff(cuts) * NUM_PARTS / total


def by_block(result: PredictResult, profile: ReuseProfile) -> ReuseProfile:
    """An extrapolated profile by block."""
    is_by_site = RECIPES[result.recipe].by_site
    return profile.relabelled(result.training.sites.block) if is_by_site else profile


def growing_parts(result: PredictResult, num_blocks: int) -> list[Growth]:
    """The fourths that grow, of the ``num_blocks`` blocks with most accesses at the largest predicted input that have
    any."""
    blocks = blocks_by_accesses(result)[:MOST_BLOCKS]
    curves = {
        float(size): means for size in curve_sizes(result) if (means := _extrapolated(result, blocks, size)) is not None
    }
    traced = {run.input_size: run.profile.relabelled(result.training.sites.block) for run in result.runs}
    found: list[Growth] = []
    for row, block in enumerate(blocks):
        measured = {size: mean_distances(profile.of_site(block)) for size, profile in traced.items()}
        for fourth in range(NUM_PARTS):
            known = {size: means[fourth] for size, means in measured.items() if np.isfinite(means[fourth])}
            curve = {
                size: means[:, row, fourth] for size, means in curves.items() if np.isfinite(means[0, row, fourth])
            }
            if known and curve and _grows(known, curve):
                found.append(Growth(block, fourth, *_columns(known), *_columns(curve)))
        if len({each.block for each in found}) == num_blocks:
            break
    return found


def _grows(traced: Mapping[float, float], curve: Mapping[float, np.ndarray]) -> bool:
    return bool(curve[max(curve)][0] > max(LEAST_GROWTH * traced[min(traced)], 1.0))


def _columns(by_size: Mapping[float, Any]) -> list[np.ndarray]:
    """Sizes, and the values of each column."""
    return [np.array(list(by_size), np.float64), *np.array(list(by_size.values())).reshape(len(by_size), -1).T]


def blocks_by_accesses(result: PredictResult) -> list[int]:
    """Blocks by their accesses at the largest predicted input, most first."""
    largest = by_block(result, result.predictions[-1].extrapolation.profile)
    count = np.bincount(largest.site, largest.count)
    return [block for block in np.argsort(-count, kind="stable").tolist() if count[block] > 0]


def curve_sizes(result: PredictResult) -> list[int]:
    """Inputs from the smallest traced to the largest predicted one, alike modulo a line's elements of 8 B."""
    smallest, largest = round(result.runs[0].input_size), result.predictions[-1].size
    step = max(1, result.runs[0].profile.granularity_bytes // 8)
    if largest <= smallest + step:
        return [largest]
    between = np.geomspace(smallest, largest, NUM_POINTS)
    return sorted({max(largest - step * round((largest - x) / step), 1) for x in between.tolist()})


def _extrapolated(result: PredictResult, blocks: list[int], size: int) -> np.ndarray | None:
    """float64[3, blocks, 4] at an input: extrapolated value, low and high; None where nothing can be said."""
    try:
        grown = extrapolate(result.runs, result.training.sites.block, size, RECIPES[result.recipe])
    except ValueError:
        return None
    profiles = [by_block(result, profile) for profile in (grown.profile, grown.shortest, grown.longest)]
    means = np.array([[mean_distances(profile.of_site(block)) for block in blocks] for profile in profiles])
    return np.array([means[0], means.min(axis=0), means.max(axis=0)])
