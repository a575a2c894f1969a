"""``manyscale plan --export LIST``: a plan of intervals as other simulators read it.

- ``gem5``: NAME.gem5, the option ``--take-simpoint-checkpoints`` for NAME.simpoints and NAME.weights.
- ``pinpoints``: NAME.pinpoints.csv (NAME.global.pinpoints.csv for several threads), see run/plans/pinpoints.py.
- ``sniper``: NAME.sniper.sh, a script that simulates one region after the other with Sniper's ``run-sniper``. With
  markers a region is what LoopPoint's run script asks for: ``-s simuserroi`` and a controller of PinPlay or SDE that
  begins and ends it where a place in the program has been executed so often. Else ``-s roi-icount:X:Y:Z``: X
  instructions fast-forward, Y that warm caches, Z in detail (scripts/roi-icount.py), which looks at the count so often
  as ``core/hook_periodic_ins/ins_global`` says.
- ``bb``: NAME.bb, the vectors themselves, of intervals that were cut from a trace.
- ``projection``: NAME.proj, the matrix by which vectors were projected.

Regions are told by markers where the profile has them (readers/simpoint_bb/markers.py), else by instructions since the
profile began, which the consumer takes for the program's begin.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from manyscale.models.spelling import hint
from manyscale.models.workload.notes import Note, informs
from manyscale.runner.errors import UserError
from manyscale.runner.readers import simpoint_bb
from manyscale.runner.readers.simpoint_bb import markers as bb_markers
from manyscale.runner.readers.simpoint_bb.markers import Marker, Markers
from manyscale.runner.run.plans import pinpoints, simpoint_files
from manyscale.runner.run.plans.pinpoints import Region, Span
from manyscale.sampling.population import Choice, IntervalPopulation, ProjectedPopulation
from manyscale.sampling.vectors import Vectors

DRIFT: Final = 0.01  # of an interval: how far off k times the length interval k may begin, for gem5
CHECKS_PER_REGION: Final = 100  # by Sniper: its begin and its end are at most a hundredth of it off
_SNIPER_HEAD: Final = """#!/bin/sh
# Representative regions of {name} for Sniper; the run's time is the sum of each one's time by its multiplier.
# usage: SNIPER_ROOT=... [CONTROLLER=-control] sh {file} [options of run-sniper] -- COMMAND
# CONTROLLER: -pinplay:control (default) for Pin, -control for SDE; only where regions have markers
set -e
: "${{SNIPER_ROOT:?the folder of run-sniper}}"
: "${{CONTROLLER:=-pinplay:control}}"
"""


@dataclass(frozen=True)
class Exported:
    """What is exported: a plan of ``choice`` from ``population``, ``path`` of the profile or trace, ``name`` that files
    take, ``warmup``: intervals before each one that warm caches. ``matrix`` float64[blocks, dimensions] that projected
    the vectors, or ``drawn``, seed and dimensions of one at random; both None where nothing projected them."""

    name: str
    path: Path
    population: IntervalPopulation
    choice: Choice
    warmup: int
    is_traced: bool
    matrix: np.ndarray | None
    drawn: tuple[int, int] | None

    @cached_property
    def regions(self) -> tuple[list[Region], str]:
        """By their ids, and the thread that counts. Raises UserError where nobody knows where they lie."""
        return _regions(self)


def check_names(names: Sequence[str]) -> None:
    """Raises UserError for an export that is unknown."""
    for name in names:
        if name not in EXPORTS:
            raise UserError(f"--export {name!r}: unknown; {hint(name, EXPORTS)}")


def files(names: Sequence[str], plan: Exported) -> tuple[dict[str, str], list[Note]]:
    """Texts of all exports by suffix, and notes. Raises UserError where a plan has not what an export needs."""
    found: dict[str, str] = {}
    notes: list[Note] = []
    if plan.is_traced and {"gem5", "pinpoints", "sniper"} & set(names):
        text = "regions count instructions from where the trace begins, which may not be the program's begin"
        notes.append(informs("regions-from-trace-begin", text))
    for name in names:
        found |= EXPORTS[name](plan)
    return found, notes


def _gem5(plan: Exported) -> dict[str, str]:
    name, choice, length = plan.name, plan.choice, _common_length(plan)
    if "," in name:
        raise UserError(f"--export gem5: it splits names of files at commas; name {name!r} otherwise: -o NAME.parquet")
    cluster = _clusters(choice)
    option = f"--take-simpoint-checkpoints={name}.simpoints,{name}.weights,{length},{plan.warmup * length}"
    return {
        "gem5": option + "\n",
        "simpoints": simpoint_files.simpoints(plan.population.number[choice.element].tolist(), cluster),
        "weights": simpoint_files.weights(choice.weight.tolist(), cluster),
    }


def _pinpoints(plan: Exported) -> dict[str, str]:
    instructions = int(plan.population.instructions.sum())
    regions, thread = plan.regions
    text = pinpoints.regions_csv(regions, thread, instructions, len(plan.population))
    is_named = thread == "global" and not plan.name.endswith(".global")
    return {"global.pinpoints.csv" if is_named else "pinpoints.csv": text}


def _sniper(plan: Exported) -> dict[str, str]:
    return {"sniper.sh": _sniper_script(plan.regions[0], plan.name, f"{plan.name}.sniper.sh")}


def _sniper_script(regions: Sequence[Region], name: str, file: str) -> str:
    """``name`` of the program, from which folders of results take theirs; ``file``: how the script will be called."""
    lines = [_SNIPER_HEAD.format(name=name, file=file)]
    for region in regions:
        lines.append(f"# interval {region.interval}: weight {region.weight:.7f}, multiplier {region.multiplier:.6g}")
        by = _by_counter(region) if region.span.start is not None else _by_instructions(region)
        folder = shlex.quote(f"{name}-r{region.region_id}")
        lines.append(f'"$SNIPER_ROOT/run-sniper" -d {folder} --roi-script {by} "$@"\n')
    return "\n".join(lines)


def _by_instructions(region: Region) -> str:
    span, warmup = region.span, region.warmup
    before = 0 if warmup is None else warmup.length
    every = max(1, min(span.length, before or span.length) // CHECKS_PER_REGION)
    return (
        f"--no-cache-warming -s roi-icount:{span.first - before}:{before}:{span.length} "
        f"-g core/hook_periodic_ins/ins_global={every} -g core/hook_periodic_ins/ins_per_core={max(1, every // 10)}"
    )


def _by_counter(region: Region) -> str:
    first = region.span if region.warmup is None else region.warmup
    assert first.start is not None
    assert region.span.start is not None
    assert region.span.end is not None
    events = []
    if region.warmup is not None:
        events.append(("warmup-start", first.start))
    if first.first > 0 or region.warmup is not None:
        events.append(("start", region.span.start))
    if region.span.end.pc:
        events.append(("stop", region.span.end))
    options = ["-s simuserroi", "-g general/inst_mode_init=detailed"]
    options += [f'--trace-args="$CONTROLLER {event}:address:{_address(at)}:count{at.count}:global"'
                for event, at in events]  # fmt: skip
    return " ".join(options)


def _address(marker: Marker) -> str:
    return f"{marker.pc:#x}" if marker.image == "no_image" else f"{marker.image}+{marker.offset:#x}"


def _bb(plan: Exported) -> dict[str, str]:
    if not plan.is_traced:
        raise UserError(f"--export bb: {plan.path} is a profile of basic-block vectors already")
    vectors = plan.population.vectors
    bounds, block, count = vectors.first.tolist(), (vectors.column + 1).tolist(), vectors.value.tolist()
    rows = (list(zip(block[first:end], count[first:end], strict=True)) for first, end in pairwise(bounds))
    return {"bb": simpoint_files.vectors(rows)}


def _projection(plan: Exported) -> dict[str, str]:
    if plan.matrix is not None:
        return {"proj": simpoint_files.projection(plan.matrix)}
    if plan.drawn is None:
        raise UserError("--export projection: the method projects no vectors; simpoint and code do")
    population = plan.population
    columns = int(population.vectors.column.max(initial=-1)) + 1
    if isinstance(population, ProjectedPopulation):
        if population.num_threads > 1:
            raise UserError(f"--export projection: {plan.path} is large and of several threads, whose blocks lie apart")
        columns = population.num_columns
    identity = Vectors(np.arange(columns + 1), np.arange(columns), np.ones(columns))
    return {"proj": simpoint_files.projection(identity.projected(*plan.drawn))}


EXPORTS: Final = {"gem5": _gem5, "pinpoints": _pinpoints, "sniper": _sniper, "bb": _bb, "projection": _projection}


def _clusters(choice: Choice) -> list[int]:
    """A number for each chosen interval: its stratum, or, where one has several, its place."""
    if len(np.unique(choice.stratum)) == len(choice.stratum):
        return choice.stratum.tolist()
    return list(range(len(choice.stratum)))


def _begins(plan: Exported) -> np.ndarray:
    """int64[n + 1]: instructions before each interval, and all."""
    population = plan.population
    if not np.array_equal(population.number, np.arange(len(population))):
        raise UserError(f"--export: {plan.path} leaves intervals out, so nobody knows where the others begin")
    return np.append(0, np.cumsum(population.instructions)).round().astype(np.int64)


def _common_length(plan: Exported) -> int:
    """Instructions of an interval. Intervals that end with a block are a little off; the length that was asked for is
    then the roundest number that all of them allow. Raises UserError where they differ by more."""
    begins = _begins(plan)
    whole = len(begins) - 2  # the last one may be shorter
    if whole < 1:
        return int(begins[-1])
    at = np.arange(1, whole + 1)
    low, high = (begins[1:-1] / (at + DRIFT)).max(), (begins[1:-1] / (at - DRIFT)).min()
    if low > high or begins[-1] - begins[-2] > 1.5 * high:
        raise UserError(
            f"--export gem5: the intervals of {plan.path} have different lengths, gem5 knows one; "
            "--export pinpoints tells where each begins"
        )
    mean = begins[-2] / whole
    slack = 2 * float(np.abs(np.diff(begins[:-1]) - mean).max()) / whole
    for digits in range(1, 17):
        rounded = float(f"{mean:.{digits - 1}e}")
        if abs(rounded - mean) <= slack:
            return round(rounded)
    return round(mean)


def _regions(plan: Exported) -> tuple[list[Region], str]:
    begins, choice = _begins(plan), plan.choice
    before = {point: max(0, point - plan.warmup) for point in choice.element.tolist()}
    markers = None
    if simpoint_bb.can_read(plan.path):
        wanted = {each for point, first in before.items() for each in range(first, point + 1)}
        markers = bb_markers.read(plan.path, wanted)
    if markers is not None and len(markers.at) != len(begins):
        raise UserError(
            f"{plan.path}: has {len(markers.at) - 1} vectors for {len(begins) - 1} intervals, so its markers belong to "
            "none; profile again"
        )
    found = []
    for point, cluster, weight in zip(choice.element.tolist(), _clusters(choice), choice.weight.tolist(), strict=True):
        own = int(begins[point + 1] - begins[point])
        if not own:
            raise UserError(f"--export: interval {point} of {plan.path} executes nothing")
        first = before[point]
        multiplier = weight * float(begins[-1]) / own
        warmup = _span(begins, markers, first, point) if first < point else None
        span = _span(begins, markers, point, point + 1)
        found.append(Region(point, cluster, cluster + 1, weight, multiplier, span, warmup))
    several = plan.population.num_threads > 1 or ".global." in plan.path.name
    return sorted(found, key=lambda region: region.region_id), "global" if several else "0"


def _span(begins: np.ndarray, markers: Markers | None, first: int, end: int) -> Span:
    span = Span(int(begins[first]), int(begins[end] - begins[first]))
    if markers is None:
        return span
    return replace(
        span, start=markers.at[first], end=markers.at[end], relative_count=markers.relative_count(first, end)
    )
