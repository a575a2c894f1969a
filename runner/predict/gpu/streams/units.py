"""Work units on sets of launches that overlap: the cycle model simulates each set together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any, Final

import numpy as np

from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload import Workload
from manyscale.runner.predict.gpu.launch_units import before_each, name_of, read_of
from manyscale.runner.predict.gpu.plan import LaunchPlan
from manyscale.runner.predict.gpu.streams.overlaps import Overlaps
from manyscale.runner.predict.gpu.streams.sets import Together
from manyscale.runner.predict.phase_source import Stage
from manyscale.runner.predict.units import Arrays, WorkUnit, unit_key
from manyscale.runner.progress import teller
from manyscale.runner.registry import lookup
from manyscale.runner.study import Study

TOGETHER: Final = "gpu-together"
VERSION: Final = 1  # raised when results change, other than by the model, which has its own


def together_stage(
    launches: Workload, plan: LaunchPlan, sets: Sequence[Together], overlaps: Overlaps, gpu: Gpu,
    content: Mapping[str, Any], study: Study,
) -> Stage:  # fmt: skip
    """``content``: what ``gpu`` was built from."""
    name = name_of(study)
    model = lookup("gpu", name)
    before_row = before_each(launches, plan, gpu, study)
    ids = launches.column("launches", "launch_id")
    digest = launches.tables["launches"].column("digest").to_pylist()
    assert launches.gpu is not None
    units = []
    for each in sets:
        of_first = [row for row, space in zip(each.given, each.space, strict=True) if space == each.space[0]]
        before = before_row(int(overlaps.row[overlaps.given.launch[of_first]].min()))
        arriving = {name: getattr(each, name) for name in ("at", "after", "priority", "space")}
        meaning = {"gpu": read_of(gpu), "arriving": arriving, "before": len(before), "model": name}
        meaning["version"] = [model.version(), model.version_together()]
        key = unit_key(TOGETHER, VERSION, meaning, [digest[row] for row in (*before, *each.launch)], 0)
        parameters = {
            "model": name,
            "gpu": content,
            "launches": ids[list(each.launch)].tolist(),
            "before": ids[list(before)].tolist(),
            **arriving,
        }
        size = overlaps.instructions(each)
        inputs = {"launches": launches.gpu.digest}
        units.append(WorkUnit(key, TOGETHER, parameters, inputs, max(1, 8 * size), instructions=size))
    return Stage(TOGETHER, units, {launches.gpu.digest: launches.gpu})


def simulate_together(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> Arrays:
    """The kind of unit. Result: ``arrival`` and ``end`` int64 of each launch, in cycles; none where they cannot be
    simulated together."""
    from manyscale.models.gpu.together.model import Arriving
    from manyscale.runner.predict.gpu import pieces

    streams, gpu = inputs["launches"], Gpu.model_validate(parameters["gpu"])
    trace = cache(streams.trace)
    rows = zip(*(parameters[name] for name in ("launches", "at", "after", "priority", "space")), strict=True)
    arriving = [Arriving(trace(launch), *how) for launch, *how in rows]
    before = (pieces.opened(streams, each, partial(trace, each), pieces.WHOLE) for each in parameters["before"])
    found = lookup("gpu", parameters["model"]).simulate_together(arriving, before, gpu, teller())
    arrival, end = (np.array([getattr(each, name) for each in found], np.int64) for name in ("arrival", "end"))
    return {"arrival": arrival, "end": end}
