"""The level of GPUs: kernel launches in the order in which they were made, and what a host copied to the GPU.

``launches``
    One row per launch: what it is (name, grid, block, registers of a thread, bytes of shared memory of a block) and
    what its instructions come to. ``launch_id`` counts launches from 1 in the traced order; where only some were
    chosen, only those have rows.
``copies``
    Memory that the host wrote before launch ``before_launch_id`` (the number behind the last launch where none
    followed).
``gpu_operations``
    What ranks of an MPI program gave their GPUs, and where they waited for them: one row per operation of a rank that
    is such a thing, sorted by rank and ``operation_id``. Launch ``launch_id`` is the last phase before its operation;
    all launches of a rank are in its order. A launch, a copy, a set, a host function and a communication are given to
    ``stream`` and done later, in its order; ``record_event`` and ``wait_event`` order streams, and the kinds
    ``synchronize_*`` are where the rank waits; ``device_buffer`` marks an MPI call on memory of a GPU. Without rows
    each launch is a phase of one rank, one after the other.
    ``device``: the number of the GPU in its process; ``peer``: that of the other GPU of a copy between two, else -1;
    ``priority`` of the stream, the lower the sooner; ``flags``: see GpuFlag. ``thread`` of the rank: 0 makes the MPI
    calls; each thread makes its operations in the order of the rows, the phases before one are its own, and threads
    wait for each other by ``signal_thread`` and ``await_thread`` alone. Where the trace has times (``kernels``,
    gpu_step_tables) a launch has no ``launch_id``, but a ``kernel_id`` and a ``duration_ps``.

The instructions themselves stand in ``Workload.gpu`` (``LaunchStreams``), launch by launch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum, IntFlag
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from manyscale.models.workload.instruction_details import InstructionCounts
from manyscale.models.workload.launch_trace import LaunchTrace, StaticInstructions

LAUNCHES_SCHEMA: Final = pa.schema(
    [
        pa.field("launch_id", pa.int32(), nullable=False),
        pa.field("kernel_name", pa.string(), nullable=False),
        pa.field("grid_x", pa.int32(), nullable=False),
        pa.field("grid_y", pa.int32(), nullable=False),
        pa.field("grid_z", pa.int32(), nullable=False),
        pa.field("block_x", pa.int32(), nullable=False),
        pa.field("block_y", pa.int32(), nullable=False),
        pa.field("block_z", pa.int32(), nullable=False),
        pa.field("shared_bytes", pa.int32(), nullable=False),  # of a block
        pa.field("registers", pa.int32(), nullable=False),  # of a thread
        pa.field("binary_version", pa.int32(), nullable=False),  # 86: code for sm_86
        pa.field("stream", pa.int64(), nullable=False),
        pa.field("blocks", pa.int64(), nullable=False),
        pa.field("warps", pa.int64(), nullable=False),
        pa.field("warp_instructions", pa.int64(), nullable=False),
        pa.field("thread_instructions", pa.int64(), nullable=False),
        pa.field("memory_requests", pa.int64(), nullable=False),  # for sectors of global and local memory
        # standard deviation of the blocks' thread instructions over their mean; NaN where unknown
        pa.field("block_size_cov", pa.float64(), nullable=False),
        pa.field("digest", pa.string(), nullable=False),  # of what the launch executes, whatever its place
    ]
)
COPIES_SCHEMA: Final = pa.schema(
    [
        pa.field("before_launch_id", pa.int32(), nullable=False),
        pa.field("address", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
    ]
)
GPU_OPERATIONS_SCHEMA: Final = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("operation_id", pa.int32(), nullable=False),
        pa.field("kind", pa.int8(), nullable=False),  # GpuOperationKind
        pa.field("stream", pa.int64(), nullable=False),  # of the rank, 0 the default one
        pa.field("launch_id", pa.int32(), nullable=False),  # 0 for what is no launch
        pa.field("bytes", pa.int64(), nullable=False),  # of copies and sets
        pa.field("event", pa.int32(), nullable=False),  # of the rank, from 1; 0 for none
        pa.field("device", pa.int32(), nullable=False),  # number of the GPU in its process
        pa.field("peer", pa.int32(), nullable=False),  # of a copy to it from device, or -1
        pa.field("priority", pa.int32(), nullable=False),  # of the stream, the lower the sooner
        pa.field("flags", pa.int32(), nullable=False),  # sum of GpuFlag
        pa.field("thread", pa.int32(), nullable=False),
        pa.field("kernel_id", pa.int32(), nullable=False),  # row of kernels, or -1
        # on the GPU that was traced; of a communication without what its members wait for each other; -1: unknown
        pa.field("duration_ps", pa.int64(), nullable=False),
    ]
)
SCHEMAS: Final = {"launches": LAUNCHES_SCHEMA, "copies": COPIES_SCHEMA, "gpu_operations": GPU_OPERATIONS_SCHEMA}


class GpuOperationKind(IntEnum):
    """What a rank gives a stream of its GPU, or waits for; a communication is one of NCCL's. A device buffer is that of
    an MPI call. A thread that awaits ``event`` goes on once another has signalled it."""

    launch = 0
    copy_to_device = 1
    copy_to_host = 2
    copy_on_device = 3
    copy_on_host = 4
    set = 5
    host_function = 6
    communication = 7
    record_event = 8
    wait_event = 9
    synchronize_stream = 10
    synchronize_event = 11
    synchronize_device = 12
    device_buffer = 13
    signal_thread = 14
    await_thread = 15


class GpuFlag(IntFlag):
    """What more is known of an operation: the host waits until it is done (a synchronous copy); its memory of the host
    is not page-locked; its stream does not wait for the default one (cudaStreamNonBlocking); its stream is the default
    one of its device; a copy between two GPUs comes from the peer."""

    waits = 1
    pageable = 2
    non_blocking = 4
    default_stream = 8
    from_peer = 16


class LaunchStreams(Protocol):
    """The instructions of launches, by the ``launch_id`` of their rows. An unknown one raises KeyError."""

    @property
    def digest(self) -> str:
        """Hexadecimal content hash of all launches, in their order."""
        ...

    @property
    def launch_ids(self) -> tuple[int, ...]:
        """Of launches whose instructions are known."""
        ...

    @property
    def counted_ids(self) -> tuple[int, ...]:
        """Of launches that were executed, and of which counts alone are known: they have rows, and no ``trace``."""
        ...

    @property
    def rules(self) -> Mapping[str, Any] | None:
        """By which TBPoint chose the launches whose instructions are known (keys of LaunchSampling), where it did."""
        ...

    def launch_digest(self, launch_id: int) -> str:
        """Hexadecimal hash of what a launch executes: equal for launches that execute the same."""
        ...

    def executed(self, launch_id: int) -> Mapping[str, int]:
        """Executed warp instructions of a launch by the root of their opcode."""
        ...

    def has_words(self, launch_id: int) -> bool:
        """Whether the trace of a launch has words of its asynchronous operations, or of launches that are like it."""
        ...

    def cluster_blocks(self, launch_id: int) -> int:
        """How many blocks each cluster of a launch has, or of launches that are like it; 1: there are no clusters."""
        ...

    def detailed_counts(self, launch_id: int) -> tuple[bytes, InstructionCounts] | None:
        """The counts of a launch whose static instructions have ``details``, with a key: launches of one kernel with
        equal keys have the same code. None where they have none; quicker than ``instruction_counts``."""
        ...

    def instruction_counts(self, launch_id: int) -> tuple[StaticInstructions, InstructionCounts]:
        """Static instructions of a launch, and how often each was executed."""
        ...

    def recorded_blocks(self, launch_id: int) -> np.ndarray | None:
        """bool[blocks]: whose instructions are known, where not those of all are: ``trace`` has these alone."""
        ...

    def trace(self, launch_id: int) -> LaunchTrace:
        """A launch, in memory: 6 bytes an instruction and 12 an access."""
        ...

    def block_batches(self, launch_id: int, max_instructions: int) -> Iterator[LaunchTrace]:
        """The blocks of a launch in order, in pieces of at most so many warp instructions (or one block)."""
        ...
