"""Of a workload: the whole, its ranks, regions of code, iterations and counters."""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.workload import PhaseKind, Workload
from manyscale.models.workload.columns import one_chunk, to_numpy
from manyscale.models.workload.iterations import find_iterations
from manyscale.runner.run.questions.contents.section import Section, Value, columns
from manyscale.runner.run.questions.contents.tasks import created
from manyscale.runner.run.questions.iterations import iteration_figures

_MIN_REPEATS: Final = 3


def compute_ps(workload: Workload) -> np.ndarray:
    """int64[ranks]: compute of each rank in the traced run, sleep apart."""
    kind, rank, duration = (workload.column("phases", name) for name in ("kind", "rank", "duration_ps"))
    found = np.zeros(workload.num_ranks, np.int64)
    own = kind == PhaseKind.compute
    np.add.at(found, rank[own], duration[own])
    return found


def whole(workload: Workload) -> Section:
    """How large the trace is, and how long its run took."""
    compute = compute_ps(workload)
    kind, duration = (workload.column("phases", name) for name in ("kind", "duration_ps"))
    slept = duration[kind == PhaseKind.sleep]
    facts: dict[str, Value] = {
        "format": workload.source_format or "workload",
        "ranks": workload.num_ranks,
        "operations": workload.num_operations,
        "compute_phases": int(np.count_nonzero(kind == PhaseKind.compute)),
        "compute_ps": int(compute.sum()),
    }
    if len(slept):
        facts["sleep_ps"] = int(slept.sum())
    last = int(workload.column("measured", "end_ps").max(initial=0))
    if last:
        facts["traced_run_ps"] = last
    return Section("trace", facts, note="Times are those of the traced run, on the machine that was traced.")


def ranks(workload: Workload) -> Section | None:
    """What each rank did; nothing of one rank."""
    if workload.num_ranks == 1:
        return None
    compute = compute_ps(workload)
    rows = workload.send_rows
    sender = workload.column("operations", "rank")[rows]
    sent = np.zeros(workload.num_ranks, np.int64)
    np.add.at(sent, sender, workload.column("operations", "bytes")[rows])
    mean = float(compute.mean())
    facts: dict[str, Value] = {
        "mean_compute_ps": round(mean),
        "longest_compute_ps": int(compute.max()),
        "shortest_compute_ps": int(compute.min()),
    }
    if mean:
        facts["load_balance_ratio"] = mean / float(compute.max())
    are_created = created(workload)
    instances = np.bincount(workload.column("tasks", "rank")[are_created], minlength=workload.num_ranks)
    table = columns(
        rank=np.arange(workload.num_ranks),
        compute_ps=compute,
        operations=np.diff(workload.rank_offsets),
        messages_sent=np.bincount(sender, minlength=workload.num_ranks),
        sent_bytes=sent,
        **({"task_instances": instances} if are_created.any() else {}),
    )
    note = "Load balance: mean over longest compute of a rank. Messages are those between two ranks; collectives apart."
    return Section("ranks", facts, {"ranks": table}, note)


def regions(workload: Workload) -> Section | None:
    """Time by region of the code, where the trace names any."""
    names = workload.tables["regions"].column("name").to_pylist()
    region, duration, rank = (workload.column("phases", name) for name in ("region_id", "duration_ps", "rank"))
    if not names or not np.any(duration[region >= 0]):
        return None
    known = region >= 0
    count = np.bincount(region[known], minlength=len(names))
    time = np.zeros(len(names), np.int64)
    np.add.at(time, region[known], duration[known])
    pairs = np.unique(region[known].astype(np.int64) * workload.num_ranks + rank[known])
    of_ranks = np.bincount(pairs // workload.num_ranks, minlength=len(names))
    order = [int(each) for each in np.argsort(-time, kind="stable") if count[each]]
    table = columns(
        region=[names[each] for each in order], phases=count[order], ranks=of_ranks[order], compute_ps=time[order],
        time_share=(time / max(1, int(duration.sum())))[order],
    )  # fmt: skip
    facts: dict[str, Value] = {
        "regions": len(order),
        "named_time_share": float(time.sum()) / max(1, int(duration.sum())),
    }
    return Section("regions", facts, {"regions": table})


def iterations(workload: Workload) -> Section | None:
    """The main loop: marked in the source, else found by its period."""
    found = find_iterations(workload, _MIN_REPEATS, 0)
    figures = iteration_figures(workload, found)
    if figures is None:
        return None
    time = np.rint(figures.compute_s * 1e12).astype(np.int64)
    facts: dict[str, Value] = {
        "iterations": int(figures.count_of_rank.max()),
        "how": "marked in the source" if figures.annotated else "found by their period",
        "operations_share": figures.operations_share,
        "compute_share": figures.compute_share,
        "mean_compute_ps": round(float(time.mean())),
    }
    table = columns(
        iteration=np.arange(len(time)), operations=figures.operations, compute_ps=time,
        of_the_mean=time / max(1.0, float(time.mean())),
    )  # fmt: skip
    return Section(
        "iterations", facts, {"iterations": table}, "Of each iteration the mean over the ranks that have it."
    )


_COUNTED: Final = {"counters": "phases", "task_counters": "task instances", "chunk_counters": "chunks of loops"}


def counters(workload: Workload) -> Section | None:
    """Hardware counters of phases, task instances and chunks, by name."""
    of: list[str] = []
    named: list[str] = []
    counts: list[int] = []
    totals: list[float] = []
    for level, what in _COUNTED.items():
        table = workload.tables[level]
        if not table.num_rows:
            continue
        column = one_chunk(table.column("counter"))
        names = column.dictionary.to_pylist()
        code, value = to_numpy(column).astype(np.int64), to_numpy(table.column("value")).astype(np.float64)
        count, total = np.bincount(code, minlength=len(names)), np.bincount(code, value, minlength=len(names))
        order = [int(each) for each in np.argsort(-count, kind="stable") if count[each]]
        of += [what] * len(order)
        named += [names[each] for each in order]
        counts += count[order].tolist()
        totals += total[order].tolist()
    if not of:
        return None
    rows = columns(counter=named, of=of, counted=np.array(counts), total=np.array(totals))
    facts: dict[str, Value] = {"counters": len(set(named)), "counted": ", ".join(dict.fromkeys(of))}
    return Section("counters", facts, {"counters": rows})
