"""What tracing a CUDA program without a GPU costs: warp instructions that the interpreter executes and records in a CPU
second of the program, its own code and the start of the process included.

Goal: 4 million, as a ratio to sorting with NumPy, measured in the same run. Where the bound was set, the three programs
came to 12 (a breadth-first search), 18 (a stencil) and 10 million (a product of matrices), printed with
`pytest -m bench -s`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cpu_time import cpu_of, second

from manyscale.runner.errors import UserError
from manyscale.runner.study.shown_device import shown_device
from manyscale.runner.tracers.cuda import compiler, device_code, module
from manyscale.runner.tracers.cuda.library import runtime_library

pytestmark = pytest.mark.bench

SOURCE = Path(__file__).parents[1] / "programs" / "cuda_speed.cu"
LEAST = 4e6
RUNS = 2


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[int, float, float]]:
    """``measured(name, size, workers)``: (warp instructions, CPU and wall-clock seconds of the fastest run)."""
    folder = tmp_path_factory.mktemp("cuda")
    try:
        kit = compiler.toolkit()
        words = [str(kit.tool("nvcc")), "-arch=sm_80", str(SOURCE), "-o", str(folder / "speed")]
        words += compiler.flags(kit, folder)
    except UserError as error:
        pytest.skip(f"nvcc is not installed: {error}")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (folder / "cubins").mkdir()
    (folder / "raw").mkdir()
    shown_device("a100").write(folder / "raw")
    module.write(device_code.extract([folder / "speed"], 80, kit, folder / "cubins"), kit, folder / "raw")
    library = str(runtime_library(kit, folder / "cache"))
    environment = {**os.environ, "MANYSCALE_CUDA_DIR": str(folder / "raw"), "LD_PRELOAD": library}

    def run(name: str, size: int, workers: int = 1) -> tuple[int, float, float]:
        shown_device("a100").write(folder / "raw", workers=workers)
        taken, lasted = [], []
        for _ in range(RUNS):
            for each in (folder / "raw").glob("process-*"):
                shutil.rmtree(each)
            begin = time.perf_counter()
            taken.append(cpu_of([str(folder / "speed"), name, str(size)], env=environment))
            lasted.append(time.perf_counter() - begin)
        (events,) = (folder / "raw").glob("process-*/events")
        launches = [line.split() for line in events.read_text().splitlines() if line.startswith("launch ")]
        assert launches
        assert all(words[12] == "whole" for words in launches)
        return sum(int(words[11]) for words in launches), min(taken), min(lasted)

    return run


@pytest.mark.parametrize(("name", "size"), [("bfs", 200_000), ("hotspot", 1024), ("matrix", 512)])
def test_interpreter_with_recording_and_two_workers(measured, name, size):
    """Following what blocks touch costs little; how much sooner two workers end is printed: it says something where the
    machine does nothing else."""
    number, taken, lasted = measured(name, size)
    unit = second()
    print(f"\n{name}: {number} warp instructions, {number / taken / 1e6:.1f} million a CPU s ({unit:.2f} s of sorting)")
    of_two, taken_of_two, lasted_of_two = measured(name, size, 2)
    cost, sooner = taken_of_two / taken, lasted / lasted_of_two
    print(f"\n{name}: CPU time of two workers {cost:.2f} times that of one, {sooner:.2f} times as fast")
    assert taken < number / LEAST * unit
    assert of_two == number
    assert taken_of_two < 1.4 * taken
