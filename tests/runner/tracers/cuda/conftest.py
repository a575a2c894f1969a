"""Programs with and without kernels, built with what the machine has; without nvcc the tests are skipped by name."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import sass_programs

from manyscale.runner.errors import UserError
from manyscale.runner.tracers.cuda import compiler
from manyscale.runner.tracers.cuda.compiler import Toolkit


@pytest.fixture(scope="session")
def sass(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The interpreter."""
    return sass_programs.build(tmp_path_factory.mktemp("sass"))


@pytest.fixture(scope="session")
def kit() -> Toolkit:
    try:
        found = compiler.toolkit()
        for tool in ("nvcc", "cuobjdump", "ptxas"):
            found.tool(tool)
    except UserError as error:
        pytest.skip(f"nvcc is not installed: {error}")
    return found


@pytest.fixture(scope="session")
def link_flags(kit: Toolkit, tracer_cache: Path) -> list[str]:
    return compiler.flags(kit, tracer_cache)


@pytest.fixture(scope="session")
def nvcc(kit: Toolkit, link_flags: list[str], build_folder: Path) -> Callable[..., Path]:
    """``nvcc(name, text, *words)``: the program, or with -cubin the device code."""

    def build(name: str, text: str, *words: str) -> Path:
        source, made = build_folder / f"{name}.cu", build_folder / name
        source.write_text(text)
        linked = [] if "-cubin" in words or "-cudart" in words else link_flags
        command = [str(kit.tool("nvcc")), *words, str(source), "-o", str(made), *linked]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return made

    return build
