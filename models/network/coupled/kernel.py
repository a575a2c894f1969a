"""The loop of a coupled replay: cores that execute task instances, strands and transfers in one simulated time.

A core that comes to an MPI operation starts the operation's strand and is blocked until the strand has ended. Cores of
a rank have a heap of their own; in the heap of strands stand, with numbers after theirs, the cores whose operation has
ended, and the ranks by the time of their next core. Times of cores are whole picoseconds (a network model may use
fractions; a core then goes on at the next whole one).

What a rank's cores do depends on others only through operations. So while none of its operations is under way, the rank
runs ahead of all others, until it begins one; from then on it goes by the heap. The order is the same as without that.

Equal times: transfers, strands, cores whose operation has ended, other cores; within each by number.

Cost: O(scheduler + operations x log(strands + cores) + pieces x log(cores of a rank)).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import allocation_free, by_reference, inlined, inner, merged
from manyscale.models.kernels.event_heap import event_record, pop, push
from manyscale.models.network.dimemas.kernel import run_transfers
from manyscale.models.network.flow.kernel import run_flows
from manyscale.models.network.replay.strand_state import ARRIVED, BOTH_POSTED, NEVER, SEND_POSTED
from manyscale.models.network.replay.timed_strands import complete, cores_are_next, next_time, run_next
from manyscale.models.node.scheduler.kernel import (
    CREATES,
    OPERATION,
    PHASE_END,
    PIECE,
    advance,
    begin_phase,
)
from manyscale.models.node.scheduler.learning import Learning
from manyscale.models.node.scheduler.ready_queues import ReadyQueues
from manyscale.models.node.scheduler.scheduler import ProgramArrays, Scheduler

NODE: Final = np.dtype(
    [
        ("first_core", "i8"), ("end_core", "i8"),
        ("first_row", "i8"), ("first_strand", "i8"), ("num_operations", "i8"),  # rows of the workload's operations
        ("first_piece", "i8"), ("first_phase", "i8"), ("end_phase", "i8"),
        ("phase", "i8"),  # -1 before the first
        ("end", "i8"),  # when the rank ended, -1: not yet
        ("empty_since", "i8"),  # when the last core stopped to compute
        ("under_way", "i4"),  # operations
        ("num_parked", "i4"),  # entries of the rank in the heap of strands
        ("keeps_rows", "i4"),
        ("begins_phase", "i4"),  # it goes on with the next phase
    ]
)  # fmt: skip
CORE: Final = np.dtype(
    [
        ("node", "i8"), ("row", "i8"),  # operation that it is blocked by
        ("busy", "i8"), ("blocked", "i8"), ("per_speed", "f8"),
        ("parked", "i8"),  # of a rank's entries in the heap of strands, the times, latest first
        ("ends_phase", "i8"),
    ]
)  # fmt: skip
ROW: Final = np.dtype(
    [
        ("core", "i4"), ("instance", "i4"), ("operation", "i8"), ("start", "i8"), ("end", "i8"), ("created", "i8"),
        ("ready", "i8"),
    ]
)  # fmt: skip


class Nodes(NamedTuple):
    """Ranks that consist of cores and task instances; arrays of all of them one after another."""

    scheduler: Scheduler
    bounds: np.ndarray  # int64[arrays of Scheduler, nodes, 2]: part of an array that is a node's
    node: np.ndarray
    core: np.ndarray
    heap: np.ndarray  # of the cores of each node
    heap_size: np.ndarray  # per node
    piece_ps: np.ndarray
    per_speedup: np.ndarray  # float64[1]: factor on pieces of instances that create others
    phase_operation: np.ndarray
    begin: np.ndarray  # per operation of the workload: when it began
    exposed: np.ndarray  # per operation: from then to its end no core of the rank had anything to execute
    row: np.ndarray  # what cores did, see ROW; of operations the row in the workload, else -1
    num_rows: np.ndarray


class Flights(NamedTuple):
    """Transfers of a known cost, whatever else is under way."""

    cost: np.ndarray
    progress: np.ndarray  # uint8 per message
    heap: np.ndarray
    heap_size: np.ndarray


_STARTED, _LANDED = 1, 2


def new_flights(cost: np.ndarray) -> Flights:
    """None under way; ``cost`` int64 per message."""
    heap = np.zeros(len(cost), event_record(np.dtype(np.int64)))
    return Flights(cost, np.zeros(len(cost), np.uint8), heap, np.zeros(1, np.int64))


@merged
def run_fixed(steps, state, flights, eager_start):  # type: ignore[no-untyped-def]
    """Run all strands to their end, or until a core is next: when the next transfer ends, NEVER for none.

    The law of network/replay/replay.py: a transfer takes its cost from the later post on, or an eager one from the send
    on.
    """
    while True:
        strands_at = next_time(state)
        if flights.heap_size[0] > 0 and flights.heap[0].time <= strands_at:
            time = flights.heap[0].time
            message = pop(flights.heap, flights.heap_size)
            flights.progress[message] = _LANDED
            if state.message[message].status & BOTH_POSTED == BOTH_POSTED:
                complete(steps, state, message, time)
            continue
        if strands_at == NEVER or cores_are_next(state):
            return flights.heap[0].time if flights.heap_size[0] > 0 else NEVER
        count = run_next(steps, state)
        now = state.now[0]
        for k in range(count):
            message = state.posted[k]
            status = state.message[message].status
            both = status & BOTH_POSTED == BOTH_POSTED
            progress = flights.progress[message]
            if progress == 0 and (both or (eager_start and steps.is_eager[message] and status & SEND_POSTED)):
                flights.progress[message] = _STARTED
                push(flights.heap, flights.heap_size, message, now + flights.cost[message])
            elif progress == _LANDED and both and not status & ARRIVED:
                complete(steps, state, message, now)


@allocation_free
def run_coupled_fixed(steps, state, nodes, flights, eager_start):  # type: ignore[no-untyped-def]
    """Strands, cores and transfers of a known cost, until nothing can go on."""
    steps, state, nodes, flights = by_reference(steps), by_reference(state), by_reference(nodes), by_reference(flights)
    while True:
        limit = run_fixed(steps, state, flights, eager_start)
        if not cores_are_next(state):
            return
        run_nodes(state, nodes, limit)


@allocation_free
def run_coupled_flow(steps, state, nodes, traffic, sharing, eager_start):  # type: ignore[no-untyped-def]
    """The same with transfers that share links."""
    steps, state, nodes = by_reference(steps), by_reference(state), by_reference(nodes)
    traffic, sharing = by_reference(traffic), by_reference(sharing)
    while True:
        limit = run_flows(steps, state, traffic, sharing, eager_start)
        if not cores_are_next(state):
            return
        run_nodes(state, nodes, limit)


@allocation_free
def run_coupled_dimemas(steps, state, nodes, is_eager, traffic):  # type: ignore[no-untyped-def]
    """The same with transfers that hold links and buses."""
    steps, state, nodes, traffic = by_reference(steps), by_reference(state), by_reference(nodes), by_reference(traffic)
    while True:
        limit = run_transfers(steps, state, is_eager, traffic)
        if not cores_are_next(state):
            return
        run_nodes(state, nodes, limit)


@inner
def run_nodes(state, nodes, limit):  # type: ignore[no-untyped-def]
    """Run cores as long as they are next, and before ``limit``, when the next transfer ends.

    The cores of a rank go through all that happens at one time, and on while no operation of the rank is under way.
    """
    num_strands = state.strand.shape[0]
    while cores_are_next(state) and state.heap[0].time < limit:
        time = _whole(state.heap[0].time)
        number = pop(state.heap, state.heap_size) - num_strands
        if number < nodes.core.shape[0]:
            node = nodes.core[number].node
            _end_operation(nodes, node, number, time)
        else:
            node = number - nodes.core.shape[0]
            nodes.node[node].num_parked -= 1
        me = nodes.node[node]
        heap = nodes.heap[me.first_core : me.end_core]
        heap_size = nodes.heap_size[node : node + 1]
        scheduler = by_reference(scheduler_of(nodes, node))
        while me.begins_phase or heap_size[0] > 0:
            if me.begins_phase:
                me.begins_phase = 0
                me.phase += 1
                if me.first_phase + me.phase == me.end_phase:
                    me.end = time
                    break
                begin_phase(scheduler, me.phase, time)
                push(heap, heap_size, 0, time)
            at = heap[0].time
            if at != time and me.under_way > 0:
                break
            time = at
            core = pop(heap, heap_size)
            code = advance(scheduler, core, time)
            for k in range(scheduler.num_woken[0]):
                push(heap, heap_size, scheduler.woken[k], time)
            scheduler.num_woken[0] = 0
            if code == PIECE:
                push(heap, heap_size, core, _end_of_piece(nodes, scheduler.core, scheduler.instance, node, core))
            elif code == OPERATION:
                _begin_operation(state, nodes, node, core, scheduler.core[core].operation, time, 0)
            elif code == PHASE_END:
                operation = nodes.phase_operation[me.first_phase + me.phase]
                if 0 <= operation < me.num_operations:
                    _begin_operation(state, nodes, node, 0, operation, time, 1)
                else:
                    me.begins_phase = 1
        _park(state, nodes, node, time)


@inner
def _whole(time):  # type: ignore[no-untyped-def]
    """The first whole picosecond that is not before a time."""
    whole = np.int64(time)
    return whole + 1 if whole < time else whole


@inner
def _end_of_piece(nodes, cores, instances, node, core):  # type: ignore[no-untyped-def]
    """When a core has done what its scheduler says, an overhead or a piece."""
    me = nodes.node[node]
    what = cores[core]
    if what.piece < 0:
        return what.start_ps
    duration = nodes.piece_ps[me.first_piece + what.piece]
    if nodes.per_speedup[0] != 1.0 and instances[what.row].flags & CREATES:
        duration = np.int64(np.rint(duration * nodes.per_speedup[0]))
    per_speed = nodes.core[me.first_core + core].per_speed
    if per_speed != 1.0:
        duration = np.int64(np.rint(duration * per_speed))
    end = what.start_ps + duration
    nodes.core[me.first_core + core].busy += duration
    if me.keeps_rows and duration > 0:
        _keep(nodes, me.first_core + core, what.instance, -1, what.start_ps, end)
        nodes.row[nodes.num_rows[0] - 1].created = instances[what.row].created_ps
        nodes.row[nodes.num_rows[0] - 1].ready = instances[what.row].ready_ps
    return end


@inner
def _park(state, nodes, node, time):  # type: ignore[no-untyped-def]
    """Put a rank into the heap of strands by its next core."""
    me = nodes.node[node]
    if nodes.heap_size[node] == 0:
        # An entry of the rank may come after the rank has run ahead of it.
        me.empty_since = max(time, me.empty_since)
        return
    count = me.num_parked
    at = nodes.heap[me.first_core].time
    if count == 0 or at < nodes.core[me.first_core + count - 1].parked:
        # Each of a rank's entries is earlier than those before it, so there are never more than cores.
        nodes.core[me.first_core + count].parked = at
        me.num_parked = count + 1
        number = state.strand.shape[0] + nodes.core.shape[0] + node
        push(state.heap, state.heap_size, number, state.now.dtype.type(at))


@inner
def _begin_operation(state, nodes, node, core, operation, time, ends_phase):  # type: ignore[no-untyped-def]
    """Block a core of a rank by an operation, which begins at ``time``."""
    me = nodes.node[node]
    row = me.first_row + operation
    strand = me.first_strand + operation
    nodes.begin[row] = time
    nodes.core[me.first_core + core].row = row
    nodes.core[me.first_core + core].ends_phase = ends_phase
    me.under_way += 1
    state.strand[strand].waiter = state.strand.shape[0] + me.first_core + core
    push(state.heap, state.heap_size, strand, state.now.dtype.type(time))


@inner
def _end_operation(nodes, node, number, time):  # type: ignore[no-untyped-def]
    """The operation that blocks core ``number`` of all ranks' has ended."""
    me = nodes.node[node]
    row = nodes.core[number].row
    nodes.core[number].blocked += time - nodes.begin[row]
    nodes.exposed[row] = me.empty_since if nodes.heap_size[node] == 0 else time
    me.under_way -= 1
    if me.keeps_rows and time > nodes.begin[row]:
        _keep(nodes, number, -1, row, nodes.begin[row], time)
    if nodes.core[number].ends_phase:
        me.begins_phase = 1
    else:
        heap = nodes.heap[me.first_core : me.end_core]
        push(heap, nodes.heap_size[node : node + 1], number - me.first_core, time)


@inner
def _keep(nodes, core, instance, operation, start, end):  # type: ignore[no-untyped-def]
    count = nodes.num_rows[0]
    nodes.num_rows[0] = count + 1
    nodes.row[count].core = core
    nodes.row[count].instance = instance
    nodes.row[count].operation = operation
    nodes.row[count].start = start
    nodes.row[count].end = end
    nodes.row[count].created = -1
    nodes.row[count].ready = -1


@inlined
def scheduler_of(nodes, node):  # type: ignore[no-untyped-def]
    """The scheduler of one rank: its parts of all arrays, in the order of the fields."""
    every = nodes.scheduler
    program = every.program
    queues = every.queues
    learning = every.learning
    b = nodes.bounds
    return Scheduler(
        every.core[b[0, node, 0] : b[0, node, 1]],
        every.woken[b[1, node, 0] : b[1, node, 1]],
        every.num_woken[b[2, node, 0] : b[2, node, 1]],
        ProgramArrays(
            program.first_step[b[3, node, 0] : b[3, node, 1]],
            program.parent[b[4, node, 0] : b[4, node, 1]],
            program.level[b[5, node, 0] : b[5, node, 1]],
            program.instance_flags[b[6, node, 0] : b[6, node, 1]],
            program.num_predecessors[b[7, node, 0] : b[7, node, 1]],
            program.first_successor[b[8, node, 0] : b[8, node, 1]],
            program.phase_first_step[b[9, node, 0] : b[9, node, 1]],
            program.phase_first_instance[b[10, node, 0] : b[10, node, 1]],
            program.phase_first_loop[b[11, node, 0] : b[11, node, 1]],
        ),
        every.step_action[b[12, node, 0] : b[12, node, 1]],
        every.step_target[b[13, node, 0] : b[13, node, 1]],
        every.successor[b[14, node, 0] : b[14, node, 1]],
        every.first_chunk[b[15, node, 0] : b[15, node, 1]],
        every.predicted_ps[b[16, node, 0] : b[16, node, 1]],
        every.node[b[17, node, 0] : b[17, node, 1]],
        every.instance[b[18, node, 0] : b[18, node, 1]],
        every.loop[b[19, node, 0] : b[19, node, 1]],
        every.group[b[20, node, 0] : b[20, node, 1]],
        every.lock[b[21, node, 0] : b[21, node, 1]],
        every.idle[b[22, node, 0] : b[22, node, 1]],
        every.sharers[b[23, node, 0] : b[23, node, 1]],
        ReadyQueues(
            queues.control[b[24, node, 0] : b[24, node, 1]],
            queues.list[b[25, node, 0] : b[25, node, 1]],
            queues.link[b[26, node, 0] : b[26, node, 1]],
            queues.occupied[b[27, node, 0] : b[27, node, 1]],
            queues.heap[b[28, node, 0] : b[28, node, 1]],
            queues.heap_size[b[29, node, 0] : b[29, node, 1]],
            queues.bottom_level[b[30, node, 0] : b[30, node, 1]],
            queues.is_slow[b[31, node, 0] : b[31, node, 1]],
        ),
        Learning(
            learning.task_type[b[32, node, 0] : b[32, node, 1]],
            learning.size[b[33, node, 0] : b[33, node, 1]],
            learning.spent_ps[b[34, node, 0] : b[34, node, 1]],
            learning.seen[b[35, node, 0] : b[35, node, 1]],
            learning.earlier,  # times are not known before
            learning.known_ps,
            learning.control[b[38, node, 0] : b[38, node, 1]],
        ),
        every.loop_flags[b[39, node, 0] : b[39, node, 1]],
        every.held,  # of no rank anything
    )
