"""Programs on the driver's interface, whose device code arrives while they run. What the calls give is what the CUDA
Driver API documents for them; results are the programs' own checks, which are on the CPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from manyscale.runner.study.shown_device import shown_device
from manyscale.runner.tracers.cuda import driver_interface, session
from manyscale.runner.tracers.cuda.library import runtime_library

PROGRAMS = Path(__file__).parents[3] / "programs"
PROGRAM = PROGRAMS / "cuda_driver.c"
AXPY = """
__device__ float factor[1];
extern "C" __global__ void axpy(float a, const float *x, float *y, int n) {
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k < n) y[k] += a * x[k] * factor[0];
}
"""
OK = "CUDA_SUCCESS"
BAD = "CUDA_ERROR_INVALID_VALUE"


@pytest.fixture(scope="module")
def program(kit, build_folder):
    """Linked with a driver that does nothing, as those of a toolkit's folder ``stubs``."""
    made, stub, source = (build_folder / name for name in ("cuda_driver", "libcuda.so.1", "stub.c"))
    source.write_text(
        "".join(f"int {name}(void) {{ return 999; }}\n" for name in driver_interface.symbols(kit.include))
    )
    _compiled("-shared", "-w", "-Wl,-soname,libcuda.so.1", str(source), "-o", str(stub))
    _compiled(str(PROGRAM), "-isystem", str(kit.include), str(stub), "-o", str(made))
    return made


def _compiled(*words):
    done = subprocess.run(["gcc", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def lines(program, kit, tracer_cache, tmp_path):
    """``lines(part)``: what a part prints, with what it said on standard error."""

    def run(part: str) -> tuple[list[str], str]:
        shown_device("rtx3070").write(tmp_path)
        library = runtime_library(kit, tracer_cache)
        environment = {"LD_LIBRARY_PATH": str(library.parent), "MANYSCALE_CUDA_DIR": str(tmp_path)}
        done = subprocess.run(
            [str(program), part], capture_output=True, text=True, check=False, env={**os.environ, **environment}
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines(), done.stderr

    return run


def traced(command, kit, cache, folder, target="rtx3070"):
    folder.mkdir()
    words = [str(each) for each in command]
    found, _ = session.find_program(words)
    recording = session.Recording(announces=False)
    return session.trace(words, found, kit, shown_device(target), folder, cache, recording)


def test_nothing_works_before_it_is_initialised(lines):
    assert lines("early")[0] == ["CUDA_ERROR_NOT_INITIALIZED"]


def test_contexts(lines):
    none = "CUDA_ERROR_INVALID_CONTEXT"
    assert lines("contexts")[0] == [none, none, "0 1", "1 1", none, none]


def test_calls_are_found_by_name_and_version(lines):
    printed, told = lines("addresses")
    found = [f"{name} {OK} 0 found" for name in ("cuMemAlloc", "cuMemAlloc", "cuCtxCreate")]
    missing = [f"cuLaunchKernelEx {OK} 2 none", f"cuNothing {OK} 1 none"]  # which came with 11.8; which never came
    assert printed == [*found, *missing, f"cuInit {OK} 0 found", "1", "CUDA_ERROR_NOT_FOUND"]
    assert told == ""


def test_memory_of_the_driver(lines):
    printed, told = lines("memory")
    sets = ["1234 1234 1234 1234 99 abcd 99 abcd", BAD]  # a set of words needs a word's address
    assert printed == [*sets, "1 1000", "1", BAD, "bcfgjk", BAD, BAD, BAD, OK, "CUDA_ERROR_NOT_SUPPORTED"]
    assert told.splitlines() == ["manyscale: cuMemAddressReserve is not supported"]


def test_graphs_of_the_driver(lines):
    assert lines("graphs")[0] == ["0 1 1 1", "5 5 5 5 9 5", "0 0 1", BAD]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("cubin", ("-cubin", "-arch=sm_86")),
        ("ptx", ("-ptx", "-arch=compute_75")),
        (
            "fatbin",
            ("-fatbin", "-gencode", "arch=compute_75,code=sm_75", "-gencode", "arch=compute_80,code=compute_80"),
        ),
    ],
)
@pytest.mark.slow
def test_code_of_every_kind_is_loaded_in_every_way(program, kit, tracer_cache, tmp_path, capfd, kind, words):
    source, ptx = tmp_path / "axpy.cu", tmp_path / "axpy.ptx"
    source.write_text(AXPY)
    nvcc = str(kit.tool("nvcc"))
    subprocess.run([nvcc, "-ptx", "-arch=compute_86", str(source), "-o", str(ptx)], check=True)
    code = tmp_path / f"axpy-{kind}"
    subprocess.run([nvcc, *words, str(source), "-o", str(code)], check=True)
    workload, status = traced([program, "load", code, ptx], kit, tracer_cache, tmp_path / "trace")
    handle = "CUDA_ERROR_INVALID_HANDLE"
    missing = ["CUDA_ERROR_NOT_FOUND", "CUDA_ERROR_NOT_FOUND"]
    refused = ["CUDA_ERROR_INVALID_PTX", "the log says so", "CUDA_ERROR_INVALID_IMAGE", "CUDA_ERROR_FILE_NOT_FOUND"]
    assert capfd.readouterr().out.splitlines() == [
        "file 0 4", *missing, handle, handle, "data 0", "library 0", *refused, "linked 0"
    ]  # fmt: skip
    assert status == 0
    launches = workload.tables["launches"].to_pylist()
    assert [each["kernel_name"] for each in launches] == ["axpy"] * 4
    for launch_id in (1, 2, 3, 4):  # 32 warps, each of which has threads below n, load x, y and the factor
        executed = workload.gpu.executed(launch_id)
        assert (executed["LDG"], executed["STG"]) == (96, 32)


PYTHON = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
def need(result):
    if result: sys.exit(f"error {result}")
need(cuda.cuInit(0))
context, module, kernel, place = (ctypes.c_void_p() for _ in range(4))
need(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
need(cuda.cuCtxSetCurrent(context))
ptx = b'''
.version 7.0
.target sm_75
.address_size 64
.visible .entry squares(.param .u64 to) {
    .reg .b32 %r<3>; .reg .b64 %d<4>;
    ld.param.u64 %d1, [to]; cvta.to.global.u64 %d1, %d1;
    mov.u32 %r1, %tid.x; mul.lo.u32 %r2, %r1, %r1;
    mul.wide.u32 %d2, %r1, 4; add.u64 %d3, %d1, %d2;
    st.global.u32 [%d3], %r2; ret;
}'''
need(cuda.cuModuleLoadData(ctypes.byref(module), ptx))
need(cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"squares"))
need(cuda.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(256)))
arguments = (ctypes.c_void_p * 1)(ctypes.addressof(place))
need(cuda.cuLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, None, arguments, None))
found = (ctypes.c_uint32 * 64)()
need(cuda.cuMemcpyDtoH_v2(found, place, ctypes.c_size_t(256)))
sys.exit(list(found) != [k * k for k in range(64)])
"""


def test_python_finds_the_driver_and_its_kernels_are_traced(kit, tracer_cache, tmp_path):
    script = tmp_path / "squares.py"
    script.write_text(textwrap.dedent(PYTHON))
    workload, status = traced([sys.executable, script], kit, tracer_cache, tmp_path / "trace", "a100")
    assert status == 0
    (launch,) = workload.tables["launches"].to_pylist()
    assert (launch["kernel_name"], launch["block_x"]) == ("squares", 64)


def test_every_documented_call_of_the_driver_is_exported(kit, tracer_cache):
    words = ["nm", "-D", "--defined-only", str(runtime_library(kit, tracer_cache))]
    listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    exported = {line.split()[-1].split("@")[0] for line in listed.splitlines()}
    declared = set(re.findall(r"CUDAAPI\s+(cu[A-Z]\w+)\(", (kit.include / "cuda.h").read_text()))
    assert declared <= exported
    assert {"cuMemAlloc_v2", "cuLaunchKernel_ptsz", "cuMemcpyHtoD_v2_ptds", "cuGetProcAddress_v2"} <= exported
    assert "cuInit" in driver_interface.symbols(kit.include)


@pytest.mark.slow
def test_runtime_and_driver_are_one(nvcc, program, kit, tracer_cache, build_folder, tmp_path, capfd):
    code = nvcc("axpy.cubin", AXPY, "-cubin", "-arch=sm_86")
    stub = f"-Xlinker={build_folder / 'libcuda.so.1'}"
    both = nvcc("both", (PROGRAMS / "cuda_both.cu").read_text(), "-arch=sm_86", "-std=c++17", stub)
    workload, status = traced([both, code], kit, tracer_cache, tmp_path / "trace")
    assert (capfd.readouterr().out.splitlines(), status) == (["1 1 1", "1 0 1 1", "PASSED"], 0)
    launches = workload.tables["launches"].to_pylist()
    assert [each["kernel_name"] for each in launches] == ["_Z7add_onePfi", "axpy"]
    assert launches[0]["stream"] == launches[1]["stream"] != 0


@pytest.mark.slow
def test_kernels_copy_boxes_by_tensor_maps_of_the_driver(nvcc, kit, tracer_cache, tmp_path, capfd):
    program = nvcc("tensor_map", (PROGRAMS / "cuda_tensor_map.cu").read_text(), "-arch=sm_90", "-std=c++17")
    _, status = traced([program], kit, tracer_cache, tmp_path / "trace", "h100")
    assert (capfd.readouterr().out.splitlines(), status) == (["1 1 1 0", "PASSED"], 0)


@pytest.mark.parametrize("form", ["cubin", "ptx"])
@pytest.mark.slow
def test_programs_of_nvrtc_are_traced(program, kit, tracer_cache, build_folder, tmp_path, form):
    libraries = [kit.home / "lib", kit.home / "lib64"]
    found = [path for folder in libraries for path in folder.glob("libnvrtc.so.*") if "alt" not in path.name]
    if not found or not (kit.include / "nvrtc.h").is_file():
        pytest.skip("NVRTC is not installed (pip install nvidia-cuda-nvrtc)")
    made = build_folder / "cuda_nvrtc"
    words = [str(PROGRAMS / "cuda_nvrtc.c"), "-isystem", str(kit.include), str(build_folder / "libcuda.so.1")]
    _compiled(*words, str(found[0]), f"-Wl,-rpath,{found[0].parent}", "-o", str(made))
    workload, status = traced([made, form], kit, tracer_cache, tmp_path / "trace")
    assert status == 0
    (launch,) = workload.tables["launches"].to_pylist()
    # 16 x 16 threads for each tile of a matrix of 70 x 90; each warp loads and stores where it has threads inside
    assert (launch["blocks"], launch["warps"]) == (5 * 6, 5 * 6 * 8)
    assert [note.code for note in workload.notes if note.code.startswith("cuda")] == ["cuda-undocumented-tables"]


@pytest.mark.parametrize(
    ("target", "kernel", "products"),
    [
        ("a100", "add", None),
        ("a100", "softmax", None),
        ("a100", "matmul", "HMMA"),
        ("a100", "attention", "HMMA"),
        ("h100", "boxes", "HGMMA"),
    ],
)
@pytest.mark.slow
def test_kernels_of_triton_are_traced(kit, tracer_cache, tmp_path, monkeypatch, target, kernel, products):
    pytest.importorskip("triton", reason="Triton is not installed (pip install triton)")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    command = [sys.executable, PROGRAMS / "triton_kernels.py", kernel]
    workload, status = traced(command, kit, tracer_cache, tmp_path / "trace", target)
    assert status == 0
    assert [each["kernel_name"] for each in workload.tables["launches"].to_pylist()] == [f"{kernel}_kernel"]
    assert {each for each in workload.gpu.executed(1) if "MMA" in each} == ({products} if products else set())


@pytest.mark.slow
def test_kernels_of_numba_are_traced(kit, tracer_cache, tmp_path, capfd):
    pytest.importorskip("numba_cuda", reason="Numba-CUDA is not installed (pip install numba-cuda[cu13])")
    command = [sys.executable, PROGRAMS / "numba_kernels.py"]
    workload, status = traced(command, kit, tracer_cache, tmp_path / "trace", "a100")
    assert (status, "PASSED" in capfd.readouterr().out) == (0, True)
    assert workload.tables["launches"]["blocks"].to_pylist() == [8, 8, 20]
