"""Regular and irregular kernels, told apart by the sizes of their thread blocks.

Source: Huang et al., TBPoint (IPDPS 2014), section V-A, figure 8 and table VI (thesis, section 3.5.1, figure 10): sizes
(thread instructions of a block by their mean) of all launches in a row; a regular kernel's "exhibit particular
patterns". The source has no rule. Here sizes are regular if one of these explains them:

* ``even``: their coefficient of variation is at most EVEN;
* ``repeated``: launches of equally many blocks have the same sizes, block by block;
* ``periodic``: they come back every so many blocks, at least MIN_PERIODS times in a launch (rows of a grid, for
  example);
* ``stretches``: they are piecewise constant, within EVEN / 2 of a level for at least MIN_STRETCH blocks in the mean.

The middle two explain sizes if what is left of their variance, about the mean of blocks at the same place, is at most
1 - EXPLAINED of it, both by their degrees of freedom (so that long periods do not explain noise). Candidates for
periods are the peaks of the autocorrelation.

Cost: O(blocks log blocks).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

EVEN: Final = 0.1
EXPLAINED: Final = 0.9
MIN_PERIODS: Final = 4
MIN_STRETCH: Final = 16
_MOST_PERIODS_TRIED: Final = 32

Pattern = Literal["even", "repeated", "periodic", "stretches", "none"]


@dataclass(frozen=True)
class KernelKind:
    """``pattern``: the first that explains the sizes, "none" for an irregular kernel. ``variation``: coefficient of
    variation of the sizes; ``explained``: share of their variance by the pattern, the best one of an irregular kernel;
    ``period`` in blocks, 0 where there is none."""

    pattern: Pattern
    variation: float
    explained: float
    period: int

    @property
    def is_regular(self) -> bool:
        return self.pattern != "none"


def classify(thread_instructions: np.ndarray, launch_blocks: np.ndarray) -> KernelKind:
    """Kind of a kernel. ``thread_instructions`` [blocks] of its launches in a row, ``launch_blocks`` int[launches] how
    many blocks each has. Raises ValueError if they do not fit each other."""
    if int(np.sum(launch_blocks)) != len(thread_instructions):
        raise ValueError(f"launches of {int(np.sum(launch_blocks))} blocks, but {len(thread_instructions)} sizes")
    mean = float(np.mean(thread_instructions)) if len(thread_instructions) else 0.0
    if mean == 0:
        return KernelKind("even", 0.0, 1.0, 0)
    ratio = np.asarray(thread_instructions, np.float64) / mean
    variation = float(ratio.std())
    if variation <= EVEN:
        return KernelKind("even", variation, 1.0, 0)
    ends = np.cumsum(launch_blocks)
    place = np.arange(len(ratio)) - np.repeat(ends - launch_blocks, launch_blocks)
    by_size = np.repeat(np.unique(launch_blocks, return_inverse=True)[1], launch_blocks)
    repeated = _explained(ratio, by_size * (int(np.max(launch_blocks)) + 1) + place)
    if repeated >= EXPLAINED:
        return KernelKind("repeated", variation, repeated, 0)
    period, periodic = _best_period(ratio, place, launch_blocks)
    if periodic >= EXPLAINED:
        return KernelKind("periodic", variation, periodic, period)
    if _mean_stretch(ratio, place) >= MIN_STRETCH:
        return KernelKind("stretches", variation, max(repeated, periodic, 0.0), 0)
    return KernelKind("none", variation, max(repeated, periodic, 0.0), 0)


def _explained(values: np.ndarray, group: np.ndarray) -> float:
    """Share of the variance that the means of groups explain, by degrees of freedom; 0 if each has a group."""
    number, size = np.unique(group, return_inverse=True, return_counts=True)[1:]
    freedom = len(values) - len(size)
    if freedom < 1:
        return 0.0
    left = values - (np.bincount(number, values) / size)[number]
    return float(1 - (left @ left / freedom) / values.var(ddof=1))


def _best_period(ratio: np.ndarray, place: np.ndarray, launch_blocks: np.ndarray) -> tuple[int, float]:
    """(period, share of the variance it explains), the shortest of those that explain enough, else the best."""
    longest = int(np.max(launch_blocks)) // MIN_PERIODS
    if longest < 2:
        return 0, 0.0
    size = 1 << int(2 * len(ratio) - 1).bit_length()
    power = np.abs(np.fft.rfft(ratio - ratio.mean(), size)) ** 2
    correlation = np.fft.irfft(power, size)[: longest + 2]
    correlation /= len(ratio) - np.arange(len(correlation))  # of the pairs that there are
    middle = correlation[1:-1]
    is_peak = (middle >= correlation[:-2]) & (middle >= correlation[2:])
    is_peak[0] = False
    peaks = np.flatnonzero(is_peak) + 1
    peaks = np.sort(peaks[np.argsort(-correlation[peaks], kind="stable")][:_MOST_PERIODS_TRIED])
    best, share = 0, 0.0
    for period in peaks.tolist():
        found = _explained(ratio, place % period)
        if found >= EXPLAINED:
            return period, found
        if found > share:
            best, share = period, found
    return best, share


def _mean_stretch(ratio: np.ndarray, place: np.ndarray) -> float:
    """Mean number of consecutive blocks of a launch that are nearly as large as the one before."""
    leaps = (np.abs(np.diff(ratio)) > EVEN / 2) | (place[1:] == 0)
    return len(ratio) / (1 + np.count_nonzero(leaps))
