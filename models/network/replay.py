"""Replay of a program: every rank's operations in simulated time, with messages of a known cost.

The law of a message, for ``cost`` = latency + (bytes + envelope) / bandwidth of its route (latency-bandwidth model, as
SimGrid's contention-free replay has it; see latency_bandwidth.py):

* with *match* start the transfer begins when both sides are posted and takes ``cost``;
* with *eager* start an eager message is there at max(receive posted, send posted + cost);
* the sender of an eager message goes on at once, that of a rendezvous message with the end of the transfer;
* the receiver goes on with the end of the transfer.

Almost nothing depends on the order of execution, so strands run as far as they can, in any order. A step whose outcome
does depend on it (a post that a wildcard receive is part of, a wait for any of several requests) parks its strand in a
heap by simulated time; the earliest parked strand goes on once no other can run, for then whatever is still to happen
happens later. Ties go to the lower strand. Once all wildcard receives of a queue are matched, order matters no more
there: MPI keeps the messages of one pair of ranks in order.

Cost: O(steps + parked steps x log strands); queues of wildcard receives are searched in order of posting. Memory: 33 B
a message and 16 B an operation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from manyscale.models.network.program import ACTION, Program, Step
from manyscale.models.workload import ANY_SOURCE, ANY_TAG

VERSION = 1

# Columns of the state of a message: time of the send's post; time of the receive's post, then of arrival; and
# status: bits 0 and 1 for the posts of send and receive, above them 1 + the strand that waits for it.
SENT, RECEIVED, STATUS = 0, 1, 2
BOTH_POSTED = 3


class ReplayError(ValueError):
    """The replay cannot finish: a deadlock or messages that nobody receives. The message names ranks and operations."""


@dataclass(frozen=True)
class MessageLaw:
    """What the replay needs of a network: int64 ``cost_ps`` and bool ``is_eager`` per message, and whether eager
    messages travel before their receive is posted."""

    cost_ps: np.ndarray
    is_eager: np.ndarray
    eager_start: bool

    def __post_init__(self) -> None:
        self.cost_ps.flags.writeable = False
        self.is_eager.flags.writeable = False


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
    compute_ps = compute_ps.view()
    compute_ps.flags.writeable = False  # as Ray and Arrow hand it over: one compiled kernel for all
    num_strands = len(program.strand_rank)
    num_open = len(program.open_queue)
    end_ps = np.zeros(num_operations, np.int64)
    message = np.full((program.num_messages, 3), -1, np.int64)
    message[:, STATUS] = 0
    place = program.strand_steps[:-1].copy()
    finished = np.zeros(num_strands, np.uint8)
    track_consumed = len(program.candidate_target) > 0
    _run(
        program.step, program.target, place, program.strand_steps[1:], program.num_ranks, program.rank_offsets,
        compute_ps, end_ps, law.cost_ps, law.is_eager, law.eager_start, message, finished,
        program.send_queue, program.send_tag, program.source, program.open_queue, program.open_source,
        program.open_tag, np.full(num_open, -1, np.int32), _wildcards(program), program.candidate_offsets,
        program.candidate_action, program.candidate_target,
        np.zeros(program.num_messages if track_consumed else 0, np.uint8), np.zeros(num_open, np.uint8),
        np.zeros(num_strands, np.uint8),
    )  # fmt: skip
    if not finished.all():
        raise ReplayError(_deadlock(program, place, finished))
    if program.num_queues:
        _refuse_unreceived(program, message[:, STATUS] & BOTH_POSTED)
    return Timeline(end_ps, message[:, SENT], message[:, RECEIVED])


def _wildcards(program: Program) -> np.ndarray:
    """int64[num_queues]: receives with a wildcard per queue."""
    wild = (program.open_source == ANY_SOURCE) | (program.open_tag == ANY_TAG)
    return np.bincount(program.open_queue[wild], minlength=program.num_queues).astype(np.int64)


def _refuse_unreceived(program: Program, status: np.ndarray) -> None:
    lonely = np.flatnonzero(status != BOTH_POSTED)
    if len(lonely):
        message = lonely[0]
        rank = int(program.source[message])
        raise ReplayError(
            f"rank {rank}, operation {int(program.send_operation[message])} sends {int(program.bytes[message])} B to "
            f"rank {int(program.destination[message])}, which never receives it ({len(lonely)} such messages); "
            "the trace is incomplete"
        )


def _deadlock(program: Program, place: np.ndarray, finished: np.ndarray) -> str:
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
def _open_match(first, nodes, tags, source, tag, takes_any, previous_of):  # type: ignore[no-untyped-def]
    """First entry of a queue that fits ``source`` and ``tag``, and (in ``previous_of``) the one before it; -1 for none.

    An entry's node holds its source in the upper half and the next entry in the lower: one cache line per entry. Where
    ``takes_any`` the queue holds sends, and -1 as the wanted source or tag takes any; else it holds receives, and their
    own -1 do.
    """
    previous = -1
    entry = first
    while entry >= 0:
        node = nodes[entry]
        has = node >> 32
        if takes_any:
            fits = (source == -1 or has == source) and (tag == -1 or tags[entry] == tag)
        else:
            fits = (has == -1 or has == source) and (tags[entry] == -1 or tags[entry] == tag)
        if fits:
            break
        previous = entry
        entry = _next(node)
    previous_of[0] = previous
    return entry


@njit(cache=True, nogil=True)
def _next(node):  # type: ignore[no-untyped-def]
    return ((node & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000  # the lower half as a signed number


@njit(cache=True, nogil=True)
def _link(nodes, entry, following):  # type: ignore[no-untyped-def]
    nodes[entry] = (nodes[entry] >> 32) << 32 | (following & 0xFFFFFFFF)


@njit(cache=True, nogil=True)
def _run(  # type: ignore[no-untyped-def]
    step, target, place, strand_end, num_ranks, rank_offsets, compute_ps, end_ps, cost_ps, is_eager, eager_start,
    message, finished, send_queue, send_tag, source, open_queue, open_source, open_tag, open_message, wildcards,
    candidate_offsets, candidate_action, candidate_target, consumed_message, consumed_open, consumed_strand,
):  # fmt: skip
    num_strands = place.shape[0]
    num_queues = wildcards.shape[0]  # of each: wildcard receives that are not matched yet
    clock = np.zeros(num_strands, np.int64)
    operation = np.zeros(num_strands, np.int64)
    resumes = np.zeros(num_strands, np.uint8)  # its step has begun: the compute before it is done
    waiting = np.zeros(num_strands, np.uint8)  # 1: for one thing, 2: for any of several
    permitted = np.zeros(num_strands, np.uint8)  # to take a step whose outcome depends on order
    stamp = np.zeros(num_strands, np.int64)  # of the strand's valid entry in the heap
    wake_time = np.full(num_strands, -1, np.int64)
    open_waiter = np.full(open_queue.shape[0], -1, np.int32)
    open_post = np.full(open_queue.shape[0], -1, np.int64)
    strand_waiter = np.full(num_strands, -1, np.int32)
    # queues of unmatched sends and of unmatched open receives, linked in order of posting
    send_first = np.full(num_queues, -1, np.int64)
    send_last = np.full(num_queues, -1, np.int64)
    send_node = np.full(send_queue.shape[0], -1, np.int64)
    open_first = np.full(num_queues, -1, np.int64)
    open_last = np.full(num_queues, -1, np.int64)
    open_node = np.full(open_queue.shape[0], -1, np.int64)
    previous_of = np.zeros(1, np.int64)
    ready = np.empty(num_strands, np.int32)
    num_ready = num_ranks
    for strand in range(num_ranks):
        operation[strand] = rank_offsets[strand]
        ready[strand] = num_ranks - 1 - strand
    heap_size = num_strands + candidate_target.shape[0] if num_queues or candidate_target.shape[0] else 0
    times = np.zeros(heap_size, np.int64)
    parked = np.zeros(heap_size, np.int64)
    stamps = np.zeros(heap_size, np.int64)
    num_parked = 0
    while num_ready > 0 or num_parked > 0:
        now = np.int64(0)
        if num_ready > 0:
            num_ready -= 1
            strand = ready[num_ready]
        else:
            strand = parked[0]
            now = times[0]
            valid = stamps[0] == stamp[strand]
            _heap_pop(times, parked, stamps, num_parked)
            num_parked -= 1
            if not valid:
                continue
            stamp[strand] += 1
            permitted[strand] = 1
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
            posted = np.int64(-1)
            if action == 0:
                message[what, 0] = time
                message[what, 2] |= 1
                posted = what
            elif action == 1:
                message[what, 1] = time
                message[what, 2] |= 2
                posted = what
            elif action == 2 or action == 3:
                if action == 3 or not is_eager[what]:
                    if message[what, 2] & 3 == 3:
                        time = max(time, message[what, 1])
                    else:
                        message[what, 2] |= (strand + 1) << 2
                        blocked = True
            elif action == 6:
                if open_message[what] >= 0:
                    time = max(time, message[open_message[what], 1])
                else:
                    open_waiter[what] = strand
                    blocked = True
            elif action == 8:
                clock[what] = time
                ready[num_ready] = what
                num_ready += 1
            elif action == 9:
                if finished[what]:
                    time = max(time, clock[what])
                else:
                    strand_waiter[what] = strand
                    blocked = True
            elif action != 10:
                if action == 4:
                    free = wildcards[send_queue[what]] == 0
                else:
                    free = action == 5 and wildcards[open_queue[what]] == 0
                if not free and permitted[strand] == 0:
                    _heap_push(times, parked, stamps, num_parked, time, strand, stamp[strand])
                    num_parked += 1
                    waiting[strand] = 3
                    blocked = True
                    break
                permitted[strand] = 0  # a permit is for one step: the next may be later than another strand's
                if action == 7:
                    best = _first_done(
                        candidate_offsets[what], candidate_offsets[what + 1], candidate_action, candidate_target,
                        consumed_message, consumed_open, consumed_strand, is_eager, message, open_message, finished,
                        clock, open_waiter, strand_waiter, strand, max(time, now), previous_of,
                    )  # fmt: skip
                    if best == -2:  # nothing is known to complete yet
                        blocked = True
                        waiting[strand] = 2
                        wake_time[strand] = -1
                    elif best > max(time, now):
                        _heap_push(times, parked, stamps, num_parked, best, strand, stamp[strand])
                        num_parked += 1
                        blocked = True
                        waiting[strand] = 2
                        wake_time[strand] = best
                    else:
                        time = max(time, best)
                elif action == 4:
                    queue = send_queue[what]
                    message[what, 0] = time
                    found = _open_match(
                        open_first[queue], open_node, open_tag, source[what], send_tag[what], False, previous_of
                    )
                    if found >= 0:
                        _unlink(open_first, open_last, open_node, queue, found, previous_of[0])
                        if open_source[found] == -1 or open_tag[found] == -1:
                            wildcards[queue] -= 1
                        open_message[found] = what
                        message[what, 1] = open_post[found]
                        message[what, 2] = 3 | (np.int64(open_waiter[found]) + 1) << 2
                        posted = what
                    else:
                        message[what, 2] = 1
                        _append(send_first, send_last, send_node, queue, what, source[what])
                else:
                    queue = open_queue[what]
                    open_post[what] = time
                    found = _open_match(
                        send_first[queue], send_node, send_tag, open_source[what], open_tag[what], True, previous_of
                    )
                    if found >= 0:
                        _unlink(send_first, send_last, send_node, queue, found, previous_of[0])
                        if open_source[what] == -1 or open_tag[what] == -1:
                            wildcards[queue] -= 1
                        open_message[what] = found
                        message[found, 1] = time
                        message[found, 2] |= 2
                        posted = found
                    else:
                        _append(open_first, open_last, open_node, queue, what, open_source[what])
            if blocked:
                if waiting[strand] == 0:
                    waiting[strand] = 1
                break
            if posted >= 0 and message[posted, 2] & 3 == 3:
                sent = message[posted, 0]
                if eager_start and is_eager[posted]:
                    done = max(message[posted, 1], sent + cost_ps[posted])
                else:
                    done = max(message[posted, 1], sent) + cost_ps[posted]
                message[posted, 1] = done
                woken = (message[posted, 2] >> 2) - 1
                if woken >= 0:
                    if waiting[woken] == 1 and _awaits(step, target, place[woken], open_message, posted):
                        waiting[woken] = 0
                        ready[num_ready] = woken
                        num_ready += 1
                    elif waiting[woken] == 2:
                        num_parked = _wake_any(woken, done, clock, stamp, wake_time, times, parked, stamps, num_parked)
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
                if waiting[woken] == 1 and step[place[woken]] & 15 == 9 and target[place[woken]] == strand:
                    waiting[woken] = 0
                    ready[num_ready] = woken
                    num_ready += 1
                elif waiting[woken] == 2:
                    num_parked = _wake_any(woken, time, clock, stamp, wake_time, times, parked, stamps, num_parked)


@njit(cache=True, nogil=True)
def _awaits(step, target, at, open_message, message):  # type: ignore[no-untyped-def]
    """Whether the step at which a strand is blocked waits for ``message``: it may have been left to wait for another
    after a wait-any."""
    action = step[at] & 15
    if action == 6:
        return open_message[target[at]] == message
    return (action == 2 or action == 3) and target[at] == message


@njit(cache=True, nogil=True)
def _wake_any(strand, done, clock, stamp, wake_time, times, parked, stamps, num_parked):  # type: ignore[no-untyped-def]
    """Park a strand that waits for any of several until ``done``, unless it wakes earlier anyway."""
    resume = max(clock[strand], done)
    if wake_time[strand] >= 0 and wake_time[strand] <= resume:
        return num_parked
    wake_time[strand] = resume
    stamp[strand] += 1
    _heap_push(times, parked, stamps, num_parked, resume, strand, stamp[strand])
    return num_parked + 1


@njit(cache=True, nogil=True)
def _append(first, last, nodes, queue, entry, source):  # type: ignore[no-untyped-def]
    nodes[entry] = np.int64(source) << 32 | 0xFFFFFFFF
    if first[queue] < 0:
        first[queue] = entry
    else:
        _link(nodes, last[queue], entry)
    last[queue] = entry


@njit(cache=True, nogil=True)
def _unlink(first, last, nodes, queue, entry, before):  # type: ignore[no-untyped-def]
    following = _next(nodes[entry])
    if before < 0:
        first[queue] = following
    else:
        _link(nodes, before, following)
    if last[queue] == entry:
        last[queue] = before


@njit(cache=True, nogil=True)
def _first_done(  # type: ignore[no-untyped-def]
    begin, end, candidate_action, candidate_target, consumed_message, consumed_open, consumed_strand, is_eager, message,
    open_message, finished, clock, open_waiter, strand_waiter, strand, now, scratch,
):  # fmt: skip
    """Earliest known completion among the open candidates of a wait-any: its time, -2 if none is known to complete,
    -1 if there is no open candidate. One that is done by ``now`` is consumed; otherwise the strand is registered with
    all that are not complete."""
    best = np.int64(-2)
    best_at = -1
    num_open = 0
    for k in range(begin, end):
        action = candidate_action[k]
        other = candidate_target[k]
        done = np.int64(-1)
        if action == 2 or action == 3:
            side = 1 if action == 2 else 2
            if consumed_message[other] & side:
                continue
            if action == 2 and is_eager[other]:
                done = message[other, 0]
            elif message[other, 2] & 3 == 3:
                done = message[other, 1]
            else:
                message[other, 2] = (message[other, 2] & 3) | (strand + 1) << 2
        elif action == 6:
            if consumed_open[other]:
                continue
            if open_message[other] >= 0:
                done = message[open_message[other], 1]
            else:
                open_waiter[other] = strand
        elif action == 9:
            if consumed_strand[other]:
                continue
            if finished[other]:
                done = clock[other]
            else:
                strand_waiter[other] = strand
        else:  # a request of MPI_PROC_NULL
            done = np.int64(0)
        num_open += 1
        if done >= 0 and (best < 0 or done < best):
            best = done
            best_at = k
    if num_open == 0:
        return np.int64(-1)
    if best >= 0 and best <= now:
        action = candidate_action[best_at]
        other = candidate_target[best_at]
        if action == 2 or action == 3:
            consumed_message[other] |= 1 if action == 2 else 2
        elif action == 6:
            consumed_open[other] = 1
        elif action == 9:
            consumed_strand[other] = 1
    return best
