"""No sampling: every rank is simulated and stands for itself."""

from __future__ import annotations

import numpy as np

from manyscale.models.workload import Workload
from manyscale.sampling.plan import Plan


def plan(workload: Workload, model: str) -> Plan:
    """A census of the ranks."""
    count = workload.num_ranks
    return Plan("rank", np.arange(count), np.zeros(count, np.int32), np.ones(count), model, count)
