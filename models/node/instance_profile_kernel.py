"""Kernels of instance_profile.py: one pass over the accesses for line numbers, one by instance, and one over the lines
of the instances in the order of the stream."""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.kernels import njit

BINS_PER_OCTAVE: Final = 4
NUM_BINS: Final = 4 * 44
_PAGE_BITS: Final = 6  # lines that are given their numbers together: 2^6


@njit(cache=True, nogil=True)
def bin_of(distance):  # type: ignore[no-untyped-def]
    """Four bins to each power of two; distances below 8 have their own. O(log distance)."""
    if distance < 4:
        return np.int64(distance)
    shift = 0
    while distance >> shift >= 8:
        shift += 1
    return np.int64(4 * shift + (distance >> shift))


@njit(cache=True, nogil=True)
def number_lines(addresses, line_shift, first, page_keys, page_lines, num_pages, num_lines, result, line_number):  # type: ignore[no-untyped-def]
    """Numbers lines in the order of their first use, from access ``first`` on, until a table is full.

    ``page_keys`` int64[slots] (open addressing, -1 free) with ``page_lines`` int32[slots, lines of a page] (-1: not met
    yet); ``line_number`` int64[]: what each number stands for. Returns (accesses done, pages, lines). Expected
    O(accesses).
    """
    mask = page_keys.shape[0] - 1
    last_page, last_place = np.int64(-2), np.int64(0)
    for i in range(first, addresses.shape[0]):
        line = np.int64(addresses[i] >> np.uint64(line_shift))
        page = line >> _PAGE_BITS
        if page != last_page:
            mixed = np.uint64(page) * np.uint64(0x9E3779B97F4A7C15)
            place = np.int64((mixed ^ (mixed >> np.uint64(32))) & np.uint64(mask))
            while page_keys[place] != page and page_keys[place] >= 0:
                place = (place + 1) & mask
            if page_keys[place] < 0:
                if 2 * num_pages >= mask:
                    return i, num_pages, num_lines
                page_keys[place] = page
                num_pages += 1
            last_page, last_place = page, place
        number = page_lines[last_place, line & ((1 << _PAGE_BITS) - 1)]
        if number < 0:
            if num_lines == line_number.shape[0]:
                return i, num_pages, num_lines
            number = np.int32(num_lines)
            page_lines[last_place, line & ((1 << _PAGE_BITS) - 1)] = number
            line_number[num_lines] = line
            num_lines += 1
        result[i] = number
    return addresses.shape[0], num_pages, num_lines


@njit(cache=True, nogil=True)
def _longer(array, size):  # type: ignore[no-untyped-def]
    """The array with room for ``size``, amortised O(1) an element."""
    if size <= array.shape[0]:
        return array
    longer = np.empty(max(size, 2 * array.shape[0]), array.dtype)
    longer[: array.shape[0]] = array
    return longer


@njit(cache=True, nogil=True)
def profile_by_instance(  # type: ignore[no-untyped-def]
    block_ids, line_ids, num_lines, pieces, first_piece, blocks, sites, totals, chosen
):
    """All that each instance shows by itself: its pieces one after the other.

    ``pieces`` int64[pieces, 3]: first and end execution, first access, those of instance i from ``first_piece[i]`` on;
    ``blocks`` int64[blocks + 1, 2]: first site, instructions; ``sites`` int64[sites, 2]: instruction in its block, is a
    store. ``totals`` int64[instances, 3]: instructions, loads, stores. ``chosen`` int64[blocks, samples + 1, 2]: number
    of executions so far, in [:, 0, 0], and some executions with the ends of their pieces. Returns CSR columns: (block,
    instructions), (bin, count), (line, is written) by last use, and, for the same rows, (line, at which instruction, -1
    for a store) by first use. O(executions + accesses + instances x bins).
    """
    num_instances = first_piece.shape[0] - 1
    last = np.full(num_lines, -1, np.int64)
    writer = np.full(num_lines, -1, np.int32)
    listed = np.full(num_lines, -1, np.int32)
    in_block = np.zeros(blocks.shape[0], np.int64)
    met = np.empty(blocks.shape[0], np.int32)
    in_bin = np.zeros(NUM_BINS, np.int64)
    end_access = np.zeros(pieces.shape[0], np.int64)
    firsts = np.zeros((num_instances + 1, 3), np.int64)
    vector_block, vector_count = np.empty(1024, np.int32), np.empty(1024, np.int64)
    bins, bin_count = np.empty(1024, np.uint8), np.empty(1024, np.int64)
    lines, written = np.empty(1024, np.int32), np.empty(1024, np.bool_)
    first_lines, first_at = np.empty(1024, np.int32), np.empty(1024, np.int64)
    num_first = 0
    now = np.int64(0)
    num_vector = num_bins = num_listed = 0
    for instance in range(num_instances):
        begin = now
        position = np.int64(0)
        num_met = 0
        for piece in range(first_piece[instance], first_piece[instance + 1]):
            access = pieces[piece, 2]
            for execution in range(pieces[piece, 0], pieces[piece, 1]):
                block = block_ids[execution]
                if in_block[block] == 0:
                    met[num_met] = block
                    num_met += 1
                in_block[block] += 1
                for site in range(blocks[block, 0], blocks[block + 1, 0]):
                    line = line_ids[access]
                    previous = last[line]
                    if previous >= begin:
                        in_bin[bin_of(now - previous - 1)] += 1
                    else:
                        if num_first == first_lines.shape[0]:
                            first_lines = _longer(first_lines, num_first + 1)
                            first_at = _longer(first_at, num_first + 1)
                        first_lines[num_first] = line
                        first_at[num_first] = position + sites[site, 0] if sites[site, 1] == 0 else -1
                        num_first += 1
                    if sites[site, 1] == 0:
                        totals[instance, 1] += 1
                    else:
                        totals[instance, 2] += 1
                        writer[line] = instance
                    last[line] = now
                    now += 1
                    access += 1
                position += blocks[block, 1]
                # executions number 1, 4, 16, ... of each block
                done = chosen[block, 0, 0] + 1
                chosen[block, 0, 0] = done
                if done & (done - 1) == 0:
                    sample = 0
                    while (1 << (2 * sample)) < done:
                        sample += 1
                    if sample + 1 < chosen.shape[1] and (1 << (2 * sample)) == done:
                        chosen[block, sample + 1, 0] = execution
                        chosen[block, sample + 1, 1] = pieces[piece, 1]
            end_access[piece] = access
        totals[instance, 0] = position
        vector_block = _longer(vector_block, num_vector + num_met)
        vector_count = _longer(vector_count, num_vector + num_met)
        for k in range(num_met):
            vector_block[num_vector + k] = met[k]
            vector_count[num_vector + k] = in_block[met[k]] * blocks[met[k], 1]
            in_block[met[k]] = 0
        num_vector += num_met
        bins, bin_count = _longer(bins, num_bins + NUM_BINS), _longer(bin_count, num_bins + NUM_BINS)
        if now > begin:
            for k in range(NUM_BINS):
                if in_bin[k] > 0:
                    bins[num_bins] = k
                    bin_count[num_bins] = in_bin[k]
                    num_bins += 1
                    in_bin[k] = 0
        # from the last access back to the first: lines in the order of their last use, the latest first
        first_listed = num_listed
        for piece in range(first_piece[instance + 1] - 1, first_piece[instance] - 1, -1):
            for access in range(end_access[piece] - 1, pieces[piece, 2] - 1, -1):
                line = line_ids[access]
                if listed[line] != instance:
                    listed[line] = instance
                    if num_listed == lines.shape[0]:
                        lines, written = _longer(lines, num_listed + 1), _longer(written, num_listed + 1)
                    lines[num_listed] = line
                    written[num_listed] = writer[line] == instance
                    num_listed += 1
        lines[first_listed:num_listed] = lines[first_listed:num_listed][::-1].copy()
        written[first_listed:num_listed] = written[first_listed:num_listed][::-1].copy()
        firsts[instance + 1, 0] = num_vector
        firsts[instance + 1, 1] = num_bins
        firsts[instance + 1, 2] = num_listed
    return (
        firsts, (vector_block[:num_vector].copy(), vector_count[:num_vector].copy()),
        (bins[:num_bins].copy(), bin_count[:num_bins].copy()), (lines[:num_listed].copy(), written[:num_listed].copy()),
        (first_lines[:num_first].copy(), first_at[:num_first].copy()),
    )  # fmt: skip


@njit(cache=True, nogil=True)
def count_first_uses(  # type: ignore[no-untyped-def]
    order, line_first, lines, written, first_lines, first_at, was_written, distance, bands, sizes, groups
):
    """Of each instance, how far the earlier use of its lines lies back.

    Instances in ``order``; ``distance`` int64[]: distinct lines between, in that order, -1 where there is no use
    before; ``was_written`` bool[lines]: whether what used each last wrote it, before and after. Returns CSR columns
    (firsts by instance, bin and count); a bin is 2 x the distance's + 1 where the instance that used it last wrote it,
    and the last two are of lines never used before. ``groups`` int32[instances, bands, sizes]: see EarlierUses.
    O(lines x (bands + sizes) + instances x bins).
    """
    far = np.int64(1) << 62
    of_line = np.zeros(was_written.shape[0], np.int64)
    group_end = np.zeros((bands.shape[0], sizes.shape[0]), np.int64)
    num_instances = line_first.shape[0] - 1
    in_bin = np.zeros(2 * NUM_BINS, np.int64)
    firsts = np.zeros((num_instances, 2), np.int64)
    bins, count = np.empty(1024, np.uint16), np.empty(1024, np.int64)
    num_bins = 0
    read = 0
    for instance in order:
        for k in range(line_first[instance], line_first[instance + 1]):
            line = lines[k]
            which = NUM_BINS - 1 if distance[read] < 0 else bin_of(distance[read])
            in_bin[2 * which + (1 if was_written[line] else 0)] += 1
            was_written[line] = written[k]
            of_line[line] = far if distance[read] < 0 else distance[read]
            read += 1
        group_end[:] = 0
        for k in range(line_first[instance], line_first[instance + 1]):
            at = first_at[k]
            band = 0
            while at >= 0 and band < bands.shape[0] and of_line[first_lines[k]] >= bands[band]:
                for size in range(sizes.shape[0]):
                    if at >= group_end[band, size]:
                        groups[instance, band, size] += 1
                        group_end[band, size] = at + sizes[size]
                band += 1
        bins, count = _longer(bins, num_bins + 2 * NUM_BINS), _longer(count, num_bins + 2 * NUM_BINS)
        firsts[instance, 0] = num_bins
        if line_first[instance + 1] > line_first[instance]:
            for k in range(2 * NUM_BINS):
                if in_bin[k] > 0:
                    bins[num_bins] = k
                    count[num_bins] = in_bin[k]
                    num_bins += 1
                    in_bin[k] = 0
        firsts[instance, 1] = num_bins
    return firsts, bins[:num_bins].copy(), count[:num_bins].copy()


@njit(cache=True, nogil=True)
def move_pages(old_keys, old_lines, page_keys, page_lines):  # type: ignore[no-untyped-def]
    """The pages of ``number_lines`` into larger tables. O(pages)."""
    mask = page_keys.shape[0] - 1
    for k in range(old_keys.shape[0]):
        if old_keys[k] >= 0:
            mixed = np.uint64(old_keys[k]) * np.uint64(0x9E3779B97F4A7C15)
            place = np.int64((mixed ^ (mixed >> np.uint64(32))) & np.uint64(mask))
            while page_keys[place] >= 0:
                place = (place + 1) & mask
            page_keys[place] = old_keys[k]
            page_lines[place] = old_lines[k]
