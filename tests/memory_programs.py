"""The programs of ``programs/memory``, built by gcc and traced under QEMU, which sees libm, too. Tests that need them
are skipped where gcc or QEMU are missing."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from manyscale.models.memory.access_stream import Sites, sites_of
from manyscale.models.workload import Workload
from manyscale.runner import cli
from manyscale.runner.readers import workload_folder

MEASURED_WITH = "12.2.0"  # gcc, of data/memory/epyc_zen4_times.csv
SOURCES = Path(__file__).parent / "programs" / "memory"


@cache
def _folder() -> Path:
    """Where programs and traces stay: for the session, or in MANYSCALE_TRACES for those who run tests again and
    again."""
    kept = os.environ.get("MANYSCALE_TRACES")
    if kept:
        return Path(kept)
    made = Path(tempfile.mkdtemp(prefix="memory-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


@cache
def program(name: str, level: int) -> Path:
    """A program built with ``-O level`` (0, 1 or 3)."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    built = _folder() / "programs"
    if not (built / f"{name}.O{level}").is_file():
        subprocess.run([SOURCES / "build.sh", built, name], check=True)
    return built / f"{name}.O{level}"


def need_measured_compiler() -> None:
    """Skip the test unless gcc is the version with which times were measured: another one lays out other code."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("gcc is not installed")
    version = subprocess.run([compiler, "-dumpfullversion"], capture_output=True, text=True, check=True).stdout.strip()
    if version != MEASURED_WITH or os.environ.get("CC", "gcc") != "gcc":
        pytest.skip(f"times were measured with gcc {MEASURED_WITH}, not {version}")


@cache
def traced(name: str, level: int, size: int) -> Workload:
    """The detailed trace of kernel() of a program, run once on an input of ``size``."""
    return workload_folder.read(trace(name, level, size))


@cache
def trace(name: str, level: int, size: int) -> Path:
    """Where that trace lies."""
    output = _folder() / "traces" / f"{name}.O{level}.{size}"
    if not output.is_dir():
        if shutil.which("qemu-x86_64") is None:
            pytest.skip("qemu-x86_64 is not installed")
        words = ["trace", "--level", "detailed", "--route", "qemu", "--function", "kernel", "-o", str(output)]
        assert cli.main([*words, "--", str(program(name, level)), str(size)]) == 0
    return output


def stream(workload: Workload) -> tuple[np.ndarray, np.ndarray, Sites]:
    """(block ids, addresses, sites) of a whole trace."""
    assert workload.detail is not None
    bounds = workload.detail.execution_bounds()
    batch = workload.detail.read_executions(0, int(bounds[-1]))
    return batch.block_ids, batch.addresses, sites_of(workload)
