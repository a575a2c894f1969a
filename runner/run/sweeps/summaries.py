"""What is kept of the points of a sweep: their figures, in little space for any number of points."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from manyscale.models.workload.notes import Note, from_json
from manyscale.runner.predict.statistic import Statistic
from manyscale.runner.study import Sweep

_Interval: TypeAlias = tuple[float | None, float | None]


@dataclass(frozen=True)
class Summary:
    """A point without its tables."""

    name: str
    target: str
    num_ranks: int
    axes: Mapping[str, Any]
    statistics: Mapping[str, Statistic]
    notes: Sequence[Note]


class _Described(NamedTuple):
    """What statistics are, without their values: most points of a sweep have the same."""

    place: Mapping[str, int]  # of each name among the values
    words: tuple[tuple[Any, str, str], ...]  # kind, unit, description


class _Figures(Mapping[str, Statistic]):
    """Statistics of a point, each of which is made when it is asked for."""

    def __init__(self, of: _Described, values: Sequence[Any], intervals: Mapping[int, _Interval]) -> None:
        self._of, self._values, self._intervals = of, values, intervals

    def __getitem__(self, name: str) -> Statistic:
        place = self._of.place[name]
        kind, unit, description = self._of.words[place]
        return Statistic(self._values[place], unit, kind, description, *self._intervals.get(place, (None, None)))

    def __iter__(self) -> Iterator[str]:
        return iter(self._of.place)

    def __len__(self) -> int:
        return len(self._of.place)


class _Kept(NamedTuple):
    of: _Described
    values: tuple[Any, ...]
    intervals: Mapping[int, _Interval]
    notes: tuple[Note, ...]
    target: str


class Summaries(Sequence[Summary]):
    """The points of a sweep in their order, each as its ``stats.json`` has it: some 2 KB a point."""

    def __init__(self, sweep: Sweep, name: str) -> None:
        self._sweep, self._name = sweep, name
        self._kept: list[_Kept | None] = [None] * len(sweep)
        self._described: dict[Any, _Described] = {}
        self._notes: dict[str, tuple[Note, ...]] = {}

    def add(self, index: int, target: str, stats: bytes) -> None:
        """Take a point. ``stats``: the content of its ``stats.json``. Raises ValueError, KeyError or TypeError for one
        that is damaged."""
        content = json.loads(stats)
        notes = json.dumps(content.pop("notes")["list"])
        if notes not in self._notes:
            self._notes[notes] = from_json(notes)
        words = tuple((each["kind"], each["unit"], each["description"]) for each in content.values())
        key = (*content, words)
        if key not in self._described:
            self._described[key] = _Described({name: place for place, name in enumerate(content)}, words)
        values = tuple(each["value"] for each in content.values())
        bounds = ((each["ci_low"], each["ci_high"]) for each in content.values())
        intervals = {place: each for place, each in enumerate(bounds) if each != (None, None)}
        self._kept[index] = _Kept(self._described[key], values, intervals, self._notes[notes], target)

    def __len__(self) -> int:
        return len(self._kept)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        point, number = self._kept[index], range(len(self))[index]
        assert point is not None, "asked for before the sweep has ended"
        figures = _Figures(point.of, point.values, point.intervals)
        num_ranks = int(figures["application.ranks"].value)
        return Summary(self._name, point.target, num_ranks, self._sweep.values(number), figures, point.notes)
