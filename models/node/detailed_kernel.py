"""Scheduler, cores and memory in one order of time.

What the runtime system decides happens at picoseconds, what cores do in clock cycles. A piece that is executed in
detail begins with a cycle, and ends when its last instruction has left. Of each cycle, first what the runtime system
does up to its begin, then the accesses that enter reorder buffers in it, core by core. With a window of w cycles a core
goes on for w cycles more before the others have their turn: less is handed over, and accesses of different cores take
effect up to w cycles out of order. Where what cores use together is about as large as their caches, that is a bias: an
FFT of 25 MiB, 8 cores with 2 MiB each and 20 MiB of LRU in common, takes 2, 6 and 11 % less with windows of 1, 5 and 20
cycles, its L3 having up to 2.4 times the hits (strict order with 1 to 10 ns more per instance: 1 to 3 % more); with 64
MiB in common the same to 0.02 %.

Cost: O(log cores) for each thing that the runtime system does, and O(1) for each turn of a core beside its step.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import allocation_free, by_reference, njit
from manyscale.models.kernels.event_heap import pop, push
from manyscale.models.node.core.cycle_wheel import NEVER, next_cycle, put, take
from manyscale.models.node.core.kernel import begin_piece, step
from manyscale.models.node.loop_watch import core_due, piece_due, turn_begins, turn_end, turn_over
from manyscale.models.node.scheduler.kernel import (
    CREATES,
    OPERATION,
    PHASE_END,
    PIECE,
    advance,
    begin_phase,
)

OVER: Final = 0  # what a phase ended with
STUCK: Final = -1
_inlined: Final = njit(inline="always")
_EARLY: Final = 0.01  # of a cycle: picoseconds are rounded


class Clock(NamedTuple):
    """What owns the time. ``heap`` of cores by ps, which the runtime system is to be told of, ``heap_size`` [1];
    ``wheel`` of cores that execute in detail; ``cycles_per_ps`` float64[1]."""

    heap: np.ndarray
    heap_size: np.ndarray
    wheel: NamedTuple
    cycles_per_ps: np.ndarray


class Pieces(NamedTuple):
    """What pieces are: see PieceStream; ``given_ps`` where they are not executed in detail; ``empty_ps`` of
    those that have no instructions, in detail; ``is_detailed``
    int8[instances]; ``per_speedup`` float64[1]: 1 / creator_speedup."""

    first_execution: np.ndarray
    end_execution: np.ndarray
    first_access: np.ndarray
    stack: np.ndarray
    given_ps: np.ndarray
    empty_ps: np.ndarray
    is_detailed: np.ndarray
    per_speedup: np.ndarray


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


@_inlined
def cycle_of(time_ps, cycles_per_ps):  # type: ignore[no-untyped-def]
    """The first cycle that begins at ``time_ps`` or later."""
    return np.int64(math.ceil(time_ps * cycles_per_ps - _EARLY))


@_inlined
def _keep_instance(records, instance, core, begin_ps, end_ps):  # type: ignore[no-untyped-def]
    if records.instance.shape[0] > 0:
        row = records.instance[instance]
        if row.start_ps < 0:
            row.start_ps = begin_ps
        row.end_ps = max(row.end_ps, end_ps)
        row.core = core


@allocation_free
def end_piece(records, cores, mem, core, instance, piece, end_ps):  # type: ignore[no-untyped-def]
    """Account for a piece that a core has executed in detail. O(parts + levels)."""
    c = cores.core[core]
    parts = cores.stack.shape[1]
    cycles = c.cycle - c.begin
    base = cycles
    kind = records.task_type[instance]
    row_of_type = kind if kind >= 0 else records.type_stack.shape[0] - 1
    for part in range(1, parts):
        waited = cores.stack[core, part]
        base -= waited
        records.core_stack[core, part] += waited
        records.type_stack[row_of_type, part] += waited
    cores.stack[core, 0] = base
    records.core_stack[core, 0] += base
    records.type_stack[row_of_type, 0] += base
    records.piece_ps[piece] = end_ps - records.begin_ps[core]
    records.counts[0] += c.instructions
    records.counts[1] += 1
    _keep_instance(records, instance, core, records.begin_ps[core], end_ps)
    if records.instance.shape[0] > 0:
        records.instance[instance].cycles += cycles
        records.instance[instance].instructions += c.instructions
    if records.instance_served.shape[0] > 0:
        for level in range(records.instance_served.shape[1]):
            now = mem.counts[core, level, 0]
            records.instance_served[instance, level] += now - records.served[core, level]


@_inlined
def begin_instance_piece(clock, sch, cores, mem, pieces, records, core):  # type: ignore[no-untyped-def]
    """A core begins what the scheduler said. O(levels)."""
    me = sch.core[core]
    piece = np.int64(me.piece)
    if piece < 0:
        push(clock.heap, clock.heap_size, core, me.start_ps)
        return
    creates = pieces.per_speedup[0] != 1.0 and (sch.instance[me.row].flags & CREATES) != 0
    if not pieces.is_detailed[me.instance] or creates:
        duration_ps = pieces.given_ps[piece]
        if creates:
            duration_ps = np.int64(np.rint(duration_ps * pieces.per_speedup[0]))
        records.fast_ps[core] += duration_ps
        records.piece_ps[piece] = duration_ps
        _keep_instance(records, me.instance, core, me.start_ps, me.start_ps + duration_ps)
        push(clock.heap, clock.heap_size, core, me.start_ps + duration_ps)
    elif pieces.first_execution[piece] == pieces.end_execution[piece]:
        duration_ps = pieces.empty_ps[piece]
        records.fast_ps[core] += duration_ps
        records.piece_ps[piece] = duration_ps
        _keep_instance(records, me.instance, core, me.start_ps, me.start_ps + duration_ps)
        push(clock.heap, clock.heap_size, core, me.start_ps + duration_ps)
    else:
        cycle = cycle_of(me.start_ps, clock.cycles_per_ps[0])
        records.begin_ps[core] = me.start_ps
        for level in range(records.served.shape[1]):
            records.served[core, level] = mem.counts[core, level, 0]
        begin_piece(
            cores, core, pieces.first_execution[piece], pieces.end_execution[piece], pieces.first_access[piece],
            pieces.stack[piece, 0], pieces.stack[piece, 1], np.float64(cycle),
        )  # fmt: skip
        put(clock.wheel, core, cycle)


@allocation_free
def run(  # type: ignore[no-untyped-def]
    clock, sch, cores, mem, code, block_ids, addresses, pieces, records, watch, first_phase, begin_ps, makespan_ps,
    window,
):  # fmt: skip
    """Phases one after the other from ``begin_ps`` on: (OVER or STUCK, when). ``watch``: see loop_watch.py."""
    sch, mem = by_reference(sch), by_reference(mem)
    cycles_per_ps = clock.cycles_per_ps[0]
    num_begun = 0
    time_ps = phase_ps = begin_ps
    what = np.int64(PHASE_END)
    while True:
        if what == PHASE_END:
            if num_begun > 0:
                makespan_ps[num_begun - 1] = time_ps - phase_ps
            if num_begun == makespan_ps.shape[0]:
                return np.int64(OVER), time_ps
            phase_ps = time_ps
            begin_phase(sch, first_phase + num_begun, phase_ps)
            num_begun += 1
            push(clock.heap, clock.heap_size, 0, phase_ps)
            what = np.int64(PIECE)
        event = np.int64(NEVER)
        if clock.heap_size[0] > 0:
            event = cycle_of(clock.heap[0].time, cycles_per_ps)
        due = next_cycle(clock.wheel)
        if event <= due:
            if event == NEVER:
                return np.int64(STUCK), time_ps
            time_ps = clock.heap[0].time
            core = pop(clock.heap, clock.heap_size)
            clock.wheel.now[0] = max(clock.wheel.now[0], event)
            core_due(watch, sch, records, core)
            what = advance(sch, core, time_ps)
            for k in range(sch.num_woken[0]):
                push(clock.heap, clock.heap_size, sch.woken[k], time_ps)
            sch.num_woken[0] = 0
            if what == PIECE:
                piece_due(watch, sch, mem, pieces, records, core, cycles_per_ps)
                begin_instance_piece(clock, sch, cores, mem, pieces, records, core)
            elif what == OPERATION:
                push(clock.heap, clock.heap_size, core, time_ps)
            continue
        core = take(clock.wheel, due)
        if core < 0:
            continue
        until = max(turn_end(watch, due, min(next_cycle(clock.wheel), event)), due + 1) + window
        mark = turn_begins(watch, cores, mem, core)
        is_over = step(cores, mem, code, block_ids, addresses, core, np.float64(until))
        turn_over(watch, mark, cores, mem, code, block_ids, addresses, core, due, is_over)
        if is_over:
            me = sch.core[core]
            end_ps = max(np.int64(np.rint(cores.core[core].cycle / cycles_per_ps)), records.begin_ps[core])
            end_piece(records, cores, mem, core, me.instance, me.piece, end_ps)
            push(clock.heap, clock.heap_size, core, end_ps)
        else:
            put(clock.wheel, core, np.int64(math.floor(cores.core[core].cycle)))
