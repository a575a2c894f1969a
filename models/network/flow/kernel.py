"""The loop of the flow network: strands, latencies and flows in one simulated time.

A message first waits for its latency, then flows over its links (network/flow/max_min.py), then arrives. All that
happens at one instant happens before the rates are solved again. Times are float64 picoseconds; an arrival is rounded
to 1 / 1024 of one, so that flows which end together by the law do so in the loop too.

With a ``step``, rates are solved at its multiples alone: a flow that shares a link waits for the next one to begin, and
what a flow leaves when it ends is given to others at the next one. Flows that meet no others begin at once.

Cost: O((messages + parks) x log (messages in flight + strands)) besides the solver's.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import allocation_free, by_reference, inner, merged
from manyscale.models.kernels.event_heap import pop, push
from manyscale.models.network.flow.link_clocks import PENDING
from manyscale.models.network.flow.max_min import solve
from manyscale.models.network.flow.starts_and_ends import add_flow, end_flows, needs_solving, next_end, start_at_once
from manyscale.models.network.replay.strand_state import BOTH_POSTED, NEVER, RECEIVE_POSTED, SEND_POSTED
from manyscale.models.network.replay.timed_strands import complete, cores_are_next, next_time, run_next

# What a message does after its latency
ARRIVES, FLOWS = 0, 1

# How far it is
_STARTED, _AWAITED = 1, 2  # _AWAITED: it arrived before its receive was posted

_GRID: Final = 1024.0

MESSAGE: Final = np.dtype(
    [("latency", "f8"), ("amount", "f8"), ("pair", "i4"), ("private", "i4"), ("kind", "i4"), ("progress", "i4")]
)


class Traffic(NamedTuple):
    """Messages, and the links of each pair of nodes. ``uses``: how much of its rate a flow takes on each link.

    Of a message: ``latency`` (of one that does not flow, its whole time), ``amount`` that flows, and a ``private`` link
    that bounds its rate, -1 for none.
    """

    message: np.ndarray
    offsets: np.ndarray
    links: np.ndarray
    uses: np.ndarray
    weight: np.ndarray  # per pair
    waiting: np.ndarray  # heap of messages that pay their latency
    waiting_size: np.ndarray
    of_flow: np.ndarray  # message of each flow
    ended: np.ndarray  # scratch: flows that end together
    step: np.ndarray  # float64[2]: at whose multiples rates are solved, 0: whenever they change; when they will be next


@allocation_free
def run(steps, state, traffic, sharing, eager_start):  # type: ignore[no-untyped-def]
    """Run all strands until none can go on."""
    run_flows(by_reference(steps), by_reference(state), by_reference(traffic), by_reference(sharing), eager_start)


@merged
def run_flows(steps, state, traffic, sharing, eager_start):  # type: ignore[no-untyped-def]
    """Run all strands to their end, or until none can go on, or until a core is next: the time of the next transfer's
    event, NEVER for none."""
    while True:
        own_time = min(np.float64(NEVER), _snapped(next_end(sharing)))
        if traffic.waiting_size[0] > 0:
            own_time = min(own_time, traffic.waiting[0].time)
        own_time = min(own_time, traffic.step[1])
        time = min(next_time(state), own_time)
        if time >= NEVER or (time < own_time and cores_are_next(state)):
            return own_time
        changed = False
        while _snapped(next_end(sharing)) <= time:
            count = end_flows(sharing, time, 0.5 / _GRID + 1e-15 * time, traffic.ended)
            changed = True
            for k in range(count):
                _arrive(steps, state, traffic, traffic.of_flow[traffic.ended[k]], time)
        while True:
            while traffic.waiting_size[0] > 0 and traffic.waiting[0].time <= time:
                message = pop(traffic.waiting, traffic.waiting_size)
                if traffic.message[message].kind == FLOWS:
                    _flow(traffic, sharing, message, time)
                    changed = True
                else:
                    _arrive(steps, state, traffic, message, time)
            if next_time(state) > time or cores_are_next(state):
                break
            count = run_next(steps, state)
            for k in range(count):
                _posted(steps, state, traffic, state.posted[k], time, eager_start)
        step = traffic.step[0]
        if changed and needs_solving(sharing):
            traffic.step[1] = np.ceil(time / step) * step if step > 0 else time
        if traffic.step[1] <= time:
            solve(sharing, time)
            traffic.step[1] = np.inf


@inner
def _snapped(time):  # type: ignore[no-untyped-def]
    return np.rint(time * _GRID) / _GRID


@inner
def _posted(steps, state, traffic, message, time, eager_start):  # type: ignore[no-untyped-def]
    """A side of a message has been posted: it starts, or is received at once because it is there already."""
    status = state.message[message].status
    record = traffic.message[message]
    if record.progress == _AWAITED:
        if status & RECEIVE_POSTED:
            complete(steps, state, message, time)
        return
    if record.progress == _STARTED:
        return
    if status & BOTH_POSTED == BOTH_POSTED or (eager_start and steps.is_eager[message] and status & SEND_POSTED):
        record.progress = _STARTED
        push(traffic.waiting, traffic.waiting_size, message, time + record.latency)


@inner
def _arrive(steps, state, traffic, message, time):  # type: ignore[no-untyped-def]
    if state.message[message].status & RECEIVE_POSTED:
        complete(steps, state, message, time)
    else:
        traffic.message[message].progress = _AWAITED


@inner
def _flow(traffic, sharing, message, time):  # type: ignore[no-untyped-def]
    record = traffic.message[message]
    pair = record.pair
    begin, end = traffic.offsets[pair], traffic.offsets[pair + 1]
    links, uses = traffic.links[begin:end], traffic.uses[begin:end]
    num_pending = sharing.counter[PENDING]
    flow = add_flow(sharing, links, uses, record.private, traffic.weight[pair], record.amount)
    traffic.of_flow[flow] = message
    if traffic.step[0] > 0:
        start_at_once(sharing, flow, num_pending, time)
