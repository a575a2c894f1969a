"""Measured tables: what collectives take that were measured, and those that were not but are like them.

A collective of another number of GPUs takes what the measured one takes at the size at which both have their slowest
link busy for as long, and the difference of what their steps take beside:

    T(n, S) = T0(S r / r0) + L - L0

with r, r0 the inverse bandwidths of the quickest algorithm for large messages and L, L0 the least latencies that the
tuner has (tuner.py). On a switched node with rings that is equal bytes over each GPU's links, 2 (n - 1) / n S. Where
the two have other channels, as on a mesh, whose rings differ in number, what limits small messages does not go with the
links, and the size is that at which the tuner has both take as long.
Between two rows time is linear in size; below the first it falls as the tuner's, above the last it rises with size.

A group on several nodes, where only groups of one node were measured, takes what the tuner has and what the measured
one of the same size takes beyond the tuner's (the most of all smaller sizes): what happens within nodes stays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import log

import numpy as np

from manyscale.models.network.nccl.graphs import Graph
from manyscale.models.network.nccl.parameters import Measured
from manyscale.models.network.nccl.tuner import Way, quickest

_LARGE = 1 << 36  # bytes: nothing but bandwidth counts


@dataclass(frozen=True)
class Curve:
    """A measured table, and of the group that was measured the tuner's ways and the channels of its rings."""

    table: Measured
    ways: tuple[Way, ...]
    ring: Graph

    @cached_property
    def excess(self) -> tuple[np.ndarray, np.ndarray]:
        """Sizes of the table, and us beyond the tuner's that some size up to each takes."""
        sizes = np.array(self.table.sizes_bytes, np.float64)
        beyond = [self.us(size) - quickest(self.ways, size).us(size) for size in sizes.tolist()]
        return np.append(0.0, sizes), np.append(0.0, np.maximum.accumulate(np.maximum(beyond, 0.0)))

    def us(self, size: float) -> float:
        """What the measured collective takes, in us, without the harness's floor."""
        sizes, times, floor = self.table.sizes_bytes, self.table.times_ps, self.table.floor_ps
        if size >= sizes[-1]:
            return (times[-1] - floor) / 1e6 * size / sizes[-1]
        if size <= sizes[0]:
            first = (times[0] - floor) / 1e6
            return first * min(quickest(self.ways, size).us(size) / quickest(self.ways, sizes[0]).us(sizes[0]), 1.0)
        return float(np.interp(size, sizes, times) - floor) / 1e6


def from_table(curve: Curve, ways: tuple[Way, ...], size: float, *, has_its_channels: bool = True) -> float:
    """What a collective of a group with ``ways`` takes in us for ``size`` bytes. ``has_its_channels``: as many, and as
    fast, as the group that was measured."""
    if not has_its_channels:
        return _as_long(curve, quickest(ways, size).us(size))
    slope, measured_slope = _slope(ways), _slope(curve.ways)
    alike = size * slope / measured_slope if measured_slope else size
    extra = _least_latency(ways) - _least_latency(curve.ways)
    time = curve.us(alike)
    return time + extra if extra >= 0 else max(time + extra, time * 0.5)


def _as_long(curve: Curve, time: float) -> float:
    """What the measured collective takes at the size at which the tuner has it take ``time``, and in proportion where
    it has no size that takes as little."""
    least = quickest(curve.ways, 0.0).us(0.0)
    if time <= least:
        return curve.us(0.0) * time / least if least else curve.us(0.0)
    low, high = 0.0, 1.0
    while quickest(curve.ways, high).us(high) < time and high < _LARGE * 2.0**20:
        high *= 2
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if quickest(curve.ways, middle).us(middle) < time else (low, middle)
    return curve.us(high)


def beyond_us(curve: Curve, size: float) -> float:
    """What a group on several nodes takes in us beyond the tuner's, by a table of one."""
    return float(np.interp(size, *curve.excess))


def nearest(
    tables: tuple[Measured, ...], collective: str, gpus: int, nodes: int, fits: Callable[[Measured], bool]
) -> Measured | None:
    """The table to follow: of groups on several nodes only where the group is, before those of one node; of the same
    collective before an all-reduce, then of the most similar numbers of nodes and GPUs."""
    usable = [
        table
        for table in tables
        if (table.nodes == 1 or nodes > 1) and table.collective in (collective, "allreduce") and fits(table)
    ]
    if collective in ("alltoall", "sendrecv"):
        usable = [table for table in usable if table.collective == collective]
    return min(
        usable,
        default=None,
        key=lambda table: (
            (table.nodes > 1) != (nodes > 1),
            table.collective != collective,
            abs(log(table.nodes / nodes)),
            abs(log(table.gpus / gpus)),
            table.gpus,
        ),
    )


def _slope(ways: tuple[Way, ...]) -> float:
    """us per byte of the quickest for large messages."""
    return min(way.transfer_us(_LARGE) for way in ways) / _LARGE


def _least_latency(ways: tuple[Way, ...]) -> float:
    return min(way.latency for way in ways)
