"""Kernels with traced times whose instructions another trace has: which these are, and what they take then."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from gpu_launches import Launch, gpu_workload
from gpu_launches import foreseen as foreseen_launches
from gpu_steps import US, Steps
from kineto_traces import Recorded

import manyscale
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload.gpu_step_tables import KernelClass
from manyscale.runner.errors import UserError
from manyscale.runner.predict.gpu import models
from manyscale.runner.predict.gpu.traced.simulated import same_kernels
from manyscale.runner.problems import load_yaml
from manyscale.runner.shipped import shipped_targets

DATA = Path(__file__).parents[3] / "data"
MANGLED = "_ZN2at6native4fillILi4EfEEvT0_"
PRINTED = "void at::native::fill<4, float>(float)"


@pytest.fixture
def run(tmp_path, monkeypatch, foreseen) -> Callable[..., manyscale.RunResult]:
    """``run(steps, launches, **keys)``: on one V100 of 80 SMs at 1 GHz, under the model that is easy to foresee.
    ``launches``: what is read at workload.gpu_trace."""

    def of(steps: Steps, launches: Any, **keys: Any) -> manyscale.RunResult:
        workload = steps.workload()
        monkeypatch.setattr("manyscale.runner.run.study_runs.read_workload", lambda choice, cache=None: workload)
        monkeypatch.setattr("manyscale.runner.predict.gpu.traced.simulated.read_workload", lambda choice: launches)
        gpu = {"frequency": "1 GHz", "start_latency": "8 us", **keys.pop("gpu", {})}
        target = {"name": "v100", "nodes": 1, "node": {"gpus": 1, "gpu": gpu}}
        content = {"schema": 1, "workload": {"path": "steps", "gpu_trace": "launches"}, "target": target, **keys}
        return manyscale.run(content, executor="local", cache=tmp_path, report=False)

    return of


def took(result: manyscale.RunResult) -> dict[str, list[int]]:
    """ps of executions, by kernel."""
    found: dict[str, list[int]] = {}
    for row in result.gpu_streams.to_pylist():
        if row["kernel_name"]:
            found.setdefault(row["kernel_name"], []).append(row["end_ps"] - row["start_ps"])
    return found


def three_kernels(gpu_name: str = "Tesla V100-SXM2-16GB") -> Steps:
    """The first is the launches' by its name and shape; another has its name and other blocks, the third its shape."""
    steps = Steps(gpu_name=gpu_name)
    first = steps.mark(0)
    steps.launch(0, 50 * US, name=PRINTED, shape=(4, 32))
    steps.launch(0, 60 * US, name=PRINTED, shape=(5, 32))
    steps.launch(0, 70 * US, name="copy", shape=(4, 32), of=KernelClass.elementwise)
    steps.launch(0, 30 * US, name=PRINTED, shape=(4, 32))
    steps.synchronize(0)
    steps.step(0, 1, first, steps.mark(0))
    return steps


@pytest.mark.theory
def test_kernels_of_one_name_and_shape_take_what_the_model_says(run):
    """Launches of 400 and 800 warp instructions: 50 + 100 cycles of 1 ns of the first, whose caches are cold, and
    100 of the second: 125 in the mean, without the latency of a launch."""
    launches = gpu_workload(Launch(MANGLED, (100,) * 4), Launch(MANGLED, (200,) * 4), Launch("other", (100,) * 4))
    result = run(three_kernels(), launches)
    assert took(result) == {PRINTED: [125_000, 60 * US, 125_000], "copy": [70 * US]}
    assert result.statistics["gpu.launches_by_model"].value == 2
    assert result.statistics["gpu.traced_launches"].value == 2
    (note,) = [note for note in result.notes if note.code == "kernels-simulated"]
    assert note.count == 2
    assert note.text.endswith(f": {0.25 / 80:.3g} times as long as they took where they were traced")


@pytest.mark.theory
def test_on_another_gpu_the_others_are_scaled(run):
    """By DRAM: the A100 of the trace has 1,555.2 GB/s, the target half."""
    result = run(three_kernels("NVIDIA A100-SXM4-40GB"), gpu_workload(Launch(MANGLED, (100,) * 4)),
                 gpu={"dram": {"bandwidth": "777.6 GB/s"}})  # fmt: skip
    assert took(result) == {PRINTED: [150_000, 120 * US, 150_000], "copy": [140 * US]}
    (note,) = [note for note in result.notes if note.code == "kernels-scaled"]
    assert note.count == 2


@pytest.mark.theory
def test_launches_that_are_not_simulated_are_told(run):
    """The second has twice the instructions of the first, which stands for it: twice its 100 cycles behind the cold
    caches' 50 that both are taken to have."""
    launches = gpu_workload(Launch(MANGLED, (100,) * 4), Launch(MANGLED, (200,) * 4))
    result = run(three_kernels(), launches, sampling={"launches": [1]})
    assert took(result)[PRINTED][0] == (150 + 300) / 2 * 1000
    (note,) = [note for note in result.notes if note.code == "kernels-sampled"]
    assert note.text.startswith("of 2 launches of launches 1 were simulated")
    assert "nothing tells by how much" in note.text
    assert "kernels-sampled" not in {note.code for note in run(three_kernels(), launches).notes}


def test_later_runs_reuse_what_was_simulated(run, monkeypatch):
    simulated: list[int] = []

    def counted(launches: Any, *more: Any) -> Any:
        found = foreseen_launches(launches, *more)
        simulated.extend(each.launch_id for each in found)
        return found

    monkeypatch.setattr(models.Detailed, "simulate", staticmethod(counted))
    launches = gpu_workload(Launch("other", (100,) * 4), Launch(MANGLED, (100,) * 4))
    first, again = run(three_kernels(), launches), run(three_kernels(), launches)
    assert simulated == [2]
    assert took(first) == took(again)


def test_pairs_are_of_one_shape_and_name():
    """As compilers write names, or as they are printed, by older versions with blanks between brackets."""
    steps = Steps()
    for name, blocks, threads in (("k", 4, 32), ("k", 4, 64), ("f<g<1> >", 2, 64), ("k", 0, 0), (PRINTED, 1, 32)):
        steps.launch(0, US, name=name, shape=(blocks, threads))
    launches = gpu_workload(Launch("k", (9,) * 4), Launch("f<g<1>>", (1, 1), threads=64), Launch("k", (5,) * 4),
                            Launch(MANGLED, (1,)))  # fmt: skip
    kernel, launch = same_kernels(steps.workload(), launches)
    assert list(zip(kernel.tolist(), launch.tolist(), strict=True)) == [(0, 0), (0, 2), (2, 1), (4, 3)]


def test_a_trace_of_other_kernels_is_refused(run):
    with pytest.raises(UserError, match=r"launches: none of its launches \(other\) has the name, the blocks and the "):
        run(three_kernels(), gpu_workload(Launch("other", (100,) * 4)))


def test_traced_times_and_instructions_are_not_both_asked_for(run):
    with pytest.raises(UserError, match=r"workload\.gpu_trace: model\.gpu: traced takes no instructions"):
        run(three_kernels(), gpu_workload(Launch(MANGLED, (1,))), model={"gpu": "traced"})


@pytest.mark.parametrize("keys", [{"model": {"gpu": "gpumech"}}, {"sampling": {"launches": [1]}},
                                  {"sampling": {"blocks": "tbpoint"}}])  # fmt: skip
def test_what_is_about_instructions_asks_for_a_trace_of_these(run, keys):
    with pytest.raises(UserError, match=r"has times of kernels and not their instructions.*\(workload\.gpu_trace\)"):
        run(three_kernels(), None, workload={"path": "steps"}, **keys)


def test_a_workload_without_kernels_asks_for_a_mapping(write_trace, tmp_path):
    folder = write_trace({0: ["init", "compute 100"]})
    content = {"schema": 1, "workload": {"path": str(folder), "gpu_trace": "none"}, "target": "v100"}
    with pytest.raises(UserError, match=r"has no kernels that workload\.gpu_trace could say the instructions of"):
        manyscale.run(content, executor="local", cache=tmp_path, report=False)


def test_a_step_of_pytorch_takes_what_a_run_of_its_kernel_takes(cli, tmp_path):
    """vectorAdd of a step, by the trace of its instructions, and that trace alone: less the latency of its launch."""
    made = Recorded()
    made.step(1, 0, 100)
    made.launch(
        10, 20, 5, name="vectorAdd(float const*, float const*, float*, int)", grid=[196, 1, 1], block=[256, 1, 1]
    )
    made.launch(30, 40, 5, name="vectorAdd(float const*, float const*, float*, int)", grid=[7, 1, 1], block=[256, 1, 1])
    step, instructions = made.write(tmp_path / "step" / "rank0.pt.trace.json"), DATA / "gpu" / "vectoradd"
    common = ("--target", "v100", "--model", "gpu=gpumech", "--executor", "local", "--no-report")
    told = cli("run", "--workload", step, "--set", f"workload.gpu_trace={instructions}", *common, "-o", "step-run")
    assert told.status == 0, told
    alone = cli("run", "--workload", instructions, *common, "-o", "alone")
    assert alone.status == 0, alone
    rows = pq.read_table(tmp_path / "step-run" / "timeline" / "gpu_streams.parquet").to_pylist()
    (launch,) = pq.read_table(tmp_path / "alone" / "timeline" / "launches.parquet").to_pylist()
    latency = Gpu.model_validate(load_yaml(shipped_targets()["v100"])["node"]["gpu"]).launch_latency_cycles
    cycles = launch["cycles"] - round(latency)
    took = [row["end_ps"] - row["start_ps"] for row in rows if row["kernel_name"]]
    assert took == [round(cycles * 1e12 / 1530e6), 5 * US]
