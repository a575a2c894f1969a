"""Memory of a program: ``profile``, its stack distances and hit rates; ``predict``, at inputs that never ran."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from manyscale.models.spelling import hint
from manyscale.models.workload.notes import Note
from manyscale.runner import shipped
from manyscale.runner.api.answer import Answer, kept
from manyscale.runner.api.folders import Folder, Output
from manyscale.runner.api.frames import statistics_table
from manyscale.runner.api.inputs import TargetLike, TraceLike, required_target
from manyscale.runner.api.progress import Progress, watched
from manyscale.runner.api.studies import check_executor
from manyscale.runner.errors import UserError, WrongKeyError
from manyscale.runner.notes import admit
from manyscale.runner.predict.memory import predict_result, profile_result
from manyscale.runner.report.text import duration, percent
from manyscale.runner.run.execute.execution import Workers
from manyscale.runner.run.questions import memory
from manyscale.runner.storage.address import located_or_none

if TYPE_CHECKING:
    import pyarrow as pa

    from manyscale.models.memory.amm.amm import AmmParameters
    from manyscale.runner.run.questions.interval_profile import IntervalProfile
    from manyscale.runner.run.questions.sampled_intervals import SampledIntervals

_PathLike = str | PathLike[str]
_OF_DISTANCES: Final[dict[str, object]] = {  # arguments that intervals have no use for, and their defaults
    "granularity": "line", "sampling": "exact", "simulate": None, "prefetch": False, "together": False,
    "frames": "virtual", "thread": None,
}  # fmt: skip
_OF_SIMULATED: Final[dict[str, object]] = {"target": None, "cores": None, "rank": None, "steady": False}


@dataclass(frozen=True, repr=False, eq=False)
class ProfileResult(Answer):
    """Stack distances of a trace, and what a machine's caches make of them (``found``, with the arrays). Tables:
    ``statistics``, ``profile``, ``blocks``, ``miss_ratio_curve``, ``hit_rates``, ``transitions``."""

    found: profile_result.ProfileResult
    seed: int = 0
    report: bool = True
    folder: Folder | None = None

    @property
    def notes(self) -> Sequence[Note]:  # type: ignore[override]
        return self.found.notes

    @property
    def title(self) -> str:
        return f"memory of {self.found.workload.name} on {self.found.machine.name}"

    def facts(self) -> Mapping[str, str]:
        found = {"accesses": f"{self.figures['memory.accesses']:,.0f}"}
        for model, rates in profile_result.models(self.found).items():
            hits = (f"{level} {percent(rate)}" for level, rate in zip(self.found.caches, rates.whole, strict=True))
            found[f"hits, {model}"] = ", ".join(hits)
        return found

    @property
    def figures(self) -> Mapping[str, Any]:
        """The values of the statistics by name."""
        return {name: each.value for name, each in profile_result.statistics(self.found).items()}

    def _makers(self) -> Mapping[str, Callable[[], pa.Table]]:
        made = self.found
        return {
            "statistics": lambda: statistics_table(profile_result.statistics(made)),
            "profile": lambda: profile_result.profile_table(made),
            "blocks": lambda: profile_result.blocks_table(made),
            "miss_ratio_curve": lambda: profile_result.curve_table(made),
            "hit_rates": lambda: profile_result.hit_rates_table(made),
            "transitions": lambda: profile_result.transitions_table(made),
        }

    def _chart(self) -> Mapping[str, Any]:
        from manyscale.runner.report.figures.memory import profile

        return profile(self.found)

    def summary(self) -> str:
        """Lines to read, as the command prints them."""
        from manyscale.runner.report import profile_page

        return "\n".join(profile_page.summary(self.found))

    def _write(self, directory: Path) -> None:
        from manyscale.runner.report import profile_page

        profile_page.write(self.found, directory, seed=self.seed, page=self.report)


@dataclass(frozen=True, repr=False, eq=False)
class IntervalsResult(Answer):
    """Intervals of a parallel program: of a trace on a target's cores, or of a native run by samples (``found``). Its
    files are basic-block vectors and a table of counters, as ``plan`` with method sbbv+ccv reads them."""

    found: IntervalProfile | SampledIntervals
    folder: Folder | None = None

    @property
    def notes(self) -> Sequence[Note]:  # type: ignore[override]
        return self.found.notes

    @property
    def title(self) -> str:
        return self.found.title

    def facts(self) -> Mapping[str, str]:
        found = {"intervals": f"{len(self.found.population)} of {self.found.interval:,} instructions"}
        cycles = self.figures.get("cycles")
        return found | ({"IPC": f"{self.figures['instructions'] / cycles:.3g}"} if cycles else {})

    @property
    def figures(self) -> Mapping[str, Any]:
        """Intervals, instructions and, where they are known, cycles in all."""
        found = self.found.population
        cycles = found.counters.get("cycles")
        totals = {"intervals": len(found), "instructions": float(found.instructions.sum())}
        return totals | ({} if cycles is None else {"cycles": float(cycles.sum())})

    def _makers(self) -> Mapping[str, Callable[[], pa.Table]]:
        return {"intervals": self._table}

    def _table(self) -> pa.Table:
        """A row per interval: its instructions on all threads, cycles and counters."""
        import numpy as np
        import pyarrow as pa

        found = self.found.population
        names = sorted(found.counters, key=lambda name: (name != "cycles", name))
        columns = {"interval": np.arange(len(found)), "instructions": found.instructions}
        return pa.table(columns | {name: found.counters[name] for name in names})

    def summary(self) -> str:
        """A line to read."""
        return self.found.summary()

    @property
    def file(self) -> Path | None:
        """The file of the vectors, None where none was written."""
        return None if self.directory is None else self.directory / f"{self.found.name}.bb"

    def _write(self, directory: Path) -> None:
        from manyscale.runner.run.questions.interval_profile import write_intervals

        write_intervals(self.found.population, self.found.num_blocks, directory, self.found.name)


@dataclass(frozen=True, repr=False, eq=False)
class PredictResult(Answer):
    """Hit rates and times of a program at inputs that never ran (``found``, with the profiles). Tables:
    ``predictions``, ``times``, ``blocks``, ``profile``, ``statistics``."""

    found: predict_result.PredictResult
    report: bool = True
    folder: Folder | None = None

    @property
    def notes(self) -> Sequence[Note]:  # type: ignore[override]
        return self.found.notes

    @property
    def title(self) -> str:
        sizes = ", ".join(str(each.size) for each in self.found.predictions)
        return f"{self.found.name} at {sizes} on {self.found.machine.name}"

    def facts(self) -> Mapping[str, str]:
        found = {}
        for each in self.found.predictions:
            rates = zip(self.found.caches, each.hit_rates.whole, strict=True)
            time = [] if each.time is None else [duration(each.time.seconds)]
            found[f"size {each.size}"] = ", ".join([*time, *(f"{level} {percent(rate)}" for level, rate in rates)])
        return found

    @property
    def figures(self) -> Mapping[str, Any]:
        """The values of the statistics by name."""
        return {name: each.value for name, each in predict_result.figures(self.found).items()}

    def _makers(self) -> Mapping[str, Callable[[], pa.Table]]:
        made = self.found
        return {
            "predictions": lambda: predict_result.predictions_table(made),
            "times": lambda: predict_result.times_table(made),
            "blocks": lambda: predict_result.blocks_table(made),
            "profile": lambda: predict_result.profiles_table(made),
            "statistics": lambda: statistics_table(predict_result.figures(made)),
        }

    def _chart(self) -> Mapping[str, Any]:
        from manyscale.runner.report.figures.prediction import predict

        return predict(self.found)

    def summary(self) -> str:
        """Lines to read, as the command prints them."""
        from manyscale.runner.report import predict_page

        return "\n".join(predict_page.summary(self.found))

    def _write(self, directory: Path) -> None:
        from manyscale.runner.report import predict_page

        predict_page.write(self.found, directory, page=self.report)


def profile(
    trace: TraceLike,
    output: Output = None,
    *,
    target: TargetLike | None = None,
    format: str = "auto",
    granularity: str = "line",
    steady: bool = False,
    sampling: str = "exact",
    rate: str = "1 %",
    simulate: str | None = None,
    prefetch: bool = False,
    together: bool = False,
    frames: Literal["virtual", "random"] = "virtual",
    interval: int | None = None,
    cores: int | None = None,
    rank: int | None = None,
    thread: int | None = None,
    seed: int | None = None,
    executor: str = "auto",
    address: str | None = None,
    workers: int | None = None,
    cache: _PathLike | None = None,
    report: bool = True,
    accept: Collection[str] = (),
    strict: bool = False,
    progress: Progress = False,
) -> ProfileResult | IntervalsResult:
    """Stack distances of a memory trace (path or shipped name), and hit rates of a target's caches.

    ``granularity``: byte, word, line or a size; ``steady``: as if the same had run just before; ``sampling``: how
    distances are found (exact, blocks, blocks-statstack, statstack, shards), with ``rate``, the share that is sampled;
    ``simulate``: the share of the sets that is simulated, too, such as "100 %", with ``prefetch`` and ``frames``
    (virtual, random); ``together``: threads run at the same time and share caches; one ``rank`` or ``thread`` only.

    With ``interval``, instead, the intervals of so many instructions of a traced parallel program on ``cores`` cores of
    the target (default: 4), or of a native run whose samples ``perf script`` printed. Raises UserError for bad input,
    RunError if a work unit fails.
    """
    if interval is None and cores is not None:
        raise UserError("--cores: are those that --interval simulates; name its instructions, too")
    check_executor(executor, workers, seed)
    given = locals()
    path = shipped.trace_path(fspath(trace))
    if interval is not None:
        for name, value in _OF_DISTANCES.items():
            if given[name] != value:
                raise UserError(f"--{name}: is of stack distances, which --interval does not measure; leave it out")
        from manyscale.runner.run.questions.sampled_intervals import is_sampled, sampled_intervals

        if is_sampled(path):
            for name, value in _OF_SIMULATED.items():
                if given[name] != value:
                    raise UserError(f"--{name}: is of traces that --interval simulates; {path} has samples of a run")
            sampled = sampled_intervals(path, interval)
            admit(sampled.notes, accept, strict=strict)
            return kept(IntervalsResult(sampled), output, f"{sampled.name}-intervals")
    machine = required_target(target)
    with watched(progress) as show:
        how = Workers(located_or_none(cache), executor, address, workers, show)
        if interval is not None:
            from manyscale.runner.run.questions.interval_profile import interval_profile

            intervals = interval_profile(
                path, interval, machine, cores=4 if cores is None else cores, form=format, rank=rank or 0,
                steady=steady, workers=how,
            )  # fmt: skip
            admit(intervals.notes, accept, strict=strict)
            return kept(IntervalsResult(intervals), output, f"{intervals.name}-intervals")
        found = memory.profile(
            path, machine, form=format, granularity=granularity, steady=steady, sampling=sampling, rate=rate,
            simulate=simulate, prefetch=prefetch, together=together, frames=frames, rank=rank, thread=thread,
            seed=seed or 0, workers=how,
        )  # fmt: skip
    admit(found.notes, accept, strict=strict)
    return kept(ProfileResult(found, seed or 0, report), output, f"{found.workload.name}-profile")


def predict(
    traces: str | Sequence[str] | Mapping[int, TraceLike],
    sizes: int | Sequence[int],
    output: Output = None,
    *,
    target: TargetLike | None = None,
    format: str = "auto",
    measured: _PathLike | Mapping[int, float] | None = None,
    steady: bool = False,
    recipe: Literal["operands", "paper"] = "operands",
    transitions: _PathLike | None = None,
    amm: Mapping[str, Any] | None = None,
    executor: str = "auto",
    address: str | None = None,
    workers: int | None = None,
    cache: _PathLike | None = None,
    report: bool = True,
    accept: Collection[str] = (),
    strict: bool = False,
    progress: Progress = False,
) -> PredictResult:
    """Hit rates and times of a program at input ``sizes`` that never ran.

    ``traces``: memory traces of the program at small inputs, by size; or "SIZE=TRACE" texts, or the name of shipped
    ones. ``measured``: seconds by size, or a CSV file of them, to compare with; ``steady``: as if the same had run just
    before; ``recipe``: how profiles are extrapolated, per operand or as AMM was published; ``transitions``: a CSV file
    of probabilities that a block follows another (size, source, target, probability); ``amm``: its parameters.
    Raises UserError for bad input, RunError if a work unit fails.
    """
    from manyscale.runner.predict.memory.given_transitions import read_transitions
    from manyscale.runner.predict.memory.training import parse_inputs

    if isinstance(traces, Mapping):
        inputs = parse_inputs([f"{size}={fspath(path)}" for size, path in traces.items()])
    else:
        inputs = parse_inputs([traces] if isinstance(traces, str) else list(traces))
    wanted = [sizes] if isinstance(sizes, int) else list(sizes)
    if not wanted or any(size < 1 for size in wanted):
        raise UserError(f"--sizes {','.join(map(str, wanted))}: write whole numbers above zero, such as 100,200,400")
    parameters = amm_parameters(amm or {})
    known = measured if isinstance(measured, Mapping) or measured is None else memory.read_measured(Path(measured))
    check_executor(executor, workers)
    machine = required_target(target)
    with watched(progress) as show:
        found = memory.predict(
            inputs, sorted({*wanted}), machine, form=format, recipe=recipe, steady=steady, amm=parameters,
            measured=known or {}, transitions=None if transitions is None else read_transitions(Path(transitions)),
            workers=Workers(located_or_none(cache), executor, address, workers, show),
        )  # fmt: skip
    admit(found.notes, accept, strict=strict)
    return kept(PredictResult(found, report), output, f"{found.name}-predict")


def amm_parameters(given: Mapping[str, Any]) -> AmmParameters:
    """AMM's parameters by name. Raises UserError."""
    from manyscale.models.memory.amm.amm import AmmParameters

    known = [field.name for field in fields(AmmParameters) if field.name not in ("form", "shares")]
    unknown = [key for key in given if key not in known]
    if unknown:
        raise WrongKeyError("", f"amm.{unknown[0]}", f"unknown parameter; {hint(unknown[0], known)}")
    try:
        for key, value in given.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if key not in ("bound", "operations") and not is_number:
                raise ValueError(f"{key}: {value!r} is no number")
        return AmmParameters(**given)
    except ValueError as error:
        key, _, problem = str(error).partition(": ")
        raise WrongKeyError("", f"amm.{key}", problem) from None
