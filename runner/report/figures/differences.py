"""Figures of differences: what-ifs against their base, and one run against another."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from manyscale.runner.report.figures.choices import View, with_views
from manyscale.runner.report.palette import GREY, LONGER, SHORTER, axis, bar_marker
from manyscale.runner.report.text import duration, signed_duration, signed_percent, time_unit

MOST_BARS: Final = 20  # of a group of differences
_BAR_PIXELS: Final = 30
_WHAT: Final = "what_if"
_BASE: Final = "base"
_FIXED: Final = ("point_id", _WHAT, "makespan_seconds", "base_seconds", "change_seconds", "speedup")
_TEXT: Final = {"textposition": "auto", "insidetextfont": {"color": "#ffffff"}, "outsidetextfont": {"color": "#1c2530"}}
_GROUPS: Final = {
    "step": "By step",
    "state": "By state",
    "critical path": "Critical path",
    "kernel": "By kernel",
    "launch": "By launch",
    "place": "By region and call",
    "rank": "By rank and state",
}


def what_if(table: pa.Table) -> dict[str, Any]:
    """Plotly's figure of the table of ``what_if.parquet``: the change of the predicted time against the base at the
    same values of the other axes, in per cent, as bars on a zero line. Buttons change to the times themselves."""
    rows = table.to_pylist()
    others = [name for name in table.column_names if name not in _FIXED]
    series: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        name = ", ".join(f"{other.rsplit('.', 1)[-1]} = {row[other]}" for other in others)
        series.setdefault(name, []).append(row)
    length, unit = time_unit(max((row["makespan_seconds"] for row in rows), default=1.0))
    asked = [[row for row in mine if row[_WHAT] != _BASE] for mine in series.values()]
    data: list[dict[str, Any]] = []
    for i, name in enumerate(series):
        colour = GREY if len(series) == 1 else bar_marker(i)["color"]
        marker = {"color": colour} if len(series) == 1 else bar_marker(i)
        data.append({"type": "bar", "orientation": "h", "name": name or "predicted time", "marker": marker, **_TEXT})
    change = View(
        "Change",
        {
            "x": [[_change(row) for row in mine] for mine in asked],
            "y": [[row[_WHAT] for row in mine] for mine in asked],
            "text": [[_change_text(row) for row in mine] for mine in asked],
            "hovertemplate": ["%{y}: %{text}<extra>%{fullData.name}</extra>"] * len(series),
            "marker.color": [
                [LONGER if (_change(row) or 0.0) > 0 else SHORTER for row in mine]
                if len(series) == 1
                else data[i]["marker"]["color"]
                for i, mine in enumerate(asked)
            ],
        },
        {
            "xaxis.title.text": "change of the predicted time against the base (%)",
            "height": 110 + _BAR_PIXELS * sum(map(len, asked)),
        },
    )
    time = View(
        "Time",
        {
            "x": [[row["makespan_seconds"] / length for row in mine] for mine in series.values()],
            "y": [[row[_WHAT] for row in mine] for mine in series.values()],
            "text": [[duration(row["makespan_seconds"]) for row in mine] for mine in series.values()],
            "hovertemplate": ["%{y}: %{text}<extra>%{fullData.name}</extra>"] * len(series),
            "marker.color": [trace["marker"]["color"] for trace in data],
        },
        {"xaxis.title.text": f"predicted time ({unit})", "height": 110 + _BAR_PIXELS * len(rows)},
    )
    layout = {
        "xaxis": axis("", rangemode="tozero", zeroline=True), "yaxis": _names_axis(), "barmode": "group", "bargap": 0.3,
        "showlegend": len(series) > 1,
    }  # fmt: skip
    return with_views(data, layout, [change, time])


def _change(row: dict[str, Any]) -> float | None:
    """Per cent of the base; None where there is none to compare with."""
    base, change = row["base_seconds"], row["change_seconds"]
    return None if not base or change is None else 100 * change / base


def _change_text(row: dict[str, Any]) -> str:
    share = _change(row)
    return "" if share is None else f"{signed_percent(share)} ({signed_duration(row['change_seconds'])})"


def compare(table: pa.Table) -> dict[str, Any]:
    """Plotly's figure of a table of differences (``run/compare.py``: group, item, a, b, difference, unit): B - A as
    bars on a zero line, those that differ most of one group at a time; buttons choose the group."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        if row["group"] in _GROUPS and row["difference"]:
            groups.setdefault(row["group"], []).append(row)
    views = [_group_view(_GROUPS[name], groups[name][:MOST_BARS]) for name in _GROUPS if name in groups]
    if not views:
        return {"data": [], "layout": {}}
    data = [{"type": "bar", "orientation": "h", "name": "B - A", "marker": {"color": GREY}, **_TEXT}]
    layout = {"xaxis": axis("", zeroline=True), "yaxis": _names_axis(), "bargap": 0.3, "showlegend": False}
    return with_views(data, layout, views)


def _group_view(label: str, rows: list[dict[str, Any]]) -> View:
    differences = [float(row["difference"]) for row in rows]
    unit = str(rows[0]["unit"])
    length = 1.0
    if unit == "s":
        length, unit = time_unit(max(map(abs, differences)))
    texts = []
    for row, difference in zip(rows, differences, strict=True):
        share = f" ({signed_percent(100 * difference / row['a'])})" if row["a"] else ""
        texts.append((signed_duration(difference) if row["unit"] == "s" else f"{difference:+,.4g} {unit}") + share)
    return View(
        label,
        {
            "x": [[difference / length for difference in differences]],
            "y": [[row["item"] for row in rows]],
            "text": [texts],
            "hovertemplate": ["%{y}: %{text}<extra></extra>"],
            "marker.color": [[LONGER if each > 0 else SHORTER for each in differences]],
        },
        {"xaxis.title.text": f"B - A ({unit})", "height": 110 + _BAR_PIXELS * len(rows)},
    )


def _names_axis() -> dict[str, Any]:
    """Names from the top down, with room for them."""
    return axis("", type="category", autorange="reversed", automargin=True)
