"""Reader for GPU traces of Accel-Sim's NVBit tracer, versions 1 to 6 (Khairy et al., ISCA 2020).

A trace is a folder with ``kernelslist.g``, which names a file for each launch (``kernel-1.traceg``, plain or compressed
by xz, gzip or zstd, whatever the list says) and what the host copied; the list itself; or one file of a launch. Files
are those of the post-processing (``.traceg``: warp by warp) or of the tracer itself (``.trace`` and ``kernelslist``:
in the order of arrival).

Each launch is stored, once read whole, in the user's cache under the hash of its file (``launch_store``): it is not
parsed again, and when a damaged file was mended only that is read. Memory is bounded by a million instructions and a
thread block; raw traces are held launch by launch.

The trace knows no time and no ranks: one rank with one ``other`` operation.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from manyscale.runner.readers.accelsim.lists import HEAD, LIST_LINE, LISTS, trace_files
from manyscale.runner.readers.archive import read_head
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions

if TYPE_CHECKING:
    from manyscale.models.workload import Workload


def can_read(path: Path) -> bool:
    """Whether the path is a folder with a list of kernels or with traces of kernels, such a list, or such a trace."""
    if path.is_dir():
        files = trace_files(path)
        has_traces = bool(files) and bool(HEAD.match(read_head(files[0], 256) or b""))
        return any((path / name).is_file() for name in LISTS) or has_traces
    head = read_head(path, 256)
    if head is None:
        return False
    return bool(HEAD.match(head)) or bool(LIST_LINE.match(head) and "kernelslist" in path.name)


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The workload of a trace; of a list, the launches that ``options`` choose. Raises UserError with file and line."""
    from manyscale.runner.readers.accelsim import reader

    return reader.read(path, options)
