"""The target machine: frozen, validated parameters. Files are parsed elsewhere; every dimension carries its unit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from pydantic import Field, SerializeAsAny, model_validator

from manyscale.models.machine.blocks import Extensible
from manyscale.models.machine.core_kinds import CoreKind, check_caches, spelled_out
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
    """The number of sockets of a node."""
    cores_per_socket: Count
    """The number of cores of each socket."""
    frequency_hz: FrequencyHz | None = Field(default=None, alias="frequency")  # for those models that count cycles
    """The clock of the cores, for models that count cycles."""
    memory_bytes: Bytes | None = Field(default=None, alias="memory")
    """The main memory of a node."""
    caches: dict[str, Cache] = {}  # L1D (and L1I), L2, L3, ...
    """The caches by level, the nearest to the core first: L1D (and L1I), L2, L3."""
    tlbs: dict[str, Tlb] = {}  # for data, the nearest first
    """The levels of address translation for data, the nearest first."""
    main_memory: MainMemory | None = None
    """Latency and bandwidth of main memory."""
    numa: Numa | None = None  # between sockets
    """What lies between the sockets of a node."""
    core: Core | None = None
    """The core: its width, buffers, units and the cost of each class of instruction."""
    core_kinds: tuple[CoreKind, ...] = ()
    """The kinds of cores of a node whose cores are not all alike, such as big and little ones: how many there are of
    each, the first cores first, their speed and, for the model `detailed`, what their cores and caches are."""
    num_gpus: CountOrNone = Field(default=0, alias="gpus")
    """The number of GPUs, which are all alike."""

    @model_validator(mode="before")
    @classmethod
    def _kinds_say_what_differs(cls, content: Any) -> Any:
        if not isinstance(content, Mapping) or not isinstance(content.get("core_kinds"), list):
            return content
        return {**content, "core_kinds": [spelled_out(kind, content) for kind in content["core_kinds"]]}

    @model_validator(mode="after")
    def _cores_can_be_kept(self) -> Node:
        if self.num_cores > MOST_CORES:
            raise ValueError(
                f"{self.num_cores:,} cores (sockets times cores_per_socket); up to {MOST_CORES:,} can be modelled"
            )
        return self

    @model_validator(mode="after")
    def _every_core_is_of_a_kind(self) -> Node:
        count = sum(kind.cores for kind in self.core_kinds)
        if self.core_kinds and count != self.num_cores:
            raise ValueError(f"core_kinds: they are {count} cores in all, and the node has {self.num_cores}")
        for number, kind in enumerate(self.core_kinds):
            try:
                check_caches(kind, self.caches)
            except ValueError as error:
                raise ValueError(f"core_kinds.{number}.{error}") from None
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

    @property
    def core_speeds(self) -> tuple[float, ...]:
        """Of each core, in their order; empty where all are alike."""
        return tuple(kind.speed for kind in self.core_kinds for _ in range(kind.cores))

    @property
    def kind_of_cores(self) -> tuple[int, ...]:
        """Of each core, in their order, its kind; empty where all are alike."""
        return tuple(number for number, kind in enumerate(self.core_kinds) for _ in range(kind.cores))

    @property
    def of_kinds(self) -> tuple[Node, ...]:
        """The node as if all its cores were of one kind, for each kind; itself where all are alike."""
        if not self.core_kinds:
            return (self,)
        return tuple(
            self.model_copy(
                update={
                    "core": kind.core or self.core,
                    "caches": {**self.caches, **kind.caches},
                    "frequency_hz": kind.frequency_hz or self.frequency_hz,
                    "core_kinds": (),
                }
            )
            for kind in self.core_kinds
        )


CollectiveChoice: TypeAlias = str | Mapping[str, Any] | SerializeAsAny[Strict]  # models.network knows which


class Link(Strict):
    """Latency and bandwidth of one class of route."""

    latency_ps: TimePs = Field(alias="latency")
    """The time that the first byte of a message takes."""
    ps_per_byte: PsPerByte = Field(alias="bandwidth")
    """The bandwidth of the route. `inf B/s` takes no time per byte."""


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
    """The latency between nodes. A message of S bytes takes latency + (S + envelope) / bandwidth."""
    ps_per_byte: PsPerByte = Field(alias="bandwidth")
    """The bandwidth between nodes."""
    envelope_bytes: Bytes = Field(alias="envelope")
    """The bytes that travel with every message."""
    eager_threshold_bytes: Bytes = Field(alias="eager_threshold")
    """Smaller sends do not wait for their receiver."""
    transfer_start: Literal["match", "eager"]
    """`match`: a transfer starts when both sides are posted; `eager`: an eager message travels at once and waits at the
    receiver."""
    collectives: CollectiveChoice
    """Whose algorithms collectives take: a preset, or rules by collective, size and number of ranks."""
    intra_node: Link
    """Latency and bandwidth between ranks of one node."""
    self_route: Link = Field(alias="self")
    """Latency and bandwidth from a rank to itself."""
    topology: Topology | None = None
    """The links that messages share, for the model `flow`."""


class Machine(Strict):
    """A target machine. ``sources`` say where each group of numbers comes from."""

    schema_version: Literal[1] = Field(alias="schema")
    """The version of this format. It is 1."""
    name: str
    """The name of the machine."""
    description: str
    """What the machine is, in one sentence."""
    num_nodes: Count = Field(alias="nodes")
    """The number of nodes, all alike."""
    node: Node
    """What one node consists of."""
    network: Network
    """How messages travel between ranks."""
    storage: Storage | None = None
    """What reading and writing files takes. Without it, that takes no time, and a note says so."""
    sources: dict[str, str]
    """Where each group of numbers comes from: at least `nodes`, `node` and `network`."""

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
