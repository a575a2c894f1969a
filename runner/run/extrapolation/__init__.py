"""A workload for more ranks than were traced, from traces of one program on fewer.

Trends of burst durations and sizes (run/extrapolation/quantities.py, sampling/ranks/extrapolation.py) scale the largest
trace, whose pattern of partners (run/extrapolation/neighbours.py) is laid out on the wanted number of ranks
(run/extrapolation/workload.py). The smaller traces say how far that holds: the largest is laid out on their ranks, too,
and its messages are compared with theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final, TypeVar

import numpy as np

from manyscale.models.network.matching import match
from manyscale.models.network.operations import Operations
from manyscale.models.workload import OperationKind, Workload, WorkloadError
from manyscale.runner.errors import UserError
from manyscale.runner.run.extrapolation.neighbours import (
    Grid,
    Pattern,
    PatternError,
    Shape,
    edges_of,
    find_pattern,
)
from manyscale.runner.run.extrapolation.quality import (
    Extrapolation,
    Quantity,
    Trace,
    notes,
)
from manyscale.runner.run.extrapolation.quantities import (
    COMPUTE,
    OTHERS,
    PS,
    SMALLEST_SHARE,
    burst_name,
    follow,
)
from manyscale.runner.run.extrapolation.workload import Ratios, extrapolate_workload
from manyscale.sampling.ranks.extrapolation import Trend, fit_trend

_Value = TypeVar("_Value")
_NO_WORK: Final = (OperationKind.test, OperationKind.other)  # how often they come is a matter of timing


def extrapolation(traces: Sequence[tuple[str, Workload]], num_ranks: int, shape: Shape | None = None) -> Extrapolation:
    """The workload of ``num_ranks`` ranks, from (path, trace) pairs of one program. Raises UserError, one line, for
    traces that are not of one program, or whose pattern is not known or does not fit."""
    ordered = sorted(traces, key=lambda each: each[1].num_ranks)
    _refuse_mixtures(ordered)
    template = _trace(*ordered[-1], None)
    known = [*(_trace(path, workload, template.pattern) for path, workload in ordered[:-1]), template]
    pattern = _at(template.path, lambda: template.pattern.resized(num_ranks, shape))
    bursts, sizes, totals, pooled = _trends(known, num_ranks)
    ratios = _ratios(template, bursts, sizes, pooled, num_ranks)
    name = f"{template.workload.name}-extrapolated-{num_ranks}"
    result = _at(
        template.path, lambda: extrapolate_workload(template.workload, template.pattern, pattern, ratios, name)
    )
    compute = _compute(result.workload, totals[COMPUTE][0] if COMPUTE in totals else None)
    checks = tuple(_check(trace, template, bursts, sizes, pooled) for trace in known[:-1])
    quantities = (
        *(Quantity(burst_name(one), "s", trend, True) for one, trend in bursts.items()),
        *(Quantity(one, "B", trend, True) for one, trend in sizes.items()),
        *(Quantity(one, unit, trend, False) for one, (trend, unit) in totals.items()),
    )
    found = Extrapolation(tuple(known), result, pattern, quantities, compute, checks)
    workload = replace(result.workload, notes=(*notes(found), *result.workload.notes))
    _at(template.path, lambda: match(Operations(workload), workload))
    return replace(found, result=replace(result, workload=workload))


def _at(path: str, call: Callable[[], _Value]) -> _Value:
    """What ``call`` returns; its PatternError with the trace's name before it."""
    try:
        return call()
    except (PatternError, WorkloadError) as error:
        raise UserError(f"{path}: {error}") from None


def _trace(path: str, workload: Workload, like: Pattern | None) -> Trace:
    pattern = _at(path, lambda: find_pattern(edges_of(workload), like))
    return Trace(path, workload, pattern, follow(workload, pattern))


def _refuse_mixtures(ordered: Sequence[tuple[str, Workload]]) -> None:
    kinds = []
    for path, workload in ordered:
        if workload.tables["dependencies"].num_rows:
            raise UserError(f"{path}: its operations have dependencies, not an order (GOAL); give a trace of MPI calls")
        codes = set(np.unique(workload.column("operations", "kind")).tolist())
        kinds.append({OperationKind(code) for code in codes} - set(_NO_WORK))
    for (path, one), (next_path, other) in pairwise(ordered):
        if one.num_ranks == other.num_ranks:
            raise UserError(
                f"{path} and {next_path}: both have {one.num_ranks} ranks; give one trace of each number of ranks"
            )
    for (path, _), these in zip(ordered, kinds, strict=True):
        if these != kinds[-1]:
            kind = min(these ^ kinds[-1])
            has, lacks = (path, ordered[-1][0]) if kind in these else (ordered[-1][0], path)
            raise UserError(f"{has}: calls {kind.name}, {lacks} does not; give traces of one program")


def _trends(
    known: Sequence[Trace], num_ranks: int
) -> tuple[dict[int, Trend], dict[str, Trend], dict[str, tuple[Trend, str]], frozenset[int]]:
    """Trends of burst classes, sizes and totals; and the burst classes that are in OTHERS."""
    template = known[-1].followed
    total = sum(spent for spent, _ in template.bursts.values())
    pooled = frozenset(
        one
        for one, (spent, _) in template.bursts.items()
        if spent < SMALLEST_SHARE * total or not all(each.followed.bursts.get(one, (0, 0))[0] for each in known)
    )

    def mean_seconds(trace: Trace, classes: frozenset[int]) -> float:
        values = [trace.followed.bursts[one] for one in classes if one in trace.followed.bursts]
        passed = sum(times for _, times in values)
        return PS * sum(spent for spent, _ in values) / passed if passed else 0.0

    large = [one for one in template.bursts if one not in pooled]
    bursts = {
        one: _fit(known, [mean_seconds(each, frozenset([one])) for each in known], num_ranks)
        for one in sorted(large, key=lambda one: -template.bursts[one][0])
    }
    others = [mean_seconds(each, pooled) for each in known]
    if others[-1]:
        bursts[OTHERS] = _fit(known, others, num_ranks)
    sizes = {
        name: _fit(known, [each.followed.sizes.get(name, 0.0) for each in known], num_ranks)
        for name in template.size_names
        if name in template.sizes
    }
    totals = {
        name: (_fit(known, [each.followed.totals[name][0] for each in known], num_ranks), unit)
        for name, (value, unit) in template.totals.items()
        if value
    }
    return bursts, sizes, totals, pooled


def _fit(known: Sequence[Trace], values: Sequence[float], num_ranks: int) -> Trend:
    """The trend through the traces that have the value at all."""
    there = [(each.num_ranks, value) for each, value in zip(known, values, strict=True) if value > 0]
    return fit_trend([ranks for ranks, _ in there], [value for _, value in there], num_ranks)


def _ratios(
    template: Trace, bursts: dict[int, Trend], sizes: dict[str, Trend], pooled: frozenset[int], num_ranks: int
) -> Ratios:
    """What each row of the template is multiplied with for so many ranks."""
    followed, base = template.followed, template.num_ranks
    distinct, of_phase = np.unique(followed.burst_class, return_inverse=True)
    trends = [bursts.get(OTHERS if int(one) in pooled else int(one)) for one in distinct]
    by_class = np.array([1.0 if trend is None else trend.ratio(num_ranks, base) for trend in trends])
    of_size = [sizes[name].ratio(num_ranks, base) if name in sizes else 1.0 for name in followed.size_names]
    by_size = np.array([*of_size, 1.0])
    return Ratios(by_class[of_phase], by_size[followed.sent_class], by_size[followed.received_class])


def _compute(workload: Workload, total: Trend | None) -> tuple[float, float | None, float | None]:
    """Mean compute per rank in s; its bounds are those of the trend of the total, and include the value itself: the
    bounds of single bursts, many of them short and noisy, say little of their sum."""
    seconds = float(workload.column("phases", "duration_ps").sum()) * PS / workload.num_ranks
    if total is None or total.ci_low is None or total.ci_high is None:
        return seconds, None, None
    return seconds, min(seconds, total.ci_low), max(seconds, total.ci_high)


def _check(
    trace: Trace, template: Trace, bursts: dict[int, Trend], sizes: dict[str, Trend], pooled: frozenset[int]
) -> dict[str, Any]:
    """The template laid out on the ranks of a smaller trace, against that trace."""
    check: dict[str, Any] = {"path": trace.path, "ranks": trace.num_ranks}
    real = trace.workload
    try:
        shape = trace.pattern.shape if isinstance(trace.pattern, Grid) else None
        pattern = template.pattern.resized(trace.num_ranks, shape)
        ratios = _ratios(template, bursts, sizes, pooled, trace.num_ranks)
        made = extrapolate_workload(template.workload, template.pattern, pattern, ratios, "check").workload
    except PatternError as error:
        return check | {"not_checked": str(error)}
    for side, workload in (("predicted", made), ("traced", real)):
        sends = workload.send_rows
        check[side] = {
            "messages": len(sends),
            "bytes": int(workload.column("operations", "bytes")[sends].sum()),
            "operations": workload.num_operations,
            "compute_s": float(workload.column("phases", "duration_ps").sum()) * PS / workload.num_ranks,
        }
    return check
