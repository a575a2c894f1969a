"""The pipe: read, plan, expand to work units, execute, replay, write. Every arrow is a value; no stage looks back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from manyscale.models.machine import Machine
from manyscale.models.machine.storage import storage_times
from manyscale.models.network import critical_path as path_module
from manyscale.models.network import program as program_module
from manyscale.models.network.collectives.rules import CollectiveRules
from manyscale.models.network.replay import replay as replay_module
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.models.workload import Workload, WorkloadError
from manyscale.models.workload.columns import text_array
from manyscale.models.workload.domain import TAKES
from manyscale.models.workload.notes import Note, in_order
from manyscale.runner.errors import UserError
from manyscale.runner.predict.core_efficiencies import with_cores
from manyscale.runner.predict.ipc import ipc_factors
from manyscale.runner.predict.node.options import TimelineChoice
from manyscale.runner.predict.phase_source import (
    FILE,
    Case,
    Coupling,
    Done,
    PhaseSource,
    Replayed,
    Stage,
    SweepShared,
)
from manyscale.runner.predict.placement import placed
from manyscale.runner.predict.sources import phase_source
from manyscale.runner.predict.units import WorkUnit, array_digest, unit_key
from manyscale.runner.registry import lookup
from manyscale.runner.run import critical_path, jobs, links, point_notes, results, rounds, what_if_notes
from manyscale.runner.run.burst_units import burst_units, key_of_ranks, phase_digests, phase_inputs, times_of_phases
from manyscale.runner.run.execute.execution import Execution
from manyscale.runner.study import Study, what_if
from manyscale.runner.study.targets import machine_file, resolve_target
from manyscale.sampling.plan import Plan

COMPUTE_ARRAYS_BYTES = 1 << 30  # of compute times held at once, for sweep points that await their replay
_REPLAYS = {"replay-coupled": "coupled", "replay-devices": "devices"}  # to load one costs more than a small run


@dataclass(frozen=True)
class Point:
    """One point of a sweep (or the only one), ready to be expanded into units. ``source`` predicts the times of its
    phases, in ``first_stages`` and what follows from them; ``plans``: what is simulated, of ranks, launches, ...;
    ``notes``: what is known of the number before anything is simulated; ``storage_ps`` int64[operations]: what each
    takes of the storage, None where nothing takes any."""

    axes: Mapping[str, Any]
    case: Case
    node_of_rank: np.ndarray
    ranks_per_core: np.ndarray
    source: PhaseSource
    plans: Sequence[Plan]
    notes: Sequence[Note]
    first_stages: Sequence[Stage]
    storage_ps: np.ndarray | None = None

    @property
    def first_units(self) -> list[WorkUnit]:
        return [unit for stage in self.first_stages for unit in stage.units]


def prepare(
    axes: Mapping[str, Any], study: Study, workload: Workload, beside: Path | None, shared: SweepShared
) -> Point:
    """Resolve everything that a point names. ``shared``: of all points of the sweep. Raises UserError."""
    asked = str(axes.get(what_if.AXIS, what_if.BASE))
    what_if_notes.refuse(asked, workload, study.workload.path)
    machine, content = shared.recently(
        ("target", repr(study.target), "mapping" in study.model_fields_set, study.model.network),
        lambda: _target(study, beside, shared),
    )
    runtime = study.options(RuntimeSystem).on(machine.node, study.mapping.cores_per_rank)
    study = study.model_copy(update={"runtime": runtime})
    case = Case(workload, study, machine, content, shared)
    ipc_factors(case)  # refuses what it does not know
    study.options(TimelineChoice).check_ranks(workload.num_ranks)
    node, sharing = placed(case)
    source = phase_source(case)
    notes = [*workload.notes, *point_notes.before(case, node, source, asked), *jobs.notes_before(case, node)]
    try:
        storage = storage_times(workload, machine.storage, node)
    except ValueError as error:
        raise UserError(f"{machine.name}: {error}") from None
    return Point(axes, case, node, sharing, source, source.plans(), notes, source.stages({}), storage)


def _target(study: Study, beside: Path | None, shared: SweepShared) -> tuple[Machine, dict[str, Any]]:
    """The machine of a point, whose network its model can use, and its content. Raises UserError."""
    found = resolve_target(
        study, beside, lambda name, near: shared.once((FILE, "target", name), lambda: machine_file(name, near))
    )
    _check_network(found[0], study)
    return found


def _check_network(machine: Machine, study: Study) -> None:
    """Refuse, before anything is simulated, a network that its model cannot use."""
    check = getattr(lookup("network", study.model.network), "check", None)
    if check is None:
        return
    try:
        check(machine.network)
    except ValueError as error:
        raise UserError(f"{machine.name}: {error}") from None


def compute_per_operation(workload: Workload, phase_ps: np.ndarray) -> np.ndarray:
    """int64 per operation: compute that precedes it, from predicted times of all phases."""
    rows = workload.rank_offsets[workload.column("phases", "rank")] + workload.column("phases", "operation_id")
    compute = np.zeros(workload.num_operations, np.int64)
    np.add.at(compute, rows, phase_ps)
    return compute


def _before_operations(point: Point, phase_ps: np.ndarray) -> np.ndarray:
    """int64 per operation: what it is replayed after, compute and what it takes of the storage."""
    compute = compute_per_operation(point.case.workload, phase_ps)
    return compute if point.storage_ps is None else compute + point.storage_ps


def replay_unit(
    point: Point, burst_keys: list[str], inputs: Mapping[str, str], coupling: Coupling | None = None
) -> WorkUnit:
    """The unit that replays one point's communication, together with task instances that communicate."""
    workload, machine, network = point.case.workload, point.case.machine, point.case.study.model.network
    model = lookup("network", network)
    parameters = {
        "model": network,
        "network": point.case.machine_content["network"],
        "node_of_rank": point.node_of_rank.tolist(),
        "num_nodes": machine.num_nodes,
        "num_point_to_point": len(workload.send_rows),
    }
    kind = "replay"
    versions = [model.VERSION, program_module.VERSION, path_module.VERSION]
    if _called_from(point, coupling) is not None:
        versions.append(import_module("manyscale.models.network.replay.calls").VERSION)
    content = [workload.digest, array_digest(np.array(burst_keys, "U32"))]
    if point.storage_ps is not None:
        content.append(array_digest(point.storage_ps))
    if coupling is not None:
        kind = coupling.kind
        parameters |= coupling.parameters
        versions.append(import_module(f"manyscale.models.network.{_REPLAYS[kind]}.model").VERSION)
        content.append(coupling.content)
        inputs = {**inputs, "nodes": coupling.name}
    meaning = parameters | {"network": machine.network.model_dump(mode="json")}  # however the units are written
    key = unit_key(kind, replay_module.VERSION, meaning | {"versions": versions}, content, seed=0)
    return WorkUnit(key, kind, parameters, inputs, 2 * workload.num_operations)


@dataclass(frozen=True)
class Simulated:
    """A point whose units are all stored: keys of its burst units, by group of ranks, its replay, and the units that
    the times of its phases follow from, by stage."""

    point: Point
    burst_keys: list[str]
    replay: WorkUnit
    time_units: Mapping[str, Sequence[WorkUnit]]


def simulate(
    points: Sequence[Point], execution: Execution, programs: dict[str, Any] | None = None
) -> Iterator[Simulated]:
    """Execute the units of all points, which have one workload; those that differ only in the network share every
    compute result. ``programs``: those that were built for other points of the sweep, by name, and then for these."""
    time_units = _execute_stages(points, execution)
    bursts = _execute_bursts(points, time_units, execution)
    couplings = [
        point.source.coupling(rounds.done(units, execution)) for point, units in zip(points, time_units, strict=True)
    ]
    programs = {} if programs is None else programs

    def shared_for(chunk: Sequence[int], needed: set[str]) -> Mapping[str, Any]:
        shared: dict[str, Any] = {}
        for index in chunk:
            program = _program_name(points[index], couplings[index])
            if program in needed and program not in programs:
                programs[program] = _build_program(points[index], couplings[index])
            compute = _compute_name(points[index], bursts[index])
            if compute in needed and compute not in shared:
                shared[compute] = _before_operations(points[index], times_of_phases(bursts[index], execution))
            coupling = couplings[index]
            if coupling is not None and coupling.name in needed and coupling.name not in shared:
                shared[coupling.name] = coupling.make()
        return programs | shared

    def replayed(indices: Sequence[int]) -> dict[int, WorkUnit]:
        units = {}
        for index in indices:
            point, keys = points[index], bursts[index]
            inputs = {"program": _program_name(point, couplings[index]), "compute_ps": _compute_name(point, keys)}
            units[index] = replay_unit(point, keys, inputs, couplings[index])
        execution.execute(list(units.values()), partial(shared_for, indices))
        return units

    for chunk in _chunks(points, bursts):
        units = last = replayed(chunk)
        while again := rounds.refined(last, couplings, execution):
            for index, coupling in again.items():
                couplings[index] = coupling
            last = replayed(list(again))
            units |= last
        for index in chunk:
            yield Simulated(points[index], bursts[index], units[index], time_units[index])


def _execute_stages(points: Sequence[Point], execution: Execution) -> list[dict[str, Sequence[WorkUnit]]]:
    """The units that the times of each point's phases follow from, by stage, executed: those of all points side by
    side, until no source has more."""
    known: list[dict[str, Sequence[WorkUnit]]] = [{} for _ in points]
    waiting = [point.first_stages for point in points]
    while any(waiting):
        stages = [stage for mine in waiting for stage in mine]
        execution.execute([unit for stage in stages for unit in stage.units], partial(rounds.inputs_of, stages))
        for index, point in enumerate(points):
            if waiting[index]:
                known[index] |= {stage.name: stage.units for stage in waiting[index]}
                waiting[index] = point.source.stages(rounds.done(known[index], execution))
    return known


def _execute_bursts(
    points: Sequence[Point], time_units: Sequence[Mapping[str, Sequence[WorkUnit]]], execution: Execution
) -> list[list[str]]:
    makers: dict[str, Callable[[], Mapping[str, np.ndarray]]] = {}
    digests: dict[str, list[str]] = {}
    units: list[WorkUnit] = []
    keys = []
    for point, by_stage in zip(points, time_units, strict=True):
        # Points with equal times and corrections share one input.
        mine = [unit for stage in by_stage.values() for unit in stage]
        correction = point.case.study.ipc_correction.model_dump_json()
        name = " ".join(["phases", correction, *point.source.content(), *(unit.key for unit in mine)])
        if name not in makers:
            makers[name] = partial(_corrected_phases, point, by_stage, execution)
            digests[name] = phase_digests(point.case, point.source, mine)
        bursts = burst_units(point.case, point.source, point.ranks_per_core, digests[name], name)
        units.extend(bursts)
        keys.append([unit.key for unit in bursts])
    execution.execute(units, lambda needed: {name: makers[name]() for name in needed})
    return keys


def _corrected_phases(
    point: Point, time_units: Mapping[str, Sequence[WorkUnit]], execution: Execution
) -> dict[str, np.ndarray]:
    return phase_inputs(point.case, point.source, point.source.phase_times(rounds.done(time_units, execution)))


def _build_program(point: Point, coupling: Coupling | None) -> program_module.Program:
    try:
        collectives = point.case.machine.network.collectives
        workload = point.case.workload if coupling is None else coupling.of_network(point.case.workload)
        return program_module.build_program(
            workload, collectives, keep_graph=_keeps_graph(point), called_from=_called_from(point, coupling)
        )
    except WorkloadError as error:
        raise UserError(f"{point.case.study.workload.path}: {error}") from None


def _program_name(point: Point, coupling: Coupling | None) -> str:
    graph = "graph " if _keeps_graph(point) else ""
    called_from = _called_from(point, coupling)
    calls = "" if called_from is None else f"calls {called_from} "
    rules = CollectiveRules.model_validate(point.case.machine.network.collectives)
    streams = "" if coupling is None else coupling.name_of_streams
    return f"program {graph}{calls}{streams}{rules.model_dump_json()}"


def _called_from(point: Point, coupling: Coupling | None) -> int | None:
    """From how many ranks on collectives are called in the replay of a point; None where none is."""
    least: int | None = getattr(lookup("network", point.case.study.model.network), "CALLED_FROM", None)
    if coupling is not None or least is None or point.case.workload.num_ranks < least:
        return None
    return least


def _keeps_graph(point: Point) -> bool:
    """Whether the network model replays operations that are a graph without an order."""
    domain = getattr(lookup("network", point.case.study.model.network), "DOMAIN", None)
    return domain is not None and domain.features["unordered-operations"] == TAKES


def _compute_name(point: Point, burst_keys: list[str]) -> str:
    storage = "" if point.storage_ps is None else f" storage {array_digest(point.storage_ps)}"
    return f"compute {array_digest(np.array(burst_keys, 'U32'))}{storage}"


def _chunks(points: Sequence[Point], bursts: list[list[str]]) -> Iterator[list[int]]:
    """Indices of points in order, in chunks whose compute arrays fit into COMPUTE_ARRAYS_BYTES."""
    most = max(1, COMPUTE_ARRAYS_BYTES // (8 * max(1, points[0].case.workload.num_operations)))
    chunk: list[int] = []
    seen: set[str] = set()
    for index, keys in enumerate(bursts):
        name = _compute_name(points[index], keys)
        if name not in seen and len(seen) == most:
            yield chunk
            chunk, seen = [], set()
        seen.add(name)
        chunk.append(index)
    if chunk:
        yield chunk


def assemble(simulated: Simulated, execution: Execution, resolved: Mapping[str, Any]) -> results.Result:
    """The result of one point from its stored units."""
    point, workload, machine = simulated.point, simulated.point.case.workload, simulated.point.case.machine
    arrays = execution.result(simulated.replay.key)
    phase_ps = times_of_phases(simulated.burst_keys, execution)
    is_coupled, has_devices = (simulated.replay.kind == kind for kind in ("replay-coupled", "replay-devices"))
    replayed = Replayed(phase_ps, compute_per_operation(workload, phase_ps), arrays, is_coupled, has_devices)
    last_ps, beside, found = arrays["end_ps"], {}, []
    if is_coupled or has_devices:
        from manyscale.runner.run import coupled  # costs more than a small run

        last_ps = arrays["rank_end_ps"]
        if is_coupled:
            ranks = coupled.ranks_table(workload, arrays["exposed_ps"], arrays["end_ps"], last_ps)
            beside = coupled.statistics(arrays)
        else:
            from manyscale.runner.run import devices  # the same

            ranks = devices.ranks_table(workload, arrays)
            beside, found = devices.statistics(arrays), devices.notes(arrays)
    else:
        ranks = results.ranks_table(workload, replayed.compute_ps, arrays["end_ps"])
    messages = results.messages_table(workload, arrays["send_ps"], arrays["receive_ps"])
    ideal = int(arrays["ideal_makespan_ps"][0])
    path = critical_path.path_table(workload, arrays) if critical_path.is_stored(arrays) else None
    ideal_compute = arrays.get("ideal_compute_ps")
    figures = results.statistics(workload, machine, ranks, messages, last_ps, ideal, ideal_compute) | beside
    if path is not None:
        figures |= critical_path.statistics(path, workload.num_ranks)
    makespan_ps = int(last_ps.max(initial=0))
    done = rounds.done(simulated.time_units, execution)
    figures = point.source.figures(figures, done) | point.source.figures_of_replay(done, replayed)
    use = point.source.core_use(done, replayed)
    if use is not None:
        compute = results.compute_of_ranks(ranks, workload.num_ranks) if ideal_compute is None else ideal_compute
        figures = with_cores(figures, compute, use)
    link_use = links.links_table(arrays, makespan_ps)
    figures |= links.statistics(link_use, makespan_ps)
    tables = point.source.tables(done, replayed)
    figures |= jobs.statistics(workload, arrays, tables.get("steps"))
    return results.Result(
        name=point.case.study.name or workload.name,
        workload=workload,
        machine=machine,
        ranks=ranks,
        messages=messages,
        statistics=figures,
        resolved={**resolved, "placement": point.node_of_rank.tolist()},
        sweep_point=point.axes,
        critical_path=path,
        critical_path_links=links.path_table(arrays),
        links=link_use,
        plan=_plan_table(simulated, done),
        notes=in_order(
            [
                *point.notes,
                *point.source.notes(done),
                *found,
                *point_notes.of_samples(point.plans, figures),
                *point_notes.of_ideal_network(figures),
                *jobs.notes_after(figures),
                *point_notes.of_cores(point.case.study.mapping.cores_per_rank, use),
                *point_notes.of_files(takes_time=point.storage_ps is not None, is_coupled=is_coupled),
            ]
        ),
        **tables,
    )


def _plan_table(simulated: Simulated, done: Done) -> pa.Table:
    """What was simulated, with the key of the unit that did it."""
    tables = []
    for plan in simulated.point.plans:
        if plan.element_kind == "rank":
            num_ranks = simulated.point.case.workload.num_ranks
            keys = key_of_ranks(simulated.burst_keys, num_ranks, plan.element_id)
        else:
            keys = simulated.point.source.unit_keys(plan, done)
        tables.append(plan.table().append_column("unit_key", text_array(keys)))
    return pa.concat_tables(tables)
