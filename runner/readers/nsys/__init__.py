"""Reader for what NVIDIA Nsight Systems exports as SQLite (``nsys export --type sqlite``): one file, with one or
several processes, or a folder of files of a job. Each process that uses a GPU is a rank.

Tables and columns after NVIDIA's "SQLite Export Schema Reference" (Nsight Systems User Guide); no file of a real run
was at hand when it was written. What becomes of calls, kernels, waits and collectives is as for Kineto's traces
(``readers/kineto``), whose events are made of the rows.

Memory: some 500 B a row.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from manyscale.runner.readers.archive import read_head
from manyscale.runner.readers.nsys.files import files_of
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions

if TYPE_CHECKING:
    from manyscale.models.workload import Workload
MAGIC: Final = b"SQLite format 3\0"
_MOST_LOOKED_AT: Final = 1 << 16  # bytes in which the definitions of tables are sought


def can_read(path: Path) -> bool:
    """Whether the path is a database that defines tables of CUDA activities, or a folder with one."""
    try:
        return any(map(_is_export, files_of(path)))
    except OSError:
        return False


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The workload of all processes. Raises UserError, one line with the file, for what cannot be read or contradicts
    itself."""
    from manyscale.runner.readers.nsys import reader

    return reader.read(path)


def _is_export(path: Path) -> bool:
    head = read_head(path, _MOST_LOOKED_AT) or b""
    return head.startswith(MAGIC) and (b"CUPTI_ACTIVITY_KIND" in head or b"TARGET_INFO_SESSION" in head)
