"""A figure of ``stats.json``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True)
class Statistic:
    """One figure of ``stats.json``. ``ci_low`` and ``ci_high`` are None when nothing was sampled."""

    value: float | int
    unit: str
    kind: Literal["total", "mean", "ratio", "count"]
    description: str
    ci_low: float | None = None
    ci_high: float | None = None


def with_half_width(half_width: float, figures: dict[str, Statistic]) -> dict[str, Statistic]:
    """Intervals of compute time and of the makespan, as far as its critical path computes; relative ``half_width`` 0
    leaves all as it is."""
    if not half_width:
        return figures
    result = dict(figures)
    compute, makespan = figures["application.compute"], figures["application.makespan"]
    on_path = figures.get("critical_path.compute")
    share = float(on_path.value) if on_path is not None else float(makespan.value)
    for name, each, moved in (
        ("application.compute", compute, float(compute.value)), ("application.makespan", makespan, share)
    ):  # fmt: skip
        value = float(each.value)
        result[name] = replace(each, ci_low=max(value - half_width * moved, 0.0), ci_high=value + half_width * moved)
    return result
