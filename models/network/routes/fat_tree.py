"""Routes over a fat tree: up to the lowest level that is common to both nodes, and down again.

A switch of level i at position p stands for the digits of p: the ports taken below it (radices ``up``) in digits 0 to
i - 1, the subtree that it is in (radices ``down``) above. D-mod-k (Zahavi et al., "Optimized InfiniBand fat-tree
routing for shift all-to-all communication patterns", Concurrency and Computation 22(2), 2010), as in SimGrid 3.32: at
level i the port up is (destination / product of ``up`` below i) mod (``up`` x ``cables``): the parent is that modulo
``up``, the cable the quotient. The cable down is the source modulo ``cables``; below a switch that was itself reached
downwards SimGrid goes on searching the ports from where it stopped, so that there the cable is that of the next fitting
port, if any (this matters only if a lower level has several cables). S-mod-k exchanges source and destination, without
that search; ``random`` draws every port and cable from the pair.

Links of level i are numbered by child, parent and cable, each up and then down.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from manyscale.models.machine import Network
from manyscale.models.machine.topology import FatTree, TopologyLink
from manyscale.models.network.routes.fabric import chosen, link_figures, suffix


@dataclass(frozen=True)
class FatTreeFabric:
    topology: FatTree
    network: Network

    @property
    def num_links(self) -> int:
        return self._first_links[-1]

    @property
    def _first_links(self) -> list[int]:
        """Number of the first link of each level, and of all links."""
        levels = range(len(self.topology.down))
        return list(accumulate((self.topology.num_links(level) for level in levels), initial=0))

    def between(self, source: np.ndarray, destination: np.ndarray) -> np.ndarray:
        tree = self.topology
        levels = len(tree.down)
        first_links = self._first_links
        links = np.full((len(source), 2 * levels), -1, np.int32)
        ups, downs = _products(tree.up), _products(tree.down)
        below = np.zeros(len(source), np.int64)  # the ports taken so far, as digits
        parents, positions = [], []  # per level: parent taken; child's ports, without its subtree
        for level in range(levels):
            parent, cable = self._port_up(level, source, destination)
            child = below + source // downs[level] * ups[level]
            is_needed = (source // downs[level] != destination // downs[level]) | (level == 0)
            links[:, level] = np.where(is_needed, first_links[level] + 2 * self._link(level, child, parent, cable), -1)
            parents.append(parent)
            positions.append(below)
            below = below + parent * ups[level]
        port = np.full(len(source), -1, np.int64)  # port by which the last switch was left downwards, -1 for none yet
        for level in reversed(range(levels)):
            is_needed = links[:, level] >= 0
            digit = destination // downs[level] % tree.down[level]
            cable = self._cable_down(level, source, destination, digit, port)
            port = np.where(is_needed, cable * tree.down[level] + digit, -1)
            child = positions[level] + destination // downs[level] * ups[level]
            number = first_links[level] + 2 * self._link(level, child, parents[level], cable) + 1
            links[:, 2 * levels - 1 - level] = np.where(is_needed, number, -1)
        return links

    def _link(self, level: int, child: np.ndarray, parent: np.ndarray, cable: np.ndarray) -> np.ndarray:
        return (child * self.topology.up[level] + parent) * self.topology.cables_of_level[level] + cable

    def _port_up(self, level: int, source: np.ndarray, destination: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Parent (0 to up - 1) and cable by which a route leaves ``level`` upwards."""
        tree = self.topology
        up, cables = tree.up[level], tree.cables_of_level[level]
        if tree.routing == "random":
            port = chosen(source, destination, tree.seed * 64 + 2 * level, up * cables)
        else:
            key = destination if tree.routing == "d-mod-k" else source
            port = key // _products(tree.up)[level] % (up * cables)
        return port % up, port // up

    def _cable_down(
        self, level: int, source: np.ndarray, destination: np.ndarray, digit: np.ndarray, port: np.ndarray
    ) -> np.ndarray:
        """Cable of a route down to ``level``; ``digit`` is the child, ``port`` that of the switch above or -1."""
        tree = self.topology
        down, cables = tree.down[level], tree.cables_of_level[level]
        if tree.routing == "random":
            return chosen(source, destination, tree.seed * 64 + 2 * level + 1, cables)
        cable = (source if tree.routing == "d-mod-k" else destination) % cables
        if tree.routing == "d-mod-k" and cables > 1:
            following = port + 1 + (digit - port - 1) % down
            return np.where((port >= 0) & (following < down * cables), following // down, cable)
        return cable

    def figures(self, link: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        tree = self.topology
        given = tree.links or (TopologyLink(),) * len(tree.down)
        figures = np.array([link_figures(of_level, self.network, 0.5) for of_level in given])
        latency, ps_per_byte = figures[np.searchsorted(self._first_links, link, side="right") - 1].T
        return latency, ps_per_byte

    def names(self, link: np.ndarray) -> list[str]:
        tree = self.topology
        first_links = self._first_links
        ups = _products(tree.up)
        levels = np.searchsorted(first_links, link, side="right") - 1
        found = []
        for number, level in zip(link.tolist(), levels.tolist(), strict=True):
            rest, is_down = divmod(number - first_links[level], 2)
            rest, cable = divmod(rest, tree.cables_of_level[level])
            child, parent = divmod(rest, tree.up[level])
            subtree, ports = divmod(child, ups[level])
            position = ports + parent * ups[level] + subtree // tree.down[level] * ups[level + 1]
            lower = f"switch {level}.{child}" if level else f"node {child}"
            upper = f"switch {level + 1}.{position}"
            ends = f"{upper} > {lower}" if is_down else f"{lower} > {upper}"
            found.append(ends + suffix(cable, tree.cables_of_level[level]))
        return found


def _products(factors: tuple[int, ...]) -> list[int]:
    """Products of the first 0, 1, ... factors."""
    return list(accumulate(factors, int.__mul__, initial=1))
