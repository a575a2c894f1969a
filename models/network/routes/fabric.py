"""What one topology answers: its links by number, and the links between two nodes.

Numbers of links are those of the whole machine, so that a route is arithmetic; only links that some route takes are
kept (network/routes/__init__.py).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from manyscale.models.machine import Network
from manyscale.models.machine.topology import TopologyLink


class Fabric(Protocol):
    """The links of a topology. Links are directed and numbered 0 to ``num_links`` - 1."""

    @property
    def num_links(self) -> int: ...

    def between(self, source: np.ndarray, destination: np.ndarray) -> np.ndarray:
        """Links from node ``source[p]`` to ``destination[p]`` in order: int32[p, width], -1 where there is none."""
        ...

    def figures(self, link: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Latency in ps (half picoseconds occur) and ps per byte of each link, float64."""
        ...

    def names(self, link: np.ndarray) -> list[str]:
        """``FROM > TO`` per link, both a node or a switch; `` #k`` is added where several links join the two."""
        ...


def link_figures(link: TopologyLink, network: Network, latency_share: float) -> tuple[float, float]:
    """Latency in ps and ps per byte of a class of link; ``latency_share`` of the network's latency if none is given."""
    latency = network.latency_ps * latency_share if link.latency_ps is None else float(link.latency_ps)
    return latency, network.ps_per_byte if link.ps_per_byte is None else link.ps_per_byte


def chosen(source: np.ndarray, destination: np.ndarray, salt: int, choices: np.ndarray | int) -> np.ndarray:
    """A choice in 0 to ``choices`` - 1 per pair, int64: the same for the same pair and salt, and evenly spread.

    The finaliser of splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014),
    applied to source, destination and salt in turn.
    """
    state = np.full(len(source), salt % 2**64, np.uint64)
    for part in (source, destination):
        state = (state ^ part.astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(31)
    return (state % np.asarray(choices).astype(np.uint64)).astype(np.int64)


def suffix(number: int, several: int) -> str:
    """What tells parallel links apart: nothing if there is only one."""
    return f" #{number}" if several > 1 else ""
