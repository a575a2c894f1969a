"""Channels of a group of GPUs: how many rings or trees NCCL lays over it, and at which rate.

After NCCL's search (github.com/NVIDIA/nccl at 5067397, src/graph/search.cc, ncclTopoCompute): of the speeds that it
tries, the one at which as many channels as fit carry most in all; few fast channels become twice as many of half the
speed. A ring takes what each GPU has in one direction once; a tree n / (n - 1) less; NVLS takes each GPU's links
once for each channel, and once more at its head. Between nodes each channel has its NIC. On a mesh each ring has a
NVLink of its own between neighbours (rings.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

MOST_CHANNELS: Final = 64
_DOUBLED_FROM: Final = 25.0  # GB/s of a channel from which on NCCL takes two of half the speed
_SLOWEST: Final = 0.49  # of a speed at which there are channels: slower ones are not tried
_DOUBLED_FROM_HOPPER: Final = 50.0  # the same on later generations, where there are more than four


@dataclass(frozen=True)
class Graph:
    """``channels`` rings or trees, each with ``within`` GB/s in a node and ``between`` over the network."""

    channels: int
    within: float
    between: float


def switched(total: float, speeds: tuple[float, ...], is_late: bool) -> Graph:
    """Channels of a node whose GPUs have ``total`` GB/s each. ``is_late``: Hopper and later."""
    speed, channels = _fastest(total, speeds)
    if _is_doubled(speed, channels, is_late):
        speed, channels = speed / 2, channels * 2
    return Graph(channels, speed, speed)


def meshed(num_rings: int, link: float) -> Graph:
    """Channels of ``num_rings`` rings on a mesh of links of ``link`` GB/s."""
    return Graph(num_rings, link, link)


def networked(total: float, rails: int, nic: float, speeds: tuple[float, ...], is_late: bool) -> Graph:
    """Rings over nodes: ``rails`` NICs of ``nic`` GB/s a node, within which GPUs have ``total`` GB/s each (inf where a
    node has a single GPU of the group)."""
    if nic == inf and total == inf:
        return Graph(rails, inf, inf)
    best = Graph(0, 0.0, 0.0)
    for speed in speeds:
        if best.channels and speed <= _SLOWEST * best.between:
            break
        fit = min(rails * int(nic / speed), MOST_CHANNELS, *(() if total == inf else (int(total / speed),)))
        if fit * speed > best.channels * best.between:
            best = Graph(fit, speed, speed)
    speed, channels = (best.between, best.channels) if best.channels else (min(nic, total), 1)
    if _is_doubled(speed, channels, is_late):
        speed, channels = speed / 2, channels * 2
    return Graph(channels, speed, speed)


def trees_between(ring: Graph, total: float, rails: int, nic: float, speeds: tuple[float, ...]) -> Graph:
    """Trees over nodes with as many channels as the rings: within nodes they are faster, up to twice."""
    if ring.between == inf:
        return ring
    share, nic_share = total / ring.channels, nic * rails / ring.channels
    between = max((speed for speed in speeds if speed <= min(share, nic_share)), default=ring.between)
    between = max(between, ring.between)
    within = between
    for speed in sorted(speeds):
        if within < speed <= share and within < 2 * between:
            within = speed
    return Graph(ring.channels, within, between)


def nvls(total: float, num_gpus: int, speeds: tuple[float, ...]) -> Graph:
    """Channels of NVLS, each with its head: as many as GPUs, each taking the links of all once and its head's twice."""
    share = total / (num_gpus + 1)
    speed = next((speed for speed in speeds if speed <= share), share)
    return Graph(num_gpus, share if total == inf else speed, share if total == inf else speed)


def _fastest(total: float, speeds: tuple[float, ...]) -> tuple[float, int]:
    """The speed and number of channels that carry most in all, the fastest of those that carry as much."""
    if total == inf:
        return inf, 1
    best = (min(total, speeds[-1]), 1)
    for place, speed in enumerate(speeds):
        if place and best[0] * best[1] and speed <= _SLOWEST * best[0] and best[0] <= total:
            break
        fit = min(int(total / speed), MOST_CHANNELS)
        if fit * speed > best[0] * best[1]:
            best = speed, fit
    return best


def _is_doubled(speed: float, channels: int, is_late: bool) -> bool:
    if speed < _DOUBLED_FROM or speed == inf or 2 * channels > MOST_CHANNELS:
        return False
    return not (is_late and speed < _DOUBLED_FROM_HOPPER and channels > 4)
