"""What collectives of NCCL read of a machine: block ``network.nccl``.

Constants that NCCL's tuner has stand under ``tuner``, each with NCCL's own value unless the target says another
(network/nccl/constants.py).
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

import numpy as np
from pydantic import Field, model_validator

from manyscale.models.machine.blocks import Block
from manyscale.models.network.nccl.link_matrix import lanes_of
from manyscale.models.workload.parameters import Bytes, Count, PsPerByte, Strict, TimePs

Generation: TypeAlias = Literal["volta", "ampere", "hopper", "blackwell"]
Ratio = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
PerProtocol: TypeAlias = tuple[TimePs, TimePs, TimePs]  # LL, LL128, Simple
COLLECTIVES = ("allreduce", "allgather", "reduce_scatter", "bcast", "reduce", "alltoall", "sendrecv")


class NvSwitch(Strict):
    """All GPUs of a node on switches, each with as many NVLinks."""

    kind: Literal["switch"]
    """`switch`: over NVSwitches."""
    links: Count
    """The NVLinks of each GPU."""
    link_ps_per_byte: PsPerByte = Field(alias="link_bandwidth")
    """What one NVLink carries, in each direction."""
    multicast: bool = False
    """Whether the switches add and multicast (NVLS), from the third generation on."""


class NvMesh(Strict):
    """NVLinks between pairs of GPUs."""

    kind: Literal["mesh"]
    """`mesh`: between pairs of GPUs."""
    link_ps_per_byte: PsPerByte = Field(alias="link_bandwidth")
    """What one NVLink carries, in each direction."""
    topology: str = ""
    """Which GPUs are joined by how many links: what `nvidia-smi topo -m` prints, or NCCL's topology in XML."""
    topology_file: str | None = None
    """In its place the file that holds it, beside that of the target."""

    @model_validator(mode="after")
    def _is_readable(self) -> NvMesh:
        if self.topology_file is not None:  # who reads targets puts its content into topology
            raise ValueError("topology_file: only a target's own file may name one; write topology here")
        if not self.lanes.any():
            raise ValueError("topology: no NVLink joins two GPUs; leave nvlink out")
        return self

    @property
    def lanes(self) -> np.ndarray:
        """int64[GPUs, GPUs]: NVLinks from each to each. Raises ValueError for a text that is neither."""
        return lanes_of(self.topology)


class Pci(Strict):
    """What a GPU without NVLink to another one reaches over PCIe."""

    ps_per_byte: PsPerByte = Field(default="12 GB/s", alias="bandwidth", validate_default=True)
    """The bandwidth, in each direction. NCCL counts 12 GB/s for 16 lanes of the third generation."""


class Nics(Strict):
    """The network of GPUs between nodes. NIC k of each node is on rail k; a GPU uses those next to it."""

    count: Count
    """The NICs of a node: a multiple or a divisor of its GPUs."""
    ps_per_byte: PsPerByte = Field(alias="bandwidth")
    """What one NIC carries, in each direction."""
    latency_ps: TimePs = Field(default=0, alias="latency")
    """What each hop between nodes takes beyond what NCCL's tuner counts for InfiniBand."""
    pod_nodes: Count | None = None
    """Nodes whose NICs of one rail are on one switch. By default all are."""
    oversubscription: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.0
    """How many times more the NICs of a pod carry than its links to other pods."""


class Tuner(Strict):
    """NCCL's constants where the target has others than NCCL. Times: of LL, LL128 and Simple."""

    base_latencies: dict[Literal["ring", "tree", "pat"], PerProtocol] = {}
    """What a collective takes beside its steps, by algorithm."""
    nvlink_latencies: dict[Literal["ring", "tree", "collnet", "nvls", "pat"], PerProtocol] = {}
    """What a step over NVLink takes, by algorithm."""
    pci_latencies: dict[Literal["ring", "tree", "collnet", "nvls", "pat"], PerProtocol] = {}
    """What a step over PCIe takes, by algorithm."""
    net_latencies: dict[Literal["ring", "tree", "collnet", "nvls", "pat"], PerProtocol] = {}
    """What a step between nodes takes, by algorithm."""
    net_overhead_ps: TimePs | None = Field(default=None, alias="net_overhead")
    """What a node takes to post a message to the network."""
    link_ps_per_byte: PsPerByte | None = Field(default=None, alias="link_bandwidth")
    """What NCCL counts for one NVLink."""
    ll_ps_per_byte: PsPerByte | None = Field(default=None, alias="ll_bandwidth")
    """The most that LL reaches in all."""
    last_copy_ratio: Ratio = 0.0
    """What the last step of a ring, which only copies what it got, takes of the time of one that sends. NCCL's tuner
    counts nothing for it."""


class Measured(Strict):
    """A measured table: what a collective of ``gpus`` on ``nodes`` takes by its size."""

    collective: Literal["allreduce", "allgather", "reduce_scatter", "bcast", "reduce", "alltoall", "sendrecv"]
    """Which collective."""
    gpus: Count
    """The GPUs that take part."""
    nodes: Count = 1
    """The nodes that they are on, evenly."""
    link_ps_per_byte: PsPerByte | None = Field(default=None, alias="link_bandwidth")
    """What an NVLink of the measured machine carries, by default that of `nvlink`: with another there, times change."""
    nic_ps_per_byte: PsPerByte | None = Field(default=None, alias="nic_bandwidth")
    """What a NIC of the measured machine carries, by default that of `nics`."""
    floor_ps: TimePs = Field(default=0, alias="floor")
    """What the harness that measured takes for each, which is no part of the collective."""
    sizes_bytes: tuple[Bytes, ...] = Field(alias="sizes")
    """Sizes of the whole message, as nccl-tests counts them, rising."""
    times_ps: tuple[TimePs, ...] = Field(alias="times")
    """What each takes, with the floor."""

    @model_validator(mode="after")
    def _is_a_table(self) -> Measured:
        if len(self.sizes_bytes) != len(self.times_ps) or not self.sizes_bytes:
            raise ValueError(f"sizes: {len(self.sizes_bytes)} sizes and {len(self.times_ps)} times; give one for each")
        if list(self.sizes_bytes) != sorted(set(self.sizes_bytes)) or self.sizes_bytes[0] < 1:
            raise ValueError("sizes: they must rise, from 1 B on")
        if list(self.times_ps) != sorted(self.times_ps) or self.times_ps[0] <= self.floor_ps:
            raise ValueError("times: they must not fall, and be more than the floor")
        if self.gpus < 2 or self.gpus % self.nodes:
            raise ValueError(f"gpus: {self.gpus} on {self.nodes} nodes; give at least two, as many on each")
        return self


class Nccl(Block):
    """How GPUs reach each other, and how NCCL uses that. See network/nccl/tuner.py."""

    key: ClassVar[str] = "network.nccl"

    generation: Generation
    """The generation of the GPUs, by which NCCL chooses its constants."""
    cpu: Literal["intel", "amd", "other"] = "intel"
    """The make of the nodes' CPUs, by which NCCL chooses some constants between nodes."""
    nvlink: Annotated[NvSwitch | NvMesh, Field(discriminator="kind")] | None = None
    """NVLinks. By default GPUs of a node reach each other over PCIe."""
    pci: Pci = Pci()
    """PCIe, for GPUs that no NVLink joins."""
    nics: Nics | None = None
    """The network of GPUs between nodes. Without it, collectives are within nodes."""
    collnet: bool = False
    """Whether the network's switches add (SHARP)."""
    tuner: Tuner = Tuner()
    """Constants of NCCL's tuner that differ from NCCL's."""
    tables: tuple[Measured, ...] = ()
    """What was measured. Other collectives, numbers of GPUs and of nodes follow the table that is nearest."""

    def as_measured(self, table: Measured) -> Nccl:
        """The block with the links of the machine on which a table was measured."""
        changed: dict[str, NvSwitch | NvMesh | Nics] = {}
        for name, own in (("nvlink", table.link_ps_per_byte), ("nics", table.nic_ps_per_byte)):
            part, key = getattr(self, name), "link_ps_per_byte" if name == "nvlink" else "ps_per_byte"
            if part is not None and own is not None and own != getattr(part, key):
                changed[name] = part.model_copy(update={key: own})
        return self.model_copy(update=changed) if changed else self
