"""One cell by the analytical model: profiles of task instances on the cores of a machine, with what runs beside
them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from manyscale.models.cpu.dataflow_code import fused_instructions
from manyscale.models.machine import Node
from manyscale.models.memory.access_stream import sites_of
from manyscale.models.node.burst import run_phases
from manyscale.models.node.detailed import last_cache_of
from manyscale.models.node.instruction_stream import InstructionStream, PieceStream, sums_of_pieces
from manyscale.models.node.program.node_program import Action, NodeProgram
from manyscale.models.node.scheduler.held_data import HeldData, new_held
from manyscale.models.node.scheduler.task_data import TaskData, task_data
from manyscale.models.node.shared import occupancy_kernel
from manyscale.models.node.shared import run as analytical
from manyscale.models.node.shared.costs import costs_from, piece_costs
from manyscale.models.node.shared.few_lines import arrays_of, few_lines, few_lines_from, opened_rows
from manyscale.models.node.shared.last_uses import last_uses
from manyscale.models.node.shared.occupancy import COLUMNS, Occupancy, empty_caches, nothing_runs
from manyscale.models.node.shared.piece_lines import PieceLines, lines_of_pieces, piece_lines_from
from manyscale.models.node.shared.piece_lines_kernel import STORED
from manyscale.models.node.shared.windows import windows_from, windows_of_pieces
from manyscale.models.workload import Workload
from manyscale.models.workload.notes import Note, changes, percent
from manyscale.runner.predict.node.cells.open_cell import OpenCell
from manyscale.runner.predict.stored_arrays import noted, notes_of, stored
from manyscale.runner.predict.units import Arrays

_VARIES: Final = 0.1  # an assumption: of the time of a piece, from iteration to iteration (note run-before-guessed)


@dataclass(frozen=True)
class Predicted:
    """Of a cell: phases as models/node/shared/run.py has them, and notes on the code and on what was assumed."""

    phases: analytical.AnalyticalPhases
    notes: tuple[Note, ...]

    def cycles_per_instruction(self, cell: OpenCell) -> np.ndarray:
        """float64[pieces], 1 for those without instructions; without what comes beside these."""
        assert cell.node.frequency_hz is not None
        instructions = cell.pieces.num_instructions
        cycles = (self.phases.piece_ps - cell.beside_ps) * (cell.node.frequency_hz / 1e12)
        return np.where(instructions > 0, np.maximum(cycles, 1e-9) / np.maximum(instructions, 1), 1.0)


def profile(
    program: NodeProgram, stream: InstructionStream, pieces: PieceStream, workload: Workload, line_bytes: int
) -> Arrays:
    """What the model reads of a cell's instructions, whatever the machine: arrays of a profile's unit. Beside those of
    PieceLines (all, and few_lines.py's) and PieceWindows ``pieces_num_instructions`` and ``pieces_fused``
    int64[pieces], as OpenCell has them."""
    lines = lines_of_pieces(stream, pieces, sites_of(workload), line_bytes)
    return {
        **lines.arrays(),
        **arrays_of(few_lines(lines)),
        **windows_of_pieces(program, stream, pieces, lines, workload).arrays(),
        "pieces_num_instructions": pieces.num_instructions,
        "pieces_fused": sums_of_pieces(stream, pieces, fused_instructions(workload)),
    }


def costs_of(workload: Workload, node: Node, profile: Arrays, *, warm: bool) -> Arrays:
    """What samples of a profile take on a node's cores and caches, whatever their number and what schedules them:
    arrays of a unit (cost_units.py), with notes on the code. Raises ValueError where the machine lacks a parameter."""
    lines = piece_lines_from(profile)
    costs, notes = piece_costs(windows_from(profile), lines, workload, node, warm=warm)
    return noted(stored({**costs.arrays(), "opened_rows": opened_rows(lines, node)}), notes)


def predict(cell: OpenCell, parameters: Mapping[str, Any], arrays: Arrays) -> Predicted:
    """The cell from the arrays of its profile and of ``costs_of`` it, together. Raises ValueError where the machine
    lacks a parameter."""
    cores, seed = parameters["cores"], parameters["seed"]
    few, sample_of = few_lines_from(arrays), arrays["windows_sample_of"]
    # prefetchers follow every line
    prefetches = any(cache.prefetcher is not None for cache in cell.node.caches.values())
    every = piece_lines_from(arrays)
    lines = every if few is None or prefetches else few
    caches = empty_caches(lines, cell.node, cores)
    held = None
    if cell.runtime.policy == "data-reuse":
        held = new_held(_data_of(cell.program, every), cell.node, cores)
    notes = notes_of([arrays])
    if lines.every > 1:
        text = f"one line in {lines.every} stands for all that task instances use, in caches of so much less"
        notes.append(changes("lines-sampled", text, count=lines.every))
    if parameters["detailed"]["caches"] != "cold":
        notes += _run_before(cell, cores, seed, lines, caches, held)
    phases = analytical.run_phases(
        cell.program, cell.node, cores, cell.runtime, cell.pieces.num_instructions, sample_of,
        costs_from(arrays), lines, caches, opened=arrays["opened_rows"].copy(), given_ps=cell.creation_ps,
        beside_ps=cell.beside_ps,
        first_phase=cell.first, end_phase=cell.end, seed=seed, share_group=last_cache_of(cell.node, cores),
        held=held,
    )  # fmt: skip
    return Predicted(phases, tuple(notes))


def _data_of(program: NodeProgram, lines: PieceLines) -> TaskData:
    """The data of task instances, piece by piece."""
    pieces = np.argsort(program.piece_instance, kind="stable")
    count = (lines.end - lines.first)[pieces]
    before = np.cumsum(count) - count
    rows = np.repeat(lines.first[pieces] - before, count) + np.arange(int(count.sum()))
    instance = np.repeat(program.piece_instance[pieces], count)
    return task_data(
        program.num_instances, instance, lines.line[rows], (lines.use[rows] & STORED) > 0, lines.line_bytes
    )


def _run_before(
    cell: OpenCell, cores: int, seed: int, lines: PieceLines, caches: Occupancy, held: HeldData | None
) -> list[Note]:
    """The caches as the same cell leaves them if every instruction takes as long as any other, to ``_VARIES``: no
    iteration has the task instances of another one on the same cores, unless the runtime system puts them there. Where
    the replay has to schedule instances, these run in the order of the program, on one core after the other. Notes say
    so where there are several cores."""
    program, instructions = cell.program, cell.pieces.num_instructions
    owner = program.piece_instance
    pieces = np.argsort(owner, kind="stable")
    pieces = pieces[(lines.end[pieces] > lines.first[pieces]) & (instructions[pieces] > 0)]
    if np.any(program.step_action == Action.operation):
        on, how = np.arange(len(pieces)) % cores, "one core after the other took a task instance"
    else:
        assert cell.node.frequency_hz is not None
        varied = instructions * np.random.default_rng(seed).uniform(1.0 - _VARIES, 1.0 + _VARIES, len(instructions))
        piece_ps = np.rint(varied * (1e12 / cell.node.frequency_hz)).astype(np.int64)
        stretches = run_phases(
            program, cores, cell.runtime, piece_ps + cell.creation_ps + cell.beside_ps, cell.first, cell.end, seed=seed,
            share_group=last_cache_of(cell.node, cores), held=held, keep=True,
        ).stretches  # fmt: skip
        last, core = np.full(program.num_instances, -1), np.zeros(program.num_instances, np.int64)
        last[stretches["instance"]] = np.arange(len(stretches))
        core[stretches["instance"]] = stretches["core"]
        pieces = pieces[np.argsort(last[owner[pieces]], kind="stable")]
        on, how = core[owner[pieces]], f"instructions took one cycle each, to {percent(_VARIES)}"
    levels = int(caches.control["levels"][0])
    on = on.astype(np.int64)
    left = last_uses(lines, pieces.astype(np.int64), on)
    occupancy_kernel.fill(
        caches, np.arange(len(on)), on, *left, np.zeros(levels + COLUMNS), np.zeros(0, np.int8),
    )  # fmt: skip
    nothing_runs(caches)
    text = f"which core had which task instance in the run before, which caches begin with, is guessed: {how}"
    return [changes("run-before-guessed", text)] if on.any() else []
