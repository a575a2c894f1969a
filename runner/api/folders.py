"""Where results leave their files: a folder that is named, the next free ``runs/NAME-NNN``, or a temporary one."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Final

from manyscale.runner.storage.address import located


@dataclass(frozen=True)
class Numbered:
    """The next free folder ``runs/NAME-NNN``, as the commands choose it."""


NUMBERED: Final = Numbered()

Output = str | PathLike[str] | Numbered | None


class Scratch:
    """A temporary folder, removed when nothing refers to it any more, and at the latest when Python ends."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="manyscale-"))
        self._removes = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def remove(self) -> None:
        """Remove it now."""
        self._removes()


@dataclass(frozen=True)
class Folder:
    """The files of a result. ``scratch`` is the temporary folder that they are in, None where they stay."""

    path: Path
    scratch: Scratch | None = field(default=None, repr=False)

    @property
    def is_temporary(self) -> bool:
        return self.scratch is not None

    def copy(self, directory: Path) -> None:
        """Copy the files into a folder that exists."""
        shutil.copytree(self.path, directory, dirs_exist_ok=True)


def place(output: Output) -> tuple[Path | None, Scratch | None]:
    """The folder that ``run/directory.py`` takes (None: it chooses the number), and what it is in if it is
    temporary."""
    if isinstance(output, Numbered):
        return None, None
    if output is None:
        scratch = Scratch()
        return scratch.path / "result", scratch
    return located(output), None
