"""Launches that a replay found on one GPU at the same time, in sets that are simulated together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

CUT: Final = 0.01  # of the shorter of two launches: those that overlap for less are not simulated together
SAME: Final = 0.01  # of the shortest launch of a set: as far may launches of a like set be moved


@dataclass(frozen=True)
class Runs:
    """Launches of a replay, n of them: ``given`` int64[n], rows of what ranks give (device.program.Given), ascending;
    ``gpu``, ``rank``, ``stream`` (of the rank) and ``priority``; ``launch``: the number of the launch whose
    instructions it executes. In ps: ``start``, when nothing was before it in its stream any more; ``runs``, when it was
    on the GPU, and ``end``."""

    given: np.ndarray
    gpu: np.ndarray
    rank: np.ndarray
    stream: np.ndarray
    priority: np.ndarray
    launch: np.ndarray
    start: np.ndarray
    runs: np.ndarray
    end: np.ndarray


@dataclass(frozen=True)
class Together:
    """A set of launches, in the order in which they come: ``given`` of each; what makes sets alike: ``launch``,
    ``after`` (which one of them it follows, -1: none), ``priority`` and ``space`` (number of the process); ``at``
    cycles from the first one's begin, or from the end of the one before. ``is_core``: those whose times are taken from
    the set. ``overlap_ps``: for which these run beside others."""

    given: tuple[int, ...]
    launch: tuple[int, ...]
    after: tuple[int, ...]
    priority: tuple[int, ...]
    space: tuple[int, ...]
    at: tuple[int, ...]
    is_core: tuple[bool, ...]
    shortest: int
    overlap_ps: int

    def is_like(self, other: Together) -> bool:
        """Whether what ``other`` takes is what this one takes."""
        mine, its = ((x.launch, x.after, x.priority, x.space) for x in (self, other))
        return mine == its and max(abs(x - y) for x, y in zip(self.at, other.at, strict=True)) <= SAME * self.shortest


Rule = Callable[[np.ndarray], bool]  # of int64[], indices of runs


def sets_of(runs: Runs, cycle_ps: float, fits: Rule, may_all: Rule) -> list[Together]:
    """Launches that run beside each other, directly or by way of others, are one set where it ``fits``. Else those that
    come one behind the other are, as many as fit with all that run beside them; or, where not ``may_all`` of them be
    simulated, each with those beside it, since more of such sets are alike. The longest overlaps first. O(launches x
    streams), and where they do not fit O(launches of a set) for each."""
    beside = _beside(runs)
    found = []
    for members in _joined(beside):
        members = members[np.lexsort((runs.given[members], runs.runs[members]))]
        for core in _cores(members, beside, fits, may_all):
            near = _with_neighbours(core, beside)
            if fits(near):
                found.append(_together(runs, near, np.array(core), cycle_ps, beside))
    return sorted(found, key=lambda each: (-each.overlap_ps, each.given))


def _cores(members: np.ndarray, beside: list[dict[int, int]], fits: Rule, may_all: Rule) -> list[list[int]]:
    if fits(members):
        return [members.tolist()]
    if not may_all(members):
        return [[each] for each in members.tolist()]
    found: list[list[int]] = []
    for each in members.tolist():
        if found and fits(_with_neighbours([*found[-1], each], beside)):
            found[-1].append(each)
        else:
            found.append([each])
    return found


def _with_neighbours(core: Sequence[int], beside: list[dict[int, int]]) -> np.ndarray:
    return np.array(sorted({*core, *(other for each in core for other in beside[each])}))


def _beside(runs: Runs) -> list[dict[int, int]]:
    """Of each launch, for how many ps which others run beside it."""
    found: list[dict[int, int]] = [{} for _ in runs.given]
    running: list[int] = []
    order = np.lexsort((runs.given, runs.runs, runs.gpu)).tolist()
    for each in order:
        begin = runs.runs[each]
        running = [other for other in running if runs.gpu[other] == runs.gpu[each] and runs.end[other] > begin]
        for other in running:
            overlap = int(min(runs.end[other], runs.end[each]) - begin)
            shorter = min(runs.end[each] - begin, runs.end[other] - runs.runs[other])
            if overlap > CUT * shorter:
                found[each][other] = found[other][each] = overlap
        running.append(each)
    return found


def _joined(beside: list[dict[int, int]]) -> list[np.ndarray]:
    """Those that others join, of two and more."""
    found, known = [], np.zeros(len(beside), np.bool_)
    for first in range(len(beside)):
        if known[first] or not beside[first]:
            continue
        members, open_ones = [], [first]
        known[first] = True
        while open_ones:
            each = open_ones.pop()
            members.append(each)
            new = [other for other in beside[each] if not known[other]]
            known[new] = True
            open_ones += new
        found.append(np.array(sorted(members)))
    return found


def _together(
    runs: Runs, members: np.ndarray, core: np.ndarray, cycle_ps: float, beside: list[dict[int, int]]
) -> Together:
    members = members[np.lexsort((runs.given[members], runs.runs[members]))]
    first = int(runs.runs[members[0]])
    after, at = [], []
    for place, each in enumerate(members.tolist()):
        before = _before(runs, members[:place], each)
        after.append(before)
        begin = first if before < 0 else int(runs.end[members[before]])
        at.append(max(0, round((int(runs.runs[each]) - begin) / cycle_ps)))
    spaces = np.unique(runs.rank[members], return_inverse=True)[1]
    return Together(
        given=tuple(runs.given[members].tolist()),
        launch=tuple(runs.launch[members].tolist()),
        after=tuple(after),
        priority=tuple(runs.priority[members].tolist()),
        space=tuple(spaces.tolist()),
        at=tuple(at),
        is_core=tuple(np.isin(members, core).tolist()),
        shortest=round(int((runs.end - runs.runs)[members].min()) / cycle_ps),
        overlap_ps=sum(sum(beside[each].values()) for each in core.tolist()),
    )


def _before(runs: Runs, earlier: np.ndarray, each: int) -> int:
    """Which of ``earlier`` a launch waited for: one whose end is its start; of several the one in its stream."""
    ends = np.flatnonzero(runs.end[earlier] == runs.start[each])
    if not len(ends):
        return -1
    at = earlier[ends]
    own = (runs.stream[at] == runs.stream[each]) & (runs.rank[at] == runs.rank[each])
    return int(ends[own][-1] if own.any() else ends[-1])
