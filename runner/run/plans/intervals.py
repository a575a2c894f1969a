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

from dataclasses import fields
from pathlib import Path

import numpy as np

from manyscale.models.spelling import hint
from manyscale.models.workload.notes import Note
from manyscale.models.workload.parameters import Strict
from manyscale.runner.errors import UserError
from manyscale.runner.predict.intervals import stream, traced
from manyscale.runner.predict.intervals.methods import of_one_thread
from manyscale.runner.predict.intervals.traced import TracedRules
from manyscale.runner.readers.simpoint_bb import projection
from manyscale.runner.readers.simpoint_bb.files import name_of
from manyscale.runner.registry import names
from manyscale.runner.run.plans import exports, simpoint_files
from manyscale.runner.run.plans.exports import Exported
from manyscale.runner.run.plans.request import Planned, PlanRequest, validated
from manyscale.runner.run.plans.stacks import SIMPROF
from manyscale.runner.study.samplers import sampler_named
from manyscale.sampling.estimate import estimate
from manyscale.sampling.phases import parallel_phases
from manyscale.sampling.population import Choice, IntervalPopulation, ProjectedPopulation, intervals_of
from manyscale.sampling.sampler import Sampler
from manyscale.sampling.simpoint import SimPointRules


def planned(request: PlanRequest) -> Planned:
    """Raises UserError for an unknown method, rules that make no sense and a trace without intervals."""
    rules, cut = _rules(request)
    exports.check_names(request.exports)
    if request.projection is not None and type(rules) is not SimPointRules:
        raise UserError(f"--projection: method {request.method} projects no vectors; simpoint and code do")
    if request.warmup < 0:
        raise UserError(f"--warmup {request.warmup}: is negative; give a number of intervals")
    if request.warmup and not request.exports:
        raise UserError("--warmup: says what --export writes; name what to export")
    try:
        return _of_intervals(request, rules, cut)
    except ValueError as error:
        raise UserError(f"{request.path}: {error}") from None


def _of_intervals(request: PlanRequest, rules: Strict, cut: TracedRules) -> Planned:
    matrix = None if request.projection is None else projection.read(request.projection)
    name, notes, population, is_traced = _population(request, rules, cut, matrix)
    choice = method_named(request.method).choose(population, rules, request.seed)
    drawn = (request.seed, rules.dimensions) if type(rules) is SimPointRules and matrix is None else None
    stem, path = request.stem or name, Path(request.path)
    whole = Exported(stem, path, population, choice, request.warmup, is_traced, matrix, drawn)
    texts, told = exports.files(request.exports, whole)
    files = _simpoint_files(choice, population.number) if len(choice.label) else {}
    text = _summary(choice, population)
    return Planned(name, "interval", request.method, choice, text, files | texts, (*notes, *told))


def _population(
    request: PlanRequest, rules: Strict, cut: TracedRules, matrix: np.ndarray | None
) -> tuple[str, tuple[Note, ...], IntervalPopulation, bool]:
    """The intervals of a profile or a trace: its name, notes, the population, and whether it was cut from a trace."""
    path = Path(request.path)
    if sampler_named("interval", request.method) is not None and stream.is_large(path):
        _refuse_cut(cut, path)
        dimensions = getattr(rules, "dimensions", 1) if matrix is None else matrix.shape[1]
        found, notes = stream.streamed(path, request.seed, dimensions, matrix)
        return name_of(path), notes, found, False
    workload = request.read()
    is_traced = workload.detail is not None and not workload.tables["intervals"].num_rows
    population: IntervalPopulation
    if is_traced:
        population, _ = traced.population_of(workload, cut, request.path)
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


def _summary(choice: Choice, population: IntervalPopulation) -> str:
    share = population.instructions[choice.element].sum() / population.instructions.sum()
    text = f"{len(choice.element)} of {len(population)} intervals, {share:.2%} of the instructions, would be simulated"
    return text if population.cpi is None else text + _told(choice, population.cpi, population.instructions)


def method_named(name: str) -> Sampler:
    """One that reads basic blocks. Raises UserError for an unknown name."""
    if (found := of_one_thread(name)) is not None:
        return found
    parts = parallel_phases.parts_of(name)
    if parts is None:
        joined = ", ".join(parallel_phases.PARTS)
        rest = f", a file of chosen intervals (NAME.simpoints, of any name), and any of {joined} joined by +"
        raise UserError(f"--method {name!r}: unknown; {hint(name, [*names('interval-sampler'), SIMPROF], rest)}")
    return Sampler(
        lambda population, rules, seed: parallel_phases.choose(population, parts, rules, seed),
        parallel_phases.PhaseRules,
    )


def _rules(request: PlanRequest) -> tuple[Strict, TracedRules]:
    """Of a method and of how a trace is cut."""
    cut = {key: value for key, value in request.rules.items() if key in TracedRules.model_fields}
    own = {key: value for key, value in request.rules.items() if key not in cut}
    return validated(method_named(request.method).rules, own), validated(TracedRules, cut)


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
