"""What a machine makes of one stream of a program, as a work unit: which level serves its accesses, what translation
and prefetching do, and how long it takes with overlap. The stream is that of a traced input, or of a loop nest at an
input that never ran."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from manyscale.models.cpu import dataflow
from manyscale.models.cpu.dataflow import Dataflow, DataflowParameters
from manyscale.models.machine import Machine, Node
from manyscale.models.machine.hardware_threads import of_one_thread
from manyscale.models.machine.processor import data_caches
from manyscale.models.memory.access_stream import Sites
from manyscale.models.memory.amm.sdcm import HitRates
from manyscale.models.memory.nests.extrapolation import NestProgram
from manyscale.models.workload import Workload
from manyscale.runner.predict.memory import simulated
from manyscale.runner.predict.memory.streams import Stream
from manyscale.runner.predict.units import Arrays, WorkUnit, unit_key
from manyscale.runner.progress import tell

KIND: Final = "memory-stream"
VERSION: Final = 3  # raised when results change, by a change of hierarchy or nest_extrapolation, too
MOST_SIMULATED: Final = 1_000_000_000  # accesses of a stream whose caches are simulated
MOST_PREFETCHED: Final = 20_000_000  # accesses, the first, of which translation and prefetching are
MOST_BEFORE: Final = 30_000_000  # accesses, the last ones, that leave caches and predictor as a whole pass does
_COUNTED, _PREFETCHED, _EXECUTED = 0.1, 2.0, 0.5  # what passes over an access cost, against simulating the caches
EXECUTED: Final = DataflowParameters(most_instructions=20_000_000)  # what is executed of a stream; all is looked at


@dataclass(frozen=True)
class ProgramStreams:
    """A program of static tables ``program`` (with ``sites``), and where its streams come from: ``nest`` at any input,
    ``traced``: of each traced input the stream, and the number of each of its blocks."""

    program: Workload
    sites: Sites
    nest: NestProgram | None
    traced: Sequence[tuple[Stream, np.ndarray]]

    def batches(self, place: Mapping[str, int]) -> simulated.Batches:
        """The stream of {"size": input} of the nest, or of {"run": index} of the traced ones."""
        if "run" in place:
            stream, number = self.traced[place["run"]]
            return lambda: numbered(stream, number)
        assert self.nest is not None
        return self.nest.at(place["size"]).generate

    def end_of(self, place: Mapping[str, int], least_accesses: int) -> simulated.Batches:
        """The end of that stream, of as many accesses (or all)."""
        if "run" in place:
            stream, number = self.traced[place["run"]]
            bounds = np.array([0, *(end for _, end in stream.pieces(1))])
            share = stream.num_accesses / max(int(bounds[-1]), 1)  # accesses an execution, of whatever stream
            first = int(np.searchsorted(bounds, bounds[-1] - least_accesses / max(share, 1e-9), "right")) - 1
            return lambda: numbered(stream, number, max(first, 0))
        assert self.nest is not None
        instance = self.nest.at(place["size"])
        low, high = 0, instance.num_outer
        while high - low > 1:  # the last outer iteration from which on there are enough
            middle = (low + high) // 2
            low, high = (middle, high) if instance.num_accesses(middle) >= least_accesses else (low, middle)
        return lambda: instance.generate(low)


@dataclass(frozen=True)
class StreamAnswer:
    """A unit's result. ``rates``: of all accesses, by level; None for a stream that is too long to simulate.
    ``beyond``: translation and prefetching. ``parts``: seconds by cause, None where the machine or the trace lacks
    something, which ``problem`` says. ``num_instructions``: of the stream."""

    rates: HitRates | None
    beyond: simulated.Beyond
    parts: dict[str, float] | None
    problem: str
    num_instructions: int


def unit_of(
    place: Mapping[str, int], content: Sequence[str], machine: Machine, node: Any, num_accesses: int, *, steady: bool
) -> WorkUnit:
    """The unit for the stream at ``place``, of ``num_accesses``, of a program of ``content`` (digests) on a machine,
    whose file has ``node``. Its input ``streams`` is a ProgramStreams."""
    own = {"place": dict(place), "steady": steady}
    meaning = own | {"node": machine.node.model_dump(mode="json"), "dataflow": dataflow.VERSION}
    key = unit_key(KIND, VERSION, meaning, list(content), seed=0)
    return WorkUnit(key, KIND, own | {"node": node}, {"streams": "streams"}, weight=max(num_accesses, 1))


class _Passes:
    """Passes over a stream, with what each costs, tell how far the unit is."""

    def __init__(self, costs: Sequence[float]) -> None:
        total = sum(costs) or 1.0
        self._ends = [sum(costs[: i + 1]) / total for i in range(len(costs))]
        self._current = 0

    def begin(self, index: int) -> None:
        self._current = index
        tell(self._ends[index - 1])

    def watched(self, batches: simulated.Batches, num_accesses: int) -> simulated.Batches:
        """The same batches, of as many accesses, in the current pass."""
        first, last = self._ends[self._current - 1], self._ends[self._current]

        def again() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            done = 0
            for block_ids, addresses in batches():
                yield block_ids, addresses
                done += len(addresses)
                tell(first + (last - first) * min(done / max(num_accesses, 1), 1.0))

        return again


def predict_stream(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> Arrays:
    """The kind of unit. Results: as ``answer`` reads them."""
    streams: ProgramStreams = inputs["streams"]
    node, steady = of_one_thread(Node.model_validate(parameters["node"])), parameters["steady"]
    batches = streams.batches(parameters["place"])
    before = streams.end_of(parameters["place"], MOST_BEFORE) if steady else None
    num_accesses, executions = counted(batches, streams.sites)
    reached = np.empty(0, np.int64)
    prefetched = min(num_accesses, MOST_PREFETCHED)
    simulates = num_accesses <= MOST_SIMULATED
    passes = _Passes([_COUNTED * num_accesses, simulates * num_accesses, _PREFETCHED * prefetched,
                      _EXECUTED * num_accesses])  # fmt: skip
    known = None
    if simulates:
        passes.begin(1)
        watched = passes.watched(batches, num_accesses)
        if prefetched == num_accesses:
            counts, known = simulated.translated(watched, streams.sites, node, before=before)
            counters = counts.values.sum(axis=2)
        else:
            counters = simulated.simulate(watched, streams.sites, data_caches(node.caches), before=before)
        reached = simulated.reached(counters).sum(axis=1)
    passes.begin(2)
    first = passes.watched(lambda: _first(batches, MOST_PREFETCHED), prefetched)
    beyond = simulated.beyond(first, streams.sites, node, before=before, known=known)
    per_block = np.bincount(streams.program.column("instructions", "block_id"), minlength=len(executions))
    num_instructions = int(executions @ per_block)
    names, part_ps, problem = "", np.empty(0, np.int64), ""
    passes.begin(3)
    watched = passes.watched(batches, num_accesses)
    try:
        parts_ps = _executed(streams.program, node, watched, before, int(executions.sum()), num_instructions)
        names, part_ps = ",".join(parts_ps), np.array(list(parts_ps.values()), np.int64)
    except ValueError as error:
        problem = str(error)
    return {
        "reached": reached,
        "tlb_hit_ratio": np.array(() if beyond.page_rates is None else beyond.page_rates.whole, np.float64),
        "stream_ratio": np.array([beyond.stream_ratio]),
        "part_ps": part_ps,
        "part_names": _text(names),
        "problem": _text(problem),
        "num_instructions": np.array([num_instructions], np.int64),
    }


def answer(arrays: Arrays, node: Node) -> StreamAnswer:
    """A unit's result, read."""
    caches = data_caches(node.caches)
    names, problem = (bytes(arrays[name]).decode() for name in ("part_names", "problem"))
    parts = None
    if not problem:
        parts = dict(zip(names.split(","), (arrays["part_ps"] * 1e-12).tolist(), strict=True))
    tlb = tuple(arrays["tlb_hit_ratio"].tolist())
    reached = arrays["reached"]
    return StreamAnswer(
        simulated.hit_rates(reached[:, np.newaxis], caches) if len(reached) else None,
        simulated.Beyond(HitRates(tuple(node.tlbs), tlb) if tlb else None, float(arrays["stream_ratio"][0])),
        parts,
        problem,
        int(arrays["num_instructions"][0]),
    )


def numbered(stream: Stream, number: np.ndarray, first_piece: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """A traced stream, from a piece on, with its blocks renumbered."""
    for first, end in stream.pieces(1)[first_piece:]:
        block_ids, addresses = stream.read(first, end)
        yield number[block_ids], addresses


def counted(batches: simulated.Batches, sites: Sites) -> tuple[int, np.ndarray]:
    """(accesses, executions int64[blocks])."""
    executions = np.zeros(sites.num_blocks, np.int64)
    for block_ids, _ in batches():
        executions += np.bincount(block_ids, minlength=sites.num_blocks)
    return int(executions @ np.diff(sites.offsets)), executions


def _first(batches: simulated.Batches, most_accesses: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    done = 0
    for block_ids, addresses in batches():
        if done >= most_accesses:
            return
        done += len(addresses)
        yield block_ids, addresses


def _executed(
    program: Workload,
    node: Node,
    batches: simulated.Batches,
    before: simulated.Batches | None,
    num_executions: int,
    num_instructions: int,
) -> dict[str, int]:
    """Picoseconds by cause. Of many instructions, evenly spread windows are executed; caches and predictor see all."""
    core = Dataflow(program, node)
    for _ in range(dataflow.repetitions(num_executions)):
        for block_ids, addresses in before() if before is not None else ():
            core.warm(block_ids, addresses)
    windows = dataflow.windows(num_executions, num_instructions, EXECUTED)
    first = 0
    for block_ids, addresses in batches():
        inside = np.clip(windows, first, first + len(block_ids)) - first
        core.execute(block_ids, addresses, windows=inside[inside[:, 1] > inside[:, 0]])
        first += len(block_ids)
    return core.runtime(num_instructions).parts_ps


def _text(value: str) -> np.ndarray:
    return np.frombuffer(value.encode(), np.uint8)
