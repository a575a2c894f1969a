"""Sampling units of a run whose call stacks were taken: SimProf's population (Huang, Georgia Tech 2015, 5.3.1).

What kind of operation a stack is in, map, reduce, sort or input and output: section 5.4.3 calls phases of key-value
programs by their dominant operation and does not say how it is found. Here a stack is in the operation of its innermost
method whose name tells one, because operations call each other (a map task that sorts its output is sorting), and a
phase is of the kind that most of its snapshots are in. Names are those of Java's collections, Hadoop and Spark, and of
C's and C++'s libraries; others come as patterns of the user.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.kernels import njit
from manyscale.models.workload import Workload
from manyscale.models.workload.columns import one_chunk, to_numpy

OTHER: Final = "other"
KNOWN: Final = {  # in the order in which a name that fits several is taken
    "io": (
        r"(File|Object|Data|Zip|GZIP|Socket|Print|DFS)\w*(In|Out)put\w*Stream|(In|De)flater(\w*Stream)?\.|FileChannel"
        r"|(Line|Record|Disk\w*)(Reader|Writer)\b|Serializ\w+|SerializerInstance|java\.nio\.file\.Files"
        r"|^_*(f?(read|write)v?|f?(gets|puts|flush)|getc|putc|pread(64)?|pwrite(64)?|open(64)?|close)(@.*)?$"
        r"|^_IO_\w+|std::\w*[io]stream|num_(get|put)<"
    ),
    "reduce": r"[rR]educ(e|er|ing)\w*|[cC]ombin(e|er)\w*|[aA]ggregat|hashAgg|[gG]roupBy|mergeValue|FastHashMap",
    "sort": r"[sS]ort(?!Based|ShuffleWriter|\.\w)|merge(At|Lo|Hi|Collapse)$",
    "map": (
        r"(^|[.:$])(map|flatMap|mapPartitions\w*|tokenize|processNext|project_\w+)(\$\w*)?$|Mapper\b"
        r"|MapPartitionsRDD\.compute|UTF8String\.split"
    ),
}


def kinds_of(methods: Sequence[str], own: Mapping[str, str] | None = None) -> tuple[tuple[str, ...], np.ndarray]:
    """The kinds' names, the last of which is OTHER, and int64[methods]: the kind that a name tells, or -1. ``own``:
    regular expressions by kind that are tried before those that are known. O(methods)."""
    patterns = [(kind, re.compile(text)) for kind, text in [*(own or {}).items(), *KNOWN.items()]]
    kinds = list(dict.fromkeys(kind for kind, _ in patterns if kind != OTHER))
    found = np.full(len(methods), -1)
    for at, name in enumerate(methods):
        for kind, pattern in patterns:
            if pattern.search(name.split("(")[0]):
                found[at] = kinds.index(kind) if kind != OTHER else len(kinds)
                break
    return (*kinds, OTHER), found


@dataclass(frozen=True)
class StackPopulation:
    """``row`` int64[n], of the table ``stack_units``; ``vectors`` float64[n, methods]: the share of a unit's snapshots
    that a method is on the stack of; ``methods``, their names; ``snapshots`` float64[n]; ``cpi`` float64[n], or None
    where cycles or instructions were not measured of all units; ``instructions`` float64[n], 0 where not counted.
    ``depth`` float64[methods]: mean place of a method on stacks, from 0 for the outermost. ``operations`` float64[n,
    ``kinds``]: share of a unit's snapshots that are in each kind of operation. ``counters`` float64[n] by name: what
    else was counted, NaN where it was not."""

    row: np.ndarray
    vectors: np.ndarray
    methods: list[str]
    snapshots: np.ndarray
    cpi: np.ndarray | None
    instructions: np.ndarray = field(default_factory=lambda: np.zeros(0))
    depth: np.ndarray = field(default_factory=lambda: np.zeros(0))
    kinds: tuple[str, ...] = ()
    operations: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    counters: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.row)

    def by_methods_of(self, other: StackPopulation) -> np.ndarray:
        """float64[n, methods of the other]: vectors in the columns of another run of the program; methods that are not
        seen here are 0, those that the other does not have are left out."""
        column = {name: at for at, name in enumerate(self.methods)}
        found = np.zeros((len(self), len(other.methods)))
        for at, name in enumerate(other.methods):
            if name in column:
                found[:, at] = self.vectors[:, column[name]]
        return found


def stack_units_of(workload: Workload, operations: Mapping[str, str] | None = None) -> StackPopulation:
    """Units with snapshots; those without are left out, nothing being known of them. ``operations``: patterns of names
    by kind. Raises ValueError if there are no units. O(frames of all snapshots)."""
    units, samples = workload.tables["stack_units"], workload.tables["stack_samples"]
    if not samples.num_rows:
        raise ValueError("has no call stacks of sampling units; record them with manyscale trace --level stacks")
    key = _key(units)
    at = np.searchsorted(key, _key(samples)).astype(np.int64)
    frames = one_chunk(workload.tables["stacks"].column("frames"))
    begin = to_numpy(frames.offsets).astype(np.int64)
    frame = to_numpy(frames.values).astype(np.int64)
    methods = workload.tables["frames"].column("name").to_pylist()
    kinds, kind_of_method = kinds_of(methods, operations)
    stack = to_numpy(samples.column("stack_id")).astype(np.int64)
    weight = to_numpy(samples.column("weight")).astype(np.float64)
    vectors, snapshots, depth = _shares(at, stack, weight, begin, frame, units.num_rows, len(methods))
    kind = _innermost(begin, frame, kind_of_method)[stack]
    kind[kind < 0] = len(kinds) - 1
    in_kind = np.bincount(at * len(kinds) + kind, weight, units.num_rows * len(kinds)).reshape(-1, len(kinds))
    row = np.flatnonzero(snapshots > 0)
    counters = {name: values[row] for name, values in _counters(workload, key).items()}
    cycles = counters.pop("cycles", None)
    instructions = np.maximum(to_numpy(units.column("num_instructions")).astype(np.float64), 0.0)[row]
    cpi = None
    if cycles is not None and np.all(instructions > 0) and not np.any(np.isnan(cycles)):
        cpi = cycles / instructions
    return StackPopulation(
        row, vectors[row], methods, snapshots[row], cpi, instructions, depth, kinds,
        in_kind[row] / snapshots[row, None], counters,
    )  # fmt: skip


def _key(table: pa.Table) -> np.ndarray:
    """int64[rows]: ascending with (rank, thread, unit)."""
    rank, thread, unit = (to_numpy(table.column(name)).astype(np.int64) for name in ("rank", "thread", "unit_id"))
    return np.asarray((rank << 16 | thread) << 31 | unit)


def _counters(workload: Workload, key: np.ndarray) -> dict[str, np.ndarray]:
    """float64[units] by name, NaN where not measured."""
    table = workload.tables["unit_counters"]
    if not table.num_rows:
        return {}
    named = one_chunk(table.column("counter"))
    code, place = to_numpy(named.indices), np.searchsorted(key, _key(table))
    value, found = to_numpy(table.column("value")), {}
    for number, name in enumerate(named.dictionary.to_pylist()):
        mine = code == number
        found[name] = np.full(len(key), np.nan)
        found[name][place[mine]] = value[mine]
    return found


@njit(cache=True, nogil=True)
def _shares(unit, stack, weight, begin, frame, num_units, num_methods):  # type: ignore[no-untyped-def]
    found = np.zeros((num_units, num_methods))
    total = np.zeros(num_units)
    places = np.zeros(num_methods)
    seen_weight = np.zeros(num_methods)
    seen = np.full(num_methods, -1, np.int64)
    for i in range(unit.shape[0]):
        total[unit[i]] += weight[i]
        for at in range(begin[stack[i]], begin[stack[i] + 1]):
            if seen[frame[at]] != i:  # once for each snapshot, however often it recurs
                seen[frame[at]] = i
                found[unit[i], frame[at]] += weight[i]
                places[frame[at]] += weight[i] * (at - begin[stack[i]])
                seen_weight[frame[at]] += weight[i]
    for row in range(num_units):
        if total[row] > 0:
            found[row] /= total[row]
    return found, total, places / np.maximum(seen_weight, 1e-300)


@njit(cache=True, nogil=True)
def _innermost(begin, frame, kind):  # type: ignore[no-untyped-def]
    """int64[stacks]: the kind of the innermost frame that has one, or -1."""
    found = np.full(begin.shape[0] - 1, -1, np.int64)
    for stack in range(found.shape[0]):
        for at in range(begin[stack + 1] - 1, begin[stack] - 1, -1):
            if kind[frame[at]] >= 0:
                found[stack] = kind[frame[at]]
                break
    return found
