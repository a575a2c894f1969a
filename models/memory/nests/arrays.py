"""Which references of a loop nest access one array, and where arrays lie at an input that never ran.

A *reference* is an access at one place of a nest. References whose ranges touch or overlap in every trace are one
array; within an array, all is relative to the reference that begins lowest.

Assumptions: where an array lies at another input cannot be known. One whose place and extent are the same in all traces
(stack, static data) stays there. The others are laid out anew, in the order traced, each beginning as far into a page
as traced, with a page between neighbours, as an allocator lays out large blocks. Random numbers of pages between them
show how much the placement matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from manyscale.models.memory.caches.page_frames import PAGE_BYTES
from manyscale.models.memory.nests.exact_polynomials import Polynomial, polynomial_through
from manyscale.models.memory.nests.loop_nests import NotAffineError
from manyscale.models.workload.notes import Note, changes, informs

NEIGHBOUR_BYTES: Final = 64  # ranges at most so far apart touch
FIRST_PLACE: Final = 1 << 44  # where arrays are laid out: above programs' own addresses, below 2^47
MOST_RANDOM_PAGES: Final = 512

LAID_OUT_ANEW: Final = informs(
    "arrays-laid-out-anew", "arrays that grow are laid out anew; where they begin in a page is as traced"
)
UNKNOWN_OFFSET: Final = changes(
    "offsets-guessed", "where an array begins in its page follows no rule: taken from the largest input traced"
)
TORN_APART: Final = changes(
    "arrays-torn-apart", "references that touch, at distances that follow no rule, are taken as different arrays"
)


@dataclass(frozen=True)
class Array:
    """References to one array.

    ``references`` int64[n]: their numbers; ``offsets``: the constant part of the address of each, relative to the
    origin (that of the reference whose is lowest); ``page_offset``: the origin's offset in its page; ``address``: the
    origin's address if it and the array's extent are the same at all inputs, else -1.
    """

    references: np.ndarray
    offsets: tuple[Polynomial, ...]
    page_offset: Polynomial
    address: int


def arrays_of(
    inputs: tuple[int, ...], rows: np.ndarray, constant: np.ndarray, low: np.ndarray, end: np.ndarray, is_strict: bool
) -> tuple[list[Array], list[Note]]:
    """The references ``rows`` by array, in the order of their places at the largest input, and what was assumed.

    ``constant``, ``low``, ``end`` int64[references, traces]: the constant part of each reference's address, its lowest
    address, one past its highest. Raises NotAffineError where distances in an array are no polynomials in the input, if
    ``is_strict``; else such an array is torn apart. O(references log references per trace).
    """
    labels = np.array([_touching(low[rows, t], end[rows, t]) for t in range(len(inputs))]).T
    _, label = np.unique(labels, axis=0, return_inverse=True) if len(rows) else (None, np.empty(0, np.int64))
    found: list[Array] = []
    notes: dict[Note, None] = {}
    for k in range(int(label.max(initial=-1)) + 1):
        group = rows[label.ravel() == k]
        while len(group):
            origin = group[np.argmin(constant[group, -1])]
            offsets = [_polynomial(inputs, constant[row] - constant[origin]) for row in group]
            is_known = np.array([offset is not None for offset in offsets])
            if not is_known.all():
                if is_strict:
                    raise NotAffineError(f"distances within an array are no polynomials in the inputs {inputs}")
                notes[TORN_APART] = None
            members, group = group[is_known], group[~is_known]
            page_offset = _page_offset(inputs, constant[origin])
            if page_offset is None:
                notes[UNKNOWN_OFFSET] = None
                page_offset = (Fraction(int(constant[origin, -1]) % PAGE_BYTES),)
            extent = np.stack((low[members].min(axis=0), end[members].max(axis=0), constant[origin]))
            is_fixed = bool((extent == extent[:, :1]).all())
            if not is_fixed:
                notes[LAID_OUT_ANEW] = None
            address = int(constant[origin, 0]) if is_fixed else -1
            found.append(Array(members, tuple(p for p in offsets if p is not None), page_offset, address))
    return sorted(found, key=lambda array: int(low[array.references, -1].min())), list(notes)


def origins(
    arrays: Sequence[Array], page_offsets: Sequence[int], lowest: np.ndarray, end: np.ndarray, seed: int | None
) -> list[int]:
    """Addresses for the arrays' origins. ``lowest``, ``end`` int64[references]: bounds of each reference, relative to
    the origin of its array. ``seed``: of random distances, or None for one page. O(references)."""
    random = None if seed is None else np.random.default_rng(seed)
    result = []
    place = FIRST_PLACE
    for array, page_offset in zip(arrays, page_offsets, strict=True):
        origin = array.address
        if origin < 0:
            pages = 1 if random is None else 1 + int(random.integers(MOST_RANDOM_PAGES))
            origin = (-(-place // PAGE_BYTES) + pages) * PAGE_BYTES - int(lowest[array.references].min())
            origin += (page_offset - origin) % PAGE_BYTES
            place = origin + int(end[array.references].max())
        result.append(origin)
    return result


def _polynomial(inputs: tuple[int, ...], values: np.ndarray) -> Polynomial | None:
    return polynomial_through(tuple(zip(inputs, values.tolist(), strict=True)))


def _touching(low: np.ndarray, end: np.ndarray) -> np.ndarray:
    """int64[ranges]: which ranges hang together."""
    order = np.argsort(low, kind="stable")
    reach = np.maximum.accumulate(end[order])
    is_new = np.append(True, low[order][1:] > reach[:-1] + NEIGHBOUR_BYTES)
    result = np.empty(len(low), np.int64)
    result[order] = np.cumsum(is_new[: len(low)])
    return result


def _page_offset(inputs: tuple[int, ...], addresses: np.ndarray) -> Polynomial | None:
    """The offset in a page as a polynomial that holds modulo a page: one through the offsets, else the flattest line
    that gives them where it wraps around."""
    offsets = addresses % PAGE_BYTES
    found = _polynomial(inputs, offsets)
    if found is not None:
        return found
    steps = np.array(inputs) - inputs[0]
    rises = int(offsets[1] - offsets[0]) + PAGE_BYTES * np.arange(-int(steps[1]), int(steps[1]) + 1)
    slopes = rises[rises % steps[1] == 0] // steps[1]
    for slope in sorted(slopes.tolist(), key=abs):
        if not ((offsets - offsets[0] - slope * steps) % PAGE_BYTES).any():
            return (Fraction(int(offsets[0]) - slope * inputs[0]), Fraction(slope))
    return None
