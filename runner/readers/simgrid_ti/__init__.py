"""Reader for SimGrid time-independent traces: a folder, a list file, one mixed file, or an archive of these.

Written by ``smpirun -trace-ti`` (checked against SimGrid 3.32): a list file names one action file per rank; or one
file holds the actions of all ranks. Relative paths of a list are taken from the list's folder. Plain, gzip, xz or
zstd files, and tar archives of them. Memory: the tokens of one rank (about 40 B a line) plus the finished columns.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from manyscale.runner.errors import UserError
from manyscale.runner.readers.archive import guarded, is_tar, open_stream, read_head, tar_members
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions
from manyscale.runner.readers.simgrid_ti.files import (
    action_files,
    list_in_folder,
    looks_like_actions,
    looks_like_list,
)

if TYPE_CHECKING:
    from manyscale.models.workload import Workload
OPTIONS: Final = ("flop_rate",)  # of a study's workload, that `read` takes


def can_read(path: Path) -> bool:
    """Whether the path looks like a time-independent trace. Reads a few hundred bytes at most per file."""
    try:
        if path.is_dir():
            return list_in_folder(path) is not None or bool(action_files(path))
        if not path.is_file():
            return False
        if is_tar(path):
            with guarded(path):
                return any(looks_like_actions(stream.read(512)) for _, stream in islice(tar_members(path), 2))
    except UserError:  # a damaged file
        return False
    head = read_head(path, 4096) or b""
    return looks_like_actions(head) or looks_like_list(head, path.parent)


def reads_one_file(path: Path) -> bool:
    """Whether the trace is in one file: an archive, or one file of all ranks, but no list of files."""
    if is_tar(path):
        return True
    with guarded(path), open_stream(path) as stream:
        return looks_like_actions(stream.read(4096))


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The workload of a trace whose ``compute`` amounts were taken at ``options.flop_rate``.

    Raises UserError, one line with file and line, for anything that cannot be read or replayed.
    """
    from manyscale.runner.readers.simgrid_ti import reader

    return reader.read(path, options)
