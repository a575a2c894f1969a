"""Reader for binary DUMPI traces (sst-dumpi, Sandia): a .meta file, a folder, or the file of a program of one rank.

DUMPI records every argument of MPI 1 and 2 calls, so requests, communicators and datatypes are followed exactly
(readers/dumpi/requests.py, readers/dumpi/communicators.py, readers/dumpi/types.py). Calls without a part in the replay
become ``other``. Compute is the time between calls (``phases.py``). The clocks of different nodes are taken as they
are: ``measured`` compares times within a rank well, between nodes as well as their clocks agree.

Waits for any and for some, and tests, complete what they completed in the traced run. A receive from any source takes
the source that its status names; without one it stays a wildcard.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from manyscale.runner.readers.dumpi.head import is_meta, is_rank_file
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions

if TYPE_CHECKING:
    from manyscale.models.workload import Workload

CLOCKS = ("cpu", "wall")  # of which ReadOptions.time chooses one


def can_read(path: Path) -> bool:
    """Whether a path is a DUMPI trace or one rank's file. Reads a few bytes; never raises."""
    try:
        if path.is_dir():
            return any(map(is_meta, path.glob("*.meta"))) or any(map(is_rank_file, path.glob("*.bin")))
        return path.is_file() and (is_rank_file(path) or (path.suffix == ".meta" and is_meta(path)))
    except OSError:
        return False


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The workload of a trace; of ``options`` the ``time`` plays a part. Raises UserError, one line with file and byte,
    for anything that cannot be read or replayed. Memory: the calls of one rank at a time, and the finished columns."""
    from manyscale.runner.readers.dumpi import reader

    return reader.read(path, options)
