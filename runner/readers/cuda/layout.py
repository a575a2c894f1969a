"""The files that the tracer of CUDA programs writes: a folder with what is known of kernels, and a folder for each
process with the text ``events`` and a file of records for each launch.

Lines of ``events``: ``begin NANOSECONDS``, ``launch ID KERNEL GX GY GZ BX BY BZ DYNAMIC_SHARED STREAM
WARP_INSTRUCTIONS whole|stopped KEPT DEVICE``, ``copy BEFORE_LAUNCH ADDRESS BYTES``, ``note CODE COUNT NAME``,
``problem LAUNCH TEXT``, ``profiler BEFORE_LAUNCH start|stop``, ``end LAUNCHES``. A launch's file holds its blocks in
the order of the grid, each with three counts (warps, instructions, accesses; uint32) and the columns of
``LaunchTrace``, one behind the other. Beside it, with ``--keep-addresses``, stands ``launch-ID.lanes``, which
``native/sass.h`` lays out.
"""

from __future__ import annotations

from typing import Final

import numpy as np

KERNELS: Final = "kernels.json"
STATICS: Final = "kernels.npz"
EVENTS: Final = "events"
PROCESS: Final = "process-*"
OF_RANKS: Final = "burst"  # a native trace of the ranks' calls, each with the number of its process
STATIC_COLUMNS: Final = {
    "pc": np.int64,
    "opcode": np.int32,
    "unit": np.uint8,
    "space": np.uint8,
    "access": np.uint8,
    "immediate": np.int32,
    "bypasses_l1": np.bool_,
    "destinations": np.int16,
    "sources": np.int16,
}
DIVERGED: Final = 0x80  # of ``active``: the lanes of the warp parted there
BLOCK_COLUMNS: Final = (  # (of which count: warps 0, instructions 1, accesses 2; name; type)
    (0, "warp_instructions", np.dtype("<i4")),
    (0, "warp_accesses", np.dtype("<i4")),
    (1, "instruction", np.dtype("<i4")),
    (1, "active", np.dtype("u1")),
    (1, "accesses", np.dtype("u1")),
    (2, "sector", np.dtype("<i8")),
    (2, "written", np.dtype("<u4")),
)
