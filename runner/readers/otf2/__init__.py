"""Reader for OTF2 archives (Score-P and others), through the package ``otf2`` where it is installed.

An archive is an anchor file ``NAME.otf2`` with ``NAME.def`` and a folder of events beside it; a folder that holds one
anchor file will do. The events come through the package (readers/otf2/events.py: its speed sets the reader's), and one
kernel turns them into operations (readers/otf2/operations.py).

Assumptions. Sizes of collectives are those that Score-P writes: as if each member sent directly to every other that
needs its data, itself included; so an allreduce of 4 B on 10 ranks says 40 B sent. The size of each piece follows by
division. (Checked against an archive of Score-P 2.0.2 for bcast, reduce, gather, scatter, allgather, alltoall and
allreduce.) MPI_Alltoallv records each rank's sum only: it is spread evenly. A receive from any source takes the source
that its completion names. The package corrects the clocks of the locations as the archive says.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions
from manyscale.runner.readers.otf2.anchor import is_anchor

if TYPE_CHECKING:
    from manyscale.models.workload import Workload


def can_read(path: Path) -> bool:
    """Whether the path is an anchor file of an OTF2 archive, or a folder with one. Reads a few bytes; never raises."""
    try:
        return is_anchor(path) if path.is_file() else path.is_dir() and any(map(is_anchor, path.glob("*.otf2")))
    except OSError:
        return False


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The workload of an archive (``options`` play no part). Raises UserError, one line, for anything that cannot be
    read or replayed, and where the package is not installed."""
    from manyscale.runner.readers.otf2 import reader

    return reader.read(path, options)
