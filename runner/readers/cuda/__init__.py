"""Reader for what ``manyscale trace --level gpu`` records of a CUDA program, before it is written as a workload: with
``--keep-raw`` it stays in the folder ``raw``. The ranks of an MPI program, or one, with what they gave their GPUs; or,
where several processes without MPI used the GPU, one rank with one ``other`` operation, launches and copies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from manyscale.runner.readers.cuda.layout import KERNELS, OF_RANKS, STATICS
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions

if TYPE_CHECKING:
    from manyscale.models.workload import Workload
    from manyscale.runner.readers.cuda.reader import Collected


def can_read(path: Path) -> bool:
    """Whether the path is a folder of the tracer's."""
    return path.is_dir() and (path / KERNELS).is_file() and (path / STATICS).is_file()


def read(
    path: Path, options: ReadOptions = DEFAULT_OPTIONS, *, collected: Mapping[int, Collected] | None = None
) -> Workload:
    """The workload, with the launches that ``options`` choose. ``collected``: what was stored of each process while the
    program ran; None: records are files. Raises UserError with file and place."""
    if (path / OF_RANKS).is_dir():
        from manyscale.runner.readers.cuda import ranks

    if (path / OF_RANKS).is_dir() and ranks.is_readable(path):
        return ranks.read(path, options, collected)
    from manyscale.runner.readers.cuda import reader

    return reader.read(path, options, collected)
