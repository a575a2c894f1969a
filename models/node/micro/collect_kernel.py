"""Kernels of collect.py: windows cut out of pieces, branches, and the lines of windows."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.cpu.branch_predictor import mispredicts
from manyscale.models.kernels import allocation_free, by_reference, inner

_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)


@inner
def _back(block_ids, block_accesses, block_instructions, first, at, access, lead):  # type: ignore[no-untyped-def]
    """(execution, access) some ``lead`` instructions before, or at ``first``."""
    before = 0
    while at > first and before < lead:
        at -= 1
        before += block_instructions[block_ids[at]]
        access -= block_accesses[block_ids[at]]
    return at, access


@allocation_free
def cut(  # type: ignore[no-untyped-def]
    block_ids, block_accesses, block_instructions, first, end, first_access, end_access, piece, bounds, lead, found
):
    """Of each window, in ``piece`` of executions [first, end): ``bounds`` float64[windows, 2]: instructions of the
    piece before it, and at its end; ``lead`` instructions before it, of the piece before if it begins one. ``found``
    int64[windows, 10]: columns begin, end, first_access, end_access of both, measured, counted as _Cut. O(executions of
    the pieces)."""
    for w in range(piece.shape[0]):
        k = piece[w]
        seen, access, at = 0, first_access[k], first[k]
        while at < end[k] - 1 and seen + block_instructions[block_ids[at]] <= bounds[w, 0]:
            seen += block_instructions[block_ids[at]]
            access += block_accesses[block_ids[at]]
            at += 1
        since = seen
        begin, begin_access = _back(block_ids, block_accesses, block_instructions, first[k], at, access, lead)
        found[w, 1], found[w, 5], found[w, 8] = begin, begin_access, at
        if at == first[k] and k > 0:
            before, before_access = _back(
                block_ids, block_accesses, block_instructions, first[k - 1], end[k - 1], end_access[k - 1], lead
            )
            found[w, 0], found[w, 2], found[w, 4], found[w, 6] = before, end[k - 1], before_access, end_access[k - 1]
        while at < end[k] and (seen < bounds[w, 1] or at == found[w, 8]):
            seen += block_instructions[block_ids[at]]
            access += block_accesses[block_ids[at]]
            at += 1
        found[w, 3], found[w, 7], found[w, 9] = at, access, seen - since


@inner
def _predict_to(predictor, block_ids, ends_in_branch, at, end, ends_piece, result, place):  # type: ignore[no-untyped-def]
    """Executions [at, end), kept from ``result[place]`` on if that is not negative."""
    while at < end:
        follower = np.int64(block_ids[at + 1]) if at + 1 < block_ids.shape[0] else np.int64(-1)
        if ends_piece and at + 1 == end:
            follower = np.int64(-1)
        block = np.int64(block_ids[at])
        wrong = mispredicts(predictor, 0, block, follower, ends_in_branch[block])
        if place >= 0:
            result[place] = wrong
            place += 1
        at += 1


@allocation_free
def predict(predictor, block_ids, ends_in_branch, order, begin, end, ends_piece, first, before, result):  # type: ignore[no-untyped-def]
    """``result`` bool[executions of windows]: where the predictor is wrong, which has seen ``before`` executions before
    each window. O(executions)."""
    predictor = by_reference(predictor)
    done = 0
    for w in order:
        start = max(begin[w, 1] - before, min(done, begin[w, 1]), 0)
        _predict_to(predictor, block_ids, ends_in_branch, start, begin[w, 1], False, result, -1)
        _predict_to(predictor, block_ids, ends_in_branch, begin[w, 0], end[w, 0], True, result, first[w])
        own = first[w] + end[w, 0] - begin[w, 0]
        _predict_to(predictor, block_ids, ends_in_branch, begin[w, 1], end[w, 1], ends_piece[w], result, own)
        done = end[w, 1]


class Used(NamedTuple):
    """Lines of windows: ``first`` int64[windows + 1], ``line`` int64[], ``is_stored`` bool[]; ``history`` int64[] from
    ``first_history`` int64[windows + 1] on: lines used before, in their order."""

    first: np.ndarray
    line: np.ndarray
    is_stored: np.ndarray
    first_history: np.ndarray
    history: np.ndarray


@inner
def _add(used, scratch, window, line, is_store, count):  # type: ignore[no-untyped-def]
    """The window uses a line: how many lines there are now. ``scratch`` int64[2, slots]: keys and rows."""
    mask = scratch.shape[1] - 1
    mixed = np.uint64(line) * _FACTOR
    place = np.int64((mixed >> np.uint64(40)) & np.uint64(mask))
    while scratch[0, place] != line and scratch[0, place] >= 0:
        place = (place + 1) & mask
    if scratch[0, place] < 0:
        scratch[0, place], scratch[1, place] = line, count
        used.line[count], used.is_stored[count] = line, False
        count += 1
    if is_store:
        used.is_stored[scratch[1, place]] = True
    return count


@allocation_free
def lines_of_windows(  # type: ignore[no-untyped-def]
    block_ids, addresses, shift, first_site, site_bytes, is_store, begin, end, first_access, since_piece, since, piece,
    access_at, piece_access, piece_end, scratch, used,
):  # fmt: skip
    """The lines of each window, and of accesses from ``since`` of ``since_piece`` on before it begins, at
    ``access_at`` of ``piece``, in the order of first uses. O(accesses in windows and before)."""
    used = by_reference(used)
    count = before = np.int64(0)
    mask = scratch.shape[1] - 1
    for w in range(begin.shape[0]):
        used.first[w], used.first_history[w] = count, before
        latest = np.int64(-1)
        for k in range(since_piece[w], piece[w] + 1):
            low = since[w] if k == since_piece[w] else piece_access[k]
            high = access_at[w] if k == piece[w] else piece_end[k]
            for access in range(low, high):
                line = np.int64(addresses[access] >> np.uint64(shift))
                if line != latest:
                    latest = line
                    used.history[before] = line
                    before += 1
                    count = _add(used, scratch, w, line, False, count)
        for side in range(2):
            access = first_access[w, side]
            for at in range(begin[w, side], end[w, side]):
                block = block_ids[at]
                for site in range(first_site[block], first_site[block + 1]):
                    line = np.int64(addresses[access] >> np.uint64(shift))
                    last = np.int64((addresses[access] + np.uint64(max(site_bytes[site], 1) - 1)) >> np.uint64(shift))
                    access += 1
                    while line <= last:
                        count = _add(used, scratch, w, line, is_store[site], count)
                        line += 1
        for row in range(used.first[w], count):  # the table is empty again
            mixed = np.uint64(used.line[row]) * _FACTOR
            place = np.int64((mixed >> np.uint64(40)) & np.uint64(mask))
            while scratch[0, place] >= 0:
                scratch[0, place] = -1
                place = (place + 1) & mask
    used.first[begin.shape[0]], used.first_history[begin.shape[0]] = count, before
