"""Kernels: the lines of an Accel-Sim trace's body that are no instructions."""

from __future__ import annotations

import numpy as np

from manyscale.models.kernels import apart, inner, merged, separate
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


@merged
def _size(form, axis):  # type: ignore[no-untyped-def]
    """Of the grid, or behind its axes of a block in warps."""
    if axis == 0:
        return form.grid_x
    if axis == 1:
        return form.grid_y
    return form.grid_z if axis == 2 else form.warps


@inner
def _end_warp(arrays):  # type: ignore[no-untyped-def]
    """Write the warp that ends, if there is one: block, warp, instructions, requests."""
    state = arrays.state[0]
    warps = arrays.warps
    if state.warp < 0:
        return 0
    if state.lines != state.expected:
        return codes.TOO_FEW
    row = state.num_warps
    warps[row, 0] = state.block
    warps[row, 1] = state.warp
    warps[row, 2] = state.instructions
    warps[row, 3] = state.requests
    state.num_warps = row + 1
    state.warp = -1
    return 0


@merged
def _end_block(arrays, state):  # type: ignore[no-untyped-def]
    if state.inside == codes.OUTSIDE:
        return codes.END_OUTSIDE
    problem = _end_warp(arrays)
    if problem:
        return problem
    if state.inside != codes.NAMED or state.block_warps == 0:
        return codes.EMPTY_BLOCK
    state.inside = codes.OUTSIDE
    state.done_instructions = state.num_instructions
    state.done_requests = state.num_requests
    state.done_warps = state.num_warps
    return 0


@merged
def _name_block(text, place, form, state):  # type: ignore[no-untyped-def]
    """A line ``thread block = x,y,z``, whose value stands at ``place``."""
    if state.inside != codes.BEGUN:
        return codes.BAD_BLOCK if state.inside == codes.NAMED else codes.OUTSIDE_BLOCK
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
        size = _size(form, axis)
        if number >= size:
            return codes.NOT_IN_GRID
        block += number * scale
        scale *= size
    state.block = block
    state.inside = codes.NAMED
    return 0


@merged
def _begin_warp(arrays, text, place, form, state):  # type: ignore[no-untyped-def]
    if state.inside != codes.NAMED:
        return codes.BAD_WARP if state.inside == codes.BEGUN else codes.OUTSIDE_BLOCK
    problem = _end_warp(arrays)
    if problem:
        return problem
    number, end = decimal(text, place)
    if end < 0 or text[skip_blanks(text, end)] != 10:
        return codes.BAD_WARP
    if number >= form.warps:
        return codes.NOT_IN_BLOCK
    state.warp = number
    state.block_warps += 1
    state.expected = -1
    state.lines = 0
    state.instructions = 0
    state.requests = 0
    return 0


@separate
def key_line(arrays, place):  # type: ignore[no-untyped-def]
    """Take in a line that is no instruction: 0, or what the call ends with."""
    apart()
    text = arrays.text
    form = arrays.form[0]
    state = arrays.state[0]
    if text[place] == 35:
        if _begins(text, place, b"#BEGIN_TB"):
            if state.inside != codes.OUTSIDE:
                return codes.BLOCK_IN_BLOCK
            state.inside = codes.BEGUN
            state.warp = -1
            state.block_warps = 0
            return 0
        return _end_block(arrays, state) if _begins(text, place, b"#END_TB") else 0
    value = place
    while text[value] != 10 and text[value] != 61:
        value += 1
    if text[value] == 10:
        return codes.NOT_A_LINE
    value = skip_blanks(text, value + 1)
    if _begins(text, place, b"thread block"):
        return _name_block(text, value, form, state)
    if _begins(text, place, b"warp ") or _begins(text, place, b"warp="):
        return _begin_warp(arrays, text, value, form, state)
    if not _begins(text, place, b"insts"):
        return codes.OTHER_LINE
    if state.warp < 0:
        return codes.OUTSIDE_WARP
    number, end = decimal(text, value)
    if end < 0 or state.expected >= 0 or text[skip_blanks(text, end)] != 10:
        return codes.BAD_COUNT
    state.expected = number
    return 0


@separate
def owner(arrays, place):  # type: ignore[no-untyped-def]
    """(warp of the launch, where the four fields of a raw line end; -1 where they are none, -2 outside the grid)."""
    apart()
    text = arrays.text
    form = arrays.form[0]
    warp = np.int64(0)
    scale = np.int64(1)
    for k in range(4):
        number, end = decimal(text, place)
        if end < 0 or text[end] != 32:
            return warp, -1
        size = _size(form, k)
        if number >= size:
            return warp, -2
        warp = warp * size + number if k == 3 else warp + number * scale
        scale *= size
        place = skip_blanks(text, end)
    return warp, place
