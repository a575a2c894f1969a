"""TaskPoint inside a node: a watch of the loop of models/node/detailed_kernel.py, which decides at each begin of a
piece of a task instance whether to simulate it in detail, and observes each one that has ended.

TaskPoint's unit is the piece, what an instance does between two points where the runtime system may suspend it. With
whole instances, one that waits for its children would stay in detail, and would not be a sample, until all of them are
over: a recursive program would be simulated in detail down to its leaves before anything is sampled.

It stands in the runner since it joins what models and sampling know nothing of each other of.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from manyscale.models.kernels import allocation_free, by_reference, inner, inner_inlined
from manyscale.models.node.loop_watch import watches
from manyscale.models.node.memory.kernel import look_ahead, touch
from manyscale.models.node.memory.used_lines import put_used
from manyscale.models.node.private_stacks import CORE_SHIFT
from manyscale.sampling.taskpoint.decisions import DETAILED, TaskPoint, decide, observe
from manyscale.sampling.taskpoint.state import RARE

NOTHING = -1
_AHEAD = 12  # touches


class Sampled(NamedTuple):
    """``point``: TaskPoint's state, whose instances are pieces. ``is_forwarded`` bool[instances]: whether a piece of it
    was fast-forwarded. ``num_instructions`` int64[pieces]. ``piece`` int64[cores]: what a core executes that TaskPoint
    waits for, NOTHING otherwise; ``cycles`` float64[cores]: that its instance had executed before. ``lines``: what
    fast-forwarded instances would have left in the caches."""

    point: TaskPoint
    is_forwarded: np.ndarray
    num_instructions: np.ndarray
    piece: np.ndarray
    cycles: np.ndarray
    lines: NamedTuple


def new_sampled(
    point: TaskPoint, num_instructions: np.ndarray, num_instances: int, num_cores: int, lines: SkippedLines
) -> Sampled:
    """Before the first piece."""
    return Sampled(
        point, np.zeros(num_instances, bool), num_instructions, np.full(num_cores, NOTHING), np.zeros(num_cores), lines
    )


class SkippedLines(NamedTuple):
    """Lines of instances that were not simulated, to be touched before the next one is. Those of instance i are
    ``line`` int32[] (that index ``line_number`` int64[lines]) and ``is_written`` bool[], the oldest first, from
    first_line[i] (int64[instances + 1]) on; of length 1 if none are to be touched.

    ``skipped`` int32[instances, 2]: instances and their cores, in the order in which they began to be skipped, ``num``
    [0] of them.
    In the round ``num`` [1], ``round`` int64[lines] is the last one in which a line was used, ``cores`` uint64[lines]
    who is to touch it, core c as bit c modulo 64, and ``written`` bool[lines] whether the earliest of these uses
    wrote it. ``chosen`` int32[, 3]: (line, core, whether it writes) to touch. ``num`` [2]: how many lines fit a
    core's own caches; ``room`` int64[cores]. ``is_own`` bool[lines]: of which each core has its own
    (private_stacks.py), and ``num`` [3] the lines from those of a core to those of the next."""

    first_line: np.ndarray
    line: np.ndarray
    is_written: np.ndarray
    line_number: np.ndarray
    is_own: np.ndarray
    skipped: np.ndarray
    round: np.ndarray
    cores: np.ndarray
    written: np.ndarray
    chosen: np.ndarray
    room: np.ndarray
    num: np.ndarray


def skipped_lines(
    first_line: np.ndarray, line: np.ndarray, is_written: np.ndarray, line_number: np.ndarray, num_cores: int,
    own_lines: int, most_lines: int, is_own: np.ndarray | None = None, line_bytes: int = 64,
) -> SkippedLines:  # fmt: skip
    """Of instances whose lines are given; ``own_lines``: that fit the caches that a core has to itself; ``most_lines``:
    that fit all caches of the node; ``is_own`` bool[lines]."""
    lines = len(line_number)
    own = np.zeros(lines, bool) if is_own is None else is_own
    return SkippedLines(
        first_line, line, is_written, line_number, own, np.empty((len(first_line), 2), np.int32),
        np.zeros(lines, np.int64), np.zeros(lines, np.uint64), np.zeros(lines, bool),
        np.empty((min(len(line), most_lines), 3), np.int32), np.zeros(num_cores, np.int64),
        np.array([0, 0, own_lines, (1 << CORE_SHIFT) // line_bytes], np.int64),
    )  # fmt: skip


def no_lines(num_cores: int) -> SkippedLines:
    """Nothing is touched."""
    none = np.empty(0, np.int64)
    return skipped_lines(np.zeros(1, np.int64), none.astype(np.int32), none.astype(bool), none, num_cores, 0, 0)


@watches(Sampled)
def piece_due(watch, sim, core):  # type: ignore[no-untyped-def]
    """How the piece that a core is to begin is executed, and if in no detail, how long it takes. Those without
    instructions take what they would in detail, and so does the initial task."""
    me, point = sim.scheduler.core[core], watch.point
    piece, instance = np.int64(me.piece), np.int64(me.instance)
    if piece < 0 or instance == 0:
        return
    sim.is_detailed[instance] = True
    if watch.num_instructions[piece] == 0:
        return
    if decide(point, piece, core, _num_busy(sim.scheduler)) == DETAILED:
        if watch.lines.num[0] > 0 and point.role[piece] != RARE:
            touch_skipped(sim.memory, watch.lines)
        watch.piece[core] = piece
        watch.cycles[core] = sim.records.instance[instance].cycles
        return
    sim.is_detailed[instance] = False
    cycles = watch.num_instructions[piece] * point.cpi[piece]
    sim.piece[piece].given_ps = np.int64(np.rint(cycles / sim.control[0].cycles_per_ps))
    if not watch.is_forwarded[instance] and watch.lines.first_line.shape[0] > 1:
        skip(watch.lines, instance, core)
    watch.is_forwarded[instance] = True


@watches(Sampled)
def core_due(watch, sim, core):  # type: ignore[no-untyped-def]
    """A core may have done the piece that TaskPoint waits for. O(1) beside ``observe``."""
    if watch.piece[core] < 0:
        return
    cycles = sim.records.instance[sim.scheduler.core[core].instance].cycles - watch.cycles[core]
    observe(watch.point, watch.piece[core], core, cycles, _num_busy(sim.scheduler))
    watch.piece[core] = NOTHING


@inner_inlined
def _num_busy(sch):  # type: ignore[no-untyped-def]
    """Cores that are not idle."""
    return sch.core.shape[0] - sch.node[0].num_idle


@inner
def skip(lines, instance, core):  # type: ignore[no-untyped-def]
    """An instance begins on ``core`` and is not simulated. O(1)."""
    lines.skipped[lines.num[0], 0] = instance
    lines.skipped[lines.num[0], 1] = core
    lines.num[0] += 1


def skip_all(lines: SkippedLines, instances: np.ndarray, cores: np.ndarray) -> None:
    """Instances int[] have run on ``cores`` int[], in this order. To be called first of all."""
    lines.skipped[: len(instances), 0] = instances
    lines.skipped[: len(instances), 1] = cores
    lines.num[0] = len(instances)


@inner
def _choose(lines):  # type: ignore[no-untyped-def]
    """The uses of lines by what was skipped that caches still show, the oldest first: the first of them in ``chosen``.

    Of each line the last use by each core since an instance wrote it counts, that one included, as long as what the
    core used later fits its own caches, and the last use by any. What was before that would have been replaced, or
    invalidated. O(lines of what was skipped).
    """
    num = lines.num
    num[1] += 1
    for each in range(lines.room.shape[0]):
        lines.room[each] = num[2]
    first = lines.chosen.shape[0]
    for k in range(num[0] - 1, -1, -1):
        instance, core = np.int64(lines.skipped[k, 0]), np.int64(lines.skipped[k, 1])
        bit = np.uint64(1) << np.uint64(core & 63)
        if first == 0:
            break
        for place in range(lines.first_line[instance + 1] - 1, lines.first_line[instance] - 1, -1):
            line = lines.line[place]
            if lines.round[line] != num[1]:
                lines.round[line] = num[1]
                lines.cores[line] = np.uint64(0)
                lines.written[line] = False
            elif lines.written[line] and not lines.is_own[line]:
                continue
            elif lines.cores[line] & bit or lines.room[core] <= 0:
                lines.written[line] = lines.is_written[place]
                continue
            if first == 0:
                break
            lines.cores[line] |= bit
            lines.written[line] = lines.is_written[place]
            lines.room[core] -= 1
            first -= 1
            lines.chosen[first, 0] = line
            lines.chosen[first, 1] = core
            lines.chosen[first, 2] = lines.is_written[place]
    num[0] = 0
    return first


@inner_inlined
def _number(lines, k):  # type: ignore[no-untyped-def]
    """The number of the chosen line."""
    line = lines.chosen[k, 0]
    number = lines.line_number[line]
    return number + lines.chosen[k, 1] * lines.num[3] if lines.is_own[line] else number


@inner_inlined
def _look_ahead(mem, lines, k):  # type: ignore[no-untyped-def]
    ahead = min(k + _AHEAD, lines.chosen.shape[0] - 1)
    look_ahead(mem, np.int64(lines.chosen[ahead, 1]), _number(lines, ahead))


@allocation_free
def touch_skipped(mem, lines):  # type: ignore[no-untyped-def]
    """The caches are as if what was skipped had run, as far as the order of lines by their last use goes. See
    ``_choose``; the touches, at most as many as all caches hold, are what takes time."""
    mem, lines = by_reference(mem), by_reference(lines)
    for k in range(_choose(lines), lines.chosen.shape[0]):
        _look_ahead(mem, lines, k)
        touch(mem, np.int64(lines.chosen[k, 1]), _number(lines, k), lines.chosen[k, 2] != 0)


@allocation_free
def fill_skipped(mem, lines):  # type: ignore[no-untyped-def]
    """As ``touch_skipped``, of empty caches, which takes a third of the time; first levels stay empty."""
    mem, lines = by_reference(mem), by_reference(lines)
    for k in range(_choose(lines), lines.chosen.shape[0]):
        _look_ahead(mem, lines, k)
        line = lines.chosen[k, 0]
        holders = lines.cores[line]
        is_own = lines.is_own[line]
        is_shared = (holders & (holders - np.uint64(1))) != 0 and not is_own
        is_first = lines.round[line] > 0 or is_own
        lines.round[line] = 0
        core = np.int64(lines.chosen[k, 1])
        is_dirty = lines.chosen[k, 2] != 0 if is_own else lines.written[line]
        put_used(mem, core, _number(lines, k), is_first, is_shared, is_dirty)
