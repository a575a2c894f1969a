"""Predicted launches against those that a profiler measured on hardware.

Launches are those of a run (``timeline/launches.parquet``); what was measured is a table of nvprof or Nsight Compute,
or one of ``launch_id`` and ``cycles``. A launch's partner is the one of as many before it with the same function, grid
and block, as far as the file tells these. What stays without a partner on either side is counted by name.

Cycles are compared with those that the run reports, launch latency included, as Accel-Sim's correlations do; the error
without it is told beside it, since a profiler's cycles hold only a part of what a launch takes. Where the file has
times alone, times are compared.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from manyscale.models.workload.columns import to_numpy
from manyscale.models.workload.notes import Note, informs
from manyscale.models.workload.quantities import parse_frequency_hz
from manyscale.runner.errors import UserError
from manyscale.runner.kernel_names import function_name
from manyscale.runner.predict.gpu.cycles_table import cycles_table
from manyscale.runner.readers.launch_counters import measured
from manyscale.runner.run import directory as rundir
from manyscale.runner.run.sweeps import point_files

SCHEMA: Final = pa.schema(
    [
        pa.field("workload", pa.string(), nullable=False),  # the run
        pa.field("method", pa.string(), nullable=False),  # the model
        pa.field("kernel", pa.string(), nullable=False),  # the function
        pa.field("launch_id", pa.int32(), nullable=False),  # of the run
        pa.field("line", pa.int64(), nullable=False),  # of the file, where its partner stands; or its row
        pa.field("predicted", pa.float64(), nullable=False),  # cycles or s, launch latency included
        pa.field("predicted_inside", pa.float64(), nullable=False),  # the same without launch latency
        pa.field("measured", pa.float64(), nullable=False),  # cycles or s
        pa.field("unit", pa.string(), nullable=False),  # cycles or s
        pa.field("error", pa.float64(), nullable=False),  # predicted / measured - 1
    ]
)
KERNELS_SCHEMA: Final = pa.schema(
    [
        pa.field("workload", pa.string(), nullable=False),  # the run
        pa.field("kernel", pa.string(), nullable=False),  # the function
        pa.field("launches", pa.int64(), nullable=False),  # that have a partner
        pa.field("predicted", pa.float64(), nullable=False),  # of all of these
        pa.field("measured", pa.float64(), nullable=False),  # of all of these
        pa.field("unit", pa.string(), nullable=False),  # cycles or s
        pa.field("error", pa.float64(), nullable=False),  # of the sums
        pa.field("mean_absolute_error", pa.float64(), nullable=False),  # of launches
    ]
)
_MOST_NAMED: Final = 3  # kernels that a note names
_CLOCK: Final = 0.05  # a relative difference of clocks that is worth a note
_CAST: Final = re.compile(r"\((?:unsigned |signed )?(?:bool|char|short|int|long|long long|unsigned)\)(?=-?\d)")
_SUFFIX: Final = re.compile(r"(?<=\d)(?:u|l|ul|ull|ll)\b")


@dataclass(frozen=True)
class Launch:
    """What partners are found by: ``function`` as ``comparable`` gives it; ``shape``: of grid and block, () where it is
    not known."""

    function: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Comparison:
    """``launches`` follow SCHEMA, ``kernels`` KERNELS_SCHEMA; ``figures`` by name: mean_absolute_error and so on, of
    all launches."""

    launches: pa.Table
    kernels: pa.Table
    figures: Mapping[str, float]
    notes: Sequence[Note]


def comparable(name: str) -> str:
    """A kernel's function as demanglers and profilers all write it: ``k<float, 4, true>`` and ``k<float, (int)4,
    (bool)1>`` are the same."""
    text = function_name(name).replace("<unnamed>", "(anonymous namespace)")
    text = _SUFFIX.sub("", _CAST.sub("", text))
    text = re.sub(r"\btrue\b", "1", re.sub(r"\bfalse\b", "0", text))
    return re.sub(r"\s+", "", text)


def without_arguments(function: str) -> str:
    """The function without the arguments of its template."""
    return function.partition("<")[0] if not function.startswith(("<", "operator")) else function


def partners(predicted: Sequence[Launch], other: Sequence[Launch]) -> list[tuple[int, int]]:
    """Places of those that belong together: first by function, shape and order, then, of functions that have no partner
    at all, without arguments of templates, which some profilers leave out."""
    found = _matched(predicted, other, lambda each: each.function)
    known = {predicted[one].function for one, _ in found} | {other[two].function for _, two in found}
    left = [[place for place, each in enumerate(side) if each.function not in known] for side in (predicted, other)]
    names = [{side[place].function for place in places} for side, places in zip((predicted, other), left, strict=True)]
    plain = [{without_arguments(name) for name in each} for each in names]
    if all(len(each) == len(short) for each, short in zip(names, plain, strict=True)):  # it stays clear which is which
        again = _matched(
            [predicted[place] for place in left[0]], [other[place] for place in left[1]],
            lambda each: without_arguments(each.function),
        )  # fmt: skip
        found += [(left[0][one], left[1][two]) for one, two in again]
    return sorted(found)


def _matched(predicted: Sequence[Launch], other: Sequence[Launch], name: Any) -> list[tuple[int, int]]:
    """In order among those of one name and shape."""
    has_shape = all(each.shape for each in (*predicted, *other))
    groups: list[dict[Hashable, list[int]]] = []
    for side in (predicted, other):
        groups.append(defaultdict(list))
        for place, each in enumerate(side):
            groups[-1][name(each), each.shape if has_shape else ()].append(place)
    return [pair for key, places in groups[0].items() for pair in zip(places, groups[1].get(key, []), strict=False)]


def compare(runs: Sequence[Path], file: Path) -> Comparison:
    """Launches of run directories against those in ``file``. Raises UserError for runs without launches, for a file
    that tells no times of launches, and where nothing fits together."""
    tables, kernels = [], []
    notes: list[Note] = []
    for run in runs:
        found, own = _of_run(run, file)
        own += rundir.read_notes(point_files.opened(run))
        tables.append(found)
        kernels.append(_by_kernel(found))
        notes += [note for note in own if note not in notes]
    launches = pa.concat_tables(tables)
    return Comparison(launches, pa.concat_tables(kernels), figures_of(launches), notes)


def _of_run(run: Path, file: Path) -> tuple[pa.Table, list[Note]]:
    launches = _launches_of(run)
    sms, hz = _sms_and_clock_of(run)
    if measured.can_read(file):
        return _against_profile(run, launches, measured.read(file), sms, hz)
    given, cycles = cycles_table(file)
    row_of = {round(number): row for row, number in enumerate(given.tolist())}
    ids = launches.column("launch_id").to_pylist()
    pairs = [(place, row_of[each]) for place, each in enumerate(ids) if each in row_of]
    if not pairs:
        raise UserError(f"{file}: has no cycles of any launch of {run}; launch_id are those of its launches.parquet")
    notes = []
    if left := len(ids) - len(pairs):
        notes.append(informs("launches-unmeasured", f"{left} of {len(ids)} launches have no row in {file.name}"))
    return _rows(run, launches, pairs, np.arange(1, len(given) + 1), cycles, "cycles", hz), notes


def _launches_of(run: Path) -> pa.Table:
    name = Path("timeline", "launches.parquet")
    path = point_files.finished_run(run) / name
    if not path.is_file():
        raise UserError(f"{run}: has no kernel launches, which --cycles are compared with")
    try:
        return pq.ParquetFile(path).read()
    except (OSError, pa.ArrowException) as error:
        raise UserError(
            f"{run / name}: is damaged ({' '.join(str(error).split())}); run again with --resume -o DIR"
        ) from None


def _sms_and_clock_of(run: Path) -> tuple[int, float]:
    """Of the GPU of the run's target: how many SMs, and Hz. Launches that overlap, or wait for their GPU, take longer
    than their cycles, so that these do not tell the clock."""
    gpu = rundir.read_resolved(point_files.opened(run))["target"]["node"]["gpu"]
    return int(gpu["sms"]), parse_frequency_hz(gpu["frequency"])


def _against_profile(
    run: Path, launches: pa.Table, known: measured.Measured, sms: int, hz: float
) -> tuple[pa.Table, list[Note]]:
    mine, theirs = _of_predicted(launches), _of_measured(known)
    pairs = partners(mine, theirs)
    if not pairs:
        names = ", ".join(sorted({each.function for each in theirs})[:_MOST_NAMED])
        own = ", ".join(sorted({each.function for each in mine})[:_MOST_NAMED])
        raise UserError(f"{known.path}: has no launch of {run}: kernels there are {names}; those of the run {own}")
    notes = list(known.notes)
    for side, taken, what in (
        (mine, {one for one, _ in pairs}, "predicted launches have no measured one"),
        (theirs, {two for _, two in pairs}, "measured launches have no predicted one"),
    ):
        left = [each.function for place, each in enumerate(side) if place not in taken]
        if left:
            notes.append(informs("launches-unmeasured", f"{len(left)} of {len(side)} {what}: {_counted(left)}"))
    values, unit = known.cycles, "cycles"
    if values is not None and known.cycles_are_summed:
        values = values / sms
        notes.append(informs("cycles-summed", f"elapsed_cycles_sm are divided by the target's {sms} SMs"))
    if values is None:
        values, unit = known.duration_s, "s"
    assert values is not None
    if known.cycles is not None and known.duration_s is not None and not known.cycles_are_summed:
        clock = float(np.median(known.cycles / np.maximum(known.duration_s, 1e-12)))
        if abs(clock / hz - 1) > _CLOCK:
            text = f"measured at {clock / 1e6:,.0f} MHz, predicted at {hz / 1e6:,.0f} MHz: cycles of DRAM differ"
            notes.append(informs("clock-differs", text))
    return _rows(run, launches, pairs, known.line, values, unit, hz), notes


def _of_predicted(launches: pa.Table) -> list[Launch]:
    names = launches.column("kernel_name").to_pylist()
    columns = [f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz"]
    if not set(columns) <= set(launches.column_names):
        return [Launch(comparable(name), ()) for name in names]
    shapes = zip(*(launches.column(name).to_pylist() for name in columns), strict=True)
    return [Launch(comparable(name), tuple(shape)) for name, shape in zip(names, shapes, strict=True)]


def _of_measured(known: measured.Measured) -> list[Launch]:
    if known.grid is None or known.block is None:
        return [Launch(comparable(name), ()) for name in known.kernel_name]
    shapes = np.concatenate((known.grid, known.block), axis=1).tolist()
    return [Launch(comparable(name), tuple(shape)) for name, shape in zip(known.kernel_name, shapes, strict=True)]


def _counted(names: Sequence[str]) -> str:
    """``a (3), b (1) and 2 more kernels``."""
    count = {name: names.count(name) for name in dict.fromkeys(names)}
    most = sorted(count, key=lambda name: -count[name])
    text = ", ".join(f"{name} ({count[name]:,})" for name in most[:_MOST_NAMED])
    more = len(most) - _MOST_NAMED
    return f"{text} and {more} more kernel{'s' if more > 1 else ''}" if more > 0 else text


def _rows(
    run: Path, launches: pa.Table, pairs: Sequence[tuple[int, int]], line: np.ndarray, value: np.ndarray, unit: str,
    hz: float,
) -> pa.Table:  # fmt: skip
    rows = launches.take(pa.array([one for one, _ in pairs])).to_pylist()
    at = [two for _, two in pairs]
    scale = 1 / hz if unit == "s" else 1.0
    found = []
    for row, place in zip(rows, at, strict=True):
        taken = float(value[place])
        if not taken > 0:
            raise UserError(f"line {int(line[place])}: launch {row['launch_id']} took no time; every launch takes some")
        predicted = row["cycles"] * scale
        found.append(
            {
                "workload": run.name, "method": row["model"], "kernel": function_name(row["kernel_name"]),
                "launch_id": row["launch_id"], "line": int(line[place]), "predicted": predicted,
                "predicted_inside": (row["cycles"] - row["launch_latency_cycles"]) * scale, "measured": taken,
                "unit": unit, "error": predicted / taken - 1,
            }
        )  # fmt: skip
    return pa.Table.from_pylist(found, schema=SCHEMA)


def _by_kernel(launches: pa.Table) -> pa.Table:
    """Those that take longest first."""
    rows_of: dict[str, list[dict[str, Any]]] = {}
    for row in launches.to_pylist():
        rows_of.setdefault(row["kernel"], []).append(row)
    found = []
    for kernel, rows in rows_of.items():
        predicted, taken = (float(sum(row[name] for row in rows)) for name in ("predicted", "measured"))
        found.append(
            {
                "workload": rows[0]["workload"], "kernel": kernel, "launches": len(rows), "predicted": predicted,
                "measured": taken, "unit": rows[0]["unit"], "error": predicted / taken - 1,
                "mean_absolute_error": float(np.mean([abs(row["error"]) for row in rows])),
            }
        )  # fmt: skip
    return pa.Table.from_pylist(sorted(found, key=lambda row: -row["measured"]), schema=KERNELS_SCHEMA)


def figures_of(launches: pa.Table) -> dict[str, float]:
    """Of all launches: ``mean_absolute_error``, the same without launch latency, ``error`` of the sum,
    ``geometric_mean`` of predicted / measured, ``rank_correlation`` (Spearman; NaN of fewer than three launches)."""
    predicted, inside, taken = (
        to_numpy(launches.column(name)).astype(np.float64) for name in ("predicted", "predicted_inside", "measured")
    )
    positive = predicted > 0
    ratio = np.log(predicted[positive] / taken[positive])
    return {
        "launches": float(len(taken)),
        "mean_absolute_error": float(np.abs(predicted / taken - 1).mean()),
        "mean_absolute_error_without_latency": float(np.abs(inside / taken - 1).mean()),
        "error": float(predicted.sum() / taken.sum() - 1),
        "geometric_mean": float(np.exp(ratio.mean())) if len(ratio) else float("nan"),
        "rank_correlation": _rank_correlation(predicted, taken),
    }


def _rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    from scipy.stats import spearmanr

    if len(one) < 3 or not (np.ptp(one) and np.ptp(other)):
        return float("nan")
    return float(spearmanr(one, other).statistic)


def summary(found: Comparison) -> str:
    """To read: kernels, then all launches."""
    rows = found.kernels.to_pylist()
    lines = [f"{'kernel':<44} {'launches':>8} {'predicted':>14} {'measured':>14} {'error':>9} {'mean |error|':>13}"]
    for row in rows:
        name = row["kernel"] if len(row["kernel"]) <= 44 else row["kernel"][:43] + "…"
        one, other = (_shown(row[each], row["unit"]) for each in ("predicted", "measured"))
        lines.append(
            f"{name:<44} {row['launches']:>8,} {one:>14} {other:>14} {row['error']:>+9.1%} "
            f"{row['mean_absolute_error']:>13.1%}"
        )
    lines.append(told(found.figures))
    return "".join(f"{line}\n" for line in lines)


def told(figures: Mapping[str, float]) -> str:
    """All launches in one line."""
    rank = figures["rank_correlation"]
    count = int(figures["launches"])
    parts = [
        f"{count:,} launch{'es' if count > 1 else ''}: mean absolute error {figures['mean_absolute_error']:.1%} "
        f"({figures['mean_absolute_error_without_latency']:.1%} without launch latency)",
        f"all together {figures['error']:+.1%}",
        f"geometric mean of predicted / measured {figures['geometric_mean']:.3f}",
        *([] if np.isnan(rank) else [f"rank correlation {rank:.3f}"]),
    ]
    return ", ".join(parts)


def _shown(value: float, unit: str) -> str:
    return f"{value:,.0f}" if unit == "cycles" else f"{value:.6g} s"
