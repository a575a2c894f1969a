"""Lines of source, texts and divergence of a traced program whose lines are known."""

from __future__ import annotations

import re

import numpy as np
import pyarrow.parquet as pq
import pytest

from manyscale.runner.cli import main
from manyscale.runner.readers import workload_folder
from manyscale.runner.readers.stores.launch_store import StoredLaunch
from manyscale.runner.readers.stores.static_columns import STATIC_SCHEMA

HELPER = """__device__ inline float squared(float x) {
    return x * x;
}
"""
PROGRAM = """#include <cuda_runtime.h>
#include "squared.cuh"
__global__ void lines(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = squared(in[i]);
    if (i % 32 < 5)
        out[i] = x * 3.0f;
    else
        out[i] = sinf(x);
}
__global__ void other(float *out) { out[threadIdx.x] = 1.0f; }
int main() {
    float *in, *out;
    cudaMalloc(&in, 4000), cudaMalloc(&out, 4000);
    cudaMemset(in, 0, 4000);
    lines<<<4, 256>>>(in, out, 1000);
    other<<<1, 32>>>(out);
    return cudaDeviceSynchronize();
}
"""
THREADS = 1000  # that pass line 5, of 32 warps with one another
FEW = sum(i % 32 < 5 for i in range(THREADS))


@pytest.fixture(scope="module")
def stored(nvcc, build_folder, tracer_cache, tmp_path_factory):
    """``stored(*words)``: folders of the two launches, compiled with these words."""

    def trace(*words: str) -> list[StoredLaunch]:
        (build_folder / "squared.cuh").write_text(HELPER)
        program = nvcc("lines" + "".join(words), PROGRAM, "-arch=sm_80", *words)
        folder = tmp_path_factory.mktemp("lines")
        command = ["trace", "--level", "gpu", "--as", "a100", "--cache", str(tracer_cache), "-o", str(folder)]
        assert main([*command, "--", str(program)]) == 0
        launches = workload_folder.read(folder).gpu
        assert launches is not None
        return [launches.stored(number) for number in (1, 2)]

    return trace


@pytest.mark.slow
def test_lines_of_source_and_divergence(stored):
    launch, other = stored("-lineinfo")
    details, counts = launch.static.details, launch.counts
    trace = launch.trace(1)
    assert counts.executed.tolist() == np.bincount(trace.instruction, minlength=len(counts.executed)).tolist()
    lanes = np.bincount(trace.instruction, trace.active, minlength=len(counts.executed))
    assert counts.threads.tolist() == lanes.tolist()
    by_line: dict[tuple[str, int], dict[str, int]] = {}
    for row, text in enumerate(details.text):
        if counts.executed[row]:
            file, _, line = details.source(row).rpartition(":")
            root = re.sub(r"^@\S+ ", "", text).split(" ")[0].split(".")[0]
            found = by_line.setdefault((file.rpartition("/")[2], int(line)), {})
            found[root] = found.get(root, 0) + int(counts.threads[row])
    assert by_line["squared.cuh", 2] == {"FMUL": THREADS}  # the innermost line of what is inlined
    assert by_line["lines-lineinfo.cu", 6]["LDG"] == THREADS
    assert by_line["lines-lineinfo.cu", 8]["STG"] == FEW
    assert by_line["lines-lineinfo.cu", 10]["STG"] == THREADS - FEW
    assert {line for file, line in by_line if file == "lines-lineinfo.cu"} <= set(range(3, 12))
    parted = np.flatnonzero(counts.diverged)
    assert [(details.source(row).rpartition(":")[2], int(counts.diverged[row])) for row in parted] == [("7", 32)]
    assert {each.rpartition(":")[2] for each in map(other.static.details.source, range(4))} == {"12"}


@pytest.mark.slow
def test_without_them_and_in_older_folders(stored, tmp_path):
    with_lines, without = stored("-lineinfo")[0], stored()[0]
    assert with_lines.head["digest"] == without.head["digest"]
    assert without.static.details.files == ()
    assert without.static.details.source(0) == ""
    assert without.static.details.text == with_lines.static.details.text
    old = without.copy(tmp_path / "1").folder
    table = pq.ParquetFile(old / "static.parquet").read()
    kept = [name for name in table.column_names if name in ("pc", "opcode", "unit", "space", "access", "immediate",
            "bypasses_l1", "destinations", "sources")]  # fmt: skip
    pq.write_table(table.select(kept), old / "static.parquet")
    for checksums in old.glob("*checksums*"):
        checksums.unlink()
    launch = StoredLaunch(old)
    assert launch.static.details is None
    assert launch.counts.diverged is None
    assert launch.counts.threads.tolist() == without.counts.threads.tolist()
    assert launch.executed() == without.executed()
    assert np.array_equal(launch.trace(1).instruction, without.trace(1).instruction)


@pytest.mark.slow
def test_the_table_has_the_columns_of_its_schema(stored):
    table = pq.ParquetFile(stored("-lineinfo")[0].folder / "static.parquet").schema_arrow
    assert table.names == STATIC_SCHEMA.names
    assert [str(field.type).replace("element", "item").replace(" not null", "") for field in table] == [
        str(field.type) for field in STATIC_SCHEMA
    ]
