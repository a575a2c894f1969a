"""The code of a drmemtrace: bytes of its instructions, and what they are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from manyscale.models.workload.detail_tables import INSTRUCTIONS_SCHEMA
from manyscale.models.workload.notes import Errs, Note, changes
from manyscale.runner.readers.drmemtrace import files
from manyscale.runner.readers.qemu_trace.reader import instructions_table
from manyscale.runner.readers.stores.traced_blocks import TracedBlocks


def take_encodings(
    records: np.ndarray, is_instruction: np.ndarray, encodings: dict[int, bytes], pending: bytes
) -> bytes:
    """Keep the bytes of instructions that stand before them, and return those of one whose record is in the next
    piece. O(records with bytes)."""
    instruction = np.flatnonzero(is_instruction)
    encoding = np.flatnonzero(records["type"] == files.ENCODING)
    owner = np.searchsorted(instruction, encoding).tolist()
    of = 0  # the instruction that ``pending`` is of
    for row, follows in zip([*encoding.tolist(), -1], [*owner, len(instruction)], strict=True):
        if pending and follows > of:
            one = records[instruction[of]]
            encodings[int(one["value"])], pending = pending[: int(one["size"])], b""
        of = follows
        if row >= 0:
            pending += int(records["value"][row]).to_bytes(8, "little")[: min(int(records["size"][row]), 8)]
    return pending


def instructions_of(
    blocks: TracedBlocks, encodings: dict[int, bytes], kinds: set[int], vector_bytes: int, notes: list[Note]
) -> pa.Table:
    """The table ``instructions``, of code whose bytes are known. ``kinds`` of files; ``vector_bytes`` of SVE."""
    if not encodings or not is_decoded(kinds):
        return INSTRUCTIONS_SCHEMA.empty_table()
    is_arm = any(kind & files.ARM_64 for kind in kinds)
    codes, missing = [], 0
    starts = blocks.keys
    for start, count in zip(starts.tolist(), blocks.num_instructions.tolist(), strict=True):
        parts, at = [], start
        for _ in range(count):
            code = encodings.get(at & (1 << 64) - 1, b"")
            if not code:
                missing += 1
                break
            parts.append(code)
            at += len(code)
        codes.append(b"".join(parts))
    if missing:
        text = f"the bytes of instructions of {missing} blocks are not in the trace"
        notes.append(changes("instructions-unknown", text, count=missing, errs=Errs.short))
    return instructions_table(codes, starts, notes, is_arm=is_arm, vector_bytes=vector_bytes)


def is_decoded(kinds: set[int]) -> bool:
    """Whether all code is x86-64's, or all AArch64's."""
    return not any(kind & files.SYNTHETIC for kind in kinds) and any(
        all(kind & machine for kind in kinds) for machine in (files.X86_64, files.ARM_64)
    )
