"""Task instances as a population: ``manyscale plan --method taskpoint TRACE``, TaskPoint's offline part.

TRACE has tasks and their detailed level. Classes of instances (basic-block vectors and DBSCAN, or task types) come from
profiles, which are computed once for a trace; which instances would be simulated, by playing TaskPoint through
(sampling/taskpoint/plan.py). With ``--target`` instances take what ``cpu: interval`` says on that machine, beside what
runs there, and the plan tells how far the samples are off, and how sure they are; without, one cycle per instruction.
Profiles, costs and cells are the work units of such a run.

Elements are instances in the order of their creation, from 1, chunks of loops among them. Beside the plan:
NAME.instances.csv says what each is, NAME.classes.csv what classes are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np

from manyscale.models.machine import Machine
from manyscale.models.node.instance_profile import profiles_from
from manyscale.models.node.program.build import build_program
from manyscale.models.node.program.node_program import NodeProgram
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.models.workload import Workload
from manyscale.models.workload.parameters import Count, CountOrNone
from manyscale.runner.errors import UserError
from manyscale.runner.predict.node.cells import cell_units, cost_units, profile_units
from manyscale.runner.predict.node.cells.cell_units import check_machine
from manyscale.runner.predict.node.cells.plan import plan_cells
from manyscale.runner.predict.node.rank_part import rank_part
from manyscale.runner.predict.phase_source import Case, Finished, Stage, SweepShared
from manyscale.runner.predict.stored_arrays import notes_of, restored
from manyscale.runner.predict.units import Arrays
from manyscale.runner.run.execute.execution import Workers
from manyscale.runner.run.plans.request import Planned, PlanRequest
from manyscale.runner.study import parse_study
from manyscale.runner.study.targets import resolve_target
from manyscale.sampling.population import Choice
from manyscale.sampling.taskpoint import plan as taskpoint_plan
from manyscale.sampling.taskpoint.classes import class_rows
from manyscale.sampling.taskpoint.estimate import estimate
from manyscale.sampling.taskpoint.options import TaskPointChoice
from manyscale.sampling.taskpoint.state import VALID, TaskPoint, TaskPointParameters, new_taskpoint

TASKPOINT: Final = "taskpoint"
_RECORD: Final = "record it with manyscale trace --level detailed -o DIR -- PROGRAM"
_LIKE: Final = "grass-high-performance"  # whose lines profiles are in, where no target is named


class TaskRules(TaskPointChoice):
    """TaskPoint's (sampling/taskpoint/options.py, state.py), and ``cores`` that execute the instances of ``rank`` (the
    first one that was traced in detail)."""

    cores: Count = 8
    rank: CountOrNone | None = None


def planned(request: PlanRequest) -> Planned:
    """Raises UserError for a trace without tasks in detail and a machine that lacks what the model reads."""
    rules, place = request.rules_of(TaskRules), request.path
    workload = request.read()
    if workload.detail is None:
        raise UserError(f"{place}: has no detailed level, which classes of task instances follow from; {_RECORD}")
    program, arrays, predicted, machine = _profiled(workload, rules, request)
    profiles = profiles_from(arrays)
    simulated = profiles.num_instructions > 0
    cycles, notes = np.zeros(len(simulated)), workload.notes
    if predicted is not None:
        cycles[predicted["id"]] = predicted["cycles"]
        simulated &= cycles > 0  # the others do nothing but create others, in the runtime system's time
        notes = (*notes, *notes_of([predicted]))
    row = np.flatnonzero(simulated)
    row = row[row > 0]  # the initial task is no instance to choose
    if not len(row):
        raise UserError(
            f"{place}: no task instance was traced in detail; {_RECORD}, where PROGRAM has OpenMP tasks or loops"
        )
    row = row[np.argsort(profiles.order[row], kind="stable")]
    instructions = profiles.num_instructions[row]
    cycles = instructions.astype(np.float64) if predicted is None else cycles[row]
    given = arrays["task_class"] if rules.classes == "bbv" else program.task_type
    label = np.unique(given[row], return_inverse=True)[1].astype(np.int32)
    parameters = {name: getattr(rules, name) for name in TaskPointParameters.model_fields}
    model = cycles / instructions if rules.correction == "interval" else None
    state = new_taskpoint(label, instructions, model, rules.cores, TaskPointParameters.model_validate(parameters))
    taskpoint_plan.play(state, cycles)
    choice, found = taskpoint_plan.choice_of(state, label), estimate(state)
    share = instructions[choice.element].sum() / instructions.sum()
    text = (
        f"{len(choice.element)} of {len(row)} task instances in {label.max() + 1} classes, {share:.2%} of the "
        f"instructions, would be simulated in detail on {rules.cores} cores"
    )
    if request.target:
        half = found.relative_half_width
        choice = replace(choice, expected_error=half if np.isfinite(half) else None)
        expected = f", expected within {half:.2%}" if np.isfinite(half) else ""
        text += (
            f"; busy time by the analytical model on {machine.name} {found.busy_cycles / cycles.sum() - 1:+.2%} off"
            f"{expected}"
        )
    files = {
        "instances.csv": _instances(program, row, state, label, cycles),
        "classes.csv": _classes(workload, program.task_type[row], state, label, cycles),
    }
    choice = _in_creation_order(choice, row)
    return Planned(workload.name, "task_instance", request.method, choice, text, files, notes)


def _in_creation_order(choice: Choice, row: np.ndarray) -> Choice:
    """With instances named as NodeProgram has them."""
    order = np.argsort(row[choice.element])
    return replace(
        choice, element=row[choice.element][order], stratum=choice.stratum[order], weight=choice.weight[order]
    )


def _profiled(
    workload: Workload, rules: TaskRules, request: PlanRequest
) -> tuple[NodeProgram, Arrays, Arrays | None, Machine]:
    """The program of a rank, the profiles of its instances, for a target its cell by the analytical model, and the
    machine. Raises UserError."""
    detailed, analytical = (_case(workload, rules, request, model) for model in ("detailed", "interval"))
    if request.target:
        check_machine(detailed.machine)
        if detailed.machine.node.core_kinds:
            raise UserError(
                f"{detailed.machine.name}: has cores of several kinds (node.core_kinds), and the model of task "
                "instances has one; leave --target out, or name a target with one kind"
            )
    cells = plan_cells(workload, workload, detailed.study, request.path)
    cells = replace(cells, cells=cells.cells[:1])
    with Workers(request.cache, "local").execution() as execution:

        def finished(stage: Stage) -> Finished:
            execution.execute(stage.units, lambda _: stage.inputs)
            return Finished(stage.units, [execution.result(unit.key) for unit in stage.units])

        arrays = finished(profile_units.stage(cells, detailed.study, detailed.machine)).results[0]
        predicted = None
        if request.target:
            profiles = finished(profile_units.stage(cells, analytical.study, analytical.machine))
            costs = finished(cost_units.stage(cells, analytical, profiles))
            predicted = finished(cell_units.stage(cells, analytical, profiles, costs)).results[0]
    rank = cells.cells[0].rank
    program = build_program(rank_part(workload, rank).workload, rank, rules.cores, RuntimeSystem())
    return program, restored(arrays), None if predicted is None else restored(predicted), detailed.machine


def _case(workload: Workload, rules: TaskRules, request: PlanRequest, model: str) -> Case:
    content: dict[str, Any] = {
        "schema": 1,
        "workload": {"path": request.path},
        "target": request.target or _LIKE,
        "model": {"cpu": model},
        "sampling": {"iterations": "joined", "ranks": "traced" if rules.rank is None else [rules.rank]},
        "mapping": {"cores_per_rank": rules.cores},
    }
    study = parse_study(content, "plan")
    return Case(workload, study, *resolve_target(study), SweepShared())


def _instances(
    program: NodeProgram, row: np.ndarray, state: TaskPoint, label: np.ndarray, cycles: np.ndarray
) -> str:  # fmt: skip
    lines = ["instance,task_instance_id,class,instructions,cycles,role\n"]
    roles = ("", "", "forwarded", "forwarded", "warm-up", "surplus", "late", "sample", "rare")
    for at in np.argsort(row).tolist():
        number = int(program.instance_id[row[at]])
        lines.append(
            f"{row[at]},{number if number >= 0 else ''},{label[at]},{state.instructions[at]},{cycles[at]:.6g},"
            f"{roles[state.role[at]]}\n"
        )
    return "".join(lines)


def _classes(
    workload: Workload, task_type: np.ndarray, state: TaskPoint, label: np.ndarray, cycles: np.ndarray
) -> str:  # fmt: skip
    functions = [name or "" for name in workload.tables["task_types"].column("function").to_pylist()]
    lines = ["class,instances,instruction_share,simulated,samples,cpi,deviation,task_types\n"]
    cpi = cycles / state.instructions
    simulated = taskpoint_plan.is_detailed(state)
    for each in class_rows(label, state.instructions, task_type):
        mine = label == each.task_class
        names = ";".join(f"{functions[kind] if kind >= 0 else 'loop'} {number}" for kind, number in each.types)
        counts = (np.count_nonzero(some & mine) for some in (simulated, state.role == VALID))
        spread = f"{cpi[mine].mean():.6g},{cpi[mine].std():.6g}"
        lines.append(
            f"{each.task_class},{each.num_instances},{each.instructions_share:.6g},{','.join(map(str, counts))},"
            f'{spread},"{names}"\n'
        )
    return "".join(lines)
