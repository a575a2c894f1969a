"""Kernels of occupancy.py."""

from __future__ import annotations

import numpy as np

from manyscale.models.kernels import allocation_free, by_reference, inner, inner_inlined
from manyscale.models.node.shared.occupancy import CLASSES, DOWN, FAR, FOUGHT, HOMES, PASSED, REMOTE, ROWS, WRITTEN
from manyscale.models.node.shared.piece_lines_kernel import STORED


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
def use_line(occ, core, number, stores, visits, sequence, column):  # type: ignore[no-untyped-def]
    """A core uses a line: the level that served it, the number of levels for main memory, one more for another
    socket's caches. ``column`` float64[]: see ``use_piece``. O(levels)."""
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
        if t == num_tiers - 1 and of_line.dirty:
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
    if served >= private and num_tiers > 1 and of_line.dirty and writer >= 0 and writer != core:
        last = num_tiers - 1
        cores = occ.tier[last].cores
        same = writer // cores == core // cores
        own = _holds(occ, 0, writer // occ.tier[0].cores, number)
        if own < private:
            if same:
                served = min(served, levels - 1)
                column[levels + PASSED] += 1.0
            else:
                served = levels + REMOTE
        elif not same and served == levels and _holds(occ, last, writer // cores, number) < occ.tier[last].levels:
            served = levels + REMOTE
    if served == levels and of_line.dirty:  # written back on its way to memory
        of_line.dirty = 0
        column[levels + WRITTEN] += 1.0
        tier = occ.tier[num_tiers - 1]
        instance = core // tier.cores
        entry = occ.entry[tier.first_entry + instance * tier.slots + (number & (tier.slots - 1))]
        place = _stack_of(occ, num_tiers - 1, instance, number) * tier.ring + (entry.epoch & (tier.ring - 1))
        occ.modified[place] = max(occ.modified[place] - 1, 0)
    user = np.int64(of_line.user)
    if user != core and user >= 0 and num_tiers > 1:
        is_fought = stores and of_line.used == occ.running[user]
        if not is_fought and writer >= 0 and writer != core:
            is_fought = of_line.written == occ.running[writer]
        if is_fought:  # who came first has paid for nothing of it: twice
            column[levels + FOUGHT] += 2.0 * (visits - 1)
    if user != core and user >= 0:
        of_line.shared = 1
    if stores:
        if served < private and num_tiers > 1 and of_line.shared:
            served = private  # others may hold it: they have to give it up
        if served >= private:
            column[levels + DOWN] += 1.0
        of_line.writer = core
        of_line.written = sequence
        of_line.shared = 0
    of_line.user = core
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
def _opens_row(occ, core, number, is_far):  # type: ignore[no-untyped-def]
    """Whether a line's bank has another row open, if lines come in the order of pieces; it has its row then. O(1)."""
    control = occ.control[0]
    line = occ.line_number[number]
    rest, channel = line // control.channels, line % control.channels
    row = rest >> control.row_shift
    bank = row % control.banks + channel * control.banks
    if control.sockets > 1:
        home = occ.socket[core]
        if is_far:
            home = (home + 1) % control.sockets
        bank += home * control.channels * control.banks
    row //= control.banks
    if occ.row_of[bank] == row:
        return False
    occ.row_of[bank] = row
    return True


@inner
def use_piece(occ, core, first, end, line, use, visits, served, level_of):  # type: ignore[no-untyped-def]
    """A core begins a piece with rows [first, end) of ``line`` and ``use``: ``served`` float64[levels + COLUMNS], how
    many come from each level, main memory, and what stands in the columns behind. ``level_of`` int8[rows]: of each
    row, or empty. O(rows x levels)."""
    control = occ.control[0]
    levels = control.levels
    control.sequence += 1
    occ.running[core] = control.sequence
    for column in range(served.shape[0]):
        served[column] = 0.0
    for row in range(first, end):
        number = np.int64(line[row])
        stores = (use[row] & STORED) != 0
        level = use_line(occ, core, number, stores, np.float64(visits[row]), control.sequence, served)
        served[level] += 1.0
        if row < level_of.shape[0]:
            level_of[row] = min(level, levels)
        if level == levels:
            is_far = _is_far(occ, core, number)
            if is_far:
                served[levels + FAR] += 1.0
            if _opens_row(occ, core, number, is_far):
                served[levels + ROWS] += 1.0
        if stores and not occ.line[number].dirty:
            occ.line[number].dirty = 1
            _modify(occ, core, number)
    served[levels + WRITTEN] += control.written
    control.written = 0


@allocation_free
def fill(occ, piece, core, first, end, line, use, visits, served, level_of):  # type: ignore[no-untyped-def]
    """Pieces ``piece`` int64[] run on ``core`` int64[], in this order; see ``use_piece``. O(rows x levels)."""
    occ = by_reference(occ)
    for k in range(piece.shape[0]):
        use_piece(occ, core[k], first[piece[k]], end[piece[k]], line, use, visits, served, level_of)
