"""Traces of CUDA programs in Accel-Sim's format: against NVBit's of the same program on hardware, and read again."""

from __future__ import annotations

import json
import lzma
import os
import re
import struct
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pytest

from manyscale.models.workload import Workload
from manyscale.models.workload.launch_trace import MAX_OPERANDS, LaunchTrace
from manyscale.runner.cli import main
from manyscale.runner.errors import UserError
from manyscale.runner.readers import accelsim, cuda
from manyscale.runner.report.traces.accelsim import write_trace
from manyscale.runner.study import WorkloadChoice
from manyscale.runner.study.traces import read_workload

RECORDED = Path(os.environ.get("MANYSCALE_DATA", "/nowhere")) / "gpu" / "misc" / "simple-trace-example"
HEADS = "kernel_name grid block shared_bytes registers binary_version"
COLUMNS = "block_warps warp_instructions warp_accesses active accesses sector written"
STATIC = "pc unit space access immediate bypasses_l1 destinations sources"

VECTOR_ADD = (Path(__file__).parents[3] / "programs" / "cuda_vector_add.cu").read_text()
MIXED = """
#include <cuda_runtime.h>
__global__ void mixed(const float4 *in, double *out, int *counts, const int *at) {
    __shared__ float tile[96];
    const int t = threadIdx.x + blockDim.x * threadIdx.y;
    float own[8];
    for (int k = 0; k < 8; k++) own[k] = in[t].y + at[k];
    const float4 wide = in[(t * 7) % 48];
    tile[t * 2] = wide.x + own[at[t] & 7];
    tile[t * 2 + 1] = wide.z;
    __syncthreads();
    const float *from = at[0] ? tile : (const float *)in;  // generic
    float sum = from[at[t] % 90];
    if (t % 5 == 2) sum += from[t];
    if (t == 17) sum += own[at[3] & 3];
    out[blockIdx.x + 3 * blockIdx.y + 6 * t] = sum;
    atomicAdd(&counts[t % 3], 1);
}
__global__ void idle() {}
int main() {
    int numbers[64];
    for (int k = 0; k < 64; k++) numbers[k] = (k * 37 + 1) % 48;
    float4 *in;
    double *out;
    int *counts, *at;
    cudaMalloc(&in, 48 * sizeof *in), cudaMalloc(&out, 6 * 48 * sizeof *out), cudaMalloc(&counts, 12);
    cudaMalloc(&at, sizeof numbers);
    cudaMemcpy(at, numbers, sizeof numbers, cudaMemcpyHostToDevice);
    mixed<<<dim3(3, 2), dim3(16, 3)>>>(in, out, counts, at);
    idle<<<2, 40>>>();
    return cudaDeviceSynchronize();
}
"""


def traced(program: Path, tracer_cache: Path, folder: Path) -> Path:
    """The tracer's own folder."""
    words = ["--as", "a100", "--keep-addresses", "--cache", str(tracer_cache), "-o", str(folder)]
    assert main(["trace", "--level", "gpu", *words, "--", str(program)]) == 0
    return folder / "raw"


def assert_equal(found: LaunchTrace, expected: LaunchTrace) -> None:
    """Whatever the order of the static instructions."""
    for name in HEADS.split():
        assert getattr(found, name) == getattr(expected, name), name
    for name in COLUMNS.split():
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name
    for name in STATIC.split():
        each = [getattr(trace.static, name)[trace.instruction] for trace in (found, expected)]
        assert np.array_equal(*each), name
    opcodes = [np.array(trace.static.opcodes)[trace.static.opcode[trace.instruction]] for trace in (found, expected)]
    assert np.array_equal(*opcodes)


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.skipif(not RECORDED.is_dir(), reason="needs the traces in $MANYSCALE_DATA")
def test_equal_to_nvbit_on_hardware_but_for_bases(nvcc, tracer_cache, tmp_path):
    program = nvcc("vectorAdd", VECTOR_ADD, "-arch=sm_80")
    raw = traced(program, tracer_cache, tmp_path / "traced")
    assert main(["convert", str(raw), "-o", str(tmp_path / "written"), "--to", "accelsim"]) == 0
    found = (tmp_path / "written" / "kernel-1.traceg").read_text().splitlines()
    expected = lzma.decompress((RECORDED / "kernel-1.traceg.xz").read_bytes()).decode().splitlines()
    bases = set()
    for own, other in zip_longest(found, expected):
        pair = [re.search(r"(?<= )0x([0-9a-f]+)", line) for line in (own, other)]
        if other.startswith(("-shmem", "-local", "-nvbit")):
            assert own.split("=")[0] == other.split("=")[0]
        elif pair[0] and pair[1]:
            assert own.replace(pair[0][0], "") == other.replace(pair[1][0], "")
            bases.add(int(pair[1][1], 16) - int(pair[0][1], 16) if int(pair[1][1], 16) else 0)
        else:
            assert own == other
    assert sum(bool(re.match(r"[0-9a-f]{4} ", line)) for line in found) == 26601
    assert len(bases - {0}) == 1
    base = bases.difference({0}).pop()
    copies = [
        [(int(line.split(",")[1], 16), line.split(",")[2]) for line in path.read_text().splitlines() if "," in line]
        for path in (tmp_path / "written" / "kernelslist.g", RECORDED / "kernelslist.g")
    ]
    assert [(address + base, size) for address, size in copies[0]] == copies[1]


@pytest.mark.slow
def test_read_again_it_is_the_same(nvcc, tracer_cache, tmp_path):
    program = nvcc("mixed", MIXED, "-arch=sm_80")
    raw = traced(program, tracer_cache, tmp_path / "traced")
    expected = cuda.read(raw)
    (tmp_path / "written").mkdir()
    write_trace(expected, tmp_path / "written")
    found = accelsim.read(tmp_path / "written")
    assert found.gpu is not None
    assert expected.gpu is not None
    assert found.gpu.launch_ids == expected.gpu.launch_ids == (1, 2)
    for launch_id in (1, 2):
        assert_equal(found.gpu.trace(launch_id), expected.gpu.trace(launch_id))
    spaces = expected.gpu.trace(1)
    assert set(spaces.static.space[spaces.instruction]) >= {0, 1, 2, 3}  # all that have addresses
    text = (tmp_path / "written" / "kernel-1.traceg").read_text()
    assert re.search(r"ATOM\S* .* 2 0x", text) or re.search(r"RED\S* .* 2 0x", text)
    for name in ("before_launch_id", "address", "bytes"):
        assert found.column("copies", name).tolist() == expected.column("copies", name).tolist()


def raw_folder(folder: Path, masks: list[int], addresses: list[list[int]]) -> Path:
    """A launch of a block with a warp that loads four bytes again and again, as native/sass.h has it."""
    process = folder / "process-1"
    process.mkdir(parents=True)
    row = {"pc": 0x1A0, "opcode": 0, "unit": 0, "space": 1, "access": 1, "immediate": 5, "bypasses_l1": 0}
    statics = {name: np.array([value]) for name, value in row.items()}
    statics |= {"destinations": np.full((1, MAX_OPERANDS), -1), "sources": np.full((1, MAX_OPERANDS), -1)}
    np.savez(folder / "kernels.npz", **statics)
    kernel = {"name": "load", "registers": 8, "shared_bytes": 0, "architecture": 80, "opcodes": ["LDG.E"], "rows": 1}
    (folder / "kernels.json").write_text(json.dumps([kernel | {"listed": ["1 R2 LDG.E 1 R4 4"]}]))
    number = len(masks)
    sectors = [sorted({each // 32 for each in some}) for some in addresses]
    all_of_them = [each for some in sectors for each in some]
    threads = sum(mask.bit_count() for mask in masks)
    record = struct.pack("<4I4Q", 1, 1, number, len(all_of_them), 0, number, threads, len(all_of_them))
    record += struct.pack(f"<2i{number}i", number, len(all_of_them), *[0] * number)
    record += bytes(mask.bit_count() for mask in masks) + bytes(map(len, sectors))
    record += struct.pack(f"<{len(all_of_them)}q", *all_of_them) + struct.pack(
        f"<{len(all_of_them)}I", *[0] * len(all_of_them)
    )
    (process / "launch-1").write_bytes(record + struct.pack("<4I4Q", 2, 0, 0, 0, 0, number, 0, 0))
    flat = [each for some in addresses for each in some]
    lanes = struct.pack("<2Q2I", 0x7000000, 0x8000000, number, len(flat)) + struct.pack(f"<{number}I", *masks)
    lanes += bytes(map(len, addresses)) + struct.pack(f"<{len(flat)}q", *flat)
    (process / "launch-1.lanes").write_bytes(lanes)
    (process / "events").write_text("copy 1 4096 64\nlaunch 1 0 1 1 1 32 1 1 0 0 1 whole recorded\nend 1\n")
    return folder


CASES = [  # (mask, addresses, what the format says of them)
    (0xFFFFFFFF, [4096 + 4 * k for k in range(32)], "1 0x1000 4"),
    (0x0000000F, [64, 60, 56, 52], "1 0x40 -4"),
    (0x00000006, [96, 96], "1 0x60 0"),
    (0x00000005, [64, 72], "2 0x40 8"),  # a lane between them does not execute
    (0x00000100, [64], "2 0x40"),
    (0x0000000F, [64, 68, 76, 64], "2 0x40 4 8 -12"),
    (0xC0000000, [1 << 40, 0x40], "2 0x10000000000 -1099511627712"),  # no stride of 32 bits
    (0x00000000, [], "1 0x0 0"),
]


def test_addresses_as_the_format_compresses_them(tmp_path):
    workload = cuda.read(raw_folder(tmp_path / "raw", [case[0] for case in CASES], [case[1] for case in CASES]))
    (tmp_path / "written").mkdir()
    write_trace(workload, tmp_path / "written")
    lines = (tmp_path / "written" / "kernel-1.traceg").read_text().splitlines()
    expected = [f"01a0 {mask:08x} 1 R2 LDG.E 1 R4 4 {text} 5 " for mask, _, text in CASES]
    assert lines[lines.index("warp = 0") + 2 : lines.index("#END_TB") - 1] == expected
    assert "-shmem base_addr = 0x0000000007000000" in lines
    listed = (tmp_path / "written" / "kernelslist.g").read_text().splitlines()
    assert listed == ["MemcpyHtoD,0x0000000000001000,64", "kernel-1.traceg"]


def convert(workload: Workload, tmp_path: Path) -> None:
    (tmp_path / "written").mkdir()
    write_trace(workload, tmp_path / "written")


def test_without_addresses_it_is_refused(tmp_path):
    raw = raw_folder(tmp_path / "raw", [1], [[64]])
    (raw / "process-1" / "launch-1.lanes").unlink()
    with pytest.raises(UserError, match=r"launch-1\.lanes: is missing.*--keep-addresses"):
        convert(cuda.read(raw), tmp_path)


@pytest.mark.parametrize(("name", "reason"), [("bfs-16", "--keep-addresses"), ("lulesh-8", "no kernel launches")])
def test_what_never_had_addresses_is_refused(name, reason, tmp_path):
    with pytest.raises(UserError, match=reason):
        convert(read_workload(WorkloadChoice(path=name)), tmp_path)


@pytest.mark.parametrize("damage", ["cut", "of another launch", "odd counts"])
def test_damaged_addresses_are_told(damage, tmp_path):
    raw = raw_folder(tmp_path / "raw", [3, 1], [[64, 68], [64]])
    path = raw / "process-1" / "launch-1.lanes"
    content = bytearray(path.read_bytes())
    if damage == "cut":
        del content[-1]
    elif damage == "of another launch":
        content[24:28], content[28:32] = content[28:32], content[24:28]
        content[32:34] = bytes((1, 2))
    else:
        content[32:34] = bytes((1, 2))
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"launch-1\.lanes.*trace the program again"):
        convert(cuda.read(raw), tmp_path)
