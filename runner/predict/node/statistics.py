"""Figures of a run's nodes: cores, task instances, and what of them was simulated in detail."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from manyscale.runner.predict.node.schedule_units import is_coupled
from manyscale.runner.predict.node.tables import MODELS
from manyscale.runner.predict.statistic import Statistic
from manyscale.runner.predict.units import Arrays
from manyscale.runner.study import Study


def of_schedules(study: Study, schedules: Sequence[Arrays]) -> dict[str, Statistic]:
    """Dotted name to figure, of the ranks' cores. ``schedules``: of each rank."""
    instances = sum(int(each["num_instances"][0]) for each in schedules)
    figures = {
        "node.cores_per_rank": Statistic(study.mapping.cores_per_rank, "1", "count", "cores of each rank"),
        "node.task_instances": Statistic(instances, "1", "count", "task instances and chunks of loops, all ranks"),
    }
    alone = [each for each in schedules if not is_coupled(each)]
    if not alone:
        return figures
    busy, overhead, _, total = (sum(int(each["core_use_ps"][place]) for each in alone) for place in range(4))
    for name, value, text in (
        ("utilisation", busy, "share of the cores' time in phases that executes the program"),
        ("overhead", overhead, "share of the cores' time in phases that the runtime system takes"),
    ):
        figures[f"node.core_{name}"] = Statistic(value / total if total else 0.0, "1", "ratio", text)
    return figures


def of_cells(cpu_ratio: float, cells: Sequence[Arrays]) -> dict[str, Statistic]:
    """Dotted name to figure, of what was simulated. ``cpu_ratio``: predicted over traced time of all ``cells``."""
    instructions = sum(int(each["num_instructions"][0]) for each in cells)
    simulated = sum(int(each["num_detailed_instructions"][0]) for each in cells)
    cycles = sum(float(each["cycles"].sum()) for each in cells)
    issued = sum(int(each["issued"].sum()) for each in cells)
    figures = {
        "application.cpu_ratio": Statistic(
            cpu_ratio, "1", "ratio", "predicted over traced time of the iterations of ranks that were simulated"
        ),
        "node.cells_time": _time_of_cells(cells),
        "node.cells": Statistic(len(cells), "1", "count", "iterations of ranks that were simulated"),
        "node.simulated_instances": Statistic(
            sum(int(each["num_instances"][0]) for each in cells), "1", "count", "task instances in them"
        ),
        "node.detailed_instances": Statistic(
            sum(int(each["num_detailed"][0]) for each in cells), "1", "count", "of these, simulated in detail"
        ),
        "node.detailed_share": Statistic(
            simulated / instructions if instructions else 0.0, "1", "ratio", "share of their instructions in detail"
        ),
    }
    if cycles > 0:
        text = "instructions issued per cycle of task instances; a compare and its branch that the core fuses are one"
        figures["node.ipc"] = Statistic(issued / cycles, "1", "ratio", text)
    figures |= _misses(cells)
    return figures | _stacks(cells)


def _stacks(cells: Sequence[Arrays]) -> dict[str, Statistic]:
    """Cycles per instruction and their parts. Instances that were fast-forwarded have the parts of those of their type
    in the cell that were simulated in detail."""
    parts = [str(name) for name in cells[0]["part"]]
    stack, work = np.zeros(len(parts)), 0
    for each in cells:
        of_type, done = each["type_stack"], each["type_instructions"]
        forwarded = each["model"] == MODELS.index("fast-forward")
        if forwarded.any():
            types = len(done)
            kind = np.where(each["type"] < 0, types - 1, each["type"])
            cycles = np.bincount(kind, each["cycles"], types)
            instructions = np.bincount(kind, each["instructions"], types).astype(np.int64)
            known = of_type.sum(axis=1)
            represents = (np.bincount(kind[forwarded], minlength=types) > 0) & (known > 0)
            times = np.divide(cycles, known, out=np.ones(types), where=represents)
            of_type, done = of_type * times[:, None], np.where(represents, instructions, done)
        stack, work = stack + of_type.sum(axis=0), work + int(done.sum())
    figures = {}
    text = "cycles per instruction simulated; a compare and its branch are two, fused or not"
    figures["node.cpi"] = Statistic(float(np.sum(stack)) / work if work else 0.0, "1", "ratio", text)
    for name, value in zip(parts, stack.tolist(), strict=True):
        text = f"cycles per instruction simulated, of them: {name}"
        figures[f"node.cpi.{name}"] = Statistic(value / work if work else 0.0, "1", "ratio", text)
    return figures


def _time_of_cells(cells: Sequence[Arrays]) -> Statistic:
    """Sum of the makespans of the phases that were simulated."""
    times = np.array([each["makespan_ps"].sum() for each in cells]) / 1e12
    widths = np.array([float(each["half_width"][0]) for each in cells])
    value, width = float(times.sum()), float(np.sqrt(((times * widths) ** 2).sum()))
    text = "predicted time of the iterations of ranks that were simulated, summed; MPI calls inside phases take none"
    if not width:
        return Statistic(value, "s", "total", text)
    return Statistic(value, "s", "total", text, ci_low=max(value - width, 0.0), ci_high=value + width)


def _misses(cells: Sequence[Arrays]) -> dict[str, Statistic]:
    """Misses of the first and the last cache per 1000 instructions of task instances simulated in detail."""
    in_detail = [each["model"] == MODELS.index("detailed") for each in cells]
    instructions, first, last = (
        sum(int(each[name][mine].sum()) for each, mine in zip(cells, in_detail, strict=True))
        for name in ("instructions", "first_misses", "last_misses")
    )
    if not instructions:
        return {}
    text = "misses of the {} cache per 1000 instructions of task instances in detail"
    return {
        f"node.mpki.{name}_cache": Statistic(1000 * misses / instructions, "1", "ratio", text.format(name))
        for name, misses in (("first", first), ("last", last))
    }
