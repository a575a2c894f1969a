"""What intervals that were simulated say of a whole run: the estimate, and how sure it is where the sample tells.

A quantity per instruction (CPI, a part of it) of the run is the weighted sum of the intervals'. Where a choice drew its
intervals at random in each stratum (simple random sampling is one stratum; SimPoint with several intervals per
cluster: Perelman, Hamerly, Calder, PACT 2003), it has the interval of stratified sampling with Student's t
(stratified.py), strata weighed by their instructions; of several strata each variance is joined by that of all, as
two or three intervals of a cluster that happen to be alike do not show that it is (on four real profiles with two to
five of each cluster, 200 draws each, intervals of 95 % then hold in 93 to 100 %, else in 78 to 95 %). One interval of a
cluster says nothing of the others.

The interval is of the choice alone: that intervals began in other caches than the run would have left is not in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.sampling import stratified
from manyscale.sampling.population import Choice

CONFIDENCE: Final = 0.95
TOO_FEW: Final = "a stratum of several intervals of which one was simulated does not say how sure the estimate is"
NOT_RANDOM: Final = "intervals that were not drawn at random do not say how sure the estimate is"


@dataclass(frozen=True)
class IntervalEstimate:
    """``value``, and the ends of its interval; both None where the sample does not tell, and ``why`` not."""

    value: float
    low: float | None
    high: float | None
    why: str = ""


def estimate(
    choice: Choice, instructions: np.ndarray, values: np.ndarray, confidence: float = CONFIDENCE
) -> IntervalEstimate:
    """Of the run's quantity per instruction, from ``values`` float64[] of the elements of ``choice``. ``instructions``
    float64[n]: of all intervals of the population. Of strata that a choice leaves out nothing is known."""
    value = float(choice.weight @ values)
    if not choice.is_random:
        return IntervalEstimate(value, None, None, NOT_RANDOM)
    label = choice.label if len(choice.label) else np.zeros(len(instructions), np.int32)
    strata = np.unique(choice.stratum)
    sizes = np.bincount(label, minlength=int(strata.max()) + 1)[strata]
    drawn = [values[choice.stratum == each] for each in strata]
    count = np.array([len(each) for each in drawn])
    if np.any((count < 2) & (count < sizes)):
        return IntervalEstimate(value, None, None, TOO_FEW)
    share = np.bincount(label, instructions, minlength=int(strata.max()) + 1)[strata]
    found = stratified.estimate(sizes, drawn, confidence, pooled=len(strata) > 1, share=share / share.sum())
    half = (found.high - found.low) / 2
    return IntervalEstimate(value, value - half, value + half)
