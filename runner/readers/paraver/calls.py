"""MPI calls of Paraver traces: Extrae's numbers and what they are as operations.

Source: Extrae (src/merger/paraver/MPI_EventEncoding.h, the values of MPIVal). The names of a trace's own .pcf go first:
other tools number differently.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.workload import OperationKind
from manyscale.runner.readers.paraver.label_files import Labels
from manyscale.runner.readers.paraver.labels import CALLS
from manyscale.runner.readers.paraver.records import END

FIRST_EVENT_TYPE: Final = 50000000  # plus the group of a call: its event type

# calls that differ from an operation of ours in nothing that a replay could see
_LIKE: Final = {
    "rsend": "send", "irsend": "isend", "sendrecv_replace": "sendrecv", "waitsome": "waitall", "testall": "test",
    "testany": "test", "testsome": "test", "init_thread": "init", "reduce_scatter_block": "reduce_scatter",
    "ireduce_scatter_block": "ireduce_scatter", "alltoallw": "alltoallv", "ialltoallw": "ialltoallv",
}  # fmt: skip
_OTHER_NUMBERS: Final = {
    19: "comm_rank", 20: "comm_size", 21: "comm_create", 22: "comm_dup", 23: "comm_split", 25: "comm_free",
    35: "rsend", 38: "irsend", 40: "cancel", 42: "sendrecv_replace", 43: "cart_create", 60: "waitsome", 61: "probe",
    62: "iprobe", 65: "put", 66: "get", 67: "accumulate", 68: "win_fence", 115: "request_free", 123: "start",
    124: "startall", 125: "testall", 126: "testany", 128: "testsome", 168: "reduce_scatter_block",
    169: "ireduce_scatter_block", 170: "alltoallw", 171: "ialltoallw",
}  # fmt: skip
_NUMBERS: Final = {value: kind.name for kind, (_, value) in CALLS.items() if kind != OperationKind.other}
_NAMES: Final = _OTHER_NUMBERS | _NUMBERS
_KINDS: Final = {kind.name: kind for kind in OperationKind if kind != OperationKind.other}


@dataclass(frozen=True)
class Calls:
    """Per call: int8 ``kind`` (OperationKind; ``other`` where there is none) and ``completes_some``, whether it is a
    call that completes some requests, not all or one. ``others``: how many calls of each name became ``other``."""

    kind: np.ndarray
    completes_some: np.ndarray
    others: dict[str, int]


def name_calls(group: np.ndarray, value: np.ndarray, labels: Labels) -> Calls:
    """Kinds of calls by their group and number. O(calls log calls)."""
    keys, inverse, counts = np.unique((group.astype(np.int64) << 32) | value, return_inverse=True, return_counts=True)
    kinds = np.full(len(keys), OperationKind.other, np.int8)
    some = np.zeros(len(keys), np.bool_)
    others: dict[str, int] = {}
    for index, key in enumerate(keys.tolist()):
        of_group, number = key >> 32, key & 0xFFFFFFFF
        if of_group == END or number == 0:
            continue
        name = _call_name(of_group, number, labels)
        some[index] = name in ("waitsome", "testsome")
        kind = _KINDS.get(_LIKE.get(name, name))
        if kind is None:
            others[name] = others.get(name, 0) + int(counts[index])
        else:
            kinds[index] = kind
    return Calls(kinds[inverse], some[inverse], others)


def _call_name(group: int, number: int, labels: Labels) -> str:
    """Lower-case name of a call without ``MPI_``."""
    label = labels.value(FIRST_EVENT_TYPE + group, number)
    if label is not None and label.startswith("MPI_"):
        return label.removeprefix("MPI_").lower()
    return _NAMES.get(number, f"call {number}")
