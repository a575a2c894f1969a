"""What an extrapolation says of itself: the notes of its workload, ``extrapolation.json`` and the printed table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from manyscale.models.workload import Workload
from manyscale.models.workload.notes import Note, changes, informs
from manyscale.runner.run.extrapolation.neighbours import Pattern
from manyscale.runner.run.extrapolation.quantities import Followed
from manyscale.runner.run.extrapolation.workload import Extrapolated
from manyscale.sampling.ranks.extrapolation import CONFIDENCE, CONSTANT, Trend


@dataclass(frozen=True)
class Trace:
    """One of the traces, its partners and its values."""

    path: str
    workload: Workload
    pattern: Pattern
    followed: Followed

    @property
    def num_ranks(self) -> int:
        return self.workload.num_ranks


@dataclass(frozen=True)
class Quantity:
    """A followed value: ``scales`` says whether the workload was scaled with it, or it is only reported."""

    name: str
    unit: str
    trend: Trend
    scales: bool


@dataclass(frozen=True)
class Extrapolation:
    """All that is known of the new workload, from traces in order of their ranks. ``compute``: seconds per rank (mean),
    and bounds or None. ``checks``: per smaller trace, messages and bytes of the template laid out on its ranks, and its
    own."""

    traces: tuple[Trace, ...]
    result: Extrapolated
    pattern: Pattern
    quantities: tuple[Quantity, ...]
    compute: tuple[float, float | None, float | None]
    checks: tuple[dict[str, Any], ...]

    @property
    def template(self) -> Trace:
        """The trace that is laid out on the new ranks: the largest."""
        return self.traces[-1]


def notes(found: Extrapolation) -> tuple[Note, ...]:
    """What every report of the workload has to repeat."""
    template, traces, ranks = found.template, found.traces, found.pattern.num_ranks
    times = ranks / template.num_ranks
    sources = "; ".join(f"{each.num_ranks} ranks {each.path} (digest {each.workload.digest})" for each in traces)
    said = [
        changes(
            "extrapolated",
            f"EXTRAPOLATED, not traced: {ranks} ranks ({found.pattern}), {times:.3g} times the largest traced, "
            f"from {sources}",
        ),
        informs(
            "extrapolation",
            f"extrapolated operations: those of the {template.num_ranks}-rank trace ({template.pattern}), each rank's "
            f"from one of its boundary class; {_checked(found.checks)}",
        ),
        informs("extrapolation", _compute_note(found)),
    ]
    for kind, unit in (("burst durations", "s"), ("sizes", "B")):
        trends = [each for each in found.quantities if each.scales and each.unit == unit]
        moving = [each for each in trends if each.trend.form != CONSTANT]
        listed = "; ".join(f"{each.name}: {_law(each.trend)} = {_value(each.trend, unit)}" for each in moving)
        still = f"{len(trends) - len(moving)} of {len(trends)} constant"
        if trends:
            said.append(informs("extrapolation", f"extrapolated {kind}, {still}{': ' if listed else ''}{listed}"))
    if len(traces) == 3:
        text = (
            "three rank counts hardly tell the forms of trends apart: with noise of 5 %, about a quarter of the values "
            "lie outside such intervals (a tenth with five rank counts)"
        )
        said.append(informs("few-rank-counts", text))
    if found.result.num_other:
        text = (
            f"{found.result.num_other} of {template.num_ranks} ranks of the largest trace have other operations than "
            "most of their boundary class; the new ranks have those of the most frequent kind"
        )
        said.append(changes("unlike-ranks", text, count=found.result.num_other))
    lost = [level for level in ("counters", "measured") if template.workload.tables[level].num_rows]
    if lost:
        text = f"the traces' {' and '.join(lost)} are not extrapolated: left out"
        said.append(informs("counters-missing", text))
    return tuple(said)


def figures(found: Extrapolation) -> dict[str, Any]:
    """The content of ``extrapolation.json``."""
    seconds, low, high = found.compute
    return {
        "schema": 1,
        "ranks": found.pattern.num_ranks,
        "pattern": str(found.pattern),
        "digest": found.result.workload.digest,
        "confidence": CONFIDENCE,
        "traces": [
            {"path": each.path, "ranks": each.num_ranks, "pattern": str(each.pattern), "digest": each.workload.digest}
            for each in found.traces
        ],
        "workload": {
            **_counts(found.result.workload),
            "compute_per_rank_s": {"value": seconds, "ci_low": low, "ci_high": high},
        },
        "checks": list(found.checks),
        "quantities": [_quantity(each) for each in found.quantities],
    }


def _quantity(quantity: Quantity) -> dict[str, Any]:
    trend = quantity.trend
    return {
        "name": quantity.name,
        "unit": quantity.unit,
        "scales_the_workload": quantity.scales,
        "form": trend.form.name,
        "parameters": list(trend.parameters),
        "ranks": list(trend.ranks),
        "values": list(trend.values),
        "prediction": trend.prediction,
        "ci_low": trend.ci_low,
        "ci_high": trend.ci_high,
        "leave_one_out_error": trend.error,
    }


def _counts(workload: Workload) -> dict[str, int]:
    sends = workload.send_rows
    return {
        "operations": workload.num_operations,
        "messages": len(sends),
        "bytes": int(workload.column("operations", "bytes")[sends].sum()),
    }


def printed(found: Extrapolation) -> str:
    """The table of trends, and the lines below it."""
    counts = [str(each.num_ranks) for each in found.traces]
    rows = [
        (
            "quantity",
            "unit",
            *counts,
            "form",
            str(found.pattern.num_ranks),
            f"{100 * CONFIDENCE:.0f} % interval",
            "left-out error",
        )
    ]
    for quantity in found.quantities:
        trend = quantity.trend
        there = dict(zip(trend.ranks, trend.values, strict=True))
        values = [_number(there.get(each.num_ranks)) for each in found.traces]
        interval = "not known" if trend.ci_low is None else f"{_number(trend.ci_low)} to {_number(trend.ci_high)}"
        error = "" if trend.error is None else f"{100 * trend.error:.1f} %"
        name = quantity.name if quantity.scales else f"({quantity.name})"
        rows.append((name, quantity.unit, *values, trend.form.name, _number(trend.prediction), interval, error))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.append("in brackets: not used, since the operations and partners say it; below, what the workload has")
    made = _counts(found.result.workload)
    lines.append(f"{found.pattern}: {made['operations']} operations, {made['messages']} messages, {made['bytes']} B")
    lines += [_compute_note(found), _checked(found.checks)]
    return "\n".join(lines)


def _compute_note(found: Extrapolation) -> str:
    seconds, low, high = found.compute
    value = f"extrapolated compute: {_number(seconds)} s per rank (mean)"
    if low is None or high is None:
        return f"{value}; of two rank counts no error can be said"
    interval = f"{value}, {100 * CONFIDENCE:.0f} % interval {_number(low)} to {_number(high)} s"
    if not seconds:
        return interval
    return f"{interval}; for its ends run with --set cpu_ratio={low / seconds:.4g} and {high / seconds:.4g}"


def _checked(checks: Sequence[dict[str, Any]]) -> str:
    parts = []
    for check in checks:
        if "not_checked" in check:
            parts.append(f"{check['ranks']} ranks cannot be checked")
            continue
        made, real = check["predicted"], check["traced"]
        shares = [
            f"{name} {'equal' if made[name] == real[name] else _percent(made[name], real[name])}"
            for name in ("operations", "messages", "bytes")
        ]
        parts.append(f"{check['ranks']} ranks: {', '.join(shares)}")
    return f"laid out on the smaller traces' ranks it gives, compared with those traces, for {'; '.join(parts)}"


def _percent(made: float, real: float) -> str:
    return f"{100 * (made / real - 1):+.2f} %" if real else f"{made:+.0f}"


def _law(trend: Trend) -> str:
    numbers = dict(zip("ab", trend.parameters, strict=False))
    return f"{trend.form.name} with {', '.join(f'{name} = {_number(value)}' for name, value in numbers.items())}"


def _value(trend: Trend, unit: str) -> str:
    if trend.ci_low is None:
        return f"{_number(trend.prediction)} {unit}"
    return f"{_number(trend.prediction)} {unit} ({_number(trend.ci_low)} to {_number(trend.ci_high)})"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
