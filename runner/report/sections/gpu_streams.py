"""Report of what GPUs were given: a timeline by GPU, stream and copy engine, and what each of these did."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload.columns import to_numpy
from manyscale.models.workload.quantities import PS_PER_SECOND
from manyscale.runner.kernel_names import function_name
from manyscale.runner.predict.node.tables import codes_and_names
from manyscale.runner.report.gpu_tracks import SMS, Lanes, engines_of, streams_of
from manyscale.runner.report.page import Page
from manyscale.runner.report.palette import LINE_COLOURS, axis
from manyscale.runner.report.text import duration, escape, percent, size, table, time_unit

MAX_BARS: Final = 4000  # of the timeline: the longest
MAX_ROWS: Final = 48  # streams and engines: those that are busy longest
_COLOURS: Final = {
    "launch": LINE_COLOURS[0], "copy_to_device": LINE_COLOURS[1], "copy_to_host": LINE_COLOURS[4],
    "copy_on_device": LINE_COLOURS[2], "set": LINE_COLOURS[5],
    "communication": LINE_COLOURS[3],
}  # fmt: skip


def add_streams(page: Page, streams: pa.Table, makespan_s: float) -> None:
    """Nothing where nothing takes time; ``makespan_s`` of the run."""
    if not streams.num_rows:
        return
    start, end = (to_numpy(streams.column(name)) for name in ("start_ps", "end_ps"))
    lanes = [streams_of(streams), engines_of(streams, (SMS,))]
    note = (
        "What each stream, and each copy engine, does; what a stream was given waits until the one before it has ended."
    )
    if streams.num_rows > MAX_BARS:
        note += (
            f" Of {streams.num_rows:,} operations the {MAX_BARS:,} longest are drawn (timeline/gpu_streams.parquet)."
        )
    parts = [_chart(page, streams, lanes, start, end), _table(streams, lanes, end - start, makespan_s)]
    page.add("Streams and copies", *parts, note=note)


def _busiest(lanes: Lanes, length: np.ndarray) -> list[int]:
    """Lanes that are shown, in their order."""
    mine = lanes.of_row >= 0
    busy = np.bincount(lanes.of_row[mine], length[mine].astype(float), len(lanes.names))
    return sorted(np.argsort(-busy, kind="stable")[:MAX_ROWS].tolist())


def _chart(page: Page, streams: pa.Table, lanes: list[Lanes], start: np.ndarray, end: np.ndarray) -> str:
    unit_s, unit = time_unit(float(end.max()) / PS_PER_SECOND)
    scale = unit_s * PS_PER_SECOND
    kind, kinds = codes_and_names(streams.column("operation"))
    kernel, kernels = codes_and_names(streams.column("kernel_name"))
    called = [function_name(name) if name else "" for name in kernels]
    launch, moved = to_numpy(streams.column("launch_id")).tolist(), to_numpy(streams.column("bytes")).tolist()
    longest = np.sort(np.argsort(-(end - start), kind="stable")[:MAX_BARS])
    data: list[dict[str, Any]] = []
    rows: list[str] = []
    bars: dict[str, dict[str, list[Any]]] = {}
    for each in lanes:
        shown = set(_busiest(each, end - start))
        rows += [name for place, name in enumerate(each.names) if place in shown]
        for row in longest.tolist():
            if int(each.of_row[row]) not in shown:
                continue
            name = kinds[kind[row]]
            own = bars.setdefault(name, {"base": [], "x": [], "y": [], "customdata": []})
            own["base"].append(float(f"{start[row] / scale:.9g}"))
            own["x"].append(float(f"{(end[row] - start[row]) / scale:.6g}"))
            own["y"].append(each.names[int(each.of_row[row])])
            what = f"launch {launch[row]}" if launch[row] else called[kernel[row]]
            own["customdata"].append(what or f"{name.replace('_', ' ')}, {size(moved[row])}")
    for name, own in bars.items():
        data.append(
            {
                "type": "bar", "orientation": "h", "name": name.replace("_", " "), **own,
                "marker": {"color": _COLOURS.get(name, LINE_COLOURS[6])}, "width": 0.7,
                "hovertemplate": f"%{{customdata}}: %{{x:.4~g}} {unit} from %{{base:.6~g}} {unit}<extra>%{{y}}</extra>",
            }
        )  # fmt: skip
    layout = {
        "barmode": "overlay", "xaxis": axis(f"time ({unit})"),
        "yaxis": axis("", type="category", autorange="reversed", automargin=True, categoryorder="array",
                      categoryarray=rows),
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"}, "showlegend": True,
    }  # fmt: skip
    height = int(np.clip(len(rows) * 26 + 130, 220, 900))
    return page.chart(
        "gpu-streams", "figure", height, {"data": data, "layout": layout}, "timeline of streams and copies"
    )


def _table(streams: pa.Table, lanes: list[Lanes], took: np.ndarray, makespan_s: float) -> str:
    moved = to_numpy(streams.column("bytes")).astype(float)
    rows = []
    for each in lanes:
        mine = each.of_row >= 0
        count = np.bincount(each.of_row[mine], minlength=len(each.names))
        busy = np.bincount(each.of_row[mine], took[mine].astype(float), len(each.names)) / PS_PER_SECOND
        total = np.bincount(each.of_row[mine], moved[mine], len(each.names))
        rows += [
            (
                escape(each.names[place]), f"{count[place]:,}", escape(duration(busy[place])),
                escape(percent(busy[place] / makespan_s)) if makespan_s else "-",
                escape(size(total[place])) if total[place] else "-",
            )
            for place in _busiest(each, took)
        ]  # fmt: skip
    return table(("stream or engine", "operations", "time", "of the run", "bytes"), rows)
