"""The lines of a text workload: a head, the number of layers, and a line of twelve words for each.

    POLICY model_parallel_NPU_group: 8 ep: 1 pp: 1 vpp: 8 ga: 1 all_gpus: 8 checkpoints: 0 checkpoint_initiates: 0
    2
    NAME -1 FORWARD_ns COLLECTIVE BYTES INPUT_GRADIENT_ns COLLECTIVE BYTES WEIGHT_GRADIENT_ns COLLECTIVE BYTES UPDATE

A collective is ALLREDUCE, ALLGATHER, REDUCESCATTER, ALLTOALL, BROADCAST or NONE; ``_EP`` and ``_DP_EP`` behind it name
groups (aliyun/SimAI, astra-sim/workload/Workload.cc: initialize_workload).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from manyscale.models.workload import OperationKind
from manyscale.models.workload.quantities import MOST_PS
from manyscale.runner.errors import UserError
from manyscale.runner.readers.archive import guarded, open_stream
from manyscale.runner.readers.bounds import whole

_K: Final = OperationKind
_KINDS: Final = {
    "ALLREDUCE": _K.allreduce, "ALLGATHER": _K.allgather, "REDUCESCATTER": _K.reduce_scatter, "ALLTOALL": _K.alltoall,
    "BROADCAST": _K.bcast,
}  # fmt: skip
_GROUPS: Final = {"": "", "EP": "ep", "DP_EP": "dp_ep"}
_COLUMNS: Final = 12
_MOST_NS: Final = MOST_PS // 1000
_MOST_LAYERS: Final = 1 << 22
_OF_ROWS: Final = ("vpp", "ga")  # layers of a stage, and micro batches: the rows are all of these, one by one
_SIZES: Final = {"model_parallel_NPU_group": "tp", "ep": "ep", "pp": "pp", "all_gpus": "gpus", "pp_comm": "pp_bytes"}


@dataclass(frozen=True)
class Pass:
    """``ns`` of computing, then a collective (None: none) of ``bytes``, in the group that it names ("": the usual)."""

    ns: int
    kind: OperationKind | None
    group: str
    bytes: int


@dataclass(frozen=True)
class Layer:
    """``update_ns``: what each collective takes behind its messages."""

    name: str
    forward: Pass
    input_gradient: Pass
    weight_gradient: Pass
    update_ns: int


@dataclass
class Text:
    """What a file says. ``sizes`` of tp, ep, pp, gpus (0: it does not say), and of a message between stages.
    ``unknown``: words of the head that say nothing here. ``checkpoints`` and ``initiates``: layers from which, and
    before which, forward passes are done anew."""

    policy: str
    layers: list[Layer] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    checkpoints: tuple[int, ...] = ()
    initiates: tuple[int, ...] = ()
    unknown: list[str] = field(default_factory=list)


def read_text(path: Path) -> Text:
    """Raises UserError with file and line."""
    with guarded(path), open_stream(path) as stream:
        lines = stream.read().decode(errors="replace").splitlines()
    words = lines[0].split() if lines else []
    if len(lines) < 2 or not words:
        raise UserError(f"{path}:1: a policy of parallelism, and the number of layers, are expected; copy it again")
    found = Text(words[0])
    _head(found, words[1:], f"{path}:1")
    count = whole(lines[1], f"{path}:2", "the number of layers", 1, _MOST_LAYERS)
    rows = [(number, line.split()) for number, line in enumerate(lines[2:], 3) if line.strip()]
    if len(rows) != count:
        raise UserError(f"{path}:2: {count} layers are told, and {len(rows)} lines of layers follow; copy it again")
    found.layers = [_layer(row, f"{path}:{number}") for number, row in rows]
    return found


def _head(found: Text, words: Sequence[str], place: str) -> None:
    at = 0
    while at < len(words):
        name = words[at].rstrip(":")
        if name in _SIZES and at + 1 < len(words):
            found.sizes[_SIZES[name]] = whole(words[at + 1], place, name)
            at += 2
        elif name in ("checkpoints", "checkpoint_initiates") and at + 1 < len(words):
            count = whole(words[at + 1], place, name, 0, len(words))
            listed = tuple(whole(word, place, f"a layer of {name}") for word in words[at + 2 : at + 2 + count])
            if name == "checkpoints":
                found.checkpoints = listed
            else:
                found.initiates = listed
            at += 2 + count
        elif name in _OF_ROWS and at + 1 < len(words):
            at += 2
        else:
            found.unknown.append(words[at])
            at += 1


def _layer(row: Sequence[str], place: str) -> Layer:
    if len(row) != _COLUMNS:
        raise UserError(f"{place}: {len(row)} words, where a layer has {_COLUMNS}; mend the line")
    whole(row[1], place, "the dependency", -1)
    forward, inputs, weights = (_pass(row[at : at + 3], place) for at in (2, 5, 8))
    return Layer(row[0], forward, inputs, weights, whole(row[11], place, "the time of the update", 0, _MOST_NS))


def _pass(words: Sequence[str], place: str) -> Pass:
    took = whole(words[0], place, "a time in ns", 0, _MOST_NS)
    size = whole(words[2], place, "the bytes of a collective")
    if words[1] == "NONE":
        return Pass(took, None, "", 0)
    name, _, group = words[1].partition("_")
    if name not in _KINDS or group not in _GROUPS:
        known = ", ".join((*_KINDS, "NONE"))
        raise UserError(f"{place}: {words[1]!r} is no collective that can be replayed: {known}, with _EP or _DP_EP")
    return Pass(took, _KINDS[name], _GROUPS[group], size)
