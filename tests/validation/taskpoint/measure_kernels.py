"""Run times of kernels of tests/programs on this machine, on one and on two threads, and what a task costs.

``python -m taskpoint.measure_kernels OUT`` in tests/validation, with manyscale importable and clang installed, writes
``OUT/native_times.json``. Kernels are built by ``build.sh --cc clang --marks`` (-O2); the time of an iteration is that
between two marks, the first one is left out (it warms caches and starts threads), and runs go in turn over all kernels
and numbers of threads, so that what else the machine does hits all alike. ``undisturbed`` are iterations during which
the operating system took no processor from the process; on a machine in use, ``chrt -f 10`` before the command keeps
others away. What threads tell each other takes longer or shorter from minute to minute on a virtual machine, so the
best of each round stands there, too; ``--pause`` spreads the rounds. A task's cost is the wall time of
``openmp/tiny.c`` beyond that of no tasks, per task.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

PROGRAMS: Final = Path(__file__).parents[2] / "programs"
# fine: some thousand instructions a task, so that the runtime system matters; coarse: some ten or hundred thousand
KERNELS: Final[dict[str, tuple[str, tuple[int, ...]]]] = {
    "matrix_multiply-coarse": ("matrix_multiply", (10, 32)),
    "matrix_multiply-fine": ("matrix_multiply", (28, 8)),
    "monte_carlo-coarse": ("monte_carlo", (500, 8192, 1024)),
    "stencil-coarse": ("stencil", (5, 5, 5, 16)),
    "stencil-fine": ("stencil", (12, 12, 12, 6)),
    "vector_operation-coarse": ("vector_operation", (256, 4096)),
}
THREADS: Final = (1, 2)
TINY_TASKS: Final = 1_000_000


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("output", type=Path, metavar="OUT")
    parser.add_argument("--rounds", type=int, default=10, help="runs of each case (default: 10)")
    parser.add_argument("--iterations", type=int, default=11, help="of each run (default: 11)")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between the rounds (default: 0)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        measured = measure(Path(folder), options.rounds, options.iterations, options.pause)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "native_times.json").write_text(json.dumps(measured, indent=1) + "\n")
    return 0


def measure(folder: Path, rounds: int, iterations: int, pause_s: float) -> dict[str, Any]:
    clock, tiny = folder / "mark_clock.so", folder / "tiny"
    source = Path(__file__).with_name("mark_clock.c")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", source, "-o", clock], check=True)
    subprocess.run(["clang", "-O2", "-fopenmp", PROGRAMS / "openmp" / "tiny.c", "-o", tiny], check=True)
    programs = sorted({program for program, _ in KERNELS.values()})
    subprocess.run([PROGRAMS / "build.sh", folder, "--cc", "clang", "--marks", *programs], check=True)
    times: dict[tuple[str, int], list[list[tuple[int, int]]]] = {}
    task_ns: dict[int, list[float]] = {threads: [] for threads in THREADS}
    for _ in range(rounds):
        for threads in THREADS:
            for name, (program, arguments) in KERNELS.items():
                command = [folder / program, *arguments, iterations + 1]
                _run(command, threads, {"LD_PRELOAD": str(clock), "MARK_CLOCK": str(folder / "times")})
                lines = (folder / "times").read_text().splitlines()[1:]
                rows = [(int(time_ns), int(taken)) for time_ns, taken in map(str.split, lines)]
                times.setdefault((name, threads), []).append(rows)
            nothing, all_tasks = (_run([tiny, count], threads) for count in (0, TINY_TASKS))
            task_ns[threads].append((all_tasks - nothing) * 1e9 / TINY_TASKS)
        time.sleep(pause_s)
    return {
        "machine": {"processor": _processor(), "processors": os.cpu_count(), "kernel": platform.release()},
        "kernels": [_row(name, threads, rows) for (name, threads), rows in times.items()],
        "task": [
            {
                "threads": threads,
                "best_ns": round(min(costs), 1),
                "median_ns": round(statistics.median(costs), 1),
                "of_rounds_ns": [round(cost, 1) for cost in costs],
            }
            for threads, costs in task_ns.items()
        ],
    }


def _run(command: Sequence[object], threads: int, more: Mapping[str, str] | None = None) -> float:
    """Wall seconds of a program that succeeds."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), **(more or {})}
    start = time.perf_counter()
    subprocess.run([str(part) for part in command], check=True, env=environment, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def _row(name: str, threads: int, rounds: Sequence[Sequence[tuple[int, int]]]) -> dict[str, Any]:
    program, arguments = KERNELS[name]
    undisturbed = [time_ns for rows in rounds for time_ns, taken in rows if taken == 0]
    all_times = [time_ns for rows in rounds for time_ns, _ in rows]
    return {
        "name": name,
        "program": program,
        "arguments": arguments,
        "threads": threads,
        "iterations": len(all_times),
        "best_ns": min(all_times),
        "median_ns": round(statistics.median(all_times)),
        "undisturbed_iterations": len(undisturbed),
        "undisturbed_median_ns": round(statistics.median(undisturbed)) if undisturbed else None,
        "best_of_rounds_ns": [min(time_ns for time_ns, _ in rows) for rows in rounds],
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    sys.exit(main())
