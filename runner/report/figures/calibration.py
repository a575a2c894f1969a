"""Figures of calibrations: measured times of a network or of a node, and what was fitted to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from manyscale.runner.report.figures.sweep import line_look
from manyscale.runner.report.palette import GREY, LINE_COLOURS, axis
from manyscale.runner.report.text import escape

if TYPE_CHECKING:
    from manyscale.runner.run.calibration.measure import Figures
    from manyscale.runner.run.calibration.nccl import NcclCalibration
    from manyscale.runner.run.calibration.network import NetworkCalibration
    from manyscale.runner.run.calibration.node import NodeCalibration
    from manyscale.runner.run.calibration.training import TrainingCalibration

LEAST_SIZE: Final = 0.5  # bytes: where 0 B stands on a logarithmic axis


def network_times(found: NetworkCalibration) -> dict[str, Any]:
    """Plotly's figure of the one-way time by size: measured as points, fitted as a line for each class of sizes."""
    fit, measured = found.fit, found.measured
    size = np.maximum(measured.sizes, LEAST_SIZE)
    data: list[dict[str, Any]] = []
    for number, part in enumerate(fit.classes):
        last = part.end_bytes if part.end_bytes is not None else int(measured.sizes[-1]) + 1
        x = np.unique(np.geomspace(max(LEAST_SIZE, part.first_bytes), last, 40))
        look = line_look(number + 1) | {"mode": "lines", "name": f"class {number + 1}"}
        data.append(look | {"x": x.tolist(), "y": np.asarray(part.time_ps(x) / 1e6).tolist()})
    data.append(
        {
            "type": "scatter", "mode": "markers", "name": "measured", "x": size.tolist(),
            "y": (measured.times_ps / 1e6).tolist(), "marker": {"size": 7, "color": LINE_COLOURS[0]},
        }
    )  # fmt: skip
    marks = [] if fit.eager_threshold_bytes is None else [("eager threshold", float(fit.eager_threshold_bytes))]
    layout = {
        "xaxis": axis("size in bytes (0 B is drawn at 0.5)", type="log"),
        "yaxis": axis("one-way time (us)", type="log"), "showlegend": True, **_vertical(marks),
    }  # fmt: skip
    return {"data": data, "layout": layout}


def collective_times(found: NcclCalibration) -> dict[str, Any]:
    """Plotly's figure of the time of collectives by size: measured as points, what the machine has for them as lines,
    with the harness's floor."""
    data: list[dict[str, Any]] = []
    for number, table in enumerate(found.tables):
        colour, size = LINE_COLOURS[number % len(LINE_COLOURS)], table.sizes.tolist()
        points = {"type": "scatter", "mode": "markers", "marker": {"size": 5, "color": colour}}
        data.append(points | {"name": f"{table.name}, measured", "x": size, "y": (table.times_ps / 1e6).tolist()})
        times = table.times_ps * (1 + table.after) / 1e6
        line = line_look(number) | {"mode": "lines", "name": f"{table.name}, predicted"}
        data.append(line | {"x": size, "y": times.tolist()})
    layout = {
        "xaxis": axis("size in bytes", type="log"), "yaxis": axis("time (us)", type="log"), "showlegend": True,
    }  # fmt: skip
    return {"data": data, "layout": layout}


def step_times(found: TrainingCalibration) -> dict[str, Any]:
    """Plotly's figure of predicted over measured times of steps, and the line on which they are equal."""
    data: list[dict[str, Any]] = []
    for number, (name, chosen) in enumerate((("fitted", found.was_fitted), ("left out of the fit", ~found.was_fitted))):
        if chosen.any():
            points = {"type": "scatter", "mode": "markers", "marker": {"size": 5, "color": LINE_COLOURS[number]}}
            x, y = found.measured_s[chosen] * 1e3, found.predicted_s[chosen] * 1e3
            data.append(points | {"name": name, "x": x.tolist(), "y": y.tolist()})
    ends = [float(found.measured_s.min()) * 1e3, float(found.measured_s.max()) * 1e3]
    data.append({"type": "scatter", "mode": "lines", "name": "equal", "x": ends, "y": ends, "line": {"color": GREY}})
    layout = {
        "xaxis": axis("measured (ms)", type="log"), "yaxis": axis("predicted (ms)", type="log"), "showlegend": True,
    }  # fmt: skip
    return {"data": data, "layout": layout}


def node_latency(found: NodeCalibration) -> dict[str, Any]:
    """Plotly's figure of the latency of loads that wait for each other by the working set. Dotted: the plateaus that
    were found, and the sizes of the caches."""
    cycle_ns = found.figures["clock"].best
    lines = {}
    for name, label in (("chase", "usual pages"), ("huge", "huge pages")):
        points = _points(found.figures, name)
        if points:
            lines[label] = [(size, value / cycle_ns) for size, value in points]
    plateaus = [
        {
            "type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": value, "y1": value,
            "line": {"dash": "dot", "width": 1, "color": GREY},
        }
        for value in found.measured.latency_cycles.values()
    ]  # fmt: skip
    return _by_working_set(found, lines, "latency (cycles)", plateaus)


def node_bandwidth(found: NodeCalibration) -> dict[str, Any]:
    """Plotly's figure of the bandwidth of one core by the working set. Dotted: the sizes of the caches."""
    kinds = ("read", "write", "copy")
    lines = {name: [(size, 1 / value) for size, value in _points(found.figures, name)] for name in kinds}
    return _by_working_set(found, lines, "bandwidth (GB/s)", [])


def _by_working_set(
    found: NodeCalibration, lines: dict[str, list[tuple[int, float]]], title: str, plateaus: list[dict[str, Any]]
) -> dict[str, Any]:
    data = [
        line_look(index) | {"name": name, "x": [size for size, _ in points], "y": [value for _, value in points]}
        for index, (name, points) in enumerate(lines.items())
    ]
    marks = _vertical([(name, float(cache.size_bytes)) for name, cache in found.system.data_caches.items()])
    layout = {
        "xaxis": axis("working set (bytes)", type="log"), "yaxis": axis(title, type="log"), "showlegend": True,
        "shapes": [*marks["shapes"], *plateaus], "annotations": marks["annotations"],
    }  # fmt: skip
    return {"data": data, "layout": layout}


def _vertical(places: list[tuple[str, float]]) -> dict[str, list[dict[str, Any]]]:
    """Dotted vertical lines with names, on a logarithmic axis."""
    return {
        "shapes": [
            {
                "type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1,
                "line": {"dash": "dot", "width": 1, "color": GREY},
            }
            for _, x in places
        ],
        "annotations": [
            {"x": float(np.log10(x)), "y": 1.04, "yref": "paper", "text": escape(name), "showarrow": False}
            for name, x in places
        ],
    }  # fmt: skip


def _points(figures: Figures, name: str) -> list[tuple[int, float]]:
    keys = [key for key in figures if key.startswith(f"{name}:")]
    return sorted((int(key.partition(":")[2]), figures[key].best) for key in keys)
