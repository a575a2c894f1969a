"""What the tracer costs, as ratios of CPU time to a baseline measured in the same run.

An event of the runtime system: to a reading of the wall clock; an MPI call: to a reading of the thread's CPU clock
(each takes one); the detailed level: to the same program untraced.

Where the bounds were set, a reading took 22.5 ns (wall clock) and 550 ns (CPU clock); an event 61 ns, with 100 ns for a
goal, an MPI call 700 ns. The figures are printed: `pytest -m bench -s`.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from manyscale.runner.tracers import build

sys.path.insert(0, str(Path(__file__).parents[1] / "runner" / "tracers"))
from tracer_programs import MPI, PROGRAMS, need, need_libomp

pytestmark = pytest.mark.bench

RUNS = 5
MOST_CLOCKS_PER_EVENT = 8.0
MOST_CLOCKS_PER_CALL = 2.6
MOST_TIMES_UNTRACED = 16.0
EVENTS_PER_TASK = 3  # its creation, begin and end
TASKS, CALLS, ROUNDS = 500_000, 200_000, 10_000_000

CALL = """
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static double seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
int main(int argc, char **argv) {
    long calls = atol(argv[1]);
    MPI_Init(&argc, &argv);
    double start = seconds(CLOCK_PROCESS_CPUTIME_ID);
    for (long i = 0; i < calls; i++) seconds(CLOCK_THREAD_CPUTIME_ID);
    double middle = seconds(CLOCK_PROCESS_CPUTIME_ID);
    for (long i = 0; i < calls; i++) MPI_Barrier(MPI_COMM_SELF);
    double end = seconds(CLOCK_PROCESS_CPUTIME_ID);
    printf("%.12f %.12f\\n", (end - middle) / calls, (middle - start) / calls);
    MPI_Finalize();
    return 0;
}
"""
# Addresses that follow no pattern: nothing of the stream can be shortened.
SCATTER = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
static double table[1 << 20];
int main(int argc, char **argv) {
    uint64_t state = 1;
    double sum = 0;
    long rounds = argc > 1 ? atol(argv[1]) : 1;
    for (long i = 0; i < rounds; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        sum += table[state >> 44];
        table[state >> 45] = (double)i;
    }
    printf("%g\\n", sum);
    return 0;
}
"""


def compiled(folder: Path, name: str, text: str, *words: str) -> Path:
    source = folder / f"{name}.c"
    source.write_text(text)
    subprocess.run([words[0], "-O2", str(source), "-o", str(folder / name), *words[1:]], check=True)
    return folder / name


def run(command: Sequence[object], folder: Path, tracer: Path | None = None, level: int = 0) -> tuple[float, str]:
    """CPU seconds of the command and what it prints. ``tracer``: loaded into the last program that it names."""
    words = [str(word) for word in command]
    environment = dict(os.environ) | {"OMP_NUM_THREADS": "1"}
    if tracer is not None:
        folder.mkdir()
        (folder / "windows").write_text(f"o 0 0 {2**32 - 1}\n")
        words[-2:-2] = ["env", f"LD_PRELOAD={tracer}", "MANYSCALE_TRACE_ALWAYS=1"]
        environment["MANYSCALE_TRACE_DIR"] = str(folder)
        environment["MANYSCALE_TRACE_LEVEL"] = str(level)
        environment["MANYSCALE_TRACE_WINDOWS"] = str(folder / "windows")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(words, env=environment, check=True, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert tracer is None or list(folder.glob("*.trace")), done.stderr
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def least(columns: Sequence[str]) -> list[float]:
    """The least of each of the numbers that the runs printed."""
    return [min(values) for values in zip(*([float(word) for word in line.split()] for line in columns), strict=True)]


def test_event_of_the_runtime_system(tmp_path: Path) -> None:
    """61 to 95 ns where a reading of the clock takes 22.5 (twice as much on a busy machine)."""
    need("clang")
    need_libomp()
    program = tmp_path / "tiny"
    source = PROGRAMS / "openmp" / "tiny.c"
    subprocess.run(["clang", "-O1", "-fopenmp", str(source), "-o", str(program)], check=True)
    tracer = build.tracer(None, tmp_path / "cache")
    plain, clock, _ = least([run([program, TASKS], tmp_path)[1] for _ in range(RUNS)])
    traced, _, _ = least([run([program, TASKS], tmp_path / str(i), tracer, 2)[1] for i in range(RUNS)])
    event = (traced - plain) / TASKS / EVENTS_PER_TASK
    print(f"\nan event: {event * 1e9:.1f} ns, {event / clock:.2f} readings of the wall clock")
    assert event / clock <= MOST_CLOCKS_PER_EVENT


@pytest.mark.parametrize("library", MPI)
def test_mpi_call(library: str, tmp_path: Path) -> None:
    compiler, words = MPI[library]
    need(compiler, words[0])
    program = compiled(tmp_path, "call", CALL, compiler)
    tracer = build.tracer(library, tmp_path / "cache")
    command = [*words, 1, program, CALLS]
    plain, clock = least([run(command, tmp_path)[1] for _ in range(RUNS)])
    traced, _ = least([run(command, tmp_path / str(i), tracer, 1)[1] for i in range(RUNS)])
    call = traced - plain
    print(f"\nan MPI call ({library}): {call * 1e9:.0f} ns, {call / clock:.2f} readings of the CPU clock")
    assert call / clock <= MOST_CLOCKS_PER_CALL


def test_detailed_level(tmp_path: Path) -> None:
    need("clang", "cc")
    cache = tmp_path / "cache"
    program = compiled(tmp_path, "scatter", SCATTER, "clang", *build.coverage_flags(build.coverage_stub(cache)))
    tracer = build.tracer(None, cache)
    plain = min(run([program, ROUNDS], tmp_path)[0] for _ in range(RUNS))
    traced = min(run([program, ROUNDS], tmp_path / str(i), tracer, 3)[0] for i in range(RUNS))
    stored = sum(file.stat().st_size for file in (tmp_path / "0").glob("*.trace"))
    print(
        f"\ndetailed: {2 * ROUNDS / traced / 1e6:.0f} M accesses a CPU second, {traced / plain:.1f} of the untraced "
        f"run's CPU time, {stored / (2 * ROUNDS):.2f} bytes an access"
    )
    assert stored > 2 * ROUNDS
    assert traced / plain <= MOST_TIMES_UNTRACED
