"""TBPoint between launches, against cycles counted on real GPUs.

``python -m tbpoint.measure_counters DATA [--draws N]`` in tests/validation, with manyscale importable, prints the
tables of RESULTS.md. DATA holds the CSV files of github.com/marcosamaris/gpuperfpredict (CC-BY-4.0): a row per launch
with nvprof's counters. Profilers do not count by block, so launches have three of the four features. Truth is the sum
of ``elapsed_cycles_sm``.

Populations are the launches of a file, all runs of a kernel together, and those of each run (one size of the input).
Each is sampled with one representative for each cluster; with representatives "auto"; with more of these until the
interval is within AIM; with as many launches as "auto" takes, and as few as one for each cluster are, at random and
systematically; and by PKA, Sieve and STEM, which are given the cycles where they ask for times.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from manyscale.runner.readers.launch_counters.profiler_csv import read_table
from manyscale.runner.readers.launch_counters.reader import LaunchCounters, read_counters
from manyscale.runner.study.samplers import chosen_sampler
from manyscale.sampling.tbpoint import launch_samplers
from manyscale.sampling.tbpoint.estimate import LaunchEstimate, estimate, more
from manyscale.sampling.tbpoint.launch_samplers import LaunchPopulation
from manyscale.sampling.tbpoint.launches import LaunchCounts, LaunchSampling, choose

from .baselines import random_units, systematic_units

AIM: Final = 0.01
FLOOR: Final = 1e-4  # of errors in geometric means
MOST_STAGES: Final = 10


@dataclass(frozen=True)
class Population:
    """Launches with the cycles that they took, float64[launches]."""

    name: str
    counts: LaunchCounts
    cycles: np.ndarray


@dataclass(frozen=True)
class Outcome:
    """``error`` relative, with its sign; ``half_width`` relative (NaN without an interval)."""

    error: float
    half_width: float
    launch_share: float
    instruction_share: float


def populations(path: Path) -> tuple[Population, list[Population]]:
    """(all launches of a file, those of each run)."""
    counters = read_counters(path)
    table = read_table(path)
    sizes = list(zip(table.columns["input_size_1"], table.columns["input_size_2"], strict=True))
    runs = dict.fromkeys(sizes)
    number = {size: place for place, size in enumerate(runs)}
    of_run = np.array([number[size] for size in sizes])
    name = path.name.split(".")[0]
    whole = _population(name, counters, np.arange(len(of_run)))
    return whole, [
        _population(f"{name} {'x'.join(size)}", counters, np.flatnonzero(of_run == number[size])) for size in runs
    ]


def _population(name: str, counters: LaunchCounters, rows: np.ndarray) -> Population:
    assert counters.cycles is not None
    counts = LaunchCounts(
        counters.kernel[rows],
        counters.thread_instructions[rows],
        counters.warp_instructions[rows],
        counters.memory_requests[rows],
    )
    return Population(name, counts, counters.cycles[rows])


def one_each(population: Population, seed: int = 0) -> Outcome:
    """The source's: one representative for each cluster."""
    sample = choose(population.counts)
    return _outcome(population, estimate(sample, population.counts.warp_instructions, population.cycles[sample.chosen]))


def automatic(population: Population, seed: int) -> Outcome:
    sample = choose(population.counts, LaunchSampling(representatives="auto", seed=seed))
    return _outcome(population, estimate(sample, population.counts.warp_instructions, population.cycles[sample.chosen]))


def aimed(population: Population, seed: int) -> Outcome:
    """``automatic``, and more until the interval's half-width is at most AIM."""
    sample = choose(population.counts, LaunchSampling(representatives="auto", seed=seed))
    for _ in range(MOST_STAGES):
        larger = more(sample, population.cycles[sample.chosen], AIM)
        if len(larger.chosen) == len(sample.chosen):
            break
        sample = larger
    return _outcome(population, estimate(sample, population.counts.warp_instructions, population.cycles[sample.chosen]))


def at_random(population: Population, seed: int) -> Outcome:
    return _baseline(population, seed, random_units, "auto")


def systematic(population: Population, seed: int) -> Outcome:
    return _baseline(population, seed, systematic_units, "auto")


def few_at_random(population: Population, seed: int) -> Outcome:
    return _baseline(population, seed, random_units, 1)


def few_systematic(population: Population, seed: int) -> Outcome:
    return _baseline(population, seed, systematic_units, 1)


def rival(name: str) -> Callable[[Population, int], Outcome]:
    """A sampler of the registry; the times that it may ask for are the cycles themselves."""

    def sampled(population: Population, seed: int) -> Outcome:
        cycles, instructions = population.cycles, population.counts.warp_instructions
        launches = LaunchPopulation(np.arange(len(cycles)), population.counts, cycles, profile=cycles)
        sampler = chosen_sampler("launch", name)
        choice = sampler.choose(launches, sampler.rules(), seed)
        found = launch_samplers.estimate(choice, launches)
        half = np.nan if found.high is None else (found.high - found.value) / found.value
        error = found.value * float(instructions.sum()) / float(cycles.sum()) - 1
        share = float(instructions[choice.element].sum() / instructions.sum())
        return Outcome(error, half, len(choice.element) / len(cycles), share)

    return sampled


def _baseline(population: Population, seed: int, draw: Callable[..., object], as_many: int | str) -> Outcome:
    sampling = LaunchSampling.model_validate({"representatives": as_many})
    count = len(choose(population.counts, sampling).chosen)
    found = draw(population.counts.warp_instructions, population.cycles, count, seed)
    error = found.total_cycles / population.cycles.sum() - 1  # type: ignore[attr-defined]
    return Outcome(error, np.nan, count / len(population.cycles), found.instruction_share)  # type: ignore[attr-defined]


def _outcome(population: Population, found: LaunchEstimate) -> Outcome:
    error = found.total_cycles / population.cycles.sum() - 1
    return Outcome(error, found.relative_half_width, found.launch_share, found.instruction_share)


@dataclass(frozen=True)
class Summary:
    """Of several outcomes. ``held``: share of the intervals that hold the truth; ``half_width``: their median."""

    mean: float
    worst: float
    geometric_mean: float
    held: float
    half_width: float
    launch_share: float
    instruction_share: float

    def row(self) -> str:
        numbers = [f"{100 * each:.3g}" for each in (self.mean, self.worst, self.geometric_mean)]
        interval = ["", ""] if np.isnan(self.held) else [f"{100 * self.half_width:.3g}", f"{100 * self.held:.1f}"]
        shares = [f"{100 * each:.3g}" for each in (self.launch_share, self.instruction_share)]
        return " | ".join((*numbers, *interval, *shares))


def summary(outcomes: Sequence[Outcome]) -> Summary:
    error = np.abs([each.error for each in outcomes])
    half_width = np.array([each.half_width for each in outcomes])
    has_interval = not np.any(np.isnan(half_width))
    return Summary(
        mean=float(error.mean()),
        worst=float(error.max()),
        geometric_mean=float(np.exp(np.log(np.maximum(error, FLOOR)).mean())),
        held=float(np.mean(error <= half_width)) if has_interval else np.nan,
        half_width=float(np.median(half_width)) if has_interval else np.nan,
        launch_share=float(np.mean([each.launch_share for each in outcomes])),
        instruction_share=float(np.mean([each.instruction_share for each in outcomes])),
    )


METHODS: Final = {
    "one each": one_each,
    "auto": automatic,
    f"auto, aim {AIM:.0%}": aimed,
    "random": at_random,
    "systematic": systematic,
    "random, one each": few_at_random,
    "systematic, one each": few_systematic,
    "pka": rival("pka"),
    "sieve": rival("sieve"),
    "stem": rival("stem"),
}
ONCE: Final = ("one each", "pka", "sieve")  # the same with each seed, or nearly so


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of the CSV files")
    parser.add_argument("--draws", type=int, default=200, help="seeds for a file; a tenth of them for each run")
    arguments = parser.parse_args()
    head = "| kernel, GPU | method | mean | worst | geometric | half-width | held | launches | instructions |"
    tables = {"file": [head, "| --- " * 9 + "|"], "run": [head, "| --- " * 9 + "|"]}
    for path in sorted(arguments.data.glob("*.csv.gz")):
        whole, runs = populations(path)
        for name, method in METHODS.items():
            draws = 1 if name in ONCE else arguments.draws
            found = summary([method(whole, seed) for seed in range(draws)])
            tables["file"].append(f"| {whole.name} | {name} | {found.row()} |")
            draws = max(draws // 10, 1)
            found = summary([method(run, seed) for run in runs for seed in range(draws)])
            tables["run"].append(f"| {whole.name} | {name} | {found.row()} |")
    for what, lines in tables.items():
        print(f"\nAll launches of a {what}, %:\n" if what == "file" else f"\nEach {what} by itself, %:\n")
        print("\n".join(lines))


if __name__ == "__main__":
    main()
