"""The critical path of a replay: the chain of compute and messages that the end of the run waited for.

Method: from the last operation to end, walk backwards; at every step ask what it waited for, and go on there. A wait
that a message ended leads to the message's sender, or to its receiver where the transfer began only when the receive
was posted; a wait that changed nothing leads to the step before it; the begin of an operation leads through the compute
before it to the operation before. This is the backward replay of Boehme, Geimer, Wolf et al., "Scalable critical-path
based performance analysis" (IPDPS 2012), on simulated time, where it is exact: the segments tile the run.

Only the program and the timeline are read, so that every network model has a path. What happens inside an operation is
known by when messages were posted and when they arrived; time that neither explains (CPU time of sends and receives in
models that charge it) is *overhead*. A transfer includes what other transfers cost it. Where a message and the rank's
own work end at the same instant, the path stays on the rank. Wildcard receives are matched anew, from the times of the
sends; sends of one instant are taken in the order of ranks.

Cost: O(steps + messages log(wildcard messages)). Memory: 12 B a step, 16 B a message.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from manyscale.models.network.matching import Mode
from manyscale.models.network.path_walk import (
    AT_CALL,
    CANDIDATE,
    COLLECTIVE,
    COMPUTE,
    ENDED,
    GATE,
    LOST,
    POST,
    SEGMENT,
    STRAND,
    TRANSFER,
    UNDER_WAY,
    WALK,
    Known,
    Replayed,
    go_back,
    take_first_fitting,
)
from manyscale.models.network.program import Program
from manyscale.models.network.replay.replay import ends_of_compute, read_only
from manyscale.models.network.replay.steps import ACTION, FIRST, START_STRAND
from manyscale.models.network.replay.timeline import Timeline

VERSION: Final = 2
_CHUNK: Final = 8192  # segments that are found at a time


@dataclass(frozen=True)
class CriticalPath:
    """Segments in the order of time; each begins where the one before it ends, the first at 0, the last ends with the
    run. Arrays of equal length: ``start_ps`` and ``end_ps`` int64; ``kind`` int8 (index into KINDS); ``operation``
    int64, row of the operation that waits, or that the compute precedes; ``source`` int32, rank on which the segment
    begins (another than the operation's only for messages and gates); ``message`` int64, of the program, or -1."""

    start_ps: np.ndarray
    end_ps: np.ndarray
    kind: np.ndarray
    operation: np.ndarray
    source: np.ndarray
    message: np.ndarray


def eager_messages(program: Program, eager_threshold_bytes: int) -> np.ndarray:
    """bool per message: its sender goes on at once."""
    small = (program.mode == Mode.standard) & (program.bytes < eager_threshold_bytes)
    return small | (program.mode == Mode.buffered) | (program.mode == Mode.free)


def starting_at_send(is_eager: np.ndarray, transfer_start: str) -> np.ndarray:
    """bool per message, for transfers that start with "match" (both sides are posted), "eager" (eager ones with the
    send) or "send" (all with the send)."""
    return is_eager if transfer_start == "eager" else np.full(len(is_eager), transfer_start == "send")


def critical_path(
    program: Program,
    compute_ps: np.ndarray,
    timeline: Timeline,
    is_eager: np.ndarray,
    starts_at_send: np.ndarray,
    num_point_to_point: int,
    through_call: ThroughCall | None = None,
) -> CriticalPath:
    """The critical path of a finished replay of ``program`` with ``compute_ps`` (int64 per operation) of compute.

    bool per message: ``is_eager``, its sender goes on at once; ``starts_at_send``, it travels before its receive is
    posted. Messages from number ``num_point_to_point`` on are those of collectives. ``through_call`` knows the way
    through collectives that are called, where ``program`` has such. Of several paths of equal length, one. Raises
    ValueError for a timeline that is not one of this program.
    """
    end_ps = _reader(timeline.end_ps)
    if end_ps.shape != compute_ps.shape or timeline.send_ps.shape != (program.num_messages,):
        raise ValueError("the timeline is not of this program: their numbers of operations or messages differ")
    walk = _at_end(program, end_ps)
    if walk is None:
        return _path(np.empty(0, SEGMENT), num_point_to_point)
    if program.only_computes and np.array_equal(end_ps, ends_of_compute(program, compute_ps)):
        return _path(_of_compute(program, compute_ps, end_ps, int(walk["strand"][0])), num_point_to_point)
    replayed, known = _before_walk(program, compute_ps, timeline, is_eager, starts_at_send)
    found = []
    while walk["state"] != ENDED:
        found += _walked(replayed, known, walk)
        if walk["state"] == AT_CALL:
            found.append(_inside_call(program, known, walk, through_call))
    return _path(np.concatenate(found)[::-1], num_point_to_point)


def _walked(replayed: Replayed, known: Known, walk: np.ndarray) -> list[np.ndarray]:
    """Segments, last first, until the walk ends or is at a call. Raises ValueError where it leads nowhere."""
    segments = np.empty(_CHUNK, SEGMENT)
    found = []
    while True:
        count = go_back(replayed, known, segments, walk)
        if walk["state"] == LOST:
            raise ValueError("the timeline is not of this program: its critical path leads nowhere")
        found.append(segments[:count].copy())
        if walk["state"] != UNDER_WAY:
            return found


# (instance, when each of its participants enters, the participant from whose end to go back): segments as arrays by
# name, and the participant with whose entry the path goes on
ThroughCall: TypeAlias = Callable[[int, np.ndarray, int], tuple[CriticalPath, int]]


def _inside_call(program: Program, known: Known, walk: np.ndarray, through_call: ThroughCall | None) -> np.ndarray:
    """The segments of the collective at whose call the walk is, last first. It then is before that of another rank."""
    if program.calls is None or through_call is None:
        raise ValueError("the program calls collectives, and nobody knows the way through them")
    instance = int(program.target[walk["at"][0]])
    rows, members = program.calls.rows[instance], program.calls.members[program.calls.kind[instance]]
    row_of = known.row_of[: program.strand_steps[program.num_ranks]]
    at = np.searchsorted(row_of, rows.astype(row_of.dtype))  # of another type, it would copy all of them
    last = int(np.flatnonzero(members == walk["strand"][0])[0])
    path, first = through_call(instance, known.before[at], last)
    inside = np.flatnonzero(path.kind != COMPUTE)[::-1]  # a participant computes until it enters
    segments = np.empty(len(inside), SEGMENT)
    segments["start_ps"], segments["end_ps"], segments["kind"] = (
        path.start_ps[inside], path.end_ps[inside], path.kind[inside],
    )  # fmt: skip
    segments["operation"], segments["source"] = rows[path.operation[inside]], members[path.source[inside]]
    segments["message"] = np.where(path.message[inside] < 0, -1, program.num_messages + path.message[inside])
    walk["at"], walk["strand"], walk["time"] = at[first], members[first], known.before[at[first]]
    walk["state"] = UNDER_WAY
    return segments


def path_from(
    program: Program,
    compute_ps: np.ndarray,
    timeline: Timeline,
    is_eager: np.ndarray,
    starts_at_send: np.ndarray,
    rank: int,
) -> tuple[CriticalPath, int]:
    """What the end of ``rank`` waited for, as critical_path has it of the end of a run, its messages those of
    collectives; and the rank on which it begins. For programs without calls."""
    walk = _walk_from(program, rank, timeline.end_ps[program.rank_offsets[rank + 1] - 1])
    replayed, known = _before_walk(program, compute_ps, timeline, is_eager, starts_at_send)
    return _path(np.concatenate(_walked(replayed, known, walk))[::-1], 0), int(walk["strand"][0])


def _before_walk(
    program: Program, compute_ps: np.ndarray, timeline: Timeline, is_eager: np.ndarray, starts_at_send: np.ndarray
) -> tuple[Replayed, Known]:
    end_ps, sent, arrived = (_reader(array) for array in (timeline.end_ps, timeline.send_ps, timeline.receive_ps))
    replayed = Replayed(
        program.step, program.target, program.rank_offsets, _reader(compute_ps), end_ps, sent, arrived,
        read_only(is_eager), read_only(starts_at_send),
        _match_open(program, sent), program.candidate_offsets, _candidates(program),
    )  # fmt: skip
    return replayed, _new_known(program, replayed.compute_ps, end_ps)


def _of_compute(program: Program, compute_ps: np.ndarray, end_ps: np.ndarray, rank: int) -> np.ndarray:
    """Segments of a rank that only computes."""
    row = np.arange(program.rank_offsets[rank], program.rank_offsets[rank + 1])
    row = row[compute_ps[row] > 0]
    segments = np.empty(len(row), SEGMENT)
    segments["start_ps"], segments["end_ps"] = end_ps[row] - compute_ps[row], end_ps[row]
    segments["operation"], segments["message"] = row, -1
    segments["source"], segments["kind"] = rank, COMPUTE
    return segments


def _path(segments: np.ndarray, num_point_to_point: int) -> CriticalPath:
    kind = segments["kind"].astype(np.int8)
    kind[(kind == TRANSFER) & (segments["message"] >= num_point_to_point)] = COLLECTIVE
    return CriticalPath(
        segments["start_ps"].copy(), segments["end_ps"].copy(), kind, segments["operation"].copy(),
        segments["source"].copy(), segments["message"].copy(),
    )  # fmt: skip


def _at_end(program: Program, end_ps: np.ndarray) -> np.ndarray | None:
    """The walk at the end of the rank that ends last, the lowest of several; None if there is no operation."""
    busy = np.flatnonzero(np.diff(program.rank_offsets))
    if not len(busy):
        return None
    ends = end_ps[program.rank_offsets[busy + 1] - 1]
    rank = busy[np.argmax(ends)]
    return _walk_from(program, rank, ends.max())


def _walk_from(program: Program, rank: int, end_ps: int) -> np.ndarray:
    """A walk at the last step of a rank."""
    walk = np.zeros(1, WALK)
    walk["strand"], walk["at"], walk["time"] = rank, program.strand_steps[rank + 1] - 1, end_ps
    walk["steps_left"] = 2 * len(program.step) + 2
    return walk


def _reader(times_ps: np.ndarray) -> np.ndarray:
    return read_only(np.asarray(times_ps, np.int64))


_WANTED: Final = np.dtype([("queue", "i4"), ("source", "i4"), ("tag", "i4")])


def _match_open(program: Program, sent: np.ndarray) -> np.ndarray:
    """int64 per open receive: the message it took.

    Receives of a queue are one rank's and numbered in its order; each takes the first fitting send that is left,
    whenever it is posted: neither a later receive nor a later send can come before it.
    """
    found = np.full(len(program.open_queue), -1, np.int64)
    if len(found):
        candidates = np.flatnonzero(program.send_queue >= 0)
        order = np.lexsort((candidates, program.source[candidates], sent[candidates], program.send_queue[candidates]))
        sends = candidates[order]
        first = np.searchsorted(program.send_queue[sends], np.arange(program.num_queues + 1)).astype(np.int64)
        wanted = np.empty(len(found), _WANTED)
        wanted["queue"], wanted["source"], wanted["tag"] = program.open_queue, program.open_source, program.open_tag
        take_first_fitting(
            wanted, program.source, program.send_tag, sends, first, np.arange(1, len(sends) + 1), first[:-1].copy(),
            found,
        )  # fmt: skip
    return found


def _candidates(program: Program) -> np.ndarray:
    candidate = np.empty(len(program.candidate_target), CANDIDATE)
    candidate["action"], candidate["target"] = program.candidate_action, program.candidate_target
    return candidate


def _new_known(program: Program, compute_ps: np.ndarray, end_ps: np.ndarray) -> Known:
    """Nothing is known but where and when strands began."""
    num_steps, num_strands, num_ranks = len(program.step), len(program.strand_rank), program.num_ranks
    strand = np.zeros(num_strands, STRAND)
    strand["first"], strand["last"] = program.strand_steps[:-1], program.strand_steps[1:] - 1
    strand["rank"], strand["row"][:num_ranks] = program.strand_rank, program.rank_offsets[:-1]
    if num_strands > num_ranks:  # an operation that starts a strand is this one step
        starts = np.flatnonzero(program.step & ACTION == START_STRAND)
        child = program.target[starts]
        row = np.searchsorted(np.flatnonzero(program.step & FIRST), starts)
        is_first = np.isin(row, program.rank_offsets)
        strand["started_at"][child], strand["row"][child] = starts, row
        strand["begun"][child] = np.where(is_first, 0, end_ps[row - 1]) + compute_ps[row]
    waits_for_any = len(program.candidate_target) > 0
    num_takeable = max(program.num_messages, len(program.open_queue), num_strands) if waits_for_any else 0
    return Known(
        before=np.zeros(num_steps, np.int64),
        row_of=np.zeros(num_steps, np.int32),
        post=np.full(2 * program.num_messages, -1, np.int32).view(POST),
        chosen=np.full(len(program.candidate_offsets), -1, np.int64),
        taken=np.zeros((num_takeable, 4), np.uint8),
        strand=strand,
        gate=np.full(2 * len(program.gate_size), -1, np.int64).view(GATE),
    )
