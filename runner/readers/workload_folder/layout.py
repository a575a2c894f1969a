"""The files of a workload's folder, or of an archive of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

VERSION: Final = 4
TEXTS_FOR_NOTES: Final = 3  # the version that is read, too, and had no codes for notes
HEADER: Final = "workload.json"
RAW: Final = "raw"  # the tracer's files, until they are read
DETAIL: Final = "detail.stream"  # of the detailed level, where it was traced
LAUNCHES: Final = "launches"  # a folder for each GPU launch, by its number
TABLE: Final = ".arrow"  # how those of tables end
# columns that tables were given after folders of this version were written, and what stands in for them
LATER: Final[Mapping[str, Mapping[str, int]]] = {
    "gpu_operations": {"thread": 0, "kernel_id": -1, "duration_ps": -1},
    "kernels": {"blocks": 0, "block_threads": 0},
}
