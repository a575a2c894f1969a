"""Basic blocks of instruction-level traces, and their stream: what the readers of such traces share.

A reader hands in executions of blocks with what they accessed. The workload's blocks make the same accesses each time
they are executed, so a block of the trace that does not (a conditional move from memory, the last round of a repeated
string instruction) becomes several blocks, one for each sequence of accesses that was seen. Blocks are numbered in the
order of their first execution: the same trace gives the same numbers. Two sequences are told apart by a hash of 64
bits.

Such a trace is read in one go, and its stream is kept in a folder of its own under the system's folder for temporary
files until nobody refers to it any more; writing the workload copies it.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Final, Self

import numpy as np
import pyarrow as pa

from manyscale.models.kernels import njit
from manyscale.models.kernels.hash_table import find, find_or_add, new_table
from manyscale.models.workload.columns import text_array, to_arrow
from manyscale.models.workload.detail_tables import BLOCK_ACCESSES_SCHEMA, BLOCKS_SCHEMA
from manyscale.runner.readers.stores.detail_store import DetailStore, DetailWriter

_FIRST_ROOM: Final = 1 << 12


def attributes_of(instruction: np.ndarray | int, size: np.ndarray, is_store: np.ndarray) -> np.ndarray:
    """int64[]: accesses but for their addresses. ``instruction``: index in its block, or -1; ``size``: bytes."""
    packed: np.ndarray = (
        np.asarray(instruction, np.int64) << 17 | size.astype(np.int64) << 1 | is_store.astype(np.int64)
    )
    return packed


class TracedBlocks:
    """The blocks seen so far. ``keys``: what the trace calls each block; ``num_instructions`` of each."""

    def __init__(self) -> None:
        self._room = _FIRST_ROOM
        self._keys, self._slots = new_table(self._room)
        self._known: list[np.ndarray] = []  # keys and hashes, int64[, 2]
        self._sizes: list[np.ndarray] = []
        self._counts: list[np.ndarray] = []
        self._attributes: list[np.ndarray] = []
        self.num_blocks = 0

    def number(
        self, keys: np.ndarray, num_instructions: np.ndarray, access_counts: np.ndarray, attributes: np.ndarray
    ) -> np.ndarray:
        """int32[]: ids of the blocks executed.

        Per execution the trace's name of the block (int64[]), its instructions and accesses (int32[]); the attributes
        of all accesses (int64[]). O(executions + accesses).
        """
        ids = np.empty(len(keys), np.int32)
        hashes = np.empty(len(keys), np.int64)
        fresh = np.empty(len(keys), np.int64)
        done, num_fresh, access = 0, 0, 0
        while True:
            done, num_fresh, access = _number(
                keys, num_instructions, access_counts, attributes, self._keys, self._slots, self.num_blocks, self._room,
                ids, hashes, fresh, done, num_fresh, access,
            )  # fmt: skip
            if done == len(keys):
                break
            self._grow(np.stack((keys[fresh[:num_fresh]], hashes[fresh[:num_fresh]]), axis=1))
        self._keep(fresh[:num_fresh], keys, hashes, num_instructions, access_counts, attributes)
        return ids

    @property
    def keys(self) -> np.ndarray:
        return _joined([part[:, 0] for part in self._known], np.int64)

    @property
    def num_instructions(self) -> np.ndarray:
        return _joined(self._sizes, np.int32)

    def accesses(self) -> pa.Table:
        """The table ``block_accesses``."""
        counts, attributes = _joined(self._counts, np.int32), _joined(self._attributes, np.int64)
        columns = [
            to_arrow(np.repeat(np.arange(self.num_blocks, dtype=np.int32), counts)),
            to_arrow((attributes >> 17).astype(np.int32)),
            pa.array((attributes & 1).astype(np.bool_)),
            to_arrow(((attributes >> 1) & 0xFFFF).astype(np.int16)),
        ]
        return pa.Table.from_arrays(columns, schema=BLOCK_ACCESSES_SCHEMA)

    def _grow(self, fresh: np.ndarray) -> None:
        """Room for twice as many; ``fresh`` are those that are in the table, but not yet known."""
        self._room *= 2
        self._keys, self._slots = new_table(self._room)
        insert(np.concatenate([*self._known, fresh]), self._keys, self._slots)

    def _keep(self, fresh: np.ndarray, keys: np.ndarray, hashes: np.ndarray, num_instructions: np.ndarray,
              access_counts: np.ndarray, attributes: np.ndarray) -> None:  # fmt: skip
        if not len(fresh):
            return
        counts = access_counts[fresh]
        ends = np.cumsum(access_counts, dtype=np.int64)[fresh]
        place = np.repeat(ends - np.cumsum(counts), counts) + np.arange(counts.sum())
        self._known.append(np.stack((keys[fresh], hashes[fresh]), axis=1))
        self._sizes.append(num_instructions[fresh].astype(np.int32))
        self._counts.append(counts.astype(np.int32))
        self._attributes.append(attributes[place])
        self.num_blocks += len(fresh)


def block_table(offsets: np.ndarray, num_instructions: np.ndarray) -> pa.Table:
    """The table ``blocks`` of a trace that names neither functions nor modules."""
    names = text_array([""] * len(offsets))
    zeros = np.zeros(len(offsets), np.int32)
    never = pa.array(zeros.astype(np.bool_))
    columns = [names, names, to_arrow(zeros), names, to_arrow(offsets), never, to_arrow(num_instructions)]
    return pa.Table.from_arrays(columns, schema=BLOCKS_SCHEMA)


class ScratchStream:
    """A stream of the detailed level in a folder that goes when nobody refers to the stream any more.

    ``with ScratchStream() as stream:`` add to ``stream.writer``, then ``stream.close()``.
    """

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="manyscale-detail-")
        self._is_kept = False
        self.writer = DetailWriter(Path(self._folder) / "detail")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._is_kept:
            shutil.rmtree(self._folder, ignore_errors=True)

    def close(self) -> tuple[pa.Table, DetailStore]:
        """The table ``segments`` and the stream."""
        segments, store = self.writer.close()
        weakref.finalize(store, shutil.rmtree, self._folder, True)
        self._is_kept = True
        return segments, store


def _joined(parts: list[np.ndarray], dtype: type[np.generic]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.empty(0, dtype)


@njit(cache=True, nogil=True)
def _number(  # type: ignore[no-untyped-def]
    keys, num_instructions, access_counts, attributes, table, slots, num_known, room, ids, hashes, fresh, done,
    num_fresh, access,
):  # fmt: skip
    """Continue at execution ``done``, whose first access is ``access``; stops before the table has more than ``room``
    blocks. Returns (done, num_fresh, access). O(executions + accesses)."""
    while done < keys.shape[0]:
        if num_known + num_fresh >= room:
            return done, num_fresh, access
        mixed = np.uint64(num_instructions[done])
        for i in range(access, access + access_counts[done]):
            mixed = (mixed ^ np.uint64(attributes[i])) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(32)
        value = np.int64(mixed)
        block = find_or_add(table, slots, keys[done], value, num_known + num_fresh)
        if block == num_known + num_fresh:
            fresh[num_fresh] = done
            hashes[done] = value
            num_fresh += 1
        ids[done] = block
        access += access_counts[done]
        done += 1
    return done, num_fresh, access


@njit(cache=True, nogil=True)
def insert(known, table, slots):  # type: ignore[no-untyped-def]
    """Put rows of ``known`` into an empty table, each under its index. O(known)."""
    for i in range(known.shape[0]):
        place = find(table, slots, known[i, 0], known[i, 1])
        table[place, 0] = known[i, 0]
        table[place, 1] = known[i, 1]
        slots[place] = i
