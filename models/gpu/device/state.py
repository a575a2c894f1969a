"""What a run's GPUs, and the hosts that give them work, consist of, as arrays that kernels read and change.

A *host* is a thread of a rank: *items* that it comes to one after the other, each after some compute. An item is an
operation of the network's (an MPI call), or gives a stream an *operation*, or waits for some, or hands over to another
thread: such a signal is an operation of no stream, done when it is given. Operations of a stream are done in its order;
beyond that an operation waits for the event that it names, and by the rules of the default stream.

A *meeting* is a collective that streams take part in: it begins when the last member's stream has come to it, and all
go on when it ends.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

MPI_CALL: Final = 100  # kind of an item, beside those of GpuOperationKind
FRESH, COMPUTED, WAITING = 0, 1, 2  # where in its item a host is
GIVEN, STARTS, RUNS = 0, 1, 2  # of a launch: not begun, in its latency, on the SMs or queued for them
IDLE, ALONE, SHARED = 0, 1, 2  # of a GPU: how many launches it runs
BLOCKS, WARPS, REGISTERS, SHARED_BYTES = range(4)  # what blocks take of an SM
OF_SM: Final = ("issue", "int_unit", "fp32_unit", "fp64_unit", "sfu_unit", "tensor_unit", "branch_unit", "uniform_unit",
                "texture_unit", "l1")  # fmt: skip
OF_GPU: Final = ("l2", "dram")
RESOURCES: Final = (*OF_SM, *OF_GPU)  # what they share: of an SM, and of the GPU
NUM_OF_SM, NUM_RESOURCES = len(OF_SM), len(RESOURCES)

HOST: Final = np.dtype(
    [
        ("first_item", "i8"), ("end_item", "i8"), ("item", "i8"), ("end", "i8"), ("phase", "i4"), ("pending", "i4"),
        ("rank", "i4"), ("thread", "i4"),
    ]
)  # fmt: skip
ITEM: Final = np.dtype(
    [
        ("compute", "i8"),  # before it
        ("kind", "i2"), ("waits", "i2"),  # waits: for its own operation
        ("row", "i4"),  # of the workload's operations, -1: none
        ("operation", "i4"),  # that it gives a stream, -1: none
        ("awaited", "i4"),  # operation that synchronize_event or await_thread waits for, -1: none
        ("stream", "i4"), ("strand", "i4"),
        ("cause", "i4"),  # the last operation that it waited for, -1: none
        ("unused", "i4"),
    ]
)  # fmt: skip
OPERATION: Final = np.dtype(
    [
        ("kind", "i1"), ("phase", "i1"), ("is_done", "i1"), ("is_traced", "i1"),  # traced: takes a time of the trace
        ("stream", "i4"), ("gpu", "i4"),
        ("launch", "i4"),  # row of LAUNCH; -1: none
        ("strand", "i4"), ("meeting", "i4"),  # of a communication; -1: none
        ("engine", "i4"), ("other_engine", "i4"),  # -1: none
        ("awaited", "i4"),  # operation that recorded the event it waits for, -1: none
        ("pending", "i4"),
        ("cause", "i4"),  # the last operation before it began, -1: it was given then
        ("first_edge", "i4"), ("following", "i4"),  # following: in a GPU's queue, or of those who meet
        ("unused", "i4"),
        # on its engines; of a launch from when it runs on, whatever runs beside it; -1: as blocks of all share the GPU
        ("takes", "i8"),
        ("given", "i8"), ("start", "i8"), ("end", "i8"),
        ("runs", "i8"),  # from when on: of a launch, and of a meeting
    ]
)  # fmt: skip
MEETING: Final = np.dtype(
    [
        ("size", "i4"), ("arrived", "i4"),
        ("first", "i4"),  # operation of those that have come, linked by ``following``; the last one to come is it
        ("strand", "i4"),  # that says when it ends, -1: it takes a known time
        ("takes", "i8"),
    ]
)  # fmt: skip
STREAM: Final = np.dtype(
    [
        ("rank", "i4"), ("gpu", "i4"), ("priority", "i4"),  # the lower the sooner
        ("is_default", "i4"), ("is_blocking", "i4"), ("default", "i4"),  # of its rank and GPU, -1: none
        ("first", "i4"), ("end", "i4"),  # streams of its rank and GPU
        ("tail", "i8"), ("is_fresh", "i4"), ("unused", "i4"),  # fresh: given more since the default stream was
    ]
)  # fmt: skip
LAUNCH: Final = np.dtype(
    [
        ("blocks", "i8"), ("latency", "i8"), ("busy", "i8"), ("tail", "i8"),  # ps; tail: from the last block's end
        ("first_block", "i8"),  # of the arrays of blocks; -1: all take block_ps, as many at once as there is room
        ("block_ps", "f8"), ("scale", "f8"), ("at_once", "i8"),
    ]
)  # fmt: skip
GPU: Final = np.dtype(
    [
        ("owner", "i4"), ("running", "i4"), ("mode", "i4"), ("known", "i4"),  # known: those that run, beside
        ("now", "i8"), ("next", "i8"), ("busy", "i8"), ("overlapped", "i8"), ("since", "i8"),  # ``running``
        ("assumed", "i8"),  # of ``overlapped``: some shared it that are no known ones
        ("queue_first", "i8"), ("queue_last", "i8"), ("arrivals", "i8"),
    ]
)  # fmt: skip
SLOT: Final = np.dtype(
    [
        ("operation", "i8"), ("next_block", "i8"), ("left", "i8"), ("arrival", "i8"), ("begin", "i8"),
        ("resident", "i8"), ("level", "f8"), ("is_within", "i4"), ("unused", "i4"),
    ]
)  # fmt: skip
GROUP: Final = np.dtype([("count", "i8"), ("progress", "f8"), ("rate", "f8"), ("next", "f8"), ("issue", "f8")])


class Devices(NamedTuple):
    """All hosts and GPUs. Of a block of each launch ``need`` [launches, 4] of an SM, and ``use`` [launches, RESOURCES]:
    which part it takes of what an SM, or the GPU, gives while it runs alone. Groups are the blocks of a launch on one
    SM: ``group`` [GPUs, slots, SMs]; ``target``: the progress at which each of them ends. Of SMs ``used`` [GPUs, SMs,
    4] and ``changed``. ``limit``: what an SM has of the four; ``rate``: the part of each of RESOURCES that can be had.
    ``engine``: until when each is held, and ``engine_last``: by which operation. ``edge``: (operation or, from their
    number on, host that goes on; next edge). ``work``: operations that can begin, from ``mark[0]`` to ``mark[1]``;
    ``mark[2]``: edges; ``mark[3]``: whether the launches of several ranks run at the same time; ``mark[4]``: how many
    do. ``delay`` of traced operations, ps: from when they are given, and behind the one before. ``begin`` and ``end``
    of rows: the host's part of each operation."""

    host: np.ndarray
    item: np.ndarray
    operation: np.ndarray
    stream: np.ndarray
    launch: np.ndarray
    need: np.ndarray
    use: np.ndarray
    block_begin: np.ndarray
    block_end: np.ndarray
    block_sm: np.ndarray
    gpu: np.ndarray
    slot: np.ndarray
    group: np.ndarray
    target: np.ndarray
    used: np.ndarray
    changed: np.ndarray
    limit: np.ndarray
    rate: np.ndarray
    engine: np.ndarray
    engine_last: np.ndarray
    meeting: np.ndarray
    delay: np.ndarray
    edge: np.ndarray
    work: np.ndarray
    mark: np.ndarray
    begin: np.ndarray
    end: np.ndarray
