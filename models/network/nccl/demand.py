"""What a collective of NCCL, or a message between GPUs, asks of the links: its latency, its rate and their shares.

Sizes are those of the operations table: the whole message of all-reduce, broadcast and reduce; a member's own block of
all-gather, gather, scatter and reduce-scatter; the block for each member of all-to-all, all blocks of an uneven one; a
message. A barrier is an all-reduce of four bytes, as PyTorch has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.network.nccl import graphs, uses
from manyscale.models.network.nccl.constants import LL, PROTOCOLS, SIMPLE
from manyscale.models.network.nccl.fabric import Fabric, Placement
from manyscale.models.network.nccl.parameters import Measured, Nccl, NvMesh, NvSwitch
from manyscale.models.network.nccl.tables import Curve, beyond_us, from_table, nearest
from manyscale.models.network.nccl.tuner import Group, Way, quickest, ways
from manyscale.models.workload.operation_tables import OperationKind

_ALIKE: Final = {
    "allreduce": "allreduce", "barrier": "allreduce", "allgather": "allgather", "allgatherv": "allgather",
    "reduce_scatter": "reduce_scatter", "bcast": "bcast", "reduce": "reduce", "alltoall": "alltoall",
    "alltoallv": "alltoall", "gather": "gather", "gatherv": "gather", "scatter": "scatter", "scatterv": "scatter",
    "send": "sendrecv", "recv": "sendrecv", "sendrecv": "sendrecv", "ssend": "sendrecv", "bsend": "sendrecv",
}  # fmt: skip
_MESSAGES: Final = ("alltoall", "gather", "scatter", "sendrecv")
_TOGETHER: Final = 8  # messages that a kernel of NCCL's sends side by side (NCCL_MAX_DEV_WORK_P2P_PER_BATCH, device.h)
_BARRIER_BYTES: Final = 4


@dataclass(frozen=True, eq=False)
class Demand:
    """A transfer of ``bytes`` after ``latency_ps``, each byte of which takes ``ps_per_byte`` at least, and over link l
    of the fabric ``uses[l]`` bytes: never less than ``uses`` x the links' own ps per byte. ``links`` int32, each once,
    rising. ``algorithm`` and ``protocol`` as NCCL names them; ``is_measured``: the time is a table's."""

    latency_ps: int
    bytes: int
    ps_per_byte: float
    links: np.ndarray
    uses: np.ndarray
    algorithm: str
    protocol: str
    is_measured: bool = False

    @property
    def time_ps(self) -> int:
        """What it takes alone."""
        return self.latency_ps + round(self.bytes * self.ps_per_byte)


def collective_of(kind: OperationKind) -> str | None:
    """NCCL's collective for a kind of operation, blocking or not; ``sendrecv`` for messages; None if it has none."""
    name = kind.name
    return _ALIKE.get(name) or _ALIKE.get(name.removeprefix("i"))


def demand(
    kind: OperationKind,
    num_bytes: int,
    members: np.ndarray,
    fabric: Fabric,
    nccl: Nccl | None = None,
    counts: np.ndarray | None = None,
) -> Demand:
    """Of an operation of ``num_bytes`` over ``members``, GPUs of the machine in the group's order (of a message source
    and destination). ``counts`` of an uneven one (without them parts are taken to be equal): int64[n, n], bytes from
    each to each of an all-to-all, gather or scatter; int64[n], the part of each member of an all-gather or
    reduce-scatter. ``nccl`` is the fabric's.

    Uneven all-gathers and reduce-scatters are broadcasts and reductions of the parts in one group, as frameworks have
    them (PyTorch, ProcessGroupNCCL.cpp). On a ring each hop carries all parts but that of the member behind it, at most
    all but the smallest: as an even one does whose hops carry as much. They have its latency, too.

    O(members) once for each placement of a group and O(1) after. Raises ValueError for a kind that NCCL has not, and
    groups that do not fit the machine.
    """
    assert nccl is None or nccl is fabric.nccl or nccl == fabric.nccl
    collective = collective_of(kind)
    if collective is None:
        raise ValueError(f"NCCL has no {kind.name}")
    placed = fabric.placement(members)
    if kind in (OperationKind.barrier, OperationKind.ibarrier):
        num_bytes = _BARRIER_BYTES
    if placed.num_members == 1:
        return Demand(0, num_bytes, 0.0, np.zeros(0, np.int32), np.zeros(0), "none", "Simple")
    if kind in (OperationKind.alltoallv, OperationKind.ialltoallv) and counts is None:
        num_bytes = -(-num_bytes // placed.num_members)  # of all blocks, taken to be equal
    if collective in _MESSAGES:
        return _of_messages(collective, num_bytes, placed, fabric, counts)
    size = num_bytes * (placed.num_members if collective in ("allgather", "reduce_scatter") else 1)
    if counts is not None and collective in ("allgather", "reduce_scatter"):
        size = _alike(np.asarray(counts), placed.num_members)
    way, latency_us, time_us, is_measured = _timed(collective, size, placed, fabric)
    links, bytes_over = uses.of_algorithm(fabric, placed, collective, way.algorithm)
    return _demand(size, latency_us, time_us, (links, bytes_over), fabric, way.algorithm, way.name, is_measured)


def _alike(parts: np.ndarray, num_members: int) -> int:
    """The size of all parts of an even collective whose hops on a ring carry as much as those of one with ``parts``."""
    if parts.shape != (num_members,):
        raise ValueError(f"parts of {parts.shape} for a group of {num_members}")
    most = int(parts.sum()) - int(parts.min())
    return -(-most * num_members // (num_members - 1))


def _demand(
    size: int, latency_us: float, time_us: float, used: uses.Uses, fabric: Fabric,
    algorithm: str, protocol: str, is_measured: bool,
) -> Demand:  # fmt: skip
    """No faster than its links are, whatever tuner and table say."""
    links, bytes_over = used
    slope = max(time_us - latency_us, 0.0) * 1e6 / size if size else 0.0
    least = float((bytes_over * fabric.link_ps_per_byte[links]).max(initial=0.0))
    return Demand(round(latency_us * 1e6), size, max(slope, least), links, bytes_over, algorithm, protocol, is_measured)


def _timed(collective: str, size: int, placed: Placement, fabric: Fabric) -> tuple[Way, float, float, bool]:
    """The way that NCCL takes, its latency and time in us, and whether the time is a table's."""
    key = (placed.pattern, collective, size)
    if key not in fabric.found:
        found = _ways(collective, placed, fabric)
        way = quickest(found, size)
        latency, time, is_measured = way.latency_us(size), way.us(size), False
        curve = _curve(collective, placed, fabric)
        if curve is not None and curve.table.nodes == 1 < placed.num_nodes:
            time += beyond_us(curve, size)
        elif curve is not None:
            alike = curve.ring == group_of(placed, fabric).ring
            time, is_measured = from_table(curve, found, size, has_its_channels=alike), True
            latency = min(latency, time)
        fabric.found[key] = way, latency, time, is_measured
    return fabric.found[key]  # type: ignore[return-value]


def _ways(collective: str, placed: Placement, fabric: Fabric) -> tuple[Way, ...]:
    key = (placed.pattern, collective)
    if key not in fabric.found:
        fabric.found[key] = ways(collective, group_of(placed, fabric), fabric.constants)
    return fabric.found[key]  # type: ignore[return-value]


def group_of(placed: Placement, fabric: Fabric) -> Group:
    """The channels of a group as NCCL's search has them."""
    nccl, has = fabric.nccl, fabric.constants
    link, count, num_nodes = nccl.nvlink, placed.num_members, placed.num_nodes
    is_late = nccl.generation in ("hopper", "blackwell")
    alone = int(placed.size.max()) == 1
    has_nvlink = link is not None
    total = fabric.pci_gb_s
    if isinstance(link, NvSwitch):
        total = link.links * fabric.lane_gb_s
        ring = graphs.switched(total, has.speeds_within, is_late)
    elif isinstance(link, NvMesh) and not alone:
        num_rings = min(len(fabric.rings(tuple(each))) for each in _sets(placed))
        has_nvlink = num_rings > 0
        total = num_rings * fabric.lane_gb_s if num_rings else fabric.pci_gb_s
        ring = graphs.meshed(num_rings, fabric.lane_gb_s) if num_rings else graphs.Graph(1, total, total)
    else:
        ring = graphs.Graph(1, total, total)
    tree = ring
    if num_nodes > 1:
        total = float("inf") if alone else total
        rails = int(placed.rails_of.min())
        ring = graphs.networked(total, rails, fabric.nic_gb_s, has.speeds_between, is_late)
        beside = max(int(placed.size.max()), 2)
        tree = graphs.trees_between(ring, total * beside / (beside - 1), rails, fabric.nic_gb_s, has.speeds_between)
    nvls = None
    if isinstance(link, NvSwitch) and link.multicast and has.nvls_ratio and not alone:
        nvls = graphs.nvls(total, int(placed.size.min()), has.speeds_within)
    hop = nccl.nics.latency_ps / 1e6 if nccl.nics else 0.0
    return Group(count, num_nodes, has_nvlink, ring, tree, nvls, is_late, nccl.collnet, hop)


def _sets(placed: Placement) -> list[list[int]]:
    """The GPUs of each node that has several members, by its own numbers."""
    order = np.lexsort((placed.local, placed.place))
    return [each.tolist() for each in np.split(placed.local[order], np.cumsum(placed.size)[:-1]) if len(each) > 1]


def _curve(collective: str, placed: Placement, fabric: Fabric) -> Curve | None:
    key = ("curve", collective, placed.pattern)
    if key not in fabric.found:
        table = nearest(
            fabric.nccl.tables, collective, placed.num_members, placed.num_nodes,
            lambda table: table.gpus // table.nodes <= fabric.gpus_per_node,
        )  # fmt: skip
        fabric.found[key] = None if table is None else _curve_of(table, fabric)
    return fabric.found[key]  # type: ignore[return-value]


def _curve_of(table: Measured, fabric: Fabric) -> Curve:
    """With what the tuner has for the group that was measured: the first GPUs of the first nodes."""
    nccl, home = fabric.nccl.as_measured(table), fabric
    if nccl is not fabric.nccl or fabric.num_nodes < table.nodes:
        home = Fabric(nccl, fabric.gpus_per_node, max(table.nodes, fabric.num_nodes))
    each = table.gpus // table.nodes
    members = np.add.outer(np.arange(table.nodes) * fabric.gpus_per_node, np.arange(each)).ravel()
    placed = home.placement(members)
    return Curve(table, _ways(table.collective, placed, home), group_of(placed, home).ring)


def _of_messages(
    collective: str, num_bytes: int, placed: Placement, fabric: Fabric, counts: np.ndarray | None
) -> Demand:
    """All-to-all, gather, scatter and single messages are sends and receives side by side: latency, then what the
    slowest link takes. LL halves the bandwidth of Simple and has less latency."""
    count, size = placed.num_members, num_bytes
    peers = count - 1
    if counts is not None:
        used, size = _uneven(fabric, placed, counts)
        partners = (np.asarray(counts) > 0) & ~np.eye(count, dtype=bool)
        peers = int(max(partners.sum(axis=0).max(), partners.sum(axis=1).max()))
    elif collective == "alltoall":
        size = num_bytes * count
        used = uses.of_all_to_all(fabric, placed)
    else:
        used = _from_root(collective, fabric, placed)
    links, bytes_over = used
    share = bytes_over * fabric.link_ps_per_byte[links] / fabric.link_ratio[links]
    slope = float(share.max(initial=0.0)) / 1e6
    has, is_away = fabric.constants, placed.num_nodes > 1
    hop = fabric.nccl.nics.latency_ps / 1e6 if is_away and fabric.nccl.nics else 0.0
    by_link = has.net if is_away else (has.nvlink if fabric.nccl.nvlink is not None else has.pci)
    rounds = -(-max(peers, 1) // _TOGETHER)
    found = []
    for protocol, factor in ((LL, 2.0), (SIMPLE, 1.0)):
        latency = has.base["ring"][protocol] + rounds * (by_link["ring"][protocol] + hop * factor)
        found.append((latency + factor * slope * size, latency, protocol))
    time, latency, protocol = min(found)
    curve = _curve(collective, placed, fabric) if counts is None and collective in ("alltoall", "sendrecv") else None
    is_measured = curve is not None and curve.table.gpus == count and curve.table.nodes == placed.num_nodes
    if curve is not None and is_measured:
        time = curve.us(size)
        latency = min(latency, time)
    return _demand(size, latency, time, used, fabric, collective, PROTOCOLS[protocol], is_measured)


def _from_root(collective: str, fabric: Fabric, placed: Placement) -> uses.Uses:
    """Of gather and scatter (the group's first member is the root) and single messages, for a byte of each."""
    key = (collective, int(placed.gpu[0]))
    if key not in placed.uses:
        root, rest = np.repeat(placed.gpu[:1], placed.num_members - 1), placed.gpu[1:]
        source, target = (rest, root) if collective == "gather" else (root, rest)
        placed.uses[key] = uses.of_pairs(fabric, source, target, np.ones(len(rest)))
    return placed.uses[key]


def _uneven(fabric: Fabric, placed: Placement, counts: np.ndarray) -> tuple[uses.Uses, int]:
    """Of bytes from each to each, for a byte of the most that a member sends or receives, and that."""
    counts = np.asarray(counts)
    if counts.shape != (placed.num_members,) * 2:
        raise ValueError(f"counts of {counts.shape} for a group of {placed.num_members}")
    sent = counts * ~np.eye(len(counts), dtype=bool)
    size = int(max(sent.sum(axis=0).max(), sent.sum(axis=1).max()))
    source, target = np.nonzero(sent)
    links, over = uses.of_pairs(fabric, placed.gpu[source], placed.gpu[target], sent[source, target])
    return (links, over / max(size, 1)), size
