"""Events of a Chrome trace by Kineto (PyTorch's profiler), as they stand in its JSON: only what is read of them is
built, by msgspec. Numbers ``NaN``, which no JSON by the book has, are none.

Times are us with three decimals, since 1970 or since ``baseTimeNanoseconds``. Of those since 1970 a number of 64 bits
holds a quarter of a microsecond: they are kept as decimals.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final

import msgspec

from manyscale.runner.errors import UserError
from manyscale.runner.readers.json_text import no_json


class Args(msgspec.Struct, gc=False):
    """Arguments of an event. Numbers may be written as text, by some versions."""

    correlation: Any = None
    stream: Any = None
    device: Any = None
    bytes: Any = None
    grid: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    block: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    external: Any = msgspec.field(name="External id", default=None)
    dims: msgspec.Raw = msgspec.field(name="Input Dims", default_factory=msgspec.Raw)
    types: msgspec.Raw = msgspec.field(name="Input type", default_factory=msgspec.Raw)
    collective: Any = msgspec.field(name="Collective name", default=None)
    in_elements: Any = msgspec.field(name="In msg nelems", default=None)
    out_elements: Any = msgspec.field(name="Out msg nelems", default=None)
    group_size: Any = msgspec.field(name="Group size", default=None)
    element_type: Any = msgspec.field(name="dtype", default=None)
    in_split: Any = msgspec.field(name="In split size", default=None)
    out_split: Any = msgspec.field(name="Out split size", default=None)
    group: Any = msgspec.field(name="Process Group Name", default=None)
    purpose: Any = msgspec.field(name="Process Group Description", default=None)
    members: Any = msgspec.field(name="Process Group Ranks", default=None)
    first_member: Any = msgspec.field(name="Global rank start", default=None)
    member_stride: Any = msgspec.field(name="Global rank stride", default=None)
    source: Any = msgspec.field(name="Src Rank", default=None)
    destination: Any = msgspec.field(name="Dst Rank", default=None)
    place: Any = msgspec.field(name="Rank", default=None)
    graph: Any = msgspec.field(name="graph id", default=None)
    awaited_stream: Any = msgspec.field(name="wait_on_stream", default=None)
    recorded_by: Any = msgspec.field(name="wait_on_cuda_event_record_corr_id", default=None)


class Event(msgspec.Struct, gc=False):
    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    args: Args | None = None


class Document(msgspec.Struct):
    """A trace, or (``nodes``) a host execution trace."""

    traceEvents: list[Event] | None = None  # noqa: N815 - as the file has it
    deviceProperties: Any = None  # noqa: N815
    distributedInfo: Any = None  # noqa: N815
    baseTimeNanoseconds: Any = None  # noqa: N815
    schemaVersion: Any = None  # noqa: N815
    schema: Any = None
    pid: Any = None
    nodes: list[msgspec.Raw] | None = None


_MOST: Final = 2**62
_EXACT_US: Final = 2**43  # below, the nearest number of 64 bits tells nanoseconds
_DOCUMENT: Final = msgspec.json.Decoder(Document)
_LIST: Final = msgspec.json.Decoder(list[Event])
_EXACT_DOCUMENT: Final = msgspec.json.Decoder(Document, float_hook=Decimal)
_EXACT_LIST: Final = msgspec.json.Decoder(list[Event], float_hook=Decimal)
_NO_NUMBER: Final = re.compile(rb"(?<=[:\[,\s])-?(?:NaN|Infinity)(?=\s*[,\]}])")


def decoded(content: bytes, place: str) -> Document:
    """A file's content. Raises UserError."""
    try:
        return _decoded(content)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        first = error
    try:
        return _decoded(_NO_NUMBER.sub(b"null", content.decode(errors="replace").encode()))
    except msgspec.ValidationError:
        raise UserError(f"{place}: is no trace of Kineto's ({first}); export it by torch.profiler") from None
    except (msgspec.MsgspecError, RecursionError):
        none = UserError(f"{place}: is no trace of Kineto's ({first}); export it by torch.profiler")
        raise (no_json(content, place) or none) from None


def _decoded(content: bytes) -> Document:
    is_list = content.lstrip()[:1] == b"["
    found = Document(_LIST.decode(content)) if is_list else _DOCUMENT.decode(content)
    if not any(type(each.ts) is float and abs(each.ts) >= _EXACT_US for each in found.traceEvents or ()):
        return found
    return Document(_EXACT_LIST.decode(content)) if is_list else _EXACT_DOCUMENT.decode(content)


def number(value: Any, otherwise: int) -> int:
    """A whole number of 64 bits, whatever it is written as."""
    try:
        found = value if type(value) is int else int(value, 0) if isinstance(value, str) else int(value)
    except (TypeError, ValueError, OverflowError):
        return otherwise
    return found if -_MOST <= found < _MOST else otherwise
