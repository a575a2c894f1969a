"""A launch's file of records, from the tracer's bytes to the store, some million instructions at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from manyscale.runner.errors import UserError
from manyscale.runner.readers.cuda.layout import BLOCK_COLUMNS, DIVERGED
from manyscale.runner.readers.stores.launch_store import Blocks

BATCH_INSTRUCTIONS: Final = 1 << 20
_COUNTS: Final = np.dtype("<u4")
_BYTES: Final = tuple(sum(kind.itemsize for of, _, kind in BLOCK_COLUMNS if of == each) for each in range(3))


def block_batches(path: Path, rows: int) -> Iterator[Blocks]:
    """Consecutive blocks, at most so many instructions or one block; ``rows``: of the kernel's static instructions.
    Raises UserError with the offset of a block that is cut or does not hold together."""
    try:
        content = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.zeros(0, np.uint8)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error}); trace the program again") from None
    columns: dict[str, list[np.ndarray]] = {name: [] for _, name, _ in BLOCK_COLUMNS}
    warps: list[int] = []
    instructions = place = 0
    while place < len(content):
        counts, end = _counts(path, content, place)
        if warps and instructions + counts[1] > BATCH_INSTRUCTIONS:
            yield _joined(warps, columns)
            columns = {name: [] for name in columns}
            warps, instructions = [], 0
        at = place + 12
        for of, name, kind in BLOCK_COLUMNS:
            size = counts[of] * kind.itemsize
            columns[name].append(np.frombuffer(content[at : at + size], kind))
            at += size
        _check(path, place, counts, columns, rows)
        warps.append(counts[0])
        instructions += counts[1]
        place = end
    if warps:
        yield _joined(warps, columns)


def _counts(path: Path, content: np.ndarray, place: int) -> tuple[tuple[int, int, int], int]:
    """(counts of a block, where it ends)."""
    if place + 12 <= len(content):
        words = np.frombuffer(content[place : place + 12].tobytes(), _COUNTS).tolist()
        counts = (words[0], words[1], words[2])
        end = place + 12 + sum(count * size for count, size in zip(counts, _BYTES, strict=True))
        if end <= len(content):
            return counts, end
    raise UserError(f"{path}: byte {place}: the record of a block is cut; trace the program again")


def _check(
    path: Path, place: int, counts: tuple[int, int, int], columns: dict[str, list[np.ndarray]], rows: int
) -> None:
    last = {name: values[-1] for name, values in columns.items()}
    instruction = last["instruction"]
    is_whole = (
        int(last["warp_instructions"].sum(dtype=np.int64)) == counts[1]
        and int(last["warp_accesses"].sum(dtype=np.int64)) == counts[2]
        and (not len(instruction) or (int(instruction.min()) >= 0 and int(instruction.max()) < rows))
    )
    if not is_whole:
        raise UserError(f"{path}: byte {place}: the record of a block does not hold together; trace the program again")


def _joined(warps: list[int], columns: dict[str, list[np.ndarray]]) -> Blocks:
    joined = {name: np.concatenate(values) for name, values in columns.items()}
    active = joined.pop("active")
    return Blocks(np.array(warps, np.int64), **joined, active=active & ~np.uint8(DIVERGED), diverged=active >= DIVERGED)
