"""What the kernels that parse an Accel-Sim trace and their caller share: columns, places of the state, and endings."""

from __future__ import annotations

from typing import Final

# Columns of ``rows`` int64[:, NUM_COLUMNS], one row for each static instruction. TEXT, LENGTH: what follows its mask
# until nothing more does, or (HAS_TAIL) up to its width, in the pool. NEXT: row in the same slot, or -1. PC_WORD,
# PC_BYTES: the text of its PC and the blank behind it (0 where it does not fit into a word). FOLLOWER: row that
# followed it last.
PC, TEXT, LENGTH, NEXT, HAS_TAIL, WIDTH, IMMEDIATE, SPACE, ACCESS, IS_GENERIC, SIZE, LANES, PLACE = range(13)
PC_WORD, PC_BYTES, FOLLOWER = range(13, 16)
NUM_COLUMNS: Final = 16
NUM_OF_KIND: Final = 5  # columns from SPACE on that ``kinds``, of the same columns, has for each opcode
UNSET: Final = -(1 << 62)  # IMMEDIATE, or SPACE of generic addresses, before the first was met
SLOTS: Final = 1 << 12

# ``form`` int64[]: of the file, constant
HAS_OWNER, HAS_SOURCE_LINE, NUM_IMMEDIATES, GRID_X, GRID_Y, GRID_Z, WARPS = range(7)
SHARED_BASE, LOCAL_BASE, SHARED_BYTES, RAW = range(7, 11)
NUM_FORMS: Final = 11

# ``state`` int64[]: where the parser stands (LINES and what follows: of the warp, BLOCK_WARPS of the block); counts of
# what was written to the outputs, of rows and of text in the pool; BASE: bytes of the file before the text; DONE: up to
# the end of the last whole block
INSIDE, BLOCK, WARP, EXPECTED, LINES, INSTRUCTIONS, REQUESTS, BLOCK_WARPS = range(8)
NUM_INSTRUCTIONS, NUM_REQUESTS, NUM_WARPS, NUM_ROWS, POOL, BASE, LAST_ROW, NUM_KINDS = range(8, 16)
DONE_INSTRUCTIONS, DONE_REQUESTS, DONE_WARPS = range(16, 19)
NUM_STATES: Final = 19
OUTSIDE, BEGUN, NAMED = range(3)  # of INSIDE

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
