"""Intervals of a traced program on simulated cores: by a global number of instructions, with counters of every core.

The loop of models/node/detailed_kernel.py with a look at the clock, the cores and the memory system each time that all
cores together have executed so many instructions more. A core's instructions count when their block has ended, as the
core model counts them, so an interval may be some dozens too long.

Counters of a core: ``instructions``; ``offcore_requests``: lines that its private caches had to ask for;
``llc_misses``: those that main memory gave; ``coherence_answers``: lines that others' stores took from its outermost
private cache, and lines that it had modified and another core read. For the latter the memory system counts who asked;
who answered is what the directory says of the line after the read: the one other core that shares it. (Where a line was
read from elsewhere and another one of the same turn, a cycle or less, is shared too, the first one of both is taken.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from manyscale.models.event_heap import pop, push
from manyscale.models.kernels import allocation_free, by_reference, njit
from manyscale.models.machine import Node
from manyscale.models.node.core_code import LOAD, RESULT
from manyscale.models.node.core_kernel import step
from manyscale.models.node.cycle_wheel import NEVER, next_cycle, put, take
from manyscale.models.node.detailed import NodeSimulation
from manyscale.models.node.detailed_kernel import (
    OVER,
    STUCK,
    begin_instance_piece,
    cycle_of,
    end_piece,
)
from manyscale.models.node.directory import FREE, look_up, next_group
from manyscale.models.node.memory_system import INVALIDATED, SERVED
from manyscale.models.node.private_stacks import CORE_SHIFT
from manyscale.models.node.runtime_system import RuntimeSystem
from manyscale.models.node.scheduler_kernel import OPERATION, PHASE_END, PIECE, advance, begin_phase
from manyscale.runner.node.cells import JOINED, detailed_segments
from manyscale.runner.node.creation import creation_pieces
from manyscale.runner.node.profile_units import open_cell, phases_of_cell
from manyscale.runner.node.rank_part import rank_part
from manyscale.runner.node.simulated_cell import OpenCell
from manyscale.runner.node.streams import stream_part
from manyscale.runner.readers import workload_folder
from manyscale.sampling.interval_population import IntervalPopulation
from manyscale.sampling.vectors import Vectors

_inlined: Final = njit(inline="always")


class Looks(NamedTuple):
    """What was seen. ``every`` int64[1]: instructions of an interval; ``state`` int64[3]: instructions so far, looks so
    far, spans so far. Of each look, cumulative: ``cycle`` float64[n], ``instructions``, ``answers`` int64[n, cores],
    ``counts`` int64[n, cores, levels + 2, 4]. ``now`` int64[cores, 3]: instructions, answers, and where the span
    began. ``span`` int64[m, 4]: (interval, core, first and end of block executions in the stream)."""

    every: np.ndarray
    state: np.ndarray
    cycle: np.ndarray
    instructions: np.ndarray
    answers: np.ndarray
    counts: np.ndarray
    now: np.ndarray
    span: np.ndarray


def new_looks(every: int, num_instructions: int, num_pieces: int, counts: np.ndarray) -> Looks:
    """``counts``: of the memory system."""
    cores = counts.shape[0] - 1
    most = num_instructions // every + 2
    return Looks(
        np.array([every]), np.zeros(3, np.int64), np.zeros(most), np.zeros((most, cores), np.int64),
        np.zeros((most, cores), np.int64), np.zeros((most, cores, *counts.shape[1:]), np.int64),
        np.zeros((cores, 3), np.int64), np.zeros((num_pieces + most * cores, 4), np.int64),
    )  # fmt: skip


@_inlined
def _executed(cores, core):  # type: ignore[no-untyped-def]
    """Block executions that the core has ended. O(1)."""
    c = cores.core[core]
    return c.execution - (1 if c.block >= 0 and (c.node < c.end_node or c.execution < c.end_execution) else 0)


@_inlined
def _end_span(looks, core, end):  # type: ignore[no-untyped-def]
    if end > looks.now[core, 2]:
        row = looks.span[looks.state[2]]
        row[0], row[1], row[2], row[3] = looks.state[1], core, looks.now[core, 2], end
        looks.state[2] += 1
    looks.now[core, 2] = end


@allocation_free
def _look(looks, cores, mem, is_busy, cycle):  # type: ignore[no-untyped-def]
    """O(cores x levels)."""
    number = looks.state[1]
    for core in range(looks.now.shape[0]):
        if is_busy[core]:
            _end_span(looks, core, _executed(cores, core))
        looks.instructions[number, core] = looks.now[core, 0]
        looks.answers[number, core] = looks.now[core, 1]
        for level in range(mem.counts.shape[1]):
            for kind in range(mem.counts.shape[2]):
                looks.counts[number, core, level, kind] = mem.counts[core, level, kind]
    looks.cycle[number] = cycle
    looks.state[1] += 1


@allocation_free
def _answered(looks, cores, mem, code, block_ids, addresses, core, block, node, access, execution, times):  # type: ignore[no-untyped-def]
    """Who gave lines that loads of this turn got from elsewhere, at most ``times``; the turn began with these places of
    the core. O(accesses of the turn)."""
    c, limits = cores.core[core], cores.limits[0]
    while True:
        end = np.int64(code.block[block].end_node) if block >= 0 else node
        while node < end and (execution < c.execution or node < c.node):
            each = code.node[node]
            node += 1
            if each.kind == RESULT or each.kind != LOAD:
                continue
            address = addresses[access + each.row]
            if address - c.stack < c.stack_bytes:
                address += np.uint64(core) << np.uint64(CORE_SHIFT)
            line = np.int64(address >> np.uint64(limits.line_shift))
            place = look_up(mem.directory, line)
            if mem.directory[place, 0] == FREE:
                continue
            own = mem.core[core].group
            other = next_group(mem.directory, place, 0)
            if other == own:
                other = next_group(mem.directory, place, other + 1)
            if other < 0 or next_group(mem.directory, place, max(own, other) + 1) >= 0:
                continue
            looks.now[other, 1] += 1
            times -= 1
            if times == 0:
                return
        if execution >= c.execution:
            return
        if block >= 0:
            access += code.block[block].accesses
        block = np.int64(block_ids[execution])
        node = np.int64(code.block[block].first_node)
        execution += 1


@allocation_free
def run_looking(  # type: ignore[no-untyped-def]
    clock, sch, cores, mem, code, block_ids, addresses, pieces, records, looks, is_busy, first_phase, begin_ps,
    makespan_ps, window,
):  # fmt: skip
    """As ``run`` of detailed_kernel.py. ``is_busy`` int8[cores]: with a piece in detail."""
    sch, mem = by_reference(sch), by_reference(mem)
    cycles_per_ps = clock.cycles_per_ps[0]
    remote = mem.counts.shape[1] - 1
    at_once = looks.every[0] // 400 + 1  # cycles; four instructions at most enter in each
    num_begun = 0
    time_ps = phase_ps = begin_ps
    what = np.int64(PHASE_END)
    while True:
        if what == PHASE_END:
            if num_begun > 0:
                makespan_ps[num_begun - 1] = time_ps - phase_ps
            if num_begun == makespan_ps.shape[0]:
                _look(looks, cores, mem, is_busy, time_ps * cycles_per_ps)
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
            what = advance(sch, core, time_ps)
            for k in range(sch.num_woken[0]):
                push(clock.heap, clock.heap_size, sch.woken[k], time_ps)
            sch.num_woken[0] = 0
            if what == PIECE:
                waiting = clock.heap_size[0]
                begin_instance_piece(clock, sch, cores, mem, pieces, records, core)
                if clock.heap_size[0] == waiting:
                    is_busy[core] = 1
                    looks.now[core, 2] = cores.core[core].execution
            elif what == OPERATION:
                push(clock.heap, clock.heap_size, core, time_ps)
            continue
        core = take(clock.wheel, due)
        if core < 0:
            continue
        until = max(min(next_cycle(clock.wheel), event, due + at_once), due + 1) + window
        c = cores.core[core]
        block, node, access, execution = c.block, c.node, c.access, c.execution
        instructions, from_others = c.instructions, mem.counts[core, remote, SERVED]
        is_over = step(cores, mem, code, block_ids, addresses, core, np.float64(until))
        got = mem.counts[core, remote, SERVED] - from_others
        if got > 0:
            _answered(looks, cores, mem, code, block_ids, addresses, core, block, node, access, execution, got)
        more = cores.core[core].instructions - instructions
        looks.now[core, 0] += more
        looks.state[0] += more
        if is_over:
            _end_span(looks, core, cores.core[core].execution)
            is_busy[core] = 0
            me = sch.core[core]
            end_ps = max(np.int64(np.rint(cores.core[core].cycle / cycles_per_ps)), records.begin_ps[core])
            end_piece(records, cores, mem, core, me.instance, me.piece, end_ps)
            push(clock.heap, clock.heap_size, core, end_ps)
        else:
            put(clock.wheel, core, np.int64(math.floor(cores.core[core].cycle)))
        if looks.state[0] >= (looks.state[1] + 1) * looks.every[0]:
            _look(looks, cores, mem, is_busy, np.float64(due))


@dataclass(frozen=True)
class Traced:
    """A cell of all iterations of a trace, for a number of cores."""

    cell: OpenCell
    cores: int


def opened(folder: Path, cores: int, node: Node, policy: str = "fifo") -> Traced:
    """All iterations of rank 0 of a workload folder with a detailed level; creating task instances takes no time."""
    workload = workload_folder.read(folder)
    rank, iteration = detailed_segments(workload)
    rows = np.flatnonzero((rank == 0) & (iteration >= 0))
    part = rank_part(workload, 0, instructions=True)
    runtime = RuntimeSystem.model_validate({"policy": policy})
    inputs = {"part": part, "stream": stream_part(workload, int(rows[0]), int(rows[-1]) + 1)}
    program, stream, pieces = open_cell({"rank": 0, "cores": cores}, inputs, runtime)
    first, end = phases_of_cell(program, JOINED)
    creates = creation_pieces(program, part.workload)
    return Traced(OpenCell(part.workload, program, stream, pieces, creates, first, end, node, runtime, True), cores)


def intervals_on(traced: Traced, node: Node, every: int) -> IntervalPopulation:
    """Intervals of ``every`` instructions of all cores on a node, with caches as an earlier run of the same left them;
    what is left at the end is an interval if it is half as long. Counters: see the module, and ``cycles``, the time
    that passed, of the interval."""
    cell = replace(traced.cell, node=node)
    simulation = NodeSimulation(
        cell.program, cell.workload, node, traced.cores, cell.runtime, cell.stream, cell.pieces,
        first_phase=cell.first, end_phase=cell.end, empty_ps=cell.creation_ps, keep=False,
    )  # fmt: skip
    total = int(cell.pieces.num_instructions.sum())
    before, looks = (new_looks(every, total, cell.program.num_pieces, simulation.memory.counts) for _ in range(2))
    simulation.run_with(run_looking, before, np.zeros(traced.cores, np.int8))
    simulation.start()
    simulation.run_with(run_looking, looks, np.zeros(traced.cores, np.int8))
    looks.cycle[:] -= before.cycle[before.state[1] - 1]
    memory = simulation.memory.memory[0]
    blocks = cell.workload.column("blocks", "num_instructions").astype(np.int64)
    return population_of(
        looks, cell.stream.block_ids, np.maximum(blocks, 0), int(memory["levels"]), int(memory["private"])
    )


def population_of(
    looks: Looks, block_ids: np.ndarray, block_instructions: np.ndarray, levels: int, private: int
) -> IntervalPopulation:
    """O(block executions)."""
    number = int(looks.state[1])
    instructions = _each(looks.instructions[:number])
    if instructions[-1].sum() < looks.every[0] / 2:
        number, instructions = number - 1, instructions[:-1]
    served = looks.counts[:number, :, : levels + 1, SERVED]
    taken = looks.counts[:number, :, private - 1, INVALIDATED]
    measured = {
        "offcore_requests": _each(served[:, :, private:].sum(axis=2)),
        "llc_misses": _each(served[:, :, levels]),
        "coherence_answers": _each(taken + looks.answers[:number]),
    }
    cycles = _each(looks.cycle[:number])
    sums = {name: values.sum(axis=1) for name, values in measured.items()} | {"cycles": cycles}
    cores, width = instructions.shape[1], len(block_instructions)
    first, column, value = _vectors(looks.span[: looks.state[2]], block_ids, block_instructions, number, cores, width)
    return IntervalPopulation(
        np.arange(number), instructions.sum(axis=1), Vectors(first, column, value), cores, sums, instructions, measured
    )


def _each(cumulative: np.ndarray) -> np.ndarray:
    """float64: differences along the first axis, the first row as it is."""
    return np.diff(cumulative, axis=0, prepend=np.zeros((1, *cumulative.shape[1:]))).astype(np.float64)


def _vectors(
    span: np.ndarray, block_ids: np.ndarray, block_instructions: np.ndarray, number: int, cores: int, width: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows by interval, columns by core and block, values in instructions."""
    first, columns, values = np.zeros(number + 1, np.int64), [], []
    order = np.argsort(span[:, 0], kind="stable")
    bounds = np.searchsorted(span[order, 0], np.arange(number + 1))
    for interval in range(number):
        dense = np.zeros(cores * width)
        for _, core, begin, end in span[order[bounds[interval] : bounds[interval + 1]]].tolist():
            dense[core * width : (core + 1) * width] += np.bincount(block_ids[begin:end], minlength=width)
        dense *= np.tile(block_instructions, cores)
        column = np.flatnonzero(dense)
        columns.append(column)
        values.append(dense[column])
        first[interval + 1] = first[interval] + len(column)
    return first, np.concatenate(columns), np.concatenate(values)
