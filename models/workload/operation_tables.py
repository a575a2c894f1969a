"""The burst level of a workload: operations and the compute phases between them, as MUSA's burst trace has them.

Tables
------
``operations``
    One row per MPI operation, ranks contiguous and in rank order, each rank's rows in program order. The row's index
    within its rank is its ``operation_id``.
``phases``
    One row per compute phase: CPU time that precedes operation ``operation_id`` of ``rank``. Several phases may
    precede one operation. Rows are sorted by (rank, operation_id). Compute that nothing follows stands before an
    operation of kind ``other``.
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
``phase_times``
    What other clocks show of each phase, one row per phase: the CPU time of the thread that calls MPI, the CPU time of
    all threads of the process, and the time that passed. ``phases`` holds what the longest of them takes
    (``phase_times``).
``dependencies``
    Of ranks whose operations do not simply run one after another (GOAL): operation ``operation_id`` of ``rank`` starts
    after operation ``requires`` of the same rank has ended, or, if ``on_start``, has started. If every isend and irecv
    of such a workload opens a request, the order of the rows, with its waits, is one that the dependencies allow;
    otherwise its ranks have no other order than these. Sorted by (rank, operation_id).
``jobs``
    Programs that share a machine (``jobs``): ranks ``first_rank`` to ``first_rank + num_ranks`` are of one, those of
    the next follow. A workload of one program has no rows.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import pyarrow as pa

from manyscale.models.workload.columns import text_array

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
    test = 14  # a test or probe that found nothing: takes no time, changes nothing
    # any other call, or the end of a compute phase that no communication follows: takes no time; an access of a file:
    # what its bytes take (models/machine/storage.py)
    other = 15
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
    """Compute scales with the speed of the target's cores, sleep does not. Of what is marked POLLED, only polling did
    it (``workload/polls.py``): readers mark it, and no model sees it."""

    compute = 0
    sleep = 1
    polled_compute = 2
    polled_sleep = 3


POLLED: Final = 2  # the bit that marks a kind of phase


OPERATIONS_SCHEMA: Final = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("kind", pa.dictionary(pa.int8(), pa.string()), nullable=False),
        # destination of a send, source of a receive (ANY_SOURCE), root of a rooted collective; world ranks for
        # point-to-point, communicator-relative for a root; of an access of a file (other) the rank itself; NO_RANK
        # where there is none
        pa.field("peer", pa.int32(), nullable=False),
        pa.field("source", pa.int32(), nullable=False),  # the receive side of a sendrecv, else NO_RANK
        pa.field("tag", pa.int32(), nullable=False),  # ANY_TAG for a receive that takes any
        # sent (per peer for alltoall and scatter); of reduce_scatter, whose sizes are counts, one element; written to a
        # file (other), ``receive_bytes`` then what is read
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("receive_bytes", pa.int64(), nullable=False),
        # of an access of a file (other): those who make it together; 0 for a rank alone
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
PHASE_TIMES_SCHEMA: Final = pa.schema(
    [
        pa.field("thread_ps", pa.int64(), nullable=False),
        pa.field("process_ps", pa.int64(), nullable=False),
        pa.field("wall_ps", pa.int64(), nullable=False),
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
JOBS_SCHEMA: Final = pa.schema(
    [
        pa.field("job_name", pa.string(), nullable=False),
        pa.field("first_rank", pa.int32(), nullable=False),
        pa.field("num_ranks", pa.int32(), nullable=False),
    ]
)

SCHEMAS: Final = {
    "operations": OPERATIONS_SCHEMA,
    "phases": PHASES_SCHEMA,
    "regions": REGIONS_SCHEMA,
    "communicators": COMMUNICATORS_SCHEMA,
    "counters": COUNTERS_SCHEMA,
    "measured": MEASURED_SCHEMA,
    "phase_times": PHASE_TIMES_SCHEMA,
    "dependencies": DEPENDENCIES_SCHEMA,
    "jobs": JOBS_SCHEMA,
}
