"""Intervals of a traced parallel program on a target's cores: what ``manyscale profile --interval`` writes, and ``plan
--method sbbv+ccv`` and ``evaluate`` read.

Written are basic-block vectors, a file per thread, with a table of what was measured beside, as readers/simpoint_bb
reads them back: NAME.bb, NAME.bb.2, ... and NAME.cpi.csv with columns ``interval``, ``tid`` (from 1), ``instrs`` and
the counters. Each thread has a row for each interval; a bare ``T`` is one in which it executed nothing. ``cycles`` are
the time that passed, and stand with the first thread alone, so that their sum is that time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from manyscale.models.node.interval_watch import NodeIntervals
from manyscale.models.workload.notes import Note, in_order
from manyscale.runner.errors import UserError
from manyscale.runner.predict.intervals import node_intervals
from manyscale.runner.predict.node.cells.cell_units import check_machine
from manyscale.runner.predict.stored_arrays import notes_of
from manyscale.runner.run import directory as rundir
from manyscale.runner.run.execute.execution import Workers
from manyscale.runner.run.plans import simpoint_files
from manyscale.runner.study import WorkloadChoice
from manyscale.runner.study.targets import target_named
from manyscale.runner.study.traces import read_workload
from manyscale.sampling.population import IntervalPopulation


@dataclass(frozen=True)
class IntervalProfile:
    """Intervals of ``interval`` instructions of all cores, of a workload by its name on a machine by its name."""

    name: str
    machine: str
    cores: int
    interval: int
    intervals: NodeIntervals
    notes: Sequence[Note]

    @property
    def title(self) -> str:
        return f"intervals of {self.name} on {self.cores} cores of {self.machine}"

    @property
    def num_blocks(self) -> int:
        return self.intervals.num_blocks

    @cached_property
    def population(self) -> IntervalPopulation:
        return node_intervals.population_of(self.intervals)

    def summary(self) -> str:
        """A line to read."""
        found = self.intervals
        instructions = found.instructions.sum()
        requests, misses, answers = (
            f"{1000 * each.sum() / instructions:.3g}"
            for each in (found.offcore_requests, found.llc_misses, found.coherence_answers)
        )
        return (
            f"{self.name} on {self.cores} cores of {self.machine}: {len(found)} intervals of {self.interval:,} "
            f"instructions, {instructions / found.cycles.sum():.3g} a cycle; of 1,000 instructions: {requests} "
            f"off-core requests, {misses} last-cache misses, {answers} coherence messages answered"
        )


def interval_profile(
    trace: str,
    interval: int,
    target: str | Mapping[str, Any] = "laptop",
    *,
    cores: int = 4,
    form: str = "auto",
    rank: int = 0,
    steady: bool = False,
    workers: Workers | None = None,
) -> IntervalProfile:
    """Of a rank of a trace in format ``form``. Raises UserError for a machine, a trace or numbers that make no sense,
    RunError if the simulation fails."""
    workers = workers or Workers()
    machine, content = target_named(target)
    check_machine(machine)
    most = machine.node.sockets * machine.node.cores_per_socket
    if interval < 1:
        raise UserError(f"--interval {interval}: at least one instruction is needed")
    if not 1 <= cores <= most:
        raise UserError(f"--cores {cores}: the target has {most}; give 1 to {most}")
    workers.progress(0, 0, "reading")
    workload = read_workload(WorkloadChoice(path=trace, format=form), workers.folder)
    shared: dict[str, object] = {}
    try:
        unit = node_intervals.interval_unit(
            workload, rank, machine.node, content["node"], cores, interval, steady=steady, add_input=shared.__setitem__
        )
    except ValueError as error:
        raise UserError(f"{trace}: {error}") from None
    with workers.execution(unit.weight) as execution:
        execution.execute([unit], lambda needed: shared)
        arrays = execution.result(unit.key)
        found = node_intervals.intervals_from(arrays)
    if not len(found):
        raise UserError(f"--interval {interval}: the trace has not half as many instructions; give fewer")
    notes = in_order([*workload.notes, *notes_of([arrays])])
    return IntervalProfile(workload.name, machine.name, cores, interval, found, notes)


def write_intervals(found: IntervalPopulation, num_blocks: int, directory: Path, name: str) -> Path:
    """Writes NAME.bb and what belongs to it; the path of NAME.bb. Columns of vectors are thread x ``num_blocks`` +
    block. O(pairs)."""
    vectors = found.vectors
    row = np.repeat(np.arange(len(found)), np.diff(vectors.first))
    thread, block = np.divmod(vectors.column, num_blocks)
    for each in range(found.num_threads):
        mine = np.flatnonzero(thread == each)
        first = np.searchsorted(row[mine], np.arange(len(found) + 1)).tolist()
        pairs = list(zip((block[mine] + 1).tolist(), vectors.value[mine].tolist(), strict=True))
        text = simpoint_files.vectors(pairs[begin:end] for begin, end in pairwise(first))
        rundir.write_atomically(directory / f"{name}.{'bb' if each == 0 else f'bb.{each + 1}'}", text)
    rundir.write_atomically(directory / f"{name}.cpi.csv", _table(found))
    return directory / f"{name}.bb"


def _table(found: IntervalPopulation) -> str:
    """Counters that are not of threads stand with the first thread alone."""
    names = sorted(found.counters, key=lambda name: (name != "cycles", name))
    lines = [f"{','.join(('interval', 'tid', 'instrs', *names))}\n"]
    for interval in range(len(found)):
        for thread in range(found.num_threads):
            shown = [f"{interval},{thread + 1},{found.thread_instructions[interval, thread]:.0f}"]
            for name in names:
                if name in found.thread_counters:
                    shown.append(f"{found.thread_counters[name][interval, thread]:.0f}")
                else:
                    shown.append(f"{found.counters[name][interval]:.12g}" if thread == 0 else "")
            lines.append(f"{','.join(shown)}\n")
    return "".join(lines)
