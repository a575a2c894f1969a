"""Points chosen by a profile of one machine, judged on another: the tables of RESULTS.md.

``python -m phases.measure TRACES OUT`` in tests/validation, with manyscale importable, TRACES as trace_programs.py
writes them, simulates each program in detail on both machines of machines.py with 4 and 8 cores (``OUT/NAME-CORES-
MACHINE.npz``, kept for the next time), and writes ``OUT/results.csv`` and ``OUT/tables.md``: of each program, number of
cores, rules and vectors the mean over seeds of the absolute error of IPC (``own_error``: judged on the profiling
machine itself) and of its phase-weighted deviation.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.runner.predict.intervals.node_intervals import (
    interval_unit,
    intervals_on,
    opened,
    population_of,
)
from manyscale.runner.readers import workload_folder
from manyscale.sampling.phases.parallel_phases import PhaseRules, choose, parts_of
from manyscale.sampling.population import IntervalPopulation
from manyscale.sampling.vectors import Vectors

from . import machines
from .quality import judge
from .trace_programs import PROGRAMS

CORES: Final = (4, 8)
INTERVALS: Final = 400
SEEDS: Final = 5
METHODS: Final = (
    "sbbv", "ccv", "sbbv+ccv", "icv+tcv", "icv+ccv", "sbbv+tcv", "sbbv+mcv", "sbbv+ccv+mcv",
)  # fmt: skip
MACHINES: Final = {"profiling": machines.profiling, "evaluating": machines.evaluating}
COLUMNS: Final = (
    "program", "cores", "rules", "vectors", "points", "error", "largest", "own_error", "printed_error", "deviation",
    "whole_deviation", "ipc",
)  # fmt: skip
RULES: Final[dict[str, dict[str, Any]]] = {
    "interval": {},
    "joint": {"scale": "joint"},
    "sampled": {"sampling_period": 1000},
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("traces", type=Path, metavar="TRACES")
    parser.add_argument("output", type=Path, metavar="OUT")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(PROGRAMS)}")
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for name in options.names or PROGRAMS:
        for cores in CORES:
            profiled, evaluated = populations(options.traces / name, cores, options.output)
            for rules, changes in RULES.items():
                for method in METHODS:
                    found = judged(profiled, evaluated, method, PhaseRules.model_validate(changes))
                    shown = {column: f"{value:.5g}" for column, value in found.items()}
                    rows.append({"program": name, "cores": cores, "rules": rules, "vectors": method} | shown)
            print(name, cores, flush=True)
    with (options.output / "results.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    (options.output / "tables.md").write_text(tables(rows))
    return 0


def populations(trace: Path, cores: int, output: Path) -> tuple[IntervalPopulation, IntervalPopulation]:
    """The same intervals on both machines, with caches as an earlier run of the same left them."""
    files = {machine: output / f"{trace.name}-{cores}-{machine}.npz" for machine in MACHINES}
    if not all(file.exists() for file in files.values()):
        inputs: dict[str, Any] = {}
        first = machines.profiling(cores)
        unit = interval_unit(
            workload_folder.read(trace), 0, first, {}, cores, 1, steady=True, add_input=inputs.__setitem__
        )
        cell = opened(unit.parameters, inputs, first, RuntimeSystem())
        every = int(cell.pieces.num_instructions.sum()) // INTERVALS
        for machine, node in MACHINES.items():
            found, _ = intervals_on(replace(cell, node=node(cores)), cores, every, steady=True)
            _write(population_of(found), files[machine])
    profiled, evaluated = (_read(file) for file in files.values())
    common = min(len(profiled), len(evaluated))
    return _first(profiled, common), _first(evaluated, common)


def judged(
    profiled: IntervalPopulation, evaluated: IntervalPopulation, method: str, rules: PhaseRules, seeds: int = SEEDS
) -> dict[str, float]:
    """Columns of a row, means over seeds."""
    parts = parts_of(method)
    assert parts is not None
    choices = [choose(profiled, parts, rules, seed) for seed in range(seeds)]
    found = [judge(choice, profiled, evaluated) for choice in choices]
    own = [judge(choice, profiled, profiled).error for choice in choices]
    return {
        "points": float(np.mean([each.num_phases for each in found])),
        "error": float(np.mean([abs(each.error) for each in found])),
        "largest": float(np.max([abs(each.error) for each in found])),
        "own_error": float(np.mean(np.abs(own))),
        "printed_error": float(np.mean([abs(each.printed_error) for each in found])),
        "deviation": float(np.mean([each.deviation for each in found])),
        "whole_deviation": found[0].whole_deviation,
        "ipc": found[0].ipc,
    }


def tables(rows: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: errors and deviations by program, number of cores and vectors, for each kind of rules. Deviations are
    shares of the whole run's; the last row of each table is the mean over all."""
    text = []
    for rules in RULES:
        for value, name in (("error", "error of IPC"), ("deviation", "phase-weighted deviation / whole run's")):
            mine = [row for row in rows if row["rules"] == rules]
            text += [f"**{rules}: {name}**", "", f"| program | cores | {' | '.join(METHODS)} |"]
            text.append("| --- " * (2 + len(METHODS)) + "|")
            cells: dict[str, list[float]] = {method: [] for method in METHODS}
            for case in dict.fromkeys((row["program"], row["cores"]) for row in mine):
                found = {row["vectors"]: row for row in mine if (row["program"], row["cores"]) == case}
                for method, row in found.items():
                    whole = 1.0 if value == "error" else float(row["whole_deviation"])
                    cells[method].append(float(row[value]) / whole)
                shown = " | ".join(f"{cells[method][-1]:.1%}" for method in METHODS)
                text.append(f"| {case[0]} | {case[1]} | {shown} |")
            means = " | ".join(f"{np.mean(cells[method]):.1%}" for method in METHODS)
            text += [f"| mean | | {means} |", ""]
    return "\n".join(text)


def _write(population: IntervalPopulation, file: Path) -> None:
    vectors = population.vectors
    arrays = {f"thread_{name}": values for name, values in population.thread_counters.items()}
    np.savez_compressed(
        file, first=vectors.first, column=vectors.column, value=vectors.value, cycles=population.counters["cycles"],
        instructions=population.thread_instructions, **arrays,
    )  # fmt: skip


def _read(file: Path) -> IntervalPopulation:
    with np.load(file) as stored:
        arrays = dict(stored)
    measured = {name.removeprefix("thread_"): values for name, values in arrays.items() if name.startswith("thread_")}
    instructions = arrays["instructions"]
    sums = {name: values.sum(axis=1) for name, values in measured.items()} | {"cycles": arrays["cycles"]}
    vectors = Vectors(arrays["first"], arrays["column"], arrays["value"])
    return IntervalPopulation(
        np.arange(len(instructions)), instructions.sum(axis=1), vectors, instructions.shape[1], sums, instructions,
        measured,
    )  # fmt: skip


def _first(population: IntervalPopulation, count: int) -> IntervalPopulation:
    vectors = population.vectors
    end = int(vectors.first[count])
    return IntervalPopulation(
        population.number[:count], population.instructions[:count],
        Vectors(vectors.first[: count + 1], vectors.column[:end], vectors.value[:end]), population.num_threads,
        {name: values[:count] for name, values in population.counters.items()}, population.thread_instructions[:count],
        {name: values[:count] for name, values in population.thread_counters.items()},
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
