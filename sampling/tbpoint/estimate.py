"""What all launches take by those that were simulated, how far that may be off, and how many more make it closer.

One representative for each cluster: Table IV of TBPoint (IPDPS 2014): the representative's cycles per instruction times
the cluster's instructions. It says nothing of how much launches of a cluster differ: there is no interval.

Launches drawn at random, spread over their cluster (stratified sampling; Cochran, "Sampling Techniques", 3rd ed.,
chapters 2 and 5): N_k launches of cluster k times the mean cycles of the n_k drawn ones. It is unbiased whatever cycles
depend on; clusters are too narrow for instructions to tell much more, except where launches are small, and there the
cycles per instruction of one of them may be far from the others'. Variance (eq. 5.8): sum of N_k^2 (1 - n_k/N_k) s_k^2
/ n_k; Student's t with Satterthwaite's degrees of freedom (Cochran 5.4). It is that of draws which are not spread:
where cycles follow the order, the interval is wider than need be (Cochran 8.5).

* Few draws from a cluster may miss that cycles leap inside it (one block more than the GPU holds takes another round).
  But then its neighbours lie on both sides of the leap. If one of height D lies anywhere between the centres of two
  clusters d apart, it is in a cluster of width w with probability w / d, and makes its variance D^2/6 on average. The
  larger of D^2 w / 6 d for the two nearest clusters of the kernel is joined with s_k^2 as if it had been observed with
  PRIOR_FREEDOM degrees of freedom. A cluster whose launches all have the same features has no width: none is added.
* s_k^2 of a cluster of which one launch was drawn is that or, if more, borrowed: the mean of the others' weighted by
  their degrees of freedom, of absolute cycles (the threshold is a share of the kernel's mean launch) or relative to the
  mean squared, whichever is more. If there are none to borrow from, nothing is known and the interval is infinite.
* Where the drawn launches were themselves sampled, with variance u of their cycles, (N_k / n_k sum(sqrt(u)))^2 is
  added. Cochran's eq. 10.14 has N_k / n_k sum(u), for errors that are independent; those of skipped blocks lean one way
  (those of ten of CFD's 102 launches together 1.5 %).

Assumption: means are nearly normal. With few draws from a skewed cluster (one launch among many that is much longer)
the interval is too narrow, as any is that has not seen that launch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from manyscale.sampling.tbpoint.launches import LaunchSample, draw

PRIOR_FREEDOM: Final = 2.0


@dataclass(frozen=True)
class LaunchEstimate:
    """``total_cycles`` +- ``half_width_cycles`` holds the sum over all launches with ``confidence`` (NaN: not known);
    ``standard_error_cycles`` with ``degrees_of_freedom``. ``launch_cycles`` float64[launches]: of those simulated what
    they took, of the others an estimate; they sum to the total. ``instruction_share``: simulated."""

    confidence: float
    total_cycles: float
    half_width_cycles: float
    standard_error_cycles: float
    degrees_of_freedom: float
    launch_cycles: np.ndarray
    launch_share: float
    instruction_share: float

    @property
    def relative_half_width(self) -> float:
        return self.half_width_cycles / self.total_cycles if self.total_cycles else 0.0


def estimate(
    sample: LaunchSample,
    warp_instructions: np.ndarray,
    chosen_cycles: np.ndarray,
    chosen_variance: np.ndarray | None = None,
    confidence: float = 0.95,
) -> LaunchEstimate:
    """``warp_instructions`` [launches]; ``chosen_cycles`` [chosen], and their variance where they are estimates. O(n).

    Raises ValueError for arrays that do not fit, cycles that are negative or not finite, and a confidence not between 0
    and 1."""
    cycles = np.asarray(chosen_cycles, np.float64)
    own_variance = np.zeros(len(cycles)) if chosen_variance is None else np.asarray(chosen_variance, np.float64)
    _check(sample, warp_instructions, cycles, own_variance, confidence)
    instructions = np.asarray(warp_instructions, np.float64)
    of_chosen = sample.cluster[sample.chosen]
    mean = np.bincount(of_chosen, cycles, sample.num_clusters) / sample.num_chosen
    launch_cycles = mean[sample.cluster]
    if sample.is_drawn:
        error, freedom = _error(sample, cycles, own_variance)
    else:
        sampled = np.bincount(of_chosen, instructions[sample.chosen], sample.num_clusters) / sample.num_chosen
        known = sampled[sample.cluster] > 0
        launch_cycles[known] *= (instructions / np.maximum(sampled, 1)[sample.cluster])[known]
        is_census = len(sample.chosen) == len(sample.cluster)
        error, freedom = (float(np.sqrt(own_variance).sum()), np.inf) if is_census else (np.nan, np.nan)
    launch_cycles[sample.chosen] = cycles
    total = float(sample.cluster_sizes @ mean if sample.is_drawn else launch_cycles.sum())
    return LaunchEstimate(
        confidence=confidence,
        total_cycles=total,
        half_width_cycles=float(_quantile(freedom, confidence) * error) if error else 0.0,
        standard_error_cycles=error,
        degrees_of_freedom=freedom,
        launch_cycles=launch_cycles,
        launch_share=len(sample.chosen) / len(sample.cluster),
        instruction_share=float(instructions[sample.chosen].sum() / max(instructions.sum(), 1.0)),
    )


def more(sample: LaunchSample, chosen_cycles: np.ndarray, aim: float, confidence: float = 0.95) -> LaunchSample:
    """The same sample with as many more launches as should bring the relative half-width down to ``aim``, most where
    launches differ most (Neyman's allocation; Cochran 5.5 and 5.9), with Student's t of what is known so far (Stein,
    1945). The sample itself where it is there already.

    To draw until an interval is narrow enough makes it hold the truth a little less often than it says. Raises
    ValueError for a sample that was not drawn at random, and for an aim that is not above 0."""
    if not sample.is_drawn:
        raise ValueError("only samples with several representatives can be enlarged (representatives: auto)")
    if not aim > 0:
        raise ValueError(f"the aim is {aim}; it must be a relative half-width above 0")
    cycles = np.asarray(chosen_cycles, np.float64)
    spread = _spread(sample, cycles)
    if not np.all(np.isfinite(spread.variance)):
        return sample
    found = estimate(sample, np.ones(len(sample.cluster)), cycles, confidence=confidence)
    if found.half_width_cycles <= aim * found.total_cycles:
        return sample
    error = aim * found.total_cycles / _quantile(found.degrees_of_freedom, confidence)
    wanted = _allocate(sample.cluster_sizes, np.sqrt(spread.variance), error**2)
    how_many = np.maximum(sample.num_chosen, wanted)
    return replace(sample, chosen=draw(sample.cluster, how_many, sample.seed, sample.order))


def _allocate(size: np.ndarray, deviation: np.ndarray, variance: float) -> np.ndarray:
    """int64[strata]: draws for a total of that variance. Strata of which more were needed than there are, are taken
    whole, and the others looked at again."""
    whole = deviation == 0
    number = np.where(whole, 1, 0)
    while not np.all(whole):
        rest = ~whole
        weight = size[rest] * deviation[rest]
        exact = weight * weight.sum() / (variance + float(size[rest] @ deviation[rest] ** 2))
        number[rest] = np.minimum(np.ceil(exact), size[rest])
        over = np.flatnonzero(rest)[exact > size[rest]]
        if not len(over):
            break
        whole[over] = True
    return number


def _check(
    sample: LaunchSample, instructions: np.ndarray, cycles: np.ndarray, variance: np.ndarray, confidence: float
) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; it must lie between 0 and 1")
    if len(instructions) != len(sample.cluster):
        raise ValueError(f"{len(instructions)} numbers of instructions for {len(sample.cluster)} launches")
    if not len(cycles) == len(variance) == len(sample.chosen):
        raise ValueError(
            f"{len(cycles)} numbers of cycles and {len(variance)} variances for {len(sample.chosen)} launches"
        )
    for values, what in ((cycles, "cycles"), (variance, "a variance of cycles")):
        wrong = ~(np.isfinite(values) & (values >= 0))
        if np.any(wrong):
            row = int(np.argmax(wrong))
            raise ValueError(f"launch {sample.chosen[row]} has {what} of {values[row]}; it must be 0 or more")


@dataclass(frozen=True)
class _Spread:
    """Per cluster: mean cycles of the drawn launches; variance and its degrees of freedom (NaN: nothing is known);
    ``is_borrowed`` from the other clusters, which share its degrees of freedom."""

    mean: np.ndarray
    variance: np.ndarray
    freedom: np.ndarray
    is_borrowed: np.ndarray


def _spread(sample: LaunchSample, cycles: np.ndarray) -> _Spread:
    of_chosen = sample.cluster[sample.chosen]
    number = sample.num_chosen
    mean = np.bincount(of_chosen, cycles, sample.num_clusters) / number
    squares = np.bincount(of_chosen, (cycles - mean[of_chosen]) ** 2, sample.num_clusters)
    freedom = number - 1.0
    shared = float(freedom.sum())
    with np.errstate(invalid="ignore", divide="ignore"):
        absolute = squares.sum() / shared
        relative = np.where(mean > 0, squares / mean**2, 0.0).sum() / shared
    borrowed = np.maximum(absolute, relative * mean**2)
    leaps = _leaps(sample, mean)
    prior = np.where(leaps > 0, PRIOR_FREEDOM, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        joined = (squares + prior * leaps) / (freedom + prior)
    is_borrowed = (number == 1) & (sample.cluster_sizes > 1) & ~(leaps > borrowed)
    variance = np.where(is_borrowed, borrowed, np.where(sample.cluster_sizes > 1, joined, 0.0))
    return _Spread(mean, variance, np.where(is_borrowed, shared, freedom + prior), is_borrowed)


def _leaps(sample: LaunchSample, mean: np.ndarray) -> np.ndarray:
    """float64[clusters]: variance to be expected in each of leaps between its neighbours' means."""
    from scipy.spatial import cKDTree

    features, size = sample.features, sample.cluster_sizes
    order = np.argsort(sample.cluster, kind="stable")
    begins = np.concatenate(([0], np.cumsum(size)[:-1]))
    low, high = (each.reduceat(features[order], begins) for each in (np.minimum, np.maximum))
    width = np.sqrt(((high - low) ** 2).sum(axis=1))
    centre = np.add.reduceat(features[order], begins) / size[:, None]
    kernel = sample.kernel[order[begins]]
    result = np.zeros(len(size))
    for one in np.unique(kernel[width > 0]):
        rows = np.flatnonzero(kernel == one)
        if len(rows) < 2:
            continue
        distance, near = cKDTree(centre[rows]).query(centre[rows], k=min(3, len(rows)))
        leap = mean[rows][near] - mean[rows][:, None]
        share = np.minimum(
            1.0, np.divide(width[rows][:, None], distance, out=np.zeros(distance.shape), where=distance > 0)
        )
        result[rows] = (leap**2 * share / 6).max(axis=1)
    return result


def _error(sample: LaunchSample, cycles: np.ndarray, own_variance: np.ndarray) -> tuple[float, float]:
    """Standard error of the total and its degrees of freedom."""
    size, number = sample.cluster_sizes, sample.num_chosen
    spread = _spread(sample, cycles)
    parts = np.where(number < size, size**2.0 * (1 - number / size) * spread.variance / number, 0.0)
    if np.any(np.isnan(parts)):
        return np.inf, 1.0
    within = float((size / number)[sample.cluster[sample.chosen]] @ np.sqrt(own_variance)) ** 2
    total = float(parts.sum())
    if total == 0:
        return float(np.sqrt(within)), np.inf
    is_own = ~spread.is_borrowed & (parts > 0)
    of_squares = float((parts[is_own] ** 2 / spread.freedom[is_own]).sum())
    if np.any(spread.is_borrowed):
        of_squares += float(parts[spread.is_borrowed].sum()) ** 2 / float(spread.freedom[spread.is_borrowed][0])
    return float(np.sqrt(total + within)), (total + within) ** 2 / of_squares


def _quantile(freedom: float, confidence: float) -> float:
    """Student's, two-sided."""
    from scipy.special import ndtri, stdtrit

    share = (1 + confidence) / 2
    return float(ndtri(share) if np.isinf(freedom) else stdtrit(freedom, share))
