"""What launches come to that were executed, and of which no instructions, or not those of all blocks, were recorded.

Launches of which nothing else is known stand in one folder, ``counted``: in ``counts.parquet`` a row for each, with how
often it executed each static instruction and what each of its blocks comes to; ``kernel-N.parquet`` has the static
instructions of a kernel.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from manyscale.models.workload.columns import to_arrow, to_numpy
from manyscale.models.workload.instruction_details import InstructionCounts
from manyscale.models.workload.launch_trace import StaticInstructions
from manyscale.runner import kept, limits
from manyscale.runner.errors import UserError
from manyscale.runner.readers.stores.elsewhere import Told
from manyscale.runner.readers.stores.static_columns import static_instructions, static_table

COUNTED: Final = "counted"  # the folder
_FILE: Final = "counts.parquet"
_KERNEL: Final = "kernel-{}.parquet"
_HEADER: Final = b"manyscale"
_VERSION: Final = 1
_BATCH: Final = 1 << 20  # numbers that are held before they are written
_LIST: Final = pa.list_(pa.field("element", pa.int64(), False))


@dataclass(frozen=True)
class BlockCounts:
    """Arrays [blocks], in the order of the grid: ``is_recorded`` bool, whether the block's instructions are stored;
    ``warps``, and ``warp_instructions``, ``thread_instructions`` and ``memory_requests`` (sectors of global and local
    memory) int64."""

    is_recorded: np.ndarray
    warps: np.ndarray
    warp_instructions: np.ndarray
    thread_instructions: np.ndarray
    memory_requests: np.ndarray

    def table(self) -> pa.Table:
        names = [each.name for each in fields(self)]
        return pa.Table.from_arrays([to_arrow(np.asarray(getattr(self, name), np.int64)) for name in names], names)

    @classmethod
    def from_table(cls, table: pa.Table) -> Self:
        columns = [to_numpy(table.column(each.name)) for each in fields(cls)]
        return cls(columns[0].astype(np.bool_), *columns[1:])

    def add_to(self, state: Any) -> None:
        """To a hash."""
        for each in fields(self):
            state.update(np.ascontiguousarray(getattr(self, each.name), np.int64).data)


def head_of_counts(counts: BlockCounts) -> dict[str, Any]:
    """The columns of the table of launches that follow from the counts of all blocks."""
    threads = counts.thread_instructions
    mean = float(threads.mean()) if len(threads) else 0.0
    return {
        "blocks": len(threads),
        "warps": int(counts.warps.sum()),
        "warp_instructions": int(counts.warp_instructions.sum()),
        "thread_instructions": int(threads.sum()),
        "memory_requests": int(counts.memory_requests.sum()),
        "block_size_cov": float(threads.std()) / mean if mean else 0.0,
    }


def counts_of_roots(roots: Sequence[str], counts: np.ndarray) -> dict[str, int]:
    """Executed instructions by the root of their opcode, from those by opcode."""
    found: dict[str, int] = {}
    for root, count in zip(roots, counts.astype(np.int64).tolist(), strict=True):
        if count:
            found[root] = found.get(root, 0) + count
    return found


class CountsWriter:
    """Writes the folder of counted launches, launch by launch, then ``close``. Without ``close`` nothing remains.
    ``rules``: see CountedLaunches."""

    def __init__(self, folder: Path, rules: Mapping[str, Any] | None = None) -> None:
        self._rules = rules
        self._folder = folder
        self._unfinished = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
        self._rows: list[dict[str, Any]] = []
        self._held = 0
        self._kernels: dict[int, StaticInstructions] = {}
        self._writer: Any = None
        self.heads: dict[int, dict[str, Any]] = {}

    def add(
        self, launch_id: int, kernel: int, static: StaticInstructions, head: Mapping[str, Any],
        of_row: InstructionCounts, counts: BlockCounts,
    ) -> None:  # fmt: skip
        """A launch with the ``head`` that its trace gives; counts of the kernel's rows and of blocks."""
        state = hashlib.blake2b(digest_size=20)
        names = ("kernel_name", "grid", "block", "shared_bytes", "registers", "binary_version")
        state.update(json.dumps([_VERSION, *(head[name] for name in names)]).encode())
        columns = {"executed": of_row.executed, "threads": of_row.threads}
        columns["diverged"] = np.zeros(0, np.int64) if of_row.diverged is None else of_row.diverged
        for values in columns.values():
            state.update(np.ascontiguousarray(values, np.int64).data)
        counts.add_to(state)
        self.heads[launch_id] = {**head, **head_of_counts(counts), "digest": state.hexdigest()}
        self._kernels.setdefault(kernel, static)
        row = {"launch_id": launch_id, "kernel": kernel, "digest": state.hexdigest(), **columns}
        row |= {each.name: getattr(counts, each.name) for each in fields(counts) if each.name != "is_recorded"}
        self._rows.append(row)
        self._held += 3 * len(of_row.executed) + 4 * len(counts.warps)
        if self._held > _BATCH:
            self._flush()

    def _flush(self) -> None:
        rows, self._rows, self._held = self._rows, [], 0
        arrays = []
        for field in _SCHEMA:
            values = [row[field.name] for row in rows]
            if field.type == _LIST:
                ends = np.cumsum([0, *map(len, values)]).astype(np.int32)
                joined = np.concatenate(values).astype(np.int64) if values else np.zeros(0, np.int64)
                arrays.append(pa.ListArray.from_arrays(to_arrow(ends), to_arrow(joined), type=_LIST))
            else:
                arrays.append(pa.array(values, field.type))
        try:
            if self._writer is None:
                self._unfinished.mkdir(parents=True)
                self._writer = pq.ParquetWriter(
                    self._unfinished / _FILE, _SCHEMA, compression="zstd", use_dictionary=False, write_statistics=False
                )
            self._writer.write_table(pa.Table.from_arrays(arrays, schema=_SCHEMA))
        except OSError as error:
            raise self._unwritable(error) from None

    def close(self) -> CountedLaunches | None:
        """None where nothing was added."""
        if not self.heads:
            return None
        self._flush()
        opcodes: dict[str, Any] = {str(number): list(static.opcodes) for number, static in self._kernels.items()}
        content = {"version": _VERSION, "kernels": opcodes, "rules": self._rules}
        try:
            for number, static in self._kernels.items():
                nothing = np.zeros(len(static.pc), np.int64)
                table = static_table(static, InstructionCounts(nothing, nothing, None))
                pq.write_table(table, self._unfinished / _KERNEL.format(number), compression="zstd")
            self._writer.add_key_value_metadata({_HEADER: json.dumps(content)})
            self._writer.close()
            kept.seal_folder(self._unfinished)
            kept.install(self._unfinished, self._folder)
        except OSError as error:
            raise self._unwritable(error) from None
        finally:
            self.abandon()
        return CountedLaunches(self._folder)

    def abandon(self) -> None:
        """Remove what was written."""
        if self._writer is not None:
            self._writer.close()
        shutil.rmtree(self._unfinished, ignore_errors=True)

    def _unwritable(self, error: OSError) -> UserError:
        return UserError(f"{self._folder.parent}: counts cannot be stored there ({error.strerror or error})")


_SCHEMA: Final = pa.schema(
    [
        pa.field("launch_id", pa.int32(), False),
        pa.field("kernel", pa.int32(), False),
        pa.field("digest", pa.string(), False),
        *(pa.field(name, _LIST, False) for name in ("executed", "threads", "diverged", "warps")),
        *(pa.field(name, _LIST, False) for name in ("warp_instructions", "thread_instructions", "memory_requests")),
    ]
)  # fmt: skip


class CountedLaunches(Told):
    """The folder of counted launches. ``rules``: those by which TBPoint chose the others (keys of LaunchSampling), None
    where a list did. Raises UserError where the folder is damaged."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self._statics: dict[int, StaticInstructions] = {}
        try:
            file = pq.ParquetFile(self.folder / _FILE)
            content = json.loads((file.metadata.metadata or {})[_HEADER])
            if content["version"] != _VERSION or not kept.is_whole(self.folder):
                raise ValueError("its files are not as they were written")
            self._opcodes = {int(number): tuple(map(str, each)) for number, each in content["kernels"].items()}
            self.rules: dict[str, Any] | None = content["rules"]
            known = file.read(["launch_id", "kernel", "digest"])
            ids = known.column("launch_id").to_pylist()
            self._place = {launch_id: place for place, launch_id in enumerate(ids)}
            self._kernel, self._digest = known.column("kernel").to_pylist(), known.column("digest").to_pylist()
            if len(self._place) != len(ids) or not set(self._kernel) <= set(self._opcodes):
                raise ValueError("its launches do not hold together")
            self._first, self._group = 0, file.schema_arrow.empty_table()
        except (OSError, KeyError, TypeError, ValueError, pa.ArrowException) as error:
            raise self._damaged(error) from None

    def stored(self) -> tuple[Path, str]:
        return self.folder, hashlib.blake2b(json.dumps(self._digest).encode(), digest_size=20).hexdigest()

    def _damaged(self, error: Exception) -> UserError:
        limits.refuse(error, self.folder, "read")
        return UserError(f"{self.folder}: the counts of launches are damaged ({error}); trace the program again")

    @property
    def launch_ids(self) -> tuple[int, ...]:
        return tuple(self._place)

    def digest(self, launch_id: int) -> str:
        return str(self._digest[self._place[launch_id]])

    def executed(self, launch_id: int) -> dict[str, int]:
        """Warp instructions by the root of their opcode."""
        static = self.static(launch_id)
        roots = [opcode.split(".")[0] for opcode in static.opcodes]
        executed = self._lists(launch_id)["executed"]
        return counts_of_roots(roots, np.bincount(static.opcode, executed, minlength=len(roots)))

    def static(self, launch_id: int) -> StaticInstructions:
        """Of the launch's kernel."""
        kernel = self._kernel[self._place[launch_id]]
        if kernel not in self._statics:
            try:
                table = pq.ParquetFile(self.folder / _KERNEL.format(kernel)).read()
                self._statics[kernel] = static_instructions(table, self._opcodes[kernel])
            except (OSError, KeyError, ValueError, pa.ArrowException) as error:
                raise self._damaged(error) from None
        return self._statics[kernel]

    def of_rows(self, launch_id: int) -> InstructionCounts:
        """How often each static instruction was executed, by how many threads, and how often it parted a warp."""
        found = self._lists(launch_id)
        return InstructionCounts(found["executed"], found["threads"], found["diverged"])

    def counts(self, launch_id: int) -> BlockCounts:
        """What each block comes to."""
        found = self._lists(launch_id)
        return BlockCounts(
            np.zeros(len(found["warps"]), np.bool_), *(found[each.name] for each in fields(BlockCounts)[1:])
        )

    def _lists(self, launch_id: int) -> dict[str, np.ndarray]:
        place = self._place[launch_id]
        if not self._first <= place < self._first + self._group.num_rows:
            self._first, self._group = self._read_group(place)
        row = self._group.slice(place - self._first, 1)
        names = [field.name for field in _SCHEMA if field.type == _LIST]
        return {name: to_numpy(row.column(name).combine_chunks().flatten()) for name in names}

    def _read_group(self, place: int) -> tuple[int, pa.Table]:
        """(its first row, the row group that holds a row)."""
        try:
            file = pq.ParquetFile(self.folder / _FILE)
            first = 0
            for group in range(file.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                if place < first + rows:
                    return first, file.read_row_group(group, use_threads=False)
                first += rows
            raise ValueError("rows are missing")
        except (OSError, ValueError, pa.ArrowException) as error:
            raise self._damaged(error) from None

    def add_to(self, writer: CountsWriter, number_of: Mapping[int, int], heads: Mapping[int, dict[str, Any]]) -> None:
        """Write the launches of ``number_of`` by the numbers that they have there."""
        for launch_id, number in number_of.items():
            kernel = self._kernel[self._place[launch_id]]
            rows, blocks = self.of_rows(launch_id), self.counts(launch_id)
            writer.add(number, kernel, self.static(launch_id), heads[launch_id], rows, blocks)

    def copy(self, folder: Path, *, links: bool = False) -> CountedLaunches:
        """The same in another folder; ``links``: by hard links, where the file system has them."""
        if folder.resolve() != self.folder.resolve():
            copy_folder(self.folder, folder, links=links)
        return CountedLaunches(folder)


def copy_folder(source: Path, target: Path, *, links: bool) -> None:
    """Raises OSError."""
    shutil.copytree(source, target, dirs_exist_ok=True, copy_function=_linked if links else shutil.copy2)


def _linked(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target
