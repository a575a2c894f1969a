"""Launches' instructions on disk: a folder for each, with Parquet files, which a trace is read into once.

``instructions.parquet`` has a row for each thread block, in row groups of about a million instructions;
``static.parquet`` the static instructions (``static_columns``), and in its metadata what the head of the trace says and
what the launch comes to. Where only some of a launch's blocks are stored, ``counts.parquet`` has what each of all
blocks comes to. A folder appears whole or not at all, with its checksums. Launches of which nothing but counts were
recorded stand together in one file (launch_counts.py).
"""

from __future__ import annotations

import hashlib
import json
import shutil
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from manyscale.models.workload.columns import to_arrow, to_numpy
from manyscale.models.workload.instruction_details import InstructionCounts
from manyscale.models.workload.launch_trace import LaunchTrace, StaticInstructions
from manyscale.runner import kept, limits
from manyscale.runner.errors import UserError
from manyscale.runner.readers.stores.elsewhere import Told
from manyscale.runner.readers.stores.launch_counts import BlockCounts, copy_folder, counts_of_roots, head_of_counts
from manyscale.runner.readers.stores.operation_words import WORDS, offsets, part_of_words, schema_of
from manyscale.runner.readers.stores.static_columns import (
    STATIC_COLUMNS,
    detailed_counts,
    static_instructions,
    static_table,
    stored_counts,
)

VERSION: Final = 2  # raised when what is stored changes its form
_HEADER: Final = b"manyscale"
_COLUMNS: Final = {  # lists, one for each block
    "warp_instructions": np.int32,
    "warp_accesses": np.int32,
    "instruction": np.int32,
    "active": np.uint8,
    "accesses": np.uint8,
    "sector": np.int64,
    "written": np.uint32,
}
_INSTRUCTIONS: Final = "instructions.parquet"
_STATIC: Final = "static.parquet"
_COUNTS: Final = "counts.parquet"
_LISTS: Final = ("opcodes", "executed")  # of the head


@dataclass(frozen=True)
class Blocks:
    """Consecutive blocks: warps of each (int64[blocks]); instructions and accesses of each warp (int32[warps]); and
    the columns of ``LaunchTrace``. ``diverged`` bool[instructions]: whether lanes of the warp parted there, where the
    trace tells; it is not stored, only counted. Of asynchronous operations, where the launch has some: ``warp_words``
    int32[warps] of each warp, and ``words`` int64[] themselves (models/workload/asynchronous.py)."""

    warps: np.ndarray
    warp_instructions: np.ndarray
    warp_accesses: np.ndarray
    instruction: np.ndarray
    active: np.ndarray
    accesses: np.ndarray
    sector: np.ndarray
    written: np.ndarray
    diverged: np.ndarray | None = None
    warp_words: np.ndarray | None = None
    words: np.ndarray | None = None


class LaunchWriter:
    """Writes the folder of a launch: blocks in the grid's order, then ``close``. Without ``close`` nothing remains."""

    def __init__(self, folder: Path, *, has_words: bool = False) -> None:
        self._folder = folder
        self._columns: dict[str, Any] = _COLUMNS | (WORDS if has_words else {})
        self._schema = schema_of(self._columns)
        self._unfinished = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
        self._hashes = {name: hashlib.blake2b(digest_size=20) for name in ("warps", *self._columns)}
        self._writer: Any = None
        self.num_blocks = self.num_warps = self.num_accesses = self._words = 0
        self._thread_sum = self._thread_squares = 0
        self.executed = self._threads = self._diverged = np.zeros(0, np.int64)
        self._tells_divergence = True
        try:
            self._unfinished.mkdir(parents=True)
            self._writer = pq.ParquetWriter(
                self._unfinished / _INSTRUCTIONS,
                self._schema,
                compression="zstd",
                compression_level=1,
                use_dictionary=False,
                write_statistics=False,
                column_encoding={"sector.list.element": "DELTA_BINARY_PACKED"},
            )
        except OSError as error:
            raise _unwritable(folder, error) from None

    def add(self, blocks: Blocks) -> None:
        """Append blocks, as one row group."""
        if not len(blocks.warps):
            return
        of_warps, instructions = offsets(blocks.warps), offsets(blocks.warp_instructions)
        in_blocks = instructions[of_warps]
        bounds = {
            "warp_instructions": of_warps,
            "warp_accesses": of_warps,
            "warp_words": of_warps,
            "instruction": in_blocks,
            "active": in_blocks,
            "accesses": in_blocks,
        }
        of_accesses = offsets(blocks.warp_accesses)[of_warps]
        if blocks.warp_words is not None:
            bounds["words"] = offsets(blocks.warp_words)[of_warps]
        arrays = []
        for name, kind in self._columns.items():
            values = np.ascontiguousarray(getattr(blocks, name), kind)
            self._hashes[name].update(values.data)
            starts = to_arrow(bounds.get(name, of_accesses).astype(np.int32))
            arrays.append(pa.ListArray.from_arrays(starts, to_arrow(values), type=self._schema.field(name).type))
        self._hashes["warps"].update(np.ascontiguousarray(blocks.warps, np.int64).data)
        try:
            self._writer.write_table(
                pa.Table.from_arrays(arrays, schema=self._schema), row_group_size=len(blocks.warps)
            )
        except OSError as error:
            raise _unwritable(self._folder, error) from None
        threads = np.diff(offsets(blocks.active)[in_blocks])
        self._thread_sum += int(threads.sum())
        self._thread_squares += sum(value * value for value in threads.tolist())
        self.num_blocks += len(blocks.warps)
        self.num_warps += len(blocks.warp_instructions)
        self.num_accesses += len(blocks.sector)
        self._words += 0 if blocks.words is None else len(blocks.words)
        self.executed = _counted(self.executed, blocks.instruction)
        self._threads = _counted(self._threads, blocks.instruction, blocks.active)
        self._tells_divergence &= blocks.diverged is not None
        if blocks.diverged is not None:
            self._diverged = _counted(self._diverged, blocks.instruction[blocks.diverged])

    def close(
        self,
        static: StaticInstructions,
        head: dict[str, Any],
        blocks: BlockCounts | None = None,
        others: InstructionCounts | None = None,
    ) -> StoredLaunch:
        """Finish the folder. ``head``: the columns of ``launches`` that the trace's head gives, and ``notes``. Where
        not all blocks were added: counts of all ``blocks``, and what the ``others`` executed."""
        mean = self._thread_sum / max(1, self.num_blocks)
        variance = max(0, self.num_blocks * self._thread_squares - self._thread_sum**2) / max(1, self.num_blocks) ** 2
        diverged = self._diverged if self._tells_divergence else None
        counts = InstructionCounts.of_rows(len(static.pc), self.executed, self._threads, diverged)
        content = head | {
            "version": VERSION,
            "opcodes": list(static.opcodes),
            "blocks": self.num_blocks,
            "warps": self.num_warps,
            "warp_instructions": int(self.executed.sum()),
            "thread_instructions": self._thread_sum,
            "memory_requests": self.num_accesses,
            "block_size_cov": float(variance**0.5 / mean) if mean else 0.0,
        }
        if self._words:
            content["words"] = self._words
        if blocks is not None and others is not None:
            content |= head_of_counts(blocks)
            counts = counts.plus(others)
        content |= {"executed": counts.executed.tolist(), "digest": self._digest(static, head, blocks)}
        table = static_table(static, counts)
        try:
            self._writer.close()
            table = table.replace_schema_metadata({_HEADER: json.dumps(content).encode()})
            pq.write_table(table, self._unfinished / _STATIC, compression="zstd", write_statistics=False)
            if blocks is not None:
                pq.write_table(blocks.table(), self._unfinished / _COUNTS, compression="zstd", write_statistics=False)
            kept.seal_folder(self._unfinished)
            kept.install(self._unfinished, self._folder)
        except OSError as error:
            raise _unwritable(self._folder, error) from None
        finally:
            self.abandon()
        return StoredLaunch(self._folder)

    def size(self) -> int:
        """Bytes on disk, of what was added."""
        return (self._unfinished / _INSTRUCTIONS).stat().st_size

    def abandon(self) -> None:
        """Remove what was written."""
        if self._writer is not None:
            self._writer.close()
        shutil.rmtree(self._unfinished, ignore_errors=True)

    def _digest(self, static: StaticInstructions, head: dict[str, Any], blocks: BlockCounts | None) -> str:
        names = ("kernel_name", "grid", "block", "shared_bytes", "registers", "binary_version")
        state = hashlib.blake2b(json.dumps([VERSION, *(head[name] for name in names)]).encode(), digest_size=20)
        state.update(json.dumps(static.opcodes).encode())
        for name in (*STATIC_COLUMNS, "destinations", "sources"):
            state.update(np.ascontiguousarray(getattr(static, name)).data)
        for each in self._hashes.values():
            state.update(each.digest())
        if "cluster" in head:
            state.update(json.dumps(head["cluster"]).encode())
        if blocks is not None:
            blocks.add_to(state)
        return state.hexdigest()


def _unwritable(folder: Path, error: OSError) -> UserError:
    return UserError(
        f"{folder.parent}: launches cannot be stored there ({error.strerror or error}); "
        "set XDG_CACHE_HOME to a folder with room"
    )


class StoredLaunch(Told):
    """The folder of a launch. Raises UserError where it is damaged."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        try:
            # lists of all instructions are read when they are asked for: there may be many launches
            content = self._content()
            self.head: dict[str, Any] = {name: value for name, value in content.items() if name not in _LISTS}
            if self.head["version"] != VERSION or not (self.folder / _INSTRUCTIONS).is_file():
                raise ValueError("of another version")
            if (self.folder / kept.CHECKSUMS).exists() and not kept.is_whole(self.folder):
                raise ValueError("its files are not as they were written")
        except (OSError, KeyError, TypeError, ValueError, pa.ArrowException) as error:
            raise self._damaged(error) from None

    def stored(self) -> tuple[Path, str]:
        return self.folder, str(self.head["digest"])

    def _content(self) -> dict[str, Any]:
        """All that the launch's head has."""
        content: dict[str, Any] = json.loads(pq.ParquetFile(self.folder / _STATIC).schema_arrow.metadata[_HEADER])
        return content

    def _table(self, name: str) -> pa.Table:
        return pq.ParquetFile(self.folder / name).read()  # read_table imports pandas

    def _damaged(self, error: Exception) -> UserError:
        limits.refuse(error, self.folder, "read")
        return UserError(f"{self.folder}: the stored launch is damaged ({error}); remove it and read the trace again")

    @property
    def has_words(self) -> bool:
        """Whether it has words of asynchronous operations."""
        return bool(self.head.get("words", 0))

    @property
    def cluster(self) -> tuple[int, int, int]:
        """Blocks of a cluster along each dimension."""
        x, y, z = self.head.get("cluster", (1, 1, 1))
        return x, y, z

    @cached_property
    def static(self) -> StaticInstructions:
        try:
            return static_instructions(self._table(_STATIC), tuple(self._content()["opcodes"]))
        except (OSError, KeyError, ValueError, pa.ArrowException) as error:
            raise self._damaged(error) from None

    @cached_property
    def blocks(self) -> BlockCounts | None:
        """Of all blocks, where not all of them are stored."""
        if not (self.folder / _COUNTS).is_file():
            return None
        try:
            return BlockCounts.from_table(self._table(_COUNTS))
        except (OSError, KeyError, ValueError, pa.ArrowException) as error:
            raise self._damaged(error) from None

    @property
    def detailed_counts(self) -> tuple[bytes, InstructionCounts] | None:
        """As ``LaunchStreams.detailed_counts``."""
        try:
            return detailed_counts(self.folder / _STATIC)
        except (OSError, KeyError, ValueError, pa.ArrowException) as error:
            raise self._damaged(error) from None

    @property
    def counts(self) -> InstructionCounts:
        """How often each static instruction was executed, by how many threads, and how often it parted a warp."""
        try:
            stored = stored_counts(self._table(_STATIC))
        except (OSError, KeyError, ValueError, pa.ArrowException) as error:
            raise self._damaged(error) from None
        if stored is not None:
            return stored
        number = len(self.static.pc)
        executed = threads = np.zeros(number, np.int64)
        for group in self._groups():
            executed = _counted(executed, group.instruction)
            threads = _counted(threads, group.instruction, group.active)
        return InstructionCounts(executed, threads, None)

    def trace(self, launch_id: int) -> LaunchTrace:
        """All of it."""
        return self._assembled(launch_id, list(self._groups()))

    def block_batches(self, launch_id: int, max_instructions: int) -> Iterator[LaunchTrace]:
        """Pieces of consecutive blocks: at most so many instructions, or one block."""
        for group in self._groups():
            ends = offsets(group.warp_instructions)[offsets(group.warps)]
            first = 0
            while first < len(group.warps):
                end = int(np.searchsorted(ends, ends[first] + max_instructions, "right")) - 1
                end = max(first + 1, end)
                yield self._assembled(launch_id, [_part(group, first, end)])
                first = end

    def _groups(self) -> Iterator[Blocks]:
        try:
            file = pq.ParquetFile(self.folder / _INSTRUCTIONS)
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, use_threads=False)
                names = [name for name in (*_COLUMNS, *WORDS) if name in table.column_names]
                columns = {name: table.column(name).combine_chunks() for name in names}
                values = {name: to_numpy(column.flatten()) for name, column in columns.items()}
                yield Blocks(np.diff(to_numpy(columns["warp_instructions"].offsets)).astype(np.int64), **values)
        except (OSError, pa.ArrowException) as error:
            raise self._damaged(error) from None

    def _assembled(self, launch_id: int, groups: Sequence[Blocks]) -> LaunchTrace:
        def joined(name: str) -> np.ndarray:
            if len(groups) == 1:
                return np.asarray(getattr(groups[0], name))
            return np.concatenate([getattr(group, name) for group in groups])

        head = self.head
        has_words = bool(groups) and all(group.words is not None for group in groups)
        return LaunchTrace(
            launch_id,
            head["kernel_name"],
            tuple(head["grid"]),
            tuple(head["block"]),
            head["shared_bytes"],
            head["registers"],
            head["binary_version"],
            self.static,
            offsets(joined("warps")),
            offsets(joined("warp_instructions")),
            offsets(joined("warp_accesses")),
            **{name: joined(name) for name in ("instruction", "active", "accesses", "sector", "written")},
            warp_words=offsets(joined("warp_words")) if has_words else None,
            words=joined("words") if has_words else None,
            cluster=self.cluster,
        )

    def executed(self) -> dict[str, int]:
        """Warp instructions by the root of their opcode, those that were executed."""
        content = self._content()
        counts = np.array(content["executed"], np.int64) if "executed" in content else self.counts.executed
        roots = [opcode.split(".")[0] for opcode in content["opcodes"]]
        return counts_of_roots(roots, np.bincount(self.static.opcode[: len(counts)], counts, minlength=len(roots)))

    def copy(self, folder: Path, *, links: bool = False) -> StoredLaunch:
        """The same launch in another folder; ``links``: by hard links, where the file system has them."""
        if folder.resolve() != self.folder.resolve():
            copy_folder(self.folder, folder, links=links)
        return StoredLaunch(folder)


def _counted(known: np.ndarray, rows: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """``known`` and how often each row stands in ``rows``, or the sum of its weights; int64, as long as need be."""
    found = np.bincount(rows, weights, minlength=len(known)).astype(np.int64)
    found[: len(known)] += known
    return found


def _part(group: Blocks, first: int, end: int) -> Blocks:
    """Blocks [first, end) of a group."""
    warps = slice(*offsets(group.warps)[[first, end]])
    instructions = slice(*offsets(group.warp_instructions)[[warps.start, warps.stop]])
    accesses = slice(*offsets(group.warp_accesses)[[warps.start, warps.stop]])
    return Blocks(
        group.warps[first:end],
        group.warp_instructions[warps],
        group.warp_accesses[warps],
        *(getattr(group, name)[instructions] for name in ("instruction", "active", "accesses")),
        *(getattr(group, name)[accesses] for name in ("sector", "written")),
        **part_of_words(group.warp_words, group.words, warps),
    )
