"""Routes against SimGrid 3.32: the same links in the same order between all nodes, and the same latency.

`routes_driver.cpp` prints the route of every pair of hosts of a platform. Links have other names there, so the names
must correspond one to one over all pairs. GOLDEN holds such routes, so that they can be compared with where SimGrid is
not installed (see SOURCES.md there); `test_golden_routes_are_simgrids` prints them anew.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from manyscale.models.machine import Network
from manyscale.models.machine.topology import most_nodes
from manyscale.models.network.routes import Routes, routes

GOLDEN = Path(__file__).parents[2] / "data" / "topology"
Pairs = dict[tuple[int, int], tuple[float, list[str]]]  # latency (s), links
Run = Callable[[str, str, int], str]

# topology, SimGrid's name of it, its topo_parameters
CASES = [
    ({"kind": "fat-tree", "down": [16, 16], "up": [1, 4]}, "FAT_TREE", "2;16,16;1,4;1,1"),
    ({"kind": "fat-tree", "down": [4, 4], "up": [1, 2], "cables": [2, 2]}, "FAT_TREE", "2;4,4;1,2;2,2"),
    ({"kind": "fat-tree", "down": [4, 6], "up": [2, 3], "cables": [1, 2]}, "FAT_TREE", "2;4,6;2,3;1,2"),
    ({"kind": "fat-tree", "down": [3, 4, 2], "up": [1, 3, 2], "cables": [1, 1, 2]}, "FAT_TREE", "3;3,4,2;1,3,2;1,1,2"),
    ({"kind": "fat-tree", "down": [3, 4, 2], "up": [2, 2, 3], "cables": [2, 3, 2]}, "FAT_TREE", "3;3,4,2;2,2,3;2,3,2"),
    ({"kind": "fat-tree", "down": [2, 4, 3], "up": [1, 2, 2], "cables": [3, 2, 1]}, "FAT_TREE", "3;2,4,3;1,2,2;3,2,1"),
    ({"kind": "torus", "dimensions": [4, 4, 4]}, "TORUS", "4,4,4"),
    ({"kind": "torus", "dimensions": [5, 2, 1, 6]}, "TORUS", "5,2,1,6"),
    ({"kind": "torus", "dimensions": [9]}, "TORUS", "9"),
    (
        {"kind": "dragonfly", "groups": 3, "chassis": 2, "routers": 4, "nodes": 2,
         "blue": {"cables": 4}, "black": {"cables": 2}, "green": {"cables": 1}},
        "DRAGONFLY", "3,4;2,2;4,1;2",
    ),
    ({"kind": "dragonfly", "groups": 4, "chassis": 1, "routers": 5, "nodes": 3}, "DRAGONFLY", "4,1;1,1;5,1;3"),
]  # fmt: skip
IDS = [f"{name.lower()}-{parameters}" for _, name, parameters in CASES]
KEPT = {4: "fat-tree.txt", 6: "torus.txt", 9: "dragonfly.txt"}  # cases of which GOLDEN has routes


def network(topology: dict[str, object], **changes: object) -> Network:
    """10 us between neighbours with two links, 5 us with one: 5 us a link; 0 s and 10 GB/s inside a node."""
    own = {"latency": "0 s", "bandwidth": "10 GB/s"}
    return Network.model_validate(
        {
            "latency": "5 us" if topology["kind"] == "torus" else "10 us", "bandwidth": "1.25 GB/s",
            "envelope": "16 B", "eager_threshold": "64 KiB", "transfer_start": "match",
            "collectives": "simgrid-3.32", "intra_node": own, "self": own, "topology": topology,
        }
        | changes
    )  # fmt: skip


def all_routes(topology: dict[str, object]) -> Routes:
    """Routes between all nodes, source by source."""
    of = network(topology)
    count = most_nodes(of.topology)
    source, destination = np.divmod(np.arange(count * count, dtype=np.int32), count)
    return routes(of, count, source, destination, source == destination)


def our_pairs(topology: dict[str, object]) -> Pairs:
    found = all_routes(topology)
    count = most_nodes(network(topology).topology)
    pairs: Pairs = {}
    for message, pair in enumerate(found.pair_of_message.tolist()):
        links = found.links[found.offsets[pair] : found.offsets[pair + 1]]
        pairs[divmod(message, count)] = (found.latency_ps[pair] / 1e12, [found.link_names[link] for link in links])
    return pairs


def parsed(text: str) -> Pairs:
    rows = (line.split() for line in text.splitlines())
    return {(int(row[0]), int(row[1])): (float(row[2]), row[3:]) for row in rows}


def is_broken_in_simgrid(topology: dict[str, object], source: int, destination: int) -> bool:
    """Inside a group and off its first chassis, SimGrid's dragonfly takes a green link, then goes on from the first
    chassis; such routes are not connected."""
    if topology["kind"] != "dragonfly":
        return False
    nodes, routers, chassis = (int(str(topology[key])) for key in ("nodes", "routers", "chassis"))
    first, last = source // nodes, destination // nodes
    same_group = first // (routers * chassis) == last // (routers * chassis)
    return same_group and first // routers % chassis != 0 and first % routers != last % routers


def differences(ours: Pairs, simgrid: Pairs) -> list[str]:
    """Where routes differ, links known only by a one-to-one correspondence of names."""
    found = []
    to_simgrid: dict[str, str] = {}
    to_ours: dict[str, str] = {}
    for pair, (latency, names) in simgrid.items():
        own_latency, own_names = ours[pair]
        if abs(latency - own_latency) > 1e-12:
            found.append(f"{pair}: latency {own_latency}, SimGrid {latency}")
        if len(names) != len(own_names):
            found.append(f"{pair}: links {own_names}, SimGrid {names}")
            continue
        for own_name, name in zip(own_names, names, strict=True):
            if to_simgrid.setdefault(own_name, name) != name or to_ours.setdefault(name, own_name) != own_name:
                found.append(f"{pair}: link {own_name}, SimGrid {name}")
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Prints all routes of a cluster in SimGrid's words."""
    if shutil.which("g++") is None or not Path("/usr/include/simgrid/s4u.hpp").exists():
        pytest.skip("SimGrid's library or a C++ compiler is not installed")
    folder = tmp_path_factory.mktemp("routes")
    driver = folder / "driver"
    source = Path(__file__).with_name("routes_driver.cpp")
    subprocess.run(["g++", "-O0", "-o", driver, source, "-lsimgrid"], check=True, timeout=300)

    def routes_of(kind: str, parameters: str, count: int) -> str:
        platform = folder / "platform.xml"
        platform.write_text(
            "<?xml version='1.0'?><!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">"
            '<platform version="4.1"><zone id="world" routing="Full"><cluster id="c" prefix="node-" suffix="" '
            f'radical="0-{count - 1}" speed="1Gf" bw="1.25GBps" lat="5us" topology="{kind}" '
            f'topo_parameters="{parameters}" loopback_bw="10GBps" loopback_lat="0"/></zone></platform>'
        )
        command = [driver, platform, str(count), "--log=root.thres:critical"]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout

    return routes_of


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.parametrize(("topology", "kind", "parameters"), CASES, ids=IDS)
def test_routes_are_simgrids(topology, kind, parameters, run):
    ours = our_pairs(topology)
    simgrid = parsed(run(kind, parameters, most_nodes(network(topology).topology)))
    sound = {pair: route for pair, route in simgrid.items() if not is_broken_in_simgrid(topology, *pair)}
    assert len(simgrid) == len(ours)
    assert differences(ours, sound) == []
    assert bool(differences(ours, simgrid)) == (len(sound) < len(simgrid))  # and the others still differ


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.parametrize("case", KEPT, ids=[IDS[case] for case in KEPT])
def test_golden_routes_are_simgrids(case, run):
    topology, kind, parameters = CASES[case]
    stored = parsed((GOLDEN / KEPT[case]).read_text())
    printed = parsed(run(kind, parameters, most_nodes(network(topology).topology)))
    assert stored == {pair: printed[pair] for pair in stored}


@pytest.mark.golden
@pytest.mark.parametrize("case", KEPT, ids=[IDS[case] for case in KEPT])
def test_routes_are_the_golden_ones(case):
    topology = CASES[case][0]
    stored = parsed((GOLDEN / KEPT[case]).read_text())
    assert len(stored) > 100
    sound = {pair: route for pair, route in stored.items() if not is_broken_in_simgrid(topology, *pair)}
    assert differences(our_pairs(topology), sound) == []


def test_a_wrong_route_is_found():
    right = {(0, 1): (1e-5, ["a", "b"]), (1, 0): (1e-5, ["c", "d"])}
    assert differences({(0, 1): (1e-5, ["x", "y"]), (1, 0): (1e-5, ["z", "w"])}, right) == []
    assert differences({(0, 1): (2e-5, ["x", "y"]), (1, 0): (1e-5, ["z", "w"])}, right)
    assert differences({(0, 1): (1e-5, ["x"]), (1, 0): (1e-5, ["z", "w"])}, right)
    assert differences({(0, 1): (1e-5, ["x", "y"]), (1, 0): (1e-5, ["x", "w"])}, right)
    assert differences({(0, 1): (1e-5, ["x", "x"]), (1, 0): (1e-5, ["z", "w"])}, right)
