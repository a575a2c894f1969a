"""Threads that run at the same time, and the caches that they share: their streams as one, in turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from manyscale.models.memory.access_stream import Accesses, Sites, accesses
from manyscale.models.memory.distances.histogram import reuse_profile
from manyscale.models.memory.distances.interleave import SharedAccesses, interleaved
from manyscale.models.memory.reuse_profile import ReuseProfile, merged
from manyscale.runner.predict.memory.streams import Stream


def merged_lines(streams: Sequence[Stream], sites: Sites, granularity_bytes: int) -> Iterator[SharedAccesses]:
    """The streams' accesses in turns, one each; ranks have address spaces of their own."""
    ranks = sorted({stream.rank for stream in streams})
    spaces = [ranks.index(stream.rank) for stream in streams]
    return interleaved([_lines(stream, sites, granularity_bytes) for stream in streams], address_spaces=spaces)


def _lines(stream: Stream, sites: Sites, granularity_bytes: int) -> Iterator[Accesses]:
    for block_ids, addresses in stream.batches():
        yield accesses(block_ids, addresses, sites, granularity_bytes)


def concurrent_profile(
    streams: Sequence[Stream], sites: Sites, granularity_bytes: int, num_sharing: int, *, steady: bool
) -> ReuseProfile:
    """The profile of caches that each serve ``num_sharing`` neighbouring streams, added up."""
    groups = [streams[first : first + num_sharing] for first in range(0, len(streams), num_sharing)]
    return merged(
        [reuse_profile(merged_lines(group, sites, granularity_bytes), granularity_bytes, steady=steady)
         for group in groups]
    )  # fmt: skip
