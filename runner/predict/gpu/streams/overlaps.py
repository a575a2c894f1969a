"""Launches that overlap, simulated together: what each takes beside the others goes back to the replay.

The replay first lets launches share the GPU by what each asks for alone (models/gpu/device). Those that it finds on a
GPU at the same time are then simulated together by the cycle model, each arriving when it did there, or as long behind
another one's end; and the replay is made again, in which each takes what it took beside the others. That goes on until
none has moved any more, which it has not after one round where arrivals follow from hosts and from ends of launches of
the set; ROUNDS times at most. So what launches do to each other in queues, collectors, L1, L2 and rows of DRAM is
simulated, and no rate of a launch beside another is taken from elsewhere.

What it costs is bounded: a set holds at most MOST_BYTES and MOST_LAUNCHES launches (larger ones are split, sets.py),
like sets are simulated once, and all sets of a run together are MOST_SETS at most, with TIMES as many warp instructions
as the launches that it simulates alone, and FREE.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from manyscale.models.gpu.device.hosts import Given
from manyscale.models.gpu.device.program import LaunchKind
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload import Workload
from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.models.workload.quantities import PS_PER_SECOND
from manyscale.runner.predict.gpu.streams.sets import Runs, Together, sets_of
from manyscale.runner.predict.units import Arrays

ROUNDS: Final = 6
MOST_SETS: Final = 256
MOST_LAUNCHES: Final = 256
MOST_BYTES: Final = 1_000_000_000  # held while a set is simulated: of a warp instruction, and of each of its accesses
OF_INSTRUCTION, OF_ACCESS = 6, 12
TIMES: Final = 2
FREE: Final = 20_000_000
SCALED: Final = 0.1  # a launch that stands for another of up to so much more or less
_LAUNCH: Final = int(GpuOperationKind.launch)


@dataclass(frozen=True)
class Known:
    """What the replay takes launches to take: ``given`` int64[n], rows of Given; ``takes_ps`` int64[n]; of which set
    each is (``of_set`` int64[n]), and ``at_ps`` int64[n] when it ran there, from the first one's begin, and
    ``slack_ps``, by how much it may be moved. ``sets``: how many were simulated."""

    sets: int
    given: np.ndarray
    takes_ps: np.ndarray
    of_set: np.ndarray
    at_ps: np.ndarray
    slack_ps: np.ndarray

    def is_same(self, other: Known) -> bool:
        """Whether the same launches are known to take the same."""
        return np.array_equal(self.given, other.given) and np.array_equal(self.takes_ps, other.takes_ps)


NOTHING: Final = Known(0, *(np.zeros(0, np.int64) for _ in range(5)))


@dataclass(frozen=True)
class Overlaps:
    """Of a run. ``given``, with ``launch`` as indices of ``kinds``; ``row`` and ``stands`` int64[kinds]: rows of the
    table of launches, of each and of the one whose instructions it executes (-1: it cannot be simulated beside others);
    ``size`` int64[kinds]: warp instructions; ``held`` bytes; ``budget``: warp instructions that may be simulated.
    ``found``: sets, with the cycles at which each of their launches arrived and ended (none: they could not be
    simulated together)."""

    given: Given
    kinds: Sequence[LaunchKind]
    row: np.ndarray
    stands: np.ndarray
    size: np.ndarray
    held: np.ndarray
    cycle_ps: float
    budget: int
    found: tuple[tuple[Together, np.ndarray, np.ndarray], ...] = ()
    known: Known = field(default=NOTHING)
    rounds: int = 0

    def asks(self, arrays: Arrays) -> tuple[list[Together], Known]:
        """Sets of a replay (its unit's ``arrays``) that are still to be simulated, and what is known of the others."""
        sets = self._sets(arrays)
        unknown: list[Together] = []
        free = self.budget - sum(self.instructions(each) for each, _, _ in self.found)
        room = MOST_SETS - len(self.found)
        for each in sets:
            if self._like(each) is not None or any(each.is_like(other) for other in unknown):
                continue
            size = self.instructions(each)
            if size <= free and room > 0:
                unknown.append(each)
                free, room = free - size, room - 1
        return unknown, self._known(sets)

    def instructions(self, each: Together) -> int:
        """Warp instructions of a set."""
        return int(self.size[self.given.launch[list(each.given)]].sum())

    def after(self, simulated: Sequence[Together], results: Sequence[Arrays], arrays: Arrays) -> Overlaps:
        """With sets that have been simulated, for the replay behind the one of ``arrays``."""
        new = [(each, found["arrival"], found["end"]) for each, found in zip(simulated, results, strict=True)]
        more = replace(self, found=(*self.found, *new), rounds=self.rounds + 1)
        return replace(more, known=more._known(more._sets(arrays)))

    def _like(self, asked: Together) -> tuple[Together, np.ndarray, np.ndarray] | None:
        """The latest that is like it."""
        return next((each for each in reversed(self.found) if asked.is_like(each[0])), None)

    def _sets(self, arrays: Arrays) -> list[Together]:
        rows = np.flatnonzero((self.given.kind == _LAUNCH) & (self.given.launch >= 0) & (arrays["given_runs_ps"] >= 0))
        kind = self.given.launch[rows]
        runs = Runs(
            given=rows,
            gpu=arrays["given_gpu"][rows],
            rank=self.given.rank[rows],
            stream=arrays["given_stream"][rows],
            priority=arrays["given_priority"][rows],
            launch=self.stands[kind],
            start=arrays["given_start_ps"][rows],
            runs=arrays["given_runs_ps"][rows],
            end=arrays["given_end_ps"][rows],
        )
        size, held = self.size[kind], self.held[kind]

        def fits(members: np.ndarray) -> bool:
            is_small = len(members) <= MOST_LAUNCHES and int(held[members].sum()) <= MOST_BYTES
            return is_small and bool((runs.launch[members] >= 0).all())

        return sets_of(runs, self.cycle_ps, fits, lambda members: int(size[members].sum()) <= self.budget)

    def _known(self, sets: Sequence[Together]) -> Known:
        columns: list[list[int]] = [[], [], [], [], []]
        used: set[int] = set()
        for number, each in enumerate(sets):
            like = self._like(each)
            if like is None or not len(like[1]):
                continue
            used.add(id(like))
            _, arrival, end = like
            for place, row in enumerate(each.given):
                if not each.is_core[place]:
                    continue
                took = int(end[place] - arrival[place]) * self.cycle_ps * self.kinds[self.given.launch[row]].scale
                at = round(int(arrival[place] - arrival[0]) * self.cycle_ps)
                slack = round(max(1, each.shortest) * self.cycle_ps / 50)
                for column, value in zip(columns, (row, round(took), number, at, slack), strict=True):
                    column.append(value)
        order = np.argsort(np.array(columns[0], np.int64), kind="stable")
        return Known(len(used), *(np.array(column, np.int64)[order] for column in columns))


def overlaps_of(
    launches: Workload, given: Given, kinds: Sequence[LaunchKind], row: np.ndarray, stands: np.ndarray, gpu: Gpu
) -> Overlaps:
    """``row`` and ``stands`` as Overlaps has them, which tells which can be simulated beside others: those that were
    recorded as a whole, and others of nearly their size."""
    streams, size = launches.gpu, launches.column("launches", "warp_instructions").astype(np.int64)
    assert streams is not None
    ids = launches.column("launches", "launch_id")[stands].tolist()
    able = np.array([streams.recorded_blocks(each) is None for each in ids], np.bool_)
    able &= np.array([abs(kind.scale - 1) <= SCALED for kind in kinds], np.bool_)
    alone = int(size[np.unique(stands)].sum())
    held = OF_INSTRUCTION * size + OF_ACCESS * launches.column("launches", "memory_requests").astype(np.int64)
    cycle_ps, budget = PS_PER_SECOND / gpu.frequency_hz, TIMES * alone + FREE
    return Overlaps(given, kinds, row, np.where(able, stands, -1), size[stands], held[stands], cycle_ps, budget)
