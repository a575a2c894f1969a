"""What ``run``, ``sweep`` and ``what_if`` return."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa

from manyscale.models.workload.notes import Note, in_order
from manyscale.runner.api.answer import Answer
from manyscale.runner.api.folders import Folder
from manyscale.runner.api.frames import statistics_table, with_numbers
from manyscale.runner.predict.statistic import Statistic
from manyscale.runner.report.text import duration, percent
from manyscale.runner.run import outputs
from manyscale.runner.run.execute.execution import Counts
from manyscale.runner.run.questions.factors import shown_factors
from manyscale.runner.run.results import Result
from manyscale.runner.run.sweeps.summaries import Summary
from manyscale.runner.study import what_if

_TIMELINES = (
    "ranks", "messages", "critical_path", "critical_path_links", "links", "cores", "core_calls", "task_instances",
    "cpi_stacks",
    "intervals", "launches", "blocks", "gpu_ipc", "gpu_cpi_stacks", "gpu_resources", "gpu_lines", "gpu_branches",
    "gpu_streams", "steps", "collectives", "step_path", "plan",
)  # fmt: skip


@dataclass(frozen=True, repr=False, eq=False)
class RunResult(Answer, Result):
    """A predicted run: timelines and statistics as Result has them, and its files. ``counts``: work units by what
    became of them; ``host``: what the simulator itself took, in s and bytes.

    Tables: ``statistics``, and of the timelines those that there are: ``ranks``, ``messages`` and so on, in integer
    picoseconds.
    """

    folder: Folder | None = None
    counts: Counts = field(default_factory=Counts)
    host: Mapping[str, float] = field(default_factory=dict)

    @property
    def title(self) -> str:
        ranks = self.workload.num_ranks
        return f"{self.name} on {self.machine.name}" + (f": {ranks} ranks" if ranks > 1 else "")

    @property
    def summaries(self) -> Sequence[Summary]:
        """The run without its tables."""
        return (outputs.summary(self),)

    def facts(self) -> Mapping[str, str]:
        found = {"makespan": duration(self.makespan_seconds)}
        if "gpu.launches" in self.statistics:
            launches, cycles, ipc = (self.statistics[f"gpu.{name}"].value for name in ("launches", "cycles", "ipc"))
            found |= {"kernel launches": f"{launches:,}", "cycles": f"{cycles:,}", "IPC": f"{ipc:.4g}"}
        if "intervals.cpi" in self.statistics:
            found["CPI"] = f"{self.statistics['intervals.cpi'].value:.4g}"
        if "step.time" in self.statistics:
            found["step"] = duration(float(self.statistics["step.time"].value))
        found |= {
            each.label.lower(): percent(self.statistics[f"application.{each.name}"].value)
            for each in shown_factors({name: each.value for name, each in self.statistics.items()})
            if each.name != "communication_efficiency"
        }
        return found | _files(self.folder)

    @property
    def figures(self) -> Mapping[str, Any]:
        """The values of ``statistics`` by name."""
        return {name: each.value for name, each in self.statistics.items()}

    def _makers(self) -> Mapping[str, Callable[[], pa.Table]]:
        found = [name for name in _TIMELINES if getattr(self, name) is not None]
        return {
            "statistics": partial(statistics_table, self.statistics),
            **{name: partial(getattr, self, name) for name in found},
        }

    def _chart(self) -> Mapping[str, Any]:
        from manyscale.runner.report import figures

        return figures.timeline(self)

    def save(self, directory: str | PathLike[str], *, report: bool = True) -> Path:
        """Write the run directory into a new folder; with ``report`` its traces and its page, too. Raises UserError."""
        return _saved(self, directory, report)


@dataclass(frozen=True, repr=False, eq=False)
class SweepResult(Answer):
    """A predicted sweep: ``points`` without their tables, which stay in the files of each point. Table: ``points``, a
    row per point: its number, the axes as they were written and (of quantities) as numbers in a column of their own,
    every statistic, and codes of notes."""

    name: str
    axes: tuple[str, ...]
    points: Sequence[Summary]
    folder: Folder | None = None
    counts: Counts = field(default_factory=Counts)
    host: Mapping[str, float] = field(default_factory=dict)

    @property
    def summaries(self) -> Sequence[Summary]:
        """The points, as a single run has them."""
        return self.points

    @property
    def notes(self) -> Sequence[Note]:  # type: ignore[override]
        return in_order(note for point in self.points for note in point.notes)

    @property
    def title(self) -> str:
        return f"{self.name}: {len(self.points)} points of {', '.join(self.axes)}"

    def facts(self) -> Mapping[str, str]:
        shortest, longest = (each(self.points, key=_makespan) for each in (min, max))
        return {
            "shortest": f"{duration(_makespan(shortest))} at {_at(shortest)}",
            "longest": f"{duration(_makespan(longest))} at {_at(longest)}",
            **_files(self.folder),
        }

    @property
    def figures(self) -> Mapping[str, Any]:
        """Values of the axes and of ``application.makespan`` of every point."""
        rows = [{**point.axes, "application.makespan": _makespan(point)} for point in self.points]
        return {"axes": list(self.axes), "points": rows}

    def _makers(self) -> Mapping[str, Callable[[], pa.Table]]:
        return {"points": lambda: with_numbers(self.sweep_table(), self.axes)}

    def sweep_table(self) -> pa.Table:
        """The table of ``sweep.parquet``: point_id, axes as written, statistics, notes."""
        return outputs.sweep_table(self.points, list(self.axes))

    def statistics(self, point_id: int) -> Mapping[str, Statistic]:
        """Those of a point, by its number."""
        return self.points[point_id].statistics

    def frame(self, name: str | None = None) -> Any:
        from manyscale.runner.api.frames import data_frame

        units = {name: each.unit for point in self.points for name, each in point.statistics.items()}
        return data_frame(self.table(name), units)

    def _chart(self) -> Mapping[str, Any]:
        from manyscale.runner.report import figures

        return figures.sweep(self.sweep_table(), list(self.axes))

    def save(self, directory: str | PathLike[str], *, report: bool = True) -> Path:
        """Write the run directory, with the files of each point, into a new folder; with ``report`` its page, too
        (``manyscale.report`` writes those of points). Raises UserError."""
        return _saved(self, directory, report)


@dataclass(frozen=True, repr=False, eq=False)
class WhatIfResult(SweepResult):
    """A prediction under other assumptions. Tables: ``what_if``, a row per assumption with its time, the change
    against the study itself and the speed-up; ``points``, all statistics of each."""

    @property
    def title(self) -> str:
        return f"{self.name}: {len(self.points) - 1} what-ifs"

    @property
    def makespan_seconds(self) -> Mapping[str, float]:
        """Predicted time by what-if, that of the study itself as ``base``."""
        return {str(point.axes[what_if.AXIS]): _makespan(point) for point in self.points}

    def facts(self) -> Mapping[str, str]:
        times = self.makespan_seconds
        base = times[what_if.BASE]
        shown = {
            name: duration(time) + (f" ({100 * (time / base - 1):+.1f} %)" if base and name != what_if.BASE else "")
            for name, time in times.items()
        }
        return shown | _files(self.folder)

    @property
    def figures(self) -> Mapping[str, Any]:
        """Predicted time in s by what-if."""
        return dict(self.makespan_seconds)

    def save(self, directory: str | PathLike[str], *, report: bool = True) -> Path:
        """Write the run directory, with one for each what-if, into a new folder; with ``report`` a page, too. Raises
        UserError."""
        saved = Answer.save(self, directory)
        if report:
            outputs.write_sweep(saved, self.points, list(self.axes), self.name, report)
        return saved

    def what_if_table(self) -> pa.Table:
        """The table of ``what_if.parquet``."""
        return what_if.table(self.sweep_table(), list(self.axes))

    def _makers(self) -> Mapping[str, Callable[[], pa.Table]]:
        return {"what_if": self.what_if_table, "points": self.sweep_table}

    def _chart(self) -> Mapping[str, Any]:
        from manyscale.runner.report import figures

        return figures.what_if(self.what_if_table())


def _makespan(point: Summary) -> float:
    return float(point.statistics["application.makespan"].value)


def _at(point: Summary) -> str:
    return ", ".join(f"{key.rpartition('.')[2]}={value}" for key, value in point.axes.items())


def _files(folder: Folder | None) -> dict[str, str]:
    return {} if folder is None or folder.is_temporary else {"files": str(folder.path)}


def _saved(result: RunResult | SweepResult, directory: str | PathLike[str], report: bool) -> Path:
    saved = Answer.save(result, directory)
    if report:
        from manyscale.runner.api.finished import report as write_report

        write_report(saved)
    return saved
