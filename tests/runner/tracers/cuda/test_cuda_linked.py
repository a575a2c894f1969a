"""Device code of several units, linked with ``-rdc=true``: what the programs print is what C++ says."""

from __future__ import annotations

from pathlib import Path

import pytest

from manyscale.runner.readers import workload_folder

PROGRAMS = Path(__file__).parents[3] / "programs"
FIRST, SECOND = PROGRAMS / "cuda_linked.cu", PROGRAMS / "cuda_linked_second.cu"


@pytest.mark.slow
def test_calls_variables_and_pointers_cross_units(nvcc, trace, shown):
    codes = [f"-gencode=arch=compute_{each},code=sm_{each}" for each in (75, 80, 86, 90)]
    program = nvcc("linked", FIRST.read_text(), "-rdc=true", *codes, str(SECOND))
    step = [lambda x: x + 1, lambda x: x - 1, lambda x: 3 * x + 5]
    expected = [f"{3 * i + 5} {step[(2 + i) % 3](i)} {i * i if i % 2 else 3 * i} {2 * i}" for i in range(32)]
    expected += ["132 26 6", "132 68 6", "cudaSuccess", "cudaSuccess"]  # 100 + 32 threads; 7 * 3 + 5; 7 * 9 + 5
    for architecture in (75, 80, 86, 90):
        status, printed, told, folder = trace([str(program)], "--as", shown(architecture))
        assert status == 0, told
        assert printed[: len(expected)] == expected
        workload = workload_folder.read(folder)
        assert workload.column("launches", "binary_version").tolist() == [architecture] * 5
        first = workload.gpu.trace(1)
        assert first.num_instructions == workload.column("launches", "warp_instructions")[0]
        folder.rename(folder.with_name(str(architecture)))
