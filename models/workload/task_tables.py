"""The runtime-system level of a workload: what a rank's threads-to-be were asked to do, in program order.

Traced with one thread per rank, as MUSA does (Grass, UPC 2017, section 6.3.2), so that a node model can schedule the
task instances on any number of cores. Times are CPU time of the traced run in picoseconds.

A rank's MPI operations and its events form one sequence: an event with ``operation_id`` k happened after operation
k - 1 and before operation k. The CPU time between two neighbours of that sequence stands at the later one: an event's
``cpu_ps``; what an operation's phases hold is all CPU time since the operation before, that of its events included.

Tables
------
``task_types``
    One row per construct of the source (``task_type_id`` is the row index): where it stands and what it is.
``events``
    One row per event, ranks contiguous, each rank's rows in program order (``event_id`` is the index within the rank).
``tasks``
    One row per task instance, sorted by (rank, task_instance_id); ids count from 0 in each rank, 0 being the initial
    task, in order of creation. ``operation_id`` is the operation that follows its creation.
``task_dependences``
    Dependences as the program declared them, in order of declaration, sorted by (rank, task_instance_id).
``loops`` and ``loop_chunks``
    Worksharing loops, sorted by (rank, loop_id), and the pieces in which the run executed them. Iterations count from
    0 whatever the loop's bounds.
``task_counters`` and ``chunk_counters``
    Counters of hardware or of the kernel that the traced run read at its events: what a task instance, or a chunk of a
    loop, counted itself, as ``cpu_ps`` is meant. What was not counted all the time has no row.
``page_faults``
    Minor page faults of the rank's thread, sorted by (rank, operation_id): what was counted where an event or an
    operation ended a piece of 10 us or more, of that piece and the shorter ones before it. Traced times contain what
    they took.
``iterations``
    Where each iteration of the application's main loop begins and ends in a rank, from marks in the source
    (``annotated``) or found by their period.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import pyarrow as pa


class EventKind(IntEnum):
    """What happened; what ``value`` means. The event's ``task_instance_id`` is the task that was running before it."""

    parallel_begin = 0  # value: threads asked for, 0 for the default
    parallel_end = 1
    task_create = 2  # value: the new task instance
    task_begin = 3  # value: the task instance that starts to run
    task_end = 4  # value: the task instance that goes on; task_instance_id has completed
    task_switch = 5  # value: the task instance that goes on; task_instance_id is suspended (taskyield, untied)
    taskwait_begin = 6  # value: the pseudo task instance that holds its dependences, or -1
    taskwait_end = 7
    taskgroup_begin = 8
    taskgroup_end = 9
    barrier_begin = 10  # value: 1 if the source asks for it, 0 if it ends a construct
    barrier_end = 11
    loop_begin = 12  # value: the loop_id
    loop_chunk = 13  # value: first iteration; starts here
    loop_end = 14  # value: the loop_id
    single_begin = 15  # value: 1 for the thread that executes it
    single_end = 16
    masked_begin = 17
    masked_end = 18
    sections_begin = 19  # value: number of sections
    section = 20  # value: which one; starts here
    sections_end = 21
    critical_begin = 22  # value: the lock's address
    critical_end = 23
    taskyield = 24
    cancel = 25
    mark_begin = 26  # value: region_id of a region marked in the source
    mark_end = 27
    iteration = 28  # value: number of the iteration that begins, by a mark in the source
    implicit_begin = 29  # value: the implicit task instance that starts; size of the team stands in parallel_begin
    implicit_end = 30
    taskloop_begin = 31  # value: number of iterations
    taskloop_end = 32


class DependenceKind(IntEnum):
    """OpenMP dependence types. A runtime that reports ``out`` as ``inout`` loses nothing: they order alike."""

    depend_in = 0
    depend_out = 1
    depend_inout = 2
    depend_mutexinoutset = 3
    depend_inoutset = 4


class TaskFlag(IntEnum):
    """Bits of a task instance's ``flags``."""

    undeferred = 1  # if(0): the creator waits for it
    untied = 2
    final = 4
    mergeable = 8
    merged = 16
    implicit = 32
    initial = 64
    taskloop = 128
    taskwait = 256  # a pseudo task: the dependences of a taskwait


TASK_TYPES_SCHEMA: Final = pa.schema(
    [
        pa.field("construct", pa.string(), nullable=False),  # task, taskloop, parallel, loop, sections, single, ...
        pa.field("function", pa.string(), nullable=False),  # of the program's source that holds the construct
        pa.field("file", pa.string(), nullable=False),
        pa.field("line", pa.int32(), nullable=False),  # 0 where the program has no debug information
        pa.field("module", pa.string(), nullable=False),  # file name of the program or library
        pa.field("offset", pa.int64(), nullable=False),  # of the call that creates it, in the module's file addresses
    ]
)
EVENTS_SCHEMA: Final = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("operation_id", pa.int32(), nullable=False),
        pa.field("kind", pa.int8(), nullable=False),  # EventKind
        pa.field("task_instance_id", pa.int32(), nullable=False),
        pa.field("task_type_id", pa.int32(), nullable=False),  # construct concerned, -1 where there is none
        pa.field("value", pa.int64(), nullable=False),
        pa.field("cpu_ps", pa.int64(), nullable=False),
    ]
)
TASKS_SCHEMA: Final = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("task_instance_id", pa.int32(), nullable=False),
        pa.field("parent_id", pa.int32(), nullable=False),  # -1 for the initial task
        pa.field("task_type_id", pa.int32(), nullable=False),
        pa.field("operation_id", pa.int32(), nullable=False),
        pa.field("flags", pa.int32(), nullable=False),  # TaskFlag bits
        pa.field("cpu_ps", pa.int64(), nullable=False),  # its own, without its children's
    ]
)
TASK_DEPENDENCES_SCHEMA: Final = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("task_instance_id", pa.int32(), nullable=False),
        pa.field("kind", pa.int8(), nullable=False),  # DependenceKind
        pa.field("address", pa.int64(), nullable=False),
    ]
)
LOOPS_SCHEMA: Final = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("loop_id", pa.int32(), nullable=False),
        pa.field("task_type_id", pa.int32(), nullable=False),
        pa.field("schedule", pa.string(), nullable=False),  # static, dynamic, guided, runtime, auto, unknown
        pa.field("num_iterations", pa.int64(), nullable=False),  # -1 where the runtime does not say
        pa.field("chunk_iterations", pa.int64(), nullable=False),  # 0 where the source names none
    ]
)
LOOP_CHUNKS_SCHEMA: Final = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("loop_id", pa.int32(), nullable=False),
        pa.field("first_iteration", pa.int64(), nullable=False),
        pa.field("num_iterations", pa.int64(), nullable=False),
        pa.field("cpu_ps", pa.int64(), nullable=False),
    ]
)
PAGE_FAULTS_SCHEMA: Final = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("operation_id", pa.int32(), nullable=False),  # the operation that followed
        pa.field("event_id", pa.int32(), nullable=False),  # that ended the piece, -1 where the operation did
        pa.field("num_faults", pa.int64(), nullable=False),
    ]
)
ITERATIONS_SCHEMA: Final = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("iteration", pa.int32(), nullable=False),  # from 0
        pa.field("first_operation_id", pa.int32(), nullable=False),
        pa.field("end_operation_id", pa.int32(), nullable=False),
        pa.field("first_event_id", pa.int32(), nullable=False),
        pa.field("end_event_id", pa.int32(), nullable=False),
        pa.field("annotated", pa.bool_(), nullable=False),
    ]
)

TASK_COUNTERS_SCHEMA: Final = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("task_instance_id", pa.int32(), nullable=False),
        pa.field("counter", pa.dictionary(pa.int16(), pa.string()), nullable=False),
        pa.field("value", pa.int64(), nullable=False),
    ]
)
CHUNK_COUNTERS_SCHEMA: Final = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("loop_id", pa.int32(), nullable=False),
        pa.field("first_iteration", pa.int64(), nullable=False),
        pa.field("counter", pa.dictionary(pa.int16(), pa.string()), nullable=False),
        pa.field("value", pa.int64(), nullable=False),
    ]
)

SCHEMAS: Final = {
    "task_types": TASK_TYPES_SCHEMA,
    "events": EVENTS_SCHEMA,
    "tasks": TASKS_SCHEMA,
    "task_dependences": TASK_DEPENDENCES_SCHEMA,
    "loops": LOOPS_SCHEMA,
    "loop_chunks": LOOP_CHUNKS_SCHEMA,
    "page_faults": PAGE_FAULTS_SCHEMA,
    "iterations": ITERATIONS_SCHEMA,
    "task_counters": TASK_COUNTERS_SCHEMA,
    "chunk_counters": CHUNK_COUNTERS_SCHEMA,
}
