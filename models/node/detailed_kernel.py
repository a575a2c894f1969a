"""Scheduler, cores and memory in one order of time.

What the runtime system decides happens at picoseconds, what cores do in clock cycles. A piece that is executed in
detail begins with a cycle, and ends when its last instruction has left. Of each cycle, first what the runtime system
does up to its begin, then the accesses that enter reorder buffers in it, core by core. With a window of w cycles a core
goes on for up to w cycles more before the others have their turn, as long as what it does is its own matter: its first
cache holds the line and, of a store, nobody else does (memory/kernel.py's ``is_own``). Everything else still takes
effect in strict order, so shared caches and memory see what they see without a window, and where cores share no lines
the results are the same to the bit. What may differ: a line that another core takes away was used a little before it.
Measured on 64 cores (tests/validation/cluster/RESULTS.md): 1.0 to 2.3 times faster, and times as without a window to
0.002 % but for a program whose cores write to common lines all the time, 1.1 % less.

Cost: O(log cores) for each thing that the runtime system does, and O(1) for each turn of a core beside its step.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import allocation_free, by_reference, inner_inlined, separate
from manyscale.models.kernels.event_heap import pop, push
from manyscale.models.node.core.cycle_wheel import NEVER, CycleWheel, next_cycle, put, take
from manyscale.models.node.core.kernel import Cores, begin_piece, step
from manyscale.models.node.loop_watch import core_due, piece_due, turn_begins, turn_end, turn_over
from manyscale.models.node.memory.system import MemorySystem
from manyscale.models.node.scheduler.kernel import (
    CREATES,
    OPERATION,
    PHASE_END,
    PIECE,
    advance,
    begin_phase,
)
from manyscale.models.node.scheduler.scheduler import Scheduler

OVER: Final = 0  # what a run ended with
STUCK: Final = -1
_EARLY: Final = 0.01  # of a cycle: picoseconds are rounded

# ``begin_ps``: where the first phase begins, and, after a run, where the last one ended; ``per_speedup``: 1 /
# creator_speedup; ``window``: see the module
CONTROL: Final = np.dtype(
    [("cycles_per_ps", "f8"), ("per_speedup", "f8"), ("begin_ps", "i8"), ("first_phase", "i8"), ("window", "i8")]
)
# What pieces are: see PieceStream; ``given_ps`` where they are not executed in detail; ``empty_ps`` of those that have
# no instructions, in detail; ``beside_ps`` comes on top of what instructions take, simulated or given
PIECE_RECORD: Final = np.dtype(
    [
        ("first_execution", "i8"), ("end_execution", "i8"), ("first_access", "i8"), ("stack", "i8"),
        ("end_stack", "i8"), ("given_ps", "i8"), ("empty_ps", "i8"), ("beside_ps", "i8"),
    ]
)  # fmt: skip


class Records(NamedTuple):
    """What is kept. ``piece_ps`` int64[pieces]; records of ``instance`` (see detailed.py) or none; ``core_stack``
    float64[cores, parts] and ``type_stack`` float64[types + 1, parts] in cycles, the initial task last; ``fast_ps``
    int64[cores]; ``counts`` int64[2]: instructions and pieces executed in detail. ``piece_begin`` int64[cores] and
    ``served`` int64[cores, levels, columns]: of the memory system when the current piece began."""

    piece_ps: np.ndarray
    instance: np.ndarray
    task_type: np.ndarray
    core_stack: np.ndarray
    type_stack: np.ndarray
    fast_ps: np.ndarray
    counts: np.ndarray
    begin_ps: np.ndarray
    served: np.ndarray
    instance_served: np.ndarray


class NodeState(NamedTuple):
    """All that is simulated together. ``control``: one record. ``heap`` of cores by ps, which the runtime system is to
    be told of, ``heap_size`` [1]; ``wheel`` of cores that execute in detail. ``piece``: records. ``is_detailed``
    int8[instances]. ``makespan_ps`` int64[phases]."""

    control: np.ndarray
    scheduler: Scheduler
    cores: Cores
    memory: MemorySystem
    heap: np.ndarray
    heap_size: np.ndarray
    wheel: CycleWheel
    piece: np.ndarray
    is_detailed: np.ndarray
    records: Records
    makespan_ps: np.ndarray


@inner_inlined
def cycle_of(time_ps, cycles_per_ps):  # type: ignore[no-untyped-def]
    """The first cycle that begins at ``time_ps`` or later."""
    return np.int64(math.ceil(time_ps * cycles_per_ps - _EARLY))


@inner_inlined
def _keep_instance(records, scheduler, core, begin_ps, end_ps):  # type: ignore[no-untyped-def]
    if records.instance.shape[0] > 0:
        me = scheduler.core[core]
        row = records.instance[me.instance]
        if row.start_ps < 0:
            row.start_ps = begin_ps
            row.created_ps = scheduler.instance[me.row].created_ps
            row.ready_ps = scheduler.instance[me.row].ready_ps
        row.end_ps = max(row.end_ps, end_ps)
        row.core = core


@separate
def _end_piece(sim, core):  # type: ignore[no-untyped-def]
    """Account for a piece that a core has executed in detail, and tell the runtime system. O(parts + levels)."""
    records, stack = sim.records, sim.cores.stack
    me, c = sim.scheduler.core[core], sim.cores.core[core]
    instance = me.instance
    begin_ps = records.begin_ps[core]
    beside_ps = sim.piece[me.piece].beside_ps
    end_ps = max(np.int64(np.rint(c.cycle / sim.control[0].cycles_per_ps)), begin_ps) + beside_ps
    records.fast_ps[core] += beside_ps
    cycles = c.cycle - c.begin
    base = cycles
    kind = records.task_type[instance]
    row_of_type = kind if kind >= 0 else records.type_stack.shape[0] - 1
    for part in range(1, stack.shape[1]):
        waited = stack[core, part]
        base -= waited
        records.core_stack[core, part] += waited
        records.type_stack[row_of_type, part] += waited
    stack[core, 0] = base
    records.core_stack[core, 0] += base
    records.type_stack[row_of_type, 0] += base
    records.piece_ps[me.piece] = end_ps - begin_ps
    records.counts[0] += c.instructions
    records.counts[1] += 1
    _keep_instance(records, sim.scheduler, core, begin_ps, end_ps)
    if records.instance.shape[0] > 0:
        records.instance[instance].cycles += cycles
        records.instance[instance].instructions += c.instructions
    if records.instance_served.shape[0] > 0:
        for level in range(records.instance_served.shape[1]):
            now = sim.memory.counts[core, level, 0]
            records.instance_served[instance, level] += now - records.served[core, level]
    push(sim.heap, sim.heap_size, core, end_ps)


@separate
def _begin_piece(sim, core):  # type: ignore[no-untyped-def]
    """A core begins what the scheduler said. O(levels)."""
    me, records = sim.scheduler.core[core], sim.records
    number = np.int64(me.piece)
    if number < 0:
        push(sim.heap, sim.heap_size, core, me.start_ps)
        return
    piece = sim.piece[number]
    per_speedup = sim.control[0].per_speedup
    creates = per_speedup != 1.0 and (sim.scheduler.instance[me.row].flags & CREATES) != 0
    is_given = creates or not sim.is_detailed[me.instance]
    if is_given or piece.first_execution == piece.end_execution:
        duration_ps = piece.given_ps if is_given else piece.empty_ps
        if creates:
            duration_ps = np.int64(np.rint(duration_ps * per_speedup))
        else:
            duration_ps += piece.beside_ps
        records.fast_ps[core] += duration_ps
        records.piece_ps[number] = duration_ps
        _keep_instance(records, sim.scheduler, core, me.start_ps, me.start_ps + duration_ps)
        push(sim.heap, sim.heap_size, core, me.start_ps + duration_ps)
        return
    cycle = cycle_of(me.start_ps, sim.control[0].cycles_per_ps)
    records.begin_ps[core] = me.start_ps
    for level in range(records.served.shape[1]):
        records.served[core, level] = sim.memory.counts[core, level, 0]
    begin_piece(
        sim.cores, core, piece.first_execution, piece.end_execution, piece.first_access, piece.stack, piece.end_stack,
        np.float64(cycle),
    )  # fmt: skip
    put(sim.wheel, core, cycle)


@inner_inlined
def _tell_runtime_system(sim, watch, core, time_ps):  # type: ignore[no-untyped-def]
    """The runtime system goes on with a core, and says what it does next."""
    sch = sim.scheduler
    core_due(watch, sim, core)
    what = advance(sch, core, time_ps)
    for k in range(sch.num_woken[0]):
        push(sim.heap, sim.heap_size, sch.woken[k], time_ps)
    sch.num_woken[0] = 0
    if what == PIECE:
        piece_due(watch, sim, core)
        _begin_piece(sim, core)
    elif what == OPERATION:
        push(sim.heap, sim.heap_size, core, time_ps)
    return what


@inner_inlined
def _take_turn(sim, watch, core, due, event):  # type: ignore[no-untyped-def]
    """A core goes on from the cycle ``due`` until others are, or until ``event``."""
    until = max(turn_end(watch, due, min(next_cycle(sim.wheel), event)), due + 1)
    mark = turn_begins(watch, sim, core)
    is_over = step(sim.cores, sim.memory, core, np.float64(until), np.float64(until + sim.control[0].window))
    turn_over(watch, sim, core, mark, due, is_over)
    if is_over:
        _end_piece(sim, core)
    else:
        put(sim.wheel, core, np.int64(math.floor(sim.cores.core[core].cycle)))


@allocation_free
def run(sim, watch):  # type: ignore[no-untyped-def]
    """Phases one after the other: OVER or STUCK. ``watch``: see loop_watch.py."""
    sim, watch = by_reference(sim), by_reference(watch)
    control = sim.control[0]
    num_begun = 0
    time_ps = phase_ps = np.int64(control.begin_ps)
    what = np.int64(PHASE_END)
    while True:
        if what == PHASE_END:
            if num_begun > 0:
                sim.makespan_ps[num_begun - 1] = time_ps - phase_ps
            if num_begun == sim.makespan_ps.shape[0]:
                control.begin_ps = time_ps
                return OVER
            phase_ps = time_ps
            begin_phase(sim.scheduler, control.first_phase + num_begun, phase_ps)
            num_begun += 1
            push(sim.heap, sim.heap_size, 0, phase_ps)
            what = np.int64(PIECE)
        event = np.int64(NEVER)
        if sim.heap_size[0] > 0:
            event = cycle_of(sim.heap[0].time, control.cycles_per_ps)
        due = next_cycle(sim.wheel)
        if event <= due:
            if event == NEVER:
                return STUCK
            time_ps = np.int64(sim.heap[0].time)
            core = pop(sim.heap, sim.heap_size)
            sim.wheel.now[0] = max(sim.wheel.now[0], event)
            what = _tell_runtime_system(sim, watch, core, time_ps)
        else:
            core = take(sim.wheel, due)
            if core >= 0:
                _take_turn(sim, watch, core, due, event)
