"""Reader for what the QEMU plugin recorded of an unmodified program (``runner/tracers/native/qemu_plugin.c``).

QEMU translates code from where control arrives to the next branch, so its blocks overlap. They are cut here before each
instruction at which another one begins: a basic block is the same however it was entered. One that does not always make
the same accesses becomes several (``traced_blocks``). Instructions are disassembled from the bytes in the trace
(capstone; without it there are none). A block's ``offset`` is the address in its file, and it is an ``is_entry`` if a
call ever led to it.

The trace knows no time: one rank with one ``other`` operation after a compute phase of 0 s, and one segment. Memory is
bounded by the code that ran.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions
from manyscale.runner.readers.qemu_trace.head import MAGIC

if TYPE_CHECKING:
    from manyscale.models.workload import Workload


def can_read(path: Path) -> bool:
    """Whether the plugin wrote the file."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def reads_one_file(path: Path) -> bool:
    """No: functions and lines come from the program."""
    return False


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The workload of a trace (``options`` play no part). Raises UserError for a damaged file, and for a function that
    was never entered."""
    from manyscale.runner.readers.qemu_trace import reader

    return reader.read(path, options)
