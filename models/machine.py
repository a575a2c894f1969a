"""The target machine: frozen, validated parameters. Files are parsed elsewhere; every dimension carries its unit."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from manyscale.models.parameters import Bytes, Count, CountOrNone, FrequencyHz, PsPerByte, Strict, TimePs
from manyscale.models.topology import Topology


class Cache(Strict):
    """One level of cache."""

    size_bytes: Bytes = Field(alias="size")
    shared_by_cores: Count = 1


class Node(Strict):
    """One node: ``sockets`` sockets of ``cores_per_socket`` cores."""

    sockets: Count
    cores_per_socket: Count
    frequency_hz: FrequencyHz = Field(alias="frequency")
    memory_bytes: Bytes | None = Field(default=None, alias="memory")
    caches: dict[str, Cache] = {}

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
    threshold."""

    overhead_ps: TimePs = Field(alias="overhead")
    gap_ps: TimePs = Field(alias="gap")
    overhead_ps_per_byte: PsPerByte = Field(alias="overhead_bandwidth")


class DimemasLinks(Strict):
    """How many transfers a node may send and receive, and all nodes together carry, at once; 0 is without limit."""

    output_links: CountOrNone = 0
    input_links: CountOrNone = 0
    buses: CountOrNone = 0


class Dimemas(Strict):
    """What the Dimemas model adds: limits of the network between nodes (``inter_node``) and inside one."""

    inter_node: DimemasLinks = DimemasLinks()
    intra_node: DimemasLinks = DimemasLinks()


class Network(Strict):
    """Parameters of message transfer.

    A message of S bytes costs ``latency + (S + envelope) / bandwidth`` of the route it takes: ``self`` from a rank to
    itself, ``intra_node`` between ranks of one node, else the network proper. Sends under ``eager_threshold`` do not
    wait for their receiver. With ``transfer_start: match`` every transfer starts once both sides are posted; with
    ``eager`` an eager message travels as soon as it is sent and waits at the receiver. ``loggops``, ``dimemas`` and
    ``topology`` are read by the models that need them.
    """

    latency_ps: TimePs = Field(alias="latency")
    ps_per_byte: PsPerByte = Field(alias="bandwidth")
    envelope_bytes: Bytes = Field(alias="envelope")
    eager_threshold_bytes: Bytes = Field(alias="eager_threshold")
    transfer_start: Literal["match", "eager"]
    collectives: str
    intra_node: Link
    self_route: Link = Field(alias="self")
    loggops: LogGops | None = None
    dimemas: Dimemas | None = None
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

    @property
    def num_cores(self) -> int:
        return self.num_nodes * self.node.num_cores


def ideal_network(network: Network) -> Network:
    """The same protocol with zero latency and infinite bandwidth on every route (POP's ideal network), without CPU
    overheads and without contention."""
    free = Link(latency="0 s", bandwidth="inf B/s")  # type: ignore[arg-type]
    changes = {"latency_ps": 0, "ps_per_byte": 0.0, "intra_node": free, "self_route": free}
    return network.model_copy(update=changes | {"loggops": None, "dimemas": None, "topology": None})
