"""Builds the micro-benchmark with the user's compiler and runs it, several times: figures differ between processes.

A process gets its pages once, in good or bad places, and shares its core and caches with whatever runs beside it.
Interference only ever makes times longer, so the best of all repetitions in all processes stands for the machine; how
far the processes' best lie apart is kept as spread.
"""

from __future__ import annotations

import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from manyscale.runner.errors import RunError, UserError
from manyscale.runner.progress import Progress, silent
from manyscale.runner.run.calibration.system_caches import System
from manyscale.runner.tracers.build import c_compiler

SOURCE: Final = Path(__file__).parent / "microbench.c"
FLAGS: Final = ("-std=gnu11", "-O2")
_MOST_BYTES: Final = 2**30
_SMALLEST_BYTES: Final = 4096
_TLB_PAGES: Final = (16, 24, 32, 40, 48, 56, 64, 72, 80, 96, 112, 128, 160, 192, 256, 384, 512, 768, 1024, 1280, 1536,
                     2048, 2560, 3072, 3584, 4096, 6144)  # fmt: skip
BESIDE: Final = (4, 8)  # loads beside each line in order
_FAULT_PAGES: Final = 1024  # some MiB: single calls to the system do not count
_CLASSES: Final = ("int_alu", "int_mul", "int_div", "fp_add", "fp_mul", "fp_fma", "fp_div", "fp_sqrt", "fp_other",
                   "simd_int", "move", "cross", "vector_load")  # fmt: skip
_SINGLE: Final = ("branch_taken", "branch_not_taken", "call_and_return", "nop", "zero", "mixed", "load_throughput",
                  "store_throughput", "vector_store_throughput", "access_throughput", "forward_integer", "forward_fp",
                  "forward_throughput", "branch_constant", "branch_random", "string_copy")  # fmt: skip


@dataclass(frozen=True)
class Effort:
    """``budget_ms``: for the repetitions of one request in one process; ``most_s``: no process starts later."""

    num_processes: int
    budget_ms: int
    most_s: float
    times_last_cache: int
    steps_per_octave: int
    window_step: int


FULL: Final = Effort(5, 20, 45.0, 4, 2, 16)
QUICK: Final = Effort(2, 4, 5.0, 2, 1, 32)


@dataclass(frozen=True)
class Figure:
    """``best``: ns per unit, of all processes; ``processes``: the best of each."""

    best: float
    processes: tuple[float, ...]

    @property
    def spread_ratio(self) -> float:
        """How much worse the worst process' best is than the best, as a share."""
        return max(self.processes) / self.best - 1


Figures = Mapping[str, Figure]


@contextmanager
def built() -> Iterator[Path]:
    """The micro-benchmark's program, gone afterwards. Raises UserError without a compiler or where it fails."""
    compiler = c_compiler("the micro-benchmark")
    with tempfile.TemporaryDirectory(prefix="manyscale-calibration-") as folder:
        program = Path(folder) / "microbench"
        command = [*compiler.command, *FLAGS, str(SOURCE), "-o", str(program)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = [text for text in done.stderr.splitlines() if "error" in text] or done.stderr.splitlines()
            told = lines[0] if lines else f"exit status {done.returncode}"
            raise UserError(f"the micro-benchmark does not build with {shlex.join(compiler.command)}: {told}")
        yield program


def working_sets(system: System, effort: Effort) -> list[int]:
    """Bytes, in powers of two and, with two steps per octave, halfway between; to a multiple of the last cache."""
    last = max(cache.size_bytes for cache in system.data_caches.values())
    most = min(effort.times_last_cache * last, max(_MOST_BYTES, 2 * last))
    if system.memory_bytes is not None:
        most = min(most, system.memory_bytes // 8)
    sizes, size = [], _SMALLEST_BYTES
    while size <= most:
        sizes.append(size)
        if effort.steps_per_octave > 1 and size * 3 // 2 <= most:
            sizes.append(size * 3 // 2)
        size *= 2
    return sizes


def requests(system: System, effort: Effort) -> list[str]:
    """What one process of the micro-benchmark measures, in order."""
    sizes = working_sets(system, effort)
    line = _line_bytes(system)
    octaves = [size for size in sizes if size & (size - 1) == 0 and size > _SMALLEST_BYTES]
    before_last = sorted(cache.size_bytes for cache in system.data_caches.values())[:-1]
    chains = (1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 64)
    return [
        "clock",
        *(f"{name}_{kind}" for name in _CLASSES for kind in ("latency", "throughput")),
        *_SINGLE,
        *(f"chase:{size}" for size in sizes),
        *(f"huge:{size}" for size in sizes),
        *(request for pages in _TLB_PAGES for request in (f"pages:{pages}", f"chase:{pages * line}")),
        f"ordered:{sizes[-1]}",
        f"ordered_pages:{sizes[-1]}",
        f"fault:{_FAULT_PAGES}",
        f"span:{sizes[-1]}",
        *(f"parallel:{number}" for number in chains),
        f"others:{max(before_last, default=0) // 2}",
        *(f"{name}:{number}" for number in BESIDE for name in ("beside_few", "beside")),
        *(f"window:{number}" for number in range(32, 641, effort.window_step)),
        *(f"vector_window:{number}" for number in range(32, 385, effort.window_step)),
        *(f"{kind}:{size}" for size in octaves for kind in ("read", "read_half", "write", "copy")),
        "clock",
    ]


def measure(program: Path, system: System, core: int, effort: Effort, progress: Progress = silent) -> Figures:
    """Every figure of one core. Raises RunError where the program fails."""
    asked = list(dict.fromkeys(requests(system, effort)))
    start = time.monotonic()
    values: dict[str, list[float]] = {}
    for process in range(effort.num_processes):
        if process and time.monotonic() - start > effort.most_s:
            break
        progress(process, effort.num_processes, "measuring")
        for request, (best, median) in _run(program, core, _line_bytes(system), effort.budget_ms, asked).items():
            # the best of many chains at once is the repetition that found most in a cache
            lucky = request.startswith(("parallel:", "beside:"))
            values.setdefault(request, []).append(median if lucky else best)
    return {request: Figure(min(each), tuple(each)) for request, each in values.items()}


def measure_node_bandwidth(program: Path, system: System, effort: Effort) -> float:
    """Bytes per ns that all cores together read from main memory, each its own, at the same time."""
    size = working_sets(system, effort)[-1]
    if system.memory_bytes is not None:
        size = min(size, system.memory_bytes // (4 * len(system.core_cpus)))
    request = f"read:{size}"
    best = 0.0
    for _ in range(effort.num_processes):
        running = [
            subprocess.Popen(
                [str(program), str(cpu), str(_line_bytes(system)), str(20 * effort.budget_ms), request],
                stdout=subprocess.PIPE, text=True,
            )
            for cpu in system.core_cpus
        ]  # fmt: skip
        medians = [parsed(process.communicate()[0]).get(request, (0.0, 0.0))[1] for process in running]
        best = max(best, sum(1 / median for median in medians if median))
    return best


def _line_bytes(system: System) -> int:
    return min(cache.line_bytes for cache in system.data_caches.values())


def _run(program: Path, core: int, line: int, budget_ms: int, asked: Sequence[str]) -> dict[str, tuple[float, float]]:
    command = [str(program), str(core), str(line), str(budget_ms), *asked]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:  # such as a folder for temporary files from which nothing may run
        raise UserError(f"{program}: {error.strerror or error}; set TMPDIR to another folder") from None
    if done.returncode:
        told = (done.stderr.splitlines() or [f"exit status {done.returncode}"])[-1]
        raise RunError(f"the micro-benchmark failed on core {core}: {told}")
    return parsed(done.stdout)


def parsed(text: str) -> dict[str, tuple[float, float]]:
    """Best and median of every request that the machine supports."""
    rows = (line.split() for line in text.splitlines())
    return {row[0]: (float(row[1]), float(row[2])) for row in rows if len(row) == 4}
