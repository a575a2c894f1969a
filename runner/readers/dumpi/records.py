"""Decoder of DUMPI files, the traces of one MPI rank: every call with its times and arguments.

A file has a lead-in, the stream of calls, a header, a footer with the number of calls of each function, tables of
labels and sizes, and last an index of where these stand (sst-dumpi, docs/traceformat.dox and dumpi/common/io.c). All
numbers are big-endian. Every function's record is decoded by its layout (readers/dumpi/layouts.py), so nothing can be
lost on the way: the calls found are compared with the footer's counts. Files of versions before 0.6.9 are refused:
their writers stored some records wrongly.

The values of all fields stand in one array of int64; a list is its length and its elements, characters count as
elements; statuses are their number (-1 where the call recorded none) and for each bytes, source, cancelled, error, tag.

Seconds are stored in 16 bits: they are taken to have wrapped where they fall back by more than half their range.
Cost: O(bytes), two passes. Memory: about 60 B a call, and 8 B a value.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from manyscale.runner.errors import UserError
from manyscale.runner.readers.archive import guarded
from manyscale.runner.readers.dumpi.head import MAGIC
from manyscale.runner.readers.dumpi.layouts import (
    ALL_FUNCTIONS,
    LAYOUTS,
    NUMBER,
    ONLY_AT_ROOT,
    STATUSES,
    TEXT,
)
from manyscale.runner.readers.dumpi.scan import BAD_LENGTH, NO_SUCH_FUNCTION, STATUS_VALUES, TABLES, scan

_FOOTER_MAGIC: Final = 0xF007FEE7
_INDEX_BYTES: Final = 64
_OLDEST: Final = (0, 6, 9)
_NUM_COUNTS: Final = ALL_FUNCTIONS + 1  # in each of the footer's two lists; the last is the sum of the others


@dataclass(frozen=True)
class Status:
    """What MPI said of a completed operation; not to be relied on where the program ignored it."""

    bytes: int
    source: int
    cancelled: int
    error: int
    tag: int


@dataclass(frozen=True)
class Calls:
    """The calls of a rank, in the order of their return. Per call: ``function`` (place in LAYOUTS), ``mask``,
    ``thread``, ``cpu_ns`` and ``wall_ns`` int64[n, 2] at entry and return, after the file's bias, ``position`` in the
    file, and the values of its fields, ``values[first_value[i]:first_value[i + 1]]``. ``counters``: int64[n, 2 k], of
    each of k counters the value at entry and at return."""

    function: np.ndarray
    mask: np.ndarray
    thread: np.ndarray
    cpu_ns: np.ndarray
    wall_ns: np.ndarray
    position: np.ndarray
    first_value: np.ndarray
    values: np.ndarray
    counters: np.ndarray

    def __len__(self) -> int:
        return len(self.function)

    def rows(self, name: str) -> np.ndarray:
        """The calls of a function."""
        return np.flatnonzero(self.function == NUMBER[name])

    def starts(self, name: str, field: str, rows: np.ndarray) -> np.ndarray:
        """Where in ``values`` a field of these calls of the function ``name`` starts. The field must stand before any
        list of lists, and be stored in all of these calls."""
        layout = LAYOUTS[NUMBER[name]]
        at = self.first_value[rows].copy()
        for code in layout.codes[: layout.fields.index(field)]:
            if code == STATUSES:
                at += 1 + STATUS_VALUES * np.maximum(self.values[at], 0)
            elif (dimensions := (code & ~ONLY_AT_ROOT & ~TEXT) // 16) == 0:
                at += 1
            else:
                assert dimensions == 1
                at += 1 + self.values[at]
        return at

    def column(self, name: str, field: str, rows: np.ndarray) -> np.ndarray:
        """int64: a field that is one number, of these calls of the function ``name``."""
        return self.values[self.starts(name, field, rows)]

    def lists(self, name: str, field: str, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A field that is a list, of these calls of the function ``name``, as (offsets, values)."""
        at = self.starts(name, field, rows)
        lengths = self.values[at]
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
        inside = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        return offsets, self.values[np.repeat(at + 1, lengths) + inside]

    def fields(self, row: int) -> dict[str, object]:
        """One call's fields by name: int, list, str, list of Status, nested; None for statuses not recorded or
        ignored. Fields that only the root stores are left out elsewhere."""
        layout = LAYOUTS[self.function[row]]
        stream = iter(self.values[self.first_value[row] : self.first_value[row + 1]].tolist())
        result: dict[str, object] = {}
        rank, root = layout.decides
        for field, code in zip(layout.fields, layout.codes, strict=True):
            if code & ONLY_AT_ROOT and result[layout.fields[rank]] != result[layout.fields[root]]:
                continue
            result[field] = _field(stream, code & ~ONLY_AT_ROOT)
        return result


def _field(stream: Iterator[int], code: int) -> object:
    if code == STATUSES:
        count = next(stream)
        return [Status(*(next(stream) for _ in range(STATUS_VALUES))) for _ in range(count)] if count > 0 else None
    dimensions = (code & ~TEXT) // 16
    if dimensions == 0:
        return next(stream)
    if dimensions == 1 and code & TEXT:
        return bytes(next(stream) for _ in range(next(stream))).decode(errors="replace")
    return [_field(stream, code - 16) for _ in range(next(stream))]


@dataclass(frozen=True)
class Places:
    """Where the calls of a rank stand in its file, for messages."""

    path: Path
    rank: int
    function: np.ndarray
    position: np.ndarray

    def error(self, call: int, message: str) -> UserError:
        """An error of one call: file, byte, rank, number and name of the call."""
        name = LAYOUTS[self.function[call]].name
        return UserError(f"{self.path}: byte {self.position[call]}: rank {self.rank}, call {call} ({name}) {message}")


@dataclass(frozen=True)
class RankFile:
    """A file: its calls, and what stands around them. ``type_bytes``: size of each datatype, 0 if not known.
    ``num_ignored``: calls that were made and not recorded, by function."""

    path: Path
    version: tuple[int, int, int]
    host: str
    start_seconds: int
    cpu_bias_seconds: int
    wall_bias_seconds: int
    calls: Calls
    type_bytes: np.ndarray
    counter_names: tuple[str, ...]
    function_names: dict[int, str]
    num_ignored: dict[str, int]

    def places(self, rank: int) -> Places:
        """Where the calls stand, if this is the file of ``rank``."""
        return Places(self.path, rank, self.calls.function, self.calls.position)


def read_rank_file(path: Path) -> RankFile:
    """Decode a file. Raises UserError, naming the file and the byte, for one that is damaged or too old."""
    with guarded(path), path.open("rb") as file:
        if path.stat().st_size < len(MAGIC) + _INDEX_BYTES:
            raise UserError(f"{path}: is too short for a DUMPI file; copy it again")
        # Not closed here: an error's traceback may still hold arrays over it.
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return _Decoder(path, content).decode()


class _Decoder:
    def __init__(self, path: Path, content: mmap.mmap) -> None:
        self.path = path
        self.content = content

    def decode(self) -> RankFile:
        content = self.content
        if content[: len(MAGIC)] != MAGIC:
            raise UserError(f"{self.path}: byte 0: does not start as a DUMPI file does; is it one?")
        at = len(content) - _INDEX_BYTES
        if content[at : at + len(MAGIC)] != MAGIC:
            raise UserError(
                f"{self.path}: byte {at}: no index at the end: the file is cut short, or older than version 0.6.9; "
                "copy it again"
            )
        sizes, addresses, labels, header, body, footer, _ = struct.unpack(">7Q", content[at + 8 : at + _INDEX_BYTES])
        version, start_seconds, host = self._header(header)
        if body >= at:
            raise UserError(
                f"{self.path}: byte {at}: the index points beyond the file, which is damaged; copy it again"
            )
        cpu_bias, wall_bias = self._unpack(body, ">ii")
        calls = self._calls(body + 8, min(place for place in (header, at) if place > body), footer)
        num_types = self._unpack(sizes, ">i")[0] if sizes else 0
        num_names = self._unpack(addresses, ">i")[0] if addresses else 0
        return RankFile(
            path=self.path,
            version=version,
            host=host,
            start_seconds=start_seconds,
            cpu_bias_seconds=cpu_bias,
            wall_bias_seconds=wall_bias,
            calls=calls,
            type_bytes=np.array(self._unpack(sizes + 4, f">{max(num_types, 0)}i"), np.int64),
            counter_names=self._labels(labels) if calls.counters.shape[1] else (),
            function_names=dict(self._names(addresses + 4, num_names)),
            num_ignored=self._ignored(footer),
        )

    def _unpack(self, at: int, form: str) -> tuple[int, ...]:
        try:
            return struct.unpack_from(form, self.content, at)
        except (struct.error, OverflowError):
            raise UserError(
                f"{self.path}: byte {at}: the index points beyond the file, which is damaged; copy it again"
            ) from None

    def _string(self, at: int) -> tuple[str, int]:
        (length,) = self._unpack(at, ">H")
        return self.content[at + 2 : at + 2 + length].decode(errors="replace"), at + 2 + length

    def _header(self, at: int) -> tuple[tuple[int, int, int], int, str]:
        major, minor, patch, start = self._unpack(at, ">BBBQ")
        version = (major, minor, patch)
        if version < _OLDEST:
            raise UserError(
                f"{self.path}: byte {at}: version {major}.{minor}.{patch} of DUMPI stored some calls wrongly; only "
                "0.6.9 and later can be read"
            )
        return version, start, self._string(at + 11)[0]

    def _labels(self, at: int) -> tuple[str, ...]:
        labels = []
        (count,) = self._unpack(at, ">i") if at else (0,)
        at += 4
        for _ in range(count):
            label, at = self._string(at)
            labels.append(label)
        return tuple(labels)

    def _names(self, at: int, count: int) -> Iterator[tuple[int, str]]:
        for _ in range(count):
            (address,) = self._unpack(at, ">q")
            name, at = self._string(at + 8)
            yield address, name

    def _ignored(self, footer: int) -> dict[str, int]:
        if not footer:
            return {}
        counts = self._unpack(footer + 8 + 4 * _NUM_COUNTS, f">{ALL_FUNCTIONS}i")
        return {LAYOUTS[number].name: count for number, count in enumerate(counts) if count > 0}

    def _calls(self, begin: int, end: int, footer: int) -> Calls:
        calls = self._scan(np.frombuffer(self.content, np.uint8), begin, end)
        self._check_counts(calls, footer)
        return calls

    def _scan(self, data: np.ndarray, begin: int, end: int) -> Calls:
        nothing = np.empty(0, np.int64)
        no_times = np.empty((0, 2), np.int64)
        small, short = np.empty(0, np.uint8), np.empty(0, np.int16)
        *sizes, stop, problem = scan(
            data, begin, end, *TABLES, False, short, small, short, no_times, no_times, nothing, nothing, nothing,
            no_times,
        )  # fmt: skip
        if problem:
            raise UserError(f"{self.path}: byte {stop}: {self._problem(data, stop, problem)}; copy the file again")
        num_calls, num_values, num_counters = sizes
        calls = Calls(
            function=np.empty(num_calls, np.int16),
            mask=np.empty(num_calls, np.uint8),
            thread=np.empty(num_calls, np.int16),
            cpu_ns=np.empty((num_calls, 2), np.int64),
            wall_ns=np.empty((num_calls, 2), np.int64),
            position=np.empty(num_calls, np.int64),
            first_value=np.zeros(num_calls + 1, np.int64),
            values=np.empty(num_values, np.int64),
            counters=np.zeros((num_calls if num_counters else 0, 2 * num_counters), np.int64),
        )
        scan(
            data, begin, end, *TABLES, True, calls.function, calls.mask, calls.thread, calls.cpu_ns, calls.wall_ns,
            calls.position, calls.first_value, calls.values, calls.counters,
        )  # fmt: skip
        return calls

    def _problem(self, data: np.ndarray, at: int, problem: int) -> str:
        number = int(data[at]) << 8 | int(data[at + 1]) if at + 1 < len(data) else -1
        if problem == NO_SUCH_FUNCTION:
            return f"function number {number} is not known: the stream of calls is damaged"
        name = LAYOUTS[number].name if 0 <= number < len(LAYOUTS) else "the next call"
        if problem == BAD_LENGTH:
            return f"the record of {name} has a list of negative length"
        return f"the record of {name} is cut short: the stream of calls is damaged"

    def _check_counts(self, calls: Calls, footer: int) -> None:
        """Compare the calls with the footer's counts: a record misread would shift all that follow."""
        if not footer:
            return
        if self._unpack(footer, ">Q")[0] != _FOOTER_MAGIC:
            raise UserError(
                f"{self.path}: byte {footer}: no footer where the index says; the file is damaged; copy it again"
            )
        expected = np.array(self._unpack(footer + 8, f">{ALL_FUNCTIONS}i"))
        found = np.bincount(calls.function, minlength=len(LAYOUTS))[:ALL_FUNCTIONS]
        wrong = np.flatnonzero(found != expected)
        if len(wrong):
            number = int(wrong[0])
            raise UserError(
                f"{self.path}: byte {footer}: the footer counts {expected[number]} calls of {LAYOUTS[number].name}, "
                f"the stream has {found[number]}; the file is damaged; copy it again"
            )
