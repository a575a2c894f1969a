"""A study's content to its run directory: every point predicted and written."""

from __future__ import annotations

import json
import os
import shlex
import sys
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from manyscale.models.workload import Workload
from manyscale.runner import kept, limits
from manyscale.runner.cache import default_cache
from manyscale.runner.errors import InterruptedRunError, LostClusterError, RunError, UserError, WrongKeyError, placed
from manyscale.runner.notes import admit
from manyscale.runner.predict.phase_source import SweepShared
from manyscale.runner.progress import Progress, silent
from manyscale.runner.registry import lookup
from manyscale.runner.run import directory as rundir
from manyscale.runner.run import outputs, pipeline, rendered, script, standing
from manyscale.runner.run.execute.choice import choose_executor
from manyscale.runner.run.execute.ending import last_step
from manyscale.runner.run.execute.execution import Counts, Execution
from manyscale.runner.run.execute.host_time import HostTime
from manyscale.runner.run.results import Result
from manyscale.runner.run.shown import Shown
from manyscale.runner.run.store import Store
from manyscale.runner.run.sweeps import point_files, untraced
from manyscale.runner.run.sweeps.finished import FinishedPoints
from manyscale.runner.run.sweeps.point_units import Points, is_alone
from manyscale.runner.run.sweeps.resolved import resolved_point, resolved_study
from manyscale.runner.run.sweeps.summaries import Summaries, Summary
from manyscale.runner.run.sweeps.sweep_runs import SweepRun
from manyscale.runner.run.sweeps.workloads import digest, machines
from manyscale.runner.storage import address, mirror
from manyscale.runner.storage.publishing import published
from manyscale.runner.study import Study, Sweep, parse_study
from manyscale.runner.study.traces import read_workload, with_shipped

FILES_OF_PACKED_POINT = 2
FILES_OF_POINT = 8  # without pages and traces
LEAST_FILE_BYTES = 512
BYTES_OF_OPERATION = 24  # of a replay: what precedes it, and when it begins and ends
MOST_CHECKED = 1_000  # points of a large sweep that are prepared before any is predicted


@dataclass(frozen=True)
class Options:
    """How a study is run, as opposed to what it predicts: none of these changes a result. ``accept``: codes of notes
    that shall not refuse the result; ``strict``: those that change a number refuse it, too; ``yes``: a
    sweep may have any number of points. ``report``: write pages and, up to some size, traces; ``point_traces``: of
    the points of a small sweep, too; ``shown_points``: those of a sweep whose run directories are written with traces
    and a page; ``self_contained``: pages of a sweep hold the script that draws, too; ``traces``: kinds that are written
    whatever their size. ``resume``: None where the caller offers no such thing."""

    output: Path | None = None
    executor: str = "auto"
    address: str | None = None
    num_workers: int | None = None
    host: Path | None = None
    cache: Path | None = None
    resume: bool | None = False
    report: bool = True
    point_traces: bool = True
    shown_points: Collection[int] = ()
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
    points: Sequence[Summary]
    result: Result | None
    counts: Counts
    host: Mapping[str, float] = field(default_factory=dict)


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


@dataclass(frozen=True)
class _Asked:
    """What ``run_study`` was asked for, and what it read for it."""

    sweep: Sweep
    study: Study
    workload: Workload
    beside: Path | None
    options: Options
    accept: frozenset[str]
    host: HostTime
    shared: SweepShared = field(default_factory=SweepShared)

    @property
    def name(self) -> str:
        return self.study.name or (self.study.workload.path if self.sweep.has_shapes else self.workload.name)

    @cached_property
    def inputs(self) -> dict[str, str]:
        return {self.study.workload.path: digest(self.sweep, self.study, self.workload, self.shared)}

    @property
    def cache(self) -> Path:
        return self.options.cache or default_cache()

    @property
    def records(self) -> Path:
        """Of traces that earlier runs wrote: in folders of this machine, wherever the cache is."""
        return (default_cache() if address.origin(self.cache) else self.cache).absolute() / "shown"

    def points(self, shows: Shown) -> Points:
        """The points of the sweep, before it is known where they go."""
        number, options = len(self.sweep), self.options
        manifest = {"seed": self.study.seed, "inputs": self.inputs, "accepted": sorted(self.accept)}
        units = address.absolute(self.cache / "units")
        packs = number > point_files.MOST_WHOLE
        return Points(
            self.sweep, self.workload, self.beside, {}, self.accept, options.strict, Path(), "", "", units,
            self.records, shows, packs=packs, keeps=not packs, manifest=manifest, memory={"shared": self.shared},
        )  # fmt: skip


def run_study(content: dict[str, Any], place: str, beside: Path | None, options: Options) -> Run:
    """Run a study's content, sweep or not, and write its run directory."""
    host = HostTime()
    content = located_content(content)
    sweep = Sweep(content, place, options.yes)
    study = parse_study(content, place)
    options.progress(0, 0, "reading")
    workload = workload_of(study, place, options.cache or default_cache())
    options.progress(0, len(sweep), "preparing")
    accept = frozenset({*options.accept, *_accepted_before(options)})
    admit(workload.notes, accept, strict=options.strict)
    asked = _Asked(sweep, study, workload, beside, options, accept, host)
    return _run_sweep(asked) if study.sweep else _run_one(asked)


def _run_one(asked: _Asked) -> Run:
    """A study without a sweep."""
    options = asked.options
    shows = Shown(options.report, True, options.self_contained, options.traces)
    point = asked.points(shows).prepare(0)
    chosen = choose_executor(options.executor, [point], options.address, options.host)
    _check_limits(asked, chosen, 1, packs=False)
    is_new = options.output is None or not os.path.exists(options.output)
    directory = rundir.new_directory(options.output, asked.name, options.resume, publishes=True)
    filled = resolved_point(point.case)  # with all of the target, so that a finished run can be resumed
    _check_resumed(directory, filled, asked.inputs, bool(options.resume))
    with (
        published(directory),
        _attempt(asked, directory, filled, is_new) as journal,
        closing(_executor(chosen, options)) as executor,
        standing.told(directory, options.progress) as now,
    ):
        execution = Execution(Store(asked.cache / "units"), executor, journal.record, now.progress)
        now.shows(execution)
        (simulated,) = pipeline.simulate([point], execution)
        options.progress(0, 1, "writing")
        result = pipeline.assemble(simulated, execution, filled)
        admit(result.notes, asked.accept, strict=options.strict)
        writers = shows.writers(result)
        name = rendered.key(simulated, filled, result.notes, writers) if writers else ""
        record = rendered.Record(asked.records, name, directory) if writers else None
        outputs.write_point(result, directory, writers, record, plugged=options.report)
        options.progress(1, 1, "writing")
        figures = _end(asked, directory, execution, journal, chosen)
    return Run(asked.name, directory, [outputs.summary(result)], result, execution.counts, figures)


def _run_sweep(asked: _Asked) -> Run:
    options, sweep, study = asked.options, asked.sweep, asked.study
    number = len(sweep)
    packs = number > point_files.MOST_WHOLE
    shows = Shown(options.report and options.point_traces and not packs, False, options.self_contained, options.traces)
    points = asked.points(shows)
    summaries = Summaries(sweep, asked.name)
    resolved = resolved_study(study, asked.name, asked.shared)
    of_machines = machines(sweep, study, asked.beside, asked.shared)
    stamp = _stamp(resolved, [*sorted(asked.inputs.values()), of_machines], points)
    is_new = options.output is None or not os.path.exists(options.output)
    before: FinishedPoints | None = None
    if options.resume:
        directory = rundir.new_directory(options.output, asked.name, True, publishes=True)
        _check_resumed(directory, resolved, asked.inputs, True)
        before = FinishedPoints(directory, stamp)
        for point, stats in before.whole():
            summaries.add(point.index, point.target, stats)
            admit(summaries[point.index].notes, asked.accept, strict=options.strict)
    known = before.known if before is not None else {}
    few = packs or sweep.has_shapes  # shapes were looked at when they were counted
    wanted = range(number) if not few else sweep.first_with_each_value()[:MOST_CHECKED]
    if (largest := sweep.largest_shape()) is not None and len(known) < number:
        points.prepare(largest)
    checked = {index: points.prepare(index) for index in wanted if index not in known}
    chosen = "local" if options.executor == "auto" else options.executor
    if checked:
        some = list(checked.values())
        chosen = choose_executor(options.executor, some, options.address, options.host, number - len(known))
    _check_limits(asked, chosen, number - len(known), packs=packs)
    if before is not None and (shows.report or shows.traces):
        stay = [known[index] for index in sorted(known.keys() - set(options.shown_points))]
        _say(untraced.line(directory, address.shown(directory), stay, shows))
    if before is None:
        directory = rundir.new_directory(options.output, asked.name, options.resume, publishes=True)
    command = rundir.read_manifest(directory)["command"] if before is not None else rundir.command_line()
    with (
        published(directory) as claim,
        _attempt(asked, directory, resolved, is_new) as journal,
        closing(_executor(chosen, options)) as executor,
        standing.told(directory, options.progress) as now,
    ):
        if options.report:
            script.share(directory, not options.self_contained)
        execution = Execution(Store(asked.cache / "units"), executor, journal.record, now.progress)
        now.shows(execution)
        with _marked(directory) as token, closing(before or FinishedPoints(directory, stamp)) as finished:
            points = replace(
                points, known=asked.shared.of_files(), directory=directory.absolute(), token=token, claim=claim,
                manifest={**points.manifest, "command": command},
            )  # fmt: skip
            finished.begin()
            kept_ready = {} if packs else {index: each for index, each in checked.items() if not is_alone(each)}
            run = SweepRun(points, execution, finished, summaries, now.progress, stamp, kept_ready)
            run.predict()
            if options.shown_points:
                shown = replace(points, packs=False, shows=replace(shows, report=True, pages=True))
                replace(run, points=shown).show(options.shown_points)
        options.progress(number, number, "writing")
        finished.sort()
        outputs.write_sweep(directory, summaries, list(study.sweep), asked.name, options.report)
        figures = _end(asked, directory, execution, journal, chosen)
    return Run(asked.name, directory, summaries, None, execution.counts, figures)


def _stamp(resolved: Mapping[str, Any], inputs: Sequence[str], points: Points) -> str:
    """Of all that the files of points follow from, beside their numbers."""
    versions = {name: each for name, each in rundir.versions().items() if name != "ray"}
    return kept.checksum_of_text(json.dumps([resolved, inputs, versions, points.packs]))


def _check_limits(asked: _Asked, chosen: str, number: int, *, packs: bool) -> None:
    """Compare what ``number`` points take at least with what there is. Raises LimitError."""
    files = number * (FILES_OF_PACKED_POINT if packs else FILES_OF_POINT)
    needs = (
        limits.Needs(asked.options.output or Path("runs"), "the run", "-o", files, files * LEAST_FILE_BYTES),
        limits.Needs(asked.cache, "the cache", "--cache", 0 if packs else 2 * number),
    )
    memory = BYTES_OF_OPERATION * asked.workload.num_operations
    for line in limits.at_start(needs, memory, uses_ray=chosen == "ray"):
        _say(line)


def _say(line: str) -> None:
    if line:
        print(f"manyscale: {line}", file=sys.stderr, flush=True)


def _executor(chosen: str, options: Options) -> Any:
    return lookup("executor", chosen)(address=options.address, num_workers=options.num_workers, host=options.host)


@contextmanager
def _marked(directory: Path) -> Iterator[str]:
    """The name of a file in ``directory`` by which workers see that it is the one of this run."""
    for left in directory.glob(".points-*"):
        left.unlink(missing_ok=True)
    token = f".points-{uuid.uuid4().hex}"
    (directory / token).touch()
    mirror.publish(directory / token)
    try:
        yield token
    finally:
        with suppress(OSError, UserError):
            (directory / token).unlink(missing_ok=True)
            mirror.remove(directory / token)


@contextmanager
def _attempt(asked: _Asked, directory: Path, resolved: Mapping[str, Any], is_new: bool) -> Iterator[rundir.Journal]:
    """The journal of an attempt at a run; whatever ends it, the manifest tells. What was written before the input was
    refused is taken back."""
    options, journal, status, refused = asked.options, None, "failed", False
    of_manifest = (asked.study.seed, asked.inputs, asked.accept)
    try:
        rundir.write_yaml(directory / rundir.RESOLVED, resolved)
        rundir.write_manifest(directory, "running", *of_manifest)
        journal = rundir.Journal(directory)
        with last_step(partial(_interrupted, directory, of_manifest)):
            yield journal
        status = "complete"
    except KeyboardInterrupt as stop:
        status = "interrupted"
        raise InterruptedRunError(directory, stop) from None
    except OSError as error:
        with suppress(OSError):
            rundir.write_manifest(directory, status, *of_manifest)
        begun = directory if (directory / "manifest.json").is_file() else None
        why = os.strerror(error.errno) if error.errno else error
        what = "mend this" if begun else "mend this and run again"
        raise RunError(f"{error.filename or directory}: cannot be written ({why}); {what}", begun) from None
    except LostClusterError as error:
        status, error.directory = "interrupted", directory
        raise
    except UserError:
        refused = not options.resume
        raise
    finally:
        with suppress(OSError) if status == "failed" else nullcontext():  # a full disk is told of already
            if journal is not None:
                journal.close()
            rundir.write_manifest(directory, status, *of_manifest)
        if refused:
            rundir.discard(directory, remove=is_new)


def _end(
    asked: _Asked, directory: Path, execution: Execution, journal: rundir.Journal, chosen: str
) -> Mapping[str, float]:
    """Write what became of the units, and what the run took; the figures of the latter."""
    outputs.write_units(directory, execution, journal.earlier)
    figures = asked.host.figures()
    units = {"total": 0, **vars(execution.counts)}
    figures["unit_cpu_seconds"] = execution.cpu_seconds
    simulator = {"executor": chosen, **figures, "units": units}
    rundir.write_atomically(directory / "simulator.json", json.dumps(simulator, indent=1) + "\n")
    return figures


def _interrupted(directory: Path, of_manifest: tuple[Any, ...]) -> str:
    """Where a cluster's head is lost, and this process with it; returns what goes on with the run."""
    with suppress(OSError):
        rundir.write_manifest(directory, "interrupted", *of_manifest)
    return shlex.join(["manyscale", "run", "--resume", "-o", address.shown(directory)])


def _accepted_before(options: Options) -> list[str]:
    """Codes of notes that were accepted when the run that is resumed began."""
    if not options.resume or options.output is None or not (options.output / "manifest.json").is_file():
        return []  # new_directory says what is wrong
    return list(rundir.read_manifest(options.output).get("accepted", []))


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
