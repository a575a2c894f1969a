"""Reader for memory traces of DynamoRIO (drmemtrace, its offline traces after raw2trace): a file of one thread or of
several (``.trace``, ``.trace.gz``, ``.trace.zip``), or a folder of such files, also with them in ``trace/``.

A trace is a sequence of records of 12 bytes (clients/drcachesim/common/trace_entry.h, versions 1 to 7): a header, what
the thread and its process are, markers, instructions with their addresses, each followed by what it loads and stores,
and before an instruction that is new its bytes, where the trace has encodings. Prefetches and flushes are no accesses
here. Of markers count the kind of trace, times, system calls and futexes with their arguments, switches of threads by
the program itself, windows, what is the kernel's, and the length of vectors. Others say what instructions and accesses
show by themselves (signals, restartable sequences, targets of branches), or what is not asked here (processors, pages,
physical addresses, functions); those of the user are a note.

Basic blocks are rebuilt as lackey's are: they end where control ever arrived, or went on elsewhere. A block's
``offset`` is its address in the process. Each round of a repeated string instruction is an execution of it.
Instructions of x86-64 and AArch64 are disassembled from their bytes (capstone).

Each process is a rank with one ``other`` operation. Where it has several threads, pieces of these are task instances,
which follow each other as the threads waited for each other (``order.py``), on the cores that a rank gets. A piece
takes what passed between its first and its last time: sleep until another thread wakes it is none of it.

Memory is bounded by the program's code, not by the trace's length. Files are decompressed twice.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from manyscale.runner.errors import UserError
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions

if TYPE_CHECKING:
    from manyscale.models.workload import Workload


def can_read(path: Path) -> bool:
    """Whether the file begins with a header of the format, or the folder holds such files, or raw ones."""
    from manyscale.runner.readers.drmemtrace import files

    try:
        if path.is_dir():
            return files.is_raw(path) or any(files.begins_so(each) for each in files.of_threads(path)[:1])
        return path.is_file() and files.begins_so(path)
    except (OSError, UserError):
        return False


def reads_one_file(path: Path) -> bool:
    return path.is_file()


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The workload of a trace (``options`` play no part). Raises UserError with file and record."""
    from manyscale.runner.readers.drmemtrace import reader

    return reader.read(path, options)
