"""Chakra traces written byte by byte, after the schemas' field numbers (mlcommons/chakra, et_def.proto and eg_def.proto
of each version) and protobuf's encoding, without protobuf."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

METADATA, LOAD, STORE, COMPUTE, SEND, RECEIVE, COLLECTIVE = range(1, 8)
ALL_REDUCE, REDUCE, ALL_GATHER, GATHER, SCATTER, BROADCAST, ALL_TO_ALL, REDUCE_SCATTER = range(8)
VALUE = {"int32": 7, "int64": 9, "uint32": 11, "uint64": 13, "sint64": 17, "bool": 27, "string": 29}  # fields in 0.0.4


@dataclass(frozen=True)
class Node:
    id: int
    type: int
    parents: Sequence[int] = ()
    micros: int = 0
    name: str = "n"
    start: int = 0
    values: dict[str, object] = field(default_factory=dict)


def node(id: int, type: int, *parents: int, micros: int = 0, name: str = "n", start: int = 0, **values: object) -> Node:
    return Node(id, type, parents, micros, name, start, values)


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes((*found, number))


def number(at: int, value: int) -> bytes:
    return varint(at << 3) + varint(value)


def text(at: int, value: bytes) -> bytes:
    return varint(at << 3 | 2) + varint(len(value)) + value


def framed(*messages: bytes) -> bytes:
    return b"".join(varint(len(each)) + each for each in messages)


def attribute(name: str, value: object, kind: str = "") -> bytes:
    """An attribute of 0.0.4; ``kind``: how the value is stored. None: it has none."""
    if not kind:
        kind = "bool" if isinstance(value, bool) else "string" if isinstance(value, str) else "int64"
    if value is None:
        return text(1, name.encode())
    if isinstance(value, str):
        return text(1, name.encode()) + text(VALUE[kind], value.encode())
    whole = int(value)  # type: ignore[call-overload]
    whole = (whole << 1) ^ (whole >> 63) if kind.startswith("sint") else whole
    return text(1, name.encode()) + number(VALUE[kind], whole)


def message(each: Node, kinds: dict[str, str] | None = None) -> bytes:
    """A node of 0.0.4; ``kinds``: how values are stored, by name."""
    content = (number(1, each.id) if each.id else b"") + text(2, each.name.encode()) + number(3, each.type)
    content += b"".join(number(5, parent) for parent in each.parents)
    content += number(6, each.start) * bool(each.start) + number(7, each.micros) * bool(each.micros)
    for name, value in each.values.items():
        content += text(10, attribute(name, value, (kinds or {}).get(name, "")))
    return content


def trace(*nodes: Node, kinds: dict[str, str] | None = None) -> bytes:
    """A file of 0.0.4."""
    return framed(text(1, b"0.0.4"), *(message(each, kinds) for each in nodes))


OF_3 = {ALL_REDUCE: 0, ALL_TO_ALL: 1, ALL_GATHER: 2, REDUCE_SCATTER: 3, BROADCAST: 4}
OF_1 = {ALL_REDUCE: 1, ALL_TO_ALL: 2, ALL_GATHER: 3, REDUCE_SCATTER: 4}
PLACE_1 = {"tensor_size": 6, "num_ops": 12, "comm_type": 13, "comm_src": 16, "comm_dst": 17, "comm_size": 18,
           "comm_tag": 19}  # fmt: skip


def trace_1(*nodes: Node) -> bytes:
    """A file of 0.0.1; times in ns."""
    found = []
    for each in nodes:
        content = number(1, each.id) + text(2, each.name.encode()) + number(3, each.type - 1)
        content += b"".join(number(4, parent) for parent in each.parents)
        content += number(7, 1000 * each.micros) * bool(each.micros)
        for name, value in each.values.items():
            value = OF_1[value] if name == "comm_type" else value  # type: ignore[index]
            content += number(PLACE_1[name], int(value))  # type: ignore[call-overload]
        found.append(content)
    return framed(*found)


def old_trace(version: str, *nodes: Node) -> bytes:
    """A file of 0.0.2, 0.0.3, or 0.0.3 with metadata (``0.0.3u``), which has unsigned numbers, too."""
    types = {"0.0.2": ("f", "i", "s"), "0.0.3": ("b", "f", "i", "s"), "0.0.3u": ("b", "f", "u", "i", "s")}[version]
    first = 4
    found = [text(1, text(1, b"schema") + number(2, 4) + text(8, b"x"))] if version == "0.0.3u" else []
    for each in nodes:
        content = number(1, each.id) + text(2, each.name.encode())
        content += number(3, each.type - (version == "0.0.2")) + b"".join(number(4, parent) for parent in each.parents)
        values = {**each.values, **({"runtime": each.micros} if each.micros else {})}
        for name, value in values.items():
            value = OF_3[value] if name == "comm_type" else value  # type: ignore[index]
            kind = "s" if isinstance(value, str) else "i"
            field_of = first + types.index(kind)
            content += text(
                11,
                text(1, name.encode()) + number(2, types.index(kind))
                + (text(field_of, value.encode()) if isinstance(value, str) else number(field_of, int(value))),  # type: ignore[call-overload]
            )  # fmt: skip
        found.append(content)
    return framed(*found)


def write(folder: Path, *ranks: bytes, name: str = "t") -> Path:
    """A trace in a folder of its own, one file a rank."""
    path = folder / name
    path.mkdir(parents=True, exist_ok=True)
    for rank, content in enumerate(ranks):
        (path / f"{name}.{rank}.et").write_bytes(content)
    return path


def sample(folder: Path) -> Path:
    """Two ranks: a kernel, then an all-reduce."""
    rank = trace(
        node(1, COMPUTE, micros=7, name="gemm", is_cpu_op=False, num_ops=1000, tensor_size=64),
        node(2, COLLECTIVE, 1, name="ar", is_cpu_op=False, comm_type=ALL_REDUCE, comm_size=4096),
    )
    return write(folder, rank, rank)
