"""``manyscale plan --method NAME WORKLOAD``: the method, and for those that several know the workload, say whose it is.

Intervals of profiles: run/plans/intervals.py. Sampling units of call stacks: run/plans/stacks.py. Kernel launches:
run/plans/launches.py. Task instances: run/plans/tasks.py. All write plan.parquet: element_kind, element_id (the
workload's row), stratum, weight (share of the instructions), model (the method).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload.parameters import Strict
from manyscale.runner.cache import default_cache
from manyscale.runner.cli.commands import launch_numbers
from manyscale.runner.cli.profile import target_machine
from manyscale.runner.errors import UserError
from manyscale.runner.problems import first_problem
from manyscale.runner.run.plans import intervals as plans
from manyscale.runner.run.plans import launches, tasks
from manyscale.runner.run.plans import stacks as stack_plans
from manyscale.runner.study import WorkloadChoice, assign, parse_assignment
from manyscale.runner.study.traces import read_workload

_Rules = TypeVar("_Rules", bound=Strict)


def plan(options: argparse.Namespace) -> int:
    """The command. Raises UserError for an unknown method, rules that make no sense and workloads that do not fit."""
    path = options.study or options.workload
    is_stacks = stack_plans.is_asked(options.method, path)
    for name in ("sensitivity", "measured"):
        if getattr(options, name) and not is_stacks:
            raise UserError(f"--{name}: is of method simprof, which plans sampling units of call stacks")
    is_taskpoint = options.method == tasks.TASKPOINT
    are_launches = not is_taskpoint and (
        launches.is_tbpoint(options.method) or (path is not None and launches.are_launches(Path(path)))
    )
    if options.cycles is not None and not are_launches:
        raise UserError(f"--cycles: is of kernel launches, which {options.method} does not choose here")
    if is_taskpoint:
        return _tasks(options, path)
    if are_launches:
        return _launches(options, path)
    if is_stacks:
        return _stacks(options, path)
    return plans.plan(options)


def _stacks(options: argparse.Namespace, path: str | None) -> int:
    place = _needed(path, options)
    _refuse_exports(options)
    try:
        workload, planned = stack_plans.plan(options, place)
    except ValueError as error:
        raise UserError(f"{place}: {error}") from None
    return plans.write_plan(options, workload.name, "unit", plans.Planned(*planned), workload.notes)


def _launches(options: argparse.Namespace, path: str | None) -> int:
    _refuse_exports(options)
    method = launches.method_named(options.method)
    rules = _rules(method.rules, method.preset, options.assignments)
    place, gpu = _needed(path, options), None
    if options.target is not None:
        gpu = Gpu.of(target_machine(options.target).node)
        if gpu is None:
            raise UserError(f"--target {options.target}: has no GPU, which regions of thread blocks depend on")
    chosen = None if options.launch is None else launch_numbers(options.launch)
    choice = WorkloadChoice(path=place, format=options.format or "auto", launches=chosen)
    workload = read_workload(choice, options.cache or default_cache())
    try:
        planned = launches.planned(workload, Path(place), method, rules, options.seed or 0, options.cycles, gpu)
    except ValueError as error:
        raise UserError(f"{place}: {error}") from None
    return plans.write_plan(options, workload.name, "launch", plans.Planned(*planned), workload.notes)


def _tasks(options: argparse.Namespace, path: str | None) -> int:
    _refuse_exports(options)
    rules = _rules(tasks.TaskRules, {}, options.assignments)
    place = _needed(path, options)
    workload = read_workload(
        WorkloadChoice(path=place, format=options.format or "auto"), options.cache or default_cache()
    )
    planned = tasks.planned(workload, place, rules, options)
    return plans.write_plan(options, workload.name, "task_instance", plans.Planned(*planned), workload.notes)


def _refuse_exports(options: argparse.Namespace) -> None:
    for name in ("export", "projection", "warmup"):
        if getattr(options, name):
            raise UserError(
                f"--{name}: is for intervals of basic-block vectors, which {options.method} does not choose"
            )


def _needed(path: str | None, options: argparse.Namespace) -> str:
    if path is None:
        raise UserError(f"--method needs a workload: manyscale plan --method {options.method} WORKLOAD -o DIR")
    return path


def _rules(kind: type[_Rules], preset: dict[str, Any], assignments: list[str]) -> _Rules:
    """Of a method, with what ``--set KEY=VALUE`` replaces."""
    content: dict[str, Any] = dict(preset)
    for text in assignments:
        content = assign(content, *parse_assignment(text))
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise UserError(f"--set: {first_problem(error)}") from None
