"""A program of one thread, traced at the detailed level: its stream, cut into intervals, with places to begin before
them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.kernels import njit
from manyscale.models.workload import REQUIRED_LEVELS, SCHEMAS, Workload, table_digest
from manyscale.models.workload.detail_tables import Detail
from manyscale.runner.errors import UserError
from manyscale.runner.predict.memory.phase_streams import opened
from manyscale.runner.predict.memory.streams import Stream, streams_of
from manyscale.runner.readers.stores.detail_store import DetailStore
from manyscale.sampling.phases.traced_intervals import IntervalCutter
from manyscale.sampling.population import IntervalPopulation

GRAIN: Final = 1000  # instructions between places where what precedes an interval may begin
_STATIC: Final = ("blocks", "instructions", "block_accesses", "unseen_accesses")


@dataclass(frozen=True)
class ProgramStream:
    """What a program of one thread executed, as the input of work units. ``program``: the static tables alone.
    ``detail``: the stream, or the file that it is in, which workers open themselves and read parts of."""

    program: Workload
    detail: Detail | Path
    detail_digest: str

    @cached_property
    def content(self) -> list[str]:
        """Digests of all that decides what its units result in."""
        return [self.detail_digest, *(table_digest(self.program.tables[level]) for level in _STATIC)]

    def open(self) -> Detail:
        """Raises ValueError, saying what to do, where the stream cannot be read here or is another."""
        return opened(self.detail, self.detail_digest)


@dataclass(frozen=True)
class CutProgram:
    """``population`` of the intervals; ``bounds`` int64[n + 1]: interval i is block executions [bounds[i], bounds[i +
    1]); ``begin`` int64[n + 1]: instructions before each bound; ``place`` int64[]: of each GRAIN instructions the last
    execution that begins no later."""

    population: IntervalPopulation
    bounds: np.ndarray
    begin: np.ndarray
    place: np.ndarray

    def before(self, interval: int, instructions: int) -> int:
        """The execution to begin with, so that so many instructions precede the interval, or up to GRAIN and a block
        more; or the first one."""
        wanted = max(int(self.begin[interval]) - instructions, 0)
        return int(self.place[wanted // GRAIN])


def program_of(workload: Workload, place: str) -> tuple[ProgramStream, Stream]:
    """The stream of a workload of one rank, one thread and no tasks. Raises UserError for others, naming ``place``."""
    if workload.num_ranks > 1:
        raise UserError(
            f"{place}: has {workload.num_ranks} ranks; sampling.intervals samples a program of one, sampling.ranks and "
            "sampling.iterations those of several"
        )
    if np.any(workload.column("tasks", "task_instance_id") > 0) or workload.tables["loop_chunks"].num_rows:
        raise UserError(
            f"{place}: has task instances or chunks of loops, which sampling.tasks samples; sampling.intervals samples "
            "the one thread of a program without"
        )
    streams, _ = streams_of(workload, place)
    if len(streams) > 1:
        raise UserError(
            f"{place}: has {len(streams)} threads; sampling.intervals samples a program of one, `manyscale plan "
            "--method sbbv` phases of several"
        )
    detail = streams[0].detail
    tables = {level: pa.Table.from_batches([], SCHEMAS[level]) for level in REQUIRED_LEVELS}
    tables |= {level: workload.tables[level] for level in _STATIC}
    program = replace(workload, tables=tables, notes=(), detail=None)
    stored = detail.path.resolve() if isinstance(detail, DetailStore) else detail
    return ProgramStream(program, stored, detail.digest), streams[0]


def cut(stream: Stream, block_instructions: np.ndarray, every: int, place: str) -> CutProgram:
    """Intervals of ``every`` instructions. O(executions). Raises UserError for a program that is no longer than one,
    or whose blocks have no known size."""
    size = np.ascontiguousarray(block_instructions, np.int64)
    places: list[np.ndarray] = []
    state = np.zeros(3, np.int64)
    try:
        cutter = IntervalCutter(size, every)
        for block_ids, _ in stream.batches():
            cutter.feed(block_ids)
            found = np.empty(int(size[block_ids].sum()) // GRAIN + 2, np.int64)
            count = _places(np.require(block_ids, np.int32, ["C", "W"]), size, GRAIN, state, found)
            places.append(found[:count])
        intervals = cutter.intervals()
    except ValueError as error:
        raise UserError(f"{place}: {error}") from None
    own = intervals.instructions.astype(np.float64)
    if len(own) < 2:
        raise UserError(
            f"{place}: an interval of {every:,} instructions is as long as the program ({int(own.sum()):,}); set "
            "intervals.instructions to less"
        )
    population = IntervalPopulation(
        np.arange(len(own)), own, intervals.vectors, 1, thread_instructions=own[:, None]
    )  # fmt: skip
    begin = np.concatenate(([0], np.cumsum(intervals.instructions)))
    return CutProgram(population, intervals.bounds, begin, np.concatenate(places))


@njit(cache=True, nogil=True)
def _places(block_ids, size, grain, state, found):  # type: ignore[no-untyped-def]
    """How many of ``found`` were filled. ``state`` int64[3]: instructions, executions and places so far.
    O(executions)."""
    instructions, executions, places = state
    count = 0
    for i in range(block_ids.shape[0]):
        instructions += size[block_ids[i]]
        while places * grain < instructions:
            found[count] = executions
            count += 1
            places += 1
        executions += 1
    state[0], state[1], state[2] = instructions, executions, places
    return count
