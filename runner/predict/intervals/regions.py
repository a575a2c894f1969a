"""A parallel program of one rank, traced at the detailed level, cut into regions: between points where its initial task
has waited for all others (models/node/program/regions.py).

A program is traced on one thread, so a region is a stretch of the traced stream, too, and is described by the basic
blocks that all of its task instances and chunks of loops execute, whichever cores they run on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from manyscale.models.node.instruction_stream import PieceStream
from manyscale.models.node.program.node_program import NodeProgram
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
    """``program``: its phases end at waits for all; ``pieces``: what they execute; ``creates`` bool[pieces]:
    predict/node/creation.py. ``phase`` int64[n + 1]: region i is phases [phase[i], phase[i + 1]), all phases are in
    one; ``phase_instructions`` int64[phases]. ``population`` of the regions; ``begin`` int64[n + 1]: instructions
    before each; ``bounds`` int64[n + 1]: region i is block executions [bounds[i], bounds[i + 1]) of the traced stream.
    ``content``: digests of all that decides it."""

    program: NodeProgram
    pieces: PieceStream
    creates: np.ndarray
    phase: np.ndarray
    phase_instructions: np.ndarray
    population: IntervalPopulation
    begin: np.ndarray
    bounds: np.ndarray
    content: str

    def begins_before(self, region: int, instructions: int) -> int:
        """The phase to begin with, so that regions of so many instructions precede one; or the first one."""
        return int(self.phase[self._row_before(region, instructions)])

    def executed_before(self, region: int, instructions: int) -> int:
        """Instructions before the region that ``begins_before`` begins with."""
        return int(self.begin[self._row_before(region, instructions)])

    def _row_before(self, region: int, instructions: int) -> int:
        return max(int(np.searchsorted(self.begin, self.begin[region] - instructions, "right")) - 1, 0)


def cut(part: RankPart, stream: StreamPart, cores: int, runtime: RuntimeSystem, at_least: int, place: str) -> Regions:
    """Regions of ``at_least`` instructions each on so many cores. O(executions + instances). Raises UserError, naming
    ``place``, for a program of one region, without instructions, or that calls MPI inside its phases."""
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
    creates = creation_pieces(program, workload)
    counted = np.where(creates, 0, pieces.num_instructions)
    program = cut_at_waits(program, counted, at_least)
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
    vectors = _vectors(opened.block_ids, bounds, size)
    begin = np.concatenate(([0], np.cumsum(executed)))[phase]
    own = np.diff(begin).astype(np.float64)
    population = IntervalPopulation(np.arange(len(own)), own, vectors, 1, thread_instructions=own[:, None])
    priorities = runtime.model_dump_json(by_alias=True)
    content = f"{at_least} {cores} {array_digest(bounds, program.phase_first_step)} {priorities}"
    content = " ".join([content, part.digest, *stream.content])
    return Regions(program, pieces, creates, phase, executed, population, begin, bounds, content)


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


def _vectors(block_ids: np.ndarray, bounds: np.ndarray, size: np.ndarray) -> Vectors:
    """Executions of each block times its instructions. O(executions + regions x blocks)."""
    blocks, values = [], []
    for begin, end in pairwise(bounds.tolist()):
        executed = np.bincount(block_ids[begin:end], minlength=len(size)) * size
        blocks.append(np.flatnonzero(executed))
        values.append(executed[blocks[-1]].astype(np.float64))
    first = np.concatenate(([0], np.cumsum([len(each) for each in blocks])))
    return Vectors(first, np.concatenate(blocks), np.concatenate(values))
