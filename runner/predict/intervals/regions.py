"""A parallel program of one rank, traced at the detailed level, cut into regions: between points where its initial task
has waited for all others (models/node/program/regions.py).

A program is traced on one thread, so a region is a stretch of the traced stream, too, and is described by the basic
blocks that all of its task instances and chunks of loops execute, whichever cores they run on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from manyscale.models.memory.access_stream import sites_of
from manyscale.models.node.instruction_stream import InstructionStream, PieceStream, sums_of_pieces
from manyscale.models.node.program.node_program import NodeProgram
from manyscale.models.node.program.windows import Windows, unchanged, with_windows
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.models.workload import Workload, WorkloadError
from manyscale.runner.errors import UserError
from manyscale.runner.predict.intervals import traced
from manyscale.runner.predict.intervals.options import IntervalsChoice
from manyscale.runner.predict.memory.streams import streams_of
from manyscale.runner.predict.node.cells.streams import StreamPart
from manyscale.runner.predict.node.creation import creation_pieces
from manyscale.runner.predict.node.rank_part import RankPart
from manyscale.runner.predict.node.schedule_units import phase_of_pieces
from manyscale.runner.predict.units import array_digest
from manyscale.sampling.phases.traced_intervals import TracedIntervals
from manyscale.sampling.population import IntervalPopulation
from manyscale.sampling.vectors import Vectors

_ONE_REGION: Final = (
    "regions of {at_least:,} instructions, that end where the initial task has waited for all others, make fewer than "
    "two of the {total:,} that were traced in detail; set intervals.instructions to less"
)


@dataclass(frozen=True)
class Regions:
    """``program``: its phases end at waits for all, or are windows of the ``whole``; ``pieces``: what they execute;
    ``creates`` bool[pieces]: predict/node/creation.py. ``phase`` int64[n + 1]: region i is phases [phase[i], phase[i +
    1]), all phases are in one; ``phase_instructions`` int64[phases]. ``population`` of the regions; ``begin`` int64[n +
    1]: instructions before each; ``bounds`` int64[n + 1]: region i is block executions [bounds[i], bounds[i + 1]) of
    the traced stream. ``windows``: what the program was cut into (models/node/program/windows.py). ``content``: digests
    of all that decides it."""

    program: NodeProgram
    pieces: PieceStream
    creates: np.ndarray
    phase: np.ndarray
    phase_instructions: np.ndarray
    population: IntervalPopulation
    begin: np.ndarray
    bounds: np.ndarray
    windows: Windows
    whole: NodeProgram
    content: str

    def begins_before(self, region: int, instructions: int) -> int:
        """The phase to begin with, so that regions of so many instructions precede one; or the first one."""
        return int(self.phase[self._row_before(region, instructions)])

    def executed_before(self, region: int, instructions: int) -> int:
        """Instructions before the region that ``begins_before`` begins with."""
        return int(self.begin[self._row_before(region, instructions)])

    def _row_before(self, region: int, instructions: int) -> int:
        return max(int(np.searchsorted(self.begin, self.begin[region] - instructions, "right")) - 1, 0)


def cut(
    part: RankPart, stream: StreamPart, cores: int, runtime: RuntimeSystem, at_least: int, place: str, *,
    in_windows: bool = False,
) -> Regions:  # fmt: skip
    """Regions of ``at_least`` instructions each on so many cores, large ones ``in_windows``. O(executions + instances).
    Raises UserError, naming ``place``, for a program of one region, without instructions, or that calls MPI inside its
    phases."""
    from manyscale.models.node.program.regions import cut_at_waits  # Numba, as the other
    from manyscale.runner.predict.node.cells.open_cell import open_cell

    workload = part.workload
    size = workload.column("blocks", "num_instructions").astype(np.int64)
    if np.any(size < 0):
        raise UserError(
            f"{place}: the trace does not say how many instructions its blocks have; trace with --counting, or --route "
            "qemu"
        )
    try:
        parameters, inputs = {"rank": part.rank, "cores": cores}, {"part": part, "stream": stream}
        program, opened, pieces = open_cell(parameters, inputs, runtime)
    except (WorkloadError, ValueError) as error:
        raise UserError(f"{place}: {error}") from None
    if program.is_coupled:
        raise UserError(
            f"{place}: calls MPI inside phases with tasks, so no region stands alone; leave sampling.intervals out"
        )
    whole = program
    creates = creation_pieces(program, workload)
    counted = np.where(creates, 0, pieces.num_instructions)
    windows = with_windows(program, counted, at_least) if in_windows else unchanged(program)
    if windows.num_windows:
        pieces, creates = _pieces_of(windows, opened, pieces, workload, np.maximum(size, 0)), creates[windows.piece]
        counted = np.where(creates, 0, pieces.num_instructions)
    program = cut_at_waits(windows.program, counted, at_least, windows.may_end)
    of_phase = phase_of_pieces(program)
    executed = np.bincount(of_phase, counted, program.num_phases).astype(np.int64)
    phase = _joined(executed, at_least)
    if len(phase) < 3:
        raise UserError(f"{place}: {_ONE_REGION.format(at_least=at_least, total=int(executed.sum()))}")
    first = np.full(program.num_phases, np.iinfo(np.int64).max)
    mine = counted > 0
    np.minimum.at(first, of_phase[mine], pieces.first_execution[mine])
    first = np.minimum.reduceat(first, phase[:-1])
    bounds = np.concatenate(([0], first[1:], [int(stream.num_executions.sum())]))
    if windows.num_windows:
        region = np.searchsorted(phase, of_phase, "right") - 1
        ranges = _ranges(pieces, np.where(mine, region, -1), len(phase) - 1)
    else:
        ranges = [[each] for each in pairwise(bounds.tolist())]
    vectors = _vectors(opened.block_ids, ranges, size)
    begin = np.concatenate(([0], np.cumsum(executed)))[phase]
    own = np.diff(begin).astype(np.float64)
    population = IntervalPopulation(np.arange(len(own)), own, vectors, 1, thread_instructions=own[:, None])
    priorities = runtime.model_dump_json(by_alias=True)
    content = f"{at_least} {cores} {windows.num_windows} {array_digest(bounds, program.phase_first_step)} {priorities}"
    content = " ".join([content, part.digest, *stream.content])
    return Regions(
        program, pieces, creates, phase, executed, population, begin, bounds, replace(windows, program=program), whole,
        content,
    )  # fmt: skip


def _joined(executed: np.ndarray, at_least: int) -> np.ndarray:
    """int64[n + 1]: regions of consecutive phases, each as many as it takes to execute so many instructions; what is
    left is one of its own if it has half as many, else of the last. ``executed`` int64[phases]."""
    ends, since = [0], 0
    for phase, instructions in enumerate(executed.tolist()):
        since += instructions
        if since >= at_least:
            ends.append(phase + 1)
            since = 0
    if ends[-1] < len(executed) and (2 * since >= at_least or len(ends) == 1):
        ends.append(len(executed))
    ends[-1] = len(executed)
    return np.array(ends, np.int64)


def with_distances(regions: Regions, workload: Workload, choice: IntervalsChoice, place: str) -> IntervalPopulation:
    """The population with stack distances of the traced stream in its vectors (traced.py). Raises UserError for several
    streams, ValueError for lines of no power of two."""
    streams, sites = streams_of(workload, place)
    if len(streams) > 1:
        raise UserError(f"{place}: has the streams of {len(streams)} threads; leave intervals.vectors out")
    population = regions.population
    found = TracedIntervals(regions.bounds, np.diff(regions.begin), population.vectors)
    vectors = traced.signatures(streams[0], sites, found, choice.line_bytes, choice.distance_power)
    return replace(population, vectors=vectors)


def _pieces_of(
    windows: Windows, opened: InstructionStream, pieces: PieceStream, workload: Workload, size: np.ndarray
) -> PieceStream:
    """What the windows' pieces execute, of what the whole program's do. O(executions)."""
    first, end = pieces.first_execution[windows.piece], pieces.end_execution[windows.piece]
    own = np.maximum(end - first, 0)
    found = PieceStream(
        first + own * windows.part // windows.num_parts, first + own * (windows.part + 1) // windows.num_parts,
        pieces.first_access[windows.piece], np.zeros(len(own), np.int64),
        None if pieces.stack is None else pieces.stack[windows.piece],
    )  # fmt: skip
    accesses = sums_of_pieces(opened, found, np.diff(sites_of(workload).offsets))
    before = np.cumsum(accesses) - accesses
    before -= before[np.searchsorted(windows.piece, windows.piece)]  # those of parts of the same piece
    return replace(
        found, first_access=found.first_access + before, num_instructions=sums_of_pieces(opened, found, size)
    )


def _ranges(pieces: PieceStream, region: np.ndarray, count: int) -> list[list[tuple[int, int]]]:
    """Block executions of each region, those of pieces that follow each other as one range. ``region`` int64[pieces],
    -1 for none."""
    rows = np.lexsort((pieces.first_execution, region))
    rows = rows[region[rows] >= 0]
    first, end, owner = pieces.first_execution[rows], pieces.end_execution[rows], region[rows]
    begins = np.ones(len(rows), bool)
    begins[1:] = (owner[1:] != owner[:-1]) | (first[1:] != end[:-1])
    ends = np.append(begins[1:], True)
    found: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for mine, a, b in zip(owner[begins].tolist(), first[begins].tolist(), end[ends].tolist(), strict=True):
        found[mine].append((a, b))
    return found


def _vectors(block_ids: np.ndarray, ranges: Sequence[Sequence[tuple[int, int]]], size: np.ndarray) -> Vectors:
    """Executions of each block, in the ranges of each region, times its instructions. O(executions + ranges x
    blocks)."""
    blocks, values = [], []
    for each in ranges:
        counts = [np.bincount(block_ids[begin:end], minlength=len(size)) for begin, end in each]
        executed = np.sum(counts, axis=0) * size
        blocks.append(np.flatnonzero(executed))
        values.append(executed[blocks[-1]].astype(np.float64))
    first = np.concatenate(([0], np.cumsum([len(each) for each in blocks])))
    return Vectors(first, np.concatenate(blocks), np.concatenate(values))
