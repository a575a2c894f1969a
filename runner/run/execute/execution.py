"""Units to results: what is stored is reused, the rest is executed, and what became of each is told."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from manyscale.runner import extras
from manyscale.runner.cache import default_cache
from manyscale.runner.errors import RunError, UserError
from manyscale.runner.predict.units import Arrays, Outcome, WorkUnit
from manyscale.runner.progress import Progress, silent
from manyscale.runner.registry import lookup
from manyscale.runner.run.store import Store

RAY_PAYS_ABOVE_ACCESSES: Final = 500_000_000
_told: Final[set[str]] = set()
_WHAT: Final = {
    "replay": "replaying", "replay-coupled": "replaying", "replay-devices": "replaying",
    "stack-distances": "profiling", "gpu-profile": "profiling", "gpu-outline": "profiling",
    "node-profile": "profiling", "node-costs": "profiling", "last-uses": "profiling",
}  # fmt: skip


class _Watch:
    """Tells the progress of units by what they weigh: a unit of mean weight counts as one; or by the warp instructions
    of kernel launches, where all of them are such."""

    def __init__(self, units: Sequence[WorkUnit], progress: Progress) -> None:
        counts = all(unit.instructions for unit in units)
        sizes = [unit.instructions if counts else unit.weight for unit in units]
        self._total = sum(sizes) if counts else len(units)
        whole = sum(sizes) or 1
        self._cost = {unit.key: size * self._total / whole for unit, size in zip(units, sizes, strict=True)}
        of = " warp instructions" if counts else ""
        self._what = {unit.key: _WHAT.get(unit.kind, "simulating") + of for unit in units}
        self._progress, self._done = progress, 0.0
        self._partly: dict[str, float] = {}  # of units that run
        progress(0, self._total, self._what[units[0].key])

    def part(self, key: str, share: float) -> None:
        """A unit that runs has done this share; it may be heard of late."""
        if key in self._cost:
            self._partly[key] = max(self._partly.get(key, 0.0), share * self._cost[key])
            self._tell(key)

    def finished(self, key: str) -> None:
        self._done += self._cost.pop(key)
        self._partly.pop(key, None)
        self._tell(key)

    def _tell(self, key: str) -> None:
        done = self._done + sum(list(self._partly.values()))
        self._progress(min(done, self._total), self._total, self._what[key])


@dataclass
class Counts:
    """Units of a run by what became of them."""

    total: int = 0
    simulated: int = 0
    reused: int = 0
    failed: int = 0


@dataclass
class Execution:
    """Where and how units run, and what is told of it: ``record(kind, outcome, status)`` for every unit that is
    finished, ``progress(done, total, what)`` as units finish, or parts of them, weighed by their weights."""

    store: Store
    executor: Any
    record: Callable[[str, Outcome, str], None]
    progress: Progress = silent
    counts: Counts = field(default_factory=Counts)
    outcomes: dict[str, tuple[str, Outcome, str]] = field(default_factory=dict)
    cpu_seconds: float = 0.0  # of units, and of what ran inside them
    num_left: int = 0  # units of the stage at hand that are not finished

    def standing(self) -> Mapping[str, Any]:
        """What ``manyscale status`` shows while a run works: ``units`` by what became of them, and the executor's
        ``nodes``."""
        units = {"units": {**vars(self.counts), "left": self.num_left}}
        told = getattr(self.executor, "standing", None)  # not of an executor that knows no nodes
        return units if told is None else units | dict(told())

    def execute(self, units: Sequence[WorkUnit], shared: Callable[[set[str]], Mapping[str, Any]]) -> None:
        """Run the units whose results are not stored yet. ``shared`` makes the inputs of the names that these need.
        Raises RunError or UserError as soon as a unit fails: of several for the one that is heard of first, which may
        depend on the workers; the others are not waited for."""
        unique = {unit.key: unit for unit in units if unit.key not in self.outcomes}
        waiting = []
        self.store.expect(unique)
        for unit in unique.values():
            self.counts.total += 1
            if self.store.read(unit.key) is not None:  # whole, not merely there
                self.counts.reused += 1
                self._finish(unit.kind, Outcome(unit.key, attempts=0), "reused")
            else:
                waiting.append(unit)
        if not waiting:
            return
        self.num_left = len(waiting)
        watch = _Watch(waiting, self.progress)
        needed = {name for unit in waiting for name in unit.inputs.values()}
        for outcome in self._outcomes(waiting, shared(needed), watch):
            kind = unique[outcome.key].kind
            self.cpu_seconds += outcome.cpu_seconds
            self.num_left -= 1
            if outcome.error:
                self.counts.failed += 1
                self._finish(kind, outcome, "failed")
                raise (UserError if outcome.is_of_user else RunError)(outcome.error)
            self.counts.simulated += 1
            self._finish(kind, outcome, "simulated")
            watch.finished(outcome.key)
        for error in self.store.settle().values():
            raise error

    def stream(self, units: Sequence[WorkUnit], shared: Mapping[str, Any]) -> Iterator[Outcome]:
        """Run units whose results are not kept, and give back their outcomes as they come. What these tell of units
        that ran inside them is for ``told``. Raises RunError or UserError for the first unit that fails."""
        if hasattr(self.executor, "hear"):
            self.executor.hear = lambda _key, _share: None
        self.num_left = len(units)
        for outcome in self.executor.map(units, shared, self.store):
            self.num_left -= 1
            if outcome.error:
                raise (UserError if outcome.is_of_user else RunError)(outcome.error)
            self.cpu_seconds += outcome.cpu_seconds
            yield outcome

    def told(self, kind: str, outcome: Outcome, status: str) -> None:
        """What became of a unit that ran elsewhere; of one that is known already, nothing more. (Who was lost or
        overtaken with what it ran tells nothing: what it left is found, and told of as reused.)"""
        before = self.outcomes.get(outcome.key)
        if before is None:
            self.counts.total += 1
        elif before[2] == "reused" and status == "simulated":  # who simulated it is told of after who found it then
            self.counts.reused -= 1
        else:
            return
        setattr(self.counts, status, getattr(self.counts, status) + 1)
        self._finish(kind, outcome, status)

    def _outcomes(self, units: Sequence[WorkUnit], shared: Mapping[str, Any], watch: _Watch) -> Iterator[Outcome]:
        together = [unit for unit in units if unit.shards != 1]
        if hasattr(self.executor, "hear"):  # else it hears of units when they are finished
            self.executor.hear = watch.part
        yield from self.executor.map([unit for unit in units if unit.shards == 1], shared, self.store)
        yield from self.executor.lockstep(together, shared, self.store)

    def _finish(self, kind: str, outcome: Outcome, status: str) -> None:
        self.outcomes[outcome.key] = (kind, outcome, status)
        self.record(kind, outcome, status)

    def result(self, key: str) -> Arrays:
        """The stored arrays of a finished unit."""
        arrays = self.store.read(key)
        if arrays is None:
            raise RunError(f"{self.store.place(key)}: the result vanished or is damaged; run again with --resume")
        return arrays


@dataclass(frozen=True)
class Workers:
    """Where units run and where their results are kept (default: the user's cache); none of it changes a result.
    ``executor`` "auto" is Ray with an ``address``, and where a unit's accesses repay it."""

    cache: Path | None = None
    executor: str = "auto"
    address: str | None = None
    num_workers: int | None = None
    progress: Progress = silent

    @property
    def folder(self) -> Path:
        """The cache."""
        return self.cache or default_cache()

    @contextmanager
    def execution(self, num_accesses: float = 0) -> Iterator[Execution]:
        """An execution of units that touch ``num_accesses`` in all."""
        name = self.executor
        if name == "auto" and self.address is None:
            name = where_it_pays(num_accesses > RAY_PAYS_ABOVE_ACCESSES, f"{num_accesses / 1e6:,.0f} million accesses")
        elif name == "auto":
            name = "ray"
        with closing(lookup("executor", name)(address=self.address, num_workers=self.num_workers)) as executor:
            yield Execution(Store(self.folder / "units"), executor, lambda *_: None, self.progress)


def where_it_pays(repays: bool, work: str) -> str:
    """The executor that ``auto`` stands for, if no cluster is named: Ray where the work ``repays`` its start and it is
    installed, else this process. That Ray is missing is said once, for ``work`` ("40 s of computing")."""
    if not repays:
        return "local"
    if extras.is_installed("ray"):
        return "ray"
    if not _told:
        _told.add("ray")
        line = f"{work} on one core; on all cores with Ray: {extras.INSTALL['ray']}"
        print(f"manyscale: {line}", file=sys.stderr, flush=True)
    return "local"


def ray_asked_for(address: str | None) -> str:
    """The option that asks for Ray, as it was typed."""
    return f"--address {address}" if address else "--executor ray"
