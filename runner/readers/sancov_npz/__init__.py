"""Reader for memory traces kept as NumPy archives (.npz), of two kinds.

``rec`` (uint64): what clang's SanitizerCoverage reports, one word each. Bits 63:62 say what: 0 a load, 1 a store, 2 a
basic block that begins; bits 61:56 are log2 of an access's bytes, bits 55:0 its address, or the number of the block. An
access belongs to the block that began last: what a block does behind a call counts as its callee's. A block that so
makes different accesses becomes several (``traced_blocks``). Libraries that were not rebuilt are not in the trace.

``kind``, ``addr``, ``size``: the accesses of Valgrind's lackey alone (kinds 1 load, 2 store, 3 both), without the
instructions. Each kind and size of access stands for a block of its own.

Neither knows the number of instructions, names or times: one rank with one ``other`` operation, and one segment. Memory
is bounded by the archive's arrays.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions

if TYPE_CHECKING:
    from manyscale.models.workload import Workload


def can_read(path: Path) -> bool:
    """Whether the path is a NumPy archive of one of the two kinds. Reads its directory."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.removesuffix(".npy") for name in archive.namelist()}
    except (OSError, NotImplementedError, zipfile.BadZipFile):  # the second: a version of zip beyond what is known
        return False
    return names == {"rec"} or names == {"kind", "addr", "size"}


def reads_one_file(path: Path) -> bool:
    return path.is_file()


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The workload of a trace (``options`` play no part). Raises UserError with file and record."""
    from manyscale.runner.readers.sancov_npz import reader

    return reader.read(path, options)
