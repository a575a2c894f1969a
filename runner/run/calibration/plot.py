"""The curves of a node's calibration as one HTML page."""

from __future__ import annotations

from collections.abc import Mapping

from manyscale.runner.run.calibration.measure import Figures
from manyscale.runner.run.calibration.system_caches import System


def curves_page(figures: Figures, system: System, latency_cycles: Mapping[str, float]) -> str:
    """Latency with its plateaus, and bandwidth, against the working set; all self-contained."""
    from plotly import graph_objects as go
    from plotly.subplots import make_subplots

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
    for name, value in latency_cycles.items():
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
