"""Kernels of costs.py: windows on one core, with all lines that the piece has not used before in one level."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import allocation_free, by_reference
from manyscale.models.node.core.kernel import begin_piece
from manyscale.models.node.core.window_kernel import fill_from, run_to_execution
from manyscale.models.node.memory.cache_rows import SHARED, set_begin
from manyscale.models.node.memory.directory import remove_group
from manyscale.models.node.memory.kernel import touch

# instead of a level: as ``natural`` says; another core's, which has modified them; in the first cache, and in others
NATURAL: Final = -1
MODIFIED: Final = -2
HELD_BY_OTHERS: Final = -3
_SPACE_SHIFT: Final = 48  # no program has addresses beyond
_MOST_SPACES: Final = 1 << 15
_APART: Final = 1000.0  # cycles between windows


class Windows(NamedTuple):
    """Of PieceWindows what runs: see there. ``natural`` int8[lines]: the level of each when its window begins, one more
    than there are for main memory; ``is_own`` bool[lines]: whether the piece has used it before. ``space`` int64[1]:
    how many windows ran before."""

    first_execution: np.ndarray
    first_measured: np.ndarray
    is_mispredicted: np.ndarray
    first_access: np.ndarray
    first_line: np.ndarray
    line: np.ndarray
    natural: np.ndarray
    is_own: np.ndarray
    space: np.ndarray


@allocation_free
def run_windows(cores, mem, windows, level, cycles, served):  # type: ignore[no-untyped-def]
    """All windows one after the other: ``cycles`` float64[windows] and ``served`` int64[windows, levels + 1], accesses
    by the level that served them, of what counts. ``level``: of lines that are not the piece's own, or one of the
    names above; the last two need a memory of two groups of cores.
    O(accesses x levels x ways)."""
    cores, mem, windows = by_reference(cores), by_reference(mem), by_reference(windows)
    c = cores.core[0]
    shift = np.int64(_SPACE_SHIFT) - cores.limits[0].line_shift
    addresses = cores.stream.addresses
    levels = mem.memory[0].levels
    for w in range(cycles.shape[0]):
        windows.space[0] = (windows.space[0] + 1) % _MOST_SPACES
        space = windows.space[0]
        own = np.uint64(space) << np.uint64(_SPACE_SHIFT)
        for i in range(windows.first_access[w], windows.first_access[w + 1]):
            addresses[i] = addresses[i] & np.uint64((1 << _SPACE_SHIFT) - 1) | own
        for k in range(windows.first_line[w + 1] - 1, windows.first_line[w] - 1, -1):
            place = np.int64(windows.natural[k])
            line = windows.line[k] & ((np.int64(1) << shift) - 1) | space << shift
            is_foreign = level <= MODIFIED and not windows.is_own[k]
            if is_foreign:
                touch(mem, mem.memory[0].group_cores, line, level == MODIFIED)
                place = levels if level == MODIFIED else np.int64(0)
            elif level >= 0 and not windows.is_own[k]:
                place = np.int64(level)
            if place < levels:
                fill_from(mem, line, place)
            if is_foreign and level == HELD_BY_OTHERS:
                mem.tag[set_begin(mem.level[0], mem.first_slot[0, 0], line)] |= SHARED
        first, since = windows.first_execution[w], windows.first_measured[w]
        end = windows.first_execution[w + 1]
        begin = math.ceil(c.cycle) + _APART
        begin_piece(cores, 0, first, end, windows.first_access[w], 0, 0, begin)
        c.node = c.end_node = -1
        if since > first:
            begin = run_to_execution(cores, mem, windows, since)
        for each in range(levels + 1):
            served[w, each] = -mem.counts[0, each, 0]
        c.cycle = run_to_execution(cores, mem, windows, end)
        cycles[w] = c.cycle - begin
        for each in range(levels + 1):
            served[w, each] += mem.counts[0, each, 0]
        if level <= MODIFIED:  # ``fill_from`` does not tell the directory what leaves, so that it would become full
            for k in range(windows.first_line[w], windows.first_line[w + 1]):
                line = windows.line[k] & ((np.int64(1) << shift) - 1) | space << shift
                for group in range(2):
                    remove_group(mem.directory, line, group)


@allocation_free
def leaders(is_loaded, of_memory, first, end, reach, found):  # type: ignore[no-untyped-def]
    """``found`` float64[pieces]: of each, how many of its loaded rows ``of_memory`` lead others; see ``use_piece``.
    O(rows)."""
    for piece in range(first.shape[0]):
        place = np.int64(0)
        leader = -np.int64(reach[piece])
        for row in range(first[piece], end[piece]):
            if not is_loaded[row]:
                continue
            place += 1
            if of_memory[row] and place - leader >= reach[piece]:
                leader = place
                found[piece] += 1.0
