"""Work units that schedule all phases of one rank in bursts: task instances with known times on the rank's cores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from manyscale.models.node.program.node_program import Action, NodeProgram
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.models.workload import Workload
from manyscale.runner.predict.node.cells.plan import JOINED, WHOLE
from manyscale.runner.predict.node.creation import creation_pieces
from manyscale.runner.predict.node.instance_ids import ids_in_rank, traced_ids
from manyscale.runner.predict.node.rank_cores import core_speeds
from manyscale.runner.predict.node.rank_part import RankPart
from manyscale.runner.predict.node.shown_iterations import kept_iterations
from manyscale.runner.predict.node.type_ratios import TypeRatios
from manyscale.runner.predict.phase_source import Case, Stage
from manyscale.runner.predict.stored_arrays import noted
from manyscale.runner.predict.units import Arrays, WorkUnit, array_digest, unit_key
from manyscale.runner.study.repeat import RepeatedWorkload

if TYPE_CHECKING:
    from manyscale.models.node.burst import ScheduledPhases

KIND: Final = "node-schedule"
VERSION: Final = 15  # raised when results change, by a change of the scheduler or of how programs are built, too
SLEEP: Final = -2  # piece_event of a sleep
_TIMES: Final = ("start_ps", "end_ps", "created_ps", "ready_ps")


@dataclass(frozen=True)
class Simulated:
    """Phases of a rank whose makespans are known. ``iteration`` int64[]: of each its iteration (cells.WHOLE: all phases
    there are), those of an iteration in their order; they take ``makespan_ps`` int64[]. ``core_ps`` int64[phases, 3]:
    what its cores executed, spent in the runtime system (of an iteration, with its first phase), and the serial parts
    (models/node/program/serial_parts.py)."""

    iteration: np.ndarray
    makespan_ps: np.ndarray
    core_ps: np.ndarray


NOTHING_SIMULATED: Final = Simulated(np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, 3), np.int64))


def stage(
    case: Case,
    part_of: Callable[[int], RankPart],
    faster: np.ndarray,
    ratios: tuple[TypeRatios, np.ndarray] | None,
    simulated: Mapping[int, Simulated],
) -> Stage:
    """A unit per rank. ``part_of``: each rank's part of the traced workload. ``faster`` float64[types + 1]: given
    factors. ``ratios``: predicted over traced time by stratum and type, and the stratum of each rank; None for 1."""
    workload, base, study = case.workload, case.traced, case.study
    repeated = workload if isinstance(workload, RepeatedWorkload) else None
    result = []
    values: dict[str, Any] = {}
    speeds = core_speeds(case)
    tasks = np.bincount(base.column("tasks", "rank"), minlength=base.num_ranks)
    most = int(tasks.sum()) * _repetitions(repeated)
    for rank in range(workload.num_ranks):
        part = part_of(rank)
        scale = study.cpu_ratio / faster
        if ratios is not None:
            scale = scale * ratios[0].ratio[ratios[1][rank]]
        known = simulated.get(rank, NOTHING_SIMULATED)
        own = {
            "rank": rank,
            "cores": study.mapping.cores_per_rank,
            "runtime": study.options(RuntimeSystem).model_dump(mode="json", by_alias=True),
            "scale": scale.tolist(),
            "is_simulated": ratios is not None,
            "jitter": repeated.jitter if repeated is not None else 0.0,
            "seed": study.seed,
            "keep": kept_iterations(study, base, repeated, rank, most),
        }
        name = f"rank {rank} of {base.digest}"
        values[name] = part
        inputs = {"part": name}
        content = [part.digest, array_digest(known.iteration, known.makespan_ps, known.core_ps)]
        if len(known.iteration):
            inputs["simulated"] = f"simulated phases of rank {rank} {content[-1]}"
            values[inputs["simulated"]] = known
        weight = 8 * int(tasks[rank]) * _repetitions(repeated)
        if speeds is not None:
            own["speeds"] = speeds[rank].tolist()
        if repeated is not None:
            rows = slice(int(workload.rank_offsets[rank]), int(workload.rank_offsets[rank + 1]))
            written_out = (repeated.base_operation[rows], repeated.repetition[rows])
            content.append(array_digest(*written_out))
            inputs["repeated"] = f"repeated operations of rank {rank} {content[-1]}"
            values[inputs["repeated"]] = written_out
        key = unit_key(KIND, VERSION, own, content, seed=study.seed)
        result.append(WorkUnit(key, KIND, own, inputs, max(weight, 1)))
    return Stage(KIND, result, values)


def _repetitions(repeated: RepeatedWorkload | None) -> int:
    return 1 if repeated is None else int(repeated.repetition.max(initial=0)) + 1


def schedule_rank(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> Arrays:
    """The kind of unit. Results: ``compute_ps`` int64[operations + 1], before each operation and after the last;
    ``core_use_ps`` int64[4], of all cores in phases: executing the program, in the runtime system, idle while the
    initial task works alone, and in all; ``type_ps`` float64[types + 1], time of each type's pieces;
    ``num_instances`` and ``num_ids`` (one value); stretches of instances on cores of the phases that were to be kept:
    ``operation``, ``instance`` (task_instance_id), ``type``, ``core`` int32[], ``id`` and ``creator`` int64[]
    (instance_ids.py), ``start_ps``, ``end_ps``, ``created_ps`` and ``ready_ps`` since the phases before that operation
    began.
    Of simulated phases, in their order: ``simulated_before`` int32[], the operation, -1 where the rank has no such
    phase, and ``simulated_begin_ps`` int64[], when they begin since the phases before it did.

    ``notes`` on them (stored_arrays.py). A rank that calls MPI inside its phases results in ``piece_ps`` int64[pieces],
    for the replay to schedule, ``type_ps``, the numbers, and ``serial_ps`` (one value) of its initial task.
    """
    from manyscale.models.node.program.build import build_program  # Numba
    from manyscale.models.node.program.serial_parts import serial_parts

    part = inputs["part"]
    runtime = RuntimeSystem.model_validate(parameters["runtime"])
    program = build_program(part.workload, parameters["rank"], parameters["cores"], runtime)
    scale = np.asarray(parameters["scale"])
    owner = program.task_type[program.piece_instance]
    is_sleep = program.piece_event == SLEEP
    factor = scale[np.where(owner < 0, len(scale) - 1, owner)]
    if parameters["is_simulated"]:
        factor[creation_pieces(program, part.workload)] = 1.0
    factor[is_sleep] = 1.0
    piece_ps = np.rint(program.piece_ps * factor).astype(np.int64)
    if program.is_coupled:
        speed = parameters["speeds"][0] if "speeds" in parameters else 1.0
        piece_ps = np.where(is_sleep, _awake(piece_ps, speed), piece_ps)
        types = np.bincount(np.where(owner < 0, len(scale) - 1, owner), piece_ps, minlength=len(scale))
        count = np.array([program.num_instances])
        serial = serial_parts(program, piece_ps, runtime.creator_speedup).sum() / speed
        coupled = {"piece_ps": piece_ps, "type_ps": types, "num_instances": count - 1, "num_ids": count}
        return noted(coupled | {"serial_ps": np.rint([serial]).astype(np.int64)}, program.notes)
    scheduled = _Rank(program, piece_ps, is_sleep, len(scale), parameters, inputs).scheduled(runtime)
    return noted(scheduled, program.notes)


def _awake(sleep_ps: np.ndarray, speed: float) -> np.ndarray:
    """int64[]: what takes so long on a core of a speed."""
    return np.rint(sleep_ps * speed).astype(np.int64)


def core_use(busy: int, overhead: int, serial: float, total: int, cores: int) -> np.ndarray:
    """int64[4]: ``core_use_ps`` of a rank. What is drawn with ``jitter`` and what is rounded leave the serial parts
    known but for some ps: cores are idle during them no longer than they are idle at all."""
    total = max(total, busy + overhead)
    idle = min((cores - 1) * round(serial), total - busy - overhead)
    return np.array([busy, overhead, idle, total], np.int64)


def is_coupled(result: Arrays) -> bool:
    """Whether a result of ``schedule_rank`` is of a rank that the replay schedules."""
    return "piece_ps" in result


class _Rank:
    """One rank's phases; ``operation`` int64[phases]: the operation before which each lies, in the traced program;
    ``tail`` bool[phases]: it ends an iteration that is repeated, so that it follows the iteration's last operation
    wherever that is repeated, whichever iteration comes next."""

    def __init__(
        self, program: NodeProgram, piece_ps: np.ndarray, is_sleep: np.ndarray, num_types: int,
        parameters: Mapping[str, Any], inputs: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self.speed = np.asarray(parameters["speeds"]) if "speeds" in parameters else None
        slept_ps = piece_ps
        if self.speed is not None:  # the initial task stays on its first core, and sleep takes as long on any
            piece_ps = np.where(is_sleep, _awake(piece_ps, self.speed[0]), piece_ps)
        self.program, self.piece_ps, self.num_types, self.parameters = program, piece_ps, num_types, parameters
        traced = int(np.diff(inputs["part"].workload.rank_offsets)[parameters["rank"]])
        self.operation = operation_of_phases(program.phase_operation, traced)
        known: Simulated = inputs.get("simulated", NOTHING_SIMULATED)
        self.simulated, self.known = _simulated_phases(program, known), known
        base, repetition = inputs.get("repeated", (np.arange(traced), np.zeros(traced, np.int64)))
        # the end of the rank is an operation here
        self.base = np.append(base, traced).astype(np.int64)
        self.repetition = np.append(repetition, 0).astype(np.int64)
        self.tail = np.zeros(len(self.operation), np.bool_)
        if "repeated" in inputs:
            self.tail = _tails(program, self.operation, inputs["part"].workload)
        self.owner = self.operation - self.tail  # the operation whose repetitions are the phase's
        phase = phase_of_pieces(program)
        self.sleep_ps = np.bincount(phase[is_sleep], slept_ps[is_sleep], minlength=program.num_phases).astype(np.int64)
        self.phase = phase

    def scheduled(self, runtime: RuntimeSystem) -> Arrays:
        from manyscale.models.node.program.serial_parts import serial_parts

        count = np.bincount(self.base, minlength=int(self.base.max()) + 1)[self.owner]  # times each phase runs
        is_known = np.isin(np.arange(len(count)), self.simulated)
        busy = overhead = total = 0
        makespans: list[np.ndarray] = []
        for first, end in _runs(2 * count + is_known):
            repetitions = int(count[first]) if self.parameters["jitter"] else 1
            if is_known[first]:
                makespans += [np.zeros(repetitions, np.int64)] * (end - first)
                continue
            found = self._run(runtime, first, end, repetitions)
            times = 1 if self.parameters["jitter"] else int(count[first])
            busy += times * int(found.busy_ps.sum())
            overhead += times * int(found.overhead_ps.sum())
            total += times * int(found.makespan_ps.sum()) * self.parameters["cores"]
            makespans += list(found.makespan_ps.T)
        serial_ps = serial_parts(self.program, self.piece_ps, runtime.creator_speedup)
        if self.speed is not None:
            serial_ps = serial_ps / self.speed[0]
        serial = float(serial_ps[~is_known] @ count[~is_known])
        for phase, known_ps, core_ps in zip(
            self.simulated.tolist(), self.known.makespan_ps.tolist(), self.known.core_ps.tolist(), strict=True
        ):
            if phase < 0:
                continue
            sleep_ps, times = int(self.sleep_ps[phase]), int(count[phase])
            makespans[phase] = np.full_like(makespans[phase], known_ps + sleep_ps)
            busy += times * (core_ps[0] + sleep_ps)
            overhead += times * core_ps[1]
            serial += times * (core_ps[2] + sleep_ps)
            total += times * (known_ps + sleep_ps) * self.parameters["cores"]
        compute = self._per_operation(makespans)
        kind = self.program.task_type[self.program.piece_instance]
        weight = self.piece_ps * count[self.phase]
        instances = np.diff(self.program.phase_first_instance) @ count
        return {
            "compute_ps": compute,
            "core_use_ps": core_use(busy, overhead, serial, total, self.parameters["cores"]),
            "type_ps": np.bincount(np.where(kind < 0, self.num_types - 1, kind), weight, minlength=self.num_types),
            "num_instances": np.array([instances], np.int64),
            "num_ids": np.array([self.program.num_instances * (int(self.repetition.max()) + 1)], np.int64),
            "simulated_before": np.where(self.simulated < 0, -1, self.operation[self.simulated]).astype(np.int32),
            "simulated_begin_ps": self._offsets(makespans, 0)[self.simulated],
            **self._stretches(runtime, makespans),
        }

    def _run(self, runtime: RuntimeSystem, first: int, end: int, repetitions: int, **options: Any) -> ScheduledPhases:
        from manyscale.models.node.burst import run_phases  # Numba

        return run_phases(
            self.program, self.parameters["cores"], runtime, self.piece_ps, first, end, seed=self.parameters["seed"],
            repetitions=repetitions, jitter=self.parameters["jitter"], speed=self.speed, **options,
        )  # fmt: skip

    def _per_operation(self, makespans: list[np.ndarray]) -> np.ndarray:
        """Compute before each operation of the result, from the makespans of each phase by repetition."""
        before = self._sums(makespans, ~self.tail)
        before[1:] += self._sums(makespans, self.tail)[:-1]
        return before

    def _sums(self, makespans: list[np.ndarray], chosen: np.ndarray) -> np.ndarray:
        """int64[operations of the result]: of the chosen phases of each, sleeps left out."""
        base = np.zeros((int(self.base.max()) + 1, max((len(each) for each in makespans), default=1)), np.int64)
        for phase in np.flatnonzero(chosen).tolist():
            values = makespans[phase]
            base[self.owner[phase]] += values[-1] - self.sleep_ps[phase]
            base[self.owner[phase], : len(values)] += values - values[-1]
        return base[self.base, np.minimum(self.repetition, base.shape[1] - 1)]

    def _stretches(self, runtime: RuntimeSystem, makespans: list[np.ndarray]) -> Arrays:
        """Stretches of the iterations that are kept, in the order of operations and time."""
        kept = self.parameters["keep"]
        rows: list[np.ndarray] = []
        operations: list[np.ndarray] = []
        again_of: list[np.ndarray] = []
        simulated = np.isin(np.arange(len(self.operation)), self.simulated)
        if kept is None:
            choices = [(np.flatnonzero(~simulated), 0, 0)]
        else:
            of = self.program.phase_iteration
            choices = [(np.flatnonzero(~simulated & (of == traced)), number, again) for number, traced, again in kept]
        ends = np.append(0, self._sums(makespans, self.tail))  # before each operation: the end of another iteration
        for phases, _, again in choices:
            offset = self._offsets(makespans, again)
            for first, end in _consecutive(phases):
                found = self._run(runtime, first, end, 1, first_repetition=again, keep=True)
                stretch = found.stretches.copy()
                phase = first + stretch["phase"]
                place = self._place(self.owner[phase], again)
                place = np.where(place >= 0, place + self.tail[phase], place)
                begin = offset[phase] + np.where(self.tail[phase], 0, ends[place])
                for name in _TIMES:
                    stretch[name] += begin
                rows.append(stretch[place >= 0])
                operations.append(place[place >= 0])
                again_of.append(np.full(len(operations[-1]), again))
        empty: Any = np.empty(0, [(name, "i8") for name in (*_TIMES, "core", "instance")])
        stretch = np.concatenate(rows) if rows else empty
        operation = np.concatenate(operations) if operations else np.empty(0, np.int64)
        repetition = np.concatenate(again_of) if again_of else np.empty(0, np.int64)
        order = np.lexsort((stretch["core"], stretch["start_ps"], operation))
        stretch, operation = stretch[order], operation[order]
        instance = stretch["instance"]
        number, creator = ids_in_rank(self.program, instance, repetition[order])
        return {
            "operation": operation.astype(np.int32),
            "instance": traced_ids(self.program.instance_id[instance], instance),
            "id": number,
            "creator": creator,
            "type": self.program.task_type[instance].astype(np.int32),
            "core": stretch["core"].astype(np.int32),
            **{name: stretch[name].astype(np.int64) for name in _TIMES},
        }

    def _offsets(self, makespans: list[np.ndarray], again: int) -> np.ndarray:
        """When each phase begins, in a repetition, after the first one before the same operation began, be that of
        another iteration."""
        makespan_ps = np.array([each[min(again, len(each) - 1)] for each in makespans], np.int64)
        until = np.cumsum(makespan_ps) - makespan_ps
        group = 2 * self.operation - self.tail
        return until - until[np.searchsorted(group, group, "left")]

    def _place(self, operation: np.ndarray, again: int) -> np.ndarray:
        """Operation of the result that an operation of the traced program is in its repetition, -1 if there is none."""
        order = np.lexsort((self.repetition, self.base))
        key = self.base[order] * (int(self.repetition.max()) + 2) + self.repetition[order]
        wanted = operation * (int(self.repetition.max()) + 2) + again
        found = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
        return np.where(key[found] == wanted, order[found], -1)


def _tails(program: NodeProgram, operation: np.ndarray, traced: Workload) -> np.ndarray:
    """bool[phases]: those behind the last operation of their iteration, where it has operations."""
    number, first, end = (
        traced.column("iterations", name) for name in ("iteration", "first_operation_id", "end_operation_id")
    )
    end_of = np.full(int(number.max(initial=-1)) + 2, np.iinfo(np.int64).max)  # the last one: outside of iterations
    end_of[number[end > first]] = end[end > first]
    return np.asarray(operation == end_of[program.phase_iteration])


def _simulated_phases(program: NodeProgram, known: Simulated) -> np.ndarray:
    """int64[]: which phase each one is whose makespan is known. Of iterations with another number of phases than were
    simulated it is none, -1: the ratios of their types stand for them."""
    result = np.full(len(known.iteration), -1, np.int64)
    for iteration in np.unique(known.iteration).tolist():
        mine = np.arange(program.num_phases)
        if iteration == JOINED:
            inside = np.flatnonzero(program.phase_iteration >= 0)
            mine = mine[inside[0] : inside[-1] + 1] if len(inside) else mine[:0]
        elif iteration != WHOLE:
            mine = np.flatnonzero(program.phase_iteration == iteration)
        given = known.iteration == iteration
        if len(mine) == np.count_nonzero(given):
            result[given] = mine
    return result


def operation_of_phases(phase_operation: np.ndarray, last: int) -> np.ndarray:
    """int64[phases]: the operation that ends each phase or the next one that an operation ends."""
    result = phase_operation.astype(np.int64)
    result[result < 0] = last + 1
    return np.minimum(np.minimum.accumulate(result[::-1])[::-1], last)


def phase_of_pieces(program: NodeProgram) -> np.ndarray:
    """int64[pieces]: the phase in which each is executed."""
    instance = program.piece_instance.astype(np.int64)
    phase = np.searchsorted(program.phase_first_instance, instance, "right") - 1
    steps = np.arange(program.first_step[0], program.first_step[1])
    mine = steps[program.step_action[steps] == Action.compute]
    phase[program.step_target[mine]] = np.searchsorted(program.phase_first_step, mine, "right") - 1
    return np.clip(phase, 0, program.num_phases - 1)


def _runs(values: np.ndarray) -> list[tuple[int, int]]:
    """Ranges of equal values."""
    cuts = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)]
    return [(first, end) for first, end in pairwise(cuts) if first < end]


def _consecutive(numbers: np.ndarray) -> list[tuple[int, int]]:
    """Ranges of consecutive numbers."""
    return [(int(numbers[first]), int(numbers[end - 1]) + 1) for first, end in _runs(numbers - np.arange(len(numbers)))]
