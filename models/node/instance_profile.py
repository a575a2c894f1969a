"""What each task instance does, whatever the machine: for classes, warm fast-forwarding and the interval model.

Computed once per application, line size aside, which all machines of a study mostly share. Sources: basic-block vectors
as in Grass (UPC 2017, section 5.3.2); the rest is what Van den Steen et al. ("Analytical processor performance and
power modeling using micro-architecture independent characteristics", IEEE TC 2016) ask of a profile.

Two distances tell of caches. The *reuse distance inside the instance* counts accesses since its last use of the line.
Of its first use of each line, the *distance to the earlier use* counts the distinct lines that instances between have
used, in the order in which the traced run began them. The latter is exact but for one thing: an instance's lines count
as used once, all at the same time (so it may be off by what the two instances themselves use). What no instance used
before has no earlier use if the program begins with them (``EarlierUses`` *cold*); if the same instances ran just
before (*warm*), it is the last use there, so the distance goes around: from that use to the end, and from the beginning
on.

Assumptions: an access is one of the line of its first byte; an instance's pieces are taken one after the other, what it
created in between is not seen from inside.

Cost: O(executions + accesses + distinct lines x log). Memory beside the stream: 4 B an access, and 20 B a line used by
the application; of each instance what ``InstanceProfiles`` holds: 664 B, 12 B a block of its vector, 9 and 20 B a bin
(about 10 and 5), 5 B a line.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from manyscale.models.cpu.block_windows import BlockCode, BlockWindows, windows_at
from manyscale.models.cpu.branch_entropy import branch_entropy
from manyscale.models.kernels import read_only
from manyscale.models.memory.access_stream import Sites
from manyscale.models.memory.distances.stack_distance import StackDistances
from manyscale.models.node import instance_profile_kernel as kernel
from manyscale.models.node.instruction_stream import InstructionStream, PieceStream
from manyscale.models.node.program.node_program import NodeProgram

GROUP_INSTRUCTIONS: Final = np.array([1, 16, 32, 64, 128, 256, 512, 1024], np.int64)
# distinct lines: 16 KiB to 64 MiB of 64 B; the last band is of lines that nothing used before
GROUP_BANDS: Final = np.array([0, 1 << 8, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 62], np.int64)
_WINDOW_INSTRUCTIONS: Final = 2048
_SAMPLES: Final = 5  # of windows that begin with a block: its executions number 1, 4, 16, 64, 256


@dataclass(frozen=True)
class EarlierUses:
    """Of each instance's first uses of lines, how far the earlier use lies back; rows [first[i], first[i + 1]) belong
    to instance i (``first`` int64[instances + 1]).

    ``bin`` uint16[], ``count`` int64[]: lines by bins; a bin is 2 x that of the distinct lines between, + 1 if the
    instance that used the line last wrote it; that of 2 x (NUM_BINS - 1) is of lines that nothing used before.

    ``load_groups`` int32[instances, bands, sizes]: of first uses that are loads and whose earlier use lies at least
    GROUP_BANDS[j] distinct lines back, into how many groups they fall if a group begins with one and ends
    GROUP_INSTRUCTIONS[k] instructions later (their burstiness; the first size is 1, which counts all).
    """

    first: np.ndarray
    bin: np.ndarray
    count: np.ndarray
    load_groups: np.ndarray


@dataclass(frozen=True)
class InstanceProfiles:
    """Rows [first_x[i], first_x[i + 1]) of a column belong to instance i (``first_x`` int64[instances + 1]).

    ``num_instructions``, ``num_loads``, ``num_stores``, ``num_branches`` int64[instances]; ``entropy``
    float64[instances]: mean linear entropy of its branches (cpu/branch_entropy.py). ``order`` int64[instances]: rank
    of each in the order in which the traced run began them, those without instructions last.

    Basic-block vectors: ``vector_block`` int32[], ``vector_instructions`` int64[], from ``first_vector``.
    Lines: ``line`` int32[], ``line_written`` bool[], from ``first_line``: in the order of their last use, the oldest
    first; ``line_number`` int64[lines]: address // ``line_bytes`` of each line.
    Reuses inside the instance: ``reuse_bin`` uint8[], ``reuse_count`` int64[], from ``first_reuse``; accesses in
    between by bins (``bin_edges``).
    First uses: ``earlier_cold`` if the instances begin with empty caches, ``earlier_warm`` if the same ones ran before.

    ``code`` and ``windows``: static code and sampled pieces of the stream (cpu/block_windows.py), which tell what
    depends on what.
    """

    line_bytes: int
    num_instructions: np.ndarray
    num_loads: np.ndarray
    num_stores: np.ndarray
    num_branches: np.ndarray
    entropy: np.ndarray
    order: np.ndarray
    first_vector: np.ndarray
    vector_block: np.ndarray
    vector_instructions: np.ndarray
    first_line: np.ndarray
    line: np.ndarray
    line_written: np.ndarray
    line_number: np.ndarray
    first_reuse: np.ndarray
    reuse_bin: np.ndarray
    reuse_count: np.ndarray
    earlier_cold: EarlierUses
    earlier_warm: EarlierUses
    code: BlockCode
    windows: BlockWindows

    @property
    def num_instances(self) -> int:
        return len(self.num_instructions)

    @property
    def num_accesses(self) -> np.ndarray:
        """int64[instances]"""
        return self.num_loads + self.num_stores

    @property
    def num_lines(self) -> np.ndarray:
        """int64[instances]: distinct lines of each, its footprint."""
        return np.diff(self.first_line)

    @property
    def num_lines_written(self) -> np.ndarray:
        """int64[instances]"""
        return self.sum_rows(self.first_line, self.line_written)

    @staticmethod
    def sum_rows(first: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Sums of the rows of each instance, along the first axis."""
        sums = np.cumsum(values, axis=0, dtype=np.float64 if values.dtype.kind == "f" else np.int64)
        sums = np.concatenate((np.zeros_like(sums[:1]) if len(sums) else np.zeros((1, *values.shape[1:])), sums))
        return np.asarray(sums[first[1:]] - sums[first[:-1]])

    def unit_counts(self) -> np.ndarray:
        """float64[instances, classes]: instructions by class (BlockCode.unit_counts). O(rows of vectors x classes)."""
        size = np.maximum(self.code.block_instructions, 1)[self.vector_block]
        per_execution = self.code.unit_counts()[self.vector_block]
        executions = self.vector_instructions / size
        return self.sum_rows(self.first_vector, per_execution * executions[:, None])

    def arrays(self) -> dict[str, np.ndarray]:
        """All as plain arrays, for ``numpy.savez``; ``profiles_from`` reads them back."""
        result: dict[str, np.ndarray] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _PARTS:
                result |= {f"{field.name}_{part.name}": getattr(value, part.name) for part in fields(value)}
            else:
                result[field.name] = np.asarray(value)
        return result


_PARTS: Final[dict[str, type]] = {
    "earlier_cold": EarlierUses, "earlier_warm": EarlierUses, "code": BlockCode, "windows": BlockWindows,
}  # fmt: skip


def profiles_from(arrays: dict[str, np.ndarray]) -> InstanceProfiles:
    """The profiles that ``InstanceProfiles.arrays`` gave."""
    values: dict[str, object] = {}
    for field in fields(InstanceProfiles):
        kind = _PARTS.get(field.name)
        if kind is not None:
            values[field.name] = kind(*(arrays[f"{field.name}_{part.name}"] for part in fields(kind)))
        else:
            values[field.name] = arrays[field.name]
    values["line_bytes"] = int(arrays["line_bytes"])
    return InstanceProfiles(**values)  # type: ignore[arg-type]


def bin_edges() -> np.ndarray:
    """float64[NUM_BINS + 1]: bin k holds distances from edge k to below edge k + 1."""
    k = np.arange(kernel.NUM_BINS + 1)
    shift = np.maximum(k // 4 - 1, 0)
    return np.where(k < 4, k, (k - 4 * shift) * 2.0**shift)


def profile_instances(
    program: NodeProgram,
    stream: InstructionStream,
    pieces: PieceStream,
    sites: Sites,
    code: BlockCode,
    site_instruction: np.ndarray,
    *,
    line_bytes: int = 64,
) -> InstanceProfiles:
    """The profile of every instance of a program; ``code`` and ``site_instruction`` as block_code gives them.

    Raises ValueError for a line size that is no power of two, and where the stream is shorter than its blocks say.
    """
    if line_bytes < 1 or line_bytes & (line_bytes - 1):
        raise ValueError(f"lines of {line_bytes} B are not of a power of two")
    count = program.num_instances
    rows = np.lexsort((pieces.first_execution, program.piece_instance))
    rows = rows[pieces.end_execution[rows] > pieces.first_execution[rows]]
    piece = _records(kernel.PIECE, pieces.first_execution[rows], pieces.end_execution[rows], pieces.first_access[rows])
    instance = program.piece_instance[rows]
    first_piece = np.searchsorted(instance, np.arange(count + 1))
    block_ids = read_only(stream.block_ids, np.int32)
    begin, end = piece["first_execution"].copy(), piece["end_execution"].copy()
    branches = branch_entropy(block_ids, begin, end, sites.num_blocks)
    line_ids, line_number = _lines(stream.addresses, line_bytes.bit_length() - 1)
    if len(rows) and len(line_ids) < int(piece["first_access"].max()):
        raise ValueError("the stream has fewer accesses than its blocks make")
    block = _records(kernel.BLOCK, sites.offsets, np.append(code.block_instructions, 0))
    site = _records(kernel.SITE, site_instruction, sites.is_store)
    own = kernel.new_own_profile(block_ids, line_ids, len(line_number), piece, first_piece, block, site, _SAMPLES)
    while not kernel.profile_by_instance(own):
        own = own._replace(columns=kernel.OwnColumns(*map(_longer, own.columns)))
    first_vector, first_reuse, first_line = (own.first[name].copy() for name in ("vector", "reuse", "line"))
    vector_block, vector_instructions, reuse_bin, reuse_count, line, line_written = (
        column[: int(first[-1])].copy()
        for first, columns in (
            (first_vector, own.columns[:2]), (first_reuse, own.columns[2:4]), (first_line, own.columns[4:6]),
        )
        for column in columns
    )  # fmt: skip
    order = _begin_order(piece, first_piece)
    earlier_cold, earlier_warm = _earlier(order, own)
    samples = own.chosen[:, 1:][own.chosen[:, 1:, 0] >= 0]
    size = np.maximum(code.block_instructions, 1)[vector_block]
    executed = np.where(branches.is_branch[vector_block], vector_instructions // size, 0)
    num_branches = InstanceProfiles.sum_rows(first_vector, executed)
    entropy = InstanceProfiles.sum_rows(first_vector, executed * branches.entropy[vector_block])
    rank = np.empty(count, np.int64)
    rank[order] = np.arange(count)
    num_instructions, num_loads, num_stores = (own.total[name].copy() for name in ("instructions", "loads", "stores"))
    return InstanceProfiles(
        line_bytes=line_bytes,
        num_instructions=num_instructions,
        num_loads=num_loads,
        num_stores=num_stores,
        num_branches=num_branches,
        entropy=entropy / np.maximum(num_branches, 1),
        order=rank,
        first_vector=first_vector,
        vector_block=vector_block,
        vector_instructions=vector_instructions,
        first_line=first_line,
        line=line,
        line_written=line_written,
        line_number=line_number,
        first_reuse=first_reuse,
        reuse_bin=reuse_bin,
        reuse_count=reuse_count,
        earlier_cold=earlier_cold,
        earlier_warm=earlier_warm,
        code=code,
        windows=windows_at(block_ids, samples[:, 0], samples[:, 1], code.block_instructions, _WINDOW_INSTRUCTIONS),
    )


def _records(dtype: np.dtype, *columns: np.ndarray) -> np.ndarray:
    records = np.zeros(len(columns[0]), dtype)
    for name, column in zip(dtype.names or (), columns, strict=True):
        records[name] = column
    return records


def _longer(column: np.ndarray) -> np.ndarray:
    """With as much room again."""
    return np.concatenate((column, np.empty_like(column)))


def _lines(addresses: np.ndarray, line_shift: int) -> tuple[np.ndarray, np.ndarray]:
    """(number of each access's line int32[accesses], what lines these are int64[lines])."""
    numbers = kernel.no_line_numbers(len(addresses))
    done = numbers.done[0]
    while True:
        kernel.number_lines(numbers, read_only(addresses, np.uint64), line_shift)
        if done["accesses"] == len(addresses):
            return numbers.line_ids, numbers.line_number[: done["lines"]].copy()
        if done["lines"] == len(numbers.line_number):
            numbers = numbers._replace(line_number=_longer(numbers.line_number))
        else:
            keys, lines = numbers.page_keys, numbers.page_lines
            numbers = numbers._replace(
                page_keys=np.full(2 * len(keys), -1, np.int64),
                page_lines=np.full((2 * len(keys), lines.shape[1]), -1, np.int32),
            )
            kernel.move_pages(keys, lines, numbers.page_keys, numbers.page_lines)


def _begin_order(piece: np.ndarray, first_piece: np.ndarray) -> np.ndarray:
    """int64[instances]: instances by when the traced run began them, those that did nothing last."""
    begins = np.full(len(first_piece) - 1, np.iinfo(np.int64).max)
    there = first_piece[1:] > first_piece[:-1]
    begins[there] = piece["first_execution"][first_piece[:-1][there]]
    return np.argsort(begins, kind="stable")


def _earlier(order: np.ndarray, own: kernel.OwnProfile) -> tuple[EarlierUses, EarlierUses]:
    """Cold and warm. The second time, the lines of the first time's first uses suffice, each once: to use a line again
    makes no other one distinct. O(lines of instances x log)."""
    first_line = own.first["line"]
    length = np.diff(first_line)[order]
    ends = np.cumsum(length)
    rows = np.repeat(first_line[:-1][order] - (ends - length), length) + np.arange(int(ends[-1]) if len(ends) else 0)
    used = own.columns.line[rows].astype(np.int64)
    stack = StackDistances()
    cold = stack.feed(used)
    warm = cold.copy()
    warm[cold < 0] = stack.feed(used[cold < 0])
    was_written = np.zeros(len(own.of_line), np.bool_)  # the second time, as the first time left them
    found = []
    for distance in (cold, warm):
        uses = kernel.new_first_uses(order, own, was_written, distance, GROUP_BANDS, GROUP_INSTRUCTIONS)
        while not kernel.count_first_uses(uses):
            uses = uses._replace(bin=_longer(uses.bin), num_lines=_longer(uses.num_lines))
        size = uses.first[:, 1] - uses.first[:, 0]
        first = np.concatenate(([0], np.cumsum(size)))
        back = np.repeat(uses.first[:, 0] - first[:-1], size) + np.arange(first[-1])
        found.append(EarlierUses(first, uses.bin[back], uses.num_lines[back], uses.groups))
    return found[0], found[1]
