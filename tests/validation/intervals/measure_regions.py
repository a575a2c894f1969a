"""Parallel programs from regions: how far off, and what it costs.

``python -m intervals.measure_regions TRACE...`` (in tests/validation) runs each trace of an OpenMP program, with all of
its iterations at the detailed level, on 4 and 16 cores of marenostrum3: whole, and from regions chosen by SimPoint.
*Choosing*: the same regions with the cycles that they take inside the whole program (where none is cut into windows).
*Beginning*: what is left, since regions began in other caches than the program would have left.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import manyscale

_LENGTHS = (1_000_000, 200_000)
_CORES = (4, 16)
_WAYS: dict[str, dict[str, Any]] = {
    "last uses": {},
    "last uses, 1 M warm up": {"warm_up": 1_000_000},
    "cold": {"caches": "cold"},
    "last uses, 3 of each": {"per_cluster": 3},
}


def run(
    trace: str, method: str, cores: int, folder: Path, **intervals: Any
) -> tuple[manyscale.Result, tuple[float, float]]:
    """The result, and the CPU seconds of the units: that find last uses, that simulate regions."""
    content = {
        "workload": {"path": str(Path(trace).resolve())},
        "target": "marenostrum3",
        "model": {"cpu": "detailed"},
        "mapping": {"cores_per_rank": cores},
        "sampling": {"intervals": method},
        "intervals": intervals,
    }
    place = Path(tempfile.mkdtemp(dir=folder))
    result = manyscale.run(content, place / "run", executor="local", cache=place / "cache", report=False)
    units = pq.read_table(place / "run" / "units.parquet").to_pydict()
    of_kind = [*zip(units["kind"], units["cpu_seconds"], strict=True)]
    lines, regions = (
        sum(seconds for kind, seconds in of_kind if kind == wanted) for wanted in ("region-lines", "sampled-region")
    )
    return result, (lines, regions)


def main(traces: list[str]) -> None:
    rows = csv.writer(sys.stdout)
    names = ("program", "cores", "length", "way", "regions", "of", "share", "choosing", "error", "half_width")
    rows.writerow((*names, "lines_seconds", "seconds", "of_seconds"))
    with tempfile.TemporaryDirectory() as folder:
        for trace in traces:
            for cores in _CORES:
                for length in _LENGTHS:
                    measure(rows, trace, cores, length, Path(folder))


def measure(rows: Any, trace: str, cores: int, length: int, folder: Path) -> None:
    for _ in range(2):  # the first one loads kernels
        whole, (_, whole_seconds) = run(trace, "full", cores, folder, caches="stitched", instructions=length)
    table = whole.intervals.to_pandas()
    cpi = (table.cycles / table.instructions).to_numpy()
    truth = whole.statistics["intervals.cpi"].value
    for way, options in _WAYS.items():
        for _ in range(2):
            found, (lines, seconds) = run(trace, "simpoint", cores, folder, instructions=length, **options)
        own = found.intervals.to_pandas()
        chosen = np.flatnonzero(own.weight > 0)
        figure = found.statistics["intervals.cpi"]
        half = "" if figure.ci_high is None else f"{(figure.ci_high - figure.value) / figure.value:.4f}"
        in_windows = len(own) != len(table)  # the whole program has none
        choosing = "" if in_windows else f"{float(own.weight.to_numpy()[chosen] @ cpi[chosen]) / truth - 1:.4f}"
        share = found.statistics["intervals.share"].value
        rows.writerow(
            (Path(trace).name, cores, length, way, len(chosen), len(own), f"{share:.4f}", choosing,
             f"{figure.value / truth - 1:.4f}", half, f"{lines:.2f}", f"{seconds:.2f}", f"{whole_seconds:.2f}")
        )  # fmt: skip
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
