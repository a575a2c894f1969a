"""Work units that profile what each task instance of a cell does, whatever the machine (instance_profile.py).

Needed by classes of basic-block vectors, by the policy data-reuse, and to touch the lines of instances that are not
simulated (``instances``: instance_profile.py), and by the analytical model (``analytical``: analytical_cell.py). A
profile depends on the trace, the line size and, if there are loops, the number of cores, among which these are shared
out: a study of many machines computes it once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from manyscale.models.machine import Machine
from manyscale.models.machine.processor import data_caches
from manyscale.models.memory.access_stream import sites_of
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.models.workload import Workload
from manyscale.models.workload.task_tables import EventKind
from manyscale.runner.predict.node.cells.plan import Cell, CellPlan
from manyscale.runner.predict.node.cells.streams import stream_part
from manyscale.runner.predict.node.options import DetailedChoice
from manyscale.runner.predict.node.rank_part import rank_part
from manyscale.runner.predict.phase_source import Stage
from manyscale.runner.predict.stored_arrays import stored
from manyscale.runner.predict.units import Arrays, WorkUnit, unit_key
from manyscale.runner.registry import lookup
from manyscale.runner.study import Study

KIND: Final = "node-profile"
VERSION: Final = 9  # raised when results change, by a change of the profile or of how programs are built, too


def wanted(study: Study) -> dict[str, bool]:
    """Which profiles of task instances something in a study asks for."""
    sampler = lookup("task-sampler", study.sampling.tasks)
    analytical = study.model.cpu == "interval" or bool(sampler.needs_model(study))
    detailed = study.model.cpu == "detailed"
    reuses = study.options(RuntimeSystem).policy == "data-reuse"
    warms = study.options(DetailedChoice).caches == "warm"
    instances = detailed and (warms or reuses or bool(sampler.needs_profile(study)))
    return {"instances": instances, "analytical": analytical}


def are_needed(study: Study) -> bool:
    """Whether anything in a study asks for profiles of task instances."""
    return any(wanted(study).values())


def stage(plan: CellPlan, study: Study, machine: Machine) -> Stage:
    """A unit per cell, in their order."""
    line_bytes = line_bytes_of(machine)
    result = []
    values: dict[str, Any] = {}
    for cell in plan.cells:
        inputs, content = cell_inputs(plan, cell, values)
        cores = study.mapping.cores_per_rank if shares_loops(values[inputs["part"]].workload) else 1
        own = {
            "rank": cell.rank, "iteration": cell.iteration, "cores": cores, "line_bytes": line_bytes, **wanted(study),
        }  # fmt: skip
        weight = 10 * int(plan.detail.column("segments", "num_accesses")[cell.first_segment : cell.end_segment].sum())
        key = unit_key(KIND, VERSION, own, content, seed=0)
        result.append(WorkUnit(key, KIND, own, inputs, max(weight, 1)))
    return Stage(KIND, result, values)


def shares_loops(workload: Workload) -> bool:
    """Whether there are loops or sections, which are shared out to as many cores as there are. O(events)."""
    return bool(np.isin(workload.column("events", "kind"), (EventKind.loop_begin, EventKind.sections_begin)).any())


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
    """The kind of unit, as the parameters ask for: ``instances``, the arrays of InstanceProfiles of all instances of
    the rank (those of other iterations have nothing), and ``task_class`` int32[instances], classes of like basic-block
    vectors; ``analytical``, those of analytical_cell.py."""
    from manyscale.runner.predict.node.cells.open_cell import open_cell

    program, stream, pieces = open_cell(parameters, inputs, RuntimeSystem())
    arrays: Arrays = {}
    if parameters["instances"]:
        arrays |= _instances(program, stream, pieces, inputs["part"].workload, parameters["line_bytes"])
    if parameters["analytical"]:
        from manyscale.runner.predict.node.cells import analytical_cell

        workload = inputs["part"].workload
        arrays |= analytical_cell.profile(program, stream, pieces, workload, parameters["line_bytes"])
    return stored(arrays)


def _instances(program: Any, stream: Any, pieces: Any, workload: Workload, line_bytes: int) -> Arrays:
    from manyscale.models.node.instance_profile import instructions_of_blocks, profile_instances
    from manyscale.sampling.taskpoint.classes import find_classes

    sites = sites_of(workload)
    size = instructions_of_blocks(workload, sites)
    profiles = profile_instances(program, stream, pieces, sites, size, line_bytes=line_bytes)
    classes = find_classes(
        profiles.first_vector, profiles.vector_block, profiles.vector_instructions, program.task_type.astype(np.int64)
    )
    return {**profiles.arrays(), "task_class": classes.class_of}
