"""Who sends to whom, as a rule that holds for another number of ranks: a Cartesian grid, or fixed distances.

Grid: ranks are the cells of a box of up to three dimensions, the first of which varies fastest (an application whose
last one does has the same numbers with its dimensions reversed), and partners are among the 26 cells around one. Tried
are all ways to write the number of ranks as a product of three; a dimension is periodic if a message goes from its last
plane to its first. A rank's *boundary class* says for each dimension whether it lies in the first plane, the last, or
between; ranks of a class must have partners in the same directions. Of several grids that fit, that with the fewest
dimensions and then the most even one is taken. Two planes do not tell a periodic dimension from another.

Distances: every rank sends to rank + d modulo P, for the same d. An application that uses collectives only has none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Final

import numpy as np

from manyscale.models.workload import RECEIVES, SENDS, OperationKind, Workload

NO_STEP: Final = -128  # of an operation without a partner
_SENDRECV: Final = int(OperationKind.sendrecv)
_AXES: Final = "xyz"

Shape = tuple[int, int, int]


class PatternError(ValueError):
    """Partners that follow no rule known here, or a rule that cannot be applied to a number of ranks: one line."""


@dataclass(frozen=True)
class Grid:
    """Ranks as cells of a box; rank = x + shape[0] (y + shape[1] z)."""

    shape: Shape
    periodic: tuple[bool, bool, bool] = (False, False, False)

    @property
    def num_ranks(self) -> int:
        return int(np.prod(self.shape))

    @property
    def dimensions(self) -> tuple[int, ...]:
        """Those with more than one plane."""
        return tuple(d for d in range(3) if self.shape[d] > 1)

    def coordinates(self, ranks: np.ndarray) -> np.ndarray:
        """int64[n, 3]."""
        first, second, _ = self.shape
        return np.column_stack((ranks % first, ranks // first % second, ranks // (first * second)))

    def steps(self, ranks: np.ndarray, peers: np.ndarray) -> np.ndarray:
        """int64[n, 3]: planes from each rank to its peer, the short way round where that is periodic."""
        away = self.coordinates(peers) - self.coordinates(ranks)
        for d in range(3):
            if self.periodic[d]:
                away[:, d] = (away[:, d] + 1) % self.shape[d] - 1
        return away

    def peers(self, ranks: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """int64[n]: the rank so many planes away (modulo the shape)."""
        x, y, z = ((self.coordinates(ranks) + steps) % np.array(self.shape)).T
        return np.asarray(x + self.shape[0] * (y + self.shape[1] * z))

    def classes(self, ranks: np.ndarray) -> np.ndarray:
        """int64[n]: boundary class; per dimension 0 first plane, 1 between (or periodic), 2 last, 3 the only one."""
        code = np.zeros(len(ranks), np.int64)
        for d, place in enumerate(self.coordinates(ranks).T):
            n = self.shape[d]
            at = np.where(place == 0, 0, np.where(place == n - 1, 2, 1)) if n > 1 else np.full(len(ranks), 3)
            code = 4 * code + (1 if self.periodic[d] else at)
        return code

    def neighbour_classes(self, steps: np.ndarray) -> np.ndarray:
        """int64[n]: the axes along which a step goes, as bits."""
        return (steps != 0) @ np.array([1, 2, 4])

    def class_name(self, neighbour_class: int) -> str:
        return "".join(axis for bit, axis in enumerate(_AXES) if neighbour_class >> bit & 1) or "itself"

    def resized(self, num_ranks: int, shape: Shape | None = None) -> Grid:
        """The grid for another number of ranks: of the given shape, or as close to this one's as the factors allow.

        Raises PatternError if there is none with at least two planes where this has, or if it has ranks between two
        boundaries where this has none to take as a model.
        """
        if shape is None:
            shape = self._closest(num_ranks)
        elif int(np.prod(shape)) != num_ranks:
            raise PatternError(f"a grid of {text(shape)} has {int(np.prod(shape))} ranks, not {num_ranks}")
        for d in range(3):
            old, new = self.shape[d], shape[d]
            if (old == 1) != (new == 1):
                raise PatternError(
                    f"the grid {text(shape)} does not have the dimensions of the trace's {self}: a dimension of one "
                    "plane cannot become one of more, nor the reverse; give another --grid or --ranks"
                )
            if not self.periodic[d] and old < 3 <= new:
                raise PatternError(
                    f"the largest trace's grid {self} has fewer than 3 planes along {_AXES[d]}: no rank between two "
                    f"boundaries is there as a model for {text(shape)}; trace on at least 3 planes in each dimension "
                    f"({3 ** len(self.dimensions)} ranks)"
                )
        return Grid(shape, self.periodic)

    def _closest(self, num_ranks: int) -> Shape:
        flat = np.array(self.shape) == 1
        fits = [shape for shape in _boxes(num_ranks) if np.array_equal(np.array(shape) == 1, flat)]
        if not fits:
            raise PatternError(
                f"{num_ranks} ranks are no grid of {len(self.dimensions)} dimensions with at least 2 planes each, as "
                f"the trace's {self}; choose a number of ranks with more factors"
            )
        stretch = np.log(np.divide(fits, self.shape)[:, list(self.dimensions)])
        uneven = np.round(stretch.std(axis=1), 9)
        return fits[int(np.argmin(uneven))]

    def models(self, larger: Grid) -> np.ndarray:
        """int64[larger.num_ranks]: for each rank of a resized grid the rank here that it takes after: of the same
        boundary class, and between the boundaries at the same share of the way."""
        places = larger.coordinates(np.arange(larger.num_ranks))
        for d in range(3):
            old, new, place = self.shape[d], larger.shape[d], places[:, d]
            if self.periodic[d]:
                places[:, d] = place * old // new
            elif new > 2:
                between = 1 + (place - 1) * (old - 2) // (new - 2)
                places[:, d] = np.where(place == 0, 0, np.where(place == new - 1, old - 1, between))
            else:
                places[:, d] = np.where(place == new - 1, old - 1, 0)
        x, y, z = places.T
        return np.asarray(x + self.shape[0] * (y + self.shape[1] * z))

    def is_like(self, other: Pattern) -> bool:
        """Whether both can be the same application on different numbers of ranks."""
        if not isinstance(other, Grid) or len(self.dimensions) != len(other.dimensions):
            return False
        clear = [d for d in self.dimensions if self.shape[d] > 2 and other.shape[d] > 2]
        return all(self.periodic[d] == other.periodic[d] for d in clear)

    def __str__(self) -> str:
        round_about = "".join(axis for axis, is_so in zip(_AXES, self.periodic, strict=True) if is_so)
        return text(self.shape) + (f" (periodic along {round_about})" if round_about else "")


@dataclass(frozen=True)
class Distances:
    """Every rank sends to the ranks at these signed distances, modulo the number of ranks; all are of one class."""

    num_ranks: int
    distances: tuple[int, ...] = ()

    @property
    def shape(self) -> Shape:
        return (self.num_ranks, 1, 1)

    def steps(self, ranks: np.ndarray, peers: np.ndarray) -> np.ndarray:
        away = _signed(peers - ranks, self.num_ranks)
        return np.column_stack((away, np.zeros((len(away), 2), np.int64)))

    def peers(self, ranks: np.ndarray, steps: np.ndarray) -> np.ndarray:
        return np.asarray((ranks + steps[:, 0]) % self.num_ranks)

    def classes(self, ranks: np.ndarray) -> np.ndarray:
        return np.zeros(len(ranks), np.int64)

    def neighbour_classes(self, steps: np.ndarray) -> np.ndarray:
        return np.asarray(steps[:, 0])

    def class_name(self, neighbour_class: int) -> str:
        return f"{neighbour_class:+d}"

    def resized(self, num_ranks: int, shape: Shape | None = None) -> Distances:
        """The same distances among another number of ranks. Raises PatternError if they do not fit in."""
        if shape is not None:
            raise PatternError(f"the trace has no grid ({self}); leave --grid out")
        if self.distances and num_ranks <= 2 * max(abs(each) for each in self.distances):
            raise PatternError(f"{num_ranks} ranks are too few for partners at the distances of the trace ({self})")
        return Distances(num_ranks, self.distances)

    def models(self, larger: Distances) -> np.ndarray:
        return np.arange(larger.num_ranks) * self.num_ranks // larger.num_ranks

    def is_like(self, other: Pattern) -> bool:
        return isinstance(other, Distances) and self.distances == other.distances

    def __str__(self) -> str:
        if not self.distances:
            return "collectives only"
        return f"distances {', '.join(f'{each:+d}' for each in self.distances)} modulo {self.num_ranks}"


Pattern = Grid | Distances


@dataclass(frozen=True)
class Edges:
    """The distinct pairs of ranks between which a message goes, sorted."""

    num_ranks: int
    source: np.ndarray
    destination: np.ndarray

    @cached_property
    def pairs(self) -> np.ndarray:
        return np.column_stack((self.source, self.destination))


def edges_of(workload: Workload) -> Edges:
    """Every pair that a send or a receive of the workload names. O(operations log operations)."""
    kind, rank, peer = (workload.column("operations", name) for name in ("kind", "rank", "peer"))
    from_rank = workload.column("operations", "source")
    sends = np.isin(kind, SENDS) & (peer >= 0)
    receives = np.isin(kind, RECEIVES) & (kind != _SENDRECV) & (peer >= 0)
    both = (kind == _SENDRECV) & (from_rank >= 0)
    source = np.concatenate((rank[sends], peer[receives], from_rank[both])).astype(np.int64)
    destination = np.concatenate((peer[sends], rank[receives], rank[both])).astype(np.int64)
    distinct = np.unique(source * workload.num_ranks + destination)
    return Edges(workload.num_ranks, distinct // workload.num_ranks, distinct % workload.num_ranks)


def find_pattern(edges: Edges, like: Pattern | None = None) -> Pattern:
    """The rule of the partners; ``like`` is that of a larger trace of the same program, which is then sought.

    Raises PatternError that names a rank, its partner, and why that is no neighbour.
    """
    if not len(edges.source):
        return Distances(edges.num_ranks)
    found: list[Pattern] = [grid for shape in _boxes(edges.num_ranks) if (grid := _grid(edges, shape)) is not None]
    found.sort(key=lambda grid: (np.count_nonzero(np.array(grid.shape) > 1), max(grid.shape), grid.shape[::-1]))
    distances = _distances(edges)
    if distances is not None:
        found.append(distances)
    if like is not None:
        found = [each for each in found if like.is_like(each)]
        if not found:
            raise PatternError(f"partners do not follow the pattern of the largest trace ({like})")
    if not found:
        raise PatternError(_why_none(edges))
    return found[0]


def _boxes(num_ranks: int) -> list[Shape]:
    divisors = [d for d in range(1, num_ranks + 1) if num_ranks % d == 0]
    return [(a, b, num_ranks // (a * b)) for a, b in product(divisors, divisors) if num_ranks % (a * b) == 0]


def _beyond(edges: Edges, shape: Shape) -> tuple[np.ndarray, tuple[bool, bool, bool]]:
    """Which edges do not go to a cell around, and which dimensions are periodic."""
    away = np.abs(Grid(shape).steps(edges.source, edges.destination))
    last = np.array(shape) - 1
    around = (away == last) & (last > 1)
    periodic = tuple(bool(each) for each in around.any(axis=0))
    return ~((away <= 1) | around).all(axis=1), (periodic[0], periodic[1], periodic[2])


def _grid(edges: Edges, shape: Shape) -> Grid | None:
    beyond, periodic = _beyond(edges, shape)
    if beyond.any():
        return None
    grid = Grid(shape, periodic)
    return None if _uneven(edges, grid) is not None else grid


def _uneven(edges: Edges, grid: Grid) -> int | None:
    """An edge whose direction only some ranks of its sender's class have; None if there is none."""
    step = (grid.steps(edges.source, edges.destination) + 1) @ np.array([9, 3, 1])
    classes = grid.classes(np.arange(edges.num_ranks))
    key = classes[edges.source] * 27 + step
    _, inverse, counts = np.unique(key, return_inverse=True, return_counts=True)
    some = counts[inverse] != np.bincount(classes)[classes[edges.source]]
    return int(np.argmax(some)) if some.any() else None


def _distances(edges: Edges) -> Distances | None:
    away = _signed(edges.destination - edges.source, edges.num_ranks)
    distinct, counts = np.unique(away, return_counts=True)
    if np.any(counts != edges.num_ranks) or 2 * len(distinct) > edges.num_ranks:
        return None  # partners of half of the ranks are no neighbourhood: their number would grow with the ranks
    return Distances(edges.num_ranks, tuple(int(each) for each in distinct))


def _signed(away: np.ndarray, num_ranks: int) -> np.ndarray:
    return (away + (num_ranks - 1) // 2) % num_ranks - (num_ranks - 1) // 2


def _why_none(edges: Edges) -> str:
    """The first message that the best grid does not explain."""
    tried = [(int(np.count_nonzero(_beyond(edges, shape)[0])), max(shape), shape) for shape in _boxes(edges.num_ranks)]
    num_beyond, _, shape = min(tried)
    beyond, periodic = _beyond(edges, shape)
    grid = Grid(shape, periodic)
    if num_beyond:
        i = int(np.argmax(beyond))
        step = Grid(shape).steps(edges.source[i : i + 1], edges.destination[i : i + 1])[0]
        why = (
            f"({', '.join(f'{each:+d}' for each in step)}) planes away and no neighbour in a grid of {text(shape)}, "
            f"the best that was found ({num_beyond} of {len(edges.source)} pairs of ranks do not fit)"
        )
    else:
        i = _uneven(edges, grid) or 0
        why = f"a direction in a grid of {grid} in which not all ranks of its boundary class send"
    return (
        f"rank {edges.source[i]} sends to rank {edges.destination[i]}, {why}, nor do all ranks send at the same "
        "distances: partners on another number of ranks cannot be told"
    )


def text(shape: Shape) -> str:
    """``4x4x4``."""
    return "x".join(str(each) for each in shape)
