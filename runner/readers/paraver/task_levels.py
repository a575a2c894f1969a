"""Tables of the runtime system's level of a workload as events of a Paraver trace: how their rows are numbered.

A row is one record of type 2 on the first thread of its rank, a pair of type and value for each column but ``rank``, in
their order. A value is that of the table + 1, since 0 ends a value in Paraver; of a column of names it is the place of
the name in the labels of the type, from 1 on, and True is 2. The table ``task_types``, which no rank has, is in the
labels alone, a type for each of its columns.
"""

from __future__ import annotations

from typing import Final

from manyscale.models.workload import SCHEMAS

# level: columns by which its rows are sorted, beside the order of the trace
LEVELS: Final = {
    "events": ("rank",),
    "tasks": ("rank", "task_instance_id"),
    "task_dependences": ("rank", "task_instance_id"),
    "loops": ("rank", "loop_id"),
    "loop_chunks": ("rank", "loop_id"),
    "iterations": ("rank", "iteration"),
    "page_faults": ("rank", "operation_id"),
    "task_counters": ("rank", "task_instance_id"),
    "chunk_counters": ("rank", "loop_id"),
}
STATIC: Final = "task_types"
FIRST: Final = 63920000  # types of our own
_PER_LEVEL: Final = 100
_OF_STATIC: Final = FIRST + 9000
COUNTED: Final = 63930000  # of counter c of an instance or chunk, for views: this + c


def columns_of(level: str) -> list[str]:
    """Columns that are written."""
    return [name for name in SCHEMAS[level].names if name != "rank"]


def types_of(level: str) -> list[int]:
    """The event type of each of them."""
    first = _OF_STATIC if level == STATIC else FIRST + _PER_LEVEL * list(LEVELS).index(level)
    return [first + number for number in range(len(columns_of(level)))]
