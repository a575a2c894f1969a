"""What a program calls: ``manyscale.run(study)``; and what the command line is a shell around."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from manyscale.models.columns import text_array, to_arrow
from manyscale.models.workload import Workload
from manyscale.runner import pipeline, rundir
from manyscale.runner.errors import UserError
from manyscale.runner.execute.store import Store, default_cache
from manyscale.runner.execute.units import Outcome
from manyscale.runner.registry import lookup
from manyscale.runner.results import Result
from manyscale.runner.study import Study, load_study_content, parse_study, point_place, sweep_points
from manyscale.runner.traces import read_workload

__all__ = ["Options", "Result", "Run", "Study", "load_study", "read_workload", "run"]


@dataclass(frozen=True)
class Options:
    """How a study is run, as opposed to what it predicts: none of these changes a result."""

    output: Path | None = None
    executor: str = "auto"
    address: str | None = None
    num_workers: int | None = None
    host: Path | None = None
    cache: Path | None = None
    resume: bool = False
    report: bool = True
    progress: Callable[[int, int], None] = lambda done, total: None


@dataclass(frozen=True)
class Run:
    """A finished run: its directory, and a Result per point of the sweep (one without a sweep)."""

    directory: Path
    results: Sequence[Result]
    counts: pipeline.Counts
    host: Mapping[str, float] = field(default_factory=dict)


def load_study(path: str | Path) -> Study:
    """The study in a YAML file. Raises UserError, one line, if it is not one."""
    return parse_study(load_study_content(Path(path)), str(path))


def run(study: Study | Mapping[str, Any] | str | Path, output: str | Path | None = None, **options: Any) -> Result:
    """Predict one study (a Study, its mapping, or a file) and return the result; a sweep needs ``run_study``.

    ``options`` are the fields of Options. Raises UserError for bad input, RunError if the run fails.
    """
    content, place, beside = _content(study)
    if content.get("sweep"):
        raise UserError(f"{place}: the study is a sweep; use run_study, which returns every point")
    chosen = Options(output=None if output is None else Path(output), **options)
    return run_study(content, place, beside, chosen).results[0]


def _content(study: Study | Mapping[str, Any] | str | Path) -> tuple[dict[str, Any], str, Path | None]:
    if isinstance(study, Study):
        return study.model_dump(mode="json", by_alias=True, exclude_unset=True), "study", None
    if isinstance(study, Mapping):
        return dict(study), "study", None
    path = Path(study)
    return load_study_content(path), str(path), path.parent


def prepare_points(
    points: Iterable[tuple[Mapping[str, Any], Study]], place: str, beside: Path | None, workload: Workload
) -> Iterator[pipeline.Point]:
    """Resolve what each point names. Raises UserError that names the study and the point."""
    for axes, study in points:
        try:
            yield pipeline.prepare(axes, study, workload, beside)
        except UserError as error:
            raise UserError(f"{point_place(place, axes)}: {error}") from None


def run_study(content: dict[str, Any], place: str, beside: Path | None, options: Options) -> Run:
    """Run a study's content, sweep or not, and write its run directory."""
    host = pipeline.HostTime()
    points = list(sweep_points(content, place))
    study = parse_study(content, place)
    cache = options.cache or default_cache()
    store = Store(cache / "units")
    workload = read_workload(study.workload, cache)
    prepared = list(prepare_points(points, place, beside, workload))
    chosen = pipeline.choose_executor(options.executor, workload, len(points), options.address, options.host)
    name = study.name or workload.name
    is_new = options.output is None or not os.path.exists(options.output)
    directory = rundir.new_directory(options.output, name, options.resume)
    resolved = _resolved(study, workload)
    if not study.sweep:  # as _write_point has it, so that a finished run can be resumed
        resolved["target"] = dict(prepared[0].machine_content)
    inputs = {study.workload.path: workload.digest}
    _check_resumed(directory, resolved, inputs, options.resume)
    rundir.write_yaml(directory / "resolved.yaml", resolved)
    rundir.write_manifest(directory, "running", study.seed, inputs)
    journal = rundir.Journal(directory)
    status = "failed"
    refused = False
    try:
        executor = lookup("executor", chosen)(
            address=options.address, num_workers=options.num_workers, host=options.host
        )
        with closing(executor):
            execution = pipeline.Execution(store, executor, journal.record, options.progress)
            found = []
            for index, simulated in enumerate(pipeline.simulate(workload, prepared, execution)):
                point_directory = directory / "points" / f"{index:04d}" if study.sweep else directory
                found.append(_write_point(workload, simulated, execution, point_directory, resolved, inputs, options))
        if study.sweep:
            _write_sweep(directory, found, list(study.sweep), name, options)
        _write_units(directory, execution)
        figures = host.figures()
        units = {"total": 0, **vars(execution.counts)}
        figures["unit_cpu_seconds"] = sum(outcome.cpu_seconds for _, outcome, _ in execution.outcomes.values())
        simulator = {"executor": chosen, **figures, "units": units}
        rundir.write_atomically(directory / "simulator.json", json.dumps(simulator, indent=1) + "\n")
        status = "complete"
    except KeyboardInterrupt:
        status = "interrupted"
        raise
    except UserError:
        refused = not options.resume
        raise
    finally:
        journal.close()
        rundir.write_manifest(directory, status, study.seed, inputs)
        if refused:
            rundir.discard(directory, remove=is_new)
    return Run(directory, found, execution.counts, figures)


def _resolved(study: Study, workload: Workload) -> dict[str, Any]:
    """The study with every default filled in; it can be run again as it stands."""
    filled = study.model_dump(mode="json", by_alias=True)
    filled["name"] = study.name or workload.name
    filled["workload"]["path"] = str(Path(study.workload.path).expanduser().resolve())
    return filled


def _check_resumed(directory: Path, resolved: Mapping[str, Any], inputs: Mapping[str, str], resume: bool) -> None:
    path = directory / "resolved.yaml"
    if not resume or not path.is_file():
        return
    before = load_study_content(path)
    if not isinstance(before, dict):
        raise UserError(f"{path}: is damaged (a study is a mapping of keys); start a new run")
    if before != dict(resolved):
        differing = [key for key in resolved if before.get(key) != resolved[key]]
        raise UserError(
            f"{path}: the run to be resumed is of another study ({', '.join(differing)} differ); "
            "give the same study, or start a new run"
        )
    known = rundir.read_manifest(directory).get("inputs", {})
    changed = [path for path, digest in inputs.items() if known.get(path, digest) != digest]
    if changed:
        raise UserError(f"{changed[0]}: the trace was changed since the run in {directory} began; start a new run")


def _write_point(
    workload: Workload,
    simulated: pipeline.Simulated,
    execution: pipeline.Execution,
    directory: Path,
    resolved: Mapping[str, Any],
    inputs: Mapping[str, str],
    options: Options,
) -> Result:
    point = simulated.point
    directory.mkdir(parents=True, exist_ok=True)
    study = {**resolved, **point.study.model_dump(mode="json", by_alias=True, include={"mapping", "cpu_ratio", "seed"})}
    study |= {"ipc_correction": point.study.ipc_correction.model_dump(mode="json")}
    study |= {"target": dict(point.machine_content), "sweep": {}}
    rundir.write_yaml(directory / "resolved.yaml", study)
    result = pipeline.assemble(workload, simulated, execution, study)
    _write_plan(directory, simulated)
    names = ["timeline", "statistics", *(("paraver", "perfetto", "report") if options.report else ())]
    for name in names:
        lookup("writer", name)(result, directory)
    if point.axes:
        rundir.write_manifest(directory, "complete", point.study.seed, inputs)
    return result


def _write_plan(directory: Path, simulated: pipeline.Simulated) -> None:
    from manyscale.runner.writers.parquet import write_table

    table = simulated.point.plan.table()
    write_table(table.append_column("unit_key", text_array(simulated.burst_keys)), directory / "plan.parquet")


def _write_units(directory: Path, execution: pipeline.Execution) -> None:
    """``units.parquet``, by key: what the journal says, once per unit."""
    from manyscale.runner.writers.parquet import write_table

    rows: list[tuple[str, Outcome, str]] = [execution.outcomes[key] for key in sorted(execution.outcomes)]
    columns = {
        "key": text_array([outcome.key for _, outcome, _ in rows]),
        "kind": text_array([kind for kind, _, _ in rows]),
        "status": text_array([status for _, _, status in rows]),
        "attempts": to_arrow(np.array([outcome.attempts for _, outcome, _ in rows], np.int32)),
        "cpu_seconds": to_arrow(np.array([outcome.cpu_seconds for _, outcome, _ in rows], np.float64)),
        "result_path": text_array([str(execution.store.path(outcome.key)) for _, outcome, _ in rows]),
    }
    write_table(pa.Table.from_arrays(list(columns.values()), names=list(columns)), directory / "units.parquet")


def _write_sweep(directory: Path, found: Sequence[Result], axes: list[str], title: str, options: Options) -> None:
    """``sweep.parquet``: a row per point with the values of the axes and every statistic."""
    from manyscale.runner.writers.parquet import write_table

    columns: dict[str, pa.Array] = {"point_id": to_arrow(np.arange(len(found), dtype=np.int32))}
    for axis in axes:
        values = [result.sweep_point[axis] for result in found]
        numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        columns[axis] = to_arrow(np.array(values)) if numeric else text_array([_text(value) for value in values])
    for name in found[0].statistics:
        columns[name] = to_arrow(np.array([result.statistics[name].value for result in found]))
    table = pa.Table.from_arrays(list(columns.values()), names=list(columns))
    write_table(table, directory / "sweep.parquet")
    if options.report:
        from manyscale.runner.writers.report import write_sweep

        write_sweep(table, axes, directory, title)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
