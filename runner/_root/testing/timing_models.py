"""What every timing model of phases keeps: positive times, the same each time, CPI stacks whose parts are the whole."""

from __future__ import annotations

import json
import pickle
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml

from manyscale.models.workload import PHASES_SCHEMA, PhaseKind, Workload
from manyscale.runner.api import studies
from manyscale.runner.errors import UserError
from manyscale.runner.predict.phase_source import Case, Done, Finished, PhaseSource, SweepShared
from manyscale.runner.predict.sources import phase_source
from manyscale.runner.predict.statistic import Statistic
from manyscale.runner.predict.units import Arrays, WorkUnit
from manyscale.runner.readers import workload_folder
from manyscale.runner.registry import lookup
from manyscale.runner.run.execute.local import LocalExecutor
from manyscale.runner.run.results import Result
from manyscale.runner.run.store import Store
from manyscale.runner.study import parse_study
from manyscale.runner.study.targets import resolve_target
from manyscale.runner.study.traces import read_workload
from manyscale.sampling.plan import Plan
from manyscale.testing.contract import ContractError, require, require_nowhere
from manyscale.testing.workloads import known

_CPI = ".cpi."


def check_timing_model(name: str, *, slower: bool = True, within: float = 1e-9, **study: Any) -> None:
    """``name``: of the model as a study has it, ``model: {cpu: NAME}``, by an entry point or the registry. ``study``:
    keys of the study that it predicts (``workload``, ``target``, ``mapping``, ...); a workload of small phases on the
    target crossbar256 if nothing is said.

    Checked: the source is a PhaseSource, with plans whose kinds of elements are distinct; its work units travel (they
    pickle, their parameters are JSON), and asked again the model has the same units, results and times; times are
    int64[phases], positive where the phase computed in the trace, and sleeps stay as they are; the parts of every CPI
    stack in the figures are the whole; and unless not ``slower``, a machine whose caches, memory and instructions have
    twice the latency is not faster by more than the share ``within``, for models that tell latencies from samples.
    Raises ContractError.
    """
    version = getattr(lookup("cpu", name), "VERSION", None)
    require(isinstance(version, int), f"{name}: VERSION is {version!r}, not an integer that is raised with the results")
    with tempfile.TemporaryDirectory(prefix="manyscale-check-") as folder:
        content = _content(name, study, Path(folder))
        times, again = (_predicted(name, content, Path(folder) / each) for each in ("first", "again"))
        require(np.array_equal(times, again), f"{name}: the same question has other times when it is asked again")
        result = studies.run(
            content, Path(folder) / "run", executor="local", cache=Path(folder) / "cache", report=False
        )
        _check_stacks(name, result)
        if slower:
            content["target"] = _slower_target(content, Path(folder))
            later = _predicted(name, content, Path(folder) / "slower")
            require(
                later.sum() >= times.sum() * (1 - within),
                f"{name}: with twice the latencies phases take {later.sum()} ps, less than {times.sum()} ps",
            )


def _content(name: str, study: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    content = {"target": "crossbar256", **study}
    content["model"] = {**content.get("model", {}), "cpu": name}
    if "workload" not in content:
        workload_folder.write(_with_sleep(known()[1].workload), folder / "trace")
        content["workload"] = {"path": str(folder / "trace")}
    return content


def _with_sleep(workload: Workload) -> Workload:
    """Every third phase sleeps."""
    phases = workload.tables["phases"].to_pylist()
    for phase in phases[::3]:
        phase["kind"] = int(PhaseKind.sleep)
    return replace(workload, tables={**workload.tables, "phases": pa.Table.from_pylist(phases, PHASES_SCHEMA)})


def _predicted(name: str, content: Mapping[str, Any], folder: Path) -> np.ndarray:
    """The times of all phases, by a source of its own, whose units are executed here."""
    try:
        case = _case(content)
        source = phase_source(case)
        plans = source.plans()
        done = _executed(name, source, Store(folder))
        times = source.phase_times(done)
    except UserError as error:
        raise ContractError(f"{name}: the study is refused ({error})") from error
    _check_plans(name, source, plans, done)
    _check_times(name, case, times)
    return times


def _case(content: Mapping[str, Any]) -> Case:
    study = parse_study(dict(content), "study")
    return Case(read_workload(study.workload), study, *resolve_target(study), SweepShared())


def _executed(name: str, source: PhaseSource, store: Store) -> Done:
    require(PhaseSource in type(source).__mro__, f"{name}: is no PhaseSource; make it a subclass of that class")
    done: dict[str, Finished] = {}
    while stages := source.stages(done):
        for stage in stages:
            require(stage.name not in done, f"{name}: stage {stage.name} comes twice")
            require(stage.units, f"{name}: stage {stage.name} has no units")
            for unit in stage.units:
                _check_unit(name, unit, stage.inputs)
            executor = LocalExecutor()
            alone = [unit for unit in stage.units if unit.shards == 1]
            together = [unit for unit in stage.units if unit.shards != 1]
            outcomes = [
                *executor.map(alone, stage.inputs, store),
                *executor.lockstep(together, stage.inputs, store),
            ]
            for outcome in outcomes:
                require(not outcome.error, f"{name}: a unit of stage {stage.name} fails ({outcome.error})")
            done[stage.name] = Finished(stage.units, [_result(name, store, unit) for unit in stage.units])
    return done


def _check_unit(name: str, unit: WorkUnit, inputs: Mapping[str, Any]) -> None:
    try:
        sent = pickle.loads(pickle.dumps((unit, {each: inputs[each] for each in unit.inputs.values()})))
        json.dumps(dict(unit.parameters))
    except (KeyError, TypeError, ValueError, AttributeError, pickle.PicklingError) as error:
        raise ContractError(f"{name}: a unit of kind {unit.kind} cannot be sent away ({error!r})") from error
    require(sent[0] == unit, f"{name}: a unit of kind {unit.kind} is another when it was sent")


def _result(name: str, store: Store, unit: WorkUnit) -> Arrays:
    arrays = store.read(unit.key)
    require(arrays is not None, f"{name}: a unit of kind {unit.kind} has no result")
    assert arrays is not None
    return arrays


def _check_plans(name: str, source: PhaseSource, plans: Sequence[Plan], done: Done) -> None:
    require(plans, f"{name}: has no plan of what is simulated")
    require(all(isinstance(plan, Plan) for plan in plans), f"{name}: plans has what is no Plan")
    kinds = [plan.element_kind for plan in plans]
    require(len(kinds) == len(set(kinds)), f"{name}: two plans of one kind of elements ({', '.join(kinds)})")
    for plan in plans:
        if plan.element_kind != "rank":
            keys = source.unit_keys(plan, done)
            require(
                len(keys) == len(plan.element_id),
                f"{name}: {len(keys)} units for {len(plan.element_id)} chosen elements of kind {plan.element_kind}",
            )


def _check_times(name: str, case: Case, times: np.ndarray) -> None:
    traced, kind = case.workload.column("phases", "duration_ps"), case.workload.column("phases", "kind")
    require(times.dtype == np.int64, f"{name}: times are {times.dtype}, not int64 (picoseconds)")
    require(times.shape == traced.shape, f"{name}: {len(times)} times for {len(traced)} phases")
    idle = kind != PhaseKind.compute
    require(np.array_equal(times[idle], traced[idle]), f"{name}: changes the time of a sleep")
    require_nowhere((times <= 0) & (traced > 0), f"{name}: phase {{}} computed in the trace, and takes no time")
    require_nowhere(times < 0, f"{name}: phase {{}} takes a negative time")


def _check_stacks(name: str, result: Result) -> None:
    """Figures PREFIX.cpi.PART are parts of PREFIX.cpi, or of the inverse of PREFIX.ipc."""
    figures = result.statistics
    for prefix in sorted({figure.split(_CPI)[0] for figure in figures if _CPI in figure}):
        parts = sum(each.value for figure, each in figures.items() if figure.startswith(prefix + _CPI))
        whole = _whole(figures, prefix)
        require(
            whole is None or abs(parts - whole) <= 0.01 * whole,
            f"{name}: the parts of {prefix}.cpi come to {parts:.4g}, the whole is {whole}",
        )


def _whole(figures: Mapping[str, Statistic], prefix: str) -> float | None:
    if f"{prefix}.cpi" in figures:
        return float(figures[f"{prefix}.cpi"].value)
    return 1 / float(figures[f"{prefix}.ipc"].value) if f"{prefix}.ipc" in figures else None


def _slower_target(content: Mapping[str, Any], folder: Path) -> str:
    """Path of a target like that of the study, with twice the latencies inside its nodes."""
    study = parse_study(dict(content), "study")
    machine = dict(resolve_target(study)[1])
    machine["node"] = _with_doubled(machine["node"])
    path = folder / "slower.yaml"
    path.write_text(yaml.safe_dump(machine))
    return str(path)


def _with_doubled(content: Any) -> Any:
    """Machine content with every quantity under a key ``latency`` doubled."""
    if not isinstance(content, Mapping):
        return content
    return {key: _doubled(value) if key == "latency" else _with_doubled(value) for key, value in content.items()}


def _doubled(quantity: Any) -> Any:
    text = str(quantity)
    number, _, unit = text.partition(" ")
    return f"{2 * float(number):g} {unit}"
