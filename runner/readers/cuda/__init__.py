"""Reader for what ``manyscale trace --level gpu`` records of a CUDA program, before it is written as a workload: with
``--keep-raw`` it stays in the folder ``raw``. One rank with one ``other`` operation, launches and copies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from manyscale.runner.readers.cuda.layout import KERNELS, STATICS
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions

if TYPE_CHECKING:
    from manyscale.models.workload import Workload


def can_read(path: Path) -> bool:
    """Whether the path is a folder of the tracer's."""
    return path.is_dir() and (path / KERNELS).is_file() and (path / STATICS).is_file()


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The workload, with the launches that ``options`` choose. Raises UserError with file and place."""
    from manyscale.runner.readers.cuda import reader

    return reader.read(path, options)
