"""Programs are built and traced for real with what the machine has; what it lacks is named where a test is skipped."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from detail_programs import Programs, Recorded
from tracer_programs import LIBRARIES, MPI, Mpi, need

from manyscale.models.workload import Workload
from manyscale.runner.cli import main
from manyscale.runner.readers import workload_folder


@pytest.fixture(params=LIBRARIES)
def mpi(request: pytest.FixtureRequest) -> Mpi:
    """Each MPI library in turn."""
    compiler, words = MPI[request.param]
    need(compiler, words[0])
    return Mpi(request.param, compiler, words)


@pytest.fixture(scope="session")
def build_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where programs are built once for all tests."""
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(scope="session")
def common_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all processes of a test run find what one of them has built."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "common"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def compiled(common_folder: Path) -> Callable[..., Path]:
    """``compiled(source, compiler, *flags)``: the program, built once."""

    def build(source: Path, compiler: str, *flags: str) -> Path:
        need(compiler)
        label = "-".join(
            [source.stem, compiler.replace("/", "_"), *(flag.strip("-").replace("/", "_") for flag in flags)]
        )
        program = common_folder / label[:150]
        if not program.exists():
            made = program.with_name(f"{program.name}.{os.getpid()}")
            command = [compiler, str(source), "-o", str(made), *flags, "-lm"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            made.replace(program)
        return program

    return build


@pytest.fixture(scope="session")
def tracer_cache(common_folder: Path) -> Path:
    """The cache that keeps the tracers that tests build."""
    return common_folder / "cache"


@dataclass(frozen=True)
class Traced:
    """What ``manyscale trace`` left and said."""

    status: int
    out: str
    err: str
    folder: Path

    @property
    def workload(self) -> Workload:
        return workload_folder.read(self.folder)


@pytest.fixture
def traced(tmp_path: Path, tracer_cache: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., Traced]:
    """``traced(command, "--level", "tasks", ...)``: the command's trace."""
    count = 0

    def call(command: Sequence[object], *options: object) -> Traced:
        nonlocal count
        count += 1
        folder = tmp_path / f"trace-{count}"
        capfd.readouterr()
        words = ["trace", "--cache", tracer_cache, "-o", folder, *options, "--", *command]
        try:
            status = main([str(word) for word in words])
        except SystemExit as stop:
            status = int(stop.code or 0)
        captured = capfd.readouterr()
        return Traced(status, captured.out, captured.err, folder)

    return call


@pytest.fixture(scope="session")
def detail_programs(tmp_path_factory: pytest.TempPathFactory, tracer_cache: Path) -> Programs:
    return Programs(tmp_path_factory.mktemp("detail"), tracer_cache)


@pytest.fixture(scope="session")
def recorded(detail_programs: Programs) -> Callable[..., Recorded]:
    """``recorded(source, *arguments)``: the program, traced once and read with its counting build."""
    known: dict[tuple[str, ...], Recorded] = {}

    def record(source: str, *arguments: str) -> Recorded:
        if (source, *arguments) not in known:
            raw, done = detail_programs.run(detail_programs.build(source), *arguments)
            assert done.returncode == 0, done.stderr
            known[source, *arguments] = detail_programs.read(raw, detail_programs.build(source, "counting"))
        return known[source, *arguments]

    return record
