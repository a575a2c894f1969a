"""Steps of ranks and collectives of streams, as a run has them: tables ``steps`` and ``collectives`` of a result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import OperationKind, Workload
from manyscale.models.workload.columns import text_array, to_arrow
from manyscale.runner.predict.gpu.traced.meetings import StreamCollectives

# Sorted by rank and step
STEPS_SCHEMA: Final = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),  # MPI rank
        pa.field("step", pa.int32(), nullable=False),  # its number in the trace
        pa.field("start_ps", pa.int64(), nullable=False),  # when it begins
        pa.field("end_ps", pa.int64(), nullable=False),  # when it ends
    ]
)
# A row for each member of each collective that streams take part in, by collective and rank
COLLECTIVES_SCHEMA: Final = pa.schema(
    [
        pa.field("collective_id", pa.int32(), nullable=False),  # the same for all members
        pa.field("communicator_id", pa.int32(), nullable=False),  # row of the workload's table of communicators
        pa.field("group_name", pa.dictionary(pa.int32(), pa.string()), nullable=False),  # its name, "" for none
        pa.field("kind", pa.dictionary(pa.int8(), pa.string()), nullable=False),  # allreduce, allgather, ...
        pa.field("bytes", pa.int64(), nullable=False),  # as the table of operations has them
        pa.field("rank", pa.int32(), nullable=False),  # the member
        pa.field("arrive_ps", pa.int64(), nullable=False),  # when its stream has come to it; the member waits
        pa.field("start_ps", pa.int64(), nullable=False),  # when the last member has; they transfer
        pa.field("end_ps", pa.int64(), nullable=False),  # when it ends
        # of NCCL, as its model has it, such as "ring LL"; "" where the target does not say how NCCL communicates
        pa.field("algorithm", pa.dictionary(pa.int16(), pa.string()), nullable=False),
    ]
)


def steps_table(workload: Workload, end_ps: np.ndarray) -> pa.Table:
    """``end_ps`` int64[operations]."""
    rank = workload.column("steps", "rank")
    first, last = (
        workload.rank_offsets[rank] + workload.column("steps", f"{which}_operation_id") for which in ("first", "last")
    )
    columns = [rank, workload.column("steps", "step"), end_ps[first], end_ps[last]]
    return pa.Table.from_arrays([to_arrow(each) for each in columns], schema=STEPS_SCHEMA)


def collectives_table(of: StreamCollectives, arrays: Mapping[str, np.ndarray]) -> pa.Table:
    """``arrays``: the result of the unit that replayed the run (run/devices.py)."""
    rows = np.flatnonzero(of.of_given >= 0)
    number = of.of_given[rows]
    rank = arrays["given_rank"][rows]
    order = np.lexsort((rank, number))
    rows, number, rank = rows[order], number[order], rank[order]
    names = [of.names.get(each, "") for each in range(len(of.members))]
    communicator = of.communicator[number]
    columns = [
        to_arrow(number),
        to_arrow(communicator),
        pa.DictionaryArray.from_arrays(to_arrow(communicator), text_array(names)),
        pa.DictionaryArray.from_arrays(to_arrow(of.kind[number]), text_array([kind.name for kind in OperationKind])),
        to_arrow(of.bytes[number]),
        to_arrow(rank.astype(np.int32)),
        *(to_arrow(arrays[f"given_{name}_ps"][rows]) for name in ("start", "runs", "end")),
        _ways(number, arrays),
    ]
    return pa.Table.from_arrays(columns, schema=COLLECTIVES_SCHEMA)


def _ways(number: np.ndarray, arrays: Mapping[str, np.ndarray]) -> pa.DictionaryArray:
    if "collective_way" not in arrays:
        return pa.DictionaryArray.from_arrays(to_arrow(np.zeros(len(number), np.int16)), text_array([""]))
    names = arrays["collective_way_names"].tobytes().decode().split("\n")
    return pa.DictionaryArray.from_arrays(to_arrow(arrays["collective_way"][number]), text_array(names))
