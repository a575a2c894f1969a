"""The kernel of the replay: strands run on arrays, each as far as it can. What it computes, and its cost, is said in
network/replay/replay.py; steps whose outcome depends on order are taken in network/replay/order_kernel.py."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import allocation_free, by_reference, inner, merged
from manyscale.models.network.program import Program
from manyscale.models.network.replay.steps import (
    ACTION,
    ENTER_GATE,
    FIRST,
    LAST,
    NOTHING,
    POST_RECEIVE,
    POST_SEND,
    START_STRAND,
    WAIT_GATE,
    WAIT_RECEIVE,
    WAIT_SEND,
    WAIT_STRAND,
)

# What has been posted of a message
SEND_POSTED: Final = 1
RECEIVE_POSTED: Final = 2
BOTH_POSTED: Final = 3

# What a strand has to be called for: nothing, any of several, the arrival of the message of that number, or with one of
# the bits the end of a strand or the match of an open receive.
NOTHING_AWAITED: Final = -1
ANY_AWAITED: Final = -2
OF_STRAND: Final = 1 << 32
OF_OPEN: Final = 1 << 33

# How far a strand is: before a step, inside one, at its end
FRESH, BEGUN, ENDED = 0, 1, 2

NOT_CALLED: Final = (1 << 63) - 1
_READY, _CALLED = 0, 1

MESSAGE: Final = np.dtype(
    [
        ("sent", "i8"),
        ("received", "i8"),  # when its receive was posted, then when it arrived
        ("waiter", "i4"),
        ("posted", "i4"),
    ]
)
STRAND: Final = np.dtype(
    [
        ("clock", "i8"), ("place", "i8"), ("operation", "i8"), ("awaits", "i8"),
        ("called", "i8"),  # of one that waits for any of several: when the earliest is there, NOT_CALLED for none
        ("waiter", "i4"), ("following", "i4"),  # who waits for its end; the next of those that wait at a gate
        ("phase", "i4"), ("unused", "i4"),
    ]
)  # fmt: skip
GATE: Final = np.dtype(
    [
        ("opens", "i8"), ("cost", "i8"),  # while some are missing: when the last entered
        ("missing", "i4"), ("waiter", "i4"),
    ]
)  # fmt: skip


class Script(NamedTuple):
    """What strands run on; none of it changes. See Program and MessageLaw."""

    step: np.ndarray
    target: np.ndarray
    strand_end: np.ndarray
    compute_ps: np.ndarray
    cost_ps: np.ndarray
    is_eager: np.ndarray
    eager_start: bool


class Stage(NamedTuple):
    """Where strands, messages and gates are. ``end_ps`` per operation is the result, and the times of messages are."""

    strand: np.ndarray
    message: np.ndarray
    gate: np.ndarray
    end_ps: np.ndarray
    ready: np.ndarray  # strands that can go on, a stack
    called: np.ndarray  # strands that wait for any of several, one of which is there
    counter: np.ndarray  # [2]: of ready, of called


def new_stage(program: Program, gate_cost_ps: np.ndarray) -> Stage:
    """All ranks before their first step, the first of them on top."""
    num_strands, num_ranks = len(program.strand_rank), program.num_ranks
    strand = np.zeros(num_strands, STRAND)
    strand["place"] = program.strand_steps[:-1]
    strand["operation"][:num_ranks] = program.rank_offsets[:-1]
    strand["awaits"] = NOTHING_AWAITED
    strand["called"] = NOT_CALLED
    strand["waiter"] = strand["following"] = -1
    message = np.zeros(program.num_messages, MESSAGE)
    message["sent"] = message["received"] = message["waiter"] = -1
    gate = np.zeros(len(program.gate_size), GATE)
    gate["cost"], gate["missing"], gate["waiter"] = gate_cost_ps, program.gate_size, -1
    ready = np.zeros(num_strands, np.int32)
    ready[:num_ranks] = np.arange(num_ranks)[::-1]
    return Stage(
        strand=strand,
        message=message,
        gate=gate,
        end_ps=np.zeros(int(program.rank_offsets[-1]), np.int64),
        ready=ready,
        called=np.zeros(num_strands, np.int32),
        counter=np.array([num_ranks, 0]),
    )


@allocation_free
def run(script, stage):  # type: ignore[no-untyped-def]
    """Run all strands of a program without steps that depend on order, until none can go on."""
    run_ready(by_reference(script), by_reference(stage))


@inner
def run_ready(script, stage):  # type: ignore[no-untyped-def]
    """Run the strands that can go on, until none can; or one that has come to a step that depends on order: it, else
    -1."""
    while stage.counter[_READY] > 0:
        stage.counter[_READY] -= 1
        strand = stage.ready[stage.counter[_READY]]
        if not _run_strand(script, stage, strand):
            return strand
    return -1


@inner
def _run_strand(script, stage, strand):  # type: ignore[no-untyped-def]
    """Run a strand until it ends or is blocked. False if it has come to a step that depends on order."""
    me = stage.strand[strand]
    time, at, row, fresh = me.clock, me.place, me.operation, me.phase == FRESH
    end = script.strand_end[strand]
    knows = True
    while at < end:
        code = script.step[at]
        what = script.target[at]
        action = code & ACTION
        if fresh and code & FIRST:
            time += script.compute_ps[row]
        fresh = True
        if action == POST_SEND or action == POST_RECEIVE:
            message = stage.message[what]
            if action == POST_SEND:
                message.sent = time
            else:
                message.received = time
            message.posted |= SEND_POSTED if action == POST_SEND else RECEIVE_POSTED
            if message.posted == BOTH_POSTED:
                meet(script, stage, what)
        elif action == WAIT_SEND or action == WAIT_RECEIVE:
            if action == WAIT_RECEIVE or not script.is_eager[what]:
                message = stage.message[what]
                if message.posted != BOTH_POSTED:
                    message.waiter = strand
                    me.awaits = what
                    break
                time = max(time, message.received)
        elif action >= START_STRAND:
            if action != NOTHING:
                time = _pass(stage, strand, action, what, time)
            if time < 0:
                time = -1 - time
                break
        else:
            knows = False
            break
        if code & LAST:
            stage.end_ps[row] = time
            row += 1
        at += 1
    me.clock, me.place, me.operation, me.phase = time, at, row, BEGUN
    if at == end:
        me.phase = ENDED
        if me.waiter >= 0:
            call(stage, me.waiter, OF_STRAND | strand, time)
    return knows


@inner
def _pass(stage, strand, action, what, time):  # type: ignore[no-untyped-def]
    """Start or wait for another strand, enter or wait at a gate: the time after it; -1 - ``time`` if it blocks."""
    if action == START_STRAND:
        stage.strand[what].clock = time
        set_ready(stage, what)
    elif action == WAIT_STRAND:
        other = stage.strand[what]
        if other.phase != ENDED:
            other.waiter = strand
            stage.strand[strand].awaits = OF_STRAND | what
            return -1 - time
        time = max(time, other.clock)
    elif action == ENTER_GATE:
        gate = stage.gate[what]
        gate.opens = max(gate.opens, time)
        gate.missing -= 1
        if gate.missing == 0:
            gate.opens += gate.cost
            woken = gate.waiter
            while woken >= 0:
                set_ready(stage, woken)
                woken = stage.strand[woken].following
    elif action == WAIT_GATE:
        gate = stage.gate[what]
        if gate.missing > 0:
            stage.strand[strand].following = gate.waiter
            gate.waiter = strand
            return -1 - time
        time = max(time, gate.opens)
    return time


@inner
def meet(script, stage, number):  # type: ignore[no-untyped-def]
    """Both sides of a message have been posted, so it is known when it arrives."""
    message = stage.message[number]
    cost = script.cost_ps[number]
    if script.eager_start and script.is_eager[number]:
        done = max(message.received, message.sent + cost)
    else:
        done = max(message.received, message.sent) + cost
    message.received = done
    if message.waiter >= 0:
        call(stage, message.waiter, number, done)


@inner
def call(stage, strand, event, time):  # type: ignore[no-untyped-def]
    """An event happens at ``time``: a strand that waits for it, or for any of several, can go on. (It may wait for
    something else by now, after a wait for any of several.)"""
    me = stage.strand[strand]
    if me.awaits == event:
        me.awaits = NOTHING_AWAITED
        set_ready(stage, strand)
    elif me.awaits == ANY_AWAITED:
        if me.called == NOT_CALLED:
            stage.called[stage.counter[_CALLED]] = strand
            stage.counter[_CALLED] += 1
        me.called = min(me.called, time)


@merged
def set_ready(stage, strand):  # type: ignore[no-untyped-def]
    stage.ready[stage.counter[_READY]] = strand
    stage.counter[_READY] += 1


@inner
def next_called(stage):  # type: ignore[no-untyped-def]
    """One of the strands that were called for one of several, -1 for none."""
    if stage.counter[_CALLED] == 0:
        return -1
    stage.counter[_CALLED] -= 1
    return stage.called[stage.counter[_CALLED]]
