"""Points of a sweep predicted and written where a worker is: prepared, replayed, assembled, and their files made.

A unit takes a few points. What they need of the sweep comes as its input, once per worker; results of their own work
units are taken from the store where the worker sees it, and kept there where to make them again would cost more than
to keep them. Files go to the run directory where the worker sees it, else they travel with the answer. Points whose
phases need work units of their own (``Point.first_stages``) go back untouched: those units are spread over all workers.
When they are done, units that ``ASSEMBLE`` take such points; where a worker does not see their results, they go back.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from manyscale.models.workload import Workload
from manyscale.runner.errors import RunError, UserError, placed
from manyscale.runner.notes import admit
from manyscale.runner.predict.units import Arrays, Outcome, WorkUnit, compute
from manyscale.runner.progress import telling
from manyscale.runner.run import directory as rundir
from manyscale.runner.run import outputs, pipeline, rendered
from manyscale.runner.run.execute.execution import Execution
from manyscale.runner.run.results import Result
from manyscale.runner.run.shown import Shown, kinds_among, num_records
from manyscale.runner.run.store import Store
from manyscale.runner.run.sweeps import point_files
from manyscale.runner.run.sweeps.resolved import resolved_point
from manyscale.runner.run.sweeps.workloads import of_point
from manyscale.runner.storage import address, mirror, publishing
from manyscale.runner.study import Sweep, point_place

KIND: Final = "points"
INPUT: Final = "sweep"
ASSEMBLE: Final = "assemble"
REPAYS_KEEPING_SECONDS: Final = 0.05  # of CPU; to write and to check a result of 0.3 MB takes some 0.002
MEMORY_BYTES: Final = 1 << 26  # of results that are not kept, for points that follow
MOST_PROGRAMS: Final = 4


@dataclass(frozen=True)
class Points:
    """What all points of a sweep have in common, as workers get it. ``workload``: of all, or of the first shape, which
    workers, who make that of each shape, do not get. ``known``: what was read of files. ``directory``: of the run,
    which a worker sees if its file ``token`` is there; ``claim``: the driver's to its address; ``units``: address of
    the store; ``records``: of traces that earlier runs wrote. ``keeps``: results of all work units are kept, however
    quickly they were made."""

    sweep: Sweep
    workload: Workload | None
    beside: Path | None
    known: Mapping[Any, Any]
    accept: frozenset[str]
    strict: bool
    directory: Path
    token: str
    claim: str
    units: str
    records: Path
    shows: Shown
    packs: bool
    keeps: bool
    manifest: Mapping[str, Any]
    memory: dict[str, Any] = field(default_factory=dict, compare=False)  # of the worker

    def __getstate__(self) -> dict[str, Any]:
        mine = {"memory": {}, "directory": address.absolute(self.directory)}
        return {**self.__dict__, **mine, **({"workload": None} if self.sweep.has_shapes else {})}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, directory=address.located(state["directory"]))

    def prepare(self, index: int) -> pipeline.Point:
        """A point, whose notes are admitted. Raises UserError that names the study and the point."""
        axes, study = self.sweep.values(index), self.sweep.study(index)
        try:
            workload, shared = of_point(self.sweep, index, study, self.workload, self.memory, self.known)
            point = pipeline.prepare(axes, study, workload, self.beside, shared)
        except UserError as error:
            raise placed(error, point_place(self.sweep.place, axes)) from None
        point = replace(point, notes=[*point.notes, *self.sweep.notes]) if self.sweep.notes else point
        admit(point.notes, self.accept, strict=self.strict)
        return point


def predict_points(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> Arrays:
    """Points ``indices`` of the sweep. ``answer``: JSON; per point its number, the name of its target and what there
    is to tell of its files, or what ``refused`` the first one that was; the outcomes of its work units; points that are
    ``left`` to the driver. Beside it ``stats/INDEX``, and ``file/INDEX/NAME`` where the run directory is not seen;
    bytes as uint8."""
    points: Points = inputs[INPUT]
    assembles = bool(parameters.get(ASSEMBLE))
    units: list[tuple[str, Outcome, str]] = []
    ready: list[tuple[int, pipeline.Point]] = []
    left: list[int] = []
    refused: dict[str, Any] | None = None
    for index in parameters["indices"]:
        try:
            point = points.prepare(index)
        except UserError as error:
            refused = _refused(index, error)
            break  # those before it may be refused, too, by what they give
        if assembles or is_alone(point):
            ready.append((index, point))
        else:
            left.append(index)
    done, arrays, of_result = _predicted(points, ready, _Nowhere() if assembles else _Here(), units)
    if of_result is None:  # else nobody asks for those behind it
        left += [index for index, _ in ready[len(done) :]]
    answer = {
        "done": done, "left": left, "refused": of_result or refused,
        "units": [[kind, each.key, each.cpu_seconds, status] for kind, each, status in units],
    }  # fmt: skip
    return {"answer": _bytes(json.dumps(answer).encode()), **arrays}


def _predicted(
    points: Points, ready: Sequence[tuple[int, pipeline.Point]], executor: _Here | _Nowhere,
    units: list[tuple[str, Outcome, str]],
) -> tuple[list[dict[str, Any]], Arrays, dict[str, Any] | None]:  # fmt: skip
    """What there is to tell of points, their files, and what refuses the first of them that is refused."""
    done: list[dict[str, Any]] = []
    arrays: Arrays = {}

    def predict(some: Sequence[tuple[int, pipeline.Point]]) -> None:
        execution = Execution(_store(points), executor, lambda *outcome: units.append(outcome))
        numbers = iter(some)
        for simulated in pipeline.simulate([point for _, point in some], execution, _programs(points)) if some else ():
            entry, files = written(points, next(numbers)[0], simulated, execution)
            done.append(entry)
            arrays.update(files)

    try:
        predict(ready)
    except _UnseenError:
        pass
    except (UserError, RunError):  # of which point does not show: their work units are executed together
        for index, point in ready[len(done) :]:
            try:
                predict([(index, point)])
            except _UnseenError:
                break
            except (UserError, RunError) as error:
                return done, arrays, _refused(index, error)
    return done, arrays, None


def _refused(index: int, error: UserError | RunError) -> dict[str, Any]:
    return {"index": index, "what": "input" if isinstance(error, UserError) else "run", "text": str(error)}


def is_alone(point: pipeline.Point) -> bool:
    """Whether a point needs no work units but its ranks' and its replay, of GPUs, too, whose launches are timed."""
    if point.first_stages:
        return False
    coupling = point.source.coupling({})
    return coupling is None or (coupling.kind == "replay-devices" and coupling.refine is None)


def written(
    points: Points, index: int, simulated: pipeline.Simulated, execution: Execution
) -> tuple[dict[str, Any], Arrays]:
    """Assemble a point and write its files, or give them back where the run directory is not seen. Raises UserError for
    notes that refuse it."""
    filled = resolved_point(simulated.point.case)
    result = pipeline.assemble(simulated, execution, filled)
    admit(result.notes, points.accept, strict=points.strict)
    to = point_files.folder(points.directory, index)
    sees = _sees_directory(points)
    moves = sees and not points.packs and not points.shows.pages
    parent = to.parent if moves else Path(tempfile.gettempdir())
    parent.mkdir(exist_ok=True)
    scratch = parent / f".{to.name}.{uuid.uuid4().hex}"
    try:
        _write_all(points, simulated, result, filled, scratch, to if sees else None)
        files = point_files.read_folder(scratch)
        traces = kinds_among(files)
        if points.packs:
            files = point_files.pack(files, _own_inputs(points, simulated))
        if moves:
            point_files.move_folder(scratch, to)
        elif sees:
            point_files.write_files(to, files)
        sees = sees and _is_published(to, points.claim)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    sums = point_files.checksums({name: content for name, content in files.items() if name != "manifest.json"})
    entry = {
        "index": index, "target": result.machine.name, "files": sums, "traces": traces, "records": num_records(result)
    }  # fmt: skip
    arrays = {f"stats/{index}": _bytes(files[point_files.STATISTICS])}
    if not sees:
        arrays |= {f"file/{index}/{name}": _bytes(content) for name, content in files.items()}
    return entry, arrays


def _sees_directory(points: Points) -> bool:
    """Whether the run directory is seen from here; where it is at an address, once for all points."""
    if points.token not in points.memory:
        path = points.directory / points.token
        try:
            found = path.is_file() or mirror.fetch(path)
        except UserError:  # no keys for it here
            found = False
        if address.origin(path) is None:
            return found
        points.memory[points.token] = found
    return bool(points.memory[points.token])


def _is_published(folder: Path, claim: str) -> bool:
    """Whether a point that was written is where its folder is copied from; if not, its files travel."""
    try:
        publishing.publish_point(folder, claim)
    except UserError:
        return False
    return True


def _write_all(
    points: Points, simulated: pipeline.Simulated, result: Result, filled: Mapping[str, Any], scratch: Path,
    to: Path | None,
) -> None:  # fmt: skip
    """Everything that a point leaves, as a whole run directory, which will stand at ``to``."""
    writers = points.shows.writers(result)
    shown = rendered.key(simulated, filled, result.notes, writers) if writers and to is not None else None
    record = None if shown is None or to is None else rendered.Record(points.records, shown, to)
    outputs.write_point(result, scratch, writers, record, plugged=points.shows.report and not points.packs)
    if not points.packs:
        inputs = _own_inputs(points, simulated) or points.manifest["inputs"]
        rundir.write_manifest(scratch, "complete", **{**points.manifest, "inputs": inputs})


def _own_inputs(points: Points, simulated: pipeline.Simulated) -> dict[str, str] | None:
    """What the manifest of a point names as read, where points have workloads of their own."""
    case = simulated.point.case
    return {case.study.workload.path: case.workload.digest} if points.sweep.has_shapes else None


class _Here:
    """Computes units in this very thread."""

    def map(self, units: Sequence[WorkUnit], shared: Mapping[str, Any], store: _Results) -> Iterator[Outcome]:
        for unit in telling(units, [unit.weight for unit in units]):
            outcome, arrays = compute(unit, shared)
            if not outcome.error:
                store.keep(unit.key, arrays, outcome.cpu_seconds)
            yield outcome

    def lockstep(self, units: Sequence[WorkUnit], _shared: Mapping[str, Any], _store: _Results) -> Iterator[Outcome]:
        assert not units, "points with such units are left to the driver"
        yield from ()


class _UnseenError(Exception):
    """A result that is there is not seen from here."""


class _Nowhere:
    """Computes nothing: whatever is asked for has been computed."""

    def map(self, units: Sequence[WorkUnit], _shared: Mapping[str, Any], _store: _Results) -> Iterator[Outcome]:
        if units:
            raise _UnseenError
        yield from ()

    lockstep = map


class _Results:
    """Results of the units of a worker's points: those of the store, if it is seen, and in memory the latest ones."""

    def __init__(self, kept: Store | None, keeps_all: bool, memory: dict[str, Arrays]) -> None:
        self._kept, self._keeps_all, self._memory = kept, keeps_all, memory

    def read(self, key: str) -> Arrays | None:
        found = self._memory.get(key)
        return found if found is not None or self._kept is None else self._kept.read(key)

    def keep(self, key: str, arrays: Arrays, cpu_seconds: float) -> None:
        """Take a result that took so long. Raises UserError if it cannot be written."""
        if self._kept is not None and (self._keeps_all or cpu_seconds > REPAYS_KEEPING_SECONDS):
            self._kept.write(key, arrays)
        self._memory[key] = arrays

    def expect(self, keys: Iterable[str]) -> None:
        if self._kept is not None:
            self._kept.expect(key for key in keys if key not in self._memory)

    def settle(self) -> dict[str, UserError]:
        return {} if self._kept is None else self._kept.settle()

    def place(self, key: str) -> str:
        return key if self._kept is None else self._kept.place(key)


def _store(points: Points) -> Any:
    memory = points.memory.setdefault("results", {})
    size = sum(array.nbytes for arrays in memory.values() for array in arrays.values())
    while memory and size > MEMORY_BYTES:
        size -= sum(array.nbytes for array in memory.pop(next(iter(memory))).values())
    if "store" not in points.memory:
        points.memory["store"] = _store_at(points.units)
    return _Results(points.memory["store"], points.keeps, memory)


def _store_at(place: str) -> Store | None:
    """The store of an address or a folder, if it is seen from here. What it holds is keyed by its content: any other at
    that place serves as well."""
    try:
        root = address.located(place)
        return Store(root) if root.is_dir() or address.origin(root) is not None else None
    except UserError:  # no keys for it here
        return None


def _programs(points: Points) -> dict[str, Any]:
    known: dict[str, Any] = points.memory.setdefault("programs", {})
    while len(known) > MOST_PROGRAMS:
        del known[next(iter(known))]
    return known


def _bytes(content: bytes) -> np.ndarray:
    return np.frombuffer(content, np.uint8)
