"""A step on more groups against the generator of the step: STG's traces of 8 ranks, and what it writes for 32.

astra-sim/symbolic_tensor_graph @3a7f49c (MIT): main.py --dvocal 32000 --dmodel 1024 --dff 4096 --seq 512 --head 16
--num_stacks 4, with --dp 2 --tp 2 --pp 2 --batch 8 --micro_batch 2 (tests/data/extrapolation), and with --dp 8
--batch 32 --micro_batch 8, whose totals stand here. It lays data parallel ranks next to each other.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import pytest

from manyscale.models.workload import OperationKind
from manyscale.runner.readers import chakra
from manyscale.runner.run.extrapolation.roles import scaled
from manyscale.runner.run.extrapolation.roles.wanted import Wanted

TRACE = Path(__file__).parents[1] / "data" / "extrapolation" / "stg-dp2-tp2-pp2.tar.xz"
BYTES, RECEIVED, FLOPS = 4_143_973_376, 4_412_407_808, 5_701_753_634_816


@pytest.mark.slow
def test_stg_on_four_times_the_ranks(tmp_path: Path) -> None:
    with tarfile.open(TRACE) as archive:
        archive.extractall(tmp_path, filter="data")
    groups = {"dp": 8, "tp": 2, "pp": 2}
    made = scaled("stg", chakra.read(tmp_path), Wanted(groups=groups, traced={**groups, "dp": 2})).workload
    assert made.num_ranks == 32
    assert (made.column("operations", "bytes").sum(), made.column("operations", "receive_bytes").sum()) == (
        BYTES,
        RECEIVED,
    )
    kernel = made.column("gpu_operations", "kernel_id")
    assert np.nansum(made.column("kernels", "flops")[kernel[kernel >= 0]]) == FLOPS
    kind, number = (made.column("operations", name) for name in ("kind", "communicator_id"))
    members = np.diff(made.lists("communicators", "members")[0])[number]
    reduces = kind == int(OperationKind.allreduce)
    assert set(members[reduces].tolist()) <= {2, 8}
