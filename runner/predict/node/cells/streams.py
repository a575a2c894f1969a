"""The instructions that a unit simulates: segments of a detailed trace, decoded once and mapped from a file.

Decoding takes longer than simulating a few task instances of many, so what was decoded is kept in the user's cache,
4 B a block execution and 8 B an access, under the digest of the stream: a sampled simulation then reads only the pages
of the instances that it simulates.
"""

from __future__ import annotations

import shutil
import uuid
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from manyscale.models.node.instruction_stream import InstructionStream, decode
from manyscale.models.workload import Workload
from manyscale.models.workload.detail_tables import Detail
from manyscale.runner import kept, limits
from manyscale.runner.cache import default_cache
from manyscale.runner.predict.memory.phase_streams import opened
from manyscale.runner.readers.stores.detail_store import DetailStore

IN_MEMORY_BYTES: Final = 64_000_000  # less is not worth a file
BATCH_ACCESSES: Final = 8_000_000
FORMAT: Final = 1  # of the files


@dataclass(frozen=True)
class StreamPart:
    """Segments [``first``, ``end``) of a stream. ``detail``: the stream, or the file that it is in, which workers open
    themselves. ``num_executions`` and ``num_accesses``: int64[end - first], of each segment."""

    detail: Detail | Path
    detail_digest: str
    first: int
    end: int
    num_executions: np.ndarray
    num_accesses: np.ndarray

    @property
    def content(self) -> list[str]:
        return [self.detail_digest, f"{self.first} {self.end}"]

    def open(self) -> InstructionStream:
        """The segments, decoded. Raises ValueError, saying what to do, where the stream cannot be read here."""
        executions, accesses = int(self.num_executions.sum()), int(self.num_accesses.sum())
        if 4 * executions + 8 * accesses <= IN_MEMORY_BYTES:
            stream = decode(opened(self.detail, self.detail_digest), self.first, self.end)
            return replace(stream, block_ids=_read_only(stream.block_ids), addresses=_read_only(stream.addresses))
        folder = default_cache() / "streams" / f"{FORMAT}-{self.detail_digest[:24]}-{self.first}-{self.end}"
        if not kept.is_whole(folder):
            self._write(folder, executions, accesses)
        starts = (np.concatenate(([0], np.cumsum(each))) for each in (self.num_executions, self.num_accesses))
        try:
            blocks = np.memmap(folder / "blocks", np.int32, "r", shape=(max(1, executions),))
            addresses = np.memmap(folder / "addresses", np.uint64, "r", shape=(max(1, accesses),))
        except OSError as error:
            limits.refuse(error, folder, "read")
            raise
        return InstructionStream(self.first, _read_only(blocks), _read_only(addresses), *starts)

    def _write(self, folder: Path, executions: int, accesses: int) -> None:
        """Decode to ``folder``, which appears only when it is whole. O(executions + accesses)."""
        wanted = 4 * executions + 8 * accesses
        made = folder.with_name(f"{folder.name}.{uuid.uuid4().hex}")
        try:
            made.mkdir(parents=True)
            free = shutil.disk_usage(made).free
            if free < 2 * wanted:
                raise ValueError(
                    f"{made.parent}: decoded instructions take {wanted / 1e9:.1f} GB, {free / 1e9:.1f} GB are free; "
                    "set XDG_CACHE_HOME to a folder with room, or simulate fewer iterations"
                )
            blocks = np.memmap(made / "blocks", np.int32, "w+", shape=(max(1, executions),))
            addresses = np.memmap(made / "addresses", np.uint64, "w+", shape=(max(1, accesses),))
            detail, at, at_access = opened(self.detail, self.detail_digest), 0, 0
            for first, end in self._batches():
                batch = detail.read(first, end)
                blocks[at : at + len(batch.block_ids)] = batch.block_ids
                addresses[at_access : at_access + len(batch.addresses)] = batch.addresses
                at += len(batch.block_ids)
                at_access += len(batch.addresses)
            blocks.flush()
            addresses.flush()
            del blocks, addresses
            kept.seal_folder(made)
            kept.install(made, folder)
        except OSError as error:
            limits.refuse(error, folder, "written")
            raise ValueError(f"{folder}: cannot be written ({error.strerror})") from None
        finally:
            shutil.rmtree(made, ignore_errors=True)

    def _batches(self) -> list[tuple[int, int]]:
        group = np.cumsum(self.num_accesses) // BATCH_ACCESSES
        cuts = [0, *(np.flatnonzero(np.diff(group)) + 1).tolist(), len(group)]
        return [(self.first + a, self.first + b) for a, b in pairwise(cuts)]


def stream_part(workload: Workload, first: int, end: int) -> StreamPart:
    """Segments [``first``, ``end``) of a workload that has a detailed level."""
    detail = workload.detail
    assert detail is not None
    stored = detail.path.resolve() if isinstance(detail, DetailStore) else detail
    executions, accesses = (
        workload.column("segments", name)[first:end].astype(np.int64) for name in ("num_blocks", "num_accesses")
    )
    return StreamPart(stored, detail.digest, first, end, executions, accesses)


def _read_only(values: np.ndarray) -> np.ndarray:
    """A plain array that cannot be written, wherever its memory is: one compiled kernel for all."""
    view = values.view(np.ndarray)
    view.flags.writeable = False
    return view
