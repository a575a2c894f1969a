"""What a profile holds, counted anew from a workload's tables for tests to compare."""

from __future__ import annotations

from collections import Counter

from manyscale.models.workload import Workload


def stacks(workload: Workload) -> list[tuple[str, ...]]:
    """The stack of each row of ``stack_samples``, as names from the outermost frame."""
    names = workload.tables["frames"].column("name").to_pylist()
    known = workload.tables["stacks"].column("frames").to_pylist()
    return [tuple(names[frame] for frame in known[row]) for row in workload.column("stack_samples", "stack_id")]


def leaves(workload: Workload) -> Counter[str]:
    """Snapshots by innermost frame."""
    count: Counter[str] = Counter()
    for stack, weight in zip(stacks(workload), workload.column("stack_samples", "weight").tolist(), strict=True):
        count[stack[-1]] += weight
    return count


def share(workload: Workload, name: str, rank: int | None = None) -> float:
    """Which part of the snapshots (of a rank) has a frame of this name."""
    ranks = workload.column("stack_samples", "rank").tolist()
    weights = workload.column("stack_samples", "weight").tolist()
    rows = list(zip(stacks(workload), ranks, weights, strict=True))
    rows = [row for row in rows if rank is None or row[1] == rank]
    return sum(weight for stack, _, weight in rows if name in stack) / sum(weight for _, _, weight in rows)


def counters(workload: Workload) -> dict[tuple[int, int, int], dict[str, float]]:
    """Counters by (rank, thread, unit)."""
    result: dict[tuple[int, int, int], dict[str, float]] = {}
    for row in workload.tables["unit_counters"].to_pylist():
        result.setdefault((row["rank"], row["thread"], row["unit_id"]), {})[row["counter"]] = row["value"]
    return result
