"""Replay of a program: every rank's operations in simulated time, with messages of a known cost.

The law of a message, for ``cost`` = latency + (bytes + envelope) / bandwidth of its route (latency-bandwidth model, as
SimGrid's contention-free replay has it; see latency_bandwidth.py):

* with *match* start the transfer begins when both sides are posted and takes ``cost``;
* with *eager* start an eager message is there at max(receive posted, send posted + cost);
* the sender of an eager message goes on at once, that of a rendezvous message with the end of the transfer;
* the receiver goes on with the end of the transfer.

Without wildcards the result does not depend on the order of execution, so strands run as far as they can, in any order.
With wildcards or wait-any the strands are kept in a heap by simulated time, and a step whose outcome depends on order
runs only when no other strand can still act earlier. Cost: O(steps), O(steps log strands) with wildcards; open queues
are searched in order of posting.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from manyscale.models.network.program import ACTION, Mode, Program, Step
from manyscale.models.workload import ANY_SOURCE, ANY_TAG

VERSION = 1


class ReplayError(ValueError):
    """The replay cannot finish: a deadlock or messages that nobody receives. The message names ranks and operations."""


@dataclass(frozen=True)
class MessageLaw:
    """What the replay needs of a network: int64 ``cost_ps`` and bool ``is_eager`` per message, and whether eager
    messages travel before their receive is posted."""

    cost_ps: np.ndarray
    is_eager: np.ndarray
    eager_start: bool


@dataclass(frozen=True)
class Timeline:
    """int64 ``end_ps`` per operation of the workload (an operation starts at the end of the one before it plus the
    compute before it); per message ``send_ps`` (posted) and ``receive_ps`` (arrived)."""

    end_ps: np.ndarray
    send_ps: np.ndarray
    receive_ps: np.ndarray

    @property
    def makespan_ps(self) -> int:
        return int(self.end_ps.max(initial=0))


def replay(program: Program, compute_ps: np.ndarray, law: MessageLaw) -> Timeline:
    """Timeline of a program whose operation i is preceded by ``compute_ps[i]`` (int64) of compute.

    Raises ReplayError for a deadlock, with what each stuck rank waits for.
    """
    num_operations = int(program.rank_offsets[-1])
    if compute_ps.shape != (num_operations,):
        raise ValueError(f"compute_ps has shape {compute_ps.shape}, not ({num_operations},)")
    num_strands = len(program.strand_rank)
    num_open = len(program.open_queue)
    end_ps = np.zeros(num_operations, np.int64)
    send_ps = np.full(program.num_messages, -1, np.int64)
    receive_ps = np.full(program.num_messages, -1, np.int64)
    status = np.zeros(program.num_messages, np.uint8)
    place = program.strand_steps[:-1].copy()
    finished = np.zeros(num_strands, np.uint8)
    open_message = np.full(num_open, -1, np.int32)
    track_consumed = len(program.candidate_target) > 0
    send_queue = program.send_queue if program.num_queues else np.empty(0, np.int32)
    _run(
        program.step, program.target, place, program.strand_steps[1:], program.num_ranks, program.rank_offsets,
        compute_ps, end_ps, law.cost_ps, law.is_eager, law.eager_start, send_ps, receive_ps, status, finished,
        send_queue, program.source, program.message_operation, program.open_queue, program.open_source,
        program.open_tag, open_message, program.num_queues, program.send_tag, program.candidate_offsets,
        program.candidate_action, program.candidate_target,
        np.zeros(program.num_messages if track_consumed else 0, np.uint8), np.zeros(num_open, np.uint8),
        np.zeros(num_strands, np.uint8), program.needs_order,
    )  # fmt: skip
    if not finished.all():
        raise ReplayError(_deadlock(program, place, finished, status, open_message))
    if program.num_queues:
        _refuse_unreceived(program, status)
    return Timeline(end_ps, send_ps, receive_ps)


def _refuse_unreceived(program: Program, status: np.ndarray) -> None:
    lonely = np.flatnonzero(status != 3)
    if len(lonely):
        message = lonely[0]
        rank = int(program.source[message])
        operation = int(program.message_operation[message] - program.rank_offsets[rank])
        raise ReplayError(
            f"rank {rank}, operation {operation} sends {int(program.bytes[message])} B to rank "
            f"{int(program.destination[message])}, which never receives it ({len(lonely)} such messages); "
            "the trace is incomplete"
        )


def _deadlock(
    program: Program, place: np.ndarray, finished: np.ndarray, status: np.ndarray, open_message: np.ndarray
) -> str:
    """What the stuck ranks wait for, at most five of them."""
    stuck = np.flatnonzero(finished == 0)
    ranks = np.unique(program.strand_rank[stuck])
    lines = [_stuck_strand(program, int(strand), int(place[strand])) for strand in stuck[:5]]
    more = f"; and {len(stuck) - 5} more" if len(stuck) > 5 else ""
    return f"deadlock: {len(ranks)} of {program.num_ranks} ranks never finish: {'; '.join(lines)}{more}"


def _stuck_strand(program: Program, strand: int, place: int) -> str:
    rank = int(program.strand_rank[strand])
    action, target = int(program.step[place]) & ACTION, int(program.target[place])
    begin = int(program.strand_steps[strand])
    if strand < program.num_ranks:
        operation = int(np.count_nonzero(program.step[begin : place + 1] & 16)) - 1
        where = f"rank {rank}, operation {operation}"
    else:
        where = f"rank {rank}, in a non-blocking collective"
    if action in (Step.wait_send, Step.wait_receive):
        source, destination = int(program.source[target]), int(program.destination[target])
        size = int(program.bytes[target])
        if action == Step.wait_send:
            return f"{where} waits for rank {destination} to receive {size} B"
        return f"{where} waits for {size} B from rank {source}"
    if action == Step.wait_open_receive:
        wanted = int(program.open_source[target])
        tag = int(program.open_tag[target])
        who = "any rank" if wanted == ANY_SOURCE else f"rank {wanted}"
        return f"{where} waits for a message from {who} with {'any tag' if tag == ANY_TAG else f'tag {tag}'}"
    if action == Step.wait_any:
        count = int(program.candidate_offsets[target + 1] - program.candidate_offsets[target])
        return f"{where} waits for the first of {count} requests"
    return f"{where} waits for its non-blocking collective"


assert (Mode.standard, Mode.synchronous, Mode.buffered, Mode.free) == (0, 1, 2, 3)


@njit(cache=True, nogil=True)
def _heap_push(times, strands, stamps, size, time, strand, stamp):  # type: ignore[no-untyped-def]
    place = size
    while place > 0:
        parent = (place - 1) >> 1
        if times[parent] < time or (times[parent] == time and strands[parent] <= strand):
            break
        times[place] = times[parent]
        strands[place] = strands[parent]
        stamps[place] = stamps[parent]
        place = parent
    times[place] = time
    strands[place] = strand
    stamps[place] = stamp


@njit(cache=True, nogil=True)
def _heap_pop(times, strands, stamps, size):  # type: ignore[no-untyped-def]
    """Remove the first entry of a heap of ``size`` entries; the caller has read it."""
    last = size - 1
    time = times[last]
    strand = strands[last]
    stamp = stamps[last]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= last:
            break
        right = child + 1
        if right < last and (
            times[right] < times[child] or (times[right] == times[child] and strands[right] < strands[child])
        ):
            child = right
        if times[child] > time or (times[child] == time and strands[child] >= strand):
            break
        times[place] = times[child]
        strands[place] = strands[child]
        stamps[place] = stamps[child]
        place = child
    times[place] = time
    strands[place] = strand
    stamps[place] = stamp


@njit(cache=True, nogil=True)
def _open_match(first, following, previous_of, wanted_source, wanted_tag, sources, tags, is_send):  # type: ignore[no-untyped-def]
    """First entry of a queue that fits: a send for a receive that wants (source, tag), or the reverse. Returns the
    entry and the one before it, -1 for none."""
    previous = -1
    entry = first
    while entry >= 0:
        if is_send:  # the queue holds sends, the wish is a receive's
            fits = (wanted_source == -1 or sources[entry] == wanted_source) and (
                wanted_tag == -1 or tags[entry] == wanted_tag
            )
        else:
            fits = (sources[entry] == -1 or sources[entry] == wanted_source) and (
                tags[entry] == -1 or tags[entry] == wanted_tag
            )
        if fits:
            break
        previous = entry
        entry = following[entry]
    previous_of[0] = previous
    return entry


@njit(cache=True, nogil=True)
def _run(  # type: ignore[no-untyped-def]
    step, target, place, strand_end, num_ranks, rank_offsets, compute_ps, end_ps, cost_ps, is_eager, eager_start,
    send_ps, receive_ps, status, finished, send_queue, source, message_operation, open_queue, open_source, open_tag,
    open_message, num_queues, send_tag, candidate_offsets, candidate_action, candidate_target, consumed_message,
    consumed_open, consumed_strand, ordered,
):  # fmt: skip
    num_strands = place.shape[0]
    clock = np.zeros(num_strands, np.int64)
    operation = np.zeros(num_strands, np.int64)
    resumes = np.zeros(num_strands, np.uint8)
    waiting = np.zeros(num_strands, np.uint8)  # 1: for one thing, 2: for any of several
    awaited = np.full(num_strands, -1, np.int64)
    stamp = np.zeros(num_strands, np.int64)
    wake_time = np.full(num_strands, -1, np.int64)
    waiter = np.full(status.shape[0], -1, np.int32)
    open_waiter = np.full(open_queue.shape[0], -1, np.int32)
    open_post = np.full(open_queue.shape[0], -1, np.int64)
    strand_waiter = np.full(num_strands, -1, np.int32)
    send_first = np.full(num_queues, -1, np.int64)
    send_last = np.full(num_queues, -1, np.int64)
    send_next = np.full(send_queue.shape[0], -1, np.int64)
    open_first = np.full(num_queues, -1, np.int64)
    open_last = np.full(num_queues, -1, np.int64)
    open_next = np.full(open_queue.shape[0], -1, np.int64)
    previous_of = np.zeros(1, np.int64)
    # ready strands: a stack without order, a heap with it; a wait-any may leave stale entries behind
    capacity = 2 * num_strands + candidate_target.shape[0] + 16
    times = np.zeros(capacity, np.int64)
    ready = np.zeros(capacity, np.int64)
    stamps = np.zeros(capacity, np.int64)
    size = 0
    for strand in range(num_ranks - 1, -1, -1):
        operation[strand] = rank_offsets[strand]
        ready[size] = strand
        if ordered:
            _heap_push(times, ready, stamps, size, 0, strand, 0)
        size += 1
    while size > 0:
        now = np.int64(0)
        if ordered:
            strand = ready[0]
            now = times[0]
            valid = stamps[0] == stamp[strand] and finished[strand] == 0
            _heap_pop(times, ready, stamps, size)
            size -= 1
            if not valid:
                continue
            stamp[strand] += 1
        else:
            size -= 1
            strand = ready[size]
        waiting[strand] = 0
        time = clock[strand]
        at = place[strand]
        row = operation[strand]
        end = strand_end[strand]
        fresh = resumes[strand] == 0
        blocked = False
        while at < end:
            code = step[at]
            what = target[at]
            action = code & 15
            if fresh:
                if code & 16:
                    time += compute_ps[row]
            else:
                fresh = True
            if ordered and (action == 4 or action == 5 or action == 7) and size > 0:
                if times[0] < time or (times[0] == time and ready[0] < strand):
                    _heap_push(times, ready, stamps, size, time, strand, stamp[strand])
                    size += 1
                    blocked = True
                    break
            woken = -1  # a strand that waits for the message that this step completes
            message = -1
            if action == 0:
                message = what
                send_ps[what] = time
                status[what] |= 1
            elif action == 1:
                message = what
                receive_ps[what] = time
                status[what] |= 2
            elif action == 2:
                if not is_eager[what]:
                    if status[what] == 3:
                        time = max(time, receive_ps[what])
                    else:
                        waiter[what] = strand
                        blocked = True
            elif action == 3:
                if status[what] == 3:
                    time = max(time, receive_ps[what])
                else:
                    waiter[what] = strand
                    blocked = True
            elif action == 4:
                queue = send_queue[what]
                send_ps[what] = time
                found = _open_match(
                    open_first[queue], open_next, previous_of, source[what], send_tag[what], open_source, open_tag, False
                )
                if found >= 0:
                    before = previous_of[0]
                    if before < 0:
                        open_first[queue] = open_next[found]
                    else:
                        open_next[before] = open_next[found]
                    if open_last[queue] == found:
                        open_last[queue] = before
                    open_message[found] = what
                    receive_ps[what] = open_post[found]
                    status[what] = 3
                    message = what
                    waiter[what] = open_waiter[found]
                else:
                    status[what] = 1
                    if send_first[queue] < 0:
                        send_first[queue] = what
                    else:
                        send_next[send_last[queue]] = what
                    send_last[queue] = what
            elif action == 5:
                queue = open_queue[what]
                open_post[what] = time
                found = _open_match(
                    send_first[queue], send_next, previous_of, open_source[what], open_tag[what], source, send_tag, True
                )
                if found >= 0:
                    before = previous_of[0]
                    if before < 0:
                        send_first[queue] = send_next[found]
                    else:
                        send_next[before] = send_next[found]
                    if send_last[queue] == found:
                        send_last[queue] = before
                    open_message[what] = found
                    receive_ps[found] = time
                    status[found] = 3
                    message = found
                else:
                    if open_first[queue] < 0:
                        open_first[queue] = what
                    else:
                        open_next[open_last[queue]] = what
                    open_last[queue] = what
            elif action == 6:
                if open_message[what] >= 0:
                    time = max(time, receive_ps[open_message[what]])
                else:
                    open_waiter[what] = strand
                    blocked = True
            elif action == 7:
                best = np.int64(-1)
                best_at = -1
                pending = False
                for k in range(candidate_offsets[what], candidate_offsets[what + 1]):
                    kind = candidate_action[k]
                    other = candidate_target[k]
                    done = np.int64(-1)
                    if kind == 2:
                        if consumed_message[other] & 1:
                            continue
                        if is_eager[other]:
                            done = send_ps[other]
                        elif status[other] == 3:
                            done = receive_ps[other]
                        else:
                            waiter[other] = strand
                    elif kind == 3:
                        if consumed_message[other] & 2:
                            continue
                        if status[other] == 3:
                            done = receive_ps[other]
                        else:
                            waiter[other] = strand
                    elif kind == 6:
                        if consumed_open[other]:
                            continue
                        if open_message[other] >= 0:
                            done = receive_ps[open_message[other]]
                        else:
                            open_waiter[other] = strand
                    elif kind == 9:
                        if consumed_strand[other]:
                            continue
                        if finished[other]:
                            done = clock[other]
                        else:
                            strand_waiter[other] = strand
                    else:
                        done = time
                    pending = True
                    if done >= 0 and (best < 0 or done < best):
                        best = done
                        best_at = k
                if pending and (best < 0 or best > max(time, now)):
                    blocked = True
                    waiting[strand] = 2
                    wake_time[strand] = best
                    if best >= 0:
                        _heap_push(times, ready, stamps, size, best, strand, stamp[strand])
                        size += 1
                elif pending:
                    time = max(time, best)
                    kind = candidate_action[best_at]
                    other = candidate_target[best_at]
                    if kind == 2:
                        consumed_message[other] |= 1
                    elif kind == 3:
                        consumed_message[other] |= 2
                    elif kind == 6:
                        consumed_open[other] = 1
                    elif kind == 9:
                        consumed_strand[other] = 1
            elif action == 8:
                clock[what] = time
                ready[size] = what
                if ordered:
                    _heap_push(times, ready, stamps, size, time, what, stamp[what])
                size += 1
            elif action == 9:
                if finished[what]:
                    time = max(time, clock[what])
                else:
                    strand_waiter[what] = strand
                    blocked = True
            if blocked:
                if waiting[strand] == 0:
                    waiting[strand] = 1
                    awaited[strand] = at
                break
            if message >= 0 and status[message] == 3:
                if eager_start and is_eager[message]:
                    done = max(receive_ps[message], send_ps[message] + cost_ps[message])
                else:
                    done = max(send_ps[message], receive_ps[message]) + cost_ps[message]
                receive_ps[message] = done
                woken = waiter[message]
                if woken >= 0:
                    waiter[message] = -1
                    size = _wake(
                        woken, done, message, waiting, awaited, target, step, open_message, clock, stamp, wake_time,
                        times, ready, stamps, size, ordered,
                    )  # fmt: skip
            if code & 32:
                end_ps[row] = time
                row += 1
            at += 1
        clock[strand] = time
        place[strand] = at
        operation[strand] = row
        resumes[strand] = 1
        if not blocked:
            finished[strand] = 1
            woken = strand_waiter[strand]
            if woken >= 0:
                size = _wake(
                    woken, time, -1 - strand, waiting, awaited, target, step, open_message, clock, stamp, wake_time,
                    times, ready, stamps, size, ordered,
                )  # fmt: skip


@njit(cache=True, nogil=True)
def _wake(  # type: ignore[no-untyped-def]
    strand, done, what, waiting, awaited, target, step, open_message, clock, stamp, wake_time, times, ready, stamps,
    size, ordered,
):  # fmt: skip
    """Make a strand ready if it waits for ``what`` (a message, or -1 - a strand) that is done at ``done``."""
    resume = max(clock[strand], done)
    if waiting[strand] == 1:
        at = awaited[strand]
        action = step[at] & 15
        wanted = target[at]
        if action == 6:
            wanted = open_message[wanted]
        if action == 9:
            wanted = -1 - wanted
        if wanted != what:
            return size
        waiting[strand] = 0
    elif waiting[strand] == 2:
        if wake_time[strand] >= 0 and wake_time[strand] <= resume:
            return size
        wake_time[strand] = resume
        stamp[strand] += 1
    else:
        return size
    ready[size] = strand
    if ordered:
        _heap_push(times, ready, stamps, size, resume, strand, stamp[strand])
    return size + 1
