"""Worker processes of the Ray executor, and what becomes of them."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from manyscale.runner.errors import RunError, UserError
from manyscale.runner.predict.units import Arrays, Outcome, WorkUnit, compute, compute_member
from manyscale.runner.progress import heard
from manyscale.runner.readers.stores.elsewhere import fetching
from manyscale.runner.run.execute.ray_files import fetch
from manyscale.runner.run.execute.ray_pulse import SilentWorkerError
from manyscale.runner.run.execute.teams import ProcessTeam
from manyscale.runner.run.store import Store, seen
from manyscale.runner.version import __version__


@dataclass(frozen=True)
class Computed:
    """A unit that a worker is done with, and how long that took by its clock; ``lacks``: what the node had not enough
    of, or did not have at all, so that the unit is to be tried elsewhere."""

    outcome: Outcome
    seconds: float
    lacks: str = ""


class Shard:
    """A worker: computes batches. Keeps the shared inputs of its last call, mapped from the object store. ``home``: the
    id of the driver's node, where files of the trace are that are not here."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._inputs: dict[str, tuple[Any, Any]] = {}  # name -> reference, value
        self._at: tuple[str, float, float] | None = None  # the unit at hand, which share of it is done, since when
        self._left: set[str] = set()  # keys of units that another worker has got
        self._num_calls = 0  # that were answered

    def greet(self) -> dict[str, str]:
        """What results depend on besides their keys; must equal the driver's."""
        return versions()

    def is_there(self) -> tuple[tuple[str, float, float] | None, int]:
        """The key of the unit at hand, the share of it that is done, for how many seconds it is at hand; and how many
        calls were answered. Told in a thread of its own (``ray_pulse``)."""
        at = self._at
        return None if at is None else (at[0], at[1], time.monotonic() - at[2]), self._num_calls

    def leave(self, keys: Sequence[str]) -> None:
        """Leave out units that are not begun, in the thread of ``is_there``."""
        self._left.update(keys)

    def _hear(self, key: str, begin: float, share: float) -> None:
        self._at = key, share, begin

    def _heard(self, key: str, begin: float, work: Callable[[], Outcome]) -> Outcome:
        return heard(partial(self._hear, key, begin), partial(fetching, partial(fetch, self._home), work))

    def run(
        self, units: Sequence[WorkUnit], inputs: Mapping[str, Sequence[Any]], root: str, token: str
    ) -> list[Computed]:
        """Compute a batch. ``inputs`` maps names to references, each in a list so that Ray does not resolve it.

        Results go to the store at ``root`` if its ``token`` is seen there, else along with the outcomes.
        """
        try:
            try:
                values = self._values(inputs)
                store = seen(root, token)
            except _lacking() as error:
                return [Computed(Outcome(unit.key), 0.0, first_line(error)) for unit in units]
            found = [self._computed(unit, values, store) for unit in units if not self._is_left(unit.key)]
            outcomes = _settled([each.outcome for each in found], store)
            return [replace(each, outcome=outcome) for each, outcome in zip(found, outcomes, strict=True)]
        finally:
            self._left.difference_update([unit.key for unit in units])
            self._at = None
            self._num_calls += 1

    def _is_left(self, key: str) -> bool:
        return key in self._left

    def _computed(self, unit: WorkUnit, values: Mapping[str, Any], store: Store | None) -> Computed:
        begin = time.monotonic()
        self._at = unit.key, 0.0, begin
        work = partial(_compute_and_store, unit, partial(compute, unit, values), store)
        try:
            outcome = self._heard(unit.key, begin, work)
        except _lacking() as error:
            return Computed(Outcome(unit.key), time.monotonic() - begin, first_line(error))
        return Computed(outcome, time.monotonic() - begin)

    def run_member(
        self, unit: WorkUnit, inputs: Mapping[str, Sequence[Any]], root: str, token: str, team: str, me: int, count: int
    ) -> Outcome:
        """This one's part of a unit that a ``team`` of ``count`` computes."""
        begin = time.monotonic()
        try:
            values = self._values(inputs)
            store = seen(root, token) if me == 0 else None
            work = partial(_compute_in_team, unit, values, team, me, count)
            outcome = self._heard(unit.key, begin, partial(_compute_and_store, unit, work, store))
            return _settled([outcome], store)[0]
        finally:
            self._at = None
            self._num_calls += 1

    def _values(self, inputs: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        import ray

        known = self._inputs
        self._inputs = {}
        for name, (reference,) in inputs.items():
            seen, value = known.get(name, (None, None))
            self._inputs[name] = (reference, value if seen == reference else ray.get(reference))
        return {name: value for name, (_, value) in self._inputs.items()}


def _settled(outcomes: Sequence[Outcome], store: Store | None) -> list[Outcome]:
    """The outcomes when their results are where the driver reads them; what cannot be put there comes along."""
    failed = store.settle() if store is not None else {}
    return [replace(each, arrays=store.read(each.key)) if store and each.key in failed else each for each in outcomes]


def _compute_in_team(
    unit: WorkUnit, values: Mapping[str, Any], team: str, me: int, count: int
) -> tuple[Outcome, Arrays]:
    try:
        member = ProcessTeam(team, me, count)
    except RunError as error:
        return Outcome(unit.key, error=str(error)), {}
    return compute_member(unit, values, member)


def _compute_and_store(unit: WorkUnit, work: Callable[[], tuple[Outcome, Arrays]], store: Store | None) -> Outcome:
    try:
        outcome, arrays = work()
    except _lacking():
        raise
    except Exception as error:  # a defect: told to the driver, which must not wait for ever
        return Outcome(unit.key, error=_defect(unit.kind, error))
    if outcome.error:
        return outcome
    if store is not None and unit.is_kept:
        try:
            store.write(unit.key, arrays)
            return outcome
        except UserError:
            pass  # the driver tries too, and reports it if it fails as well
    return replace(outcome, arrays=arrays)


def _defect(kind: str, error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(frame.filename).name}:{frame.lineno}"
    what = f"{type(error).__name__}: {error} ({place})"
    return f"a unit of kind {kind} failed with {what}; this is a defect, please report it"


def versions() -> dict[str, str]:
    """What results depend on besides the keys of units."""
    own = {"manyscale": __version__, "Python": platform.python_version()}
    return own | {name: importlib.metadata.version(name) for name in ("numpy", "numba", "pyarrow")}


def _lacking() -> tuple[type[Exception], ...]:
    """The errors of a node that lacks memory, disk, or a file that others have."""
    from ray import exceptions

    return (OSError, MemoryError, exceptions.ObjectStoreFullError, exceptions.OutOfDiskError)


def other_version(theirs: Mapping[str, str]) -> str:
    """Why the results of a worker could differ; empty if they cannot."""
    for name, version in versions().items():
        if theirs.get(name) != version:
            return f"it has {name} {theirs.get(name)}, here it is {version}"
    return ""


def losses() -> tuple[type[Exception], ...]:
    """The errors by which Ray tells that a worker is lost, and that of one that does not answer."""
    from ray import exceptions

    return (
        SilentWorkerError,
        exceptions.RayActorError,
        exceptions.NodeDiedError,
        exceptions.ObjectLostError,
        exceptions.WorkerCrashedError,
        exceptions.OutOfMemoryError,
        exceptions.LocalRayletDiedError,
        exceptions.ActorUnschedulableError,  # its node went before it started
        exceptions.ActorPlacementGroupRemoved,
        exceptions.RuntimeEnvSetupError,  # by a node without disk
    )


def is_of_node(error: Exception) -> bool:
    """Whether a worker was lost with its node, or was given up, and not by what it computed."""
    from ray.exceptions import ActorPlacementGroupRemoved, ActorUnschedulableError, NodeDiedError

    kinds = (SilentWorkerError, NodeDiedError, ActorUnschedulableError, ActorPlacementGroupRemoved)
    words = str(error)
    return isinstance(error, kinds) or "node has died" in words or "NODE_DIED" in words


def lacks_memory(error: Exception) -> bool:
    """Whether a worker was ended since its node has no memory left."""
    from ray.exceptions import OutOfMemoryError

    return isinstance(error, OutOfMemoryError) or "NODE_OUT_OF_MEMORY" in str(error)


def reason_of(error: Exception) -> str:
    """A lost worker's error in a few words."""
    if isinstance(error, (SilentWorkerError, TimeoutError)):
        return str(error)
    kind = re.search(r"Worker exit type: (\w+)", str(error))
    return f"{type(error).__name__}, {kind.group(1)}" if kind else type(error).__name__


def first_line(error: BaseException) -> str:
    """Of an error's text that says something."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def last_line(error: BaseException) -> str:
    """Of an error's text that says something."""
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
