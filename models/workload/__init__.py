"""The workload: a parallel application's trace as Arrow tables with declared schemas.

A workload has one table per level, declared in ``operation_tables`` (communication and the compute phases between:
the burst trace of MUSA; Grass, "Simulation methodologies for future large-scale parallel systems", UPC 2017, ch. 6),
``task_tables`` (runtime system), ``detail_tables`` (basic blocks and memory accesses), ``profile_tables`` (intervals
and call stacks), ``gpu_tables`` (kernel launches) and ``gpu_step_tables`` (their times alone). Times are integer
picoseconds on the machine that was traced, sizes are bytes.

What those modules promise of their tables (order of rows, ranges of numbers, kinds by name) holds in every workload: it
is checked when one is built (``checks``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import InitVar, dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import (
    checks,
    detail_tables,
    gpu_step_tables,
    gpu_tables,
    operation_tables,
    profile_tables,
    task_tables,
)
from manyscale.models.workload.checks import WorkloadError
from manyscale.models.workload.columns import first_rows, one_chunk, to_arrow, to_numpy
from manyscale.models.workload.detail_tables import Detail
from manyscale.models.workload.gpu_tables import LaunchStreams
from manyscale.models.workload.notes import Note, changes, forbids, informs
from manyscale.models.workload.operation_tables import (
    ANY_SOURCE,
    ANY_TAG,
    COLLECTIVES,
    COMMUNICATORS_SCHEMA,
    COUNTERS_SCHEMA,
    DEPENDENCIES_SCHEMA,
    KIND_NAMES,
    MAX_RANKS,
    MEASURED_SCHEMA,
    NO_RANK,
    NO_REQUEST,
    NONBLOCKING_COLLECTIVES,
    OPERATIONS_SCHEMA,
    PHASE_TIMES_SCHEMA,
    PHASES_SCHEMA,
    POLLED,
    RECEIVES,
    REGIONS_SCHEMA,
    SENDS,
    OperationKind,
    PhaseKind,
)

__all__ = [
    "ANY_SOURCE",
    "ANY_TAG",
    "COLLECTIVES",
    "COMMUNICATORS_SCHEMA",
    "COUNTERS_SCHEMA",
    "DEPENDENCIES_SCHEMA",
    "KIND_NAMES",
    "MAX_RANKS",
    "MEASURED_SCHEMA",
    "NONBLOCKING_COLLECTIVES",
    "NO_RANK",
    "NO_REQUEST",
    "OPERATIONS_SCHEMA",
    "OPTIONAL_LEVELS",
    "PHASES_SCHEMA",
    "PHASE_TIMES_SCHEMA",
    "POLLED",
    "RECEIVES",
    "REGIONS_SCHEMA",
    "REQUIRED_LEVELS",
    "SCHEMAS",
    "SENDS",
    "Note",
    "OperationKind",
    "PhaseKind",
    "Workload",
    "WorkloadError",
    "changes",
    "forbids",
    "informs",
    "table_digest",
    "without_operations",
]

SCHEMAS: Final = {
    **operation_tables.SCHEMAS,
    **task_tables.SCHEMAS,
    **detail_tables.SCHEMAS,
    **profile_tables.SCHEMAS,
    **gpu_tables.SCHEMAS,
    **gpu_step_tables.SCHEMAS,
}
REQUIRED_LEVELS: Final = ("operations", "phases", "regions", "communicators")
OPTIONAL_LEVELS: Final = tuple(level for level in SCHEMAS if level not in REQUIRED_LEVELS)
MOST_COPIED_BYTES: Final = 1 << 26  # of tables, when a workload is sent to another process


@dataclass(frozen=True)
class Workload:
    """A trace, read. See the module's docstring for the tables.

    ``notes`` say what the trace's format could not record and how the reader settled it: part of every number.
    ``detail`` holds the streams that ``segments`` cut up, where the detailed level was traced; ``gpu`` the instructions
    of ``launches``.
    Kinds of operations may come with any dictionary of names: they are encoded as ``OperationKind`` numbers them.
    Raises WorkloadError when built from tables that do not fit their schemas or break what they promise
    (``rules.RULES``); with ``is_checked`` the caller says that the tables come from a workload, unchanged.
    """

    name: str
    num_ranks: int
    tables: Mapping[str, pa.Table]
    notes: tuple[Note, ...] = ()
    source_format: str = field(default="", compare=False)
    detail: Detail | None = field(default=None, compare=False)
    gpu: LaunchStreams | None = field(default=None, compare=False)
    is_checked: InitVar[bool] = False

    def __post_init__(self, is_checked: bool) -> None:
        if not 1 <= self.num_ranks <= MAX_RANKS:
            raise WorkloadError(f"{self.name}: {self.num_ranks} ranks; between 1 and {MAX_RANKS} can be replayed")
        wrong = next((note for note in self.notes if not isinstance(note, Note)), None)
        if wrong is not None:
            raise WorkloadError(f"{self.name}: {wrong!r} is no Note; make notes by models.workload.notes")
        object.__setattr__(self, "tables", {**_empty(OPTIONAL_LEVELS), **self.tables})
        for level, schema in SCHEMAS.items():
            if level not in self.tables:
                raise WorkloadError(f"{self.name}: the workload has no table {level!r}")
            if not self.tables[level].schema.equals(schema):
                difference = _difference(self.tables[level].schema, schema)
                raise WorkloadError(f"{self.name}: table {level!r} does not have the declared schema: {difference}")
        if self.tables["phase_times"].num_rows not in (0, self.tables["phases"].num_rows):
            raise WorkloadError(
                f"{self.name}: table 'phase_times' does not have one row per phase; give it one, or no rows at all"
            )
        unknown = set(self.tables) - set(SCHEMAS)
        if unknown:
            raise WorkloadError(
                f"{self.name}: unknown tables {', '.join(sorted(unknown))}; known are {', '.join(SCHEMAS)}"
            )
        if self.tables["measured"].num_rows not in (0, self.num_operations):
            raise WorkloadError(
                f"{self.name}: table 'measured' does not have one row per operation; give it one, or no rows at all"
            )
        if not is_checked:
            operations = checks.with_declared_kinds(self.name, self.tables["operations"])
            object.__setattr__(self, "tables", {**self.tables, "operations": operations})
            checks.check(self.name, self.num_ranks, self.tables)

    def __getstate__(self) -> dict[str, Any]:
        """Small tables go as they stand in Arrow's streams. Larger ones are not copied for that; whoever takes these
        apart may load pandas, as Ray does."""
        if sum(table.nbytes for table in self.tables.values()) > MOST_COPIED_BYTES:
            return self.__dict__
        streams = {level: _stream(table) for level, table in self.tables.items() if table.num_rows}
        return {**self.__dict__, "tables": streams}

    def __setstate__(self, state: dict[str, Any]) -> None:
        tables = {
            level: each if isinstance(each, pa.Table) else pa.ipc.open_stream(each).read_all()
            for level, each in state["tables"].items()
        }
        self.__dict__.update(state, tables={**_empty(SCHEMAS), **tables})

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
        return first_rows(self.column("operations", "rank"), self.num_ranks)

    @cached_property
    def phase_offsets(self) -> np.ndarray:
        """int64[num_ranks + 1]: phases of rank r are rows [phase_offsets[r], phase_offsets[r + 1])."""
        return first_rows(self.column("phases", "rank"), self.num_ranks)

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
        return self.digest_with({})

    def digest_with(self, earlier: Mapping[str, pa.Table]) -> str:
        """The digest that the workload had with tables of an earlier schema in place of its own."""
        state = hashlib.blake2b(f"workload 3 {self.num_ranks}".encode(), digest_size=20)
        tables = {**self.tables, **earlier}
        for level in SCHEMAS:
            if tables[level].num_rows:
                state.update(f"{level} {table_digest(tables[level])}".encode())
        if self.detail is not None:
            state.update(f"detail {self.detail.digest}".encode())
        if self.gpu is not None:
            state.update(f"gpu {self.gpu.digest}".encode())
        return state.hexdigest()


def _empty(levels: Iterable[str]) -> dict[str, pa.Table]:
    return {level: pa.Table.from_batches([], SCHEMAS[level]) for level in levels}  # (empty_table would import pandas)


def _stream(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def without_operations(workload: Workload, rows: np.ndarray) -> Workload:
    """The workload in which the operations of ``rows`` do nothing. O(operations)."""
    operations = workload.tables["operations"]
    kind = workload.column("operations", "kind").copy()
    kind[rows] = int(OperationKind.other)
    at = operations.schema.get_field_index("kind")
    column = pa.DictionaryArray.from_arrays(to_arrow(kind), KIND_NAMES)
    operations = operations.set_column(at, operations.schema.field(at), column)
    return replace(workload, tables={**workload.tables, "operations": operations}, is_checked=True)


def _difference(schema: pa.Schema, declared: pa.Schema) -> str:
    """The first column in which a schema differs from the declared one."""
    for at, column in enumerate(declared):
        if at >= len(schema) or not schema.field(at).equals(column):
            return f"column {at} must be {column}"
    return f"{len(declared)} columns, not {len(schema)}"


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
