"""Pieces of threads as task instances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from manyscale.models.workload.task_tables import (
    EVENTS_SCHEMA,
    TASK_DEPENDENCES_SCHEMA,
    TASK_TYPES_SCHEMA,
    TASKS_SCHEMA,
    DependenceKind,
    EventKind,
    TaskFlag,
)
from manyscale.runner.readers.drmemtrace.order import Piece

PS_PER_US: Final = 1_000_000
_MOST_US: Final = 86_400 * 10**6


def time_ps(piece: Piece) -> int:
    """What it took; up to a day."""
    return min(piece.time_us, _MOST_US) * PS_PER_US


def place_of(piece: int, count: int) -> tuple[int, int]:
    """(task instance, the event that ends it) of a process with ``count`` pieces."""
    return piece + 1, count + 2 + 2 * piece


def tasks_of(ranks: Sequence[Sequence[Piece]]) -> dict[str, pa.Table]:
    """Of each rank with several threads, a task instance for each piece, created at the beginning, whose dependences
    are the pieces that it follows. (Ranks of one thread have no pieces here.) O(pieces + edges)."""
    if not any(ranks):
        return {}
    events: list[dict[str, Any]] = []
    tasks: list[dict[str, Any]] = []
    dependences: list[dict[str, int]] = []
    for rank, pieces in enumerate(ranks):
        times = [time_ps(piece) for piece in pieces]
        begin, end = EventKind.taskwait_begin, EventKind.taskwait_end
        numbers = range(1, len(pieces) + 1)
        rows = [(EventKind.task_create, 0, each, 0) for each in numbers]
        rows += [(begin, 0, -1, -1)] if pieces else []
        for each in numbers:
            rows += [(EventKind.task_begin, 0, each, 0), (EventKind.task_end, each, 0, 0)]
        rows += [(end, 0, -1, -1)] if pieces else []
        events += [
            {
                "rank": rank, "operation_id": 0, "kind": int(kind), "task_instance_id": running, "task_type_id": of,
                "value": value, "cpu_ps": times[running - 1] if running else 0,
            }
            for kind, running, value, of in rows
        ]  # fmt: skip
        tasks += [
            {
                "rank": rank, "task_instance_id": each, "parent_id": 0 if each else -1,
                "task_type_id": 0 if each else -1, "operation_id": 0,
                "flags": 0 if each else int(TaskFlag.initial), "cpu_ps": times[each - 1] if each else 0,
            }
            for each in (0, *numbers)
        ]  # fmt: skip
        dependences += _dependences(rank, pieces)
    kind = {"construct": "task", "function": "thread", "file": "", "line": 0, "module": "", "offset": -1}
    return {
        "task_types": pa.Table.from_pylist([kind], TASK_TYPES_SCHEMA),
        "events": pa.Table.from_pylist(events, EVENTS_SCHEMA),
        "tasks": pa.Table.from_pylist(tasks, TASKS_SCHEMA),
        "task_dependences": pa.Table.from_pylist(dependences, TASK_DEPENDENCES_SCHEMA),
    }


def _dependences(rank: int, pieces: Sequence[Piece]) -> list[dict[str, int]]:
    """A piece that others follow writes what has its number as address, and these read it."""
    followed = {each for piece in pieces for each in piece.after}
    rows = []
    for place, piece in enumerate(pieces):
        kinds = [(DependenceKind.depend_in, each) for each in piece.after]
        kinds += [(DependenceKind.depend_out, place)] if place in followed else []
        rows += [
            {"rank": rank, "task_instance_id": place + 1, "kind": int(kind), "address": each + 1}
            for kind, each in kinds
        ]
    return rows
