"""Times of iterations on this machine, and predicted from traces of one core.

``python native.py BINARIES WORK OUT [CASE...]``, with manyscale importable: for each case of ``NATIVE``, its time
an iteration is measured on one core and, with one rank, on two (``iteration_clock.c``), its program is traced with one
thread per rank, and the trace is predicted on the target of ``--target``, the machine as ``manyscale calibrate --node``
found it. A row per case, number of cores and model is written to the CSV file OUT.

Measured: the wall time from the second iteration's beginning to the last one's, the shortest of ``--repetitions`` runs,
threads pinned to cores; with ``--realtime`` under the scheduler's SCHED_FIFO, so that programs that run beside have to
wait for the tens of milliseconds that a run takes. The trace is the one of ``--traces`` with the least compute time.
Model ``burst`` takes traced times alone; in ``burst+runtime`` the runtime system takes on several cores what the target
says (``node.runtime_system``). ``detailed`` (one rank) simulates the second iteration of a detailed trace on the
target's cores and caches, its page faults at the target's cost, and on several cores with the runtime system's.
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from chapter6_cases import NATIVE, Case

import manyscale
from manyscale.models.workload import Workload
from manyscale.models.workload.columns import to_numpy
from manyscale.runner.study import WorkloadChoice

COLUMNS: Final = (
    "case", "ranks", "cores", "native_ms", "native_median_ms", "model", "predicted_ms", "error_percent",
)  # fmt: skip
SECOND: Final = 1
NOTHING: Final = dict.fromkeys(("create", "schedule", "chunk", "fork", "barrier", "lock"), "0 ns")
ROUNDS: Final = 4


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("binaries", type=Path, metavar="BINARIES", help="of chapter6_programs.py")
    parser.add_argument("work", type=Path, metavar="WORK", help="folder for traces and runs")
    parser.add_argument("output", type=Path, metavar="OUT")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(NATIVE)}; default all")
    parser.add_argument("--target", required=True)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--traces", type=int, default=3)
    parser.add_argument("--realtime", action="store_true", help="needs the right to ask for SCHED_FIFO")
    options = parser.parse_args(arguments)
    place = Place(options.binaries.resolve(), options.work.resolve(), options.realtime)
    names = options.cases or list(NATIVE)
    times: dict[tuple[str, int], list[float]] = {}
    for _ in range(ROUNDS):  # cores of a shared machine are far apart for minutes: all of it, several times
        for name in names:
            for cores in cores_of(NATIVE[name]):
                found = [place.measured(NATIVE[name], cores) for _ in range(-(-options.repetitions // ROUNDS))]
                times.setdefault((name, cores), []).extend(found)
    with options.output.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for name in names:
            for cores in cores_of(NATIVE[name]):
                for row in compared(name, cores, times[name, cores], place, options):
                    writer.writerow(row)
                    file.flush()
    return 0


def cores_of(case: Case) -> tuple[int, ...]:
    """Numbers of cores of a rank that two cores can run."""
    return (1, 2) if case.ranks == 1 else (1,)


def compared(
    name: str, cores: int, times: Sequence[float], place: Place, options: argparse.Namespace
) -> Iterator[dict[str, str]]:
    """A row per model."""
    case = NATIVE[name]
    program = case.of_threads if cores > 1 and case.of_threads else ""
    trace = place.trace(f"{name}{'-threads' if program else ''}", case, program or case.program, options.traces)
    models: dict[str, dict[str, Any]] = {"burst": {"runtime": NOTHING}}
    if cores > 1:
        models["burst+runtime"] = {}
    if case.ranks == 1 and not case.is_own:
        detail = place.detail(trace.name, case, program or case.program)
        where = {"path": str(trace), "detail": str(detail)}
        models["detailed"] = {"workload": where, "model": {"cpu": "detailed"}}
    for model, more in models.items():
        found = predicted(trace, options.target, cores, more)
        row = {
            "case": name,
            "ranks": str(case.ranks),
            "cores": str(cores),
            "native_ms": f"{min(times):.4g}",
            "native_median_ms": f"{np.median(times):.4g}",
            "model": model,
            "predicted_ms": f"{found:.4g}",
            "error_percent": f"{100 * (found / min(times) - 1):+.1f}",
        }
        print(" ".join(row.values()), flush=True)
        yield row


class Place:
    """Where programs run: ``binaries`` of chapter6_programs.py, a folder ``work``, and how they are started."""

    def __init__(self, binaries: Path, work: Path, realtime: bool) -> None:
        self.binaries, self.work = binaries, work
        self.before = ["chrt", "-f", "20"] if realtime else []
        work.mkdir(parents=True, exist_ok=True)
        self.clock = work / "iteration_clock.so"
        source = Path(__file__).with_name
        subprocess.run(
            ["clang", "-O2", "-shared", "-fPIC", "-o", str(self.clock), str(source("iteration_clock.c"))], check=True
        )
        own = ["mpicc.mpich", "-O2", "-g", "-fopenmp", str(source("creator.c")), "-o", str(work / "creator")]
        subprocess.run(own, check=True, env={**os.environ, "MPICH_CC": "clang"})

    def command(self, case: Case, program: str, threads: int) -> list[str]:
        """Ranks and threads each on a core of their own; the first core is left to others where one is enough."""
        folder = self.work if case.is_own else self.binaries
        binding = {(1, 1): ["-bind-to", "user:1"], (1, 2): []}.get((case.ranks, threads), ["-bind-to", "core"])
        return ["mpirun.mpich", *binding, "-n", str(case.ranks), str(folder / program), *case.arguments]

    def environment(self, threads: int) -> dict[str, str]:
        return {**os.environ, "OMP_NUM_THREADS": str(threads), "OMP_PROC_BIND": "true", "OMP_PLACES": "cores"}

    def measured(self, case: Case, threads: int) -> float:
        """Milliseconds an iteration from the second to the one before the last, mean over ranks."""
        with tempfile.TemporaryDirectory(dir=self.work) as folder:
            case.write_files(Path(folder))
            command = self.command(case, case.program, threads)
            at = command.index("-n")
            preloaded = ["-genv", "LD_PRELOAD", str(self.clock), "-genv", "ITERATION_CLOCK", f"{folder}/times"]
            command[at:at] = preloaded
            subprocess.run(
                [*self.before, *command], cwd=folder, env=self.environment(threads), check=True, capture_output=True
            )
            files = sorted(Path(folder).glob("times.*"))
            if len(files) != case.ranks:
                raise RuntimeError(f"{' '.join(command)}: {len(files)} of {case.ranks} ranks wrote times")
            return float(np.mean([np.loadtxt(file, ndmin=2)[SECOND:, 0].mean() for file in files])) / 1e6

    def trace(self, name: str, case: Case, program: str, times: int) -> Path:
        """The one with the least compute time of several traces with one thread a rank."""
        output = self.work / name
        best = np.inf
        for number in range(times):
            made = self.work / f"traced.{number}" / name  # the trace's name is the folder's
            shutil.rmtree(made, ignore_errors=True)
            made.parent.mkdir(exist_ok=True)
            case.write_files(self.work / f"{name}.input")
            tracer = [sys.executable, "-m", "manyscale", "trace", "--level", "tasks", "-o", str(made), "--"]
            done = subprocess.run(
                [*self.before, *tracer, *self.command(case, program, 1)],
                cwd=self.work / f"{name}.input", env=self.environment(1), check=False, capture_output=True, text=True,
            )  # fmt: skip
            if done.returncode:
                raise RuntimeError(f"{name}: {done.stderr.strip()[-2000:]}")
            workload = manyscale.read_workload(WorkloadChoice(path=str(made)))
            compute = float(workload.column("phases", "duration_ps").sum())
            if compute < best:
                best = compute
                shutil.rmtree(output, ignore_errors=True)
                made.rename(output)
            else:
                shutil.rmtree(made)
        return output

    def detail(self, name: str, case: Case, program: str) -> Path:
        """The detailed trace of the second iteration of rank 0, made if it is not there."""
        output = self.work / f"{name}.detail"
        if output.is_dir():
            return output
        folder = self.work / f"{name}.input"
        counting = ["--counting", str(self.binaries / f"{program}.counting")]
        tracer = [
            sys.executable,
            "-m",
            "manyscale",
            "trace",
            "--level",
            "detailed",
            "--ranks",
            "0",
            "--iterations",
            "2",
        ]
        command = [*tracer, *counting, "-o", str(output), "--", *self.command(case, f"{program}.detailed", 1)]
        done = subprocess.run(command, cwd=folder, env=self.environment(1), check=False, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{output.name}: {done.stderr.strip()[-2000:]}")
        return output


def predicted(trace: Path, target: str, cores: int, more: Mapping[str, Any]) -> float:
    """Milliseconds an iteration, as ``Place.measured`` counts them."""
    study = {"workload": {"path": str(trace)}, "target": target, "mapping": {"cores_per_rank": cores}, **more}
    with tempfile.TemporaryDirectory() as folder:
        result = manyscale.run(study, Path(folder) / "run", executor="local", report=False, cache=Path(folder) / "c")
    workload = manyscale.read_workload(WorkloadChoice(path=str(trace)))
    return iteration_ms(result, workload)


def iteration_ms(result: manyscale.Result, workload: Workload) -> float:
    """From the end of the first operation of the second iteration to that of the last one: what comes between is these
    iterations' alone, wherever in an iteration its operations are."""
    rank, operation, end_ps = (to_numpy(result.ranks.column(name)) for name in ("rank", "operation_id", "end_ps"))
    owner, first = (workload.column("iterations", name) for name in ("rank", "first_operation_id"))
    means = []
    for each in range(workload.num_ranks):
        begins = first[owner == each]
        bounds = [int(begins[SECOND]), int(begins[-1])]
        ends = [int(end_ps[(rank == each) & (operation == bound)].max()) for bound in bounds]
        means.append((ends[1] - ends[0]) / (len(begins) - 1 - SECOND))
    return float(np.mean(means)) / 1e9


if __name__ == "__main__":
    sys.exit(main())
