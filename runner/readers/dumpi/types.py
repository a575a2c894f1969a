"""Sizes of the datatypes of a DUMPI trace, as they were when each call was made.

A file lists the size of every datatype at its first use. A number is used again once its datatype is freed, so a call
that makes a datatype settles its size from then on; so does MPI_Type_size, which says it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.runner.readers.dumpi.layouts import LAYOUTS
from manyscale.runner.readers.dumpi.records import Calls

UNKNOWN_BYTES: Final = -1
_FIRST_DERIVED: Final = 28
# Built-in datatypes by their number, under the data model LP64: for files without a table, and for names that the
# traced MPI had no type of its own for.
_USUAL_BYTES: Final = (0, 0, 1, 1, 1, 1, 4, 2, 2, 4, 4, 8, 8, 4, 8, 16, 8, 8, 8, 1, 0, 0, 8, 12, 12, 6, 8, 20)

# How a derived datatype's size follows from that of the old one: the fields whose product counts its elements (a list
# counts with the sum of its elements, the sub-sizes of an array with their product).
_ELEMENTS: Final = {
    "MPI_Type_contiguous": ("count",),
    "MPI_Type_vector": ("count", "blocklength"),
    "MPI_Type_hvector": ("count", "blocklength"),
    "MPI_Type_create_hvector": ("count", "blocklength"),
    "MPI_Type_indexed": ("lengths",),
    "MPI_Type_hindexed": ("lengths",),
    "MPI_Type_create_hindexed": ("blocklengths",),
    "MPI_Type_create_indexed_block": ("count", "blocklength"),
    "MPI_Type_create_subarray": ("subsizes",),
    "MPI_Type_create_resized": (),
    "MPI_Type_dup": (),
}
_STRUCTURES: Final = {"MPI_Type_struct": "lengths", "MPI_Type_create_struct": "blocklengths"}
_SAYING: Final = ("MPI_Type_size", "MPI_Type_create_darray")


@dataclass(frozen=True)
class Versions:
    """Values that numbers stand for, each from a call on: ``calls`` and ``ids`` of the changes, in the calls' order."""

    calls: np.ndarray
    ids: np.ndarray
    values: np.ndarray

    def at(self, calls: np.ndarray, ids: np.ndarray, default: np.ndarray) -> np.ndarray:
        """What each of ``ids`` stands for at its call: the latest change before it, else the default. O(n log n)."""
        keys = (self.ids << 40) | self.calls
        order = np.argsort(keys)
        place = np.searchsorted(keys[order], (ids << 40) | calls) - 1
        found = np.zeros(len(ids), np.bool_)
        result = np.array(default, np.int64)
        if len(keys):
            found = (place >= 0) & (self.ids[order[place]] == ids)
            result[found] = self.values[order[place[found]]]
        return result


class TypeSizes:
    """Sizes of a rank's datatypes over time."""

    def __init__(self, calls: Calls, table: np.ndarray) -> None:
        self._start = np.full(max(len(table), _FIRST_DERIVED), UNKNOWN_BYTES, np.int64)
        self._start[:_FIRST_DERIVED] = _USUAL_BYTES
        self._start[: len(table)] = np.where(table > 0, table, self._start[: len(table)])
        self._versions = self._changes(calls)

    def _changes(self, calls: Calls) -> Versions:
        """Follow the calls that make datatypes. O(such calls), one after another: each builds on earlier ones."""
        relevant = [calls.rows(name) for name in (*_ELEMENTS, *_STRUCTURES, *_SAYING)]
        rows = np.sort(np.concatenate(relevant))
        now: dict[int, int] = {}
        changes: list[tuple[int, int, int]] = []
        for row in rows.tolist():
            name, fields = LAYOUTS[calls.function[row]].name, calls.fields(row)
            made = _number(fields["datatype" if name == "MPI_Type_size" else "newtype"])
            size = self._made(name, fields, now)
            now[made] = size
            changes.append((row, made, size))
        table = np.array(changes, np.int64).reshape(-1, 3)
        return Versions(table[:, 0], table[:, 1], table[:, 2])

    def _made(self, name: str, fields: dict[str, object], now: dict[int, int]) -> int:
        def size_of(number: int) -> int:
            known = self._start[number] if 0 <= number < len(self._start) else UNKNOWN_BYTES
            return now.get(number, int(known))

        if name == "MPI_Type_size":
            return _number(fields["size"])
        if name in _STRUCTURES:
            sizes = [size_of(number) for number in _numbers(fields["oldtypes"])]
            lengths = _numbers(fields[_STRUCTURES[name]])
            if any(size < 0 for size in sizes) or len(lengths) != len(sizes):
                return UNKNOWN_BYTES
            return sum(length * size for length, size in zip(lengths, sizes, strict=True))
        if name not in _ELEMENTS:  # a distributed array: its share is left to the file's table
            made = _number(fields["newtype"])
            return int(self._start[made]) if 0 <= made < len(self._start) else UNKNOWN_BYTES
        size = size_of(_number(fields["oldtype"]))
        if size < 0:
            return UNKNOWN_BYTES
        for field in _ELEMENTS[name]:
            value = fields[field]
            if isinstance(value, list):
                size *= int(np.prod(_numbers(value))) if field == "subsizes" else sum(_numbers(value))
            else:
                size *= _number(value)
        return size

    def at(self, calls: np.ndarray, types: np.ndarray) -> np.ndarray:
        """int64: bytes of one element of each datatype at its call, UNKNOWN_BYTES where the trace does not say."""
        known = np.full(len(types), UNKNOWN_BYTES, np.int64)
        inside = (types >= 0) & (types < len(self._start))
        known[inside] = self._start[types[inside]]
        return self._versions.at(calls, types, known)


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value


def _numbers(value: object) -> list[int]:
    assert isinstance(value, list)
    return value
