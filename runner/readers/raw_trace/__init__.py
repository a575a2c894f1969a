"""A trace as manyscale's own tracer left it: the processes of one run, joined into a workload.

``manyscale trace`` reads it at once; read by hand it is what a run left that was killed together with its tracer.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions
from manyscale.runner.readers.raw_trace.header import is_trace

if TYPE_CHECKING:
    from manyscale.models.workload import Workload


def can_read(path: Path) -> bool:
    """Whether the folder was written by the tracer."""
    return is_trace(path)


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The workload of a raw trace, without its detailed level (``options`` play no part). Raises UserError for damaged
    files, for ranks that left none, and for several programs in one trace."""
    from manyscale.runner.readers.raw_trace import reader

    return reader.read(path, options)
