"""Reader for the text workloads of ASTRA-sim 1.0 and SimAI, which AICB writes: a policy of parallelism, and a line per
layer with the times of its passes and the collectives behind them. What they mean is settled in ``reader.py``.

Memory: some 100 B for each pass and collective of each rank.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from manyscale.runner.readers.archive import read_head
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions

if TYPE_CHECKING:
    from manyscale.models.workload import Workload

OPTIONS: Final = ("ranks",)  # of a study's workload, that `read` takes
POLICIES: Final = (
    b"HYBRID_TRANSFORMER_FWD_IN_BCKWD", b"HYBRID_TRANSFORMER", b"DATA", b"MICRO", b"MODEL", b"HYBRID_DATA_MODEL",
    b"HYBRID_MODEL_DATA", b"HYBRID_DLRM", b"HYBRID_DLRM_ENHANCED", b"HYBRID_CUSTOMIZED", b"DISTRIBUTED_INFERENCE",
)  # fmt: skip
_HEAD_BYTES: Final = 4096


def can_read(path: Path) -> bool:
    """Whether a file begins with a policy of parallelism and the number of layers."""
    head = read_head(path, _HEAD_BYTES) if path.is_file() else None
    lines = (head or b"").split(b"\n", 2)
    first = lines[0].split()
    return len(lines) > 1 and bool(first) and first[0] in POLICIES and lines[1].strip().isdigit()


def reads_one_file(path: Path) -> bool:
    return path.is_file()


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The workload; ``options.ranks``: of a file that does not tell how many GPUs there are. Raises UserError, one line
    with file and line."""
    from manyscale.runner.readers.simai import reader

    return reader.read(path, options)
