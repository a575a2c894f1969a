"""The level of GPUs: kernel launches in the order in which they were made, and what a host copied to the GPU.

``launches``
    One row per launch: what it is (name, grid, block, registers of a thread, bytes of shared memory of a block) and
    what its instructions come to. ``launch_id`` counts launches from 1 in the traced order; where only some were
    chosen, only those have rows.
``copies``
    Memory that the host wrote before launch ``before_launch_id`` (the number behind the last launch where none
    followed).

The instructions themselves stand in ``Workload.gpu`` (``LaunchStreams``), launch by launch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Protocol

import pyarrow as pa

from manyscale.models.workload.launch_trace import LaunchTrace

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
SCHEMAS: Final = {"launches": LAUNCHES_SCHEMA, "copies": COPIES_SCHEMA}


class LaunchStreams(Protocol):
    """The instructions of launches, by the ``launch_id`` of their rows. An unknown one raises KeyError."""

    @property
    def digest(self) -> str:
        """Hexadecimal content hash of all launches, in their order."""
        ...

    @property
    def launch_ids(self) -> tuple[int, ...]: ...

    def launch_digest(self, launch_id: int) -> str:
        """Hexadecimal hash of what a launch executes: equal for launches that execute the same."""
        ...

    def executed(self, launch_id: int) -> Mapping[str, int]:
        """Executed warp instructions of a launch by the root of their opcode."""
        ...

    def trace(self, launch_id: int) -> LaunchTrace:
        """A launch, in memory: 6 bytes an instruction and 12 an access."""
        ...

    def block_batches(self, launch_id: int, max_instructions: int) -> Iterator[LaunchTrace]:
        """The blocks of a launch in order, in pieces of at most so many warp instructions (or one block)."""
        ...
