"""The pages of ``manyscale calibrate``: measured times of a network or of a node, and what was fitted to them."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyscale.runner.report.figures.sweep import line_look
from manyscale.runner.report.page import Page
from manyscale.runner.report.palette import GREY, LINE_COLOURS, axis
from manyscale.runner.report.text import binary_size, cards_html, duration, escape, table
from manyscale.runner.run.calibration.measure import Figures
from manyscale.runner.run.calibration.network import NetworkCalibration
from manyscale.runner.run.calibration.node import NodeCalibration


def network_page(found: NetworkCalibration) -> str:
    """Measured and fitted times, the residuals, and the classes of sizes."""
    fit, measured = found.fit, found.measured
    page = Page("Calibration of a network", f"{len(measured.sizes)} sizes of messages, measured and fitted.")
    largest = 100 * float(np.abs(fit.residual).max())
    cards = [("Latency", duration(fit.latency_ps * 1e-12), "")]
    if fit.ps_per_byte:
        cards.append(("Bandwidth", f"{1e3 / fit.ps_per_byte:.4g} GB/s", ""))
    cards.append(("Largest residual", f"{largest:.1f} %", "of the measured time"))
    if fit.eager_threshold_bytes is not None:
        cards.append(("Eager threshold", binary_size(fit.eager_threshold_bytes), ""))
    page.add("", cards_html(cards, first=""))
    size = np.maximum(measured.sizes, 0.5)  # 0 B has no place on a logarithmic axis
    data: list[dict[str, Any]] = []
    for number, part in enumerate(fit.classes):
        last = part.end_bytes if part.end_bytes is not None else int(measured.sizes[-1]) + 1
        x = np.unique(np.geomspace(max(0.5, part.first_bytes), last, 40))
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
    chart = page.chart("times", "figure", 420, {"data": data, "layout": layout}, "one-way time by size")
    page.add("One-way time", chart)
    residual = {
        "type": "scatter", "mode": "markers", "name": "residual", "x": size.tolist(),
        "y": (100 * fit.residual).tolist(), "marker": {"size": 7, "color": LINE_COLOURS[0]},
    }  # fmt: skip
    layout = {
        "xaxis": axis("size in bytes (0 B is drawn at 0.5)", type="log"),
        "yaxis": axis("residual (%)", zeroline=True), "showlegend": False,
    }  # fmt: skip
    chart = page.chart("residuals", "figure", 280, {"data": [residual], "layout": layout}, "residual by size")
    page.add("Residual", chart, note="Measured less fitted time, as a share of the measured one.")
    rows = [
        (
            f"class {number}", f"{part.first_bytes:,} B", "-" if part.end_bytes is None else f"{part.end_bytes:,} B",
            duration(float(np.asarray(part.time_ps(float(part.first_bytes)))) * 1e-12),
        )
        for number, part in enumerate(fit.classes, start=1)
    ]  # fmt: skip
    page.add("Classes of sizes", table(("class", "from", "to before", "time of its smallest"), rows))
    return page.html()


def node_page(found: NodeCalibration) -> str:
    """Latency with its plateaus, and bandwidth, against the working set."""
    figures, system = found.figures, found.system
    page = Page(f"Calibration of {system.cpu_name}", f"Measured on core {found.core}.")
    cycle_ns = figures["clock"].best
    cards = [("Clock", f"{found.measured.frequency_ghz:.4g} GHz", "while it was measured")]
    cards += [(f"{name} latency", f"{value:.1f} cycles", "") for name, value in found.measured.latency_cycles.items()]
    page.add("", cards_html(cards, first=""))
    caches = [(name, float(cache.size_bytes)) for name, cache in system.data_caches.items()]
    lines = {}
    for name, label in (("chase", "usual pages"), ("huge", "huge pages")):
        points = _points(figures, name)
        if points:
            lines[label] = [(size, value / cycle_ns) for size, value in points]
    plateaus = [
        {
            "type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": value, "y1": value,
            "line": {"dash": "dot", "width": 1, "color": GREY},
        }
        for value in found.measured.latency_cycles.values()
    ]  # fmt: skip
    note = "Loads that wait for each other. Dotted: the plateaus that were found, and the sizes of the caches."
    page.add("Latency", _by_working_set(page, "latency", lines, "latency (cycles)", caches, plateaus), note=note)
    lines = {name: [(size, 1 / value) for size, value in _points(figures, name)] for name in ("read", "write", "copy")}
    chart = _by_working_set(page, "bandwidth", lines, "bandwidth (GB/s)", caches, [])
    page.add("Bandwidth of one core", chart, note="Dotted: the sizes of the caches.")
    rows = [(escape(name), f"{value:.4g}") for name, value in found.measured.core.items()]
    page.add("The core", table(("figure", "value"), rows) if rows else "")
    return page.html()


def _by_working_set(
    page: Page, element: str, lines: dict[str, list[tuple[int, float]]], title: str, caches: list[tuple[str, float]],
    plateaus: list[dict[str, Any]],
) -> str:  # fmt: skip
    data = [
        line_look(index) | {"name": name, "x": [size for size, _ in points], "y": [value for _, value in points]}
        for index, (name, points) in enumerate(lines.items())
    ]
    marks = _vertical(caches)
    layout = {
        "xaxis": axis("working set (bytes)", type="log"), "yaxis": axis(title, type="log"), "showlegend": True,
        "shapes": [*marks["shapes"], *plateaus], "annotations": marks["annotations"],
    }  # fmt: skip
    return page.chart(element, "figure", 400, {"data": data, "layout": layout}, f"{title} by working set")


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
