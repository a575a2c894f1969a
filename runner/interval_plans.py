"""``manyscale plan --method NAME PROFILE``: which intervals of a profiled run are worth simulating.

Writes plan.parquet (sampling/plan.py; weights are shares of the run's instructions) and, for methods that make
clusters, SimPoint's files beside it: NAME.simpoints, NAME.weights (in the same order, as gem5 joins them by line,
SimPoint by cluster) and NAME.labels.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from manyscale.models.parameters import Strict
from manyscale.runner import rundir
from manyscale.runner.errors import UserError
from manyscale.runner.execute.store import default_cache
from manyscale.runner.problems import first_problem
from manyscale.runner.study import WorkloadChoice, assign, parse_assignment
from manyscale.runner.traces import read_workload
from manyscale.runner.writers.parquet import write_table
from manyscale.sampling import interval_samplers as samplers
from manyscale.sampling.interval_population import Choice, IntervalPopulation, intervals_of
from manyscale.sampling.plan import Plan
from manyscale.sampling.simpoint import SimPointRules


@dataclass(frozen=True)
class _Method:
    rules: type[Strict]
    choose: Callable[[IntervalPopulation, Any, int], Choice]


METHODS: Final = {
    "simpoint": _Method(SimPointRules, samplers.simpoints),
    "code": _Method(SimPointRules, samplers.first_of_code),
    "random": _Method(samplers.SizeRules, samplers.at_random),
    "systematic": _Method(samplers.SystematicRules, samplers.in_turn),
    "second": _Method(samplers.SizeRules, samplers.in_one_stretch),
    "full": _Method(Strict, samplers.all_of_them),
}


def plan(options: argparse.Namespace) -> int:
    """The command. Raises UserError for an unknown method, rules that make no sense and a trace without intervals."""
    path = options.study or options.workload
    if path is None:
        raise UserError("--method needs a profile: manyscale plan --method simpoint PROFILE -o DIR")
    rules = _rules(options.method, options.assignments)
    seed = options.seed or 0
    workload = read_workload(
        WorkloadChoice(path=path, format=options.format or "auto"), options.cache or default_cache()
    )
    try:
        population = intervals_of(workload)
        choice = METHODS[options.method].choose(population, rules, seed)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None
    whole = Plan("interval", choice.element, choice.stratum, choice.weight, options.method, 1)
    output = options.output
    if output.suffix == ".parquet":
        if output.exists():
            raise UserError(f"{output}: is there already; name another file with -o")
        output.parent.mkdir(parents=True, exist_ok=True)
        file, stem = output, output.with_suffix("")
    else:
        directory = rundir.new_directory(output, workload.name, resume=False)
        file, stem = directory / "plan.parquet", directory / workload.name
    write_table(whole.table(), file)
    if len(choice.label):
        _write_simpoint_files(choice, population, stem)
    print(_summary(choice, population))
    print(f"results: {file}")
    return 0


def _rules(name: str, assignments: list[str]) -> Strict:
    """Of a method, with what ``--set KEY=VALUE`` replaces."""
    if name not in METHODS:
        raise UserError(f"--method {name!r}: unknown; known are {', '.join(METHODS)}")
    content: dict[str, Any] = {}
    for text in assignments:
        content = assign(content, *parse_assignment(text))
    try:
        return METHODS[name].rules.model_validate(content)
    except ValidationError as error:
        raise UserError(f"--set: {first_problem(error)}") from None


def _write_simpoint_files(choice: Choice, population: IntervalPopulation, stem: Path) -> None:
    """Intervals are numbered as in the profile, from 0."""
    number = population.number[choice.element]
    points = [f"{each} {cluster}\n" for each, cluster in zip(number, choice.stratum, strict=True)]
    weights = [f"{weight:.6g} {cluster}\n" for weight, cluster in zip(choice.weight, choice.stratum, strict=True)]
    for suffix, lines in (
        ("simpoints", points), ("weights", weights), ("labels", [f"{each}\n" for each in choice.label]),
    ):  # fmt: skip
        rundir.write_atomically(stem.with_name(f"{stem.name}.{suffix}"), "".join(lines))


def _summary(choice: Choice, population: IntervalPopulation) -> str:
    own = population.instructions[choice.element].sum() / population.instructions.sum()
    text = f"{len(choice.element)} of {len(population)} intervals, {own:.2%} of the instructions, would be simulated"
    cpi = population.cpi
    if cpi is None:
        return text
    truth = float(population.instructions @ cpi / population.instructions.sum())
    estimate = float(choice.weight @ cpi[choice.element])
    error = f"{estimate / truth - 1:+.2%}"
    return f"{text}; CPI by the profile's cycles {estimate:.4g}, of all intervals {truth:.4g} ({error})"
