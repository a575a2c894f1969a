"""Where two runs differ: predicted ones, or a predicted and the measured one that was traced.

Traces of training steps tell when their steps were, and not when each operation: of these, steps alone are compared.
Both sides are brought to one form (Side): states of every rank over time, figures, and the workload, by which time is
ascribed to regions and calls. What a difference cannot be asked of (ranks one by one, if the numbers of ranks differ;
the k-th call, if the ranks do not call the same) is left out, and a note says so.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from manyscale.models.workload import Workload
from manyscale.models.workload.columns import to_numpy
from manyscale.models.workload.notes import Note, from_json, informs
from manyscale.runner.errors import UserError
from manyscale.runner.kernel_names import demangled, function_name
from manyscale.runner.run import directory as rundir
from manyscale.runner.run.critical_path import time_by_kind
from manyscale.runner.run.places import occurrence, places
from manyscale.runner.run.questions import measured_steps
from manyscale.runner.run.questions.efficiencies import of_trace
from manyscale.runner.run.questions.factors import NAMES, THREAD, with_threads
from manyscale.runner.run.results import RANKS_SCHEMA, STATES, ranks_table
from manyscale.runner.run.sweeps import point_files
from manyscale.runner.storage.address import shown
from manyscale.runner.study import WorkloadChoice
from manyscale.runner.study.traces import read_workload

MOST_VISITS: Final = 1_000  # those that differ most
TITLES: Final = {  # of the groups, in their order
    "figure": "whole run",
    measured_steps.GROUP: "by rank and step",
    "state": "by state (mean over ranks)",
    "critical path": "critical path, by kind",
    "gpu": "kernel launches",
    "kernel": "cycles by kernel, latencies included",
    "launch": "cycles by launch, latency included",
    "place": "by region and call (mean over ranks)",
    "visit": "by visit of a region or call (mean over ranks; #0 is the first)",
    "rank": "by rank and state",
}
SCHEMA: Final = pa.schema(
    [
        pa.field("group", pa.string(), nullable=False),
        pa.field("item", pa.string(), nullable=False),
        pa.field("a", pa.float64()),
        pa.field("b", pa.float64()),
        pa.field("difference", pa.float64()),
        pa.field("unit", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True)
class Side:
    """One of the runs. ``ranks`` follows RANKS_SCHEMA; ``figures`` are those of stats.json by name; ``workload`` is
    None if the trace is not there any more; ``path_ps``: the critical path by kind, or {}; ``launch_cycles``: of kernel
    launches by their names, or {}; ``steps``: (rank, step, start_ps, end_ps), None without steps. What was measured of
    steps alone has no ``ranks`` and no ``figures``."""

    name: str
    num_ranks: int
    ranks: pa.Table
    figures: Mapping[str, float]
    path_ps: Mapping[str, int]
    workload: Workload | None
    notes: tuple[Note, ...] = ()
    launch_cycles: Mapping[str, float] = field(default_factory=dict)
    steps: pa.Table | None = None

    @property
    def is_predicted(self) -> bool:
        return "application.ranks" in self.figures

    @property
    def has_steps_alone(self) -> bool:
        return not self.ranks.num_rows and self.steps is not None

    @property
    def is_of_gpu(self) -> bool:
        """Whether the run is nothing but a GPU's: one process that sends nothing."""
        return self.num_ranks == 1 and bool(self.launch_cycles) and not self.figures.get("application.messages")


def load(path: Path, form: str = "auto", cache: Path | None = None) -> Side:
    """A run directory, or a trace with measured times. Raises UserError."""
    return load_run(path, cache) if rundir.is_run(path) else load_trace(path, form, cache)


def load_run(directory: Path, cache: Path | None = None, *, with_workload: bool = True) -> Side:
    """A finished run, from its files; its trace is read again for the workload, unless that is not wanted. Raises
    UserError if it is not finished, damaged, or a sweep."""
    files = point_files.finished_run(directory)
    try:
        content = json.loads((files / "stats.json").read_text())
        figures = {name: float(entry["value"]) for name, entry in content.items()}
        told = from_json(json.dumps(content.get("notes", {}).get("list", [])))
        ranks = pq.read_table(files / "timeline" / "ranks.parquet", schema=RANKS_SCHEMA)
        path_file = files / "timeline" / "critical_path.parquet"
        path_ps = time_by_kind(_encoded(pq.read_table(path_file), "kind")) if path_file.is_file() else {}
        num_ranks = int(figures["application.ranks"])
        launch_file = files / "timeline" / "launches.parquet"
        launches = _by_launch(pq.read_table(launch_file)) if launch_file.is_file() else {}
        step_file = files / "timeline" / "steps.parquet"
        steps = pq.read_table(step_file) if step_file.is_file() else None
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{directory}: is damaged ({reason}); write it again with run --resume -o DIR") from None
    workload, notes = _workload_of(files, cache) if with_workload else (None, ())
    states = _encoded(ranks, "state")
    return Side(shown(directory), num_ranks, states, figures, path_ps, workload, (*told, *notes), launches, steps)


def _by_launch(launches: pa.Table) -> dict[str, float]:
    """Cycles of each execution of a launch, latency included."""
    found: dict[str, float] = {}
    again: Counter[int] = Counter()
    for row in launches.select(["launch_id", "kernel_name", "cycles"]).to_pylist():  # (older runs have no "kernel")
        again[row["launch_id"]] += 1
        time = f", time {again[row['launch_id']]}" if again[row["launch_id"]] > 1 else ""
        found[f"launch {row['launch_id']} of {function_name(row['kernel_name'])}{time}"] = float(row["cycles"])
    return found


def _encoded(table: pa.Table, name: str) -> pa.Table:
    """The table with a text column as codes into the names that its schema declares."""
    from manyscale.models.network.path_walk import KINDS

    known = pa.array(STATES if name == "state" else KINDS, pa.string())
    values = table.column(name).cast(pa.string()).combine_chunks()
    codes = pa.compute.index_in(values, known).cast(pa.int8())
    if codes.null_count:
        raise ValueError(f"column {name!r} holds an unknown value")
    place = table.schema.get_field_index(name)
    return table.set_column(place, name, pa.DictionaryArray.from_arrays(codes, known))


def _workload_of(directory: Path, cache: Path | None) -> tuple[Workload | None, tuple[Note, ...]]:
    try:
        content = rundir.read_resolved(directory)
        choice = WorkloadChoice.model_validate(content["workload"])
        workload = read_workload(choice, cache)
    except (UserError, ValueError, KeyError, TypeError) as error:
        text = f"regions and calls are not known: {' '.join(str(error).split())}"
        return None, (informs("not-compared", text),)
    known = rundir.read_manifest(directory).get("inputs", {})
    if workload.digest not in known.values():
        text = f"regions and calls are not known: {choice.path} was changed since the run"
        return None, (informs("not-compared", text),)
    return workload, ()


def load_trace(path: Path, form: str = "auto", cache: Path | None = None) -> Side:
    """The measured run behind a trace. Raises UserError if the trace has no measured times."""
    return _measured(str(path), read_workload(WorkloadChoice(path=str(path), format=form), cache))


def measured_of(run: Side) -> Side:
    """What was measured where the run's workload was traced. Raises UserError if that is not known, for a trace, and
    for a run of other ranks than were traced."""
    if run.workload is None:
        told = next((note.text for note in run.notes if note.code == "not-compared"), "its trace is not there any more")
        raise UserError(f"{run.name}: {told}; name what it is compared with")
    found = _measured(f"{run.workload.name}, measured", run.workload)
    if not run.is_predicted:
        raise UserError(f"{run.name}: is what was measured, and no run; name the run that is compared with it")
    if run.num_ranks != found.num_ranks:
        raise UserError(
            f"{run.name}: has {run.num_ranks} ranks, and its trace {found.num_ranks}; name what it is compared with"
        )
    return found


def _measured(name: str, workload: Workload) -> Side:
    steps = measured_steps.measured(workload)
    if not workload.is_measured:
        if steps is None:
            raise UserError(f"{name}: the trace does not say when its operations began and ended; compare runs instead")
        nothing = RANKS_SCHEMA.empty_table()
        return Side(name, workload.num_ranks, nothing, {}, {}, workload, workload.notes, steps=steps)
    start, end = workload.column("measured", "start_ps"), workload.column("measured", "end_ps")
    before = np.concatenate((np.zeros(1, np.int64), end[:-1]))
    offsets = workload.rank_offsets
    before[offsets[:-1][np.diff(offsets) > 0]] = 0
    ranks = ranks_table(workload, np.maximum(start - before, 0), end)
    pop = of_trace(Path(name), workload)
    sent = workload.column("operations", "bytes")[workload.send_rows]
    figures = {
        "application.makespan": pop.run_time_ps / 1e12,
        "application.messages": float(len(sent)),
        "application.bytes": float(sent.sum()),
    }
    figures |= {
        f"application.{name}": float(value) for name in NAMES if (value := getattr(pop, name, None)) is not None
    }
    return Side(name, workload.num_ranks, ranks, figures, {}, workload, workload.notes, steps=steps)


def compare(a: Side, b: Side) -> tuple[pa.Table, list[Note]]:
    """Table of SCHEMA, and notes on both sides and on what cannot be compared. Groups in order; rows of a group by
    absolute difference.

    Times of states, of places (regions and calls) and of the k-th visit of a place are means over ranks. Two runs that
    are nothing but a GPU's are compared by launches and kernels alone.
    """
    notes = _notes_of_both(a, b)
    steps: list[dict[str, Any]] = []
    if a.steps is not None and b.steps is not None and a.num_ranks == b.num_ranks:
        steps, told = measured_steps.compared(a.steps, b.steps)
        notes += told
    if a.has_steps_alone or b.has_steps_alone:
        if a.num_ranks != b.num_ranks:
            raise UserError(
                f"{a.name}: has {a.num_ranks} ranks, and {b.name} {b.num_ranks}: the steps of which ranks are the same "
                "is not known; compare a run of as many ranks"
            )
        if not steps:
            raise UserError(f"{a.name}: has no step of a rank that {b.name} has, too; compare a run of this trace")
        return pa.Table.from_pylist(steps, schema=SCHEMA), notes
    if a.is_of_gpu and b.is_of_gpu:
        rows = [each for each in _figures(a, b) if each["item"] == "makespan"]
        rows += _gpu_figures(a, b)
        rows += _group("kernel", _by_kernel(a), _by_kernel(b), "cycles")
        rows += _group("launch", a.launch_cycles, b.launch_cycles, "cycles")
        return pa.Table.from_pylist(rows, schema=SCHEMA), notes
    rows = [*_figures(a, b), *steps]
    rows += _group("state", _by_state(a), _by_state(b), "s")
    if a.path_ps and b.path_ps:
        one, other = ({kind: time / 1e12 for kind, time in side.path_ps.items()} for side in (a, b))
        rows += _group("critical path", one, other, "s")
    elif a.path_ps or b.path_ps:
        notes.append(informs("not-compared", "has no critical path", (b if a.path_ps else a).name))
    rows += _gpu_figures(a, b)
    if a.launch_cycles and b.launch_cycles:
        rows += _group("launch", a.launch_cycles, b.launch_cycles, "cycles")
    if a.workload is not None and b.workload is not None:
        rows += _group("place", _by_place(a, a.workload), _by_place(b, b.workload), "s")
        if same_calls(a.workload, b.workload):
            rows += _visits(a, a.workload, b, b.workload)
        else:
            text = "the ranks do not call the same operations: visits one by one cannot be compared"
            notes.append(informs("not-compared", text))
    if a.num_ranks == b.num_ranks:
        rows += _group("rank", _by_rank(a), _by_rank(b), "s")
    else:
        text = f"{a.num_ranks} and {b.num_ranks} ranks: rank by rank they cannot be compared"
        notes.append(informs("not-compared", text))
    return pa.Table.from_pylist(rows, schema=SCHEMA), notes


def _notes_of_both(a: Side, b: Side) -> list[Note]:
    """Those that both have, then those of one, with its name before where they are."""
    found = [note for note in a.notes if note in b.notes]
    for side in (a, b):
        own = (note for note in side.notes if note not in found)
        found += [replace(note, where=": ".join(filter(None, (side.name, note.where)))) for note in own]
    return found


def same_calls(a: Workload, b: Workload) -> bool:
    """Whether all ranks call the same operations in the same order, in regions of the same names."""
    return (
        np.array_equal(a.rank_offsets, b.rank_offsets)
        and np.array_equal(a.column("operations", "kind"), b.column("operations", "kind"))
        and a.tables["regions"].equals(b.tables["regions"])
    )


def _figures(a: Side, b: Side) -> Iterator[dict[str, Any]]:
    units = {"makespan": "s", "messages": "1", "bytes": "B"} | dict.fromkeys(NAMES, "1")
    known = [_with_threads(a, b), _with_threads(b, a)]
    for item, unit in units.items():
        one, other = (figures.get(item) for figures in known)
        if one is not None or other is not None:
            yield _row("figure", item, one, other, unit)


def _with_threads(side: Side, other: Side) -> dict[str, float]:
    """Figures of a side by name without ``application.``; of a predicted run of ranks with one core those of threads,
    too, if the other has them."""
    own = {name.removeprefix("application."): value for name, value in side.figures.items() if "." in name}
    is_predicted = side.is_predicted and side.figures.get("node.cores_per_rank", 1) == 1
    return with_threads(own) if is_predicted and f"application.{THREAD}" in other.figures else own


def _gpu_figures(a: Side, b: Side) -> Iterator[dict[str, Any]]:
    """What either side says of kernel launches."""
    for name in dict.fromkeys(name for name in (*a.figures, *b.figures) if name.startswith("gpu.")):
        item = name.removeprefix("gpu.")
        unit = {"time": "s", "cycles": "cycles", "launch_latency": "cycles"}.get(item, "1")
        yield _row("gpu", item, a.figures.get(name), b.figures.get(name), unit)


def _row(group: str, item: str, a: float | None, b: float | None, unit: str) -> dict[str, Any]:
    difference = None if a is None or b is None else b - a
    return {"group": group, "item": item, "a": a, "b": b, "difference": difference, "unit": unit}


def _by_kernel(side: Side) -> dict[str, float]:
    found: Counter[str] = Counter()
    for launch, cycles in side.launch_cycles.items():
        found[launch.partition(" of ")[2].partition(", time ")[0]] += cycles  # type: ignore[assignment]
    return dict(found)


def _group(group: str, a: Mapping[str, float], b: Mapping[str, float], unit: str) -> list[dict[str, Any]]:
    """Rows of all items of either side; one that a side lacks took no time there."""
    rows = [_row(group, item, a.get(item, 0.0), b.get(item, 0.0), unit) for item in {**a, **b}]
    return sorted(rows, key=lambda row: -abs(row["difference"]))


def _durations(side: Side) -> np.ndarray:
    return to_numpy(side.ranks.column("end_ps")) - to_numpy(side.ranks.column("start_ps"))


def _by_state(side: Side) -> dict[str, float]:
    total = np.bincount(to_numpy(side.ranks.column("state")), _durations(side), minlength=len(STATES))
    makespan = side.figures["application.makespan"]
    mean = {state: float(time) / side.num_ranks / 1e12 for state, time in zip(STATES, total, strict=True) if time}
    return mean | {"idle": makespan - sum(mean.values())}


def _by_rank(side: Side) -> dict[str, float]:
    """Time by rank and state."""
    rank, state = (to_numpy(side.ranks.column(name)).astype(np.int64) for name in ("rank", "state"))
    total = np.bincount(rank * len(STATES) + state, _durations(side), minlength=side.num_ranks * len(STATES))
    return {f"rank {i // len(STATES)}, {STATES[i % len(STATES)]}": total[i] / 1e12 for i in np.flatnonzero(total)}


def _placed(side: Side, workload: Workload) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    """Names of places; per state its place and its row of the operations."""
    found = places(workload)
    row = workload.rank_offsets[to_numpy(side.ranks.column("rank"))] + to_numpy(side.ranks.column("operation_id"))
    is_compute = to_numpy(side.ranks.column("state")) == STATES.index("compute")
    return tuple(map(demangled, found.names)), np.where(is_compute, found.compute[row], found.call[row]), row


def _by_place(side: Side, workload: Workload) -> dict[str, float]:
    names, place, _ = _placed(side, workload)
    total = np.bincount(place, _durations(side), minlength=len(names))
    return {names[i]: total[i] / side.num_ranks / 1e12 for i in np.flatnonzero(total)}


def _visits(a: Side, a_workload: Workload, b: Side, b_workload: Workload) -> list[dict[str, Any]]:
    """Rows of the MOST_VISITS visits that differ most. O(states + operations log operations)."""
    names, a_keys, a_times = _by_visit(a, a_workload)
    _, b_keys, b_times = _by_visit(b, b_workload)
    keys = np.union1d(a_keys, b_keys)
    times = np.zeros((2, len(keys)))
    times[0, np.searchsorted(keys, a_keys)] = a_times
    times[1, np.searchsorted(keys, b_keys)] = b_times
    chosen = np.argsort(-np.abs(times[1] - times[0]), kind="stable")[:MOST_VISITS]
    return [
        _row("visit", f"{names[key >> 32]} #{key & 0xFFFFFFFF}", one, other, "s")
        for key, one, other in zip(keys[chosen].tolist(), *times[:, chosen].tolist(), strict=True)
    ]


def _by_visit(side: Side, workload: Workload) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    """Names of places; (place << 32 | how often the rank was there before) of all visits, and their time in s."""
    found = places(workload)
    rank = workload.column("operations", "rank")
    names, place, row = _placed(side, workload)
    is_compute = to_numpy(side.ranks.column("state")) == STATES.index("compute")
    number = np.where(is_compute, occurrence(rank, found.compute)[row], occurrence(rank, found.call)[row])
    keys, inverse = np.unique(place.astype(np.int64) << 32 | number, return_inverse=True)
    total = np.bincount(inverse, _durations(side), minlength=len(keys))
    return names, keys, total / side.num_ranks / 1e12
