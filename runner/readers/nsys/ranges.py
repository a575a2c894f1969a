"""What ranges of NVTX tell: steps of a program, and collectives of NCCL with their sizes.

NCCL marks each call of its interface by a range of its name (``ncclAllReduce``). What was sent stands in the range's
payload, which exports write as JSON, or, where NCCL was changed to say it (ATLAHS, github.com/spcl/atlahs), in its
text: ``ncclAllReduce(): commHash 0x1, stream 0x2, data_size 8388608, type_size 4, ...``.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from manyscale.runner.readers.kineto.events import Args

_STEP: Final = re.compile(r"(?:profiler_?step|step|iter(?:ation)?)[\s_#:=-]*(\d+)$", re.IGNORECASE)
_CALL: Final = re.compile(r"nccl(AllReduce|AllGather|ReduceScatter|Broadcast|Bcast|Reduce|AllToAll|Send|Recv)\b")
_GROUP: Final = re.compile(r"ncclGroup(Start|End)\b")
_NAMES: Final = {"bcast": "broadcast"}
# NCCL tells of a reduce-scatter what a GPU receives (recvcount), of others what it sends (collectives.cc); of an
# all-to-all the part of one peer
_RECEIVED: Final = ("reducescatter",)
_UNSIZED: Final = ("alltoall",)
_TYPES: Final = {1: "char", 2: "half", 4: "float", 8: "double"}
_WORD: Final = re.compile(r"(\w+) (0x[0-9a-fA-F]{1,30}|\d{1,30})\b", re.ASCII)
_SIZES: Final = ("data_size", "message size [bytes]", "message size", "bytes", "size")  # of payloads, in lower case
_GROUPS: Final = ("commhash", "nccl communicator id", "comm", "communicator")
_ROOTS: Final = ("root", "root rank")
_PEERS: Final = ("receiver_rank", "sender_rank", "peer rank", "peer")


@dataclass(frozen=True)
class Range:
    """``begin`` and ``end`` in ns; ``payload``: JSON as text, or None."""

    begin: int
    end: int
    text: str
    payload: Any


def step_of(text: str) -> int | None:
    """The number of a step, of a range that is one by its name: ``step 5``, ``iteration_12``, ``ProfilerStep#3``."""
    found = _STEP.match(text.strip())
    return int(found[1]) if found else None


def is_of_nccl(text: str) -> bool:
    """Whether a range is, by its name, one of NCCL's calls that communicate, or begins or ends a group of them."""
    return _CALL.match(text) is not None or _GROUP.match(text) is not None


def group_call(text: str) -> str | None:
    """``Start`` or ``End`` of a range that begins or ends a group of calls."""
    found = _GROUP.match(text)
    return found[1] if found else None


def collective_args(each: Range) -> Args | None:
    """What a range of NCCL's tells of its collective, as Kineto's arguments of a kernel; None for other ranges."""
    call = _CALL.match(each.text)
    if call is None:
        return None
    told = {name.lower(): value for name, value in _WORD.findall(each.text)}
    told |= _payload(each.payload)
    name = call[1].lower()
    size = _number(_first(told, _SIZES))
    width = _number(told.get("type_size")) or 1
    args = Args(collective=_NAMES.get(name, name), group=_text(_first(told, _GROUPS)))
    if size is not None and name not in _UNSIZED:
        width = width if width in _TYPES and size % width == 0 else 1
        args.element_type = _TYPES[width]
        setattr(args, "out_elements" if name in _RECEIVED else "in_elements", size // width)
    root = _number(_first(told, _ROOTS))
    if root is not None and name in ("broadcast", "bcast", "reduce"):
        args.place = root
    peer = _number(_first(told, _PEERS))
    if peer is not None and name in ("send", "recv"):
        args.place = peer  # NCCL's ranks are places in their communicators
    return args


def _payload(payload: Any) -> dict[str, Any]:
    """Numbers of a payload, whatever they are nested in, by their names in lower case."""
    if not isinstance(payload, str):
        return {}
    try:
        content = json.loads(payload)
    except (ValueError, RecursionError):
        return {}
    found: dict[str, Any] = {}
    waiting = [content]
    while waiting:
        one = waiting.pop()
        for name, value in one.items() if isinstance(one, dict) else ():
            if isinstance(value, dict):
                waiting.append(value)
            elif isinstance(value, int | str) and re.fullmatch(r"(0x)?[0-9a-fA-F]{1,30}", str(value)):
                found[str(name).lower()] = value
    return found


def _first(told: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((told[name] for name in names if name in told), None)


def _number(value: Any) -> int | None:
    """Of what a text or payload holds, in either base; None for what is no number."""
    text = str(value)
    if text.isascii() and text.isdigit():
        return int(text)
    return int(text, 16) if text.startswith("0x") else None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
