"""The collectives of a PyTorch host execution trace, which holds no times: schemas 1.0.1 (``inputs`` is a list) to
1.1.1-chakra.0.0.4 (``inputs.values``; from 1.1.0 attributes name what is sent)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from manyscale.runner.errors import UserError
from manyscale.runner.readers.kineto.collectives import (
    MESSAGES,
    MOST_RANKS,
    ROOTED,
    Told,
    bounded,
    element_bytes,
    kind_of,
    numbers,
)
from manyscale.runner.readers.kineto.events import Document, number

_RECORD: Final = b"record_param_comms"


@dataclass(frozen=True)
class HostTrace:
    """``collectives`` in the order in which the rank called them; ``records``: of all calls, those that wait for one
    among them, (whether it waits, the collective's number in the framework); ``process``: its number on its machine, -1
    unknown."""

    place: str
    collectives: tuple[Told, ...]
    records: tuple[tuple[bool, int], ...]
    process: int


def collectives_of(document: Document, place: str) -> HostTrace:
    """Raises UserError."""
    found: list[tuple[int, Told]] = []
    records: list[tuple[int, bool, int]] = []
    for raw in document.nodes or ():
        if _RECORD not in bytes(raw):
            continue
        try:
            node = msgspec.json.decode(raw)
            values = node["inputs"]["values"] if isinstance(node["inputs"], dict) else node["inputs"]
            outputs = node["outputs"]["values"] if isinstance(node["outputs"], dict) else node["outputs"]
            attributes = {each["name"]: each["value"] for each in node.get("attrs", ())}
            order = number(attributes.get("rf_id", node.get("rf_id")), 0)
            told = _told(values, outputs, attributes)
            records.append((order, "wait" in values, number(values[0 if "wait" in values else 1], -1)))
        except (msgspec.MsgspecError, KeyError, TypeError, IndexError, AttributeError):
            raise UserError(
                f"{place}: a record of a collective is not as PyTorch writes it: {bytes(raw)[:80]!r}"
            ) from None
        if told is not None:
            found.append((order, bounded(told)))
    found.sort(key=lambda each: each[0])
    records.sort()
    calls = tuple((waits, of) for _, waits, of in records)
    return HostTrace(place, tuple(told for _, told in found), calls, number(document.pid, -1))


def _told(values: list[Any], outputs: list[Any], attributes: dict[str, Any]) -> Told | None:
    names = [at for at, each in enumerate(values) if isinstance(each, str)]
    if not names:
        return None
    at = names[-1] if len(names) == 1 else next(each for each in names if kind_of(values[each]) or each == names[-1])
    kind = kind_of(values[at])
    if kind is None or at == 0:
        return None
    sent, size = _tensors(values[0])
    received, _ = _tensors(outputs[0] if outputs else None)
    splits = [numbers(each) for each in values[at + 1 : at + 3]]
    group = next((each for each in values[1:at] if isinstance(each, list)), None)
    place = number(values[at - 1], -1) if type(values[at - 1]) is int else -1  # of the partner, or the root
    first, stride, members = (number(each, -1) for each in (*values[at + 3 : at + 6], -1, -1, -1)[:3])
    told = Told(
        kind, sent, received, size, splits[0] if splits else (), splits[1] if len(splits) > 1 else (),
        str(group[0]) if group else str(values[2]) if at >= 3 else "",
        str(group[1]) if group and len(group) > 1 else "",
        tuple(range(first, first + stride * members, stride))
        if first >= 0 and stride > 0 and 0 < members <= MOST_RANKS else (),
        max(members, 0), place=place if kind in MESSAGES else -1, root=place if kind in ROOTED else -1,
    )  # fmt: skip
    if "in_msg_nelems" in attributes:
        told = replace(
            told,
            sent=number(attributes["in_msg_nelems"], told.sent),
            received=number(attributes.get("out_msg_nelems"), told.received),
            element_bytes=element_bytes(str(attributes.get("dtype", ""))),
        )
    return told


def _tensors(value: Any) -> tuple[int, int]:
    """Elements and bytes of one of a tensor (identity, storage, offset, elements, bytes of one, device), or a list of
    them."""
    if not isinstance(value, list) or not value:
        return -1, -1
    if isinstance(value[0], list):
        found = [_tensors(each) for each in value]
        return sum(elements for elements, _ in found), found[0][1]
    if len(value) < 6:
        return -1, -1
    return number(value[3], -1), number(value[4], -1)
