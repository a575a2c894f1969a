"""Intervals of detailed traces: cut from the stream of one thread, with vectors of blocks or of blocks and memory.

``signature`` vectors are BarrierPoint's (Carlson, Heirman, Van Craeynest, Eeckhout, ISPASS 2014): beside the blocks, in
dimensions before theirs, the histogram of LRU stack distances of the interval's memory accesses, by powers of two and
scaled so that it weighs as much as all blocks together. Distances are in lines, exact (models/memory), and go on from
interval to interval; first uses have none and are left out. ``distance_power`` p multiplies the count of bin b by
(2^b)^p, of bin 0 by 0, as its authors' program does (for 1/2 and 1/5): long distances cost more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal

import numpy as np
from pydantic import Field

from manyscale.models.kernels import njit
from manyscale.models.memory import access_stream
from manyscale.models.memory.distances.block_sampling import unit_offsets
from manyscale.models.memory.distances.stack_distance import StackDistances
from manyscale.models.workload import Workload
from manyscale.models.workload.parameters import Count, Strict
from manyscale.runner.errors import UserError
from manyscale.runner.predict.memory.streams import Stream, streams_of
from manyscale.sampling.phases.traced_intervals import IntervalCutter, TracedIntervals
from manyscale.sampling.population import IntervalPopulation
from manyscale.sampling.vectors import Vectors, side_by_side

BINS: Final = 33  # of stack distances: below 2, below 4, ... up to the largest that is counted


class TracedRules(Strict):
    """``interval``: instructions of each. ``vectors``: what they are made of; with memory, ``line_bytes`` and
    ``distance_power`` (see the module). ``rank``: whose stream, where several were traced."""

    interval: Count | None = None
    vectors: Literal["blocks", "signature"] = "blocks"
    line_bytes: Count = 64
    distance_power: Annotated[float, Field(ge=0, le=2)] = 0.0
    rank: Annotated[int, Field(ge=0)] | None = None


def population_of(workload: Workload, rules: TracedRules, place: str) -> tuple[IntervalPopulation, TracedIntervals]:
    """The intervals of a workload's detailed level. Raises UserError where it has none, or ``rules`` do not say how
    long they are or whose."""
    streams, sites = streams_of(workload, place)
    stream = _stream(streams, rules.rank, place)
    if rules.interval is None:
        raise UserError(f"{place}: is a trace; say how many instructions an interval has, as in --set interval=100000")
    try:
        intervals = cut(stream, workload.column("blocks", "num_instructions"), rules.interval)
        vectors = intervals.vectors
        if rules.vectors == "signature":
            vectors = signatures(stream, sites, intervals, rules.line_bytes, rules.distance_power)
    except ValueError as error:
        raise UserError(f"{place}: {error}") from None
    own = intervals.instructions.astype(np.float64)
    return IntervalPopulation(np.arange(len(own)), own, vectors, 1, thread_instructions=own[:, None]), intervals


def cut(stream: Stream, block_instructions: np.ndarray, every: int) -> TracedIntervals:
    """Of ``every`` instructions each; bounds count the stream's own block executions. ``block_instructions`` int[
    blocks]. O(executions). Raises ValueError as IntervalCutter does."""
    cutter = IntervalCutter(block_instructions, every)
    for block_ids, _ in stream.batches():
        cutter.feed(block_ids)
    return cutter.intervals()


def distances(stream: Stream, sites: access_stream.Sites, bounds: np.ndarray, line_bytes: int) -> np.ndarray:
    """int64[intervals, BINS]: accesses of each interval by their stack distance d in lines, in bin floor(log2 d), 0 for
    d below 2. Raises ValueError for lines of no power of two. O(accesses log(lines))."""
    found = np.zeros((len(bounds) - 1, BINS), np.int64)
    per_block = np.diff(sites.offsets)
    stack, executed = StackDistances(), 0
    for block_ids, addresses in stream.batches():
        distance = stack.feed(access_stream.accesses(block_ids, addresses, sites, line_bytes).unit)
        first = int(np.searchsorted(bounds, executed, "right")) - 1
        executed += len(block_ids)
        last = int(np.searchsorted(bounds, executed, "left"))
        ends = np.minimum(bounds[first + 1 : last + 1], executed) - executed + len(block_ids)  # in executions
        accessed = np.append(0, np.cumsum(per_block[block_ids]))
        line_of = unit_offsets(block_ids, addresses, sites, line_bytes)
        _count(distance, line_of[accessed[ends]], first, found)
    return found


def signatures(
    stream: Stream, sites: access_stream.Sites, intervals: TracedIntervals, line_bytes: int, power: float
) -> Vectors:
    """Signature vectors of a stream's intervals. Raises ValueError and takes as long as ``distances``."""
    return with_distances(intervals, distances(stream, sites, intervals.bounds, line_bytes), power)


def with_distances(intervals: TracedIntervals, histogram: np.ndarray, power: float = 0.0) -> Vectors:
    """Signature vectors: ``histogram`` int64[intervals, BINS] in columns 0 to BINS - 1, blocks after them."""
    weighed = histogram * np.where(np.arange(BINS) > 0, 2.0 ** (power * np.arange(BINS)), float(power == 0))
    total = weighed.sum(axis=1)
    weighed *= (intervals.instructions / np.where(total > 0, total, 1.0))[:, None]
    row, column = np.nonzero(weighed)
    first = np.searchsorted(row, np.arange(len(intervals) + 1))
    return side_by_side([Vectors(first, column, weighed[row, column]), intervals.vectors], [0, BINS])


def _stream(streams: Sequence[Stream], rank: int | None, place: str) -> Stream:
    mine = [stream for stream in streams if rank is None or stream.rank == rank]
    if len(mine) == 1:
        return mine[0]
    traced = ", ".join(stream.name for stream in streams)
    if not mine:
        raise UserError(f"{place}: --set rank={rank}: traced are {traced}")
    ask = "say which with --set rank=N" if rank is None else "intervals are cut from that of a rank's only thread"
    raise UserError(f"{place}: holds the streams of {traced}; {ask}")


@njit(cache=True, nogil=True)
def _count(distance, ends, first, found):  # type: ignore[no-untyped-def]
    """Counts ``distance`` [ends[i - 1], ends[i]) in row ``first + i``. O(accesses)."""
    at = 0
    for i in range(ends.shape[0]):
        while at < ends[i]:
            if distance[at] >= 0:
                bin_of = 0
                while distance[at] >> (bin_of + 1) > 0:
                    bin_of += 1
                found[first + i, min(bin_of, BINS - 1)] += 1
            at += 1
