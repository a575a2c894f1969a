"""One cell on simulated cores: in detail, all of it or what a sampler chooses, or by the analytical model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from manyscale.models.machine import Node
from manyscale.models.machine.processor import data_caches
from manyscale.models.node.burst import run_phases
from manyscale.models.node.detailed import OVERHEAD, NodeSimulation, last_cache_of
from manyscale.models.node.instance_lines import InstanceLines
from manyscale.models.node.instance_profile import InstanceProfiles, profiles_from
from manyscale.models.node.private_stacks import private_lines
from manyscale.models.node.program.node_program import Action
from manyscale.models.node.scheduler.held_data import HeldData, new_held
from manyscale.models.node.scheduler.task_data import TaskData, task_data
from manyscale.models.workload.notes import informs
from manyscale.runner.predict.node.cells import analytical_cell
from manyscale.runner.predict.node.cells.open_cell import OpenCell
from manyscale.runner.predict.node.cells.sampled_kernel import (
    SkippedLines,
    fill_skipped,
    no_lines,
    skip_all,
    skipped_lines,
)
from manyscale.runner.predict.node.cells.task_sampling import Found, SampledPieces, TaskSampler
from manyscale.runner.predict.node.tables import MODELS
from manyscale.runner.predict.stored_arrays import restored
from manyscale.runner.predict.units import Arrays
from manyscale.runner.registry import lookup


def simulate(cell: OpenCell, parameters: Mapping[str, Any], profile: Arrays | None) -> Found:
    """The cell by the model and the sampling that ``parameters`` name. Raises ValueError where it cannot be."""
    arrays = None if profile is None else restored(profile)
    has_instances = arrays is not None and "first_line" in arrays
    profiles = profiles_from(arrays) if arrays is not None and has_instances else None
    cell = replace(cell, creation_is_free=parameters["detailed"]["creation"] == "free")
    if parameters["model"] == "interval":
        assert arrays is not None
        return _by_intervals(cell, parameters, arrays)
    sampler: TaskSampler = lookup("task-sampler", parameters["tasks"])
    return sampler.simulate(cell, parameters, profiles, arrays, partial(_in_detail, cell, parameters, profiles))


# ---- detailed ----


def _in_detail(
    cell: OpenCell, parameters: Mapping[str, Any], profiles: InstanceProfiles | None, sampled: SampledPieces | None
) -> Found:
    chosen, cores, first_core = parameters["detailed"], parameters["cores"], parameters.get("first_core", 0)
    own = None if profiles is None else private_lines(cell.pieces.stack, profiles.line_number, profiles.line_bytes)
    held = None
    if cell.runtime.policy == "data-reuse" and profiles is not None:
        held = new_held(_data_of(profiles, own), cell.node, cores, first_core)
    simulation = NodeSimulation(
        cell.program, cell.workload, cell.node, cores, cell.runtime, cell.stream, cell.pieces,
        first_phase=cell.first, end_phase=cell.end, empty_ps=cell.creation_ps, beside_ps=cell.beside_ps,
        window_cycles=chosen["window"], request=chosen["request"],
        seed=parameters["seed"], keep_served=True, most_lines=most_lines_of(own, cell.node, cores),
        held=held, first_core=first_core,
    )  # fmt: skip
    lines = no_lines(cores) if profiles is None else lines_left(profiles, own, cell.node, cores)
    if chosen["caches"] == "warm" and profiles is not None:
        skip_all(lines, *_run_before(cell, cores, parameters["seed"], profiles, held, first_core))
        fill_skipped(simulation.memory, lines)
    elif chosen["caches"] == "rerun":
        simulation.run()
    simulation.start()
    if sampled is not None:
        simulation.run(sampled.watch(lines))
    else:
        simulation.run()
    return _found(cell, simulation, sampled)


def most_lines_of(own: np.ndarray | None, node: Node, cores: int) -> int | None:
    """How many different lines a cell asks for at most, if that is known: prefetchers may ask for others. ``own``
    bool[lines]: of its lines those of which each core has its own."""
    if own is None or any(cache.prefetcher is not None for cache in node.caches.values()):
        return None
    return len(own) + (cores - 1) * int(np.count_nonzero(own))


def _data_of(profiles: InstanceProfiles, own: np.ndarray | None) -> TaskData:
    """The data of task instances, lines of which each core has its ``own`` left out."""
    rows = np.repeat(np.arange(profiles.num_instances), np.diff(profiles.first_line))
    return task_data(profiles.num_instances, rows, profiles.line, profiles.line_written, profiles.line_bytes, own)


def _run_before(
    cell: OpenCell, cores: int, seed: int, profiles: InstanceProfiles, held: HeldData | None = None, first_core: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """(int[], int[]): the instances of the cell in the order in which they end, and the cores that execute them, if
    every instruction takes as long as any other: what caches have seen when such a cell ran before. Where the replay
    has to schedule them, in the order in which the traced run began them, on one core after the other."""
    if np.any(cell.program.step_action == Action.operation):
        order = cell.instances[np.argsort(profiles.order[cell.instances], kind="stable")]
        return order, np.arange(len(order)) % cores
    assert cell.node.frequency_hz is not None
    piece_ps = np.rint(cell.pieces.num_instructions * (1e12 / cell.node.frequency_hz)).astype(np.int64)
    speeds = cell.node.core_speeds[first_core : first_core + cores]
    stretches = run_phases(
        cell.program, cores, cell.runtime, piece_ps + cell.creation_ps, cell.first, cell.end, seed=seed,
        share_group=last_cache_of(cell.node, cores, first_core), held=held, keep=True,
        speed=np.array(speeds) if speeds else None,
    ).stretches  # fmt: skip
    last = np.full(cell.program.num_instances, -1)
    last[stretches["instance"]] = np.arange(len(stretches))
    last = last[1:][last[1:] >= 0]
    last.sort()
    return stretches["instance"][last], stretches["core"][last]


def lines_left(
    profiles: InstanceProfiles | InstanceLines, own: np.ndarray | None, node: Node, num_cores: int
) -> SkippedLines:
    """What instances of known profiles leave in caches, if they are not simulated. ``own``: see ``most_lines_of``."""
    of_kinds = [data_caches(each.caches).values() for each in node.of_kinds]
    sizes = [max(cache.size_bytes for cache in level) // profiles.line_bytes for level in zip(*of_kinds, strict=True)]
    caches = list(zip(sizes, (cache.shared_by_cores for cache in data_caches(node.caches).values()), strict=True))
    of_core = sum(lines for lines, cores in caches if cores == 1)
    most = sum(-(-num_cores // cores) * lines for lines, cores in caches)
    return skipped_lines(
        profiles.first_line, profiles.line, profiles.line_written, profiles.line_number, num_cores,
        of_core, most, own, profiles.line_bytes,
    )  # fmt: skip


def _found(cell: OpenCell, simulation: NodeSimulation, sampled: SampledPieces | None) -> Found:
    result = simulation.result()
    rows = cell.instances
    instances = result.instances[rows]
    ran = instances["start_ps"] >= 0
    rows, instances = rows[ran], instances[ran]
    instructions = cell.instructions
    cycles, model = instances["cycles"].copy(), np.full(len(rows), MODELS.index("detailed"), np.int8)
    half_width = 0.0
    forwarded = np.zeros(cell.program.num_instances, np.int64)  # instructions
    if sampled is not None:
        half_width = sampled.half_width(cell, result)
        given = sampled.skipped_cycles()
        skipped = ~np.isnan(given)
        owner, count = cell.program.piece_instance[skipped], cell.program.num_instances
        cycles += np.bincount(owner, given[skipped], count)[rows]
        forwarded = np.bincount(owner, cell.pieces.num_instructions[skipped], count).astype(np.int64)
        model[forwarded[rows] > 0] = MODELS.index("fast-forward")
    served = result.served[rows]
    types = len(result.type_stack) - 1
    kind = np.where(cell.program.task_type < 0, types, cell.program.task_type)
    ran_here = np.zeros(cell.program.num_instances, bool)
    ran_here[rows] = True
    ran_here[0] = True
    simulated = np.where(ran_here, instructions - forwarded, 0)
    arrays: Arrays = {
        "instance": cell.program.instance_id[rows].astype(np.int32),
        "type": cell.program.task_type[rows].astype(np.int32),
        "instructions": instructions[rows],
        "issued": cell.issued[rows],
        "cycles": cycles,
        "first_misses": served[:, 1:].sum(axis=1),
        "second_misses": served[:, min(2, len(served[0]) - 2) :].sum(axis=1) if len(served) else np.empty(0, np.int64),
        "last_misses": served[:, len(served[0]) - 2 :].sum(axis=1) if len(served) else np.empty(0, np.int64),
        "model": model,
        "core": instances["core"].astype(np.int32),
        "start_ps": instances["start_ps"].astype(np.int64),
        "end_ps": instances["end_ps"].astype(np.int64),
        "created_ps": instances["created_ps"].astype(np.int64),
        "ready_ps": instances["ready_ps"].astype(np.int64),
        "part": np.array(result.parts),
        "type_stack": result.type_stack,
        "core_part": np.array(result.core_parts),
        "core_stack": result.core_stack,
        "type_instructions": np.bincount(kind, simulated, minlength=types + 1).astype(np.int64),
        "half_width": np.array([half_width]),
        "num_instructions": np.array([instructions.sum()]),
        "num_detailed_instructions": np.array([simulated.sum()]),
        "num_instances": np.array([len(rows)]),
        "num_detailed": np.array([np.count_nonzero(model == MODELS.index("detailed"))]),
        "resamples": np.zeros(4, np.int64) if sampled is None else sampled.resamples(),
    }
    return Found(result.makespan_ps, np.maximum(result.piece_ps, 0), rows, arrays, result.notes)


# ---- interval ----

_NO_MISSES: Final = informs(
    "misses-not-known", "cpu: interval tells no misses of single task instances; these columns are empty"
)


def _by_intervals(cell: OpenCell, parameters: Mapping[str, Any], arrays: Arrays) -> Found:
    """Every instance takes what the analytical model says."""
    predicted = analytical_cell.predict(cell, parameters, arrays)
    found, program = predicted.phases, cell.program
    instructions = cell.instructions
    instances = found.instances
    rows = cell.instances[(instances["start_ps"][cell.instances] >= 0) & (instructions[cell.instances] > 0)]
    everyone = np.append(0, cell.instances)
    types = int(program.task_type.max(initial=-1)) + 1
    kind = np.where(program.task_type[everyone] < 0, types, program.task_type[everyone])
    alone = instances["alone"]
    parts = {
        "base": instances["base"],
        "cache": instances["cache"],
        "memory": alone - instances["base"] - instances["cache"],
        "bandwidth": np.maximum(instances["cycles"] - alone, 0.0),  # rounding to picoseconds
    }
    stack = np.stack([np.bincount(kind, part[everyone], minlength=types + 1) for part in parts.values()], axis=1)
    core_stack = np.stack(
        [np.bincount(instances["core"][rows], part[rows], minlength=parameters["cores"]) for part in parts.values()],
        axis=1,
    )
    assert cell.node.frequency_hz is not None
    overhead = found.overhead_ps * (cell.node.frequency_hz / 1e12)
    none = np.zeros(len(rows), np.int64)
    result: Arrays = {
        "instance": program.instance_id[rows].astype(np.int32),
        "type": program.task_type[rows].astype(np.int32),
        "instructions": instructions[rows],
        "issued": cell.issued[rows],
        "cycles": instances["cycles"][rows],
        "first_misses": none,
        "second_misses": none,
        "last_misses": none,
        "model": np.full(len(rows), MODELS.index("interval"), np.int8),
        "core": instances["core"][rows].astype(np.int32),
        "start_ps": instances["start_ps"][rows],
        "end_ps": instances["end_ps"][rows],
        "created_ps": instances["created_ps"][rows],
        "ready_ps": instances["ready_ps"][rows],
        "part": np.array(list(parts)),
        "type_stack": stack,
        "core_part": np.array([*parts, OVERHEAD]),
        "core_stack": np.column_stack([core_stack, overhead]),
        "type_instructions": np.bincount(kind, instructions[everyone], minlength=types + 1).astype(np.int64),
        "half_width": np.zeros(1),
        "num_instructions": np.array([instructions.sum()]),
        "num_detailed_instructions": np.zeros(1, np.int64),
        "num_instances": np.array([len(rows)]),
        "num_detailed": np.zeros(1, np.int64),
        "resamples": np.zeros(4, np.int64),
    }
    return Found(found.makespan_ps, found.piece_ps, rows, result, (*predicted.notes, _NO_MISSES))
