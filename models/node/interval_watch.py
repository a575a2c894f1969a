"""Intervals of a node's simulation, by a global number of instructions, with counters of every core (Hung, National
Taiwan University, 2010, chapter 5).

Watches the loop of detailed_kernel.py: looks at the clock, the cores and the memory system each time that all cores
together have executed so many instructions more. A core's instructions count when their block has ended, as the core
model counts them, so an interval may be some dozens too long.

Counters of a core: ``instructions``; ``offcore_requests``: lines that its private caches had to ask for;
``llc_misses``: those that main memory gave; ``coherence_answers``: lines that others' stores took from its outermost
private cache, and lines that it had modified and another core read. For the latter the memory system counts who asked;
who answered is what the directory says of the line after the read: the one other core that shares it. (Where a line was
read from elsewhere and another one of the same turn, a cycle or less, is shared too, the first one of both is taken.)

Cost: O(cores x levels) a look, O(accesses) of the turns in which another core gave a line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import inner, inner_inlined
from manyscale.models.node.core.code import LOAD, RESULT
from manyscale.models.node.loop_watch import watches
from manyscale.models.node.memory.directory import FREE, look_up, next_group
from manyscale.models.node.memory.system import INVALIDATED, SERVED
from manyscale.models.node.private_stacks import CORE_SHIFT

_TURNS: Final = 400  # that an interval has at least, so that it is not much too long
_MOST_LOOKS: Final = 4_000_000  # of all cores, with some hundred bytes each


class IntervalWatch(NamedTuple):
    """What was seen. ``every`` int64[1]: instructions of an interval; ``state`` int64[3]: instructions so far, looks so
    far, spans so far. Of each look, cumulative: ``cycle`` float64[n], ``instructions``, ``answers`` int64[n, cores],
    ``counts`` int64[n, cores, levels + 2, 4]. ``now`` int64[cores, 3]: instructions, answers, and where the span
    began; ``is_busy`` int8[cores]: with a piece in detail. ``span`` int64[m, 4]: (interval, core, first and end of
    block executions in the stream)."""

    every: np.ndarray
    state: np.ndarray
    cycle: np.ndarray
    instructions: np.ndarray
    answers: np.ndarray
    counts: np.ndarray
    now: np.ndarray
    is_busy: np.ndarray
    span: np.ndarray


@dataclass(frozen=True)
class NodeIntervals:
    """Of each interval, in their order: ``cycles`` float64[n], how long it took; float64[n, cores] ``instructions``,
    ``offcore_requests``, ``llc_misses`` and ``coherence_answers``. What cores executed, in instructions: of interval i
    ``block_instructions`` float64[] in the columns ``core_block`` int64[] (core x num_blocks + block, ascending), from
    first_block[i] (int64[n + 1]) on."""

    cycles: np.ndarray
    instructions: np.ndarray
    offcore_requests: np.ndarray
    llc_misses: np.ndarray
    coherence_answers: np.ndarray
    first_block: np.ndarray
    core_block: np.ndarray
    block_instructions: np.ndarray
    num_blocks: int

    def __len__(self) -> int:
        return len(self.cycles)


def new_interval_watch(every: int, num_instructions: int, num_pieces: int, counts: np.ndarray) -> IntervalWatch:
    """For intervals of ``every`` instructions of a run of so many; ``counts``: of the memory system. Raises ValueError
    for an interval of none, and for more intervals than are worth looking at."""
    if every < 1:
        raise ValueError(f"intervals of {every} instructions: at least one is needed")
    cores = counts.shape[0] - 1
    most = num_instructions // every + 2
    if most * cores > _MOST_LOOKS:
        raise ValueError(
            f"{num_instructions} instructions are {most} intervals of {every} on {cores} cores; make them longer"
        )
    return IntervalWatch(
        np.array([every]), np.zeros(3, np.int64), np.zeros(most), np.zeros((most, cores), np.int64),
        np.zeros((most, cores), np.int64), np.zeros((most, cores, *counts.shape[1:]), np.int64),
        np.zeros((cores, 3), np.int64), np.zeros(cores, np.int8), np.zeros((num_pieces + most * cores, 4), np.int64),
    )  # fmt: skip


def finish(watch: IntervalWatch, counts: np.ndarray, cycle: float) -> None:
    """The last look, when the run has ended."""
    cores, last = len(watch.now), int(watch.state[1])
    watch.instructions[last], watch.answers[last] = watch.now[:, 0], watch.now[:, 1]
    watch.counts[last], watch.cycle[last] = counts[:cores], cycle
    watch.state[1] += 1


def intervals_of(
    watch: IntervalWatch, block_ids: np.ndarray, block_instructions: np.ndarray, levels: int, private: int
) -> NodeIntervals:
    """After ``finish``. ``block_ids`` of the stream; ``block_instructions`` int64[blocks]; ``levels`` of caches, of
    which a core has ``private`` to itself. What is left at the end is an interval if it is half as long. O(block
    executions + intervals x cores x blocks)."""
    number = int(watch.state[1])
    instructions = _each(watch.instructions[:number])
    if instructions[-1].sum() < watch.every[0] / 2:
        number, instructions = number - 1, instructions[:-1]
    served = watch.counts[:number, :, : levels + 1, SERVED]
    taken = watch.counts[:number, :, private - 1, INVALIDATED]
    cores, width = instructions.shape[1], len(block_instructions)
    spans = watch.span[: watch.state[2]]
    return NodeIntervals(
        _each(watch.cycle[:number]),
        instructions,
        _each(served[:, :, private:].sum(axis=2)),
        _each(served[:, :, levels]),
        _each(taken + watch.answers[:number]),
        *_blocks(spans, block_ids, block_instructions, number, cores),
        width,
    )


def _each(cumulative: np.ndarray) -> np.ndarray:
    """float64: differences along the first axis, the first row as it is."""
    return np.diff(cumulative, axis=0, prepend=np.zeros((1, *cumulative.shape[1:]))).astype(np.float64)


def _blocks(
    span: np.ndarray, block_ids: np.ndarray, block_instructions: np.ndarray, number: int, cores: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows by interval, columns by core and block, values in instructions."""
    width = len(block_instructions)
    first, columns, values = np.zeros(number + 1, np.int64), [np.zeros(0, np.int64)], [np.zeros(0)]
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


# ---- in the loop ----

_INSTRUCTIONS, _FROM_OTHERS = 4, 5  # of what `turn_begins` remembers


@watches(IntervalWatch)
def turn_end(watch, due, until):  # type: ignore[no-untyped-def]
    return min(until, due + watch.every[0] // _TURNS + 1)


@watches(IntervalWatch)
def turn_begins(watch, sim, core):  # type: ignore[no-untyped-def]
    """The core's place in its code, and the lines that others gave it so far."""
    c = sim.cores.core[core]
    counts = sim.memory.counts
    if not watch.is_busy[core]:
        watch.is_busy[core] = 1
        watch.now[core, 2] = c.execution
    return c.block, c.node, c.access, c.execution, c.instructions, counts[core, counts.shape[1] - 1, SERVED]


@watches(IntervalWatch)
def turn_over(watch, sim, core, mark, due, is_over):  # type: ignore[no-untyped-def]
    c = sim.cores.core[core]
    counts = sim.memory.counts
    if counts[core, counts.shape[1] - 1, SERVED] > mark[_FROM_OTHERS]:
        _answered(watch, sim, core, mark)
    more = c.instructions - mark[_INSTRUCTIONS]
    watch.now[core, 0] += more
    watch.state[0] += more
    if is_over:
        _end_span(watch, core, c.execution)
        watch.is_busy[core] = 0
    if watch.state[0] >= (watch.state[1] + 1) * watch.every[0]:
        _look(watch, sim, np.float64(due))


@inner_inlined
def _executed(cores, core):  # type: ignore[no-untyped-def]
    """Block executions that the core has ended. O(1)."""
    c = cores.core[core]
    return c.execution - (1 if c.block >= 0 and (c.node < c.end_node or c.execution < c.end_execution) else 0)


@inner_inlined
def _end_span(watch, core, end):  # type: ignore[no-untyped-def]
    if end > watch.now[core, 2]:
        row = watch.span[watch.state[2]]
        row[0], row[1], row[2], row[3] = watch.state[1], core, watch.now[core, 2], end
        watch.state[2] += 1
    watch.now[core, 2] = end


@inner
def _look(watch, sim, cycle):  # type: ignore[no-untyped-def]
    """O(cores x levels)."""
    number = watch.state[1]
    for core in range(watch.now.shape[0]):
        if watch.is_busy[core]:
            _end_span(watch, core, _executed(sim.cores, core))
        watch.instructions[number, core] = watch.now[core, 0]
        watch.answers[number, core] = watch.now[core, 1]
        counts = sim.memory.counts
        for level in range(counts.shape[1]):
            for kind in range(counts.shape[2]):
                watch.counts[number, core, level, kind] = counts[core, level, kind]
    watch.cycle[number] = cycle
    watch.state[1] += 1


@inner
def _answered(watch, sim, core, mark):  # type: ignore[no-untyped-def]
    """Who gave lines that loads of this turn got from elsewhere; the turn began with the core at ``mark``. O(accesses
    of the turn)."""
    block, node, access, execution, _, from_others = mark
    cores, counts = sim.cores, sim.memory.counts
    code, stream = cores.code, cores.stream
    c, limits = cores.core[core], cores.limits[0]
    times = counts[core, counts.shape[1] - 1, SERVED] - from_others
    while True:
        end = np.int64(code.block[block].end_node) if block >= 0 else node
        while node < end and (execution < c.execution or node < c.node):
            each = code.node[node]
            node += 1
            if each.kind == RESULT or each.kind != LOAD:
                continue
            address = stream.addresses[access + each.row]
            if address - c.stack < c.stack_bytes:
                address += np.uint64(core) << np.uint64(CORE_SHIFT)
            other = _giver(sim.memory, core, np.int64(address >> np.uint64(limits.line_shift)))
            if other >= 0:
                watch.now[other * sim.memory.memory[0].group_cores, 1] += 1
                times -= 1
                if times == 0:
                    return
        if execution >= c.execution:
            return
        if block >= 0:
            access += code.block[block].accesses
        block = np.int64(stream.block_ids[execution])
        node = np.int64(code.block[block].first_node)
        execution += 1


@inner
def _giver(mem, core, line):  # type: ignore[no-untyped-def]
    """The one other group that holds a line, -1 if there is none or several do."""
    place = look_up(mem.directory, line)
    if mem.directory[place, 0] == FREE:
        return -1
    own = mem.core[core].group
    other = next_group(mem.directory, place, 0)
    if other == own:
        other = next_group(mem.directory, place, other + 1)
    if other < 0 or next_group(mem.directory, place, max(own, other) + 1) >= 0:
        return -1
    return other
