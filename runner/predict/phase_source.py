"""What predicts the times of a run's phases: the contract between a timing model and the pipe (run/pipeline.py)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import numpy as np

from manyscale.models.machine import Machine
from manyscale.models.workload import Workload, without_operations
from manyscale.models.workload.notes import Note
from manyscale.runner.predict.statistic import Statistic
from manyscale.runner.predict.units import Arrays, WorkUnit, array_digest
from manyscale.runner.study import Study
from manyscale.runner.study.repeat import RepeatedWorkload
from manyscale.sampling.plan import Plan

T = TypeVar("T")
_MOST_RECENT: Final = 256  # machines of some 50 KB
FILE: Final = "file"  # begins keys of what SweepShared knows of files


class SweepShared:
    """What the sources of a sweep's points have in common, each value made once. Whoever prepares the points owns
    it. ``values``: those that are known already."""

    def __init__(self, values: Mapping[Hashable, Any] | None = None) -> None:
        self._values: dict[Hashable, Any] = dict(values or {})
        self._recent: dict[Hashable, Any] = {}  # the latest last

    def recently(self, key: Hashable, make: Callable[[], T]) -> T:
        """The same, of what a point can do without: only the latest values are kept, for sweeps of any size."""
        found: T = self._recent.pop(key) if key in self._recent else make()
        self._recent[key] = found
        if len(self._recent) > _MOST_RECENT:
            del self._recent[next(iter(self._recent))]
        return found

    def of_files(self) -> dict[Hashable, Any]:
        """What was read of files and of this machine, which others, who prepare points elsewhere, need to know; keys
        that begin with FILE."""
        return {key: value for key, value in self._values.items() if isinstance(key, tuple) and key[0] == FILE}

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of ``key``, which names all that ``make`` reads and that differs between points."""
        if key not in self._values:
            self._values[key] = make()
        found: T = self._values[key]
        return found


@dataclass(frozen=True)
class Case:
    """What a source predicts: a study without a sweep, and what its names stand for. ``machine_content``: what
    ``machine`` was built from, quantities with their units, as work units take it."""

    workload: Workload
    study: Study
    machine: Machine
    machine_content: Mapping[str, Any]
    shared: SweepShared

    @property
    def traced(self) -> Workload:
        """The workload before its iterations were repeated, if they were."""
        return self.workload.base if isinstance(self.workload, RepeatedWorkload) else self.workload


@dataclass(frozen=True)
class Stage:
    """Units that may run at the same time. ``name`` is unique within a source. ``inputs``: the values of the shared
    inputs that the units name; equal names in other points of the sweep have equal values."""

    name: str
    units: Sequence[WorkUnit]
    inputs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Finished:
    """A stage that was executed: ``results`` of ``units``, one each, in their order."""

    units: Sequence[WorkUnit]
    results: Sequence[Arrays]


Done: TypeAlias = Mapping[str, Finished]  # the stages that were executed, by name


@dataclass(frozen=True)
class Replayed:
    """A run after its replay. ``phase_ps`` int64[phases] and ``compute_ps`` int64[operations], compute before each, as
    they were replayed; ``arrays``: the result of the unit that replayed it; ``is_coupled``: whether that scheduled task
    instances, too; ``has_devices``: whether it did what streams of GPUs were given."""

    phase_ps: np.ndarray
    compute_ps: np.ndarray
    arrays: Arrays
    is_coupled: bool
    has_devices: bool = False


@dataclass(frozen=True)
class CoreUse:
    """What the cores of each rank do while it computes, int64[ranks] in ps of all its cores: ``busy`` executing the
    program, ``overhead`` in the runtime system, ``serial_idle`` idle while the initial task works alone (Amdahl), and
    ``total`` with what else they are idle."""

    busy: np.ndarray
    overhead: np.ndarray
    serial_idle: np.ndarray
    total: np.ndarray


@dataclass(frozen=True)
class Coupling:
    """What the replay needs of ranks that communicate inside their phases, whose task instances it schedules itself
    (``kind`` replay-coupled), or that give GPUs work (replay-devices). ``parameters`` of the unit that replays, beside
    those of every replay; ``content``: digest of all else that it depends on; ``make``: its input ``nodes``, called
    ``name``: node programs and times of their pieces, an entry per rank; or what ranks give their GPUs, kinds of
    launches, which operations send memory of GPUs, what is known of launches that overlap, and traced times.
    ``refine``: what the replay's result asks for before it is taken; None: nothing. ``on_streams``: rows of operations
    that the replay does without the network's program: collectives of streams."""

    name: str
    parameters: Mapping[str, Any]
    content: str
    make: Callable[[], tuple[Any, ...]]
    kind: str = "replay-coupled"
    refine: Callable[[Arrays], Refinement | None] | None = None
    on_streams: Callable[[], np.ndarray] | None = None

    @property
    def name_of_streams(self) -> str:
        """What tells the network's program from that of all operations."""
        return "" if self.on_streams is None else f"streams {array_digest(self.on_streams())} "

    def of_network(self, workload: Workload) -> Workload:
        """What the network's program is made of."""
        rows = None if self.on_streams is None else self.on_streams()
        return workload if rows is None or not len(rows) else without_operations(workload, rows)


@dataclass(frozen=True)
class Refinement:
    """What a replay's result asks for: units of ``stage``, and with these the replay is made again, as ``then`` says
    (executed again where what it follows from has changed)."""

    stage: Stage
    then: Callable[[Finished], Coupling]


class PhaseSource(Protocol):
    """Predicts the times of all phases of one sweep point; built once for it, and held by it.

    To add one, for a model ``NAME`` of ``model: {cpu: NAME}``: a subclass of this class, whose constructor takes a
    Case and raises UserError for what it cannot predict; methods without a body here have to be written. Two
    lines in runner/registry.py, or entry points: ``phase-times`` (``manyscale.phase-times``) NAME = "module:Class",
    and ``cpu`` NAME = "module", where the module has ``VERSION``, an integer that is raised when results change. What
    it computes itself, quickly, it may do in ``phase_times``; what takes longer are work units (predict/units.py),
    handed out by ``stages``.

    Then every phase's time goes through the burst model (or a kind of unit of the model's own name, if the registry has
    one): divided by ``ipc_correction``, multiplied by ``cpu_ratio`` below and by how many ranks share a core; as it is
    where ``fixed_phases`` says so. Sources whose points differ in the network alone are asked the same and
    have to answer the same.
    """

    launches: Workload | None = None  # that with the kernel launches among the phases
    cpu_ratio: float = 1.0  # by which compute phases are still to be multiplied; 1 where it is in the times

    @abstractmethod
    def plans(self) -> list[Plan]:
        """What is simulated, of ranks, launches, intervals, ...; each kind of element once. Raises UserError."""

    def unit_keys(self, plan: Plan, done: Done) -> list[str]:
        """The key of the unit that simulated each element of ``plan``, one of ``plans`` that is not of ranks. Without a
        method of its own: one each of the last stage."""
        return [unit.key for unit in list(done.values())[-1].units]

    def stages(self, done: Done) -> list[Stage]:
        """Stages that need no more than the results in ``done``, those in it left out; none when all is known. Asked
        again after each round. Raises UserError, in the first round, for what cannot be predicted."""
        return []

    @abstractmethod
    def phase_times(self, done: Done) -> np.ndarray:
        """int64[phases]: predicted times in ps, sleeps as they are. ``done``: all stages."""

    def content(self) -> list[str]:
        """Digests of all that the times follow from, beside the workload and the units of stages."""
        return []

    def fixed_phases(self) -> np.ndarray | None:
        """bool[phases]: those whose times are final, which no speed of a core changes; None for none."""
        return None

    def coupling(self, done: Done) -> Coupling | None:
        """Of ranks that communicate inside their phases; None if none does. Raises UserError."""
        return None

    def figures(self, of_run: dict[str, Statistic], done: Done) -> dict[str, Statistic]:
        """``of_run``, the figures of the run as replayed, with those of the source behind them, and with confidence
        intervals where times follow from samples."""
        return of_run

    def figures_of_replay(self, done: Done, replayed: Replayed) -> dict[str, Statistic]:
        """Figures of the source that follow from the replay."""
        return {}

    def core_use(self, done: Done, replayed: Replayed) -> CoreUse | None:
        """Where ranks have several cores, or a runtime system that takes time; None: one core each, which executes the
        program as long as its rank computes."""
        return None

    def notes(self, done: Done) -> Sequence[Note]:
        """What the times leave out or assume, beside what is known of the workload."""
        return ()

    def tables(self, done: Done, replayed: Replayed) -> dict[str, Any]:
        """Fields of a Result that the source knows, such as ``cores``, by name."""
        return {}
