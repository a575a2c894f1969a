"""A sweep from its points to their files: the points go to workers a few at a time, in units that predict and write
them (``point_units``); what comes back is small. Points that need work units of their own are prepared here, some at a
time, their units are computed by the workers, and then these assemble them. However many points there are, no more is
held of one that is written than its figures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, islice
from typing import Any, Final, TypeVar

from manyscale.runner.errors import RunError, UserError
from manyscale.runner.predict.units import Arrays, Outcome, WorkUnit, unit_key
from manyscale.runner.progress import Progress
from manyscale.runner.run import pipeline
from manyscale.runner.run.execute.choice import OPERATIONS_PER_SECOND
from manyscale.runner.run.execute.execution import Execution
from manyscale.runner.run.sweeps import point_files
from manyscale.runner.run.sweeps.finished import Finished, FinishedPoints
from manyscale.runner.run.sweeps.point_units import ASSEMBLE, INPUT, KIND, Points, is_alone, written
from manyscale.runner.run.sweeps.summaries import Summaries
from manyscale.runner.storage import publishing

T = TypeVar("T")
VERSION: Final = 1  # of a unit of points
MOST_POINTS_OF_UNIT: Final = 16
UNIT_SECONDS: Final = 0.25  # of replays that a unit carries
LEAST_UNITS: Final = 32  # of a sweep, for an even load
POINT_OPERATIONS: Final = 200_000  # that take as long as to prepare, assemble and write a small point
UNITS_AT_ONCE: Final = 1024
POINTS_AT_ONCE: Final = 256  # of those that are predicted here
LEAST_ASSEMBLED: Final = 32  # points that repay what a worker loads for it, 1 to 2 s of CPU


@dataclass(frozen=True)
class SweepRun:
    """One attempt at a sweep. ``finished`` and ``summaries`` know the points that are written; ``prepared``: points
    that are ready to be predicted here."""

    points: Points
    execution: Execution
    finished: FinishedPoints
    summaries: Summaries
    progress: Progress
    stamp: str
    prepared: dict[int, pipeline.Point] = field(default_factory=dict)

    def predict(self) -> None:
        """Predict and write the points that are missing, in their order as far as workers keep it. Raises UserError for
        one that is refused, RunError for one that fails: in units of points for the one of the lowest number, whichever
        worker is first; of points whose own units all workers share, for the unit that is first."""
        known = frozenset(self.finished.known)
        number = len(self.points.sweep)
        if len(known) == number:
            return
        point_files.clear(self.points.directory, known)
        missing = (index for index in range(number) if index not in known)
        first = next(missing)
        self._tell()
        if first in self.prepared or not is_alone(self.points.prepare(first)):
            self._predict_here(chain([first], missing))
            return
        for window in self.windows(chain([first], missing), number - len(known)):
            left = self._predict_in_units(window)
            self._predict_here(sorted(left))

    def windows(self, missing: Iterable[int], number: int) -> Iterator[list[WorkUnit]]:
        """Units of the points that are missing, ``number`` of them, as many at a time as are given out together."""
        size = points_of_unit(self._operations, number)
        units = (some for mine in self._with_one_workload(missing) for some in _batches(mine, size))
        for window in _batches(units, UNITS_AT_ONCE):
            yield [self._unit(indices) for indices in window]

    @property
    def _operations(self) -> int:
        """Of a point; of shapes, of the first one."""
        assert self.points.workload is not None
        return self.points.workload.num_operations

    def _with_one_workload(self, indices: Iterable[int]) -> Iterator[Iterable[int]]:
        """Points in order, apart where their workloads differ."""
        sweep = self.points.sweep
        return (mine for _, mine in groupby(indices, sweep.shape)) if sweep.has_shapes else iter([indices])

    def _unit(self, indices: tuple[int, ...], *, assembles: bool = False) -> WorkUnit:
        parameters: dict[str, Any] = {"indices": list(indices)} | ({ASSEMBLE: True} if assembles else {})
        key = unit_key(KIND, VERSION, parameters, [self.stamp], seed=0)
        weight = len(indices) * (3 * self._operations + POINT_OPERATIONS)
        return WorkUnit(key, KIND, parameters, {INPUT: INPUT}, weight, is_kept=False)

    def _predict_in_units(self, units: list[WorkUnit]) -> list[int]:
        """The points that the units left."""
        open_units = {unit.key: unit.parameters["indices"][0] for unit in units}
        left: list[int] = []
        refusal: dict[str, Any] | None = None
        for outcome in self.execution.stream(units, {INPUT: self.points}):
            assert outcome.arrays is not None
            answer = json.loads(outcome.arrays["answer"].tobytes())
            self._take(answer["done"], outcome.arrays)
            for kind, key, cpu_seconds, status in answer["units"]:
                self.execution.told(kind, Outcome(key, cpu_seconds, attempts=int(status != "reused")), status)
            left += answer["left"]
            del open_units[outcome.key]
            refused = answer["refused"]
            if refused is not None and (refusal is None or refused["index"] < refusal["index"]):
                refusal = refused
            if refusal is not None and min(open_units.values(), default=refusal["index"]) >= refusal["index"]:
                raise (UserError if refusal["what"] == "input" else RunError)(refusal["text"])
        return left

    def _predict_here(self, indices: Iterable[int]) -> None:
        alike = self._with_one_workload(indices)
        for some in (some for mine in alike for some in _batches(mine, POINTS_AT_ONCE)):
            ready = [self._ready(index) for index in some]
            for index, simulated in self._assembled_elsewhere(some, pipeline.simulate(ready, self.execution)):
                entry, arrays = written(self.points, index, simulated, self.execution)
                self._take([entry], arrays)

    def _assembled_elsewhere(
        self, indices: Sequence[int], simulated: Iterator[pipeline.Simulated]
    ) -> Iterator[tuple[int, pipeline.Simulated]]:
        """Have workers assemble and write points that are simulated; those that are left to this process, which all are
        where it is the only one, or where they are few."""
        if getattr(self.execution.executor, "name", "local") == "local" or len(indices) < LEAST_ASSEMBLED:
            yield from zip(indices, simulated, strict=True)
            return
        known = dict(zip(indices, simulated, strict=True))
        size = max(1, min(MOST_POINTS_OF_UNIT, len(indices) // LEAST_UNITS))
        for index in sorted(
            self._predict_in_units([self._unit(some, assembles=True) for some in _batches(indices, size)])
        ):
            yield index, known[index]

    def _ready(self, index: int) -> pipeline.Point:
        return self.prepared.pop(index) if index in self.prepared else self.points.prepare(index)

    def _take(self, entries: Iterable[Mapping[str, Any]], arrays: Arrays) -> None:
        """Points that are written, or whose files came along."""
        for entry in entries:
            index = entry["index"]
            prefix = f"file/{index}/"
            files = {name.removeprefix(prefix): arrays[name].tobytes() for name in arrays if name.startswith(prefix)}
            if files:
                folder = point_files.folder(self.points.directory, index)
                point_files.write_files(folder, files)
                publishing.publish_point(folder, self.points.claim)
            self.summaries.add(index, entry["target"], arrays[f"stats/{index}"].tobytes())
            told = entry["files"], entry["traces"], entry["records"]
            self.finished.add(Finished(index, entry["target"], self.stamp, *told))
        self._tell()

    def _tell(self) -> None:
        self.progress(len(self.finished.known), len(self.points.sweep), "replaying")

    def show(self, indices: Iterable[int]) -> None:
        """Write the whole run directory, traces and page of points that are finished. ``points`` say so."""
        for index in indices:
            ready = [self.points.prepare(index)]
            for simulated in pipeline.simulate(ready, self.execution):
                written(self.points, index, simulated, self.execution)


def points_of_unit(operations: int, number: int) -> int:
    """How many of a sweep's ``number`` points, of so many operations each, a unit takes."""
    seconds = 3 * operations / OPERATIONS_PER_SECOND
    return max(1, min(MOST_POINTS_OF_UNIT, int(UNIT_SECONDS / seconds), number // LEAST_UNITS))


def _batches(items: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    """``items`` in order, so many at a time."""
    source = iter(items)
    while some := tuple(islice(source, size)):
        yield some
