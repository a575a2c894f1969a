"""Systematic samples inside sampling units: a unit that was chosen is not simulated whole but in short pieces.

Huang (Georgia Tech, 2015), section 5.3.3, proposes to combine SimProf with systematic sampling, since units of 100 M
instructions take long, and leaves open how. Here the pieces of a unit are SMARTS's (Wunderlich et al., ISCA 2003):
equally spaced from a random begin, short, each behind a stretch of warm-up that is not counted. Errors add up over two
stages, units within phases and pieces within units (Cochran, "Sampling techniques", 3rd ed., 1977, chapters 8 and 10):

    variance of a phase's mean = (1 - f) s1^2 / n + f / n^2 * sum of the units' own variances

with n of N units drawn, f = n / N, and s1 the deviation of the units' means as the pieces tell them, which holds most
of what is lost inside units. So the second term matters only where most units of a phase are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import stdtrit

from manyscale.sampling.stratified import StratifiedEstimate

Inside = Literal["successive", "random"]


def pieces(size: int, count: int, random: np.random.Generator) -> np.ndarray:
    """int64[count]: a systematic sample of ``size`` pieces, ascending. Each is drawn with probability count / size,
    also where the one is no multiple of the other (the spacing is then no whole number), so that means are unbiased.
    Raises ValueError for none or more than there are."""
    if not 1 <= count <= size:
        raise ValueError(f"{count} pieces cannot be drawn of {size}")
    places = np.floor((random.random() + np.arange(count)) * (size / count)).astype(np.int64)
    return np.minimum(places, size - 1)  # a begin next to 1 may be rounded up


def variance_of_pieces(values: np.ndarray, inside: Inside = "successive") -> float:
    """Of single pieces of a unit, from a systematic sample of two at least. ``random``: as if they were drawn at
    random, as SMARTS has it, too large where neighbours are alike; ``successive``: by differences of neighbours, which
    a trend hardly touches (Cochran, chapter 8; neither is unbiased, since only one begin is drawn)."""
    if len(values) < 2:
        raise ValueError("one piece of a unit says nothing of its deviation; draw two")
    if inside == "random":
        return float(np.var(values, ddof=1))
    return float((np.diff(values) ** 2).sum() / (2 * (len(values) - 1)))


def variance_inside(values: np.ndarray, size: int, inside: Inside = "successive") -> float:
    """Of the mean of a systematic sample ``values`` of ``size`` pieces, in their order: 0 if these are all."""
    count = len(values)
    return 0.0 if count >= size else (1 - count / size) * variance_of_pieces(values, inside) / count


def estimate(
    sizes: np.ndarray,
    values: Sequence[Sequence[np.ndarray]],
    inner_size: int,
    confidence: float,
    inside: Inside = "successive",
) -> StratifiedEstimate:
    """The population's mean from ``values`` [phase][unit drawn] float64[pieces drawn, in order] of units that have
    ``inner_size`` pieces each, in phases of ``sizes`` int64[phases] units.

    The interval is Student's, with Satterthwaite's degrees of freedom over all terms. All pieces of all units: no
    error. Raises ValueError for a phase of which nothing was drawn, for one unit of several, and for one piece of
    several in a phase all of whose units were drawn.
    """
    sizes = np.asarray(sizes, np.float64)
    share = sizes / sizes.sum()
    mean = 0.0
    parts: list[tuple[float, int]] = []  # terms of the variance and their degrees of freedom
    for weight, total, drawn in zip(share, sizes, values, strict=True):
        count = len(drawn)
        if count == 0:
            raise ValueError("nothing was drawn of a phase")
        means = np.array([float(np.mean(each)) for each in drawn])
        mean += float(weight * means.mean())
        if count < total:
            if count < 2:
                raise ValueError("one unit of a phase says nothing of its deviation; draw two")
            parts.append((weight**2 * (1 - count / total) * float(np.var(means, ddof=1)) / count, count - 1))
        if all(len(each) > 1 or len(each) >= inner_size for each in drawn):
            own = sum(variance_inside(each, inner_size, inside) for each in drawn)
            parts.append((weight**2 * own / (total * count), max(sum(len(each) - 1 for each in drawn), 1)))
        elif count >= total:
            raise ValueError("one piece of a unit says nothing of its deviation; draw two")
    parts = [(term, degrees) for term, degrees in parts if term > 0]
    variance = sum(term for term, _ in parts)
    error = float(np.sqrt(variance))
    if not parts:
        return StratifiedEstimate(mean, 0.0, mean, mean, np.inf)
    degrees = variance**2 / sum(term**2 / own for term, own in parts)
    wide = float(stdtrit(degrees, 0.5 + confidence / 2)) * error
    return StratifiedEstimate(mean, error, mean - wide, mean + wide, float(degrees))


@dataclass(frozen=True)
class Components:
    """Variance of units' true means in a phase, ``between`` them, and of single pieces ``inside`` a unit; means over
    phases by their sizes."""

    between: float
    inside: float

    def share_inside(self, count: int, inner_size: int) -> float:
        """Share of the variance of a unit's mean, as ``count`` of its pieces tell it, that more pieces would lower."""
        own = self.inside * (1 - count / inner_size) / count
        return own / (self.between + own) if own > 0 else 0.0


def components(
    sizes: np.ndarray, values: Sequence[Sequence[np.ndarray]], inner_size: int, inside: Inside = "successive"
) -> Components:
    """From what was drawn, two pieces of each unit at least (``estimate``). The deviation of units' means is what they
    show less what their pieces explain."""
    between, within = np.zeros(len(sizes)), np.zeros(len(sizes))
    for phase, drawn in enumerate(values):
        within[phase] = np.mean([variance_of_pieces(each, inside) for each in drawn])
        if len(drawn) > 1:
            explained = np.mean([variance_inside(each, inner_size, inside) for each in drawn])
            between[phase] = max(float(np.var([each.mean() for each in drawn], ddof=1) - explained), 0.0)
    return Components(float(np.average(between, weights=sizes)), float(np.average(within, weights=sizes)))
