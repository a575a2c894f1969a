"""The links over which GPUs of a machine reach each other, numbered over the whole machine, and where a group stands.

Links are directed. GPU g of the machine is GPU g mod G of node g div G, G GPUs a node. In order: of each GPU its ports
to the node's switches (NvSwitch), or of each node the pairs that NVLinks join (NvMesh); of each GPU its PCIe, out and
in; of each node its NICs, out and in; of each pod and rail its links to other pods, up and down.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import inf

import numpy as np

from manyscale.models.machine import Machine
from manyscale.models.machine.topology import refuse_too_many
from manyscale.models.network.nccl.constants import Constants, constants
from manyscale.models.network.nccl.parameters import Nccl, NvMesh, NvSwitch
from manyscale.models.network.nccl.rings import Ring, find_rings

NIC_RATIO = 0.96  # of a NIC's rate: NCCL's search counts 24 GB/s of 200 Gbit/s, 48 of 400 (search.cc)
_NATIVE_GB_S = {"volta": 25.0, "ampere": 25.0, "hopper": 25.0, "blackwell": 50.0}  # of an NVLink, data sheets


def _gb_s(ps_per_byte: float, ratio: float = 1.0) -> float:
    """Without the last digits: 15 GB/s carry a channel of 15 GB/s."""
    return float(f"{1e3 / ps_per_byte * ratio:.12g}")


@dataclass(frozen=True, eq=False)
class Placement:
    """Where the members of a group stand. ``nodes`` distinct nodes, rising; per member ``gpu`` (of the machine),
    ``node``, ``local``, ``place`` (its node's place in ``nodes``) and ``beside`` (members on its node, itself
    included); per node ``size``. ``rails``: int64[n, 2] of places of nodes and their NICs next to members, with
    ``rails_of`` many for each node. ``pattern``: what decides times, the same for all groups that stand alike."""

    gpu: np.ndarray
    node: np.ndarray
    local: np.ndarray
    nodes: np.ndarray
    place: np.ndarray
    beside: np.ndarray
    size: np.ndarray
    rails: np.ndarray
    rails_of: np.ndarray
    pattern: tuple[object, ...]
    uses: dict[object, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    @property
    def num_members(self) -> int:
        return len(self.gpu)

    @property
    def num_nodes(self) -> int:
        return len(self.nodes)


class Fabric:
    """The links of ``num_nodes`` nodes of ``gpus_per_node`` GPUs. Raises ValueError where those do not fit the block.

    What was found of groups is kept: placements by members, rings and times by pattern.
    """

    def __init__(self, nccl: Nccl, gpus_per_node: int, num_nodes: int) -> None:
        self.nccl, self.gpus_per_node, self.num_nodes = nccl, gpus_per_node, num_nodes
        self.constants: Constants = constants(nccl)
        link, nics = nccl.nvlink, nccl.nics
        if gpus_per_node < 1:
            raise ValueError("network.nccl: nodes without GPUs; set node.gpus")
        if isinstance(link, NvMesh) and len(link.lanes) < gpus_per_node:
            raise ValueError(f"network.nccl.nvlink.topology: {len(link.lanes)} GPUs, but node.gpus are {gpus_per_node}")
        if nics and nics.count % gpus_per_node and gpus_per_node % nics.count:
            raise ValueError(f"network.nccl.nics: {nics.count} NICs cannot be shared evenly by {gpus_per_node} GPUs")
        self.num_nics = nics.count if nics else 0
        self.pod_nodes = (nics.pod_nodes if nics else None) or num_nodes
        self.num_pods = -(-num_nodes // self.pod_nodes)
        num_gpus = num_nodes * gpus_per_node
        self.pairs = np.argwhere(link.lanes[:gpus_per_node, :gpus_per_node] > 0) if isinstance(link, NvMesh) else None
        of_pairs = 0 if self.pairs is None else num_nodes * len(self.pairs)
        self.first_pci = of_pairs + (2 * num_gpus if isinstance(link, NvSwitch) else 0)
        self.first_nic = self.first_pci + 2 * num_gpus
        self.first_pod = self.first_nic + 2 * num_nodes * self.num_nics
        self.num_links = self.first_pod + (2 * self.num_pods * self.num_nics if self.num_pods > 1 else 0)
        refuse_too_many(self.num_links)
        self._placements: dict[bytes, Placement] = {}
        self._rings: dict[tuple[int, ...], tuple[Ring, ...]] = {}
        self.found: dict[object, object] = {}

    @classmethod
    def of(cls, machine: Machine) -> Fabric | None:
        """Of a machine; None if it has no block ``network.nccl``."""
        nccl = Nccl.of(machine.network)
        return None if nccl is None else cls(nccl, machine.node.num_gpus, machine.num_nodes)

    @cached_property
    def link_ps_per_byte(self) -> np.ndarray:
        """float64[links]: what a byte takes of each."""
        link, nics, rate = self.nccl.nvlink, self.nccl.nics, np.zeros(self.num_links)
        if isinstance(link, NvSwitch):
            rate[: self.first_pci] = link.link_ps_per_byte / link.links
        elif isinstance(link, NvMesh) and self.pairs is not None:
            lanes = link.lanes[self.pairs[:, 0], self.pairs[:, 1]]
            rate[: self.first_pci] = np.tile(link.link_ps_per_byte / lanes, self.num_nodes)
        rate[self.first_pci : self.first_nic] = self.nccl.pci.ps_per_byte
        if nics:
            rate[self.first_nic : self.first_pod] = nics.ps_per_byte
            share = nics.oversubscription / self.pod_nodes
            rate[self.first_pod :] = nics.ps_per_byte * share
        return rate

    @cached_property
    def link_ratio(self) -> np.ndarray:
        """float64[links]: the part of each that a transfer of NCCL's reaches."""
        ratio = np.ones(self.num_links)
        ratio[: self.first_pci] = self.nvlink_ratio
        ratio[self.first_nic : self.first_pod] = NIC_RATIO
        return ratio

    @cached_property
    def nvlink_ratio(self) -> float:
        """The part of an NVLink that NCCL counts on."""
        return min(1.0, self.constants.link / _NATIVE_GB_S[self.nccl.generation])

    @property
    def lane_gb_s(self) -> float:
        """GB/s that NCCL counts for one NVLink."""
        link = self.nccl.nvlink
        if link is None or not link.link_ps_per_byte:
            return inf
        return _gb_s(link.link_ps_per_byte, self.nvlink_ratio)

    @property
    def pci_gb_s(self) -> float:
        return _gb_s(self.nccl.pci.ps_per_byte) if self.nccl.pci.ps_per_byte else inf

    @property
    def nic_gb_s(self) -> float:
        nics = self.nccl.nics
        return _gb_s(nics.ps_per_byte) if nics and nics.ps_per_byte else inf

    def link_name(self, link: int) -> str:
        """What a link is, for tables and messages."""
        if link < self.first_pci:
            if self.pairs is not None:
                node, pair = divmod(link, len(self.pairs))
                one, other = self.pairs[pair]
                return f"NVLink of node {node}: GPU {one} > GPU {other}"
            return self._of_gpu("NVLink", link)
        if link < self.first_nic:
            return self._of_gpu("PCIe", link - self.first_pci)
        if link < self.first_pod:
            each, way = divmod(link - self.first_nic, 2)
            return f"NIC {each % self.num_nics} of node {each // self.num_nics} {('out', 'in')[way]}"
        each, way = divmod(link - self.first_pod, 2)
        return f"rail {each % self.num_nics} of pod {each // self.num_nics} {('up', 'down')[way]}"

    def _of_gpu(self, what: str, link: int) -> str:
        gpu, way = divmod(link, 2)
        node, local = divmod(gpu, self.gpus_per_node)
        return f"{what} of GPU {local} of node {node} {('out', 'in')[way]}"

    def out_of(self, gpu: np.ndarray) -> np.ndarray:
        """Of GPUs of the machine the ports to their switches, without NVLink to PCIe; the next link is the way in."""
        return 2 * gpu + (0 if isinstance(self.nccl.nvlink, NvSwitch) else self.first_pci)

    def nic(self, node: np.ndarray, rail: np.ndarray) -> np.ndarray:
        """The way out of NICs; the next link is the way in."""
        return self.first_nic + 2 * (node * self.num_nics + rail)

    def pod(self, pod: np.ndarray, rail: np.ndarray) -> np.ndarray:
        """The way up from pods; the next link is the way down."""
        return self.first_pod + 2 * (pod * self.num_nics + rail)

    def rails_of_gpu(self) -> np.ndarray:
        """int64[GPUs of a node, NICs of each]: the rails next to it."""
        local = np.arange(self.gpus_per_node)[:, None]
        if self.num_nics >= self.gpus_per_node:
            each = self.num_nics // self.gpus_per_node
            return local * each + np.arange(each)
        return local * self.num_nics // self.gpus_per_node

    def placement(self, members: np.ndarray) -> Placement:
        """Where a group stands. Raises ValueError for GPUs that the machine has not, twice the same, or on several
        nodes of a machine without NICs. O(members log members)."""
        gpu = np.ascontiguousarray(members, np.int64)
        key = gpu.tobytes()
        if key not in self._placements:
            self._placements[key] = self._placed(gpu)
        return self._placements[key]

    def _placed(self, gpu: np.ndarray) -> Placement:
        most = self.num_nodes * self.gpus_per_node
        if not len(gpu) or gpu.min() < 0 or gpu.max() >= most:
            raise ValueError(
                f"a group of GPUs {gpu.min(initial=0)} to {gpu.max(initial=0)}, but the machine has {most}"
            )
        if len(np.unique(gpu)) != len(gpu):
            raise ValueError("a GPU twice in one group; give each rank a GPU of its own")
        node, local = np.divmod(gpu, self.gpus_per_node)
        nodes, place, size = np.unique(node, return_inverse=True, return_counts=True)
        if len(nodes) > 1 and not self.num_nics:
            raise ValueError("network.nccl has no nics, but a group is on several nodes; add nics")
        if self.num_nics:
            near = self.rails_of_gpu()[local]
            each = np.stack((np.repeat(place, near.shape[1]), near.ravel()), axis=1)
            rails = np.unique(each, axis=0)
        else:
            rails = np.zeros((0, 2), np.int64)
        rails_of = np.bincount(rails[:, 0], minlength=len(nodes))
        pattern: tuple[object, ...] = (len(gpu), len(nodes), int(size.min()), int(size.max()), int(rails_of.min()))
        if isinstance(self.nccl.nvlink, NvMesh):
            order = np.lexsort((local, place))
            sets = np.split(local[order], np.cumsum(size)[:-1])
            pattern += (tuple(sorted({tuple(each.tolist()) for each in sets})),)
        return Placement(gpu, node, local, nodes, place, size[place], size, rails, rails_of, pattern)

    def rings(self, local: tuple[int, ...]) -> tuple[Ring, ...]:
        """Rings of a mesh over GPUs of a node, rising."""
        link = self.nccl.nvlink
        assert isinstance(link, NvMesh)
        if local not in self._rings:
            self._rings[local] = find_rings(link.lanes, local)
        return self._rings[local]

    @cached_property
    def pair_number(self) -> np.ndarray:
        """int64[GPUs, GPUs] of a node with a mesh: the number of each pair's link in the node, -1 without one."""
        number = np.full((self.gpus_per_node, self.gpus_per_node), -1, np.int64)
        if self.pairs is not None:
            number[self.pairs[:, 0], self.pairs[:, 1]] = np.arange(len(self.pairs))
        return number

    @cached_property
    def pair_routes(self) -> np.ndarray:
        """int64[GPUs, GPUs, 2] of a node with a mesh: links of the node from each GPU to each other, by way of a third
        one where no NVLink joins them (that with most NVLinks); -1 where there is none."""
        link = self.nccl.nvlink
        assert isinstance(link, NvMesh)
        count = self.gpus_per_node
        lanes = link.lanes[:count, :count]
        routes = np.full((count, count, 2), -1, np.int64)
        routes[:, :, 0] = self.pair_number
        through = np.minimum(lanes[:, :, None], lanes[None, :, :])  # from, by, to
        by = through.argmax(axis=1)
        for one, other in np.argwhere((lanes == 0) & ~np.eye(count, dtype=bool) & (through.max(axis=1) > 0)):
            middle = by[one, other]
            routes[one, other] = self.pair_number[one, middle], self.pair_number[middle, other]
        return routes
