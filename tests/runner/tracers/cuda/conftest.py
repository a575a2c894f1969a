"""Programs with and without kernels, built with what the machine has; without nvcc the tests are skipped by name."""

from __future__ import annotations

import ctypes
import fcntl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import sass_programs

from manyscale.runner.cli import main
from manyscale.runner.errors import UserError
from manyscale.runner.shipped import shipped_targets
from manyscale.runner.tracers.cuda import compiler
from manyscale.runner.tracers.cuda.compiler import Toolkit


@pytest.fixture(scope="session")
def sass(common_folder: Path) -> ctypes.CDLL:
    """The interpreter, built by one process for all."""
    with (common_folder / "sass.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return sass_programs.build(common_folder / "sass")


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


@pytest.fixture
def trace(tmp_path, tracer_cache, capfd):
    """``trace(command, *options)``: (exit status, lines of the program, what was said, folder)."""

    def run(command: list[str], *options: str) -> tuple[int, list[str], str, Path]:
        folder = tmp_path / "traced"
        words = ["trace", "--level", "gpu", "--cache", str(tracer_cache), "-o", str(folder), *options, "--", *command]
        status = main(words)
        captured = capfd.readouterr()
        return status, captured.out.splitlines(), captured.err, folder

    return run


@pytest.fixture
def shown(tmp_path):
    """``shown(architecture)``: a target whose GPU has it; of 7.5, 10.0 and 12.0 none is shipped."""

    def target(architecture: int) -> str:
        if architecture >= 100:
            like, was = ("h100", 90) if architecture == 100 else ("rtx3070", 86)
            text = shipped_targets()[like].read_text()
            assert f"compute_capability: {was}" in text
            made = tmp_path / f"sm{architecture}.yaml"
            made.write_text(text.replace(f"compute_capability: {was}", f"compute_capability: {architecture}"))
            return str(made)
        if architecture != 75:
            return {80: "a100", 86: "rtx3070", 90: "h100"}[architecture]
        text = shipped_targets()["rtx3070"].read_text()
        for old, new in (("compute_capability: 86", "compute_capability: 75"), ("size: 100 KiB", "size: 64 KiB"),
                         ("64 KiB, 100 KiB]", "64 KiB]"), ("name: rtx3070", "name: turing")):  # fmt: skip
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "turing.yaml").write_text(text)
        return str(tmp_path / "turing.yaml")

    return target
