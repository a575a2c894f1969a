"""What it costs that an input outgrows caches in which the traced ones stayed, as work units.

The largest traced stream is executed by the dataflow model with the distances that it has, and once more for each input
with those that its accesses would have there (models/memory/amm/moved_distances.py). In all, SDCM says which level
serves an access at its distance, so that the difference is what the distances cost, with all overlap. Page distances
grow as the line distances of the same access. What the prefetcher foresees, and which branches are mispredicted, is as
traced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from manyscale.models.cpu import dataflow
from manyscale.models.cpu.dataflow import Dataflow
from manyscale.models.cpu.dataflow_tables import SEEN_SHIFT, TRANSLATION_SHIFT
from manyscale.models.cpu.served_levels import ServedLevels
from manyscale.models.machine import Machine, Node
from manyscale.models.machine.hardware_threads import of_one_thread
from manyscale.models.machine.processor import Cache, data_caches, needed
from manyscale.models.memory.access_stream import Sites, access_sites, accesses
from manyscale.models.memory.amm.moved_distances import MovedDistances
from manyscale.models.memory.amm.sdcm import geometry_of, hit_probability
from manyscale.models.memory.distances.stack_distance import StackDistances
from manyscale.models.memory.draws import uniform
from manyscale.models.memory.reuse_profile import COLD, ReuseProfile
from manyscale.runner.predict.memory.stream_units import EXECUTED, ProgramStreams, counted
from manyscale.runner.predict.units import Arrays, WorkUnit, array_digest, unit_key

KIND: Final = "memory-outgrown"
VERSION: Final = 3  # raised when results change, by a change of moved_distances or sdcm, too
_LEVEL: Final = 7  # mask of a level in a code
_SEED: Final = 0  # of the draws whether a cache holds a line at its distance
Moved: TypeAlias = Callable[[np.ndarray, np.ndarray, int], np.ndarray]  # of sites, distances, and accesses before


@dataclass(frozen=True)
class Outgrown:
    """Profiles by ``label`` int64[sites]: ``traced`` of a run, ``grown`` of an input at which caches are outgrown."""

    traced: ReuseProfile
    grown: ReuseProfile
    label: np.ndarray

    @property
    def digest(self) -> str:
        columns = [getattr(each, name) for each in (self.traced, self.grown) for name in ("site", "distance", "count")]
        return array_digest(*columns, self.label)

    @property
    def moved(self) -> Moved:
        """What the accesses of the traced run have at the other input. O(rows log rows)."""
        moves = MovedDistances(self.traced, self.grown)
        return lambda site, distance, first: moves.at(self.label[site], distance, first)


def unit_of(
    run: int, size: int | None, outgrown: Outgrown | None, content: Sequence[str], machine: Machine, node: Any,
    num_accesses: int, *, steady: bool,
) -> WorkUnit:  # fmt: skip
    """The unit for traced run number ``run``, of ``num_accesses``, with its distances at input ``size``; both None: as
    they are. Its inputs are ``streams``, a ProgramStreams, and ``outgrown``."""
    own = {"run": run, "steady": steady}
    meaning = own | {"node": machine.node.model_dump(mode="json"), "dataflow": dataflow.VERSION}
    inputs = {"streams": "streams"}
    if outgrown is not None:
        content, inputs = [*content, outgrown.digest], inputs | {"outgrown": shared_name(size)}
    key = unit_key(KIND, VERSION, meaning, list(content), seed=0)
    return WorkUnit(key, KIND, own | {"node": node}, inputs, weight=max(3 * num_accesses, 1))


def shared_name(size: int | None) -> str:
    return f"outgrown {size}"


def predict_outgrown(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> Arrays:
    """The kind of unit. Results: ``parts_ps`` float64[parts] per instruction, in the order of the dataflow model's
    parts. O(instructions + accesses log(distinct lines))."""
    streams: ProgramStreams = inputs["streams"]
    outgrown: Outgrown | None = inputs.get("outgrown")
    node = of_one_thread(Node.model_validate(parameters["node"]))
    batches = streams.batches({"run": parameters["run"]})
    _, executions = counted(batches, streams.sites)
    per_block = np.bincount(streams.program.column("instructions", "block_id"), minlength=len(executions))
    windows = dataflow.windows(int(executions.sum()), int(executions @ per_block), EXECUTED)
    core, served = Dataflow(streams.program, node), _ServedByDistance(node, streams.sites)
    moved = None if outgrown is None else outgrown.moved
    if parameters["steady"]:
        for block_ids, addresses in batches():
            core.warm(block_ids, addresses)
            served.codes(block_ids, addresses, None)
    first = 0
    for block_ids, addresses in batches():
        codes = served.codes(block_ids, addresses, moved)
        inside = np.clip(windows, first, first + len(block_ids)) - first
        core.execute(block_ids, addresses, windows=inside[inside[:, 1] > inside[:, 0]], levels=codes)
        first += len(block_ids)
    runtime = core.runtime()
    parts = np.array(list(runtime.parts_ps.values()), np.float64)
    return {"parts_ps": parts / max(runtime.num_instructions, 1)}


class _ServedByDistance:
    """Which level serves each access, by its distance."""

    def __init__(self, node: Node, sites: Sites) -> None:
        caches = data_caches(node.caches)
        self._sites = sites
        self._line = needed(next(iter(caches.values())).line_bytes, "line")
        self._geometries = [geometry_of(cache, name) for name, cache in caches.items()]
        fetching = [level for level, cache in enumerate(caches.values()) if cache.prefetcher is not None]
        self._prefetching = fetching[0] if fetching else len(caches)
        # caches of one line let every new line ask whether it was foreseen
        tiny = {name: _one_line(cache) for name, cache in caches.items()}
        self._foreseen = ServedLevels(node.model_copy(update={"caches": tiny, "tlbs": {}}), len(sites))
        self._tlbs = [geometry_of(tlb, name) for name, tlb in node.tlbs.items()]
        self._lines, self._pages = StackDistances(), StackDistances()
        self._done = 0

    def codes(self, block_ids: np.ndarray, addresses: np.ndarray, moved: Moved | None) -> np.ndarray:
        """uint8[accesses], as ``Dataflow.execute`` takes them, with distances as they are or ``moved``."""
        units = accesses(block_ids, addresses, self._sites, self._line)
        own = self._lines.feed(units.unit)
        distance = own if moved is None else moved(units.site, own, self._done)
        drawn = uniform(_SEED, self._done, len(own))
        site = access_sites(block_ids, self._sites)
        last = addresses + np.maximum(self._sites.bytes[site], 1).astype(np.uint64) - np.uint64(1)
        shift = np.uint64(self._line.bit_length() - 1)
        number = ((last >> shift) - (addresses >> shift)).astype(np.int64) + 1
        start = np.cumsum(number) - number
        self._done += len(own)
        served = np.maximum.reduceat(_served(distance, drawn, self._geometries), start) if len(start) else start
        codes = self._foreseen.feed(addresses, self._sites.bytes[site], site).astype(np.int64)
        foreseen = (codes >> SEEN_SHIFT & _LEVEL) < (codes & _LEVEL)
        seen = np.where(foreseen, np.minimum(self._prefetching, served), served)
        translated = self._translated(addresses, own[start], distance[start], drawn[start])
        return (served | seen << SEEN_SHIFT | translated << TRANSLATION_SHIFT).astype(np.uint8)

    def _translated(
        self, addresses: np.ndarray, own: np.ndarray, distance: np.ndarray, drawn: np.ndarray
    ) -> np.ndarray:
        """int64[accesses]: the TLB that knows the access' first page, or how many there are."""
        if not self._tlbs:
            return np.zeros(len(addresses), np.int64)
        page = self._pages.feed((addresses // np.uint64(self._tlbs[0].line_bytes)).astype(np.int64))
        grows = (page > 0) & (own > 0) & (distance > own)
        pages = np.where(grows, page * (distance / np.maximum(own, 1)), page).astype(np.int64)
        pages = np.where((page > 0) & (own > 0) & (distance == COLD), COLD, pages)
        return _served(pages, drawn, self._tlbs)


def _one_line(cache: Cache) -> Cache:
    return cache.model_copy(update={"size_bytes": cache.line_bytes, "ways": 1})


def _served(distance: np.ndarray, drawn: np.ndarray, geometries: Sequence[Any]) -> np.ndarray:
    """int64[n]: the first of the levels that holds what is at a distance, or how many there are. O(n log n)."""
    distinct, place = np.unique(distance, return_inverse=True)
    served = np.full(len(distance), len(geometries), np.int64)
    for level in range(len(geometries) - 1, -1, -1):
        hits = hit_probability(distinct, geometries[level].ways, geometries[level].num_lines)[place]
        served[drawn < hits] = level
    return served
