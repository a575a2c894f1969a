"""A program at an input that never ran: block counts, reuse profile, hit rates and run time from small inputs.

Three answers of rising accuracy where a program allows them:

* AMM: profiles and counts extrapolated (models/memory/amm/profile_extrapolation.py), hit rates by SDCM, time by eq. 4.
* Set-aware: where the program is a loop nest that is affine, its stream at the input is made again
  (models/memory/nests/extrapolation.py) and the caches are simulated with their real sets.
* Overlap-aware time: the stream, or as much of it as is enough, through the dataflow model (models/cpu/dataflow.py).
  Where the stream cannot be made again, its cycles per instruction are those of the small inputs, extrapolated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from manyscale.models.cpu import domains
from manyscale.models.machine import Machine
from manyscale.models.memory.amm.amm import UPPER_BOUND, AmmParameters, estimate, level_costs, served_shares
from manyscale.models.memory.amm.growth_laws import fit_laws
from manyscale.models.memory.amm.profile_extrapolation import (
    NOTED_SHARE,
    Extrapolation,
    HitRate,
    Recipe,
    TrainingRun,
    extrapolate,
)
from manyscale.models.memory.amm.program_counts import ProgramCounts, program_counts
from manyscale.models.memory.amm.sdcm import HitRates, geometry_of, hit_rate
from manyscale.models.memory.nests.extrapolation import NestProgram, recognise
from manyscale.models.memory.nests.instance import NestInstance
from manyscale.models.memory.nests.loop_nests import NotAffineError
from manyscale.models.memory.reuse_profile import ReuseProfile
from manyscale.models.workload.notes import Errs, Note, changes, informs
from manyscale.models.workload.quantities import PS_PER_SECOND
from manyscale.runner.errors import UserError
from manyscale.runner.predict.memory import outgrown, simulated
from manyscale.runner.predict.memory.given_transitions import GivenTransitions
from manyscale.runner.predict.memory.hit_rates import caches_of, prefetch_notes, thread_notes
from manyscale.runner.predict.memory.stream_units import (
    ProgramStreams,
    StreamAnswer,
    answer,
    numbered,
    unit_of,
)
from manyscale.runner.predict.memory.training import TrainingSet
from manyscale.runner.predict.units import Executes, WorkUnit

MOST_RECORDED: Final = 50_000_000  # accesses of a training trace that loops are looked for in
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
    ``num_accesses``, ``num_instructions`` (None where the trace shows none), with their bands where they were
    extrapolated. ``how``: where the stream came from.
    """

    size: int
    extrapolation: Extrapolation
    executions: np.ndarray
    sdcm: Mapping[str, HitRate]
    set_aware: HitRates | None
    times: Mapping[str, Time]
    num_accesses: float
    num_instructions: float | None
    accesses_band: tuple[float, float] | None
    instructions_band: tuple[float, float] | None
    how: str
    notes: tuple[Note, ...]

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
    """A trained program on a machine, whose file has ``node``; ``at`` predicts inputs. Raises UserError where the
    traces do not suffice."""

    def __init__(
        self,
        training: TrainingSet,
        runs: Sequence[TrainingRun],
        machine: Machine,
        node: Any,
        recipe: Recipe,
        *,
        steady: bool,
        amm: AmmParameters,
        transitions: GivenTransitions | None = None,
    ) -> None:
        self._given = transitions
        self._training, self._runs, self._recipe, self._amm = training, runs, recipe, amm
        self._machine, self._node, self._steady = machine, node, steady
        self._caches = caches_of(machine)
        nest, self._reason = nest_of(training)
        traced = [(run.stream, run.block_number) for run in training.runs]
        self._streams = ProgramStreams(training.program, training.sites, nest, traced)

    def at(self, sizes: Sequence[int], execution: Executes) -> list[Prediction]:
        """What is predicted at each input; what takes long is left to work units. Raises UserError where nothing can be
        said of one."""
        grown = [self._extrapolated(size) for size in sizes]
        instances = [self._instance(size) for size in sizes]
        units = {
            size: self._unit({"size": size}, instance.num_accesses())
            for size, instance in zip(sizes, instances, strict=True)
            if isinstance(instance, NestInstance)
        }
        traced = (
            []
            if len(units) == len(sizes)
            else [self._unit({"run": i}, stream.num_accesses) for i, (stream, _) in enumerate(self._streams.traced)]
        )
        moved = {
            size: outgrown.Outgrown(self._traced_profile(), each.profile, self._label())
            for size, each in zip(sizes, grown, strict=True)
            if size not in units and self._outgrown(self._sdcm(each))
        }
        costs = {size: self._cost_unit(size, each) for size, each in moved.items()}
        shared = {outgrown.shared_name(size): each for size, each in moved.items()} | {"streams": self._streams}
        execution.execute([*units.values(), *traced], lambda needed: shared)
        of_traced = [self._answer(unit, execution) for unit in traced]
        if of_traced and of_traced[-1].parts is None:
            costs = {}  # nor would they say more than why
        as_traced = self._cost_unit(None, None)
        execution.execute([as_traced, *costs.values()] if costs else [], lambda needed: shared)
        added = {
            size: (execution.result(unit.key)["parts_ps"] - execution.result(as_traced.key)["parts_ps"]) * 1e-12
            for size, unit in costs.items()
        }
        return [
            self._prediction(
                size,
                each,
                instance,
                self._answer(units[size], execution) if size in units else None,
                of_traced,
                added.get(size),
            )
            for size, each, instance in zip(sizes, grown, instances, strict=True)
        ]

    def _extrapolated(self, size: int) -> Extrapolation:
        try:
            grown = extrapolate(self._runs, self._training.sites.block, size, self._recipe)
        except ValueError as error:
            raise UserError(f"size {size}: {error}") from None
        if self._given is None:
            return grown
        return self._given.applied(grown, self._training, size, by_site=self._recipe.by_site)

    def _instance(self, size: int) -> NestInstance | str:
        """The program's loop nest at an input, or why there is none."""
        if self._given is not None and self._given.at(size):
            return "executions follow from the transition probabilities that are given"
        if self._streams.nest is None:
            return f"no loop nest: {self._reason}"
        try:
            return self._streams.nest.at(size)
        except NotAffineError as error:
            return f"the loop nest is not known at this input: {error}"

    def _unit(self, place: Mapping[str, int], num_accesses: int) -> WorkUnit:
        content = self._training.content
        return unit_of(place, content, self._machine, self._node, num_accesses, steady=self._steady)

    def _answer(self, unit: WorkUnit, execution: Executes) -> StreamAnswer:
        return answer(execution.result(unit.key), self._machine.node)

    def _prediction(
        self,
        size: int,
        grown: Extrapolation,
        instance: NestInstance | str,
        own: StreamAnswer | None,
        traced: Sequence[StreamAnswer],
        cost: np.ndarray | None,
    ) -> Prediction:
        """``own``: of the stream that was made again at the input, or None; then ``traced`` are those of the runs, and
        ``cost`` is what outgrown caches cost (seconds an instruction, by cause), None where none are."""
        sdcm = self._sdcm(grown)
        notes, how, executions = [*grown.notes, *thread_notes(self._machine)], instance, grown.executions
        if isinstance(instance, NestInstance):
            assert self._streams.nest is not None
            how = "the program is an affine loop nest; its stream at this input was made again"
            notes += self._streams.nest.notes
            executions = instance.counts().astype(np.int64)
        counts = program_counts(self._training.program, executions.astype(np.float64))
        ends = None
        if not isinstance(instance, NestInstance):
            ends = tuple(counts.with_executions(each) for each in (grown.fewest_executions, grown.most_executions))
        set_aware = None if own is None else own.rates
        if own is not None and set_aware is None:
            text = f"{counts.num_accesses:,.0f} accesses are too many to simulate; hit rates are SDCM's"
            notes.append(informs("hit-rates-of-sdcm", text))
        num_instructions: float | None = None
        instructions_band: tuple[float, float] | None = None
        times: dict[str, Time] = {}
        try:
            num_instructions = sum(counts.instructions_by_class().values())
            if ends is not None:
                low, high = (sum(each.instructions_by_class().values()) for each in ends)
                instructions_band = (low, high)
            beyond = (own or traced[-1]).beyond
            notes += prefetch_notes(self._machine, "corrected") if beyond.stream_ratio else []
            times |= self._amm_times(counts, ends or (counts, counts), sdcm, set_aware, beyond)
            if own is not None:
                times["overlap"] = _own_time(own)
            else:
                assert instructions_band is not None
                added, outgrown = self._beyond_traced(counts.num_accesses, sdcm)
                notes += outgrown
                times["overlap"] = self._scaled(size, num_instructions, instructions_band, added, traced, cost)
            if times["corrected"].parts.get("translation.walk", 0) > NOTED_SHARE * times["overlap"].seconds:
                notes.append(domains.WALKS.note("address-translation", "overlap"))
        except ValueError as error:
            why = f"{self._machine.name}: {error}"
            if times:
                notes.append(changes("no-overlap-time", f"no overlap time: {why}; {UPPER_BOUND}", errs=Errs.long))
            else:
                notes.append(informs("no-run-time", f"no run time: {why}"))
        return Prediction(
            size, grown, executions, sdcm, set_aware, times, counts.num_accesses, num_instructions,
            None if ends is None else (ends[0].num_accesses, ends[1].num_accesses), instructions_band, str(how),
            tuple(notes),
        )  # fmt: skip

    def _sdcm(self, profiled: Extrapolation) -> dict[str, HitRate]:
        return {name: profiled.hit_rate(geometry_of(cache, name)) for name, cache in self._caches.items()}

    def _beyond_traced(self, num_accesses: float, sdcm: Mapping[str, HitRate]) -> tuple[float, list[Note]]:
        """(seconds that accesses take longer than those of the largest traced input if none of it overlaps; notes on
        caches that the program outgrows). Raises ValueError as ``estimate``."""
        traced = self._traced_rates
        latency, _ = level_costs(self._machine.node)
        names = tuple(sdcm)
        least = served_shares(HitRates(names, tuple(rate.low for rate in sdcm.values())), "corrected")
        before = served_shares(HitRates(names, tuple(traced.values())), "corrected")
        notes = []
        for name in self._outgrown(sdcm):
            text = (
                f"{1 - sdcm[name].value:.1%} of the accesses miss {name}, of those of the largest traced input "
                f"{1 - traced[name]:.1%}: what that costs is that input's stream at the distances of this one"
            )
            notes.append(changes("cache-outgrown", text))
        return num_accesses * max(0.0, float((least - before) @ latency)) / PS_PER_SECOND, notes

    @cached_property
    def _traced_rates(self) -> dict[str, float]:
        """SDCM's of the largest traced input."""
        profile = self._runs[-1].profile
        return {name: hit_rate(profile, geometry_of(cache, name)) for name, cache in self._caches.items()}

    def _outgrown(self, sdcm: Mapping[str, HitRate]) -> list[str]:
        """Caches that miss more than they do at the largest traced input."""
        traced = self._traced_rates
        return [name for name, rate in sdcm.items() if traced[name] - rate.value > NOTED_SHARE]

    def _traced_profile(self) -> ReuseProfile:
        """Of the largest traced input, by what a site is called in extrapolated profiles."""
        profile = self._runs[-1].profile
        return profile if self._recipe.by_site else profile.relabelled(self._label())

    def _label(self) -> np.ndarray:
        """int64[sites]: what a site is called in extrapolated profiles."""
        sites = self._training.sites
        return np.arange(len(sites)) if self._recipe.by_site else sites.block.astype(np.int64)

    def _cost_unit(self, size: int | None, moved: outgrown.Outgrown | None) -> WorkUnit:
        stream, _ = self._streams.traced[-1]
        content = self._training.content
        return outgrown.unit_of(
            len(self._streams.traced) - 1, size, moved, content, self._machine, self._node, stream.num_accesses,
            steady=self._steady,
        )  # fmt: skip

    def _amm_times(
        self,
        counts: ProgramCounts,
        ends: tuple[ProgramCounts, ...],
        sdcm: Mapping[str, HitRate],
        set_aware: HitRates | None,
        beyond: simulated.Beyond,
    ) -> dict[str, Time]:
        """By both forms of AMM: as printed from SDCM's hit rates, without translation and prefetching, and corrected
        from the best there are, with both. Bands are those of the counts (``ends``: the fewest and the most) and
        SDCM's, where its rates are used."""
        found = {}
        for form in FORMS:
            parameters = replace(self._amm, form="printed" if form == "printed" else "corrected")
            exact, page_rates = None, None
            if form == "corrected":
                parameters = replace(parameters, stream_ratio=self._amm.stream_ratio or beyond.stream_ratio)
                exact, page_rates = set_aware, beyond.page_rates
            value, low, high = (
                estimate(
                    each.bytes_accessed, each.num_accesses, each.instructions_by_class(), rates, self._machine.node,
                    parameters, page_rates,
                )
                for each, rates in zip((counts, *ends), _ends(sdcm) if exact is None else [exact] * 3, strict=True)
            )  # fmt: skip
            found[form] = Time(
                value.seconds,
                {name: time * 1e-12 for name, time in value.parts},
                min(low.seconds, value.seconds, high.seconds) if exact is None else None,
                max(low.seconds, value.seconds, high.seconds) if exact is None else None,
            )
        return found

    def _scaled(
        self,
        size: int,
        num_instructions: float,
        instructions_band: tuple[float, float],
        added: float,
        traced: Sequence[StreamAnswer],
        cost: np.ndarray | None,
    ) -> Time:
        """From the traced inputs' seconds per instruction, by cause, extrapolated in 1/x, which tends to a limit, and
        ``cost`` as in ``_prediction``. ``added``: seconds that may be added to those of caches which no traced input
        left, if nothing overlaps."""
        times = [_own_time(each) for each in traced]
        inputs = np.array([run.input_size for run in self._runs])
        numbers = np.array([each.num_instructions for each in traced], np.float64)
        values = np.array([list(time.parts.values()) for time in times]) / numbers[:, np.newaxis]
        at = np.maximum(fit_laws(1 / inputs, values, 1).at(1 / size).value, 0)
        if cost is not None:
            at = np.maximum(at + cost, 0)
        band = fit_laws(1 / inputs, values.sum(axis=1)[:, np.newaxis], 1).at(1 / size)
        parts = dict(zip(times[0].parts, (at * num_instructions).tolist(), strict=True))
        seconds = sum(parts.values())
        low, high = (float(end[0]) * each for end, each in zip((band.low, band.high), instructions_band, strict=True))
        return Time(seconds, parts, min(seconds, max(low, 0)), max(seconds, high) + added)


def _own_time(own: StreamAnswer) -> Time:
    """Raises ValueError where there is none."""
    if own.parts is None:
        raise ValueError(own.problem)
    return Time(sum(own.parts.values()), own.parts)


def _ends(sdcm: Mapping[str, HitRate]) -> list[HitRates]:
    """The hit rates, and those at the upper end of their bands, which go with the fewest accesses, and the lower."""
    return [
        HitRates(tuple(sdcm), tuple(getattr(rate, end) for rate in sdcm.values())) for end in ("value", "high", "low")
    ]


def nest_of(training: TrainingSet) -> tuple[NestProgram | None, str]:
    """The program as loop nests, or why it is none."""
    recorded = []
    for run in training.runs:
        if run.stream.num_accesses > MOST_RECORDED:
            continue
        parts = list(numbered(run.stream, run.block_number))
        block_ids, addresses = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        recorded.append((run.size, block_ids, addresses))
    try:
        return recognise(recorded, training.sites), ""
    except NotAffineError as error:
        return None, str(error)
