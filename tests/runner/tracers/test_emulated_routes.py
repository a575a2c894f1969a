"""The detailed level of unmodified programs by Valgrind lackey and by QEMU, compared with each other and callgrind."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from told import told
from tracer_programs import PROGRAMS, need

from manyscale.models.workload import Workload
from manyscale.runner.errors import UserError
from manyscale.runner.readers import lackey, qemu_trace
from manyscale.runner.tracers import emulated

DETAIL = PROGRAMS / "detail"
THREADS = """
#include <pthread.h>
static double a[1000];
static void *work(void *data) { for (int i = 0; i < 1000; i++) a[i] += 1; return data; }
int main(void) { pthread_t t; pthread_create(&t, 0, work, 0); pthread_join(t, 0); work(0); return 0; }
"""
FORK = """
#include <sys/wait.h>
#include <unistd.h>
static volatile int x[100];
__attribute__((noinline)) void work(void) { for (int i = 0; i < 100; i++) x[i] = i; }
int main(void) { if (!fork()) { work(); _exit(0); } wait(0); work(); return 0; }
"""


def run(words: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        words, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done


def by_qemu(program: Path, region: str | None, folder: Path, cache: Path) -> Workload:
    need(emulated.EMULATOR)
    output = folder / "trace.qemu"
    output.unlink(missing_ok=True)
    run(emulated.qemu_command([str(program)], output, region, cache=cache), emulated.ENVIRONMENT)
    return qemu_trace.read(output)


def by_lackey(program: Path, region: str, folder: Path) -> Workload:
    need("valgrind")
    output = folder / "trace.lk"
    run(emulated.lackey_command([str(program)], output, region), emulated.ENVIRONMENT)
    return lackey.read(output, entry=emulated.lackey_entry([str(program)], region))


def totals(workload: Workload) -> tuple[int, int]:
    """Instructions and accesses."""
    segments = workload.tables["segments"]
    return segments["num_instructions"].to_pylist()[0], segments["num_accesses"].to_pylist()[0]


def loads_and_stores(workload: Workload) -> tuple[int, int]:
    rows = workload.tables["blocks"].num_rows
    block = workload.column("block_accesses", "block_id")
    stores = np.array(workload.tables["block_accesses"]["is_store"].to_pylist(), np.bool_)
    assert workload.detail is not None
    executed = np.concatenate([batch.block_ids for batch in workload.detail.batches(1 << 20)])
    return tuple(int(np.bincount(block[each], minlength=rows)[executed].sum()) for each in (~stores, stores))


@pytest.mark.peer
@pytest.mark.parametrize(
    ("source", "flag", "region"),
    [
        pytest.param("mm50", "-O1", "multiply", marks=pytest.mark.slow),
        pytest.param("stream", "-O0", "copy", marks=pytest.mark.slow),
        ("black_scholes", "-O1", "price"),  # calls libm
        ("calls", "-O1", "fibonacci"),  # recursive
        ("calls", "-O1", "tail"),
        ("calls", "-O1", "compare"),  # called by libc's qsort
    ],
)
def test_a_function_s_instructions_and_accesses(tmp_path, compiled, tracer_cache, source, flag, region):
    """The same number of instructions as callgrind counts (tolerance 0.5 %: libm may choose other code for another
    processor), and the same accesses in both traces."""
    need("valgrind")
    program = compiled(DETAIL / f"{source}.c", "gcc", flag)
    words = ["valgrind", "--tool=callgrind", f"--toggle-collect={region}", f"--callgrind-out-file={tmp_path / 'out'}"]
    counted = re.search(r"Collected : (\d+)", run([*words, str(program)], emulated.ENVIRONMENT).stderr)
    assert counted is not None
    qemu = by_qemu(program, region, tmp_path, tracer_cache)
    valgrind = by_lackey(program, region, tmp_path)
    assert totals(valgrind)[0] == int(counted[1])
    assert totals(qemu)[0] == pytest.approx(int(counted[1]), rel=0.005)
    assert totals(qemu)[1] == pytest.approx(totals(valgrind)[1], rel=0.005)
    # QEMU ends a block at every branch, lackey's trace shows only those that were ever taken
    assert qemu.tables["blocks"].num_rows >= valgrind.tables["blocks"].num_rows


@pytest.mark.theory
def test_accesses_of_a_matrix_multiplication(tmp_path, compiled, tracer_cache):
    """2 n^3 + n^2 loads and n^2 stores for n = 50; and the load of the return address."""
    program = compiled(DETAIL / "mm50.c", "gcc", "-O1")
    workload = by_qemu(program, "multiply", tmp_path, tracer_cache)
    loads, stores = loads_and_stores(workload)
    pushed = len([row for row in workload.tables["blocks"].to_pylist() if row["function"] != "multiply"])
    assert pushed == 0
    assert loads == pytest.approx(2 * 50**3 + 50**2 + 1, abs=8)  # registers saved on the stack
    assert stores == pytest.approx(50**2, abs=8)


def test_both_routes_see_the_same_addresses(tmp_path, compiled, tracer_cache):
    """Distances between accesses of static data are the program's own, wherever it is loaded."""
    program = compiled(DETAIL / "mm50.c", "gcc", "-O1")
    found = []
    for workload in (by_qemu(program, "multiply", tmp_path, tracer_cache), by_lackey(program, "multiply", tmp_path)):
        assert workload.detail is not None
        addresses = workload.detail.read(0, 1).addresses.astype(np.int64)
        inside = addresses[np.abs(addresses - np.median(addresses)) < 1 << 20]
        found.append(inside - inside.min())
    assert np.array_equal(*found)


def test_blocks_know_their_function_and_line(tmp_path, compiled, tracer_cache):
    program = compiled(DETAIL / "mm50.c", "gcc", "-O1", "-g")
    workload = by_qemu(program, "multiply", tmp_path, tracer_cache)
    rows = workload.tables["blocks"].to_pylist()
    assert {row["function"] for row in rows} == {"multiply"}
    assert {Path(row["file"]).name for row in rows} == {"mm50.c"}
    assert all(row["line"] > 10 for row in rows)
    assert [row["is_entry"] for row in rows].count(True) == 1
    assert workload.tables["instructions"].num_rows == workload.column("blocks", "num_instructions").sum()
    assert workload.notes == ()


def test_a_whole_program_names_its_libraries(tmp_path, compiled, tracer_cache):
    workload = by_qemu(compiled(DETAIL / "mm50.c", "gcc", "-O1"), None, tmp_path, tracer_cache)
    modules = set(workload.tables["blocks"]["module"].to_pylist())
    assert any(name.startswith("mm50") for name in modules)
    assert any(name.startswith("libc") for name in modules)


def test_the_same_run_gives_the_same_trace(tmp_path, compiled, tracer_cache):
    program = compiled(DETAIL / "stream.c", "gcc", "-O0")
    workloads = [by_qemu(program, "copy", tmp_path, tracer_cache) for _ in range(2)]
    assert workloads[0].digest == workloads[1].digest


def write_program(folder: Path, text: str) -> Path:
    source = folder / "source.c"
    source.write_text(text)
    return source


def test_other_threads_are_told(tmp_path, compiled, tracer_cache):
    need(emulated.EMULATOR)
    program = compiled(write_program(tmp_path, THREADS), "gcc", "-O0", "-pthread", "-Dthreads")
    workload = by_qemu(program, "work", tmp_path, tracer_cache)
    assert any("other threads" in note for note in told(workload.notes))
    # one of the two threads: per iteration the array's element and the counter
    assert 2000 < totals(workload)[1] < 10000


def test_child_processes_are_not_recorded(tmp_path, compiled, tracer_cache):
    need(emulated.EMULATOR)
    program = compiled(write_program(tmp_path, FORK), "gcc", "-O1", "-Dfork_")
    workload = by_qemu(program, "work", tmp_path, tracer_cache)
    assert loads_and_stores(workload)[1] == 100


def test_recording_stops_at_a_limit(tmp_path, compiled, tracer_cache):
    need(emulated.EMULATOR)
    program = compiled(DETAIL / "mm50.c", "gcc", "-O1")
    output = tmp_path / "trace"
    words = emulated.qemu_command([str(program)], output, cache=tracer_cache, limit_bytes=100_000)
    run(words, emulated.ENVIRONMENT)
    assert output.stat().st_size < 200_000
    with pytest.raises(UserError, match="the limit of the file's size was reached"):
        qemu_trace.read(output)


def test_an_output_that_exists_is_kept(tmp_path, compiled, tracer_cache):
    need(emulated.EMULATOR)
    output = tmp_path / "trace"
    output.write_text("precious")
    words = emulated.qemu_command([str(compiled(DETAIL / "mm50.c", "gcc", "-O1"))], output, cache=tracer_cache)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "File exists" in done.stderr
    assert output.read_text() == "precious"


class TestWords:
    def test_names_of_files_are_passed_on_as_they_are(self, tmp_path, compiled, tracer_cache):
        need(emulated.EMULATOR, "valgrind")
        program = [str(compiled(DETAIL / "mm50.c", "gcc", "-O1")), "-x", "a b"]
        words = emulated.qemu_command(program, tmp_path / "a,b", cache=tracer_cache)
        assert words[-3:] == program
        assert "a,,b" in words[words.index("-plugin") + 1]
        assert f"--log-file={tmp_path}/a%%b" in emulated.lackey_command(program, tmp_path / "a%b")

    def test_a_function_that_is_not_there_is_refused_with_what_is_alike(self, tmp_path, compiled, tracer_cache):
        need(emulated.EMULATOR, "valgrind")
        program = [str(compiled(DETAIL / "mm50.c", "gcc", "-O1"))]
        with pytest.raises(UserError, match="no function 'multi'; alike are multiply"):
            emulated.qemu_command(program, tmp_path / "x", "multi", cache=tracer_cache)
        with pytest.raises(UserError, match="no function 'nothing'; is it stripped"):
            emulated.lackey_command(program, tmp_path / "x", "nothing")

    def test_a_program_that_is_not_there_is_refused(self, tmp_path, tracer_cache):
        need(emulated.EMULATOR)
        with pytest.raises(UserError, match="no-such-program"):
            emulated.qemu_command(["no-such-program"], tmp_path / "x", cache=tracer_cache)

    @pytest.mark.parametrize("route", [emulated.lackey_command, emulated.qemu_command])
    def test_a_tool_that_is_missing_is_named(self, tmp_path, monkeypatch, route):
        monkeypatch.setenv("PATH", str(tmp_path))
        more = {"cache": tmp_path} if route is emulated.qemu_command else {}
        with pytest.raises(UserError, match=r"not installed; install it \(Debian: (valgrind|qemu-user)\)"):
            route(["true"], tmp_path / "x", **more)
