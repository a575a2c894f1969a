"""manyscale's own workload on disk: a folder with one Arrow file per table that has rows and ``workload.json``.

What ``manyscale trace`` and ``convert`` write; reading it back gives the same digest. Uncompressed files are mapped,
not read. A tar archive of such a folder is read, too; the stream of a detailed level in it, which is read piece by
piece, and the instructions of GPU launches are unpacked to scratch files that go with the workload.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from manyscale.runner.errors import UserError
from manyscale.runner.readers.archive import guarded, is_tar, tar_members
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions
from manyscale.runner.readers.workload_folder.layout import DETAIL, HEADER, LAUNCHES, TABLE

if TYPE_CHECKING:
    from manyscale.models.workload import Workload


def can_read(path: Path) -> bool:
    """Whether the path is a folder that ``write`` made, or a tar archive of one."""
    try:
        if path.is_file() and is_tar(path):
            with guarded(path):
                return any(_is_of_workload(name) for name, _ in islice(tar_members(path), 1))
    except UserError:  # a damaged file
        return False
    return path.is_dir() and (path / HEADER).is_file()


def _is_of_workload(name: str) -> bool:
    *_, folder, _, file = ["", "", *name.split("/")]
    return file.endswith(TABLE) or file in (HEADER, DETAIL) or folder == LAUNCHES


def reads_one_file(path: Path) -> bool:
    """Whether the workload is an archive."""
    return path.is_file()


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS, *, verify: bool = True) -> Workload:
    """The workload of a folder or an archive (``options`` play no part: all is settled). With ``verify`` the tables are
    compared with their digest; those that broke no rule when they were written are not held to the rules again. Raises
    UserError for one that is incomplete, damaged or was changed."""
    from manyscale.runner.readers.workload_folder import reader

    return reader.read(path, options, verify=verify)


def write(workload: Workload, path: Path, *, compression: str | None = "zstd", links: bool = False) -> None:
    """Write a workload; the header last, so that a folder without it is incomplete. ``links``: files of launches are
    linked, not copied, where the file system can: whoever made them takes them away."""
    from manyscale.runner.readers.workload_folder import reader

    reader.write(workload, path, compression=compression, links=links)
