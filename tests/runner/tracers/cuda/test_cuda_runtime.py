"""The runtime that stands in for NVIDIA's, by programs without kernels. What the calls give is what the CUDA Runtime
API documents for them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from manyscale.runner.errors import UserError
from manyscale.runner.study.shown_device import shown_device
from manyscale.runner.tracers.cuda.library import runtime_library

PROGRAM = Path(__file__).parents[3] / "programs" / "cuda_calls.c"
OK = "cudaSuccess"
BAD = "cudaErrorInvalidValue"


@pytest.fixture(scope="module")
def calls(kit, build_folder):
    made = build_folder / "cuda_calls"
    words = ["gcc", str(PROGRAM), "-isystem", str(kit.include), str(kit.shared_runtime), "-o", str(made)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture
def lines(calls, kit, tracer_cache, tmp_path):
    """``lines(part, target)``: what a part prints, with what it said on standard error and the events."""

    def run(part: str, target: str = "rtx3070", gpus: int | None = None) -> tuple[list[str], str, str]:
        shown_device(target, gpus).write(tmp_path)
        environment = {"LD_PRELOAD": str(runtime_library(kit, tracer_cache)), "MANYSCALE_CUDA_DIR": str(tmp_path)}
        done = subprocess.run(
            [str(calls), part], capture_output=True, text=True, check=False, env={**os.environ, **environment}
        )
        assert done.returncode == 0, done.stderr
        events = "".join(path.read_text() for path in tmp_path.glob("process-*/events"))
        return done.stdout.splitlines(), done.stderr, events

    return run


def test_memory(lines):
    printed, _, events = lines("memory")
    expected = [OK, OK, OK, "512 1024", OK, OK, OK, OK, "01xxx56789"]
    expected += [BAD, BAD, BAD]  # behind the end, before the begin
    expected += [OK, BAD, BAD, OK, BAD, OK]  # freed twice; no begin; nothing; the last error, which is told once
    expected += ["cudaErrorMemoryAllocation", "out of memory", OK, "512"]
    assert printed == expected
    assert events.splitlines()[1].split()[::3] == ["copy", "16"]


def test_pitched_and_boxed_memory(lines):
    printed, _, _ = lines("shapes")
    rows = ["a--de.....", "k--no.....", "u--xy.....", "efghi....."]
    expected = [OK, "512", OK, OK, OK, *rows, "cudaErrorInvalidPitchValue", OK, OK, OK, "DDDDDDD", OK]
    assert printed == [*expected, f"{8 << 30} {4 * 512 + 4 * 512}"]


def test_memory_of_the_host(lines):
    printed, _, _ = lines("host")
    kinds = [OK, "1", OK, "3", OK, "0"]
    registered = [OK, "cudaErrorHostMemoryAlreadyRegistered", OK, "1", OK, "cudaErrorHostMemoryNotRegistered"]
    assert printed == [OK, OK, OK, "the host writes it", *kinds, *registered, BAD, OK]


@pytest.mark.parametrize(
    ("target", "device", "attributes"),
    [
        (  # NVIDIA, GeForce RTX 3070 (46 SMs, 8 GB, 4 MB of L2), CUDA C++ Programming Guide, compute capability 8.6
            "rtx3070",
            f"1 NVIDIA GeForce RTX 3070 8.6 46 {8 << 30} 49152 {99 << 10} 65536 32 1536 1024",
            ["1132000", "46", str(4 << 20), str(2**31 - 1), "32", "1"],
        ),
        (  # NVIDIA A100 Tensor Core GPU Architecture; capability 8.0
            "a100",
            f"1 NVIDIA A100-SXM4-40GB 8.0 108 {40 << 30} 49152 {163 << 10} 65536 32 2048 1024",
            ["1410000", "108", str(40 << 20), str(2**31 - 1), "32", "1"],
        ),
        (
            "h100",
            f"1 NVIDIA H100 80GB HBM3 9.0 132 {80 << 30} 49152 {227 << 10} 65536 32 2048 1024",
            ["1980000", "132", str(50 << 20), str(2**31 - 1), "32", "1"],
        ),
    ],
)
def test_the_device_is_the_targets(lines, target, device, attributes):
    printed, _, _ = lines("devices", target)
    assert printed[:4] == [OK, "cudaErrorInvalidDevice", OK, device]
    assert printed[5::2] == attributes


def test_graphs_streams_and_events(lines):
    printed, _, events = lines("graphs")
    captured = [OK] * 6 + ["cudaErrorStreamCaptureUnsupported", OK, "1", OK, "3 0"]
    launched = [OK, OK, OK, OK, OK, "zef 3"]
    built = [OK] * 7 + ["ABAB 4", OK, BAD]  # the copy runs behind the set, though it was added before
    timed = ["cudaErrorInvalidResourceHandle", OK, OK, OK, "1"]
    gone = [OK, "cudaErrorInvalidResourceHandle", "cudaErrorInvalidResourceHandle"]
    allocated = [OK] * 7 + [BAD, OK, OK, "qq"]
    assert printed == [OK] * 4 + captured + launched + built + timed + allocated + gone
    assert "note cuda-host-times 1 cudaEventElapsedTime" in events


def test_several_gpus(lines):
    printed, _, _ = lines("several", gpus=2)
    invalid, device, handle = "cudaErrorInvalidValue", "cudaErrorInvalidDevice", "cudaErrorInvalidResourceHandle"
    expected = [OK, device, OK, OK, "2 0", OK, "cudaErrorMemoryAllocation", "1 0", OK, OK]
    expected += [OK, OK, "1 0", "cudaErrorPeerAccessNotEnabled", OK, "cudaErrorPeerAccessAlreadyEnabled", device]
    expected += [device, OK, invalid, "abc", OK, OK, OK, handle, OK, OK, OK, OK, "0000:02:00.0 1"]
    expected += [OK, OK, invalid]
    assert printed == expected


def test_as_many_gpus_as_the_targets_node_has():
    assert shown_device("a100").gpus == 1
    for wrong in (0, 17):
        with pytest.raises(UserError, match=f"--gpus {wrong}: a traced program is shown 1 to 16 GPUs"):
            shown_device("a100", wrong)


def test_a_call_that_is_not_there_says_so_once_and_fails(lines):
    printed, told, events = lines("missing")
    assert printed[:4] == ["cudaErrorNotSupported"] * 4
    assert printed[4] == "operation not supported|a PTX JIT compilation failed|nvlink uncorrectable"
    assert told.splitlines() == [
        "manyscale: cudaMallocMipmappedArray is not supported",
        "manyscale: cudaIpcCloseMemHandle is not supported",
    ]
    assert "note cuda-not-supported 2 cudaMallocMipmappedArray" in events.splitlines()


def test_every_documented_call_is_exported(kit, tracer_cache):
    """Names of NVIDIA's own library, but for what the toolkit's headers do not declare."""

    def exported(path: Path) -> set[str]:
        listed = subprocess.run(["nm", "-D", "--defined-only", str(path)], capture_output=True, text=True, check=True)
        return {line.split()[-1].split("@")[0] for line in listed.stdout.splitlines()}

    undeclared = {"__cudaGetProcAddress", "__cudaRegisterHostVar", "__cudaRegisterUnifiedTable"}
    undeclared |= {"cudaSubgridCreate", "cudaSubgridWorkerGridCreate", "cudaSubgridWorksetCreate"}
    theirs = {name for name in exported(kit.shared_runtime) if name.startswith(("cuda", "__cuda"))}
    assert theirs - exported(runtime_library(kit, tracer_cache)) <= undeclared


def test_outside_of_a_trace_it_says_how_to_run_it(calls, kit, tracer_cache):
    environment = {**os.environ, "LD_PRELOAD": str(runtime_library(kit, tracer_cache))}
    environment.pop("MANYSCALE_CUDA_DIR", None)
    done = subprocess.run([str(calls), "devices"], capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "manyscale trace --level gpu" in done.stderr
