"""Reader for GOAL schedules as text (LogGOPSim's input; ``schedgen`` and ATLAHS write it), plain or compressed.

Calculations, sends and receives of each rank, and which require which. They become the workload's operations in the
order of the file (``other`` behind a compute phase, ``isend``, ``irecv``), with a table of dependencies that says all
the rest. Where that order is one that every rank can follow, because whatever must be waited for is waited for before
the first operation that requires it and nothing starts later for it, a ``waitall`` stands in each such place: then
every network model can replay the workload, the LogGOPS model still by its dependencies. Else only the latter can.

Assumptions: a calculation's unit is that of ``options``, unless a comment before ``num_ranks`` says ``time unit: 1 ps``
(or another number, or ns, us). Only CPU 0 and interface 0 of each rank are modelled. Where LogGOPSim would take what
becomes ready at once in the order of the lines with ``requires``, the order of the operations is taken.

Memory: the operations and dependencies, some 40 and 30 B each, and one chunk of the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from manyscale.runner.readers.archive import read_head
from manyscale.runner.readers.goal.head import BINARY, COMMENT, HEAD_BYTES, NUM_RANKS, schedule_of
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions

if TYPE_CHECKING:
    from manyscale.models.workload import Workload
OPTIONS: Final = ("time_unit",)  # of a study's workload, that `read` takes


def can_read(path: Path) -> bool:
    """Whether the file, or the only ``*.goal*`` file of a folder, starts as a GOAL schedule: as text, or as LogGOPSim's
    binary form (which ``read`` refuses)."""
    path = schedule_of(path)
    head = read_head(path, HEAD_BYTES)
    if head is None:
        return False
    return head.startswith(BINARY) or NUM_RANKS.match(COMMENT.sub(b" ", head)) is not None


def reads_one_file(path: Path) -> bool:
    return path.is_file()


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The workload of a schedule. Raises UserError, one line with file and line, for anything that is not GOAL."""
    from manyscale.runner.readers.goal import reader

    return reader.read(path, options)
