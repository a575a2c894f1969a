"""Parameters of a network from a measured ping-pong: latency and bandwidth by size class, threshold, overheads.

The time of a message is taken to be linear in its size within each class of sizes, T = L + S G (Hockney 1994; several
classes as in SMPI's calibration, Clauss et al., IPDPS 2011). The classes are the ones that minimise the squared
*relative* errors, found by dynamic programming over all borders; their number is the one with the least Bayesian
information criterion. Measurements are printed with few digits, so relative errors under 0.2 % are not told apart.

A jump between two classes, at least 5 % of the time there, is taken for the switch from eager to rendezvous.

A ping-pong cannot tell a latency from the processor time at both ends. If streams of messages were measured too, the
time between two small ones bounds that time, the o of LogGP (Alexandrov et al., SPAA 1995): the smaller of it and half
the latency is taken as the overhead, and the latency loses it twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

MOST_CLASSES: Final = 5
LEAST_POINTS: Final = 3  # of a class
RESOLUTION: Final = 0.002  # relative errors below are those of the printed digits
LEAST_JUMP: Final = 0.05  # of the time at the border


@dataclass(frozen=True)
class SizeClass:
    """Messages of ``first_bytes`` to under ``end_bytes`` (None: no limit) take ``latency_ps + ps_per_byte * bytes``;
    with the standard errors of both."""

    first_bytes: int
    end_bytes: int | None
    latency_ps: float
    ps_per_byte: float
    latency_error_ps: float
    ps_per_byte_error: float

    def time_ps(self, size: np.ndarray | float) -> np.ndarray | float:
        return self.latency_ps + self.ps_per_byte * size


@dataclass(frozen=True)
class Calibration:
    """``classes`` by size; ``eager_threshold_bytes``, None if no jump shows one; ``residual`` (measured - fitted) /
    measured per measurement; ``overhead_ps`` and ``gap_ps``, None if no stream was measured."""

    classes: tuple[SizeClass, ...]
    eager_threshold_bytes: int | None
    residual: np.ndarray
    overhead_ps: float | None
    gap_ps: float | None

    @property
    def latency_ps(self) -> float:
        """Of the smallest messages."""
        return self.classes[0].latency_ps

    @property
    def wire_latency_ps(self) -> float:
        """The same without the processor time of both ends, if that is known."""
        return max(0.0, self.latency_ps - 2 * (self.overhead_ps or 0.0))

    @property
    def ps_per_byte(self) -> float:
        """Of the largest messages whose bytes cost anything, 0 if none do."""
        return next((part.ps_per_byte for part in reversed(self.classes) if part.ps_per_byte > 0), 0.0)


def fit_ping_pong(
    sizes: np.ndarray,
    times_ps: np.ndarray,
    stream_sizes: np.ndarray | None = None,
    stream_times_ps: np.ndarray | None = None,
) -> Calibration:
    """Fit one-way times of messages; ``sizes`` int64 bytes in increasing order, ``times_ps`` float64. Of streams:
    the time from one message to the next. Raises ValueError for measurements that say nothing. O(measurements^2)."""
    if len(sizes) < LEAST_POINTS:
        raise ValueError(f"{len(sizes)} sizes were measured; at least {LEAST_POINTS} are needed")
    if np.any(np.diff(sizes) <= 0) or np.any(sizes < 0):
        raise ValueError("the sizes are not in increasing order")
    if not np.all(np.isfinite(times_ps) & (times_ps > 0)):
        raise ValueError("a time is not positive")
    borders = _borders(sizes.astype(np.float64), times_ps)
    classes = tuple(_size_class(sizes, times_ps, first, last) for first, last in pairwise(borders))
    fitted = np.concatenate([part.time_ps(sizes[a:b]) for part, (a, b) in zip(classes, pairwise(borders), strict=True)])
    overhead = gap = None
    if stream_sizes is not None and stream_times_ps is not None and len(stream_sizes):
        gap = float(stream_times_ps[0])
        overhead = min(gap, classes[0].latency_ps / 2)
    return Calibration(classes, _threshold(classes), (times_ps - fitted) / times_ps, overhead, gap)


def _line(sizes: np.ndarray, times: np.ndarray) -> tuple[float, float, float]:
    """(latency, time per byte, sum of squared relative errors) of the best line with neither below zero."""
    weight = 1 / times**2
    mean_size, mean_time = np.average(sizes, weights=weight), np.average(times, weights=weight)
    spread = np.sum(weight * (sizes - mean_size) ** 2)
    slope = np.sum(weight * (sizes - mean_size) * (times - mean_time)) / spread
    latency = mean_time - slope * mean_size
    if slope < 0:
        slope, latency = 0.0, mean_time
    elif latency < 0:
        slope, latency = np.sum(weight * sizes * times) / np.sum(weight * sizes**2), 0.0
    return float(latency), float(slope), float(np.sum(((times - latency - slope * sizes) / times) ** 2))


def _borders(sizes: np.ndarray, times: np.ndarray) -> list[int]:
    """First measurement of each class, and the end."""
    count = len(sizes)
    cost = np.full((count, count + 1), np.inf)
    for first in range(count):
        for end in range(first + LEAST_POINTS, count + 1):
            cost[first, end] = _line(sizes[first:end], times[first:end])[2]
    best = cost[0].copy()  # of the first `end` measurements in k classes
    chosen = [0, count]
    least = _criterion(best[count], count, 1)
    cuts: list[np.ndarray] = []
    for num_classes in range(2, min(MOST_CLASSES, count // LEAST_POINTS) + 1):
        total = best[:count, None] + cost
        cuts.append(np.argmin(total, axis=0))
        best = np.min(total, axis=0)
        criterion = _criterion(best[count], count, num_classes)
        if criterion < least:
            least, chosen = criterion, _trace(cuts, count)
    return chosen


def _criterion(squares: float, count: int, num_classes: int) -> float:
    """Bayesian information criterion of normal relative errors: two parameters and a border per class."""
    return float(count * np.log(max(squares / count, RESOLUTION**2)) + 3 * num_classes * np.log(count))


def _trace(cuts: list[np.ndarray], count: int) -> list[int]:
    borders = [count]
    for cut in reversed(cuts):
        borders.append(int(cut[borders[-1]]))
    return [0, *reversed(borders)]


def _size_class(sizes: np.ndarray, times: np.ndarray, first: int, end: int) -> SizeClass:
    x, t = sizes[first:end].astype(np.float64), times[first:end]
    latency, slope, squares = _line(x, t)
    weight = 1 / t**2
    mean = np.average(x, weights=weight)
    spread = np.sum(weight * (x - mean) ** 2)
    variance = squares / max(1, len(x) - 2)
    return SizeClass(
        first_bytes=int(sizes[first]) if first else 0,
        end_bytes=int(sizes[end]) if end < len(sizes) else None,
        latency_ps=latency,
        ps_per_byte=slope,
        latency_error_ps=float(np.sqrt(variance * (1 / np.sum(weight) + mean**2 / spread))),
        ps_per_byte_error=float(np.sqrt(variance / spread)),
    )


def _threshold(classes: tuple[SizeClass, ...]) -> int | None:
    """The border with the largest jump upwards."""
    largest, found = LEAST_JUMP, None
    for below, above in pairwise(classes):
        before, after = below.time_ps(above.first_bytes), above.time_ps(above.first_bytes)
        if (after - before) / before > largest:
            largest, found = float((after - before) / before), above.first_bytes
    return found
