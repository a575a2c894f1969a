"""A timing model: compute takes as many cycles as on the machine that was traced, whose clock ran at 2 GHz."""

import numpy as np

from manyscale.models.workload import PhaseKind
from manyscale.runner.predict.phase_source import PhaseSource
from manyscale.sampling.plan import Plan

VERSION = 1  # raised when results change
TRACED_HZ = 2e9


class Clock(PhaseSource):
    """Without work units: a multiplication is faster than sending it away."""

    def __init__(self, case):
        self.workload = case.workload
        self.ratio = TRACED_HZ / (case.machine.node.frequency_hz or TRACED_HZ)

    def plans(self):
        every = np.arange(self.workload.num_ranks)
        return [Plan.of_strata("rank", every, every)]

    def content(self):
        return [f"clock {self.ratio}"]

    def phase_times(self, done):
        traced, kind = (self.workload.column("phases", name) for name in ("duration_ps", "kind"))
        return np.where(kind == PhaseKind.compute, np.rint(traced * self.ratio).astype(np.int64), traced)
