"""Runs side by side: ``compare``, where two differ; ``pop``, the efficiencies of several."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import pyarrow as pa

from manyscale.models.workload.notes import Note, in_order
from manyscale.runner.api.answer import Answer, distinct, kept
from manyscale.runner.api.folders import Folder, Output
from manyscale.runner.api.inputs import cache_folder
from manyscale.runner.errors import UserError
from manyscale.runner.notes import admit
from manyscale.runner.report.text import duration, percent, signed_duration
from manyscale.runner.run import directory as rundir
from manyscale.runner.run.parquet import write_table
from manyscale.runner.run.questions import compare as comparing
from manyscale.runner.run.questions.measured_steps import StepErrors, errors
from manyscale.runner.run.questions.pop import pop_table, run_efficiencies, scaled
from manyscale.runner.storage.address import located
from manyscale.runner.study.targets import target_named

RunLike = str | PathLike[str] | Answer
"""A run directory, a trace with measured times (by path or shipped name), or a result that has files."""


@dataclass(frozen=True, repr=False, eq=False)
class CompareResult(Answer):
    """Where two runs differ. Table ``differences``: group, item, a, b, difference (b - a), unit."""

    a: str
    b: str
    num_ranks: tuple[int, int]
    differences: pa.Table
    notes: Sequence[Note] = ()
    report: bool = True
    folder: Folder | None = None

    @property
    def title(self) -> str:
        return f"A: {self.a}; B: {self.b}"

    @property
    def step_errors(self) -> StepErrors | None:
        """How far the steps of B are from those of A, where both have the same; else None."""
        return errors(self.differences)

    def facts(self) -> Mapping[str, str]:
        found = {}
        if (steps := self.step_errors) is not None:
            found[f"{steps.count} steps"] = steps.text
        for row in self.differences.to_pylist():
            if row["group"] == "figure" and row["item"] == "makespan" and row["difference"] is not None:
                found["makespan"] = f"{duration(row['a'])}, {duration(row['b'])}: {signed_duration(row['difference'])}"
            if row["group"] == "state" and row["difference"]:
                found[row["item"]] = signed_duration(row["difference"])
        return found

    @property
    def figures(self) -> Mapping[str, Any]:
        """Both names, notes, all rows of the table, and how far steps are apart (``step_errors``)."""
        notes = [asdict(note) for note in self.notes]
        steps = {} if self.step_errors is None else {"step_errors": asdict(self.step_errors)}
        return {"a": self.a, "b": self.b, "notes": notes, **steps, "rows": self.differences.to_pylist()}

    def _makers(self) -> Mapping[str, Callable[[], pa.Table]]:
        return {"differences": lambda: self.differences}

    def _chart(self) -> Mapping[str, Any]:
        from manyscale.runner.report import figures

        return figures.compare(self.differences)

    def _write(self, directory: Path) -> None:
        from manyscale.runner.report import compare_page

        write_table(self.differences, directory / "differences.parquet")
        if self.report:
            rundir.write_page(directory, compare_page.page(self.differences, self.a, self.b, self.notes))


@dataclass(frozen=True, repr=False, eq=False)
class PopResult(Answer):
    """Efficiencies of several runs. Table ``pop``: a row per run, by their numbers of ranks."""

    pop: pa.Table
    notes: Sequence[Note] = ()
    folder: Folder | None = None

    @property
    def title(self) -> str:
        return f"efficiencies of {self.pop.num_rows} runs"

    def facts(self) -> Mapping[str, str]:
        rows = self.pop.to_pylist()
        names = distinct([Path(row["name"]).name or row["name"] for row in rows])
        return {
            name: f"{row['num_ranks']} ranks, {duration(row['run_time_ps'] / 1e12)}, speed-up {row['speedup']:.3f}, "
            f"parallel efficiency {percent(row['parallel_efficiency'])}"
            for name, row in zip(names, rows, strict=True)
        }

    @property
    def figures(self) -> Mapping[str, Any]:
        """All rows of the table."""
        return {"rows": self.pop.to_pylist()}

    def _makers(self) -> Mapping[str, Callable[[], pa.Table]]:
        return {"pop": lambda: self.pop}

    def _chart(self) -> Mapping[str, Any]:
        from manyscale.runner.report import figures

        return figures.scaling(scaled(self.pop))


def compare(
    a: RunLike,
    b: RunLike | None = None,
    output: Output = None,
    *,
    format: str = "auto",
    cache: str | PathLike[str] | None = None,
    report: bool = True,
    accept: Collection[str] = (),
    strict: bool = False,
) -> CompareResult:
    """Where two runs differ: run directories, results, or traces with measured times (in ``format``). Without ``b`` the
    run ``a`` is compared with what its own trace measured, which then is side A. ``output``: a folder for the table
    and, with ``report``, a page. Raises UserError for what is neither, and for notes that refuse the numbers."""
    folder = cache_folder(cache)
    one = _side(a, format, folder)
    one, other = (comparing.measured_of(one), one) if b is None else (one, _side(b, format, folder))
    table, notes = comparing.compare(one, other)
    admit(notes, accept, strict=strict)
    found = CompareResult(one.name, other.name, (one.num_ranks, other.num_ranks), table, tuple(notes), report)
    return kept(found, output, "comparison")


def _side(run: RunLike, format: str, cache: Path) -> comparing.Side:
    found = comparing.load(run_path(run), format, cache)
    return replace(found, name=run.title) if isinstance(run, Answer) else found


def pop(
    runs: RunLike | Sequence[RunLike],
    output: Output = None,
    *,
    weak: bool = False,
    target: str | PathLike[str] | None = None,
    cache: str | PathLike[str] | None = None,
) -> PopResult:
    """Efficiencies of runs, and how they scale: run directories, results, or traces with measured times. ``weak``: the
    work per rank was meant to stay. ``target``: the machine whose protocol the ideal replay of a trace follows.
    Raises UserError."""
    given = [runs] if isinstance(runs, str | PathLike | Answer) else list(runs)
    if not given:
        raise UserError("runs: name at least one run directory or measured trace")
    network = None if target is None else target_named(fspath(target))[0].network
    found = [run_efficiencies(run_path(each), network, cache_folder(cache)) for each in given]
    found = [
        replace(one, name=each.title) if isinstance(each, Answer) else one
        for one, each in zip(found, given, strict=True)
    ]
    notes = in_order(note for one in found for note in one.notes)
    return kept(PopResult(pop_table(found, weak), notes), output, "pop")


def run_path(run: RunLike) -> Path:
    """The directory of a result, or the path that is given. Raises UserError for a result without files."""
    if not isinstance(run, Answer):
        return located(run)
    if run.directory is None:
        raise UserError(f"{run.title}: the result has no files; give its run directory")
    return run.directory
