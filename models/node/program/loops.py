"""Worksharing constructs of a rank (loops, sections): how their traced chunks become task instances of N cores.

With one thread a loop of static schedule runs as one chunk, which is cut into equal parts, one per core (fewer if the
loop has fewer chunks to give). A dynamic loop's chunks are traced as they would be handed out. A guided loop is traced
in small equal chunks; they are put together so that a group holds at least what LLVM's OpenMP runtime hands out next,
the remaining iterations / (2 N) (kmp_dispatch.cpp, guided_iterative_chunked), or the chunk of the source. Each section
is a chunk; sections that were not traced one by one (clang's) stay with the instance that meets them, and so does a
loop without traced chunks.

A static chunk that does more than compute (it creates tasks, communicates, takes locks) is not cut. A construct ends
where its end was traced, or, cancelled, at the cancel or at the next barrier, end of the implicit task or construct.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.kernels import allocation_free, inner_inlined
from manyscale.models.node.program.node_program import LoopFlag
from manyscale.models.workload.task_tables import EventKind

_K = EventKind
_LOOP_BEGIN, _CHUNK, _LOOP_END = int(_K.loop_begin), int(_K.loop_chunk), int(_K.loop_end)
_SECTIONS_BEGIN, _SECTION, _SECTIONS_END = int(_K.sections_begin), int(_K.section), int(_K.sections_end)
_BARRIER_BEGIN, _IMPLICIT_END, _CANCEL = int(_K.barrier_begin), int(_K.implicit_end), int(_K.cancel)
_CREATE, _TASKGROUP_BEGIN, _PARALLEL_BEGIN = int(_K.task_create), int(_K.taskgroup_begin), int(_K.parallel_begin)
_TASKGROUP_END, _PARALLEL_END = int(_K.taskgroup_end), int(_K.parallel_end)
_IS_MARK: Final = np.isin(np.arange(len(_K)), [_K.mark_begin, _K.mark_end, _K.iteration, _K.taskyield])

CONSTRUCT: Final = np.dtype(
    [
        ("loop", "i4"), ("num_chunks", "i4"), ("first_chunk", "i4"), ("is_plain", "u1"), ("has_barrier", "u1"),
        ("num_events", "i4"), ("num_rows", "i8"), ("first_row", "i8"), ("num_parts", "i8"), ("seen", "i4"),
        ("task_type", "i4"), ("operation", "i4"), ("flags", "u1"),
    ]
)  # fmt: skip


@dataclass(frozen=True)
class Loops:
    """The rank's table ``loops`` and ``loop_chunks``: row of ``first_loop`` + i is loop i, whose chunks are rows
    [first_chunk[i], first_chunk[i + 1])."""

    schedule: list[str]
    num_iterations: np.ndarray
    chunk_iterations: np.ndarray
    first_chunk: np.ndarray
    iterations_of_chunk: np.ndarray


def scan(
    kind: np.ndarray, task: np.ndarray, value: np.ndarray, operation: np.ndarray, task_type: np.ndarray, num_tasks: int
) -> tuple[np.ndarray, int, int, int]:
    """(constructs in the order in which they begin, event of a chunk outside of any construct or -1, task creations,
    how deep groups and regions are nested). Arrays: one entry per event. O(events)."""
    begins = int(np.count_nonzero((kind == _LOOP_BEGIN) | (kind == _SECTIONS_BEGIN)))
    constructs = np.zeros(begins, CONSTRUCT)
    stray, num_created, deepest = _scan(
        kind, task, value, operation, task_type, _IS_MARK, constructs, np.full((num_tasks, 2), -1, np.int32)
    )
    return constructs, int(stray), int(num_created), int(deepest)


@allocation_free
def _scan(kind, task, value, operation, task_type, is_mark, constructs, of_task):  # type: ignore[no-untyped-def]
    """See scan. ``of_task`` [tasks, 2]: the task's open construct and the one that it closed last. O(events)."""
    count = 0
    stray = -1
    num_created = 0
    depth = 0
    deepest = 0
    for e in range(kind.shape[0]):
        k = kind[e]
        if k == _CREATE:
            num_created += 1
        elif k == _TASKGROUP_BEGIN or k == _PARALLEL_BEGIN:
            depth += 1
            deepest = max(deepest, depth)
        elif k == _TASKGROUP_END or k == _PARALLEL_END:
            depth = max(depth - 1, 0)
        t = task[e]
        if constructs.shape[0] == 0 or t < 0 or t >= of_task.shape[0]:
            if k == _CHUNK or k == _SECTION:
                return e, num_created, deepest
            continue
        closed = of_task[t, 1]
        if closed >= 0 and not is_mark[k]:
            constructs[closed].has_barrier = (k == _BARRIER_BEGIN or k == _IMPLICIT_END) and (
                constructs[closed].operation == operation[e]
            )
            of_task[t, 1] = -1
        c = of_task[t, 0]
        if c >= 0:
            each = constructs[c]
            each.num_events += 1
            if each.operation != operation[e]:
                each.is_plain = 0
            each.operation = operation[e]
        if k == _LOOP_BEGIN or k == _SECTIONS_BEGIN:
            each = constructs[count]
            each.loop = value[e] if k == _LOOP_BEGIN else -1
            each.task_type = task_type[e]
            each.is_plain = 1
            each.operation = operation[e]
            of_task[t, 0] = count
            count += 1
        elif k == _CHUNK or k == _SECTION:
            if c < 0:
                stray = e
                break
            constructs[c].num_chunks += 1
        elif c >= 0 and ends_construct(k):
            of_task[t, 0] = -1
            of_task[t, 1] = c
            constructs[c].has_barrier = k == _BARRIER_BEGIN or k == _IMPLICIT_END
            if constructs[c].has_barrier:
                of_task[t, 1] = -1
        elif c >= 0 and not is_mark[k]:
            constructs[c].is_plain = 0
    return stray, num_created, deepest


def note_forks(constructs: np.ndarray, kind: np.ndarray) -> None:
    """Adds to the ``flags`` which constructs are the first after a parallel region began. O(events)."""
    begins = np.flatnonzero((kind == _LOOP_BEGIN) | (kind == _SECTIONS_BEGIN))
    regions = np.cumsum(kind == _PARALLEL_BEGIN, dtype=np.int64)[begins]
    constructs["flags"] |= np.where(np.diff(regions, prepend=0) > 0, LoopFlag.forks, 0).astype(np.uint8)


@inner_inlined
def ends_construct(kind):  # type: ignore[no-untyped-def]
    """Whether an event of a task that has a loop or sections open is their end; the begin of others is one, too."""
    return (
        kind == _LOOP_END or kind == _SECTIONS_END or kind == _CANCEL or kind == _BARRIER_BEGIN or kind == _IMPLICIT_END
    )


def place_chunks(constructs: np.ndarray, loops: Loops, num_cores: int) -> tuple[np.ndarray, int]:
    """(which row of its construct each traced chunk is, chunks of static loops that are not cut).

    Fills ``first_chunk``, ``num_rows``, ``num_parts`` and ``flags`` of the constructs. O(chunks + loops)."""
    constructs["first_chunk"] = np.cumsum(constructs["num_chunks"]) - constructs["num_chunks"]
    row = np.arange(int(constructs["num_chunks"].sum())) - np.repeat(
        constructs["first_chunk"], constructs["num_chunks"]
    )
    row = row.astype(np.int32)
    constructs["num_rows"] = constructs["num_chunks"]
    constructs["num_parts"] = 1
    is_loop = constructs["loop"] >= 0
    loop = constructs["loop"]
    schedule = np.array([*loops.schedule, "sections"], dtype=str)[loop]
    single = (constructs["num_chunks"] == 1) & np.isin(schedule, ["auto", "runtime", "unknown"])
    is_static = is_loop & (constructs["num_chunks"] > 0) & ((schedule == "static") | single)
    constructs["flags"] = np.where(is_loop & ~is_static, LoopFlag.asked, 0)
    uncut = int(np.count_nonzero(is_static & (constructs["is_plain"] == 0))) if num_cores > 1 else 0
    cut = np.flatnonzero(is_static & (constructs["is_plain"] == 1))
    if len(cut):
        iterations, chunk = loops.num_iterations[loop[cut]], np.maximum(loops.chunk_iterations[loop[cut]], 1)
        parts = np.where(iterations < 0, num_cores, np.minimum(num_cores, np.maximum(-(-iterations // chunk), 1)))
        constructs["num_parts"][cut] = constructs["num_rows"][cut] = parts
        row[np.repeat(np.isin(np.arange(len(constructs)), cut), constructs["num_chunks"])] = 0
    guided = np.flatnonzero(is_loop & (constructs["num_chunks"] > 0) & (schedule == "guided"))
    if len(guided):
        num_rows, which = np.empty(len(guided), np.int64), loop[guided]
        _guided(
            (
                constructs["first_chunk"][guided], constructs["num_chunks"][guided], loops.first_chunk[which],
                np.maximum(loops.chunk_iterations[which], 1),
            ),
            loops.iterations_of_chunk, num_cores, row, num_rows,
        )  # fmt: skip
        constructs["num_rows"][guided] = num_rows
    return row, uncut


@allocation_free
def _guided(loops, iterations, num_cores, row, num_rows):  # type: ignore[no-untyped-def]
    """Group the chunks of guided loops: ``row`` of each, and how many groups there are. ``loops``: of each loop its
    first chunk, how many it has, its first one in the table of ``iterations``, and the least of a group. O(chunks)."""
    first, count, first_of_table, least = loops
    for i in range(first.shape[0]):
        remaining = 0
        for j in range(count[i]):
            remaining += iterations[first_of_table[i] + j]
        group = -1
        wanted = 0
        for j in range(count[i]):
            if wanted <= 0:
                group += 1
                wanted = max(least[i], remaining // (2 * num_cores))
            row[first[i] + j] = group
            wanted -= iterations[first_of_table[i] + j]
            remaining -= iterations[first_of_table[i] + j]
        num_rows[i] = group + 1
