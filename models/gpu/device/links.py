"""How GPUs hang in a node: what copies between host and GPU, and between GPUs, go over.

A copy of S bytes takes ``latency`` and S / ``bandwidth``, and holds a copy engine for as long.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from manyscale.models.workload.parameters import Count, PsPerByte, Strict, TimePs


def _copy_ps(latency_ps: int, size: np.ndarray, per_byte: np.ndarray | float) -> np.ndarray:
    return latency_ps + np.rint(size * per_byte).astype(np.int64)


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

    def copy_ps(self, size: np.ndarray, is_pageable: np.ndarray | bool = False) -> np.ndarray:
        """int64[n]: what copies of ``size`` bytes take, where ``is_pageable`` from or to memory that is."""
        own = self.bandwidth_ps_per_byte
        pageable = own if self.pageable_ps_per_byte is None else self.pageable_ps_per_byte
        return _copy_ps(self.latency_ps, size, np.where(is_pageable, pageable, own))


class PeerLink(Strict):
    """The way from a GPU to each other one of its node: NVLink, NVSwitch, PCIe. Each GPU sends one copy at a time,
    and receives one."""

    bandwidth_ps_per_byte: PsPerByte = Field(alias="bandwidth")
    """What a copy between two GPUs reaches."""
    latency_ps: TimePs = Field(default=0, alias="latency")
    """What each copy takes beside its bytes."""

    def copy_ps(self, size: np.ndarray) -> np.ndarray:
        """int64[n]: what copies of ``size`` bytes take."""
        return _copy_ps(self.latency_ps, size, self.bandwidth_ps_per_byte)
