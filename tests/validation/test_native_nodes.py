"""Times of iterations on simulated cores against measured ones on AMD EPYC (Zen 4), the second iteration, one core and
two.

One core. ``matrix_multiply`` +7 %: in the model, waiting for L2 and L3 is 5 % of the time, for branches 1 %, which the
machine seems to hide. ``stencil`` -11 %: a quarter of the model's time is L3's; the target's prefetcher, which nobody
measured, and L3's bandwidth, which other guests use, too, are both idealised (with prefetches inside 4 KiB alone -15 %;
L3's size plays no part). ``vector_operation`` streams through 16.8 MB, -32 %: all of it stays in the 32 MiB of L3 that
the target names, of which a random walk on the machine in use finds 8 to 12 MiB (with 10 MiB: +139 %, all misses).

Two cores: two processes at once take as long as one of them alone (measured, within 1 %), two threads of one process do
not: what their runtime system does takes 0.04 us per task where the creator executes most of them itself, 0.6 to 1.1 us
where both cores take from one queue (measured with empty tasks). The simulated runtime system has one cost for both, so
the measured time lies between the two predictions.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

import manyscale
from manyscale.runner.run.results import Result

DATA = Path(__file__).parents[1] / "data" / "node"
ONE_CORE = {"create": "20 ns", "schedule": "10 ns", "complete": "10 ns"}
# empty tasks with as many dependences, 125 in a region: measured ns per task on two threads
CONTENDED_NS = {"matrix_multiply": 840, "stencil": 1076, "vector_operation": 932}


@cache
def measured(name: str, threads: int) -> tuple[float, float]:
    """(best, median) seconds of an iteration."""
    rows = json.loads((DATA / "native_times.json").read_text())["kernels"]
    row = next(each for each in rows if (each["name"], each["threads"]) == (f"{name}-coarse", threads))
    return row["best_ns"] * 1e-9, row["median_ns"] * 1e-9


def predicted(name: str, cores: int, runtime: dict[str, str], directory: Path, **more: object) -> float:
    study = {
        "workload": {"path": str(DATA / f"{name}-coarse-detailed.tar.zst")},
        "target": "epyc-zen4",
        "model": {"cpu": "detailed"},
        "mapping": {"cores_per_rank": cores},
        "detailed": {"creation": "free"},
        "sampling": {"iterations": "second", **more},
        "runtime": runtime,
    }
    found: Result = manyscale.run(study, directory, executor="local", report=False)
    return float(found.statistics["node.cells_time"].value)


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("matrix_multiply", -0.02, 0.15), ("stencil", -0.2, 0.05), ("vector_operation", -0.55, 0.0)],
)
def test_one_core(name: str, least: float, most: float, tmp_path: Path):
    best, median = measured(name, 1)
    found = predicted(name, 1, ONE_CORE, tmp_path)
    assert (1 + least) * best <= found <= (1 + most) * median


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.parametrize("name", sorted(CONTENDED_NS))
def test_two_cores_take_what_lies_between_a_runtime_system_alone_and_a_contended_one(name: str, tmp_path: Path):
    best, _ = measured(name, 2)
    cost = CONTENDED_NS[name]
    contended = {"create": f"{cost} ns", "schedule": f"{cost / 2} ns", "complete": f"{cost / 2} ns"}
    alone = predicted(name, 2, ONE_CORE, tmp_path / "alone")
    assert alone <= best <= predicted(name, 2, contended, tmp_path / "contended")


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.parametrize("name", ["matrix_multiply", "stencil"])
def test_samples_on_one_core_agree_with_all_in_detail(name: str, tmp_path: Path):
    found = predicted(name, 1, ONE_CORE, tmp_path / "lazy", tasks="lazy")
    assert found == pytest.approx(predicted(name, 1, ONE_CORE, tmp_path / "all"), rel=0.02)
