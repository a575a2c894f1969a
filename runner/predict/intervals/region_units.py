"""Work units that simulate regions of a parallel program on the cores of a node (regions.py).

A region is a unit of its own, so that any number of workers simulates them side by side; those whose caches are
``stitched`` are one unit, which simulates them in order. Where caches are filled by last uses, a unit of the first
stage finds which lines each task instance, and the initial task in each region, has used; they are put where a burst
schedule of all that precedes the region, in which every instruction takes as long as any other, has them used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from manyscale.models.memory.access_stream import sites_of
from manyscale.models.node.program.node_program import Action, LoopFlag
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.runner.predict.intervals.options import IntervalsChoice
from manyscale.runner.predict.intervals.regions import Regions
from manyscale.runner.predict.node.cells import profile_units
from manyscale.runner.predict.node.cells.cell_units import READ_OF_NODE, check_machine
from manyscale.runner.predict.node.cells.streams import StreamPart
from manyscale.runner.predict.node.instance_ids import ids_in_rank
from manyscale.runner.predict.node.options import DetailedChoice
from manyscale.runner.predict.node.rank_part import RankPart
from manyscale.runner.predict.node.schedule_units import SLEEP, phase_of_pieces
from manyscale.runner.predict.node.tables import MODELS
from manyscale.runner.predict.phase_source import Case, Stage
from manyscale.runner.predict.stored_arrays import noted, stored
from manyscale.runner.predict.units import Arrays, WorkUnit, array_digest, unit_key

if TYPE_CHECKING:
    from manyscale.models.node.detailed import DetailedPhases
    from manyscale.runner.predict.intervals.open_regions import OpenRegions, Stretch

KIND: Final = "sampled-region"
LINES: Final = "region-lines"
VERSION: Final = 7  # raised when results change, by a change of any model that a region is simulated with, too
_WEIGHTS: Final = (30, 10)  # simulated operations per instruction: in detail, to find lines


def lines_stage(regions: Regions, part: RankPart, stream: StreamPart, case: Case) -> Stage:
    """The unit that finds the lines of instances. Raises UserError for a machine that lacks what the model reads."""
    check_machine(case.machine)
    values = _inputs(regions, part, stream)
    own = {"line_bytes": profile_units.line_bytes_of(case.machine)}
    key = unit_key(LINES, VERSION, own, [regions.content], seed=0)
    weight = _WEIGHTS[1] * int(stream.num_accesses.sum())
    unit = WorkUnit(key, LINES, own, {name: _named(name, regions) for name in values}, max(weight, 1))
    return Stage(LINES, [unit], {_named(name, regions): value for name, value in values.items()})


def stage(
    regions: Regions, part: RankPart, stream: StreamPart, chosen: np.ndarray, case: Case, fault_ps: np.ndarray,
    lines: Arrays | None,
) -> Stage:  # fmt: skip
    """Units that simulate the regions ``chosen`` (rows of the population, ascending), in their order. ``fault_ps``
    int64[pieces]: what page faults take; ``lines``: the result of the stage before, if there is one. Raises UserError
    for a machine that lacks what the model reads."""
    study, machine = case.study, case.machine
    check_machine(machine)
    options = study.options(IntervalsChoice)
    values = _inputs(regions, part, stream)
    names = {name: _named(name, regions) for name in values}
    digest = array_digest(fault_ps)
    values["faults"], names["faults"] = fault_ps, f"page faults {digest}"
    line_bytes = profile_units.line_bytes_of(machine)
    if lines is not None:
        values["lines"], names["lines"] = lines, f"lines of {line_bytes} bytes of {_named('regions', regions)}"
    detailed = study.options(DetailedChoice)
    shared: dict[str, Any] = {
        "cores": study.mapping.cores_per_rank,
        "runtime": study.options(RuntimeSystem).model_dump(mode="json", by_alias=True),
        "detailed": detailed.model_dump(mode="json", include={"creation", "request", "window"}),
        "with_lines": lines is not None,
        "seed": study.seed,
        "node": machine.node.model_dump(mode="json", include=READ_OF_NODE),
        "faults": digest,
        "line_bytes": line_bytes,
    }
    opened = unit_key("opened regions", VERSION, shared, [regions.content], seed=study.seed)
    result = []
    each = [[number] for number in chosen.tolist()]
    for numbers in [chosen.tolist()] if options.caches == "stitched" else each:
        stretches = []
        for number in numbers:
            first, end = regions.phase[number : number + 2].tolist()
            warm = first if lines is None else regions.begins_before(number, options.warm_up_of_regions)
            stretches.append([warm, first, end])
        own = {"stretches": stretches}
        key = unit_key(KIND, VERSION, shared | own, [regions.content], seed=study.seed)
        weight = _WEIGHTS[0] * int(regions.population.instructions[numbers].sum())
        parameters = shared | own | {"node": case.machine_content["node"], "regions": numbers, "opened": opened}
        result.append(WorkUnit(key, KIND, parameters, names, max(weight, 1)))
    return Stage(KIND, result, {names[name]: value for name, value in values.items()})


def _inputs(regions: Regions, part: RankPart, stream: StreamPart) -> dict[str, Any]:
    return {"part": part, "stream": stream, "regions": regions}


def _named(name: str, regions: Regions) -> str:
    return f"{name} of regions {regions.content}"


def find_lines(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> Arrays:
    """The kind of unit of the first stage: the arrays of InstanceLines of all instances of the program and, behind
    them, of the initial task in each of its phases."""
    from manyscale.models.node.instance_lines import lines_of_instances  # Numba
    from manyscale.runner.predict.intervals.open_regions import line_rows

    regions: Regions = inputs["regions"]
    program = regions.program
    found = lines_of_instances(
        line_rows(program, phase_of_pieces(program)), program.num_instances + program.num_phases,
        inputs["stream"].open(), regions.pieces, sites_of(inputs["part"].workload), parameters["line_bytes"],
    )  # fmt: skip
    return stored(found.arrays())


def simulate_regions(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> Arrays:
    """The kind of unit. Results, by region: ``cycles`` float64[n] that pass; ``stack`` float64[n, parts] of these, the
    mean over cores (``part`` names them), ``core_stack`` float64[n, cores, parts] of each core; ``type_stack``
    float64[n, types + 1, type parts], the initial task last (``type_part``), and ``type_instructions`` int64[n, types +
    1]; ``counts`` int64[n, levels + 2, 4] of the memory system; ``core_ps`` float64[n, 3], executing, in the runtime
    system, serial; ``predicted_ps`` and ``traced_ps`` int64[n, types + 1] of pieces by type; ``frequency_hz``.
    ``phase_ps`` int64[]: of the phases of all regions. Of each instance that ran: ``instance``, ``id``, ``creator``,
    ``type``, ``instructions``, ``issued``, ``instance_cycles``, ``first_misses``, ``second_misses``, ``last_misses``;
    ``num_ids``."""
    from manyscale.models.node.detailed import OVERHEAD
    from manyscale.runner.predict.intervals.open_regions import open_regions

    opened = open_regions(parameters, inputs)
    stretches = parameters["stretches"]
    begin = min(warm for warm, _, _ in stretches)  # several are stitched: one simulation, of all that lies between
    stretch = opened.stretch(begin, max(end for _, _, end in stretches))
    simulation = opened.simulation(stretch)
    found: dict[str, list[np.ndarray]] = {}
    for warm, first, end in stretches:
        if opened.used is not None:
            opened.fill(simulation, warm)
            opened.train(simulation, stretch, warm)
        if warm < first:
            simulation.move(warm - begin, first - begin)
            simulation.run()
        simulation.move(first - begin, end - begin)
        simulation.run()
        of_region = _measured(opened, stretch, simulation.result(), first - begin, end - begin)
        for name, values in of_region.items():
            found.setdefault(name, []).append(values)
    result = simulation.result()
    joined = {name: np.concatenate(each) for name, each in found.items()}
    frequency_hz = float(opened.cell.node.frequency_hz or 0)
    cycles_per_ps = frequency_hz / 1e12
    overhead = joined["core_stack"][:, :, result.core_parts.index(OVERHEAD)].sum(axis=1) / cycles_per_ps
    joined["core_ps"] = np.insert(joined["core_ps"], 1, overhead, axis=1)
    joined |= {
        "cycles": joined["makespan_ps"] * cycles_per_ps,
        "stack": joined["core_stack"].mean(axis=1),
        "part": np.array(result.core_parts),
        "type_part": np.array(result.parts),
        "model": np.full(len(joined["instance"]), MODELS.index("detailed"), np.int8),
        "num_ids": np.array([opened.regions.whole.num_instances], np.int64),
        "frequency_hz": np.array([frequency_hz]),
    }
    return noted(stored(joined), [*opened.program.notes, *result.notes])


def _measured(
    opened: OpenRegions, stretch: Stretch, result: DetailedPhases, first: int, end: int
) -> dict[str, np.ndarray]:  # fmt: skip
    """What ``simulate_regions`` says of phases [``first``, ``end``) of a stretch; ``core_ps`` without the runtime
    system's."""
    from manyscale.models.node.instruction_stream import sums_of_pieces
    from manyscale.models.node.program.serial_parts import serial_parts

    program, workload = stretch.program, opened.cell.workload
    types = workload.tables["task_types"].num_rows
    absent = types - 1 - int(program.task_type.max(initial=-1))  # types of the table behind those of the program
    of_phase = phase_of_pieces(program)
    mine = np.flatnonzero((of_phase >= first) & (of_phase < end))
    piece_ps = np.zeros(program.num_pieces, np.int64)
    piece_ps[mine] = np.maximum(result.piece_ps[mine], 0)
    creates = opened.cell.creates[stretch.piece]
    counts = ~creates[mine] & (program.piece_event[mine] != SLEEP) & (piece_ps[mine] > 0)
    kind = program.task_type[program.piece_instance[mine]].astype(np.int64)
    kind = np.where(kind < 0, types, kind)
    rows = np.arange(*program.phase_first_instance[[first, end]])
    windows = opened.regions.windows
    result = _without_meetings(opened, stretch, result, first, end)
    phase_ps, core_stack = _without_waits(opened, stretch, result, rows, first, end)
    rows = rows[(result.instances["start_ps"][rows] >= 0) & ~windows.row_is_part[stretch.row[rows]]]
    served = result.served[rows]
    number, creator = ids_in_rank(opened.regions.whole, windows.row[stretch.row[rows]])
    awake_ps = np.where(program.piece_event == SLEEP, 0, piece_ps)
    instructions = np.bincount(program.piece_instance, stretch.pieces.num_instructions, program.num_instances)
    fused = sums_of_pieces(opened.cell.stream, stretch.pieces, opened.fused)
    fused = np.bincount(program.piece_instance, fused, program.num_instances)
    return {
        "phase_ps": phase_ps,
        "makespan_ps": phase_ps.sum()[None],
        "core_stack": core_stack[None],
        "type_stack": np.insert(result.type_stack, [len(result.type_stack) - 1] * absent, 0, axis=0)[None],
        "type_instructions": np.bincount(kind, stretch.pieces.num_instructions[mine], types + 1)[None],
        "counts": result.counts.sum(axis=0)[None],
        "core_ps": np.array([[awake_ps.sum(), serial_parts(program, awake_ps).sum()]], np.float64),
        "predicted_ps": np.bincount(kind[counts], piece_ps[mine][counts], types + 1)[None],
        "traced_ps": np.bincount(kind[counts], program.piece_ps[mine][counts], types + 1)[None],
        "instance": program.instance_id[rows].astype(np.int32),
        "id": number,
        "creator": creator,
        "type": program.task_type[rows].astype(np.int32),
        "instructions": instructions[rows].astype(np.int64),
        "issued": (instructions - fused)[rows].astype(np.int64),
        "instance_cycles": result.instances["cycles"][rows],
        "first_misses": served[:, 1:].sum(axis=1),
        "second_misses": served[:, min(2, served.shape[1] - 2) :].sum(axis=1),
        "last_misses": served[:, served.shape[1] - 2 :].sum(axis=1),
    }


def _without_waits(
    opened: OpenRegions, stretch: Stretch, result: DetailedPhases, rows: np.ndarray, first: int, end: int
) -> tuple[np.ndarray, np.ndarray]:
    """(int64[phases], float64[cores, parts]): times and CPI stacks of a region without what cores wait for each other
    at the end of a window of a loop, as inside of the loop they do not wait: the window takes the share of all its
    cycles that the longest chunk has of the loop's instructions. ``rows``: instances of the phases [``first``,
    ``end``)."""
    windows, core_stack = opened.regions.windows, result.core_stack
    shorter = np.zeros(end - first)  # cycles
    for phase in range(first, end):
        mine = rows[(rows >= stretch.program.phase_first_instance[phase])]
        mine = mine[mine < stretch.program.phase_first_instance[phase + 1]]
        if len(mine) and np.all(windows.row_is_part[stretch.row[mine]]):
            of_chunks = opened.whole_instructions[windows.row[stretch.row[mine]]]
            cycles = result.instances["cycles"][mine]
            share = of_chunks.max() / max(of_chunks.sum(), 1)
            shorter[phase - first] = cycles.max() - cycles.sum() * share
    if not shorter.any():
        return result.makespan_ps, core_stack
    cycles_per_ps = (opened.cell.node.frequency_hz or 0) / 1e12
    busy = core_stack.copy()
    busy[:, -1] = 0
    length = core_stack.sum(axis=1) - shorter.sum()
    idle = np.maximum(core_stack[:, -1] - shorter.sum(), 0)
    stack = busy * ((length - idle) / np.maximum(busy.sum(axis=1), 1e-9))[:, None]
    stack[:, -1] = idle
    return result.makespan_ps - np.rint(shorter / cycles_per_ps).astype(np.int64), stack


def _without_meetings(
    opened: OpenRegions, stretch: Stretch, result: DetailedPhases, first: int, end: int
) -> DetailedPhases:
    """``makespan_ps`` and ``core_stack`` of phases [``first``, ``end``), in which each window of a loop takes a like
    share of what the loop pays the runtime system once: its fork and barrier, and to take and end chunks that windows
    have parts of."""
    from manyscale.models.node.detailed import OVERHEAD

    program, runtime, windows = stretch.program, opened.cell.runtime, opened.regions.windows
    flags, saved_ps = program.loop_flags, np.zeros(end - first, np.int64)
    if flags is None or not windows.num_windows:
        return result
    doublings = (opened.cores - 1).bit_length()
    for phase in range(first, end):
        steps = np.arange(*program.phase_first_step[[phase, phase + 1]])
        for loop in program.step_target[steps[program.step_action[steps] == Action.loop]].tolist():
            row = stretch.row[min(program.first_chunk[loop], program.num_instances - 1)]
            once_ps = doublings * (runtime.barrier_ps + (runtime.fork_ps if flags[loop] & LoopFlag.forks else 0))
            if windows.row_is_part[row]:
                asked = runtime.chunk_ps if flags[loop] & LoopFlag.asked else 0
                taking_ps = runtime.schedule_ps if runtime.chunk_ps is None else asked or 0
                once_ps += taking_ps + runtime.complete_ps
            saved_ps[phase - first] += once_ps - once_ps // int(windows.of_loop[row])
    if not saved_ps.any():
        return result
    stack = result.core_stack.copy()
    saved = float(saved_ps.sum()) * (opened.cell.node.frequency_hz or 0) / 1e12  # cycles
    overhead = result.core_parts.index(OVERHEAD)
    of_overhead = np.minimum(stack[:, overhead], saved)
    stack[:, overhead] -= of_overhead
    stack[:, -1] -= saved - of_overhead
    return replace(result, makespan_ps=result.makespan_ps - saved_ps, core_stack=stack)
