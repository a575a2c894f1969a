"""A rank's node program from its runtime-system level, traced with one thread (workload/task_tables.py).

Method: MUSA's (Grass, UPC 2017, sections 6.3.2 and 6.3.3): the events of a run with one thread are put back together to
what each task instance asked of its runtime system, whichever order the run executed instances in.

* Time: an event's ``cpu_ps`` is a piece of the instance that ran before it; what an operation's compute phases hold
  beyond its events is a last piece, of the instance that calls it. The pieces of a rank add up to its compute phases.
  A sleep before an operation is a piece of its own there (its ``piece_event`` is -2), outside that sum. Neighbouring
  pieces of an instance with no step in between are one, if their segments follow each other.
* Implicit tasks are part of the instance that meets the parallel region, most often instance 0. Code of a region
  outside worksharing constructs is executed by all threads alike, so it takes the traced thread's time once. A region
  ends with a barrier; inside another region or inside a task it is a group, and so are its barriers.
* Undeferred and merged tasks, and tasks whose parent is final, are called. A taskwait with dependences creates its
  pseudo task and waits for it. A taskyield does nothing.
* Loops and sections: node/program/loops.py. A loop is waited for where the next event is a barrier.
* Dependences: node/program/task_graph.py. Instances that exclude each other (mutexinoutset) run in order of creation
  here. Edges from instances of an earlier phase, which are complete, are left out. Instances that different chunks
  create keep the dependences of the traced order.
* Phases are cut where the initial task calls an operation, or an iteration begins, and certainly no instance is left:
  decided from creations and waits in program order. A taskwait leaves what the children created and did not wait for.
* ``ordered`` regions exclude each other as locks do, in any order.

Memory: about 180 bytes an event while it is built (measured; a task is three events), 60 of them the program's.
"""

from __future__ import annotations

import os
from typing import Final

import numpy as np

from manyscale.models.kernels import allocation_free
from manyscale.models.node.program import kernel
from manyscale.models.node.program.draft import Draft, Events, new_draft
from manyscale.models.node.program.loops import note_forks, place_chunks, scan
from manyscale.models.node.program.node_program import NodeProgram
from manyscale.models.node.program.traced_rank import TracedRank
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.models.workload import Workload, WorkloadError
from manyscale.models.workload.notes import Errs, Note, changes, informs

_MAX_INSTANCES: Final = 2**31 - 1
_DEFAULT: Final = RuntimeSystem()


def build_program(
    workload: Workload, rank: int, num_cores: int, runtime: RuntimeSystem = _DEFAULT,
    first_operation: int = 0, end_operation: int | None = None,
) -> NodeProgram:  # fmt: skip
    """The program of a rank for ``num_cores`` cores: of what it did after operation ``first_operation`` - 1 up to
    operation ``end_operation`` - 1 (None: to its end). Ids and rows in it are those of the whole workload.

    O(events + dependences + edges + segments of the rank). Raises WorkloadError, naming the rank and the event, for a
    trace that contradicts itself, and for a part in whose beginning or end task instances are under way.
    """
    if num_cores < 1:
        raise WorkloadError(f"rank {rank}: {num_cores} cores; a rank needs at least one")
    if not 0 <= rank < workload.num_ranks:
        raise WorkloadError(f"rank {rank}: the workload has {workload.num_ranks} ranks, counted from 0")
    priority = _priorities(workload, runtime)
    part = TracedRank(workload, rank, first_operation, end_operation)
    predecessor, successor = part.edges()
    constructs, stray, num_created, deepest = scan(
        part.kind, part.task, part.value, part.operation, part.task_type, part.num_tasks
    )
    if stray >= 0:
        part.fail(stray, "is a chunk outside of any loop")
    chunk_row, uncut = place_chunks(constructs, part.loops(constructs), num_cores)
    note_forks(constructs, part.kind)
    events = part.events(constructs, chunk_row)
    num_rows = 1 + num_created + int(constructs["num_rows"].sum(dtype=np.int64))
    if num_rows > _MAX_INSTANCES:
        raise WorkloadError(f"rank {rank}: has {num_rows} task instances; at most {_MAX_INSTANCES} can be scheduled")
    num_pieces, num_steps = _most(part, events, deepest)
    draft = new_draft(
        events, num_rows, num_steps, num_pieces, part.first_task, part.first_event_row + part.first_event,
        part.first_operation, part.end_operation,
    )  # fmt: skip
    code, place = kernel.run(events, draft)
    part.check(int(code), int(place))
    unstarted = part.check_ends(draft)
    notes = _notes(part, uncut, unstarted)
    return _program(part, draft, constructs, priority, predecessor, successor, num_cores, notes)


def _most(part: TracedRank, events: Events, deepest: int) -> tuple[int, int]:
    """How many pieces and steps there may be."""
    parts = events.construct["num_parts"].astype(np.int64)
    num_neighbours = len(part.kind) + 2 * len(events.compute_ps)  # an operation is two, with its sleep
    # a neighbour is a piece of each part, and one more wherever its segments do not follow each other
    num_pieces = num_neighbours + int(((parts - 1) * (events.construct["num_events"] + 1)).sum())
    num_pieces += int(np.count_nonzero(np.diff(part.segment_row) != 1)) * int(parts.max(initial=1))
    # beside, it is three steps at most (a barrier that ends a loop), and at a cut each open group is two
    num_cuts = len(events.compute_ps) + len(events.bound) + 1
    return num_pieces, num_pieces + 3 * num_neighbours + 2 * deepest * num_cuts


def _priorities(workload: Workload, runtime: RuntimeSystem) -> np.ndarray:
    """int32[task types + 1]: the last one is the initial task's."""
    columns = [workload.tables["task_types"].column(name).to_pylist() for name in ("function", "file", "line")]
    names = [
        (function, f"{os.path.basename(file)}:{line}", f"{file}:{line}")
        for function, file, line in zip(*columns, strict=True)
    ]
    unknown = sorted(name for name in runtime.priorities if not any(name in each for each in names))
    if unknown:
        known = sorted({name for each in names for name in each[:2] if name})
        raise WorkloadError(
            f"{workload.name}: priorities name {', '.join(unknown)}; the task types are {', '.join(known) or 'none'}"
        )
    priority = np.zeros(len(names) + 1, np.int32)
    for name, value in runtime.priorities.items():
        priority[[row for row, each in enumerate(names) if name in each]] = value
    return priority


def _notes(part: TracedRank, uncut: int, unstarted: int) -> tuple[Note, ...]:
    where = f"rank {part.rank}"
    notes = []
    if part.num_exclusive:
        text = "task instances that exclude each other (mutexinoutset) run in order of creation"
        notes.append(changes("exclusion-in-order", text, where, int(part.num_exclusive), Errs.long))
    if uncut:
        text = f"{uncut} chunks of static loops create tasks, wait or communicate: they are not cut into parts"
        notes.append(changes("chunks-not-cut", text, where, int(uncut), Errs.long))
    if unstarted:
        text = f"{unstarted} task instances never began (cancelled): they take no time"
        notes.append(informs("tasks-never-began", text, where, int(unstarted)))
    return tuple(notes)


def _program(
    part: TracedRank, draft: Draft, constructs: np.ndarray, priority: np.ndarray, predecessor: np.ndarray,
    successor: np.ndarray, num_cores: int, notes: tuple[Note, ...],
) -> NodeProgram:  # fmt: skip
    control = draft.control[0]
    num_rows, num_pieces = int(control["num_rows"]), int(control["num_pieces"])
    row, piece = draft.row[:num_rows], draft.piece[:num_pieces]
    first_step = np.concatenate((np.zeros(1, np.int64), np.cumsum(row["num_steps"], dtype=np.int64)))
    steps = draft.step[: int(first_step[-1])]
    steps = steps[_by_key(steps["row"], first_step)]
    phase = draft.phase[: int(control["num_phases"])]
    phase_first_instance = np.concatenate((np.ones(1, np.int32), phase["end_row"]))
    row_of = draft.task["row"]
    before, after = row_of[predecessor], row_of[successor]
    kept = before >= phase_first_instance[np.searchsorted(phase_first_instance, after, "right") - 1]
    before, after = before[kept], after[kept]
    first_successor = np.concatenate((np.zeros(1, np.int64), np.cumsum(np.bincount(before, minlength=num_rows))))
    pairs = np.stack((constructs["first_row"], constructs["first_row"] + constructs["num_rows"]), axis=1)
    task_type = row["task_type"].copy()
    return NodeProgram(
        rank=part.rank,
        num_cores=num_cores,
        step_action=steps["action"].astype(np.uint8),
        step_target=steps["target"].copy(),
        first_step=first_step,
        parent=row["parent"].copy(),
        task_type=task_type,
        priority=priority[task_type],
        instance_flags=row["flags"].copy(),
        instance_id=np.where(row["task"] > 0, row["task"] + np.int32(part.first_task - 1), np.int32(-1)),
        num_predecessors=np.bincount(after, minlength=num_rows).astype(np.int32),
        first_successor=first_successor,
        successor=after[_by_key(before, first_successor)].astype(np.int32),
        first_chunk=np.append(pairs.ravel(), np.int32(num_rows)).astype(np.int32),
        piece_ps=piece["ps"].copy(),
        piece_instance=piece["row"].copy(),
        piece_event=piece["event"].copy(),
        first_segment=piece["first_segment"].copy(),
        end_segment=piece["end_segment"].copy(),
        part=piece["part"].copy(),
        num_parts=piece["num_parts"].copy(),
        phase_first_step=np.concatenate((np.zeros(1, np.int64), phase["end_step"])),
        phase_first_instance=phase_first_instance,
        phase_operation=phase["operation"].copy(),
        phase_iteration=phase["iteration"].copy(),
        num_locks=part.locks[1],
        notes=notes,
        loop_flags=np.stack((constructs["flags"], np.zeros_like(constructs["flags"])), axis=1).ravel(),
    )


def _by_key(key: np.ndarray, first: np.ndarray) -> np.ndarray:
    """The order of rows by their keys, those of one key as they stand. ``first`` int64[keys + 1]: the first of each.
    O(rows)."""
    order = np.empty(len(key), np.int64)
    _place(np.ascontiguousarray(key, np.int32), first[:-1].copy(), order)
    return order


@allocation_free
def _place(key, place, order):  # type: ignore[no-untyped-def]
    """``place``: where the next row of each key goes."""
    for row in range(key.shape[0]):
        order[place[key[row]]] = row
        place[key[row]] += 1
