"""Stratified random sampling: how many elements of each stratum, the estimate of a mean, and how sure it is.

Huang (Georgia Tech, 2015), section 5.3.3: optimal allocation (eq. 33), standard error with the correction for finite
populations (eq. 36), Student's t for the interval. Cochran, "Sampling techniques" (3rd ed., 1977), chapter 5, is what
these come from; eq. 37 as printed lacks a square.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class StratifiedEstimate:
    """``mean``, its ``standard_error``, and the ``low`` and ``high`` end of its interval; ``degrees`` of freedom (inf:
    deviations were known)."""

    mean: float
    standard_error: float
    low: float
    high: float
    degrees: float


def allocate(sizes: np.ndarray, deviations: np.ndarray, n: int) -> np.ndarray:
    """int64[strata]: of ``n`` elements, how many of each stratum (eq. 33: in proportion to size x deviation), at least
    two of each (one where it has but one) and at most all. Raises ValueError if ``n`` is too small for that.

    N = (100, 300), sigma = (4, 1), n = 14 gives (8, 6). Rests are given out by the largest remainder, so that the sum
    is n as long as the population has as many.
    """
    sizes = np.asarray(sizes, np.int64)
    least = np.minimum(2, sizes)
    if n < least.sum():
        raise ValueError(f"{n} elements are too few for {len(sizes)} strata: {least.sum()} are needed")
    n = min(int(n), int(sizes.sum()))
    wanted = sizes * np.asarray(deviations, np.float64)
    if not wanted.sum() > 0:
        wanted = sizes.astype(np.float64)
    count = least.copy()
    open_ = np.ones(len(sizes), bool)  # strata that are neither at their least nor at their most
    while True:
        left = n - count[~open_].sum()
        share = np.zeros(len(sizes))
        if open_.any():
            total = wanted[open_].sum()
            share[open_] = wanted[open_] / total * left if total > 0 else left / open_.sum()
        above = open_ & (share >= sizes)
        below = open_ & (share <= least)
        if above.any() and share[above].sum() - sizes[above].sum() >= (least[below] - share[below]).sum():
            count[above] = sizes[above]
            open_ &= ~above
        elif below.any():
            count[below] = least[below]
            open_ &= ~below
        else:
            break
        if not open_.any():
            break
    if open_.any():
        whole = np.floor(share[open_]).astype(np.int64)
        rest = int(n - count[~open_].sum() - whole.sum())
        order = np.argsort(-(share[open_] - whole), kind="stable")
        whole[order[:rest]] += 1
        count[open_] = whole
    room = sizes - count
    for stratum in np.argsort(-wanted, kind="stable"):  # what is left over where all others are full
        more = min(int(n - count.sum()), int(room[stratum]))
        count[stratum] += max(more, 0)
    return count


def second_phase(sizes: np.ndarray, pilot: list[np.ndarray], n: int) -> np.ndarray:
    """int64[strata]: how many of each stratum to have in all, after a ``pilot`` (values of at least two elements of
    each stratum, one where it has but one): ``allocate`` by the pilot's deviations, each halfway to that of all (in
    variances), as two elements that happen to be alike do not show that their stratum is. None below the pilot's own
    number, so that there may be more than n in all."""
    drawn = np.array([len(each) for each in pilot])
    return np.maximum(allocate(sizes, pilot_deviations(sizes, pilot), n), drawn)


def pilot_deviations(sizes: np.ndarray, pilot: list[np.ndarray]) -> np.ndarray:
    """float64[strata]: what a pilot says of the strata's deviations (``second_phase``)."""
    square = np.array([float(np.var(each, ddof=1)) if len(each) > 1 else 0.0 for each in pilot])
    return np.sqrt((square + float(np.average(square, weights=sizes))) / 2)


def estimate(
    sizes: np.ndarray,
    values: list[np.ndarray],
    confidence: float,
    deviations: np.ndarray | None = None,
    pooled: bool = False,
    share: np.ndarray | None = None,
) -> StratifiedEstimate:
    """The population's mean from ``values`` of the elements drawn in each stratum, of ``sizes`` int64[strata] elements.

    ``deviations`` float64[strata]: known ones (standard deviations of the population), for an interval of the normal
    distribution; without them those of the samples, and Student's t with Satterthwaite's degrees of freedom (Cochran,
    eq. 5.16). ``pooled``: each stratum's variance is joined by that of all strata as one degree of freedom more; for
    samples whose sizes came from their own deviations (``second_phase``), whose intervals are too narrow else.
    ``share`` float64[strata]: what strata weigh, sum 1, where that is not their share of the elements. A stratum whose
    elements are all drawn adds no error. Raises ValueError for a stratum of which nothing was drawn, or but one of
    several where no deviation is known.
    """
    sizes = np.asarray(sizes, np.float64)
    count = np.array([len(each) for each in values], np.float64)
    if np.any(count == 0):
        raise ValueError("nothing was drawn of a stratum")
    share = sizes / sizes.sum() if share is None else share
    mean = float(share @ [float(np.mean(each)) for each in values])
    whole = count >= sizes
    if deviations is None:
        if np.any((count < 2) & ~whole):
            raise ValueError("one element of a stratum says nothing of its deviation; draw two")
        square = np.array([float(np.var(each, ddof=1)) if len(each) > 1 else 0.0 for each in values])
        if pooled and np.any(count > 1):
            joint = float(square @ (count - 1) / (count - 1).sum())
            square = (square * (count - 1) + joint) / count
    else:
        corrected = np.where(sizes > 1, sizes / np.maximum(sizes - 1, 1), 1.0)
        square = np.asarray(deviations, np.float64) ** 2 * corrected
    parts = np.where(whole, 0.0, share**2 * (1 - count / sizes) * square / count)
    variance = float(parts.sum())
    error = float(np.sqrt(variance))
    if deviations is not None or variance == 0.0:
        degrees = np.inf
    else:
        own = count[~whole] - (0 if pooled else 1)
        degrees = variance**2 / float((parts[~whole] ** 2 / own).sum())
    from scipy.special import ndtri, stdtrit  # scipy.stats takes a second to load

    end = 0.5 + confidence / 2
    wide = float(stdtrit(degrees, end) if np.isfinite(degrees) else ndtri(end)) * error
    return StratifiedEstimate(mean, error, mean - wide, mean + wide, float(degrees))


def enough(sizes: np.ndarray, deviations: np.ndarray, mean: float, error: float, confidence: float) -> int:
    """The smallest number of elements, optimally allocated, whose interval of ``confidence`` is at most ``error`` (a
    share of ``mean``) to each side, known ``deviations`` given (eq. 36 solved by bisection, as allocation rounds)."""
    from scipy.special import ndtri

    sizes = np.asarray(sizes, np.int64)
    z = float(ndtri(0.5 + confidence / 2))
    low, high = int(np.minimum(2, sizes).sum()), int(sizes.sum())

    def suffices(n: int) -> bool:
        count = allocate(sizes, deviations, n)
        share = sizes / sizes.sum()
        square = np.asarray(deviations, np.float64) ** 2 * np.where(sizes > 1, sizes / np.maximum(sizes - 1, 1), 1.0)
        variance = float((share**2 * (1 - count / sizes) * square / count).sum())
        return z * np.sqrt(variance) <= error * abs(mean)

    if suffices(low):
        return low
    while high - low > 1:
        middle = (low + high) // 2
        if suffices(middle):
            high = middle
        else:
            low = middle
    return high
