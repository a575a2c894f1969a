"""Work units that make micro-profiles of a cell's task instances (models/node/micro), for any machine.

A profile depends on the trace, the line size, the number of cores, into which static loops are cut, and nothing of the
machine: pieces lie in the order in which that many cores would begin them if all instructions took as long.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from manyscale.models.machine import Machine
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.runner.predict.node.cells import profile_units
from manyscale.runner.predict.node.cells.plan import CellPlan
from manyscale.runner.predict.phase_source import Stage
from manyscale.runner.predict.stored_arrays import stored
from manyscale.runner.predict.units import Arrays, WorkUnit, unit_key
from manyscale.runner.study import Study

KIND: Final = "node-micro-profile"
VERSION: Final = 1  # raised when results change
_PS: Final = 1000  # that an instruction takes; only the order counts


def stage(plan: CellPlan, study: Study, machine: Machine) -> Stage:
    """A unit per cell, in their order."""
    result = []
    values: dict[str, Any] = {}
    for cell in plan.cells:
        inputs, content = profile_units.cell_inputs(plan, cell, values)
        own = {
            "rank": cell.rank, "iteration": cell.iteration, "cores": study.mapping.cores_per_rank,
            "line_bytes": profile_units.line_bytes_of(machine),
        }  # fmt: skip
        weight = int(plan.detail.column("segments", "num_accesses")[cell.first_segment : cell.end_segment].sum())
        result.append(WorkUnit(unit_key(KIND, VERSION, own, content, seed=0), KIND, own, inputs, max(weight, 1)))
    return Stage(KIND, result, values)


def profile_cell(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> Arrays:
    """The kind of unit: the arrays of MicroProfiles of all instances of the rank."""
    from manyscale.models.node.micro.collect import collect_profiles
    from manyscale.models.node.micro.run_order import run_order
    from manyscale.runner.predict.node.cells.open_cell import open_cell, phases_of_cell

    runtime = RuntimeSystem()
    program, stream, pieces = open_cell(parameters, inputs, runtime)
    first, end = phases_of_cell(program, parameters["iteration"])
    piece_ps = (pieces.num_instructions * _PS).astype(np.int64)
    order = run_order(program, parameters["cores"], runtime, piece_ps, first, end)
    profiles = collect_profiles(
        program, stream, pieces, inputs["part"].workload, order=order, line_bytes=parameters["line_bytes"]
    )
    return stored(profiles.arrays())
