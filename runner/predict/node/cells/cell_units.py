"""Work units that simulate one cell: an iteration of a rank on simulated cores, in detail, sampled by TaskPoint, or by
the interval model; and what follows from their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from manyscale.models.machine import Machine, Node
from manyscale.models.machine.processor import data_caches
from manyscale.models.node.program.node_program import NodeProgram
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.models.workload import Workload
from manyscale.runner.errors import UserError
from manyscale.runner.predict.node.cells.plan import CellPlan
from manyscale.runner.predict.node.cells.profile_units import cell_inputs
from manyscale.runner.predict.node.creation import as_traced, creation_pieces
from manyscale.runner.predict.node.instance_ids import ids_in_rank, rows_as_traced, traced_ids
from manyscale.runner.predict.node.options import DetailedChoice
from manyscale.runner.predict.node.rank_cores import cores_of_ranks
from manyscale.runner.predict.node.rank_part import rank_part
from manyscale.runner.predict.node.schedule_units import SLEEP, Simulated, phase_of_pieces
from manyscale.runner.predict.node.task_type_names import same_types
from manyscale.runner.predict.node.type_ratios import CellTimes, TypeRatios, type_ratios
from manyscale.runner.predict.phase_source import Case, Finished, Stage
from manyscale.runner.predict.stored_arrays import noted, stored
from manyscale.runner.predict.units import Arrays, WorkUnit, unit_key
from manyscale.runner.registry import lookup

if TYPE_CHECKING:
    from manyscale.runner.predict.node.cells.task_sampling import Found

KIND: Final = "node-cell"
VERSION: Final = 23  # raised when results change, by a change of any model that a cell is simulated with, too
READ_OF_NODE: Final = {"sockets", "cores_per_socket", "frequency_hz", "caches", "main_memory", "numa", "core"}
READ_IN_DETAIL: Final = READ_OF_NODE | {"core_kinds"}
LEAST_SHARE: Final = 0.01  # of all instructions
_WEIGHTS: Final = {"detailed": 60, "interval": 1}  # simulated operations per access


def stage(plan: CellPlan, case: Case, profiles: Finished | None, costs: Finished | None) -> Stage:
    """A unit per cell, in their order. ``profiles`` and ``costs`` (cost_units.py): of each, where the study needs them.
    Raises UserError for a machine that lacks what the model reads."""
    study, machine = case.study, case.machine
    check_machine(machine)
    values: dict[str, Any] = {}
    types = same_types(plan.detail, plan.traced)
    result = []
    sampler = lookup("task-sampler", study.sampling.tasks)
    cores_of = cores_of_ranks(case)
    if cores_of is not None and study.sampling.tasks != "full":
        raise UserError(
            f"sampling.tasks: {study.sampling.tasks} takes samples of task instances on cores of one kind, and target "
            f"{machine.name} has several (node.core_kinds); leave one of these out"
        )
    for index, cell in enumerate(plan.cells):
        inputs, digests = cell_inputs(plan, cell, values)
        if plan.traced is not plan.detail:
            traced = rank_part(plan.traced, cell.rank)
            inputs["traced"] = f"rank {cell.rank} of {plan.traced.digest}"
            values[inputs["traced"]] = traced
            digests.append(traced.digest)
        if study.model.cpu == "interval":  # the profile has what is read of it
            values.pop(inputs.pop("stream"))
        for name, finished in (("profile", profiles), ("costs", costs)):
            if finished is not None:
                unit = finished.units[index]
                inputs[name] = f"{name} {unit.key}"
                values[inputs[name]] = finished.results[index]
                digests.append(unit.key)
        own = {
            "rank": cell.rank,
            "iteration": cell.iteration,
            "cores": study.mapping.cores_per_rank,
            "model": study.model.cpu,
            "runtime": study.options(RuntimeSystem).model_dump(mode="json", by_alias=True),
            "detailed": study.options(DetailedChoice).model_dump(mode="json"),
            "tasks": study.sampling.tasks,
            "taskpoint": sampler.options(study),
            "types": types.tolist(),
            "num_types": plan.traced.tables["task_types"].num_rows,
            "seed": study.seed,
        }
        if cores_of is not None:
            own["first_core"] = int(cores_of[cell.rank, 0])
        meaning = own | {"node": machine.node.model_dump(mode="json", include=READ_IN_DETAIL)}
        key = unit_key(KIND, VERSION, meaning, digests, seed=study.seed)
        accesses = int(plan.detail.column("segments", "num_accesses")[cell.first_segment : cell.end_segment].sum())
        weight = accesses * _WEIGHTS[study.model.cpu] // (10 if study.sampling.tasks != "full" else 1)
        parameters = own | {"node": case.machine_content["node"]}
        result.append(WorkUnit(key, KIND, parameters, inputs, max(weight, 1)))
    return Stage(KIND, result, values)


def check_machine(machine: Machine) -> None:
    """Raises UserError for a machine that lacks what simulated cores read, or whose cores have several threads."""
    node = machine.node
    if node.core is not None and node.core.hardware_threads > 1:
        raise UserError(
            f"{machine.name}: simulated cores execute one thread each, not {node.core.hardware_threads} "
            "(node.core.hardware_threads); leave it out, or use model.cpu: amm"
        )
    known = (("frequency", node.frequency_hz), ("main_memory", node.main_memory), ("core", node.core))
    missing = [key for key, value in known if value is None]
    caches = data_caches(node.caches)
    missing += [] if caches else ["caches"]
    for name, cache in caches.items():
        parts: dict[str, float | None] = {"line": cache.line_bytes, "ways": cache.ways, "latency": cache.latency_cycles}
        missing += [f"caches.{name}.{key}" for key, value in parts.items() if value is None]
    if missing:
        raise UserError(
            f"{machine.name}: simulated cores need {', '.join(f'node.{key}' for key in missing)}; add to the machine "
            "what is missing, or choose a target that has it, such as marenostrum3"
        )


def simulate_cell(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> Arrays:
    """The kind of unit. Results:

    ``makespan_ps`` int64[]: of each phase of the cell. ``core_ps`` int64[phases, 3]: what its cores did
    (schedule_units.Simulated).
    ``predicted_ps``, ``traced_ps`` float64[types + 1]: time of pieces by type of the traced workload, instance 0 last.
    ``half_width``: relative, of the predicted time, by TaskPoint's samples. ``num_instructions``,
    ``num_detailed_instructions``, ``num_instances``, ``num_detailed``, ``resamples``: how much was simulated.
    Per instance that ran: ``instance`` (task_instance_id), ``id`` and ``creator`` (instance_ids.py, of ``num_ids``,
    in the run's own numbers if ``is_of_run``),
    ``type``, ``instructions``, ``issued`` (a fused compare and branch are one), ``cycles``, ``first_misses``,
    ``second_misses``, ``last_misses``, ``model`` (of MODELS), and ``core``, ``start_ps``, ``end_ps``, ``created_ps``,
    ``ready_ps`` since the cell's phase number ``phase`` began.
    ``part`` names of the CPI stack, ``type_stack`` and ``core_stack`` in cycles, ``type_instructions``.
    """
    from manyscale.models.node.program.build import build_program  # Numba, as the others
    from manyscale.runner.predict.node.cells.open_cell import OpenCell, open_cell, open_profiled, phases_of_cell
    from manyscale.runner.predict.node.cells.simulated_cell import simulate
    from manyscale.runner.predict.node.page_faults import page_faults_of

    runtime = RuntimeSystem.model_validate(parameters["runtime"])
    node = Node.model_validate(parameters["node"])
    profile = {**inputs["profile"], **inputs.get("costs", {})} if "profile" in inputs else None
    fused = None
    if parameters["model"] == "interval":
        program, stream, pieces, fused = open_profiled(parameters, inputs, runtime)
    else:
        program, stream, pieces = open_cell(parameters, inputs, runtime)
    first, end = phases_of_cell(program, parameters["iteration"])
    detailed = inputs["part"].workload
    assert node.main_memory is not None
    faults = page_faults_of(
        program,
        detailed,
        parameters["rank"],
        parameters["cores"],
        runtime,
        node.main_memory.page_fault_ps or 0,
        (first, end),
    )
    creates = creation_pieces(program, detailed)
    traced_program, traced_creates = program, creates
    if "traced" in inputs:
        traced = inputs["traced"].workload
        traced_program = build_program(traced, parameters["rank"], parameters["cores"], runtime)
        traced_creates = creation_pieces(traced_program, traced)
        program, creates = as_traced(program, creates, detailed, traced_program, traced_creates, traced)
    cell = OpenCell(
        detailed, program, stream, pieces, creates, first, end, node, runtime, fault_ps=faults.piece_ps, fused=fused
    )
    found = simulate(cell, parameters, profile)
    types = np.append(np.asarray(parameters["types"], np.int64), -1)
    number = parameters["num_types"]

    def own_type(kind: np.ndarray) -> np.ndarray:
        return np.where(kind < 0, -1, types[kind])

    predicted = _by_type(program, _at_speed_1(program, found, node, parameters), ~creates, first, end, own_type, number)
    first_traced, end_traced = phases_of_cell(traced_program, parameters["iteration"])
    own = (lambda kind: kind) if "traced" in inputs else own_type
    traced_ps = traced_program.piece_ps
    base = _by_type(traced_program, traced_ps, ~traced_creates, first_traced, end_traced, own, number)
    phase = np.searchsorted(program.phase_first_instance, found.row, "right") - 1 - first
    begin = (np.cumsum(found.makespan_ps) - found.makespan_ps)[phase]
    numbered, rows = program, found.row
    if "traced" in inputs:
        same = rows_as_traced(
            program, (first, end), own_type(program.task_type), traced_program, (first_traced, end_traced)
        )
        if same is not None:
            numbered, rows = traced_program, same[found.row]
            found.arrays["instance"] = traced_ids(numbered.instance_id[rows], rows)
    number, creator = ids_in_rank(numbered, rows)
    arrays = stored(
        {
            **found.arrays,
            "makespan_ps": found.makespan_ps,
            "core_ps": _core_times(program, found, first, end, node),
            "predicted_ps": predicted,
            "traced_ps": base,
            "type": own_type(found.arrays["type"]).astype(np.int32),
            "phase": phase.astype(np.int32),
            "id": number,
            "creator": creator,
            "num_ids": np.array([program.num_instances], np.int64),
            "is_of_run": np.array([numbered is traced_program]),
            **{f"{name}_ps": found.arrays[f"{name}_ps"] - begin for name in ("start", "end", "created", "ready")},
        }
    )
    return noted(arrays, [*program.notes, *found.notes, *faults.notes])


def _core_times(program: NodeProgram, found: Found, first: int, end: int, node: Node) -> np.ndarray:
    """int64[phases, 3]: of phases [first, end), sleeps left out; the runtime system's time with the first one."""
    from manyscale.models.node.detailed import OVERHEAD  # Numba
    from manyscale.models.node.program.serial_parts import serial_parts

    awake_ps = np.where(program.piece_event == SLEEP, 0, found.piece_ps)
    of_cores = found.arrays["core_stack"][:, found.arrays["core_part"] == OVERHEAD].sum()
    times = np.zeros((program.num_phases, 3))
    times[:, 0] = np.bincount(phase_of_pieces(program), awake_ps, minlength=program.num_phases)
    times[first : first + 1, 1] = of_cores * 1e12 / (node.frequency_hz or 1.0)
    times[:, 2] = serial_parts(program, awake_ps)
    return np.rint(times[first:end]).astype(np.int64)


def _at_speed_1(program: NodeProgram, found: Found, node: Node, parameters: Mapping[str, Any]) -> np.ndarray:
    """Times of pieces as a core of the speed 1 would take them by the speeds of the node's cores, which phases that are
    not simulated go by."""
    if not node.core_kinds:
        return found.piece_ps
    first = parameters["first_core"]
    speeds = np.array(node.core_speeds[first : first + parameters["cores"]])
    core = np.zeros(program.num_instances, np.int64)  # of the initial task its first one
    core[found.row] = found.arrays["core"]
    return np.asarray(found.piece_ps * speeds[core[program.piece_instance]])


def _by_type(
    program: NodeProgram, piece_ps: np.ndarray, counts: np.ndarray, first: int, end: int,
    own_type: Callable[[np.ndarray], np.ndarray], number: int,
) -> np.ndarray:  # fmt: skip
    """float64[types + 1]: time of the pieces of phases [first, end) that count, sleeps left out."""
    phase = phase_of_pieces(program)
    mine = counts & (phase >= first) & (phase < end) & (program.piece_event != SLEEP) & (piece_ps > 0)
    kind = own_type(program.task_type[program.piece_instance[mine]])
    return np.bincount(np.where(kind < 0, number, kind), piece_ps[mine], minlength=number + 1).astype(float)


def ratios(plan: CellPlan, results: Sequence[Arrays], traced: Workload) -> TypeRatios:
    """What cells show of each task type. An initial task that executes next to nothing there (of all instructions,
    however few of the others' were sampled), but takes its traced time in the runtime system, shows nothing of itself.
    Of a workload without any times, of which cells hold all, nothing is left for ratios. Raises UserError where nothing
    follows from the cells."""
    if not any(result["traced_ps"].any() for result in results) and _is_untimed(traced):
        return _of_untimed(plan, results, traced)
    own = sum(int(result["type_instructions"][-1]) for result in results)
    total = sum(int(result["num_instructions"][0]) for result in results)
    shows = np.ones(traced.tables["task_types"].num_rows + 1)
    shows[-1] = own >= LEAST_SHARE * total
    cells = []
    for cell, result in zip(plan.cells, results, strict=True):
        predicted, traced_ps = (result[name] * shows * cell.weight for name in ("predicted_ps", "traced_ps"))
        cells.append(CellTimes(cell.stratum, predicted, traced_ps, float(result["half_width"][0])))
    try:
        return type_ratios(cells, len(plan.ranks.element_id), traced_spread(traced))
    except ValueError as error:
        raise UserError(f"{plan.detail.name}: {error}") from None


def _is_untimed(workload: Workload) -> bool:
    """Whether the trace's tool recorded no times, or a run that was over too soon for its clock."""
    columns = (("phases", "duration_ps"), ("tasks", "cpu_ps"), ("loop_chunks", "cpu_ps"))
    return not any(workload.column(*place).any() for place in columns)


def _of_untimed(plan: CellPlan, results: Sequence[Arrays], traced: Workload) -> TypeRatios:
    """Ratios that nothing is multiplied by. Raises UserError where cells do not hold all."""
    if not plan.hold_all:
        raise UserError(
            f"{traced.name}: the trace has no times, from which those of what is not simulated follow; record it with "
            "manyscale trace --level detailed --route qemu -o DIR -- PROGRAM, or sample neither ranks nor iterations"
        )
    types = traced.tables["task_types"].num_rows + 1
    inside = max(float(result["half_width"][0]) for result in results)
    return TypeRatios(
        np.ones((len(plan.ranks.element_id), types)), np.full(types, inside), 1.0, np.zeros(types, np.bool_)
    )


def traced_spread(workload: Workload) -> np.ndarray:
    """float64[types + 1]: relative standard deviation, over iterations and ranks, of the mean traced time of a type's
    instances; of the compute time between operations for instance 0. O(task instances)."""
    types = workload.tables["task_types"].num_rows
    rank, kind, operation = (workload.column("tasks", name) for name in ("rank", "task_type_id", "operation_id"))
    iteration, number = _iteration_of(workload, rank, operation)
    place = (rank.astype(np.int64) * number + iteration) * (types + 1) + np.where(kind < 0, types, kind)
    size = workload.num_ranks * number * (types + 1)
    count = np.bincount(place, minlength=size).reshape(-1, types + 1)
    time = np.bincount(place, workload.column("tasks", "cpu_ps"), minlength=size).reshape(-1, types + 1)
    result = np.zeros(types + 1)
    for each in range(types + 1):
        means = time[count[:, each] > 0, each] / count[count[:, each] > 0, each]
        result[each] = means.std(ddof=1) / means.mean() if len(means) > 1 and means.any() else 0.0
    return result


def _iteration_of(workload: Workload, rank: np.ndarray, operation: np.ndarray) -> tuple[np.ndarray, int]:
    """(iteration of each place, 0 before the first and after the last; number of iterations)."""
    owner = workload.column("iterations", "rank").astype(np.int64)
    if not len(owner):
        return np.zeros(len(rank), np.int64), 1
    span = int(max(operation.max(initial=0), workload.column("iterations", "end_operation_id").max(initial=0))) + 1
    starts = owner * span + workload.column("iterations", "first_operation_id")
    found = np.searchsorted(starts, rank.astype(np.int64) * span + operation, "right") - 1
    number = workload.column("iterations", "iteration")
    inside = (found >= 0) & (owner[np.maximum(found, 0)] == rank)
    return np.where(inside, number[np.maximum(found, 0)], 0).astype(np.int64), int(number.max()) + 1


def simulated_phases(plan: CellPlan, results: Sequence[Arrays]) -> dict[int, Simulated]:
    """Of each rank with cells, what its phases in them take."""
    found: dict[int, list[tuple[np.ndarray, ...]]] = {}
    for cell, result in zip(plan.cells, results, strict=True):
        makespan = result["makespan_ps"]
        iteration = np.full(len(makespan), cell.iteration, np.int64)
        found.setdefault(cell.rank, []).append((iteration, makespan, result["core_ps"]))
    return {
        rank: Simulated(*(np.concatenate(each) for each in zip(*parts, strict=True))) for rank, parts in found.items()
    }
