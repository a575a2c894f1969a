"""Asynchronous operations of a launch, as its trace has them: copies of blocks of bytes and of boxes of tensors, and
barriers in shared memory (mbarrier).

Each executed instruction that makes one, and that threads execute, has words of 64 bits. A first word holds, from bit
0 on: its kind (4 bits); how many more words the instruction has (16); the offset of a barrier in shared memory (24);
the rank of the block in its cluster that has the barrier (5); whether that is another block (1); and its parity or way
(3; of MEETS 1 for an arrival that does not wait). Behind WAITS and TRIES (a look at a barrier that found its phase not
over) there is nothing more, behind BEGINS the number of arrivals of a phase, behind MEETS the number of threads; behind
ARRIVES, DROPS, FOLLOWS and STORES arrivals in 32 bits, and above them the bytes that are then expected, less than 0
where they have come; behind COPIES the bytes, above them in 16 bits the ranks that a multicast serves (0: it is none),
and runs of rows in global memory: the address of the first byte (48 bits) and the number of rows (16); bytes of a row
(24), and bytes from a row to the next (40). A copy of a box of two dimensions has 32 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

BEGINS: Final = 1
ARRIVES: Final = 2
WAITS: Final = 3
TRIES: Final = 4
COPIES: Final = 5
STORES: Final = 6  # into shared memory of another block (STAS, REDAS), with their bytes
FOLLOWS: Final = 7  # an arrival behind copies of the warp (ARRIVES.LDGSTSBAR)
DROPS: Final = 8  # an arrival, and one less in each phase that follows
MEETS: Final = 9  # a barrier of the block (BAR) that has a number of threads, in place of an offset its own number

# ``immediate`` of a barrier of the block (BAR): its number in 4 bits, from there the threads that it waits for
NUMBER_MASK: Final = 15
THREADS_SHIFT, THREADS_MASK = 4, 0xFFF
ARRIVES_ONLY: Final = 1 << 16  # BAR.ARV: the warp goes on
NAMED: Final = 1 << 17  # it waits for so many threads, and not for all of the block
IN_WORDS: Final = 1 << 18  # number or threads stand in registers: the trace has words of them
NAMED_BARRIERS: Final = 16  # of a block
SYSTEM_BYTES: Final = 1024  # of shared memory (CUDA C++ Programming Guide, compute capability 8.0 and later)

LOADS: Final = 0  # ways of copies: from global to shared memory
FROM_SHARED: Final = 1
REDUCES: Final = 2
WITHIN: Final = 3  # from shared memory to that of another block
PREFETCHES: Final = 4  # from global memory into L2
PREFETCHING: Final = ("UTMAPF", "UBLKPF")  # roots; their ``immediate`` is IN_WORDS, where the trace has words of them

KIND_BITS: Final = 15
MORE_SHIFT, MORE_MASK = 4, 0xFFFF
BARRIER_SHIFT, BARRIER_MASK = 20, 0xFFFFFF
RANK_SHIFT, RANK_MASK = 44, 31
REMOTE_SHIFT: Final = 49
DETAIL_SHIFT, DETAIL_MASK = 50, 7
ADDRESS_MASK: Final = (1 << 48) - 1
ROWS_SHIFT, ROWS_MASK = 48, 0xFFFF
ROW_BYTES_MASK: Final = (1 << 24) - 1
STRIDE_SHIFT, STRIDE_MASK = 24, (1 << 40) - 1


def first_word(
    kind: int, more: int = 0, barrier: int = 0, detail: int = 0, rank: int = 0, *, remote: bool = False
) -> int:
    """Of an instruction with ``more`` words behind it."""
    return (
        kind | more << MORE_SHIFT | barrier << BARRIER_SHIFT | rank << RANK_SHIFT | int(remote) << REMOTE_SHIFT
        | detail << DETAIL_SHIFT
    )  # fmt: skip


def amounts(arrivals: int, num_bytes: int = 0) -> int:
    """The word behind one that arrives."""
    return (num_bytes << 32) | arrivals


def run_of_rows(start: int, row_bytes: int, rows: int = 1, stride: int = 0) -> tuple[int, int]:
    """The two words of a run, as signed numbers."""
    first = start | rows << ROWS_SHIFT
    return (first - (1 << 64) if first >= 1 << 63 else first), row_bytes | stride << STRIDE_SHIFT


_LENGTH: Final = dict.fromkeys((BEGINS, ARRIVES, STORES, FOLLOWS, DROPS, MEETS), 2) | {WAITS: 1, TRIES: 1}


def reach(counts: np.ndarray, words: np.ndarray) -> tuple[int, int]:
    """Of ``words`` that warps have ``counts`` of: the largest offset of a barrier and the largest rank. Raises
    ValueError where those of a warp are not those of whole instructions. O(words)."""
    values = words.tolist()
    at = offset = rank = 0
    for end in np.cumsum(counts).tolist():
        while at < end:
            last = at + 1 + (values[at] >> MORE_SHIFT & MORE_MASK)
            while at < last <= end:
                word = values[at]
                kind = word & KIND_BITS
                offset = max(offset, word >> BARRIER_SHIFT & BARRIER_MASK)
                rank = max(rank, word >> RANK_SHIFT & RANK_MASK)
                at = last if kind == COPIES else at + _LENGTH.get(kind, len(values))
            if at != last:
                raise ValueError("the words of an instruction are not all there")
    return offset, rank


def _runs(words: np.ndarray) -> Iterator[tuple[int, int, int, int, int]]:
    """Of each run of rows that a copy moves: its way, the first byte, bytes of a row, rows, and the stride."""
    values = words.tolist()
    at = 0
    while at < len(values):
        first = values[at]
        more = first >> MORE_SHIFT & MORE_MASK
        if first & KIND_BITS == COPIES:
            way = first >> DETAIL_SHIFT & DETAIL_MASK
            for run in range(at + 2, at + more, 2):
                rows, shape = values[run], values[run + 1]
                yield (
                    way, rows & ADDRESS_MASK, shape & ROW_BYTES_MASK, rows >> ROWS_SHIFT & ROWS_MASK,
                    shape >> STRIDE_SHIFT & STRIDE_MASK,
                )  # fmt: skip
        at += 1 + more


def copied_bytes(words: np.ndarray) -> dict[int, int]:
    """Bytes in global memory that the copies of a stream of words read or write, by their way. O(words)."""
    found = {LOADS: 0, FROM_SHARED: 0, REDUCES: 0, WITHIN: 0, PREFETCHES: 0}
    for way, _, row_bytes, rows, _ in _runs(words):
        found[way] += rows * row_bytes
    return found


def copied_sectors(words: np.ndarray, sector_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    """(int64[n] sectors that the copies touch, row by row; bool[n]: whether they write to it). O(words + sectors)."""
    sectors, writes = [np.zeros(0, np.int64)], [np.zeros(0, np.bool_)]
    for way, start, row_bytes, rows, stride in _runs(words):
        begins = start + stride * np.arange(rows, dtype=np.int64)
        firsts, ends = begins // sector_bytes, (begins + row_bytes - 1) // sector_bytes + 1
        counts = ends - firsts
        before = np.cumsum(counts) - counts
        sectors.append(np.repeat(firsts - before, counts) + np.arange(counts.sum()))
        writes.append(np.full(len(sectors[-1]), way not in (LOADS, PREFETCHES)))
    return np.concatenate(sectors), np.concatenate(writes)
