"""From call stacks, as the readers of profiles find them, to a workload's tables.

A profile becomes one compute phase and one ``other`` operation per rank, since it knows no communication. The phase
lasts as long as the CPU time of a rank's only thread; with several threads, as long as from the first sample to the
last, or, where their times cannot be compared, as their CPU times together (Python's threads take turns).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from manyscale.models.workload import (
    Workload,
)
from manyscale.models.workload.columns import text_array, to_arrow
from manyscale.models.workload.notes import changes, informs
from manyscale.models.workload.profile_tables import (
    FRAMES_SCHEMA,
    STACK_SAMPLES_SCHEMA,
    STACK_UNITS_SCHEMA,
    STACKS_SCHEMA,
    UNIT_COUNTERS_SCHEMA,
)
from manyscale.runner.errors import UserError
from manyscale.runner.readers import bounds
from manyscale.runner.readers.rank_tables import rank_tables
from manyscale.runner.readers.stacks.idle import executor_stacks, idle_stacks
from manyscale.runner.readers.stacks.profile import (
    CLOCKS,
    CPU_TIME,
    INSTRUCTIONS,
    SAMPLES,
    UNIT_LENGTH,
    Profile,
    main_event,
)
from manyscale.runner.readers.stacks.units import UnitRules, cut, lives, merge, number_threads, spread


def workload(profile: Profile, path: Path, name: str, num_ranks: int, rules: UnitRules, reader: str) -> Workload:
    """The workload of a profile. Raises UserError where no sample is left."""
    columns = profile.columns()
    if not len(columns["rank"]):
        raise UserError(f"{path}: has no samples of running threads; the program may have ended too soon")
    for each in ("count", "weight"):
        bounds.total(columns[each], path, f"the samples' {each}s")
    if profile.events == {SAMPLES: 0} and rules.period_ps is not None:
        if sum(columns["count"].tolist()) * rules.period_ps >= 2**63:
            raise UserError(
                f"{path}: lasts longer than {2**63} ps at {rules.period_ps} ps a sample; is the period right?"
            )
        profile.events = {CPU_TIME: 0}
        columns["count"] = columns["count"] * (rules.period_ps // 1000) // profile.scale
    columns = _at_work(profile, columns, path, rules)
    columns = _of_chosen_threads(profile, columns, path, rules)
    tables, phases = _units(profile, columns, rules)
    tables |= rank_tables(num_ranks, phases)
    return Workload(name, num_ranks, tables, tuple(profile.notes), reader)


def _at_work(profile: Profile, columns: dict[str, np.ndarray], path: Path, rules: UnitRules) -> dict[str, np.ndarray]:
    """The rows of snapshots in which a thread does not wait. Where it ran for certain, only the user's word counts."""
    stacks, frames = list(profile.stacks), list(profile.frames)
    idle = idle_stacks(stacks, frames, rules.idle)[columns["stack"]]
    if profile.on_cpu:
        by_user = idle_stacks(stacks, frames, rules.idle, own_only=True)
        idle[profile.on_cpu] = by_user[columns["stack"][profile.on_cpu]]
    lost = profile.num_idle + int(columns["weight"][idle].sum())
    if lost:
        text = f"{lost} samples of waiting threads are left out"
        profile.notes.append(informs("waiting-left-out", text, path.name, lost))
    if np.all(idle):
        raise UserError(f"{path}: in all its samples threads wait; is workload.idle ({rules.idle!r}) too wide?")
    return {key: values[~idle] for key, values in columns.items()}


def _of_chosen_threads(
    profile: Profile, columns: dict[str, np.ndarray], path: Path, rules: UnitRules
) -> dict[str, np.ndarray]:
    """The rows of threads whose names match, or that run the tasks of a framework."""
    pairs, row = np.unique(np.stack((columns["rank"], columns["thread"])), axis=1, return_inverse=True)
    row = row.reshape(-1)
    names = [profile.names.get((rank, thread), f"thread {thread}") for rank, thread in pairs.T.tolist()]
    framework = ""
    if rules.threads:
        pattern = re.compile(rules.threads)
        chosen = np.array([pattern.search(name) is not None for name in names])
        if not np.any(chosen):
            known = ", ".join(sorted(set(names))[:8]) or "none"
            raise UserError(f"{path}: no thread's name matches {rules.threads!r}; there are {known}")
    else:
        framework, runs = executor_stacks(list(profile.stacks), list(profile.frames))
        chosen = np.ones(len(names), np.bool_)
        if framework:
            chosen = np.bincount(row[runs[columns["stack"]]], minlength=len(names)) > 0
    if not np.all(chosen):
        count = np.bincount(row, columns["weight"], len(names)).astype(np.int64)
        left = sorted(np.flatnonzero(~chosen).tolist(), key=lambda one: (-count[one], names[one]))
        most = ", ".join(f"{names[one]} {count[one]}" for one in left[:3]) + (", ..." if len(left) > 3 else "")
        advice = f" that run no task of {framework}" if framework else ""
        keep = "; --set workload.threads=. keeps them" if framework else ""
        text = f"{count[left].sum()} samples of {len(left)} threads{advice} are left out ({most}){keep}"
        number = int(count[left].sum())
        profile.notes.append(
            changes("threads-left-out", text, path.name, number)
            if framework
            else informs("threads-not-chosen", text, path.name, number)
        )
    keep_row = chosen[row]
    return {key: values[keep_row] for key, values in columns.items()}


def _units(
    profile: Profile, columns: dict[str, np.ndarray], rules: UnitRules
) -> tuple[dict[str, pa.Table], dict[int, int]]:
    """The tables of units, samples and counters; and how long each rank computed (ps)."""
    event = main_event(list(profile.events))
    columns, names = _merged(profile, _with_snapshots(columns, profile.events[event]), rules)
    is_snapshot = columns["event"] == profile.events[event]
    snapshots = {key: values[is_snapshot] for key, values in columns.items()}
    others = {key: values[~is_snapshot] for key, values in columns.items()}
    strand = snapshots["rank"] << 32 | snapshots["thread"]
    cost, size = _sizes(profile, snapshots, event, rules)
    unit = cut(strand, cost, size) if profile.has_order else np.zeros(len(strand), np.int32)
    begins = np.flatnonzero(np.append(True, (np.diff(strand) != 0) | (np.diff(unit) != 0)))
    ends = np.append(begins[1:], len(strand)) - 1
    time_ps = (snapshots["time_ns"] - columns["time_ns"].min()) * 1000
    sums = np.add.reduceat(snapshots["count"], begins)
    unknown = np.full(len(begins), -1)
    cpu_ps = sums * 1000 if event in CLOCKS else unknown
    stack, tables = _used(profile, snapshots["stack"])
    key = [snapshots["rank"][begins], snapshots["thread"][begins], unit[begins].astype(np.int64)]
    units = [
        *(to_arrow(part.astype(np.int32)) for part in key),
        text_array([names[life] for life in snapshots["life"][begins].tolist()]),
        to_arrow(time_ps[begins]),
        to_arrow(time_ps[ends]),
        to_arrow(cpu_ps),
        to_arrow(sums if event == INSTRUCTIONS else unknown),
    ]
    rows = [
        to_arrow(snapshots["rank"].astype(np.int32)),
        to_arrow(snapshots["thread"].astype(np.int32)),
        to_arrow(unit),
        to_arrow(time_ps),
        to_arrow(stack),
        to_arrow(snapshots["weight"]),
    ]
    counters = _event_counters(profile, event, others, strand[begins], snapshots["time_ns"][ends])
    counters += _task_counters(profile, snapshots, begins, ends)
    tables["stack_units"] = pa.Table.from_arrays(units, schema=STACK_UNITS_SCHEMA)
    tables["stack_samples"] = pa.Table.from_arrays(rows, schema=STACK_SAMPLES_SCHEMA)
    tables["unit_counters"] = counter_table(key, counters)
    return tables, _phases(snapshots, begins, cpu_ps, time_ps, profile.has_common_clock)


def _merged(
    profile: Profile, columns: dict[str, np.ndarray], rules: UnitRules
) -> tuple[dict[str, np.ndarray], list[str]]:
    """The rows in the order of (rank, merged thread, time), with two more columns: ``life``, their thread before it was
    merged, an index into the second result, names of the merged threads; and ``system_thread``, its id."""
    found = lives(columns["rank"], columns["thread"], columns["cpu"], columns["time_ns"])
    into = np.arange(len(found.rank))
    if rules.merge and profile.has_common_clock:
        into = merge(found, profile.names)
        if np.any(into != np.arange(len(into))):
            text = (
                f"{len(into)} threads are merged into {len(np.unique(into))}: such as ran on one core, each after the "
                "end of the one before"
            )
            profile.notes.append(informs("threads-merged", text, count=len(into)))
    thread = number_threads(found, into)[found.row].astype(np.int64)
    order = np.lexsort((columns["time_ns"], thread, columns["rank"]))
    columns = columns | {"thread": thread, "life": found.row, "system_thread": columns["thread"]}
    names = [
        profile.names.get((rank, one), f"thread {one}")
        for rank, one in zip(found.rank[into].tolist(), found.thread[into].tolist(), strict=True)
    ]
    return {key: values[order] for key, values in columns.items()}, names


def _with_snapshots(columns: dict[str, np.ndarray], event: int) -> dict[str, np.ndarray]:
    """The rows of threads of which the event that takes snapshots has at least one."""
    pairs, row = np.unique(np.stack((columns["rank"], columns["thread"])), axis=1, return_inverse=True)
    row = row.reshape(-1)
    keep = (np.bincount(row[columns["event"] == event], minlength=pairs.shape[1]) > 0)[row]
    return {key: values[keep] for key, values in columns.items()}


def _sizes(profile: Profile, snapshots: dict[str, np.ndarray], event: str, rules: UnitRules) -> tuple[np.ndarray, int]:
    """What each row costs, and the size of a unit in the same measure."""
    if event == INSTRUCTIONS:
        cost, size = snapshots["count"], rules.instructions
    elif event in CLOCKS:
        cost, size = snapshots["count"] * 1000, rules.cpu_ps
    else:
        cost, size = snapshots["weight"], rules.snapshots
    if size is None:
        size = rules.snapshots * int(np.median(cost / np.maximum(snapshots["weight"], 1)))
    if rules.instructions is not None and event != INSTRUCTIONS:
        text = f"the profile counts {event}, no instructions: its units are not {rules.instructions} long"
        profile.notes.append(changes("unit-length-not-met", text))
    if rules.cpu_ps is not None and event not in CLOCKS:
        text = f"the profile counts {event}, no CPU time: its units are not {rules.cpu_ps} ps long"
        profile.notes.append(changes("unit-length-not-met", text))
    return cost, max(size, 1)


def _event_counters(
    profile: Profile, main: str, others: dict[str, np.ndarray], strand: np.ndarray, end_ns: np.ndarray
) -> list[tuple[str, np.ndarray]]:
    """Sums of the other events' samples over units: a sample closes the stretch that it stands for, so it belongs to
    the first unit that ends at or after it. O(n log n)."""
    result = []
    asked = others["rank"] << 32 | others["thread"]
    # behind equal samples stand the units, so that a unit which ends with a sample does not count as before it
    order = np.lexsort((np.append(others["time_ns"], end_ns), np.append(asked, strand)))
    num_before = np.empty(len(order), np.int64)
    num_before[order] = np.cumsum(order >= len(asked))
    last = np.searchsorted(strand, asked, side="right") - 1
    unit = np.minimum(num_before[: len(asked)], last)
    is_known = (last >= 0) & (strand[last] == asked)
    for name, code in profile.events.items():
        rows = is_known & (others["event"] == code)
        if name != main and np.any(rows):
            result.append((name, np.bincount(unit[rows], others["count"][rows], len(strand))))
    return result


def _task_counters(
    profile: Profile, snapshots: dict[str, np.ndarray], begins: np.ndarray, ends: np.ndarray
) -> list[tuple[str, np.ndarray]]:
    """What tasks measured, shared among the units of their thread by time; NaN for threads without tasks."""
    tasks = profile.tasks
    if tasks is None:
        return []
    pairs = np.unique(np.stack([snapshots[name] for name in ("rank", "system_thread", "thread")]), axis=1)
    merged = {profile.names.get((rank, one), ""): (rank, thread) for rank, one, thread in pairs.T.tolist()}
    owner = np.array([merged.get(name, (-1, -1)) for name in tasks.thread_names]).reshape(-1, 2)
    rank, thread = snapshots["rank"][begins], snapshots["thread"][begins]
    totals = np.full((len(tasks.counters), len(begins)), np.nan)
    for one, other in np.unique(owner[owner[:, 0] >= 0], axis=0).tolist():
        mine = (owner[:, 0] == one) & (owner[:, 1] == other)
        units = (rank == one) & (thread == other)
        start_ns, end_ns = snapshots["time_ns"][begins[units]], snapshots["time_ns"][ends[units]]
        for row, values in enumerate(tasks.values):
            totals[row, units] = spread(tasks.start_ns[mine], tasks.end_ns[mine], values[mine], start_ns, end_ns)
    num_lost = int(np.count_nonzero(owner[:, 0] < 0))
    if num_lost:
        text = f"{num_lost} tasks ran on threads without samples: left out"
        profile.notes.append(changes("tasks-left-out", text, count=num_lost))
    return list(zip(tasks.counters, totals, strict=True))


def _used(profile: Profile, stack: np.ndarray) -> tuple[np.ndarray, dict[str, pa.Table]]:
    """The snapshots' stacks renumbered (int32), and the tables of those that occur, in the order in which they were
    entered."""
    used, renumbered = np.unique(stack, return_inverse=True)
    all_stacks = list(profile.stacks)
    stacks = [all_stacks[one] for one in used.tolist()]
    frames = sorted({frame for one in stacks for frame in one})
    number = {frame: index for index, frame in enumerate(frames)}
    names = list(profile.frames)
    tables = frame_tables([names[one] for one in frames], [[number[frame] for frame in one] for one in stacks])
    return renumbered.astype(np.int32), tables


def counter_table(key: Sequence[np.ndarray], counters: Sequence[tuple[str, np.ndarray]]) -> pa.Table:
    """``unit_counters`` from one value per unit and counter (NaN where not measured); ``key``: rank, thread and unit_id
    of each unit."""
    names = sorted({name for name, _ in counters})
    values = np.array([values for _, values in counters]).reshape(len(counters), len(key[0])).T
    code = np.array([names.index(name) for name, _ in counters], np.int16)
    is_measured = ~np.isnan(values)
    unit, column = np.nonzero(is_measured)
    arrays = [to_arrow(part[unit].astype(np.int32)) for part in key]
    arrays.append(pa.DictionaryArray.from_arrays(to_arrow(code[column]), text_array(names)))
    arrays.append(to_arrow(values[is_measured].astype(np.float64)))
    return pa.Table.from_arrays(arrays, schema=UNIT_COUNTERS_SCHEMA)


def _phases(
    snapshots: dict[str, np.ndarray],
    begins: np.ndarray,
    cpu_ps: np.ndarray,
    time_ps: np.ndarray,
    has_common_clock: bool,
) -> dict[int, int]:
    """How long each rank computed (ps)."""
    result = {}
    rank = snapshots["rank"]
    for one in np.unique(rank).tolist():
        mine = rank == one
        has_one = len(np.unique(snapshots["thread"][mine])) == 1
        if cpu_ps[0] >= 0 and (has_one or not has_common_clock):
            result[one] = int(cpu_ps[rank[begins] == one].sum())
        else:
            result[one] = int(time_ps[mine].max() - time_ps[mine].min())
    return result


def frame_tables(frames: Sequence[str], stacks: Sequence[Sequence[int]]) -> dict[str, pa.Table]:
    """The tables of frames' names and of stacks, from the outermost frame to the innermost."""
    offsets = np.cumsum([0, *map(len, stacks)]).astype(np.int32)
    values = np.fromiter((frame for stack in stacks for frame in stack), np.int32, int(offsets[-1]))
    lists = pa.ListArray.from_arrays(to_arrow(offsets), to_arrow(values))
    return {
        "frames": pa.Table.from_arrays([text_array(frames)], schema=FRAMES_SCHEMA),
        "stacks": pa.Table.from_arrays([lists], schema=STACKS_SCHEMA),
    }


def unit_tables(
    ids: list[tuple[int, int]],
    threads: list[int],
    thread: np.ndarray,
    unit: np.ndarray,
    stack: np.ndarray,
    weight: np.ndarray,
    measured: dict[tuple[int, int], dict[str, float]],
) -> dict[str, pa.Table]:
    """The tables of units that a profile cut itself, ``ids`` (thread, unit), ascending: snapshots of ``stack``, each of
    which stands for ``weight`` of them, in the order of (thread, unit), and counters, of which UNIT_LENGTH becomes the
    units' length."""
    key = np.array([(0, threads.index(one), number) for one, number in ids], np.int64).T
    zeros, unknown = np.zeros(len(ids), np.int64), np.full(len(ids), -1)
    instructions = np.array([measured.get(one, {}).get(UNIT_LENGTH, -1) for one in ids]).astype(np.int64)
    units = [
        *(to_arrow(part.astype(np.int32)) for part in key),
        text_array([f"thread {one}" for one, _ in ids]),
        *map(to_arrow, (zeros, zeros, unknown, instructions)),
    ]
    samples = [
        to_arrow(np.zeros(len(stack), np.int32)),
        to_arrow(np.searchsorted(threads, thread).astype(np.int32)),
        to_arrow(unit.astype(np.int32)),
        to_arrow(np.zeros(len(stack), np.int64)),
        to_arrow(stack.astype(np.int32)),
        to_arrow(weight),
    ]
    names = sorted({name for values in measured.values() for name in values} - {UNIT_LENGTH})
    counters = [(name, np.array([measured[one].get(name, np.nan) for one in ids])) for name in names]
    return {
        "stack_units": pa.Table.from_arrays(units, schema=STACK_UNITS_SCHEMA),
        "stack_samples": pa.Table.from_arrays(samples, schema=STACK_SAMPLES_SCHEMA),
        "unit_counters": counter_table(list(key), counters),
    }
