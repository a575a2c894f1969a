"""Which cores of its node a rank has, where these are not all alike."""

from __future__ import annotations

import numpy as np

from manyscale.runner.errors import UserError
from manyscale.runner.predict.phase_source import Case
from manyscale.runner.predict.placement import place_ranks


def core_speeds(case: Case) -> np.ndarray | None:
    """float64[ranks, cores]: of the cores that each rank has, where those of a node are not all alike. Raises UserError
    where ranks share cores."""
    cores = cores_of_ranks(case)
    return None if cores is None else np.asarray(case.machine.node.core_speeds)[cores]


def cores_of_ranks(case: Case) -> np.ndarray | None:
    """int64[ranks, cores]: numbers in their node of the cores that each rank has, where those of a node are not all
    alike: the ranks of a node have its cores in their order. Raises UserError where ranks share cores."""
    node, width = case.machine.node, case.study.mapping.cores_per_rank
    if not node.core_kinds:
        return None
    places, _ = place_ranks(case.study.mapping, case.machine, case.workload.num_ranks, case.study.seed)
    order = np.argsort(places, kind="stable")
    first = np.searchsorted(places[order], places[order])
    number = np.empty(len(places), np.int64)
    number[order] = np.arange(len(places)) - first
    cores = number[:, None] * width + np.arange(width)
    if cores.max() >= node.num_cores:
        raise UserError(
            f"mapping.oversubscribe: ranks would share cores of {case.machine.name}, whose cores are of several kinds "
            "(node.core_kinds); give each rank cores of its own"
        )
    return cores
