"""Which runs replay their GPUs' streams together with hosts and messages (models/network/devices)."""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.runner.predict.phase_source import Case

NETWORKS: Final = ("latency-bandwidth", "flow", "dimemas")  # whose replay waits for GPUs
FIXED: Final = ("latency-bandwidth", "flow")  # of these those in which messages can take a time that is given


def joins(case: Case) -> bool:
    """Whether a run replays streams: it has some, and its network's model waits for GPUs."""
    study, workload = case.study, case.traced
    if study.mapping.launches is not None or case.workload is not workload or study.model.network not in NETWORKS:
        return False
    if not workload.tables["launches"].num_rows:
        return False
    return bool(workload.tables["gpu_operations"].num_rows) or len(np.unique(workload.column("launches", "stream"))) > 1
