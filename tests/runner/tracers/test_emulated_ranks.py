"""Unmodified programs with MPI or OpenMP under QEMU: what each segment executes follows from the program's source."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from task_traces import FLAGS, SOURCES
from tracer_programs import PROGRAMS, Mpi, need, need_libomp

from manyscale.models.workload import Workload
from manyscale.models.workload.operation_tables import KIND_NAMES
from manyscale.runner.errors import UserError
from manyscale.runner.tracers import emulated, launch
from manyscale.runner.tracers.build import NATIVE

pytestmark = pytest.mark.slow
STEPS = 3


def accesses(workload: Workload, function: str) -> list[tuple[int, int, int, int, int]]:
    """Of each segment: rank, operation and task instance, then the loads and stores of a function."""
    functions = workload.tables["blocks"].column("function").to_pylist()
    is_own = np.array([each == function for each in functions])
    block, stores = workload.column("block_accesses", "block_id"), workload.tables["block_accesses"]["is_store"]
    is_store = np.array(stores.to_pylist(), np.bool_)
    loads, stored = (np.bincount(block[each], minlength=len(functions)) * is_own for each in (~is_store, is_store))
    assert workload.detail is not None
    batch = workload.detail.read(0, workload.detail.num_segments)
    found = []
    for number, segment in enumerate(workload.tables["segments"].to_pylist()):
        ids = batch.block_ids[batch.block_offsets[number] : batch.block_offsets[number + 1]]
        counts = int(loads[ids].sum()), int(stored[ids].sum())
        found.append((segment["rank"], segment["operation_id"], segment["task_instance_id"], *counts))
    return found


def next_run(cli: Callable[..., Any], trace: Any, folder: Path) -> float:
    """The makespan, in seconds, that the command predicts which the tracer's last line names: of simulated cores."""
    words = shlex.split(trace.out.splitlines()[-1])
    assert words[:3] == ["next:", "manyscale", "run"]
    assert "cpu=detailed" in words
    outcome = cli(*words[2:], "-o", folder, "--no-report")
    assert outcome.status == 0, outcome.err
    return float(json.loads((folder / "stats.json").read_text())["application.makespan"]["value"])


def test_ranks_under_qemu_with_their_calls(
    traced: Callable[..., Any], compiled: Callable[..., Path], mpi: Mpi, cli: Callable[..., Any], tmp_path: Path
) -> None:
    need(emulated.EMULATOR)
    program = compiled(PROGRAMS / "detail" / "passes.c", mpi.compiler, "-O1", "-g")
    command = [*mpi.start(2), program, STEPS]
    trace = traced(command, "--level", "detailed", "--route", "qemu", "--ranks", "all", "--iterations", "all")
    assert trace.status == 0, trace.err
    workload = trace.workload
    kinds = [KIND_NAMES[int(kind)].as_py() for kind in workload.column("operations", "kind")]
    assert kinds[: len(kinds) // 2] == ["init", *["sendrecv", "allreduce"] * STEPS, "finalize", "other"]
    # a load of each number in each pass, and the return address; all before the sendrecv of its step
    found = [(rank, operation, loads) for rank, operation, _, loads, _ in accesses(workload, "sum_up") if loads]
    expected = [(rank, 1 + 2 * step, 1000 * (rank + 1) + 1) for rank in (0, 1) for step in range(STEPS)]
    assert found == expected
    # nothing of what the MPI library does meanwhile
    assert workload.column("segments", "num_instructions").max() < 2 * 10_000
    if mpi.name == "openmpi":  # what is predicted of such a trace does not depend on the library
        return
    assert next_run(cli, trace, tmp_path / "run") > 0


def test_one_rank_and_its_iterations(traced: Callable[..., Any], compiled: Callable[..., Path]) -> None:
    need(emulated.EMULATOR, "mpicc.mpich")
    program = compiled(PROGRAMS / "detail" / "passes.c", "mpicc.mpich", "-O1", "-g")
    command = ["mpiexec.mpich", "-n", 2, program, 4]
    trace = traced(command, "--level", "detailed", "--route", "qemu", "--ranks", "1", "--iterations", "2-3")
    assert trace.status == 0, trace.err
    found = [each[:2] for each in accesses(trace.workload, "sum_up") if each[3]]
    assert found == [(1, 3), (1, 5)]
    refused = traced(command, "--level", "detailed", "--route", "qemu", "--function", "sum_up")
    assert refused.status == 2
    assert "--iterations and --regions" in refused.err


def test_tasks_under_qemu(traced: Callable[..., Any], compiled: Callable[..., Path]) -> None:
    """Stores of each task instance: 10 + i before its child's 3, and 2 behind it; then chunks of 20, 40, 60 and 80."""
    need_libomp()
    need(emulated.EMULATOR)
    program = compiled(SOURCES / "counted.c", "clang", *FLAGS)
    trace = traced([program], "--level", "detailed", "--route", "qemu")
    assert trace.status == 0, trace.err
    touched: dict[int, list[int]] = {}
    for _, _, task, _, stores in accesses(trace.workload, "touch"):
        if stores:
            touched.setdefault(task, []).append(stores)
    tasks = [counts for counts in touched.values() if len(counts) < 3]
    assert tasks[::2] == [[10 + i, 2] for i in range(6)]
    assert tasks[1::2] == [[3]] * 6
    assert [counts for counts in touched.values() if len(counts) > 2] == [[20, 40, 60, 80]]


def test_marked_iterations_under_qemu(
    traced: Callable[..., Any], compiled: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a program without MPI, too, only the chosen ones are recorded: the second and the third. Nothing of its
    runtime system is, wherever that lies."""
    need_libomp()
    shutil.copy(launch.libomp(), tmp_path)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    need(emulated.EMULATOR)
    program = compiled(SOURCES / "marked.c", "clang", *FLAGS, f"-I{NATIVE}")
    trace = traced([program], "--level", "detailed", "--route", "qemu", "--iterations", "2-3")
    assert trace.status == 0, trace.err
    assert [stores for *_, stores in accesses(trace.workload, "touch") if stores] == [200] * 3 + [300] * 3
    assert set(trace.workload.tables["blocks"].column("module").to_pylist()) == {program.name}


def test_a_program_of_aarch64(
    traced: Callable[..., Any], compiled: Callable[..., Path], cli: Callable[..., Any], tmp_path: Path
) -> None:
    """1,000 rounds of six instructions: two loads, a fused multiplication and addition that waits for the one before, 4
    cycles on a Neoverse N1 (Arm's Software Optimization Guide), an addition, a comparison and a branch."""
    need(emulated.ARM_EMULATOR, "aarch64-linux-gnu-gcc")
    program = compiled(PROGRAMS / "detail" / "dot.c", "aarch64-linux-gnu-gcc", "-O2", "-static")
    trace = traced([program], "--level", "detailed", "--route", "qemu", "--function", "dot")
    assert trace.status == 0, trace.err
    segment = trace.workload.tables["segments"].to_pylist()[0]
    assert segment["num_accesses"] == 2_000
    assert segment["num_instructions"] == pytest.approx(6_000, abs=20)
    cycles = next_run(cli, trace, tmp_path / "run") * 3e9
    # the caches are cold at first: 250 lines of 8 numbers, whose misses overlap; never fewer than the chain takes
    assert cycles >= 4_000
    refused = traced([program], "--level", "tasks")
    assert refused.status == 2
    assert "is a program of AArch64" in refused.err


def test_sve_is_refused_with_what_records_it(traced: Callable[..., Any], compiled: Callable[..., Path]) -> None:
    need(emulated.ARM_EMULATOR, "aarch64-linux-gnu-gcc")
    program = compiled(
        PROGRAMS / "detail" / "dot.c", "aarch64-linux-gnu-gcc", "-O3", "-ffast-math", "-march=armv8.2-a+sve", "-static"
    )
    refused = traced([program], "--level", "detailed", "--route", "qemu")
    assert refused.status == 2
    assert "SVE" in refused.err.splitlines()[-1]
    assert "drmemtrace" in refused.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("version", "options", "message"),
    [("10.0.2", "-plugin", "is QEMU 10.0, whose plugins"), ("7.2.22", "-cpu", "is built without plugins")],
)
def test_emulators_that_cannot_record_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, options: str, message: str
) -> None:
    fake = tmp_path / emulated.EMULATOR
    fake.write_text(f'#!/bin/sh\n[ "$1" = -h ] && echo "{options}" || echo "qemu-x86_64 version {version}"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(UserError, match=message):
        emulated.qemu_command(["/bin/true"], tmp_path / "out", cache=tmp_path)
