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
from manyscale.models.node.memory_kernel import look_ahead, touch
from manyscale.models.node.scheduler_kernel import DONE, OPERATION, PHASE_END, PIECE, advance, begin_phase
from manyscale.sampling.taskpoint import DETAILED, decide, observe

UNDECIDED, SIMULATED, FORWARDED = 0, 1, 2
_AHEAD = 12  # touches


class Sampled(NamedTuple):
    """``mode`` int8[instances]: UNDECIDED, SIMULATED or FORWARDED; instance 0 is simulated. ``num_instructions``
    int64[pieces]. ``lines``: what fast-forwarded instances would have left in the caches."""

    mode: np.ndarray
    num_instructions: np.ndarray
    lines: NamedTuple


class SkippedLines(NamedTuple):
    """Lines of instances that were not simulated, to be touched before the next one is. Those of instance i are
    ``line`` int32[] (that index ``line_number`` int64[lines]) and ``is_written`` bool[], the oldest first, from
    first_line[i] (int64[instances + 1]) on; of length 1 if none are to be touched.

    ``skipped`` int32[instances, 2]: instances and their cores, in the order in which they ended, ``num`` [0] of them.
    In the round ``num`` [1], ``round`` int64[lines] is the last one in which a line was used, ``cores`` uint64[lines]
    who is to touch it, core c as bit c modulo 64, and ``written`` bool[lines] whether it was written. ``chosen``
    int32[, 2]: (line, core) to touch. ``num`` [2]: how many lines fit a core's own caches; ``room`` int64[cores]."""

    first_line: np.ndarray
    line: np.ndarray
    is_written: np.ndarray
    line_number: np.ndarray
    skipped: np.ndarray
    round: np.ndarray
    cores: np.ndarray
    written: np.ndarray
    chosen: np.ndarray
    room: np.ndarray
    num: np.ndarray


def skipped_lines(
    first_line: np.ndarray, line: np.ndarray, is_written: np.ndarray, line_number: np.ndarray, num_cores: int,
    own_lines: int, most_lines: int,
) -> SkippedLines:  # fmt: skip
    """Of instances whose lines are given; ``own_lines``: that fit the caches that a core has to itself; ``most_lines``:
    that fit all caches of the node."""
    lines = len(line_number)
    return SkippedLines(
        first_line, line, is_written, line_number, np.empty((len(first_line), 2), np.int32),
        np.zeros(lines, np.int64), np.zeros(lines, np.uint64), np.zeros(lines, bool),
        np.empty((min(len(line), most_lines), 2), np.int32), np.zeros(num_cores, np.int64),
        np.array([0, 0, own_lines], np.int64),
    )  # fmt: skip


def no_lines(num_cores: int) -> SkippedLines:
    """Nothing is touched."""
    none = np.empty(0, np.int64)
    return skipped_lines(np.zeros(1, np.int64), none.astype(np.int32), none.astype(bool), none, num_cores, 0, 0)


@inlined
def _decide(sch, mem, pieces, point, sampled, core, cycles_per_ps):  # type: ignore[no-untyped-def]
    """How the piece that a core is to begin is executed, and if in no detail, how long it takes."""
    me = sch.core[core]
    instance = np.int64(me.instance)
    if sampled.mode[instance] == UNDECIDED:
        busy = sch.core.shape[0] - sch.node[0].num_idle
        in_detail = decide(point, instance, core, busy) == DETAILED
        sampled.mode[instance] = SIMULATED if in_detail else FORWARDED
        pieces.is_detailed[instance] = in_detail
        if in_detail and sampled.lines.num[0] > 0:
            touch_skipped(mem, sampled.lines)
    if sampled.mode[instance] == FORWARDED:
        cycles = sampled.num_instructions[me.piece] * point.cpi[instance]
        pieces.given_ps[me.piece] = np.int64(np.rint(cycles / cycles_per_ps))


@inlined
def _ended(sch, records, point, sampled, core, instance):  # type: ignore[no-untyped-def]
    """An instance is complete. O(1) beside ``observe``."""
    if sampled.mode[instance] == SIMULATED:
        busy = sch.core.shape[0] - sch.node[0].num_idle
        observe(point, instance, core, records.instance[instance].cycles, busy)
    elif sampled.mode[instance] == FORWARDED and sampled.lines.first_line.shape[0] > 1:
        skip(sampled.lines, instance, core)


@allocation_free
def skip(lines, instance, core):  # type: ignore[no-untyped-def]
    """An instance has ended on ``core`` without having been simulated. O(1)."""
    lines.skipped[lines.num[0], 0] = instance
    lines.skipped[lines.num[0], 1] = core
    lines.num[0] += 1


def skip_all(lines: SkippedLines, instances: np.ndarray, seed: int = 0) -> None:
    """Instances, in the order of ``instances`` int[], on cores drawn by chance: in turn, the first ones to run again
    would find in their own cores' caches what a runtime system that hands out instances as cores become free leaves
    anywhere. To be called first of all."""
    lines.skipped[: len(instances), 0] = instances
    lines.skipped[: len(instances), 1] = np.random.default_rng(seed).integers(0, len(lines.room), len(instances))
    lines.num[0] = len(instances)


@allocation_free
def touch_skipped(mem, lines):  # type: ignore[no-untyped-def]
    """The caches are as if what was skipped had run, as far as the order of lines by their last use goes.

    Of each line the last use by each core counts, as long as what the core used later fits its own caches, and the last
    use by any. What was before that would have been replaced. (Copies in several cores' caches matter: they take the
    room of other lines.) O(lines of what was skipped), of which the touches, at most as many as all caches hold, are
    what takes time.
    """
    num = lines.num
    num[1] += 1
    lines.room[:] = num[2]
    count = lines.chosen.shape[0]
    first = count
    for k in range(num[0] - 1, -1, -1):
        instance, core = np.int64(lines.skipped[k, 0]), np.int64(lines.skipped[k, 1])
        bit = np.uint64(1) << np.uint64(core & 63)
        for place in range(lines.first_line[instance + 1] - 1, lines.first_line[instance] - 1, -1):
            if first == 0:  # what was used before would have been replaced
                break
            line = lines.line[place]
            if lines.round[line] != num[1]:
                lines.round[line] = num[1]
                lines.cores[line] = np.uint64(0)
                lines.written[line] = False
            elif lines.cores[line] & bit or lines.room[core] <= 0:
                lines.written[line] |= lines.is_written[place]
                continue
            lines.cores[line] |= bit
            lines.written[line] |= lines.is_written[place]
            lines.room[core] -= 1
            first -= 1
            lines.chosen[first, 0] = line
            lines.chosen[first, 1] = core
    num[0] = 0
    for k in range(first, count):
        ahead = min(k + _AHEAD, count - 1)
        look_ahead(mem, np.int64(lines.chosen[ahead, 1]), lines.line_number[lines.chosen[ahead, 0]])
        line, bit = lines.chosen[k, 0], np.uint64(1) << np.uint64(lines.chosen[k, 1] & 63)
        lines.cores[line] &= ~bit
        # the last one to use it writes it, if any did: others' copies would be invalid, or come after
        is_written = lines.written[line] and lines.cores[line] == 0
        touch(mem, np.int64(lines.chosen[k, 1]), lines.line_number[line], is_written)


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
                _ended(sch, records, point, sampled, core, before)
            if what == PIECE:
                if sch.core[core].piece >= 0 and sch.core[core].instance > 0:
                    _decide(sch, mem, pieces, point, sampled, core, cycles_per_ps)
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
