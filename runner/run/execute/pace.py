"""How fast workers are, measured: a unit of weight w of a kind takes ``w * cost(kind) / speed(worker)`` seconds.

Costs and speeds are learned together from units that are finished. Only their quotient means something: a speed is
beside the other workers', 1 for one of which nothing is known yet nor of others on its node. The first short unit of a
kind on a worker says nothing of its speed: compiled functions are loaded meanwhile.
"""

from __future__ import annotations

import math
from typing import Final

from manyscale.runner.predict.units import WorkUnit

_NEWEST: Final = 0.2  # the least share that what was measured last has in a mean
WARM_SECONDS: Final = 2.0  # what a worker may take to load compiled functions, beside its unit
_FADING: Final = 0.95  # per unit, of what was worst
_SHORTEST_SECONDS: Final = 1e-6  # what a clock may make of less


class Pace:
    """What was measured. ``worst``, by kind: how many times as long as expected the longest of the units took that were
    finished of late."""

    def __init__(self) -> None:
        self._costs: dict[str, tuple[float, int]] = {}  # seconds per weight at speed 1, of how many units
        self._speeds: dict[int, tuple[float, int]] = {}  # by worker: logarithm, of how many units
        self._warm: dict[int, set[str]] = {}  # kinds that a worker has had
        self._nodes: dict[str, float] = {}  # the logarithm last learned of a worker there
        self._place: dict[int, str] = {}
        self._counted: dict[int, float] = {}  # speeds in the sum
        self._sum = 0.0
        self.worst: dict[str, float] = {}

    def joins(self, worker: int, node: str = "") -> None:
        """A worker is there."""
        if worker not in self._place:
            self._place[worker] = node
            self._count(worker)

    def leaves(self, worker: int) -> None:
        """It is gone; what is known of its node stays."""
        if worker in self._place:
            del self._place[worker]
            self._speeds.pop(worker, None)
            self._warm.pop(worker, None)
            self._sum -= self._counted.pop(worker)

    def _count(self, worker: int) -> None:
        speed = self.speed(worker)
        self._sum += speed - self._counted.get(worker, 0.0)
        self._counted[worker] = speed

    def speed(self, worker: int) -> float:
        """Beside the other workers."""
        known = self._speeds.get(worker)
        return math.exp(known[0] if known is not None else self._nodes.get(self._place.get(worker, ""), 0.0))

    @property
    def total_speed(self) -> float:
        """Of all workers."""
        return max(self._sum, 0.0)

    @property
    def fastest(self) -> float:
        """The speed of the fastest worker."""
        return max(self._counted.values(), default=1.0)

    def cost(self, kind: str) -> float | None:
        """Seconds per weight at speed 1; None before a unit of the kind is finished."""
        known = self._costs.get(kind)
        return None if known is None else known[0]

    def seconds(self, worker: int, unit: WorkUnit) -> float | None:
        """What a unit is expected to take; None before one of its kind is finished."""
        cost = self.cost(unit.kind)
        return None if cost is None else unit.weight * cost / self.speed(worker)

    def learned(self, worker: int, unit: WorkUnit, seconds: float) -> None:
        """A unit is finished, which took so long there."""
        self.joins(worker)
        seconds, weight = max(seconds, _SHORTEST_SECONDS), max(unit.weight, 1)
        speed = self.speed(worker)
        cost, count = self._costs.get(unit.kind, (0.0, 0))
        kinds = self._warm.setdefault(worker, set())
        is_first = unit.kind not in kinds and seconds < WARM_SECONDS
        kinds.add(unit.kind)
        if is_first and count:
            return
        if count:
            ratio = weight * cost / seconds
            faded = 1.0 + _FADING * (self.worst.get(unit.kind, 1.0) - 1.0)
            self.worst[unit.kind] = max(faded, speed / ratio)
            before, times = self._speeds.get(worker, (math.log(speed), 0))
            after = before + max(1.0 / (times + 1), _NEWEST) * (math.log(ratio) - before)
            self._speeds[worker] = (after, times + 1)
            self._nodes[self._place[worker]] = after
            self._count(worker)
        share = max(1.0 / (count + 1), _NEWEST)
        self._costs[unit.kind] = (cost + share * (seconds * self.speed(worker) / weight - cost), count + 1)
