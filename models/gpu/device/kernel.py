"""Hosts and GPUs in the order of simulated time.

They share the heap of the network's strands (network/replay/timed_strands.py): numbers from that of strands on are
hosts, then operations, then GPUs. What can begin at a time begins before anything else happens; a host goes on, at the
same time, until it computes or waits.

An engine does one copy after the other, in the order in which they can begin. A launch takes its latency, then it
arrives at its GPU. Launches of other ranks than the one whose launches run wait until these have ended, in the order in
which they came, unless the ranks share the GPU (``mark[3]``). A launch of which it is known what it ``takes`` beside
those that run with it ends then; blocks of the others share the GPU (sharing_kernel.py). What takes a time of the trace
begins ``delay[0]`` after it was given, or ``delay[1]`` behind what it waited for, whichever is later.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.gpu.device.sharing_kernel import give_out, go_on, set_rates, take_apart
from manyscale.models.gpu.device.state import (
    ALONE,
    COMPUTED,
    FRESH,
    IDLE,
    MPI_CALL,
    RUNS,
    SHARED,
    STARTS,
    WAITING,
)
from manyscale.models.kernels import inner, separate
from manyscale.models.kernels.event_heap import pop, push
from manyscale.models.network.replay.timed_strands import cores_are_next
from manyscale.models.workload.gpu_tables import GpuOperationKind

_LAUNCH: Final = int(GpuOperationKind.launch)
_COMMUNICATION: Final = int(GpuOperationKind.communication)
_STREAM: Final = int(GpuOperationKind.synchronize_stream)
_EVENT: Final = int(GpuOperationKind.synchronize_event)
_DEVICE: Final = int(GpuOperationKind.synchronize_device)
_SIGNAL: Final = int(GpuOperationKind.signal_thread)
_AWAIT: Final = int(GpuOperationKind.await_thread)


@separate
def run_devices(state, devices, limit):  # type: ignore[no-untyped-def]
    """Run hosts and GPUs as long as they are next, and before ``limit``, when the next transfer ends."""
    first_host = state.strand.shape[0]
    first_operation = first_host + devices.host.shape[0]
    first_gpu = first_operation + devices.operation.shape[0]
    while cores_are_next(state) and state.heap[0].time < limit:
        exact = state.heap[0].time
        time = np.int64(exact)
        time += time < exact
        number = pop(state.heap, state.heap_size)
        if number < first_operation:
            _run_host(state, devices, number - first_host, time)
        elif number < first_gpu:
            _operation_goes_on(state, devices, number - first_operation, time)
        else:
            _gpu_goes_on(state, devices, number - first_gpu, time)
        _begin_work(state, devices, time)


@inner
def _park(state, number, time):  # type: ignore[no-untyped-def]
    push(state.heap, state.heap_size, number, state.now.dtype.type(time))


# Hosts


@inner
def _run_host(state, devices, number, time):  # type: ignore[no-untyped-def]
    """A host goes on."""
    host = devices.host[number]
    while host.item < host.end_item:
        item = devices.item[host.item]
        if host.phase == FRESH:
            host.phase = COMPUTED
            if item.compute > 0:
                _park(state, state.strand.shape[0] + number, time + item.compute)
                return
        if host.phase == COMPUTED:
            host.phase = WAITING
            if item.row >= 0:
                devices.begin[item.row] = time
            if item.kind == MPI_CALL:
                state.strand[item.strand].waiter = state.strand.shape[0] + number
                _park(state, item.strand, time)
                return
            if item.kind == _SIGNAL:
                _signal(state, devices, item.operation, time)
                _begin_work(state, devices, time)
            elif item.operation >= 0:
                _give(devices, item.operation, time)
                _begin_work(state, devices, time)
            host.pending = _awaited(devices, number, item)
            if host.pending > 0:
                return
        if item.row >= 0:
            devices.end[item.row] = time
        host.phase = FRESH
        host.item += 1
    host.end = time


@inner
def _awaited(devices, host, item):  # type: ignore[no-untyped-def]
    """How many operations a host waits for; they know it then."""
    if item.kind == _DEVICE:
        count = 0
        mine = devices.stream[item.stream]
        for k in range(mine.first, mine.end):
            count += _await(devices, host, devices.stream[k].tail)
        return count
    if item.kind == _STREAM:
        return _await(devices, host, devices.stream[item.stream].tail)
    if item.kind == _EVENT or item.kind == _AWAIT:
        return _await(devices, host, item.awaited)
    return _await(devices, host, item.operation) if item.waits else 0


@inner
def _await(devices, host, operation):  # type: ignore[no-untyped-def]
    if operation < 0 or devices.operation[operation].is_done:
        return 0
    _edge(devices, operation, devices.operation.shape[0] + host)
    return 1


@inner
def _edge(devices, before, after):  # type: ignore[no-untyped-def]
    """An operation, or a host, goes on after an operation."""
    edge = devices.mark[2]
    devices.mark[2] = edge + 1
    devices.edge[edge, 0] = after
    devices.edge[edge, 1] = devices.operation[before].first_edge
    devices.operation[before].first_edge = edge


@inner
def _signal(state, devices, number, time):  # type: ignore[no-untyped-def]
    """A thread hands over."""
    operation = devices.operation[number]
    operation.given = operation.start = time
    _complete(state, devices, number, time)


# Streams


@inner
def _give(devices, number, time):  # type: ignore[no-untyped-def]
    """A stream is given an operation."""
    operation = devices.operation[number]
    operation.given = time
    stream = devices.stream[operation.stream]
    _follow(devices, number, stream.tail)
    _follow(devices, number, operation.awaited)
    if stream.is_default:
        for k in range(stream.first, stream.end):
            other = devices.stream[k]
            if other.is_blocking and other.is_fresh and k != operation.stream:
                _follow(devices, number, other.tail)
                other.is_fresh = 0
    elif stream.is_blocking and stream.default >= 0:
        _follow(devices, number, devices.stream[stream.default].tail)
    stream.tail = number
    stream.is_fresh = 1
    if operation.pending == 0:
        _can_begin(devices, number)


@inner
def _follow(devices, number, before):  # type: ignore[no-untyped-def]
    """An operation begins after another."""
    if before < 0 or devices.operation[before].is_done:
        return
    _edge(devices, before, number)
    devices.operation[number].pending += 1


@inner
def _can_begin(devices, number):  # type: ignore[no-untyped-def]
    devices.work[devices.mark[1]] = number
    devices.mark[1] += 1


@inner
def _begin_work(state, devices, time):  # type: ignore[no-untyped-def]
    """Begin all that can."""
    while devices.mark[0] < devices.mark[1]:
        number = devices.work[devices.mark[0]]
        devices.mark[0] += 1
        _begin(state, devices, number, time)


@inner
def _begin(state, devices, number, time):  # type: ignore[no-untyped-def]
    operation = devices.operation[number]
    operation.start = _start(devices, operation, time)
    if operation.kind == _LAUNCH and (operation.launch >= 0 or operation.takes >= 0):
        operation.phase = STARTS
        latency = devices.launch[operation.launch].latency if operation.launch >= 0 else 0
        _park(state, _first_operation(state, devices) + number, operation.start + latency)
    elif operation.kind == _COMMUNICATION and operation.meeting >= 0:
        operation.phase = STARTS
        if operation.start > time:
            _park(state, _first_operation(state, devices) + number, operation.start)
        else:
            _meet(state, devices, number, time)
    elif operation.kind == _COMMUNICATION and operation.strand >= 0:
        operation.start = time
        state.strand[operation.strand].waiter = _first_operation(state, devices) + number
        _park(state, operation.strand, time)
    elif operation.engine >= 0:
        _hold(devices, number, operation.engine)
        if operation.other_engine >= 0:
            _hold(devices, number, operation.other_engine)
            devices.engine[operation.other_engine] = operation.start + operation.takes
        devices.engine[operation.engine] = operation.start + operation.takes
        _park(state, _first_operation(state, devices) + number, operation.start + operation.takes)
    else:
        operation.start = time
        _complete(state, devices, number, time)


@inner
def _first_operation(state, devices):  # type: ignore[no-untyped-def]
    """The number of operation 0 in the heap."""
    return state.strand.shape[0] + devices.host.shape[0]


@inner
def _start(devices, operation, time):  # type: ignore[no-untyped-def]
    """When what has nothing before it any more begins: what is traced, later than that."""
    if not operation.is_traced:
        return time
    behind = time + devices.delay[1] if operation.cause >= 0 else time
    given = operation.given + devices.delay[0]
    if given >= behind:
        operation.cause = -1
        return given
    return behind


@inner
def _hold(devices, number, engine):  # type: ignore[no-untyped-def]
    """An operation begins no sooner than an engine is free, which is its own then."""
    operation = devices.operation[number]
    if devices.engine[engine] > operation.start:
        operation.start = devices.engine[engine]
        operation.cause = devices.engine_last[engine]
    devices.engine_last[engine] = number


@inner
def _meet(state, devices, number, time):  # type: ignore[no-untyped-def]
    """A stream has come to a collective: the last one begins it."""
    operation = devices.operation[number]
    meeting = devices.meeting[operation.meeting]
    operation.following = meeting.first
    meeting.first = number
    meeting.arrived += 1
    if meeting.arrived < meeting.size:
        return
    operation.phase = RUNS
    if meeting.strand >= 0:
        state.strand[meeting.strand].waiter = _first_operation(state, devices) + number
        _park(state, meeting.strand, time)
    else:
        _park(state, _first_operation(state, devices) + number, time + meeting.takes)
    while number >= 0:
        devices.operation[number].runs = time
        number = devices.operation[number].following


@inner
def _part(state, devices, number, time):  # type: ignore[no-untyped-def]
    """A collective has ended."""
    while number >= 0:
        _complete(state, devices, number, time)
        number = devices.operation[number].following


@inner
def _complete(state, devices, number, time):  # type: ignore[no-untyped-def]
    operation = devices.operation[number]
    operation.end = time
    operation.is_done = 1
    edge = operation.first_edge
    operations = devices.operation.shape[0]
    while edge >= 0:
        after = devices.edge[edge, 0]
        if after >= operations:
            _let_go(state, devices, after - operations, number, time)
        else:
            devices.operation[after].pending -= 1
            if devices.operation[after].pending == 0:
                devices.operation[after].cause = number
                _can_begin(devices, after)
        edge = devices.edge[edge, 1]


@inner
def _let_go(state, devices, number, cause, time):  # type: ignore[no-untyped-def]
    """An operation that a host waits for is done."""
    host = devices.host[number]
    host.pending -= 1
    if host.pending == 0:
        devices.item[host.item].cause = cause
        _park(state, state.strand.shape[0] + number, time)


@inner
def _operation_goes_on(state, devices, number, time):  # type: ignore[no-untyped-def]
    """A launch arrives at its GPU, or has ended; a stream comes to a collective; anything else has ended."""
    operation = devices.operation[number]
    if operation.kind == _COMMUNICATION and operation.meeting >= 0:
        if operation.phase == STARTS:
            _meet(state, devices, number, time)
        else:
            _part(state, devices, number, time)
    elif operation.phase == STARTS:
        operation.phase = RUNS
        _arrive(state, devices, operation.gpu, number, time)
    elif operation.kind == _LAUNCH and operation.takes >= 0:
        _count_time(devices, operation.gpu, time)
        devices.gpu[operation.gpu].known -= 1
        _complete(state, devices, number, time)
        _admit(state, devices, operation.gpu, time)
    else:
        _complete(state, devices, number, time)


# Launches on a GPU


@inner
def _arrive(state, devices, gpu, number, time):  # type: ignore[no-untyped-def]
    """A launch runs, or waits for its rank's turn or for a free slot."""
    me = devices.gpu[gpu]
    if me.queue_first < 0 and _is_admitted(devices, gpu, number):
        _place(state, devices, gpu, number, time)
        return
    devices.operation[number].following = -1
    if me.queue_first < 0:
        me.queue_first = number
    else:
        devices.operation[me.queue_last].following = number
    me.queue_last = number


@inner
def _is_admitted(devices, gpu, number):  # type: ignore[no-untyped-def]
    me = devices.gpu[gpu]
    if me.running + me.known == devices.mark[4]:
        return False
    rank = devices.stream[devices.operation[number].stream].rank
    return me.running + me.known == 0 or me.owner == rank or devices.mark[3] != 0


@inner
def _admit(state, devices, gpu, time):  # type: ignore[no-untyped-def]
    """Those that waited."""
    me = devices.gpu[gpu]
    while me.queue_first >= 0 and _is_admitted(devices, gpu, me.queue_first):
        number = me.queue_first
        me.queue_first = devices.operation[number].following
        _place(state, devices, gpu, number, time)


@inner
def _count_time(devices, gpu, time):  # type: ignore[no-untyped-def]
    me = devices.gpu[gpu]
    if me.running + me.known > 0:
        me.busy += time - me.since
    if me.running + me.known > 1:
        me.overlapped += time - me.since
        if me.running > 0:
            me.assumed += time - me.since
    me.since = time


@inner
def _place(state, devices, gpu, number, time):  # type: ignore[no-untyped-def]
    """A launch begins to run on a GPU that has a slot for it."""
    _count_time(devices, gpu, time)
    me = devices.gpu[gpu]
    operation = devices.operation[number]
    operation.runs = time
    if me.running + me.known == 0:
        me.owner = devices.stream[operation.stream].rank
    if operation.takes >= 0:
        me.known += 1
        if operation.is_traced:
            operation.start = time
        _park(state, _first_operation(state, devices) + number, time + operation.takes)
        return
    if me.mode == ALONE:
        for slot in range(devices.slot.shape[1]):
            if devices.slot[gpu, slot].operation >= 0:
                take_apart(devices, gpu, slot, time)
        me.mode = SHARED
        me.now = time
    slot = 0
    while devices.slot[gpu, slot].operation >= 0:
        slot += 1
    mine = devices.slot[gpu, slot]
    launch = devices.launch[operation.launch]
    mine.operation = number
    mine.next_block = mine.resident = 0
    mine.left = launch.blocks
    mine.begin = time
    mine.arrival = me.arrivals
    me.arrivals += 1
    me.running += 1
    if me.running == 1:
        me.mode = ALONE
        _wake_gpu(state, devices, gpu, time + launch.busy)
    else:
        _share(state, devices, gpu, time)


@inner
def _wake_gpu(state, devices, gpu, time):  # type: ignore[no-untyped-def]
    devices.gpu[gpu].next = time
    _park(state, _first_operation(state, devices) + devices.operation.shape[0] + gpu, time)


@inner
def _gpu_goes_on(state, devices, gpu, time):  # type: ignore[no-untyped-def]
    """Some of a GPU's blocks have ended; an entry of the heap that came too late is passed over."""
    me = devices.gpu[gpu]
    if time != me.next or me.mode == IDLE:
        return
    if me.mode == ALONE:
        _count_time(devices, gpu, time)
        for slot in range(devices.slot.shape[1]):
            if devices.slot[gpu, slot].operation >= 0:
                _complete(state, devices, devices.slot[gpu, slot].operation, time)
                devices.slot[gpu, slot].operation = -1
        me.running = 0
        me.mode = IDLE
    else:
        _share(state, devices, gpu, time)
    _admit(state, devices, gpu, time)


@inner
def _share(state, devices, gpu, time):  # type: ignore[no-untyped-def]
    """Launches that share a GPU at a time: ends, new blocks, rates."""
    me = devices.gpu[gpu]
    go_on(devices, gpu, time)
    give_out(devices, gpu)
    for slot in range(devices.slot.shape[1]):
        mine = devices.slot[gpu, slot]
        if mine.operation >= 0 and mine.left == 0:
            _count_time(devices, gpu, time)
            tail = devices.launch[devices.operation[mine.operation].launch].tail
            _park(state, _first_operation(state, devices) + mine.operation, time + tail)
            mine.operation = -1
            me.running -= 1
    if me.running == 0:
        me.mode = IDLE
        return
    nearest = set_rates(devices, gpu)
    _wake_gpu(state, devices, gpu, time + max(np.int64(1), np.int64(np.ceil(nearest))))


__all__ = ["run_devices"]
