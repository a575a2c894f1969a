"""One launch of an Accel-Sim trace, from its file to its store.

The text is decompressed and parsed piece by piece; whole blocks are written as soon as there are a million instructions
of them, so that memory is bounded by a block. A raw trace, whose instructions stand in the order of their arrival, and
one whose blocks or warps do not stand in the order of the grid are held in memory and sorted (26 bytes an instruction,
12 a request).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

from manyscale.models.workload.notes import to_json
from manyscale.runner.errors import UserError
from manyscale.runner.readers.accelsim.header import MAX_HEADER_BYTES, Header, split_header
from manyscale.runner.readers.accelsim.order import (
    Columns,
    Progress,
    by_warps,
    in_batches,
    sorted_warps,
    twice,
)
from manyscale.runner.readers.accelsim.parser import MEND, LaunchParser
from manyscale.runner.readers.archive import guarded, open_stream
from manyscale.runner.readers.stores.launch_store import LaunchWriter, StoredLaunch

READER_VERSION: Final = 4  # raised when what is read of the same file changes
BATCH_INSTRUCTIONS: Final = 1 << 20


class _OutOfOrderError(Exception):
    """Blocks or warps do not stand in the order of the grid, and some were written already."""


def read_launch(path: Path, folder: Path) -> StoredLaunch:
    """The launch of a trace file, stored in ``folder``. Raises UserError with file and line."""
    try:
        return _Launch(path, folder, writes_early=True).read()
    except _OutOfOrderError:
        return _Launch(path, folder, writes_early=False).read()


class _Launch:
    """A launch that is being read and written."""

    def __init__(self, path: Path, folder: Path, *, writes_early: bool) -> None:
        self._path, self._writes_early = path, writes_early
        self._writer = LaunchWriter(folder)

    def read(self) -> StoredLaunch:
        """Raises _OutOfOrderError where blocks were written before one that belongs before them came."""
        try:
            with guarded(self._path), open_stream(self._path) as stream:
                head = stream.read(MAX_HEADER_BYTES)
                header, length = split_header(self._path, head)
                self._progress = Progress(header.warps_per_block)
                write = self._write if self._writes_early and not header.is_raw else None
                parser = LaunchParser(self._path, header, length, write, BATCH_INSTRUCTIONS)
                parser.read(head[length:], stream)
            self._write_rest(parser, header)
            if self._progress.num_blocks < header.num_blocks:
                missing = parser.block_name(self._progress.first_missing)
                raise UserError(
                    f"{self._path}: {missing} is missing; the body has {self._progress.num_blocks} of the "
                    f"{header.num_blocks} thread blocks of the grid; {MEND}"
                )
            return self._close(parser, header)
        finally:
            self._writer.abandon()

    def _write(self, columns: Columns, warps: np.ndarray) -> None:
        if not self._progress.continues(warps):
            raise _OutOfOrderError
        self._progress.add(warps)
        for blocks in in_batches(columns, warps, BATCH_INSTRUCTIONS):
            self._writer.add(blocks)

    def _write_rest(self, parser: LaunchParser, header: Header) -> None:
        columns, warps = parser.columns()
        if header.is_raw:
            columns, warps = by_warps(columns, *parser.owners(), header.warps_per_block)
        elif not self._progress.continues(warps) and not self._progress.num_blocks:
            doubled = twice(warps, header.warps_per_block)
            if doubled is not None:
                block, warp = doubled
                raise UserError(f"{self._path}: warp {warp} of {parser.block_name(block)} stands there twice; {MEND}")
            columns, warps = sorted_warps(columns, warps)
        self._write(columns, warps)

    def _close(self, parser: LaunchParser, header: Header) -> StoredLaunch:
        statics = parser.statics()
        executed = np.zeros(len(statics.kinds), np.int64)
        executed[: len(self._writer.executed)] = self._writer.executed
        unknown, newer = statics.odd_opcodes(executed, header.binary_version)
        head: dict[str, Any] = {
            "kernel_name": header.kernel_name,
            "grid": list(header.grid),
            "block": list(header.block),
            "shared_bytes": header.shared_bytes,
            "registers": header.registers,
            "binary_version": header.binary_version,
            "stream": header.stream,
            "unknown_opcodes": dict(unknown),
            "newer_opcodes": dict(newer),
            "other_lines": dict(parser.other_lines),
            "notes": to_json(header.notes),
        }
        return self._writer.close(statics.table, head)
