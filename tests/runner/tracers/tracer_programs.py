"""What tests of the tracer share: where the programs are, and what the machine has to run them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parents[2] / "programs"

# compiler wrapper, and the words that start N ranks whatever the number of cores
MPI = {
    "mpich": ("mpicc.mpich", ("mpiexec.mpich", "-n")),
    "openmpi": (
        "mpicc.openmpi",
        ("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n"),
    ),
}

# for parameters: the second library's turn is among the slower tests
LIBRARIES = [name if name == "mpich" else pytest.param(name, marks=pytest.mark.slow) for name in MPI]


def need(*tools: str) -> None:
    """Skip the test, naming the first of these programs that is not installed."""
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")


def need_libomp() -> None:
    """Skip the test where LLVM's OpenMP runtime is missing."""
    from manyscale.runner.errors import UserError
    from manyscale.runner.tracers import launch

    try:
        launch.libomp()
    except UserError:
        pytest.skip("LLVM's OpenMP runtime (libomp) is not installed")


@dataclass(frozen=True)
class Mpi:
    """One MPI library: ``compiler`` makes its programs, ``start(n)`` are the words before a program."""

    name: str
    compiler: str
    words: tuple[str, ...]

    def start(self, ranks: int) -> list[str]:
        return [*self.words, str(ranks)]
