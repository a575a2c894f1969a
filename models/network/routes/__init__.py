"""Routes between the nodes that a program uses: lists of directed links, with their capacities and latencies.

The topology is that of the machine file (models.topology). Links that no message could take are left out, so a large
machine costs no more than the pairs of nodes that talk.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from manyscale.models.machine import Network
from manyscale.models.machine.topology import Crossbar, FatTree, Torus, most_nodes, refuse_too_many
from manyscale.models.network.routes.crossbar import CrossbarFabric
from manyscale.models.network.routes.dragonfly import DragonflyFabric
from manyscale.models.network.routes.fabric import Fabric
from manyscale.models.network.routes.fat_tree import FatTreeFabric
from manyscale.models.network.routes.torus import TorusFabric
from manyscale.models.workload.quantities import MOST_PS


@dataclass(frozen=True)
class Routes:
    """Routes of all messages, by distinct pair of nodes.

    Per link: ``link_names``, ``link_ps_per_byte`` float64, ``link_is_shared`` bool (False: every flow has the full
    capacity). ``pair_of_message`` int32 per message. Pair p goes over ``links[offsets[p] : offsets[p + 1]]`` (int32,
    in order from source to destination) and back over ``reverse_links`` between ``reverse_offsets``; ``latency_ps``
    int64 is the sum over the links there.
    """

    link_names: tuple[str, ...]
    link_ps_per_byte: np.ndarray
    link_is_shared: np.ndarray
    pair_of_message: np.ndarray
    offsets: np.ndarray
    links: np.ndarray
    latency_ps: np.ndarray
    reverse_offsets: np.ndarray
    reverse_links: np.ndarray


def routes(
    network: Network, num_nodes: int, source_node: np.ndarray, destination_node: np.ndarray, to_self: np.ndarray
) -> Routes:
    """Routes of messages between nodes; ``to_self`` marks those from a rank to itself (its node is both ends).

    O(messages + pairs x longest route + links of the machine); O(messages log messages) on machines of many nodes.
    Raises ValueError if the network names no topology, or one that has no place for ``num_nodes``.
    """
    fabric = fabric_of(network, num_nodes)
    ends = np.concatenate((source_node, destination_node))
    if len(ends) and not 0 <= ends.min() <= ends.max() < num_nodes:
        raise ValueError(f"nodes {ends.min()} to {ends.max()} are not all among the {num_nodes} of the machine")
    source, destination, is_self, pair_of_message = _pairs(num_nodes, source_node, destination_node, to_self)
    there = _links(fabric, network, num_nodes, source, destination, is_self)
    back = _links(fabric, network, num_nodes, destination, source, is_self)
    used, there, back = _renumbered(fabric.num_links + 2 * num_nodes, there, back)
    latency, ps_per_byte = _figures(fabric, network, num_nodes, used)
    latency_ps = np.rint(np.where(there >= 0, np.append(latency, 0.0)[there], 0.0).sum(axis=1))
    if latency_ps.max(initial=0.0) > MOST_PS:
        raise ValueError("the latencies of a route add up to more than 53 days; mend the topology's links")
    offsets, links = _listed(there)
    reverse_offsets, reverse_links = _listed(back)
    is_own = used >= fabric.num_links
    is_intra = is_own & (used < fabric.num_links + num_nodes)
    return Routes(
        link_names=_names(fabric, num_nodes, used),
        link_ps_per_byte=ps_per_byte,
        link_is_shared=~is_own | (is_intra & _is_shared_within_node(network)),
        pair_of_message=pair_of_message,
        offsets=offsets,
        links=links,
        latency_ps=latency_ps.astype(np.int64),
        reverse_offsets=reverse_offsets,
        reverse_links=reverse_links,
    )


def fabric_of(network: Network, num_nodes: int) -> Fabric:
    """The links of a network's topology. Raises ValueError if there is none, or no place for ``num_nodes``."""
    topology = network.topology
    if topology is None:
        raise ValueError("the target's network has no topology; add for example topology: {kind: crossbar}")
    room = most_nodes(topology)
    if room is not None and num_nodes > room:
        raise ValueError(f"the topology has room for {room:,} nodes, not for {num_nodes:,}; make it larger")
    if isinstance(topology, Crossbar):
        fabric = CrossbarFabric(topology, network, num_nodes)
        refuse_too_many(fabric.num_links)
        return fabric
    if isinstance(topology, FatTree):
        return FatTreeFabric(topology, network)
    if isinstance(topology, Torus):
        return TorusFabric(topology, network)
    return DragonflyFabric(topology, network)


def _pairs(
    num_nodes: int, source: np.ndarray, destination: np.ndarray, to_self: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Distinct pairs in order of source and destination, those of a rank to itself last: int64 source and destination
    and bool per pair; the pair of each message, int32."""
    num_keys = num_nodes * (num_nodes + 1)
    key = np.where(to_self, num_nodes * num_nodes, source * np.int64(num_nodes)) + destination
    if num_keys <= max(4 * len(key), 1 << 20):
        pair = np.zeros(num_keys, np.int32)
        pair[key] = 1
        used = np.flatnonzero(pair)
        pair[used] = np.arange(len(used), dtype=np.int32)
        pair_of_message = pair[key]
    else:
        used, inverse = np.unique(key, return_inverse=True)
        pair_of_message = inverse.astype(np.int32)
    is_self = used >= num_nodes * num_nodes
    destination_of_pair = used % num_nodes
    source_of_pair = np.where(is_self, destination_of_pair, used // num_nodes)
    return source_of_pair, destination_of_pair, is_self, pair_of_message


def _links(
    fabric: Fabric, network: Network, num_nodes: int, source: np.ndarray, destination: np.ndarray, is_self: np.ndarray
) -> np.ndarray:
    """Links per pair as of ``Fabric.between``; a node's own routes are numbered after the fabric's links, first
    ``intra_node`` of every node, then ``self``."""
    links = fabric.between(source, destination)
    if getattr(network.topology, "loopback", "own") == "through-links":
        return links
    at_home = np.flatnonzero(source == destination)
    links[at_home] = -1
    links[at_home, 0] = fabric.num_links + source[at_home] + num_nodes * is_self[at_home]
    return links


def _renumbered(num_links: int, there: np.ndarray, back: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The links that some route takes, in order, and both arrays with the places in that list; -1 stays."""
    if num_links <= max(4 * there.size, 1 << 20):
        number = np.zeros(num_links + 1, np.int32)  # the last for -1
        number[there] = 1
        number[back] = 1
        used = np.flatnonzero(number[:-1])
        number[used] = np.arange(len(used), dtype=np.int32)
        number[-1] = -1
        return used, number[there], number[back]
    used, inverse = np.unique(np.concatenate((there.ravel(), back.ravel())), return_inverse=True)
    is_gap = int(len(used) > 0 and used[0] < 0)
    places = (inverse - is_gap).astype(np.int32).reshape(2, *there.shape)
    return used[is_gap:].astype(np.int64), places[0], places[1]


def _figures(fabric: Fabric, network: Network, num_nodes: int, link: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Latency and ps per byte of links, the nodes' own included."""
    first, second = np.searchsorted(link, (fabric.num_links, fabric.num_links + num_nodes))
    latency, ps_per_byte = fabric.figures(link[:first])
    counts = (second - first, len(link) - second)
    own = (network.intra_node, network.self_route)
    return (
        np.concatenate((latency, *(np.full(n, float(route.latency_ps)) for n, route in zip(counts, own, strict=True)))),
        np.concatenate((ps_per_byte, *(np.full(n, route.ps_per_byte) for n, route in zip(counts, own, strict=True)))),
    )


def _names(fabric: Fabric, num_nodes: int, link: np.ndarray) -> tuple[str, ...]:
    first, second = np.searchsorted(link, (fabric.num_links, fabric.num_links + num_nodes))
    own = (link - fabric.num_links).tolist()
    return (
        *fabric.names(link[:first]),
        *(f"inside node {node}" for node in own[first:second]),
        *(f"self of node {node - num_nodes}" for node in own[second:]),
    )


def _listed(links: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows without their gaps: int64 offsets per row, and the links."""
    is_link = links >= 0
    return np.concatenate(([0], np.cumsum(is_link.sum(axis=1)))).astype(np.int64), links[is_link]


def _is_shared_within_node(network: Network) -> bool:
    return getattr(network.topology, "within_node", "unshared") == "shared"
