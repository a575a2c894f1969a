"""What an SM keeps of asynchronous operations: barriers in shared memory, bulk copies, groups of products."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.gpu.launch_program import named_barriers
from manyscale.models.workload.asynchronous import NAMED_BARRIERS, SYSTEM_BYTES
from manyscale.models.workload.launch_trace import LaunchTrace

PRODUCT_GROUPS: Final = 16  # of a warp that are not waited for yet; DEPBAR counts to 7
FOLLOWERS: Final = 64  # arrivals of a warp behind its copies that have not happened yet: COPY_GROUPS
MOST_OF_CLUSTER: Final = 16  # blocks
GONE: Final = 1 << 30  # times that a block which has ended has arrived at its cluster's barrier
_MESSAGES: Final = 3 * 32 + MOST_OF_CLUSTER  # of an instruction of a warp, at the most
GROUP_WARPS: Final = 4  # that multiply together
_COPIES: Final = 1 << 12  # that an SM has begun and not ended; who makes one more waits
BARRIER_BYTES: Final = 8

BARRIER: Final = np.dtype(
    [
        ("expected", "i8"),  # arrivals of a phase
        ("pending", "i8"),
        ("bytes", "i8"),  # that are expected, less those that have come
        ("phase", "i4"),  # parity
        ("waiting", "i4"),  # warps
    ]
)
COPY_OF_BYTES: Final = np.dtype(
    [
        ("run", "i8"),  # words of the next run of rows
        ("address", "i8"), ("offset", "i8"),  # of the row that is asked for, and how far
        ("row_bytes", "i8"), ("stride", "i8"),
        ("begins", "i8"),  # cycle of its first request
        ("bytes", "i8"),  # that the barrier expects
        ("barrier", "i8"),
        ("rows", "i4"), ("runs", "i4"),  # left
        ("left", "i4"),  # requests that were not answered
        ("due", "i4"),  # those of them whose answer the SM has not been handed
        ("warp", "i4"), ("slot", "i4"), ("group", "i4"), ("ranks", "i4"),
        ("way", "u1"),
        ("is_sent", "u1"),  # all requests have left
        ("is_over", "u1"),
        ("cause", "u1"),  # the farthest level that answered
        ("is_told", "u1"),  # to the other blocks that it serves
    ],
    align=True,
)  # fmt: skip
FOLLOWER: Final = np.dtype(  # an arrival when the copies of all groups below ``group`` are there
    [("group", "i4"), ("arrivals", "i4"), ("bytes", "i8"), ("barrier", "i8")]
)


class Room(NamedTuple):
    """What an SM has room for: ``barriers`` of a block, first the NAMED_BARRIERS, then one for each place in shared
    memory; ``copies``; of a warp groups of ``products`` and ``followers``; ``messages`` that wait to leave, beside
    other requests. ``blocks`` of the launch, if they are in clusters."""

    barriers: int = 1
    copies: int = 1
    products: int = PRODUCT_GROUPS
    followers: int = 1
    messages: int = 0
    blocks: int = 1


def room_for(trace: LaunchTrace, num_blocks: int, warps: int, cluster: int) -> Room:
    """Of SMs of ``warps`` warps, for a launch of ``num_blocks`` in clusters of ``cluster``."""
    room = Room() if cluster == 1 else Room(messages=warps * _MESSAGES, blocks=num_blocks)
    if named_barriers(trace.static, trace.words is not None).any():
        room = room._replace(barriers=NAMED_BARRIERS + 1)
    if trace.words is None:
        return room
    in_shared = (SYSTEM_BYTES + trace.shared_bytes) // BARRIER_BYTES + 1  # the system's part lies before the block's
    return room._replace(barriers=NAMED_BARRIERS + in_shared, copies=_COPIES, followers=FOLLOWERS)
