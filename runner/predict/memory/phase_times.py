"""``model: {cpu: amm}``: times of compute phases from the detailed level of some of them, as work units.

How the phases that were not traced in detail follow from the others: ``models/cpu/amm_phases.py``. Since iterations
repeat, caches and branch predictor are as the stream of a thread leaves them when it has just run before.

A unit predicts up to CHUNKS_PER_UNIT chunks of a stream; as many that precede them (before the stream's beginning,
those of its end) are shown to caches and predictor first: lines that are older count as evicted from all caches. With
the forms ``corrected`` and ``printed``, whose distances may span all of a stream, it is one unit.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from manyscale.models.cpu import amm_phases, dataflow
from manyscale.models.cpu.amm_phases import PhaseTimes, pieces_of
from manyscale.models.cpu.dataflow import Dataflow
from manyscale.models.machine import Machine, Node
from manyscale.models.machine.processor import data_caches, needed
from manyscale.models.memory.access_stream import accesses, sites_of
from manyscale.models.memory.amm import amm
from manyscale.models.memory.amm.program_counts import program_counts, shows_instructions
from manyscale.models.memory.distances import segments as segment_distances
from manyscale.models.memory.distances.histogram import DistanceHistogram
from manyscale.models.memory.distances.stack_distance import StackDistances
from manyscale.models.workload import Workload
from manyscale.models.workload.detail_tables import Detail
from manyscale.runner.errors import UserError
from manyscale.runner.predict.memory.phase_streams import PhaseStream, streams_by_phase
from manyscale.runner.predict.results import Statistic
from manyscale.runner.predict.units import Arrays, WorkUnit, unit_key
from manyscale.runner.study import Study
from manyscale.sampling.plan import Plan
from manyscale.sampling.ranks import full

KIND: Final = "amm-pieces"
VERSION: Final = 1  # raised when results change, by a change of amm or sdcm, too
CHUNKS_PER_UNIT: Final = 16  # some ten million accesses, which leave little of what was before in any cache
_BASES: Final = {
    "detailed": "predicted from its own blocks and accesses",
    "same_place": "scaled like detailed time at the same place of other iterations or ranks",
    "same_region": "scaled like detailed time of the same region",
    "other": "scaled like all detailed time",
}
_READ_OF_NODE: Final = {"frequency_hz", "caches", "main_memory", "core"}


class DetailedPhases:
    """The detailed level of a workload: units for a node, and what follows for all phases.

    Raises UserError, naming ``place``, where there is nothing to predict from.
    """

    def __init__(self, workload: Workload, place: str) -> None:
        _check_workload(workload, place)
        self._workload, self._place = workload, place
        self._pieces = pieces_of(workload)
        self._streams, self._piece_of_stream = streams_by_phase(workload, self._pieces.of_segment)
        if not self._streams or not self._pieces.traced_ps.sum():
            raise UserError(
                f"{place}: none of its detailed level is a compute phase's that was timed, so model cpu: amm has no "
                "time to compare with; trace with `manyscale trace --level detailed`, without --function"
            )

    def units(self, study: Study, machine: Machine, content: Mapping[str, Any]) -> list[WorkUnit]:
        """Units that predict all detailed pieces on a node. ``content``: what ``machine`` was built from. Raises
        UserError for what the machine does not say."""
        form = study.amm.form
        _check_machine(machine)
        meaning = machine.node.model_dump(mode="json", include=_READ_OF_NODE)
        versions = [VERSION, dataflow.VERSION, segment_distances.VERSION]
        units = []
        for stream in self._streams:
            for first, end in _parts(len(stream.chunks), form):
                own = {"form": form, "first": first, "end": end}
                key = unit_key(KIND, VERSION, own | {"node": meaning, "versions": versions}, stream.content, seed=0)
                weight = 20 * max(1, int(np.diff(stream.chunks[first:end]).sum()))
                inputs = {"stream": stream.name}
                units.append(WorkUnit(key, KIND, own | {"node": content["node"]}, inputs, weight))
        return units

    def further_units(
        self, study: Study, machine: Machine, content: Mapping[str, Any], results: Sequence[Arrays]
    ) -> list[WorkUnit]:
        """None follow from the results of others."""
        return []

    def plan(self, study: Study) -> Plan:
        """All ranks, whatever of them was traced in detail."""
        return full.plan(self._workload, study.model.cpu)

    def shared(self, needed_names: set[str]) -> dict[str, PhaseStream]:
        """The inputs of units."""
        return {stream.name: stream for stream in self._streams if stream.name in needed_names}

    def phase_times(self, study: Study, results: Iterable[Arrays]) -> PhaseTimes:
        """Times of all phases from the results of ``units`` of the study, in their order. Raises UserError."""
        predicted = np.zeros(len(self._pieces.traced_ps), np.int64)
        mine = [
            pieces
            for stream, pieces in zip(self._streams, self._piece_of_stream, strict=True)
            for _ in _parts(len(stream.chunks), study.amm.form)
        ]
        for pieces, result in zip(mine, results, strict=True):
            np.add.at(predicted, pieces[result["piece"]], result["predicted_ps"])
        try:
            return amm_phases.phase_times(self._workload, self._pieces, predicted)
        except ValueError as error:
            raise UserError(f"{self._place}: {error}") from None

    def statistics(self, study: Study, results: Iterable[Arrays]) -> dict[str, Statistic]:
        """By which ratio, and from what, the times of phases were predicted."""
        times = self.phase_times(study, results)
        figures = {
            f"application.compute_{basis}": Statistic(share, "1", "ratio", f"share of traced compute time {text}")
            for (basis, text), share in zip(_BASES.items(), times.share_by_basis.tolist(), strict=True)
        }
        text = "predicted over traced compute time, all ranks"
        return {"application.cpu_ratio": Statistic(times.ratio, "1", "ratio", text), **figures}

    def with_intervals(
        self, study: Study, results: Sequence[Arrays], figures: dict[str, Statistic]
    ) -> dict[str, Statistic]:
        """The same: nothing is sampled whose error is known."""
        return figures

    def coupling(self, study: Study, machine: Machine, results: Iterable[Arrays]) -> None:
        """Nothing communicates inside phases here."""

    def tables(self, study: Study, results: Sequence[Arrays], compute_ps: np.ndarray, replay: Arrays) -> dict[str, Any]:
        """None beside those of ranks."""
        return {}


def of_workload(workload: Workload, study: Study) -> DetailedPhases:
    """The detailed level of a workload; the last one is kept, since every point of a sweep asks for it."""
    place = study.workload.path
    if (workload.digest, place) not in _kept:
        _kept.clear()
        _kept[workload.digest, place] = DetailedPhases(workload, place)
    return _kept[workload.digest, place]


_kept: dict[tuple[str, str], DetailedPhases] = {}


def predict_pieces(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> Arrays:
    """The kind of unit: chunks [``first``, ``end``) of a PhaseStream (input ``stream``) on ``node`` by ``form``.

    Results, of the pieces that lie there: ``piece`` int32[], their numbers, ascending, and ``predicted_ps`` int64[].
    """
    stream: PhaseStream = inputs["stream"]
    node = Node.model_validate(parameters["node"])
    form = parameters["form"]
    detail = stream.open()
    if form == "overlap":
        time, is_there = _overlapped(stream, detail, node, parameters["first"], parameters["end"])
    else:
        time, is_there = _analytical(stream, detail, node, form)
    piece = np.flatnonzero(is_there)
    return {"piece": piece.astype(np.int32), "predicted_ps": time[piece]}


def _overlapped(stream: PhaseStream, detail: Detail, node: Node, first: int, end: int) -> tuple[np.ndarray, np.ndarray]:
    """(ps int64[pieces], bool[pieces] whether the piece lies in the chunks). The time of a piece is by how much the
    running total grows, so the parts of a stream add up to its time. O(instructions + accesses)."""
    core = Dataflow(stream.program, node)
    shows = shows_instructions(stream.program)
    for chunk in _preceding(stream, first):
        for _, block_ids, addresses, _ in stream.stretches(detail, [chunk]):
            core.warm(block_ids, addresses)
    time, is_there = np.zeros(stream.num_pieces, np.int64), np.zeros(stream.num_pieces, bool)
    before = 0
    for piece, block_ids, addresses, following in stream.stretches(detail, range(first, end)):
        if not shows[block_ids].all():
            raise ValueError(_no_instructions(block_ids[~shows[block_ids]][0]))
        core.execute(block_ids, addresses, following)
        now = core.runtime().time_ps
        if piece >= 0:
            time[piece] += now - before
            is_there[piece] = True
        before = now
    return time, is_there


def _analytical(stream: PhaseStream, detail: Detail, node: Node, form: Any) -> tuple[np.ndarray, np.ndarray]:
    """As ``_overlapped``, of the whole stream, by AMM's equations from each piece's own reuse profile. Distances count
    across pieces. O(accesses log(distinct) + pieces x static tables)."""
    line_bytes = needed(next(iter(data_caches(node.caches).values())).line_bytes, "line")
    sites, num_blocks = sites_of(stream.program), stream.program.tables["blocks"].num_rows
    stack, parameters = StackDistances(), amm.AmmParameters(form=form)
    everything = range(len(stream.chunks))
    for _, block_ids, addresses, _ in stream.stretches(detail, everything):
        stack.feed(accesses(block_ids, addresses, sites, line_bytes).unit)
    counts = program_counts(stream.program, np.zeros(num_blocks))
    time, is_there = np.zeros(stream.num_pieces, np.int64), np.zeros(stream.num_pieces, bool)
    stretches = stream.stretches(detail, everything)
    for piece, parts in itertools.groupby(stretches, key=lambda stretch: stretch[0]):  # a piece may lie in many chunks
        executions, histogram = np.zeros(num_blocks), DistanceHistogram()
        for _, block_ids, addresses, _ in parts:
            accessed = accesses(block_ids, addresses, sites, line_bytes)
            histogram.add(accessed.site, stack.feed(accessed.unit))
            executions += np.bincount(block_ids, minlength=num_blocks)
        if piece >= 0:
            mine = counts.with_executions(executions)
            time[piece] += amm.predict(mine, histogram.profile(line_bytes), node, parameters).total_ps
            is_there[piece] = True
    return time, is_there


def _parts(num_chunks: int, form: str) -> list[tuple[int, int]]:
    """Ranges of chunks that are a unit each."""
    if form != "overlap":
        return [(0, num_chunks)]
    firsts = range(0, num_chunks, CHUNKS_PER_UNIT)
    return [(first, min(first + CHUNKS_PER_UNIT, num_chunks)) for first in firsts]


def _preceding(stream: PhaseStream, first: int) -> Sequence[int]:
    """Chunks that run before the one at ``first`` in a stream that is repeated."""
    num_chunks = len(stream.chunks)
    number = min(num_chunks, CHUNKS_PER_UNIT)
    found = [(first - number + index) % num_chunks for index in range(number)]
    executions = int(np.diff(stream.chunks[found]).sum())
    return found * dataflow.repetitions(executions)


def _check_workload(workload: Workload, place: str) -> None:
    if workload.detail is None:
        raise UserError(
            f"{place}: has no detailed level, from which model cpu: amm predicts; trace the program with `manyscale "
            "trace --level detailed`, or choose model cpu: burst"
        )
    if not shows_instructions(workload).any():
        raise UserError(
            f"{place}: its blocks show no instructions, which model cpu: amm needs; trace the program with `manyscale "
            "trace --level detailed`"
        )


def _check_machine(machine: Machine) -> None:
    node = machine.node
    missing = [
        key
        for key, value in (("frequency", node.frequency_hz), ("main_memory", node.main_memory), ("core", node.core))
        if value is None
    ]
    caches = data_caches(node.caches)
    missing += [] if caches else ["caches"]
    for name, cache in caches.items():
        known: dict[str, float | None] = {"line": cache.line_bytes, "ways": cache.ways}
        known |= {"latency": cache.latency_cycles, "bandwidth": cache.ps_per_byte}
        missing += [f"caches.{name}.{key}" for key, value in known.items() if value is None]
    if missing:
        raise UserError(
            f"{machine.name}: model cpu: amm needs {', '.join(f'node.{key}' for key in missing)}; add to the machine "
            "what is missing, or choose a target that has it, such as xeon-e5-2695"
        )


def _no_instructions(block: int) -> str:
    return (
        f"block {block} was executed, but the trace shows no instructions of it; trace the program again, with "
        "`manyscale trace --level detailed`"
    )
