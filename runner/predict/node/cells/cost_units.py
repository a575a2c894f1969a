"""Work units on what samples of profiled cells take on a machine's cores (analytical_cell.py).

Once for a profile, a core and its caches, however many of these there are and whatever schedules task instances on
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from manyscale.models.machine import Node
from manyscale.runner.predict.node.cells import profile_units
from manyscale.runner.predict.node.cells.cell_units import check_machine
from manyscale.runner.predict.node.cells.plan import CellPlan
from manyscale.runner.predict.node.options import DetailedChoice
from manyscale.runner.predict.phase_source import Case, Finished, Stage
from manyscale.runner.predict.units import Arrays, WorkUnit, unit_key

KIND: Final = "node-costs"
VERSION: Final = 6  # raised when results change
_READ_OF_NODE: Final = {"frequency_hz", "caches", "main_memory", "numa", "core"}


def stage(plan: CellPlan, case: Case, profiles: Finished) -> Stage:
    """A unit per cell, in their order, from its profile. Raises UserError for a machine that lacks what the model
    reads."""
    check_machine(case.machine)
    values: dict[str, Any] = {}
    node = case.machine.node.model_dump(mode="json", include=_READ_OF_NODE)
    own = {"warm": case.study.options(DetailedChoice).caches != "cold"}
    result = []
    for cell, profile, arrays in zip(plan.cells, profiles.units, profiles.results, strict=True):
        inputs, _ = profile_units.cell_inputs(plan, cell, values)
        inputs = {"part": inputs["part"], "profile": f"profile {profile.key}"}
        values[inputs["profile"]] = arrays
        key = unit_key(KIND, VERSION, own | {"node": node}, [values[inputs["part"]].digest, profile.key], seed=0)
        parameters = own | {"node": case.machine_content["node"]}
        result.append(WorkUnit(key, KIND, parameters, inputs, max(profile.weight // 10, 1)))
    return Stage(KIND, result, {name: values[name] for unit in result for name in unit.inputs.values()})


def make_costs(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> Arrays:
    """The kind of unit."""
    from manyscale.runner.predict.node.cells.analytical_cell import costs_of
    from manyscale.runner.predict.stored_arrays import restored

    node = Node.model_validate(parameters["node"])
    return costs_of(inputs["part"].workload, node, restored(inputs["profile"]), warm=parameters["warm"])
