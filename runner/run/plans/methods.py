"""``manyscale plan --method``: what a method chooses of a profile or trace.

Where several methods of a name know a workload, the workload says whose it is. Intervals of profiles:
run/plans/intervals.py. Sampling units of call stacks: run/plans/stacks.py. Kernel launches: run/plans/launches.py. Task
instances: run/plans/tasks.py. All plans have the columns element_kind, element_id (the workload's row), stratum, weight
(share of the instructions), model (the method).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from manyscale.runner.errors import UserError
from manyscale.runner.input_kinds import INTERVALS, LAUNCHES, STACKS, TASKS, refuse_others
from manyscale.runner.run import directory as rundir
from manyscale.runner.run.parquet import write_table
from manyscale.runner.run.plans import intervals, launches, stacks, tasks
from manyscale.runner.run.plans.request import Planned, PlanRequest

_OPTIONS: Final = {  # of fields of a request that not all kinds of input take
    "sensitivity": "sensitivity", "measured": "measured", "cycles": "cycles", "exports": "export",
    "projection": "projection", "warmup": "warmup",
}  # fmt: skip


def by_method(request: PlanRequest) -> Planned:
    """What a method chooses. Raises UserError for an unknown method, rules that make no sense and workloads that do not
    fit."""
    method, path = request.method, Path(request.path)
    is_stacks = stacks.is_asked(method, path)
    is_taskpoint = method == tasks.TASKPOINT
    are_launches = not is_taskpoint and (launches.is_tbpoint(method) or launches.are_launches(path))
    kind = TASKS if is_taskpoint else LAUNCHES if are_launches else STACKS if is_stacks else INTERVALS
    refuse_others(kind, [f"--{option}" for name, option in _OPTIONS.items() if getattr(request, name)], method)
    if kind is INTERVALS:
        return intervals.planned(request)
    try:
        return (tasks if is_taskpoint else launches if are_launches else stacks).planned(request)
    except ValueError as error:
        raise UserError(f"{request.path}: {error}") from None


def write(planned: Planned, output: Path) -> Path:
    """Write a plan and the files beside it, into a folder or around a .parquet file; the plan's path. Raises UserError
    where that is taken."""
    if output.suffix != ".parquet":
        directory = rundir.new_directory(output, planned.name)
        file, stem = directory / "plan.parquet", directory / planned.name
    elif output.exists():
        raise UserError(f"{output}: is there already; name another file with -o")
    else:
        output.parent.mkdir(parents=True, exist_ok=True)
        file, stem = output, output.with_suffix("")
    write_table(planned.plan.table(), file)
    for suffix, text in planned.files.items():
        rundir.write_atomically(stem.with_name(f"{stem.name}.{suffix}"), text)
    return file
