"""Of a workload: its detailed level, intervals and call stacks."""

from __future__ import annotations

import numpy as np

from manyscale.models.workload import Workload
from manyscale.runner.run.questions.contents.section import Section, Value, columns, shares


def detail(workload: Workload) -> Section | None:
    """What was traced of blocks and accesses: of which ranks, instances and iterations, and how much."""
    table = workload.tables["segments"]
    if not table.num_rows:
        return None
    rank, instance, executions, accesses, instructions = (
        workload.column("segments", name)
        for name in ("rank", "task_instance_id", "num_blocks", "num_accesses", "num_instructions")
    )
    facts: dict[str, Value] = {
        "basic_blocks": workload.tables["blocks"].num_rows,
        "functions": len(set(workload.tables["blocks"].column("function").to_pylist())),
        "block_executions": int(executions.sum()),
        "memory_accesses": int(accesses.sum()),
        "ranks": len(np.unique(rank)),
    }
    of_rank = np.unique(rank)
    by_rank = {"rank": of_rank, "segments": np.bincount(rank)[of_rank]}
    is_counted = bool(np.all(instructions >= 0))
    if is_counted:
        facts["instructions"] = int(instructions.sum())
        by_rank["instructions"] = np.bincount(rank, instructions)[of_rank].astype(np.int64)
    by_rank["memory_accesses"] = np.bincount(rank, accesses)[of_rank].astype(np.int64)
    if np.any(instance >= 0):
        known = instance >= 0
        key = rank[known].astype(np.int64) << 32 | instance[known]
        facts["task_instances"] = len(np.unique(key))
    note = "" if is_counted else "The format does not say how many instructions a block has."
    return Section("detailed level", facts, {"detailed_ranks": columns(**by_rank)}, note)


def intervals(workload: Workload) -> Section | None:
    """Basic-block vectors of intervals."""
    if not workload.tables["intervals"].num_rows:
        return None
    number, thread, length = (
        workload.column("intervals", name) for name in ("interval_id", "thread", "num_instructions")
    )
    of_interval = np.zeros(int(number.max()) + 1, np.int64)
    np.add.at(of_interval, number, length)
    facts: dict[str, Value] = {
        "intervals": len(of_interval),
        "threads": len(np.unique(thread)),
        "blocks": len(np.unique(workload.column("interval_blocks", "block"))),
        "instructions": int(length.sum()),
        "mean_instructions": float(of_interval.mean()),
    }
    return Section("intervals", facts)


def stacks(workload: Workload) -> Section | None:
    """Call stacks of sampling units, by the function that ran."""
    units = workload.tables["stack_units"]
    if not units.num_rows:
        return None
    stack, weight = (workload.column("stack_samples", name) for name in ("stack_id", "weight"))
    thread, rank, start, end = (
        workload.column("stack_units", name) for name in ("thread", "rank", "start_ps", "end_ps")
    )
    names = workload.tables["frames"].column("name").to_pylist()
    offsets, frames = workload.lists("stacks", "frames")
    of_stack = np.zeros(len(offsets) - 1, np.int64)
    np.add.at(of_stack, stack, weight)
    known = offsets[1:] > offsets[:-1]
    innermost = np.zeros(len(names), np.int64)
    np.add.at(innermost, frames[offsets[1:][known] - 1], of_stack[known])
    order = [int(each) for each in np.argsort(-innermost, kind="stable")[:1000] if innermost[each]]
    table = columns(
        function=[names[each] for each in order], snapshots=innermost[order],
        snapshots_share=shares(innermost)[order],
    )  # fmt: skip
    facts: dict[str, Value] = {
        "sampling_units": units.num_rows,
        "threads": len(np.unique(rank.astype(np.int64) << 32 | thread)),
        "call_stacks": len(of_stack),
        "snapshots": int(weight.sum()),
        "functions": len(names),
        "profiled_ps": int((end - start).sum()),
    }
    return Section(
        "call stacks", facts, {"functions": table}, "Functions by the snapshots in which they were innermost."
    )
