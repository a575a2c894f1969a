"""Kernels: the lines of an Accel-Sim trace's body that are no instructions."""

from __future__ import annotations

import numpy as np

from manyscale.models.kernels import inner, merged
from manyscale.runner.readers.accelsim import codes


@inner
def skip_blanks(text, place):  # type: ignore[no-untyped-def]
    """Where the next byte stands that is no blank, or a newline."""
    while text[place] == 32 or text[place] == 9 or text[place] == 13:
        place += 1
    return place


@inner
def decimal(text, place):  # type: ignore[no-untyped-def]
    """(number, where its digits end; -1 where there are none)."""
    begin = place
    value = np.int64(0)
    while 48 <= text[place] <= 57:
        value = value * 10 + (text[place] - 48)
        place += 1
    return value, place if 0 < place - begin <= 18 else -1


@inner
def _begins(text, place, word):  # type: ignore[no-untyped-def]
    same = True
    for k in range(len(word)):
        same = same and text[place + k] == word[k]
    return same


@inner
def _end_warp(state, warps):  # type: ignore[no-untyped-def]
    """Write the warp that ends, if there is one: block, warp, instructions, requests."""
    if state[codes.WARP] < 0:
        return 0
    if state[codes.LINES] != state[codes.EXPECTED]:
        return codes.TOO_FEW
    row = state[codes.NUM_WARPS]
    warps[row, 0] = state[codes.BLOCK]
    warps[row, 1] = state[codes.WARP]
    warps[row, 2] = state[codes.INSTRUCTIONS]
    warps[row, 3] = state[codes.REQUESTS]
    state[codes.NUM_WARPS] = row + 1
    state[codes.WARP] = -1
    return 0


@merged
def _end_block(state, warps):  # type: ignore[no-untyped-def]
    if state[codes.INSIDE] == codes.OUTSIDE:
        return codes.END_OUTSIDE
    problem = _end_warp(state, warps)
    if problem:
        return problem
    if state[codes.INSIDE] != codes.NAMED or state[codes.BLOCK_WARPS] == 0:
        return codes.EMPTY_BLOCK
    state[codes.INSIDE] = codes.OUTSIDE
    state[codes.DONE_INSTRUCTIONS] = state[codes.NUM_INSTRUCTIONS]
    state[codes.DONE_REQUESTS] = state[codes.NUM_REQUESTS]
    state[codes.DONE_WARPS] = state[codes.NUM_WARPS]
    return 0


@merged
def _name_block(text, place, form, state):  # type: ignore[no-untyped-def]
    """A line ``thread block = x,y,z``, whose value stands at ``place``."""
    if state[codes.INSIDE] != codes.BEGUN:
        return codes.BAD_BLOCK if state[codes.INSIDE] == codes.NAMED else codes.OUTSIDE_BLOCK
    block = np.int64(0)
    scale = np.int64(1)
    for axis in range(3):
        number, place = decimal(text, skip_blanks(text, place))
        if place < 0:
            return codes.BAD_BLOCK
        place = skip_blanks(text, place)
        if text[place] != (10 if axis == 2 else 44):
            return codes.BAD_BLOCK
        place += 1
        if number >= form[codes.GRID_X + axis]:
            return codes.NOT_IN_GRID
        block += number * scale
        scale *= form[codes.GRID_X + axis]
    state[codes.BLOCK] = block
    state[codes.INSIDE] = codes.NAMED
    return 0


@merged
def _begin_warp(text, place, form, state, warps):  # type: ignore[no-untyped-def]
    if state[codes.INSIDE] != codes.NAMED:
        return codes.BAD_WARP if state[codes.INSIDE] == codes.BEGUN else codes.OUTSIDE_BLOCK
    problem = _end_warp(state, warps)
    if problem:
        return problem
    number, end = decimal(text, place)
    if end < 0 or text[skip_blanks(text, end)] != 10:
        return codes.BAD_WARP
    if number >= form[codes.WARPS]:
        return codes.NOT_IN_BLOCK
    state[codes.WARP] = number
    state[codes.BLOCK_WARPS] += 1
    state[codes.EXPECTED] = -1
    state[codes.LINES] = 0
    state[codes.INSTRUCTIONS] = 0
    state[codes.REQUESTS] = 0
    return 0


@inner
def key_line(text, place, form, state, warps):  # type: ignore[no-untyped-def]
    """Take in a line that is no instruction: 0, or what the call ends with."""
    if text[place] == 35:
        if _begins(text, place, b"#BEGIN_TB"):
            if state[codes.INSIDE] != codes.OUTSIDE:
                return codes.BLOCK_IN_BLOCK
            state[codes.INSIDE] = codes.BEGUN
            state[codes.WARP] = -1
            state[codes.BLOCK_WARPS] = 0
            return 0
        return _end_block(state, warps) if _begins(text, place, b"#END_TB") else 0
    value = place
    while text[value] != 10 and text[value] != 61:
        value += 1
    if text[value] == 10:
        return codes.NOT_A_LINE
    value = skip_blanks(text, value + 1)
    if _begins(text, place, b"thread block"):
        return _name_block(text, value, form, state)
    if _begins(text, place, b"warp ") or _begins(text, place, b"warp="):
        return _begin_warp(text, value, form, state, warps)
    if not _begins(text, place, b"insts"):
        return codes.OTHER_LINE
    if state[codes.WARP] < 0:
        return codes.OUTSIDE_WARP
    number, end = decimal(text, value)
    if end < 0 or state[codes.EXPECTED] >= 0 or text[skip_blanks(text, end)] != 10:
        return codes.BAD_COUNT
    state[codes.EXPECTED] = number
    return 0


@inner
def owner(text, place, form):  # type: ignore[no-untyped-def]
    """(warp of the launch, where the four fields of a raw line end; -1 where they are none, -2 outside the grid)."""
    warp = np.int64(0)
    scale = np.int64(1)
    for k in range(4):
        number, end = decimal(text, place)
        if end < 0 or text[end] != 32:
            return warp, -1
        if number >= form[codes.GRID_X + k]:  # the warps of a block stand behind the grid
            return warp, -2
        warp = warp * form[codes.WARPS] + number if k == 3 else warp + number * scale
        scale *= form[codes.GRID_X + k]
        place = skip_blanks(text, end)
    return warp, place
