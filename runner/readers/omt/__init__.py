"""Reader for traces of OpenMP tasks with their accesses in the format ``omptask-trace-1`` (.omt), plain or compressed.

A line of JSON, then arrays: events as LLVM's OpenMP runtime reports them to a tool, and the stream of basic blocks and
accesses of SanitizerCoverage; the program ran with one thread. Each access is stored as its distance from the last one
at the same place, (block, how many accesses after its begin).

A task instance is the runtime's number less one: 0 is the initial task, 1 the implicit one of the parallel region. The
runtime flags all tasks of a team of one as undeferred; that flag is dropped. It does not tell ``out`` from ``inout``.
An event that has no row here (a dependence, a task's flags) leaves its time to the next one that has.

A segment is what a task did between two events. A block that a task entered before it created a child goes on behind
it as a block of its own, with no instructions.

Memory: about 40 bytes for each record of the stream, and as much as the file holds.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from manyscale.runner.errors import UserError
from manyscale.runner.readers.archive import guarded, open_stream
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions

if TYPE_CHECKING:
    from manyscale.models.workload import Workload

_MARK: Final = b'"omptask-trace-'


def can_read(path: Path) -> bool:
    """Whether the file begins with such a trace's line of JSON."""
    try:
        if not path.is_file():
            return False
        with guarded(path), open_stream(path) as stream:
            head = stream.read(256)
    except (UserError, OSError):
        return False
    return head.startswith(b"{") and _MARK in head


def reads_one_file(path: Path) -> bool:
    return path.is_file()


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The workload of a trace (``options`` play no part). Raises UserError with file and event or record."""
    from manyscale.runner.readers.omt import reader

    return reader.read(path, options)
