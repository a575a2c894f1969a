"""Kernels of occupancy.py."""

from __future__ import annotations

import numpy as np

from manyscale.models.kernels import allocation_free, by_reference, inner, inner_inlined
from manyscale.models.node.memory.prefetches import follow
from manyscale.models.node.shared.occupancy import (
    CLASSES,
    CROSSED,
    DOWN,
    FAR,
    FAR_OWED,
    FOUGHT,
    HOMES,
    LED,
    LED_FAR,
    MODIFIED,
    NEAR_OWED,
    OWNED,
    PASSED,
    REMOTE,
    ROWS,
    TAKEN,
    TAKEN_FAR,
    WRITTEN,
)
from manyscale.models.node.shared.piece_lines_kernel import LOADED, STORED


@inner_inlined
def _stack_of(occ, t, instance, number):  # type: ignore[no-untyped-def]
    """Which stack of a tier's instance a line belongs to."""
    return instance * CLASSES + occ.kind[t, number]


@inner
def _move_up(occ, t, place, epoch):  # type: ignore[no-untyped-def]
    """A line whose last use was in ``epoch`` (0: it is not there) is used: the level of the tier that held it, the
    tier's number of levels if none did. Amortised O(levels)."""
    tier = occ.tier[t]
    stack = occ.stack[tier.first_stack + place]
    first_count = tier.first_count + place * tier.ring
    mask = tier.ring - 1
    is_last = t == occ.tier.shape[0] - 1
    depths = tier.levels + is_last
    found = tier.levels
    is_counted = False
    for k in range(depths - 1, -1, -1):
        depth = occ.depth[tier.first_depth + place * depths + k]
        if epoch >= depth.threshold:
            is_counted = True
            if k < tier.levels:
                found = k
            continue
        depth.total += 1
        while depth.total > depth.capacity and depth.threshold < stack.now:
            depth.total -= occ.counted[first_count + (depth.threshold & mask)]
            if k == tier.levels:
                counted = place * tier.ring + (depth.threshold & mask)
                occ.control[0].written += occ.modified[counted]
                occ.modified[counted] = 0
            depth.threshold += 1
    if is_counted:
        occ.counted[first_count + (epoch & mask)] -= 1
    occ.counted[first_count + (stack.now & mask)] += 1
    stack.filled += 1
    if stack.filled >= tier.per_epoch:
        stack.filled = 0
        stack.now += 1
        occ.counted[first_count + (stack.now & mask)] = 0
        if is_last:
            occ.modified[place * tier.ring + (stack.now & mask)] = 0
    return found


@inner
def _holds(occ, t, instance, number):  # type: ignore[no-untyped-def]
    """The level of a tier's instance that holds a line, its number of levels if none does. O(levels)."""
    tier = occ.tier[t]
    entry = occ.entry[tier.first_entry + instance * tier.slots + (number & (tier.slots - 1))]
    if entry.line != number + 1:
        return tier.levels
    depths = tier.levels + (t == occ.tier.shape[0] - 1)
    place = _stack_of(occ, t, instance, number)
    for k in range(tier.levels):
        if entry.epoch >= occ.depth[tier.first_depth + place * depths + k].threshold:
            return np.int64(k)
    return tier.levels


@inner
def _modify(occ, core, number):  # type: ignore[no-untyped-def]
    """A line becomes modified: the last tier counts it where it was used last. O(1)."""
    t = occ.tier.shape[0] - 1
    tier = occ.tier[t]
    instance = core // tier.cores
    entry = occ.entry[tier.first_entry + instance * tier.slots + (number & (tier.slots - 1))]
    place = _stack_of(occ, t, instance, number)
    if entry.line == number + 1 and entry.epoch >= _deepest(occ, tier, place):
        occ.modified[place * tier.ring + (entry.epoch & (tier.ring - 1))] += 1


@inner_inlined
def _deepest(occ, tier, place):  # type: ignore[no-untyped-def]
    """The oldest epoch whose lines no cache has had to give up."""
    return occ.depth[tier.first_depth + (place + 1) * (tier.levels + 1) - 1].threshold


@inner
def _write_back(occ, core, number, column):  # type: ignore[no-untyped-def]
    """A line that a core's last tier counts as modified goes to main memory. O(1)."""
    occ.line[number].dirty = 0
    column[occ.control[0].levels + WRITTEN] += 1.0
    t = occ.tier.shape[0] - 1
    tier = occ.tier[t]
    instance = core // tier.cores
    entry = occ.entry[tier.first_entry + instance * tier.slots + (number & (tier.slots - 1))]
    if entry.line == number + 1:
        place = _stack_of(occ, t, instance, number) * tier.ring + (entry.epoch & (tier.ring - 1))
        occ.modified[place] = max(occ.modified[place] - 1, 0)


@inner
def _from_writer(occ, core, number, writer, served, column):  # type: ignore[no-untyped-def]
    """The level that serves a modified line, which its writer may still have; main memory has it, too, if it comes from
    another socket. O(levels)."""
    of_line = occ.line[number]
    levels, last = occ.control[0].levels, occ.tier.shape[0] - 1
    cores = occ.tier[last].cores
    same = writer // cores == core // cores
    has_it = of_line.dirty & OWNED and _holds(occ, 0, writer // occ.tier[0].cores, number) < occ.tier[0].levels
    of_line.dirty &= MODIFIED
    if same:
        if has_it:
            served = min(served, levels - 1)
            column[levels + PASSED] += 1.0
        elif served == levels:
            _write_back(occ, core, number, column)
    elif has_it or (served == levels and _holds(occ, last, writer // cores, number) < occ.tier[last].levels):
        _write_back(occ, writer, number, column)
        served = levels + REMOTE
    elif served == levels:
        _write_back(occ, writer, number, column)
    return served


@inner
def _fight(occ, core, number, loads, stores, visits, column):  # type: ignore[no-untyped-def]
    """A line that a running piece of another core uses, too, one of which stores: where the visits of both come in any
    order, those that follow one of the other core find the line gone: a b / (a + b) of a and of b. O(1)."""
    of_line = occ.line[number]
    other, writer = np.int64(of_line.user), np.int64(of_line.writer)
    others = np.float64(of_line.visits) - 1.0
    if not stores or of_line.used != occ.running[other]:
        other = writer
        others = np.float64(of_line.writer_visits) - 1.0
        if writer < 0 or writer == core or of_line.written != occ.running[writer]:
            return
    if others <= 0.0:
        return
    times = others * (visits - 1.0) / (others + visits - 1.0)
    levels = occ.control[0].levels
    is_far = occ.socket[other] != occ.socket[core]
    if loads:
        column[levels + (CROSSED if is_far else FOUGHT)] += times
    else:
        column[levels + (TAKEN_FAR if is_far else TAKEN)] += times
        return
    occ.owed[other, FAR_OWED if is_far else NEAR_OWED] += times
    occ.control[0].owes = 1


@inner
def use_line(occ, core, number, loads, stores, visits, sequence, column):  # type: ignore[no-untyped-def]
    """A core uses a line, ``loads`` it first or not: the level that served it, the number of levels for main memory,
    one more for another socket's caches. ``column`` float64[]: see ``use_piece``. O(levels)."""
    of_line = occ.line[number]
    num_tiers = occ.tier.shape[0]
    levels = occ.control[0].levels
    private = occ.tier[0].levels
    served = np.int64(levels)
    writer = np.int64(of_line.writer)
    for t in range(num_tiers):
        tier = occ.tier[t]
        instance = core // tier.cores
        entry = occ.entry[tier.first_entry + instance * tier.slots + (number & (tier.slots - 1))]
        epoch = np.int64(0)
        if entry.line == number + 1 and (entry.sequence >= of_line.written or writer // tier.cores == instance):
            epoch = np.int64(entry.epoch)
        place = _stack_of(occ, t, instance, number)
        found = _move_up(occ, t, place, epoch)
        stack = occ.stack[tier.first_stack + place]
        entry.line = number + 1
        moved = stack.now if stack.filled > 0 else stack.now - 1
        if t == num_tiers - 1 and of_line.dirty & MODIFIED:
            if epoch >= _deepest(occ, tier, place):
                occ.modified[place * tier.ring + (epoch & (tier.ring - 1))] -= 1
                occ.modified[place * tier.ring + (moved & (tier.ring - 1))] += 1
            elif writer // tier.cores == instance:
                of_line.dirty = 0  # written back when it had to give way
        entry.epoch = moved
        entry.sequence = sequence
        if found < tier.levels:
            served = tier.first_level + found
            break
    if served >= private and num_tiers > 1 and of_line.dirty & MODIFIED and writer >= 0 and writer != core:
        served = _from_writer(occ, core, number, writer, served, column)
    elif served == levels and of_line.dirty & MODIFIED:  # written back on its way to memory
        _write_back(occ, core, number, column)
    user = np.int64(of_line.user)
    if user != core and user >= 0:
        if num_tiers > 1 and visits > 1.0:
            _fight(occ, core, number, loads, stores, visits, column)
        of_line.shared = 1
    mine = np.uint8(1 << min(occ.socket[core], 7))
    if stores:
        if (served < private or loads) and num_tiers > 1:  # it has the line, which others may have
            if of_line.sockets & ~mine:
                column[levels + TAKEN_FAR] += 1.0
            elif of_line.shared:
                column[levels + TAKEN] += 1.0
        if served >= private or of_line.shared:
            column[levels + DOWN] += 1.0
        of_line.writer = core
        of_line.written = sequence
        of_line.shared = 0
        of_line.dirty |= OWNED
        of_line.writer_visits = np.int32(visits)
        of_line.sockets = 0
    of_line.sockets |= mine
    of_line.user = core
    of_line.visits = np.uint8(visits)
    of_line.used = sequence
    return served


@inner_inlined
def _is_far(occ, core, number):  # type: ignore[no-untyped-def]
    """Whether a line lies in another socket's memory; the first socket that asks for its page becomes its home."""
    control = occ.control[0]
    if control.home_shift < 0:
        return False
    place = (occ.line_number[number] >> control.home_shift) & (HOMES - 1)
    if occ.home[place] < 0:
        occ.home[place] = occ.socket[core]
    return occ.home[place] != occ.socket[core]


@inner_inlined
def bank_and_row(line, channels, banks, row_shift):  # type: ignore[no-untyped-def]
    """Of a line of main memory: its bank, of those of all channels, and its row there."""
    row = (line // channels) >> row_shift
    return row % banks + line % channels * banks, row // banks


@inner_inlined
def _opens_row(occ, core, number, is_far):  # type: ignore[no-untyped-def]
    """Whether a line's bank has another row open, if lines come in the order of pieces; it has its row then. O(1)."""
    control = occ.control[0]
    bank, row = bank_and_row(occ.line_number[number], control.channels, control.banks, control.row_shift)
    if control.sockets > 1:
        home = occ.socket[core]
        if is_far:
            home = (home + 1) % control.sockets
        bank += home * control.channels * control.banks
    if occ.row_of[bank] == row:
        return False
    occ.row_of[bank] = row
    return True


@inner
def _prefetch(occ, core, line, level):  # type: ignore[no-untyped-def]
    """A use reaches a prefetcher's level: the level that it waits for. O(streams)."""
    each = occ.prefetcher[0]
    instance = core // each.cores
    mask = occ.ahead.shape[1] - 1
    if occ.ahead[instance, line & mask] == line:
        level = np.int64(each.ways)
    remaining, target, step = follow(occ.stream, each, instance, line)
    while remaining > 0:
        target += step
        occ.ahead[instance, target & mask] = target
        remaining -= 1
    return level


@inner
def use_piece(occ, core, first, end, line, use, visits, reach, served, level_of):  # type: ignore[no-untyped-def]
    """A core begins a piece with rows [first, end) of ``line`` and ``use``: ``served`` float64[levels + COLUMNS], how
    many come from each level, main memory, and what stands in the columns behind. ``level_of`` int8[rows]: of each
    row, or empty. Lines from afar within ``reach`` loaded ones wait together. O(rows x levels)."""
    control = occ.control[0]
    levels = control.levels
    control.sequence += 1
    occ.running[core] = control.sequence
    for column in range(served.shape[0]):
        served[column] = 0.0
    for level in range(levels + 2):
        occ.loaded[level] = 0.0
        occ.stored[level] = 0.0
    place, leader = np.int64(0), -reach
    for row in range(first, end):
        number = np.int64(line[row])
        stores, loads = (use[row] & STORED) != 0, (use[row] & LOADED) != 0
        passed = served[levels + PASSED]
        level = use_line(occ, core, number, loads, stores, np.float64(visits[row]), control.sequence, served)
        served[level] += 1.0
        waits_for = level
        if occ.prefetcher[0].streams and level >= occ.prefetcher[0].ways:
            waits_for = _prefetch(occ, core, occ.line_number[number], level)
            if waits_for < level:
                served[levels + PASSED] = passed
        if row < level_of.shape[0]:
            level_of[row] = min(waits_for, levels)
        if loads:
            occ.loaded[waits_for] += 1.0
            place += 1
        else:
            occ.stored[waits_for] += 1.0
        if waits_for >= levels and loads and place - leader >= reach:
            leader = place
            served[levels + (LED if level == levels else LED_FAR)] += 1.0
        if level == levels:
            is_far = _is_far(occ, core, number)
            if is_far:
                served[levels + FAR] += 1.0
            if _opens_row(occ, core, number, is_far):
                served[levels + ROWS] += 1.0
        if stores and not occ.line[number].dirty & MODIFIED:
            occ.line[number].dirty |= MODIFIED
            _modify(occ, core, number)
    served[levels + WRITTEN] += control.written
    control.written = 0


@allocation_free
def fill(occ, piece, core, first, end, line, use, visits, served, level_of):  # type: ignore[no-untyped-def]
    """Pieces ``piece`` int64[] run on ``core`` int64[], in this order; see ``use_piece``. O(rows x levels)."""
    occ = by_reference(occ)
    for k in range(piece.shape[0]):
        use_piece(occ, core[k], first[piece[k]], end[piece[k]], line, use, visits, np.int64(1), served, level_of)
