"""A program at an input that never ran: block counts, reuse profile, hit rates and run time from small inputs.

Three answers of rising accuracy where a program allows them:

* AMM: profiles and counts extrapolated (models/memory/profile_extrapolation.py), hit rates by SDCM, time by eq. 4.
* Set-aware: where the program is a loop nest that is affine, its stream at the input is made again
  (models/memory/nest_extrapolation.py) and the caches are simulated with their real sets.
* Overlap-aware time: the stream, or as much of it as is enough, through the dataflow model (models/cpu/dataflow.py).
  Where the stream cannot be made again, its cycles per instruction are those of the small inputs, extrapolated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from manyscale.models.cpu.dataflow import Dataflow
from manyscale.models.machine import Machine
from manyscale.models.memory.amm import AmmEstimate, AmmParameters, estimate
from manyscale.models.memory.loop_nests import NotAffineError
from manyscale.models.memory.nest_extrapolation import NestProgram, recognise
from manyscale.models.memory.nest_instance import NestInstance
from manyscale.models.memory.polynomials import FEWEST_POINTS, fit_polynomials
from manyscale.models.memory.profile_extrapolation import (
    Extrapolation,
    HitRate,
    Recipe,
    TrainingRun,
    extrapolate,
)
from manyscale.models.memory.program_counts import program_counts
from manyscale.models.memory.sdcm import HitRates, geometry_of
from manyscale.models.processor import Cache
from manyscale.runner.errors import UserError
from manyscale.runner.memory import simulated
from manyscale.runner.memory.training import TrainingSet

MOST_RECORDED: Final = 50_000_000  # accesses of a training trace that loops are looked for in
MOST_SIMULATED: Final = 1_000_000_000  # accesses of a stream whose caches are simulated whole
MOST_PREFETCHED: Final = 100_000_000  # of one whose prefetcher and TLBs are
MOST_EXECUTED: Final = 20_000_000  # instructions that the dataflow model executes; it looks at all
LEARNT_BY_HEART: Final = 1_000_000  # executions of blocks
NUM_WINDOWS: Final = 50
FORMS: Final = ("printed", "corrected")


@dataclass(frozen=True)
class Time:
    """A run time with what it is made of (seconds by cause, sums to it). ``low`` and ``high`` are None where nothing
    was extrapolated."""

    seconds: float
    parts: Mapping[str, float]
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Prediction:
    """What is predicted at one input ``size``.

    ``executions`` int64[blocks]: exact where the stream could be made again, else extrapolated. ``sdcm``: hit rate of
    all accesses by level, with its band. ``set_aware``: with real sets, where the stream could be made again.
    ``times``: by model, printed, corrected and overlap, those that the machine has the parameters for.
    ``num_accesses``, ``num_instructions`` (None where the trace shows none). ``how``: where the stream came from.
    """

    size: int
    extrapolation: Extrapolation
    executions: np.ndarray
    sdcm: Mapping[str, HitRate]
    set_aware: HitRates | None
    times: Mapping[str, Time]
    num_accesses: float
    num_instructions: float | None
    how: str
    notes: tuple[str, ...]

    @property
    def hit_rates(self) -> HitRates:
        """The best that is known."""
        return self.set_aware or HitRates(tuple(self.sdcm), tuple(rate.value for rate in self.sdcm.values()))

    @property
    def time(self) -> Time | None:
        """By the best model that there is."""
        return self.times.get("overlap") or self.times.get("corrected")

    @property
    def best_model(self) -> str:
        """Its name; empty where there is none."""
        return next((name for name in ("overlap", "corrected") if name in self.times), "")


class Predictor:
    """A trained program on a machine; ``at`` predicts one input."""

    def __init__(
        self,
        training: TrainingSet,
        runs: Sequence[TrainingRun],
        machine: Machine,
        caches: Mapping[str, Cache],
        recipe: Recipe,
        *,
        steady: bool,
        amm: AmmParameters,
    ) -> None:
        self._training, self._runs, self._recipe, self._amm = training, runs, recipe, amm
        self._machine, self._caches, self._steady = machine, caches, steady
        self._nest, self._reason = _nest(training)

    def at(self, size: int) -> Prediction:
        """Raises UserError where nothing can be said of ``size``."""
        try:
            grown = extrapolate(self._runs, self._training.sites.block, size, self._recipe)
        except ValueError as error:
            raise UserError(f"size {size}: {error}") from None
        sdcm = {name: grown.hit_rate(geometry_of(cache, name)) for name, cache in self._caches.items()}
        notes = list(grown.notes)
        instance = None
        how = f"no loop nest: {self._reason}"
        if self._nest is not None:
            try:
                instance = self._nest.at(size)
                how = "the program is an affine loop nest; its stream at this input was made again"
                notes += self._nest.notes
            except NotAffineError as error:
                how = f"the loop nest is not known at this input: {error}"
        counted = grown.executions if instance is None else instance.counts().astype(np.int64)
        executions = counted.astype(np.float64)
        counts = program_counts(self._training.program, executions)
        set_aware = None
        if instance is not None and instance.num_accesses() <= MOST_SIMULATED:
            set_aware = self._set_aware(instance)
        elif instance is not None:
            notes.append(f"{instance.num_accesses():,} accesses are too many to simulate; hit rates are SDCM's")
        try:
            num_instructions: float | None = sum(counts.instructions_by_class().values())
        except ValueError as error:
            num_instructions = None
            notes.append(str(error))
        times: dict[str, Time] = {}
        if num_instructions is not None:
            try:
                times |= self._amm_times(executions, sdcm, set_aware, self._beyond(instance))
                times["overlap"] = self._overlap(instance, size, num_instructions)
            except ValueError as error:
                notes.append(f"no run time: {self._machine.name}: {error}")
        return Prediction(
            size, grown, counted, sdcm, set_aware, times, counts.num_accesses, num_instructions, how, tuple(notes)
        )  # fmt: skip

    def _set_aware(self, instance: NestInstance) -> HitRates:
        reached = simulated.simulate(instance.generate, self._training.sites, self._caches, steady=self._steady)
        return simulated.hit_rates(reached, self._caches)

    def _beyond(self, instance: NestInstance | None) -> simulated.Beyond:
        """Address translation and prefetching at the input, or of the largest traced one."""
        if instance is not None and instance.num_accesses() <= MOST_PREFETCHED:
            batches: simulated.Batches = instance.generate
        else:
            batches = self._largest
        return simulated.beyond(batches, self._training.sites, self._machine.node, steady=self._steady)

    def _largest(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        run = self._training.runs[-1]
        return _numbered(run.stream.batches(), run.block_number)

    def _amm_times(
        self,
        executions: np.ndarray,
        sdcm: Mapping[str, HitRate],
        set_aware: HitRates | None,
        beyond: simulated.Beyond,
    ) -> dict[str, Time]:
        """By both forms of AMM: as printed from SDCM's hit rates, without translation and prefetching, and corrected
        from the best there are, with both. Bands are SDCM's, where its rates are used."""
        counts = program_counts(self._training.program, executions)
        instructions = counts.instructions_by_class()
        found = {}
        for form in FORMS:
            parameters = replace(self._amm, form="printed" if form == "printed" else "corrected")
            exact, page_rates = None, None
            if form == "corrected":
                parameters = replace(parameters, stream_ratio=self._amm.stream_ratio or beyond.stream_ratio)
                exact, page_rates = set_aware, beyond.page_rates
            value, low, high = (
                estimate(
                    counts.bytes_accessed,
                    counts.num_accesses,
                    instructions,
                    rates,
                    self._machine.node,
                    parameters,
                    page_rates,
                )
                for rates in (_ends(sdcm) if exact is None else [exact] * 3)
            )
            found[form] = Time(
                value.seconds,
                _parts(value),
                min(low.seconds, value.seconds, high.seconds) if exact is None else None,
                max(low.seconds, value.seconds, high.seconds) if exact is None else None,
            )
        return found

    def _overlap(self, instance: NestInstance | None, size: int, num_instructions: float) -> Time:
        if instance is not None:
            seconds, parts = self._executed(instance.generate, int(instance.counts().sum()), round(num_instructions))
            return Time(seconds, parts)
        return self._scaled(size, num_instructions)

    def _executed(
        self, batches: simulated.Batches, num_executions: int, num_instructions: int
    ) -> tuple[float, dict[str, float]]:
        """Seconds, by cause, of a stream whose instructions are executed in windows if they are many."""
        core = Dataflow(self._training.program, self._machine.node)
        for _ in range(_passes_before(num_executions) if self._steady else 0):
            for block_ids, addresses in batches():
                core.warm(block_ids, addresses)
        windows = _windows(num_executions, num_instructions)
        first = 0
        for block_ids, addresses in batches():
            inside = np.clip(windows, first, first + len(block_ids)) - first
            core.execute(block_ids, addresses, windows=inside[inside[:, 1] > inside[:, 0]])
            first += len(block_ids)
        runtime = core.runtime(num_instructions)
        return runtime.time_ps * 1e-12, {name: time * 1e-12 for name, time in runtime.parts_ps.items()}

    def _scaled(self, size: int, num_instructions: float) -> Time:
        """From the small inputs' seconds per instruction, by cause, extrapolated in 1/x, which tends to a limit."""
        per_instruction: list[dict[str, float]] = []
        for run in self._training.runs:
            executions = int(run.stream.num_blocks)
            per_block = np.diff(np.searchsorted(
                self._training.program.column("instructions", "block_id"),
                np.arange(self._training.sites.num_blocks + 1),
            ))  # fmt: skip
            total = sum(int(per_block[ids].sum()) for ids, _ in _numbered(run.stream.batches(), run.block_number))
            _, parts = self._executed(
                lambda run=run: _numbered(run.stream.batches(), run.block_number), executions, total  # type: ignore[misc]
            )  # fmt: skip
            per_instruction.append({name: seconds / total for name, seconds in parts.items()})
        inputs = np.array([run.size for run in self._training.runs], np.float64)
        values = np.array([list(parts.values()) for parts in per_instruction])
        if len(inputs) < FEWEST_POINTS:
            at = values[-1]
            low = high = float(at.sum())
        else:
            at = np.maximum(fit_polynomials(1 / inputs, values, 1).at(1 / size).value, 0)
            band = fit_polynomials(1 / inputs, values.sum(axis=1)[:, np.newaxis], 1).at(1 / size)
            low, high = float(max(band.low[0], 0)), float(band.high[0])
        parts = dict(zip(per_instruction[0], (at * num_instructions).tolist(), strict=True))
        seconds = sum(parts.values())
        return Time(seconds, parts, min(seconds, low * num_instructions), max(seconds, high * num_instructions))


def _ends(sdcm: Mapping[str, HitRate]) -> list[HitRates]:
    """The hit rates, and those at the lower and the upper end of their bands."""
    return [
        HitRates(tuple(sdcm), tuple(getattr(rate, end) for rate in sdcm.values())) for end in ("value", "low", "high")
    ]


def _parts(found: AmmEstimate) -> dict[str, float]:
    return {name: time * 1e-12 for name, time in found.parts}


def _numbered(
    batches: Iterator[tuple[np.ndarray, np.ndarray]], number: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for block_ids, addresses in batches:
        yield number[block_ids], addresses


def _passes_before(num_executions: int) -> int:
    """Passes until caches and branch predictor are as they stay. A predictor learns a short program by heart, which
    takes a few; in a long one, it has forgotten the beginning at the end."""
    return 4 if num_executions <= LEARNT_BY_HEART else 1


def _windows(num_executions: int, num_instructions: int) -> np.ndarray:
    """int64[windows, 2]: ranges of executions, each in the middle of an equal share of the stream."""
    if num_instructions <= MOST_EXECUTED:
        return np.array([[0, num_executions]])
    share = num_executions / NUM_WINDOWS
    half = share * MOST_EXECUTED / num_instructions / 2
    middle = (np.arange(NUM_WINDOWS) + 0.5) * share
    return np.stack([middle - half, middle + half], axis=1).astype(np.int64)


def _nest(training: TrainingSet) -> tuple[NestProgram | None, str]:
    """The program as loop nests, or why it is none."""
    recorded = []
    for run in training.runs:
        if run.stream.num_accesses > MOST_RECORDED:
            continue
        parts = list(_numbered(run.stream.batches(), run.block_number))
        block_ids, addresses = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        recorded.append((run.size, block_ids, addresses))
    try:
        return recognise(recorded, training.sites), ""
    except NotAffineError as error:
        return None, str(error)
