"""Reader for memory traces of Valgrind's lackey (``--trace-mem=yes``): plain, gzip, xz or zstd.

Lines are ``I  ADDRESS,SIZE`` for an instruction and `` L``, `` S``, `` M ADDRESS,SIZE`` for what it loads, stores, or
loads and stores again (two accesses here). Valgrind loads the operands of some vector instructions lane by lane; they
are joined. Its own messages (``==PROCESS==``) are left out.

Basic blocks are rebuilt from the stream of instructions, in two passes. The first one finds the instructions at which
control ever arrived from elsewhere, and those after which it ever went on elsewhere; the second one cuts the stream
before the former, behind the latter, and where control jumps. So blocks do not overlap, and a block is the same however
it was entered. What was never taken does not end a block. An instruction that does not always make the same accesses
makes its block several (``traced_blocks``).

The trace names neither functions nor files nor instructions: a block's ``offset`` is its address in the process. It
knows no time: one rank with one ``other`` operation, and one segment.

Memory is bounded by the program's code, not by the trace's length. The file is decompressed twice.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from manyscale.runner.readers.archive import first_line, read_head
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions

if TYPE_CHECKING:
    from manyscale.models.workload import Workload

_HEAD_BYTES: Final = 1 << 14
_RECORD: Final = re.compile(rb"(I | [LSM]) ?[ ]?[0-9a-fA-F]{1,16},\d+\r?")
_SURE: Final = re.compile(rb" [LSM] [0-9a-fA-F]{1,16},\d+\s*$")
_MESSAGE: Final = re.compile(rb"(==\d+==|--\d+--|\*\*\d+\*\*|### ).*")


def can_read(path: Path) -> bool:
    """Whether the first lines of the file are lackey's records or Valgrind's messages. Reads some thousand bytes."""
    head = read_head(path, _HEAD_BYTES)
    if head is None:
        return False
    lines = head.split(b"\n")
    lines = lines[:-1] if len(lines) > 1 else lines  # the last one may be cut
    told = [line for line in lines if line.strip() and not _MESSAGE.fullmatch(line)]
    is_lackey = bool(told) or b" Lackey, " in head
    return is_lackey and all(map(_RECORD.fullmatch, told))


def resembles(path: Path) -> int | None:
    """The first line that is a record that only this format has, if one is."""
    return first_line(path, _SURE)


def reads_one_file(path: Path) -> bool:
    return path.is_file()


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS, *, entry: int | None = None) -> Workload:
    """The workload of a trace (``options`` play no part), or of the function in it that begins at the address
    ``entry``, with all that it calls. Raises UserError with file and line."""
    from manyscale.runner.readers.lackey import reader

    return reader.read(path, options, entry=entry)
