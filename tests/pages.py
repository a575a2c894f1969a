"""A page of every kind that manyscale writes, made of what is shipped and of tests/data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import manyscale as ms
from manyscale.runner.cli import main

DATA: Final = Path(__file__).parent / "data"
PHASES: Final = str(DATA / "detail" / "phases.m.bb.xz")

# Output of OSU's osu_latency, in the form of its version 5: bytes, and microseconds of one way.
PING_PONGS: Final = """# OSU MPI Latency Test
# Size          Latency (us)
0                       1.20
8                       1.25
1024                    1.90
8192                    3.70
65536                  11.90
1048576                92.00
"""


def _run(folder: Path, study: str, **options: Any) -> Path:
    ms.run(study, folder, **options)
    return folder / "report.html"


def _sweep(folder: Path) -> Path:
    ms.sweep("lulesh-8", folder, axes={"target.network.latency": ["1 us", "10 us"], "cpu_ratio": [1.0, 0.5]})
    return folder / "report.html"


def _only_page(folder: Path) -> Path:
    (page,) = folder.glob("*.html")
    return page


def _compare(folder: Path) -> Path:
    runs = [ms.run("lulesh-8", target=target) for target in ("crossbar256", "marenostrum3")]
    ms.compare(*runs, folder)
    return _only_page(folder)


def _clusters(folder: Path) -> Path:
    assert main(["clusters", "lulesh-8", "-o", str(folder)]) == 0
    return _only_page(folder)


def _calibrate(folder: Path) -> Path:
    measured = folder.with_suffix(".txt")
    measured.write_text(PING_PONGS)
    ms.calibrate([measured], folder)
    return _only_page(folder)


def _measured_launches(folder: Path) -> Path:
    run = folder.with_name(f"{folder.name}-run")
    ms.run("bfs-16", run, launches=[9, 10])
    measured = folder.with_suffix(".csv")
    measured.write_text("launch_id,cycles\n9,13000\n10,6000\n")
    ms.evaluate(run, folder, cycles=measured)
    return _only_page(folder)


def _of(function: Callable[..., Any], *arguments: Any, **options: Any) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        function(*arguments, output=folder, **options)
        return _only_page(folder)

    return make


TASKS: Final = {"target": "marenostrum3", "set": {"mapping.cores_per_rank": 8}}
SIMPOINT: Final = {"target": "epyc-zen4", "model": {"cpu": "detailed"}, "sampling": {"intervals": "simpoint"}}

# By name: what makes a page in a folder that is not there yet, and returns it.
PAGES: Final[dict[str, Callable[[Path], Path]]] = {
    "run-mpi": lambda folder: _run(folder, "lulesh-64"),
    "run-tasks": lambda folder: _run(folder, "cholesky-8", **TASKS),
    "run-links": lambda folder: _run(folder, "lulesh-8", target="fattree256", model={"network": "flow"}),
    "run-gpu": lambda folder: _run(folder, "bfs-16", launches=[9, 10]),
    "run-intervals": lambda folder: _run(
        folder, str(DATA / "detail" / "bs16_O1.lk.xz"), **SIMPOINT, set={"intervals.instructions": 1000}
    ),
    "sweep": _sweep,
    "what-if": _of(ms.what_if, "lulesh-8"),
    "plan": _of(ms.plan, PHASES, "simpoint"),
    "compare": _compare,
    "evaluate-tasks": _of(
        ms.evaluate, str(DATA / "detail" / "cholesky-4.omt.xz"), cores=[4], target="grass-high-performance"
    ),
    "evaluate-launches": _measured_launches,
    "evaluate-profiles": _of(ms.evaluate, PHASES, draws=2),
    "scaling": _of(ms.scaling, ["lulesh-8", "lulesh-64"]),
    "predict": _of(ms.predict, "matmul", [40], target="epyc-zen4", steady=True),
    "show": _of(ms.show, "cholesky-8"),
    "profile": _of(ms.profile, "matmul-20", target="epyc-zen4", simulate="100 %"),
    "clusters": _clusters,
    "calibrate": _calibrate,
}
