"""Launches from their records: whole ones, and ones of which only some blocks or only counts are recorded."""

from __future__ import annotations

import json
import math
import re
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from manyscale.models.workload.asynchronous import SYSTEM_BYTES, reach
from manyscale.models.workload.instruction_details import KINDS, InstructionDetails
from manyscale.models.workload.launch_trace import StaticInstructions
from manyscale.models.workload.notes import to_json
from manyscale.runner.errors import UserError
from manyscale.runner.readers.bounds import whole
from manyscale.runner.readers.cuda.layout import KERNELS, STATIC_COLUMNS, STATICS
from manyscale.runner.readers.cuda.records import COUNTED, HEAD, LaunchRecord
from manyscale.runner.readers.stores.launch_counts import BlockCounts, CountsWriter
from manyscale.runner.readers.stores.launch_store import LaunchWriter, StoredLaunch
from manyscale.runner.readers.stores.operation_words import has_words

_PLACE: Final = re.compile(r"(\S+)\+0x([0-9a-f]+)(?=: )")  # in a kernel, where a launch stopped
MOST_OF_COLUMN: Final = 2**31 - 1  # of the table of launches


class FullError(Exception):
    """The disk may not hold more."""


@dataclass(frozen=True)
class Launch:
    """What was launched. ``kernel``: its number in the module file."""

    launch_id: int
    kernel: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared: int
    stream: int

    @property
    def num_blocks(self) -> int:
        return math.prod(self.grid)


@dataclass(frozen=True)
class CudaKernel:
    """A kernel of the module file: its description there and its instructions."""

    described: dict[str, Any]
    static: StaticInstructions

    @property
    def listed(self) -> tuple[str, ...]:
        """Each instruction as Accel-Sim's traces have it; none where an older tracer wrote the folder."""
        return tuple(self.described.get("listed", ()))

    def head(self, launch: Launch) -> dict[str, Any]:
        """The columns of the table of launches that the launch itself gives, and ``notes``."""
        return {
            "kernel_name": self.described["name"],
            "grid": list(launch.grid),
            "block": list(launch.block),
            "shared_bytes": self.described["shared_bytes"] + launch.dynamic_shared,
            "registers": self.described["registers"],
            "binary_version": self.described["architecture"],
            "stream": launch.stream,
            "notes": to_json(()),
        }


def read_kernels(path: Path) -> list[CudaKernel]:
    """Of a tracer's folder. Raises UserError."""
    try:
        described = json.loads((path / KERNELS).read_text())
        with np.load(path / STATICS, allow_pickle=False) as stored:
            columns = {name: stored[name].astype(kind) for name, kind in STATIC_COLUMNS.items()}
            known = {name: stored[name].astype(kind) for name, kind in KINDS.items() if name in stored}
        found, first = [], 0
        for each in described:
            end = first + int(each["rows"])
            rows = {name: values[first:end] for name, values in columns.items()}
            if len(each.get("listed", ())) not in (0, end - first):
                raise ValueError(f"{end - first} instructions are listed")
            if not all(isinstance(text, str) for text in (each["name"], *each["opcodes"])):
                raise ValueError("a kernel's name, or an opcode, is no text")
            for name in ("shared_bytes", "registers", "architecture"):
                each[name] = whole(each[name], path / KERNELS, name, most=MOST_OF_COLUMN)
            details = _details(each, known, first, end) if "texts" in each else None
            found.append(CudaKernel(each, StaticInstructions(tuple(each["opcodes"]), **rows, details=details)))
            first = end
        if any(len(values) != first for values in (columns | known).values()):
            raise ValueError(f"{first} rows are expected")
    except (OSError, ValueError, KeyError, TypeError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        told = str(error).splitlines()[0][:100]
        raise UserError(f"{path}: {KERNELS} or {STATICS} is damaged ({told}); trace the program again") from None
    return found


def with_source(problem: str, kernels: Sequence[CudaKernel]) -> str:
    """Why a launch stopped, with the instruction and, where it is known (``nvcc -lineinfo``), the line of source."""
    place = _PLACE.match(problem)
    details = next((each.static.details for each in kernels if place and each.described["name"] == place[1]), None)
    row = int(place[2], 16) // 16 if place else 0
    if details is None or row >= len(details.text):
        return problem
    line, number = int(details.source_line[row]), int(details.source_file[row])
    told = f"{details.files[number]}:{line}, " if line and number >= 0 else ""
    return _PLACE.sub(lambda found: f"{found[0]} ({told}{details.text[row].rstrip('; ')})", problem, count=1)


def _details(described: dict[str, Any], columns: dict[str, np.ndarray], first: int, end: int) -> InstructionDetails:
    """Raises ValueError where they are not of as many instructions."""
    texts = {"text": described["texts"], "listed": described["listed"]}
    if any(len(each) != end - first for each in texts.values()):
        raise ValueError(f"texts of {end - first} instructions are expected")
    rows: dict[str, Any] = {name: values[first:end] for name, values in columns.items()}
    rows |= {name: tuple(map(str, each)) for name, each in texts.items()}
    found = InstructionDetails(files=tuple(map(str, described["files"])), **rows)
    if end > first and int(found.source_file.max()) >= len(found.files):
        raise ValueError("a file of source has no name")
    return found


def store_launch(
    record: LaunchRecord,
    launch: Launch,
    kernel: CudaKernel,
    folder: Path,
    counted: CountsWriter,
    is_full: Callable[[int], bool] | None = None,
) -> StoredLaunch | None:
    """Read a record to its end, and store what it has: the instructions of its blocks in ``folder``, or, where it has
    none, counts in ``counted``, and then None; also of a launch that stopped before it completed a block, or whose
    program was killed. ``is_full`` is told the bytes that the launch has on disk, again and again: if it says so, the
    record is read to its end and FullError is raised. Raises UserError for a record that is damaged or does not have
    the launch's blocks."""
    writer: LaunchWriter | None = None
    has_no_room = False
    head, ranks = kernel.head(launch), 1
    try:
        heads: list[np.ndarray] = []
        for batch in record.batches():
            heads.append(batch.head)
            counts, words = batch.whole.warp_words, batch.whole.words
            if counts is not None and words is not None:
                ranks = max(ranks, _checked_ranks(record, counts, words, head["shared_bytes"]))
            if len(batch.whole.warps) and not has_no_room:
                writer = writer or LaunchWriter(folder, has_words=has_words(kernel.static))
                writer.add(batch.whole)
                has_no_room = is_full is not None and is_full(writer.size())
        if has_no_room:
            raise FullError
        blocks = np.concatenate(heads) if heads else np.zeros(0, HEAD)
        _check(record, launch, blocks)
        if record.is_ended and ranks > math.prod(record.cluster):
            raise UserError(f"{record.place}: names blocks outside of a cluster; trace the program again")
        if not len(blocks) or not record.is_ended:
            return None
        of_blocks = _counts(blocks)
        if record.cluster != (1, 1, 1):
            head["cluster"] = list(record.cluster)
        if writer is None:
            counted.add(launch.launch_id, launch.kernel, kernel.static, head, record.counts, of_blocks)
            return None
        return writer.close(kernel.static, head, *(() if of_blocks.is_recorded.all() else (of_blocks, record.counts)))
    finally:
        if writer is not None:
            writer.abandon()


def _checked_ranks(record: LaunchRecord, counts: np.ndarray, words: np.ndarray, shared_bytes: int) -> int:
    """How many blocks of a cluster their asynchronous operations name. Raises UserError where the barriers that they
    name lie outside of shared memory."""
    try:
        offset, rank = reach(counts, words)
        if offset > SYSTEM_BYTES + shared_bytes:
            raise ValueError(f"a barrier at byte {offset} of shared memory, of which a block has {shared_bytes}")
    except ValueError as error:
        raise UserError(
            f"{record.place}: asynchronous operations are damaged ({error}); trace the program again"
        ) from None
    return rank + 1


def _check(record: LaunchRecord, launch: Launch, blocks: np.ndarray) -> None:
    if not np.array_equal(blocks["number"], np.arange(len(blocks))) or len(blocks) > launch.num_blocks:
        raise UserError(f"{record.place}: its blocks are not those of the launch; trace the program again")
    if record.is_ended and not record.is_stopped and len(blocks) != launch.num_blocks:
        raise UserError(f"{record.place}: holds {len(blocks)} blocks of {launch.num_blocks}; trace it again")


def _counts(blocks: np.ndarray) -> BlockCounts:
    columns = (
        blocks[name].astype(np.int64) for name in ("warps", "warp_instructions", "thread_instructions", "requests")
    )
    return BlockCounts(blocks["kind"] != COUNTED, *columns)


def kernel_of(kernels: list[CudaKernel], launch: Launch, place: str) -> CudaKernel:
    """Raises UserError where there is none."""
    if not 0 <= launch.kernel < len(kernels):
        raise UserError(f"{place}: launch {launch.launch_id} is of a kernel that {KERNELS} does not have")
    return kernels[launch.kernel]
