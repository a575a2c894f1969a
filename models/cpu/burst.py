"""The burst model: a compute phase takes its traced duration, scaled.

Source: Grass, UPC 2017, ch. 6 (MUSA's burst mode, and burst mode with user-given IPC correction factors). Sleep is not
scaled: it depends on no core.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from manyscale.models.cpu import domains
from manyscale.models.workload import PhaseKind
from manyscale.models.workload.quantities import MOST_PS

NAME = "burst"
VERSION = 1
DOMAIN = domains.BURST


@dataclass(frozen=True)
class BurstParameters:
    """``cpu_ratio``: predicted over traced time of a compute phase. ``slowdown``: share of a core that a rank lacks
    because ranks share cores (1 = none lacks). Raises ValueError unless both are finite and positive."""

    cpu_ratio: float = 1.0
    slowdown: float = 1.0

    def __post_init__(self) -> None:
        for name in ("cpu_ratio", "slowdown"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value > 0):
                raise ValueError(f"{name} is {value}; it must be finite and greater than zero")


def predict(
    parameters: BurstParameters, duration_ps: np.ndarray, kind: np.ndarray, ipc_factor: np.ndarray
) -> np.ndarray:
    """Predicted int64 picoseconds of phases of ``duration_ps`` (int64) and ``kind`` (PhaseKind).

    ``ipc_factor`` (float64 per phase, 1 = none): how much higher the target's IPC is than cpu_ratio says; a phase
    takes duration x cpu_ratio x slowdown / ipc_factor, rounded to whole picoseconds. Raises ValueError if they add up
    to more than 53 days, which 64 bits do not hold. O(phases).
    """
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.rint(duration_ps * (parameters.cpu_ratio * parameters.slowdown / ipc_factor))
        total = np.where(kind == PhaseKind.compute, scaled, duration_ps).sum()
    if not total <= MOST_PS:
        raise ValueError("a rank would compute for more than 53 days; mend cpu_ratio or ipc_correction")
    return np.where(kind == PhaseKind.compute, scaled.astype(np.int64), duration_ps)
