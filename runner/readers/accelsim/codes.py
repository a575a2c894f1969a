"""What the kernels that parse an Accel-Sim trace and their caller share: records, arrays, and endings."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

UNSET: Final = -(1 << 62)  # an immediate, or the space of generic addresses, before the first was met; no stride
SLOTS: Final = 1 << 12

# What is known of an opcode that accesses memory; TEXT, LENGTH: its name in the pool. The caller of the kernels fills
# in what it does.
_OF_KIND: Final = [(name, "i8") for name in ("space", "access", "is_generic", "size", "lanes")]
KIND: Final = np.dtype([("text", "i8"), ("length", "i8"), *_OF_KIND])

# A static instruction. ``text``, ``length``: what follows its mask until nothing more does, or (``has_tail``) up to its
# width, in the pool. ``next``: row in the same slot, or -1. ``place``: where in the file it was met first. ``pc_word``,
# ``pc_bytes``: the text of its PC and the blank behind it (0 where it does not fit into a word). ``follower``: row that
# followed it last.
_OF_ROW: Final = (
    "pc",
    "text",
    "length",
    "next",
    "has_tail",
    "width",
    "immediate",
    "place",
    "pc_word",
    "pc_bytes",
    "follower",
)
ROW: Final = np.dtype([*((name, "i8") for name in _OF_ROW), *_OF_KIND])

# Of the file, constant. ``warps``: of a block; ``stride``: between words of a thread's local memory, in lines
FORM: Final = np.dtype(
    [
        (name, "i8")
        for name in (
            "has_owner", "has_source_line", "num_immediates", "grid_x", "grid_y", "grid_z", "warps", "stride",
            "shared_base", "local_base", "shared_bytes", "raw",
        )
    ]
)  # fmt: skip

# Where the parser stands: ``inside`` (below), ``block``, ``warp`` in it; of the warp the instructions that are
# ``expected``, its ``lines``, ``instructions`` and ``requests``; of the block its ``block_warps``. How much was written
# to the outputs (``num_instructions``, ``num_requests``, ``num_warps``), up to the end of the last whole block
# (``done_``...), of rows and kinds, and to the pool. ``base``: bytes of the file before the text.
STATE: Final = np.dtype(
    [
        (name, "i8")
        for name in (
            "inside", "block", "warp", "expected", "lines", "instructions", "requests", "block_warps",
            "num_instructions", "num_requests", "num_warps", "num_rows", "num_kinds", "pool", "base", "last_row",
            "done_instructions", "done_requests", "done_warps",
        )
    ]
)  # fmt: skip
OUTSIDE, BEGUN, NAMED = range(3)  # of ``inside``


class Arrays(NamedTuple):
    """What the kernels read and write.

    ``form`` FORM[1], ``state`` STATE[1]. ``text`` uint8[]: lines, the last with its newline, and eight bytes more.
    ``rows`` ROW[], ``kinds`` KIND[], ``pool`` uint8[] with their texts; ``slots`` int64[SLOTS]: the last row of a PC's
    slot, or -1. ``halves`` uint8[warps], of a raw trace: 1 where the first line of an asynchronous copy was met, which
    holds its address in shared memory, and which its second follows. ``addresses`` int64[32], ``counts`` int64[32],
    ``words`` int64[32, 32]: scratch.

    ``instruction`` int32[], ``active`` uint8[], ``accesses`` uint8[]: of each instruction its row, active threads, and
    requests or words of a bank; ``owners`` int64[], of a raw trace: its warp. ``sector`` int64[], ``written`` uint32[]:
    of each request. ``warps`` int64[, 4]: block, warp, instructions, requests.
    """

    form: np.ndarray
    state: np.ndarray
    text: np.ndarray
    rows: np.ndarray
    kinds: np.ndarray
    pool: np.ndarray
    slots: np.ndarray
    halves: np.ndarray
    addresses: np.ndarray
    counts: np.ndarray
    words: np.ndarray
    instruction: np.ndarray
    active: np.ndarray
    accesses: np.ndarray
    owners: np.ndarray
    sector: np.ndarray
    written: np.ndarray
    warps: np.ndarray


# What a call ended with. ROOM: an output is full; MORE_ROWS: rows, kinds or pool are; CLASSIFY: the last kind is
# new; OTHER_LINE: "word = value" of a word that is not known.
DONE, ROOM, MORE_ROWS, CLASSIFY, OTHER_LINE = range(5)
NOT_A_LINE, BAD_MASK, BAD_STATIC, BAD_ADDRESS, LEFT_OVER, NO_IMMEDIATE, OUTSIDE_BLOCK, OUTSIDE_WARP = range(100, 108)
NO_COUNT, TOO_MANY, TOO_FEW, BLOCK_IN_BLOCK, EMPTY_BLOCK, END_OUTSIDE, BAD_BLOCK, NOT_IN_GRID = range(108, 116)
BAD_WARP, NOT_IN_BLOCK, OTHER_OWNER, BAD_OWNER, TOO_WIDE, BAD_COUNT = range(116, 122)
PROBLEMS: Final = {
    NOT_A_LINE: "is neither an instruction nor a line 'word = value'",
    BAD_MASK: "has no mask of 1 to 8 hexadecimal digits behind the PC",
    BAD_STATIC: "has no registers, opcode, registers and width behind the mask, or their numbers do not fit",
    BAD_ADDRESS: "has no address mode from 0 to 2 with the addresses that its mask asks for",
    LEFT_OVER: "has more fields than an instruction of this tracer version",
    NO_IMMEDIATE: "has no immediate at its end, which this tracer version writes",
    OUTSIDE_BLOCK: "stands outside a thread block (no #BEGIN_TB before it)",
    OUTSIDE_WARP: "stands in no warp (no line 'warp = ' before it)",
    NO_COUNT: "is an instruction before its warp's line 'insts = '",
    TOO_MANY: "is one instruction more than its warp's line 'insts = ' says",
    TOO_FEW: "ends a warp that has fewer instructions than its line 'insts = ' says",
    BLOCK_IN_BLOCK: "begins a thread block inside another (no #END_TB before it)",
    EMPTY_BLOCK: "ends a thread block without warps",
    END_OUTSIDE: "ends a thread block that never began",
    BAD_BLOCK: "is no 'thread block = x,y,z', or the second of its block",
    NOT_IN_GRID: "names a thread block outside the grid of the header",
    BAD_WARP: "is no 'warp = number' inside a named thread block",
    NOT_IN_BLOCK: "names a warp that the block of the header does not have",
    OTHER_OWNER: "belongs to another thread block or warp than the lines around it",
    BAD_OWNER: "does not begin with thread block x y z and warp",
    TOO_WIDE: "makes more than 255 requests to memory",
    BAD_COUNT: "is no 'insts = number', or the second of its warp",
}
