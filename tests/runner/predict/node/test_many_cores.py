"""The way to 65,536 cores (tests/validation/cluster/RESULTS.md) on 8 ranks of 64: against bounds of any schedule, and
samples against all of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import manyscale
from manyscale.models.workload import PhaseKind
from manyscale.runner.run.results import Result
from manyscale.runner.shipped import folder

CORES = 64


def run(directory: Path, **more: object) -> Result:
    workload = {"path": str(folder() / "multizone-8.tar.zst")}
    if "model" in more:
        workload["detail"] = str(folder() / "multizone-8-detail.tar.zst")
    mapping = {"ranks_per_node": 1, "cores_per_rank": CORES}
    content = {"workload": workload, "target": "musa-high-performance", "mapping": mapping} | more
    return manyscale.run(content, directory, executor="local", report=False)


@pytest.mark.slow
@pytest.mark.theory
def test_each_rank_computes_as_long_as_bounds_of_its_tasks_say(tmp_path: Path) -> None:
    """Graham, SIAM J. Appl. Math. 17(2), 1969: between max(work / cores, longest path) and work / cores + path (1 - 1 /
    cores). A region of multizone is a stage of smooth and one of solve behind what the creating thread does."""
    found = run(tmp_path / "run")
    traced = found.workload
    of_phase = traced.column("phases", "kind") == PhaseKind.compute
    work = np.bincount(traced.column("phases", "rank")[of_phase], traced.column("phases", "duration_ps")[of_phase])
    rank, kind, time = (traced.column("tasks", name) for name in ("rank", "task_type_id", "cpu_ps"))
    stage = 1000 * rank.astype(np.int64) + traced.column("tasks", "operation_id")
    explicit = np.isin(kind, [each for each in np.unique(kind) if np.count_nonzero(kind == each) > 1000])
    serial = work - np.bincount(rank[explicit], time[explicit], minlength=len(work))
    path = serial.astype(float)
    for one in np.unique(kind[explicit]):
        mine = kind == one
        longest = np.zeros(int(stage.max()) + 1)
        np.maximum.at(longest, stage[mine], time[mine])
        path += np.bincount(np.arange(len(longest)) // 1000, longest, minlength=len(work))
    rows = found.ranks.to_pandas()
    computes = rows[rows["state"] == "compute"]
    took = (computes["end_ps"] - computes["start_ps"]).groupby(computes["rank"]).sum().to_numpy()
    assert len(took) == len(work) == 8
    assert np.all(took >= np.maximum(work / CORES, serial) * (1 - 1e-6))
    assert np.all(took <= (work / CORES + path * (1 - 1 / CORES)) * (1 + 1e-6))


@pytest.mark.slow
@pytest.mark.theory
def test_samples_and_cores_that_go_ahead_take_what_all_in_strict_order_takes(tmp_path: Path) -> None:
    """One simulated rank instead of two, samples of task instances (on 16 cores: on 64 there are too few to leave any
    out), and a window."""

    def told(name: str, **more: object) -> Result:
        return run(tmp_path / name, model={"cpu": "detailed"}, **more)

    def seconds(found: Result) -> float:
        return found.statistics["application.makespan"].value

    everything = told("full")
    one_rank, ahead = told("rank", sampling={"ranks": [7]}), told("ahead", detailed={"window": 100})
    assert (
        one_rank.statistics["node.simulated_instances"].value < everything.statistics["node.simulated_instances"].value
    )
    assert seconds(one_rank) == pytest.approx(seconds(everything), rel=0.02)
    assert seconds(ahead) == pytest.approx(seconds(everything), rel=1e-4)
    codes = [{note.code for note in found.notes} for found in (everything, ahead)]
    assert codes[1] - codes[0] == {"cores-go-ahead"}
    few = {"mapping": {"ranks_per_node": 1, "cores_per_rank": 16}}
    full, lazy = told("full-16", **few), told("lazy-16", sampling={"tasks": "lazy"}, **few)
    assert lazy.statistics["node.detailed_share"].value < 0.8 < full.statistics["node.detailed_share"].value
    assert seconds(lazy) == pytest.approx(seconds(full), rel=0.01)
