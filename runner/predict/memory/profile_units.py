"""Reuse profiles as work units: a stream's pieces apart, on any executor, then merged exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from manyscale.models.memory.access_stream import Sites, accesses
from manyscale.models.memory.distances import segments as segment_distances
from manyscale.models.memory.reuse_profile import ReuseProfile
from manyscale.runner.predict.memory.streams import Stream
from manyscale.runner.predict.units import Arrays, Executes, WorkUnit, array_digest, unit_key

KIND: Final = "stack-distances"


def stack_distances(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> Arrays:
    """The kind of unit: a piece of a stream (``first``, ``end``: its block executions) at ``granularity_bytes``.

    Inputs: ``stream``, a Stream, and ``sites``. Results: as ``segment_distances.segment_result`` has them.
    """
    block_ids, addresses = inputs["stream"].read(parameters["first"], parameters["end"])
    granularity = parameters["granularity_bytes"]
    return segment_distances.segment_result(accesses(block_ids, addresses, inputs["sites"], granularity), granularity)


def units_of(stream: Stream, sites: Sites, granularity_bytes: int) -> list[WorkUnit]:
    """One unit per piece. Their inputs are called ``sites`` and by the stream's name."""
    content = [stream.detail.digest, array_digest(stream.is_mine), array_digest(sites.bytes, sites.offsets)]
    units = []
    for first, end in stream.pieces():
        parameters = {"first": first, "end": end, "granularity_bytes": granularity_bytes}
        key = unit_key(KIND, segment_distances.VERSION, parameters, content, seed=0)
        weight = 20 * max(1, end - first)
        units.append(WorkUnit(key, KIND, parameters, {"stream": stream.name, "sites": "sites"}, weight))
    return units


def profiles(
    streams: Sequence[Stream], sites: Sites, granularity_bytes: int, execution: Executes, *, steady: bool
) -> list[ReuseProfile]:
    """The exact profile of every stream by itself; with ``steady`` as if it had run just before, too."""
    units = [units_of(stream, sites, granularity_bytes) for stream in streams]
    shared = {"sites": sites, **{stream.name: stream for stream in streams}}
    execution.execute([unit for mine in units for unit in mine], lambda needed: shared)
    return [
        segment_distances.merge([execution.result(unit.key) for unit in mine], granularity_bytes, steady=steady)
        for mine in units
    ]
