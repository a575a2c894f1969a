"""Messages of NCCL whose times were traced: they take these from when both ends have come to them; waits are apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chakra_files import RECEIVE, SEND, node, trace, write
from gpu_steps import US, Steps
from kineto_traces import MAIN, Recorded, told

import manyscale
from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.runner.readers import chakra, workload_folder

A100 = "NVIDIA A100-SXM4-40GB"
TOPOLOGY = {"topology": {"kind": "crossbar"}}
Runs = Callable[..., manyscale.RunResult]


def stages(gpu_name: str = A100) -> Steps:
    """Rank 0 comes to a message of 2 MB after a kernel of 10 us, rank 1, which receives it, after one of 100 us. Where
    it was traced it took 40 us from then on."""
    made = Steps(2, {"pp": [0, 1]}, gpu_name)
    for rank, takes in enumerate((10, 100)):
        made.launch(rank, takes * US)
        made.send(rank, 1 - rank, 2_000_000, receives=rank == 1, stream=20, group="pp", duration_ps=40 * US)
        made.group_end(rank, [0])
    return made


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """``run(target, network model, GPU of the trace, **choice)``: of ``stages``."""

    def of(target: Any, model: str = "latency-bandwidth", gpu_name: str = A100, **choice: str) -> manyscale.RunResult:
        workload = stages(gpu_name).workload()
        monkeypatch.setattr("manyscale.runner.run.study_runs.read_workload", lambda choice, cache=None: workload)
        content = {
            "schema": 1,
            "workload": {"path": "steps"},
            "target": target,
            "model": {"network": model},
            "gpu": choice,
        }
        return manyscale.run(content, executor="local", cache=tmp_path, report=False)

    return of


def times(result: manyscale.RunResult) -> tuple[float, float, float]:
    """Of the message, us: when it has arrived behind rank 1's kernel, what its ends wait, and what it takes (means)."""
    kernel = max(row["end_ps"] for row in result.gpu_streams.to_pylist() if row["kernel_name"])
    arrives = result.messages.column("receive_ps")[0].as_py()
    wait, transfer = (result.statistics[f"group.pp.{name}"].value * 1e6 for name in ("wait", "transfer"))
    return (arrives - kernel) / US, wait, transfer


@pytest.mark.theory
@pytest.mark.parametrize("model", ["latency-bandwidth", "flow"])
def test_a_message_takes_its_traced_time_once_both_ends_have_come(run: Runs, model: str) -> None:
    """On the GPU of the trace, and on a target without network.nccl: 40 us behind rank 1's kernel, for which rank 0
    has waited for 90."""
    plain = {"name": "v100", "node": {"gpus": 2}, "network": TOPOLOGY}
    for target, gpu_name in (("dgx-a100", A100), (plain, "Tesla V100-SXM2-32GB")):
        result = run(target, model, gpu_name)
        assert times(result) == pytest.approx((40, 90 / 2, 40), abs=0.01)
        assert "messages-traced" in {note.code for note in result.notes}


@pytest.mark.theory
def test_what_messages_take_is_chosen(run: Runs) -> None:
    """Of the model: 2 MB over NVLinks take at least 2 MB / 300 GB/s = 6.7 us, and not 40; free: nothing. On another
    GPU's links the model says it, unless traced times are asked for."""
    arrives, wait, transfer = times(run("dgx-a100", collectives="model"))
    assert 6.7 < transfer < 30
    assert arrives == pytest.approx(transfer)
    assert wait == pytest.approx(45)
    for model in ("latency-bandwidth", "flow"):
        free = run("dgx-a100", model, collectives="free")
        assert times(free)[0] == pytest.approx(0)
        assert "messages-free" in {note.code for note in free.notes}
    other = run("dgx-h100")
    assert times(other)[0] < 30
    codes = {note.code for note in other.notes}
    assert "messages-not-as-traced" in codes
    assert "messages-traced" not in codes
    assert times(run("dgx-h100", collectives="traced"))[0] == pytest.approx(40, abs=0.01)


@pytest.mark.parametrize("choice", ["auto", "traced"])
def test_a_network_that_gives_messages_no_times_of_their_own_is_told(run: Runs, choice: str) -> None:
    result = run("dgx-a100", "dimemas", collectives=choice)
    told = {note.code: note for note in result.notes if note.code.startswith("messages-")}
    assert "model.network: dimemas" in told["messages-by-network"].text
    assert told.keys().isdisjoint({"messages-traced", "messages-not-as-traced"})


@pytest.mark.theory
def test_what_ifs_of_messages(tmp_path: Path) -> None:
    """Rank 1's kernel takes 100 us and the message behind it 40: nothing on an ideal network. Latency and bandwidth of
    hosts are none of NCCL's, which is told. A rank of half the speed takes 100 us more."""
    workload_folder.write(stages().workload(), tmp_path / "stages")
    study = {"schema": 1, "workload": {"path": str(tmp_path / "stages")}, "target": "dgx-a100"}
    asked = ("ideal-network", "free-collectives", "zero-latency", "infinite-bandwidth", "slower:rank:1=2", "no-skew")
    found = manyscale.what_if(study, asked)
    base = found.makespan_seconds["base"]
    change = {name: round((seconds - base) * 1e6) for name, seconds in found.makespan_seconds.items()}
    assert change == {
        "base": 0, "ideal-network": -40, "free-collectives": -40, "zero-latency": 0, "infinite-bandwidth": 0,
        "slower:rank:1=2": 100, "no-skew": 0,
    }  # fmt: skip
    told = {point.axes["what_if"] for point in found.points if "what-if-without-nccl" in {n.code for n in point.notes}}
    assert told == {"zero-latency", "infinite-bandwidth"}


@pytest.mark.theory
def test_a_message_of_kinetos_traces_ends_as_it_was_measured(tmp_path: Path) -> None:
    """Rank 0 sends from 20 us on, rank 1 receives behind a kernel, from 120 to 160: 40 us are the message's, and 100
    rank 0's wait. The steps of 400 us are as long, but for what launches take: up to 3 us less than the trace's 8."""
    for rank in (0, 1):
        made = Recorded(rank, 2)
        made.step(1, 0, 400)
        if rank:
            made.launch(10, 18, 100, 20)
        begin, partner = (120, {"Src Rank": 0}) if rank else (20, {"Dst Rank": 1})
        made.launch(20 if rank else 12, begin, 160 - begin, 20, "ncclDevKernel_SendRecv(x)",
                    **told(("send", "recv")[rank], 1_000_000, **partner))  # fmt: skip
        waits = made.call("cudaStreamSynchronize", 40, 125)
        made.add("cuda_sync", "Stream Synchronize", 40, 125, MAIN, stream=20, correlation=waits)
        made.write(tmp_path / f"rank{rank}.json")
    found = manyscale.run({"schema": 1, "workload": {"path": str(tmp_path)}, "target": "dgx1-v100"}, report=False)
    wait, transfer = (found.statistics[f"group.others.{name}"].value for name in ("wait", "transfer"))
    assert (wait, transfer) == (pytest.approx(100e-6 / 2), pytest.approx(40e-6))
    compared = manyscale.compare(found)
    assert compared.step_errors is not None
    assert compared.step_errors.count == 2
    assert abs(compared.step_errors.worst) < 3.5 / 400


@pytest.mark.theory
def test_both_ends_of_chakras_messages_have_the_shorter_time(tmp_path: Path) -> None:
    """Rank 0 sends two to rank 1: of the first the sender waited, of the second the receiver."""
    ends = [
        [
            node(k, kind, is_cpu_op=False, comm_size=64, comm_tag=3, micros=micros, **partners)
            for k, micros in enumerate(took, 1)
        ]
        for kind, took, partners in ((SEND, (50, 7), {"comm_dst": 1}), (RECEIVE, (5, 70), {"comm_src": 0}))
    ]
    workload = chakra.read(write(tmp_path, *(trace(*each) for each in ends)))
    rows = workload.tables["gpu_operations"].to_pylist()
    took = [(row["rank"], row["duration_ps"]) for row in rows if row["kind"] == GpuOperationKind.communication]
    assert took == [(0, 5 * US), (0, 7 * US), (1, 5 * US), (1, 7 * US)]
