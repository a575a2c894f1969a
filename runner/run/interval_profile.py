"""Intervals of a traced parallel program on a target's cores: what ``manyscale profile --interval`` writes, and ``plan
--method sbbv+ccv`` and ``evaluate`` read."""

from __future__ import annotations

from dataclasses import dataclass

from manyscale.models.node.interval_watch import NodeIntervals
from manyscale.runner.errors import UserError
from manyscale.runner.predict.intervals import node_intervals
from manyscale.runner.predict.node.cell_units import check_machine
from manyscale.runner.run.execute.execution import Workers
from manyscale.runner.study import WorkloadChoice
from manyscale.runner.study.targets import target_named
from manyscale.runner.study.traces import read_workload


@dataclass(frozen=True)
class IntervalProfile:
    """Intervals of ``interval`` instructions of all cores, of a workload by its name on a machine by its name."""

    name: str
    machine: str
    cores: int
    interval: int
    intervals: NodeIntervals

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
    target: str = "laptop",
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
        found = node_intervals.intervals_from(execution.result(unit.key))
    if not len(found):
        raise UserError(f"--interval {interval}: the trace has not half as many instructions; give fewer")
    return IntervalProfile(workload.name, machine.name, cores, interval, found)
