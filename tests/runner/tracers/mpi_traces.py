"""Small MPI programs (``tests/programs/mpi``), traced for real, and what the reader made of them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tracer_programs import PROGRAMS, Mpi, need

from manyscale.models.workload import Workload
from manyscale.runner.readers.raw_trace import operations as native_operations
from manyscale.runner.readers.raw_trace.calls import Calls
from manyscale.runner.readers.raw_trace.files import Process, read_processes
from manyscale.runner.readers.raw_trace.mpi_calls import NAMES
from manyscale.runner.readers.raw_trace.mpi_standard import Role, role_of
from manyscale.runner.tracers import build

_FORTRAN = {"mpich": "mpif90.mpich", "openmpi": "mpif90.openmpi"}


@dataclass(frozen=True)
class MpiTrace:
    """The processes of a run and their workload; ``status``: the run's exit status; ``output``: what it printed."""

    processes: list[Process]
    workload: Workload
    status: int
    output: str

    def rows(self, rank: int, *columns: str) -> list[tuple[object, ...]]:
        """A rank's operations: name of the kind, then these columns; without init, finalize and the one added last."""
        table = self.workload.tables["operations"].to_pylist()
        mine = [row for row in table if row["rank"] == rank][:-1]
        return [
            (row["kind"], *(row[column] for column in columns))
            for row in mine
            if row["kind"] not in ("init", "finalize")
        ]

    def talk(self, rank: int, *columns: str) -> list[tuple[object, ...]]:
        """The rows of a rank that take part in the replay, without those of calls that only synchronise."""
        calls = Calls(self.processes[rank])
        is_barrier = np.array([role_of(name) is Role.synchronising for name in NAMES])[calls.call]
        ids = calls.operation_ids()
        left_out = {
            row
            for first, end in zip(ids[:-1][is_barrier], ids[1:][is_barrier], strict=True)
            for row in range(first, end)
        }
        kinds = [row["kind"] for row in self.workload.tables["operations"].to_pylist() if row["rank"] == rank][:-1]
        own = [number for number, kind in enumerate(kinds) if kind not in ("init", "finalize")]
        rows = zip(own, self.rows(rank, *columns), strict=True)
        return [row for number, row in rows if row[0] not in ("other", "test") and number not in left_out]

    def calls(self, rank: int) -> list[str]:
        """Names of the MPI functions that a rank called."""
        process = self.processes[rank]
        names = [name for each in process.definitions for name in each.get("calls", ())]
        return [names[call] for call in process.operations["call"]]


@dataclass(frozen=True)
class Tracing:
    """How to trace one of the programs under one of the MPI libraries."""

    mpi: Mpi
    compiled: Callable[..., Path]
    cache: Path
    folder: Path

    def __call__(
        self, program: str, ranks: int = 4, *arguments: str, succeeds: bool = True, level: int = 1
    ) -> MpiTrace:
        """The trace of ``program`` (its file name) on ``ranks``."""
        source = PROGRAMS / "mpi" / program
        if source.suffix == ".c":
            binary = self.compiled(source, self.mpi.compiler, "-O1", f"-I{build.NATIVE}", "-ldl")
        else:
            need(_FORTRAN[self.mpi.name])
            binary = self.compiled(source, _FORTRAN[self.mpi.name], "-fallow-argument-mismatch", "-w")
        tracer = build.tracer(self.mpi.name, self.cache)
        command = [*self.mpi.start(ranks), "env", f"LD_PRELOAD={tracer}", "MANYSCALE_TRACE_ALWAYS=1", str(binary)]
        environment = {**os.environ, "MANYSCALE_TRACE_DIR": str(self.folder), "MANYSCALE_TRACE_LEVEL": str(level)}
        done = subprocess.run(
            [*command, *arguments], env=environment, capture_output=True, text=True, check=False, timeout=60
        )
        assert (done.returncode == 0) is succeeds, done.stderr
        processes = read_processes(self.folder)
        tables, notes = native_operations.build(processes)
        return MpiTrace(processes, Workload(program, ranks, tables, tuple(notes)), done.returncode, done.stdout)
