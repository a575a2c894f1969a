"""Ranks that call MPI inside their phases: what the replay needs to schedule their task instances itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from manyscale.models.workload import Workload
from manyscale.runner.predict.node import schedule_units
from manyscale.runner.predict.node.rank_part import rank_part
from manyscale.runner.predict.node.schedule_units import KEPT_BY_DEFAULT
from manyscale.runner.predict.units import Arrays, array_digest
from manyscale.runner.study import Study

KIND: Final = "replay-coupled"


@dataclass(frozen=True)
class Coupling:
    """``parameters`` of the unit that replays, beside those of every replay; ``content``: digest of all else that it
    depends on; ``make``: its input ``nodes``, called ``name``."""

    name: str
    parameters: Mapping[str, Any]
    content: str
    make: Callable[[], tuple[list[Any], list[Any]]]


def coupling(
    workload: Workload, study: Study, share_group: np.ndarray | None, schedules: Sequence[Arrays]
) -> Coupling | None:
    """None where no rank calls MPI inside its phases. ``schedules``: results of schedule_units, by rank."""
    coupled = [rank for rank, result in enumerate(schedules) if "piece_ps" in result]
    if not coupled:
        return None
    times = [schedules[rank]["piece_ps"] for rank in coupled]
    kept = study.timeline.ranks
    if kept is None:
        kept = coupled if workload.tables["tasks"].num_rows <= KEPT_BY_DEFAULT else coupled[:1]
    parameters = {
        "runtime": study.runtime.model_dump(mode="json", by_alias=True),
        "num_cores": study.mapping.cores_per_rank,
        "seed": study.seed,
        "share_group": None if share_group is None else share_group.tolist(),
        "keep_ranks": [rank for rank in kept if rank in coupled],
    }
    content = f"{schedule_units.VERSION} {workload.digest} {array_digest(np.array(coupled), *times)}"

    def make() -> tuple[list[Any], list[Any]]:
        from manyscale.models.node.program.build import build_program

        programs: list[Any] = [None] * workload.num_ranks
        pieces: list[Any] = [None] * workload.num_ranks
        for rank, piece_ps in zip(coupled, times, strict=True):
            part = rank_part(workload, rank).workload
            programs[rank] = build_program(part, rank, study.mapping.cores_per_rank, study.runtime)
            pieces[rank] = piece_ps
        return programs, pieces

    return Coupling(f"node programs {content}", parameters, content, make)
