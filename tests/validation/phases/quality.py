"""How good phases are: points chosen by one machine's profile, judged by what another machine measures.

Hung (National Taiwan University, 2010), section 6.2: the phase-based IPC is that of the simulation points, each weighed
by the share of the instructions that its phase has; the phase-based deviation is that of IPC within each phase, weighed
alike. Both are compared with what the whole run shows on the machine that judges.

Weighed IPCs are no IPC of the run, even if each point were exactly like its phase: times add up, IPCs of equal numbers
of instructions do not. So ``error`` weighs cycles per instruction and takes the reciprocal; ``printed_error`` weighs
IPCs as the thesis says, and compares with the same mean over all intervals.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from manyscale.runner.run.evaluation.profiles import phase_deviation
from manyscale.sampling.population import Choice, IntervalPopulation


@dataclass(frozen=True)
class Quality:
    """``ipc`` of the run and ``estimate`` by its points; errors relative, with sign. ``deviation``: of IPC within
    phases; ``whole_deviation``: of all intervals; both in instructions per cycle, weighed by instructions."""

    num_phases: int
    ipc: float
    estimate: float
    error: float
    printed_error: float
    deviation: float
    whole_deviation: float


def judge(choice: Choice, chosen_on: IntervalPopulation, judged_on: IntervalPopulation) -> Quality:
    """``choice`` was made of the intervals of ``chosen_on``; ``judged_on`` has the same ones with the counter
    ``cycles``, how long each took: of cores that run side by side the time that passed, not their sum. Raises
    ValueError if intervals differ, there are no cycles or the choice has no phases. O(n)."""
    if len(choice.label) != len(chosen_on):
        raise ValueError(f"the choice has phases for {len(choice.label)} of {len(chosen_on)} intervals")
    if not np.array_equal(chosen_on.number, judged_on.number):
        raise ValueError(
            f"the profiles have different intervals ({len(chosen_on)} and {len(judged_on)}); points of one say nothing "
            "of the other"
        )
    cpi = judged_on.cpi
    if cpi is None or np.any(cpi <= 0):
        raise ValueError("the profile that judges has no cycles for some interval; add the column 'cycles'")
    instructions = judged_on.instructions
    ipc, whole = 1 / cpi, instructions @ cpi / instructions.sum()
    estimate = float(choice.weight @ cpi[choice.element])
    mean = instructions @ ipc / instructions.sum()
    return Quality(
        len(np.unique(choice.label)),
        float(1 / whole),
        1 / estimate,
        float(whole / estimate - 1),
        float(choice.weight @ ipc[choice.element] / mean - 1),
        phase_deviation(ipc, choice.label, instructions),
        phase_deviation(ipc, np.zeros(len(ipc), np.int64), instructions),
    )
