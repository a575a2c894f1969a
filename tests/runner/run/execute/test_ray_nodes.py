"""Which nodes workers are hired on, which are left out, and what is waited for: told by a Ray that is made up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from manyscale.runner.errors import RunError, UserError
from manyscale.runner.run.execute import ray_nodes
from manyscale.runner.run.execute.ray_nodes import Nodes
from manyscale.runner.run.execute.state import MAX_ATTEMPTS


class Cluster:
    """Nodes by name: CPUs, and how many of them are free."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from ray._private import state

        self.cpus: dict[str, tuple[int, int]] = {}
        self.now = 0.0
        monkeypatch.setattr(ray_nodes, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(ray_nodes, "_told", set())
        monkeypatch.setattr(state, "available_resources_per_node", self._free)
        self.nodes_of_run = Nodes("head:6379", can_grow=True)

    def _free(self) -> dict[str, dict[str, float]]:
        return {name: {"CPU": float(free)} for name, (_, free) in self.cpus.items()}

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {"NodeID": name, "Alive": True, "NodeManagerHostname": name, "NodeManagerAddress": "::1",
             "Resources": {"CPU": float(cpus)} if cpus else {}}
            for name, (cpus, _) in self.cpus.items()
        ]  # fmt: skip

    def look(self) -> Nodes:
        self.now += 1.0
        assert self.nodes_of_run.look(self)
        return self.nodes_of_run


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def hire(nodes: Nodes, count: int) -> list[str]:
    """On which nodes; the workers begin to start."""
    found = nodes.places(count)
    for node in found:
        number = 1 + sum(len(each.workers) for each in nodes.all)
        node.workers.add(number)
        node.starting.add(number)
    return sorted(node.node_id for node in found)


def test_workers_are_spread_evenly_as_far_as_cpus_are_free(cluster: Cluster) -> None:
    cluster.cpus = {"head": (0, 0), "large": (4, 4), "small": (2, 2), "taken": (8, 0)}
    nodes = cluster.look()
    assert hire(nodes, 3) == ["large", "large", "small"]
    assert hire(nodes, 9) == ["large", "large", "small"]
    assert hire(nodes, 9) == []
    assert nodes.num_cpus == 14


def test_nodes_are_hired_on_as_they_come_and_no_more_once_they_are_gone(cluster: Cluster) -> None:
    assert hire(cluster.look(), 4) == []
    cluster.cpus = {"first": (1, 1)}
    assert hire(cluster.look(), 4) == ["first"]
    cluster.cpus = {"first": (1, 0), "second": (2, 2)}
    assert hire(cluster.look(), 4) == ["second", "second"]
    cluster.cpus = {"second": (2, 2)}
    assert [node.node_id for node in cluster.look().usable] == ["second"]


def test_it_is_looked_at_once_a_second(cluster: Cluster) -> None:
    nodes = cluster.look()
    cluster.now += 0.9
    assert not nodes.look(cluster)
    nodes.look_again()
    assert nodes.look(cluster)


def test_a_node_where_workers_fail_is_tried_one_at_a_time_then_left_out_by_name(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.cpus = {"sick": (4, 4), "well": (4, 4)}
    nodes = cluster.look()
    nodes.failed("sick", "NODE_OUT_OF_MEMORY")
    assert hire(nodes, 8) == ["sick", "well", "well", "well", "well"]
    assert hire(nodes, 8) == []  # one is starting there
    for _ in range(MAX_ATTEMPTS - 1):
        nodes["sick"].starting.clear()
        nodes.failed("sick", "NODE_OUT_OF_MEMORY")
    assert [node.node_id for node in nodes.usable] == ["well"]
    line = "manyscale: node sick (::1) is left out: 3 workers in a row failed (NODE_OUT_OF_MEMORY)\n"
    assert capsys.readouterr().err == line


def test_a_unit_that_is_finished_ends_a_row_of_failures(cluster: Cluster) -> None:
    cluster.cpus = {"node": (4, 4)}
    nodes = cluster.look()
    for _ in range(MAX_ATTEMPTS - 1):
        nodes.failed("node", "full")
    nodes.worked("node")
    nodes.failed("node", "full")
    assert nodes.usable


def test_the_run_ends_if_no_node_is_left_with_the_reason_of_each(cluster: Cluster) -> None:
    cluster.cpus = {"old": (4, 4), "sick": (4, 4)}
    nodes = cluster.look()
    nodes.leave_out("old", "it has numpy 0.1, here it is 2.4", is_of_user=True)
    with pytest.raises(RunError) as caught:
        nodes.leave_out("sick", "3 workers in a row failed (full)")
    assert str(caught.value) == (
        "head:6379: no node can be used; old (::1): it has numpy 0.1, here it is 2.4; "
        "sick (::1): 3 workers in a row failed (full); install the same versions there as here"
    )


def test_if_all_nodes_are_for_the_user_to_mend_it_is_bad_input(cluster: Cluster) -> None:
    cluster.cpus = {"old": (4, 4)}
    with pytest.raises(UserError, match="no node can be used; old"):
        cluster.look().leave_out("old", "it has numpy 0.1", is_of_user=True)


def test_a_node_that_comes_back_is_a_new_one(cluster: Cluster) -> None:
    cluster.cpus = {"old": (4, 4), "other": (1, 0)}
    nodes = cluster.look()
    nodes.leave_out("old", "it has numpy 0.1", is_of_user=True)
    assert hire(cluster.look(), 1) == []
    cluster.cpus = {"old, started again": (4, 4)}
    assert hire(cluster.look(), 1) == ["old, started again"]


def test_what_is_waited_for_is_said_once_a_minute_and_ends(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = cluster.look()
    nodes.wait(5)
    first = "manyscale: head:6379: waiting for a node with CPUs: the cluster has none yet (5 CPUs are asked for)\n"
    assert capsys.readouterr().err == first
    cluster.now += 59
    nodes.wait(5)
    assert capsys.readouterr().err == ""
    cluster.cpus = {"node": (4, 0)}
    cluster.now += 1
    cluster.look().wait(5)
    assert "waiting for a free CPU: 0 of 4 on 1 nodes are free (5 CPUs" in capsys.readouterr().err
    assert nodes.waiting == "a free CPU: 0 of 4 on 1 nodes are free"
    cluster.now += ray_nodes.FIRST_NODE_SECONDS
    with pytest.raises(RunError, match="no worker started within 1800 s, waiting for a free CPU"):
        nodes.wait(5)
    nodes.waited()
    nodes.wait(5)  # begins anew
    assert nodes.standing()[0] == {
        "node": "node (::1)", "cpus": 4, "workers": 0, "units": 0, "state": "there", "reason": "",
    }  # fmt: skip


def test_cpus_that_become_free_within_seconds_are_no_matter(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.cpus = {"node": (4, 0)}
    nodes = cluster.look()
    nodes.wait(5)
    cluster.now += 9
    nodes.wait(5)
    assert capsys.readouterr().err == ""
    cluster.now += 1
    nodes.wait(5)
    assert "waiting for a free CPU" in capsys.readouterr().err
