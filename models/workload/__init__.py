"""The workload: a parallel application's trace as Arrow tables with declared schemas.

A workload has one table per level. The levels filled today are those of MUSA's burst trace (Grass, "Simulation
methodologies for future large-scale parallel systems", UPC 2017, ch. 6): communication operations and the compute
phases between them. Times are integer picoseconds on the machine that was traced, sizes are bytes.

Tables
------
``operations``
    One row per MPI operation, ranks contiguous and in rank order, each rank's rows in program order. The row's index
    within its rank is its ``operation_id``.
``phases``
    One row per compute phase: CPU time that precedes operation ``operation_id`` of ``rank``. Several phases may
    precede one operation. Rows are sorted by (rank, operation_id).
``regions``
    Names of the code regions that phases refer to (``region_id`` is the row index).
``communicators``
    Members of each communicator as world ranks (``communicator_id`` is the row index). Row 0 is the world.

Tables that only some formats fill; one that is not given has no rows
---------------------------------------------------------------------
``counters``
    Hardware counters: their increase over the phase of row ``phase_id``. A counter that was not measured in a phase has
    no row there (it is not zero). Sorted by phase.
``measured``
    When each operation began and ended in the traced run, one row per operation, from the first record of the trace.
``dependencies``
    Of ranks whose operations do not simply run one after another (GOAL): operation ``operation_id`` of ``rank`` starts
    after operation ``requires`` of the same rank has ended, or, if ``on_start``, has started. If every isend and irecv
    of such a workload opens a request, the order of the rows, with its waits, is one that the dependencies allow;
    otherwise its ranks have no other order than these. Sorted by (rank, operation_id).

The tables of the finer levels are declared in ``task_tables`` (runtime system), ``detail_tables`` (basic blocks and
memory accesses), ``profile_tables`` (intervals and call stacks) and ``gpu_tables`` (kernel launches).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import detail_tables, gpu_tables, profile_tables, task_tables
from manyscale.models.workload.columns import one_chunk, text_array, to_numpy
from manyscale.models.workload.detail_tables import Detail
from manyscale.models.workload.gpu_tables import LaunchStreams

ANY_SOURCE: Final = -1
ANY_TAG: Final = -1
NO_RANK: Final = -2
NO_REQUEST: Final = -1
MAX_RANKS: Final = 2**20


class OperationKind(IntEnum):
    """What an operation does; the names follow MPI's, in lower case."""

    init = 0
    finalize = 1
    send = 2
    isend = 3
    ssend = 4
    issend = 5
    bsend = 6
    ibsend = 7
    recv = 8
    irecv = 9
    sendrecv = 10
    wait = 11
    waitall = 12
    waitany = 13
    test = 14  # a test that did not complete its request: takes no time, changes nothing
    other = 15  # any other call, or the end of a compute phase that no communication follows: takes no time
    barrier = 16
    bcast = 17
    reduce = 18
    allreduce = 19
    scan = 20
    exscan = 21
    gather = 22
    gatherv = 23
    scatter = 24
    scatterv = 25
    allgather = 26
    allgatherv = 27
    alltoall = 28
    alltoallv = 29
    reduce_scatter = 30
    ibarrier = 31
    ibcast = 32
    ireduce = 33
    iallreduce = 34
    iscan = 35
    iexscan = 36
    igather = 37
    igatherv = 38
    iscatter = 39
    iscatterv = 40
    iallgather = 41
    iallgatherv = 42
    ialltoall = 43
    ialltoallv = 44
    ireduce_scatter = 45


COLLECTIVES: Final = range(OperationKind.barrier, OperationKind.ireduce_scatter + 1)
NONBLOCKING_COLLECTIVES: Final = range(OperationKind.ibarrier, OperationKind.ireduce_scatter + 1)
SENDS: Final = (
    OperationKind.send,
    OperationKind.isend,
    OperationKind.ssend,
    OperationKind.issend,
    OperationKind.bsend,
    OperationKind.ibsend,
    OperationKind.sendrecv,
)
RECEIVES: Final = (OperationKind.recv, OperationKind.irecv, OperationKind.sendrecv)

KIND_NAMES: Final = text_array([kind.name for kind in OperationKind])


class PhaseKind(IntEnum):
    """Compute scales with the speed of the target's cores, sleep does not."""

    compute = 0
    sleep = 1


OPERATIONS_SCHEMA: Final = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("kind", pa.dictionary(pa.int8(), pa.string()), nullable=False),
        # destination of a send, source of a receive (ANY_SOURCE), root of a rooted collective; world ranks for
        # point-to-point, communicator-relative for a root; NO_RANK where there is none
        pa.field("peer", pa.int32(), nullable=False),
        pa.field("source", pa.int32(), nullable=False),  # the receive side of a sendrecv, else NO_RANK
        pa.field("tag", pa.int32(), nullable=False),  # ANY_TAG for a receive that takes any
        # sent (per peer for alltoall and scatter); of reduce_scatter, whose sizes are counts, one element
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("receive_bytes", pa.int64(), nullable=False),
        pa.field("communicator_id", pa.int32(), nullable=False),
        pa.field("request", pa.int32(), nullable=False),  # request that this operation opens, unique in its rank
        pa.field("completes", pa.list_(pa.int32())),  # requests that this operation waits for
        pa.field("send_counts", pa.list_(pa.int64())),  # bytes to each member (alltoallv, scatterv at any rank)
        pa.field("receive_counts", pa.list_(pa.int64())),  # bytes from each member
    ]
)
PHASES_SCHEMA: Final = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("operation_id", pa.int32(), nullable=False),
        pa.field("kind", pa.int8(), nullable=False),  # PhaseKind
        pa.field("region_id", pa.int32(), nullable=False),  # -1 where the trace names none
        pa.field("duration_ps", pa.int64(), nullable=False),
    ]
)
REGIONS_SCHEMA: Final = pa.schema([pa.field("name", pa.string(), nullable=False)])
COMMUNICATORS_SCHEMA: Final = pa.schema([pa.field("members", pa.list_(pa.int32()), nullable=False)])

COUNTERS_SCHEMA: Final = pa.schema(
    [
        pa.field("phase_id", pa.int64(), nullable=False),
        pa.field("counter", pa.dictionary(pa.int16(), pa.string()), nullable=False),
        pa.field("value", pa.int64(), nullable=False),
    ]
)
MEASURED_SCHEMA: Final = pa.schema(
    [
        pa.field("start_ps", pa.int64(), nullable=False),
        pa.field("end_ps", pa.int64(), nullable=False),
    ]
)
DEPENDENCIES_SCHEMA: Final = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("operation_id", pa.int32(), nullable=False),
        pa.field("requires", pa.int32(), nullable=False),
        pa.field("on_start", pa.bool_(), nullable=False),
    ]
)

SCHEMAS: Final = {
    "operations": OPERATIONS_SCHEMA,
    "phases": PHASES_SCHEMA,
    "regions": REGIONS_SCHEMA,
    "communicators": COMMUNICATORS_SCHEMA,
    "counters": COUNTERS_SCHEMA,
    "measured": MEASURED_SCHEMA,
    "dependencies": DEPENDENCIES_SCHEMA,
    **task_tables.SCHEMAS,
    **detail_tables.SCHEMAS,
    **profile_tables.SCHEMAS,
    **gpu_tables.SCHEMAS,
}
REQUIRED_LEVELS: Final = ("operations", "phases", "regions", "communicators")
OPTIONAL_LEVELS: Final = tuple(level for level in SCHEMAS if level not in REQUIRED_LEVELS)


class WorkloadError(ValueError):
    """A workload that contradicts itself: the message names the rank, the operation and what to do."""


@dataclass(frozen=True)
class Workload:
    """A trace, read. See the module's docstring for the tables.

    ``notes`` say what the trace's format could not record and how the reader settled it; reports repeat them.
    ``detail`` holds the streams that ``segments`` cut up, where the detailed level was traced; ``gpu`` the instructions
    of ``launches``.
    Raises WorkloadError when built from tables that do not fit their schemas.
    """

    name: str
    num_ranks: int
    tables: Mapping[str, pa.Table]
    notes: tuple[str, ...] = ()
    source_format: str = field(default="", compare=False)
    detail: Detail | None = field(default=None, compare=False)
    gpu: LaunchStreams | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not 1 <= self.num_ranks <= MAX_RANKS:
            raise WorkloadError(f"{self.name}: {self.num_ranks} ranks; between 1 and {MAX_RANKS} can be replayed")
        # (empty_table would import pandas)
        empty = {level: pa.Table.from_batches([], SCHEMAS[level]) for level in OPTIONAL_LEVELS}
        object.__setattr__(self, "tables", {**empty, **self.tables})
        for level, schema in SCHEMAS.items():
            if level not in self.tables:
                raise WorkloadError(f"{self.name}: the workload has no table {level!r}")
            if not self.tables[level].schema.equals(schema):
                raise WorkloadError(f"{self.name}: table {level!r} does not have the declared schema")
        unknown = set(self.tables) - set(SCHEMAS)
        if unknown:
            raise WorkloadError(f"{self.name}: unknown tables {', '.join(sorted(unknown))}")
        if self.tables["measured"].num_rows not in (0, self.num_operations):
            raise WorkloadError(f"{self.name}: table 'measured' does not have one row per operation")

    def column(self, level: str, name: str) -> np.ndarray:
        """A column without nulls as one NumPy array (the dictionary codes for a dictionary column)."""
        return to_numpy(self.tables[level].column(name))

    def lists(self, level: str, name: str) -> tuple[np.ndarray, np.ndarray]:
        """A list column as (offsets int64 of length rows + 1, values); a null row is an empty list."""
        column = one_chunk(self.tables[level].column(name))
        if not len(column):
            return np.zeros(1, np.int64), np.empty(0, column.type.value_type.to_pandas_dtype())
        offsets = to_numpy(column.offsets).astype(np.int64)
        return offsets - offsets[0], to_numpy(column.values)[offsets[0] : offsets[-1]]

    @cached_property
    def rank_offsets(self) -> np.ndarray:
        """int64[num_ranks + 1]: operations of rank r are rows [rank_offsets[r], rank_offsets[r + 1])."""
        return np.searchsorted(self.column("operations", "rank"), np.arange(self.num_ranks + 1)).astype(np.int64)

    @cached_property
    def phase_offsets(self) -> np.ndarray:
        """int64[num_ranks + 1]: phases of rank r are rows [phase_offsets[r], phase_offsets[r + 1])."""
        return np.searchsorted(self.column("phases", "rank"), np.arange(self.num_ranks + 1)).astype(np.int64)

    @cached_property
    def send_rows(self) -> np.ndarray:
        """int64[]: rows of ``operations`` that send a point-to-point message, in order: row i sends message i."""
        sends = np.isin(np.arange(len(OperationKind)), SENDS)[self.column("operations", "kind")]
        return np.flatnonzero(sends & (self.column("operations", "peer") >= 0))

    @property
    def is_measured(self) -> bool:
        """Whether the trace says when its operations began and ended."""
        return bool(self.tables["measured"].num_rows)

    @property
    def num_operations(self) -> int:
        return int(self.tables["operations"].num_rows)

    def batches(self, level: str, max_rows: int = 1 << 16) -> Iterator[pa.RecordBatch]:
        """The table of a level in batches of at most ``max_rows`` rows."""
        yield from self.tables[level].to_batches(max_chunksize=max_rows)

    @cached_property
    def digest(self) -> str:
        """Hexadecimal content hash: equal for equal tables, however they were chunked or stored."""
        state = hashlib.blake2b(f"workload 3 {self.num_ranks}".encode(), digest_size=20)
        for level in SCHEMAS:
            if self.tables[level].num_rows:
                state.update(f"{level} {table_digest(self.tables[level])}".encode())
        if self.detail is not None:
            state.update(f"detail {self.detail.digest}".encode())
        if self.gpu is not None:
            state.update(f"gpu {self.gpu.digest}".encode())
        return state.hexdigest()


def table_digest(table: pa.Table) -> str:
    """Hexadecimal hash of a table's schema and values, independent of how it is chunked. O(bytes)."""
    state = hashlib.blake2b(str(table.schema).encode(), digest_size=20)
    for column in table.columns:
        _hash_array(state, one_chunk(column))
    return state.hexdigest()


def _hash_array(state: hashlib.blake2b, array: pa.Array) -> None:
    state.update(len(array).to_bytes(8, "little"))
    if pa.types.is_dictionary(array.type):
        _hash_array(state, array.indices)
        _hash_array(state, array.dictionary)
    elif pa.types.is_list(array.type):
        offsets = to_numpy(array.offsets)
        state.update(np.diff(offsets).data)
        if len(array):
            _hash_array(state, array.values[int(offsets[0]) : int(offsets[-1])])
    elif pa.types.is_string(array.type):
        for value in array.to_pylist():
            state.update(f"{len(value)}:{value}".encode())
    else:
        state.update(np.ascontiguousarray(to_numpy(array)).data)
