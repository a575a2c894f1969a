"""Phases of a rank on simulated cores and memory: what the runtime system hands out, executed instruction by
instruction.

Joins the scheduler (node/scheduler/scheduler.py), the cores (node/core/kernel.py) and the memory system
(node/memory/system.py) in strict order of time (detailed_kernel.py). Each task instance is executed in detail or, where
the caller says so, takes given times. Caches and DRAM stay as they are from phase to phase; what lies between phases
takes no time here.

Pieces without instructions in the stream take no time in detail unless the caller says so. MPI operations inside
phases take none: what instances take is known then, and the replay says when they run. Where the runtime system has a
creator_speedup other than 1, instances that create others take their given times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from manyscale.models.cpu import domains
from manyscale.models.kernels.event_heap import event_record
from manyscale.models.machine import Node
from manyscale.models.machine.processor import data_caches, needed
from manyscale.models.node.core.code import CoreCode, kept_core_code
from manyscale.models.node.core.cycle_wheel import new_wheel
from manyscale.models.node.core.kernel import Request, new_cores, part_names, stream_of
from manyscale.models.node.core.predictor_training import train
from manyscale.models.node.detailed_kernel import CONTROL, PIECE_RECORD, STUCK, NodeState, Records, run
from manyscale.models.node.instruction_stream import InstructionStream, PieceStream
from manyscale.models.node.memory.system import new_memory_system
from manyscale.models.node.program.node_program import NodeProgram
from manyscale.models.node.scheduler.held_data import HeldData
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.models.node.scheduler.scheduler import new_scheduler, why_stuck
from manyscale.models.workload import Workload, WorkloadError
from manyscale.models.workload.notes import Note, changes

NAME = "detailed"
VERSION = 1
DOMAIN: Final = domains.DETAILED

Warm: TypeAlias = Literal["cold", "second-run"]
FAST: Final = "fast"  # parts of a core's time beside those of its CPI stack
OVERHEAD: Final = "overhead"
IDLE: Final = "idle"

_INSTANCE: Final = np.dtype(
    [
        ("start_ps", "i8"), ("end_ps", "i8"), ("created_ps", "i8"), ("ready_ps", "i8"), ("cycles", "f8"),
        ("instructions", "i8"), ("core", "i4"), ("pad", "i4"),
    ]
)  # fmt: skip


@dataclass(frozen=True)
class DetailedPhases:
    """``makespan_ps`` int64[phases]; ``piece_ps`` int64[pieces], -1 for those of other phases.

    ``parts``: names of the columns of ``type_stack`` float64[task types + 1, parts], in cycles, the initial task last:
    what cores did in pieces executed in detail. ``core_parts`` and ``core_stack`` float64[cores, parts + 3]: beside
    these, given times (pieces that took them, and what comes on top of others), overhead of the runtime system, and the
    rest of the makespans; each row sums to all makespans in cycles. ``instances``: records by instance (start_ps of its
    first piece, end_ps and core of its last, cycles and instructions in detail), start_ps -1 for those that did not
    run, if to be kept; ``served`` int64[ instances, levels]: accesses by the level that served them, if asked for.
    Times count from the first phase's begin. ``counts`` int64[cores, levels, 4]: of the memory system, see there."""

    makespan_ps: np.ndarray
    piece_ps: np.ndarray
    parts: tuple[str, ...]
    type_stack: np.ndarray
    core_parts: tuple[str, ...]
    core_stack: np.ndarray
    instances: np.ndarray
    served: np.ndarray
    counts: np.ndarray
    num_instructions: int
    num_pieces: int
    notes: tuple[Note, ...]


class NodeSimulation:
    """Phases [``first_phase``, ``end_phase``) of a program, to be simulated one after the other; see `simulate` for the
    arguments, new_memory_system for ``first_core`` and ``most_lines``, new_scheduler for ``held``, kept_core_code for
    ``code``. ``memory``: the memory system, which may be touched before a run. Raises ValueError for arguments that
    make no sense or a node that lacks a parameter."""

    def __init__(
        self,
        program: NodeProgram,
        workload: Workload,
        node: Node,
        num_cores: int,
        runtime: RuntimeSystem,
        stream: InstructionStream,
        pieces: PieceStream,
        *,
        first_phase: int = 0,
        end_phase: int | None = None,
        is_detailed: np.ndarray | None = None,
        piece_ps: np.ndarray | None = None,
        empty_ps: np.ndarray | None = None,
        beside_ps: np.ndarray | None = None,
        window_cycles: int = 0,
        request: Request = "insertion",
        keep: bool = True,
        keep_served: bool = False,
        seed: int = 0,
        most_lines: int | None = None,
        held: HeldData | None = None,
        code: tuple[CoreCode, tuple[Note, ...]] | None = None,
        first_core: int = 0,
    ) -> None:
        end = program.num_phases if end_phase is None else end_phase
        given = program.piece_ps if piece_ps is None else piece_ps
        detailed = np.ones(program.num_instances, np.int8) if is_detailed is None else is_detailed
        _check(program, first_phase, end, given, detailed, num_cores, window_cycles)
        cycles_per_ps = needed(node.frequency_hz, "node.frequency") / 1e12
        found = [code or kept_core_code(workload, needed(each.core, "node.core")) for each in node.of_kinds]
        self.notes = (*found[0][1], *_of_window(window_cycles))
        self._first_core = first_core
        speeds = node.core_speeds[first_core : first_core + num_cores]
        self._speed = np.array(speeds) if speeds else None
        self._program, self._node, self._num_cores, self._runtime, self._seed = program, node, num_cores, runtime, seed
        self._held = held
        self._seen: np.ndarray | None = None
        self._num_phases, self._keep, self._keep_served = end - first_phase, keep, keep_served
        self.memory = new_memory_system(node, num_cores, first_core=first_core, most_lines=most_lines)
        self._cores = new_cores(
            node, num_cores, [each for each, _ in found], stream_of(stream.block_ids, stream.addresses), request,
            first_core,
        )  # fmt: skip
        self._wheel = new_wheel(num_cores)
        self._control = np.zeros(1, CONTROL)
        self._control["cycles_per_ps"], self._control["per_speedup"] = cycles_per_ps, 1 / runtime.creator_speedup
        self._control["first_phase"], self._control["window"] = first_phase, window_cycles
        # of its own: a sampler writes how instances are executed, and how long
        self._is_detailed = np.array(detailed, np.int8)
        self._piece = np.zeros(program.num_pieces, PIECE_RECORD)
        for name in ("first_execution", "end_execution", "first_access"):
            self._piece[name] = getattr(pieces, name)
        if pieces.stack is not None:
            self._piece["stack"], self._piece["end_stack"] = pieces.stack.T
        self._piece["given_ps"] = given
        # what a runtime system that learns knows of an instance before it runs
        self._instructions = np.bincount(program.piece_instance, pieces.num_instructions, program.num_instances)
        self._piece["empty_ps"] = 0 if empty_ps is None else empty_ps
        self._piece["beside_ps"] = 0 if beside_ps is None else beside_ps
        self.start()

    def start(self) -> None:
        """Count from zero; caches, DRAM and what the runtime system has learned stay as they are."""
        parts, num_cores = len(part_names(self._node)), self._num_cores
        self.memory.counts[:] = 0
        self._state = NodeState(
            control=self._control,
            scheduler=new_scheduler(
                self._program, num_cores, self._runtime, self._seed,
                share_group=last_cache_of(self._node, num_cores, self._first_core),
                predicted_ps=self._piece["given_ps"].copy(), speed=self._speed,
                size=self._instructions, held=self._held, seen=self._seen,
            ),
            cores=self._cores,
            memory=self.memory,
            heap=np.zeros(num_cores + 1, event_record(np.dtype("i8"))),
            heap_size=np.zeros(1, np.int64),
            wheel=self._wheel,
            piece=self._piece,
            is_detailed=self._is_detailed,
            records=_records(
                self._program, num_cores, parts, self.memory.counts.shape, self._keep, self._keep_served
            ),
            makespan_ps=np.zeros(self._num_phases, np.int64),
        )  # fmt: skip
        self._origin_ps = int(self._control["begin_ps"][0])

    def move(self, first_phase: int, end_phase: int) -> None:
        """Be about phases [``first_phase``, ``end_phase``) from now on, and count from zero; caches and DRAM stay."""
        if not 0 <= first_phase <= end_phase <= self._program.num_phases:
            raise ValueError(f"phases {first_phase} to {end_phase} of {self._program.num_phases}")
        self._control["first_phase"], self._num_phases = first_phase, end_phase - first_phase
        self.start()

    def train(self, first: np.ndarray, end: np.ndarray, core: np.ndarray) -> None:
        """Branch predictors see executions [``first``, ``end``) of the stream on cores ``core`` (int64[n] each), one
        after the other; no time passes."""
        train(self._cores, *(np.ascontiguousarray(each, np.int64) for each in (first, end, core)))

    def run(self, watch: Any = None) -> None:
        """All phases, each instance as ``is_detailed`` says. ``watch``: see loop_watch.py. Raises WorkloadError if a
        phase cannot end."""
        if run(self._state, watch) == STUCK:
            raise WorkloadError(why_stuck(self._program, self._state.scheduler))
        self._seen = self._state.scheduler.learning.seen

    @property
    def cycle(self) -> float:
        """When the last run ended, in cycles since the first one began."""
        return float(self._control["begin_ps"][0] * self._control["cycles_per_ps"][0])

    def result(self) -> DetailedPhases:
        """What was simulated since the last ``start``."""
        state = self._state
        return _result(
            state.records, state.scheduler.core["overhead_ps"], state.makespan_ps, self.memory.counts, self._node,
            float(self._control["cycles_per_ps"][0]), self._origin_ps, self.notes,
        )  # fmt: skip


def simulate(
    program: NodeProgram,
    workload: Workload,
    node: Node,
    num_cores: int,
    runtime: RuntimeSystem,
    stream: InstructionStream,
    pieces: PieceStream,
    *,
    warm: Warm = "cold",
    **options: Any,
) -> DetailedPhases:
    """Phases [``first_phase``, ``end_phase``) one after the other.

    ``is_detailed`` int8[instances]: which to execute in detail (all by default); the others' pieces take ``piece_ps``
    (int64[pieces], the traced times by default). ``empty_ps`` int64[pieces]: in detail, of pieces without instructions
    (none by default); ``beside_ps`` int64[pieces]: what instructions take on top, such as page faults, in detail and of
    given times (none by default). ``warm``: caches are empty at first, or as the same phases leave them.
    ``window_cycles`` and ``request``: see the kernels. ``keep``, ``keep_served``: what is kept of each instance.
    Raises WorkloadError if a phase cannot end, ValueError for arguments that make no sense or a node that lacks a
    parameter. Cost: see detailed_kernel.py.
    """
    simulation = NodeSimulation(program, workload, node, num_cores, runtime, stream, pieces, **options)
    if warm == "second-run":
        simulation.run()
        simulation.start()
    simulation.run()
    return simulation.result()


def last_cache_of(node: Node, num_cores: int, first_core: int = 0) -> np.ndarray:
    """int32[cores]: number, from 0 on, of the last cache that serves each core from ``first_core`` on, or of its socket
    where there is none."""
    caches = list(data_caches(node.caches).values())
    shared = caches[-1].shared_by_cores if caches else node.cores_per_socket
    return ((first_core + np.arange(num_cores)) // shared - first_core // shared).astype(np.int32)


def _of_window(cycles: int) -> tuple[Note, ...]:
    """A note where cores go ahead of each other."""
    if not cycles:
        return ()
    text = (
        f"cores go up to {cycles} cycles ahead of others where their first caches have what they ask for: a line that "
        "another core takes away may have been used before (on six programs 1.1 % of the time at worst, "
        "else 0.002 %)"
    )
    return (changes("cores-go-ahead", text, "detailed.window"),)


def _check(
    program: NodeProgram, first_phase: int, end_phase: int, given: np.ndarray, detailed: np.ndarray, num_cores: int,
    window_cycles: int,
) -> None:  # fmt: skip
    if not 0 <= first_phase <= end_phase <= program.num_phases:
        raise ValueError(f"phases {first_phase} to {end_phase} of {program.num_phases}")
    if len(given) != program.num_pieces:
        raise ValueError(f"{len(given)} times for {program.num_pieces} pieces")
    if len(detailed) != program.num_instances:
        raise ValueError(f"is_detailed says {len(detailed)} instances, the program has {program.num_instances}")
    if num_cores < 1:
        raise ValueError(f"a rank cannot run on {num_cores} cores; give it 1 or more")
    if window_cycles < 0:
        raise ValueError(f"a window of {window_cycles} cycles; give 0 or more")


def _records(
    program: NodeProgram, num_cores: int, parts: int, served_shape: tuple[int, ...], keep: bool, keep_served: bool
) -> Records:
    num_types = int(program.task_type.max(initial=-1)) + 1
    instances = np.zeros(program.num_instances if keep else 0, _INSTANCE)
    instances["start_ps"] = -1
    return Records(
        np.full(program.num_pieces, -1, np.int64),
        instances,
        np.ascontiguousarray(program.task_type, np.int32),
        np.zeros((num_cores, parts)),
        np.zeros((num_types + 1, parts)),
        np.zeros(num_cores, np.int64),
        np.zeros(2, np.int64),
        np.zeros(num_cores, np.int64),
        np.zeros((num_cores, served_shape[1]), np.int64),
        np.zeros((program.num_instances if keep_served else 0, served_shape[1]), np.int64),
    )


def _result(
    records: Records, overhead_ps: np.ndarray, makespan_ps: np.ndarray, counts: np.ndarray, node: Node,
    cycles_per_ps: float, origin_ps: int, notes: tuple[Note, ...],
) -> DetailedPhases:  # fmt: skip
    parts = part_names(node)
    beside = np.stack([records.fast_ps, overhead_ps], axis=1) * cycles_per_ps
    idle = makespan_ps.sum() * cycles_per_ps - records.core_stack.sum(axis=1) - beside.sum(axis=1)
    instances = records.instance
    ran = instances["start_ps"] >= 0
    for column in ("start_ps", "end_ps", "created_ps", "ready_ps"):
        instances[column][ran] -= origin_ps
    return DetailedPhases(
        makespan_ps,
        records.piece_ps,
        parts,
        records.type_stack,
        (*parts, FAST, OVERHEAD, IDLE),
        np.column_stack([records.core_stack, beside, idle]),
        instances,
        records.instance_served,
        counts[: len(overhead_ps)].copy(),
        int(records.counts[0]),
        int(records.counts[1]),
        notes,
    )
