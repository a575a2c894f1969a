"""What work units on regions of a program share in a process: opened once, whichever of its regions are simulated."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np

from manyscale.models.cpu.dataflow_code import fused_instructions
from manyscale.models.machine import Node
from manyscale.models.machine.processor import needed
from manyscale.models.node.burst import run_phases
from manyscale.models.node.core.code import CoreCode, kept_core_code
from manyscale.models.node.detailed import NodeSimulation, last_cache_of
from manyscale.models.node.instance_lines import InstanceLines, lines_from
from manyscale.models.node.instruction_stream import PieceStream
from manyscale.models.node.private_stacks import private_lines
from manyscale.models.node.program.node_program import NodeProgram
from manyscale.models.node.program.regions import program_of_phases
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.models.workload.notes import Note
from manyscale.runner.predict.intervals.regions import Regions
from manyscale.runner.predict.node.cells.open_cell import OpenCell
from manyscale.runner.predict.node.cells.sampled_kernel import SkippedLines, skip_all, touch_skipped
from manyscale.runner.predict.node.cells.simulated_cell import lines_left, most_lines_of
from manyscale.runner.predict.node.schedule_units import phase_of_pieces
from manyscale.runner.predict.stored_arrays import restored

TRAINED: Final = 30_000  # block executions that the branch predictor of each core sees before a region

_opened: dict[str, OpenRegions] = {}
_opening = threading.Lock()


@dataclass(frozen=True)
class Stretch:
    """Phases of a program as one of their own: ``piece`` int64[its pieces] and ``row`` int64[its instances] of the
    whole one's; what its pieces execute, and the time of those that create instances and of page faults in them."""

    program: NodeProgram
    piece: np.ndarray
    row: np.ndarray
    pieces: PieceStream
    creation_ps: np.ndarray
    beside_ps: np.ndarray


@dataclass(frozen=True)
class Before:
    """Rows of lines (region_units.py: ``find_lines``) in the order in which they end, the cores that execute them,
    and the phases that they end in, int64[] each: a burst schedule of the whole program, in which every instruction
    takes as long as any other."""

    row: np.ndarray
    core: np.ndarray
    phase: np.ndarray


@dataclass(frozen=True)
class OpenRegions:
    """``cell``: all phases of ``regions``; ``used``: the lines of its instances, if caches are filled."""

    cell: OpenCell
    regions: Regions
    cores: int
    detailed: Mapping[str, Any]
    seed: int
    used: InstanceLines | None
    _unused_lines: list[SkippedLines] = field(default_factory=list)

    @property
    def program(self) -> NodeProgram:
        return self.cell.program

    def stretch(self, first: int, end: int) -> Stretch:
        """Phases [``first``, ``end``). O(what they execute)."""
        program, piece, row = program_of_phases(self.program, first, end)
        every = self.cell.pieces
        pieces = PieceStream(
            every.first_execution[piece], every.end_execution[piece], every.first_access[piece],
            every.num_instructions[piece], None if every.stack is None else every.stack[piece],
        )  # fmt: skip
        return Stretch(program, piece, row, pieces, self.cell.creation_ps[piece], self.cell.beside_ps[piece])

    def simulation(self, stretch: Stretch) -> NodeSimulation:
        """Of its phases, none of them yet; caches are cold."""
        node = self.cell.node
        return NodeSimulation(
            stretch.program, self.cell.workload, node, self.cores, self.cell.runtime, self.cell.stream, stretch.pieces,
            end_phase=0, empty_ps=stretch.creation_ps, beside_ps=stretch.beside_ps,
            window_cycles=self.detailed["window"], request=self.detailed["request"], keep_served=True, seed=self.seed,
            most_lines=most_lines_of(self._own_lines, node, self.cores), code=self._code,
        )  # fmt: skip

    def fill(self, simulation: NodeSimulation, phase: int) -> None:
        """Caches as if all phases before one had run, by the last uses of lines; prefetchers have seen nothing."""
        before = self._before
        end = int(np.searchsorted(before.phase, phase))
        levels = simulation.memory.level
        streams = levels["streams"].copy()
        levels["streams"] = 0
        with self._lines() as lines:
            skip_all(lines, before.row[:end], before.core[:end])
            touch_skipped(simulation.memory, lines)
        levels["streams"] = streams

    def train(self, simulation: NodeSimulation, stretch: Stretch, phase: int) -> None:
        """Branch predictors, by what each core executed last before ``phase`` of the types of task instances that the
        stretch has: TRAINED block executions of each core."""
        before, bounds = self._before, self._piece_bounds
        end = int(np.searchsorted(before.phase, phase))
        wanted = np.zeros(int(self._row_type.max()) + 2, bool)
        wanted[stretch.program.task_type[stretch.program.piece_instance]] = True  # the initial task's, -1, is the last
        mine = np.flatnonzero(wanted[self._row_type[before.row[:end]]])
        first, last, core = [], [], []
        for each in range(self.cores):
            of_core = mine[before.core[mine] == each]
            size = self._row_executions[before.row[of_core]]
            behind = np.cumsum(size[::-1])[::-1] - size  # executed by the core after each
            rows = before.row[of_core[behind < TRAINED]]
            counts = bounds[rows + 1] - bounds[rows]
            place = np.repeat(bounds[rows] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
            pieces = self._piece_order[place]
            first.append(self.cell.pieces.first_execution[pieces])
            last.append(self.cell.pieces.end_execution[pieces])
            too_many = max(int(size[behind < TRAINED].sum()) - TRAINED, 0)
            first[-1] = np.maximum(first[-1], last[-1] - np.maximum(np.cumsum(last[-1] - first[-1]) - too_many, 0))
            core.append(np.full(len(pieces), each))
        simulation.train(np.concatenate(first), np.concatenate(last), np.concatenate(core))

    @cached_property
    def _code(self) -> tuple[CoreCode, tuple[Note, ...]]:
        return kept_core_code(self.cell.workload, needed(self.cell.node.core, "core"))

    @cached_property
    def fused(self) -> np.ndarray:
        """int64[blocks]: instructions that share a place in the core with the one before."""
        if not needed(self.cell.node.core, "core").fuses_branches:
            return np.zeros(self.cell.workload.tables["blocks"].num_rows, np.int64)
        return fused_instructions(self.cell.workload)

    @cached_property
    def whole_instructions(self) -> np.ndarray:
        """int64[instances of the whole program]: of each, windows that it is cut into together."""
        row = self.regions.windows.row[self.program.piece_instance]
        return np.bincount(row, self.cell.pieces.num_instructions, self.regions.whole.num_instances).astype(np.int64)

    @cached_property
    def of_phase(self) -> np.ndarray:
        """int64[pieces]: the phase of each."""
        return phase_of_pieces(self.program)

    @cached_property
    def _own_lines(self) -> np.ndarray | None:
        if self.used is None:
            return None
        return private_lines(self.cell.pieces.stack, self.used.line_number, self.used.line_bytes)

    @contextmanager
    def _lines(self) -> Iterator[SkippedLines]:
        """Room to fill caches by lines, which one thread uses at a time, and each again."""
        assert self.used is not None
        with _opening:
            lines = self._unused_lines.pop() if self._unused_lines else None
        lines = lines or lines_left(self.used, self._own_lines, self.cell.node, self.cores)
        yield lines
        self._unused_lines.append(lines)

    @cached_property
    def _before(self) -> Before:
        cell = self.cell
        return order_before(
            self.program, cell.pieces.num_instructions, cell.creation_ps, cell.node, self.cores, cell.runtime, self.seed
        )

    @cached_property
    def _row_of_pieces(self) -> np.ndarray:
        """int64[pieces]: rows of lines."""
        return line_rows(self.program, self.of_phase)

    @cached_property
    def _piece_order(self) -> np.ndarray:
        """int64[pieces]: by rows of lines, and in each as they were traced."""
        return np.lexsort((self.cell.pieces.first_execution, self._row_of_pieces))

    @cached_property
    def _piece_bounds(self) -> np.ndarray:
        """int64[rows + 1]: where those of each row begin in ``_piece_order``."""
        rows = self.program.num_instances + self.program.num_phases
        return np.searchsorted(self._row_of_pieces[self._piece_order], np.arange(rows + 1))

    @cached_property
    def _row_executions(self) -> np.ndarray:
        pieces, rows = self.cell.pieces, self.program.num_instances + self.program.num_phases
        size = np.maximum(pieces.end_execution - pieces.first_execution, 0)
        return np.bincount(self._row_of_pieces, size, rows).astype(np.int64)

    @cached_property
    def _row_type(self) -> np.ndarray:
        """int64[rows]: types of task instances, -1 for the initial task."""
        return np.append(self.program.task_type.astype(np.int64), np.full(self.program.num_phases, -1))


def order_before(
    program: NodeProgram, instructions: np.ndarray, creation_ps: np.ndarray, node: Node, cores: int,
    runtime: RuntimeSystem, seed: int,
) -> Before:  # fmt: skip
    """Of a program whose pieces have these ``instructions`` and take ``creation_ps`` on top (int64[pieces])."""
    frequency_hz = needed(node.frequency_hz, "node.frequency")
    piece_ps = np.rint(instructions * (1e12 / frequency_hz)).astype(np.int64)
    stretches = run_phases(
        program, cores, runtime, piece_ps + creation_ps, seed=seed, share_group=last_cache_of(node, cores), keep=True,
    ).stretches  # fmt: skip
    row = stretches["instance"].astype(np.int64)
    row = np.where(row == 0, program.num_instances + stretches["phase"], row)
    last = np.full(program.num_instances + program.num_phases, -1)
    last[row] = np.arange(len(row))
    last = np.sort(last[last >= 0])
    return Before(row[last], stretches["core"][last].astype(np.int64), stretches["phase"][last].astype(np.int64))


def line_rows(program: NodeProgram, of_phase: np.ndarray) -> np.ndarray:
    """int64[pieces]: the instance that each belongs to; of the initial task's, behind these, the phase."""
    return np.where(program.piece_instance == 0, program.num_instances + of_phase, program.piece_instance)


def open_regions(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> OpenRegions:
    """What a unit's parameters and inputs name: the latest one is kept, under ``parameters["opened"]``."""
    with _opening:
        name = parameters["opened"]
        if name not in _opened:
            _opened.clear()
            regions: Regions = inputs["regions"]
            cell = OpenCell(
                inputs["part"].workload, regions.program, inputs["stream"].open(), regions.pieces, regions.creates, 0,
                regions.program.num_phases, Node.model_validate(parameters["node"]),
                RuntimeSystem.model_validate(parameters["runtime"]), parameters["detailed"]["creation"] == "free",
                inputs["faults"],
            )  # fmt: skip
            used = lines_from(restored(inputs["lines"])) if "lines" in inputs else None
            _opened[name] = OpenRegions(
                cell, regions, parameters["cores"], parameters["detailed"], parameters["seed"], used
            )
        return _opened[name]
