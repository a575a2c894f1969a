"""How much of a program's launches is recorded, and that neither memory nor disk holds more of them than it must."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from manyscale.runner.api.studies import run
from manyscale.runner.errors import UserError
from manyscale.runner.readers import cuda, workload_folder

MANY = (Path(__file__).parents[3] / "programs" / "cuda_many.cu").read_text()
RANGES = (Path(__file__).parents[3] / "programs" / "cuda_ranges.cu").read_text()


@pytest.fixture(scope="module")
def many(nvcc) -> str:
    return str(nvcc("many", MANY, "-arch=sm_80"))


def test_launches_outside_of_the_profiled_region_are_executed_and_not_recorded(many, trace):
    status, _, told, folder = trace([many, "2", "5"], "--as", "a100", "--regions", "profiler")
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
@pytest.mark.parametrize(("names", "expected"), [("solve", [2, 3, 7]), ("solve,halo", [2, 3, 5, 7, 8, 9])])
def test_launches_in_nvtx_ranges(kit, nvcc, trace, names, expected):
    if not (kit.include / "nvtx3" / "nvToolsExt.h").is_file():
        pytest.skip("nvidia-nvtx is not installed")
    program = nvcc("ranges", RANGES, "-arch=sm_80", "-w")
    status, _, told, folder = trace([str(program)], "--as", "a100", "--regions", names)
    assert status == 0, told
    found = workload_folder.read(folder)
    assert found.column("launches", "launch_id").tolist() == expected
    assert [(note.code, note.count) for note in found.notes] == [("cuda-outside-regions", 10 - len(expected))]


@pytest.mark.slow
def test_a_region_that_the_program_never_enters_is_one_line(many, trace):
    status, _, told, folder = trace([many, "2", "5"], "--as", "a100", "--regions", "solve")
    assert (status, folder.exists()) == (2, False)
    assert "none of 5 launches was in the regions of --regions" in told.splitlines()[-1]


@pytest.mark.slow
def test_the_limit_of_the_disk_stops_recording_and_not_the_program(many, trace):
    """A launch is some 20 kB on disk. The limit falls in the midst of the second one or behind it."""
    status, printed, told, folder = trace([many, "64", "40"], "--as", "a100", "--disk-gb", "0.0001")
    assert status == 0, told
    assert int(printed[0]) > 0
    found = workload_folder.read(folder)
    recorded = found.tables["launches"].num_rows
    assert 1 <= recorded < 40
    (note,) = found.notes
    assert (note.code, note.count) == ("recording-stopped", 40 - recorded)
    assert sum(path.stat().st_size for path in (folder / "launches").rglob("*") if path.is_file()) < 120_000


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_blocks(many, tmp_path, tracer_cache):
    """The record of 90,000 blocks more is 6 bytes for each of their warp instructions and 12 for each access, 165 MB:
    neither the program's process nor manyscale's grows by a good part of that."""
    held = {}
    for blocks in (10_000, 100_000):
        folder = tmp_path / str(blocks)
        words = ["trace", "--level", "gpu", "--as", "a100", "--cache", str(tracer_cache), "-o", str(folder), "--"]
        command = [sys.executable, "-m", "manyscale", *words, many, str(blocks), "1"]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        own = int(child.stdout.readline())
        child.stdout.read()  # what the command says of itself
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


def test_counts_are_those_of_the_instructions(many, trace, tmp_path):
    """Nine of 14 launches are recorded, eight more than there are clusters; what is counted of the other five is held
    against a trace of all."""
    status, printed, told, folder = trace([many, "6", "14"], "--as", "a100", "--launches", "tbpoint")
    assert status == 0, told
    assert len([line for line in printed if line.isdecimal()]) == 1  # the first run is not shown
    found = workload_folder.read(folder.rename(tmp_path / "chosen"))
    expected = workload_folder.read(trace([many, "6", "14"], "--as", "a100")[3])
    tables = [each.tables["launches"].drop_columns("digest").to_pylist() for each in (found, expected)]
    assert tables[0] == tables[1]
    assert found.column("launches", "block_size_cov")[0] > 0.05
    assert (len(found.gpu.launch_ids), len(found.gpu.counted_ids)) == (9, 5)
    for launch_id in found.gpu.counted_ids:
        static, counts = found.gpu.instruction_counts(launch_id)
        trace_of_one = expected.gpu.trace(launch_id)
        assert np.array_equal(counts.executed, np.bincount(trace_of_one.instruction, minlength=len(static.pc)))
        threads = np.bincount(trace_of_one.instruction, trace_of_one.active, minlength=len(static.pc))
        assert np.array_equal(counts.threads, threads)
        assert np.array_equal(counts.diverged, expected.gpu.instruction_counts(launch_id)[1].diverged)
        assert counts.diverged.sum() == 0  # threads are masked, warps do not part
        blocks = found.gpu.counted.counts(launch_id)
        of_blocks = np.diff(trace_of_one.warp_instructions[trace_of_one.block_warps])
        assert np.array_equal(blocks.warp_instructions, of_blocks)
        assert found.gpu.executed(launch_id) == expected.gpu.executed(launch_id)
    assert [note.code for note in found.notes] == ["launches-counted"]


@pytest.mark.slow
def test_representatives_stand_for_the_others(many, trace, tmp_path):
    times = []
    for options in (["--launches", "tbpoint"], []):
        folder = trace([many, "6", "14"], "--as", "a100", *options)[3].rename(tmp_path / f"traced{len(options)}")
        times.append(run(folder, target="a100", model={"gpu": "gpumech"}).figures["gpu.time"])
    assert times[0] == pytest.approx(times[1], rel=0.03)


@pytest.mark.slow
def test_a_chosen_launch_stands_for_its_kernel(many, trace, tmp_path):
    folder = trace([many, "6", "5"], "--as", "a100", "--launches", "2-3")[3]
    found = workload_folder.read(folder)
    assert (found.gpu.launch_ids, found.gpu.counted_ids) == ((2, 3), (1, 4, 5))
    with pytest.raises(UserError, match="launches at random, and of some in"):
        run(folder, target="a100", set={"sampling.launches": "random"})
    with pytest.raises(UserError, match=r"of launch 4 in .* counts alone"):
        run(folder, target="a100", set={"sampling.launches": [4]})
    result = run(folder, target="a100", set={"model.gpu": "gpumech"})
    assert set(result.table("launches").column("representative_id").to_pylist()) == {2, 3}
    assert "launches-counted" in {note.code for note in result.notes}


@pytest.mark.slow
def test_a_launch_that_is_not_made_is_one_line_and_files_hold_counts_too(many, trace):
    status, _, told, folder = trace([many, "6", "5"], "--as", "a100", "--launches", "9")
    assert (status, folder.exists()) == (2, False)
    assert "no launch of --launches was made; the program's are 1 to 5" in told.splitlines()[-1]
    folder = trace([many, "6", "5"], "--as", "a100", "--launches", "2", "--keep-raw")[3]
    for each in (workload_folder.read(folder), cuda.read(folder / "raw")):
        assert (each.gpu.launch_ids, each.gpu.counted_ids) == ((2,), (1, 3, 4, 5))


@pytest.mark.slow
def test_two_runs_that_differ_are_one_line(nvcc, trace, tmp_path):
    """The program does one launch more each time."""
    text = """#include <cstdio>
#include <cuda_runtime.h>
__global__ void nothing() {}
int main(int, char **words) {
    FILE *file = fopen(words[1], "a");
    fputc('x', file);
    long count = ftell(file);
    fclose(file);
    for (long k = 0; k < count; k++) nothing<<<1, 32>>>();
    return cudaDeviceSynchronize();
}
"""
    program = nvcc("twice", text, "-arch=sm_80")
    status, _, told, folder = trace([str(program), str(tmp_path / "count")], "--as", "a100", "--launches", "tbpoint")
    assert (status, folder.exists()) == (2, False)
    assert "launch 2 is not the same in two runs" in told.splitlines()[-1]


@pytest.mark.slow
def test_damaged_counts_are_named(many, trace):
    folder = trace([many, "6", "5"], "--as", "a100", "--launches", "2")[3]
    path = folder / "launches" / "counted" / "counts.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(UserError, match="the counts of launches are damaged"):
        workload_folder.read(folder)


@pytest.mark.slow
def test_chosen_blocks_of_a_launch(many, trace, tmp_path):
    """Blocks are recorded as they are in the whole trace, the others counted; a run takes them for a part, and refuses
    too few of them."""
    whole = workload_folder.read(trace([many, "4000", "1"])[3].rename(tmp_path / "whole"))
    folder = trace([many, "4000", "1"], "--blocks", "0-1999,3990-3999::4")[3].rename(tmp_path / "part")
    found = workload_folder.read(folder)
    chosen = [*range(2000), 3990, 3994, 3998]
    assert np.flatnonzero(found.gpu.recorded_blocks(1)).tolist() == chosen
    tables = [each.tables["launches"].drop_columns("digest").to_pylist() for each in (whole, found)]
    assert tables[0] == tables[1]
    expected, part = whole.gpu.trace(1), found.gpu.trace(1)
    bounds = expected.warp_instructions[expected.block_warps]
    rows = np.concatenate([np.arange(bounds[each], bounds[each + 1]) for each in chosen])
    assert np.array_equal(part.instruction, expected.instruction[rows])
    assert np.array_equal(part.active, expected.active[rows])
    for field in ("executed", "threads", "diverged"):
        columns = [getattr(each.gpu.instruction_counts(1)[1], field) for each in (whole, found)]
        assert np.array_equal(*columns)
    times = [run(tmp_path / name, target="rtx3070").figures["gpu.time"] for name in ("whole", "part")]
    assert times[1] == pytest.approx(times[0], rel=0.1)
    few = trace([many, "4000", "1"], "--blocks", "::16")[3]
    assert [note.code for note in workload_folder.read(few).notes] == ["blocks-counted"]
    with pytest.raises(UserError, match="250 of 4000 blocks were recorded, and the GPU holds 276"):
        run(few, target="rtx3070")
