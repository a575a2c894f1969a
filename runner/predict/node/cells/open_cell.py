"""What a work unit on a cell has opened of its inputs: the program of the rank, the cell's phases, its stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from manyscale.models.cpu.dataflow_code import fused_instructions
from manyscale.models.machine import Node
from manyscale.models.machine.processor import needed
from manyscale.models.memory.access_stream import sites_of
from manyscale.models.node.instruction_stream import (
    InstructionStream,
    PieceStream,
    pieces_of_stream,
    sums_of_pieces,
)
from manyscale.models.node.private_stacks import private_stacks
from manyscale.models.node.program.build import build_program
from manyscale.models.node.program.node_program import NodeProgram
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.models.workload import Workload, WorkloadError
from manyscale.runner.predict.node.cells.plan import JOINED, WHOLE
from manyscale.runner.predict.node.schedule_units import phase_of_pieces


@dataclass(frozen=True)
class OpenCell:
    """Phases [``first``, ``end``) of a program, and what they execute. ``creates`` bool[pieces]:
    predict/node/creation.py. ``fault_ps`` int64[pieces] or none: predict/node/page_faults.py. ``fused`` int64[pieces]:
    instructions that cores may make one with the branch behind them; None: the stream tells."""

    workload: Workload
    program: NodeProgram
    stream: InstructionStream
    all_pieces: PieceStream
    creates: np.ndarray
    first: int
    end: int
    node: Node
    runtime: RuntimeSystem
    creation_is_free: bool = False
    fault_ps: np.ndarray | None = None
    fused: np.ndarray | None = None

    @cached_property
    def pieces(self) -> PieceStream:
        """What is simulated: what creates instances has no instructions."""
        return without_creation(self.all_pieces, self.creates)

    @property
    def creation_ps(self) -> np.ndarray:
        """int64[pieces]: time of those that create instances, as traced unless it is free."""
        return np.where(self.creates & (not self.creation_is_free), self.program.piece_ps, 0)

    @property
    def beside_ps(self) -> np.ndarray:
        """int64[pieces]: what page faults take beside instructions; traced times, of creation, contain theirs."""
        return np.where(self.creates, 0, 0 if self.fault_ps is None else self.fault_ps)

    @cached_property
    def instructions(self) -> np.ndarray:
        """int64[instances]: those in this cell."""
        mine = phase_of_pieces(self.program)
        inside = (mine >= self.first) & (mine < self.end)
        owner = self.program.piece_instance[inside]
        counts = np.bincount(owner, self.pieces.num_instructions[inside], self.program.num_instances)
        return counts.astype(np.int64)

    @property
    def issued(self) -> np.ndarray:
        """int64[instances]: places of their instructions in the core, where a compare and its branch may share one."""
        if not needed(self.node.core, "core").fuses_branches:
            return self.instructions
        fused = self.fused
        if fused is None:
            fused = sums_of_pieces(self.stream, self.pieces, fused_instructions(self.workload))
        fused = np.where(self.creates, 0, fused)
        mine = phase_of_pieces(self.program)
        inside = (mine >= self.first) & (mine < self.end)
        owner = self.program.piece_instance[inside]
        counts = np.bincount(owner, fused[inside], self.program.num_instances)
        return self.instructions - counts.astype(np.int64)

    @cached_property
    def instances(self) -> np.ndarray:
        """int64[]: rows of the instances that run in this cell, without instance 0."""
        first, end = self.program.phase_first_instance[[self.first, self.end]]
        return np.arange(first, end)


def without_creation(pieces: PieceStream, creates: np.ndarray) -> PieceStream:
    """Those that create instances (bool[pieces]) have no instructions."""
    end = np.where(creates, pieces.first_execution, pieces.end_execution)
    return replace(pieces, end_execution=end, num_instructions=np.where(creates, 0, pieces.num_instructions))


def open_cell(
    parameters: Mapping[str, Any], inputs: Mapping[str, Any], runtime: RuntimeSystem
) -> tuple[NodeProgram, InstructionStream, PieceStream]:
    """The program and the stream of a cell's rank; pieces outside the cell have no instructions."""
    part = inputs["part"]
    stream = inputs["stream"].open()
    program = build_program(part.workload, parameters["rank"], parameters["cores"], runtime)
    program = _with_first_segment(program, part.first_segment)
    sites = sites_of(part.workload)
    blocks = part.workload.column("blocks", "num_instructions").astype(np.int64)
    stack = private_stacks(program, part.workload, part.first_segment)
    return program, stream, pieces_of_stream(program, stream, sites, np.maximum(blocks, 0), stack)


def open_profiled(
    parameters: Mapping[str, Any], inputs: Mapping[str, Any], runtime: RuntimeSystem
) -> tuple[NodeProgram, InstructionStream, PieceStream, np.ndarray]:
    """As ``open_cell``, without going over a stream (which is empty here): what its pieces execute says the profile
    (analytical_cell.py); and OpenCell's ``fused``. O(events)."""
    part, profile = inputs["part"], inputs["profile"]
    program = build_program(part.workload, parameters["rank"], parameters["cores"], runtime)
    instructions, fused = profile["pieces_num_instructions"], profile["pieces_fused"]
    assert len(instructions) == program.num_pieces
    none, nowhere = np.zeros(program.num_pieces, np.int64), np.zeros(1, np.int64)
    stream = InstructionStream(0, np.zeros(0, np.int32), np.zeros(0, np.uint64), nowhere, nowhere)
    return program, stream, PieceStream(none, none, none, instructions), fused


def _with_first_segment(program: NodeProgram, first_segment: int) -> NodeProgram:
    """A program whose rows of segments count in the whole workload."""
    return replace(
        program, first_segment=program.first_segment + first_segment, end_segment=program.end_segment + first_segment
    )


def phases_of_cell(program: NodeProgram, iteration: int) -> tuple[int, int]:
    """[first, end): the phases that lie in an iteration. Raises WorkloadError where there is none."""
    if iteration == WHOLE:
        return 0, int(program.num_phases)
    mine = np.flatnonzero(program.phase_iteration >= 0 if iteration == JOINED else program.phase_iteration == iteration)
    if not len(mine):
        which = "any iteration" if iteration == JOINED else f"iteration {iteration}"
        raise WorkloadError(f"rank {program.rank}: no compute phase lies in {which}")
    return int(mine[0]), int(mine[-1]) + 1
