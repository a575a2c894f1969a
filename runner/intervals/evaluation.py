"""``manyscale evaluate PROFILE...``: how far samples of intervals, or of sampling units, are from the whole.

As tables of chapter 5 of Huang (Georgia Tech, 2015): of each profile, whose cycles must be known, and method, the
error of the estimated CPI over seeds (mean and largest), how many elements are taken, and how often the interval that a
sample gives by itself holds the truth. Baselines take as many elements as the first method does in the mean. The page
shows CPI over the run, coloured by phase, and the points that were chosen.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from manyscale.models.columns import text_array, to_arrow
from manyscale.models.workload import Workload
from manyscale.runner import rundir
from manyscale.runner.commands import progress_bar
from manyscale.runner.errors import UserError
from manyscale.runner.execute.store import default_cache
from manyscale.runner.intervals.plans import METHODS, STACKS, method_named
from manyscale.runner.study import WorkloadChoice
from manyscale.runner.traces import read_workload
from manyscale.runner.writers.parquet import write_table
from manyscale.runner.writers.report_page import LINE_COLOURS, Page, axis
from manyscale.runner.writers.report_text import table
from manyscale.sampling import simprof, stratified
from manyscale.sampling.interval_population import Choice, IntervalPopulation, intervals_of
from manyscale.sampling.interval_samplers import SizeRules, SystematicRules
from manyscale.sampling.simprof import SimProfRules
from manyscale.sampling.stack_population import stack_units_of
from manyscale.sampling.vectors import Vectors

CONFIDENCE: Final = 0.95
OF_BLOCKS: Final = ("simpoint", "code", "random", "systematic", "second")
OF_STACKS: Final = (STACKS, "random", "systematic", "second")
_MOST_SHOWN: Final = 4000


@dataclass(frozen=True)
class _Profile:
    """A profile whose truth is known: ``cpi`` and ``instructions`` float64[n]; ``choose(method, size, seed)``."""

    name: str
    kind: str
    cpi: np.ndarray
    instructions: np.ndarray
    choose: Callable[[str, int | None, int], Choice]

    @property
    def truth(self) -> float:
        return float(self.instructions @ self.cpi / self.instructions.sum())


@dataclass(frozen=True)
class _Row:
    """A method on a profile: relative errors and sizes of all seeds; whether intervals held, None where there are
    none."""

    profile: str
    method: str
    population: int
    errors: np.ndarray
    sizes: np.ndarray
    held: float | None
    half_width: float | None
    cpu_seconds: float


def is_profile(path: str) -> bool:
    """Whether a trace is one of intervals or call stacks, by its name and first bytes."""
    from manyscale.runner.readers import folded, jfr, simpoint_bb, stack_folder, unit_stacks

    readers: tuple[Any, ...] = (simpoint_bb, unit_stacks, stack_folder, jfr, folded)
    return any(reader.can_read(Path(path)) for reader in readers)


def evaluate(options: argparse.Namespace) -> int:
    """The command. Raises UserError for methods that are unknown and profiles whose cycles are not."""
    if options.seeds < 1:
        raise UserError(f"--seeds {options.seeds}: at least one is needed")
    profiles = [_profile(path, options) for path in options.traces]
    asked = [_methods(options.methods, profile) for profile in profiles]
    directory = rundir.new_directory(options.output, "evaluation", False)
    rows: list[_Row] = []
    shown: list[tuple[_Profile, str, Choice]] = []
    total = sum(map(len, asked))
    with progress_bar() as progress:
        for profile, methods in zip(profiles, asked, strict=True):
            size: int | None = None
            for method in methods:
                row, first = _measured(profile, method, size, options.seeds)
                size = size or round(float(row.sizes.mean()))
                rows.append(row)
                if len(first.label):
                    shown.append((profile, method, first))
                progress(len(rows), total)
    write_table(_table(rows), directory / "evaluation.parquet")
    text = summary(rows)
    rundir.write_atomically(directory / "evaluation.txt", text)
    rundir.write_atomically(directory / "report.html", _page(rows, shown, options.seeds))
    print(text, end="")
    print(f"results: {directory}")
    return 0


def _profile(path: str, options: argparse.Namespace) -> _Profile:
    workload = read_workload(WorkloadChoice(path=path), options.cache or default_cache())
    try:
        return _of_stacks(workload) if workload.tables["stack_units"].num_rows else _of_blocks(workload)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None


def _of_blocks(workload: Workload) -> _Profile:
    population = intervals_of(workload)
    if population.cpi is None:
        raise ValueError(
            "the cycles of its intervals are not known; put NAME.cpi.csv with the column 'cycles' beside it"
        )

    def choose(method: str, size: int | None, seed: int) -> Choice:
        found = method_named(method)
        return found.choose(population, _sized(found.rules, size, len(population)), seed)

    return _Profile(workload.name, "intervals", population.cpi, population.instructions, choose)


def _of_stacks(workload: Workload) -> _Profile:
    population = stack_units_of(workload)
    cpi = population.cpi
    if cpi is None:
        raise ValueError("the cycles of its sampling units are not known; record it with counters")
    alike = np.ones(len(population))
    none = Vectors(np.zeros(len(alike) + 1, np.int64), np.zeros(0, np.int64), np.zeros(0))
    bare = IntervalPopulation(population.row, alike, none, 1)  # baselines look at nothing else

    def choose(method: str, size: int | None, seed: int) -> Choice:
        if method == STACKS:
            return simprof.choose(population, SimProfRules(), seed)[0]
        return METHODS[method].choose(bare, _sized(METHODS[method].rules, size, len(alike)), seed)

    return _Profile(workload.name, "units", cpi, alike, choose)


def _sized(rules: type, size: int | None, population: int) -> Any:
    """Rules of a method; baselines take ``size`` elements."""
    if size is not None and rules is SizeRules:
        return SizeRules(intervals=size)
    if size is not None and rules is SystematicRules:
        return SystematicRules(period=max(1, round(population / size)))
    return rules()


def _methods(asked: str | None, profile: _Profile) -> list[str]:
    if asked is None:
        return list(OF_STACKS if profile.kind == "units" else OF_BLOCKS)
    names = asked.split(",")
    for name in names:
        if profile.kind == "units" and name not in OF_STACKS:
            raise UserError(f"--methods {name!r}: of call stacks known are {', '.join(OF_STACKS)}")
        if profile.kind == "intervals":
            if name == STACKS:
                raise UserError(f"--methods {name!r}: {profile.name} has no call stacks")
            method_named(name)
    return names


def _measured(profile: _Profile, method: str, size: int | None, seeds: int) -> tuple[_Row, Choice]:
    begin = time.process_time()
    choices = [profile.choose(method, size, seed) for seed in range(seeds)]
    taken = time.process_time() - begin
    truth = profile.truth
    estimates = np.array([each.weight @ profile.cpi[each.element] for each in choices])
    intervals = [found for each in choices if (found := _interval(profile, each)) is not None]
    held = half = None
    if len(intervals) == seeds:
        held = float(np.mean([low <= truth <= high for low, high in intervals]))
        half = float(np.median([(high - low) / 2 / truth for low, high in intervals]))
    row = _Row(
        profile.name, method, len(profile.cpi), estimates / truth - 1,
        np.array([len(each.element) for each in choices]), held, half, taken / seeds,
    )  # fmt: skip
    return row, choices[0]


def _interval(profile: _Profile, choice: Choice) -> tuple[float, float] | None:
    """The interval of CPI by the sample alone, for samples drawn at random: strata with two elements at least."""
    if choice.expected_error is not None:
        estimate = float(choice.weight @ profile.cpi[choice.element])
        return estimate * (1 - choice.expected_error), estimate * (1 + choice.expected_error)
    if len(choice.label) or len(choice.element) < 2 or np.ptp(np.diff(choice.element)) == 0:
        return None  # one of each cluster, or no random sample
    drawn = profile.cpi[choice.element]
    found = stratified.estimate(np.array([len(profile.cpi)]), [drawn], CONFIDENCE)
    return found.low, found.high


def _table(rows: Sequence[_Row]) -> pa.Table:
    """A row per profile, method and seed; ``error`` with its sign."""
    return pa.table(
        {
            "profile": text_array([row.profile for row in rows for _ in row.errors]),
            "method": text_array([row.method for row in rows for _ in row.errors]),
            "seed": to_arrow(np.concatenate([np.arange(len(row.errors)) for row in rows])),
            "error": to_arrow(np.concatenate([row.errors for row in rows])),
            "elements": to_arrow(np.concatenate([row.sizes for row in rows])),
            "population": to_arrow(np.concatenate([np.full(len(row.errors), row.population) for row in rows])),
        }
    )


def summary(rows: Sequence[_Row]) -> str:
    """A line per profile and method, then the mean of each method over the profiles."""
    lines = [f"{'profile':20} {'method':12} {'elements':>9} {'mean':>7} {'largest':>8} {'+-':>7} {'holds':>6}"]
    for row in rows:
        half = "" if row.half_width is None else f"{row.half_width:.2%}"
        held = "" if row.held is None else f"{row.held:.0%}"
        lines.append(
            f"{row.profile[:20]:20} {row.method:12} {row.sizes.mean():9.1f} {np.abs(row.errors).mean():7.2%} "
            f"{np.abs(row.errors).max():8.2%} {half:>7} {held:>6}"
        )
    if len({row.profile for row in rows}) > 1:
        for method in dict.fromkeys(row.method for row in rows):
            mine = [row for row in rows if row.method == method]
            lines.append(
                f"{'all':20} {method:12} {np.mean([row.sizes.mean() for row in mine]):9.1f} "
                f"{np.mean([np.abs(row.errors).mean() for row in mine]):7.2%} "
                f"{max(np.abs(row.errors).max() for row in mine):8.2%}"
            )
    return "\n".join(lines) + "\n"


def _page(rows: Sequence[_Row], shown: Sequence[tuple[_Profile, str, Choice]], seeds: int) -> str:
    page = Page("Samples of profiles against the whole", f"Estimates of CPI, {seeds} seeds for each method.")
    header = ("profile", "method", "elements", "of", "mean error", "largest", "half-width", "holds")
    cells = [
        (
            row.profile, row.method, f"{row.sizes.mean():.1f}", f"{row.population:,}",
            f"{np.abs(row.errors).mean():.2%}", f"{np.abs(row.errors).max():.2%}",
            "" if row.half_width is None else f"{row.half_width:.2%}", "" if row.held is None else f"{row.held:.0%}",
        )
        for row in rows
    ]  # fmt: skip
    page.add("Errors", table(header, cells, numeric_from=2))
    for number, (profile, method, choice) in enumerate(shown):
        chart = _over_time(page, f"phases-{number}", profile, choice)
        page.add(
            f"{profile.name}: {method}", chart, note=f"CPI of the {profile.kind} in their order, by phase; of seed 0."
        )
    return page.html()


def _over_time(page: Page, element: str, profile: _Profile, choice: Choice) -> str:
    step = max(1, -(-len(profile.cpi) // _MOST_SHOWN))
    data: list[dict[str, Any]] = []
    for phase in np.unique(choice.label).tolist():
        mine = np.flatnonzero(choice.label == phase)[::step]
        data.append(_markers(f"phase {phase}", mine, profile.cpi, LINE_COLOURS[phase % len(LINE_COLOURS)], 4, "circle"))
    data.append(_markers("simulated", choice.element, profile.cpi, "#000000", 10, "x-thin-open"))
    layout = {"xaxis": axis(profile.kind[:-1]), "yaxis": axis("cycles per instruction", rangemode="tozero")}
    content = {"data": data, "layout": {**layout, "showlegend": True, "hovermode": "closest"}}
    return page.chart(element, "figure", 360, content, f"CPI of {profile.name} by phase")


def _markers(name: str, at: np.ndarray, cpi: np.ndarray, colour: str, size: int, symbol: str) -> dict[str, Any]:
    return {
        "type": "scattergl" if len(cpi) > 2_000 else "scatter",
        "mode": "markers",
        "name": name,
        "x": at.tolist(),
        "y": [float(f"{value:.6g}") for value in cpi[at]],
        "marker": {"size": size, "color": colour, "symbol": symbol},
    }
