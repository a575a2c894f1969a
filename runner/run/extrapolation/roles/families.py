"""Families of communicators: those that have the same shape in the box of ranks, and the same purpose.

A communicator spans some dimensions of the layout whole (or their two ends, as Megatron-LM's embedding groups do) and
stands at one place in the others; its family has one for each place. Of several communicators of one shape and name at
one place, the first that is used belongs to the first family, and so on. In the new layout a family spans the same
dimensions; its communicators are numbered by their places.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np

from manyscale.models.workload import Workload
from manyscale.runner.errors import UserError
from manyscale.runner.run.extrapolation.roles.layout import Layout, dimensions_meant, group_names, members_of

WORLD: Final = 0


class Span(IntEnum):
    """What of a dimension a communicator has: one place, all, or the first and the last."""

    place = 0
    whole = 1
    ends = 2


@dataclass(frozen=True)
class Family:
    """``spans``: per dimension of the layout; ``name`` for reports, and ``group_name`` as the table of groups has it
    ("" for none). ``first_id``: number of its first communicator in the new workload. Ranks per communicator:
    ``traced_members`` and ``members``."""

    name: str
    group_name: str
    spans: tuple[Span, ...]
    first_id: int
    traced_members: int
    members: int

    @property
    def grows(self) -> bool:
        return self.members != self.traced_members

    def count(self, layout: Layout) -> int:
        """Communicators in a layout."""
        sizes = zip(layout.sizes, self.spans, strict=True)
        return int(np.prod([size for size, span in sizes if span is Span.place], dtype=np.int64))

    def number(self, layout: Layout, coordinates: np.ndarray) -> np.ndarray:
        """int64[n]: which of the family's communicators ranks belong to (whether or not they are members)."""
        number, factor = np.zeros(len(coordinates), np.int64), 1
        for dimension, (size, span) in enumerate(zip(layout.sizes, self.spans, strict=True)):
            if span is Span.place:
                number += factor * coordinates[:, dimension]
                factor *= size
        return number

    def member_table(self, layout: Layout) -> np.ndarray:
        """int32[communicators, members]: ranks in ascending order."""
        free = [(0, size - 1) if span is Span.ends else range(size) if span is Span.whole else (0,)
                for size, span in zip(layout.sizes, self.spans, strict=True)]  # fmt: skip
        places = [range(size) if span is Span.place else (0,)
                  for size, span in zip(layout.sizes, self.spans, strict=True)]  # fmt: skip
        inside, outside = _ranks(layout, free), _ranks(layout, places)
        found = np.empty((len(outside), len(inside)), np.int32)
        number = self.number(layout, layout.coordinates(outside))
        found[number] = outside[:, None] + np.sort(inside)
        return found


def _ranks(layout: Layout, axes: Sequence[Sequence[int]]) -> np.ndarray:
    """int64[]: all ranks with coordinates from these."""
    ranks = np.zeros(1, np.int64)
    for axis, stride in zip(axes, layout.strides, strict=True):
        ranks = (ranks[None, :] + np.asarray(axis, np.int64)[:, None] * stride).ravel()
    return ranks


@dataclass(frozen=True)
class Families:
    """``of_communicator`` int64[communicators of the trace]: their families, -1 for those that nothing uses."""

    families: tuple[Family, ...]
    of_communicator: np.ndarray


def find_families(workload: Workload, traced: Layout, layout: Layout, path: str) -> Families:
    """The families of a trace with layout ``traced``, in ``layout`` (the same dimensions in any order). Raises
    UserError for a communicator that is used and has no shape of these kinds."""
    called, members = group_names(workload), members_of(workload)
    first_use = np.full(len(members), workload.num_operations, np.int64)
    rank, used = (workload.column("operations", name) for name in ("rank", "communicator_id"))
    within = np.arange(len(used)) - workload.rank_offsets[rank]
    np.minimum.at(first_use, used, within)
    order = sorted(range(len(members)), key=lambda number: (first_use[number], number))
    seen: dict[tuple[object, ...], int] = {}
    of_key: dict[tuple[object, ...], list[int]] = {}
    for number in order:
        if first_use[number] == workload.num_operations and number != WORLD and number not in called:
            continue
        name = called.get(number, "")
        spans = _spans(number, members[number], name, traced)
        if spans is None:
            if first_use[number] < workload.num_operations:
                raise _no_shape(path, number, members[number], name, traced)
            continue
        place = tuple(c for c, span in zip(traced.coordinates(members[number][:1])[0].tolist(), spans, strict=True)
                      if span is Span.place)  # fmt: skip
        purpose = _purpose(name, traced.names)
        nth = seen.get((spans, purpose, place), 0)
        seen[spans, purpose, place] = nth + 1
        of_key.setdefault((spans, purpose, nth), []).append(number)
    world = next(key for key, numbers in of_key.items() if WORLD in numbers)
    keys = [world, *(key for key in of_key if key != world)]
    return _numbered(keys, of_key, called, members, traced, layout)


def _numbered(
    keys: Sequence[tuple[object, ...]],
    of_key: Mapping[tuple[object, ...], Sequence[int]],
    called: Mapping[int, str],
    members: Sequence[np.ndarray],
    traced: Layout,
    layout: Layout,
) -> Families:
    moved = [traced.names.index(name) for name in layout.names]
    of_communicator = np.full(len(members), -1, np.int64)
    families: list[Family] = []
    names: dict[str, int] = {}
    first = 0
    for index, key in enumerate(keys):
        spans: tuple[Span, ...] = key[0]  # type: ignore[assignment]
        spans = tuple(spans[at] for at in moved)
        own = {called.get(number, "") for number in of_key[key]}
        group_name = own.pop() if len(own) == 1 else ""
        if index and not re.search("[a-z]", group_name.lower()):  # numbered, or each named for itself
            axes = zip(layout.names, spans, strict=True)
            group_name = "-".join(name for name, span in axes if span is not Span.place) or "single"
        name = group_name or "world"
        names[name] = names.get(name, 0) + 1
        sizes = [2 if span is Span.ends else size if span is Span.whole else 1
                 for size, span in zip(layout.sizes, spans, strict=True)]  # fmt: skip
        shown = name if names[name] == 1 else f"{name} ({names[name]})"
        count = len(members[of_key[key][0]])
        family = Family(shown, group_name, spans, first, count, int(np.prod(sizes, dtype=np.int64)))
        families.append(family)
        of_communicator[list(of_key[key])] = index
        first += family.count(layout)
    return Families(tuple(families), of_communicator)


def _spans(number: int, members: np.ndarray, name: str, traced: Layout) -> tuple[Span, ...] | None:
    """What a communicator has of each dimension; None if it has no such shape. Of a dimension with one rank only the
    world and groups that are named for it have all."""
    coordinates = traced.coordinates(members)
    meant = dimensions_meant(name, traced.names)
    spans, count = [], 1
    for dimension, size in enumerate(traced.sizes):
        places = np.unique(coordinates[:, dimension])
        is_whole = len(places) == size
        if size == 1:
            is_whole = traced.names[dimension] in meant if meant else number == WORLD
        if is_whole:
            spans.append(Span.whole)
        elif len(places) == 1:
            spans.append(Span.place)
        elif places.tolist() == [0, size - 1]:
            spans.append(Span.ends)
        else:
            return None
        count *= len(places)
    return tuple(spans) if count == len(members) else None


def _purpose(name: str, dimensions: Sequence[str]) -> str:
    """The name of a communicator without what numbers it among those of its kind."""
    meant = dimensions_meant(name, dimensions)
    bare = re.sub(r"[0-9]+", "", name.lower())
    return "-".join(meant) if meant and bare in meant else bare


def _no_shape(path: str, number: int, members: np.ndarray, name: str, traced: Layout) -> UserError:
    some = ", ".join(map(str, members[:8].tolist())) + (", ..." if len(members) > 8 else "")
    return UserError(
        f"{path}: communicator {number}{f' ({name})' if name else ''} of ranks {some} spans no dimension of {traced} "
        "whole; give the layout of the trace by --traced (the first varies fastest)"
    )
