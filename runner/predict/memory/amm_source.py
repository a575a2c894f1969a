"""``model: {cpu: amm}``: times of compute phases from the detailed level of some of them, as work units.

How the phases that were not traced in detail follow from the others: ``models/cpu/amm_phases.py``. Since iterations
repeat, caches and branch predictor are as the stream of a thread leaves them when it has just run before.

A unit predicts up to CHUNKS_PER_UNIT chunks of a stream; as many that precede them (before the stream's beginning,
those of its end) are shown to caches and predictor first: lines that are older count as evicted from all caches. With
the forms ``corrected`` and ``printed``, whose distances may span all of a stream, it is one unit.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from manyscale.models.cpu import amm_phases, dataflow, domains
from manyscale.models.cpu.amm_phases import PhaseTimes, pieces_of
from manyscale.models.cpu.dataflow import Dataflow
from manyscale.models.machine import Machine, Node
from manyscale.models.machine.hardware_threads import of_one_thread
from manyscale.models.machine.processor import data_caches, needed
from manyscale.models.memory.access_stream import accesses, sites_of
from manyscale.models.memory.amm import amm
from manyscale.models.memory.amm.options import AmmChoice
from manyscale.models.memory.amm.program_counts import program_counts, shows_instructions
from manyscale.models.memory.distances import segments as segment_distances
from manyscale.models.memory.distances.histogram import DistanceHistogram
from manyscale.models.memory.distances.stack_distance import StackDistances
from manyscale.models.workload import Workload
from manyscale.models.workload.detail_tables import Detail
from manyscale.models.workload.notes import Errs, Note, changes
from manyscale.runner.errors import UserError
from manyscale.runner.predict.memory.phase_streams import PhaseStream, streams_by_phase
from manyscale.runner.predict.phase_source import Case, Done, PhaseSource, Stage
from manyscale.runner.predict.statistic import Statistic
from manyscale.runner.predict.units import Arrays, WorkUnit, unit_key
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
READ_OF_NODE: Final = {"frequency_hz", "caches", "tlbs", "main_memory", "core"}


class DetailedPhases:
    """The detailed level of a workload as pieces and streams. Raises UserError, naming ``place``, where there is
    nothing to predict from."""

    def __init__(self, workload: Workload, place: str) -> None:
        _check_workload(workload, place)
        self.pieces = pieces_of(workload)
        self.streams, self.piece_of_stream = streams_by_phase(workload, self.pieces.of_segment)
        if not self.streams or not (self.pieces.traced_ps.sum() or amm_phases.is_untimed(workload)):
            raise UserError(
                f"{place}: none of its detailed level is a compute phase's that was timed (of a single function it is "
                "not known how much of the traced time it took), so model cpu: amm has no time to compare with; trace "
                "with `manyscale trace --level detailed`, without --function"
            )


class AmmSource(PhaseSource):
    """One stage: all detailed pieces on the machine's node. Raises UserError for a workload or a machine that does not
    say what it needs."""

    def __init__(self, case: Case) -> None:
        self._case, self._form = case, case.study.options(AmmChoice).form
        place = case.study.workload.path
        if case.study.sampling.ranks not in ("auto", "full"):
            raise UserError(f"{place}: sampling.ranks: model cpu: amm predicts all ranks; leave it out")
        self._detail = case.shared.once(("detailed phases", place), lambda: DetailedPhases(case.workload, place))
        _check_machine(case.machine)

    def plans(self) -> list[Plan]:
        """All ranks, whatever of them was traced in detail."""
        return [full.plan(self._case.workload, self._case.study.model.cpu)]

    def stages(self, done: Done) -> list[Stage]:
        if done:
            return []
        node = self._case.machine.node.model_dump(mode="json", include=READ_OF_NODE)
        meaning = {"node": node, "versions": [VERSION, dataflow.VERSION, segment_distances.VERSION]}
        units = []
        for stream in self._detail.streams:
            for first, end in _parts(len(stream.chunks), self._form):
                own = {"form": self._form, "first": first, "end": end}
                key = unit_key(KIND, VERSION, own | meaning, stream.content, seed=0)
                weight = 20 * max(1, int(np.diff(stream.chunks[first:end]).sum()))
                parameters = own | {"node": self._case.machine_content["node"]}
                units.append(WorkUnit(key, KIND, parameters, {"stream": stream.name}, weight))
        return [Stage(KIND, units, {stream.name: stream for stream in self._detail.streams})]

    def phase_times(self, done: Done) -> np.ndarray:
        return self._times(done).duration_ps

    def figures(self, of_run: dict[str, Statistic], done: Done) -> dict[str, Statistic]:
        """By which ratio, and from what, the times of phases were predicted."""
        times = self._times(done)
        figures = {
            f"application.compute_{basis}": Statistic(share, "1", "ratio", f"share of traced compute time {text}")
            for (basis, text), share in zip(_BASES.items(), times.share_by_basis.tolist(), strict=True)
        }
        if times.ratio is None:
            return {**of_run, **figures}
        text = "predicted over traced compute time, all ranks"
        return {**of_run, "application.cpu_ratio": Statistic(times.ratio, "1", "ratio", text), **figures}

    def notes(self, done: Done) -> Sequence[Note]:
        place, found = self._case.study.workload.path, []
        if amm_phases.is_untimed(self._case.workload):
            text = "the whole program is predicted as if it had just run before: caches and predictor are warm"
            found.append(changes("as-if-repeated", text, place, errs=Errs.short))
        if self._form != "overlap":
            text = f"amm.form {self._form}: {amm.UPPER_BOUND}"
            found.append(changes("nothing-overlaps", text, place, errs=Errs.long))
            node = self._case.machine.node
            fetches = any(cache.prefetcher is not None for cache in data_caches(node.caches).values())
            has = {"address-translation": bool(node.tlbs), "prefetchers": fetches}
            where = f"amm.form {self._form}"
            found += [stance.note(name, where) for name, stance in domains.EQUATIONS.items() if has[name]]
        return found

    def _times(self, done: Done) -> PhaseTimes:
        """Of all phases, from those of the pieces. Raises UserError where they have none in common."""
        detail = self._detail
        predicted = np.zeros(len(detail.pieces.traced_ps), np.int64)
        mine = [
            pieces
            for stream, pieces in zip(detail.streams, detail.piece_of_stream, strict=True)
            for _ in _parts(len(stream.chunks), self._form)
        ]
        for pieces, result in zip(mine, done[KIND].results, strict=True):
            np.add.at(predicted, pieces[result["piece"]], result["predicted_ps"])
        try:
            return amm_phases.phase_times(self._case.workload, detail.pieces, predicted)
        except ValueError as error:
            raise UserError(f"{self._case.study.workload.path}: {error}") from None


def predict_pieces(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> Arrays:
    """The kind of unit: chunks [``first``, ``end``) of a PhaseStream (input ``stream``) on ``node`` by ``form``.

    Results, of the pieces that lie there: ``piece`` int32[], their numbers, ascending, and ``predicted_ps`` int64[].
    """
    stream: PhaseStream = inputs["stream"]
    node = of_one_thread(Node.model_validate(parameters["node"]))
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
            raise ValueError(_no_instructions(stream.program, int(block_ids[~shows[block_ids]][0])))
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
            f"{place}: its blocks show no instructions, which model cpu: amm needs; traces of Valgrind and those "
            "without code have none: record it with manyscale trace --level detailed --route qemu -o DIR -- PROGRAM"
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


def _no_instructions(program: Workload, block: int) -> str:
    row = program.tables["blocks"].slice(block, 1).to_pylist()[0]
    known = int((program.column("instructions", "block_id") == block).sum())
    place = f"{row['function'] or row['module'] or 'unknown code'} at {row['offset']:#x}"
    return (
        f"block {block} ({place}) was executed, but of its {row['num_instructions']} instructions the trace shows "
        f"{known}, and model cpu: amm cannot time it; where instructions are too new, update capstone and trace again"
    )
