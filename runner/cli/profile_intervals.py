"""``manyscale profile --interval N TRACE``: intervals of a traced parallel program on a target's cores.

What it writes is a profile that ``plan --method sbbv+ccv`` and ``evaluate`` read.
"""

from __future__ import annotations

import argparse
from typing import Final

from manyscale.models.machine import Node
from manyscale.runner.cache import default_cache
from manyscale.runner.cli import commands
from manyscale.runner.cli.execution import execution_of
from manyscale.runner.cli.profile import target_and_content
from manyscale.runner.errors import UserError
from manyscale.runner.predict.intervals import node_intervals
from manyscale.runner.predict.node.cell_units import check_machine
from manyscale.runner.run import directory as rundir
from manyscale.runner.run.plans.simpoint_bb import write_intervals
from manyscale.runner.study import WorkloadChoice
from manyscale.runner.study.traces import read_workload

DEFAULT_CORES: Final = 4
_OF_DISTANCES: Final[dict[str, object]] = {  # options of the command, and their defaults
    "granularity": "line", "sampling": "exact", "simulate": None, "prefetch": False, "together": False,
    "frames": "virtual", "thread": None,
}  # fmt: skip


def profile(options: argparse.Namespace) -> int:
    """The command. Raises UserError for a machine, a trace or numbers that make no sense."""
    commands.check_executor(options)
    for name, value in _OF_DISTANCES.items():
        if getattr(options, name) != value:
            raise UserError(f"--{name}: is of stack distances, which --interval does not measure; leave it out")
    cores = DEFAULT_CORES if options.cores is None else options.cores
    cache = options.cache or default_cache()
    machine, content = target_and_content(options.target)
    check_machine(machine)
    _check(options.interval, cores, machine.node)
    workload = read_workload(WorkloadChoice(path=options.trace, format=options.format), cache)
    shared: dict[str, object] = {}
    try:
        unit = node_intervals.interval_unit(
            workload, options.rank or 0, machine.node, content["node"], cores, options.interval,
            steady=options.steady, add_input=shared.__setitem__,
        )  # fmt: skip
    except ValueError as error:
        raise UserError(f"{options.trace}: {error}") from None
    with execution_of(options, cache, unit.weight) as execution:
        execution.execute([unit], lambda needed: shared)
        found = node_intervals.intervals_from(execution.result(unit.key))
    if not len(found):
        raise UserError(f"--interval {options.interval}: the trace has not half as many instructions; give fewer")
    directory = rundir.new_directory(options.output, f"{workload.name}-intervals", resume=False)
    file = write_intervals(found, directory, workload.name)
    instructions = found.instructions.sum()
    requests, misses, answers = (
        f"{1000 * each.sum() / instructions:.3g}"
        for each in (found.offcore_requests, found.llc_misses, found.coherence_answers)
    )
    print(
        f"{workload.name} on {cores} cores of {machine.name}: {len(found)} intervals of {options.interval:,} "
        f"instructions, {instructions / found.cycles.sum():.3g} a cycle; of 1,000 instructions: {requests} off-core "
        f"requests, {misses} last-cache misses, {answers} coherence messages answered"
    )
    print(f"results: {file}")
    return 0


def _check(interval: int, cores: int, node: Node) -> None:
    most = node.sockets * node.cores_per_socket
    if interval < 1:
        raise UserError(f"--interval {interval}: at least one instruction is needed")
    if not 1 <= cores <= most:
        raise UserError(f"--cores {cores}: the target has {most}; give 1 to {most}")
