"""How far samples of intervals, sampling units or kernel launches are from all of a profile.

As tables of chapter 5 of Huang (Georgia Tech, 2015): of each profile, whose cycles must be known, and method, the
error of the estimated CPI over seeds (mean and largest), how many elements are taken, and how often the interval that a
sample gives by itself holds the truth; of phases, too, the deviation of IPC within them as a share of the whole run's.
Baselines take as many elements as the first method does in the mean. The page shows CPI over the run, coloured by
phase, and the points that were chosen.

``NAME:N`` draws N intervals, or launches, of each cluster of a method.

``--on OTHER`` judges by another machine: elements are chosen by PROFILE alone, its vectors and counters, and the CPI is
that of OTHER, a profile of the same intervals or a table of their counters (Hung, section 6.2).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from manyscale.models.spelling import hint
from manyscale.models.workload import Workload
from manyscale.models.workload.columns import text_array, to_arrow
from manyscale.models.workload.notes import Note
from manyscale.runner.cache import default_cache
from manyscale.runner.errors import UserError
from manyscale.runner.input_kinds import STACKS
from manyscale.runner.progress import Progress, silent
from manyscale.runner.readers import simpoint_bb
from manyscale.runner.run.plans import launches
from manyscale.runner.run.plans import stacks as stack_plans
from manyscale.runner.run.plans.intervals import method_named
from manyscale.runner.run.plans.stacks import SIMPROF
from manyscale.runner.study import WorkloadChoice
from manyscale.runner.study.traces import read_workload
from manyscale.sampling import estimate as interval_estimate
from manyscale.sampling.estimate import IntervalEstimate
from manyscale.sampling.interval_samplers import SizeRules, SystematicRules
from manyscale.sampling.population import Choice, IntervalPopulation, intervals_of
from manyscale.sampling.simprof.stack_population import stack_units_of
from manyscale.sampling.tbpoint import launch_samplers
from manyscale.sampling.tbpoint.launch_samplers import LaunchPopulation

OF_BLOCKS: Final = ("simpoint", "code", "random", "systematic", "second")
OF_STACKS: Final = STACKS.further
_DEFAULT: Final = {"intervals": OF_BLOCKS, "units": OF_STACKS, "launches": launches.DEFAULT_METHODS}


@dataclass(frozen=True)
class Profile:
    """A profile whose truth is known: ``cpi`` and ``instructions`` float64[n], of the machine that judges;
    ``choose(method, size, seed)``; ``judge``: the estimate of CPI, where the methods have their own."""

    name: str
    kind: str
    cpi: np.ndarray
    instructions: np.ndarray
    choose: Callable[[str, int | None, int], Choice]
    judge: Callable[[Choice], IntervalEstimate] | None = None
    notes: Sequence[Note] = ()

    @property
    def truth(self) -> float:
        return float(self.instructions @ self.cpi / self.instructions.sum())


@dataclass(frozen=True)
class Row:
    """A method on a profile. Of each seed the relative error, the half-width of its interval (NaN: there is none) and
    whether it holds the truth, elements and the share of the instructions that they have; ``within``: the deviation of
    IPC within phases as a share of all intervals', None where there are none."""

    profile: str
    method: str
    population: int
    errors: np.ndarray
    half_widths: np.ndarray
    holds: np.ndarray
    sizes: np.ndarray
    shares: np.ndarray
    within: float | None
    cpu_seconds: float

    @property
    def held(self) -> float | None:
        """The share of seeds whose interval holds the truth, None where one has none."""
        return None if np.any(np.isnan(self.half_widths)) else float(self.holds.mean())

    @property
    def half_width(self) -> float | None:
        return None if self.held is None else float(np.median(self.half_widths))


@dataclass(frozen=True)
class Evaluation:
    """A row per profile and method, and of those that find phases what they chose with seed 0."""

    seeds: int
    rows: Sequence[Row]
    shown: Sequence[tuple[Profile, str, Choice]]


def is_profile(path: str) -> bool:
    """Whether a trace is one of intervals, call stacks or kernel launches, by its name and first bytes."""
    place = Path(path)
    return simpoint_bb.can_read(place) or stack_plans.is_profile(place) or launches.are_launches(place)


def load(
    traces: Sequence[str],
    methods: str | None = None,
    on: Sequence[str] | None = None,
    cycles: Path | None = None,
    cache: Path | None = None,
) -> list[tuple[Profile, list[str]]]:
    """Profiles, each with the methods to judge, separated by commas, or those that fit it. ``on``: what judges each
    one, in order; ``cycles``: a table of those of kernel launches. Raises UserError for methods that are unknown and
    profiles whose cycles are not."""
    if on and len(on) != len(traces):
        raise UserError(f"--on: names {len(on)} of {len(traces)} profiles; give one for each, in order")
    if cycles is not None and len(traces) > 1:
        raise UserError(f"--cycles: are those of one trace, {len(traces)} are named; evaluate one by one")
    cache = cache or default_cache()
    judges: Sequence[str | None] = on or [None] * len(traces)
    profiles = [_profile(path, judge, cycles, cache) for path, judge in zip(traces, judges, strict=True)]
    return [(profile, _methods(methods, profile)) for profile in profiles]


def evaluate(
    profiles: Sequence[tuple[Profile, Sequence[str]]],
    seeds: int = 10,
    progress: Progress = silent,
) -> Evaluation:
    """Every method of every profile."""
    rows: list[Row] = []
    shown: list[tuple[Profile, str, Choice]] = []
    total = sum(len(methods) for _, methods in profiles)
    for profile, methods in profiles:
        size: int | None = None
        for method in methods:
            row, first = _measured(profile, method, size, seeds)
            size = size or round(float(row.sizes.mean()))
            rows.append(row)
            if len(first.label):
                shown.append((profile, method, first))
            progress(len(rows), total, "evaluating")
    return Evaluation(seeds, rows, shown)


def _profile(path: str, judge: str | None, cycles: Path | None, cache: Path) -> Profile:
    workload = read_workload(WorkloadChoice(path=path), cache)
    return replace(_profile_of(workload, path, judge, cycles, cache), notes=workload.notes)


def _profile_of(workload: Workload, path: str, judge: str | None, cycles: Path | None, cache: Path) -> Profile:
    try:
        if workload.tables["launches"].num_rows:
            if judge is not None:
                raise ValueError("has kernel launches; --on judges intervals of basic-block vectors")
            return _of_launches(launches.population_of(workload, Path(path), cycles), workload.name)
        if cycles is not None:
            raise ValueError("has no kernel launches; --cycles are theirs")
        if not workload.tables["stack_units"].num_rows:
            return _of_blocks(workload, None if judge is None else _judging(path, judge, cache))
        if judge is not None:
            raise ValueError("has call stacks; --on judges intervals of basic-block vectors")
        return _of_stacks(workload)
    except ValueError as error:
        raise UserError(f"{path if judge is None else f'{path} --on {judge}'}: {error}") from None


def _judging(path: str, judge: str, cache: Path) -> IntervalPopulation:
    """The intervals of ``path`` as another profile, or another table, measured them."""
    if simpoint_bb.can_read(Path(judge)):
        return intervals_of(read_workload(WorkloadChoice(path=judge), cache))
    if not Path(judge).is_file():
        raise UserError(f"--on {judge}: there is no such file; a profile or a table of counters is expected")
    return intervals_of(simpoint_bb.read(Path(path), table=Path(judge)))


def _of_blocks(workload: Workload, judge: IntervalPopulation | None) -> Profile:
    population = intervals_of(workload)
    judged = population if judge is None else judge
    if not np.array_equal(population.number, judged.number):
        raise ValueError(f"the profiles have different intervals ({len(population)} and {len(judged)}); cut both alike")
    if judged.cpi is None:
        raise ValueError(
            "the cycles of its intervals are not known; put NAME.cpi.csv with the column 'cycles' beside it"
        )

    def choose(method: str, size: int | None, seed: int) -> Choice:
        name, per_cluster = _several(method)
        found = method_named(name)
        rules = _sized(found.rules, size, len(population)) if per_cluster is None else found.rules(**per_cluster)
        return found.choose(population, rules, seed)

    return Profile(workload.name, "intervals", judged.cpi, judged.instructions, choose)


def _of_stacks(workload: Workload) -> Profile:
    population = stack_units_of(workload)
    cpi = population.cpi
    if cpi is None:
        raise ValueError(stack_plans.NO_CYCLES)

    def choose(method: str, size: int | None, seed: int) -> Choice:
        return stack_plans.choose(population, method, _sized(stack_plans.rules_of(method), size, len(population)), seed)

    return Profile(workload.name, "units", cpi, np.ones(len(population)), choose)


def _of_launches(population: LaunchPopulation, name: str) -> Profile:
    if population.cpi is None:
        raise ValueError("the cycles of its launches are not known; name a table of them with --cycles")

    def choose(method: str, size: int | None, seed: int) -> Choice:
        found = launches.method_named(method)
        rules = found.rules.model_validate(found.preset) if found.preset else _sized(found.rules, size, len(population))
        return found.choose(population, rules, seed)

    def judge(choice: Choice) -> IntervalEstimate:
        return launch_samplers.estimate(choice, population)

    return Profile(name, "launches", population.cpi, population.instructions, choose, judge)


def _sized(rules: type, size: int | None, population: int) -> Any:
    """Rules of a method; baselines take ``size`` elements."""
    if size is not None and rules is SizeRules:
        return SizeRules(intervals=size)
    if size is not None and rules is SystematicRules:
        return SystematicRules(period=max(1, round(population / size)))
    return rules()


def _methods(asked: str | None, profile: Profile) -> list[str]:
    if asked is None:
        return list(_DEFAULT[profile.kind])
    names = asked.split(",")
    for name in names:
        if profile.kind == "units" and name not in OF_STACKS:
            raise UserError(f"--method {name!r}: is none of call stacks; {hint(name, OF_STACKS)}")
        if profile.kind == "launches":
            launches.method_named(name)
        if profile.kind == "intervals":
            if name == SIMPROF:
                raise UserError(f"--method {name!r}: {profile.name} has no call stacks")
            given, per_cluster = _several(name)
            if per_cluster is not None and "per_cluster" not in method_named(given).rules.model_fields:
                raise UserError(f"--method {name!r}: {given} makes no clusters; leave the number out")
    return names


def _several(method: str) -> tuple[str, dict[str, int] | None]:
    """NAME:N, so many intervals of each cluster. Raises UserError for an unknown name or number."""
    name, colon, count = method.partition(":")
    method_named(name)
    if colon and not (count.isdecimal() and int(count) >= 1):
        raise UserError(f"--method {method!r}: write NAME:N, such as simpoint:3 for three intervals of each cluster")
    return name, {"per_cluster": int(count)} if colon else None


def _measured(profile: Profile, method: str, size: int | None, seeds: int) -> tuple[Row, Choice]:
    begin = time.process_time()
    choices = [profile.choose(method, size, seed) for seed in range(seeds)]
    taken = time.process_time() - begin
    truth = profile.truth
    found = [_estimate(profile, each) for each in choices]
    low, high = (np.array([np.nan if end is None else end for end in ends]) for ends in
                 zip(*((each.low, each.high) for each in found), strict=True))  # fmt: skip
    total = profile.instructions.sum()
    within = [_within(profile, each) for each in choices if len(each.label)]
    row = Row(
        profile.name, method, len(profile.cpi), np.array([each.value for each in found]) / truth - 1,
        (high - low) / 2 / truth, (low <= truth) & (truth <= high), np.array([len(each.element) for each in choices]),
        np.array([profile.instructions[each.element].sum() / total for each in choices]),
        float(np.mean(within)) if within else None, taken / seeds,
    )  # fmt: skip
    return row, choices[0]


def _within(profile: Profile, choice: Choice) -> float:
    ipc, alike = 1 / profile.cpi, np.zeros(len(profile.cpi), np.int64)
    whole = phase_deviation(ipc, alike, profile.instructions)
    return phase_deviation(ipc, choice.label, profile.instructions) / whole if whole > 0 else 0.0


def phase_deviation(ipc: np.ndarray, label: np.ndarray, instructions: np.ndarray) -> float:
    """The standard deviation of ``ipc`` float64[n] within each phase, weighed by the phases' shares of
    ``instructions`` float64[n], which weigh intervals within phases, too (Hung, National Taiwan University 2010,
    section 6.2). ``label`` int[n] from 0. O(n)."""
    size = np.bincount(label, instructions)
    mean = np.bincount(label, instructions * ipc) / np.where(size > 0, size, 1.0)
    square = np.bincount(label, instructions * (ipc - mean[label]) ** 2) / np.where(size > 0, size, 1.0)
    return float(size @ np.sqrt(square) / size.sum())


def _estimate(profile: Profile, choice: Choice) -> IntervalEstimate:
    """CPI by the sample alone; with an interval for samples drawn at random, of strata with two elements at least."""
    if profile.judge is not None:
        return profile.judge(choice)
    found = interval_estimate.estimate(choice, profile.instructions, profile.cpi[choice.element])
    if choice.expected_error is None:
        return found
    half = found.value * choice.expected_error
    return IntervalEstimate(found.value, found.value - half, found.value + half)


def table(rows: Sequence[Row]) -> pa.Table:
    """A row per profile, method and seed. Columns that evaluation/tasks.py has, too, mean the same; ``error`` has
    its sign; ``half_width`` and ``holds`` are null where the sample has no interval."""
    half = np.concatenate([row.half_widths for row in rows])
    none = np.isnan(half)
    return pa.table(
        {
            "workload": text_array([row.profile for row in rows for _ in row.errors]),
            "method": text_array([row.method for row in rows for _ in row.errors]),
            "seed": to_arrow(np.concatenate([np.arange(len(row.errors)) for row in rows])),
            "error": to_arrow(np.concatenate([row.errors for row in rows])),
            "half_width": pa.array(half, mask=none),
            "holds": pa.array(np.concatenate([row.holds for row in rows]).astype(np.int8), mask=none),
            "detailed_share": to_arrow(np.concatenate([row.shares for row in rows])),
            "elements": to_arrow(np.concatenate([row.sizes for row in rows])),
            "population": to_arrow(np.concatenate([np.full(len(row.errors), row.population) for row in rows])),
        }
    )


def summary(rows: Sequence[Row]) -> str:
    """A line per profile and method, then the mean of each method over the profiles."""
    head = (
        f"{'profile':26} {'method':12} {'elements':>9} {'mean':>7} {'largest':>8} {'+-':>7} {'holds':>6} {'within':>7}"
    )
    lines = [head]
    for row in rows:
        half = "" if row.half_width is None else f"{row.half_width:.2%}"
        held = "" if row.held is None else f"{row.held:.0%}"
        lines.append(
            f"{row.profile[:26]:26} {row.method:12} {row.sizes.mean():9.1f} {np.abs(row.errors).mean():7.2%} "
            f"{np.abs(row.errors).max():8.2%} {half:>7} {held:>6} {shown_share(row.within):>7}".rstrip()
        )
    if len({row.profile for row in rows}) > 1:
        for method in dict.fromkeys(row.method for row in rows):
            mine = [row for row in rows if row.method == method]
            lines.append(
                f"{'all':26} {method:12} {np.mean([row.sizes.mean() for row in mine]):9.1f} "
                f"{np.mean([np.abs(row.errors).mean() for row in mine]):7.2%} "
                f"{max(np.abs(row.errors).max() for row in mine):8.2%}"
            )
    return "\n".join(lines) + "\n"


def shown_share(value: float | None) -> str:
    """Whole per cents; nothing for None."""
    return "" if value is None else f"{value:.0%}"
