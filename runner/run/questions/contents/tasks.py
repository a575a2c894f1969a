"""Of a workload: task instances by their types, loops, and what the task graph allows."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import Workload, WorkloadError
from manyscale.models.workload.task_tables import TaskFlag
from manyscale.runner.predict.node.tables import type_names
from manyscale.runner.run.questions.contents.section import Section, Value, columns, shares, spread
from manyscale.runner.run.questions.contents.task_graph import GraphOfRank, graph_of_rank

_NOT_CREATED: Final = int(TaskFlag.implicit) | int(TaskFlag.initial) | int(TaskFlag.taskwait)


def created(workload: Workload) -> np.ndarray:
    """bool[tasks]: instances that the source creates, without implicit tasks and those that stand for a taskwait."""
    flags = workload.column("tasks", "flags")
    return (flags & _NOT_CREATED) == 0


def has_tasks(workload: Workload) -> bool:
    """Whether there is anything that more than one core of a rank could do."""
    return bool(workload.tables["loops"].num_rows) or bool(created(workload).any())


def tasks(workload: Workload) -> Section | None:
    """Instances by type: how many, and how long they took."""
    are_created = created(workload)
    if not are_created.any():
        return None
    names = type_names(workload)
    kind, time, rank, flags = (
        workload.column("tasks", name)[are_created] for name in ("task_type_id", "cpu_ps", "rank", "flags")
    )
    facts: dict[str, Value] = {
        "instances": len(kind),
        "types": len(np.unique(kind)),
        "ranks": len(np.unique(rank)),
        "in_tasks_ps": int(time.sum()),
        "mean_ps": float(time.mean()),
        "declared_dependences": workload.tables["task_dependences"].num_rows,
    }
    undeferred = int(np.count_nonzero(flags & int(TaskFlag.undeferred)))
    if undeferred:
        facts["undeferred"] = undeferred
    note = (
        "Spread: standard deviation over mean of the time of instances, without what their children took. The 5th and "
        "95th percentiles say how far instances of a type differ."
    )
    return Section("tasks", facts, {"task_types": _by_type(kind, time, names)}, note)


def _by_type(kind: np.ndarray, time: np.ndarray, names: list[str]) -> pa.Table:
    """O(instances log instances)."""
    order = np.lexsort((time, kind))
    kind, time = kind[order], time[order]
    first = np.append(np.flatnonzero(np.append(True, kind[1:] != kind[:-1])), len(kind))
    rows = []
    for begin, end in zip(first[:-1].tolist(), first[1:].tolist(), strict=True):
        own = time[begin:end]
        low, middle, high = (int(own[int(share * (len(own) - 1))]) for share in (0.05, 0.5, 0.95))
        rows.append((names[kind[begin]], len(own), int(own.sum()), float(own.mean()), low, middle, high, spread(own)))
    rows.sort(key=lambda row: -row[2])
    return columns(
        task_type=[row[0] for row in rows],
        instances=np.array([row[1] for row in rows]),
        cpu_ps=np.array([row[2] for row in rows]),
        time_share=shares(np.array([row[2] for row in rows])),
        mean_ps=np.array([row[3] for row in rows]),
        percentile_5_ps=np.array([row[4] for row in rows]),
        median_ps=np.array([row[5] for row in rows]),
        percentile_95_ps=np.array([row[6] for row in rows]),
        spread_ratio=np.array([row[7] for row in rows]),
    )


def loops(workload: Workload) -> Section | None:
    """Worksharing loops by construct."""
    table = workload.tables["loops"]
    if not table.num_rows:
        return None
    names = type_names(workload)
    kind, length, rank, loop = (
        workload.column("loops", name) for name in ("task_type_id", "num_iterations", "rank", "loop_id")
    )
    schedule = table.column("schedule").to_pylist()
    span = int(loop.max(initial=0)) + 1
    chunk = workload.column("loop_chunks", "rank").astype(np.int64) * span + workload.column("loop_chunks", "loop_id")
    row = np.searchsorted(rank.astype(np.int64) * span + loop, chunk)
    time = np.zeros(table.num_rows, np.int64)
    np.add.at(time, row, workload.column("loop_chunks", "cpu_ps"))
    chunks = np.bincount(row, minlength=table.num_rows)
    groups: dict[tuple[int, str], list[int]] = {}
    for number, (each, how) in enumerate(zip(kind.tolist(), schedule, strict=True)):
        groups.setdefault((each, how), []).append(number)
    rows = sorted(groups.items(), key=lambda item: -int(time[item[1]].sum()))
    facts: dict[str, Value] = {
        "loops": table.num_rows,
        "constructs": len(groups),
        "chunks": workload.tables["loop_chunks"].num_rows,
        "in_loops_ps": int(time.sum()),
    }
    found = columns(
        loop=[names[key[0]] for key, _ in rows],
        schedule=[key[1] for key, _ in rows],
        executions=np.array([len(own) for _, own in rows]),
        mean_iterations=np.array([_mean_known(length[own]) for _, own in rows]),
        chunks=np.array([int(chunks[own].sum()) for _, own in rows]),
        cpu_ps=np.array([int(time[own].sum()) for _, own in rows]),
    )
    return Section("loops", facts, {"loops": found}, "Chunks are those of the traced run, which had one thread.")


def _mean_known(length: np.ndarray) -> float:
    """Of what is not negative, NaN of none."""
    known = length[length >= 0]
    return float(known.mean()) if len(known) else np.nan


def graph(workload: Workload) -> Section | None:
    """What the task graph of the rank with most time in tasks and loops allows, whatever the machine."""
    if not has_tasks(workload):
        return None
    rank = _busiest(workload)
    try:
        found = graph_of_rank(workload, rank)
    except WorkloadError as error:
        return Section("task graph", {"rank": rank}, note=f"The graph cannot be followed: {error}")
    if found is None or not found.instances.any():
        return None
    facts: dict[str, Value] = {
        "rank": rank,
        "instances": int(found.instances.sum()),
        "edges": found.edges,
        "depth": int(found.depth.max()),
        "width": int(found.width.max()),
        "work_ps": int(found.work_ps.sum()),
        "critical_path_ps": int(found.span_ps.sum()),
        "average_parallelism": _ratio(int(found.work_ps.sum()), int(found.span_ps.sum())),
        "largest_phase_parallelism": max(
            _ratio(int(work), int(span)) for work, span in zip(found.work_ps, found.span_ps, strict=True)
        ),
    }
    order = np.argsort(-found.work_ps, kind="stable")
    order = order[found.work_ps[order] > 0]
    phases = columns(
        phase=order, before_operation=found.operation[order], iteration=found.iteration[order],
        instances=found.instances[order], depth=found.depth[order], width=found.width[order],
        work_ps=found.work_ps[order], critical_path_ps=found.span_ps[order],
        parallelism=found.work_ps[order] / np.maximum(found.span_ps[order], 1),
    )  # fmt: skip
    return Section(
        "task graph", facts, {"phases": phases, "speed_up": bounds(found)}, _graph_note(found),
        {
            "phases": "Compute phases: what the initial task did from one MPI call, or iteration, to the next, with "
            "all that it created. -1: it lies in no iteration.",
            "speed_up": "No schedule is faster than the work over the cores nor than the critical path (at most); no "
            "schedule that leaves no core idle while something is ready is slower than Graham's bound (at least).",
        },
    )  # fmt: skip


def _graph_note(found: GraphOfRank) -> str:
    note = (
        "Depth: instances on the longest chain. Width: most that can run at once, if all took the same time and ran as "
        "soon as they can. Critical path: the time on unlimited cores with a runtime system that costs nothing, the "
        "creating task's own time included. Depth and width are those of the phase that has most; work and critical "
        f"path are sums over phases. Static loops are cut into up to {found.parts} parts."
    )
    if found.operations_inside:
        note += f" {found.operations_inside:,} MPI calls inside of phases take no time here."
    if found.is_part:
        note += " The graph is that of the first part of the rank: the whole would not fit into memory."
    if found.is_narrow:
        note += (
            f" Where more than {found.most_cores:,} instances are ready at once, the critical path is an upper bound."
        )
    return note


def bounds(found: GraphOfRank) -> pa.Table:
    """How much faster than on one core the traced work can run on more, by work and critical path of each phase."""
    cores = 2 ** np.arange(11)
    work, span = found.work_ps.astype(np.float64), found.span_ps.astype(np.float64)
    least = np.maximum(work[:, None] / cores, span[:, None]).sum(axis=0)
    most = (work[:, None] / cores + span[:, None] * (1 - 1 / cores)).sum(axis=0)
    return columns(cores=cores, speed_up_at_most=work.sum() / least, speed_up_at_least=work.sum() / most)


def _ratio(work: int, span: int) -> float:
    return work / span if span else 0.0


def _busiest(workload: Workload) -> int:
    time = np.zeros(workload.num_ranks, np.int64)
    are_created = created(workload)
    np.add.at(time, workload.column("tasks", "rank")[are_created], workload.column("tasks", "cpu_ps")[are_created])
    np.add.at(time, workload.column("loop_chunks", "rank"), workload.column("loop_chunks", "cpu_ps"))
    if not time.any():
        time = np.bincount(workload.column("events", "rank"), minlength=workload.num_ranks)
    return int(np.argmax(time))
