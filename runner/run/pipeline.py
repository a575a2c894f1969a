"""The pipe: read, plan, expand to work units, execute, replay, write. Every arrow is a value; no stage looks back."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from manyscale.models.machine import Machine
from manyscale.models.network import critical_path as path_module
from manyscale.models.network import program as program_module
from manyscale.models.network.collectives.rules import CollectiveRules
from manyscale.models.network.replay import replay as replay_module
from manyscale.models.workload import PhaseKind, Workload, WorkloadError
from manyscale.models.workload.columns import text_array
from manyscale.runner.errors import UserError
from manyscale.runner.predict import results
from manyscale.runner.predict.gpu.seam import with_launches
from manyscale.runner.predict.ipc import ipc_factors
from manyscale.runner.predict.placement import place_ranks
from manyscale.runner.predict.units import WorkUnit, array_digest, unit_key
from manyscale.runner.registry import lookup, names
from manyscale.runner.run import critical_path, links
from manyscale.runner.run.execute.execution import Execution
from manyscale.runner.run.execute.hosts import load_host
from manyscale.runner.study import Study
from manyscale.runner.study.targets import resolve_target
from manyscale.sampling.plan import Plan

if TYPE_CHECKING:
    from manyscale.runner.predict.node.coupling import Coupling

# Rough speed of one core, for choosing an executor and batches only; no result depends on it.
OPERATIONS_PER_SECOND = 2e7
RAY_PAYS_ABOVE_SECONDS = 30.0
COMPUTE_ARRAYS_BYTES = 1 << 30  # of compute times held at once, for sweep points that await their replay


@dataclass(frozen=True)
class Point:
    """One point of a sweep (or the only one), ready to be expanded into units."""

    axes: Mapping[str, Any]
    study: Study
    machine: Machine
    machine_content: Mapping[str, Any]
    node_of_rank: np.ndarray
    ranks_per_core: np.ndarray
    plan: Plan


def prepare(axes: Mapping[str, Any], study: Study, workload: Workload, beside: Path | None) -> Point:
    """Resolve everything that a point names. Raises UserError."""
    machine, content = resolve_target(study, beside)
    _check_network(machine, study)
    ipc_factors(workload, study)  # refuses what it does not know
    node, sharing = place_ranks(study.mapping, machine, workload.num_ranks, study.seed)
    source = _phase_times(workload, study, machine)
    plan = _all_ranks(workload, study) if source is None else source.plan(study)
    point = Point(axes, study, machine, content, node, sharing, plan)
    phase_time_units(workload, point)  # refuses what cannot be predicted
    return point


def _all_ranks(workload: Workload, study: Study) -> Plan:
    """The plan of a study whose ranks all take their traced times. Raises UserError for a sampler that leaves some
    out."""
    name = "full" if study.sampling.ranks == "auto" else str(study.sampling.ranks)
    plan: Plan = lookup("sampling", name)(workload, study.model.cpu)
    if not plan.is_census:
        raise UserError(f"sampling.ranks: {name!r} leaves ranks out, which the replay cannot stand in for")
    return plan


def _check_network(machine: Machine, study: Study) -> None:
    """Refuse, before anything is simulated, a network that its model cannot use."""
    check = getattr(lookup("network", study.model.network), "check", None)
    if check is None:
        return
    try:
        check(machine.network)
    except ValueError as error:
        raise UserError(f"{machine.name}: {error}") from None


def phase_time_units(workload: Workload, point: Point) -> list[WorkUnit]:
    """Units that the times of phases follow from; none where the CPU model takes the traced ones. Raises UserError."""
    source = _phase_times(workload, point.study, point.machine)
    return [] if source is None else source.units(point.study, point.machine, point.machine_content)


def _phase_times(workload: Workload, study: Study, machine: Machine) -> Any:
    """What predicts the times of phases, or None where they take the traced ones."""
    name = study.model.cpu
    source = lookup("phase-times", name)(workload, study) if name in names("phase-times") else None
    return with_launches(workload, study, machine, source)


def plans(workload: Workload, point: Point) -> list[Plan]:
    """What is simulated of a point: ranks, launches of kernels, or both."""
    source = _phase_times(workload, point.study, point.machine)
    return source.plans(point.study, point.plan) if hasattr(source, "plans") else [point.plan]


def phase_inputs(
    workload: Workload, study: Study, source: Any, duration_ps: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """Arrays of all phases that the burst model reads, with the IPC factor of each phase. ``duration_ps``: predicted
    before any correction (None: as traced). Phases of which ``source`` says so take what it predicts, as sleep does."""
    kind = workload.column("phases", "kind")
    if hasattr(source, "fixed_phases"):
        kind = np.where(source.fixed_phases(), np.int8(PhaseKind.sleep), kind)
    return {
        "duration_ps": workload.column("phases", "duration_ps") if duration_ps is None else duration_ps,
        "kind": kind,
        "ipc_factor": ipc_factors(workload, study, duration_ps),
    }


def phase_digests(workload: Workload, point: Point, time_units: Sequence[WorkUnit]) -> list[str]:
    """Digest of what the phases of each rank follow from, known before ``time_units`` have run."""
    source = _phase_times(workload, point.study, point.machine)
    columns = phase_inputs(workload, point.study, source).values()
    bounds = pairwise(workload.phase_offsets.tolist())
    digests = [array_digest(*(column[first:last] for column in columns)) for first, last in bounds]
    if time_units:  # a predicted time depends on which phase it is of, and on those that are like it
        beside = _content(source, point.study)
        content = array_digest(np.array([workload.digest, *beside, *(unit.key for unit in time_units)]))
        digests = [f"{digest} {rank} {content}" for rank, digest in enumerate(digests)]
    return digests


def _content(source: Any, study: Study) -> list[str]:
    """What times of phases follow from beside the results of units."""
    return [source.content(study)] if hasattr(source, "content") else []


def compute_units(workload: Workload, point: Point, digests: Sequence[str], shared_name: str) -> list[WorkUnit]:
    """One unit per rank under the point's CPU model, all its phases as arrays."""
    offsets = workload.phase_offsets
    kind = point.study.model.cpu
    version = lookup("cpu", kind).VERSION
    source = _phase_times(workload, point.study, point.machine)
    ratio = point.study.cpu_ratio if source is None else 1.0  # else it is in the times
    units = []
    for rank in range(workload.num_ranks):
        first, last = int(offsets[rank]), int(offsets[rank + 1])
        parameters = {"cpu_ratio": ratio, "slowdown": float(point.ranks_per_core[rank])}
        key = unit_key(kind, version, parameters, [digests[rank]], seed=0)
        units.append(
            WorkUnit(key, kind, parameters | {"first": first, "last": last}, {"phases": shared_name}, last - first)
        )
    return units


def compute_per_operation(workload: Workload, phase_ps: np.ndarray) -> np.ndarray:
    """int64 per operation: compute that precedes it, from predicted times of all phases."""
    rows = workload.rank_offsets[workload.column("phases", "rank")] + workload.column("phases", "operation_id")
    compute = np.zeros(workload.num_operations, np.int64)
    np.add.at(compute, rows, phase_ps)
    return compute


def replay_unit(
    workload: Workload,
    point: Point,
    burst_keys: list[str],
    inputs: Mapping[str, str],
    coupling: Coupling | None = None,
) -> WorkUnit:
    """The unit that replays one point's communication, together with task instances that communicate."""
    model = lookup("network", point.study.model.network)
    num_messages = len(workload.send_rows)
    parameters = {
        "model": point.study.model.network,
        "network": point.machine_content["network"],
        "node_of_rank": point.node_of_rank.tolist(),
        "num_nodes": point.machine.num_nodes,
        "num_point_to_point": num_messages,
    }
    kind = "replay"
    versions = [model.VERSION, program_module.VERSION, path_module.VERSION]
    content = [workload.digest, array_digest(np.array(burst_keys, "U32"))]
    if coupling is not None:
        from manyscale.models.network.coupled import model as coupled_module  # costs more than a small run

        kind = "replay-coupled"
        parameters |= coupling.parameters
        versions.append(coupled_module.VERSION)
        content.append(coupling.content)
        inputs = {**inputs, "nodes": coupling.name}
    meaning = parameters | {"network": point.machine.network.model_dump(mode="json")}  # however the units are written
    key = unit_key(kind, replay_module.VERSION, meaning | {"versions": versions}, content, seed=0)
    return WorkUnit(key, kind, parameters, inputs, 2 * workload.num_operations)


@dataclass(frozen=True)
class Simulated:
    """A point whose units are all stored: keys of its burst units, in rank order, of its replay, and of the units that
    the times of its phases follow from."""

    point: Point
    burst_keys: list[str]
    replay_key: str
    time_keys: list[str]


def simulate(workload: Workload, points: Sequence[Point], execution: Execution) -> Iterator[Simulated]:
    """Execute the units of all points; points that differ only in the network share every compute result."""
    time_units = _execute_phase_times(workload, points, execution)
    times = [[unit.key for unit in units] for units in time_units]
    bursts = _execute_bursts(workload, points, time_units, execution)
    couplings = [_coupling(workload, point, keys, execution) for point, keys in zip(points, times, strict=True)]
    programs: dict[str, Any] = {}

    def shared_for(chunk: list[int], needed: set[str]) -> Mapping[str, Any]:
        shared: dict[str, Any] = {}
        for index in chunk:
            program = _program_name(points[index])
            if program in needed and program not in programs:
                programs[program] = _build_program(workload, points[index])
            compute = _compute_name(bursts[index])
            if compute in needed and compute not in shared:
                shared[compute] = _compute_times(workload, bursts[index], execution)
            coupling = couplings[index]
            if coupling is not None and coupling.name in needed and coupling.name not in shared:
                shared[coupling.name] = coupling.make()
        return programs | shared

    for chunk in _chunks(workload, bursts):
        units = []
        for index in chunk:
            inputs = {"program": _program_name(points[index]), "compute_ps": _compute_name(bursts[index])}
            units.append(replay_unit(workload, points[index], bursts[index], inputs, couplings[index]))
        execution.execute(units, partial(shared_for, chunk))
        for index, unit in zip(chunk, units, strict=True):
            yield Simulated(points[index], bursts[index], unit.key, times[index])


def _execute_phase_times(workload: Workload, points: Sequence[Point], execution: Execution) -> list[list[WorkUnit]]:
    """The units that the times of each point's phases follow from, executed. Some may need the results of others: a
    source is asked for more, with the results of those before, until it has none."""
    sources = [_phase_times(workload, point.study, point.machine) for point in points]

    def shared(needed: set[str]) -> Mapping[str, Any]:
        return {name: value for source in sources if source for name, value in source.shared(needed).items()}

    known: list[list[WorkUnit]] = [[] for _ in points]
    waiting = [phase_time_units(workload, point) for point in points]
    while any(waiting):
        execution.execute([unit for units in waiting for unit in units], shared)
        for index, (point, source) in enumerate(zip(points, sources, strict=True)):
            if waiting[index]:
                known[index] += waiting[index]
                results = [execution.result(unit.key) for unit in known[index]]
                waiting[index] = source.further_units(point.study, point.machine, point.machine_content, results)
    return known


def _coupling(workload: Workload, point: Point, time_keys: list[str], execution: Execution) -> Coupling | None:
    """What the replay needs of ranks that communicate inside their task graphs, if there are any."""
    source = _phase_times(workload, point.study, point.machine)
    if source is None:
        return None
    found: Coupling | None = source.coupling(point.study, point.machine, map(execution.result, time_keys))
    return found


def _execute_bursts(
    workload: Workload, points: Sequence[Point], time_units: Sequence[list[WorkUnit]], execution: Execution
) -> list[list[str]]:
    makers: dict[str, Callable[[], Mapping[str, np.ndarray]]] = {}
    digests: dict[str, list[str]] = {}
    units: list[WorkUnit] = []
    keys = []
    for point, sources in zip(points, time_units, strict=True):
        # Points with equal times and corrections share one input.
        time_keys = [unit.key for unit in sources]
        beside = _content(_phase_times(workload, point.study, point.machine), point.study)
        name = " ".join(["phases", point.study.ipc_correction.model_dump_json(), *beside, *time_keys])
        if name not in makers:
            makers[name] = partial(_corrected_phases, workload, point, time_keys, execution)
            digests[name] = phase_digests(workload, point, sources)
        mine = compute_units(workload, point, digests[name], name)
        units.extend(mine)
        keys.append([unit.key for unit in mine])
    execution.execute(units, lambda needed: {name: makers[name]() for name in needed})
    return keys


def _corrected_phases(
    workload: Workload, point: Point, time_keys: list[str], execution: Execution
) -> dict[str, np.ndarray]:
    source = _phase_times(workload, point.study, point.machine)
    if source is None:
        return phase_inputs(workload, point.study, None)
    times = source.phase_times(point.study, map(execution.result, time_keys))
    return phase_inputs(workload, point.study, source, times.duration_ps)


def _build_program(workload: Workload, point: Point) -> program_module.Program:
    try:
        collectives = point.machine.network.collectives
        return program_module.build_program(workload, collectives, keep_graph=_keeps_graph(point))
    except WorkloadError as error:
        raise UserError(f"{point.study.workload.path}: {error}") from None


def _program_name(point: Point) -> str:
    graph = "graph " if _keeps_graph(point) else ""
    return f"program {graph}{CollectiveRules.model_validate(point.machine.network.collectives).model_dump_json()}"


def _keeps_graph(point: Point) -> bool:
    """Whether the network model replays operations that are a graph without an order."""
    return bool(getattr(lookup("network", point.study.model.network), "REPLAYS_GRAPHS", False))


def _compute_name(burst_keys: list[str]) -> str:
    return "compute " + array_digest(np.array(burst_keys, "U32"))


def _compute_times(workload: Workload, burst_keys: list[str], execution: Execution) -> np.ndarray:
    return compute_per_operation(workload, _times_of_phases(burst_keys, execution))


def _times_of_phases(burst_keys: list[str], execution: Execution) -> np.ndarray:
    return np.concatenate([execution.result(key)["duration_ps"] for key in burst_keys])


def _chunks(workload: Workload, bursts: list[list[str]]) -> Iterator[list[int]]:
    """Indices of points in order, in chunks whose compute arrays fit into COMPUTE_ARRAYS_BYTES."""
    most = max(1, COMPUTE_ARRAYS_BYTES // (8 * max(1, workload.num_operations)))
    chunk: list[int] = []
    seen: set[str] = set()
    for index, keys in enumerate(bursts):
        name = _compute_name(keys)
        if name not in seen and len(seen) == most:
            yield chunk
            chunk, seen = [], set()
        seen.add(name)
        chunk.append(index)
    if chunk:
        yield chunk


def assemble(
    workload: Workload, simulated: Simulated, execution: Execution, resolved: Mapping[str, Any]
) -> results.Result:
    """The result of one point from its stored units."""
    point = simulated.point
    arrays = execution.result(simulated.replay_key)
    compute_ps = _compute_times(workload, simulated.burst_keys, execution)
    last_ps, beside = arrays["end_ps"], {}
    if "exposed_ps" in arrays:
        from manyscale.runner.run import coupled  # costs more than a small run

        last_ps = arrays["rank_end_ps"]
        ranks = coupled.ranks_table(workload, arrays["exposed_ps"], arrays["end_ps"], last_ps)
        beside = coupled.statistics(arrays)
    else:
        ranks = results.ranks_table(workload, compute_ps, arrays["end_ps"])
    messages = results.messages_table(workload, arrays["send_ps"], arrays["receive_ps"])
    ideal = int(arrays["ideal_makespan_ps"][0])
    path = critical_path.path_table(workload, arrays) if critical_path.is_stored(arrays) else None
    figures = results.statistics(workload, point.machine, ranks, messages, last_ps, ideal) | beside
    if path is not None:
        figures |= critical_path.statistics(path, workload.num_ranks)
    makespan_ps = int(last_ps.max(initial=0))
    source = _phase_times(workload, point.study, point.machine)
    inside: Mapping[str, Any] = {}
    found = [] if source is None else [execution.result(key) for key in simulated.time_keys]
    if source is not None:
        figures |= source.statistics(point.study, found)
        figures = source.with_intervals(point.study, found, figures)
        inside = source.tables(point.study, found, compute_ps, arrays)
        if hasattr(source, "launch_tables"):
            phase_ps = _times_of_phases(simulated.burst_keys, execution)
            inside = {**inside, **source.launch_tables(point.study, found, phase_ps, arrays["end_ps"])}
    link_use = links.links_table(arrays, makespan_ps)
    figures |= links.statistics(link_use, makespan_ps)
    return results.Result(
        name=point.study.name or workload.name,
        workload=workload,
        machine=point.machine,
        ranks=ranks,
        messages=messages,
        statistics=figures,
        resolved={**resolved, "placement": point.node_of_rank.tolist()},
        sweep_point=point.axes,
        critical_path=path,
        critical_path_links=links.path_table(arrays),
        links=link_use,
        plan=_plan_table(workload, simulated, source, found),
        **inside,
    )


def _plan_table(workload: Workload, simulated: Simulated, source: Any, found: Sequence[Mapping[str, Any]]) -> pa.Table:
    """What was simulated, with the key of the unit that did it."""
    tables = []
    for plan in plans(workload, simulated.point):
        if plan.element_kind != "rank":
            keys = source.unit_keys(simulated.point.study, found, simulated.time_keys)
        else:
            keys = [simulated.burst_keys[rank] for rank in plan.element_id.tolist()]
        tables.append(plan.table().append_column("unit_key", text_array(keys)))
    return pa.concat_tables(tables)


def choose_executor(
    name: str, workload: Workload, points: Sequence[Point], address: str | None, host: Path | None
) -> str:
    """``auto`` resolved: what the host file says, else Ray if a cluster is named or the estimated work repays its
    start. Raises UserError for a host that is launched, not joined."""
    if host is not None:
        settings = load_host(host)
        settings.require_direct()
        address = address or settings.address
        name = settings.executor if name == "auto" else name
    if name != "auto":
        return name
    if address is not None:
        return "ray"
    times = {unit.key: unit.weight for point in points for unit in phase_time_units(workload, point)}
    seconds = (3 * workload.num_operations * len(points) + sum(times.values())) / OPERATIONS_PER_SECOND
    return "ray" if seconds > RAY_PAYS_ABOVE_SECONDS and (os.cpu_count() or 1) > 1 else "local"


class HostTime:
    """Wall time, CPU time (children included) and peak memory of this process since it was made."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()

    def figures(self) -> dict[str, float]:
        own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        return {
            "wall_seconds": time.perf_counter() - self._wall,
            "cpu_seconds": own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime,
            "peak_memory_bytes": 1024 * max(own.ru_maxrss, children.ru_maxrss),
        }
