"""Work units on kernel launches.

Launches that leave their caches to the next are one unit, as long as they have at most MOST_IN_UNIT warp instructions
together; else each launch is a unit. What was in the caches before a unit's first launch follows from the accesses of
launches before it (``before``), the nearest REACH times as many sectors as its caches hold.

A model with profiles has three kinds: ``gpu-outline``, which a sweep over sizes of caches and numbers of SMs computes
once, ``gpu-profile``, which one over what profiles do not read does, and ``gpu-predict``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from manyscale.models.gpu.parameters import SECTOR_BYTES, Gpu
from manyscale.models.kernels.team import ALONE, Team
from manyscale.models.workload import Workload
from manyscale.models.workload.launch_trace import LaunchTrace
from manyscale.runner.predict.gpu.launch_results import to_arrays
from manyscale.runner.predict.gpu.options import GpuChoice
from manyscale.runner.predict.gpu.plan import LaunchPlan
from manyscale.runner.predict.phase_source import Finished, Stage
from manyscale.runner.predict.units import AS_MANY_AS_THERE_ARE, Arrays, WorkUnit, unit_key
from manyscale.runner.progress import telling
from manyscale.runner.registry import lookup
from manyscale.runner.study import Study
from manyscale.sampling.tbpoint.options import TbpointChoice

SIMULATE: Final = "gpu-launches"
OUTLINE: Final = "gpu-outline"
PROFILE: Final = "gpu-profile"
PREDICT: Final = "gpu-predict"
VERSION: Final = 3  # raised when results change, other than by a model, which has its own
MOST_IN_UNIT: Final = 20_000_000  # some seconds
REACH: Final = 8
# read outside of units
_UNREAD: Final = {"launch_latency_cycles", "host_link", "peer_link", "names", "start_latency_ps", "stream_gap_ps"}
_WEIGHT: Final = {"detailed": 8, "gpumech": 4}  # against an operation of the replay


@dataclass(frozen=True)
class Part:
    """Rows of the table of launches: ``simulated`` one after the other, ``before`` for what they leave in caches."""

    simulated: tuple[int, ...]
    before: tuple[int, ...]


def parts_of(launches: Workload, plan: LaunchPlan, gpu: Gpu, study: Study) -> list[Part]:
    """Launches by work unit, in the order of the trace."""
    size = launches.column("launches", "warp_instructions")
    begin = _first_of_gpu(launches)
    chosen = plan.chosen.tolist()
    joined: list[list[int]] = []
    keeps = gpu.l2.kept_between_launches and study.options(GpuChoice).caches == "kept"
    together = keeps and study.sampling.launches == "full"
    total = 0
    for row in chosen:
        follows = joined and joined[-1][-1] == row - 1 >= begin[row] and total + int(size[row]) <= MOST_IN_UNIT
        if together and follows:
            joined[-1].append(row)
            total += int(size[row])
        else:
            joined.append([row])
            total = int(size[row])
    before = before_each(launches, plan, gpu, study)
    return [Part(tuple(rows), before(rows[0])) for rows in joined]


def before_each(launches: Workload, plan: LaunchPlan, gpu: Gpu, study: Study) -> Callable[[int], tuple[int, ...]]:
    """Of a row of the table of launches, those whose accesses tell what was in caches before it."""
    if not gpu.l2.kept_between_launches or study.options(GpuChoice).caches == "cold":
        return lambda _: ()
    requests, begin = launches.column("launches", "memory_requests"), _first_of_gpu(launches)
    enough = REACH * (gpu.l2.size_bytes + gpu.sms * gpu.l1.size_bytes) // SECTOR_BYTES
    like = _recorded_like(launches, plan)

    def before(row: int) -> tuple[int, ...]:
        found = _before(row, int(begin[row]), requests, enough)
        return tuple(int(like[each]) for each in found if like[each] >= 0)

    return before


def _recorded_like(launches: Workload, plan: LaunchPlan) -> np.ndarray:
    """int64[launches]: the row whose instructions a launch leaves in caches: its own, or, where counts alone were
    recorded, those of the launch that stands for it (-1: none does)."""
    ids = launches.column("launches", "launch_id")
    like = np.arange(len(ids))
    counted = np.isin(ids, launches.gpu.counted_ids if launches.gpu is not None else ())
    like[counted] = -1
    mine = counted[plan.row]
    like[plan.row[mine]] = plan.representative[mine]
    return like


def _first_of_gpu(launches: Workload) -> np.ndarray:
    """int64[launches]: the row of the first launch on the same GPU. Each rank has its own, and its launches are in
    one piece of the table."""
    operations = launches.tables["gpu_operations"]
    known = launches.column("launches", "launch_id")
    if not operations.num_rows:
        return np.zeros(len(known), np.int64)
    launch = launches.column("gpu_operations", "launch_id")
    is_one = launch > 0  # their numbers ascend rank by rank
    rank = launches.column("gpu_operations", "rank")[is_one]
    at = np.minimum(np.searchsorted(launch[is_one], known), len(rank) - 1)
    return np.searchsorted(rank[at], rank[at])


def _before(row: int, begin: int, requests: np.ndarray, enough: int) -> tuple[int, ...]:
    """Rows before ``row``, from ``begin``, whose requests are at least ``enough`` together, or all."""
    first, seen = row, 0
    while first > begin and seen < enough:
        first -= 1
        seen += int(requests[first])
    return tuple(range(first, row))


def first_stage(launches: Workload, parts: Sequence[Part], gpu: Gpu, content: Mapping[str, Any], study: Study) -> Stage:
    """Outlines if the model has profiles, else simulations. ``content``: what ``gpu`` was built from."""
    name = name_of(study)
    model = lookup("gpu", name)
    options = model.options(study)
    if model.HAS_PROFILE:
        kind, own, shards = OUTLINE, {"options": options}, 1
        parts = [Part(part.simulated, ()) for part in parts]
    else:
        options |= {"regions": study.options(TbpointChoice).regions.model_dump(mode="json")}
        meaning = {"gpu": read_of(gpu), "options": options}
        own = {"options": options | {"sampler": study.sampling.blocks}}
        kind, shards = SIMULATE, _shards(study)
    streams = launches.gpu
    assert streams is not None
    ids = launches.column("launches", "launch_id")
    size = launches.column("launches", "warp_instructions")
    digest = launches.tables["launches"].column("digest").to_pylist()
    units = []
    for part in parts:
        simulated, before = (ids[list(rows)].tolist() for rows in (part.simulated, part.before))
        if model.HAS_PROFILE:
            meaning = {"gpu": model.outline_reads(gpu, options, int(size[list(part.simulated)].max(initial=0)))}
        numbers = {"launches": simulated, "before": len(before), "model": name, "version": model.version()}
        key = unit_key(kind, VERSION, meaning | numbers, [digest[row] for row in (*part.before, *part.simulated)], 0)
        parameters = {
            **own,
            "model": name,
            "gpu": content,
            "launches": simulated,
            "before": before,
            "sizes": size[list(part.simulated)].tolist(),
        }
        instructions = int(size[list(part.simulated)].sum())
        weight = max(_WEIGHT.get(name, 8) * instructions, 1)
        units.append(WorkUnit(key, kind, parameters, {"launches": streams.digest}, weight, shards, instructions))
    return Stage(kind, units, {streams.digest: streams})


def profile_stage(launches: Workload, parts: Sequence[Part], outlines: Finished, gpu: Gpu, study: Study) -> Stage:
    """Profiles from ``outlines``, which ``first_stage`` made of ``parts``."""
    name = name_of(study)
    model = lookup("gpu", name)
    options = model.options(study)
    ids = launches.column("launches", "launch_id")
    digest = launches.tables["launches"].column("digest").to_pylist()
    units = []
    for part, outline in zip(parts, outlines.units, strict=True):
        before = ids[list(part.before)].tolist()
        meaning = {"gpu": model.profile_reads(gpu, options), "model": name, "version": model.version()}
        key = unit_key(PROFILE, VERSION, meaning, [outline.key, *(digest[row] for row in part.before)], 0)
        inputs = {"launches": outline.inputs["launches"], "outlines": outline.key}
        own = {**outline.parameters, "before": before}
        units.append(WorkUnit(key, PROFILE, own, inputs, outline.weight, instructions=outline.instructions))
    assert launches.gpu is not None
    return Stage(PROFILE, units, {launches.gpu.digest: launches.gpu, **_by_key(outlines)})


def predict_stage(outlines: Finished, profiles: Finished, gpu: Gpu, study: Study) -> Stage:
    """Predictions from ``profiles``, which are of ``outlines``."""
    name = name_of(study)
    model = lookup("gpu", name)
    options = model.options(study)
    units = []
    for profile in profiles.units:
        meaning = {"gpu": read_of(gpu), "options": options, "model": name, "version": model.version()}
        key = unit_key(PREDICT, VERSION, meaning, [profile.key], 0)
        own = {"model": name, "gpu": profile.parameters["gpu"], "options": options}
        inputs = {"outlines": profile.inputs["outlines"], "profiles": profile.key}
        units.append(WorkUnit(key, PREDICT, own, inputs, max(1, profile.weight // 10)))
    return Stage(PREDICT, units, _by_key(outlines) | _by_key(profiles))


def _by_key(finished: Finished) -> dict[str, Arrays]:
    """Results as inputs of other units."""
    return {unit.key: arrays for unit, arrays in zip(finished.units, finished.results, strict=True)}


def name_of(study: Study) -> str:
    """The model of a study's launches."""
    return study.model.gpu or "detailed"


def read_of(gpu: Gpu) -> dict[str, Any]:
    """What simulations of launches read of a GPU."""
    return gpu.model_dump(mode="json", exclude=_UNREAD)


def _shards(study: Study) -> int:
    chosen = study.options(GpuChoice)
    if chosen.order == "strict":
        return 1
    return AS_MANY_AS_THERE_ARE if chosen.groups == "auto" else chosen.groups


def simulate_launches(parameters: Mapping[str, Any], inputs: Mapping[str, Any], team: Team = ALONE) -> Arrays:
    """The kind of unit: ``launches`` one after the other on ``gpu``, after ``before``. Result: to_arrays."""
    from manyscale.runner.predict.gpu import pieces
    from manyscale.runner.predict.gpu.blocks import block_columns, with_blocks, work_columns

    streams, gpu = inputs["launches"], Gpu.model_validate(parameters["gpu"])
    options = parameters["options"]
    columns: dict[int, dict[str, np.ndarray]] = {}
    work: dict[int, dict[str, np.ndarray]] = {}

    model = lookup("gpu", parameters["model"])
    most = pieces.WHOLE if hasattr(model, "takes_pieces") and model.takes_pieces(options) else None
    streamed: dict[int, pieces.LaunchInPieces] = {}

    def opened(launch_id: int) -> LaunchTrace | pieces.LaunchInPieces:
        trace = pieces.opened(streams, launch_id, lambda: team.once(lambda: streams.trace(launch_id)), most)
        if isinstance(trace, pieces.LaunchInPieces):
            streamed[launch_id] = trace
            return trace
        columns[launch_id] = block_columns(trace, gpu, options["regions"])
        work[launch_id] = work_columns(trace, gpu)
        return trace

    before = (pieces.opened(streams, each, partial(streams.trace, each), most) for each in parameters["before"])
    launches = telling(map(opened, parameters["launches"]), parameters["sizes"])
    found = model.simulate(launches, before, gpu, options, team)
    results = []
    for each in found:
        if each.launch_id in streamed:
            columns[each.launch_id], work[each.launch_id] = streamed[each.launch_id].columns(gpu, options["regions"])
        own: dict[str, Any] = dict(work[each.launch_id])
        whole = replace(with_blocks(each, columns[each.launch_id]), **own)
        recorded = streams.recorded_blocks(each.launch_id)
        if recorded is not None:
            from manyscale.runner.predict.gpu.partial import of_all_blocks

            executed = int(streams.instruction_counts(each.launch_id)[1].executed.sum())
            whole = of_all_blocks(whole, recorded, executed)
        results.append(whole)
    return to_arrays(results)


def outline_launches(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> Arrays:
    """The kind of unit: outlines of ``launches``; what is in them is the model's own affair."""
    gpu = Gpu.model_validate(parameters["gpu"])
    traces = telling(map(inputs["launches"].trace, parameters["launches"]), parameters["sizes"])
    found: Arrays = lookup("gpu", parameters["model"]).outline(traces, gpu, parameters["options"])
    return found


def profile_launches(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> Arrays:
    """The kind of unit: profiles of ``launches`` from the result of ``outline_launches``."""
    gpu = Gpu.model_validate(parameters["gpu"])
    before = map(inputs["launches"].trace, parameters["before"])
    found: Arrays = lookup("gpu", parameters["model"]).profile(inputs["outlines"], before, gpu)
    return found


def predict_launches(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> Arrays:
    """The kind of unit: launches from the results of ``outline_launches`` and ``profile_launches``. Result:
    to_arrays."""
    gpu = Gpu.model_validate(parameters["gpu"])
    model = lookup("gpu", parameters["model"])
    return to_arrays(model.predict(inputs["outlines"], inputs["profiles"], gpu, parameters["options"]))
