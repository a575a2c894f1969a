"""What each algorithm and protocol of NCCL takes, and which NCCL chooses: the quickest.

time = latency + size / bandwidth. Both follow ncclTopoTuneModel and ncclTopoGetAlgoTime (github.com/NVIDIA/nccl at
5067397, src/graph/tuning.cc), with the channels of graphs.py. Of all-reduce: ring, double binary trees between nodes
with chains in them, CollNet (switches of the network that add), NVLS (switches of NVLink that add and multicast), NVLS
within nodes with trees between them; of all-gather and reduce-scatter: ring, NVLS, PAT (where each node has one GPU);
of broadcast and reduce: ring. Size is NCCL's: the whole message, of all-gather and reduce-scatter all blocks.

Two things differ. NCCL's correction of trees has one value from each power of two of the size to the next; here it goes
evenly from one to the next, so that a larger size never takes less. Where ``last_copy_ratio`` is set, a ring's last
step, which only copies what it received, takes that part of the time of one that sends.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log2
from typing import Final

from manyscale.models.network.nccl.constants import (
    LL,
    LL128,
    NVLS_TREE_NET,
    PROTOCOLS,
    SIMPLE,
    TREE_CORRECTION,
    Constants,
)
from manyscale.models.network.nccl.graphs import Graph

REDUCING_ALL: Final = "allreduce"
_SPLIT: Final = ("allgather", "reduce_scatter")


@dataclass(frozen=True)
class Group:
    """A group of ``gpus`` on ``nodes``, and the channels that NCCL has for it. ``nvls`` None: it has no such switches.
    ``has_nvlink``: whether NVLinks join the GPUs of each node."""

    gpus: int
    nodes: int
    has_nvlink: bool
    ring: Graph
    tree: Graph
    nvls: Graph | None
    is_late: bool  # Hopper and later
    has_collnet: bool
    net_latency: float  # us of each hop between nodes beyond NCCL's

    @property
    def index(self) -> int:
        return min(self.nodes, 3) - 1


@dataclass(frozen=True)
class Way:
    """An algorithm with a protocol. ``latency`` in us; ``rate`` in GB/s of the message; ``plateau``: the factor on the
    latency from ``plateau_from`` bytes on."""

    algorithm: str
    protocol: int
    latency: float
    rate: float
    plateau: float = 1.0
    plateau_from: float = inf

    def us(self, size: float) -> float:
        """What a message of ``size`` bytes takes."""
        return self.latency_us(size) + self.transfer_us(size)

    def latency_us(self, size: float) -> float:
        return self.latency * (self.plateau if size >= self.plateau_from else 1.0)

    def transfer_us(self, size: float) -> float:
        rate = self.rate
        if self.algorithm == "tree":
            rate *= _correction(self.protocol, size)
        return size / (1e3 * rate) if rate else inf

    @property
    def name(self) -> str:
        return PROTOCOLS[self.protocol]


def ways(collective: str, group: Group, has: Constants) -> tuple[Way, ...]:
    """All algorithms and protocols that NCCL may take for a collective of a group."""
    found = [_ring(collective, group, has, protocol) for protocol in _protocols(group)]
    if collective == REDUCING_ALL:
        found += [_tree(group, has, protocol) for protocol in _protocols(group)]
        if group.has_collnet and group.nodes > 1:
            found.append(_collnet(group, has))
    if group.nvls is not None and group.nvls.channels > 1:
        if group.nodes == 1 and collective in (REDUCING_ALL, *_SPLIT):
            found.append(_nvls(collective, group, group.nvls, has))
        elif group.nodes > 1 and collective == REDUCING_ALL:
            found.append(_nvls_tree(group, group.nvls, has))
    if collective in _SPLIT and group.nodes == group.gpus > 1:
        found.append(_pat(group, has))
    return tuple(way for way in found if way.rate > 0)


def quickest(found: tuple[Way, ...], size: float) -> Way:
    return min(found, key=lambda way: way.us(size))


def _protocols(group: Group) -> tuple[int, ...]:
    return (LL, LL128, SIMPLE) if group.has_nvlink or group.gpus == group.nodes else (LL, SIMPLE)


def _bandwidth(group: Group, graph: Graph) -> float:
    return graph.channels * (graph.within if group.nodes <= 2 else graph.between)


def _ring(collective: str, group: Group, has: Constants, protocol: int) -> Way:
    rate, count = _bandwidth(group, group.ring), group.gpus
    if protocol == LL:
        rate = min(has.ll_most[group.index], rate / 2) if rate != inf else inf
    elif protocol == LL128:
        rate = min(rate * 0.92, group.ring.channels * has.ring_ll128[group.index]) if rate != inf else inf
    steps = {REDUCING_ALL: 2 * (count - 1), "allgather": count - 1, "reduce_scatter": count - 1}.get(collective, count)
    hops = {REDUCING_ALL: 2 * (count - 1), "allgather": count - 1, "reduce_scatter": count - 1}.get(collective, 1)
    work = hops if collective not in (REDUCING_ALL, *_SPLIT) else (hops + has.last_copy) / count
    within, between = _within(group, has, "ring", protocol), _between(group, has, "ring", protocol)
    latency = has.base["ring"][protocol]
    if collective in ("bcast", "reduce"):
        latency += has.net["ring"][protocol] if group.nodes > 1 else within
    else:
        if group.nodes > 1:
            within = max(within, has.net_overhead * (3 if protocol == SIMPLE else 1))
        outside = 0 if group.nodes == 1 else (2 if collective == REDUCING_ALL else 1) * (group.nodes - 1)
        latency += (steps - outside) * within + outside * between
    plateau_from = inf
    if protocol == SIMPLE and group.nodes > 1 and collective == REDUCING_ALL:
        plateau_from = 64.0 * group.ring.channels * count
    return Way("ring", protocol, latency, rate / work, has.plateau, plateau_from)


def _tree(group: Group, has: Constants, protocol: int) -> Way:
    graph, channels = group.tree, group.tree.channels
    rate = _bandwidth(group, graph)
    if rate != inf:
        rate = min(rate * 0.92, channels * has.tree[group.index])
        if protocol == LL:
            rate = min(rate / 3.8, has.ll_most[group.index])
        elif protocol == LL128:
            rate *= 7 / 9 if group.nodes == 1 else 120 / 128
            rate = min(rate, channels * has.tree_ll128[group.index])
    within, between = _within(group, has, "tree", protocol), _between(group, has, "tree", protocol)
    steps = group.gpus // group.nodes - 1
    latency = has.base["tree"][protocol] + 2 * (steps * within + int(log2(group.nodes)) * between)
    return Way("tree", protocol, latency, rate / 2)


def _collnet(group: Group, has: Constants) -> Way:
    beside = group.gpus / group.nodes
    rate = group.tree.channels * group.tree.within
    if rate != inf:
        ratio = beside / group.tree.channels
        rate /= max(ratio - (ratio - 1) / 2, 1e-9)
        rate *= 0.85 if group.is_late else 1.0
    steps = group.gpus // group.nodes - 1
    within = _within(group, has, "collnet", SIMPLE)
    latency = has.base["collnet"][SIMPLE] + 2 * (min(1, steps) * within + steps * 0.4)
    return Way("collnet", SIMPLE, latency + _between(group, has, "collnet", SIMPLE), rate / 2)


def _nvls_within(graph: Graph, has: Constants) -> float:
    return graph.within * has.nvls_ratio * (graph.channels - 1) / graph.channels


def _nvls(collective: str, group: Group, graph: Graph, has: Constants) -> Way:
    rate = _nvls_within(graph, has) * graph.channels
    if collective == REDUCING_ALL:
        rate *= 2 * group.gpus / (2 * (group.gpus - 1))
    else:
        rate *= (group.gpus - 1) / group.gpus
    return Way("nvls", SIMPLE, _within(group, has, "nvls", SIMPLE), rate)


def _nvls_tree(group: Group, graph: Graph, has: Constants) -> Way:
    between = group.tree.between * group.tree.channels / graph.channels * (2 if group.nodes <= 2 else 1)
    rate = min(2 * _nvls_within(graph, has), between, has.nvls_tree[group.index] if between != inf else inf)
    rate *= graph.channels * group.gpus / (2 * (group.gpus - 1))
    latency = has.base["nvls"][SIMPLE] + _within(group, has, "nvls", SIMPLE)
    step = NVLS_TREE_NET if has.net["nvls"][SIMPLE] else 0.0
    return Way("nvls-tree", SIMPLE, latency + 2 * int(log2(group.nodes)) * (step + 2 * group.net_latency), rate)


def _pat(group: Group, has: Constants) -> Way:
    rate = 0.75 * _bandwidth(group, group.ring)
    steps = int(log2(group.nodes)) * (_between(group, has, "pat", SIMPLE) / 3.5)
    linear = group.gpus * 2.8 if has.base["pat"][SIMPLE] else 0.0
    return Way("pat", SIMPLE, has.base["pat"][SIMPLE] + steps + linear, rate)


def _within(group: Group, has: Constants, algorithm: str, protocol: int) -> float:
    return (has.nvlink if group.has_nvlink else has.pci)[algorithm][protocol]


def _between(group: Group, has: Constants, algorithm: str, protocol: int) -> float:
    """Of a hop between nodes; where each has one GPU of the group, what trees take (their latency is exposed)."""
    own = has.net["tree" if group.gpus == group.nodes else algorithm][protocol]
    return own + group.net_latency * (2 if protocol == SIMPLE else 1)


def _correction(protocol: int, size: float) -> float:
    place = log2(max(size, 1.0) / 64)
    values = TREE_CORRECTION[protocol]
    if place <= 0:
        return float(values[0])
    if place >= len(values) - 1:
        return float(values[-1])
    first = int(place)
    return values[first] + (place - first) * (values[first + 1] - values[first])
