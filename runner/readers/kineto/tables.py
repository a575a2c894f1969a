"""Rows of ranks as the tables of a workload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import (
    COMMUNICATORS_SCHEMA,
    KIND_NAMES,
    NO_RANK,
    NO_REQUEST,
    OPERATIONS_SCHEMA,
    PHASES_SCHEMA,
    REGIONS_SCHEMA,
    OperationKind,
    PhaseKind,
)
from manyscale.models.workload.columns import text_array, to_arrow
from manyscale.models.workload.gpu_step_tables import (
    GROUPS_SCHEMA,
    MEASURED_STEPS_SCHEMA,
    STEPS_SCHEMA,
    TRACED_GPUS_SCHEMA,
)
from manyscale.models.workload.gpu_tables import GPU_OPERATIONS_SCHEMA
from manyscale.runner.readers.kineto.given import Rows
from manyscale.runner.readers.kineto.said import Said

_K: Final = OperationKind


@dataclass(frozen=True)
class RankRows:
    """A rank: its ``rows`` in order, threads numbered from 0; the kernel of each (-1: none); what rows communicate;
    ``begin`` of its records; rows of steps as (step, first, last); ``took``: begin and end of each
    step by its number; ``gpus`` by device."""

    rows: Rows
    kernel: np.ndarray
    said: dict[int, Said]
    begin: int
    steps: tuple[tuple[int, int, int], ...]
    took: dict[int, tuple[int, int]]
    gpus: dict[int, str]


def tables_of(
    ranks: Sequence[RankRows], communicators: Sequence[Sequence[int]], names: Sequence[str]
) -> dict[str, pa.Table]:
    """All tables but ``kernels``. ``communicators`` behind the world, with their names."""
    members = [list(range(len(ranks))), *map(list, communicators)]
    groups = np.arange(1, len(members), dtype=np.int32)
    return {
        "operations": _operations(ranks),
        "phases": _phases(ranks),
        "regions": pa.Table.from_arrays([text_array([])], schema=REGIONS_SCHEMA),
        "communicators": pa.Table.from_arrays([_lists(members, np.int32)], schema=COMMUNICATORS_SCHEMA),
        "gpu_operations": _gpu_operations(ranks),
        "groups": pa.Table.from_arrays([to_arrow(groups), text_array(list(names))], schema=GROUPS_SCHEMA),
        "steps": _table(STEPS_SCHEMA, [
            [rank, *step] for rank, each in enumerate(ranks) for step in sorted(each.steps)]),
        "measured_steps": _table(MEASURED_STEPS_SCHEMA, [
            [rank, step, *each.took[step]] for rank, each in enumerate(ranks) for step in sorted(each.took)]),
        "traced_gpus": _gpus(ranks),
    }  # fmt: skip


def _table(schema: pa.Schema, rows: Sequence[Sequence[int]]) -> pa.Table:
    values = np.array(rows, np.int64).reshape(-1, len(schema))
    return pa.Table.from_arrays(
        [to_arrow(column.astype(field.type.to_pandas_dtype())) for column, field in zip(values.T, schema, strict=True)],
        schema=schema,
    )


def _gpus(ranks: Sequence[RankRows]) -> pa.Table:
    found = [(rank, device, name) for rank, each in enumerate(ranks) for device, name in sorted(each.gpus.items())]
    numbers = np.array([each[:2] for each in found], np.int32).reshape(-1, 2)
    return pa.Table.from_arrays(
        [to_arrow(numbers[:, 0]), to_arrow(numbers[:, 1]), text_array([name for *_, name in found])],
        schema=TRACED_GPUS_SCHEMA,
    )


def _lists(values: Sequence[Sequence[int] | None], dtype: type) -> pa.Array:
    """An array of lists; None is null."""
    offsets = np.cumsum([0, *(0 if each is None else len(each) for each in values)]).astype(np.int32)
    flat: np.ndarray = np.array([number for each in values if each is not None for number in each], dtype)
    missing = np.array([each is None for each in values], np.bool_)
    found = pa.ListArray.from_arrays(to_arrow(offsets), to_arrow(flat))
    if not missing.any():
        return found
    valid = pa.py_buffer(np.packbits(~missing, bitorder="little"))
    return pa.Array.from_buffers(
        found.type,
        len(values),
        [valid, pa.py_buffer(offsets)],
        children=[to_arrow(flat)],
        null_count=int(missing.sum()),
    )


def _operations(ranks: Sequence[RankRows]) -> pa.Table:
    sizes = [len(each.rows) for each in ranks]
    count = sum(sizes)
    rank = np.repeat(np.arange(len(ranks), dtype=np.int32), sizes)
    kind, peer = np.full(count, _K.other, np.int8), np.full(count, NO_RANK, np.int32)
    size, received = np.zeros(count, np.int64), np.zeros(count, np.int64)
    communicator, request = np.zeros(count, np.int32), np.full(count, NO_REQUEST, np.int32)
    completes: dict[int, tuple[int, ...]] = {}
    counts: tuple[dict[int, tuple[int, ...]], dict[int, tuple[int, ...]]] = {}, {}
    for first, each in zip(np.cumsum([0, *sizes]).tolist(), ranks, strict=False):
        for row, said in each.said.items():
            at = first + row
            kind[at], peer[at], size[at], received[at] = said.kind, said.peer, said.bytes, said.receive_bytes
            communicator[at], request[at] = said.communicator, said.request
            if said.completes != NO_REQUEST:
                completes[at] = (said.completes,)
            for lists, own in zip(counts, (said.send_counts, said.receive_counts), strict=True):
                if own is not None:
                    lists[at] = own
    columns = [
        to_arrow(rank),
        pa.DictionaryArray.from_arrays(to_arrow(kind), KIND_NAMES),
        to_arrow(peer),
        to_arrow(np.full(count, NO_RANK, np.int32)),
        to_arrow(np.zeros(count, np.int32)),
        to_arrow(size),
        to_arrow(received),
        to_arrow(communicator),
        to_arrow(request),
        _sparse(count, completes, "completes"),
        *(_sparse(count, lists, name) for lists, name in zip(counts, ("send_counts", "receive_counts"), strict=True)),
    ]
    return pa.Table.from_arrays(columns, schema=OPERATIONS_SCHEMA)


def _sparse(count: int, lists: dict[int, tuple[int, ...]], name: str) -> pa.Array:
    """A column of lists that a few rows have; null elsewhere."""
    kind = OPERATIONS_SCHEMA.field(name).type
    if not lists:
        return pa.nulls(count, kind)
    sizes = np.zeros(count + 1, np.int32)
    sizes[[at + 1 for at in lists]] = [len(each) for each in lists.values()]
    flat = np.array([number for at in sorted(lists) for number in lists[at]], kind.value_type.to_pandas_dtype())
    has = np.zeros(count, np.bool_)
    has[list(lists)] = True
    valid = pa.py_buffer(np.packbits(has, bitorder="little"))
    offsets = pa.py_buffer(np.cumsum(sizes).astype(np.int32))
    return pa.Array.from_buffers(kind, count, [valid, offsets], children=[to_arrow(flat)], null_count=int((~has).sum()))


def _phases(ranks: Sequence[RankRows]) -> pa.Table:
    """CPU time of the row's thread before each row, and before the first of a thread, how much later than the first
    rank its rank begins (a sleep)."""
    earliest = min(each.begin for each in ranks)
    parts = []
    for rank, each in enumerate(ranks):
        rows = each.rows
        length, starts = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
        for thread in np.unique(rows.thread).tolist():
            mine = np.flatnonzero(rows.thread == thread)
            reached = np.maximum.accumulate(np.maximum(rows.until[mine], each.begin))
            before = np.concatenate(([each.begin], reached[:-1]))
            length[mine] = np.maximum(np.maximum(rows.at[mine], before) - before, 0)
            if rows.at[mine[0]] >= each.begin:  # it does not wait for another thread first
                starts[mine[0]] = each.begin - earliest
        row = np.concatenate((np.flatnonzero(starts > 0), np.flatnonzero(length > 0)))
        kind = np.where(np.arange(len(row)) < np.count_nonzero(starts > 0), PhaseKind.sleep, PhaseKind.compute)
        took = np.concatenate((starts[starts > 0], length[length > 0]))
        sort = np.lexsort((np.arange(len(row)), row))
        parts.append(np.vstack((np.full(len(row), rank), row[sort], kind[sort], np.full(len(row), -1), took[sort])))
    values = np.hstack(parts)
    return pa.Table.from_arrays(
        [
            to_arrow(column.astype(field.type.to_pandas_dtype()))
            for column, field in zip(values, PHASES_SCHEMA, strict=True)
        ],
        schema=PHASES_SCHEMA,
    )


def _gpu_operations(ranks: Sequence[RankRows]) -> pa.Table:
    parts = []
    for rank, each in enumerate(ranks):
        rows = each.rows
        mine = np.flatnonzero(rows.kind >= 0)
        duration = rows.duration.copy()
        for row, said in each.said.items():
            duration[row] = said.duration_ps  # of rows that give a GPU nothing it is not read
        nothing = np.zeros(len(mine), np.int64)
        parts.append(np.vstack((
            np.full(len(mine), rank), mine, rows.kind[mine], rows.stream[mine], nothing, rows.bytes[mine],
            rows.event[mine], rows.device[mine], nothing - 1, nothing, rows.flags[mine], rows.thread[mine],
            each.kernel[mine], duration[mine])))  # fmt: skip
    values = np.hstack(parts)
    return pa.Table.from_arrays(
        [to_arrow(column.astype(field.type.to_pandas_dtype()))
         for column, field in zip(values, GPU_OPERATIONS_SCHEMA, strict=True)],
        schema=GPU_OPERATIONS_SCHEMA,
    )  # fmt: skip
