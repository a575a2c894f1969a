"""Kernel launches of a GPU as a population, for ``manyscale plan --method tbpoint LAUNCHES`` and ``evaluate``.

LAUNCHES are an Accel-Sim trace or a profiler's counters. Methods are TBPoint, written ``tbpoint`` (one launch for each
cluster), ``tbpoint:auto`` or ``tbpoint:3`` (several), and baselines. Cycles are those of the profiler, or of a table
that ``--cycles`` names (columns ``launch_id`` and ``cycles``: CSV, or a run's timeline/launches.parquet).

Beside the plan: NAME.labels, the cluster of every launch; NAME.clusters.csv, what clusters are; and, for a trace and a
target, NAME.regions.csv, TBPoint's homogeneous regions of thread blocks of the chosen launches, which depend on how
many blocks the target's GPU holds. Counters have no blocks.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from manyscale.models.gpu.parameters import Gpu
from manyscale.models.spelling import hint
from manyscale.models.workload import Workload
from manyscale.runner.errors import UserError
from manyscale.runner.predict.gpu.cycles_table import cycles_of
from manyscale.runner.predict.gpu.launch_counts import counts_of, shapes_of
from manyscale.runner.readers import accelsim, launch_counters
from manyscale.runner.readers.launch_counters.reader import read_counters
from manyscale.runner.registry import names
from manyscale.runner.run.plans import simpoint_files
from manyscale.runner.run.plans.request import Planned, PlanRequest
from manyscale.runner.study import WorkloadChoice
from manyscale.runner.study.samplers import sampler_named
from manyscale.runner.study.targets import target_named
from manyscale.sampling.sampler import Sampler
from manyscale.sampling.tbpoint import launch_samplers as samplers
from manyscale.sampling.tbpoint.launch_samplers import LaunchChoice, LaunchPopulation
from manyscale.sampling.tbpoint.rules import LaunchSampling, RegionRules

TBPOINT: Final = "tbpoint"
DEFAULT_METHODS: Final = (TBPOINT, f"{TBPOINT}:auto", "random", "systematic", "second")


class TBPointRules(LaunchSampling):
    """Of launches, and ``blocks``: of the regions inside them."""

    blocks: RegionRules = RegionRules()


def are_launches(path: Path) -> bool:
    """Whether a workload is one of kernel launches, by its name and first bytes."""
    return accelsim.can_read(path) or launch_counters.can_read(path)


def is_tbpoint(name: str) -> bool:
    return name.partition(":")[0] == TBPOINT


def method_named(name: str) -> Sampler:
    """Raises UserError for an unknown name."""
    method, colon, several = name.partition(":")
    if method == TBPOINT and (not colon or several == "auto" or several.isdigit()):
        preset = {"representatives": int(several) if several.isdigit() else several} if colon else {}
        return replace(samplers.TBPOINT, rules=TBPointRules, preset=preset)
    if (found := sampler_named("launch", name)) is None:
        known = [TBPOINT, f"{TBPOINT}:auto", *(each for each in names("launch-sampler") if each != TBPOINT)]
        text = hint(name, known, f", or {TBPOINT}:N with a number")
        raise UserError(f"--method {name!r}: is none of kernel launches; {text}")
    return found


def population_of(
    workload: Workload, place: Path, cycles: Path | None, *, with_blocks: bool = False
) -> LaunchPopulation:
    """All launches of a workload that was read from ``place``; ``cycles``: a table of them. Raises UserError for a
    table that does not fit, ValueError for a workload without launches and for those that cannot be sampled."""
    rows = np.arange(workload.tables["launches"].num_rows)
    if not len(rows):
        raise ValueError(
            "has no kernel launches; record them with manyscale trace --level gpu -o DIR -- PROGRAM, or give one of "
            "Accel-Sim's tracer or a profiler's counters"
        )
    launch_id = workload.column("launches", "launch_id")
    known = None
    if cycles is not None:
        known = cycles_of(cycles, launch_id)
    elif launch_counters.can_read(place):
        counted = read_counters(place).cycles
        known = None if counted is None else counted[launch_id - 1]
    if with_blocks and workload.gpu is None:
        raise ValueError("has counters alone; basic-block vectors (bbv_scale) need a trace")
    return LaunchPopulation(rows, counts_of(workload, rows, with_blocks), known, *shapes_of(workload, rows), known)


def planned(request: PlanRequest) -> Planned:
    """Raises as population_of."""
    method = method_named(request.method)
    rules: Any = request.rules_of(method.rules, method.preset)
    gpu = None
    if request.target is not None:
        gpu = Gpu.of(target_named(request.target)[0].node)
        if gpu is None:
            raise UserError(f"--target {request.target}: has no GPU, which regions of thread blocks depend on")
    chosen = None if request.launches is None else list(request.launches)
    workload = request.read(WorkloadChoice(path=request.path, format=request.form, launches=chosen))
    with_blocks = getattr(rules, "bbv_scale", 0) > 0
    population = population_of(workload, Path(request.path), request.cycles, with_blocks=with_blocks)
    choice = samplers.expecting(method.choose(population, rules, request.seed), population)
    share = population.instructions[choice.element].sum() / population.instructions.sum()
    text = f"{len(choice.element)} of {len(population)} launches, {share:.2%} of the instructions, would be simulated"
    if population.cpi is not None:
        found = samplers.estimate(choice, population)
        truth = population.cpi @ population.instructions / population.instructions.sum()
        expected = "" if choice.expected_error is None else f", expected within {choice.expected_error:.2%}"
        text += f"; cycles by these {found.value / truth - 1:+.2%} off those of all{expected}"
    files = {}
    if isinstance(choice, LaunchChoice):
        files = {"labels": simpoint_files.labels(choice.label), "clusters.csv": _clusters(workload, population, choice)}
        if gpu is not None:
            if workload.gpu is None:
                raise ValueError("has counters alone; regions of thread blocks need a trace: leave --target out")
            files["regions.csv"] = _regions(workload, choice, gpu, rules.blocks)
    return Planned(workload.name, "launch", request.method, choice, text, files, workload.notes)


def _clusters(workload: Workload, population: LaunchPopulation, choice: LaunchChoice) -> str:
    kernels = workload.tables["launches"].column("kernel_name").to_pylist()
    rows = ["cluster,kernel,launches,chosen,instruction_share,cpi,deviation\n"]
    total = population.instructions.sum()
    for cluster in range(int(choice.label.max()) + 1):
        mine = np.flatnonzero(choice.label == cluster)
        drawn = np.count_nonzero(choice.stratum == cluster)
        own = None if population.cpi is None else population.cpi[mine]
        known = "," if own is None else f"{own.mean():.6g},{own.std():.6g}"
        kernel = kernels[mine[0]].replace('"', "'")
        share = population.instructions[mine].sum() / total
        rows.append(f'{cluster},"{kernel}",{len(mine)},{drawn},{share:.6g},{known}\n')
    return "".join(rows)


def _regions(workload: Workload, choice: LaunchChoice, gpu: Gpu, rules: RegionRules) -> str:
    """Regions of the chosen launches' thread blocks on a GPU. O(their instructions)."""
    from manyscale.runner.predict.gpu.blocks import profile_of, regions_of

    assert workload.gpu is not None
    rows = ["launch_id,region,first_block,last_block,warp_instructions,epoch_blocks\n"]
    for launch_id in workload.column("launches", "launch_id")[choice.element].tolist():
        if launch_id in workload.gpu.counted_ids or workload.gpu.recorded_blocks(launch_id) is not None:
            raise UserError(
                f"--target: regions of thread blocks need all instructions of launch {launch_id}, of which counts were "
                "recorded; leave it out"
            )
        trace = workload.gpu.trace(launch_id)
        profile = profile_of(trace)
        regions = regions_of(trace, profile, gpu, rules.model_dump())
        for region, first, last in regions.rows.tolist():
            executed = profile.warp_instructions[first : last + 1].sum()
            rows.append(f"{launch_id},{region},{first},{last},{executed},{regions.occupancy}\n")
    return "".join(rows)
