"""Figures of a run's kernel launches (``gpu.*`` of stats.json)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from manyscale.models.gpu.parameters import Gpu
from manyscale.runner.predict.gpu import checks
from manyscale.runner.predict.gpu.mapping import Launches
from manyscale.runner.predict.gpu.predictions import Predictions
from manyscale.runner.predict.gpu.resources import resource_statistics
from manyscale.runner.predict.statistic import Statistic


def launch_statistics(launches: Launches, predicted: Predictions, gpu: Gpu) -> dict[str, Statistic]:
    """Dotted name to figure, of all executions of launches; ratios weigh each by its size."""
    executions, source = launches.executions, launches.source
    row = np.searchsorted(predicted.plan.row, executions.launch)
    cycles = predicted.cycles[row]
    instructions = source.column("launches", "warp_instructions")[executions.launch]
    threads = source.column("launches", "thread_instructions")[executions.launch]
    latency = predicted.latency_cycles * len(row)
    inside = int(cycles.sum()) - latency
    work = int(instructions.sum())
    results = [predicted.result[each] for each in row.tolist()]
    scale = np.array([each.warp_instructions for each in results], np.float64)
    scale = np.divide(instructions, scale, out=np.ones(len(row)), where=scale > 0)
    of_each = {each.launch_id: each for each in predicted.result}
    simulated = sum(each.simulated_instructions for each in of_each.values())
    population = int(source.column("launches", "warp_instructions")[predicted.plan.row].sum())
    figures = {
        "gpu.launches": Statistic(len(row), "1", "count", "kernel launches that were executed"),
        "gpu.simulated_launches": Statistic(len(of_each), "1", "count", "of these, simulated, in part or whole"),
        "gpu.simulated_share": Statistic(
            simulated / population if population else 1.0, "1", "ratio", "share of their warp instructions simulated"
        ),
        "gpu.time": Statistic(
            float(predicted.duration_ps[row].sum()) / 1e12, "s", "total", "time of all launches, one after the other"
        ),
        "gpu.cycles": Statistic(int(cycles.sum()), "cycles", "total", "of all launches, launch latencies included"),
        "gpu.launch_latency": Statistic(latency, "cycles", "total", "of these, between launches and their beginnings"),
        "gpu.warp_instructions": Statistic(work, "1", "count", "warp instructions of all launches"),
        "gpu.thread_instructions": Statistic(int(threads.sum()), "1", "count", "thread instructions of all launches"),
        "gpu.ipc": Statistic(
            work / inside if inside else 0.0,
            "1",
            "ratio",
            "warp instructions per cycle without launch latency, all SMs",
        ),
    }
    sm = "warp instructions per cycle without launch latency, mean of all SMs"
    figures["gpu.ipc_per_sm"] = Statistic(work / inside / gpu.sms if inside else 0.0, "1", "ratio", sm)
    for cache in ("l1", "l2"):
        misses, accesses = (
            float((np.array([getattr(each, f"{cache}_{what}") for each in results]) * scale).sum())
            for what in ("misses", "accesses")
        )
        figures[f"gpu.{cache}_miss_ratio"] = Statistic(
            misses / accesses if accesses else 0.0, "1", "ratio", f"misses / accesses of {cache.upper()}, by sector"
        )
    weight = cycles - predicted.latency_cycles
    resident = float((np.array([each.occupancy for each in results]) * weight).sum())
    figures["gpu.occupancy"] = Statistic(
        resident / inside if inside else 0.0, "1", "ratio", "mean share of the SMs' warps that are resident"
    )
    figures |= resource_statistics(results, scale, inside, gpu)
    stack = sum((each.stack * factor for each, factor in zip(results, scale.tolist(), strict=True)), np.zeros(1))
    for name, value in zip(results[0].causes, np.atleast_1d(stack).tolist(), strict=True):
        text = f"cycles without launch latency per warp instruction, of them: {name}"
        figures[f"gpu.cpi.{name}"] = Statistic(value / work if work else 0.0, "1", "ratio", text)
    newer = len(checks.newer_launches(source, launches.rows, gpu))
    if newer:
        text = "launches whose code is of a later architecture than the target's"
        figures["gpu.newer_binaries"] = Statistic(newer, "1", "count", text)
    return figures


def with_intervals(
    launches: Launches, predicted: Predictions, gpu: Gpu, figures: dict[str, Statistic]
) -> dict[str, Statistic]:
    """``figures`` with 95 % intervals of times and cycles of launches, where some were sampled and the samples tell how
    far they may be off. Launches that are executed again and again err alike."""
    relative = predicted.relative_half_width
    if not (np.isfinite(relative) and relative > 0):
        return figures
    inside = float(figures["gpu.cycles"].value) - float(figures["gpu.launch_latency"].value)
    cycles = relative * inside
    seconds = cycles / gpu.frequency_hz
    result = dict(figures)
    widths = {"gpu.cycles": cycles, "gpu.time": seconds}
    if launches.is_whole_run:
        widths |= {"application.makespan": seconds, "application.compute": seconds}
    for name, width in widths.items():
        each = figures[name]
        result[name] = replace(each, ci_low=max(float(each.value) - width, 0.0), ci_high=float(each.value) + width)
    return result
