"""The tables of a workload whose ranks give work to streams of their GPUs, from one array of rows per rank.

A row is an operation of the workload: what a thread of the rank does, or gives a stream, in the order of time.
"""

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
from manyscale.models.workload.gpu_step_tables import GROUPS_SCHEMA, KERNELS_SCHEMA, MEASURED_STEPS_SCHEMA, STEPS_SCHEMA
from manyscale.models.workload.gpu_tables import GPU_OPERATIONS_SCHEMA

NO_GPU: Final = -1  # gpu_kind of what is the host's own
# ``kind``: OperationKind; ``gpu_kind``: GpuOperationKind, or NO_GPU. ``bytes``, ``receive_bytes``, ``communicator``,
# ``peer``, ``tag`` and ``request`` as OPERATIONS_SCHEMA has them, ``completes`` the one request that a row waits for;
# ``gpu_bytes`` and the rest as GPU_OPERATIONS_SCHEMA has them.
ROW: Final = np.dtype(
    [
        ("kind", np.int8), ("gpu_kind", np.int8), ("bytes", np.int64), ("receive_bytes", np.int64),
        ("communicator", np.int32), ("peer", np.int32), ("tag", np.int32), ("request", np.int32),
        ("completes", np.int32), ("thread", np.int32), ("stream", np.int64), ("event", np.int32), ("device", np.int32),
        ("other_device", np.int32), ("kernel", np.int32), ("gpu_bytes", np.int64), ("duration_ps", np.int64),
        ("flags", np.int32),
    ]
)  # fmt: skip
_NOTHING: Final = {
    "kind": int(OperationKind.other), "gpu_kind": NO_GPU, "peer": NO_RANK, "request": NO_REQUEST,
    "completes": NO_REQUEST, "other_device": -1, "kernel": -1, "duration_ps": -1,
}  # fmt: skip


@dataclass(frozen=True)
class RankRows:
    """``rows`` ROW[]. Phases, sorted by ``phase_row``: the row that each precedes, its region (-1: none), PhaseKind and
    picoseconds (int64 each)."""

    rows: np.ndarray
    phase_row: np.ndarray
    phase_region: np.ndarray
    phase_kind: np.ndarray
    phase_ps: np.ndarray


def blank(count: int) -> np.ndarray:
    """ROW[count] of operations ``other`` in the first thread, that are nothing to a GPU."""
    rows = np.zeros(count, ROW)
    for name, value in _NOTHING.items():
        rows[name] = value
    return rows


def rank_rows(rows: np.ndarray, phase_row: np.ndarray, phase_region: np.ndarray, phase_ps: np.ndarray) -> RankRows:
    """Of a rank whose phases are all computed, in any order."""
    order = np.argsort(phase_row, kind="stable")
    kind = np.full(len(order), int(PhaseKind.compute), np.int64)
    return RankRows(rows, phase_row[order], phase_region[order], kind, phase_ps[order])


def stream_tables(
    ranks: Sequence[RankRows], members: Sequence[np.ndarray], regions: Sequence[str]
) -> dict[str, pa.Table]:
    """``operations``, ``phases``, ``regions``, ``communicators`` and ``gpu_operations``. ``members`` of communicators
    that are not the world, from number 1."""
    counts = [len(each.rows) for each in ranks]
    rows = np.concatenate([each.rows for each in ranks])
    rank = np.repeat(np.arange(len(ranks), dtype=np.int32), counts)
    operation_id = np.concatenate([np.arange(count, dtype=np.int32) for count in counts])
    world = np.arange(len(ranks), dtype=np.int32)
    return {
        "operations": _operations(rank, rows),
        "phases": _phases(ranks),
        "regions": pa.Table.from_arrays([text_array(regions)], schema=REGIONS_SCHEMA),
        "communicators": pa.Table.from_arrays([_lists([world, *members])], schema=COMMUNICATORS_SCHEMA),
        "gpu_operations": _gpu_operations(rank, operation_id, rows),
    }


def kernels_table(
    names: Sequence[str],
    classes: Sequence[int],
    precisions: Sequence[str],
    flops: np.ndarray,
    size: np.ndarray,
    launched: np.ndarray | None = None,
) -> pa.Table:
    """``kernels``; ``flops`` and ``size`` (bytes) float64[kernels], NaN where unknown; ``launched`` int64[kernels, 2]:
    blocks, and threads of each, 0 where unknown."""
    launched = np.zeros((len(names), 2), np.int64) if launched is None else launched
    columns = [text_array(names), to_arrow(np.array(classes, np.int8)), text_array(precisions), to_arrow(flops),
               to_arrow(size), to_arrow(launched[:, 0].copy()), to_arrow(launched[:, 1].astype(np.int32))]  # fmt: skip
    return pa.Table.from_arrays(columns, schema=KERNELS_SCHEMA)


def groups_table(names: Sequence[tuple[int, str]]) -> pa.Table:
    """``groups`` from (communicator, name)."""
    numbers = np.array([number for number, _ in names], np.int32)
    return pa.Table.from_arrays([to_arrow(numbers), text_array([name for _, name in names])], schema=GROUPS_SCHEMA)


def steps_table(rank: np.ndarray, step: np.ndarray, first: np.ndarray, last: np.ndarray) -> pa.Table:
    """``steps`` from int columns."""
    columns = [to_arrow(np.asarray(each).astype(np.int32)) for each in (rank, step, first, last)]
    return pa.Table.from_arrays(columns, schema=STEPS_SCHEMA)


def measured_steps_table(
    rank: Sequence[int], step: Sequence[int], start_ps: Sequence[int], end_ps: Sequence[int]
) -> pa.Table:
    """``measured_steps``."""
    columns = [np.array(each, np.int64) for each in (rank, step, start_ps, end_ps)]
    return pa.Table.from_arrays(
        [to_arrow(each.astype(field.type.to_pandas_dtype()))
         for each, field in zip(columns, MEASURED_STEPS_SCHEMA, strict=True)],
        schema=MEASURED_STEPS_SCHEMA,
    )  # fmt: skip


def _operations(rank: np.ndarray, rows: np.ndarray) -> pa.Table:
    count = len(rows)
    waits = rows["completes"] >= 0
    bounds = np.concatenate(([0], np.cumsum(waits))).astype(np.int32)
    completes = pa.ListArray.from_arrays(to_arrow(bounds), to_arrow(rows["completes"][waits]))
    nothing = [pa.nulls(count, OPERATIONS_SCHEMA.field(name).type) for name in ("send_counts", "receive_counts")]
    columns = [
        to_arrow(rank),
        pa.DictionaryArray.from_arrays(to_arrow(rows["kind"]), KIND_NAMES),
        to_arrow(rows["peer"]),
        to_arrow(np.full(count, NO_RANK, np.int32)),
        *(to_arrow(rows[name]) for name in ("tag", "bytes", "receive_bytes", "communicator", "request")),
        completes,
        *nothing,
    ]
    return pa.Table.from_arrays(columns, schema=OPERATIONS_SCHEMA)


def _phases(ranks: Sequence[RankRows]) -> pa.Table:
    counts = [len(each.phase_row) for each in ranks]
    columns = {
        "rank": np.repeat(np.arange(len(ranks)), counts),
        "operation_id": np.concatenate([each.phase_row for each in ranks]),
        "kind": np.concatenate([each.phase_kind for each in ranks]),
        "region_id": np.concatenate([each.phase_region for each in ranks]),
        "duration_ps": np.concatenate([each.phase_ps for each in ranks]),
    }
    arrays = [to_arrow(columns[field.name].astype(field.type.to_pandas_dtype())) for field in PHASES_SCHEMA]
    return pa.Table.from_arrays(arrays, schema=PHASES_SCHEMA)


def _gpu_operations(rank: np.ndarray, operation_id: np.ndarray, rows: np.ndarray) -> pa.Table:
    mine = rows["gpu_kind"] != NO_GPU
    rows = rows[mine]
    nothing = np.zeros(len(rows), np.int32)
    columns = {
        "rank": rank[mine],
        "operation_id": operation_id[mine],
        "kind": rows["gpu_kind"],
        "stream": rows["stream"],
        "launch_id": nothing,
        "bytes": rows["gpu_bytes"],
        "event": rows["event"],
        "device": rows["device"],
        "peer": rows["other_device"],
        "priority": nothing,
        "flags": rows["flags"],
        "thread": rows["thread"],
        "kernel_id": rows["kernel"],
        "duration_ps": rows["duration_ps"],
    }
    return pa.Table.from_arrays([to_arrow(columns[name]) for name in GPU_OPERATIONS_SCHEMA.names],
                                schema=GPU_OPERATIONS_SCHEMA)  # fmt: skip


def _lists(values: Sequence[np.ndarray]) -> pa.ListArray:
    bounds = np.concatenate(([0], np.cumsum([len(each) for each in values]))).astype(np.int32)
    return pa.ListArray.from_arrays(to_arrow(bounds), to_arrow(np.concatenate(values).astype(np.int32)))
