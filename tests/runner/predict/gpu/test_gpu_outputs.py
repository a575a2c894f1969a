"""Timelines and report of kernel launches: what they show, and that it is bounded."""

from __future__ import annotations

import gzip
import json
import re

import numpy as np
import paraver_check
import pytest
from gpu_launches import Launch, gpu_workload

from manyscale.models.gpu.roofline.operations import RESOURCES
from manyscale.runner.predict.gpu.launch_results import LaunchResult, from_arrays, to_arrays
from manyscale.runner.predict.gpu.resources import NAMES, resource_statistics, resources_of
from manyscale.runner.problems import load_yaml
from manyscale.runner.report import gpu_blocks
from manyscale.runner.report.sections import gpu as report_gpu
from manyscale.runner.study.targets import build_machine, shipped_targets

PS = 1e12 / 1132e6


@pytest.fixture
def directory(run_launches, two_kernels, tmp_path):
    run_launches(two_kernels, report=True)
    return tmp_path / "out"


def events(directory):
    return json.loads(gzip.decompress((directory / "trace.json.gz").read_bytes()))["traceEvents"]


def test_perfetto_shows_launches_and_blocks(directory):
    found = events(directory)
    launches = [event for event in found if event["pid"] == 5 and event["ph"] == "X"]
    assert [(event["name"], event["args"]["launch_id"]) for event in launches] == [
        ("a", 1),
        ("b", 2),
        ("a", 3),
        ("a", 4),
    ]
    assert launches[0]["args"]["cycles"] == 5200
    assert launches[1]["ts"] == pytest.approx(5200 / 1132, abs=1e-5)  # us
    blocks = [event for event in found if event["pid"] == 6 and event["ph"] == "X"]
    assert len(blocks) == 4 + 1 + 4 + 4
    first = next(event for event in blocks if event["args"] == {"launch_id": 1, "block": 1})
    assert first["ts"] == pytest.approx(5010 / 1132, abs=1e-5)
    assert first["dur"] == pytest.approx(15 / 1132, abs=1e-5)
    names = [event["args"]["name"] for event in found if event["pid"] == 6 and event["name"] == "thread_name"]
    assert names == ["SM 0", "SM 1", "SM 2", "SM 3"]


def test_paraver_shows_launches_and_how_many_blocks_are_resident(directory):
    """As an application beside the rank's: its CPU is the first, on a node of its own."""
    trace = paraver_check.check(directory / "trace.prv")
    last = sum((5200, 5010, 5200, 5100)) * PS / 1000
    assert trace.end == pytest.approx(last, abs=1)
    assert (trace.cpus, trace.threads, trace.others) == ([1, 5], [(1, 1)], (5, 2))
    assert trace.states[0, 1][0] == (0, round(5200 * PS / 1000), 1)
    assert trace.events[0, 1][0] == (0, {63900000: 1})
    resident = [(time, pairs[63900001]) for time, pairs in trace.events[0, 2]]  # SM 0
    assert (round(5000 * PS / 1000), 1) in resident
    assert (round(5015 * PS / 1000), 0) in resident
    lines = (directory / "trace.row").read_text().splitlines()
    assert lines[2:5] == ["launches of rank 0", "SM 0", "SM 1"]
    assert lines[lines.index("LEVEL NODE SIZE 2") + 2] == "GPUs"
    assert "2    b" in (directory / "trace.pcf").read_text()


def test_blocks_that_overlap_on_an_sm_take_lanes_of_their_own():
    lanes = gpu_blocks._lanes(np.array([0, 0, 0, 1, 1]), np.array([0, 5, 10, 0, 20]), np.array([10, 12, 30, 20, 25]))
    assert lanes.tolist() == [0, 1, 0, 0, 0]


def test_timelines_are_bounded_and_say_so(run_launches, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(gpu_blocks, "MAX_BLOCKS", 5)
    run_launches(gpu_workload(Launch("a", (4,) * 4), Launch("a", (4,) * 4)), report=True)
    blocks = [event for event in events(tmp_path / "out") if event["pid"] == 6 and event["ph"] == "X"]
    assert [event["args"]["launch_id"] for event in blocks].count(2) == 1
    assert "thread blocks of the first launches; 3 more" in caplog.text


def charts(directory):
    page = (directory / "report.html").read_text()
    return page, json.loads(re.search(r'id="charts">(.*?)</script>', page, re.S)[1])


def test_report_has_launches_stacks_ipc_and_blocks(directory):
    page, found = charts(directory)
    for heading in ("Kernel launches", "Where the GPU&#x27;s cycles go", "IPC over time", "Thread blocks"):
        assert heading in page
    stacks = {trace["name"]: trace["y"] for trace in found["gpu-launches"]["data"]}
    assert found["gpu-launches"]["data"][0]["x"] == ["1", "2", "3", "4"]
    assert stacks["issue"] == pytest.approx(
        [0.75 * 200 / 460, 0.75 * 10 / 46, 0.75 * 200 / 920, 0.75 * 100 / 460], abs=1e-6
    )
    kernels = {trace["name"]: trace["y"] for trace in found["gpu-kernels"]["data"]}
    assert kernels["dram"] == pytest.approx([0.25 * 500 / 1840, 0.25 * 10 / 46], abs=1e-6)
    # the model says that all was issued in the first 100 cycles, or in all of a shorter launch
    ipc = {trace["name"]: [each for each in trace["y"] if each is not None] for trace in found["gpu-ipc"]["data"]}
    assert ipc["a"] == pytest.approx([4.6, 4.6, 9.2, 9.2, 4.6, 4.6])
    assert ipc["b"] == pytest.approx([4.6, 4.6])
    sizes = found["gpu-block-sizes"]["data"][0]["y"]
    mean = (8 * 115 + 46 + 4 * 230) / 13
    assert sizes == pytest.approx([each / mean for each in [115] * 4 + [46] + [230] * 4 + [115] * 4], rel=1e-4)
    assert found["gpu-block-sizes"]["data"][1]["x"] == [0, 4, 5, 9]
    assert "GPU detailed: the SMs execute" in page
    assert "46 SMs at 1132 MHz" in page


def test_residency_is_the_mean_number_of_blocks(directory):
    _, found = charts(directory)
    chart = found["gpu-residency"]["data"][0]
    # block 3 of a launch is on SM 3 from cycle 30 to 45 of 45
    shares = np.array(chart["z"])
    assert shares[3].sum() / shares.shape[1] == pytest.approx(15 / 45, abs=0.01)
    assert shares[0].sum() / shares.shape[1] == pytest.approx(15 / 45, abs=0.01)
    assert shares[3, : shares.shape[1] * 29 // 45].max() == 0


def test_report_is_bounded(run_launches, tmp_path, monkeypatch):
    monkeypatch.setattr(report_gpu, "MAX_LAUNCHES", 2)
    monkeypatch.setattr(report_gpu, "MAX_POINTS", 3)
    many = gpu_workload(*(Launch(f"kernel{number}", (10 + number,) * 2) for number in range(12)))
    run_launches(many, report=True)
    page, found = charts(tmp_path / "out")
    assert len(found["gpu-launches"]["data"][0]["x"]) == 2
    assert len(found["gpu-block-sizes"]["data"][0]["x"]) == 3
    assert len(found["gpu-ipc"]["data"]) == 7
    assert "other kernels" in page


def test_regions_are_drawn_where_there_are_several(run_launches, tmp_path):
    target = {"name": "rtx3070", "node": {"gpu": {"sms": 1, "blocks": 2}}}
    # epochs of two blocks: the first one's blocks differ, so it is in no region
    run_launches(gpu_workload(Launch("a", (10, 90, 50, 50, 50, 50))), report=True, target=target)
    _, found = charts(tmp_path / "out")
    row = found["gpu-regions"]["data"][0]["z"][0]
    assert (row[0], row[-1]) == (0, 1)


def test_results_of_launches_come_back_from_arrays():
    results = [
        LaunchResult(
            launch_id=number, cycles=10 * number, warp_instructions=5, simulated_instructions=4, causes=("x", "y"),
            stack=np.array([1.5, 2.5]) * number, occupancy=0.25, half_width=0.5, block=np.arange(number),
            block_sm=np.arange(number), block_start=np.arange(number), block_end=np.arange(number) + 1,
            block_warp_instructions=np.arange(number), block_thread_instructions=np.arange(number),
            block_requests=np.arange(number), block_region=np.arange(number), bin_cycles=64,
            ipc_instructions=np.arange(2 * number),
        )
        for number in (3, 0, 2)
    ]  # fmt: skip
    again = from_arrays(to_arrays(results))
    for one, other in zip(results, again, strict=True):
        assert (one.launch_id, one.cycles, one.occupancy, one.causes) == (
            other.launch_id, other.cycles, other.occupancy, other.causes,
        )  # fmt: skip
        assert np.array_equal(one.stack, other.stack)
        assert np.array_equal(one.block_end, other.block_end)
        assert np.array_equal(one.ipc_instructions, other.ipc_instructions)


def test_launches_of_one_unit_have_the_same_causes():
    first, second = (
        LaunchResult(1, 1, 1, 1, causes, np.ones(1)) for causes in (("x",), ("y",))
    )  # fmt: skip
    with pytest.raises(ValueError, match="different causes"):
        to_arrays([first, second])


def work(**amounts):
    return np.array([amounts.get(name, 0.0) for name in RESOURCES])


@pytest.fixture
def rtx3070():
    return build_machine(load_yaml(shipped_targets()["rtx3070"]), "rtx3070").node.gpu


def result_of(cycles, **more):
    return LaunchResult(1, cycles, 9200, 9200, ("issue",), np.array([float(cycles)]), **more)


def test_shares_of_peaks_are_those_of_the_whole_gpu(rtx3070):
    """46 SMs of 4 schedulers: 184 warp instructions a cycle, 184 x 64 operations of FP32 (its unit takes one a cycle),
    4 sectors of L1 each, 32 slices of L2; DRAM 448.064 GB/s at 1132 MHz."""
    result = result_of(
        1000, l1_accesses=1840, l2_accesses=640, dram_reads=300, dram_writes=20,
        work=work(fp32=184 * 64 * 500, tensor_fp16=4096 * 46, fp32_unit=184 * 500, tensor_unit=46),
        work_cycles=work(fp32=184 * 500, tensor_fp16=46 * 32, fp32_unit=184 * 500, tensor_unit=46 * 32),
    )  # fmt: skip
    amount, cycles = (dict(zip(NAMES, each[0].tolist(), strict=True)) for each in resources_of([result], rtx3070))
    assert cycles["issue"] == pytest.approx(9200 / 184)
    assert cycles["fp32"] == pytest.approx(500)
    assert cycles["fp32_unit"] == 500
    assert cycles["tensor_fp16"] == cycles["tensor_unit"] == 46 * 32 / 184
    assert (amount["l1"], cycles["l1"]) == (1840 * 32, pytest.approx(1840 / 4 / 46))
    assert (amount["l2"], cycles["l2"]) == (640 * 32, 640 / 32)
    assert (amount["dram"], cycles["dram"]) == (320 * 32, pytest.approx(320 * 32 / 448.064e9 * 1132e6))
    figures = resource_statistics([result, result], np.array([1.0, 3.0]), 8000, rtx3070)
    values = {name: each.value for name, each in figures.items()}
    assert values["gpu.operations.fp32"] == 4 * 184 * 64 * 500
    assert values["gpu.bytes.dram"] == 4 * 320 * 32
    assert values["gpu.of_peak.fp32"] == pytest.approx(4 * 500 / 8000)
    assert values["gpu.of_peak.tensor"] == pytest.approx(4 * 46 * 32 / 184 / 8000)
    assert "gpu.of_peak.fp64" not in values


def test_of_dram_nothing_is_said_where_the_model_does_not(rtx3070):
    result = result_of(1000)
    assert not result.tells_dram
    assert resources_of([result], rtx3070).amount[0, NAMES.index("dram")] == 0
    assert "gpu.bytes.dram" not in resource_statistics([result], np.ones(1), 1000, rtx3070)


def test_what_was_counted_is_kept():
    result = result_of(10, dram_reads=3, dram_writes=4, work=work(fp32=5.0), work_cycles=work(fp32=6.0))
    (found,) = from_arrays(to_arrays([result]))
    assert (found.dram_reads, found.dram_writes) == (3, 4)
    assert (found.work == result.work).all()
    assert (found.work_cycles == result.work_cycles).all()
