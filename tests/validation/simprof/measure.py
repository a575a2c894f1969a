"""Pieces inside units, and inputs that change phases: the tables of RESULTS.md.

``python -m simprof.measure`` in tests/validation, with manyscale importable and MANYSCALE_DATA set, prints them. Units
are eight consecutive intervals each of the project's profiles with modelled cycles; the intervals are the pieces, so
that the truth is known at both stages. Vectors are the units' basic blocks, which serve as methods here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from manyscale.runner.readers import simpoint_bb
from manyscale.runner.readers.stacks import unit_counts as unit_stacks
from manyscale.sampling import simprof, stratified
from manyscale.sampling.population import intervals_of
from manyscale.sampling.simprof import SimProfRules, input_sensitivity, two_stage
from manyscale.sampling.simprof.stack_population import StackPopulation, stack_units_of
from manyscale.sampling.simprof.two_stage import Inside

STACKS: Final = Path(__file__).parents[2] / "data" / "stacks"
PROGRAMS: Final = ("phases", "gzip", "sqlite", "python")
INPUTS: Final = ("zipf", "zipf2", "even", "log")
PIECES: Final = 8  # of a unit
UNITS: Final = 20
DRAWS: Final = 1000
CONFIDENCE: Final = 0.95


@dataclass(frozen=True)
class Units:
    """``pieces`` float64[units, PIECES]: CPI; ``label`` int32[units]: the phase."""

    pieces: np.ndarray
    label: np.ndarray

    @property
    def truth(self) -> float:
        return float(self.pieces.mean())


@dataclass(frozen=True)
class Draws:
    """Of repeated samples: ``errors`` relative to the truth, whether intervals ``held``, ``half`` widths relative, and
    the mean of the estimated variances over the errors' own."""

    errors: np.ndarray
    held: float
    half: float
    variance_ratio: float


def units_of(file: Path, seed: int = 0) -> Units:
    """Eight intervals of a profile each, and their phases; what is left over at the end is left out."""
    found = intervals_of(simpoint_bb.read(file))
    assert found.cpi is not None
    count = len(found) // PIECES
    pieces = found.cpi[: count * PIECES].reshape(count, PIECES)
    vectors = np.zeros((count, int(found.vectors.column.max()) + 1))
    row = np.repeat(np.arange(len(found)), np.diff(found.vectors.first)) // PIECES
    inside = row < count
    np.add.at(vectors, (row[inside], found.vectors.column[inside]), found.vectors.value[inside])
    vectors /= vectors.sum(axis=1, keepdims=True)
    return Units(pieces, simprof.find_phases(vectors, pieces.mean(axis=1), SimProfRules(), seed).label)


def drawn(units: Units, pieces: int, inside: Inside, draws: int = DRAWS, seed: int = 1) -> Draws:
    """Samples of UNITS units, optimally allocated, and ``pieces`` of each. Raises ValueError where one piece of a unit
    says nothing of a phase whose units are all drawn."""
    sizes = np.bincount(units.label)
    members = [np.flatnonzero(units.label == phase) for phase in range(len(sizes))]
    means = units.pieces.mean(axis=1)
    deviations = np.array([means[each].std() for each in members])
    count = stratified.allocate(sizes, deviations, max(UNITS, int(np.minimum(2, sizes).sum())))
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(draws):
        values = [
            [units.pieces[unit][two_stage.pieces(PIECES, pieces, random)]
             for unit in random.choice(each, n, replace=False)]
            for each, n in zip(members, count.tolist(), strict=True)
        ]  # fmt: skip
        found = two_stage.estimate(sizes, values, PIECES, CONFIDENCE, inside)
        rows.append((found.mean, found.low, found.high, found.standard_error))
    mean, low, high, error = np.array(rows).T
    ratio = float((error**2).mean() / mean.var())
    held = float(((low <= units.truth) & (units.truth <= high)).mean())
    return Draws(mean / units.truth - 1, held, float(np.median(high - low) / 2 / units.truth), ratio)


def two_stages(data: Path) -> Iterator[str]:
    """Rows of a table of Markdown."""
    yield "| program | units, phases | pieces of 8 | mean | bias (error of it) | error | 95 % | half-width | variance |"
    yield "| --- " * 9 + "|"
    for program in PROGRAMS:
        units = units_of(data / f"{program}.m.bb.xz")
        shape = f"{len(units.label)}, {units.label.max() + 1}"
        for pieces in (1, 2, 4, PIECES):
            kinds: Sequence[Inside] = ("successive", "random") if 2 < pieces < PIECES else ("successive",)
            for inside in kinds:
                name = f"{pieces} ({inside})" if len(kinds) > 1 else str(pieces)
                try:
                    found = drawn(units, pieces, inside)
                except ValueError as error:
                    yield f"| {program} | {shape} | {name} | refused: {error} | | | | | |"
                    continue
                off = found.errors.std() / np.sqrt(len(found.errors))
                yield (
                    f"| {program} | {shape} | {name} | {units.truth:.3f} | {found.errors.mean():+.2%} ({off:.2%}) | "
                    f"{np.abs(found.errors).mean():.2%} | {found.held:.1%} | {found.half:.2%} | "
                    f"{found.variance_ratio:.2f} |"
                )


def inputs() -> dict[str, StackPopulation]:
    """bzip2 on its inputs."""
    return {name: stack_units_of(unit_stacks.read(STACKS / f"bzip2-{name}.stk.xz")) for name in INPUTS}


def sensitivities(units: int = 30, seeds: int = 20) -> Iterator[str]:
    """Rows of a table of Markdown: the training input is the first, each group of references is judged by itself."""
    populations = inputs()
    train = populations[INPUTS[0]]
    yield "| references | decided by | sensitive phases | again, of 30 | mean error of each | all units anew |"
    yield "| --- " * 6 + "|"
    for names in (("zipf2",), ("zipf2", "even"), ("log",), ("zipf2", "even", "log")):
        for by in ("both", "mean"):
            rules = SimProfRules(units=units, sensitive_by=by)
            shares, errors, anew, sensitive = [], [], [], 0
            for seed in range(seeds):
                chosen, phases = simprof.choose(train, rules, seed)
                others = [(phases.of(populations[name].by_methods_of(train)), populations[name].cpi) for name in names]
                assert train.cpi is not None
                found = input_sensitivity.sensitivity(phases.label, train.cpi, others, rules.tolerance, by)
                count = np.bincount(chosen.stratum)
                kept = [train.cpi[chosen.element[chosen.stratum == phase]] for phase in range(len(count))]
                shares.append(found.share_again(count) * units)
                sensitive += int(found.sensitive.sum())
                everything = input_sensitivity.Sensitivity(
                    found.units, found.mean, found.deviation, np.ones_like(found.moved)
                )
                errors.append(_errors(found, count, kept, others, seed))
                anew.append(_errors(everything, count, kept, others, seed))
            told, whole = np.mean(errors, axis=0), np.mean(anew, axis=0)
            yield (
                f"| {', '.join(names)} | {by} | {sensitive / seeds:.1f} of {len(count)} | {np.mean(shares):.1f} | "
                f"{', '.join(f'{each:.2%}' for each in told)} | {', '.join(f'{each:.2%}' for each in whole)} |"
            )


def _errors(
    found: input_sensitivity.Sensitivity,
    count: np.ndarray,
    kept: list[np.ndarray],
    others: list[tuple[np.ndarray, np.ndarray | None]],
    seed: int,
) -> list[float]:
    """Absolute relative error of the estimate of each reference."""
    errors = []
    for number, (label, cpi) in enumerate(others, 1):
        assert cpi is not None
        again = [cpi[each] for each in input_sensitivity.drawn_again(found, count, number, label, seed)]
        mean = input_sensitivity.reference_estimate(found, number, kept, again, CONFIDENCE).mean
        errors.append(abs(mean / cpi.mean() - 1))
    return errors


def main() -> int:
    data = Path(os.environ["MANYSCALE_DATA"]) / "phase"
    for table in (two_stages(data), sensitivities()):
        for line in table:
            print(line, flush=True)
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
