"""Reader for Dimemas traces (.dim, text, as prv2dim writes them and Dimemas 5.5 reads them): plain, gzip, xz or zstd,
or the one such file of a tar archive.

Source: bsc-performance-tools/dimemas at 4ab5099 (Simulator/input/file_data_access.c, prv2dim), checked by running it.

A task is a rank. Only thread 0 of a task communicates; the other threads' records are left out, which a note says. User
events name the regions of the bursts they enclose: the innermost event whose value 0 has not come yet. Bursts on a GPU
are phases that do not scale with the CPU. Nothing records MPI_Init and MPI_Finalize, nor a wait for a send.

Sizes of collectives are those that Extrae records: all that a rank hands in and takes out, of an all-to-all one block
and all blocks. Of an irregular all-to-all only these totals are known; they are spread in proportion to what each
receives.

Memory: about 30 B a record, and 60 B more for each that is not a burst.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from manyscale.runner.errors import UserError
from manyscale.runner.readers.dimemas.content import MARK, OLD_MARK, content
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions

if TYPE_CHECKING:
    from manyscale.models.workload import Workload


def can_read(path: Path) -> bool:
    """Whether the path is a Dimemas trace, of today's or the old format. Reads a few hundred bytes."""
    try:
        if not path.is_file():
            return False
        with content(path) as stream:
            return stream.read(len(MARK)).startswith((MARK, OLD_MARK))
    except (UserError, OSError):
        return False


def reads_one_file(path: Path) -> bool:
    return path.is_file()


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The workload of a trace (``options`` play no part: it says all). Raises UserError, one line with file and
    line."""
    from manyscale.runner.readers.dimemas import reader

    return reader.read(path, options)
