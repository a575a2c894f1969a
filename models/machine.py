"""The target machine: frozen, validated parameters. Files are parsed elsewhere; every dimension carries its unit.

Fields that hold a dimension are written with a unit (``"1 us"``) and stored in the unit that the name says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from manyscale.models.quantities import (
    parse_bytes,
    parse_frequency_hz,
    parse_ps_per_byte,
    parse_time_ps,
)


def _parsed(parse: Callable[[object], Any]) -> BeforeValidator:
    return BeforeValidator(parse)


TimePs = Annotated[int, _parsed(parse_time_ps)]
Bytes = Annotated[int, _parsed(parse_bytes)]
PsPerByte = Annotated[float, _parsed(parse_ps_per_byte)]
FrequencyHz = Annotated[float, _parsed(parse_frequency_hz)]
Count = Annotated[int, Field(ge=1, strict=True)]


class Strict(BaseModel):
    """Immutable, and refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


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


class Network(Strict):
    """Parameters of message transfer.

    A message of S bytes costs ``latency + (S + envelope) / bandwidth`` of the route it takes: ``self`` from a rank to
    itself, ``intra_node`` between ranks of one node, else the network proper. Sends under ``eager_threshold`` do not
    wait for their receiver. With ``transfer_start: match`` every transfer starts once both sides are posted; with
    ``eager`` an eager message travels as soon as it is sent and waits at the receiver.
    """

    latency_ps: TimePs = Field(alias="latency")
    ps_per_byte: PsPerByte = Field(alias="bandwidth")
    envelope_bytes: Bytes = Field(alias="envelope")
    eager_threshold_bytes: Bytes = Field(alias="eager_threshold")
    transfer_start: Literal["match", "eager"]
    collectives: str
    intra_node: Link
    self_route: Link = Field(alias="self")


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
    """The same protocol with zero latency and infinite bandwidth on every route (POP's ideal network)."""
    free = Link(latency="0 s", bandwidth="inf B/s")  # type: ignore[arg-type]
    return network.model_copy(update={"latency_ps": 0, "ps_per_byte": 0.0, "intra_node": free, "self_route": free})
