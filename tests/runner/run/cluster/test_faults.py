"""What goes wrong on a cluster changes no byte of a run, loses no unit and counts none twice. Nodes are namespaces of
this machine that share nothing (tests/cluster_nodes.py); the whole campaign is ``python tests/cluster_faults.py``."""

from __future__ import annotations

import json
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import cluster_faults
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cluster_faults import KINDS, Driver, Journal, calm_local, one_run, problems_of, schedule
from cluster_nodes import NodeCluster, missing


def test_in_200_faults_of_20_runs_each_kind_comes_as_often_as_any_other() -> None:
    runs = [schedule(seed, 10) for seed in range(20)]
    counts = Counter(fault.kind for faults in runs for fault in faults)
    assert sum(counts.values()) == 200
    assert counts.keys() == set(KINDS)
    assert set(counts.values()) == {15, 16}  # 200 = 5 x 16 + 8 x 15
    assert runs == [schedule(seed, 10) for seed in range(20)]
    assert all(faults == sorted(faults, key=lambda fault: fault.at) for faults in runs)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Two run directories of three units that are alike."""
    for side in ("calm", "found"):
        folder = tmp_path / side
        folder.mkdir()
        (folder / "stats.json").write_text("{}")
        pq.write_table(pa.table({"key": ["a", "b", "c"], "attempts": [1, 1, 1]}), folder / "units.parquet")
        lines = [{"key": key, "status": "simulated", "cpu_seconds": 1.0} for key in "abc"]
        (folder / "units.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        units = {"total": 3, "simulated": 3, "reused": 0, "failed": 0}
        (folder / "simulator.json").write_text(json.dumps({"units": units}))
    return tmp_path / "calm", tmp_path / "found"


def test_runs_that_are_alike_have_no_problem(pair: tuple[Path, Path]) -> None:
    calm, found = pair
    pq.write_table(pa.table({"key": ["a", "b", "c"], "attempts": [1, 3, 1]}), found / "units.parquet")
    assert problems_of(found, calm) == []


def test_a_changed_byte_is_a_problem(pair: tuple[Path, Path]) -> None:
    calm, found = pair
    (found / "stats.json").write_text("{ }")
    assert problems_of(found, calm) == ["1 files differ: stats.json"]


def test_a_lost_unit_is_a_problem(pair: tuple[Path, Path]) -> None:
    calm, found = pair
    pq.write_table(pa.table({"key": ["a", "b"], "attempts": [1, 1]}), found / "units.parquet")
    assert "its units are others" in problems_of(found, calm)
    (found / "units.parquet").unlink()
    assert problems_of(found, calm) == ["has no results"]


def test_a_unit_that_is_counted_twice_is_a_problem(pair: tuple[Path, Path]) -> None:
    calm, found = pair
    with (found / "units.jsonl").open("a") as file:
        file.write(json.dumps({"key": "b", "status": "simulated", "cpu_seconds": 1.0}) + "\n")
    assert problems_of(found, calm) == ["1 units are counted twice"]
    units = {"total": 4, "simulated": 4, "reused": 0, "failed": 0}
    (found / "simulator.json").write_text(json.dumps({"units": units}))
    assert len(problems_of(found, calm)) == 2


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Of a module's runs; a short path below the folder that nodes have for themselves."""
    if reason := missing():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="faults-", dir="/tmp") as name:
        Path(name, cluster_faults.TRACES).mkdir()
        yield Path(name)


@pytest.fixture(scope="module")
def calm(folder: Path) -> tuple[list[str], Path]:
    """The command of all runs, and what a calm local one left."""
    arguments = ["run", str(cluster_faults.study(folder, 1)), "--no-report"]
    return arguments, calm_local(folder, arguments)


def cluster_of(folder: Path, *, starts_ray: bool = True) -> NodeCluster:
    """A head; nodes come as they are added."""
    keep = [folder / cluster_faults.TRACES]
    return NodeCluster(cluster_faults.NAME, cluster_faults.NETWORK, folder, keep, starts_ray=starts_ray)


@pytest.mark.slow
def test_nodes_share_nothing_but_code_and_the_network(folder: Path) -> None:
    with cluster_of(folder, starts_ray=False) as nodes:
        check_privacy(nodes, folder)


def check_privacy(nodes: NodeCluster, folder: Path) -> None:
    """Of two nodes, one of which dies."""
    one, other = nodes.add(), nodes.add()
    for place in ("/tmp", "/dev/shm", "/run", "/tmp/cache"):
        one.inside("touch", f"{place}/mine")
        assert "mine" in one.inside("ls", place)
        assert "mine" not in other.inside("ls", place)
        assert not Path(place, "mine").exists()
    assert one.inside("hostname").strip() == one.name
    assert one.inside("sh", "-c", f"ls {folder} 2>/dev/null; true").split() == [cluster_faults.TRACES]
    assert set(one.inside("sh", "-c", "cat /proc/net/dev | grep -o '[a-z0-9]*:'").split()) >= {"lo:", "eth0:"}
    one.inside("ping", "-c", "1", "-W", "5", other.address) if shutil.which("ping") else None
    numbers = {process.pid for process in one.processes()}
    one.kill()
    assert numbers
    assert not one.processes()
    assert other.processes()


def wait_for(driver: Driver, journal: Journal, num_done: int) -> None:
    """Until so many units are done."""
    end = time.monotonic() + 120
    while len(journal.costs()) < num_done:
        assert driver.status is None, driver.said
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.slow
def test_a_run_goes_on_elsewhere_after_its_driver_and_after_the_cluster_s_head_died(
    calm: tuple[list[str], Path], folder: Path
) -> None:
    arguments, expected = calm
    output = folder / "resumed"
    journal = Journal(output)
    with cluster_of(folder) as cluster:
        driver = Driver(cluster, arguments, output)
        first = cluster.add()
        first.wait_until_joined()
        driver.start()
        wait_for(driver, journal, 4)
        driver.kill()
        first.kill()
        cluster.remove(first)
        cluster.add().wait_until_joined()
        driver.start()
        wait_for(driver, journal, len(journal.costs()) + 4)
        num_said = len(driver.said)
        cluster.head.signal(signal.SIGKILL, "gcs_server")
        assert driver.wait(120) == 1, driver.said
        told = [line for line in driver.said[num_said:] if " left" not in line]
        assert len(told) == 1, driver.said
        assert "what is finished is kept: see that a cluster runs, then" in told[0]
        assert "--resume" in told[0]
    with cluster_of(folder) as cluster:
        cluster.add().wait_until_joined()
        driver = Driver(cluster, arguments, output)
        driver.start()
        assert driver.wait(240) == 0, driver.said
    assert problems_of(output, expected) == []


@pytest.mark.slow
def test_one_fault_of_each_kind_changes_no_byte_loses_no_unit_and_counts_none_twice(
    calm: tuple[list[str], Path], folder: Path
) -> None:
    arguments, expected = calm
    verdict = one_run(folder, arguments, expected, 0, schedule(0, len(KINDS)))
    assert verdict.problems == []
    assert sorted(verdict.faults) == sorted(KINDS)
