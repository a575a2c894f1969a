"""What follows from the source of the programs: task instances per type, dependence edges, messages and their bytes.

Nothing here is measured: kernels have closed forms, the distributed programs are walked through step by step. Arguments
are those of the command line, in its order; what follows the iterations has the program's default. Counts are those of
all iterations together. A task's type is the function that its construct calls. An edge is a pair of sibling tasks one
of which must wait for the other, as they declare (OpenMP 5.0, section 2.17.11): a reader for the last writer; a writer
for the readers since, or for the last writer if there are none. No dependences cross iterations, each of which is a
parallel region of its own.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

PROGRAMS_FOLDER: Final = Path(__file__).parent
_DOUBLE_BYTES: Final = 8


@dataclass
class RankCounts:
    """Of one rank; point-to-point messages only."""

    tasks: Counter[str] = field(default_factory=Counter)
    num_edges: int = 0
    num_sent: int = 0
    sent_bytes: int = 0
    num_received: int = 0
    received_bytes: int = 0

    def times(self, iterations: int) -> RankCounts:
        tasks = Counter({name: count * iterations for name, count in self.tasks.items()})
        others = (self.num_edges, self.num_sent, self.sent_bytes, self.num_received, self.received_bytes)
        return RankCounts(tasks, *(count * iterations for count in others))


class Siblings:
    """Tasks of one parent, in order of creation, and the edges between them."""

    def __init__(self) -> None:
        self.tasks: Counter[str] = Counter()
        self._edges: set[tuple[int, int]] = set()
        self._writer: dict[Hashable, int] = {}
        self._readers: dict[Hashable, list[int]] = {}

    @property
    def num_edges(self) -> int:
        return len(self._edges)

    def create(self, name: str, reads: Iterable[Hashable] = (), writes: Iterable[Hashable] = ()) -> None:
        task = self.tasks.total()
        self.tasks[name] += 1
        written = set(writes)
        read = set(reads) - written
        for place in read:
            if place in self._writer:
                self._edges.add((self._writer[place], task))
            self._readers.setdefault(place, []).append(task)
        for place in written:
            before = self._readers.pop(place, None) or ([self._writer[place]] if place in self._writer else [])
            self._edges.update((earlier, task) for earlier in before)
            self._writer[place] = task


class _Ranks:
    """Counts of every rank while an iteration is walked through."""

    def __init__(self, num_ranks: int) -> None:
        self.num_ranks = num_ranks
        self.rows, self.columns = grid(num_ranks)
        self.siblings = [Siblings() for _ in range(num_ranks)]
        self.counts = [RankCounts() for _ in range(num_ranks)]

    def owner(self, row: int, column: int) -> int:
        return row % self.rows * self.columns + column % self.columns

    def send(self, source: int, destinations: Iterable[int], num_bytes: int) -> None:
        """One message to each other rank among the destinations, however often it is named."""
        for destination in set(destinations) - {source}:
            self.counts[source].num_sent += 1
            self.counts[source].sent_bytes += num_bytes
            self.counts[destination].num_received += 1
            self.counts[destination].received_bytes += num_bytes

    def finished(self, iterations: int) -> list[RankCounts]:
        for counts, siblings in zip(self.counts, self.siblings, strict=True):
            counts.tasks, counts.num_edges = siblings.tasks, siblings.num_edges
        return [counts.times(iterations) for counts in self.counts]


def grid(num_ranks: int) -> tuple[int, int]:
    """Rows and columns of ranks: as square as their number allows, never more columns than rows."""
    columns = max(
        divisor for divisor in range(1, num_ranks + 1) if num_ranks % divisor == 0 and divisor**2 <= num_ranks
    )
    return num_ranks // columns, columns


def cholesky(num_ranks: int, blocks: int, block_size: int, iterations: int) -> list[RankCounts]:
    ranks, block_bytes = _Ranks(num_ranks), block_size**2 * _DOUBLE_BYTES
    for k in range(blocks):
        rest = range(k + 1, blocks)
        ranks.siblings[ranks.owner(k, k)].create("potrf", writes=[(k, k)])
        ranks.send(ranks.owner(k, k), (ranks.owner(i, k) for i in rest), block_bytes)
        for i in rest:
            ranks.siblings[ranks.owner(i, k)].create("trsm", reads=[(k, k)], writes=[(i, k)])
            users = [ranks.owner(i, j) for j in range(k + 1, i + 1)] + [ranks.owner(j, i) for j in range(i, blocks)]
            ranks.send(ranks.owner(i, k), users, block_bytes)
        for i in rest:
            ranks.siblings[ranks.owner(i, i)].create("syrk", reads=[(i, k)], writes=[(i, i)])
            for j in range(k + 1, i):
                ranks.siblings[ranks.owner(i, j)].create("gemm", reads=[(i, k), (j, k)], writes=[(i, j)])
    return ranks.finished(iterations)


def sparselu(num_ranks: int, blocks: int, block_size: int, iterations: int) -> list[RankCounts]:
    ranks, block_bytes = _Ranks(num_ranks), block_size**2 * _DOUBLE_BYTES
    square = [(i, j) for i in range(blocks) for j in range(blocks)]
    there = {(i, j) for i, j in square if abs(i - j) <= 1 or (3 * i + 5 * j) % 7 == 0}
    for k in range(blocks):
        right = [(k, j) for j in range(k + 1, blocks) if (k, j) in there]
        below = [(i, k) for i in range(k + 1, blocks) if (i, k) in there]
        ranks.siblings[ranks.owner(k, k)].create("lu0")
        ranks.send(ranks.owner(k, k), (ranks.owner(*block) for block in right + below), block_bytes)
        for block in right:
            ranks.siblings[ranks.owner(*block)].create("fwd")
            ranks.send(ranks.owner(*block), (ranks.owner(i, block[1]) for i, _ in below), block_bytes)
        for block in below:
            ranks.siblings[ranks.owner(*block)].create("bdiv")
            ranks.send(ranks.owner(*block), (ranks.owner(block[0], j) for _, j in right), block_bytes)
        for i, _ in below:
            for _, j in right:
                ranks.siblings[ranks.owner(i, j)].create("bmod")
                there.add((i, j))
    return ranks.finished(iterations)


def jacobi(num_ranks: int, blocks: int, block_size: int, iterations: int) -> list[RankCounts]:
    ranks, edge_bytes = _Ranks(num_ranks), block_size * _DOUBLE_BYTES
    for rank, siblings in enumerate(ranks.siblings):
        row, column = divmod(rank, ranks.columns)
        for down, right in ((-1, 0), (1, 0), (0, -1), (0, 1)):
            inside = 0 <= row + down < ranks.rows and 0 <= column + right < ranks.columns
            for index in range(blocks):
                siblings.create("exchange", writes=["mpi", (-down, -right, index)])
                if inside:
                    ranks.send(rank, [(row + down) * ranks.columns + column + right], edge_bytes)
        for i in range(blocks):
            for j in range(blocks):
                halos = [(-1, 0, j)] * (i == 0) + [(1, 0, j)] * (i == blocks - 1)
                halos += [(0, -1, i)] * (j == 0) + [(0, 1, i)] * (j == blocks - 1)
                siblings.create("update", reads=halos)
    return ranks.finished(iterations)


def multizone(
    num_ranks: int, zones: int, rows: int, columns: int, block_size: int, ratio: int, solves: int, iterations: int
) -> list[RankCounts]:
    ranks, num_zones = _Ranks(num_ranks), zones * num_ranks
    for zone in range(num_zones):
        rank = zone % num_ranks
        width = math.floor(columns * ratio ** (zone / (num_zones - 1)) + 0.5) if num_zones > 1 else columns
        ranks.siblings[rank].tasks.update(smooth=rows, solve=width)
        for other in (zone - 1, zone + 1):
            if 0 <= other < num_zones:
                ranks.send(rank, [other % num_ranks], rows * block_size * _DOUBLE_BYTES)
    return ranks.finished(iterations)


def merge_sort(elements: int, leaf: int, grain: int, iterations: int) -> RankCounts:
    tasks: Counter[str] = Counter()

    def merge(count: int) -> None:
        if count > grain:
            tasks["merge"] += 2
            merge(count // 2)
            merge(count - count // 2)

    def sort(count: int) -> None:
        if count > leaf:
            tasks["sort"] += 2
            sort(count // 2)
            sort(count - count // 2)
            merge(count)

    sort(elements)
    return RankCounts(tasks).times(iterations)


def sparse_matrix_vector(
    tasks: int, rows: int, nonzeros: int, columns: int, iterations: int, vectors: int = 1
) -> RankCounts:
    return RankCounts(Counter(multiply=tasks)).times(iterations)


def n_body(blocks: int, bodies: int, partners: int, iterations: int) -> RankCounts:
    tasks = Counter(force=blocks * (2 * partners + 1), move=blocks)
    return RankCounts(tasks, blocks * (6 * partners + 1)).times(iterations)


def histogram(tasks: int, elements: int, bins: int, iterations: int, levels: int = 1) -> RankCounts:
    return RankCounts(Counter(count=tasks)).times(iterations)


def reduction(leaves: int, rows: int, width: int, iterations: int, shares: int = 1) -> RankCounts:
    return RankCounts(Counter(sum=leaves, add=leaves - 1), 2 * (leaves - 1)).times(iterations)


def stencil(
    x_blocks: int, y_blocks: int, z_blocks: int, block_size: int, iterations: int, rounds: int = 1
) -> RankCounts:
    num_blocks = x_blocks * y_blocks * z_blocks
    faces = 3 * num_blocks - y_blocks * z_blocks - x_blocks * z_blocks - x_blocks * y_blocks
    num_edges = (num_blocks + 2 * faces) * (2 * rounds - 1)
    return RankCounts(Counter(sweep=2 * num_blocks * rounds), num_edges).times(iterations)


def fft(transforms: int, length: int, tile: int, rows: int, iterations: int) -> RankCounts:
    tiles = length // tile
    diagonal, pairs = 3 * transforms * tiles, 3 * transforms * (tiles * (tiles - 1) // 2)
    tasks = Counter(transpose_diagonal=diagonal, transpose_pair=pairs, transform_rows=2 * transforms * (length // rows))
    return RankCounts(tasks).times(iterations)


def k_means(
    blocks: int, points: int, centres: int, dimensions: int, iterations: int, group: int | None = None
) -> RankCounts:
    tasks, size = Counter(assign=blocks, gather=0, collect=centres), group or blocks
    while group and size < blocks:
        tasks["gather"] += math.ceil(blocks / size)
        size *= group
    return RankCounts(tasks).times(iterations)


def matrix_multiply(blocks: int, block_size: int, iterations: int, rows: int | None = None) -> RankCounts:
    chains = (rows or blocks) * blocks
    return RankCounts(Counter(multiply=chains * blocks), chains * (blocks - 1)).times(iterations)


def convolution_2d(tiles: int, tile: int, radius: int, iterations: int, step: int = 1) -> RankCounts:
    return RankCounts(Counter(convolve=tiles**2)).times(iterations)


def monte_carlo(tasks: int, samples: int, table: int, iterations: int) -> RankCounts:
    return RankCounts(Counter(sample=tasks)).times(iterations)


def vector_operation(tasks: int, elements: int, iterations: int, updates: int = 1) -> RankCounts:
    return RankCounts(Counter(add_scaled=tasks)).times(iterations)


APPS: Final[dict[str, Callable[..., list[RankCounts]]]] = {
    function.__name__: function for function in (cholesky, sparselu, jacobi, multizone)
}
KERNELS: Final[dict[str, Callable[..., RankCounts]]] = {
    function.__name__: function
    for function in (
        convolution_2d,
        fft,
        histogram,
        k_means,
        matrix_multiply,
        merge_sort,
        monte_carlo,
        n_body,
        reduction,
        sparse_matrix_vector,
        stencil,
        vector_operation,
    )
}


def expected(program: str, arguments: Iterable[int], num_ranks: int = 1) -> list[RankCounts]:
    """One entry per rank. All arguments of the program up to its iterations are named."""
    if program in APPS:
        return APPS[program](num_ranks, *arguments)
    return [KERNELS[program](*arguments)]


def source(program: str) -> Path:
    return PROGRAMS_FOLDER / ("apps" if program in APPS else "kernels") / f"{program}.c"


def task_names(program: str) -> dict[int, str]:
    """The line of each task construct in the program's source, and the function that it calls."""
    lines = source(program).read_text().splitlines()
    names = {}
    for number, line in enumerate(lines, start=1):
        if re.match(r"\s*#pragma omp task\b", line):
            called = re.match(r"\s*(\w+)\(", lines[number])
            if called is None:
                raise ValueError(f"{source(program)}, line {number}: no call follows the task construct")
            names[number] = called[1]
    return names
