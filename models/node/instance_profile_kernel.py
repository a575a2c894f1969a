"""Kernels of instance_profile.py: one pass over the accesses for line numbers, one by instance, and one over the lines
of the instances in the order of the stream. Each stops where a column is full, and goes on once its caller has made
room."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import allocation_free, by_reference, inlined, inner, inner_inlined, separate

BINS_PER_OCTAVE: Final = 4
NUM_BINS: Final = 4 * 44
FAR: Final = 1 << 62  # instead of a distance: no use before
_PAGE_BITS: Final = 6  # lines that are given their numbers together: 2^6


@inlined
def bin_of(distance):  # type: ignore[no-untyped-def]
    """Four bins to each power of two; distances below 8 have their own. O(log distance)."""
    if distance < 4:
        return distance
    shift = 0
    while distance >> shift >= 8:
        shift += 1
    return 4 * shift + (distance >> shift)


# ---- numbers of lines ----

_NUMBERED: Final = np.dtype([("accesses", "i8"), ("pages", "i8"), ("lines", "i8")])  # how many there are so far


class LineNumbers(NamedTuple):
    """``page_keys`` int64[slots] (open addressing, -1 free) with ``page_lines`` int32[slots, lines of a page] (-1: not
    met yet); ``line_number`` int64[]: what each number stands for; ``line_ids`` int32[accesses]: of each its number."""

    done: np.ndarray
    page_keys: np.ndarray
    page_lines: np.ndarray
    line_number: np.ndarray
    line_ids: np.ndarray


def no_line_numbers(num_accesses: int) -> LineNumbers:
    slots = 1 << 12
    return LineNumbers(
        np.zeros(1, _NUMBERED), np.full(slots, -1, np.int64), np.full((slots, 1 << _PAGE_BITS), -1, np.int32),
        np.empty(1 << 14, np.int64), np.empty(num_accesses, np.int32),
    )  # fmt: skip


@inner_inlined
def _page_place(page_keys, page):  # type: ignore[no-untyped-def]
    """Slot of a page, or the free one where it belongs."""
    mask = page_keys.shape[0] - 1
    mixed = np.uint64(page) * np.uint64(0x9E3779B97F4A7C15)
    place = np.int64((mixed ^ (mixed >> np.uint64(32))) & np.uint64(mask))
    while page_keys[place] != page and page_keys[place] >= 0:
        place = (place + 1) & mask
    return place


@allocation_free
def number_lines(numbers, addresses, line_shift):  # type: ignore[no-untyped-def]
    """Numbers lines in the order of their first use, until a table is full. Expected O(accesses)."""
    numbers = by_reference(numbers)
    done, page_keys, page_lines = numbers.done[0], numbers.page_keys, numbers.page_lines
    last_page, last_place = np.int64(-2), np.int64(0)
    for i in range(done.accesses, addresses.shape[0]):
        line = np.int64(addresses[i] >> np.uint64(line_shift))
        page = line >> _PAGE_BITS
        if page != last_page:
            last_page, last_place = page, _page_place(page_keys, page)
            if page_keys[last_place] < 0:
                if 2 * done.pages >= page_keys.shape[0] - 1:
                    return
                page_keys[last_place] = page
                done.pages += 1
        number = page_lines[last_place, line & ((1 << _PAGE_BITS) - 1)]
        if number < 0:
            if done.lines == numbers.line_number.shape[0]:
                return
            number = np.int32(done.lines)
            page_lines[last_place, line & ((1 << _PAGE_BITS) - 1)] = number
            numbers.line_number[number] = line
            done.lines += 1
        numbers.line_ids[i] = number
        done.accesses = i + 1


@allocation_free
def move_pages(old_keys, old_lines, page_keys, page_lines):  # type: ignore[no-untyped-def]
    """The pages of ``number_lines`` into larger tables. O(pages)."""
    for k in range(old_keys.shape[0]):
        if old_keys[k] >= 0:
            place = _page_place(page_keys, old_keys[k])
            page_keys[place] = old_keys[k]
            for line in range(old_lines.shape[1]):
                page_lines[place, line] = old_lines[k, line]


# ---- each instance by itself ----

PIECE: Final = np.dtype([("first_execution", "i8"), ("end_execution", "i8"), ("first_access", "i8")])
BLOCK: Final = np.dtype([("first_site", "i8"), ("instructions", "i8")])
SITE: Final = np.dtype([("instruction", "i8"), ("is_store", "i8")])
TOTAL: Final = np.dtype([("instructions", "i8"), ("loads", "i8"), ("stores", "i8")])
_LINE: Final = np.dtype([("last", "i8"), ("writer", "i4"), ("listed", "i4")])
# Of an instance, where its rows begin in columns by block, by bin and by line
FIRST: Final = np.dtype([("vector", "i8"), ("reuse", "i8"), ("line", "i8")])
# ``instance``: the first that is not done; ``num_blocks`` and ``num_lines`` that it has used, if it ``is_read``;
# ``now``: accesses so far; ``begin``: before it
_CONTROL: Final = np.dtype(
    [("instance", "i8"), ("is_read", "i8"), ("num_blocks", "i8"), ("num_lines", "i8"), ("now", "i8"), ("begin", "i8")]
)


class OwnColumns(NamedTuple):
    """Rows of one instance after another: blocks and instructions in each; bins of reuse distances and accesses in
    each; lines by last use, and whether it wrote them; lines by first use, and at which of its instructions (-1: a
    store) that was. Longer than needed."""

    vector_block: np.ndarray
    vector_instructions: np.ndarray
    reuse_bin: np.ndarray
    reuse_count: np.ndarray
    line: np.ndarray
    line_written: np.ndarray
    first_line: np.ndarray
    first_at: np.ndarray


class OwnProfile(NamedTuple):
    """Pieces of instance i are those from ``first_piece[i]`` on. ``chosen`` int64[blocks, samples + 1, 2]: number of
    executions so far, in [:, 0, 0], and some executions with the ends of their pieces."""

    block_ids: np.ndarray
    line_ids: np.ndarray
    piece: np.ndarray
    first_piece: np.ndarray
    block: np.ndarray
    site: np.ndarray
    total: np.ndarray
    chosen: np.ndarray
    first: np.ndarray
    columns: OwnColumns
    control: np.ndarray
    of_line: np.ndarray  # see _LINE
    in_block: np.ndarray
    in_bin: np.ndarray
    end_access: np.ndarray
    met_block: np.ndarray  # blocks of the instance that is read; lines by first use
    met_line: np.ndarray
    met_at: np.ndarray


def new_own_profile(
    block_ids: np.ndarray, line_ids: np.ndarray, num_lines: int, piece: np.ndarray, first_piece: np.ndarray,
    block: np.ndarray, site: np.ndarray, num_samples: int,
) -> OwnProfile:  # fmt: skip
    """Before the first instance. Records ``piece``, ``block`` (one more than there are) and ``site``."""
    count = len(first_piece) - 1
    chosen = np.full((len(block) - 1, num_samples + 1, 2), -1, np.int64)
    chosen[:, 0, 0] = 0
    of_line = np.zeros(num_lines, _LINE)
    of_line["last"] = of_line["writer"] = of_line["listed"] = -1
    rows = 1 << 12
    columns = OwnColumns(
        np.empty(rows, np.int32), np.empty(rows, np.int64), np.empty(rows, np.uint8), np.empty(rows, np.int64),
        np.empty(rows, np.int32), np.empty(rows, np.bool_), np.empty(rows, np.int32), np.empty(rows, np.int64),
    )  # fmt: skip
    return OwnProfile(
        block_ids, line_ids, piece, first_piece, block, site, np.zeros(count, TOTAL), chosen,
        np.zeros(count + 1, FIRST), columns, np.zeros(1, _CONTROL), of_line, np.zeros(len(block), np.int64),
        np.zeros(NUM_BINS, np.int64), np.zeros(len(piece), np.int64), np.empty(len(block), np.int32),
        np.empty(num_lines, np.int32), np.empty(num_lines, np.int64),
    )  # fmt: skip


@allocation_free
def profile_by_instance(own):  # type: ignore[no-untyped-def]
    """All that each instance shows by itself, its pieces one after the other: whether all are done; else columns have
    no room for the next one. O(executions + accesses + instances x bins)."""
    own = by_reference(own)
    control, columns = own.control[0], own.columns
    while control.instance < own.first_piece.shape[0] - 1:
        if not control.is_read:
            _read_instance(own, control.instance)
        first = own.first[control.instance]
        if (
            first.vector + control.num_blocks > columns.vector_block.shape[0]
            or first.reuse + NUM_BINS > columns.reuse_bin.shape[0]
            or first.line + control.num_lines > columns.line.shape[0]
        ):
            return False
        _write_instance(own, control.instance)
        control.instance += 1
    return True


@separate
def _read_instance(own, instance):  # type: ignore[no-untyped-def]
    """What it executes and accesses, from the first to the last."""
    control = own.control[0]
    control.is_read = 1
    control.begin = control.now
    control.num_blocks = 0
    control.num_lines = 0
    position = np.int64(0)
    for number in range(own.first_piece[instance], own.first_piece[instance + 1]):
        piece = own.piece[number]
        access = piece.first_access
        for execution in range(piece.first_execution, piece.end_execution):
            block = own.block_ids[execution]
            if own.in_block[block] == 0:
                own.met_block[control.num_blocks] = block
                control.num_blocks += 1
            own.in_block[block] += 1
            for site in range(own.block[block].first_site, own.block[block + 1].first_site):
                _read_access(own, instance, own.line_ids[access], own.site[site], position)
                access += 1
            position += own.block[block].instructions
            _sample(own.chosen, block, execution, piece.end_execution)
        own.end_access[number] = access
    own.total[instance].instructions = position


@inner_inlined
def _read_access(own, instance, line, site, position):  # type: ignore[no-untyped-def]
    control, total, of_line = own.control[0], own.total[instance], own.of_line[line]
    if of_line.last >= control.begin:
        own.in_bin[bin_of(control.now - of_line.last - 1)] += 1
    else:
        own.met_line[control.num_lines] = line
        own.met_at[control.num_lines] = -1 if site.is_store else position + site.instruction
        control.num_lines += 1
    if site.is_store:
        total.stores += 1
        of_line.writer = instance
    else:
        total.loads += 1
    of_line.last = control.now
    control.now += 1


@inner_inlined
def _sample(chosen, block, execution, end_execution):  # type: ignore[no-untyped-def]
    """Keep executions number 1, 4, 16, ... of each block, and where their pieces end."""
    done = chosen[block, 0, 0] + 1
    chosen[block, 0, 0] = done
    if done & (done - 1) == 0:
        sample = 0
        while (1 << (2 * sample)) < done:
            sample += 1
        if sample + 1 < chosen.shape[1] and (1 << (2 * sample)) == done:
            chosen[block, sample + 1, 0] = execution
            chosen[block, sample + 1, 1] = end_execution


@separate
def _write_instance(own, instance):  # type: ignore[no-untyped-def]
    """What was read of it, as rows."""
    control, columns = own.control[0], own.columns
    control.is_read = 0
    first, end = own.first[instance], own.first[instance + 1]
    end.vector = first.vector + control.num_blocks
    for k in range(control.num_blocks):
        block = own.met_block[k]
        columns.vector_block[first.vector + k] = block
        columns.vector_instructions[first.vector + k] = own.in_block[block] * own.block[block].instructions
        own.in_block[block] = 0
    end.reuse = first.reuse
    if control.now > control.begin:
        end.reuse = _write_bins(own.in_bin, columns.reuse_bin, columns.reuse_count, first.reuse)
    end.line = first.line + control.num_lines
    for k in range(control.num_lines):
        columns.first_line[first.line + k] = own.met_line[k]
        columns.first_at[first.line + k] = own.met_at[k]
    # from the last access back to the first: the latest line is the last row
    row = end.line
    for number in range(own.first_piece[instance + 1] - 1, own.first_piece[instance] - 1, -1):
        for access in range(own.end_access[number] - 1, own.piece[number].first_access - 1, -1):
            line = own.line_ids[access]
            of_line = own.of_line[line]
            if of_line.listed != instance:
                of_line.listed = instance
                row -= 1
                columns.line[row] = line
                columns.line_written[row] = of_line.writer == instance


@inner
def _write_bins(in_bin, bins, counts, row):  # type: ignore[no-untyped-def]
    """Bins that are not empty, as rows from ``row`` on, and all are empty again: the row behind them."""
    for k in range(in_bin.shape[0]):
        if in_bin[k] > 0:
            bins[row] = k
            counts[row] = in_bin[k]
            in_bin[k] = 0
            row += 1
    return row


# ---- earlier uses ----

_EARLIER_CONTROL: Final = np.dtype([("place", "i8"), ("read", "i8"), ("row", "i8")])


class FirstUses(NamedTuple):
    """Instances in ``order``; ``distance`` int64[]: distinct lines between, in that order, -1 where there is no use
    before; ``was_written`` bool[lines]: whether what used each last wrote it, before and after. ``groups``
    int32[instances, bands, sizes]: see EarlierUses. Rows of each instance, ``first`` int64[instances, 2] to end:
    ``bin`` and ``num_lines``; a bin is 2 x the distance's + 1 where the instance that used it last wrote it, and the
    last two are of lines never used before."""

    order: np.ndarray
    own_first: np.ndarray  # records: FIRST
    columns: OwnColumns
    was_written: np.ndarray
    distance: np.ndarray
    bands: np.ndarray
    sizes: np.ndarray
    groups: np.ndarray
    first: np.ndarray
    bin: np.ndarray
    num_lines: np.ndarray
    control: np.ndarray
    in_bin: np.ndarray
    of_line: np.ndarray  # int64[lines]: distance of the instance's first use
    group_end: np.ndarray  # int64[bands, sizes]


def new_first_uses(
    order: np.ndarray, own: OwnProfile, was_written: np.ndarray, distance: np.ndarray, bands: np.ndarray,
    sizes: np.ndarray,
) -> FirstUses:  # fmt: skip
    """Before the first instance."""
    rows = 1 << 12
    return FirstUses(
        order, own.first, own.columns, was_written, distance, bands, sizes,
        np.zeros((len(order), len(bands), len(sizes)), np.int32), np.zeros((len(order), 2), np.int64),
        np.empty(rows, np.uint16), np.empty(rows, np.int64), np.zeros(1, _EARLIER_CONTROL),
        np.zeros(2 * NUM_BINS, np.int64), np.zeros(len(was_written), np.int64),
        np.zeros((len(bands), len(sizes)), np.int64),
    )  # fmt: skip


@allocation_free
def count_first_uses(uses):  # type: ignore[no-untyped-def]
    """Of each instance, how far the earlier use of its lines lies back: whether all are done; else the columns have no
    room for the next one. O(lines x (bands + sizes) + instances x bins)."""
    uses = by_reference(uses)
    control = uses.control[0]
    while control.place < uses.order.shape[0]:
        if control.row + 2 * NUM_BINS > uses.bin.shape[0]:
            return False
        instance = uses.order[control.place]
        first, end = uses.own_first[instance].line, uses.own_first[instance + 1].line
        _count_distances(uses, first, end)
        _count_groups(uses, instance, first, end)
        uses.first[instance, 0] = control.row
        if end > first:
            control.row = _write_bins(uses.in_bin, uses.bin, uses.num_lines, control.row)
        uses.first[instance, 1] = control.row
        control.place += 1
    return True


@inner
def _count_distances(uses, first, end):  # type: ignore[no-untyped-def]
    control, columns = uses.control[0], uses.columns
    for row in range(first, end):
        line = columns.line[row]
        distance = uses.distance[control.read]
        which = NUM_BINS - 1 if distance < 0 else bin_of(distance)
        uses.in_bin[2 * which + (1 if uses.was_written[line] else 0)] += 1
        uses.was_written[line] = columns.line_written[row]
        uses.of_line[line] = FAR if distance < 0 else distance
        control.read += 1


@inner
def _count_groups(uses, instance, first, end):  # type: ignore[no-untyped-def]
    columns, group_end = uses.columns, uses.group_end
    for band in range(group_end.shape[0]):
        for size in range(group_end.shape[1]):
            group_end[band, size] = 0
    for row in range(first, end):
        at = columns.first_at[row]
        distance = uses.of_line[columns.first_line[row]]
        band = 0
        while at >= 0 and band < uses.bands.shape[0] and distance >= uses.bands[band]:
            for size in range(uses.sizes.shape[0]):
                if at >= group_end[band, size]:
                    uses.groups[instance, band, size] += 1
                    group_end[band, size] = at + uses.sizes[size]
            band += 1
