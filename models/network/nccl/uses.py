"""Which links a collective takes, and how much of its size goes over each.

Each function returns links (int64, each once) and bytes over each for a byte of the collective's size, which is NCCL's:
of all-gather, reduce-scatter and all-to-all all blocks of a member. What channels share evenly is spread over them:

- ring: each hop carries 2 (n - 1) / n of an all-reduce, half of that of all-gather and reduce-scatter, all of a
  broadcast or reduce; a node of m members has m - 1 of its hops on its own links, and one between nodes.
- tree: a node's chain carries all up and down over m - 1 hops; the double binary tree between nodes half of it up and
  down each edge of both (Sanders, Speck, Traff, "Two-tree algorithms for full bandwidth broadcast, reduction and
  scan", Parallel Computing 35, 2009; NCCL's are in src/graph/trees.cc).
- NVLS: each GPU's part is read and written by the switches once, and each head's share comes and goes once more.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from manyscale.models.network.nccl.fabric import Fabric, Placement
from manyscale.models.network.nccl.parameters import NvMesh
from manyscale.models.network.nccl.rings import lanes_used

Uses: TypeAlias = tuple[np.ndarray, np.ndarray]
_NONE = (np.zeros(0, np.int64), np.zeros(0))


def ring_hop(collective: str, num_members: int) -> float:
    """What each hop of a ring carries of the size."""
    part = {"allreduce": 2, "allgather": 1, "reduce_scatter": 1}.get(collective)
    return 1.0 if part is None else part * (num_members - 1) / num_members


def of_algorithm(fabric: Fabric, placed: Placement, collective: str, algorithm: str) -> Uses:
    """Of a collective by one of NCCL's algorithms (not of all-to-all and messages)."""
    key = (collective, algorithm)
    if key not in placed.uses:
        placed.uses[key] = _of_algorithm(fabric, placed, collective, algorithm)
    return placed.uses[key]


def _of_algorithm(fabric: Fabric, placed: Placement, collective: str, algorithm: str) -> Uses:
    hop = ring_hop(collective, placed.num_members)
    if algorithm in ("ring", "pat"):
        parts = [_within(fabric, placed, hop, is_cycle=placed.num_nodes == 1), *_between_rings(fabric, placed, hop)]
    elif algorithm == "collnet":
        parts = [_within(fabric, placed, 2.0, is_cycle=False), *_spread(fabric, placed, np.ones(placed.num_nodes))]
    elif algorithm == "tree":
        parts = [_within(fabric, placed, 2.0, is_cycle=False), *_between_trees(fabric, placed)]
    else:
        parts = [_multicast(fabric, placed, collective), *_between_trees(fabric, placed)]
    return together(parts)


def together(parts: list[Uses]) -> Uses:
    """Links that occur several times added up, those without use left out; in order."""
    links = np.concatenate([part[0] for part in parts])
    used, inverse = np.unique(links, return_inverse=True)
    bytes_over = np.bincount(inverse, np.concatenate([part[1] for part in parts]), len(used))
    kept = bytes_over > 0
    return used[kept].astype(np.int32), bytes_over[kept]


def _both_ways(first: np.ndarray, out: np.ndarray, into: np.ndarray) -> Uses:
    return np.concatenate((first, first + 1)), np.concatenate((out, into))


def _within(fabric: Fabric, placed: Placement, hop: float, *, is_cycle: bool) -> Uses:
    """A chain or, on one node, a cycle through the members of each node, each of whose hops carries ``hop``."""
    share = 1.0 if is_cycle else (placed.beside - 1) / placed.beside
    if isinstance(fabric.nccl.nvlink, NvMesh):
        parts = [_on_mesh(fabric, placed, number, hop, is_cycle) for number in range(placed.num_nodes)]
        return together(parts) if parts else _NONE
    used = np.broadcast_to(hop * share, placed.gpu.shape)
    return _both_ways(fabric.out_of(placed.gpu), used, used)


def _on_mesh(fabric: Fabric, placed: Placement, number: int, hop: float, is_cycle: bool) -> Uses:
    mine = placed.place == number
    local = np.sort(placed.local[mine])
    if len(local) < 2:
        return _NONE
    share = 1.0 if is_cycle else (len(local) - 1) / len(local)
    rings = fabric.rings(tuple(local.tolist()))
    if not rings:
        used = np.full(len(local), hop * share)
        return _both_ways(fabric.first_pci + 2 * placed.gpu[mine], used, used)
    taken = lanes_used(rings, fabric.gpus_per_node)[fabric.pairs[:, 0], fabric.pairs[:, 1]]  # type: ignore[index]
    first = int(placed.nodes[number]) * len(taken)
    return first + np.arange(len(taken)), taken * (hop * share / len(rings))


def _multicast(fabric: Fabric, placed: Placement, collective: str) -> Uses:
    head = 1 / placed.beside
    out = {"allgather": head, "reduce_scatter": np.ones(len(head))}.get(collective, 1 + head)
    into = {"allgather": np.ones(len(head)), "reduce_scatter": head}.get(collective, 1 + head)
    return _both_ways(fabric.out_of(placed.gpu), out, into)


def _spread(fabric: Fabric, placed: Placement, out: np.ndarray, into: np.ndarray | None = None) -> list[Uses]:
    """What each node sends and receives, evenly over the NICs next to its members."""
    if placed.num_nodes < 2:
        return []
    place, rail = placed.rails.T
    each = 1 / placed.rails_of[place]
    into = out if into is None else into
    return [_both_ways(fabric.nic(placed.nodes[place], rail), out[place] * each, into[place] * each)]


def _between_rings(fabric: Fabric, placed: Placement, hop: float) -> list[Uses]:
    parts = _spread(fabric, placed, np.full(placed.num_nodes, hop))
    pods = np.unique(placed.nodes // fabric.pod_nodes)
    if placed.num_nodes > 1 and len(pods) > 1:
        parts.append(_over_pods(fabric, placed, pods, np.full(len(pods), hop), np.full(len(pods), hop)))
    return parts


def _between_trees(fabric: Fabric, placed: Placement) -> list[Uses]:
    count = placed.num_nodes
    if count < 2:
        return []
    child, parent = tree_edges(count)
    sent = 0.5 * (np.bincount(child, minlength=count) + np.bincount(parent, minlength=count))
    parts = _spread(fabric, placed, sent)
    pod, of_node = np.unique(placed.nodes // fabric.pod_nodes, return_inverse=True)
    crossing = of_node[child] != of_node[parent]
    if np.any(crossing):
        ends = np.concatenate((of_node[child[crossing]], of_node[parent[crossing]]))
        sent = 0.5 * np.bincount(ends, minlength=len(pod))
        parts.append(_over_pods(fabric, placed, pod, sent, sent))
    return parts


def _over_pods(fabric: Fabric, placed: Placement, pods: np.ndarray, up: np.ndarray, down: np.ndarray) -> Uses:
    rails = np.unique(placed.rails[:, 1])
    links = fabric.pod(pods[:, None], rails[None, :]).ravel()
    return _both_ways(links, np.repeat(up / len(rails), len(rails)), np.repeat(down / len(rails), len(rails)))


def tree_edges(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Children and parents of both binary trees over ``count`` nodes, int64: 2 (count - 1) edges."""
    child, parent = _binary_tree(count)
    if count % 2:
        return np.concatenate((child, (child + 1) % count)), np.concatenate((parent, (parent + 1) % count))
    return np.concatenate((child, count - 1 - child)), np.concatenate((parent, count - 1 - parent))


def _binary_tree(count: int) -> tuple[np.ndarray, np.ndarray]:
    """In which leaves and inner nodes alternate: the parent of a node with lowest bit b has that bit cleared and the
    next one set, or, where that is beyond the last, cleared alone."""
    node = np.arange(1, count, dtype=np.int64)
    bit = node & -node
    up = (node ^ bit) | (bit << 1)
    return node, np.where(up < count, up, node ^ bit)


def of_pairs(fabric: Fabric, source: np.ndarray, destination: np.ndarray, size: np.ndarray) -> Uses:
    """Of messages between GPUs of the machine: bytes over each link. O(messages)."""
    per_node = fabric.gpus_per_node
    node, target = source // per_node, destination // per_node
    size = np.asarray(size, np.float64)
    home = (node == target) & (source != destination)
    parts = [_NONE]
    if isinstance(fabric.nccl.nvlink, NvMesh):
        route = fabric.pair_routes[source[home] % per_node, destination[home] % per_node]
        joined = route[:, 0] >= 0
        hops = route + (node[home] * len(fabric.pairs))[:, None]  # type: ignore[arg-type]
        for step in range(2):
            there = route[:, step] >= 0
            parts.append((hops[there, step], size[home][there]))
        rest = np.flatnonzero(home)[~joined]
        first = fabric.first_pci
    else:
        rest, first = np.flatnonzero(home), 0
        first = int(fabric.out_of(np.zeros(1, np.int64))[0])
    parts += [(first + 2 * source[rest], size[rest]), (first + 2 * destination[rest] + 1, size[rest])]
    away = node != target
    if np.any(away):
        near = fabric.rails_of_gpu()
        part = size[away] / near.shape[1]
        for column in range(near.shape[1]):
            rail = near[source[away] % per_node, column]
            end = near[destination[away] % per_node, column]
            parts += [(fabric.nic(node[away], rail), part), (fabric.nic(target[away], end) + 1, part)]
            pod, other = node[away] // fabric.pod_nodes, target[away] // fabric.pod_nodes
            cross = pod != other
            parts += [(fabric.pod(pod[cross], rail[cross]), part[cross])]
            parts += [(fabric.pod(other[cross], end[cross]) + 1, part[cross])]
    return together(parts)


def of_all_to_all(fabric: Fabric, placed: Placement) -> Uses:
    """Of an even all-to-all, for a byte of each member's n blocks: 1 / n to each. O(members x GPUs of a node)."""
    count = placed.num_members
    if "alltoall" in placed.uses:
        return placed.uses["alltoall"]
    parts: list[Uses] = [_NONE]
    if isinstance(fabric.nccl.nvlink, NvMesh):
        order = np.argsort(placed.place, kind="stable")
        for mine in np.split(order, np.cumsum(placed.size)[:-1]):
            source, target = (each.ravel() for each in np.meshgrid(placed.gpu[mine], placed.gpu[mine], indexing="ij"))
            other = source != target
            parts.append(of_pairs(fabric, source[other], target[other], np.full(int(other.sum()), 1 / count)))
    else:
        used = (placed.beside - 1) / count
        parts.append(_both_ways(fabric.out_of(placed.gpu), used, used))
    if placed.num_nodes > 1:
        near = fabric.rails_of_gpu()[placed.local]
        away = np.repeat((count - placed.beside) / count / near.shape[1], near.shape[1])
        node, rail = np.repeat(placed.node, near.shape[1]), near.ravel()
        parts.append(_both_ways(fabric.nic(node, rail), away, away))
        pod = placed.node // fabric.pod_nodes
        inside = np.bincount(pod, minlength=fabric.num_pods)[pod]
        if np.any(inside < count):
            up = np.repeat((count - inside) / count / near.shape[1], near.shape[1])
            parts.append(_both_ways(fabric.pod(np.repeat(pod, near.shape[1]), rail), up, up))
    placed.uses["alltoall"] = together(parts)
    return placed.uses["alltoall"]
