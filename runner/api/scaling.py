"""How the time of a program changes with the number of cores or ranks: ``scaling``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from manyscale.models.workload.notes import Note, in_order
from manyscale.runner.api.answer import Answer, distinct
from manyscale.runner.api.comparisons import RunLike, run_path
from manyscale.runner.api.folders import Folder, Output, Scratch, place
from manyscale.runner.api.inputs import Asked, StudyLike, TargetLike, asked_study, cache_folder, is_trace_path
from manyscale.runner.api.progress import Progress
from manyscale.runner.api.studies import predicted
from manyscale.runner.api.study_results import RunResult, SweepResult
from manyscale.runner.errors import UserError
from manyscale.runner.report.text import duration, percent
from manyscale.runner.run import directory as rundir
from manyscale.runner.run.parquet import write_table
from manyscale.runner.run.questions.pop import pop_table, run_efficiencies, scaled
from manyscale.runner.study import parse_study
from manyscale.runner.study.targets import resolve_target

CORES: Final = "mapping.cores_per_rank"


@dataclass(frozen=True, repr=False, eq=False)
class ScalingResult(Answer):
    """How a program's time changes. Table ``scaling``: a row per run, by its cores: label, num_ranks, num_cores,
    makespan_s, speed_up and efficiency against the first, and the efficiencies of POP."""

    name: str
    rows: pa.Table
    notes: Sequence[Note] = ()
    folder: Folder | None = None

    @property
    def title(self) -> str:
        return f"{self.name}: {self.rows.num_rows} runs"

    def facts(self) -> Mapping[str, str]:
        return {
            name: f"{duration(row['makespan_s'])}, speed-up {row['speed_up']:.3f}, "
            f"efficiency {percent(row['efficiency'])}"
            for name, row in zip(distinct(self.rows.column("label").to_pylist()), self.rows.to_pylist(), strict=True)
        }

    @property
    def figures(self) -> Mapping[str, Any]:
        """All rows of the table."""
        return {"rows": self.rows.to_pylist()}

    def _makers(self) -> Mapping[str, Callable[[], pa.Table]]:
        return {"scaling": lambda: self.rows}

    def _chart(self) -> Mapping[str, Any]:
        from manyscale.runner.report import figures

        return figures.scaling(self.rows)

    def write_page(self, directory: Path) -> None:
        """Write ``report.html`` into a folder."""
        from manyscale.runner.report import scaling_page

        rundir.write_page(directory, scaling_page.page(self.rows, f"Scaling of {self.name}", self.notes))

    def save(self, directory: str | PathLike[str], *, report: bool = True) -> Path:
        """Write the table and the runs into a new folder; with ``report`` a page, too. Raises UserError."""
        saved = super().save(directory)
        if report:
            self.write_page(saved)
        return saved


def scaling(
    studies: StudyLike | RunLike | Sequence[StudyLike | RunLike],
    output: Output = None,
    *,
    cores: Sequence[int] | None = None,
    axis: tuple[str, Sequence[Any]] | None = None,
    weak: bool = False,
    target: TargetLike | None = None,
    format: str | None = None,
    time: str | None = None,
    model: Mapping[str, str] | None = None,
    sampling: Mapping[str, Any] | None = None,
    set: Mapping[str, Any] | None = None,
    seed: int | None = None,
    executor: str = "auto",
    address: str | None = None,
    workers: int | None = None,
    cache: str | PathLike[str] | None = None,
    report: bool = True,
    accept: Collection[str] = (),
    strict: bool = False,
    progress: Progress = False,
) -> ScalingResult:
    """How the time of a program changes with the number of its cores or ranks.

    Of one study, or trace with ``target``, at several numbers of ``cores`` of each rank, or along another ``axis``
    (dotted key, values); or of several studies, traces, run directories or results on different numbers of ranks.
    Traces with measured times are taken as they were measured unless a ``target`` is named; what is no run yet is
    predicted. ``weak``: the work per rank was meant to stay, and the speed-up is that of the work done. All else as
    ``run`` has it.

    Speed-up is the time of the run on the fewest cores over the time of each; its efficiency that over the growth of
    the cores. ``output``: a folder for ``scaling.parquet`` and ``scaling.csv``, with ``report`` a page, and the runs in
    ``runs``. Raises UserError for bad input, among it numbers of cores that no node of the target has, and RunError if
    a run fails.
    """
    given = [studies] if _is_one(studies) else list(studies)  # type: ignore[arg-type]
    swept = _axis(cores, axis, len(given))
    changes = {
        "target": target, "format": format, "time": time, "model": model, "sampling": sampling, "set": set, "seed": seed
    }  # fmt: skip
    how = {
        "executor": executor, "address": address, "workers": workers, "cache": cache, "report": False, "accept": accept,
        "strict": strict, "progress": progress,
    }  # fmt: skip
    scratch = Scratch() if output is None else None
    name = f"{_name_of(given[0])}-scaling"
    with rundir.new_results(scratch.path / "result" if scratch else place(output)[0], name) as directory:
        runs_folder = directory / "runs"
        if swept is not None:
            runs = _swept(asked_study(given[0], **changes), *swept, runs_folder, how)  # type: ignore[arg-type]
        else:
            chosen = [_chosen(each, changes) for each in given]  # all are sound before the first is predicted
            runs = [
                each if isinstance(each, _Run) else _run_of(each, runs_folder / f"{number:02d}-{_name_of(study)}", how)
                for number, (each, study) in enumerate(zip(chosen, given, strict=True), start=1)
            ]
        folder = cache_folder(cache)
        found = [replace(run_efficiencies(run.path, None, folder), name=run.label) for run in runs]
        table = scaled(pop_table(found, weak), of_labels=True)
        notes = in_order(note for each in found for note in each.notes)
        result = ScalingResult(name.removesuffix("-scaling"), table, notes, Folder(directory, scratch))
        _write_table(table, directory)
        if report and scratch is None:
            result.write_page(directory)
    return result


@dataclass(frozen=True)
class _Run:
    """A run directory or measured trace, and what it is called."""

    label: str
    path: Path


def _is_one(studies: Any) -> bool:
    return isinstance(studies, str | PathLike | Mapping | Answer) or not isinstance(studies, Sequence)


def _axis(
    cores: Sequence[int] | None, axis: tuple[str, Sequence[Any]] | None, num_studies: int
) -> tuple[str, list[Any]] | None:
    """The axis of the sweep, if there is one. Raises UserError for what does not go together."""
    if cores is not None and axis is not None:
        raise UserError(f"cores and axis ({axis[0]}): give one of the two")
    if cores is not None:
        axis = (CORES, cores)
    if axis is None and num_studies < 2:
        raise UserError(
            "one study alone does not scale: vary its cores (cores=[1, 2, 4]; --cores 1,2,4) or another key (axis), or "
            "name more studies or traces, on other numbers of ranks"
        )
    if axis is None:
        return None
    if num_studies > 1:
        raise UserError(f"{axis[0]}: is varied of one study, {num_studies} are named; ask of them one by one")
    values = [each for place, each in enumerate(axis[1]) if each not in list(axis[1])[:place]]
    if len(values) < 2:
        raise UserError(f"{axis[0]}: needs at least two values to see how the time changes")
    return axis[0], values


def _name_of(study: Any) -> str:
    if isinstance(study, Answer):
        return str(getattr(study, "name", "runs"))
    if isinstance(study, Mapping):
        return str(
            study.get("name") or Path(str(study.get("workload", {}).get("path", "study"))).name.partition(".")[0]
        )
    if isinstance(study, str | PathLike):
        return Path(fspath(study)).name.partition(".")[0] or "study"
    return getattr(study, "name", None) or "study"


def _swept(asked: Asked, key: str, values: list[Any], directory: Path, how: Mapping[str, Any]) -> list[_Run]:
    """A study at all values of a key. Raises UserError for numbers of cores that no node has."""
    study = parse_study(asked.content, asked.place)
    if study.sweep:
        raise UserError(f"{asked.place}: is a sweep already; ask of one of its points, or name several studies")
    if key == CORES:
        machine = resolve_target(study, asked.beside)[0]
        most = machine.node.num_cores
        if wrong := [str(each) for each in values if isinstance(each, int) and each > most]:
            has = f"a node of {machine.name} has {most} core{'s' * (most != 1)}"
            raise UserError(f"cores {', '.join(wrong)}: {has}; leave them out, or name another target")
    found = predicted(asked._replace(content={**asked.content, "sweep": {key: values}}), directory, **how)
    assert isinstance(found, SweepResult)
    return [
        _Run(f"{key.rpartition('.')[2]}={value}", directory / "points" / f"{index:04d}")
        for index, value in enumerate(values)
    ]


def _write_table(table: pa.Table, directory: Path) -> None:
    import pyarrow.csv

    write_table(table, directory / "scaling.parquet")
    pyarrow.csv.write_csv(table, directory / "scaling.csv")


def _chosen(study: Any, changes: Mapping[str, Any]) -> _Run | Asked:
    """One of several: a run or a measured trace as it is, else the study that is to be predicted. Raises UserError."""
    if isinstance(study, Answer) or (isinstance(study, str | PathLike) and rundir.is_run(Path(study))):
        path = run_path(study)
        return _Run(_label(path), path)
    if changes["target"] is None and isinstance(study, str | PathLike) and is_trace_path(Path(study)):
        return _Run(_label(Path(study)), Path(study))  # as it was measured
    asked = asked_study(study, **changes)
    if parse_study(asked.content, asked.place).sweep:
        raise UserError(f"{asked.place}: is a sweep; name single studies, or vary one key of one study")
    return asked


def _run_of(asked: Asked, directory: Path, how: Mapping[str, Any]) -> _Run:
    """A study, predicted into ``directory``."""
    found = predicted(asked, directory, **how)
    assert isinstance(found, RunResult)
    return _Run(found.name, directory)


def _label(path: Path) -> str:
    return path.name or str(path)
