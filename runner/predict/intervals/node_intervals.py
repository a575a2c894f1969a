"""Intervals of a traced parallel program on simulated cores: the work unit, and its result as a population.

Creating task instances takes no time here, as in ``manyscale evaluate``: detailed traces do not show it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final

import numpy as np

from manyscale.models.machine import Node
from manyscale.models.node.detailed import NodeSimulation
from manyscale.models.node.interval_watch import NodeIntervals, finish, intervals_of, new_interval_watch
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.models.workload import Workload
from manyscale.models.workload.notes import Note
from manyscale.runner.predict.node.cells.open_cell import OpenCell, open_cell, phases_of_cell
from manyscale.runner.predict.node.cells.plan import JOINED, WHOLE, detailed_segments
from manyscale.runner.predict.node.cells.streams import stream_part
from manyscale.runner.predict.node.creation import creation_pieces
from manyscale.runner.predict.node.rank_part import rank_part
from manyscale.runner.predict.stored_arrays import NOTES, noted, restored, stored
from manyscale.runner.predict.units import Arrays, WorkUnit, unit_key
from manyscale.sampling.population import IntervalPopulation
from manyscale.sampling.vectors import Vectors

KIND: Final = "node-intervals"
VERSION: Final = 3  # raised when results change, by a change of the models of cores and memory, too
_WEIGHT: Final = 60  # simulated operations per access


def interval_unit(
    workload: Workload, rank: int, node: Node, node_content: Mapping[str, Any], cores: int, every: int, *,
    steady: bool, add_input: Callable[[str, Any], None],
) -> WorkUnit:  # fmt: skip
    """Intervals of ``every`` instructions of all that was traced in detail of a rank, on the first ``cores`` cores of a
    node, with its main loop's iterations alone where it knows them; ``steady``: caches are as an earlier run of the
    same left them. Raises ValueError where nothing was traced of it."""
    of_rank, iteration = detailed_segments(workload)
    rows = np.flatnonzero(of_rank == rank)
    if not len(rows):
        known = ", ".join(map(str, np.unique(of_rank[of_rank >= 0]).tolist())) or "none"
        raise ValueError(
            f"nothing of rank {rank} was traced in detail (of these was: {known}); record it with manyscale trace "
            "--level detailed --ranks LIST -o DIR -- PROGRAM"
        )
    inside = rows[iteration[rows] >= 0]
    rows = inside if len(inside) else rows
    part = rank_part(workload, rank, instructions=True)
    stream = stream_part(workload, int(rows[0]), int(rows[-1]) + 1)
    own = {
        "rank": rank, "iteration": JOINED if len(inside) else WHOLE, "cores": cores, "every": every, "steady": steady,
    }  # fmt: skip
    add_input("part", part)
    add_input("stream", stream)
    meaning = own | {"node": node.model_dump(mode="json")}
    key = unit_key(KIND, VERSION, meaning, [part.digest, *stream.content], seed=0)
    weight = _WEIGHT * int(stream.num_accesses.sum()) * (1 + steady)
    inputs = {"part": "part", "stream": "stream"}
    return WorkUnit(key, KIND, own | {"node": dict(node_content)}, inputs, max(weight, 1))


def simulate_intervals(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> Arrays:
    """The kind of unit: the arrays of NodeIntervals."""
    node, runtime = Node.model_validate(parameters["node"]), RuntimeSystem()
    cell = opened(parameters, inputs, node, runtime)
    found, notes = intervals_on(cell, parameters["cores"], parameters["every"], steady=parameters["steady"])
    arrays = stored({field.name: np.asarray(getattr(found, field.name)) for field in fields(found)})
    return noted(arrays, [*cell.program.notes, *notes])


def opened(parameters: Mapping[str, Any], inputs: Mapping[str, Any], node: Node, runtime: RuntimeSystem) -> OpenCell:
    """The cell of a unit's ``rank``, ``iteration`` and ``cores``."""
    program, stream, pieces = open_cell(parameters, inputs, runtime)
    first, end = phases_of_cell(program, parameters["iteration"])
    workload = inputs["part"].workload
    creates = creation_pieces(program, workload)
    return OpenCell(workload, program, stream, pieces, creates, first, end, node, runtime, creation_is_free=True)


def intervals_on(cell: OpenCell, num_cores: int, every: int, *, steady: bool) -> tuple[NodeIntervals, tuple[Note, ...]]:
    """A cell's intervals of ``every`` instructions of all cores, and notes on the code. Raises ValueError where they
    cannot be."""
    simulation = NodeSimulation(
        cell.program, cell.workload, cell.node, num_cores, cell.runtime, cell.stream, cell.pieces,
        first_phase=cell.first, end_phase=cell.end, empty_ps=cell.creation_ps, keep=False,
    )  # fmt: skip
    total = int(cell.pieces.num_instructions.sum())
    for _ in range(1 + steady):
        begin = simulation.cycle
        simulation.start()
        watch = new_interval_watch(every, total, cell.program.num_pieces, simulation.memory.counts)
        simulation.run(watch)
    finish(watch, simulation.memory.counts, simulation.cycle)
    watch.cycle[:] -= begin
    memory = simulation.memory.memory[0]
    blocks = np.maximum(cell.workload.column("blocks", "num_instructions").astype(np.int64), 0)
    levels, private = int(memory["levels"]), int(memory["private"])
    return intervals_of(watch, cell.stream.block_ids, blocks, levels, private), simulation.notes


def intervals_from(arrays: Mapping[str, np.ndarray]) -> NodeIntervals:
    """What a unit has stored."""
    found = restored({name: values for name, values in arrays.items() if name != NOTES})
    return NodeIntervals(**{**found, "num_blocks": int(found["num_blocks"])})  # type: ignore[arg-type]


def population_of(found: NodeIntervals) -> IntervalPopulation:
    """For samplers; ``cycles`` of an interval are the time that passed, not the sum over cores."""
    measured = {
        "offcore_requests": found.offcore_requests,
        "llc_misses": found.llc_misses,
        "coherence_answers": found.coherence_answers,
    }
    sums = {name: values.sum(axis=1) for name, values in measured.items()} | {"cycles": found.cycles}
    vectors = Vectors(found.first_block, found.core_block, found.block_instructions)
    return IntervalPopulation(
        np.arange(len(found)), found.instructions.sum(axis=1), vectors, found.instructions.shape[1], sums,
        found.instructions, measured,
    )  # fmt: skip
