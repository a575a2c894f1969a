"""A program of one process: its streams, events and copies, as its source has them, and the run that follows."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from tracer_programs import PROGRAMS

from manyscale.models.workload import Workload
from manyscale.models.workload.gpu_tables import GpuFlag, GpuOperationKind
from manyscale.runner.api import studies
from manyscale.runner.readers import workload_folder
from manyscale.runner.run.results import Result

G, F = GpuOperationKind, GpuFlag
BYTES = (1 << 14) * 4


@pytest.fixture
def traced_pipeline(nvcc, trace) -> Workload:
    program = nvcc("pipeline", (PROGRAMS / "cuda_pipeline.cu").read_text(), "-arch=sm_86")
    status, printed, told, folder = trace([str(program)], "--as", "rtx3070", "--gpus", "2")
    assert (status, printed[0]) == (0, "PASSED"), told
    return workload_folder.read(folder)


@pytest.fixture
def run_it(tmp_path) -> Callable[[Workload], Result]:
    def run(folder: str) -> Result:
        link = {"latency": "0 us"}
        target = {"name": "rtx3070", "node": {"gpus": 2, "gpu": {"host_link": link}}}
        study = {"schema": 1, "workload": {"path": folder}, "target": target, "cpu_ratio": 1e-9}
        return studies.run(study, tmp_path / "out", executor="local", cache=tmp_path / "cache", report=False)

    return run


@pytest.mark.slow
def test_streams_events_and_copies_are_those_of_the_source(traced_pipeline, run_it, tmp_path):
    names = ("kind", "stream", "bytes", "event", "device", "peer", "priority", "flags")
    rows = list(zip(*(traced_pipeline.column("gpu_operations", name).tolist() for name in names), strict=True))
    expected = []
    for stream in range(1, 5):
        last = stream == 4
        of_stream = (0, -1, -2 if last else 0, int(F.non_blocking) if last else 0)
        expected += [
            (G.copy_to_device, stream, BYTES, 0, *of_stream),
            (G.launch, stream, 0, 0, *of_stream),
            (G.copy_to_host, stream, BYTES, 0, *of_stream),
        ]
    default = int(F.default_stream)
    expected += [
        (G.record_event, 1, 0, 1, 0, -1, 0, 0),
        (G.wait_event, 2, 0, 1, 0, -1, 0, 0),
        (G.synchronize_event, 0, 0, 1, 0, -1, 0, default),
        (G.synchronize_device, 0, 0, 0, 0, -1, 0, default),
        (G.copy_to_device, 0, 4, 0, 0, -1, 0, default | F.waits | F.pageable),
    ]
    assert rows[: len(expected)] == expected
    kind, _, size, _, device, peer, _, flags = rows[len(expected)]  # to the current device, from the first
    assert (kind, size, device, peer, flags) == (G.copy_on_device, BYTES, 1, 0, default | F.from_peer)
    assert traced_pipeline.num_ranks == 1
    the_run_is_a_pipeline(run_it(str(tmp_path / "traced")))


def the_run_is_a_pipeline(result: Result) -> None:
    """Without latencies a copy of 64 KiB takes 2.6 us at 25 GB/s; launches take longer: each begins when its piece is
    there, and the copies of other pieces go on meanwhile."""
    assert result.gpu_streams is not None
    rows = result.gpu_streams.to_pylist()
    into = [row for row in rows if row["operation"] == "copy_to_device" and row["bytes"] == BYTES]
    took = BYTES * 40
    for before, after in pairwise(into):
        assert before["end_ps"] - before["start_ps"] == took
        assert after["start_ps"] == pytest.approx(before["end_ps"], abs=1000)  # hosts take a billionth of their time
    launches = [row for row in rows if row["operation"] == "launch"]
    assert [row["start_ps"] for row in launches] == [row["end_ps"] for row in into]
    assert launches[0]["end_ps"] > into[1]["end_ps"]
    (peer,) = (row for row in rows if row["operation"] == "copy_on_device")
    assert peer["end_ps"] - peer["start_ps"] == took  # over the hosts' links, for the target has no peers'
    assert result.statistics["gpu.copies"].value == 2 * 4 + 2
    assert not {"cuda-several-gpus", "folded-gpus", "copies"} & {note.code for note in result.notes}
