"""The arrays of an archive as a workload."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import Workload
from manyscale.models.workload.notes import Errs, Note, changes
from manyscale.runner.errors import UserError
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions
from manyscale.runner.readers.rank_tables import rank_tables
from manyscale.runner.readers.stores.traced_blocks import (
    ScratchStream,
    TracedBlocks,
    attributes_of,
    block_table,
)

NAME: Final = "sancov-npz"
_LACKEY: Final = ("kind", "addr", "size")
_STORE, _BLOCK, _MODIFY = 1, 2, 3
_ADDRESS: Final = np.uint64((1 << 56) - 1)


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The workload of a trace (``options`` play no part). Raises UserError with file and record."""
    arrays = _arrays(path)
    notes: list[Note] = []
    if "rec" in arrays:
        keys, counts, attributes, addresses = _coverage(path, arrays["rec"], notes)
    else:
        keys, counts, attributes, addresses = _accesses(path, arrays["kind"], arrays["addr"], arrays["size"])
    blocks = TracedBlocks()
    ids = blocks.number(keys, np.full(len(keys), -1, np.int32), counts, attributes)
    with ScratchStream() as stream:
        stream.writer.add(ids, counts, addresses)
        stream.writer.end_segment(0, 0, 0, -1, -1)
        segments, store = stream.close()
    tables: dict[str, pa.Table] = rank_tables(1, {}) | {
        "blocks": block_table(blocks.keys, blocks.num_instructions),
        "block_accesses": blocks.accesses(),
        "segments": segments,
    }
    return Workload(path.name.removesuffix(".npz"), 1, tables, tuple(notes), NAME, store)


def _arrays(path: Path) -> dict[str, np.ndarray]:
    """The archive's arrays, each of them one-dimensional and of unsigned integers."""
    try:
        with np.load(path) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, NotImplementedError, RuntimeError, zlib.error, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: the archive is damaged ({error}); copy or download it again") from None
    if set(arrays) != {"rec"} and set(arrays) != set(_LACKEY):
        raise UserError(f"{path}: has arrays {', '.join(sorted(arrays))} instead of rec, or of kind, addr and size")
    for name, values in arrays.items():
        if values.ndim != 1 or values.dtype.kind != "u" or len(values) != len(next(iter(arrays.values()))):
            raise UserError(f"{path}: array {name!r} is no list of unsigned integers, as many as of the others")
        if not len(values):
            raise UserError(f"{path}: array {name!r} is empty; trace the program again")
    return arrays


def _coverage(
    path: Path, records: np.ndarray, notes: list[Note]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Keys (int64[]) and accesses (int32[]) of executions, attributes and addresses of accesses."""
    what = (records >> np.uint64(62)).astype(np.uint8)
    wrong = np.flatnonzero(what > _BLOCK)
    if len(wrong):
        raise UserError(
            f"{path}: rec[{wrong[0]}] is {records[wrong[0]]:#x}: neither load, store nor block (bits 63:62)"
        )
    begins = np.flatnonzero(what == _BLOCK)
    if not len(begins):
        raise UserError(f"{path}: has no blocks; build the program with trace-pc-guard, too")
    if begins[0]:
        text = f"{begins[0]} accesses stand before the first block: left out"
        notes.append(changes("accesses-missing", text, count=int(begins[0]), errs=Errs.short))
    is_access = what != _BLOCK
    is_access[: begins[0]] = False
    size_log2 = (records[is_access] >> np.uint64(56) & np.uint64(63)).astype(np.int64)
    if np.any(size_log2 > 14):
        at = np.flatnonzero(is_access)[np.flatnonzero(size_log2 > 14)[0]]
        raise UserError(f"{path}: rec[{at}] is {records[at]:#x}: an access of 2^{size_log2.max()} bytes")
    counts = (np.diff(np.append(begins, len(records))) - 1).astype(np.int32)
    attributes = attributes_of(-1, np.left_shift(1, size_log2), what[is_access] == _STORE)
    keys = (records[begins] & _ADDRESS).astype(np.int64)
    return keys, counts, attributes, records[is_access] & _ADDRESS


def _accesses(
    path: Path, kind: np.ndarray, address: np.ndarray, size: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """As ``_coverage``: one execution per record."""
    wrong = np.flatnonzero((kind < 1) | (kind > _MODIFY) | (size < 1) | (size > 32767))
    if len(wrong):
        at = wrong[0]
        raise UserError(f"{path}: record {at} has kind {kind[at]} and size {size[at]}; kinds are 1 to 3, sizes from 1")
    counts = np.where(kind == _MODIFY, 2, 1).astype(np.int32)
    place = np.repeat(np.arange(len(kind)), counts)
    is_second = np.append(False, place[1:] == place[:-1])
    is_store = (kind[place] == 2) | is_second
    return (
        np.zeros(len(kind), np.int64),
        counts,
        attributes_of(-1, size[place], is_store),
        address[place].astype(np.uint64),
    )
