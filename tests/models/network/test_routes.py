"""Routes against closed forms: they connect, have the length they should have, and use links as theory says."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from test_routes_simgrid import all_routes, network, our_pairs

from manyscale.models.machine.topology import most_nodes
from manyscale.models.network.routes import Routes, routes
from manyscale.models.network.routes.fabric import chosen

FAT_TREE = {"kind": "fat-tree", "down": [3, 4, 2], "up": [2, 2, 3], "cables": [2, 3, 2]}
TORUS = {"kind": "torus", "dimensions": [5, 4, 1, 2]}
DRAGONFLY = {"kind": "dragonfly", "groups": 7, "chassis": 2, "routers": 3, "nodes": 2}
ALL = [
    *({**FAT_TREE, "routing": routing} for routing in ("d-mod-k", "s-mod-k", "random")),
    *({**TORUS, "routing": routing} for routing in ("minimal", "valiant")),
    *({**DRAGONFLY, "routing": routing} for routing in ("minimal", "valiant")),
    *({**DRAGONFLY, "routing": routing, "gateways": 4, "interfaces": 2} for routing in ("minimal", "valiant")),
]


def routes_of(topology: dict[str, object], pairs: list[tuple[int, int]], num_nodes: int, **more: object) -> Routes:
    """Routes of one message per pair, none of them from a rank to itself."""
    source, destination = np.array(pairs, np.int32).reshape(-1, 2).T
    return routes(network(topology, **more), num_nodes, source, destination, np.zeros(len(source), bool))


def names(found: Routes, message: int, reverse: bool = False) -> list[str]:
    offsets, links = (found.reverse_offsets, found.reverse_links) if reverse else (found.offsets, found.links)
    pair = found.pair_of_message[message]
    return [found.link_names[link] for link in links[offsets[pair] : offsets[pair + 1]]]


def ends(name: str) -> tuple[str, str]:
    start, _, end = name.partition(" #")[0].partition(" > ")
    return start, end


@pytest.mark.property
@pytest.mark.parametrize("topology", ALL, ids=str)
def test_every_route_connects_its_nodes(topology):
    for (source, destination), (_, route) in our_pairs(topology).items():
        if source == destination:
            assert route == [f"self of node {source}"]
            continue
        places = [ends(name) for name in route]
        assert places[0][0] == f"node {source}"
        assert places[-1][1] == f"node {destination}"
        assert all(before[1] == after[0] for before, after in itertools.pairwise(places))


@pytest.mark.property
@pytest.mark.parametrize("topology", ALL, ids=str)
def test_the_way_back_is_the_route_of_the_opposite_pair(topology):
    found = all_routes(topology)
    count = most_nodes(network(topology).topology)
    for source, destination in itertools.product(range(count), repeat=2):
        assert names(found, source * count + destination, reverse=True) == names(found, destination * count + source)


@pytest.mark.property
@pytest.mark.parametrize("topology", ALL, ids=str)
def test_a_link_name_means_one_link(topology):
    found = all_routes(topology)
    assert len(set(found.link_names)) == len(found.link_names) == len(found.link_ps_per_byte)


@pytest.mark.theory
@pytest.mark.parametrize("sizes", [[4, 4, 4], [5, 4, 1, 2], [7], [2, 2, 3]], ids=str)
def test_torus_routes_are_as_long_as_the_distance(sizes):
    pairs = our_pairs({"kind": "torus", "dimensions": sizes})
    strides = np.cumprod([1, *sizes[:-1]])
    for (source, destination), (latency, route) in pairs.items():
        if source != destination:
            apart = np.abs(source // strides % sizes - destination // strides % sizes)
            distance = np.minimum(apart, np.array(sizes) - apart).sum()
            assert len(route) == distance
            assert latency == pytest.approx(5e-6 * distance, abs=1e-15)
    assert max(len(route) for _, route in pairs.values()) == sum(n // 2 for n in sizes)  # the diameter


@pytest.mark.theory
@pytest.mark.parametrize("routing", ["d-mod-k", "s-mod-k", "random"])
def test_fat_tree_routes_turn_at_the_lowest_common_level(routing):
    below = [1, 3, 12, 24]  # nodes under a switch of each level
    for (source, destination), (_, route) in our_pairs({**FAT_TREE, "routing": routing}).items():
        if source != destination:
            level = next(i for i, nodes in enumerate(below) if source // nodes == destination // nodes)
            assert len(route) == 2 * level


@pytest.mark.theory
@pytest.mark.parametrize("routing", ["d-mod-k", "s-mod-k"])
@pytest.mark.parametrize("shift", range(1, 64))
def test_a_full_fat_tree_carries_any_shift_without_sharing_a_link(routing, shift):
    """Zahavi et al. 2010: d-mod-k on a full-bisection tree is free of contention for shifts."""
    tree = {"kind": "fat-tree", "down": [4, 4, 4], "up": [1, 4, 4], "routing": routing}
    found = routes_of(tree, [(node, (node + shift) % 64) for node in range(64)], 64)
    assert np.bincount(found.links).max() == 1
    # every node sends, so all links up from the nodes are busy
    assert sum(name.startswith("node") for name in found.link_names) == 64


@pytest.mark.theory
def test_random_ports_do_share_links():
    tree = {"kind": "fat-tree", "down": [4, 4, 4], "up": [1, 4, 4], "routing": "random"}
    found = routes_of(tree, [(node, (node + 16) % 64) for node in range(64)], 64)
    assert np.bincount(found.links).max() > 1


@pytest.mark.theory
def test_a_tapered_tree_shares_its_spines_evenly():
    """16 leaves x 4 links up, d-mod-k by destination: a leaf's 16 messages to 16 others lie 4 on each link."""
    found = routes_of({"kind": "fat-tree", "down": [16, 16], "up": [1, 4]}, [(i, 16 + i) for i in range(16)], 256)
    load = Counter(found.links.tolist())
    up = [load[i] for i, name in enumerate(found.link_names) if name.startswith("switch 1.0 > switch 2.")]
    assert up == [4, 4, 4, 4]


@pytest.mark.theory
def test_dragonfly_routes_are_as_long_as_their_hops():
    """node, green, black, blue, green, black, node: one hop for each coordinate that is not yet right."""
    groups, chassis, routers, nodes = 7, 2, 3, 2
    for (source, destination), (_, route) in our_pairs(DRAGONFLY).items():
        if source == destination:
            continue
        shape = (groups, chassis, routers)
        a, b = ([int(part) for part in np.unravel_index(node // nodes, shape)] for node in (source, destination))
        expected = 2
        if a[0] != b[0]:
            gateway = (b[0] // routers % chassis, b[0] % routers)
            arrival = (a[0] // routers % chassis, a[0] % routers)
            expected += (a[1] != gateway[0]) + (a[2] != gateway[1]) + 1
            a = (b[0], *arrival)
        expected += (a[1] != b[1]) + (a[2] != b[2])
        assert len(route) == expected <= 7
    assert groups > chassis * routers  # some router has two blue links


@pytest.mark.theory
def test_gateways_spread_the_pairs_of_two_groups():
    """Groups of 6 routers, 4 links between each two: those from group 1 to 2 are at routers 8 to 11 modulo 6."""
    shape = {**DRAGONFLY, "gateways": 4}
    routes = our_pairs(shape)
    blue = Counter(
        name
        for (source, destination), (_, route) in routes.items()
        if (source // 12, destination // 12) == (1, 2)
        for name in route
        if name.startswith("router 1.") and " > router 2." in name
    )
    assert blue == {
        "router 1.0.2 > router 2.1.1 #0": 36,
        "router 1.1.0 > router 2.1.2 #1": 36,
        "router 1.1.1 > router 2.0.0 #2": 36,
        "router 1.1.2 > router 2.0.1 #3": 36,
    }


@pytest.mark.theory
@pytest.mark.parametrize("gateways", [1, 4])
def test_valiant_on_a_dragonfly_takes_one_group_more(gateways):
    shape = {**DRAGONFLY, "gateways": gateways}
    minimal, valiant = our_pairs(shape), our_pairs({**shape, "routing": "valiant"})
    for pair, (_, route) in valiant.items():
        groups = [name.partition(" > router ")[2].partition(".")[0] for name in route[:-1]]
        visited = list(dict.fromkeys(groups))
        if pair[0] // 12 == pair[1] // 12:
            assert route == minimal[pair][1]
        else:
            assert visited[0] == str(pair[0] // 12)
            assert visited[-1] == str(pair[1] // 12)
            assert len(visited) == 3
            assert len(route) <= 2 + 2 + 1 + 2 + 1 + 2


@pytest.mark.theory
def test_valiant_on_a_torus_is_at_most_twice_the_diameter():
    minimal, valiant = our_pairs(TORUS), our_pairs({**TORUS, "routing": "valiant"})
    diameter = 2 + 2 + 0 + 1
    for pair, (_, route) in valiant.items():
        if pair[0] != pair[1]:
            assert len(minimal[pair][1]) <= len(route) <= 2 * diameter
    assert sum(len(route) for _, route in valiant.values()) > sum(len(route) for _, route in minimal.values())


@pytest.mark.theory
@pytest.mark.parametrize("topology", [ALL[2], ALL[4], ALL[6]], ids=str)
def test_random_choices_follow_the_seed(topology):
    assert our_pairs(topology) == our_pairs({**topology, "seed": 0})
    assert our_pairs(topology) != our_pairs({**topology, "seed": 1})


@pytest.mark.theory
def test_choices_are_even():
    """90,000 choices of 9: each 10,000 times, with a standard deviation of 94."""
    source, destination = np.divmod(np.arange(90_000), 300)
    for salt in (0, 1, 2**63):
        counts = np.bincount(chosen(source, destination, salt, 9), minlength=9)
        assert np.abs(counts - 10_000).max() < 5 * 94
    together = chosen(source, destination, 0, 3) * 3 + chosen(source, destination, 1, 3)
    assert np.abs(np.bincount(together, minlength=9) - 10_000).max() < 5 * 94  # salts are independent


@pytest.mark.theory
def test_interfaces_of_a_crossbar_share_a_nodes_partners():
    found = routes_of({"kind": "crossbar", "interfaces": 2}, [(0, 1), (0, 2), (0, 3), (3, 0)], 4)
    assert names(found, 0) == ["node 0 > switch #1", "switch > node 1 #1"]
    assert names(found, 1) == ["node 0 > switch #0", "switch > node 2 #0"]
    assert names(found, 2) == ["node 0 > switch #1", "switch > node 3 #1"]
    assert names(found, 3) == ["node 3 > switch #1", "switch > node 0 #1"]


LINKS = [{"latency": "1 us"}, {"latency": "3 ns", "bandwidth": "2 GB/s"}]


@pytest.mark.theory
@pytest.mark.parametrize(
    ("topology", "pair", "latency_ps", "ps_per_byte"),
    [
        ({"kind": "crossbar"}, (0, 1), 10_000_000, [800, 800]),
        ({"kind": "fat-tree", "down": [2, 2], "up": [1, 2]}, (0, 3), 20_000_000, [800] * 4),
        ({"kind": "fat-tree", "down": [2, 2], "up": [1, 2], "links": LINKS}, (0, 3), 2_006_000, [800, 500, 500, 800]),
        ({"kind": "torus", "dimensions": [3, 3]}, (0, 4), 10_000_000, [800, 800]),
        ({"kind": "torus", "dimensions": [3, 3], "links": LINKS}, (0, 4), 1_003_000, [800, 500]),
        (
            {"kind": "dragonfly", "groups": 2, "chassis": 2, "routers": 2, "nodes": 1,
             "local": {"latency": "1 us"}, "green": {"latency": "1 ns", "cables": 2},
             "black": {"latency": "10 ns", "bandwidth": "2 GB/s"}, "blue": {"latency": "100 ns", "cables": 4}},
            (2, 7), 2_122_000, [800, 400, 500, 200, 400, 500, 800],
        ),
    ],
    ids=str,
)  # fmt: skip
def test_latencies_add_up_and_capacities_are_those_of_the_links(topology, pair, latency_ps, ps_per_byte):
    found = routes_of(topology, [pair], 8 if topology["kind"] == "dragonfly" else 4 if "down" in topology else 9)
    assert found.latency_ps.tolist() == [latency_ps]
    assert found.link_ps_per_byte[found.links].tolist() == ps_per_byte
    assert found.link_is_shared[found.links].all()


@pytest.mark.theory
def test_half_picoseconds_of_a_link_add_up_to_the_networks_latency():
    found = routes_of({"kind": "crossbar"}, [(0, 1)], 2, latency="7 ps")
    assert found.latency_ps.tolist() == [7]


def inside(**topology: object) -> tuple[Routes, list[list[str]]]:
    """Messages between two ranks of node 1, and from a rank of node 1 to itself."""
    own = {"intra_node": {"latency": "2 us", "bandwidth": "4 GB/s"}, "self": {"latency": "1 us", "bandwidth": "5 GB/s"}}
    of = network({"kind": "crossbar", **topology}, **own)
    node = np.array([1, 1], np.int32)
    found = routes(of, 3, node, node, np.array([False, True]))
    return found, [names(found, message) for message in range(2)]


@pytest.mark.theory
def test_messages_inside_a_node_take_its_own_routes():
    found, route = inside()
    assert route == [["inside node 1"], ["self of node 1"]]
    assert found.latency_ps.tolist() == [2_000_000, 1_000_000]
    assert found.link_ps_per_byte.tolist() == [250, 200]
    assert found.link_is_shared.tolist() == [False, False]
    assert inside(within_node="shared")[0].link_is_shared.tolist() == [True, False]


@pytest.mark.theory
def test_messages_inside_a_node_may_go_through_its_links():
    found, route = inside(loopback="through-links")
    assert route == [["node 1 > switch", "switch > node 1"]] * 2
    assert found.latency_ps.tolist() == [10_000_000] * 2
    assert found.link_is_shared.all()
    tree = {"kind": "fat-tree", "down": [2, 2], "up": [1, 2], "loopback": "through-links"}
    assert names(routes_of(tree, [(3, 3)], 4), 0) == ["node 3 > switch 1.1", "switch 1.1 > node 3"]
    fly = {"kind": "dragonfly", "groups": 2, "chassis": 1, "routers": 2, "nodes": 1, "loopback": "through-links"}
    assert names(routes_of(fly, [(3, 3)], 4), 0) == ["node 3 > router 1.0.1", "router 1.0.1 > node 3"]


@pytest.mark.theory
def test_only_pairs_that_talk_are_built():
    found = routes_of({"kind": "fat-tree", "down": [16, 16], "up": [1, 4]}, [(5, 9), (200, 0), (5, 9)], 256)
    assert found.pair_of_message.tolist() == [0, 1, 0]
    assert found.offsets.tolist() == [0, 2, 6]
    assert len(found.link_names) == 2 * (2 + 4)  # both directions


@pytest.mark.property
def test_large_machines_have_the_same_routes():
    """Above a million pairs or links the tables give way to sorting; what comes out is the same."""
    pairs = [tuple(pair) for pair in np.random.default_rng(1).integers(0, 16**2, (200, 2)).tolist()]
    small = routes_of({"kind": "fat-tree", "down": [16, 16, 2], "up": [1, 16, 4]}, pairs, 512)
    large = routes_of({"kind": "fat-tree", "down": [16, 16, 400], "up": [1, 16, 4]}, pairs, 102_400)
    assert [names(small, i) for i in range(200)] == [names(large, i) for i in range(200)]
    assert [names(small, i, True) for i in range(200)] == [names(large, i, True) for i in range(200)]
    assert np.array_equal(small.latency_ps, large.latency_ps)


def test_no_messages():
    found = routes_of({"kind": "torus", "dimensions": [4, 4]}, [], 16)
    assert found.link_names == ()
    assert found.offsets.tolist() == [0]
    assert len(found.pair_of_message) == len(found.links) == len(found.latency_ps) == 0


@pytest.mark.parametrize("pair", [(0, 16), (-1, 3)])
def test_nodes_outside_the_machine_are_refused(pair):
    with pytest.raises(ValueError, match="not all among the 16 of the machine"):
        routes_of({"kind": "torus", "dimensions": [4, 4]}, [pair], 16)


def test_routes_beyond_53_days_are_refused():
    links = [{"latency": "1200 h"}]
    with pytest.raises(ValueError, match="more than 53 days; mend the topology's links"):
        routes_of({"kind": "torus", "dimensions": [9], "links": links}, [(0, 4)], 9)
