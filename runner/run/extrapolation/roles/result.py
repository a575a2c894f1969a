"""What becomes of a trace on other groups, and all that was found out on the way."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from manyscale.models.workload import Workload
from manyscale.runner.run.extrapolation.roles.families import Families
from manyscale.runner.run.extrapolation.roles.layout import Layout
from manyscale.runner.run.extrapolation.roles.sources import Sources
from manyscale.runner.run.extrapolation.roles.speeds import Speed, Straggler
from manyscale.runner.run.extrapolation.roles.wanted import Wanted


@dataclass(frozen=True)
class Scaled:
    """``trace`` of ``path`` on its layout ``traced`` and on ``layout``. ``optimiser`` float64[traced ranks]: what
    kernels that update parameters take of their time. ``made``: the new workload, None until it is built."""

    path: str
    trace: Workload
    traced: Layout
    layout: Layout
    families: Families
    sources: Sources
    speeds: tuple[Speed, Speed]
    stragglers: tuple[Straggler, ...]
    optimiser: np.ndarray
    wanted: Wanted
    made: Workload | None

    @property
    def old(self) -> Layout:
        """The traced layout with its dimensions in the order of the new one."""
        return self.traced.in_order(self.layout.names)

    @property
    def workload(self) -> Workload:
        """The new workload."""
        if self.made is None:
            raise ValueError("the workload is not built yet")
        return self.made

    def with_workload(self, made: Workload) -> Scaled:
        return replace(self, made=made)
