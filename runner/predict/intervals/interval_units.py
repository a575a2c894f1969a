"""Work units that simulate intervals of a traced program on one core of the detailed model.

An interval with what warms it up is a unit of its own, so that any number of workers simulates them side by side; those
whose caches are ``stitched`` are one unit, which simulates them in order. Where caches are filled by last uses, a unit
of the first stage passes over the stream and finds the lines for all of them. A unit reads its own part of the stream,
whose length bounds its memory but for what warms up, which passes piece by piece. Its key names that part by the
stream's digest and the numbers of block executions, so another choice of the same intervals finds their results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from manyscale.models.machine import Machine, Node
from manyscale.models.machine.processor import data_caches, needed
from manyscale.models.memory.access_stream import sites_of
from manyscale.models.workload.detail_tables import Detail
from manyscale.runner.errors import UserError
from manyscale.runner.predict.intervals.options import IntervalsChoice
from manyscale.runner.predict.intervals.program import CutProgram, ProgramStream
from manyscale.runner.predict.node.cells.cell_units import READ_OF_NODE, check_machine
from manyscale.runner.predict.node.options import DetailedChoice
from manyscale.runner.predict.phase_source import Case, Stage
from manyscale.runner.predict.stored_arrays import noted, stored
from manyscale.runner.predict.units import Arrays, WorkUnit, unit_key
from manyscale.runner.study import Study

KIND: Final = "sampled-interval"
LINES: Final = "last-uses"
VERSION: Final = 3  # raised when results change, by a change of any model that an interval is simulated with, too
_WARM_UP: Final = {"warm": 20_000_000, "last-uses": 3_000_000}  # instructions
_WEIGHTS: Final = (0.5, 0.25)  # simulated operations per instruction: in detail, to warm up


def last_uses_stage(program: ProgramStream, cut: CutProgram, chosen: np.ndarray, case: Case) -> Stage:
    """The unit that finds last uses before the intervals ``chosen`` (ascending). Raises UserError for a machine that
    lacks what the model reads."""
    check_machine(case.machine)
    name = _name_of(program)
    places = [_stretch(cut, interval, case.study)[0] for interval in chosen.tolist()]
    own = {"places": places, **_lines_of(case.machine)}
    key = unit_key(LINES, VERSION, own, program.content, seed=0)
    weight = int(_WEIGHTS[1] * places[-1] * float(cut.begin[-1]) / float(cut.bounds[-1]))
    return Stage(LINES, [WorkUnit(key, LINES, own, {"stream": name}, max(weight, 1))], {name: program})


def stage(
    program: ProgramStream, cut: CutProgram, chosen: np.ndarray, case: Case, last_uses: Arrays | None
) -> Stage:  # fmt: skip
    """Units that simulate the intervals ``chosen`` (ascending), in their order. ``last_uses``: the result of the stage
    before, if there is one. Raises UserError for a machine that lacks what the model reads."""
    study, machine = case.study, case.machine
    check_machine(machine)
    options = study.options(IntervalsChoice)
    name = _name_of(program)
    values: dict[str, Any] = {name: program}
    parts = [chosen.tolist()] if options.caches == "stitched" else [[each] for each in chosen.tolist()]
    result = []
    for number, part in enumerate(parts):
        stretches = [_stretch(cut, interval, study) for interval in part]
        own: dict[str, Any] = {"stretches": stretches, "request": study.options(DetailedChoice).request}
        inputs = {"stream": name}
        if last_uses is not None:
            own["last_uses"] = _lines_of(machine)
            inputs["used"] = f"last uses before {stretches[0][0]} {own['last_uses']} of {' '.join(program.content)}"
            first, end = last_uses["first"][number : number + 2].tolist()
            values[inputs["used"]] = last_uses["used"][first:end].copy()
        meaning = own | {"node": machine.node.model_dump(mode="json", include=READ_OF_NODE)}
        key = unit_key(KIND, VERSION, meaning, program.content, seed=0)
        detailed = sum(int(cut.population.instructions[each]) for each in part)
        executions = sum(first - warm for warm, first, _, _ in stretches)
        per_execution = float(cut.begin[-1]) / float(cut.bounds[-1])
        weight = int(_WEIGHTS[0] * detailed + _WEIGHTS[1] * executions * per_execution)
        parameters = own | {"node": case.machine_content["node"], "intervals": part}
        result.append(WorkUnit(key, KIND, parameters, inputs, max(weight, 1)))
    return Stage(KIND, result, values)


def _name_of(program: ProgramStream) -> str:
    return f"stream of {' '.join(program.content)}"


def _lines_of(machine: Machine) -> dict[str, int]:
    """The size of a line, and how many the caches of a core hold."""
    caches = list(data_caches(machine.node.caches).values())
    line_bytes = needed(caches[0].line_bytes, "line")
    return {"line_bytes": line_bytes, "most": sum(cache.size_bytes // line_bytes for cache in caches)}


def _stretch(cut: CutProgram, interval: int, study: Study) -> list[int]:
    """Block executions with which warming up begins, simulation, what is counted; and the end."""
    options = study.options(IntervalsChoice)
    first, end = int(cut.bounds[interval]), int(cut.bounds[interval + 1])
    if options.caches == "cold":
        return [first, first, first, end]
    simulated = cut.before(interval, options.pipeline)
    if options.caches == "stitched":
        return [simulated, simulated, first, end]
    warm_up = _WARM_UP[options.caches] if options.warm_up is None else options.warm_up
    if warm_up == "all":
        warm_up = int(cut.begin[interval])
    simulated = simulated if options.pipeline < warm_up else cut.before(interval, warm_up)
    return [min(cut.before(interval, warm_up), simulated), simulated, first, end]


def simulate_intervals(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> Arrays:
    """The kind of unit. Results, by interval: ``cycles`` float64[n], ``stack`` float64[n, parts] in cycles (``part``
    names them), ``counts`` int64[n, levels + 2, 4] of the memory system; ``frequency_hz``."""
    from manyscale.models.node.core.interval_core import IntervalCore

    node = Node.model_validate(parameters["node"])
    stream: ProgramStream = inputs["stream"]
    core = IntervalCore(stream.program, node, parameters["request"])
    detail = stream.open()
    if "used" in inputs:
        core.fill(np.require(inputs["used"], np.int64, ["C", "W"]))
    found = []
    position = 0  # what was executed up to here is not executed again
    try:
        for warm, simulated, first, end in parameters["stretches"]:
            for begin, block_ids, addresses in _pieces(detail, max(warm, position), max(simulated, position)):
                core.warm(begin, block_ids, addresses)
            begin = max(simulated, position)
            block_ids, addresses = _read(detail, begin, min(end + 1, int(detail.execution_bounds()[-1])))
            found += core.run(begin, block_ids, addresses, np.array([first, end]))
            position = end
    except UserError as error:
        raise ValueError(str(error)) from None
    assert node.frequency_hz is not None
    arrays = stored(
        {
            "cycles": np.array([each.cycles for each in found]),
            "stack": np.stack([each.stack for each in found]),
            "counts": np.stack([each.counts for each in found]),
            "part": np.array(core.parts),
            "frequency_hz": np.array([node.frequency_hz]),
        }
    )
    return noted(arrays, core.notes)


def find_last_uses(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> Arrays:
    """The kind of unit of the first stage. Results: ``used`` int64[] (memory/distances/last_uses.py), those before the
    i-th of
    ``places`` from ``first[i]`` on (int64[places + 1])."""
    from manyscale.models.memory.distances.last_uses import LastUses

    stream: ProgramStream = inputs["stream"]
    uses = LastUses(sites_of(stream.program), parameters["line_bytes"])
    detail = stream.open()
    found, position = [], 0
    try:
        for place in parameters["places"]:
            for _, block_ids, addresses in _pieces(detail, position, place):
                uses.feed(block_ids, addresses)
            position = place
            found.append(uses.latest(parameters["most"]))
    except UserError as error:
        raise ValueError(str(error)) from None
    return {"used": np.concatenate(found), "first": np.concatenate(([0], np.cumsum([len(each) for each in found])))}


def _pieces(detail: Detail, first: int, end: int) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """(first execution, block ids, addresses) of executions [first, end), as the stream is stored."""
    bounds = detail.execution_bounds()
    inner = bounds[(bounds > first) & (bounds < end)].tolist()
    starts, ends = [first, *inner], [*inner, end]
    for start, stop in zip(starts, ends, strict=True):
        if start < stop:
            yield start, *_read(detail, start, stop)


def _read(detail: Detail, first: int, end: int) -> tuple[np.ndarray, np.ndarray]:
    batch = detail.read_executions(first, end)
    return np.require(batch.block_ids, np.int32, ["C", "W"]), np.require(batch.addresses, np.uint64, ["C", "W"])
