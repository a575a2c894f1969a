"""Which phases of a program change with its input, and what another input need not have simulated again.

Huang (Georgia Tech, 2015), section 5.3.4 (algorithm 5.1, eq. 38) and 5.4.4: units of a reference input go to the phase
of the training input whose centre is nearest; a phase is sensitive if with any reference the mean or the standard
deviation of its CPI is more than 10 % off the training input's. Simulated units of phases that are not sensitive stand
for the reference's, too, so that only units of sensitive phases are simulated again.

Where one of the two inputs has a single unit of a phase, it has no deviation, and the mean alone decides. A phase that
a reference does not visit tells nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from manyscale.sampling import stratified
from manyscale.sampling.stratified import StratifiedEstimate

TOLERANCE: Final = 0.1  # section 5.3.4


@dataclass(frozen=True)
class Sensitivity:
    """Row 0 is the training input, the others are references: ``units`` int64[1 + references, phases], ``mean`` and
    ``deviation`` float64 of the same shape, NaN where a phase is not visited. ``moved`` bool[references, phases];
    ``sensitive`` bool[phases]: with any reference."""

    units: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray
    moved: np.ndarray

    @property
    def sensitive(self) -> np.ndarray:
        return np.asarray(self.moved.any(axis=0))

    def share_again(self, count: np.ndarray) -> float:
        """Share of a sample of ``count`` int64[phases] units that is in sensitive phases: what a reference takes
        (figure 46)."""
        return float(count[self.sensitive].sum() / count.sum())


def sensitivity(
    label: np.ndarray,
    cpi: np.ndarray,
    references: Sequence[tuple[np.ndarray, np.ndarray]],
    tolerance: float = TOLERANCE,
    by: Literal["both", "mean"] = "both",
) -> Sensitivity:
    """From the phase ``label`` and ``cpi`` of each unit of the training input and of each reference. ``by``: whether
    deviations decide, too, as printed. They need not, since an estimate rests on means, and with few units in a phase
    they differ by more than the tolerance also between inputs of one kind."""
    inputs = [(label, cpi), *references]
    phases = int(label.max()) + 1
    units = np.array([np.bincount(each, minlength=phases) for each, _ in inputs])
    mean, deviation = np.full((2, len(inputs), phases), np.nan)
    for row, (own_label, own_cpi) in enumerate(inputs):
        for phase in np.flatnonzero(units[row]):
            own = own_cpi[own_label == phase]
            mean[row, phase], deviation[row, phase] = own.mean(), own.std()
    moved = np.abs(mean[1:] - mean[0]) > tolerance * mean[0]
    spread = np.abs(deviation[1:] - deviation[0]) > tolerance * deviation[0]
    several = (units[1:] > 1) & (units[0] > 1)
    return Sensitivity(units, mean, deviation, moved | (spread & several) if by == "both" else moved)


def drawn_again(
    found: Sensitivity, count: np.ndarray, reference: int, label: np.ndarray, seed: int
) -> list[np.ndarray]:
    """Units of reference number ``reference`` (from 1) to simulate: of each phase none where it is not sensitive, else
    as many as ``count`` int64[phases] has of the training input, two at least, all where there are not as many."""
    random = np.random.default_rng([seed, reference])
    drawn = []
    for phase, sensitive in enumerate(found.sensitive.tolist()):
        members = np.flatnonzero(label == phase)
        n = min(max(int(count[phase]), 2), len(members)) if sensitive else 0
        drawn.append(np.sort(random.choice(members, n, replace=False)))
    return drawn


def reference_estimate(
    found: Sensitivity,
    reference: int,
    kept: Sequence[np.ndarray],
    again: Sequence[np.ndarray],
    confidence: float,
) -> StratifiedEstimate:
    """CPI of reference number ``reference`` (from 1): CPIs of the training input's sample, ``kept`` [phase], where a
    phase is not sensitive, of its own, ``again`` [phase], where it is; phases as often as the reference visits them.
    The interval is that of drawing units; that a phase which is not sensitive may still move by the tolerance is not in
    it. Raises ValueError as ``stratified.estimate``."""
    visited = found.units[reference] > 0
    sizes = np.where(found.sensitive, found.units[reference], found.units[0])[visited]
    values = [(again if sensitive else kept)[phase] for phase, sensitive in enumerate(found.sensitive.tolist())]
    share = found.units[reference][visited] / found.units[reference].sum()
    return stratified.estimate(
        sizes, [each for each, seen in zip(values, visited.tolist(), strict=True) if seen], confidence, share=share
    )
