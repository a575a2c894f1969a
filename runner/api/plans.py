"""Which elements would be simulated: ``plan``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import pyarrow as pa

from manyscale.models.workload.notes import Note
from manyscale.runner import shipped
from manyscale.runner.api.answer import Answer, kept
from manyscale.runner.api.folders import Folder, Output
from manyscale.runner.api.inputs import (
    Asked,
    StudyLike,
    TargetLike,
    asked_study,
    cache_folder,
)
from manyscale.runner.api.progress import Progress, watched
from manyscale.runner.errors import UserError
from manyscale.runner.notes import admit
from manyscale.runner.run import directory as rundir
from manyscale.runner.run.parquet import write_table
from manyscale.runner.run.plans.request import Planned
from manyscale.runner.storage.address import located_or_none
from manyscale.runner.study import assign

_PathLike = str | PathLike[str]


@dataclass(frozen=True, repr=False, eq=False)
class PlanResult(Answer):
    """What would be simulated. Table ``plan``: element_kind, element_id (the workload's row), stratum, weight, model.
    ``summary``: what the method says of it; ``files``: what it writes beside the plan, by suffix."""

    name: str
    plan: pa.Table
    summary: str
    files: Mapping[str, str]
    notes: Sequence[Note] = ()
    report: bool = True
    folder: Folder | None = None
    planned: Planned | None = None
    own_file: Path | None = None

    @property
    def title(self) -> str:
        return self.name

    @property
    def file(self) -> Path | None:
        """The plan's Parquet file, None where none was written."""
        return self.own_file if self.folder is None else self.folder.path / "plan.parquet"

    def facts(self) -> Mapping[str, str]:
        first, *_ = self.summary.splitlines() or [""]
        return {"chosen": first, **({"beside it": ", ".join(self.files)} if self.files else {})}

    @property
    def figures(self) -> Mapping[str, Any]:
        """How many elements of each kind were chosen, and the summary."""
        kinds = self.plan.column("element_kind").to_pylist()
        return {"chosen": {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}, "summary": self.summary}

    def _makers(self) -> Mapping[str, Callable[[], pa.Table]]:
        return {"plan": lambda: self.plan}

    def _chart(self) -> Mapping[str, Any]:
        from manyscale.runner.report import figures

        return figures.plan(self.plan)

    def _write(self, directory: Path) -> None:
        from manyscale.runner.report import plan_page
        from manyscale.runner.run.plans import methods

        if self.planned is not None:
            methods.write(self.planned, directory)
        else:
            write_table(self.plan, directory / "plan.parquet")
        if self.report:
            summary = "" if self.planned is None else self.summary
            rundir.write_page(directory, plan_page.page(self.plan, self.title, summary, self.notes))


def plan(
    study: StudyLike,
    method: str | None = None,
    output: Output = None,
    *,
    target: TargetLike | None = None,
    format: str | None = None,
    time: str | None = None,
    launches: Sequence[int] | None = None,
    model: Mapping[str, str] | None = None,
    sampling: Mapping[str, Any] | None = None,
    set: Mapping[str, Any] | None = None,
    seed: int | None = None,
    cycles: _PathLike | None = None,
    exports: Sequence[str] = (),
    warmup: int = 0,
    projection: _PathLike | None = None,
    sensitivity: Sequence[str] = (),
    measured: _PathLike | None = None,
    cache: _PathLike | None = None,
    report: bool = True,
    accept: Collection[str] = (),
    strict: bool = False,
    yes: bool = False,
    progress: Progress = False,
) -> PlanResult:
    """Which elements would be simulated, without simulating.

    Without ``method``: of a study, as ``run`` takes it, what its sampling chooses. With ``method`` (simpoint, simprof,
    code, random, systematic, second, full, sbbv+ccv, tbpoint, tbpoint:auto, taskpoint): what that chooses of a profile
    or trace, by path or shipped name; ``set`` then replaces rules of the method. Of kernel launches ``cycles`` is a
    table; of intervals ``exports`` (gem5, pinpoints, sniper, bb, projection), ``warmup`` intervals that these run
    before each one, and SimPoint's ``projection`` matrix; of method simprof ``sensitivity``, profiles on other inputs,
    and ``measured``, a table of what was simulated.

    ``output``: a folder, with ``report`` with a page, or of a method also the plan's ``.parquet`` file. Raises
    UserError.
    """
    if method is not None:
        return _by_method(
            study, method, output, target=target, format=format, launches=launches, set=set, seed=seed, cycles=cycles,
            exports=exports, warmup=warmup, projection=projection, sensitivity=sensitivity, measured=measured,
            cache=cache, report=report, accept=accept, strict=strict, progress=progress,
        )  # fmt: skip
    refuse_without_method(
        cycles=cycles, exports=exports, warmup=warmup, projection=projection, sensitivity=sensitivity, measured=measured
    )
    asked = asked_study(
        study, target=target, format=format, time=time, launches=launches, model=model, sampling=sampling, set=set,
        seed=seed,
    )  # fmt: skip
    return planned(
        asked, output, cache=cache, report=report, accept=accept, strict=strict, yes=yes, progress=progress
    )  # fmt: skip


def refuse_without_method(
    *,
    cycles: _PathLike | None = None,
    exports: Sequence[str] = (),
    warmup: int = 0,
    projection: _PathLike | None = None,
    sensitivity: Sequence[str] = (),
    measured: _PathLike | None = None,
) -> None:
    """Raises UserError for what only a method takes."""
    if exports or projection or warmup:
        raise UserError("--export, --projection, --warmup: are for intervals; choose them with --method")
    if sensitivity or measured:
        raise UserError("--sensitivity, --measured: are of --method simprof")
    if cycles:
        raise UserError("--cycles: is of kernel launches; choose some with --method tbpoint")


def kind_of_input(method: str) -> str:
    """What a method chooses of: a workload, or a profile."""
    from manyscale.runner.run.plans import launches, stacks, tasks

    is_special = method in (tasks.TASKPOINT, stacks.SIMPROF) or launches.is_tbpoint(method)
    return "workload" if is_special else "profile"


def planned(
    asked: Asked,
    output: Output = None,
    *,
    cache: _PathLike | None = None,
    report: bool = True,
    accept: Collection[str] = (),
    strict: bool = False,
    yes: bool = False,
    progress: Progress = False,
) -> PlanResult:
    """What the sampling of a study's content chooses; arguments as those of ``plan``."""
    from manyscale.runner.run.preview import prepared

    with watched(progress) as show:
        show(0, 0, "reading")
        workload, points = prepared(*asked, cache_folder(cache), yes)
        show(0, 0, "planning")
        point = next(points)
    admit(point.notes, accept, strict=strict)
    counts = []
    for each in point.plans:  # weights of intervals are shares, so that the population is not known
        of = "" if each.element_kind == "interval" else f" of {each.population}"
        ending = "es" if each.element_kind.endswith("ch") else "s"
        counts.append(f"{len(each.element_id)}{of} {each.element_kind}{ending}")
    table = pa.concat_tables([each.table() for each in point.plans])
    title = f"Plan of {workload.name} on {point.case.machine.name}"
    found = PlanResult(title, table, f"{' and '.join(counts)} would be simulated", {}, point.notes, report)
    return kept(found, output, workload.name)


def _by_method(
    study: StudyLike,
    method: str,
    output: Output,
    *,
    target: TargetLike | None,
    format: str | None,
    launches: Sequence[int] | None,
    set: Mapping[str, Any] | None,
    seed: int | None,
    cycles: _PathLike | None,
    exports: Sequence[str],
    warmup: int,
    projection: _PathLike | None,
    sensitivity: Sequence[str],
    measured: _PathLike | None,
    cache: _PathLike | None,
    report: bool,
    accept: Collection[str],
    strict: bool,
    progress: Progress,
) -> PlanResult:
    from manyscale.runner.run.plans import methods
    from manyscale.runner.run.plans.request import PlanRequest

    if not isinstance(study, str | PathLike):
        raise UserError(f"plan: method {method} chooses of a profile or trace; give its path or the name of one")
    rules: dict[str, Any] = {}
    for key, value in (set or {}).items():
        rules = assign(rules, key, value)
    is_file = isinstance(output, str | PathLike) and Path(output).suffix == ".parquet"
    request = PlanRequest(
        method=method,
        path=shipped.trace_path(fspath(study)),
        form=format or "auto",
        rules=rules,
        seed=seed or 0,
        cache=located_or_none(cache),
        target=_target_name(target),
        launches=launches,
        cycles=None if cycles is None else Path(cycles),
        exports=exports,
        warmup=warmup,
        projection=None if projection is None else Path(projection),
        stem=Path(output).stem if is_file else None,  # type: ignore[arg-type]
        sensitivity=sensitivity,
        measured=None if measured is None else Path(measured),
    )
    with watched(progress) as show:
        show(0, 0, "reading and choosing")
        made = methods.by_method(request)
    notes = (*made.notes, *made.choice.notes)
    admit(notes, accept, strict=strict)
    title = f"{made.method} on {made.name}"
    found = PlanResult(title, made.plan.table(), made.summary, made.files, notes, report, planned=made)
    if not is_file:
        return kept(found, output, made.name)
    return replace(found, own_file=methods.write(made, Path(output)))  # type: ignore[arg-type]


def _target_name(target: TargetLike | None) -> str | None:
    if isinstance(target, Mapping):
        raise UserError("plan: a method takes the target by its name or file")
    return None if target is None else fspath(target)
