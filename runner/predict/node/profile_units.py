"""Work units that profile what each task instance of a cell does, whatever the machine (instance_profile.py).

Needed by classes of basic-block vectors, by the interval model, and to touch the lines of instances that are not
simulated. A profile depends on the trace, the line size and the number of cores, into which static loops are cut, so a
study of many machines computes it once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from manyscale.models.machine import Machine
from manyscale.models.machine.processor import data_caches
from manyscale.models.memory.access_stream import sites_of
from manyscale.models.workload import WorkloadError
from manyscale.runner.predict.node.cells import JOINED, WHOLE, Cell, CellPlan
from manyscale.runner.predict.node.rank_part import rank_part
from manyscale.runner.predict.node.streams import stream_part
from manyscale.runner.predict.phase_source import Stage
from manyscale.runner.predict.stored_arrays import stored
from manyscale.runner.predict.units import Arrays, WorkUnit, unit_key
from manyscale.runner.study import Study

KIND: Final = "node-profile"
VERSION: Final = 2  # raised when results change, by a change of the profile or of how programs are built, too


def are_needed(study: Study) -> bool:
    """Whether anything in a study asks for profiles of task instances."""
    if study.model.cpu == "interval":
        return True
    sampled = study.sampling.tasks != "full"
    asked = study.taskpoint
    uses = asked.classes == "bbv" or asked.correction == "interval" or asked.fast_forward == "warm"
    return study.detailed.caches == "warm" or (sampled and uses)


def stage(plan: CellPlan, study: Study, machine: Machine) -> Stage:
    """A unit per cell, in their order."""
    line_bytes = line_bytes_of(machine)
    result = []
    values: dict[str, Any] = {}
    for cell in plan.cells:
        inputs, content = cell_inputs(plan, cell, values)
        own = {
            "rank": cell.rank, "iteration": cell.iteration, "cores": study.mapping.cores_per_rank,
            "line_bytes": line_bytes,
        }  # fmt: skip
        weight = 10 * int(plan.detail.column("segments", "num_accesses")[cell.first_segment : cell.end_segment].sum())
        key = unit_key(KIND, VERSION, own, content, seed=0)
        result.append(WorkUnit(key, KIND, own, inputs, max(weight, 1)))
    return Stage(KIND, result, values)


def line_bytes_of(machine: Machine) -> int:
    """Bytes of a line of the first cache, 64 where the machine does not say."""
    caches = list(data_caches(machine.node.caches).values())
    return (caches[0].line_bytes if caches else None) or 64


def cell_inputs(plan: CellPlan, cell: Cell, values: dict[str, Any]) -> tuple[dict[str, str], list[str]]:
    """Inputs of a unit on a cell, added to ``values``, and the digests of their content: the rank's part with its
    instructions, and the stream."""
    part = rank_part(plan.detail, cell.rank, instructions=True)
    stream = stream_part(plan.detail, cell.first_segment, cell.end_segment)
    names = {
        "part": f"rank {cell.rank} of {plan.detail.digest} with instructions",
        "stream": f"segments {cell.first_segment} to {cell.end_segment} of {stream.detail_digest}",
    }
    values |= {names["part"]: part, names["stream"]: stream}
    return names, [part.digest, *stream.content]


def profile_cell(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> Arrays:
    """The kind of unit: the arrays of InstanceProfiles of all instances of the rank (those of other iterations have
    nothing), and ``task_class`` int32[instances]: classes of like basic-block vectors."""
    from manyscale.models.cpu.block_windows import block_code
    from manyscale.models.node.instance_profile import profile_instances
    from manyscale.sampling.taskpoint.classes import find_classes

    program, stream, pieces = open_cell(parameters, inputs)
    workload = inputs["part"].workload
    sites = sites_of(workload)
    code, site_instruction = block_code(workload, sites)
    profiles = profile_instances(
        program, stream, pieces, sites, code, site_instruction, line_bytes=parameters["line_bytes"]
    )
    classes = find_classes(
        profiles.first_vector, profiles.vector_block, profiles.vector_instructions, program.task_type.astype(np.int64)
    )
    return stored({**profiles.arrays(), "task_class": classes.class_of})


def open_cell(parameters: Mapping[str, Any], inputs: Mapping[str, Any], runtime: Any = None) -> tuple[Any, Any, Any]:
    """(NodeProgram, InstructionStream, PieceStream) of a cell's rank; pieces outside the cell have no instructions."""
    from manyscale.models.node.instruction_stream import pieces_of_stream
    from manyscale.models.node.private_stacks import private_stacks
    from manyscale.models.node.program.build import build_program
    from manyscale.models.node.scheduler.runtime_system import RuntimeSystem

    part = inputs["part"]
    stream = inputs["stream"].open()
    program = build_program(part.workload, parameters["rank"], parameters["cores"], runtime or RuntimeSystem())
    program = with_first_segment(program, part.first_segment)
    sites = sites_of(part.workload)
    blocks = part.workload.column("blocks", "num_instructions").astype(np.int64)
    stack = private_stacks(program, part.workload, part.first_segment)
    return program, stream, pieces_of_stream(program, stream, sites, np.maximum(blocks, 0), stack)


def with_first_segment(program: Any, first_segment: int) -> Any:
    """A program whose rows of segments count in the whole workload."""
    from dataclasses import replace

    return replace(
        program, first_segment=program.first_segment + first_segment, end_segment=program.end_segment + first_segment
    )


def phases_of_cell(program: Any, iteration: int) -> tuple[int, int]:
    """[first, end): the phases that lie in an iteration. Raises WorkloadError where there is none."""
    if iteration == WHOLE:
        return 0, int(program.num_phases)
    mine = np.flatnonzero(program.phase_iteration >= 0 if iteration == JOINED else program.phase_iteration == iteration)
    if not len(mine):
        which = "any iteration" if iteration == JOINED else f"iteration {iteration}"
        raise WorkloadError(f"rank {program.rank}: no compute phase lies in {which}")
    return int(mine[0]), int(mine[-1]) + 1
