"""What ``manyscale predict`` and ``manyscale profile`` find of memory traces."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from manyscale.models.machine import Machine
from manyscale.models.machine.hardware_threads import of_one_thread
from manyscale.models.memory.amm.amm import AmmParameters
from manyscale.models.memory.amm.block_probabilities import count_transitions
from manyscale.models.workload.notes import in_order
from manyscale.models.workload.quantities import parse_bytes
from manyscale.runner.errors import UserError
from manyscale.runner.plain_files import refuse_special
from manyscale.runner.predict.memory import profile_units, sampled, simulated
from manyscale.runner.predict.memory.given_transitions import GivenTransitions
from manyscale.runner.predict.memory.hit_rates import caches_of, line_bytes, prefetch_notes, thread_notes
from manyscale.runner.predict.memory.predict_result import RECIPES, PredictResult
from manyscale.runner.predict.memory.prediction import Predictor
from manyscale.runner.predict.memory.profile_result import ProfileResult
from manyscale.runner.predict.memory.streams import Stream, streams_of
from manyscale.runner.predict.memory.together import concurrent_profile
from manyscale.runner.predict.memory.training import read_training, training_runs
from manyscale.runner.run.execute.execution import Workers
from manyscale.runner.study import WorkloadChoice
from manyscale.runner.study.targets import target_named
from manyscale.runner.study.traces import read_workload

GRANULARITIES: Final = {"byte": 1, "word": 8}


def predict(
    inputs: Sequence[tuple[int, str]],
    sizes: Sequence[int],
    target: str | Mapping[str, Any] = "xeon-e5-2695",
    *,
    form: str = "auto",
    recipe: str = "operands",
    steady: bool = False,
    amm: AmmParameters | None = None,
    measured: Mapping[int, float] | None = None,
    transitions: GivenTransitions | None = None,
    workers: Workers | None = None,
) -> PredictResult:
    """Of the program behind ``inputs``, (size, path of a trace in format ``form``) pairs, at ``sizes`` on a target.

    ``recipe``: how profiles are extrapolated, a name of RECIPES; ``steady``: as if the same had run just before;
    ``measured``: seconds by size, to compare with; ``transitions``: probabilities of what follows a block. Raises
    UserError, RunError if a work unit fails.
    """
    workers = workers or Workers()
    machine, content = target_named(target)
    machine = machine.model_copy(update={"node": of_one_thread(machine.node)})
    training = read_training(inputs, form, workers.folder, workers.progress)
    if transitions is not None:
        transitions.check(training.sites.num_blocks)
    with workers.execution() as execution:
        runs = training_runs(training, line_bytes(machine), execution, steady=steady)
        workers.progress(0, 0, "finding loops")
        predictor = Predictor(
            training, runs, machine, content["node"], RECIPES[recipe], steady=steady, amm=amm or AmmParameters(),
            transitions=transitions,
        )  # fmt: skip
        predictions = predictor.at(sizes, execution)
    name = training.runs[-1].workload.name
    return PredictResult(
        name, machine, caches_of(machine), training, runs, predictions, measured or {}, recipe, steady
    )  # fmt: skip


def read_measured(path: Path) -> dict[int, float]:
    """Seconds by size, from a CSV file with the columns ``size`` and ``seconds``. Raises UserError."""
    found: dict[int, float] = {}
    try:
        with refuse_special(path).open(newline="") as file:
            rows = csv.DictReader(file)
            for row in rows:
                size, seconds = _measured_row(row, f"{path}, line {rows.line_num}")
                if size in found:
                    raise UserError(f"{path}, line {rows.line_num}: a second row of size {size}; give each size once")
                found[size] = seconds
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
    if not found:
        raise UserError(f"{path}: holds no row; write the columns size and seconds")
    return found


def _measured_row(row: Mapping[str, str | None], place: str) -> tuple[int, float]:
    try:
        size, seconds = int(row["size"] or ""), float(row["seconds"] or "")
    except (KeyError, ValueError):
        raise UserError(f"{place}: needs the columns size and seconds, with numbers") from None
    if not (size > 0 and 0 < seconds < float("inf")):
        raise UserError(f"{place}: give sizes and seconds above zero")
    return size, seconds


def profile(
    trace: str,
    target: str | Mapping[str, Any] = "laptop",
    *,
    form: str = "auto",
    granularity: str = "line",
    steady: bool = False,
    sampling: str = "exact",
    rate: str = "1 %",
    simulate: str | None = None,
    prefetch: bool = False,
    together: bool = False,
    frames: Literal["virtual", "random"] = "virtual",
    rank: int | None = None,
    thread: int | None = None,
    seed: int = 0,
    workers: Workers | None = None,
) -> ProfileResult:
    """Of a trace in format ``form``, or one ``rank`` or ``thread`` of it, on a target. Raises UserError.

    ``granularity``: byte, word, line (the machine's) or a size; ``steady``: as if the same had run just before;
    ``sampling`` "exact", or a method of ``sampled.METHODS`` with its ``rate``; ``simulate``: the share of the sets to
    simulate the caches with, None for none, where ``prefetch`` and ``frames`` say how; ``together``: threads share
    caches.
    """
    workers = workers or Workers()
    workers.progress(0, 0, "reading")
    workload = read_workload(WorkloadChoice(path=trace, format=form), workers.folder)
    machine, _ = target_named(target)
    machine = machine.model_copy(update={"node": of_one_thread(machine.node)})
    all_streams, sites = streams_of(workload, trace)
    streams = _chosen(all_streams, rank, thread, trace)
    unit = granularity_bytes(granularity, machine)
    caches = caches_of(machine) if unit > max(GRANULARITIES.values()) else {}
    if caches and line_bytes(machine) != unit:
        raise UserError(
            f"--granularity {unit} B: {machine.name} has lines of {line_bytes(machine)} B; leave the option out"
        )
    if (simulate or together) and not caches:
        raise UserError("--simulate and --together need the caches' lines; leave --granularity out")
    notes = thread_notes(machine) if caches else []
    if sampling == "exact":
        with workers.execution(sum(stream.num_accesses for stream in streams)) as execution:
            found = profile_units.profiles(streams, sites, unit, execution, steady=steady)
        method = "exact"
    else:
        share = sampled.parse_rate(rate)
        found, told = sampled.profiles(streams, sites, unit, sampling, share, seed)
        notes += told
        method = f"{sampling}, {rate}"
    concurrent = {
        name: concurrent_profile(streams, sites, unit, level.shared_by_cores, steady=steady)
        for name, level in (caches.items() if together else ())
        if level.shared_by_cores > 1
    }
    transitions = count_transitions(workload, np.any([stream.is_mine for stream in streams], axis=0))
    hits = None
    if simulate:
        notes += prefetch_notes(machine, machine.name) if prefetch else []
        hits = simulated.of_streams(
            streams, sites, caches, share=sampled.parse_rate(simulate, "--simulate"), together=together, steady=steady,
            frames=frames, prefetches=prefetch, seed=seed,
        )  # fmt: skip
    return ProfileResult(
        trace, workload, machine, streams, sites, found, unit, method, steady, transitions, caches, concurrent, hits,
        in_order([*notes, *workload.notes]),
    )  # fmt: skip


def _chosen(streams: list[Stream], rank: int | None, thread: int | None, trace: str) -> list[Stream]:
    kept = [stream for stream in streams if rank in (None, stream.rank) and thread in (None, stream.thread)]
    if not kept:
        known = ", ".join(stream.name for stream in streams[:8]) + (", ..." if len(streams) > 8 else "")
        raise UserError(f"{trace}: --rank and --thread leave nothing; it holds {known}")
    return kept


def granularity_bytes(text: str, machine: Machine) -> int:
    """Bytes of ``byte``, ``word``, ``line`` (the machine's) or a size. Raises UserError."""
    if text in GRANULARITIES:
        return GRANULARITIES[text]
    if text == "line":
        return line_bytes(machine)
    try:
        size = parse_bytes(text)
    except ValueError as error:
        raise UserError(f"--granularity: {error}; or write byte, word or line") from None
    if size < 1 or size & (size - 1) or size > 1 << 30:
        raise UserError(f"--granularity {text}: is not a power of two up to 1 GiB")
    return size
