"""Iterations of a rank whose cores a run's timeline shows."""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.workload import Workload
from manyscale.runner.predict.node.options import TimelineChoice
from manyscale.runner.study import Study
from manyscale.runner.study.repeat import RepeatedWorkload

KEPT_BY_DEFAULT: Final = 1_000_000  # task instances whose cores are written


def kept_iterations(
    study: Study, base: Workload, repeated: RepeatedWorkload | None, rank: int, most: int
) -> list[list[int]] | None:
    """(iteration, the traced iteration that it is, its repetition) of those whose cores are written; None for all."""
    chosen = study.options(TimelineChoice)
    few = most <= KEPT_BY_DEFAULT
    ranks = chosen.ranks if chosen.ranks is not None else None if few or chosen.iterations is not None else [0]
    if ranks is not None and rank not in ranks:
        return []
    wanted = chosen.iterations if chosen.iterations is not None else None if few or chosen.ranks is not None else [0, 1]
    if repeated is None:
        return None if wanted is None else [[each, each, 0] for each in wanted]
    traced = int(np.count_nonzero(base.column("iterations", "rank") == rank))
    total = int(np.count_nonzero(repeated.column("iterations", "rank") == rank))
    every = range(total) if wanted is None else [each for each in wanted if each < total]
    return [[each, *_traced_iteration(each, traced)] for each in every]


def _traced_iteration(iteration: int, traced: int) -> tuple[int, int]:
    """Which traced iteration an iteration of a repeated workload is, and how often that came before."""
    if iteration == 0 or traced == 1:
        return 0, iteration if traced == 1 else 0
    return 1 + (iteration - 1) % (traced - 1), (iteration - 1) // (traced - 1)
