"""Stages that were executed, and replays that are made again with what their results asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from manyscale.runner.predict.phase_source import Coupling, Done, Finished, Stage
from manyscale.runner.predict.units import WorkUnit
from manyscale.runner.run.execute.execution import Execution


def inputs_of(stages: Sequence[Stage], needed: set[str]) -> Mapping[str, Any]:
    """The inputs of stages that are needed."""
    return {name: value for stage in stages for name, value in stage.inputs.items() if name in needed}


def done(time_units: Mapping[str, Sequence[WorkUnit]], execution: Execution) -> Done:
    """The results of stages, as they are stored."""
    return {name: finished(units, execution) for name, units in time_units.items()}


def finished(units: Sequence[WorkUnit], execution: Execution) -> Finished:
    return Finished(units, [execution.result(unit.key) for unit in units])


def refined(
    replays: Mapping[int, WorkUnit], couplings: Sequence[Coupling | None], execution: Execution
) -> dict[int, Coupling]:
    """Of points whose ``replays`` are done, those that are to be replayed again, and how, once what the results asked
    for has been executed."""
    asked = {}
    for index, unit in replays.items():
        coupling = couplings[index]
        if coupling is not None and coupling.refine is not None:
            more = coupling.refine(execution.result(unit.key))
            if more is not None:
                asked[index] = more
    stages = [each.stage for each in asked.values()]
    execution.execute([unit for stage in stages for unit in stage.units], partial(inputs_of, stages))
    return {index: each.then(finished(each.stage.units, execution)) for index, each in asked.items()}
