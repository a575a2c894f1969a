"""Which executor a run takes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from manyscale.runner import extras
from manyscale.runner.run.execute.execution import ray_asked_for, where_it_pays
from manyscale.runner.run.execute.hosts import load_host
from manyscale.runner.run.pipeline import Point

OPERATIONS_PER_SECOND = 2e7  # rough speed of one core; no result depends on it
RAY_PAYS_ABOVE_SECONDS = 30.0


def choose_executor(
    name: str, points: Sequence[Point], address: str | None, host: Path | None, number: int | None = None
) -> str:
    """``auto`` resolved: what the host file says, else Ray if a cluster is named or the estimated work repays its
    start. ``number``: of points, if ``points`` are not all. Raises UserError for a host that is launched, not joined,
    and for Ray where it is not installed."""
    if host is not None:
        settings = load_host(host)
        settings.require_direct()
        address = address or settings.address
        name = settings.executor if name == "auto" else name
    if name == "auto" and address is not None:
        name = "ray"
    if name == "ray":
        extras.require("ray", ray_asked_for(address) if host is None else f"{host}: this host")
    if name != "auto":
        return name
    times = {unit.key: unit.weight for point in points for unit in point.first_units}
    number = number or len(points)
    weight = 3 * points[0].case.workload.num_operations * number + sum(times.values())
    seconds = weight / OPERATIONS_PER_SECOND
    repays = seconds > RAY_PAYS_ABOVE_SECONDS and (os.cpu_count() or 1) > 1
    return where_it_pays(repays, f"about {seconds:.0f} s of computing")
