"""Windows of a micro-profile on one core, and what an instance takes at a state of the memory (see the package)."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import allocation_free, by_reference, inner
from manyscale.models.node.core.kernel import begin_piece
from manyscale.models.node.core.window_kernel import fill_from, run_to_execution
from manyscale.models.node.memory.cache_rows import EMPTY, find, remove, set_begin
from manyscale.models.node.memory.kernel import access

CYCLES: Final = 0  # columns of what ``respond`` gives
LINES_READ: Final = 1
LINES_WRITTEN: Final = 2
LINES_SHARED: Final = 3
FIRST_SERVED: Final = 4
_WINDOW_SHIFT: Final = 48  # addresses have less bits
_MOST_SPACES: Final = 1 << 16
_APART: Final = 1000.0  # cycles between windows


class CoreResponse(NamedTuple):
    """What samples take on a core, by states of what other cores do.

    ``share`` float64[shares] descending from 1; ``wait`` float64[waits] ascending from 0, in cycles. ``cycles``
    float64[samples, 2, shares, waits]: per instruction, for ``elsewhere`` 0 and 1. ``cache_slope`` float64[samples, 2,
    shares]: by how much it grows per cycle of ``cache_wait``. ``rate`` float64[samples, 2, shares, columns]: the other
    columns of ``respond``, column CYCLES unused.
    """

    share: np.ndarray
    wait: np.ndarray
    cycles: np.ndarray
    cache_slope: np.ndarray
    rate: np.ndarray


class Windows(NamedTuple):
    """Of MicroProfiles what runs: see there. ``distance`` float32[lines]: cold or warm ones. ``space`` int64[1]: how
    many windows ran before. ``clash`` float64[windows, levels]: see ``find_clashes``."""

    first_execution: np.ndarray
    first_measured: np.ndarray
    begins_piece: np.ndarray
    is_mispredicted: np.ndarray
    first_access: np.ndarray
    first_line: np.ndarray
    line: np.ndarray
    distance: np.ndarray
    ahead: np.ndarray
    is_own: np.ndarray
    space: np.ndarray
    clash: np.ndarray
    first_history: np.ndarray
    history: np.ndarray
    history_instructions: np.ndarray
    done: np.ndarray


@allocation_free
def find_clashes(windows, mem, sets, clash):  # type: ignore[no-untyped-def]
    """``clash`` float64[windows, levels]: pairs of a window's lines that fall into one set, 0 if as few as can be, 1 if
    as many as of random lines, or more. ``sets`` int32[most sets]: zeros.
    O(lines x levels)."""
    windows, mem = by_reference(windows), by_reference(mem)
    for w in range(windows.first_line.shape[0] - 1):
        first, end = windows.first_line[w], windows.first_line[w + 1]
        for level in range(mem.memory[0].levels):
            number = mem.level[level].sets
            pairs = 0.0
            for k in range(first, end):
                place = windows.line[k] % number
                pairs += sets[place]
                sets[place] += 1
            for k in range(first, end):
                sets[windows.line[k] % number] = 0
            count = np.float64(end - first)
            whole = math.floor(count / number)
            least = number * whole * (whole - 1.0) / 2.0 + (count - number * whole) * whole
            random = count * (count - 1.0) / (2.0 * number)
            clash[w, level] = min((pairs - least + 1.0) / (random - least + 1.0), 1.0)


@inner
def _nearest_prefetcher(mem):  # type: ignore[no-untyped-def]
    """The first level that has one, the number of caches if none has."""
    level = np.int64(0)
    while level < mem.memory[0].levels and mem.level[level].streams == 0:
        level += 1
    return level


@allocation_free
def leave_streams(windows, mem, addresses, line_shift, pages):  # type: ignore[no-untyped-def]
    """Lines in pages of a prefetcher where the window hardly steps from line to line have no stream ahead of them: it
    follows one in a page. ``pages`` int64[pages, 4]: page, line, last step, steps less other changes of the line.
    O(accesses in windows x pages)."""
    windows, mem = by_reference(windows), by_reference(mem)
    nearest = _nearest_prefetcher(mem)
    if nearest == mem.memory[0].levels:
        return
    shift = mem.level[nearest].page_shift
    for w in range(windows.first_line.shape[0] - 1):
        count = 0
        for each in range(windows.first_access[w], windows.first_access[w + 1]):
            line = np.int64(addresses[each] >> np.uint64(line_shift))
            k = 0
            while k < count and pages[k, 0] != line >> shift:
                k += 1
            if k == count:
                if count == pages.shape[0]:
                    continue
                count += 1
                pages[k, 0], pages[k, 1], pages[k, 2], pages[k, 3] = line >> shift, line, 0, 0
            step = line - pages[k, 1]
            if step != 0:
                pages[k, 3] += 1 if step == pages[k, 2] and abs(step) == 1 else -1
                pages[k, 1], pages[k, 2] = line, step
        for i in range(windows.first_line[w], windows.first_line[w + 1]):
            k = 0
            while k < count and pages[k, 0] != windows.line[i] >> shift:
                k += 1
            if k == count or pages[k, 3] <= 0:
                windows.ahead[i] = np.inf


@inner
def _holds(level, num_nearer, distance, share, clash):  # type: ignore[no-untyped-def]
    """The probability that a cache holds a line with ``distance`` other lines since its last use: fewer than its ways
    fall into its set. Of random lines their number is binomial (here, Poisson's limit of it); of lines that spread
    evenly it is the mean; between, both count as ``clash`` says. O(ways)."""
    if level.exclusive:
        distance = max(distance - num_nearer, 0.0)
    mean = distance / (level.sets * share)
    even = 1.0 if mean < level.ways else 0.0
    if mean > 4.0 * level.ways + 40.0:
        return (1.0 - clash) * even
    term = math.exp(-mean)
    total = term
    for k in range(1, level.ways):
        term *= mean / k
        total += term
    return clash * total + (1.0 - clash) * even


@inner
def _place_of(mem, clash, distance, first, share, chance):  # type: ignore[no-untyped-def]
    """The nearest level, ``first`` or beyond, that holds a line: the number of caches for main memory."""
    nearer = 0.0
    for level in range(mem.memory[0].levels):
        each = mem.level[level]
        part = share if level >= mem.memory[0].private else 1.0
        if level >= first and chance < _holds(each, nearer, distance, part, clash[level]):
            return level
        nearer += each.sets * each.ways
    return np.int64(mem.memory[0].levels)


@inner
def _chance(line):  # type: ignore[no-untyped-def]
    mixed = np.uint64(line) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(31)
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    return np.float64(mixed >> np.uint64(11)) * (1.0 / (1 << 53))


@allocation_free
def find_places(windows, mem, share, elsewhere, place):  # type: ignore[no-untyped-def]
    """``place`` int8[lines]: the level that holds each line when its window begins to use it, if the window has
    ``share`` of the sets of shared caches. O(lines x ways)."""
    windows, mem = by_reference(windows), by_reference(mem)
    nearest = _nearest_prefetcher(mem)
    for w in range(windows.first_line.shape[0] - 1):
        for k in range(windows.first_line[w], windows.first_line[w + 1]):
            first = np.int64(0)
            if elsewhere and not windows.is_own[k]:
                first = mem.memory[0].private
            chance = _chance(windows.line[k])
            place[k] = mem.memory[0].levels
            if windows.distance[k] < np.inf:
                distance = np.float64(windows.distance[k])
                place[k] = _place_of(mem, windows.clash[w], distance, first, share, chance)
            if nearest < place[k] and windows.ahead[k] < np.inf:
                distance = np.float64(windows.ahead[k])
                first = max(first, nearest)
                place[k] = min(place[k], _place_of(mem, windows.clash[w], distance, first, share, chance))


@inner
def _lose(mem, windows, window, space, shift):  # type: ignore[no-untyped-def]
    """What other instances used last lies elsewhere, be it that they ran just before here: it leaves private caches."""
    for k in range(windows.first_line[window], windows.first_line[window + 1]):
        line = windows.line[k] & ((np.int64(1) << shift) - 1) | space << shift
        for level in range(mem.memory[0].private):
            if not windows.is_own[k]:
                one = mem.level[level]
                begin = set_begin(one, mem.first_slot[0, level], line)
                at = find(mem.tag, begin, one.ways, line)
                if at < begin + np.uint64(one.ways):
                    remove(mem.tag, begin, one.ways, at, EMPTY)
                    if level == 0:
                        remove(mem.ready, begin, one.ways, at, 0.0)


@inner
def _use_history(cores, mem, windows, window, space, shift, cycle):  # type: ignore[no-untyped-def]
    """The core has used the lines before a window, as fast as its width and, for those that are far, its reorder buffer
    let it: when it is done. O(lines x levels x ways)."""
    limits = cores.limits[0]
    first, end = windows.first_history[window], windows.first_history[window + 1]
    if end == first:
        return cycle
    each = windows.history_instructions[window] / (end - first)
    at_once = min(max(np.int64(limits.reorder / each), 1), end - first)
    done = windows.done
    for i in range(at_once):
        done[i % done.shape[0]] = cycle
    at_once = min(at_once, done.shape[0])
    for i in range(first, end):
        line = windows.history[i] & ((np.int64(1) << shift) - 1) | space << shift
        place = (i - first) % at_once
        cycle = max(cycle, done[place])
        done[place] = access(mem, 0, line, False, cycle)
        cycle += each * limits.slot
    return cycle


@allocation_free
def run_windows(cores, mem, windows, wanted, place, order, elsewhere, cycles, served):  # type: ignore[no-untyped-def]
    """Windows ``wanted`` int64[] one after the other, each with its lines at ``place`` and nothing of those before.

    ``order`` int64[lines]: lines of each window, those used least lately first. ``cycles`` float64[windows];
    ``served`` int64[windows, 2, levels + 1]: accesses, and lines that prefetchers asked for, by the level that had
    them, in what is measured. O(accesses x levels x ways)."""
    cores, mem, windows = by_reference(cores), by_reference(mem), by_reference(windows)
    c = cores.core[0]
    shift = np.int64(_WINDOW_SHIFT) - cores.limits[0].line_shift
    addresses = cores.stream.addresses
    levels = mem.memory[0].levels
    for w in wanted:
        windows.space[0] = (windows.space[0] + 1) % _MOST_SPACES
        space = windows.space[0]
        for i in range(windows.first_access[w], windows.first_access[w + 1]):
            own = addresses[i] & np.uint64((1 << _WINDOW_SHIFT) - 1)
            addresses[i] = own | np.uint64(space) << np.uint64(_WINDOW_SHIFT)
        for i in range(windows.first_line[w], windows.first_line[w + 1]):
            k = order[i]
            if place[k] < levels:
                line = windows.line[k] & ((np.int64(1) << shift) - 1) | space << shift
                fill_from(mem, line, place[k])
        c.cycle = _use_history(cores, mem, windows, w, space, shift, math.ceil(c.cycle) + _APART)
        first, since = windows.first_execution[w], windows.first_measured[w]
        end = windows.first_execution[w + 1]
        begin_piece(cores, 0, first, end, windows.first_access[w], 0, 0, math.ceil(c.cycle))
        c.node = c.end_node = -1
        begin = c.begin
        if since > first:
            begin = run_to_execution(cores, mem, windows, since)
        if elsewhere:
            _lose(mem, windows, w, space, shift)
        if windows.begins_piece[w]:
            begin_piece(cores, 0, since, end, c.access, 0, 0, math.ceil(begin))
            c.node = c.end_node = -1
            begin = c.begin
        for level in range(levels + 1):
            served[w, 0, level] = -mem.counts[0, level, 0]
            served[w, 1, level] = -mem.counts[1, level, 0]
        c.cycle = run_to_execution(cores, mem, windows, end)
        cycles[w] = c.cycle - begin
        for level in range(levels + 1):
            served[w, 0, level] += mem.counts[0, level, 0]
            served[w, 1, level] += mem.counts[1, level, 0]


@inner
def _between(steps, value):  # type: ignore[no-untyped-def]
    """(place, part): ``value`` lies that part of the way from step ``place`` to the next. Of descending or ascending
    ``steps``, held at their ends. O(steps)."""
    last = steps.shape[0] - 1
    if last == 0:
        return 0, 0.0
    sign = 1.0 if steps[last] > steps[0] else -1.0
    place = 0
    while place < last - 1 and sign * value >= sign * steps[place + 1]:
        place += 1
    part = (value - steps[place]) / (steps[place + 1] - steps[place])
    return place, max(part, 0.0)


@allocation_free
def respond(response, sample, share, elsewhere, cache_wait, memory_wait, out):  # type: ignore[no-untyped-def]
    """See the package: ``out`` per instruction. Between steps of the share linear in its logarithm, of the wait linear,
    and beyond the last wait as between the last two. O(steps + levels)."""
    response = by_reference(response)
    at, part = _between(response.share, share)
    if response.share.shape[0] > 1:
        low, high = math.log(response.share[at]), math.log(response.share[at + 1])
        part = min(max((math.log(max(share, response.share[-1])) - low) / (high - low), 0.0), 1.0)
    which, wait = _between(response.wait, memory_wait)
    for column in range(out.shape[0]):
        out[column] = 0.0
    for other in range(2):
        for k in range(2):
            weight = (elsewhere if other == 1 else 1.0 - elsewhere) * (part if k == 1 else 1.0 - part)
            if weight <= 0.0:
                continue
            step = at + k
            cycles = response.cycles[sample, other, step, which]
            if wait > 0.0:
                cycles += wait * (response.cycles[sample, other, step, which + 1] - cycles)
            out[CYCLES] += weight * (cycles + cache_wait * response.cache_slope[sample, other, step])
            for column in range(1, out.shape[0]):
                out[column] += weight * response.rate[sample, other, step, column]
