"""Routes over a crossbar: up from the source, down to the destination, through the interface that the pair shares.

Both ends use interface (source + destination) mod interfaces: a node's partners spread evenly over its interfaces, and
both directions of a pair take the same one. Link 2 (node x interfaces + interface) goes up, the next one down.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from manyscale.models.machine import Network
from manyscale.models.machine.topology import Crossbar
from manyscale.models.network.routes.fabric import suffix


@dataclass(frozen=True)
class CrossbarFabric:
    topology: Crossbar
    network: Network
    num_nodes: int

    @property
    def num_links(self) -> int:
        return 2 * self.num_nodes * self.topology.interfaces

    def between(self, source: np.ndarray, destination: np.ndarray) -> np.ndarray:
        interfaces = self.topology.interfaces
        interface = (source + destination) % interfaces
        up = 2 * (source * interfaces + interface)
        down = 2 * (destination * interfaces + interface) + 1
        return np.stack((up, down), axis=1).astype(np.int32)

    def figures(self, link: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.full(len(link), self.network.latency_ps / 2), np.full(len(link), self.network.ps_per_byte)

    def names(self, link: np.ndarray) -> list[str]:
        interfaces = self.topology.interfaces
        found = []
        for number in link.tolist():
            port, is_down = divmod(number, 2)
            node, interface = divmod(port, interfaces)
            ends = f"switch > node {node}" if is_down else f"node {node} > switch"
            found.append(ends + suffix(interface, interfaces))
        return found
