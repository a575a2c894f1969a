"""``manyscale plan --method NAME PROFILE``: which intervals of a profiled run are worth simulating.

Writes plan.parquet (sampling/plan.py; weights are shares of the run's instructions) and, for methods that make
clusters, SimPoint's files beside it: NAME.simpoints, NAME.weights (in the same order, as gem5 joins them by line,
SimPoint by cluster) and NAME.labels. Phases of parallel programs are named by the parts of their vectors, joined by
``+`` in any order: ``sbbv+ccv`` (sampling/phases/parallel_phases.py).

A trace with a detailed level is cut into intervals first (predict/intervals/traced.py): ``--set interval=N``.
``--projection FILE`` projects vectors by a given matrix, ``--export`` writes the plan for other simulators
(run/plans/exports.py).
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from manyscale.models.workload import Workload
from manyscale.models.workload.parameters import Strict
from manyscale.runner.cache import default_cache
from manyscale.runner.errors import UserError
from manyscale.runner.predict.intervals import stream, traced
from manyscale.runner.predict.intervals.methods import of_one_thread
from manyscale.runner.predict.intervals.traced import TracedRules
from manyscale.runner.problems import first_problem
from manyscale.runner.readers import simpoint_bb
from manyscale.runner.readers.simpoint_bb import projection
from manyscale.runner.registry import names
from manyscale.runner.run import directory as rundir
from manyscale.runner.run.parquet import write_table
from manyscale.runner.run.plans import exports, simpoint_files
from manyscale.runner.run.plans.exports import Exported
from manyscale.runner.run.plans.stacks import SIMPROF
from manyscale.runner.study import WorkloadChoice, assign, parse_assignment
from manyscale.runner.study.samplers import sampler_named
from manyscale.runner.study.traces import read_workload
from manyscale.sampling.estimate import estimate
from manyscale.sampling.phases import parallel_phases
from manyscale.sampling.plan import Plan
from manyscale.sampling.population import Choice, IntervalPopulation, ProjectedPopulation, intervals_of
from manyscale.sampling.sampler import Sampler
from manyscale.sampling.simpoint import SimPointRules


def plan(options: argparse.Namespace) -> int:
    """The command. Raises UserError for an unknown method, rules that make no sense and a trace without intervals."""
    path = options.study or options.workload
    if path is None:
        raise UserError("--method needs a profile: manyscale plan --method simpoint PROFILE -o DIR")
    rules, cut = _rules(options.method, options.assignments)
    exported = exports.named(options.export)
    _check(options, rules, exported)
    seed = options.seed or 0
    try:
        name, notes, planned = _of_intervals(options, Path(path), rules, cut, exported, seed)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None
    return write_plan(options, name, "interval", planned, notes)


def write_plan(
    options: argparse.Namespace, name: str, kind: str, planned: Planned, notes: tuple[str, ...] = ()
) -> int:  # fmt: skip
    """Writes what a command has planned of a workload's elements of a ``kind``, and says it; the exit status."""
    choice = planned.choice
    whole = Plan(kind, choice.element, choice.stratum, choice.weight, options.method, 1)
    file, stem = _place(options.output, name)
    write_table(whole.table(), file)
    for suffix, text in planned.files.items():
        rundir.write_atomically(stem.with_name(f"{stem.name}.{suffix}"), text)
    print("\n".join((*notes, planned.summary, *choice.notes, f"results: {file}")))
    return 0


def _check(options: argparse.Namespace, rules: Strict, exported: list[str]) -> None:
    if options.projection is not None and type(rules) is not SimPointRules:
        raise UserError(f"--projection: method {options.method} projects no vectors; simpoint and code do")
    if options.warmup < 0:
        raise UserError(f"--warmup {options.warmup}: is negative; give a number of intervals")
    if options.warmup and not exported:
        raise UserError("--warmup: says what --export writes; name what to export")


def _workload(options: argparse.Namespace, path: str) -> Workload:
    return read_workload(WorkloadChoice(path=path, format=options.format or "auto"), options.cache or default_cache())


def _of_intervals(
    options: argparse.Namespace, path: Path, rules: Strict, cut: TracedRules, exported: list[str], seed: int
) -> tuple[str, tuple[str, ...], Planned]:
    """The name of a profile or trace, notes, and its plan with what is exported of it."""
    matrix = None if options.projection is None else projection.read(options.projection)
    name, notes, population, is_traced = _population(options, path, rules, cut, matrix, seed)
    planned = _of_blocks(population, method_named(options.method), rules, seed)
    drawn = (seed, rules.dimensions) if type(rules) is SimPointRules and matrix is None else None
    whole = Exported(
        _stem(options.output, name), path, population, planned.choice, options.warmup, is_traced, matrix, drawn
    )
    texts, told = exports.files(exported, whole)
    return name, (*notes, *told), replace(planned, files=planned.files | texts)


def _population(
    options: argparse.Namespace, path: Path, rules: Strict, cut: TracedRules, matrix: np.ndarray | None, seed: int
) -> tuple[str, tuple[str, ...], IntervalPopulation, bool]:
    """The intervals of a profile or a trace: its name, notes, the population, and whether it was cut from a trace."""
    if sampler_named("interval", options.method) is not None and stream.is_large(path):
        _refuse_cut(cut, path)
        dimensions = getattr(rules, "dimensions", 1) if matrix is None else matrix.shape[1]
        found, notes = stream.streamed(path, seed, dimensions, matrix)
        return simpoint_bb.name_of(path), notes, found, False
    workload = _workload(options, str(path))
    is_traced = workload.detail is not None and not workload.tables["intervals"].num_rows
    population: IntervalPopulation
    if is_traced:
        population, _ = traced.population_of(workload, cut, str(path))
    else:
        population = intervals_of(workload)
        _refuse_cut(cut, path)
    if matrix is not None:
        own = {each.name: getattr(population, each.name) for each in fields(population)}
        population = ProjectedPopulation(**own, points=population.vectors.normalised().times(matrix),
                                         num_columns=len(matrix))  # fmt: skip
    return workload.name, workload.notes, population, is_traced


def _refuse_cut(cut: TracedRules, path: Path) -> None:
    if cut.model_fields_set:
        key = min(cut.model_fields_set)
        raise UserError(f"--set {key}: {path} is a profile, whose intervals are cut already; leave it out")


def _stem(output: Path, name: str) -> str:
    """The name of files beside the plan."""
    return name if output.suffix != ".parquet" else output.stem


def _place(output: Path, name: str) -> tuple[Path, Path]:
    """The plan's file, and the name of those beside it without suffix."""
    if output.suffix != ".parquet":
        directory = rundir.new_directory(output, name, resume=False)
        return directory / "plan.parquet", directory / _stem(output, name)
    if output.exists():
        raise UserError(f"{output}: is there already; name another file with -o")
    output.parent.mkdir(parents=True, exist_ok=True)
    return output, output.with_name(_stem(output, name))


@dataclass(frozen=True)
class Planned:
    """A choice, what is said of it, and files beside the plan by suffix."""

    choice: Choice
    summary: str
    files: dict[str, str]


def _of_blocks(population: IntervalPopulation, method: Sampler, rules: Strict, seed: int) -> Planned:
    choice = method.choose(population, rules, seed)
    files = _simpoint_files(choice, population.number) if len(choice.label) else {}
    share = population.instructions[choice.element].sum() / population.instructions.sum()
    text = f"{len(choice.element)} of {len(population)} intervals, {share:.2%} of the instructions, would be simulated"
    if (cpi := population.cpi) is not None:
        text += _told(choice, cpi, population.instructions)
    return Planned(choice, text, files)


def method_named(name: str) -> Sampler:
    """One that reads basic blocks. Raises UserError for an unknown name."""
    if (found := of_one_thread(name)) is not None:
        return found
    parts = parallel_phases.parts_of(name)
    if parts is None:
        known = ", ".join([*names("interval-sampler"), SIMPROF, "a file NAME.simpoints"])
        joined = ", ".join(parallel_phases.PARTS)
        raise UserError(f"--method {name!r}: unknown; known are {known}, and any of {joined} joined by +")
    return Sampler(
        lambda population, rules, seed: parallel_phases.choose(population, parts, rules, seed),
        parallel_phases.PhaseRules,
    )


def _rules(name: str, assignments: list[str]) -> tuple[Strict, TracedRules]:
    """Of a method and of how a trace is cut, with what ``--set KEY=VALUE`` replaces."""
    rules = method_named(name).rules
    content: dict[str, Any] = {}
    for text in assignments:
        content = assign(content, *parse_assignment(text))
    cut = {key: value for key, value in content.items() if key in TracedRules.model_fields}
    try:
        own = {key: value for key, value in content.items() if key not in cut}
        return rules.model_validate(own), TracedRules.model_validate(cut)
    except ValidationError as error:
        raise UserError(f"--set: {first_problem(error)}") from None


def _simpoint_files(choice: Choice, number: np.ndarray) -> dict[str, str]:
    """SimPoint's files by suffix. ``number``: of each element of the population, from 0."""
    clusters = choice.stratum.tolist()
    return {
        "simpoints": simpoint_files.simpoints(number[choice.element].tolist(), clusters),
        "weights": simpoint_files.weights(choice.weight.tolist(), clusters),
        "labels": simpoint_files.labels(choice.label.tolist()),
    }


def _told(choice: Choice, cpi: np.ndarray, instructions: np.ndarray) -> str:
    """What the profile's own cycles say of a choice."""
    truth = float(instructions @ cpi / instructions.sum())
    found = estimate(choice, instructions, cpi[choice.element])
    expected = "" if choice.expected_error is None else f", expected within {choice.expected_error:.2%}"
    if found.low is not None and len(choice.element) < len(cpi):
        expected = f", 95 % interval {found.low:.4g} to {found.high:.4g}"
    error = f"{found.value / truth - 1:+.2%}{expected}"
    return f"; CPI by the profile's cycles {found.value:.4g}, of all {truth:.4g} ({error})"
