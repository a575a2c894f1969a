"""The pages of ``manyscale calibrate``: measured times of a network or of a node, and what was fitted to them."""

from __future__ import annotations

import numpy as np

from manyscale.runner.report.figures.calibration import (
    LEAST_SIZE,
    collective_times,
    network_times,
    node_bandwidth,
    node_latency,
    step_times,
)
from manyscale.runner.report.page import Page
from manyscale.runner.report.palette import LINE_COLOURS, axis
from manyscale.runner.report.text import binary_size, cards_html, duration, escape, table
from manyscale.runner.run.calibration.nccl import NcclCalibration, mean_errors
from manyscale.runner.run.calibration.network import NetworkCalibration
from manyscale.runner.run.calibration.node import NodeCalibration
from manyscale.runner.run.calibration.training import TrainingCalibration, content, shares


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
    chart = page.chart("times", "figure", 420, network_times(found), "one-way time by size")
    page.add("One-way time", chart)
    size = np.maximum(measured.sizes, LEAST_SIZE)
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


def training_page(found: TrainingCalibration) -> str:
    """Measured and predicted steps, and what was fitted."""
    told = shares(found)
    page = Page("Calibration of training", f"{len(found.steps)} measured steps.")
    page.add("", cards_html([(name, text, "relative errors") for name, text in told.items()], first=""))
    page.add("Steps", page.chart("steps", "figure", 460, step_times(found), "predicted by measured time"))
    rows = [(escape(name), escape(str(value))) for name, value in content(found.framework).items()]
    page.add("node.framework", table(("key", "fitted"), rows))
    return page.html()


def nccl_page(found: NcclCalibration) -> str:
    """Measured and predicted times of collectives, and the errors of each one."""
    page = Page("Calibration of collectives", f"{len(found.tables)} measured tables of nccl-tests.")
    cards = [
        (one.name, f"{100 * mean_errors(one, one.after)[0]:.1f} %", "mean error from 16 MiB on") for one in found.tables
    ]
    page.add("", cards_html(cards, first=""))
    chart = page.chart("times", "figure", 460, collective_times(found), "time by size")
    page.add("Time", chart, note="Predicted times hold the harness's floor.")
    rows = []
    for one in found.tables:
        for name, errors in (("base", one.before), ("the other tables", one.held_out), ("itself", one.after)):
            if errors is not None:
                shown = tuple("-" if value != value else f"{100 * value:.1f} %" for value in mean_errors(one, errors))
                rows.append((escape(one.name), name, *shown))
    head = ("table", "predicted by", "mean >= 16 MiB", "largest", "mean below", "largest")
    page.add("Errors", table(head, rows))
    floors = [(escape(each.name), duration(each.floor_ps * 1e-12)) for each in found.tables]
    page.add("The harness's floor", table(("table", "floor"), floors), note=escape(" ".join(found.said)))
    return page.html()


def node_page(found: NodeCalibration) -> str:
    """Latency with its plateaus, and bandwidth, against the working set."""
    system = found.system
    page = Page(f"Calibration of {system.cpu_name}", f"Measured on core {found.core}.")
    cards = [("Clock", f"{found.measured.frequency_ghz:.4g} GHz", "while it was measured")]
    cards += [(f"{name} latency", f"{value:.1f} cycles", "") for name, value in found.measured.latency_cycles.items()]
    page.add("", cards_html(cards, first=""))
    note = "Loads that wait for each other. Dotted: the plateaus that were found, and the sizes of the caches."
    chart = page.chart("latency", "figure", 400, node_latency(found), "latency (cycles) by working set")
    page.add("Latency", chart, note=note)
    chart = page.chart("bandwidth", "figure", 400, node_bandwidth(found), "bandwidth (GB/s) by working set")
    page.add("Bandwidth of one core", chart, note="Dotted: the sizes of the caches.")
    rows = [(escape(name), f"{value:.4g}") for name, value in found.measured.core.items()]
    page.add("The core", table(("figure", "value"), rows) if rows else "")
    return page.html()
