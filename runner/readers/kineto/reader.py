"""From traces of ranks to a workload: finds the files, makes rows of each rank, matches collectives and messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from manyscale.models.workload import Workload
from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.models.workload.notes import Errs, Note, changes, informs
from manyscale.runner.errors import UserError
from manyscale.runner.readers.file_order import by_numbers
from manyscale.runner.readers.kineto.clocks import ONE_CLOCK_PS, aligned, clock_offsets
from manyscale.runner.readers.kineto.collectives import MOST_RANKS, numbers
from manyscale.runner.readers.kineto.events import decoded
from manyscale.runner.readers.kineto.files import contents, is_trace
from manyscale.runner.readers.kineto.given import COMPLETES, Rows
from manyscale.runner.readers.kineto.groups import Group, Meetings, meetings_of
from manyscale.runner.readers.kineto.launches import with_kernels
from manyscale.runner.readers.kineto.messages import Member
from manyscale.runner.readers.kineto.missing import with_missing
from manyscale.runner.readers.kineto.rank import Rank, rank_of
from manyscale.runner.readers.kineto.said import said_of
from manyscale.runner.readers.kineto.sizes import RANK, hosts_of, tell_sizes
from manyscale.runner.readers.kineto.tables import tables_of
from manyscale.runner.readers.kineto.trace import Trace, trace_of

NAME: Final = "kineto"
_G: Final = GpuOperationKind
_SCHEMA: Final = 1  # of Kineto's files
_ONE_JOB_NS: Final = 3_600 * 10**9  # windows of a job's ranks are not further apart


def read(path: Path, *, keeps_missing: bool = False) -> Workload:
    """The workload of all ranks at a path; with ``keeps_missing`` ranks of the job that were not traced are there, too,
    and have no operations. Raises UserError."""
    traces = [trace_of(decoded(content, place), place) for place, content in contents(path, is_trace)]
    if not traces:
        raise UserError(f"{path}: holds no trace of Kineto's; give a folder of files .json or .json.gz, one a rank")
    traces.sort(key=lambda each: by_numbers(each.place))  # which counts where nothing else tells ranks
    return workload_of(path, traces, NAME, keeps_missing=keeps_missing)


def workload_of(
    path: Path, traces: list[Trace], source_format: str, told: Sequence[Note] = (), *, keeps_missing: bool = False
) -> Workload:
    """The workload of traces of ranks, with notes that were ``told`` before. Raises UserError."""
    by_rank, world = _ranked(traces)
    hosts = hosts_of(path, by_rank)
    notes: list[Note] = [*told]
    is_one_step = not any(trace.steps for _, trace in by_rank)
    if is_one_step:
        text = "the traces mark no steps (ProfilerStep): all that each holds is one, to the end of its first thread"
        notes.append(informs("one-step-assumed", text))
    elif without := [number for number, trace in by_rank if not trace.steps]:
        text = f"the traces of {len(without)} ranks mark no steps, as the others do: steps are those of the others"
        notes.append(changes("steps-unmarked", text, f"rank {without[0]}" if len(without) == 1 else "", len(without)))
    ranks = [rank_of(trace, number, hosts.get(number), is_one_step=is_one_step) for number, trace in by_rank]
    tell_sizes(ranks, hosts, notes)
    base = min(rank.trace.base_ns for rank in ranks)
    members = [_member(rank, base) for rank in ranks]
    meetings = meetings_of(members, world)
    offset, apart = clock_offsets(meetings, members)
    members = aligned(members, offset, notes)
    begins = _begins(ranks, members, base)
    notes += _of_clocks(begins, apart)
    _settle(ranks, meetings)
    table, rank_rows = with_kernels(ranks, begins)
    said = said_of([rank.row_of_told() for rank in ranks], members, meetings, notes)
    rank_rows = [replace(each, said=of) for each, of in zip(rank_rows, said, strict=True)]
    groups = meetings.groups
    tables = tables_of(rank_rows, [each.members for each in groups], [each.name for each in groups])
    tables["kernels"] = table
    numbers_of = [rank.number for rank in ranks]
    keeps_missing = keeps_missing and world > len(ranks)
    if keeps_missing:
        tables = with_missing(tables, numbers_of, world, [each.everyone for each in groups])
    notes = [*_of_ranks(ranks), *_of_groups(ranks, len(ranks) if keeps_missing else world, meetings), *notes]
    return Workload(path.resolve().name, world if keeps_missing else len(ranks), tables, tuple(notes), source_format)


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
            named = RANK.findall(Path(trace.place).name)
            rank = int(named[0]) if named and len(traces) > 1 else at
        if rank in found:
            raise UserError(
                f"{trace.place}: is of rank {rank}, as {found[rank].place} is; give traces of one job and one window"
            )
        found[rank] = trace
    if (most := max(world, max(found) + 1)) > MOST_RANKS:
        of = max(found.items())[1] if most > world else traces[0]
        raise UserError(f"{of.place}: is of a job of {most} ranks; at most {MOST_RANKS} can be")
    _refuse_other_steps(found)
    spans = [(trace.base_ns, trace.base_ns + (trace.end - trace.begin) // 1000, trace) for trace in found.values()]
    latest, earliest = max(spans, key=lambda each: each[0]), min(spans, key=lambda each: each[1])
    if latest[0] - earliest[1] > _ONE_JOB_NS:
        raise UserError(
            f"{latest[2].place}: begins {(latest[0] - earliest[1]) / 3.6e12:.3g} h behind the end of "
            f"{earliest[2].place}; give traces of one job"
        )
    return sorted(found.items()), most


def _refuse_other_steps(traces: Mapping[int, Trace]) -> None:
    """Collectives are counted from the first of a window: windows begin in one step. Raises UserError."""
    first = {number: min(trace.steps)[0] for number, trace in traces.items() if trace.steps}
    if len(set(first.values())) > 1:
        one, other = min(first, key=lambda each: first[each]), max(first, key=lambda each: first[each])
        raise UserError(
            f"{traces[other].place}: rank {other}'s first step is {first[other]}, and rank {one}'s {first[one]} "
            f"({traces[one].place}); give traces of the same steps of all ranks"
        )


def _member(rank: Rank, base_ns: int) -> Member:
    trace = rank.trace
    shift = (trace.base_ns - base_ns) * 1000
    configured = tuple(
        (str(each.get("pg_name", "")), str(each.get("pg_desc", "")), numbers(each.get("ranks")))
        for each in trace.groups
    )
    configured = tuple(each for each in configured if each[2] and len(set(each[2])) == len(each[2]))
    at = rank.told_of
    return Member(
        trace.place, rank.number, tuple(rank.told), trace.stream[at], trace.given.begin[at] + shift,
        trace.given.end[at] + shift, rank.given.call[at] < 0, configured,
    )  # fmt: skip


def _begins(ranks: Sequence[Rank], members: Sequence[Member], base_ns: int) -> list[int]:
    """How much later than the first one each rank's trace begins, ps, on one clock."""
    found = []
    for rank, member in zip(ranks, members, strict=True):
        shift = (rank.trace.base_ns - base_ns) * 1000
        if len(member.end):  # by as much as its clock was set right
            shift = int(member.end[0]) - int(rank.trace.given.end[rank.told_of[0]])
        found.append(shift + rank.trace.begin)
    earliest = min(found)
    return [each - earliest for each in found]


def _of_clocks(begins: Sequence[int], apart: int) -> list[Note]:
    """``apart``: how many sets of ranks there are that have no collective and no message in common."""
    if apart < 2 or int(np.ptp(begins)) <= ONE_CLOCK_PS:
        return []
    text = (
        f"{apart} sets of ranks have no collective or message in common: their traces begin "
        f"{np.ptp(begins) / 1e9:.3g} ms apart as their own clocks say, which may differ"
    )
    return [changes("clocks-apart", text, "", apart)]


def _settle(ranks: Sequence[Rank], meetings: Meetings) -> None:
    """Communication that meets none becomes a kernel that takes what it took; behind each message stands a row at which
    its stream waits until it is done."""
    for rank, alone, messages in zip(ranks, meetings.alone, meetings.messages, strict=True):
        row = rank.row_of_told()
        rank.rows.kind[row[alone]] = int(_G.launch)
        at = np.sort(row[np.array(sorted(messages), np.int64)])
        if len(at):
            behind = rank.rows[at]
            nothing = np.zeros(len(at), np.int64)
            behind = replace(behind, kind=nothing + COMPLETES, given=nothing - 1, duration=nothing - 1)
            columns = {
                name: np.insert(values, at + 1, getattr(behind, name)) for name, values in vars(rank.rows).items()
            }
            rank.rows = Rows(**columns)


def _of_ranks(ranks: Sequence[Rank]) -> list[Note]:
    """What was assumed of the ranks, once for all."""
    found = []
    count, where = _counted(ranks, [rank.before for rank in ranks])
    if count:
        text = f"{count} kernels and copies were given before the trace began: they stand at its begin"
        found.append(informs("given-before-window", text, where, count))
    count, where = _counted(ranks, [rank.trace.untimed for rank in ranks])
    if count:
        text = f"{count} events tell no time that they took, or a negative one: they take none"
        found.append(changes("events-untimed", text, where, count, Errs.short))
    count, where = _counted(ranks, [rank.trace.placeless for rank in ranks])
    if count:
        text = f"{count} events tell no thread, or no stream and GPU: they are on one of their own, or on stream 0"
        found.append(changes("events-placeless", text, where, count))
    count, where = _counted(ranks, [rank.trace.unknown for rank in ranks])
    if count:
        text = f"{count} events are of no category that is known: they are left out"
        found.append(changes("events-unread", text, where, count))
    steps = [[number for number, *_ in rank.trace.steps] for rank in ranks]
    count, where = _counted(ranks, [len(each) - len(set(each)) for each in steps])
    if count:
        text = f"{count} steps have the number of another one of their rank: the first of a number alone is a step"
        found.append(informs("steps-repeated", text, where, count))
    others = sorted({rank.trace.schema for rank in ranks} - {0, _SCHEMA})
    if others:
        text = f"the traces have schema version {others[0]}, and {_SCHEMA} is known: what is new in it is left out"
        found.append(changes("schema-unknown", text, "", len(ranks)))
    count, where = _counted(ranks, [rank.given.ambiguous for rank in ranks])
    if count:
        text = (
            f"several calls have the correlation of {count} kernels and copies: each is of the last one that began "
            "before it"
        )
        found.append(changes("calls-ambiguous", text, where, count))
    count, where = _counted(ranks, [rank.lost for rank in ranks])
    if count:
        text = f"of {count} kernels and copies the trace lacks the call: they are given when they began"
        found.append(changes("calls-missing", text, where, count))
    count, where = _counted(ranks, [rank.inferred for rank in ranks])
    if count:
        text = f"the trace does not tell the events and streams of {count} waits: they follow from the order of calls"
        found.append(changes("waits-inferred", text, where, count))
    count, where = _counted(ranks, [len(rank.given.queued) for rank in ranks])
    if count:
        text = f"{count} launches waited for room in the GPU's queue: they wait for what ended last before they went on"
        found.append(changes("launch-queue-full", text, where, count))
    count, where = _counted(ranks, [rank.overlapping for rank in ranks])
    if count:
        text = f"{count} runs of calls of other threads overlap with the first thread: they do not wait for it"
        found.append(changes("threads-overlap", text, where, count))
    count, where = _counted(ranks, [rank.of_graphs for rank in ranks])
    if count:
        text = f"{count} kernels and copies were launched together, as graphs are: they have the order of their streams"
        found.append(informs("graphs-in-streams", text, where, count))
    count, where = _counted(ranks, [rank.branched for rank in ranks])
    if count:
        text = f"graphs gave {count} of them to several streams: the trace does not tell which wait for those of others"
        found.append(changes("graph-branches-apart", text, where, count, Errs.short))
    count, where = _counted(ranks, [rank.on_hosts for rank in ranks])
    if count:
        text = f"{count} collectives between hosts (gloo, MPI) are not replayed: they are in the time of their threads"
        found.append(changes("host-collectives", text, where, count))
    return found


def _counted(ranks: Sequence[Rank], counts: Sequence[int]) -> tuple[int, str]:
    """The sum, and the ranks that have some, where not all do."""
    some = [rank.number for rank, count in zip(ranks, counts, strict=True) if count]
    where = "" if len(some) in (0, len(ranks)) else f"rank {some[0]}" if len(some) == 1 else f"{len(some)} ranks"
    return sum(counts), where


def _of_groups(ranks: Sequence[Rank], world: int, meetings: Meetings) -> list[Note]:
    """What was assumed of groups."""
    found = []
    missing = world - len(ranks)
    if missing > 0:
        there = ", ".join(str(rank.number) for rank in ranks[:8]) + (", ..." if len(ranks) > 8 else "")
        text = (
            f"{missing} of {world} ranks were not traced (there are {there}, numbered from 0 here): collectives of "
            "groups that lack one take the time that they took, with the wait for those that are not there"
        )
        found.append(changes("ranks-missing", text, "", missing))
    assumed = [
        each for each in meetings.groups
        if each.is_assumed and (len(each.members) > 1 or (each.size > 1 and missing <= 0))
    ]  # fmt: skip
    if len(assumed) == 1 == len(meetings.groups) and _told_size(ranks, assumed[0]) in (0, assumed[0].size):
        found.append(informs("one-group-assumed", "the traces do not name groups: all collectives are of all ranks"))
    elif assumed:
        text = (
            f"the traces do not tell the ranks of {len(assumed)} groups: they are those that use them in the same order"
        )
        found.append(changes("groups-assumed", text, "", len(assumed)))
    if alone := sum(map(len, meetings.alone)):
        text = (
            f"{alone} collectives and messages meet no other rank's (partners are not known, or were not traced): they "
            "take the time that they took, with their waits"
        )
        found.append(changes("communication-alone", text, "", alone))
    return found


def _told_size(ranks: Sequence[Rank], group: Group) -> int:
    """Of a group, as its first member's first collective tells it; 0 unknown."""
    return ranks[group.members[0]].told[int(group.collectives[0, 0])].size
