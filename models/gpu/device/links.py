"""How GPUs hang in a node: what copies between host and GPU, and between GPUs, go over.

A copy of S bytes takes ``latency`` and S / ``bandwidth``, and holds a copy engine for as long.
"""

from __future__ import annotations

from pydantic import Field

from manyscale.models.workload.parameters import Count, PsPerByte, Strict, TimePs


class HostLink(Strict):
    """The way from a GPU to the memory of its node: PCIe, NVLink-C2C."""

    bandwidth_ps_per_byte: PsPerByte = Field(alias="bandwidth")
    """What a copy from or to page-locked memory of the host reaches, in each direction."""
    pageable_ps_per_byte: PsPerByte | None = Field(default=None, alias="pageable_bandwidth")
    """The same for memory that is not page-locked, which goes through a buffer of the driver. By default
    `bandwidth`."""
    latency_ps: TimePs = Field(default=0, alias="latency")
    """What each copy takes beside its bytes."""
    engines: Count = 2
    """The engines that copy between host and GPU: 1 serves both directions in turn, 2 and more one direction each."""


class PeerLink(Strict):
    """The way from a GPU to each other one of its node: NVLink, NVSwitch, PCIe. Each GPU sends one copy at a time,
    and receives one."""

    bandwidth_ps_per_byte: PsPerByte = Field(alias="bandwidth")
    """What a copy between two GPUs reaches."""
    latency_ps: TimePs = Field(default=0, alias="latency")
    """What each copy takes beside its bytes."""
