"""CUDA programs traced without a GPU: what they print is what CUDA C++ says that they do."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from manyscale.runner.readers import workload_folder

PROGRAMS = Path(__file__).parents[3] / "programs"
KERNELS = (PROGRAMS / "cuda_kernels.cu").read_text()
HEAP = 0x200000000000  # where the first allocation stands
EMPTY = "#include <cuda_runtime.h>\n__global__ void nothing() {}\nint main() { nothing<<<1, 1>>>(); return 0; }\n"


@pytest.mark.parametrize(
    "architecture",
    [pytest.param(each, marks=[] if each == 80 else pytest.mark.slow) for each in (75, 80, 86, 90, 100, 120)],
)
def test_kernels_find_what_the_module_file_holds(nvcc, trace, shown, architecture):
    program = nvcc(f"kernels-{architecture}", KERNELS, f"-arch=sm_{architecture}")
    status, printed, told, folder = trace([str(program)], "--as", shown(architecture))
    assert status == 0, told
    # of an SM: 100, 164, 228 KiB; a block takes 50,000 + 256 bytes and 1 KiB of the system's, in units of 128
    shared = {75: 64, 86: 100, 80: 164, 90: 228, 100: 228, 120: 100}[architecture] << 10
    blocks = shared // 51328
    expected = ["5 11", "262 12", "cudaSuccess", "2530 30", "9 13 7", "400", f"256 1024 1 {architecture}"]
    expected += ["cudaErrorInvalidConfiguration", "cudaErrorInvalidValue", "cudaSuccess", "cudaSuccess", str(blocks)]
    expected += ["cudaSuccess", "cudaSuccess", "cudaSuccess", "15"]
    assert printed[: len(expected)] == expected
    workload = workload_folder.read(folder)
    assert workload.column("launches", "launch_id").tolist() == [1, 2, 3, 4, 5]
    assert workload.column("launches", "shared_bytes").tolist() == [512, 512, 50256, 512, 512]
    assert workload.column("launches", "binary_version").tolist() == [architecture] * 5
    assert workload.column("launches", "stream").tolist() == [0, 0, 0, 1, 1]
    assert workload.tables["launches"].column("kernel_name")[0].as_py() == "_Z3usePfcd5Threes"
    assert (workload.column("launches", "warps") == 2).all()
    trace_of_one = workload.gpu.trace(1)
    assert trace_of_one.num_instructions == workload.column("launches", "warp_instructions")[0]
    stored = trace_of_one.static.access[trace_of_one.instruction] == 2
    space = trace_of_one.static.space[trace_of_one.instruction] == 1
    lanes = trace_of_one.active[stored & space & (trace_of_one.active == 32)]
    assert len(lanes) == 4  # two warps, each with out[t] and table[t]
    assert np.diff(trace_of_one.warp_instructions).min() > 0


def test_an_access_outside_an_allocation_goes_on_as_on_hardware(nvcc, trace):
    program = nvcc("kernels-80", KERNELS, "-arch=sm_80")
    status, printed, told, folder = trace([str(program), "outside", "33"])
    assert status == 0
    assert printed[:3] == ["cudaSuccess"] * 3
    assert f"_Z7outsidePii: accesses {HEAP + 256:#x}, outside of what is allocated" in told
    assert [note.code for note in workload_folder.read(folder).notes] == ["cuda-outside-allocation"]


@pytest.mark.slow
@pytest.mark.parametrize(("first", "options"), [("33", ["--check-memory"]), ("10000000", [])])
def test_an_access_that_stops_is_told_and_everything_after_it_fails(nvcc, trace, first, options):
    """Of thread 31 one behind the end, or of all far away. It is the only launch: nothing is left to predict."""
    program = nvcc("kernels-lines", KERNELS, "-arch=sm_80", "-lineinfo")
    line = next(n for n, text in enumerate(KERNELS.splitlines(), 1) if text.startswith("__global__ void outside"))
    status, printed, told, folder = trace([str(program), "outside", first], *options)
    assert printed[1:3] == ["cudaErrorIllegalAddress"] * 2
    lines = [line for line in told.splitlines() if "_Z7outsidePii" in line]
    thread = 31 if options else 0
    assert f"thread ({thread},0,0)" in lines[0]
    assert f"{HEAP + 4 * (int(first) + thread):#x}" in lines[0]
    assert (status, folder.exists()) == (2, False)
    assert lines[-1].startswith(f"manyscale: {program}: no launch completed a block")
    assert f"kernels-lines.cu:{line}, STG.E [" in lines[-1]


@pytest.mark.slow
def test_code_for_another_gpu_is_refused_and_ptx_is_compiled(nvcc, trace, tmp_path):
    program = nvcc("hopper", EMPTY, "-gencode", "arch=compute_90,code=sm_90")
    status, _, told, folder = trace([str(program)], "--as", "a100")
    assert (status, told.count("\n")) == (2, 1)
    assert "has sm_90" in told
    assert "nvcc -arch=sm_80" in told
    assert not folder.exists()
    program = nvcc("ptx", EMPTY, "-gencode", "arch=compute_75,code=compute_75")
    status, _, told, folder = trace([str(program)], "--as", "a100")
    assert status == 0
    assert "its PTX was compiled for sm_80" in told
    assert workload_folder.read(folder).column("launches", "binary_version").tolist() == [80]


def test_a_static_runtime_is_told_how_to_relink(nvcc, trace):
    program = nvcc("static", EMPTY, "-arch=sm_80", "-cudart", "static")
    status, _, told, _ = trace([str(program)])
    assert (status, told.count("\n")) == (2, 1)
    assert "`manyscale trace --nvcc`" in told


@pytest.mark.slow
def test_a_program_without_cuda_and_one_without_launches(nvcc, trace):
    status, _, told, folder = trace(["/bin/true"])
    assert status == 2
    assert [line.startswith("manyscale: tracing") for line in told.splitlines()] == [True, False]
    assert "/bin/true: neither it nor a program that it started launched a kernel" in told
    assert not folder.exists()
    program = nvcc("idle", "#include <cuda_runtime.h>\nint main() { return cudaDeviceSynchronize(); }\n", "-arch=sm_80")
    status, _, told, folder = trace([str(program)])
    assert status == 2
    assert f"{program}: neither it nor a program that it started launched a kernel" in told
    assert not folder.exists()


@pytest.mark.slow
def test_two_units_with_kernels_of_one_name_are_told_apart(kit, nvcc, trace, build_folder, link_flags):
    """Each has a static variable and a kernel of the same name."""
    unit = (
        "#include <cuda_runtime.h>\nnamespace {{ __device__ int value = {0};\n"
        "__global__ void give(int *p) {{ *p = value; }} }}\n"
        "int of_{0}() {{ int *p, back; cudaMalloc(&p, 4); give<<<1, 1>>>(p);"
        " cudaMemcpy(&back, p, 4, cudaMemcpyDefault); return back; }}\n"
    )
    files = []
    for number in (3, 4):
        path = build_folder / f"unit{number}.cu"
        path.write_text(unit.format(number))
        files.append(str(path))
    head = build_folder / "units.cu"
    head.write_text('#include <cstdio>\nint of_3(); int of_4(); int main() { printf("%d %d\\n", of_4(), of_3()); }\n')
    program = build_folder / "units"
    words = [str(kit.tool("nvcc")), "-arch=sm_80", *files, str(head), "-o", str(program), *link_flags]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    status, printed, told, _ = trace([str(program)])
    assert (status, printed[0]) == (0, "4 3"), told


def test_an_unknown_or_gpuless_target(trace):
    status, _, told, _ = trace(["/bin/true"], "--as", "laptop")
    assert (status, told.count("\n")) == (2, 1)
    assert "has no GPU" in told


SYSTEM = r"""
#include <cassert>
#include <cstdio>
__global__ void hello(int n) {
    printf("hi %d %s %5.2f %lld%% %*c\n", threadIdx.x + n, "you", 1.5, 1ll << 40, 3, 'z');
    int *p = (int *)malloc(8);
    p[1] = n + threadIdx.x;
    printf("%d\n", p[1]);
    free(p);
    if (n == 2) assert(threadIdx.x != 1);
}
int main(int count, char **) {
    hello<<<1, 2>>>(count);
    printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
}
"""


@pytest.mark.slow
@pytest.mark.parametrize(("architecture", "shown"), [(80, "a100"), (90, "h100")])
def test_functions_of_the_system(nvcc, trace, architecture, shown):
    program = nvcc(f"system-{architecture}", SYSTEM, f"-arch=sm_{architecture}")
    status, printed, _, folder = trace([str(program)], "--as", shown)
    lines = ["hi 1 you  1.50 1099511627776%   z", "hi 2 you  1.50 1099511627776%   z", "1", "2", "no error"]
    assert (status, printed[:5]) == (0, lines)
    assert [note.code for note in workload_folder.read(folder).notes] == ["cuda-system-functions"]


@pytest.mark.slow
def test_an_assertion_of_a_thread_fails(nvcc, trace):
    program = nvcc("system-80", SYSTEM, "-arch=sm_80")
    _, printed, told, _ = trace([str(program), "again"])
    assert printed[4] == "device-side assert triggered"
    assert "void hello(int): block: [0,0,0], thread: [1,0,0] Assertion `threadIdx.x != 1` failed." in told


@pytest.mark.slow
@pytest.mark.parametrize(("architecture", "shape"), [(75, "1688"), (80, "16816"), (90, "16816")])
def test_matrices_are_multiplied_by_tensor_cores(nvcc, trace, shown, architecture, shape):
    program = nvcc(f"wmma-{architecture}", (PROGRAMS / "cuda_wmma.cu").read_text(), f"-arch=sm_{architecture}")
    status, printed, told, folder = trace([str(program)], "--as", shown(architecture))
    assert (status, printed[:2]) == (0, ["0 wrong", "0 wrong"]), told
    launch = workload_folder.read(folder).gpu.trace(1)
    names = np.array(launch.static.opcodes)[launch.static.opcode[launch.instruction]]
    products = np.count_nonzero(names == f"HMMA.{shape}.F32")
    assert products == 16 * 4 * (2 if shape == "16816" else 4)  # 16 tiles, 4 steps, 16 x 16 x 16 in each
