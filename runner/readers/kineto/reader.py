"""From traces of ranks to a workload: finds the files, makes rows of each rank, matches collectives."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import OperationKind, Workload
from manyscale.models.workload.columns import text_array, to_arrow
from manyscale.models.workload.gpu_step_tables import KERNELS_SCHEMA
from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.models.workload.notes import Note, changes, informs
from manyscale.runner.errors import UserError
from manyscale.runner.readers.kineto import kernels
from manyscale.runner.readers.kineto.collectives import Told, numbers, of_args, of_kernel, of_mark
from manyscale.runner.readers.kineto.events import decoded, number
from manyscale.runner.readers.kineto.execution_trace import HostTrace, collectives_of
from manyscale.runner.readers.kineto.files import contents, host_traces, is_trace
from manyscale.runner.readers.kineto.given import MARKER, Made, Rows, before_window, joined, made, rows
from manyscale.runner.readers.kineto.groups import Group, Member, clock_offsets, groups_of
from manyscale.runner.readers.kineto.nesting import innermost
from manyscale.runner.readers.kineto.said import said_of
from manyscale.runner.readers.kineto.tables import RankRows, tables_of
from manyscale.runner.readers.kineto.threads import first_thread, hand_overs
from manyscale.runner.readers.kineto.trace import Trace, trace_of
from manyscale.runner.readers.kineto.waits import waits_of

NAME: Final = "kineto"
_G: Final = GpuOperationKind
_K: Final = OperationKind
_ONE_CLOCK_PS: Final = 50_000_000  # by which ends of a collective differ at ranks of one node at most, with its noise
_ONE_JOB_NS: Final = 3_600 * 10**9  # windows of a job's ranks are not further apart
_RANK: Final = re.compile(r"(?:rank|worker|eg|et)[-_ ]?(\d+)", re.I)
_OUTSIDE: Final = "(given before the trace began)"


@dataclass
class _Rank:
    trace: Trace
    number: int
    given: Made
    rows: Rows
    first: int  # number of its first thread in the trace
    told: list[Told]
    told_of: np.ndarray  # what was given, of each
    call_op: np.ndarray  # innermost operator of what was given


def read(path: Path) -> Workload:
    traces = [trace_of(decoded(content, place), place) for place, content in contents(path, is_trace)]
    if not traces:
        raise UserError(f"{path}: holds no trace of Kineto's; give a folder of files .json or .json.gz, one a rank")
    by_rank, world = _ranked(traces)
    notes: list[Note] = []
    ranks = [_rank(trace, number_of, notes) for number_of, trace in by_rank]
    _tell_sizes(path, ranks, notes)
    base = min(rank.trace.base_ns for rank in ranks)
    members = [_member(rank, base) for rank in ranks]
    groups = groups_of(members, world)
    members = _aligned(members, groups, ranks, base, notes)
    begins = _begins(ranks, members, base)
    _tell_missing(ranks, world, groups, notes)
    table, rank_rows = _with_kernels(ranks, begins)
    said = said_of([_rows_of(rank) for rank in ranks], members, groups, notes)
    rank_rows = [replace(each, said=of) for each, of in zip(rank_rows, said, strict=True)]
    tables = tables_of(rank_rows, [each.members for each in groups], [each.name for each in groups])
    tables["kernels"] = table
    name = path.resolve().name
    return Workload(name, len(ranks), tables, tuple(notes), NAME)


def _ranked(traces: list[Trace]) -> tuple[list[tuple[int, Trace]], int]:
    """Traces by rank, and how many ranks the job had. Raises UserError for traces of several jobs."""
    worlds = {trace.world: trace.place for trace in traces if trace.world}
    if len(worlds) > 1:
        (one, first), (other, second) = list(worlds.items())[:2]
        raise UserError(f"{first}: is of a job of {one} ranks, and {second} of one of {other}; give traces of one job")
    world = next(iter(worlds), 0)
    found: dict[int, Trace] = {}
    for at, trace in enumerate(traces):
        rank = trace.rank
        if rank is None:
            named = _RANK.findall(Path(trace.place).name)
            rank = int(named[0]) if named and len(traces) > 1 else at
        if rank in found:
            raise UserError(
                f"{trace.place}: is of rank {rank}, as {found[rank].place} is; give traces of one job and one window"
            )
        found[rank] = trace
    spans = [(trace.base_ns, trace.base_ns + (trace.end - trace.begin) // 1000, trace) for trace in found.values()]
    latest, earliest = max(spans, key=lambda each: each[0]), min(spans, key=lambda each: each[1])
    if latest[0] - earliest[1] > _ONE_JOB_NS:
        raise UserError(
            f"{latest[2].place}: begins {(latest[0] - earliest[1]) / 3.6e12:.3g} h behind the end of "
            f"{earliest[2].place}; give traces of one job"
        )
    return sorted(found.items()), max(world, max(found) + 1)


def _rank(trace: Trace, number_of: int, notes: list[Note]) -> _Rank:
    """The rows of a rank, but for what its collectives are."""
    place = f"rank {number_of}"
    given = made(trace)
    first = first_thread(trace, given.rows.thread)
    early, before, lost = before_window(trace, given, first)
    thread_of = np.full(len(trace.given), first, np.int64)
    thread_of[given.rows.given] = given.rows.thread
    waits = waits_of(trace, given, thread_of)
    found = joined(given.rows, early, waits.rows()).sorted()
    over, overlapping = hand_overs(trace, found, first, len(waits.events))
    found = joined(found, over, _markers(trace, first)).sorted()
    if before:
        text = f"{before} kernels and copies were given before the trace began: they stand at its begin"
        notes.append(informs("given-before-window", text, place, before))
    if lost:
        text = f"of {lost} kernels and copies the trace lacks the call: they are given when they began"
        notes.append(changes("calls-missing", text, place, lost))
    if waits.inferred:
        text = (
            f"the trace does not say which events and streams {waits.inferred} waits are for: they are taken by the "
            "order of calls"
        )
        notes.append(changes("waits-inferred", text, place, waits.inferred))
    if overlapping:
        text = f"{overlapping} runs of calls of other threads overlap with the first thread: they do not wait for it"
        notes.append(changes("threads-overlap", text, place, overlapping))
    told_of = np.flatnonzero(trace.kind == _G.communication)
    told_of = told_of[np.argsort(given.at[told_of], kind="stable")]
    calls = given.call
    has = calls >= 0
    operator = np.full(len(trace.given), -1, np.int64)
    if has.any():
        operator[has] = innermost(trace.operators, trace.calls.thread[calls[has]], trace.calls.begin[calls[has]])
    rank = _Rank(trace, number_of, given, found, first, [], told_of, operator)
    rank.told = _told(rank)
    return rank


def _markers(trace: Trace, first: int) -> Rows:
    """Begins and ends of steps, and the end of the first thread."""
    spans = (trace.calls, trace.operators, trace.annotations)
    ends = [int(each.end[each.thread == first].max()) for each in spans if (each.thread == first).any()]
    times = [time for _, _, begin, end in trace.steps for time in (begin, end)]
    times.append(max([*ends, *times, trace.begin]))
    seconds = [5, -3] * len(trace.steps) + [9]
    return rows(len(times), at=np.array(times, np.int64), kind=MARKER, thread=first, second=np.array(seconds))


def _told(rank: _Rank) -> list[Told]:
    """What the trace itself tells of each collective."""
    trace, found = rank.trace, []
    marks = trace.annotations
    calls = rank.given.call[rank.told_of]
    inside = innermost(marks, trace.calls.thread[calls], trace.calls.begin[calls]) if len(calls) else calls
    for own, call, mark in zip(rank.told_of.tolist(), calls.tolist(), inside.tolist(), strict=True):
        args = trace.given.args[own]
        told = of_args(args) if args is not None else None
        operator = int(rank.call_op[own])
        if told is None and operator >= 0:
            of_operator = trace.operators.args[operator]
            told = of_args(of_operator) if of_operator is not None else None
        if told is None and call >= 0 and mark >= 0:
            told = of_mark(trace.names[int(marks.name[mark])], marks.args[mark])
        found.append(told or of_kernel(trace.names[int(trace.given.name[own])]))
    return found


def _tell_sizes(path: Path, ranks: Sequence[_Rank], notes: list[Note]) -> None:
    """Sizes of collectives from host execution traces, where Kineto's do not tell them all."""
    if not any(
        not told.is_sized or (told.kind == _K.alltoall and not told.group) for rank in ranks for told in rank.told
    ):
        return
    hosts = []
    for place, content in host_traces(path):
        document = decoded(content, place)
        hosts.append(replace(collectives_of(document, place), process=number(document.pid, -1)))
    taken = 0
    for rank in ranks:
        host = _host_of(rank, hosts, len(ranks))
        if host is None or not rank.told:
            continue
        if len(host.collectives) != len(rank.told):
            text = (
                f"its host execution trace has {len(host.collectives)} collectives and its trace {len(rank.told)}: it "
                "is not of the same window, and not used"
            )
            notes.append(informs("host-trace-unused", text, f"rank {rank.number}", 1))
            continue
        for at, (own, told) in enumerate(zip(rank.told, host.collectives, strict=True)):
            if own.kind is not None and told.kind is not None and own.kind != told.kind:
                raise UserError(
                    f"{host.place}: collective {at + 1} is {told.kind.name}, and in {rank.trace.place} "
                    f"{own.kind.name}; "
                    "give host execution traces of the same window"
                )
        rank.told = list(host.collectives)
        taken += 1
    if taken:
        text = f"sizes of collectives are those of the host execution traces of {taken} ranks, k-th by k-th"
        notes.append(informs("sizes-of-host-traces", text, "", taken))


def _host_of(rank: _Rank, hosts: Sequence[HostTrace], count: int) -> HostTrace | None:
    processes = {thread.partition("/")[0] for thread in rank.trace.threads}
    mine = [each for each in hosts if str(each.process) in processes]
    if len(mine) == 1:
        return mine[0]
    named = [each for each in hosts if _RANK.findall(Path(each.place).name)[-1:] == [str(rank.number)]]
    return named[0] if len(named) == 1 and len(hosts) >= count else None


def _member(rank: _Rank, base_ns: int) -> Member:
    trace = rank.trace
    shift = (trace.base_ns - base_ns) * 1000
    configured = tuple(
        (str(each.get("pg_name", "")), str(each.get("pg_desc", "")), numbers(each.get("ranks")))
        for each in trace.groups
    )
    at = rank.told_of
    return Member(
        trace.place, rank.number, tuple(rank.told), trace.stream[at], trace.given.begin[at] + shift,
        trace.given.end[at] + shift, tuple(each for each in configured if each[2]),
    )  # fmt: skip


def _aligned(
    members: list[Member], groups: Sequence[Group], ranks: Sequence[_Rank], base_ns: int, notes: list[Note]
) -> list[Member]:
    """With one clock, where the ends of collectives show that there are several."""
    offset = clock_offsets(groups, members)
    if not len(offset) or int(np.ptp(offset)) <= _ONE_CLOCK_PS:
        return members
    text = (
        f"clocks of ranks differ by up to {np.ptp(offset) / 1e9:.3g} ms: they are aligned on the ends of the "
        "collectives that ranks have in common"
    )
    notes.append(informs("clocks-aligned", text, "", int(np.count_nonzero(offset))))
    return [
        replace(member, begin=member.begin - by, end=member.end - by)
        for member, by in zip(members, offset.tolist(), strict=True)
    ]


def _begins(ranks: Sequence[_Rank], members: Sequence[Member], base_ns: int) -> list[int]:
    """How much later than the first one each rank's trace begins, ps, on one clock."""
    found = []
    for rank, member in zip(ranks, members, strict=True):
        shift = (rank.trace.base_ns - base_ns) * 1000
        if len(member.end):  # by as much as its clock was set right
            shift = int(member.end[0]) - int(rank.trace.given.end[rank.told_of[0]])
        found.append(shift + rank.trace.begin)
    return [each - min(found) for each in found]


def _tell_missing(ranks: Sequence[_Rank], world: int, groups: Sequence[Group], notes: list[Note]) -> None:
    missing = world - len(ranks)
    if missing > 0:
        there = ", ".join(str(rank.number) for rank in ranks[:8]) + (", ..." if len(ranks) > 8 else "")
        text = (
            f"{missing} of {world} ranks were not traced (there are {there}, numbered from 0 here): collectives of "
            "groups that lack one take the time that they took, with the wait for those that are not there"
        )
        notes.append(changes("ranks-missing", text, "", missing))
    if assumed := sum(each.is_assumed and len(each.members) > 1 for each in groups):
        text = (
            f"the traces do not say which ranks {assumed} groups have: they are those that use them in the same order"
        )
        notes.append((informs if len(groups) == 1 else changes)("groups-assumed", text, "", assumed))


def _with_kernels(ranks: Sequence[_Rank], begins: Sequence[int]) -> tuple[pa.Table, list[RankRows]]:
    """The table of kernels, and the ranks with theirs, threads numbered from 0."""
    numbers_of: dict[tuple[str, str], int] = {}
    work: list[tuple[float, float]] = []
    found = []
    for rank, begin in zip(ranks, begins, strict=True):
        trace, own = rank.trace, rank.rows
        kernel = np.full(len(own), -1, np.int64)
        launches = np.flatnonzero(own.kind == _G.launch)
        alone = np.bincount(rank.call_op[rank.call_op >= 0], minlength=len(trace.operators) or 1)
        for row in launches.tolist():
            given = int(own.given[row])
            name, shape = _OUTSIDE, (float("nan"), float("nan"))
            if given >= 0:
                name = trace.names[int(trace.given.name[given])]
                operator = int(rank.call_op[given])
                if operator >= 0 and alone[operator] == 1:
                    shape = kernels.work_of(
                        trace.names[int(trace.operators.name[operator])], trace.operators.args[operator]
                    )
            key = (name, f"{shape[0]} {shape[1]}")
            if key not in numbers_of:
                numbers_of[key] = len(work)
                work.append(shape)
            kernel[row] = numbers_of[key]
        threads = [rank.first, *(each for each in dict.fromkeys(own.thread.tolist()) if each != rank.first)]
        place = np.zeros(max(threads) + 1, np.int64)
        place[threads] = np.arange(len(threads))
        shift = begin - trace.begin
        moved = replace(
            own, thread=place[own.thread], at=np.where(own.at > -(2**62), own.at + shift, own.at),
            until=np.where(own.until > -(2**62), own.until + shift, own.until),
        )  # fmt: skip
        found.append(RankRows(moved, kernel, {}, begin, _steps(rank), _gpus(rank)))
    names = [name for name, _ in numbers_of]
    shapes = np.array(work, np.float64).reshape(-1, 2)
    arrays = [
        text_array(names),
        to_arrow(np.array([kernels.class_of(name) for name in names], np.int8)),
        text_array([kernels.precision_of(name) for name in names]),
        to_arrow(shapes[:, 0]),
        to_arrow(shapes[:, 1]),
    ]
    return pa.Table.from_arrays(arrays, schema=KERNELS_SCHEMA), found


def _steps(rank: _Rank) -> tuple[tuple[int, int, int], ...]:
    marks = np.flatnonzero(rank.rows.kind == MARKER)
    times = rank.rows.order[marks]
    found: list[tuple[int, int, int]] = []
    for step, _, begin, end in rank.trace.steps:
        first = int(marks[(times == begin) & (rank.rows.second[marks] == 5)][0])
        last = int(marks[(times == end) & (rank.rows.second[marks] == -3)][0])
        if step not in {each for each, *_ in found}:
            found.append((step, first, last))
    return tuple(found)


def _gpus(rank: _Rank) -> dict[int, str]:
    devices = np.unique(rank.trace.device).tolist()
    return {each: rank.trace.gpus[each] for each in devices if rank.trace.gpus.get(each)}


def _rows_of(rank: _Rank) -> np.ndarray:
    """int64[collectives]: the row of each."""
    place = np.full(len(rank.trace.given), -1, np.int64)
    has = rank.rows.given >= 0
    place[rank.rows.given[has]] = np.flatnonzero(has)
    return place[rank.told_of]
