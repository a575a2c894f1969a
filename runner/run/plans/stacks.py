"""``manyscale plan --method simprof PROFILE``: which sampling units of a profile of call stacks are worth simulating.

Beside the plan, whose elements are rows of the table of sampling units, stand NAME.phases.csv (what the phases are),
SimPoint's files, and what the options ask for:

=====================  ================================================================================================
``--set pieces=N``     NAME.pieces.csv: the short pieces of each chosen unit that stand for it
(sampling/simprof/two_stage.py)
``--measured FILE``    CPIs that were simulated: the estimate, whether it is enough, and the units to simulate next
``--sensitivity REF``  profiles of other inputs: NAME.sensitivity.csv (phases that change), and for each of them
                       NAME.REF.units.csv, the units that stand for it, of which some were simulated already
=====================  ================================================================================================

Baselines (sampling/interval_samplers.py; CODE by the stacks' phases) plan units of such profiles as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from manyscale.models.workload.parameters import Strict
from manyscale.runner.errors import UserError
from manyscale.runner.run.plans import measured, simpoint_files
from manyscale.runner.run.plans.request import Planned, PlanRequest, validated
from manyscale.runner.study import WorkloadChoice
from manyscale.sampling import interval_samplers, simprof, stratified
from manyscale.sampling.population import Choice, IntervalPopulation
from manyscale.sampling.simprof import Phases, SimProfRules, input_sensitivity, two_stage
from manyscale.sampling.simprof.input_sensitivity import Sensitivity
from manyscale.sampling.simprof.stack_population import StackPopulation, stack_units_of
from manyscale.sampling.stratified import StratifiedEstimate
from manyscale.sampling.vectors import Vectors

SIMPROF: Final = "simprof"
CODE: Final = "code"
BASELINES: Final = {
    "random": interval_samplers.RANDOM,
    "systematic": interval_samplers.SYSTEMATIC,
    "second": interval_samplers.SECOND,
    "full": interval_samplers.FULL,
}
METHODS: Final = (SIMPROF, CODE, *BASELINES)
_BOTH_ERRORS: Final = (0.02, 0.05)  # section 5.4.2
_CONFIDENCE: Final = 0.997
NO_CYCLES: Final = "the cycles of its sampling units are not known; record it with counters, or under callgrind"


def is_profile(path: Path) -> bool:
    """Whether a trace is a profile of call stacks, by its name and first bytes."""
    from manyscale.runner.readers.stacks import (
        callgrind,
        folded,
        jfr,
        perf_script,
        speedscope,
    )
    from manyscale.runner.readers.stacks import (
        folder as stack_folder,
    )
    from manyscale.runner.readers.stacks import (
        unit_counts as unit_stacks,
    )

    readers: tuple[Any, ...] = (unit_stacks, stack_folder, callgrind, jfr, speedscope, folded, perf_script)
    return any(reader.can_read(path) for reader in readers)


def is_asked(method: str, path: Path) -> bool:
    """Whether a method plans sampling units of call stacks: SimProf always, others of such profiles."""
    return method == SIMPROF or (method in METHODS and is_profile(path))


def choose(population: StackPopulation, method: str, rules: Any, seed: int) -> Choice:
    """Units of a population by one of METHODS."""
    if method == SIMPROF:
        return simprof.choose(population, rules, seed)[0]
    if method == CODE:
        return simprof.first_of_code(population, rules, seed)
    none = Vectors(np.zeros(len(population) + 1, np.int64), np.zeros(0, np.int64), np.zeros(0))
    alike = IntervalPopulation(population.row, np.ones(len(population)), none, 1)  # baselines look at nothing else
    return BASELINES[method].choose(alike, rules, seed)


def rules_of(method: str) -> type[Strict]:
    return SimProfRules if method in (SIMPROF, CODE) else BASELINES[method].rules


def planned(request: PlanRequest) -> Planned:
    """Elements are rows of the workload's table of units. Raises UserError, and ValueError for a profile of which
    nothing can be planned."""
    rules, how = _rules(request)
    workload = request.read(how)
    population = stack_units_of(workload, getattr(rules, "operations", None))
    if request.method == SIMPROF:
        chosen, text, files = _by_simprof(request, workload.name, population, rules)
    else:
        for name in ("sensitivity", "measured"):
            if getattr(request, name):
                raise UserError(f"--{name}: is of method simprof; {request.method} has no phases to go on with")
        chosen, files = choose(population, request.method, rules, request.seed), {}
        text = f"{len(chosen.element)} of {len(population)} sampling units would be simulated"
        text += "" if population.cpi is None else _told(chosen, population.cpi)
    choice = replace(chosen, element=population.row[chosen.element])
    if len(chosen.label):  # SimPoint's files, of which a choice without phases has none
        units, clusters = choice.element.tolist(), choice.stratum.tolist()
        files["simpoints"] = simpoint_files.simpoints(units, clusters)
        files["weights"] = simpoint_files.weights(choice.weight.tolist(), clusters)
        files["labels"] = simpoint_files.labels(choice.label.tolist())
    return Planned(workload.name, "unit", request.method, choice, text, files, workload.notes)


def _by_simprof(
    request: PlanRequest, name: str, population: StackPopulation, rules: SimProfRules
) -> tuple[Choice, str, dict[str, str]]:
    """The choice, what is said of it, and files by suffix."""
    seed = request.seed
    if rules.pieces and not np.all(population.instructions >= rules.pieces * rules.piece_instructions):
        raise UserError(
            f"--set pieces={rules.pieces}: not all sampling units are known to have {rules.pieces} pieces of "
            f"{rules.piece_instructions} instructions; record a profile that counts instructions, or take fewer"
        )
    if request.measured is None:
        chosen, phases = simprof.choose(population, rules, seed)
        text = f"{len(chosen.element)} of {len(population)} sampling units in {phases.num_phases} phases"
        text += " would be simulated"
        if population.cpi is not None:
            text += _told(chosen, population.cpi)
    else:
        phases = simprof.find_phases(population.vectors, population.cpi, rules, seed)
        chosen, text = _measured(request.measured, population, phases, rules, seed)
    files = {"phases.csv": _phase_table(population, phases, chosen)}
    text += _spread(population, phases)
    if rules.pieces:
        files["pieces.csv"] = _piece_table(population, chosen, rules, seed)
        simulated = len(chosen.element) * rules.pieces * rules.piece_instructions / population.instructions.sum()
        whole = population.instructions[chosen.element].sum() / population.instructions.sum()
        text += (
            f"\n{rules.pieces} pieces of {rules.piece_instructions:,} instructions of each unit, each behind "
            f"{rules.warm_up_instructions:,} to warm up: {simulated:.3%} of the instructions would be "
            f"simulated instead of {whole:.2%}; what is lost inside units is known once they are (--measured)"
        )
    if request.sensitivity:
        more, said = _sensitivity(request, population, phases, chosen, rules, name)
        files |= more
        text += said
    return chosen, text, files


def _rules(request: PlanRequest, path: str | None = None) -> tuple[Any, WorkloadChoice]:
    """Rules of the method, and how the profile, or another at ``path``, is read."""
    content = dict(request.rules)
    given = content.pop("workload", {})
    how = {"format": request.form, **given} if isinstance(given, Mapping) else given
    if isinstance(how, dict):
        how["path"] = path or request.path
    return validated(rules_of(request.method), content), validated(WorkloadChoice, how)


def _told(choice: Choice, cpi: np.ndarray) -> str:
    """What the profile's own cycles say of a choice."""
    truth, estimate = float(cpi.mean()), float(choice.weight @ cpi[choice.element])
    expected = "" if choice.expected_error is None else f", expected within {choice.expected_error:.2%}"
    error = f"{estimate / truth - 1:+.2%}{expected}"
    return f"; CPI by the profile's cycles {estimate:.4g}, of all {truth:.4g} ({error})"


def _spread(population: StackPopulation, phases: Phases) -> str:
    """Kinds of phases, coefficients of variation, and sizes of samples."""
    kinds = simprof.kinds_of_phases(phases, population)
    sizes = np.bincount(phases.label)
    shares = {kind: sizes[[each == kind for each in kinds]].sum() / sizes.sum() for kind in dict.fromkeys(kinds)}
    most = sorted(shares.items(), key=lambda item: -item[1])
    text = "\nphases by their operations: " + ", ".join(f"{kind} {share:.0%}" for kind, share in most)
    cpi = population.cpi
    if cpi is None:
        return text
    deviations = np.array([cpi[phases.label == phase].std() for phase in range(len(sizes))])
    spread = simprof.variation(cpi, phases.label)
    needed = [stratified.enough(sizes, deviations, float(cpi.mean()), each, _CONFIDENCE) for each in _BOTH_ERRORS]
    return text + (
        f"\nCPI varies by {spread.population:.1%} over all units, {spread.weighted:.1%} inside phases (at most "
        f"{spread.largest:.1%}); 2 % and 5 % of error at 99.7 % confidence take {needed[0]} and {needed[1]} units"
    )


def _phase_table(population: StackPopulation, phases: Phases, chosen: Choice) -> str:
    sizes = np.bincount(phases.label)
    drawn = np.bincount(chosen.stratum, minlength=len(sizes))
    names, kinds = simprof.names_of_phases(phases, population), simprof.kinds_of_phases(phases, population)
    counted = {name: values for name, values in sorted(population.counters.items()) if not np.all(np.isnan(values))}
    whole = bool(np.all(population.instructions > 0))
    of = "per 1000 instructions" if whole else "per unit"
    rows = [",".join(["phase,kind,units,drawn,cpi,deviation", *(f"{name} {of}" for name in counted), "methods"])]
    for phase, its_names in enumerate(names):
        own = None if population.cpi is None else population.cpi[phases.label == phase]
        known = ["", ""] if own is None else [f"{own.mean():.6g}", f"{own.std():.6g}"]
        mine = phases.label == phase
        size = population.instructions / 1000 if whole else np.ones(len(population))
        rates = [_rate(values[mine], size[mine]) for values in counted.values()]
        cells = [str(phase), kinds[phase], str(sizes[phase]), str(drawn[phase]), *known, *rates, _quoted(its_names)]
        rows.append(",".join(cells))
    return "\n".join(rows) + "\n"


def _rate(values: np.ndarray, size: np.ndarray) -> str:
    """Of what was counted in units of some size; nothing where none was."""
    known = ~np.isnan(values)
    return f"{values[known].sum() / size[known].sum():.6g}" if known.any() else ""


def _quoted(names: Sequence[str]) -> str:
    return '"' + ";".join(names).replace('"', "'") + '"'


def _piece_table(population: StackPopulation, chosen: Choice, rules: SimProfRules, seed: int) -> str:
    """A row per piece: where it begins in its unit, and what it stands for of the run."""
    rows = ["unit,piece,begin,instructions,warm_up,weight"]
    for unit, weight in zip(chosen.element.tolist(), chosen.weight.tolist(), strict=True):
        random = np.random.default_rng([seed, unit])
        inner = int(population.instructions[unit]) // rules.piece_instructions
        for number, at in enumerate(two_stage.pieces(inner, rules.pieces, random).tolist()):
            begin = at * rules.piece_instructions
            rows.append(
                f"{population.row[unit]},{number},{begin},{rules.piece_instructions},"
                f"{rules.warm_up_instructions},{weight / rules.pieces:.9g}"
            )
    return "\n".join(rows) + "\n"


def _measured(
    path: Path, population: StackPopulation, phases: Phases, rules: SimProfRules, seed: int
) -> tuple[Choice, str]:
    """The units simulated and those to come, and what is known by now."""
    at, values = measured.read(path, population.row)
    means = np.array([float(each.mean()) for each in values])
    found: StratifiedEstimate | None = None
    said = ""
    if rules.pieces:
        sizes = np.bincount(phases.label)
        inner = int(population.instructions.max()) // rules.piece_instructions
        for row, each in zip(at.tolist(), values, strict=True):
            if len(each) != rules.pieces:
                raise UserError(f"{path}: unit {population.row[row]} has {len(each)} pieces, not {rules.pieces}")
        by_phase = [
            [each for row, each in zip(at.tolist(), values, strict=True) if phases.label[row] == phase]
            for phase in range(len(sizes))
        ]
        if rules.pieces > 1 and all(by_phase):
            found = two_stage.estimate(sizes, by_phase, inner, rules.confidence)
            inside = two_stage.components(sizes, by_phase, inner).share_inside(rules.pieces, inner)
            said = f"\n{inside:.0%} of a unit's variance is of the pieces that were drawn inside it"
    progress = simprof.go_on(phases, at, means, rules, seed, population.cpi is not None, found)
    half = (progress.found.high - progress.found.mean) / progress.found.mean
    text = (
        f"{len(at)} of {len(population)} sampling units are measured: CPI {progress.found.mean:.4g} within {half:.2%} "
        f"at {rules.confidence:.5g} confidence (Student's t, {progress.found.degrees:.1f} degrees of freedom)"
    )
    if progress.enough is not None:
        text += f"; enough for {rules.error:.5g}" if progress.enough else f"; not enough for {rules.error:.5g}"
    text += f"\n{len(progress.further)} units are to be simulated next"
    if len(progress.further):
        text += ": " + ", ".join(map(str, population.row[progress.further][:20].tolist()))
        text += ", ..." if len(progress.further) > 20 else ""
    return progress.choice, text + said


def _sensitivity(
    request: PlanRequest,
    population: StackPopulation,
    phases: Phases,
    chosen: Choice,
    rules: SimProfRules,
    name: str,
) -> tuple[dict[str, str], str]:
    """Files by suffix, and what is said."""
    cpi = population.cpi
    if cpi is None:
        raise ValueError(NO_CYCLES)
    references: list[tuple[str, np.ndarray, np.ndarray, np.ndarray]] = []  # name, rows, phases, CPIs
    for path in request.sensitivity:
        workload = request.read(_rules(request, path)[1])
        try:
            other = stack_units_of(workload)
        except ValueError as error:
            raise UserError(f"{path}: {error}") from None
        if other.cpi is None:
            raise UserError(f"{path}: {NO_CYCLES}")
        if workload.name in (name, *(each[0] for each in references)):
            raise UserError(f"{path}: is named {workload.name}, as another profile; name files of inputs differently")
        label = phases.of(other.by_methods_of(population))
        references.append((workload.name, other.row, label, other.cpi))
    found = input_sensitivity.sensitivity(
        phases.label, cpi, [(label, own) for _, _, label, own in references], rules.tolerance, rules.sensitive_by
    )
    count = np.bincount(chosen.stratum, minlength=phases.num_phases)
    files = {"sensitivity.csv": _sensitivity_table(found, [name, *(each[0] for each in references)])}
    sensitive = np.flatnonzero(found.sensitive)
    again, moves = found.share_again(count), "mean or deviation" if rules.sensitive_by == "both" else "mean"
    text = (
        f"\n{len(sensitive)} of {phases.num_phases} phases change with the input (CPI's {moves} by more than "
        f"{rules.tolerance:.5g}){': ' if len(sensitive) else ''}{', '.join(map(str, sensitive.tolist()))}; of the "
        f"{len(chosen.element)} units {count[found.sensitive].sum()} are in them: another input takes {1 - again:.0%} "
        "fewer"
    )
    kept = [cpi[chosen.element[chosen.stratum == phase]] for phase in range(phases.num_phases)]
    for number, (other_name, row, label, own) in enumerate(references, 1):
        drawn = input_sensitivity.drawn_again(found, count, number, label, request.seed)
        estimate = input_sensitivity.reference_estimate(
            found, number, kept, [own[each] for each in drawn], rules.confidence
        )
        own_units = [row[each] for each in drawn]
        old_units = [population.row[chosen.element[chosen.stratum == phase]] for phase in range(phases.num_phases)]
        files[f"{other_name}.units.csv"] = _unit_table(found, number, (name, other_name), old_units, own_units)
        half, off = (estimate.high - estimate.mean) / estimate.mean, estimate.mean / own.mean() - 1
        text += (
            f"\n{other_name}: {sum(map(len, drawn))} of {len(row)} units would be simulated; CPI by the profiles' "
            f"cycles {estimate.mean:.4g} within {half:.2%}, of all {own.mean():.4g} ({off:+.2%})"
        )
    return files, text


def _sensitivity_table(found: Sensitivity, names: Sequence[str]) -> str:
    """A row per phase and input."""
    rows = ["phase,sensitive,input,units,cpi,deviation,moved"]
    for phase, sensitive in enumerate(found.sensitive.tolist()):
        for number, name in enumerate(names):
            seen = found.units[number, phase] > 0
            known = [f"{each[number, phase]:.6g}" if seen else "" for each in (found.mean, found.deviation)]
            moved = "" if number == 0 else str(int(found.moved[number - 1, phase]))
            rows.append(
                ",".join([str(phase), str(int(sensitive)), name, str(found.units[number, phase]), *known, moved])
            )
    return "\n".join(rows) + "\n"


def _unit_table(
    found: Sensitivity,
    number: int,
    names: tuple[str, str],
    old: Sequence[np.ndarray],
    own: Sequence[np.ndarray],
) -> str:
    """The units that stand for a reference: of which profile, and what each weighs (their sum is 1)."""
    rows = ["phase,profile,unit,weight"]
    share = found.units[number] / found.units[number].sum()
    for phase, sensitive in enumerate(found.sensitive.tolist()):
        units = own[phase] if sensitive else old[phase]
        if share[phase] > 0:
            weight = share[phase] / len(units)
            rows += [f"{phase},{names[int(sensitive)]},{unit},{weight:.9g}" for unit in units.tolist()]
    return "\n".join(rows) + "\n"
