"""The pages of ``manyscale calibrate``: measured times of a network or of a node, and what was fitted to them."""

from __future__ import annotations

import numpy as np

from manyscale.runner.report.page import WITHOUT_CHARTS, Page
from manyscale.runner.run import script
from manyscale.runner.run.calibration.measure import Figures
from manyscale.runner.run.calibration.network import NetworkCalibration
from manyscale.runner.run.calibration.node import NodeCalibration


def network_page(found: NetworkCalibration) -> str:
    """Measured and fitted times, and the residuals below; without plotly a page that says so."""
    if not script.is_installed():
        return _without_plot("Calibration of a network")
    from plotly import graph_objects as go
    from plotly.subplots import make_subplots

    fit, measured = found.fit, found.measured
    size = np.maximum(measured.sizes, 0.5)  # 0 B has no place on a logarithmic axis
    figure = make_subplots(
        rows=2, cols=1, shared_xaxes=True, row_heights=[0.65, 0.35], vertical_spacing=0.05,
        subplot_titles=("one-way time", "residual: measured - fitted, as a share of measured"),
    )  # fmt: skip
    figure.add_trace(go.Scatter(x=size, y=measured.times_ps / 1e6, mode="markers", name="measured"), 1, 1)
    for number, part in enumerate(fit.classes, start=1):
        last = part.end_bytes if part.end_bytes is not None else int(measured.sizes[-1]) + 1
        x = np.unique(np.geomspace(max(0.5, part.first_bytes), last, 40))
        figure.add_trace(go.Scatter(x=x, y=part.time_ps(x) / 1e6, mode="lines", name=f"class {number}"), 1, 1)
    figure.add_trace(go.Scatter(x=size, y=100 * fit.residual, mode="markers", name="residual", showlegend=False), 2, 1)
    if fit.eager_threshold_bytes is not None:
        figure.add_vline(fit.eager_threshold_bytes, line_dash="dot", annotation_text="eager threshold")
    figure.update_xaxes(type="log")
    figure.update_xaxes(title="bytes (0 B is drawn at 0.5)", row=2)
    figure.update_yaxes(type="log", title="us", row=1)
    figure.update_yaxes(title="%", row=2)
    figure.update_layout(title="Calibration of a network", template="plotly_white")
    return str(figure.to_html(include_plotlyjs=True, div_id="calibration"))


def node_page(found: NodeCalibration) -> str:
    """Latency with its plateaus, and bandwidth, against the working set; without plotly a page that says so."""
    if not script.is_installed():
        return _without_plot(f"Calibration of {found.system.cpu_name}")
    from plotly import graph_objects as go
    from plotly.subplots import make_subplots

    figures, system = found.figures, found.system
    cycle_ns = figures["clock"].best
    figure = make_subplots(
        rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.06,
        subplot_titles=("latency: loads that wait for each other", "bandwidth of one core"),
    )  # fmt: skip
    for name, label in (("chase", "usual pages"), ("huge", "huge pages")):
        points = _points(figures, name)
        if points:
            y = [value / cycle_ns for _, value in points]
            figure.add_trace(go.Scatter(x=[size for size, _ in points], y=y, mode="lines+markers", name=label), 1, 1)
    for name in ("read", "write", "copy"):
        points = _points(figures, name)
        y = [1 / value for _, value in points]
        figure.add_trace(go.Scatter(x=[size for size, _ in points], y=y, mode="lines+markers", name=name), 2, 1)
    for name, value in found.measured.latency_cycles.items():
        figure.add_hline(value, line_dash="dot", annotation_text=f"{name}: {value:.1f}", row=1, col=1)
    for name, cache in system.data_caches.items():
        figure.add_vline(cache.size_bytes, line_dash="dash", line_color="gray", annotation_text=name)
    figure.update_xaxes(type="log")
    figure.update_xaxes(title="working set in bytes", row=2)
    figure.update_yaxes(type="log", title="cycles", row=1)
    figure.update_yaxes(type="log", title="bytes per ns", row=2)
    figure.update_layout(title=f"Calibration of {system.cpu_name}", template="plotly_white", height=900)
    return str(figure.to_html(include_plotlyjs=True, div_id="calibration"))


def _points(figures: Figures, name: str) -> list[tuple[int, float]]:
    keys = [key for key in figures if key.startswith(f"{name}:")]
    return sorted((int(key.partition(":")[2]), figures[key].best) for key in keys)


def _without_plot(title: str) -> str:
    return Page(title, "What was fitted is in the files beside this page.", [*WITHOUT_CHARTS]).html()
