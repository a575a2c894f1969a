"""Burst mode inside a node: phases whose pieces take known times, on simulated cores.

One kernel owns the time: a tournament over the cores holds when each is to be advanced (Knuth, TAOCP vol. 3, section
5.4.1), so that each event costs log2(cores) comparisons without a branch.

Repetitions stand for iterations that were not traced. With ``jitter`` each instance's pieces take a factor that is
drawn from a hash of (seed, repetition, instance): the quantiles of a log-normal distribution of mean 1 and standard
deviation ``jitter``.

Cost: O(log cores) a piece, creation, schedule, and what node/scheduler/kernel.py says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import allocation_free, by_reference, inner_inlined, read_only, separate
from manyscale.models.kernels.hashing import mix
from manyscale.models.node.program.node_program import Action, NodeProgram
from manyscale.models.node.scheduler.held_data import HeldData
from manyscale.models.node.scheduler.kernel import CREATES, PHASE_END, PIECE, advance, begin_phase
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.models.node.scheduler.scheduler import Scheduler, new_scheduler, why_stuck
from manyscale.models.workload import WorkloadError

NEVER: Final = 1 << 62
_QUANTILES: Final = 4096

_STRETCH: Final = np.dtype(
    [
        ("start_ps", "i8"), ("end_ps", "i8"), ("repetition", "i4"), ("phase", "i4"), ("core", "i4"), ("instance", "i4"),
        ("created_ps", "i8"), ("ready_ps", "i8"),
    ]
)  # fmt: skip

_CONTROL: Final = np.dtype(
    [
        ("seed", "u8"), ("per_speedup", "f8"), ("first_phase", "i8"), ("first_repetition", "i8"),
        ("num_stretches", "i8"),
    ]
)  # fmt: skip


class _Burst(NamedTuple):
    """``control``: one record, ``per_speedup``: factor on pieces of instances that create others. ``per_core``
    float64[cores]: factor on pieces by core. ``factors``: of the jitter, one for none. ``tree`` int64[2 x cores,
    rounded up]: when each core, and the first of each two, is to be advanced. ``since_ps`` int64[cores]: begin of its
    stretch. For the others see ScheduledPhases."""

    control: np.ndarray
    scheduler: Scheduler
    piece_ps: np.ndarray
    per_core: np.ndarray
    factors: np.ndarray
    tree: np.ndarray
    since_ps: np.ndarray
    makespan_ps: np.ndarray
    busy_ps: np.ndarray
    stretch: np.ndarray


@dataclass(frozen=True)
class ScheduledPhases:
    """``makespan_ps`` int64[repetitions, phases]. ``busy_ps``, ``overhead_ps`` and ``idle_ps`` (waiting for locks
    included) int64[cores], sums over all of these. ``stretches``: records (start_ps, end_ps since the phase's begin,
    repetition, phase, core, instance: row of NodeProgram, created_ps, ready_ps) of an instance on a core until it is
    suspended or ends, in order of their ends, if they were to be kept; instances that take no time have none."""

    makespan_ps: np.ndarray
    busy_ps: np.ndarray
    overhead_ps: np.ndarray
    idle_ps: np.ndarray
    stretches: np.ndarray


def run_phases(
    program: NodeProgram,
    num_cores: int,
    runtime: RuntimeSystem,
    piece_ps: np.ndarray,
    first_phase: int = 0,
    end_phase: int | None = None,
    *,
    seed: int = 0,
    share_group: np.ndarray | None = None,
    speed: np.ndarray | None = None,
    size: np.ndarray | None = None,
    held: HeldData | None = None,
    first_repetition: int = 0,
    repetitions: int = 1,
    jitter: float = 0.0,
    keep: bool = False,
) -> ScheduledPhases:
    """Schedule phases [first_phase, end_phase), ``repetitions`` times, each from time 0 on.

    ``piece_ps`` int64[pieces]: what each takes on a core of the ``speed`` 1 (float64[cores]; all are, by default).
    Those of instances that create others are divided by the runtime system's creator_speedup here. ``size``
    float64[instances]: what the policy predicted-critical-path knows of each beforehand, by default nothing; ``held``:
    what data-reuse knows, see new_scheduler. Repetition r is the same whichever is ``first_repetition``, unless data
    are held. Working memory is that of the largest phase, and 48 B a stretch if they are kept.

    Raises WorkloadError if a phase cannot end, ValueError for arguments that make no sense.
    """
    end = program.num_phases if end_phase is None else end_phase
    if not 0 <= first_phase <= end <= program.num_phases:
        raise ValueError(f"phases {first_phase} to {end} of {program.num_phases}")
    if len(piece_ps) != program.num_pieces:
        raise ValueError(f"{len(piece_ps)} times for {program.num_pieces} pieces")
    if repetitions < 0 or not 0 <= jitter < math.inf:
        raise ValueError(f"{repetitions} repetitions with a jitter of {jitter}; neither may be negative")
    if np.any(program.step_action == Action.operation):
        raise ValueError(f"rank {program.rank} calls MPI inside its phases: its task graph has to join the replay")
    per_core = np.ones(num_cores) if speed is None else 1.0 / np.asarray(speed, np.float64)
    if len(per_core) != num_cores:
        raise ValueError(f"{len(per_core)} speeds of {num_cores} cores")
    durations = read_only(piece_ps, np.int64)
    scheduler = new_scheduler(
        program,
        num_cores,
        runtime,
        seed,
        share_group=share_group,
        predicted_ps=durations,
        size=size,
        held=held,
        known_ps=durations,
        speed=None if speed is None else np.asarray(speed, np.float64),
    )
    factors = _factors(jitter) if jitter > 0 else np.ones(1)
    result = ScheduledPhases(
        makespan_ps=np.zeros((repetitions, end - first_phase), np.int64),
        busy_ps=np.zeros(num_cores, np.int64),
        overhead_ps=np.zeros(num_cores, np.int64),
        idle_ps=np.zeros(num_cores, np.int64),
        stretches=np.zeros(_most_stretches(program, first_phase, end) * repetitions if keep else 0, _STRETCH),
    )
    control = np.zeros(1, _CONTROL)
    control["seed"], control["per_speedup"] = np.uint64(seed & 0xFFFFFFFFFFFFFFFF), 1.0 / runtime.creator_speedup
    control["first_phase"], control["first_repetition"] = first_phase, first_repetition
    tree = np.full(2 << max(num_cores - 1, 1).bit_length(), NEVER, np.int64)
    if not _run(
        _Burst(
            control, scheduler, durations, per_core, factors, tree, np.zeros(num_cores, np.int64), result.makespan_ps,
            result.busy_ps, result.stretches,
        )
    ):  # fmt: skip
        raise WorkloadError(why_stuck(program, scheduler))
    num_stretches = int(control["num_stretches"][0])
    overhead = scheduler.core["overhead_ps"].copy()
    idle = result.makespan_ps.sum() - result.busy_ps - overhead
    return ScheduledPhases(result.makespan_ps, result.busy_ps, overhead, idle, result.stretches[:num_stretches])


def _most_stretches(program: NodeProgram, first_phase: int, end_phase: int) -> int:
    """An instance is taken once, and again at most after each step at which it may be suspended."""
    first, end = (int(program.phase_first_instance[phase]) for phase in (first_phase, end_phase))
    count = end - first + 2 * (end_phase - first_phase)
    for begin, stop in (
        (program.phase_first_step[first_phase], program.phase_first_step[end_phase]),
        (program.first_step[first], program.first_step[end]),
    ):
        actions = program.step_action[begin:stop]
        count += int(np.count_nonzero((actions >= Action.call) & (actions <= Action.loop_nowait)))
    return count


@cache
def _factors(jitter: float) -> np.ndarray:
    """Quantiles of a log-normal distribution of mean 1 and standard deviation ``jitter``, in equal steps."""
    normal = NormalDist(0, math.sqrt(math.log1p(jitter * jitter)))
    values = np.exp([normal.inv_cdf((k + 0.5) / _QUANTILES) for k in range(_QUANTILES)])
    return values / values.mean()


@inner_inlined
def _set(tree, leaf, time):  # type: ignore[no-untyped-def]
    """When a core is to be advanced: up the tree, the earlier of each two. O(log cores)."""
    tree[leaf] = time
    while leaf > 1:
        other = tree[leaf ^ 1]
        time = min(time, other)
        leaf >>= 1
        tree[leaf] = time


@inner_inlined
def _earliest(tree):  # type: ignore[no-untyped-def]
    """The core that is to be advanced first, the lowest of several. O(log cores)."""
    half = tree.shape[0] >> 1
    place = 1
    while place < half:
        place *= 2
        place += tree[place] > tree[place + 1]
    return place - half


@inner_inlined
def _duration(burst, core, me, drawn):  # type: ignore[no-untyped-def]
    """What the piece of a core takes."""
    duration_ps = burst.piece_ps[me.piece]
    factor = burst.per_core[core]
    if burst.factors.shape[0] > 1:
        factor *= burst.factors[mix(drawn, np.uint64(me.instance)) >> np.uint64(52)]
    per_speedup = burst.control[0].per_speedup
    if per_speedup != 1.0 and burst.scheduler.instance[me.row].flags & CREATES:
        factor *= per_speedup
    if factor != 1.0:
        duration_ps = np.int64(np.rint(duration_ps * factor))
    return duration_ps


@inner_inlined
def _keep_stretch(burst, repetition, phase, core, instance, row, time_ps):  # type: ignore[no-untyped-def]
    """The core goes on with another instance, or none; before it had ``instance``, or none, in that ``row``."""
    since_ps = burst.since_ps[core]
    if instance >= 0 and time_ps > since_ps:
        control = burst.control[0]
        stretch = burst.stretch[control.num_stretches]
        stretch.start_ps = since_ps
        stretch.end_ps = time_ps
        stretch.created_ps = burst.scheduler.instance[row].created_ps
        stretch.ready_ps = burst.scheduler.instance[row].ready_ps
        stretch.repetition = repetition
        stretch.phase = phase
        stretch.core = core
        stretch.instance = instance
        control.num_stretches += 1
    burst.since_ps[core] = time_ps


@separate
def _run_phase(burst, repetition, phase, drawn):  # type: ignore[no-untyped-def]
    """How long the phase takes, -1 if it cannot end."""
    sch, tree = burst.scheduler, burst.tree
    half = tree.shape[0] >> 1
    keep = burst.stretch.shape[0] > 0
    begin_phase(sch, burst.control[0].first_phase + phase, 0)
    for core in range(burst.since_ps.shape[0]):
        burst.since_ps[core] = 0
    core = 0
    time_ps = np.int64(0)
    while True:
        me = sch.core[core]
        before, row = np.int64(me.instance), np.int64(me.row)
        code = advance(sch, core, time_ps)
        if keep and (me.instance != before or code == PHASE_END):
            _keep_stretch(burst, repetition, phase, core, before, row, time_ps)
        next_ps = np.int64(NEVER)
        if code == PIECE:
            next_ps = me.start_ps
            if me.piece >= 0:
                duration_ps = _duration(burst, core, me, drawn)
                burst.busy_ps[core] += duration_ps
                next_ps += duration_ps
        elif code == PHASE_END:
            _set(tree, half + core, NEVER)
            return time_ps
        _set(tree, half + core, next_ps)
        for k in range(sch.num_woken[0]):
            _set(tree, half + sch.woken[k], time_ps)
        sch.num_woken[0] = 0
        time_ps = tree[1]
        if time_ps == NEVER:
            return np.int64(-1)
        core = _earliest(tree)


@allocation_free
def _run(burst):  # type: ignore[no-untyped-def]
    """Whether all phases ended. See the module for the cost."""
    burst = by_reference(burst)
    control = burst.control[0]
    for repetition in range(burst.makespan_ps.shape[0]):
        drawn = mix(control.seed, np.uint64(control.first_repetition + repetition))
        for phase in range(burst.makespan_ps.shape[1]):
            makespan_ps = _run_phase(burst, repetition, phase, drawn)
            if makespan_ps < 0:
                return False
            burst.makespan_ps[repetition, phase] = makespan_ps
    return True
