"""How much of a program's launches is recorded, and that neither memory nor disk holds more of them than it must."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from manyscale.runner.cli import main
from manyscale.runner.readers import workload_folder

MANY = (Path(__file__).parents[3] / "programs" / "cuda_many.cu").read_text()
WARPS = 8  # of a block


@pytest.fixture
def trace(tmp_path, tracer_cache, capfd):
    """``trace(command, *options)``: (exit status, lines of the program, what was said, folder)."""

    def run(command: list[str], *options: str) -> tuple[int, list[str], str, Path]:
        folder = tmp_path / "traced"
        words = ["trace", "--level", "gpu", "--cache", str(tracer_cache), "-o", str(folder), *options, "--", *command]
        status = main(words)
        captured = capfd.readouterr()
        return status, captured.out.splitlines(), captured.err, folder

    return run


def test_launches_outside_of_the_profiled_region_are_executed_and_not_recorded(nvcc, trace):
    program = nvcc("many", MANY, "-arch=sm_80")
    status, _, told, folder = trace([str(program), "2", "5"], "--as", "a100", "--regions", "profiler")
    assert status == 0, told
    found = workload_folder.read(folder)
    assert found.column("launches", "launch_id").tolist() == [2, 3]
    (note,) = found.notes
    each = int(found.column("launches", "warp_instructions")[0])
    assert (note.code, note.count) == ("cuda-outside-regions", 3)
    assert f"3 launches with {3 * each} warp instructions" in note.text
    assert sorted(path.name for path in (folder / "launches").iterdir()) == ["2", "3"]
    assert not (folder / "raw").exists()


@pytest.mark.slow
def test_a_region_that_the_program_never_enters_is_one_line(nvcc, trace):
    program = nvcc("many", MANY, "-arch=sm_80")
    status, _, told, folder = trace([str(program), "2", "5"], "--as", "a100", "--regions", "solve")
    assert (status, folder.exists()) == (2, False)
    assert "none of 5 launches was in the regions of --regions" in told.splitlines()[-1]


@pytest.mark.slow
def test_the_limit_of_the_disk_stops_recording_and_not_the_program(nvcc, trace):
    """A launch is some 20 kB on disk. The limit falls in the midst of the second one or behind it."""
    program = nvcc("many", MANY, "-arch=sm_80")
    status, printed, told, folder = trace([str(program), "64", "40"], "--as", "a100", "--disk-gb", "0.0001")
    assert status == 0, told
    assert int(printed[0]) > 0
    found = workload_folder.read(folder)
    recorded = found.tables["launches"].num_rows
    assert 1 <= recorded < 40
    (note,) = found.notes
    assert (note.code, note.count) == ("recording-stopped", 40 - recorded)
    assert sum(path.stat().st_size for path in (folder / "launches").rglob("*") if path.is_file()) < 120_000


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_blocks(nvcc, tmp_path, tracer_cache):
    """The record of 90,000 blocks more is 6 bytes for each of their warp instructions and 12 for each access, 165 MB:
    neither the program's process nor manyscale's grows by a good part of that."""
    program = nvcc("many", MANY, "-arch=sm_80")
    held = {}
    for blocks in (10_000, 100_000):
        folder = tmp_path / str(blocks)
        words = ["trace", "--level", "gpu", "--as", "a100", "--cache", str(tracer_cache), "-o", str(folder), "--"]
        command = [sys.executable, "-m", "manyscale", *words, str(program), str(blocks), "1"]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        own = int(child.stdout.readline())
        child.stdout.close()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode == 0
        held[blocks] = (own / 1024, used.ru_maxrss / 1024)
    found = workload_folder.read(folder)
    assert found.column("launches", "blocks").tolist() == [100_000]
    instructions, accesses = (
        int(found.column("launches", each)[0]) for each in ("warp_instructions", "memory_requests")
    )
    more = 0.9 * (6 * instructions + 12 * accesses) / 2**20
    assert more > 150
    assert held[100_000][0] - held[10_000][0] < 20
    assert held[100_000][1] - held[10_000][1] < 60
