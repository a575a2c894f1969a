"""Topologies: link counts by formula, and what does not fit is refused."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError
from test_machine import CONTENT

from manyscale.models.machine import Machine, Network
from manyscale.models.machine.topology import Topology, most_nodes
from manyscale.models.network.routes import fabric_of

TOPOLOGY = TypeAdapter(Topology)


def fabric(topology: dict[str, object], num_nodes: int):
    return fabric_of(Network.model_validate({**CONTENT["network"], "topology": topology}), num_nodes)


@pytest.mark.theory
@pytest.mark.parametrize(
    ("topology", "nodes", "links"),
    [
        ({"kind": "crossbar"}, 10, 2 * 10),
        ({"kind": "crossbar", "interfaces": 3}, 10, 2 * 10 * 3),
        # a k-ary n-tree has n k**n links (Petrini and Vanneschi 1997), here each way
        ({"kind": "fat-tree", "down": [4, 4, 4], "up": [1, 4, 4]}, 64, 2 * 3 * 64),
        ({"kind": "fat-tree", "down": [16, 16], "up": [1, 4]}, 256, 2 * (256 + 16 * 4)),
        ({"kind": "fat-tree", "down": [4, 6], "up": [2, 3], "cables": [1, 2]}, 24, 2 * (24 * 2 + 12 * 3 * 2)),
        # a torus has a link per node and dimension
        ({"kind": "torus", "dimensions": [4, 5, 6]}, 120, 2 * 3 * 120),
        # per group: all pairs of a chassis, all pairs of chassis at each place; all pairs of groups
        (
            {"kind": "dragonfly", "groups": 3, "chassis": 2, "routers": 4, "nodes": 5},
            120,
            2 * (120 + 3 * 2 * 6 + 3 * 4 * 1 + 3) + 3 * 2 * 4 * 2 + 3,  # and a number per router and group for itself
        ),
    ],
    ids=str,
)
def test_number_of_links(topology, nodes, links):
    found = fabric(topology, nodes)
    assert found.num_links == links
    assert most_nodes(TOPOLOGY.validate_python(topology)) in (nodes, None)


@pytest.mark.theory
def test_switches_of_a_fat_tree():
    tree = TOPOLOGY.validate_python({"kind": "fat-tree", "down": [4, 6, 2], "up": [2, 3, 5]})
    assert [tree.num_switches(level) for level in range(4)] == [48, 6 * 2 * 2, 2 * 2 * 3, 2 * 3 * 5]


@pytest.mark.parametrize(
    ("topology", "words"),
    [
        ({"kind": "ring"}, "'crossbar', 'fat-tree', 'torus', 'dragonfly'"),
        ({"down": [2], "up": [1]}, "discriminator 'kind'"),
        ({"kind": "crossbar", "interfaces": 0}, "interfaces"),
        ({"kind": "crossbar", "loopback": "none"}, "loopback"),
        ({"kind": "crossbar", "nodes": 4}, "nodes"),
        ({"kind": "fat-tree", "down": [4, 4], "up": [1]}, "up: 1 given for 2 levels"),
        ({"kind": "fat-tree", "down": [4, 4], "up": [1, 2], "cables": [1]}, "cables: 1 given for 2 levels"),
        ({"kind": "fat-tree", "down": [4, 4], "up": [1, 2], "links": [{}]}, "links: 1 given for 2 levels"),
        ({"kind": "fat-tree", "down": [4, 0], "up": [1, 2]}, "down.1"),
        ({"kind": "fat-tree", "down": [], "up": []}, "down"),
        ({"kind": "fat-tree", "down": [2], "up": [1], "routing": "minimal"}, "routing"),
        ({"kind": "fat-tree", "down": [10**5, 10**5], "up": [1, 1]}, "20,000,200,000 links are more than"),
        ({"kind": "torus", "dimensions": [4, 4], "links": [{}]}, "links: 1 given for 2 dimensions"),
        ({"kind": "torus", "dimensions": [4, 4], "links": [{"latency": 1}, {}]}, "1 has no unit"),
        ({"kind": "torus", "dimensions": [10**5, 10**5]}, "links are more than"),
        ({"kind": "torus", "dimensions": [4], "seed": -1}, "seed"),
        ({"kind": "dragonfly", "groups": 10**5, "chassis": 1, "routers": 1, "nodes": 1}, "links are more than"),
        ({"kind": "dragonfly", "groups": 2, "chassis": 1, "routers": 2}, "nodes"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(topology, words):
    with pytest.raises(ValidationError, match=words):
        TOPOLOGY.validate_python(topology)


def test_a_machine_has_a_place_for_every_node():
    def machine(nodes: int) -> Machine:
        network = {**CONTENT["network"], "topology": {"kind": "torus", "dimensions": [2, 3]}}
        return Machine.model_validate({**CONTENT, "nodes": nodes, "network": network})

    assert machine(6).num_nodes == 6
    assert machine(4).num_nodes == 4  # the other places are empty
    with pytest.raises(ValidationError, match=r"network\.topology has room for 6 nodes, not 7; make it larger"):
        machine(7)
    with pytest.raises(ValueError, match="room for 6 nodes, not for 7"):
        fabric({"kind": "torus", "dimensions": [2, 3]}, 7)


def test_a_crossbar_of_too_many_links_is_refused():
    with pytest.raises(ValueError, match="2,000,000,000 links are more than"):
        fabric({"kind": "crossbar", "interfaces": 1000}, 10**6)


def test_a_network_without_topology_has_no_routes():
    with pytest.raises(ValueError, match=r"no topology; add for example topology: \{kind: crossbar\}"):
        fabric_of(Network.model_validate(CONTENT["network"]), 2)
