"""Reader for what NVIDIA's profilers count of each kernel launch: features for TBPoint, and the hardware's own cycles.

Reads CSV files of nvprof (``--csv --print-gpu-trace --metrics ... --events ...``; also as R writes such a table, with
dots for anything odd in a name) and of Nsight Compute (``--csv``, pages raw and details);
readers/launch_counters/profiler_csv.py has the layouts. ``read`` gives the workload's launches, ``read_counters`` also
how long each took, to judge predictions by.

What the counters mean, and what stands in for those that were not collected (a note says so):

* Thread instructions: ``thread_inst_executed``; else the sum of nvprof's instructions by type, which are counted by
  thread, without what is predicated off; else threads per instruction times warp instructions.
* Memory requests: sectors (nvprof: transactions) of global and local memory; else requests (warp instructions).
* Cycles: ``elapsed_cycles_sm`` of nvprof is the sum over all SMs; Nsight Compute has that of the slowest one.
* No profiler counts by block: ``block_size_cov`` is NaN, and TBPoint clusters by three features.
* Launches are in the order of the file. Without their instructions they cannot be simulated, only sampled.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from manyscale.runner.readers.launch_counters.profiler_csv import headers_in, is_header
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions

if TYPE_CHECKING:
    from manyscale.models.workload import Workload


def can_read(path: Path) -> bool:
    """Whether the file begins with a profiler's table, behind its log and what the program printed."""
    return any(is_header(names) for _, names in headers_in(path))


def resembles(path: Path) -> int | None:
    """The line of the header of a table of launches that counts nothing, such as nsys writes, if there is one."""
    known = (
        {"name", "grdx"},
        {"name", "duration", "grid_x"},
        {"name", "total_time_ns"},
        {"kernel_name", "metric_name"},
    )
    return next((number for number, names in headers_in(path) if any(each <= names for each in known)), None)


def reads_one_file(path: Path) -> bool:
    return path.is_file()


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The launches that ``options`` choose. Raises UserError with file and line."""
    from manyscale.runner.readers.launch_counters import reader

    return reader.read(path, options)
