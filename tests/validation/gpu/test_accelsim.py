"""The cycle-level model against cycles that Accel-Sim (dev, 73f9fac; SM86_RTX3070) says of the same traces.

Traces, and the cycles beside them, lie in $MANYSCALE_DATA; without it these tests are skipped. Of b+tree, of
ffmakernel-4096 and of GPUs of 1, 2, 4 SMs the cycles stand in the CSV files here (RESULTS.md: how they were made).
"""

from __future__ import annotations

import csv
import os
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from manyscale.models.gpu import detailed
from manyscale.runner.problems import load_yaml
from manyscale.runner.readers import accelsim
from manyscale.runner.study.targets import build_machine, shipped_targets

HERE = Path(__file__).parent
DATA = Path(os.environ.get("MANYSCALE_DATA", "/nonexistent")) / "gpu"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="MANYSCALE_DATA does not name the folder of the traces")
LAUNCH_LATENCY = 5000
BTREE = "rodinia-b+tree-128-1000"
FFMA = "simtune-ffmakernel-4096-16"
# NVIDIA Nsight Compute's cycles of one warp of ffmakernel (hardware/ground_truth_release-ffmakernel_full.txt)
MEASURED = {10: 9576, 20: 14781, 30: 20028, 40: 25446}
PROFILED_LAUNCH = 4700  # cycles of a launch there: what the four have in common


def rows_of(path, **of):
    with path.open() as file:
        return [row for row in csv.DictReader(file) if all(row[name] == str(value) for name, value in of.items())]


def cycles_of(path, **of):
    return np.array([int(row["cycles"]) for row in rows_of(path, **of)])


@lru_cache
def gpu(name="rtx3070", **changes):
    content = load_yaml(shipped_targets()[name])
    content["node"]["gpu"] |= changes
    return build_machine(content, name).node.gpu


@lru_cache
def results_of(path, **changes):
    """The launches of a trace, one after another."""
    workload = accelsim.read(DATA / path)
    memory, results = None, []
    for launch_id in workload.gpu.launch_ids:
        result, memory = detailed.simulate(workload.gpu.trace(launch_id), gpu(**changes), memory)
        results.append(result)
    return results


def simulated(path, **changes):
    return np.array([result.cycles for result in results_of(path, **changes)])


def errors(found, expected, launch_latency=LAUNCH_LATENCY):
    """Relative, of what is above the launch latency."""
    assert found.shape == expected.shape
    assert len(expected) > 0
    return (found - expected) / (expected - launch_latency)


def ranks(values):
    return np.argsort(np.argsort(values))


def test_errors_are_seen():
    """Of the measure itself: twice the cycles, a launch that is missing."""
    assert errors(np.array([20_000]), np.array([10_000])) == 2
    with pytest.raises(AssertionError):
        errors(np.array([20_000]), np.array([10_000, 10_000]))


@pytest.mark.parametrize("name", sorted({row["trace"] for row in rows_of(DATA / "micro/accelsim_rtx3070_cycles.csv")})
                         if DATA.is_dir() else [])  # fmt: skip
def test_micro_traces(name):
    folder = DATA / "micro"
    expected = cycles_of(folder / "accelsim_rtx3070_cycles.csv", trace=name)
    (empty,) = cycles_of(folder / "accelsim_rtx3070_cycles.csv", trace="empty")
    difference = simulated(f"micro/{name}") - expected
    assert np.all(np.abs(difference) <= 0.02 * (expected - empty))


@pytest.fixture(scope="module")
def bfs():
    return rows_of(DATA / "bfs/accelsim_rtx3070_reference.csv"), results_of("bfs")


def test_bfs_cycles(bfs):
    expected, found = (np.array([int(each) for each in column]) for column in (
        [row["cycles"] for row in bfs[0]], [result.cycles for result in bfs[1]],
    ))  # fmt: skip
    with_launch = np.abs(errors(found, expected, 0))
    without = np.abs(errors(found, expected))
    assert with_launch.mean() <= 0.01
    assert without.mean() <= 0.03
    assert without.max() <= 0.1
    assert np.corrcoef(ranks(found), ranks(expected))[0, 1] >= 0.98


def test_bfs_counts(bfs):
    references, results = bfs
    for row, result in zip(references, results, strict=True):
        assert result.thread_instructions == int(row["thread_instructions"])
    accesses = np.cumsum([result.l1_accesses for result in results])
    ratios = np.cumsum([result.l1_misses for result in results]) / accesses
    assert ratios == pytest.approx([float(row["l1_miss_ratio"]) for row in references], abs=0.005)


@pytest.mark.parametrize(("name", "tolerance"), [
    ("simple-trace-example", 0.05), (BTREE, 0.1), (FFMA, 0.02),
    *((f"simtune-ffmakernel-1-32-{iterations}", 0.001) for iterations in MEASURED),
])  # fmt: skip
def test_other_kernels(name, tolerance):
    assert (
        np.abs(errors(simulated(f"misc/{name}"), cycles_of(HERE / "accelsim_misc.csv", trace=name))).max() <= tolerance
    )


@pytest.mark.parametrize("sms", [1, 2, 4])
@pytest.mark.parametrize(("path", "tolerance"), [(f"misc/{FFMA}", 0.01), (f"misc/{BTREE}", 0.06)])
def test_few_sms(path, tolerance, sms):
    expected = cycles_of(HERE / "accelsim_few_sms.csv", trace=Path(path).name, sms=sms)
    assert np.abs(errors(simulated(path, sms=sms), expected)).max() <= tolerance


@pytest.mark.parametrize(("sms", "mean", "most"), [(1, 0.05, 0.15), (2, 0.05, 0.11), (4, 0.03, 0.06)])
def test_bfs_on_few_sms(sms, mean, most):
    """Many short warps whose order decides: Accel-Sim's schedulers go on where the launch before left them."""
    found = np.abs(errors(simulated("bfs", sms=sms), cycles_of(HERE / "accelsim_few_sms.csv", trace="bfs", sms=sms)))
    assert found.mean() <= mean
    assert found.max() <= most


def test_one_warp_of_ffmakernel_on_hardware():
    """4.0 cycles per instruction with a pipeline of 2 cycles; the totals with what a launch takes under a profiler."""
    target = {"name": "h100", "pipeline": "2 cycles", "launch_latency": f"{PROFILED_LAUNCH} cycles", "core": None}
    results = {n: results_of(f"misc/simtune-ffmakernel-1-32-{n}", **target)[0] for n in MEASURED}
    instructions = results[40].warp_instructions - results[10].warp_instructions
    assert (results[40].cycles - results[10].cycles) / instructions == pytest.approx(4.0, rel=0.03)
    for iterations, cycles in MEASURED.items():
        assert results[iterations].cycles == pytest.approx(cycles, rel=0.1)
