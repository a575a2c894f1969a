"""Reader for what PyTorch's profiler (Kineto) writes: Chrome traces of ranks (``.json``, plain or compressed), one a
rank, in a folder, an archive or alone; host execution traces of the same ranks, in the folder or beside it, tell the
sizes of collectives where Kineto does not. ROCm's traces have the same form.

What is read: threads of the host with the time between their calls, what calls give which stream, events, waits, NCCL's
kernels as collectives of their process groups, steps. See ``docs/reference/kineto.md``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from manyscale.runner.errors import UserError
from manyscale.runner.readers.kineto.files import is_trace, knows
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions

if TYPE_CHECKING:
    from manyscale.models.workload import Workload


def can_read(path: Path) -> bool:
    """Whether the path is a trace of Kineto's, or holds some. Reads some kB of each file until one is."""
    try:
        return knows(path, is_trace)
    except (UserError, OSError):  # a damaged file
        return False


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The workload of all ranks. Raises UserError, one line with the file, for what cannot be read or contradicts
    itself."""
    from manyscale.runner.readers.kineto import reader

    return reader.read(path, keeps_missing=options.missing_ranks == "keep")
