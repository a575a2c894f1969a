"""Writes DUMPI files for tests, by the layouts that the reader has: calls with fields by name."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from manyscale.runner.readers.dumpi.head import MAGIC
from manyscale.runner.readers.dumpi.layouts import (
    ALL_FUNCTIONS,
    END_OF_STREAM,
    LAYOUTS,
    NUMBER,
    ONLY_AT_ROOT,
    STATUSES,
    TEXT,
)
from manyscale.runner.readers.dumpi.scan import HAS_COUNTERS

Fields = Mapping[str, object]
TYPE_BYTES = (0, 0, 1, 1, 1, 1, 4, 2, 2, 4, 4, 8, 8, 4, 8, 16, 0, 8, 8, 1, 0, 0, 8, 12, 12, 6, 8, 20)


@dataclass(frozen=True)
class Call:
    """A call from ``start_ns`` to ``end_ns``. Statuses: (bytes, source, cancelled, error, tag) each."""

    name: str
    fields: Fields = field(default_factory=dict)
    start_ns: int = 0
    end_ns: int = 0
    thread: int = 0
    counters: Sequence[tuple[int, int]] = ()
    mask: int = 0x4F


def _number(value: int, width: int) -> bytes:
    return (value % (1 << 8 * width)).to_bytes(width, "big")


def _value(value: object, code: int) -> bytes:
    if code == STATUSES:
        statuses = value or []
        assert isinstance(statuses, Sequence)
        return _number(len(statuses), 4) + b"".join(struct.pack(">iiBBi", *status) for status in statuses)
    dimensions, width = divmod(code & ~TEXT, 16)
    if dimensions == 0:
        assert isinstance(value, int)
        return _number(value, width)
    if isinstance(value, str):
        return _number(len(value), 4) + value.encode()
    assert isinstance(value, Sequence)
    return _number(len(value), 4) + b"".join(_value(element, code - 16) for element in value)


def record(call: Call) -> bytes:
    """The bytes of one call; fields that are not given are 0 or empty."""
    number = NUMBER[call.name]
    layout = LAYOUTS[number]
    mask = call.mask | (HAS_COUNTERS if call.counters else 0)
    content = struct.pack(">HBh", number, mask, call.thread)
    for bit in (4, 8):  # CPU time, wall time
        if mask & bit:
            for time in (call.start_ns, call.end_ns):
                content += struct.pack(">HI", time // 10**9 % 65536, time % 10**9)
    if call.counters:
        content += _number(len(call.counters), 1)
        content += b"".join(struct.pack(">qq", *pair) for pair in call.counters)
    rank, root = layout.decides
    for name, code in zip(layout.fields, layout.codes, strict=True):
        if code & ONLY_AT_ROOT and call.fields.get(layout.fields[rank], 0) != call.fields.get(layout.fields[root], 0):
            continue
        code &= ~ONLY_AT_ROOT
        if code == STATUSES and not mask & 3:
            continue
        content += _value(call.fields.get(name, 0 if 0 < code < 16 else ()), code)
    unknown = set(call.fields) - set(layout.fields)
    assert not unknown, f"{call.name} has no fields {unknown}"
    return content


def dumpi_file(
    calls: Sequence[Call] | bytes,
    version: tuple[int, int, int] = (8, 1, 0),
    type_bytes: Sequence[int] | None = TYPE_BYTES,
    labels: Sequence[str] = (),
    functions: Mapping[int, str] | None = None,
    wall_bias: int = 0,
    with_footer: bool = True,
) -> bytes:
    """A whole file; ``calls`` may be the bytes of a stream, without the end, when there is no footer."""
    counts = [0] * ALL_FUNCTIONS
    content = MAGIC + struct.pack(">ii", 0, wall_bias)
    if isinstance(calls, bytes):
        content += calls
    else:
        content += b"".join(record(call) for call in calls)
        for call in calls:
            if NUMBER[call.name] < ALL_FUNCTIONS:
                counts[NUMBER[call.name]] += 1
    content += _number(END_OF_STREAM, 2)
    header = len(content)
    content += struct.pack(">BBBQ", *version, 1) + struct.pack(">H4sH4sii", 4, b"host", 4, b"user", 0, 0)
    footer = len(content) if with_footer else 0
    if with_footer:
        content += struct.pack(f">Q{2 * ALL_FUNCTIONS + 2}i", 0xF007FEE7, *counts, sum(counts), *([0] * 291))
    label_place = len(content) if labels else 0
    if labels:
        content += _number(len(labels), 4) + b"".join(_number(len(label), 2) + label.encode() for label in labels)
    name_place = len(content) if functions else 0
    if functions:
        content += _number(len(functions), 4)
        content += b"".join(struct.pack(">qH", key, len(text)) + text.encode() for key, text in functions.items())
    size_place = len(content) if type_bytes is not None else 0
    if type_bytes is not None:
        content += struct.pack(f">{len(type_bytes) + 1}i", len(type_bytes), *type_bytes)
    return content + MAGIC + struct.pack(">7Q", size_place, name_place, label_place, header, 8, footer, 0)


INT, DOUBLE, WORLD, SELF = 9, 14, 2, 3
NULL = 1  # of communicators and of requests
ANY = -1


def dumpi_trace(folder: Path, *ranks: Sequence[Call], **options: object) -> Path:
    """Writes the calls of each rank, and returns the trace's .meta file."""
    for rank, calls in enumerate(ranks):
        (folder / f"t-{rank:04d}.bin").write_bytes(dumpi_file(calls, **options))  # type: ignore[arg-type]
    meta = folder / "t.meta"
    meta.write_text(f"hostname=h\nnumprocs={len(ranks)}\nstartime=1\nfileprefix=t\nversion=8\n")
    return meta


def send(dest: int, tag: int = 0, count: int = 1, comm: int = WORLD, datatype: int = INT) -> Call:
    return Call("MPI_Send", {"count": count, "datatype": datatype, "dest": dest, "tag": tag, "comm": comm})


def recv(source: int, tag: int = 0, comm: int = WORLD, statuses: Sequence[tuple[int, ...]] = ()) -> Call:
    fields = {"count": 1, "datatype": INT, "source": source, "tag": tag, "comm": comm, "status": statuses}
    return Call("MPI_Recv", fields)


def irecv(request: int, source: int = 1, tag: int = 0, count: int = 1) -> Call:
    fields = {"count": count, "datatype": INT, "source": source, "tag": tag, "comm": WORLD, "request": request}
    return Call("MPI_Irecv", fields)


def isend(request: int, dest: int = 1, tag: int = 0) -> Call:
    fields = {"count": 1, "datatype": INT, "dest": dest, "tag": tag, "comm": WORLD, "request": request}
    return Call("MPI_Isend", fields)
