"""The tables of a workload whose ranks take after traced ones.

Rows of a rank are those of its source; what differs (ranks, partners, communicators, sizes, times) is computed for
whole columns. Columns of one value share their memory. O(rows).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import COLLECTIVES, SCHEMAS, PhaseKind, Workload
from manyscale.models.workload.columns import text_array, to_arrow, to_numpy
from manyscale.models.workload.gpu_step_tables import KernelClass
from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.runner.run.extrapolation.roles.families import Families
from manyscale.runner.run.extrapolation.roles.layout import Layout, members_of
from manyscale.runner.run.extrapolation.roles.sizes import (
    SIDES,
    Grown,
    counts,
    even_blocks,
    grown,
    refuse_too_many,
    scaled_sizes,
)
from manyscale.runner.run.extrapolation.roles.sources import PEERS, Sources, new_peers, offsets

_COMMUNICATION: Final = int(GpuOperationKind.communication)
_COMPUTE: Final = (int(PhaseKind.compute), int(PhaseKind.polled_compute))
_PER_RANK: Final = ("steps", "traced_gpus", "dependencies", "iterations")
_OF_THE_MODEL: Final = ("tp", "pp", "ep")  # dimensions that share the model among their ranks
ROW_BYTES: Final = 150  # of all tables for an operation, about
_AT_ONCE: Final = 1 << 20  # rows whose times are computed together


@dataclass(frozen=True)
class Grid:
    """A trace on its ``traced`` layout and what it becomes on ``layout``. ``cpu`` and ``gpu`` float64[new ranks]: what
    the times of each rank's source are multiplied with; ``optimiser`` float64[traced ranks]: those of kernels that
    update parameters, further. ``keeps_time`` bool[families]: whose collectives still take what was traced."""

    workload: Workload
    traced: Layout
    layout: Layout
    families: Families
    sources: Sources
    cpu: np.ndarray
    gpu: np.ndarray
    optimiser: np.ndarray
    keeps_time: np.ndarray

    @property
    def num_ranks(self) -> int:
        return self.layout.num_ranks

    def family_of_row(self) -> np.ndarray:
        """int64[operations of the trace]: -1 for those of no family."""
        return self.families.of_communicator[self.workload.column("operations", "communicator_id")]


def tables(grid: Grid) -> dict[str, pa.Table]:
    """All tables of the new workload."""
    found = {
        "regions": grid.workload.tables["regions"],
        "kernels": _kernels(grid)[0],
        "communicators": _communicators(grid),
        "groups": _groups(grid),
        "trained_models": _trained_models(grid),
        "phases": _phases(grid),
        "gpu_operations": _gpu_operations(grid),
        "operations": _operations(grid),
    }
    for level in _PER_RANK:
        if grid.workload.tables[level].num_rows:
            taken = _Rows.of(grid, level)
            found[level] = _table(level, grid.workload.tables[level], taken, {"rank": taken.rank})
    return found


@dataclass(frozen=True)
class _Rows:
    """The traced rows behind those of a new table, int64[n], and the new ranks of these, int32[n]."""

    row: np.ndarray
    rank: np.ndarray

    @classmethod
    def of(cls, grid: Grid, level: str) -> _Rows:
        bounds = offsets(grid.workload, level)
        starts = bounds[grid.sources.rank]
        lengths = bounds[grid.sources.rank + 1] - starts
        row = np.arange(int(lengths.sum()))
        row += np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
        return cls(row, np.repeat(np.arange(grid.num_ranks, dtype=np.int32), lengths))


def _table(level: str, table: pa.Table, taken: _Rows, replaced: Mapping[str, object]) -> pa.Table:
    columns = []
    constant: dict[tuple[str, int | float], pa.Array] = {}
    for field in SCHEMAS[level]:
        value = replaced.get(field.name)
        if isinstance(value, np.ndarray):
            columns.append(to_arrow(value.astype(field.type.to_pandas_dtype(), copy=False)))
        elif value is not None:
            columns.append(value)
        else:
            columns.append(_taken(table.column(field.name), field.type, taken.row, constant))
    return pa.table(columns, schema=SCHEMAS[level])


def _taken(
    column: pa.ChunkedArray, kind: pa.DataType, rows: np.ndarray, constant: dict[tuple[str, int | float], pa.Array]
) -> pa.Array:
    """The column's values at these rows; those of one value have one array for all such columns."""
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_dictionary(kind)):
        return column.take(to_arrow(rows))
    values = to_numpy(column)
    if pa.types.is_dictionary(kind):
        dictionary = column.chunk(0).dictionary
        return pa.DictionaryArray.from_arrays(to_arrow(values[rows]), dictionary)
    if len(values) and np.all(values == values[0]):
        key = (str(values.dtype), values[0].item())
        if key not in constant:
            constant[key] = to_arrow(np.full(len(rows), values[0]))
        return constant[key]
    return to_arrow(values[rows])


def _kernels(grid: Grid) -> tuple[pa.Table, np.ndarray]:
    """As traced, but what optimisers do in one execution is less where they are sharded; int32[traced ranks, kernels],
    the row of each kernel: where ranks share unlike parts, each part is a kernel of its own."""
    table = grid.workload.tables["kernels"]
    parts, part = np.unique(grid.optimiser, return_inverse=True)
    updates = np.flatnonzero(to_numpy(table.column("kernel_class")) == int(KernelClass.optimiser))
    row = np.tile(np.arange(table.num_rows, dtype=np.int32), (len(parts), 1))
    if not len(updates) or parts[0] == 1.0:
        return table, row[part]
    every, ratio = np.arange(table.num_rows), np.ones(table.num_rows)
    ratio[updates] = parts[0]
    for number in range(1, len(parts)):
        row[number, updates] = len(every) + np.arange(len(updates))
        every, ratio = np.append(every, updates), np.append(ratio, np.full(len(updates), parts[number]))
    table = table.take(every)
    for name in ("flops", "bytes"):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(at), to_arrow(to_numpy(table.column(name)) * ratio))
    return table, row[part]


def _trained_models(grid: Grid) -> pa.Table:
    """More tensor parallel ranks, stages and experts make the model larger, all others what a step learns from."""
    table = grid.workload.tables["trained_models"]
    old = grid.traced.in_order(grid.layout.names)
    larger = more = 1.0
    for name, before, after in zip(old.names, old.sizes, grid.layout.sizes, strict=True):
        if name.lower() in _OF_THE_MODEL:
            larger *= after / before
        else:
            more *= after / before
    for name, ratio in {"parameters": larger, "tokens": more, "flops": larger * more}.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(at), to_arrow(to_numpy(table.column(name)) * ratio))
    return table


def _communicators(grid: Grid) -> pa.Table:
    parts = [family.member_table(grid.layout) for family in grid.families.families]
    lengths = np.concatenate([np.full(len(part), part.shape[1], np.int64) for part in parts])
    bounds = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    members = np.concatenate([part.ravel() for part in parts])
    schema = SCHEMAS["communicators"]
    listed = pa.ListArray.from_arrays(to_arrow(bounds), to_arrow(members), type=schema.field("members").type)
    return pa.table([listed], schema=schema)


def _groups(grid: Grid) -> pa.Table:
    named = [(family, family.count(grid.layout)) for family in grid.families.families if family.group_name]
    numbers = [np.arange(family.first_id, family.first_id + count, dtype=np.int32) for family, count in named]
    names = [family.group_name for family, count in named for _ in range(count)]
    number = np.concatenate(numbers) if numbers else np.empty(0, np.int32)
    return pa.table([to_arrow(number), text_array(names)], schema=SCHEMAS["groups"])


def _phases(grid: Grid) -> pa.Table:
    taken = _Rows.of(grid, "phases")
    duration = grid.workload.column("phases", "duration_ps")
    scales = np.isin(grid.workload.column("phases", "kind"), _COMPUTE)
    made = _scaled(duration, scales, taken, grid.cpu)
    return _table("phases", grid.workload.tables["phases"], taken, {"rank": taken.rank, "duration_ps": made})


def _scaled(duration: np.ndarray, scales: np.ndarray, taken: _Rows, ratio: np.ndarray) -> np.ndarray:
    """int64[n]: durations of the traced rows, times the ratio of the new rank where the row ``scales``."""
    made = duration[taken.row]
    for first in range(0, len(made), _AT_ONCE) if np.any(ratio != 1.0) else ():
        part = slice(first, first + _AT_ONCE)
        factor = np.where(scales[taken.row[part]], ratio[taken.rank[part]], 1.0)
        made[part] = np.where(factor == 1.0, made[part], np.rint(made[part] * factor))
    return made


def _gpu_operations(grid: Grid) -> pa.Table:
    """Times of kernels by the speed of the new rank; those of collectives that do not keep theirs are the model's."""
    workload = grid.workload
    taken = _Rows.of(grid, "gpu_operations")
    kind, kernel, duration, rank, operation = (
        workload.column("gpu_operations", name) for name in ("kind", "kernel_id", "duration_ps", "rank", "operation_id")
    )
    duration = duration.copy()
    if workload.tables["kernels"].num_rows:
        classes = workload.column("kernels", "kernel_class")
        updates = (kernel >= 0) & (duration > 0) & (classes[np.maximum(kernel, 0)] == int(KernelClass.optimiser))
        duration[updates] = np.rint(duration[updates] * grid.optimiser[rank[updates]])
    row = workload.rank_offsets[rank] + operation
    communicates = kind == _COMMUNICATION
    is_collective = np.isin(workload.column("operations", "kind"), COLLECTIVES)[row]
    family = grid.family_of_row()[row]
    duration[communicates & is_collective & ~grid.keeps_time[family]] = -1
    made = _scaled(duration, (duration > 0) & ~communicates, taken, grid.gpu)
    _forget_moved(grid, taken, np.flatnonzero(communicates & ~is_collective), row, made)
    replaced: dict[str, object] = {"rank": taken.rank, "duration_ps": made}
    if workload.tables["kernels"].num_rows and len(np.unique(grid.optimiser)) > 1:
        of_rank = np.where(kernel >= 0, _kernels(grid)[1][rank, np.maximum(kernel, 0)], -1)
        replaced["kernel_id"] = of_rank[taken.row]
    return _table("gpu_operations", workload.tables["gpu_operations"], taken, replaced)


def _forget_moved(grid: Grid, taken: _Rows, messages: np.ndarray, row: np.ndarray, made: np.ndarray) -> None:
    """Times of messages whose ends are not as far apart as in the trace become the model's."""
    peer = grid.workload.column("operations", "peer")
    has_peer = np.zeros(len(row), np.bool_)
    has_peer[messages] = peer[row[messages]] >= 0
    at = np.flatnonzero(has_peer[taken.row])
    if not len(at):
        return
    old = row[taken.row[at]]
    ranks = taken.rank[at].astype(np.int64)
    away = new_peers(grid.workload, grid.traced, grid.layout, old, ranks) - ranks
    was = peer[old].astype(np.int64) - grid.workload.column("operations", "rank")[old]
    made[at[away != was]] = -1


def _operations(grid: Grid) -> pa.Table:
    workload = grid.workload
    taken = _Rows.of(grid, "operations")
    kind, peer, source = (workload.column("operations", name) for name in ("kind", "peer", "source"))
    family = grid.family_of_row()
    before, after = (
        np.array([getattr(each, which) for each in grid.families.families] + [1])[family]
        for which in ("traced_members", "members")
    )
    blocks = np.where(before != after, even_blocks(workload), 0)
    sent, received = scaled_sizes(workload, before, after, blocks)
    replaced: dict[str, object] = {
        "rank": taken.rank,
        "communicator_id": _new_communicators(grid, family, taken),
        "peer": _partners(grid, taken, _roots(grid, kind, peer), np.isin(kind, PEERS) & (peer >= 0)),
        "bytes": sent[taken.row],
        "receive_bytes": received[taken.row],
    }
    if np.any(source >= 0):
        replaced["source"] = _partners(grid, taken, source, source >= 0, "source")
    replaced |= {side: _counts(grid, side, taken, kind, family, blocks > 0) for side in SIDES}
    replaced["completes"] = _lists(workload.tables["operations"].column("completes"), taken.row)
    return _table("operations", workload.tables["operations"], taken, replaced)


def _new_communicators(grid: Grid, family: np.ndarray, taken: _Rows) -> np.ndarray:
    """int32[n]"""
    at = grid.layout.coordinates(np.arange(grid.num_ranks))
    number = np.zeros((grid.num_ranks, len(grid.families.families) + 1), np.int32)
    for index, each in enumerate(grid.families.families):
        number[:, index] = each.first_id + each.number(grid.layout, at)
    return number[taken.rank, family[taken.row]]


def _partners(grid: Grid, taken: _Rows, traced: np.ndarray, is_rank: np.ndarray, column: str = "peer") -> object:
    if not np.any(is_rank) and np.all(traced == traced[:1]):
        return None  # one value for all
    made = traced[taken.row]
    at = np.flatnonzero(is_rank[taken.row])
    ranks = taken.rank[at].astype(np.int64)
    made[at] = new_peers(grid.workload, grid.traced, grid.layout, taken.row[at], ranks, column)
    return made


def _roots(grid: Grid, kind: np.ndarray, peer: np.ndarray) -> np.ndarray:
    """``peer`` with the roots of collectives as they are numbered in the new communicators."""
    rows = np.flatnonzero(np.isin(kind, COLLECTIVES) & (peer >= 0))
    if not len(rows):
        return peer
    found = peer.copy()
    number = grid.workload.column("operations", "communicator_id")
    members = members_of(grid.workload)
    at = grid.layout.coordinates(np.arange(grid.num_ranks))
    for communicator, root in np.unique(np.column_stack((number[rows], peer[rows])), axis=0):
        family = grid.families.families[grid.families.of_communicator[communicator]]
        rank = _stands_at(grid, int(members[communicator][root]))
        group = family.member_table(grid.layout)[family.number(grid.layout, at[rank : rank + 1])[0]]
        found[rows[(number[rows] == communicator) & (peer[rows] == root)]] = np.searchsorted(group, rank)
    return found


def _stands_at(grid: Grid, traced_rank: int) -> int:
    """The first new rank at the place of a traced one."""
    return int(np.argmax(grid.sources.place == traced_rank))


def _lists(column: pa.ChunkedArray, rows: np.ndarray) -> pa.Array:
    """A list column's rows; without values no memory but for its bounds."""
    if any(len(chunk.flatten()) for chunk in column.chunks):
        return column.take(to_arrow(rows)).combine_chunks()
    return _empty_lists(len(rows), column.type)


def _empty_lists(count: int, kind: pa.DataType) -> pa.Array:
    values = to_arrow(np.empty(0, kind.value_type.to_pandas_dtype()))
    return pa.ListArray.from_arrays(to_arrow(np.zeros(count + 1, np.int32)), values, type=kind)


def _counts(grid: Grid, side: str, taken: _Rows, kind: np.ndarray, family: np.ndarray, is_even: np.ndarray) -> pa.Array:
    """Sizes for each member, of the operations that name them and need to (not ``is_even``)."""
    workload = grid.workload
    bounds, values = workload.lists("operations", side)
    field = SCHEMAS["operations"].field(side)
    if not len(values):
        return _empty_lists(len(taken.row), field.type)
    members = np.array([each.members for each in grid.families.families] + [0])
    names = (np.diff(bounds) > 0) & ~is_even
    length = np.where(names, members[family], 0)
    lengths = length[taken.row]
    refuse_too_many(int(lengths.sum()), grid.num_ranks)
    at = np.concatenate(([0], np.cumsum(lengths)))
    filled = np.empty(int(at[-1]), np.int64)
    first_row = np.searchsorted(taken.rank, np.arange(grid.num_ranks))
    described = np.column_stack((workload.column("operations", "rank"), kind, family))[names]
    named = np.flatnonzero(names)
    tables = [each.member_table(grid.layout) for each in grid.families.families]
    groups = _Groups(grid, tables, members_of(workload), {})
    bounds_of = np.searchsorted(described[:, 0], np.arange(workload.num_ranks + 1))
    for rank, source in enumerate(grid.sources.rank.tolist()):
        mine = named[bounds_of[source] : bounds_of[source + 1]]
        for this, index in np.unique(np.column_stack((kind[mine], family[mine])), axis=0).tolist():
            rows = mine[(kind[mine] == this) & (family[mine] == index)]
            group, member = groups.of(index, rank)
            traced = values[bounds[rows][:, None] + np.arange(len(group.ranks))]
            where = at[first_row[rank] + rows - workload.rank_offsets[source]]
            filled[where[:, None] + np.arange(members[index])] = counts(this, side, traced, group, member)
    return pa.ListArray.from_arrays(to_arrow(at.astype(np.int32)), to_arrow(filled), type=field.type)


@dataclass(frozen=True)
class _Groups:
    """How communicators grew: ``members`` int32[communicators, members] per family, ``traced`` int32[members] per
    traced communicator, ``known`` what was asked for."""

    grid: Grid
    members: list[np.ndarray]
    traced: list[np.ndarray]
    known: dict[tuple[int, int], Grown]

    def of(self, index: int, rank: int) -> tuple[Grown, int]:
        """The communicator of a family that a new rank is in, and which of its members the rank is."""
        grid = self.grid
        at = grid.layout.coordinates(np.array([rank]))
        number = int(grid.families.families[index].number(grid.layout, at)[0])
        members = self.members[index][number]
        if (index, number) not in self.known:
            places = grid.sources.place[members]
            numbers = np.flatnonzero(grid.families.of_communicator == index).tolist()
            ranks = next(self.traced[one] for one in numbers if places[0] in self.traced[one])
            self.known[index, number] = grown(ranks.astype(np.int64), places)
        return self.known[index, number], int(np.searchsorted(members, rank))
