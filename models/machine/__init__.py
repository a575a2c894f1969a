"""The target machine: frozen, validated parameters. Files are parsed elsewhere; every dimension carries its unit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from pydantic import Field, SerializeAsAny, model_validator

from manyscale.models.machine.blocks import Extensible
from manyscale.models.machine.processor import Cache, Core, MainMemory, Numa, Tlb
from manyscale.models.machine.storage import Storage
from manyscale.models.machine.topology import Topology, most_nodes
from manyscale.models.workload.parameters import (
    Bytes,
    Count,
    CountOrNone,
    FrequencyHz,
    PsPerByte,
    Strict,
    TimePs,
)

MOST_NODES: Final = 2**24  # some models keep some words for each
MOST_CORES: Final = 2**20  # of a node


class Node(Extensible):
    """One node: ``sockets`` sockets of ``cores_per_socket`` cores, and ``gpus`` GPUs that are all alike, described by
    the block ``gpu`` (gpu/parameters.py)."""

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

    @model_validator(mode="after")
    def _cores_can_be_kept(self) -> Node:
        if self.num_cores > MOST_CORES:
            raise ValueError(
                f"{self.num_cores:,} cores (sockets times cores_per_socket); up to {MOST_CORES:,} can be modelled"
            )
        return self

    @model_validator(mode="after")
    def _gpus_are_described(self) -> Node:
        if self.num_gpus and not self.has_block("gpu"):
            raise ValueError(f"gpus: {self.num_gpus}, but no key 'gpu' says what they are")
        if self.has_block("gpu") and not self.num_gpus:
            raise ValueError("gpu: the node has none; add the key 'gpus' (1, for example)")
        return self

    @property
    def num_cores(self) -> int:
        return self.sockets * self.cores_per_socket


CollectiveChoice: TypeAlias = str | Mapping[str, Any] | SerializeAsAny[Strict]  # models.network knows which


class Link(Strict):
    """Latency and bandwidth of one class of route."""

    latency_ps: TimePs = Field(alias="latency")
    ps_per_byte: PsPerByte = Field(alias="bandwidth")


class Network(Extensible):
    """Parameters of message transfer.

    A message of S bytes costs ``latency + (S + envelope) / bandwidth`` of the route it takes: ``self`` from a rank to
    itself, ``intra_node`` between ranks of one node, else the network proper. Sends under ``eager_threshold`` do not
    wait for their receiver. With ``transfer_start: match`` every transfer starts once both sides are posted; with
    ``eager`` an eager message travels as soon as it is sent and waits at the receiver. ``collectives`` is a preset's
    name, or rules that choose an algorithm or a formula by collective, size and number of ranks
    (network/collectives/rules.py). What a model needs beyond these is a block of its own (``loggops``, ``flow``, ...).
    """

    latency_ps: TimePs = Field(alias="latency")
    ps_per_byte: PsPerByte = Field(alias="bandwidth")
    envelope_bytes: Bytes = Field(alias="envelope")
    eager_threshold_bytes: Bytes = Field(alias="eager_threshold")
    transfer_start: Literal["match", "eager"]
    collectives: CollectiveChoice
    intra_node: Link
    self_route: Link = Field(alias="self")
    topology: Topology | None = None


class Machine(Strict):
    """A target machine. ``sources`` say where each group of numbers comes from."""

    schema_version: Literal[1] = Field(alias="schema")
    name: str
    description: str
    num_nodes: Count = Field(alias="nodes")
    node: Node
    network: Network
    storage: Storage | None = None
    sources: dict[str, str]

    @model_validator(mode="after")
    def _every_part_has_a_source(self) -> Machine:
        missing = [part for part in ("nodes", "node", "network") if part not in self.sources]
        if missing:
            raise ValueError(f"sources: no source is given for {', '.join(missing)}")
        return self

    @model_validator(mode="after")
    def _nodes_can_be_kept(self) -> Machine:
        if self.num_nodes > MOST_NODES:
            raise ValueError(f"{self.num_nodes:,} nodes; up to {MOST_NODES:,} can be modelled")
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
    kept = {name: getattr(network, name) for name in Network.model_fields}
    changes = {"latency_ps": 0, "ps_per_byte": 0.0, "intra_node": free, "self_route": free, "topology": None}
    return Network.model_construct(**kept | changes)
