"""Burst units of many ranks: a unit per group of consecutive ranks. Expected times are the law of the burst model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import halo_program
import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

import manyscale
from manyscale.models.workload import PhaseKind
from manyscale.models.workload.quantities import MOST_PS
from manyscale.runner.run import burst_units

RANKS = 300


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("halo")
    halo_program.write(RANKS, folder, iterations=2)
    return folder


def run(program: Path, folder: Path, cache: Path, **study: Any) -> manyscale.Result:
    content = {"schema": 1, "workload": {"path": str(program / "halo")}, "target": "wide.yaml", **study}
    (program / f"{folder.name}.yaml").write_text(yaml.safe_dump(content))
    return manyscale.run(program / f"{folder.name}.yaml", output=folder, cache=cache, report=False)


def compute_of(folder: Path) -> np.ndarray:
    """int64[ranks, iterations]: the compute before each halo exchange."""
    table = pq.read_table(folder / "timeline" / "ranks.parquet").to_pandas()
    computing = table[table["state"] == "compute"]
    return (computing["end_ps"] - computing["start_ps"]).to_numpy().reshape(RANKS, 2)


@pytest.mark.parametrize(("ranks", "groups"), [(1, 1), (256, 256), (257, 256), (65_536, 256), (300, 256)])
def test_groups_hold_every_rank_once_and_nearly_as_many(ranks: int, groups: int) -> None:
    bounds = burst_units.rank_groups(ranks)
    size = np.diff(bounds)
    assert (bounds[0], bounds[-1], len(size)) == (0, ranks, groups)
    assert size.min() >= 1
    assert np.ptp(size) <= 1


def test_every_rank_takes_its_own_time_and_the_plan_names_the_unit_of_its_group(program: Path, tmp_path: Path) -> None:
    run(program, tmp_path / "run", tmp_path / "cache", cpu_ratio=0.5)
    traced = halo_program.COMPUTE_PS + 7919 * np.arange(2 * RANKS) % (halo_program.COMPUTE_PS // 10 + 1)
    assert compute_of(tmp_path / "run").ravel().tolist() == np.rint(traced / 2).astype(int).tolist()
    units = pq.read_table(tmp_path / "run" / "units.parquet").to_pandas()
    assert sorted(units["kind"]) == ["burst"] * 212 + ["burst-group"] * 44 + ["replay"]  # 44 groups hold two
    keys = pq.read_table(tmp_path / "run" / "plan.parquet").column("unit_key").to_pylist()
    bounds = burst_units.rank_groups(RANKS)
    first_of_group = [keys[first] for first in bounds[:-1]]
    assert keys == [first_of_group[np.searchsorted(bounds, rank, "right") - 1] for rank in range(RANKS)]
    assert set(keys) | set(units[units["kind"] == "replay"]["key"]) == set(units["key"])


def test_groups_are_reused_by_content(program: Path, tmp_path: Path) -> None:
    """Another network leaves every group as it was; another speed of the cores none."""
    run(program, tmp_path / "first", tmp_path / "cache")
    for name, change, reused in (
        ("network", {"model": {"network": "loggops"}}, 256),
        ("cores", {"cpu_ratio": 2.0}, 0),
    ):
        run(program, tmp_path / name, tmp_path / "cache", **change)
        status = pq.read_table(tmp_path / name / "units.parquet").column("status").to_pylist()
        assert status.count("reused") == reused


def test_ranks_of_a_group_that_share_cores_unlike_others_are_slowed_alone() -> None:
    bounds, slowdown = [0, 2, 3, 6], [[2, 1.0], [1, 3.0]]
    phases = {
        "duration_ps": np.array([10, 20, 30, 40, 50, 60]),
        "kind": np.array([0, 1, 0, 0, 0, 0], np.int8),
        "ipc_factor": np.ones(6),
    }
    assert phases["kind"][1] == PhaseKind.sleep
    parameters = {"cpu_ratio": 2.0, "slowdown": slowdown, "of": "burst", "bounds": bounds}
    found = burst_units.of_group(parameters, {"phases": phases})["duration_ps"]
    assert found.tolist() == [20, 20, 60, 240, 300, 360]


def test_the_limit_is_on_the_compute_of_a_rank_not_of_a_group() -> None:
    """Three ranks of 0.6 of the limit pass, as they do with a unit each; one that passes the limit does not."""
    most = int(0.6 * MOST_PS)
    phases = {"duration_ps": np.array([most] * 3), "kind": np.zeros(3, np.int8), "ipc_factor": np.ones(3)}
    parameters = {"cpu_ratio": 1.0, "slowdown": [[3, 1.0]], "of": "burst", "bounds": [0, 1, 2, 3]}
    assert burst_units.of_group(parameters, {"phases": phases})["duration_ps"].tolist() == [most] * 3
    with pytest.raises(ValueError, match="more than 53 days"):
        burst_units.of_group(parameters | {"cpu_ratio": 2.0}, {"phases": phases})
