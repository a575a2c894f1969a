"""Worker processes of the Ray executor, and what becomes of them."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from manyscale.runner.errors import RunError, UserError
from manyscale.runner.predict.units import Arrays, Outcome, WorkUnit, compute, compute_member
from manyscale.runner.progress import heard
from manyscale.runner.run.execute.ray_pulse import SilentWorkerError
from manyscale.runner.run.execute.teams import ProcessTeam
from manyscale.runner.run.store import Store, seen
from manyscale.runner.version import __version__

START_TIMEOUT_SECONDS: Final = 300.0  # for the first worker, on a cluster that others use too


class Shard:
    """A worker: computes batches. Keeps the shared inputs of its last call, mapped from the object store."""

    def __init__(self) -> None:
        self._inputs: dict[str, tuple[Any, Any]] = {}  # name -> reference, value
        self._at: tuple[str, float] | None = None  # the unit at hand, and which share of it is done

    def greet(self) -> dict[str, str]:
        """What results depend on besides their keys; must equal the driver's."""
        return versions()

    def is_there(self) -> tuple[str, float] | None:
        """The key of the unit at hand and the share of it that is done; answered in a thread of its own
        (``ray_pulse``)."""
        return self._at

    def _hear(self, key: str, share: float) -> None:
        self._at = key, share

    def run(
        self, units: Sequence[WorkUnit], inputs: Mapping[str, Sequence[Any]], root: str, token: str
    ) -> list[Outcome]:
        """Compute a batch. ``inputs`` maps names to references, each in a list so that Ray does not resolve it.

        Results go to the store at ``root`` if its ``token`` is seen there, else along with the outcomes.
        """
        values = self._values(inputs)
        store = seen(root, token)
        outcomes = [
            heard(
                partial(self._hear, unit.key), partial(_compute_and_store, unit, partial(compute, unit, values), store)
            )
            for unit in units
        ]
        return _settled(outcomes, store)

    def run_member(
        self, unit: WorkUnit, inputs: Mapping[str, Sequence[Any]], root: str, token: str, team: str, me: int, count: int
    ) -> Outcome:
        """This one's part of a unit that a ``team`` of ``count`` computes."""
        values = self._values(inputs)
        store = seen(root, token) if me == 0 else None
        work = partial(_compute_in_team, unit, values, team, me, count)
        outcome = heard(partial(self._hear, unit.key), partial(_compute_and_store, unit, work, store))
        return _settled([outcome], store)[0]

    def _values(self, inputs: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        import ray

        known = self._inputs
        self._inputs = {}
        for name, (reference,) in inputs.items():
            seen, value = known.get(name, (None, None))
            self._inputs[name] = (reference, value if seen == reference else ray.get(reference))
        return {name: value for name, (_, value) in self._inputs.items()}


def _settled(outcomes: list[Outcome], store: Store | None) -> list[Outcome]:
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


def check_versions(theirs: Mapping[str, str], address: str) -> None:
    """Raises UserError for a worker whose results could differ."""
    for name, version in versions().items():
        if theirs.get(name) != version:
            raise UserError(unfit(address, f"they have {name} {theirs.get(name)}, here it is {version}"))


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
    )


def unfit(address: str, reason: str) -> str:
    """Why workers are refused."""
    return f"{address}: the Ray workers cannot be used ({reason}); install the same versions there as here"


def reason_of(error: Exception) -> str:
    """A lost worker's error in a few words."""
    if isinstance(error, SilentWorkerError):
        return str(error)
    kind = re.search(r"Worker exit type: (\w+)", str(error))
    return f"{type(error).__name__}, {kind.group(1)}" if kind else type(error).__name__


def first_line(error: BaseException) -> str:
    """Of an error's text that says something."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def last_line(error: BaseException) -> str:
    """Of an error's text that says something."""
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
