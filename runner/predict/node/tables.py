"""Tables of what happened inside nodes: which task instance ran on which core when, and how each was executed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import Workload
from manyscale.models.workload.columns import nullable_array, one_chunk, text_array, to_arrow, to_numpy

CORES_SCHEMA: Final = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),  # MPI rank
        pa.field("core", pa.int32(), nullable=False),  # of the rank, from 0
        pa.field("start_ps", pa.int64(), nullable=False),  # when it begins on the core
        pa.field("end_ps", pa.int64(), nullable=False),  # when it ends or gives way
        pa.field("task_instance_id", pa.int32(), nullable=False),  # in the trace; 0: the initial task; -1: a chunk
        pa.field("task_type", pa.dictionary(pa.int32(), pa.string()), nullable=False),  # construct in the source
        pa.field("model", pa.dictionary(pa.int8(), pa.string()), nullable=False),  # of MODELS
        pa.field("instance_id", pa.int64(), nullable=False),  # in the run: equal where the instance is, here and below
        pa.field("creator_id", pa.int64(), nullable=False),  # instance_id of what created it; -1: nothing
        pa.field("created_ps", pa.int64(), nullable=False),  # when it was created, a chunk: when its loop began
        pa.field("ready_ps", pa.int64(), nullable=False),  # when what it depends on had ended, too
    ]
)
CORE_CALLS_SCHEMA: Final = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),  # MPI rank
        pa.field("operation_id", pa.int32(), nullable=False),  # index of the operation within the rank
        pa.field("core", pa.int32(), nullable=False),  # that waited in it; -1: none
        pa.field("start_ps", pa.int64(), nullable=False),  # when it begins
        pa.field("end_ps", pa.int64(), nullable=False),  # when it ends
    ]
)
TASK_INSTANCES_SCHEMA: Final = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),  # MPI rank
        pa.field("iteration", pa.int32(), nullable=False),  # -1 outside a main loop
        pa.field("task_instance_id", pa.int32(), nullable=False),  # in the trace; -1: a chunk of a loop
        pa.field("task_type", pa.dictionary(pa.int32(), pa.string()), nullable=False),  # construct in the source
        pa.field("instructions", pa.int64(), nullable=False),  # that it executes
        pa.field("cycles", pa.float64(), nullable=False),  # that it takes on the target's core
        pa.field("first_cache_misses", pa.int64()),  # null where not all of it was simulated in detail, as below
        pa.field("last_cache_misses", pa.int64()),  # of the last level
        pa.field("model", pa.dictionary(pa.int8(), pa.string()), nullable=False),  # of MODELS
        pa.field("second_cache_misses", pa.int64()),  # of the second level
        pa.field("instance_id", pa.int64(), nullable=False),  # as in cores.parquet
        pa.field("creator_id", pa.int64(), nullable=False),  # instance_id of what created it
        pa.field("core", pa.int32(), nullable=False),  # on which it ended; -1 where the run has other times for it
        pa.field("start_ps", pa.int64(), nullable=False),  # when it begins; -1 as above
        pa.field("end_ps", pa.int64(), nullable=False),  # when it has ended; -1 as above
        pa.field("created_ps", pa.int64(), nullable=False),  # as in cores.parquet; -1 as above
        pa.field("ready_ps", pa.int64(), nullable=False),  # as in cores.parquet; -1 as above
    ]
)
CPI_STACKS_SCHEMA: Final = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),  # MPI rank
        pa.field("iteration", pa.int32(), nullable=False),  # of the main loop; -1 outside
        pa.field("core", pa.int32(), nullable=False),  # -1 in rows of a task type
        pa.field("task_type", pa.dictionary(pa.int32(), pa.string()), nullable=False),  # all types in rows of a core
        pa.field("part", pa.dictionary(pa.int8(), pa.string()), nullable=False),  # what the cycles are spent on
        pa.field("cycles", pa.float64(), nullable=False),  # spent on this part
        pa.field("instructions", pa.int64(), nullable=False),  # of the core or type, in each of its rows
    ]
)
# Codes of the column ``model``, how a time came about: traced, by factors of the study; by TaskPoint, from samples of
# its class; simulated in detail; predicted by the interval model; traced, by the ratio that simulated iterations show
# of its task type. The last holds for phases that were not simulated, and for all of ranks that call MPI inside phases:
# the replay schedules their instances, and what was simulated of them is in task_instances.
MODELS: Final = ("burst", "fast-forward", "detailed", "interval", "ratio")
INITIAL: Final = "initial task"


def type_names(workload: Workload) -> list[str]:
    """Of each task type, and of the initial task last: FUNCTION, with FILE:LINE where the function has several, or
    FILE:LINE alone. No two are equal: those that would be are numbered."""
    functions, files, lines = (
        workload.tables["task_types"].column(name).to_pylist() for name in ("function", "file", "line")
    )
    names: list[str] = []
    for number, (function, file, line) in enumerate(zip(functions, files, lines, strict=True)):
        place = f"{file.rpartition('/')[2]}:{line}" if line else f"type {number}"
        if not function or function.startswith("."):  # what compilers call the body of a region
            names.append(place)
        else:
            names.append(function if functions.count(function) == 1 else f"{function} ({place})")
    again = Counter([*names, INITIAL])
    return [*(f"{name} #{number}" if again[name] > 1 else name for number, name in enumerate(names)), INITIAL]


def codes_and_names(column: pa.ChunkedArray) -> tuple[np.ndarray, list[str]]:
    """Of a dictionary column: the code of each row, and the names that the codes index."""
    whole = one_chunk(column)
    return to_numpy(whole.indices), whole.dictionary.to_pylist()


def cores_table(
    names: Sequence[str], rank: np.ndarray, core: np.ndarray, start_ps: np.ndarray, end_ps: np.ndarray,
    task_instance_id: np.ndarray, task_type: np.ndarray, model: np.ndarray, instance_id: np.ndarray,
    creator_id: np.ndarray, created_ps: np.ndarray, ready_ps: np.ndarray,
) -> pa.Table:  # fmt: skip
    """Rows in the order given; ``task_type`` indexes ``names`` (-1: the last), ``model`` indexes MODELS."""
    columns = [to_arrow(each.astype(np.int32)) for each in (rank, core)]
    columns += [to_arrow(each.astype(np.int64)) for each in (start_ps, end_ps)]
    columns.append(to_arrow(task_instance_id.astype(np.int32)))
    columns += [_named(task_type, names, np.int32), _named(model, MODELS, np.int8)]
    columns += [to_arrow(each.astype(np.int64)) for each in (instance_id, creator_id, created_ps, ready_ps)]
    return pa.Table.from_arrays(columns, schema=CORES_SCHEMA)


def task_instances_table(
    names: Sequence[str], rank: np.ndarray, iteration: np.ndarray, task_instance_id: np.ndarray, task_type: np.ndarray,
    instructions: np.ndarray, cycles: np.ndarray, first_misses: np.ndarray, last_misses: np.ndarray, model: np.ndarray,
    second_misses: np.ndarray, instance_id: np.ndarray, creator_id: np.ndarray, core: np.ndarray, start_ps: np.ndarray,
    end_ps: np.ndarray, created_ps: np.ndarray, ready_ps: np.ndarray,
) -> pa.Table:  # fmt: skip
    """Rows in the order given; as cores_table. Misses of what was not simulated in detail are not known."""
    unknown = model != MODELS.index("detailed")
    first, second, last = (
        nullable_array(each.astype(np.int64), unknown) for each in (first_misses, second_misses, last_misses)
    )
    columns = [to_arrow(each.astype(np.int32)) for each in (rank, iteration, task_instance_id)]
    columns += [_named(task_type, names, np.int32), to_arrow(instructions.astype(np.int64))]
    columns.append(to_arrow(cycles.astype(np.float64)))
    columns += [first, last, _named(model, MODELS, np.int8), second]
    columns += [to_arrow(each.astype(np.int64)) for each in (instance_id, creator_id)]
    columns.append(to_arrow(core.astype(np.int32)))
    columns += [to_arrow(each.astype(np.int64)) for each in (start_ps, end_ps, created_ps, ready_ps)]
    return pa.Table.from_arrays(columns, schema=TASK_INSTANCES_SCHEMA)


def _named(codes: np.ndarray, names: Sequence[str], dtype: type[np.generic]) -> pa.DictionaryArray:
    codes = np.where(codes < 0, len(names) - 1, codes).astype(dtype)
    return pa.DictionaryArray.from_arrays(to_arrow(codes), text_array(list(names)))
