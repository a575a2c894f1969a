"""``manyscale calibrate``: a target machine from measured ping-pongs, with the residuals to judge it by."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from manyscale.models.network.calibration import Calibration, fit_ping_pong
from manyscale.runner.errors import UserError
from manyscale.runner.readers.ping_pong import Measurements, read
from manyscale.runner.run import directory as rundir
from manyscale.runner.study import parse_study
from manyscale.runner.study.targets import build_machine, resolve_target

_MOST_FACTOR = 1e9  # a class without latency, or whose bytes cost nothing: factors are neither zero nor infinite
MACHINE, FIT, PLOT = "machine.yaml", "calibration.json", "calibration.html"


def calibrate(options: argparse.Namespace) -> int:
    """Fit the files, write the machine, the fit and its plot, and print the classes; or, without files, measure this
    node (run/calibration/node.py)."""
    node_only = [f"--{name}" for name in ("quick", "core") if getattr(options, name) not in (None, False)]
    node_only += ["--set"] if options.assignments else []
    if options.node and options.measurements:
        raise UserError(f"--node measures this node, {options.measurements[0]} is of a network: calibrate one, then "
                        "the other with --base DIR/machine.yaml")  # fmt: skip
    if options.node:
        from manyscale.runner.run.calibration.node import calibrate_node

        return calibrate_node(options)
    if not options.measurements:
        raise UserError("calibrate needs measured ping-pongs, or --node to measure this node")
    if node_only:
        raise UserError(f"{node_only[0]} goes with --node")
    measured = [(path, read(path)) for path in options.measurements]
    ping_pong = _together([each for _, each in measured if not each.is_stream], options.measurements)
    streams = [each for _, each in measured if each.is_stream]
    stream = _together(streams, options.measurements) if streams else None
    try:
        fit = fit_ping_pong(
            ping_pong.sizes,
            ping_pong.times_ps,
            None if stream is None else stream.sizes,
            None if stream is None else stream.times_ps,
        )
    except ValueError as error:
        raise UserError(f"{options.measurements[0]}: {error}; measure more sizes") from None
    study = parse_study({"workload": {"path": "-"}, "target": options.base}, "command line")
    _, content = resolve_target(study)
    machine = calibrated(content, fit, [path.name for path, _ in measured])
    build_machine(machine, MACHINE)
    directory = rundir.new_directory(options.output, "calibration", resume=False)
    rundir.write_yaml(directory / MACHINE, machine)
    rundir.write_atomically(directory / FIT, json.dumps(_figures(fit, ping_pong), indent=1) + "\n")
    rundir.write_atomically(directory / PLOT, _plot(fit, ping_pong))
    _print(fit, directory)
    return 0


def _together(measured: Sequence[Measurements], paths: Sequence[Path]) -> Measurements:
    """Several measurements of one kind as one: the median of each size."""
    if not measured:
        raise UserError(f"{paths[0]}: is a stream of messages; give a ping-pong (osu_latency, IMB PingPong) beside it")
    sizes = np.concatenate([each.sizes for each in measured])
    times = np.concatenate([each.times_ps for each in measured])
    distinct = np.unique(sizes)
    median = np.array([np.median(times[sizes == size]) for size in distinct])
    return Measurements(measured[0].benchmark, measured[0].is_stream, distinct, median)


def calibrated(base: dict[str, Any], fit: Calibration, names: Sequence[str]) -> dict[str, Any]:
    """The content of a machine file: ``base`` with the fitted network between its nodes."""
    network = dict(base["network"])
    network |= {
        "latency": f"{round(fit.latency_ps)} ps",
        "bandwidth": _rate(fit.ps_per_byte),
        "envelope": "0 B",
    }
    if fit.eager_threshold_bytes is not None:
        network["eager_threshold"] = f"{fit.eager_threshold_bytes} B"
    if fit.overhead_ps is not None and fit.gap_ps is not None:
        network["loggops"] = {
            "overhead": f"{round(fit.overhead_ps)} ps",
            "gap": f"{round(fit.gap_ps)} ps",
            "overhead_bandwidth": "inf B/s",
            "latency": f"{round(fit.wire_latency_ps)} ps",
        }
    network["flow"] = {**(network.get("flow") or {}), **_factors(fit)}
    largest = 100 * float(np.abs(fit.residual).max())
    source = f"fitted to {', '.join(names)}: {len(fit.residual)} sizes, largest residual {largest:.1f} %"
    threshold = "" if fit.eager_threshold_bytes is not None else "; no jump shows the eager threshold, kept"
    sources = dict(base["sources"]) | {"network": f"{source}{threshold}; else as in {base['name']}"}
    return dict(base) | {
        "name": f"{base['name']}-calibrated",
        "description": f"{base['description']}, network calibrated",
        "network": network,
        "sources": sources,
    }


def _factors(fit: Calibration) -> dict[str, Any]:
    """The size classes for the flow model: latency and bandwidth of each relative to the network's own."""
    latencies = [part.latency_ps / fit.latency_ps if fit.latency_ps > 0 else 1.0 for part in fit.classes]
    free = _MOST_FACTOR if fit.ps_per_byte > 0 else 1.0
    rates = [fit.ps_per_byte / part.ps_per_byte if part.ps_per_byte > 0 else free for part in fit.classes]

    def factors(values: list[float]) -> list[dict[str, Any]]:
        kept = np.clip(values, 1 / _MOST_FACTOR, _MOST_FACTOR).tolist()
        above = [f"{max(0, part.first_bytes - 1)} B" for part in fit.classes]
        return [{"above": size, "factor": value} for size, value in zip(above, kept, strict=True)]

    return {"latency_factors": factors(latencies), "bandwidth_factors": factors(rates)}


def _rate(ps_per_byte: float) -> str:
    return f"{1e12 / ps_per_byte:.6g} B/s" if ps_per_byte > 0 else "inf B/s"


def _figures(fit: Calibration, measured: Measurements) -> dict[str, Any]:
    return {
        "classes": [asdict(part) for part in fit.classes],
        "eager_threshold_bytes": fit.eager_threshold_bytes,
        "overhead_ps": fit.overhead_ps,
        "gap_ps": fit.gap_ps,
        "measurements": [
            {"bytes": size, "time_ps": time, "residual": residual}
            for size, time, residual in zip(
                measured.sizes.tolist(), measured.times_ps.tolist(), fit.residual.tolist(), strict=True
            )
        ],
    }


def _plot(fit: Calibration, measured: Measurements) -> str:
    """One HTML file: measured and fitted times, and the residuals below."""
    from plotly import graph_objects as go
    from plotly.subplots import make_subplots

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


def _print(fit: Calibration, directory: Path) -> None:
    print(f"{'from':>10} {'to':>10} {'latency us':>20} {'bandwidth MB/s':>22}")
    for part in fit.classes:
        end = "" if part.end_bytes is None else str(part.end_bytes)
        latency = f"{part.latency_ps / 1e6:.3f} +- {part.latency_error_ps / 1e6:.3f}"
        rate = "inf" if part.ps_per_byte == 0 else f"{1e6 / part.ps_per_byte:.1f}"
        spread = part.ps_per_byte_error / part.ps_per_byte if part.ps_per_byte else 0.0
        print(f"{part.first_bytes:>10} {end:>10} {latency:>20} {rate + f' +- {100 * spread:.1f} %':>22}")
    threshold = "none seen" if fit.eager_threshold_bytes is None else f"{fit.eager_threshold_bytes} B"
    print(f"eager threshold: {threshold}")
    if fit.overhead_ps is not None and fit.gap_ps is not None:
        print(f"overhead: {fit.overhead_ps / 1e6:.3f} us, gap: {fit.gap_ps / 1e6:.3f} us")
    worst = 100 * np.abs(fit.residual)
    print(f"residuals: mean {worst.mean():.2f} %, largest {worst.max():.2f} %")
    print(f"machine: {directory / MACHINE}; plot: {directory / PLOT}")
