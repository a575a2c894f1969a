"""The tables of a workload whose ranks do not communicate, as traces of one program and profiles are."""

from __future__ import annotations

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


def rank_tables(num_ranks: int, phases: dict[int, int]) -> dict[str, pa.Table]:
    """One operation ``other`` per rank, and before it the phase of the ranks that took time."""
    lasting = sorted(rank for rank, duration in phases.items() if duration > 0)
    rank = np.arange(num_ranks, dtype=np.int32)
    zeros = np.zeros(num_ranks, np.int32)
    kinds = pa.DictionaryArray.from_arrays(to_arrow(np.full(num_ranks, OperationKind.other, np.int8)), KIND_NAMES)
    nothing = [pa.nulls(num_ranks, OPERATIONS_SCHEMA.field(name).type) for name in
               ("completes", "send_counts", "receive_counts")]  # fmt: skip
    operations = [
        to_arrow(rank),
        kinds,
        to_arrow(np.full(num_ranks, NO_RANK, np.int32)),
        to_arrow(np.full(num_ranks, NO_RANK, np.int32)),
        to_arrow(zeros),
        to_arrow(zeros.astype(np.int64)),
        to_arrow(zeros.astype(np.int64)),
        to_arrow(zeros),
        to_arrow(np.full(num_ranks, NO_REQUEST, np.int32)),
        *nothing,
    ]
    computing = len(lasting)
    phase_columns: list[np.ndarray] = [
        np.array(lasting, np.int32),
        np.zeros(computing, np.int32),
        np.full(computing, PhaseKind.compute, np.int8),
        np.full(computing, -1, np.int32),
        np.array([phases[one] for one in lasting], np.int64),
    ]
    world = pa.ListArray.from_arrays(to_arrow(np.array([0, num_ranks], np.int32)), to_arrow(rank))
    return {
        "operations": pa.Table.from_arrays(operations, schema=OPERATIONS_SCHEMA),
        "phases": pa.Table.from_arrays(list(map(to_arrow, phase_columns)), schema=PHASES_SCHEMA),
        "regions": pa.Table.from_arrays([text_array([])], schema=REGIONS_SCHEMA),
        "communicators": pa.Table.from_arrays([world], schema=COMMUNICATORS_SCHEMA),
    }
