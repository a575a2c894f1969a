"""Block executions and reuse profiles of inputs that were never run, from those of a few small inputs.

Source: AMM, section 5.2. The executions of a block (eq. 3) are a function of the input size x. In a block's profile
the first distances stay as they are whatever the input (eq. 9), and those that grow are put in a fixed number of bins,
whose mean distance and probability are polynomials in x. Only blocks that matter are treated so (they hold
``significant_share`` of the accesses at x); the others keep the profile of the run nearest to x, scaled.

AMM_RECIPE is the source's: per block, five bins, polynomials up to the second degree. SITE_RECIPE, the default, differs
where that fails:

* Profiles are those of a block's single accesses (sites), each of which has few and sharp distances.
* Growing distances fall apart into groups where they leap; each group has its own probability and its own bins.
* A count that exactly follows a law of growth (``growth_laws``: a polynomial up to the third degree, n log n, ...) is
  predicted by it; so are first uses, exact or not. Else it is a share of the site's accesses, and that a polynomial in
  1/x, which tends to a limit, while one in x leaves [0, 1].

First uses (COLD) are a part that grows by itself. A site that some runs do not execute (another path through a library)
is predicted from the neighbouring runs that do, if the run nearest to x does; else it is not executed at x.

Assumptions: one number x describes an input. Inputs are alike modulo the elements of a unit, or else alignment makes
profiles rise and fall between them. The law of the runs holds on to x. ``notes`` of the result say where these are in
doubt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.memory.amm.growth_laws import FEWEST_POINTS, Prediction
from manyscale.models.memory.amm.part_trends import (
    MOST,
    TINY,
    band_of_shares,
    counts_at,
    deepest_loop,
    distances_at,
    nearest_run,
    neighbours,
    shares_at,
)
from manyscale.models.memory.amm.profile_parts import Part, parts_of_site
from manyscale.models.memory.amm.sdcm import Geometry, hit_rate
from manyscale.models.memory.reuse_profile import COLD, ReuseProfile
from manyscale.models.workload.notes import Note, changes

FAR: Final = 16.0  # times the largest input
NOTED_SHARE: Final = 0.01  # of all accesses; less is not worth a note
WIDE: Final = 0.25  # of all accesses: a band that is worth a note
HIGHEST_DEGREE: Final = "whose polynomial is of the highest degree tried and not exact; more inputs would tell"


@dataclass(frozen=True)
class TrainingRun:
    """What a run on an input of ``input_size`` did. ``executions`` int64[blocks] of each block; ``profile`` by site.
    Blocks and sites are numbered alike in all runs."""

    input_size: float
    executions: np.ndarray
    profile: ReuseProfile


@dataclass(frozen=True)
class Recipe:
    """How profiles are extrapolated. ``by_site``: of each site, else of each block. ``splits_groups``: where distances
    leap. ``keeps_counts``: exact counts stay counts, and other shares are polynomials in 1/x, not in x."""

    by_site: bool
    num_bins: int
    splits_groups: bool
    keeps_counts: bool
    max_distance_degree: int = 2
    max_count_degree: int = 3
    significant_share: float = 0.999


AMM_RECIPE: Final = Recipe(by_site=False, num_bins=5, splits_groups=False, keeps_counts=False)
SITE_RECIPE: Final = Recipe(by_site=True, num_bins=100, splits_groups=True, keeps_counts=True)


@dataclass(frozen=True)
class HitRate:
    """Hits over all accesses, and the ends of its band."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Extrapolation:
    """What a run on ``input_size`` is predicted to do.

    ``executions``, ``fewest_executions``, ``most_executions`` int64[blocks]. ``profile``: by site (by block with a
    recipe per block). ``shortest`` and ``longest``: profiles of the same accesses per site with the shortest and the
    longest distances that go with the runs; how bins blur distances is not in them. ``notes``: why errors may be larger
    than that.
    """

    input_size: float
    executions: np.ndarray
    fewest_executions: np.ndarray
    most_executions: np.ndarray
    profile: ReuseProfile
    shortest: ReuseProfile
    longest: ReuseProfile
    notes: tuple[Note, ...]

    def hit_rate(self, geometry: Geometry) -> HitRate:
        """The hit rate of a cache whose lines are the units of the profile (SDCM). O(entries log entries)."""
        rates = [hit_rate(each, geometry) for each in (self.profile, self.shortest, self.longest)]
        return HitRate(rates[0], min(rates), max(rates))


def extrapolate(
    runs: Sequence[TrainingRun],
    site_block: np.ndarray,
    input_size: float,
    recipe: Recipe = SITE_RECIPE,
    element_bytes: int = 8,
) -> Extrapolation:
    """What a run on ``input_size`` would do.

    ``site_block`` int32[sites]: block of each site. ``element_bytes``: size of what x counts; inputs should be alike
    modulo the elements of a unit. Raises ValueError for fewer than FEWEST_POINTS runs, two of the same input, inputs
    that are not positive, runs of different blocks or granularities, counts that are negative or not finite, and where
    no block is left at x. O(runs x entries log entries + series x runs^2), with 1 + bins series for each growing group.
    """
    site_block = np.asarray(site_block)
    _check(runs, site_block, input_size)
    runs = sorted(runs, key=lambda run: run.input_size)
    inputs = np.array([run.input_size for run in runs], np.float64)
    nearest = nearest_run(inputs, input_size)
    profiles = [run.profile if recipe.by_site else run.profile.relabelled(site_block) for run in runs]
    num_sites = len(site_block) if recipe.by_site else len(runs[0].executions)
    accesses = np.array([np.bincount(each.site, each.count, num_sites) for each in profiles])
    executed = np.array([run.executions for run in runs], np.float64)
    executions, _ = counts_at(inputs, executed, input_size, recipe.max_count_degree)
    totals, count_is_open = counts_at(inputs, accesses, input_size, recipe.max_count_degree)
    total = totals.value
    if not total.any():
        raise ValueError(f"no access is left at an input of {input_size:g}; add runs of inputs nearer to it")

    is_significant = _significant(total, recipe.significant_share)
    parts: list[Part] = []
    for site in np.flatnonzero(is_significant).tolist():
        used = np.flatnonzero(neighbours(accesses[:, [site]] > 0, nearest)[:, 0])
        its = [profiles[i].of_site(site) for i in used]
        place = int(np.searchsorted(used, nearest))
        parts += parts_of_site(site, its, used, place, recipe.num_bins, recipe.splits_groups)
    of_part = np.array([part.site for part in parts])
    degree = deepest_loop(inputs, accesses, recipe.max_count_degree)
    shares = shares_at(parts, of_part, inputs, accesses, total, input_size, recipe.keeps_counts, degree)
    distances, distance_is_open = distances_at(parts, inputs, input_size, recipe.max_distance_degree)
    rest = _scaled(profiles[nearest], np.where(is_significant, 0, total) / np.maximum(accesses[nearest], TINY))
    mean_distance = np.array(
        [np.inf if part.is_cold else its.mean() for part, its in zip(parts, distances[0], strict=True)]
    )
    whole = []
    for share, their in zip(band_of_shares(of_part, mean_distance, shares), distances, strict=True):
        counts = share * total[of_part]
        most = _most_units(parts, profiles, counts, rest)
        whole.append(_assembled(parts, counts, [np.minimum(each, most) for each in their], rest))
    notes = _notes_on_inputs(inputs, input_size, rest.granularity_bytes // element_bytes)
    notes += _notes_on_sites(totals, np.asarray((accesses > 0).all(axis=0)), count_is_open)
    notes += _notes_on_parts(shares.value * total[of_part] / total.sum(), parts, distance_is_open)
    return Extrapolation(
        input_size,
        executions=executions.value.astype(np.int64),
        fewest_executions=executions.low.astype(np.int64),
        most_executions=executions.high.astype(np.int64),
        profile=whole[0],
        shortest=whole[1],
        longest=whole[2],
        notes=tuple(notes),
    )


def _check(runs: Sequence[TrainingRun], site_block: np.ndarray, input_size: float) -> None:
    if len(runs) < FEWEST_POINTS:
        raise ValueError(
            f"profiles of {len(runs)} inputs cannot be extrapolated: a straight line and one point to judge it by need "
            f"at least {FEWEST_POINTS}, counts that grow with the third power 5"
        )
    inputs = [run.input_size for run in runs]
    if not all(np.isfinite(each) and each > 0 for each in [*inputs, input_size]):
        raise ValueError(f"inputs {', '.join(f'{each:g}' for each in inputs)} to {input_size:g} are not all positive")
    if len(set(inputs)) < len(inputs):
        twice = next(each for each in inputs if inputs.count(each) > 1)
        raise ValueError(f"there are {inputs.count(twice)} runs of an input of {twice:g}; give one of them")
    if len({len(run.executions) for run in runs}) > 1 or len({run.profile.granularity_bytes for run in runs}) > 1:
        raise ValueError("runs have different numbers of blocks, or profiles of different granularities")
    if len(site_block) and not 0 <= site_block.min() <= site_block.max() < len(runs[0].executions):
        raise ValueError(f"site_block names blocks outside the {len(runs[0].executions)} of the runs")
    for run in runs:
        for name, count in (("executions", run.executions), ("profile", run.profile.count)):
            if not np.isfinite(count).all() or (len(count) and np.min(count) < 0):
                raise ValueError(f"{name} of the run on input {run.input_size:g} have negative or infinite counts")
        if len(run.profile.site) and not 0 <= run.profile.site.min() <= run.profile.site.max() < len(site_block):
            raise ValueError(f"the profile of the run on input {run.input_size:g} has sites outside site_block")
        if not len(run.profile.site):
            raise ValueError(f"the profile of the run on input {run.input_size:g} is empty")


def _significant(total: np.ndarray, share: float) -> np.ndarray:
    """bool[sites]: the fewest sites that hold a share of all accesses."""
    order = np.argsort(-total, kind="stable")
    before = np.cumsum(total[order]) - total[order]
    result = np.zeros(len(total), bool)
    result[order] = (before < share * total.sum()) & (total[order] > 0)
    return result


def _scaled(profile: ReuseProfile, factor: np.ndarray) -> ReuseProfile:
    """The profile with each site's counts times ``factor`` float64[sites]."""
    count = profile.count * factor[profile.site]
    return ReuseProfile.of(profile.granularity_bytes, profile.site, profile.distance, count)


def _most_units(parts: list[Part], profiles: list[ReuseProfile], counts: np.ndarray, rest: ReuseProfile) -> float:
    """The largest distance there can be: one below the number of units, which is that of first uses where the runs
    began with none in the stack."""
    if any(each.distance.max() >= each.count[each.distance == COLD].sum() for each in profiles):
        return MOST
    cold = sum(count for part, count in zip(parts, counts, strict=True) if part.is_cold)
    return max(np.rint(cold + rest.count[rest.distance == COLD].sum()) - 1, 0)


def _assembled(parts: list[Part], counts: np.ndarray, distances: list[np.ndarray], rest: ReuseProfile) -> ReuseProfile:
    """The profile of the parts, whose ``counts`` their ``distances`` share equally, and of the other sites."""
    num_bins = [len(each) for each in distances]
    site = np.repeat([part.site for part in parts], num_bins)
    count = np.repeat(counts / num_bins, num_bins)
    return ReuseProfile.of(
        rest.granularity_bytes,
        np.concatenate((site, rest.site)),
        np.concatenate((*distances, rest.distance)),
        np.concatenate((count, rest.count)),
    )


def _notes_on_inputs(inputs: np.ndarray, input_size: float, unit_elements: int) -> list[Note]:
    notes = []
    if unit_elements > 1:
        others = [each for each in inputs if (each - input_size) % unit_elements]
        if others:
            text = (
                f"inputs {', '.join(f'{each:g}' for each in others)} are not congruent to {input_size:g} modulo the "
                f"{unit_elements} elements of a unit; their alignment differs, and with it their profiles"
            )
            notes.append(changes("inputs-not-congruent", text, count=len(others)))
    if input_size > FAR * inputs[-1]:
        text = (
            f"an input of {input_size:g} is {input_size / inputs[-1]:.3g} times the largest that was run; counts, "
            "distances and caches may follow other laws there"
        )
        notes.append(changes("far-extrapolation", text))
    return notes


def _notes_on_sites(totals: Prediction, is_always: np.ndarray, is_open: np.ndarray) -> list[Note]:
    notes, total = [], totals.value
    least, most = totals.low.sum(), totals.high.sum()
    if most - least > WIDE * total.sum():
        text = f"the inputs leave open whether there are {least:,.0f} or {most:,.0f} accesses; more inputs would tell"
        notes.append(changes("growth-open", text))
    rare, open_ones = (float(total[which].sum() / total.sum()) for which in (~is_always, is_open))
    if rare > NOTED_SHARE:
        text = f"{rare:.1%} of the accesses are by code that some of the runs do not execute"
        notes.append(changes("code-not-always-run", text))
    if open_ones > NOTED_SHARE:
        notes.append(changes("growth-not-settled", f"{open_ones:.1%} of the accesses have counts {HIGHEST_DEGREE}"))
    return notes


def _notes_on_parts(share: np.ndarray, parts: list[Part], is_open: np.ndarray) -> list[Note]:
    open_share = float(share[is_open].sum())
    if open_share <= NOTED_SHARE:
        return []
    return [changes("growth-not-settled", f"{open_share:.1%} of the accesses have distances {HIGHEST_DEGREE}")]
