"""Routes over a torus: dimension by dimension, the shorter way round.

As SimGrid 3.32, the tie between two ways of equal length included: up if that needs no wrap-around, or from the upper
half (coordinate > size // 2) with one; else down. ``valiant`` joins the minimal routes to and from a random node.

Link 2 (node x dimensions + dimension) goes from a node to its next neighbour up, the next one back.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from manyscale.models.machine import Network
from manyscale.models.machine.topology import TopologyLink, Torus
from manyscale.models.network.routes.fabric import chosen, link_figures


@dataclass(frozen=True)
class TorusFabric:
    topology: Torus
    network: Network

    @property
    def num_links(self) -> int:
        return 2 * len(self.topology.dimensions) * self.topology.most_nodes

    def between(self, source: np.ndarray, destination: np.ndarray) -> np.ndarray:
        if self.topology.routing == "minimal":
            return self._minimal(source, destination)
        middle = chosen(source, destination, self.topology.seed, self.topology.most_nodes)
        return np.concatenate((self._minimal(source, middle), self._minimal(middle, destination)), axis=1)

    def _minimal(self, source: np.ndarray, destination: np.ndarray) -> np.ndarray:
        """Dimension-order routes, int32[pairs, width]. O(pairs x width)."""
        sizes = self.topology.dimensions
        links = np.full((len(source), max(1, sum(size // 2 for size in sizes))), -1, np.int32)
        column, stride = 0, 1
        node = source  # where the route has come to, dimension after dimension
        for dimension, size in enumerate(sizes):
            here, there = node // stride % size, destination // stride % size
            is_up = (there > here) & (there <= here + size // 2)
            is_up |= (here > size // 2) & ((here + size // 2) % size >= there)
            distance = np.where(is_up, there - here, here - there) % size
            for step in range(size // 2):
                # the link belongs to the lower of its two ends: the one it leaves upwards, or arrives at downwards
                lower = np.where(is_up, here + step, here - step - 1) % size
                number = 2 * ((node + (lower - here) * stride) * len(sizes) + dimension) + ~is_up
                links[:, column] = np.where(step < distance, number, -1)
                column += 1
            node = node + (there - here) * stride
            stride *= size
        return links

    def figures(self, link: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        dimensions = len(self.topology.dimensions)
        given = self.topology.links or (TopologyLink(),) * dimensions
        figures = np.array([link_figures(of_dimension, self.network, 1.0) for of_dimension in given])
        latency, ps_per_byte = figures[link // 2 % dimensions].T
        return latency, ps_per_byte

    def names(self, link: np.ndarray) -> list[str]:
        sizes = self.topology.dimensions
        strides = list(accumulate(sizes, int.__mul__, initial=1))
        found = []
        for number in link.tolist():
            port, is_back = divmod(number, 2)
            node, dimension = divmod(port, len(sizes))
            size, stride = sizes[dimension], strides[dimension]
            neighbour = node + (1 - size if node // stride % size == size - 1 else 1) * stride
            found.append(f"node {neighbour} > node {node}" if is_back else f"node {node} > node {neighbour}")
        return found
