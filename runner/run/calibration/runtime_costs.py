"""What OpenMP's runtime system takes on several cores beside what it takes on one, for ``node.runtime_system``.

A trace of one thread contains what its runtime system took there. openmp.c is run with one thread and with one on each
core; the differences are the costs (models/node/scheduler/runtime_system.py):

* barrier: of a loop with its barrier in a region; fork: of a region with a loop, less that; both of each doubling.
* chunk: of a chunk of a dynamic loop, on each core.
* create: of empty task instances that one thread creates, which bounds how many there can be in a time.
* schedule: what all cores together take more for an instance with work than one does, less create.
* lock: of a critical section that all cores ask for, so that another one had it before; the median.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from manyscale.runner.errors import RunError
from manyscale.runner.run.calibration.measure import Effort, parsed
from manyscale.runner.tracers.build import c_compiler

SOURCE: Final = Path(__file__).parent / "openmp.c"
_FLAGS: Final = ("-std=gnu11", "-O2", "-fopenmp")
_LOCK: Final = "lock"

Times = dict[str, float]  # ns by request


@dataclass(frozen=True)
class RuntimeTimes:
    """``one``, ``all``: ns of each request with one thread, and with one on each of ``num_cores`` cores; ``compiler``
    names whose OpenMP it is."""

    compiler: str
    num_cores: int
    one: Times
    all: Times


def measure_runtime(core_cpus: Sequence[int], effort: Effort) -> RuntimeTimes | str:
    """Of all cores of a node; why not, in words, where it has one core or no compiler with OpenMP is there. Raises
    RunError where the program fails."""
    if len(core_cpus) < 2:
        return "one core alone shows nothing of the runtime system's costs"
    with _built() as built:
        if built is None:
            return "no compiler with OpenMP is there, so the runtime system's costs are not measured"
        program, compiler = built
        found: tuple[Times, Times] = ({}, {})
        for _ in range(2 * effort.num_processes):  # how far cores are apart may change in between
            for times, cpus in zip(found, (core_cpus[-1:], core_cpus), strict=True):
                for name, value in _run(program, cpus, effort.budget_ms).items():
                    times[name] = min(value, times.get(name, value))
    return RuntimeTimes(compiler, len(core_cpus), *found)


def runtime_costs(times: RuntimeTimes) -> dict[str, str]:
    """The block ``node.runtime_system`` of a machine."""
    more = {name: times.all[name] - times.one[name] for name in times.one}
    doublings = (times.num_cores - 1).bit_length()
    create = max(0.0, more["empty"])
    in_all = times.num_cores * times.all["filled"] - times.one["filled"]
    costs = {
        "create": create,
        "schedule": in_all - create,
        "chunk": more["chunk"],
        "fork": (more["region"] - more["loop"]) / doublings,
        "barrier": more["loop"] / doublings,
        "lock": more[_LOCK],
    }
    return {name: f"{max(0.0, cost):.3g} ns" for name, cost in costs.items()}


def runtime_source(times: RuntimeTimes | str) -> str:
    """Words for the source of the machine's node."""
    if isinstance(times, str):
        return times
    return (
        f"runtime_system: OpenMP of {times.compiler} with {times.num_cores} threads, beyond what one takes; that fork "
        "and barrier grow with each doubling of the cores is taken"
    )


@contextmanager
def _built() -> Iterator[tuple[Path, str] | None]:
    """The program and the compiler's name, gone afterwards: that of CC, else clang, whose runtime the tracer's programs
    have, else cc. None where none of them knows OpenMP."""
    chosen: list[tuple[str, ...]] = [] if os.environ.get("CC") or not shutil.which("clang") else [("clang",)]
    with tempfile.TemporaryDirectory(prefix="manyscale-calibration-") as folder:
        program = Path(folder) / "openmp"
        for command in [*chosen, c_compiler("the micro-benchmark").command]:
            built = subprocess.run(
                [*command, *_FLAGS, str(SOURCE), "-o", str(program)], capture_output=True, text=True, check=False
            )
            if built.returncode == 0:
                told = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False).stdout
                yield program, (told.splitlines() or [shlex.join(command)])[0]
                return
        yield None


def _run(program: Path, cpus: Sequence[int], budget_ms: int) -> Times:
    environment: Mapping[str, Any] = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "KMP_", "GOMP_"))},
        "OMP_NUM_THREADS": str(len(cpus)),
        "OMP_PLACES": ",".join(f"{{{cpu}}}" for cpu in cpus),
        "OMP_PROC_BIND": "true",
        "OMP_DYNAMIC": "false",
    }
    done = subprocess.run([str(program), str(budget_ms)], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        told = (done.stderr.splitlines() or [f"exit status {done.returncode}"])[-1]
        raise RunError(f"the micro-benchmark of OpenMP failed on {len(cpus)} cores: {told}")
    return {name: median if name == _LOCK else best for name, (best, median) in parsed(done.stdout).items()}
