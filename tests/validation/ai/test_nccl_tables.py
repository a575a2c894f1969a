"""Collectives of NCCL against measured tables of other people's machines (RESULTS-NCCL.md, nccl_tables.csv).

Bounds are those that users were promised: other counts of a switched node from one table 10 % at 16 MiB and above, a
mesh from its link matrix alone 20 %; and what NCCL's public formula reaches for very large messages.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manyscale.models.network.nccl.demand import demand
from manyscale.models.network.nccl.fabric import Fabric
from manyscale.models.network.nccl.parameters import Nccl
from manyscale.models.workload.operation_tables import OperationKind
from manyscale.runner.problems import load_yaml
from manyscale.runner.run.calibration.nccl import calibrate_nccl
from manyscale.runner.study.targets import shipped_targets

LARGE = 16 << 20
TABLES = Path(__file__).with_name("nccl_tables.csv")
GB200: dict[str, Any] = {
    "generation": "blackwell",
    "nvlink": {"kind": "switch", "links": 18, "link_bandwidth": "50 GB/s", "multicast": True},
}


def measured(name: str) -> np.ndarray:
    """float64[rows, 2]: bytes and us."""
    with TABLES.open() as file:
        rows = [row for row in csv.DictReader(file) if row["table"] == name]
    return np.array([(float(row["bytes"]), float(row["time_us"])) for row in rows])


def block_of(target: str) -> dict[str, Any]:
    """``network.nccl`` of a shipped target without what was measured."""
    block = load_yaml(shipped_targets()[target])["network"]["nccl"]
    return {key: value for key, value in block.items() if key not in ("tables", "tuner")}


def errors(block: dict[str, Any], table: np.ndarray, gpus: int, nodes: int = 1) -> np.ndarray:
    fabric = Fabric(Nccl.model_validate(block), 8, nodes)
    members = np.add.outer(np.arange(nodes) * 8, np.arange(gpus // nodes)).ravel()
    found = [demand(OperationKind.allreduce, int(size), members, fabric).time_ps / 1e6 for size in table[:, 0]]
    return np.array(found) / table[:, 1] - 1


@pytest.mark.parametrize(("name", "gpus"), [("v100-2", 2), ("v100-4", 4)])
def test_a_mesh_from_its_link_matrix_alone(name: str, gpus: int) -> None:
    table = measured(name)
    assert np.abs(errors(block_of("dgx1-v100"), table, gpus)[table[:, 0] >= LARGE]).max() < 0.2


@pytest.mark.parametrize(
    ("target", "name", "other"), [("dgx-a100", "a100-4", "a100-2"), ("dgx-a100", "a100-2", "a100-4")]
)
def test_one_table_predicts_the_other_count(target: str, name: str, other: str, tmp_path: Path) -> None:
    rows = measured(name)
    file, gpus = tmp_path / "allreduce.csv", int(name[-1])
    file.write_text("bytes,time_us\n" + "".join(f"{size:.0f},{time}\n" for size, time in rows))
    block = calibrate_nccl([file], target, gpus=gpus).machine["network"]["nccl"]
    table = measured(other)
    found = np.abs(errors(block, table, int(other[-1])))
    assert found[table[:, 0] >= LARGE].max() < 0.1
    assert found[table[:, 0] < LARGE].mean() < 0.15


@pytest.mark.parametrize(
    ("block", "name", "gpus", "nodes", "tolerance"),
    [
        (block_of("dgx-a100"), "a100-4", 4, 1, 0.1),
        (block_of("dgx-h100"), "h100-8", 8, 1, 0.05),
        (block_of("p4de"), "p4de-16", 16, 2, 0.05),
        (GB200, "gb200-8", 8, 1, 0.05),
    ],
)
def test_nccls_formula_of_the_largest_messages(
    block: dict[str, Any], name: str, gpus: int, nodes: int, tolerance: float
) -> None:
    """Bandwidth alone: channels of rings, NVLS heads and trees over NICs, as NCCL's search and tuner have them."""
    assert abs(errors(block, measured(name), gpus, nodes)[-1]) < tolerance
