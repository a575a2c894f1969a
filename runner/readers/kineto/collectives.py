"""What collectives are, as traces tell them: arguments of NCCL's kernels and of ``record_param_comms`` (PyTorch 2.2 and
later), records of a host execution trace, marks ``nccl:all_reduce`` with the shape of what was sent (before), or the
kernel's name alone, which tells no size."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from manyscale.models.workload import OperationKind
from manyscale.runner.readers.kineto.events import Args, number

_K: Final = OperationKind
UNKNOWN: Final = -1
MOST_RANKS: Final = 1 << 24
_MOST_ELEMENTS: Final = 1 << 44
MESSAGES: Final = (_K.isend, _K.irecv)
ROOTED: Final = (_K.bcast, _K.reduce, _K.gather, _K.scatter)
# by names of collectives without "_", "_base", "_coalesced" and the like
_KINDS: Final = (
    (re.compile("allreduce|barrier"), _K.allreduce),
    (re.compile("reducescatter"), _K.reduce_scatter),
    (re.compile("allgather"), _K.allgather),
    (re.compile("alltoallv?"), _K.alltoall),
    (re.compile("broadcast"), _K.bcast),
    (re.compile("reduce"), _K.reduce),
    (re.compile("gather"), _K.gather),
    (re.compile("scatter"), _K.scatter),
    (re.compile("send"), _K.isend),
    (re.compile("recv"), _K.irecv),
)
# of PyTorch's scalar types, as traces of all versions write them
_ELEMENT_BYTES: Final = {
    "double": 8, "long": 8, "longint": 8, "int64": 8, "uint64": 8, "float64": 8, "complexfloat": 8, "complexdouble": 16,
    "float": 4, "int": 4, "int32": 4, "uint32": 4, "float32": 4, "half": 2, "bfloat16": 2, "short": 2, "float16": 2,
    "char": 1, "byte": 1, "bool": 1, "unsignedchar": 1, "signedchar": 1, "uint8": 1, "int8": 1, "float8e4m3fn": 1,
    "float8e5m2": 1, "float8e4m3fnuz": 1, "float8e5m2fnuz": 1,
}  # fmt: skip
_KERNEL_NAME: Final = re.compile(r"(?:nccl|rccl|mscclc?)(?:Dev)?Kernel_([A-Za-z]+)")
_BETWEEN: Final = re.compile(r"(send|recv)\s*(\d{1,9})\s*(?:->|<-)\s*(\d{1,9})(?!\d)")


@dataclass(frozen=True)
class Told:
    """What is told of a collective at one rank. ``kind`` is None where it is not told, as of messages that were made
    one kernel. Elements are UNKNOWN where they are not told; ``sends`` and ``receives`` are elements by member, () for
    equal ones. ``group``: as the rank calls it; ``members``: world ranks, () unknown. Of a message ``peer`` is the
    partner as a world rank, or ``place`` the partner's place in the group, and ``own`` the rank's, where they are told;
    ``root``: of a collective, its place in the group."""

    kind: OperationKind | None
    sent: int = UNKNOWN
    received: int = UNKNOWN
    element_bytes: int = UNKNOWN
    sends: tuple[int, ...] = ()
    receives: tuple[int, ...] = ()
    group: str = ""
    purpose: str = ""
    members: tuple[int, ...] = ()
    size: int = 0
    peer: int = UNKNOWN
    place: int = UNKNOWN
    own: int = UNKNOWN
    root: int = UNKNOWN

    @property
    def is_sized(self) -> bool:
        """Of a reduce-scatter what it receives is enough."""
        is_told = self.sent >= 0 or (self.kind == _K.reduce_scatter and self.received >= 0)
        return is_told and self.element_bytes > 0

    @property
    def bytes(self) -> int:
        """Of what is sent, or else received, where ``is_sized``."""
        return (self.sent if self.sent >= 0 else self.received) * self.element_bytes


def bounded(told: Told) -> Told:
    """Without numbers that cannot be: they are not told."""
    numbers_of = ("sent", "received", "place", "own", "root", "peer", "size")
    most = {"sent": _MOST_ELEMENTS, "received": _MOST_ELEMENTS}
    wrong: dict[str, Any] = {
        name: 0 if name == "size" else UNKNOWN for name in numbers_of
        if not UNKNOWN <= getattr(told, name) <= most.get(name, MOST_RANKS)
    }  # fmt: skip
    for name in ("sends", "receives"):
        if not all(0 <= each <= _MOST_ELEMENTS for each in getattr(told, name)):
            wrong |= {"sends": (), "receives": (), "sent": UNKNOWN, "received": UNKNOWN}
    if len(set(told.members)) < len(told.members) or not all(0 <= each < MOST_RANKS for each in told.members):
        wrong["members"] = ()
    return replace(told, **wrong) if wrong else told


def kind_of(name: str) -> OperationKind | None:
    """Of a collective as PyTorch calls it; None for others (``wait``, ``coalesced``)."""
    plain = re.sub("[^a-z]", "", name.lower())
    return next((kind for pattern, kind in _KINDS if pattern.search(plain)), None)


def element_bytes(kind: str) -> int:
    plain = re.sub("c10::|tensor|[^A-Za-z0-9]", "", kind, flags=re.I).lower()
    return _ELEMENT_BYTES.get(plain, UNKNOWN)


def of_kernel(name: str) -> Told:
    """What a kernel's name tells. SendRecv is taken for an all-to-all: of messages traces tell the partners."""
    found = _KERNEL_NAME.match(name.removeprefix("void "))
    if not found:
        return Told(None)
    return Told(_K.alltoall if found[1] == "SendRecv" else kind_of(found[1]))


def of_args(args: Args) -> Told | None:
    """What arguments of a kernel or of record_param_comms tell."""
    if args.collective is None:
        return None
    name = str(args.collective)
    found = Told(
        kind_of(name),
        number(args.in_elements, UNKNOWN),
        number(args.out_elements, UNKNOWN),
        element_bytes(str(args.element_type)),
        numbers(args.in_split),
        numbers(args.out_split),
        "" if args.group is None else str(args.group),
        str(args.purpose or ""),
        _members(args),
        max(number(args.group_size, 0), 0),
    )
    place = number(args.place, UNKNOWN)
    if found.kind in MESSAGES:
        peer = number(args.destination if found.kind == _K.isend else args.source, UNKNOWN)
        found = replace(found, peer=peer, place=place)
    return bounded(replace(found, root=place) if found.kind in ROOTED else found)


def _members(args: Args) -> tuple[int, ...]:
    """World ranks of a group; () where a long list was cut, or none is told."""
    listed = numbers(args.members)
    size = number(args.group_size, 0)
    if listed and len(listed) == size:
        return listed
    first, stride = number(args.first_member, -1), number(args.member_stride, 0)
    if first >= 0 and stride > 0 and 0 < size <= MOST_RANKS:
        return tuple(range(first, first + stride * size, stride))
    return ()


def numbers(value: Any) -> tuple[int, ...]:
    """A list of whole numbers, or one as text; () for what is none (a cut one: ``[0, 1, ..., 7]``)."""
    if isinstance(value, str):
        try:
            value = ast.literal_eval(value.strip()) if len(value) < 1 << 20 else ()
        except (ValueError, SyntaxError):
            return ()
    if not isinstance(value, list | tuple) or not all(type(each) is int for each in value):
        return ()
    return tuple(value)


def of_mark(name: str, args: Args | None) -> Told | None:
    """What a mark ``nccl:all_to_all`` tells: the kind, and the elements of what is sent; of messages (``nccl:send
    0->1``, ``nccl:recv 1<-0``) the places of both in their group (ProcessGroupNCCL.cpp)."""
    _, _, what = name.partition(":")
    between = _BETWEEN.search(what)
    kind = kind_of(between[1] if between else what)
    if kind is None:
        return None
    shapes, kinds = listed(args.dims if args else b""), listed(args.types if args else b"")
    sent, size = UNKNOWN, UNKNOWN
    if len(shapes) and isinstance(shapes[0], list) and len(kinds):
        sent, size = _elements(shapes), element_bytes(str(kinds[0]))
    own, place = (int(between[2]), int(between[3])) if between else (UNKNOWN, UNKNOWN)
    return bounded(Told(kind, sent, UNKNOWN, size, place=place, own=own))


def _elements(shapes: Sequence[Any]) -> int:
    """Elements of all tensors whose shapes are listed."""
    total = 0
    for shape in shapes:
        if not isinstance(shape, list):
            return UNKNOWN
        if any(isinstance(each, list) for each in shape):
            inner = _elements(shape)
            if inner < 0:
                return UNKNOWN
            total += inner
            continue
        if not all(type(each) is int and each >= 0 for each in shape):
            return UNKNOWN
        total += math.prod(shape)
    return total


def listed(raw: Any) -> list[Any]:
    """A list that stands in the file as it is, or as text."""
    try:
        value = msgspec.json.decode(raw) if len(raw) else []
        value = json.loads(value) if isinstance(value, str) else value
    except (msgspec.MsgspecError, TypeError, ValueError):
        return []
    return value if isinstance(value, list) else []
