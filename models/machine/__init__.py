"""The target machine: frozen, validated parameters. Files are parsed elsewhere; every dimension carries its unit."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from manyscale.models.gpu.parameters import Gpu
from manyscale.models.machine.processor import Cache, Core, MainMemory, Numa, Tlb
from manyscale.models.machine.topology import Topology, most_nodes
from manyscale.models.network.collectives.rules import CollectiveChoice
from manyscale.models.workload.parameters import (
    Bytes,
    Count,
    CountOrNone,
    FrequencyHz,
    PsPerByte,
    Strict,
    TimePs,
)


class Node(Strict):
    """One node: ``sockets`` sockets of ``cores_per_socket`` cores, and ``gpus`` GPUs that are all alike."""

    sockets: Count
    cores_per_socket: Count
    frequency_hz: FrequencyHz | None = Field(default=None, alias="frequency")  # for those models that count cycles
    memory_bytes: Bytes | None = Field(default=None, alias="memory")
    caches: dict[str, Cache] = {}  # L1D (and L1I), L2, L3, ...
    tlbs: dict[str, Tlb] = {}  # for data, the nearest first
    main_memory: MainMemory | None = None
    numa: Numa | None = None  # between sockets
    core: Core | None = None
    num_gpus: CountOrNone = Field(default=0, alias="gpus")
    gpu: Gpu | None = None

    @model_validator(mode="after")
    def _gpus_are_described(self) -> Node:
        if self.num_gpus and self.gpu is None:
            raise ValueError(f"gpus: {self.num_gpus}, but no key 'gpu' says what they are")
        if self.gpu is not None and not self.num_gpus:
            raise ValueError("gpu: the node has none; add the key 'gpus' (1, for example)")
        return self

    @property
    def num_cores(self) -> int:
        return self.sockets * self.cores_per_socket


class Link(Strict):
    """Latency and bandwidth of one class of route."""

    latency_ps: TimePs = Field(alias="latency")
    ps_per_byte: PsPerByte = Field(alias="bandwidth")


class LogGops(Strict):
    """What the LogGOPS model adds: CPU time of each send and receive (o, and O per byte as ``overhead_bandwidth``) and
    the gap between messages at a network interface (g). L, G and S are the network's latency, bandwidth and eager
    threshold; ``latency`` is L where the network's own contains the overheads of both ends."""

    overhead_ps: TimePs = Field(alias="overhead")
    gap_ps: TimePs = Field(alias="gap")
    overhead_ps_per_byte: PsPerByte = Field(alias="overhead_bandwidth")
    latency_ps: TimePs | None = Field(default=None, alias="latency")


class DimemasLinks(Strict):
    """How many transfers may leave and enter at once, and how many pass in all; 0 is without limit. If only one of the
    two numbers of links is 0, the links of the other serve both directions, one transfer at a time (half duplex)."""

    output_links: CountOrNone = 0
    input_links: CountOrNone = 0
    buses: CountOrNone = 0


class Dimemas(Strict):
    """What the Dimemas model adds.

    ``inter_node``: links of each node, and buses of the network; ``intra_node``: links of each rank to others of its
    node, and buses of each node. ``cpu_ratios``: how much faster than the traced CPUs those of each node are, one for
    all or one per node; with 0 compute takes no time.
    """

    inter_node: DimemasLinks = DimemasLinks()
    intra_node: DimemasLinks = DimemasLinks()
    cpu_ratios: tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...] = ()


class SizeFactor(Strict):
    """A factor for messages of more than ``above`` bytes, envelope included."""

    above_bytes: Bytes = Field(alias="above")
    factor: Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Flow(Strict):
    """What the flow model has beyond plain max-min sharing; nothing by default. See network/flow/model.py.

    Factors hold from one ``above`` to the next. ``window``: TCP's, a flow has at most window / (2 latency).
    ``weight``: each link of B bytes/s counts as weight / B more latency where the sharing is weighted.
    ``cross_traffic``: share of a flow's rate that goes the opposite way.
    """

    bandwidth_factors: tuple[SizeFactor, ...] = ()
    latency_factors: tuple[SizeFactor, ...] = ()
    window_bytes: Bytes | None = Field(default=None, alias="window")
    weight_bytes: Bytes = Field(default=0, alias="weight")
    cross_traffic_ratio: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = Field(
        default=0.0, alias="cross_traffic"
    )

    @model_validator(mode="after")
    def _sizes_rise(self) -> Flow:
        for key in ("bandwidth_factors", "latency_factors"):
            sizes = [one.above_bytes for one in getattr(self, key)]
            if sizes != sorted(set(sizes)):
                raise ValueError(f"{key}: 'above' must rise from one factor to the next")
        return self


class Network(Strict):
    """Parameters of message transfer.

    A message of S bytes costs ``latency + (S + envelope) / bandwidth`` of the route it takes: ``self`` from a rank to
    itself, ``intra_node`` between ranks of one node, else the network proper. Sends under ``eager_threshold`` do not
    wait for their receiver. With ``transfer_start: match`` every transfer starts once both sides are posted; with
    ``eager`` an eager message travels as soon as it is sent and waits at the receiver. ``collectives`` is a preset's
    name, or rules that choose an algorithm or a formula by collective, size and number of ranks. ``loggops``,
    ``dimemas``, ``flow`` and ``topology`` are read by the models that need them.
    """

    latency_ps: TimePs = Field(alias="latency")
    ps_per_byte: PsPerByte = Field(alias="bandwidth")
    envelope_bytes: Bytes = Field(alias="envelope")
    eager_threshold_bytes: Bytes = Field(alias="eager_threshold")
    transfer_start: Literal["match", "eager"]
    collectives: CollectiveChoice
    intra_node: Link
    self_route: Link = Field(alias="self")
    loggops: LogGops | None = None
    dimemas: Dimemas | None = None
    flow: Flow | None = None
    topology: Topology | None = None


class Machine(Strict):
    """A target machine. ``sources`` say where each group of numbers comes from."""

    schema_version: Literal[1] = Field(alias="schema")
    name: str
    description: str
    num_nodes: Count = Field(alias="nodes")
    node: Node
    network: Network
    sources: dict[str, str]

    @model_validator(mode="after")
    def _every_part_has_a_source(self) -> Machine:
        missing = [part for part in ("nodes", "node", "network") if part not in self.sources]
        if missing:
            raise ValueError(f"sources: no source is given for {', '.join(missing)}")
        return self

    @model_validator(mode="after")
    def _every_node_has_its_place(self) -> Machine:
        room = None if self.network.topology is None else most_nodes(self.network.topology)
        if room is not None and self.num_nodes > room:
            raise ValueError(f"network.topology has room for {room:,} nodes, not {self.num_nodes:,}; make it larger")
        return self

    @property
    def num_cores(self) -> int:
        return self.num_nodes * self.node.num_cores


def ideal_network(network: Network) -> Network:
    """The same protocol with zero latency and infinite bandwidth on every route (POP's ideal network), without CPU
    overheads and without contention."""
    free = Link(latency="0 s", bandwidth="inf B/s")  # type: ignore[arg-type]
    changes = {"latency_ps": 0, "ps_per_byte": 0.0, "intra_node": free, "self_route": free}
    return network.model_copy(update=changes | {"loggops": None, "dimemas": None, "flow": None, "topology": None})
