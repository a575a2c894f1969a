"""A study's content to its run directory: every point predicted and written."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from manyscale.models.workload import Workload
from manyscale.runner.cache import default_cache
from manyscale.runner.errors import InterruptedRunError, RunError, UserError, WrongKeyError, placed
from manyscale.runner.notes import admit
from manyscale.runner.predict.phase_source import SweepShared
from manyscale.runner.progress import Progress, silent
from manyscale.runner.registry import lookup
from manyscale.runner.run import directory as rundir
from manyscale.runner.run import outputs, pipeline, rendered, script
from manyscale.runner.run.execute.choice import choose_executor
from manyscale.runner.run.execute.execution import Counts, Execution
from manyscale.runner.run.execute.host_time import HostTime
from manyscale.runner.run.results import Result
from manyscale.runner.run.shown import Shown
from manyscale.runner.run.store import Store
from manyscale.runner.study import Study, parse_study, point_place, sweep_points
from manyscale.runner.study.traces import read_workload, with_shipped


@dataclass(frozen=True)
class Options:
    """How a study is run, as opposed to what it predicts: none of these changes a result. ``accept``: codes of notes
    that shall not refuse the result; ``strict``: those that change a number refuse it, too; ``yes``: a
    sweep may have any number of points. ``report``: write pages and, up to some size, traces; ``point_reports``: of
    the points of a sweep, too; ``self_contained``: pages of a sweep hold the script that draws, too; ``traces``: kinds
    that are written whatever their size. ``resume``: None where the caller offers no such thing."""

    output: Path | None = None
    executor: str = "auto"
    address: str | None = None
    num_workers: int | None = None
    host: Path | None = None
    cache: Path | None = None
    resume: bool | None = False
    report: bool = True
    point_reports: bool = True
    self_contained: bool = False
    traces: Collection[str] = ()
    accept: Collection[str] = ()
    strict: bool = False
    yes: bool = False
    progress: Progress = silent


@dataclass(frozen=True)
class Run:
    """A finished run: its name and directory, a summary per point of the sweep (one without a sweep), and without a
    sweep the whole result. The tables of a sweep's points stay in their files."""

    name: str
    directory: Path
    points: Sequence[outputs.Summary]
    result: Result | None
    counts: Counts
    host: Mapping[str, float] = field(default_factory=dict)


def prepare_points(
    points: Iterable[tuple[Mapping[str, Any], Study]], place: str, beside: Path | None, workload: Workload
) -> Iterator[pipeline.Point]:
    """Resolve what each point names. Raises UserError that names the study and the point."""
    shared = SweepShared()
    for axes, study in points:
        try:
            yield pipeline.prepare(axes, study, workload, beside, shared)
        except UserError as error:
            raise placed(error, point_place(place, axes)) from None


def workload_of(study: Study, place: str, cache: Path) -> Workload:
    """The workload that a study names. Raises UserError, with ``place`` for keys of the study that are wrong."""
    try:
        return read_workload(study.workload, cache)
    except WrongKeyError as error:
        raise placed(error, place) from None


def located_content(content: dict[str, Any]) -> dict[str, Any]:
    """A study's content with the paths of shipped traces in place of their names. Raises UserError."""
    workload = content.get("workload")
    return {**content, "workload": with_shipped(workload)} if isinstance(workload, dict) else content


def run_study(content: dict[str, Any], place: str, beside: Path | None, options: Options) -> Run:
    """Run a study's content, sweep or not, and write its run directory."""
    host = HostTime()
    content = located_content(content)
    points = list(sweep_points(content, place, options.yes))
    study = parse_study(content, place)
    report = options.report and (options.point_reports or not study.sweep)
    shows = Shown(report, options.self_contained, options.traces)
    cache = options.cache or default_cache()
    store = Store(cache / "units")
    options.progress(0, 0, "reading")
    workload = workload_of(study, place, cache)
    options.progress(0, len(points), "preparing")
    accept = {*options.accept, *_accepted_before(options)}
    admit(workload.notes, accept, strict=options.strict)
    prepared = list(prepare_points(points, place, beside, workload))
    for point in prepared:
        admit(point.notes, accept, strict=options.strict)
    chosen = choose_executor(options.executor, prepared, options.address, options.host)
    name = study.name or workload.name
    is_new = options.output is None or not os.path.exists(options.output)
    directory = rundir.new_directory(options.output, name, options.resume)
    resolved = _resolved(study, workload)
    if not study.sweep:  # as _write_point has it, so that a finished run can be resumed
        resolved["target"] = dict(prepared[0].case.machine_content)
    inputs = {study.workload.path: workload.digest}
    _check_resumed(directory, resolved, inputs, bool(options.resume))
    journal: rundir.Journal | None = None
    status = "failed"
    refused = False
    try:
        rundir.write_yaml(directory / rundir.RESOLVED, resolved)
        rundir.write_manifest(directory, "running", study.seed, inputs, accept)
        journal = rundir.Journal(directory)
        if study.sweep and options.report:
            script.share(directory, not options.self_contained)
        executor = lookup("executor", chosen)(
            address=options.address, num_workers=options.num_workers, host=options.host
        )
        with closing(executor):
            execution = Execution(store, executor, journal.record, options.progress)
            summaries = []
            result = None
            for index, simulated in enumerate(pipeline.simulate(prepared, execution)):
                case = simulated.point.case
                filled = _resolved(case.study, workload) | {"target": dict(case.machine_content)}
                point_directory = directory / "points" / f"{index:04d}" if study.sweep else directory
                options.progress(index, len(prepared), "writing")
                result = pipeline.assemble(simulated, execution, filled)
                admit(result.notes, accept, strict=options.strict)
                writers = shows.writers(result)
                shown = rendered.key(simulated, filled, result.notes, writers) if writers else None
                outputs.write_point(result, point_directory, shown, cache / "shown", writers)
                if study.sweep:
                    rundir.write_manifest(point_directory, "complete", study.seed, inputs, accept)
                summaries.append(outputs.summary(result))
        options.progress(len(prepared), len(prepared), "writing")
        if study.sweep:
            outputs.write_sweep(directory, summaries, list(study.sweep), name, options.report)
        outputs.write_units(directory, execution)
        figures = host.figures()
        units = {"total": 0, **vars(execution.counts)}
        figures["unit_cpu_seconds"] = sum(outcome.cpu_seconds for _, outcome, _ in execution.outcomes.values())
        simulator = {"executor": chosen, **figures, "units": units}
        rundir.write_atomically(directory / "simulator.json", json.dumps(simulator, indent=1) + "\n")
        status = "complete"
    except KeyboardInterrupt as stop:
        status = "interrupted"
        raise InterruptedRunError(directory, stop) from None
    except OSError as error:
        with suppress(OSError):
            rundir.write_manifest(directory, status, study.seed, inputs, accept)
        begun = directory if (directory / "manifest.json").is_file() else None
        why = os.strerror(error.errno) if error.errno else error
        what = "mend this" if begun else "mend this and run again"
        raise RunError(f"{error.filename or directory}: cannot be written ({why}); {what}", begun) from None
    except UserError:
        refused = not options.resume
        raise
    finally:
        with suppress(OSError) if status == "failed" else nullcontext():  # a full disk is told of already
            if journal is not None:
                journal.close()
            rundir.write_manifest(directory, status, study.seed, inputs, accept)
        if refused:
            rundir.discard(directory, remove=is_new)
    return Run(name, directory, summaries, None if study.sweep else result, execution.counts, figures)


def _accepted_before(options: Options) -> list[str]:
    """Codes of notes that were accepted when the run that is resumed began."""
    if not options.resume or options.output is None or not (options.output / "manifest.json").is_file():
        return []  # new_directory says what is wrong
    return list(rundir.read_manifest(options.output).get("accepted", []))


def _resolved(study: Study, workload: Workload) -> dict[str, Any]:
    """The study with every default filled in; it can be run again as it stands."""
    filled = study.model_dump(mode="json", by_alias=True)
    filled["name"] = study.name or workload.name
    filled["workload"]["path"] = _absolute(study.workload.path)
    if study.workload.gpu_trace is not None:
        filled["workload"]["gpu_trace"] = _absolute(study.workload.gpu_trace)
    if study.mapping.launches is not None:
        filled["mapping"]["launches"] = _absolute(study.mapping.launches)
    return filled


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().resolve())


def _check_resumed(directory: Path, resolved: Mapping[str, Any], inputs: Mapping[str, str], resume: bool) -> None:
    path = directory / rundir.RESOLVED
    if not resume or not path.is_file():
        return
    before = rundir.read_resolved(directory)
    if not isinstance(before, dict):
        raise UserError(f"{path}: is damaged (a study is a mapping of keys); start a new run")
    if before != dict(resolved):
        differing = [key for key in resolved if before.get(key) != resolved[key]]
        raise UserError(
            f"{path}: the run is of another study ({', '.join(differing)} differ), or by a version with other "
            f"defaults; give the same study, or start a new run: manyscale run {path} -o DIR"
        )
    known = rundir.read_manifest(directory).get("inputs", {})
    changed = [path for path, digest in inputs.items() if known.get(path, digest) != digest]
    if changed:
        raise UserError(f"{changed[0]}: the trace was changed since the run in {directory} began; start a new run")
