"""TaskPoint inside a node: the loop of models/node/detailed_kernel.py, which asks at each begin of a task instance
whether to simulate it in detail, and tells of each one that has ended.

It stands in the runner since it joins what models and sampling know nothing of each other of.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from manyscale.models.event_heap import pop, push
from manyscale.models.kernels import allocation_free, inlined
from manyscale.models.node.core_kernel import step
from manyscale.models.node.cycle_wheel import NEVER, next_cycle, put, take
from manyscale.models.node.detailed_kernel import OVER, STUCK, begin_instance_piece, cycle_of, end_piece
from manyscale.models.node.memory_kernel import touch
from manyscale.models.node.scheduler_kernel import DONE, OPERATION, PHASE_END, PIECE, advance, begin_phase
from manyscale.sampling.taskpoint import DETAILED, decide, observe

UNDECIDED, SIMULATED, FORWARDED = 0, 1, 2


class Sampled(NamedTuple):
    """``mode`` int8[instances]: UNDECIDED, SIMULATED or FORWARDED; instance 0 is simulated. ``num_instructions``
    int64[pieces]. Lines to touch where an instance was fast-forwarded, none if ``first_line`` is of length 1: those of
    instance i, ``line`` int64[] and ``is_written`` bool[], from first_line[i] (int64[instances + 1]) on."""

    mode: np.ndarray
    num_instructions: np.ndarray
    first_line: np.ndarray
    line: np.ndarray
    is_written: np.ndarray


@inlined
def _decide(sch, pieces, point, sampled, core, cycles_per_ps):  # type: ignore[no-untyped-def]
    """How the piece that a core is to begin is executed, and if in no detail, how long it takes."""
    me = sch.core[core]
    instance = np.int64(me.instance)
    if sampled.mode[instance] == UNDECIDED:
        busy = sch.core.shape[0] - sch.node[0].num_idle
        in_detail = decide(point, instance, core, busy) == DETAILED
        sampled.mode[instance] = SIMULATED if in_detail else FORWARDED
        pieces.is_detailed[instance] = in_detail
    if sampled.mode[instance] == FORWARDED:
        cycles = sampled.num_instructions[me.piece] * point.cpi[instance]
        pieces.given_ps[me.piece] = np.int64(np.rint(cycles / cycles_per_ps))


@inlined
def _ended(sch, mem, records, point, sampled, core, instance):  # type: ignore[no-untyped-def]
    """An instance is complete. O(its distinct lines) where they are touched."""
    if sampled.mode[instance] == SIMULATED:
        busy = sch.core.shape[0] - sch.node[0].num_idle
        observe(point, instance, core, records.instance[instance].cycles, busy)
    elif sampled.mode[instance] == FORWARDED and sampled.first_line.shape[0] > 1:
        touch_lines(mem, core, sampled, instance)


@allocation_free
def touch_lines(mem, core, sampled, instance):  # type: ignore[no-untyped-def]
    """The lines of an instance, in the order of their last use, are in the caches as if it had run on ``core``."""
    for place in range(sampled.first_line[instance], sampled.first_line[instance + 1]):
        touch(mem, core, sampled.line[place], sampled.is_written[place])


@allocation_free
def touch_all(mem, num_cores, sampled, order):  # type: ignore[no-untyped-def]
    """The lines of instances ``order`` int64[], one after the other, on the cores in turn."""
    for k in range(order.shape[0]):
        touch_lines(mem, k % num_cores, sampled, order[k])


@inlined
def _run_phase(  # type: ignore[no-untyped-def]
    clock, sch, cores, mem, code, block_ids, addresses, pieces, records, point, sampled, phase, begin_ps, window
):
    """(OVER or STUCK, time in ps at which the phase ended)."""
    cycles_per_ps = clock.cycles_per_ps[0]
    begin_phase(sch, phase, begin_ps)
    push(clock.heap, clock.heap_size, 0, begin_ps)
    while True:
        event = np.int64(NEVER)
        if clock.heap_size[0] > 0:
            event = cycle_of(clock.heap[0].time, cycles_per_ps)
        due = next_cycle(clock.wheel)
        if event <= due:
            if event == NEVER:
                return np.int64(STUCK), begin_ps
            time_ps = clock.heap[0].time
            core = pop(clock.heap, clock.heap_size)
            clock.wheel.now[0] = max(clock.wheel.now[0], event)
            before, row = np.int64(sch.core[core].instance), np.int64(sch.core[core].row)
            what = advance(sch, core, time_ps)
            for k in range(sch.num_woken[0]):
                push(clock.heap, clock.heap_size, sch.woken[k], time_ps)
            sch.num_woken[0] = 0
            if row > 0 and sch.instance[row].flags & DONE:
                _ended(sch, mem, records, point, sampled, core, before)
            if what == PIECE:
                if sch.core[core].piece >= 0 and sch.core[core].instance > 0:
                    _decide(sch, pieces, point, sampled, core, cycles_per_ps)
                begin_instance_piece(clock, sch, cores, mem, pieces, records, core)
            elif what == PHASE_END:
                return np.int64(OVER), time_ps
            elif what == OPERATION:  # communication takes no time here
                push(clock.heap, clock.heap_size, core, time_ps)
            continue
        core = take(clock.wheel, due)
        if core < 0:
            continue
        until = max(min(next_cycle(clock.wheel), event), due + 1) + window
        if step(cores, mem, code, block_ids, addresses, core, np.float64(until)):
            me = sch.core[core]
            end_ps = max(np.int64(np.rint(cores.core[core].cycle / cycles_per_ps)), records.begin_ps[core])
            end_piece(records, cores, mem, core, me.instance, me.piece, end_ps)
            push(clock.heap, clock.heap_size, core, end_ps)
        else:
            put(clock.wheel, core, np.int64(np.floor(cores.core[core].cycle)))


@allocation_free
def run_sampled(  # type: ignore[no-untyped-def]
    clock, sch, cores, mem, code, block_ids, addresses, pieces, records, point, sampled, first_phase, begin_ps,
    makespan_ps, window,
):  # fmt: skip
    """Phases one after the other from ``begin_ps`` on: (OVER or STUCK, when)."""
    what = np.int64(OVER)
    for k in range(makespan_ps.shape[0]):
        what, end_ps = _run_phase(
            clock, sch, cores, mem, code, block_ids, addresses, pieces, records, point, sampled, first_phase + k,
            begin_ps, window,
        )  # fmt: skip
        if what != OVER:
            return what, end_ps
        makespan_ps[k] = end_ps - begin_ps
        begin_ps = end_ps
    return what, begin_ps
