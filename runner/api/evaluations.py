"""How far samples are from what they stand for: ``evaluate``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import pyarrow as pa

from manyscale.models.workload.notes import Note, in_order
from manyscale.runner import shipped
from manyscale.runner.api.answer import Answer, kept
from manyscale.runner.api.folders import Folder, Output, Scratch, place
from manyscale.runner.api.inputs import (
    TraceLike,
    required_target,
)
from manyscale.runner.api.progress import Progress, watched
from manyscale.runner.errors import UserError
from manyscale.runner.notes import admit
from manyscale.runner.run import directory as rundir
from manyscale.runner.run.parquet import write_table
from manyscale.runner.storage.address import located, located_or_none

_PathLike = str | PathLike[str]


@dataclass(frozen=True, repr=False, eq=False)
class EvaluationResult(Answer):
    """How far samples are from the whole. Table ``evaluation``: of profiles a row per profile, method and seed, of task
    instances one per trace, number of cores and method; ``summary``: the same to read; ``page``: as HTML, "" where none
    is wanted."""

    evaluation: pa.Table
    summary: str
    page: str
    notes: Sequence[Note] = ()
    folder: Folder | None = None

    @property
    def title(self) -> str:
        workloads = dict.fromkeys(self.evaluation.column("workload").to_pylist())
        return f"samples of {', '.join(workloads)} against the whole"

    def facts(self) -> Mapping[str, str]:
        errors: dict[str, list[float]] = {}
        for row in self.evaluation.to_pylist():
            errors.setdefault(row["method"], []).append(abs(row["error"]))
        return {
            method: f"error {sum(found) / len(found):.2%} in the mean, {max(found):.2%} at most"
            for method, found in errors.items()
        }

    @property
    def figures(self) -> Mapping[str, Any]:
        """All rows of the table."""
        return {"rows": self.evaluation.to_pylist()}

    def _makers(self) -> Mapping[str, Callable[[], pa.Table]]:
        return {"evaluation": lambda: self.evaluation}

    def _chart(self) -> Mapping[str, Any]:
        from manyscale.runner.report.figures.evaluation import evaluation

        return evaluation(self.evaluation)

    def _write(self, directory: Path) -> None:
        write_table(self.evaluation, directory / "evaluation.parquet")
        rundir.write_atomically(directory / "evaluation.txt", self.summary)
        if self.page:
            rundir.write_page(directory, self.page)


@dataclass(frozen=True, repr=False, eq=False)
class HardwareResult(EvaluationResult):
    """How far predicted kernel launches are from measured ones. Table ``evaluation``: a row per launch that has a
    partner; ``kernels``: a row per kernel; ``errors``: of all launches, by name."""

    kernels: pa.Table | None = None
    errors: Mapping[str, float] = field(default_factory=dict)

    @property
    def title(self) -> str:
        runs = dict.fromkeys(self.evaluation.column("workload").to_pylist())
        return f"launches of {', '.join(runs)} against measured ones"

    def facts(self) -> Mapping[str, str]:
        rank = self.errors["rank_correlation"]
        return {
            "launches": f"{int(self.errors['launches']):,}",
            "mean absolute error": f"{self.errors['mean_absolute_error']:.1%}",
            "all together": f"{self.errors['error']:+.1%}",
            "geometric mean": f"{self.errors['geometric_mean']:.3f}",
            "rank correlation": "-" if rank != rank else f"{rank:.3f}",
        }

    @property
    def figures(self) -> Mapping[str, Any]:
        """The errors of all launches, and all rows of both tables."""
        errors = {name: None if value != value else value for name, value in self.errors.items()}
        kernels = [] if self.kernels is None else self.kernels.to_pylist()
        return {**errors, "kernels": kernels, "rows": self.evaluation.to_pylist()}

    def _makers(self) -> Mapping[str, Callable[[], pa.Table]]:
        kernels = self.kernels
        return {**super()._makers(), **({} if kernels is None else {"kernels": lambda: kernels})}

    def _chart(self) -> Mapping[str, Any]:
        from manyscale.runner.report.figures.hardware import hardware

        return hardware(self.evaluation)

    def _write(self, directory: Path) -> None:
        super()._write(directory)
        if self.kernels is not None:
            write_table(self.kernels, directory / "kernels.parquet")


def evaluate(
    traces: TraceLike | Sequence[TraceLike],
    output: Output = None,
    *,
    target: _PathLike | None = None,
    cores: Sequence[int] = (8, 16, 32, 64),
    methods: Sequence[str] | None = None,
    on: Sequence[_PathLike] | None = None,
    cycles: _PathLike | None = None,
    draws: int = 10,
    iterations: str = "joined",
    set: Mapping[str, Any] | None = None,
    cache: _PathLike | None = None,
    report: bool = True,
    accept: Collection[str] = (),
    strict: bool = False,
    progress: Progress = False,
) -> EvaluationResult:
    """How far samples are from what they stand for.

    Of traces with tasks and their detailed level: methods of TaskPoint (``lazy`` or ``periodic`` with any of +source,
    +types and so on, or ``interval``) on ``target`` with so many ``cores``, ``iterations`` as ``sampling.iterations``
    says, ``set`` replacing keys of the studies. Of profiles of intervals, call stacks or kernel launches with known
    cycles: the methods of ``plan``, each drawn ``draws`` times, with seeds from 0; ``on``, another machine's profile of
    each, judges; ``cycles``: a table of those of launches.

    Of run directories with kernel launches: their launches against the ones in ``cycles``, what Nsight Compute or
    nvprof measured of them, or a table of launch_id and cycles (HardwareResult).

    Raises UserError for traces of both kinds and what does not go with them, RunError if a run fails.
    """
    from manyscale.runner.run.evaluation import profiles, tasks

    given = [traces] if isinstance(traces, str | PathLike) else list(traces)
    runs = [path for path in map(located, given) if rundir.is_run(path)]
    if runs:
        if methods is not None or on is not None:
            raise UserError("--method, --on: are of samples; launches of a run are compared with --cycles alone")
        return _of_runs(given, runs, output, cycles, report, accept, strict)
    paths = [shipped.trace_path(fspath(each)) for each in given]
    of_profiles = [path for path in paths if profiles.is_profile(path)]
    if not paths:
        raise UserError("evaluate: name at least one trace or profile")
    if len(of_profiles) == len(paths):
        if draws < 1:
            raise UserError(f"--draws {draws}: at least one is needed")
        judges = None if on is None else [fspath(each) for each in on]
        return _of_profiles(
            paths, output, None if methods is None else ",".join(methods), judges,
            None if cycles is None else Path(cycles), draws, located_or_none(cache), report, accept,
            strict, progress,
        )  # fmt: skip
    if of_profiles:
        raise UserError(
            f"{of_profiles[0]}: is a profile, others are traces with tasks; evaluate the two kinds one by one"
        )
    if on or cycles is not None:
        raise UserError("--on and --cycles: judge profiles of intervals and launches; these are traces with tasks")
    machine = required_target(target)
    assert isinstance(machine, str)  # keys of it are replaced by ``set``
    chosen = tasks.DEFAULT_METHODS if methods is None else methods
    for method in chosen:
        tasks.changes_of(method)
    if not cores or any(number < 1 for number in cores):
        raise UserError(f"--cores {','.join(map(str, cores))}: write numbers of at least 1, such as 8,16,32,64")
    return _of_tasks(
        paths, output, chosen, cores, machine, iterations, set or {}, report, accept, strict, progress
    )  # fmt: skip


def _of_runs(
    given: Sequence[TraceLike],
    runs: Sequence[Path],
    output: Output,
    cycles: _PathLike | None,
    report: bool,
    accept: Collection[str],
    strict: bool,
) -> EvaluationResult:
    from manyscale.runner.report import hardware_page
    from manyscale.runner.run.evaluation import hardware

    if len(runs) < len(given):
        raise UserError(f"{runs[0]}: is a run, others are traces; evaluate the two kinds one by one")
    if cycles is None:
        raise UserError(f"{runs[0]}: is a run; name what was measured of its launches with --cycles FILE")
    found = hardware.compare(runs, Path(cycles))
    notes = in_order(found.notes)
    admit(notes, accept, strict=strict)
    page = hardware_page.page(found, Path(cycles).name, notes) if report else ""
    result = HardwareResult(
        found.launches, hardware.summary(found), page, notes, kernels=found.kernels, errors=found.figures
    )
    return kept(result, output, "evaluation")


def _of_profiles(
    paths: Sequence[str],
    output: Output,
    methods: str | None,
    on: Sequence[str] | None,
    cycles: Path | None,
    draws: int,
    cache: Path | None,
    report: bool,
    accept: Collection[str],
    strict: bool,
    progress: Progress,
) -> EvaluationResult:
    from manyscale.runner.report import evaluation_page
    from manyscale.runner.run.evaluation import profiles

    loaded = profiles.load(paths, methods, on, cycles, cache)
    notes = in_order(note for profile, _ in loaded for note in profile.notes)
    admit(notes, accept, strict=strict)
    with watched(progress) as show:
        found = profiles.evaluate(loaded, draws, show)
    table, summary = profiles.table(found.rows), profiles.summary(found.rows)
    page = evaluation_page.profiles_page(found, notes) if report else ""
    return kept(EvaluationResult(table, summary, page, notes), output, "evaluation")


def _of_tasks(
    paths: Sequence[str],
    output: Output,
    methods: Sequence[str],
    cores: Sequence[int],
    target: str,
    iterations: str,
    changes: Mapping[str, Any],
    report: bool,
    accept: Collection[str],
    strict: bool,
    progress: Progress,
) -> EvaluationResult:
    from manyscale.runner.report import evaluation_page
    from manyscale.runner.run.evaluation import tasks

    scratch = Scratch() if output is None else None
    directory = rundir.new_directory(scratch.path / "result" if scratch else place(output)[0], "evaluation")
    with watched(progress) as show:
        rows = tasks.evaluate(
            paths, directory, methods, cores, target=target, iterations=iterations, changes=list(changes.items()),
            accept=accept, strict=strict, progress=show,
        )  # fmt: skip
    table = tasks.table(rows)
    notes = in_order(note for row in rows for note in row["notes"])
    page = evaluation_page.tasks_page(rows, directory) if report else ""
    found = EvaluationResult(table, tasks.summary(table), page, notes, Folder(directory, scratch))
    found._write(directory)
    return found
