"""``manyscale plan --method NAME PROFILE``: which intervals of a profiled run are worth simulating.

Writes plan.parquet (sampling/plan.py; weights are shares of the run's instructions) and, for methods that make
clusters, SimPoint's files beside it: NAME.simpoints, NAME.weights (in the same order, as gem5 joins them by line,
SimPoint by cluster) and NAME.labels. ``simprof`` reads call stacks instead of basic blocks; its elements are rows of
the table of sampling units, and NAME.phases.csv says what its phases are. Phases of parallel programs are named by the
parts of their vectors, joined by ``+`` in any order: ``sbbv+ccv`` (sampling/parallel_phases.py).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from pydantic import ValidationError

from manyscale.models.parameters import Strict
from manyscale.models.workload import Workload
from manyscale.runner import rundir
from manyscale.runner.errors import UserError
from manyscale.runner.execute.store import default_cache
from manyscale.runner.intervals import stream
from manyscale.runner.problems import first_problem
from manyscale.runner.readers import simpoint_bb
from manyscale.runner.study import WorkloadChoice, assign, parse_assignment
from manyscale.runner.traces import read_workload
from manyscale.runner.writers.parquet import write_table
from manyscale.sampling import interval_samplers as samplers
from manyscale.sampling import parallel_phases
from manyscale.sampling.interval_population import Choice, IntervalPopulation, intervals_of
from manyscale.sampling.plan import Plan
from manyscale.sampling.simpoint import SimPointRules
from manyscale.sampling.simprof import SimProfRules
from manyscale.sampling.stack_population import stack_units_of


@dataclass(frozen=True)
class Method:
    """``rules``: what may be set of it; ``choose(population, rules, seed)``."""

    rules: type[Strict]
    choose: Callable[[IntervalPopulation, Any, int], Choice]


STACKS: Final = "simprof"  # the method that reads call stacks
METHODS: Final = {  # those that read basic blocks
    "simpoint": Method(SimPointRules, samplers.simpoints),
    "code": Method(SimPointRules, samplers.first_of_code),
    "random": Method(samplers.SizeRules, samplers.at_random),
    "systematic": Method(samplers.SystematicRules, samplers.in_turn),
    "second": Method(samplers.SizeRules, samplers.in_one_stretch),
    "full": Method(Strict, samplers.all_of_them),
}


def plan(options: argparse.Namespace) -> int:
    """The command. Raises UserError for an unknown method, rules that make no sense and a trace without intervals."""
    path = options.study or options.workload
    if path is None:
        raise UserError("--method needs a profile: manyscale plan --method simpoint PROFILE -o DIR")
    rules = _rules(options.method, options.assignments)
    seed = options.seed or 0
    try:
        if options.method in METHODS and stream.is_large(Path(path)):
            name = simpoint_bb.name_of(Path(path))
            population, notes = stream.streamed(Path(path), seed, getattr(rules, "dimensions", 1))
            planned = _of_blocks(population, METHODS[options.method], rules, seed)
        else:
            workload = read_workload(
                WorkloadChoice(path=path, format=options.format or "auto"), options.cache or default_cache()
            )
            name, notes = workload.name, workload.notes
            if options.method == STACKS:
                planned = _of_stacks(workload, rules, seed)
            else:
                planned = _of_blocks(intervals_of(workload), method_named(options.method), rules, seed)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None
    choice = planned.choice
    kind = "unit" if options.method == STACKS else "interval"
    whole = Plan(kind, choice.element, choice.stratum, choice.weight, options.method, 1)
    file, stem = _place(options.output, name)
    write_table(whole.table(), file)
    for suffix, text in planned.files.items():
        rundir.write_atomically(stem.with_name(f"{stem.name}.{suffix}"), text)
    print("\n".join((*notes, planned.summary, *choice.notes, f"results: {file}")))
    return 0


def _place(output: Path, name: str) -> tuple[Path, Path]:
    """The plan's file, and the name of those beside it without suffix."""
    if output.suffix != ".parquet":
        directory = rundir.new_directory(output, name, resume=False)
        return directory / "plan.parquet", directory / name
    if output.exists():
        raise UserError(f"{output}: is there already; name another file with -o")
    output.parent.mkdir(parents=True, exist_ok=True)
    return output, output.with_suffix("")


@dataclass(frozen=True)
class _Planned:
    """A choice, what is said of it, and files beside the plan by suffix."""

    choice: Choice
    summary: str
    files: dict[str, str]


def _of_blocks(population: IntervalPopulation, method: Method, rules: Strict, seed: int) -> _Planned:
    choice = method.choose(population, rules, seed)
    files = _simpoint_files(choice, population.number) if len(choice.label) else {}
    share = population.instructions[choice.element].sum() / population.instructions.sum()
    text = f"{len(choice.element)} of {len(population)} intervals, {share:.2%} of the instructions, would be simulated"
    if (cpi := population.cpi) is not None:
        text += _told(choice, cpi, population.instructions)
    return _Planned(choice, text, files)


def _of_stacks(workload: Workload, rules: Any, seed: int) -> _Planned:
    from manyscale.sampling import simprof, stratified

    population = stack_units_of(workload)
    chosen, phases = simprof.choose(population, rules, seed)
    choice = replace(chosen, element=population.row[chosen.element])
    text = f"{len(choice.element)} of {len(population)} sampling units in {phases.num_phases} phases would be simulated"
    sizes = np.bincount(phases.label)
    names = simprof.names_of_phases(phases, population.methods, population.vectors)
    rows = ["phase,units,drawn,cpi,deviation,methods"]
    drawn = np.bincount(chosen.stratum, minlength=len(sizes))
    for phase, its_names in enumerate(names):
        own = None if population.cpi is None else population.cpi[phases.label == phase]
        known = ["", ""] if own is None else [f"{own.mean():.6g}", f"{own.std():.6g}"]
        quoted = ";".join(its_names).replace('"', "'")
        rows.append(",".join([str(phase), str(sizes[phase]), str(drawn[phase]), *known, f'"{quoted}"']))
    if population.cpi is not None:
        cpi = population.cpi
        text += _told(chosen, cpi, np.ones(len(cpi)))
        deviations = np.array([cpi[phases.label == phase].std() for phase in range(len(sizes))])
        spread = simprof.variation(cpi, phases.label)
        needed = [stratified.enough(sizes, deviations, float(cpi.mean()), error, 0.997) for error in (0.02, 0.05)]
        text += (
            f"\nCPI varies by {spread.population:.1%} over all units, {spread.weighted:.1%} inside phases (at most "
            f"{spread.largest:.1%}); 2 % and 5 % of error at 99.7 % confidence take {needed[0]} and {needed[1]} units"
        )
    files = _simpoint_files(chosen, population.row) | {"phases.csv": "\n".join(rows) + "\n"}
    return _Planned(choice, text, files)


def method_named(name: str) -> Method:
    """One that reads basic blocks. Raises UserError for an unknown name."""
    if name in METHODS:
        return METHODS[name]
    parts = parallel_phases.parts_of(name)
    if parts is None:
        known = ", ".join([*METHODS, STACKS])
        joined = ", ".join(parallel_phases.PARTS)
        raise UserError(f"--method {name!r}: unknown; known are {known}, and any of {joined} joined by +")
    return Method(
        parallel_phases.PhaseRules,
        lambda population, rules, seed: parallel_phases.choose(population, parts, rules, seed),
    )


def _rules(name: str, assignments: list[str]) -> Strict:
    """Of a method, with what ``--set KEY=VALUE`` replaces."""
    rules = SimProfRules if name == STACKS else method_named(name).rules
    content: dict[str, Any] = {}
    for text in assignments:
        content = assign(content, *parse_assignment(text))
    try:
        return rules.model_validate(content)
    except ValidationError as error:
        raise UserError(f"--set: {first_problem(error)}") from None


def _simpoint_files(choice: Choice, number: np.ndarray) -> dict[str, str]:
    """SimPoint's files by suffix. ``number``: of each element of the population, from 0."""
    pairs = list(zip(number[choice.element].tolist(), choice.stratum.tolist(), choice.weight.tolist(), strict=True))
    return {
        "simpoints": "".join(f"{each} {cluster}\n" for each, cluster, _ in pairs),
        "weights": "".join(f"{weight:.6g} {cluster}\n" for _, cluster, weight in pairs),
        "labels": "".join(f"{each}\n" for each in choice.label),
    }


def _told(choice: Choice, cpi: np.ndarray, instructions: np.ndarray) -> str:
    """What the profile's own cycles say of a choice."""
    truth = float(instructions @ cpi / instructions.sum())
    estimate = float(choice.weight @ cpi[choice.element])
    expected = "" if choice.expected_error is None else f", expected within {choice.expected_error:.2%}"
    error = f"{estimate / truth - 1:+.2%}{expected}"
    return f"; CPI by the profile's cycles {estimate:.4g}, of all {truth:.4g} ({error})"
