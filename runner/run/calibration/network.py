"""What ``manyscale calibrate`` makes of measured ping-pongs: a target machine, with the residuals to judge it by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from manyscale.models.network.calibration import Calibration, fit_ping_pong
from manyscale.runner.errors import UserError
from manyscale.runner.readers.ping_pong import Measurements, read
from manyscale.runner.study.targets import build_machine, target_named

_MOST_FACTOR = 1e9  # a class without latency, or whose bytes cost nothing: factors are neither zero nor infinite


@dataclass(frozen=True)
class NetworkCalibration:
    """``machine``: the content of a machine file; ``fit``, and what it was fitted to."""

    machine: dict[str, Any]
    fit: Calibration
    measured: Measurements


def calibrate_network(paths: Sequence[Path], base: str = "laptop") -> NetworkCalibration:
    """The machine ``base`` with the network that files of measurements show. Raises UserError."""
    measured = [(path, read(path)) for path in paths]
    ping_pong = _together([each for _, each in measured if not each.is_stream], paths)
    streams = [each for _, each in measured if each.is_stream]
    stream = _together(streams, paths) if streams else None
    try:
        fit = fit_ping_pong(
            ping_pong.sizes,
            ping_pong.times_ps,
            None if stream is None else stream.sizes,
            None if stream is None else stream.times_ps,
        )
    except ValueError as error:
        raise UserError(f"{paths[0]}: {error}; measure more sizes") from None
    _, content = target_named(base, "command line")
    machine = calibrated(content, fit, [path.name for path, _ in measured])
    build_machine(machine, "machine.yaml")
    return NetworkCalibration(machine, fit, ping_pong)


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


def figures(found: NetworkCalibration) -> dict[str, Any]:
    """The content of ``calibration.json``."""
    fit, measured = found.fit, found.measured
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
