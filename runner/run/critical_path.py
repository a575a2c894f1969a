"""The critical path of a predicted run: its table, its figures, and where in the application it leads along."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.network.critical_path import CriticalPath
from manyscale.models.network.path_walk import COMPUTE, KINDS
from manyscale.models.workload import Workload
from manyscale.models.workload.columns import text_array, to_arrow, to_numpy
from manyscale.runner.predict.statistic import Statistic
from manyscale.runner.run.places import Places

_KIND_NAMES: Final = text_array(KINDS)
SCHEMA: Final = pa.schema(
    [
        pa.field("start_ps", pa.int64(), nullable=False),  # when the segment begins
        pa.field("end_ps", pa.int64(), nullable=False),  # when it ends, and the next one begins
        # compute, transfer, collective or overhead
        pa.field("kind", pa.dictionary(pa.int8(), pa.string()), nullable=False),
        pa.field("rank", pa.int32(), nullable=False),  # whose operation waited, or that computed
        pa.field("source", pa.int32(), nullable=False),  # the rank from which a transfer or a collective came
        pa.field("operation_id", pa.int32(), nullable=False),  # index within the rank, as in ranks.parquet
        pa.field("message_id", pa.int64(), nullable=False),  # as in messages.parquet; -1 where there is none
    ]
)
_FIELDS: Final = ("start_ps", "end_ps", "kind", "operation", "source", "message")
_MEANINGS: Final = {
    "compute": "computing",
    "transfer": "in transfers of point-to-point messages",
    "collective": "in transfers of collectives",
    "overhead": "in calls, but in no transfer",
}


def to_arrays(path: CriticalPath) -> dict[str, np.ndarray]:
    """Named arrays, as results of work units are stored."""
    return {f"path_{name}": getattr(path, name) for name in _FIELDS}


def is_stored(arrays: Mapping[str, np.ndarray]) -> bool:
    return f"path_{_FIELDS[0]}" in arrays


def path_table(workload: Workload, arrays: Mapping[str, np.ndarray]) -> pa.Table:
    """Table of SCHEMA, in the order of time, from the arrays of ``to_arrays``."""
    start, end, kind, row, source, message = (arrays[f"path_{name}"] for name in _FIELDS)
    rank = workload.column("operations", "rank")[row]
    listed = np.where(message < len(workload.send_rows), message, -1)
    columns = [
        to_arrow(start),
        to_arrow(end),
        pa.DictionaryArray.from_arrays(to_arrow(kind), _KIND_NAMES),
        to_arrow(rank),
        to_arrow(source),
        to_arrow((row - workload.rank_offsets[rank]).astype(np.int32)),
        to_arrow(listed),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def durations(table: pa.Table) -> np.ndarray:
    """int64 picoseconds of every segment."""
    return to_numpy(table.column("end_ps")) - to_numpy(table.column("start_ps"))


def time_by_kind(table: pa.Table) -> dict[str, int]:
    """Picoseconds of the path by kind of segment; they add up to the makespan."""
    total = np.zeros(len(KINDS), np.int64)
    np.add.at(total, to_numpy(table.column("kind")), durations(table))
    return dict(zip(KINDS, total.tolist(), strict=True))


def time_by_rank(table: pa.Table, num_ranks: int) -> np.ndarray:
    """int64[num_ranks]: picoseconds of the path on each rank (transfers: on the rank that waits for them)."""
    total = np.zeros(num_ranks, np.int64)
    np.add.at(total, to_numpy(table.column("rank")), durations(table))
    return total


def time_by_place(workload: Workload, places: Places, table: pa.Table) -> dict[str, int]:
    """Picoseconds of the path by place in the application, those without time left out, longest first."""
    row = workload.rank_offsets[to_numpy(table.column("rank"))] + to_numpy(table.column("operation_id"))
    is_compute = to_numpy(table.column("kind")) == COMPUTE
    place = np.where(is_compute, places.compute[row], places.call[row])
    total = np.zeros(len(places.names), np.int64)
    np.add.at(total, place, durations(table))
    order = np.argsort(-total, kind="stable")
    return {places.names[i]: int(total[i]) for i in order.tolist() if total[i] > 0}


def statistics(table: pa.Table, num_ranks: int) -> dict[str, Statistic]:
    """Figures for stats.json; the four times add up to the makespan."""
    result = {
        f"critical_path.{kind}": Statistic(time / 1e12, "s", "total", f"critical path: {_MEANINGS[kind]}")
        for kind, time in time_by_kind(table).items()
    }
    source, rank = to_numpy(table.column("source")), to_numpy(table.column("rank"))
    changes = int(np.count_nonzero(source != rank))
    visited = int(np.count_nonzero(time_by_rank(table, num_ranks)))
    result["critical_path.segments"] = Statistic(table.num_rows, "1", "count", "critical path: segments")
    result["critical_path.changes"] = Statistic(changes, "1", "count", "critical path: changes of rank")
    result["critical_path.ranks"] = Statistic(visited, "1", "count", "critical path: ranks that it visits")
    return result
