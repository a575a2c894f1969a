"""What the LogGOPS network reads of a machine: block ``network.loggops``."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from manyscale.models.machine.blocks import Block
from manyscale.models.workload.parameters import PsPerByte, TimePs


class LogGops(Block):
    """What the LogGOPS model adds: CPU time of each send and receive (o, and O per byte as ``overhead_bandwidth``) and
    the gap between messages at a network interface (g). L, G and S are the network's latency, bandwidth and eager
    threshold; ``latency`` is L where the network's own contains the overheads of both ends."""

    key: ClassVar[str] = "network.loggops"

    overhead_ps: TimePs = Field(alias="overhead")
    """The CPU time of each send and receive (o)."""
    gap_ps: TimePs = Field(alias="gap")
    """The gap between messages at a network interface (g)."""
    overhead_ps_per_byte: PsPerByte = Field(alias="overhead_bandwidth")
    """The CPU time of each byte, as a rate (1/O)."""
    latency_ps: TimePs | None = Field(default=None, alias="latency")
    """The latency L, where the network's own contains the overheads of both ends. By default that of the network."""
