"""From the command to its result: CPU seconds over the machine's own second (``cpu_time.second``), wall seconds beside
them, with nothing kept at all, with the kernels of the wheel, and with everything kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cpu_time import cpu_of, second
from llvmlite import binding  # type: ignore[import-untyped]

from manyscale.models.kernels import compiled

pytestmark = pytest.mark.bench

PAIRS = 5
FLOW = "run lulesh-64 --target fattree256 --model network=flow"


def taken(command: str, folder: Path, **variables: str) -> tuple[float, float]:
    """CPU and wall seconds of a command with a cache of its own, ``folder``."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment |= {"XDG_CACHE_HOME": str(folder), **variables}
    begin = time.monotonic()
    cpu = cpu_of([sys.executable, "-m", "manyscale", *command.split()], cwd=folder, env=environment)
    return cpu, time.monotonic() - begin


def check(what: str, cpu: float, wall: float, bound: float) -> None:
    unit = second()
    print(f"\n{what}: {cpu:.2f} CPU s, {wall:.2f} s wall; {cpu / unit:.2f} machine seconds (at most {bound})")
    assert cpu / unit <= bound


@pytest.mark.parametrize(("command", "bound"), [("run lulesh-64", 6), ("run bfs-16", 15), (FLOW, 15)])
def test_nothing_is_compiled(command: str, bound: float, tmp_path: Path) -> None:
    """For this very processor, for which no wheel has kernels."""
    check(f"{command}, cold", *taken(command, tmp_path, NUMBA_CPU_NAME=binding.get_host_cpu_name()), bound)


@pytest.mark.skipif(not (compiled.SHIPPED / compiled.environment()).is_dir(), reason="not installed from a wheel")
@pytest.mark.parametrize(("command", "bound"), [("run lulesh-64", 3), ("run bfs-16", 4), (FLOW, 4)])
def test_kernels_came_with_the_wheel(command: str, bound: float, tmp_path: Path) -> None:
    check(f"{command}, from the wheel", *taken(command, tmp_path), bound)


@pytest.mark.parametrize(("command", "bound"), [("run lulesh-64", 0.8), ("examples", 0.25), ("--help", 0.1)])
def test_everything_is_kept(command: str, bound: float, tmp_path: Path) -> None:
    kept = {"NUMBA_CACHE_DIR": str(compiled.folder().parent)}
    taken(command, tmp_path, **kept)
    check(f"{command}, again", *min(taken(command, tmp_path, **kept) for _ in range(PAIRS)), bound)


@pytest.mark.skipif(not binding.get_host_cpu_features().get("avx2"), reason="this processor is no x86-64-v3")
@pytest.mark.parametrize("study", ["bfs-16", "nas-cg-A-64"])
def test_kernels_for_many_processors_are_as_fast(study: str, tmp_path: Path) -> None:
    """Kernels for x86-64-v3 against those for this processor: what the units of a run take, the fastest of each."""
    least = {}
    for attempt in range(PAIRS + 1):  # the first compiles
        for level, name in (("x86-64-v3", compiled.LEVEL), ("this processor", binding.get_host_cpu_name())):
            run = tmp_path / f"{study} {attempt} {level}"
            features = {"NUMBA_CPU_FEATURES": ""} if name == compiled.LEVEL else {}
            environment = {**os.environ, "NUMBA_CPU_NAME": name, **features}
            arguments = ["run", study, "--no-report", "--executor", "local", "--cache", f"{run}-cache", "-o", str(run)]
            command = [sys.executable, "-m", "manyscale", *arguments]
            subprocess.run(command, check=True, capture_output=True, env=environment)
            seconds = json.loads((run / "simulator.json").read_text())["unit_cpu_seconds"]
            least[level] = min(least.get(level, float("inf")), seconds)
    print(f"\n{study}: " + ", ".join(f"{level} {seconds:.3f} CPU s" for level, seconds in least.items()))
    assert least["x86-64-v3"] <= 1.08 * least["this processor"]
