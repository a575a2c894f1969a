"""The top of a run's page: what was simulated, in one line and in cards. What was not simulated, or follows from there
being one rank alone, is not said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload.columns import to_numpy
from manyscale.models.workload.quantities import PS_PER_SECOND
from manyscale.runner.predict.statistic import Statistic
from manyscale.runner.report.text import cards_html, duration, percent, size
from manyscale.runner.run.results import Result

Card = tuple[str, str, str]  # label, value, more
_NEARLY_ALL: Final = 0.999
_MOST_JOBS: Final = 8  # that have cards


def has_ranks(result: Result) -> bool:
    """Whether ranks wait for each other: several, or one that sends itself messages. Else efficiencies are 100 % by
    definition, and calls of MPI, if there are any, cost nothing."""
    return result.workload.num_ranks > 1 or result.messages.num_rows > 0


def has_launches(result: Result) -> bool:
    """Whether kernels were launched on a GPU."""
    return result.launches is not None and result.launches.num_rows > 0


def has_steps(result: Result) -> bool:
    """Whether the run's kernels have traced times, so that it says where the time of its GPUs goes."""
    return "gpu.time.compute" in result.statistics


def subtitle(result: Result) -> str:
    """What ran, and the machine."""
    num_ranks = result.workload.num_ranks
    parts = [f"{num_ranks:,} ranks"] if has_ranks(result) else []
    if result.launches is not None and has_launches(result):
        launches = result.launches.num_rows
        kernels = len(set(result.launches.column("kernel").to_pylist()))
        parts.append(f"{_counted(launches, 'launch', 'launches')} of {_counted(kernels, 'kernel', 'kernels')}")
    elif result.intervals is not None:
        parts.append(f"a program of {result.intervals.num_rows:,} intervals")
    about = result.machine.description
    return f"Predicted run of {' with '.join(parts) or 'one process'}. {about[:1].upper()}{about[1:]}"


def headline(result: Result) -> str:
    """HTML of the cards: the time first, then what was simulated, then the target."""
    cards = [
        _time(result),
        *_of_jobs(result),
        *_of_steps(result),
        *_of_launches(result),
        *_of_intervals(result),
        *_of_nodes(result),
        *_of_ranks(result),
    ]
    cards.append(_target(result))
    cards += [("Sweep point", str(value), key) for key, value in result.sweep_point.items()]
    return cards_html(cards)


def _time(result: Result) -> Card:
    seconds = result.makespan_seconds
    makespan = result.statistics["application.makespan"]
    interval = (
        f"{duration(makespan.ci_low)} to {duration(makespan.ci_high)}"
        if makespan.ci_low is not None and makespan.ci_high is not None
        else f"{seconds:.12g} s"
    )
    return "Predicted time", duration(seconds), interval


def _of_jobs(result: Result) -> Iterator[Card]:
    for number, row in enumerate(result.workload.tables["jobs"].to_pylist()[:_MOST_JOBS], 1):
        time = result.statistics.get(f"job.{number}.time")
        yield (
            f"Job {number}",
            "idle" if time is None else duration(time.value),
            f"{row['job_name']}, {row['num_ranks']:,} ranks",
        )


def _of_steps(result: Result) -> Iterator[Card]:
    figures = result.statistics
    if not has_steps(result):
        return
    if "step.time" in figures:
        count = int(figures["step.count"].value)
        steps = f"mean over ranks{f' and {count} steps' if count > 1 else ''}"
        longest = duration(_value(figures, "step.longest"))
        yield "Step", duration(_value(figures, "step.time")), f"{steps}; the longest {longest}"
    parts = ("compute", "exposed_transfer", "exposed_wait", "idle")
    compute, transfer, wait, idle = (_value(figures, f"gpu.time.{name}") for name in parts)
    whole = compute + transfer + wait + idle or 1.0
    yield "GPUs compute", percent(compute / whole), "of the time, mean over ranks"
    more = f"of the time; {percent(wait / whole)} waits for other members"
    yield "Exposed communication", percent((transfer + wait) / whole), more
    if "step.pipeline_bubble" in figures:
        yield (
            "Pipeline bubble",
            percent(_value(figures, "step.pipeline_bubble")),
            "of the time, GPUs wait for other stages",
        )
    if "step.model_flops_utilisation" in figures:
        yield "MFU", percent(_value(figures, "step.model_flops_utilisation")), "of the GPUs' peak, by the model's work"
    if "step.memory" in figures:
        share = "" if "step.memory_share" not in figures else f", {percent(_value(figures, 'step.memory_share'))} of it"
        yield "GPU memory", f"{_value(figures, 'step.memory') / 1e9:.3g} GB", f"of the fullest GPU{share}"


def _value(figures: Mapping[str, Statistic], name: str) -> float:
    return float(figures[name].value)


def _of_launches(result: Result) -> Iterator[Card]:
    if result.launches is None or not has_launches(result):
        return
    figures = result.statistics
    on_gpu = _in_launches(result.launches)
    if not has_ranks(result) and on_gpu < _NEARLY_ALL * result.makespan_seconds:
        yield (
            "In launches",
            duration(on_gpu),
            f"{percent(on_gpu / result.makespan_seconds)} of it; else host and copies",
        )
    cycles = figures["gpu.cycles"]
    latency = int(figures["gpu.launch_latency"].value)
    between = "" if cycles.ci_low is None else f"{cycles.ci_low:,.0f} to {cycles.ci_high:,.0f}; "
    yield "Cycles", f"{cycles.value:,}", f"{between}{latency:,} of them launch latency"
    per_sm = f"; {figures['gpu.ipc_per_sm'].value:.3g} of each" if "gpu.ipc_per_sm" in figures else ""
    yield "IPC", f"{figures['gpu.ipc'].value:.4g}", f"warp instructions per cycle, all SMs{per_sm}"
    if "gpu.occupancy" in figures:
        yield "Occupancy", percent(float(figures["gpu.occupancy"].value)), "of the warps that SMs have room for"
    shares = {name: float(each.value) for name, each in figures.items() if name.startswith("gpu.of_peak.")}
    if shares:
        most = max(shares, key=lambda name: shares[name])
        what = most.rpartition(".")[2]
        yield "Of peak", percent(shares[most]), f"{what if what in ('issue', 'tensor') else what.upper()}, the nearest"
    launches, simulated = (int(figures[f"gpu.{name}"].value) for name in ("launches", "simulated_launches"))
    share = float(figures["gpu.simulated_share"].value)
    of = f"{simulated:,} simulated, {percent(share)} of the instructions" if share < 1 else "all simulated"
    yield "Launches", f"{launches:,}", of
    copies = figures.get("gpu.copies")
    if copies is not None and copies.value:
        moved, time = (float(figures[f"gpu.{name}"].value) for name in ("copied_bytes", "copy_time"))
        yield "Copies", f"{copies.value:,}", f"{size(moved)} in {duration(time)}"
    yield "L1, L2 misses", _ratios(figures.get("gpu.l1_miss_ratio"), figures.get("gpu.l2_miss_ratio")), "of accesses"


def _in_launches(launches: pa.Table) -> float:
    """Seconds in which a launch is under way: those that overlap count once."""
    start, end = (to_numpy(launches.column(name)) for name in ("start_ps", "end_ps"))
    order = np.argsort(start, kind="stable")
    before = np.maximum.accumulate(np.append(0, end[order][:-1]))
    return float((end[order] - np.maximum(start[order], before)).clip(0).sum()) / PS_PER_SECOND


def _ratios(*statistics: Statistic | None) -> str:
    return ", ".join("-" if each is None else percent(float(each.value)) for each in statistics)


def _of_intervals(result: Result) -> Iterator[Card]:
    figures = result.statistics
    if result.intervals is None:
        return
    cpi = figures["intervals.cpi"]
    between = "of the program" if cpi.ci_low is None else f"{cpi.ci_low:.4g} to {cpi.ci_high:.4g}"
    yield "Cycles per instruction", f"{cpi.value:.4g}", between
    of = f"of {figures['intervals.total'].value:,}, {figures['intervals.share'].value:.1%} of the instructions"
    yield "Simulated intervals", f"{figures['intervals.simulated'].value:,}", of


def _of_nodes(result: Result) -> Iterator[Card]:
    """Cores of ranks, and IPC where cores were simulated."""
    if result.intervals is not None or "node.cores_per_rank" not in result.statistics:
        return
    cores = int(result.statistics["node.cores_per_rank"].value)
    ipc = result.statistics.get("node.ipc")
    if cores > 1 and not has_ranks(result):
        yield _efficiency(result)
    yield "Cores of a rank", f"{cores:,}", "" if ipc is None else f"{ipc.value:.3g} instructions per cycle and core"


def _of_ranks(result: Result) -> Iterator[Card]:
    if not has_ranks(result):
        return
    if has_steps(result):
        launches = int(result.statistics["gpu.traced_launches"].value)
        yield "Ranks", f"{result.workload.num_ranks:,}", f"{_counted(launches, 'launch', 'launches')} of kernels"
        return
    if "application.parallel_efficiency" in result.statistics:
        yield _efficiency(result)
    yield "Ranks", f"{result.workload.num_ranks:,}", f"{result.workload.num_operations:,} MPI calls"
    payload = result.statistics.get("application.bytes")
    more = "" if payload is None else f"{size(float(payload.value))} of payload"
    yield "Messages", f"{result.messages.num_rows:,}", more


def _efficiency(result: Result) -> Card:
    """Of all cores, where ranks have several."""
    of = {name: float(each.value) for name, each in result.statistics.items() if each.unit == "1"}
    parallel = percent(of["application.parallel_efficiency"])
    if "application.thread_efficiency" not in of:
        return "Parallel efficiency", parallel, "computing / all time"
    cores = result.workload.num_ranks * int(of["node.cores_per_rank"])
    processes, threads = (percent(of[f"application.{name}_efficiency"]) for name in ("process", "thread"))
    parts = f" = processes {processes} x threads {threads}" if has_ranks(result) else ""
    return "Parallel efficiency", parallel, f"of {_counted(cores, 'core', 'cores')}{parts}"


def _target(result: Result) -> Card:
    machine = result.machine
    gpu = Gpu.of(machine.node) if has_launches(result) else None
    if gpu is not None and not has_ranks(result):
        return "Target", machine.name, f"{gpu.sms} SMs at {gpu.frequency_hz / 1e6:g} MHz"
    nodes = _counted(machine.num_nodes, "node", "nodes")
    if has_steps(result):
        return "Target", machine.name, f"{nodes}, {_counted(machine.num_nodes * machine.node.num_gpus, 'GPU', 'GPUs')}"
    return "Target", machine.name, f"{nodes}, {_counted(machine.num_cores, 'core', 'cores')}"


def _counted(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
