"""What a study would simulate, without simulating it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from manyscale.models.workload import Workload
from manyscale.runner.cache import default_cache
from manyscale.runner.errors import UserError, placed
from manyscale.runner.run import pipeline, study_runs
from manyscale.runner.run.burst_units import burst_units, phase_digests
from manyscale.runner.run.sweeps.workloads import of_point
from manyscale.runner.study import Sweep, parse_study, point_place


def prepared(
    content: dict[str, Any], place: str, beside: Path | None, cache: Path | None = None, yes: bool = False
) -> tuple[Workload, Iterator[pipeline.Point]]:
    """The workload (of shapes the first one's), and the points one by one, of a study's content as
    ``study_runs.run_study`` takes it. Raises UserError."""
    content = study_runs.located_content(content)
    sweep = Sweep(content, place, yes)
    for index in sweep.first_with_each_value()[: study_runs.MOST_CHECKED]:
        sweep.study(index)  # what is wrong with a value is told before a trace is read
    workload = study_runs.workload_of(parse_study(content, place), place, cache or default_cache())
    return workload, _points(sweep, beside, workload)


def _points(sweep: Sweep, beside: Path | None, workload: Workload) -> Iterator[pipeline.Point]:
    memory: dict[str, Any] = {}
    for index in range(len(sweep)):
        axes, study = sweep.values(index), sweep.study(index)
        try:
            mine, shared = of_point(sweep, index, study, workload, memory, {})
            yield pipeline.prepare(axes, study, mine, beside, shared)
        except UserError as error:
            raise placed(error, point_place(sweep.place, axes)) from None


def unit_keys(points: Iterable[pipeline.Point]) -> set[str]:
    """The keys of all work units that are known before any has run."""
    keys: set[str] = set()
    for point in points:
        digests = phase_digests(point.case, point.source, point.first_units)
        bursts = burst_units(point.case, point.source, point.ranks_per_core, digests, "")
        replay = pipeline.replay_unit(point, [unit.key for unit in bursts], {})
        keys |= {unit.key for unit in (*point.first_units, *bursts, replay)}
    return keys
