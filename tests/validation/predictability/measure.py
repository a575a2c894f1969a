"""How well a few task instances predict the others, on kernels whose instances differ and on some whose do not.

``python -m predictability.measure OUT [KERNEL ...]`` in tests/validation, with manyscale importable, clang and MPI
installed, traces each kernel in detail on one thread, simulates all of it in detail on cores of marenostrum3, and
writes a row to ``OUT/results.csv`` for each kernel, source of times, state of the caches at the beginning, number of
cores and task type (``all``: all types together) with the errors of manyscale.sampling.taskpoint.predictability's
predictors. Instances are taken in the order in which they began. Traces and runs that are there already are used again.

``--native RUNS`` adds times of this machine: one thread, the build without instrumentation, of each instance the median
of its CPU times over the runs; instruction counts are those of the detailed trace. (Locks are events that take longer
to record than the work between them: such a type of fluidanimate has no meaning there.)

``--fluidanimate FILE`` adds the source's own case of input dependence (Grass, UPC 2017, section 4.3.2): FILE is
``fluidanimate/src/omp4.cpp`` of the PARSEC benchmarks in OmpSs (Barcelona Supercomputing Center). Its input is made
here: a fluid at rest density that fills the lower half of the box (``fluidanimate``), or three fifths of it along
two axes (``fluidanimate-dam``), cut into 256 parts, which are task instances of each of the eight types.
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from taskpoint.trace_kernels import MANYSCALE, PROGRAMS, build_kernels

from manyscale.models.node.program.build import build_program
from manyscale.models.workload.task_tables import EventKind
from manyscale.runner.predict.node.creation import creation_pieces
from manyscale.runner.readers import workload_folder
from manyscale.runner.run import study_runs
from manyscale.sampling.taskpoint.predictability import (
    PREDICTORS,
    ErrorRow,
    Instances,
    _clusters,
    error_rows,
)

TARGET: Final = "marenostrum3"
CORES: Final = (1, 2, 4, 8, 16)
CACHES: Final = ("warm", "cold")
FLUID: Final = {"fluidanimate": (1.0, 0.5, 1.0), "fluidanimate-dam": (0.6, 0.6, 1.0)}
_PARTICLES_PER_METRE: Final = 220.0
_FLUID_ARGUMENTS: Final = ("2", "256")  # frames, parts
_BOX: Final = np.array([(-0.065, -0.08, -0.065), (0.065, 0.1, 0.065)])


@dataclass(frozen=True)
class Kernel:
    """``arguments``: of the program, in its order."""

    program: str
    arguments: tuple[int, ...]
    needs_mpi: bool = False


KERNELS: Final[dict[str, Kernel]] = {
    "sparse_matrix_vector-row": Kernel("sparse_matrix_vector", (1024, 1, 16000, 65536, 1)),
    "sparse_matrix_vector": Kernel("sparse_matrix_vector", (1024, 8, 2000, 65536, 1)),
    "merge_sort": Kernel("merge_sort", (131072, 512, 512, 1)),
    "merge_sort-graded": Kernel("merge_sort", (262144, 128, 8192, 1)),
    "k_means": Kernel("k_means", (1024, 64, 8, 8, 2)),
    "multizone": Kernel("multizone", (6, 24, 4, 16, 20, 2, 2), needs_mpi=True),
    "sparselu": Kernel("sparselu", (20, 16, 1), needs_mpi=True),
    "cholesky": Kernel("cholesky", (24, 16, 1), needs_mpi=True),
    "jacobi": Kernel("jacobi", (24, 32, 2), needs_mpi=True),
    "histogram": Kernel("histogram", (1024, 8192, 4096, 1)),
    "n_body": Kernel("n_body", (256, 32, 2, 2)),
    "reduction": Kernel("reduction", (1024, 16, 768, 1)),
    "fft": Kernel("fft", (8, 128, 16, 1, 1)),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("output", type=Path, metavar="OUT")
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help=f"default: all of {', '.join(KERNELS)}")
    parser.add_argument("--cores", default=",".join(map(str, CORES)), help="default: %(default)s")
    parser.add_argument("--native", type=int, default=0, metavar="RUNS", help="times of this machine, too")
    parser.add_argument("--fluidanimate", type=Path, metavar="FILE", help="its source; adds fluidanimate")
    options = parser.parse_intermixed_args(arguments)
    known = [*KERNELS, *(FLUID if options.fluidanimate else ())]
    unknown = sorted(set(options.kernels) - set(known))
    if unknown:
        parser.error(f"no kernel {unknown[0]}; there are {', '.join(known)}")
    output = options.output.resolve()
    rows: list[dict[str, Any]] = []
    for name in options.kernels or known:
        trace = traced(name, output, options.fluidanimate)
        for caches in CACHES:
            for cores in map(int, options.cores.split(",")):
                table = simulated(trace, output / "runs" / f"{name}-{caches}-{cores}", cores, caches)
                labels = {"kernel": name, "times": "simulated", "caches": caches, "cores": cores}
                rows += [labels | row for row in rows_of(table)]
        if options.native:
            table = natively(name, trace, output, options.native, options.fluidanimate)
            rows += [{"kernel": name, "times": "native", "caches": "", "cores": 1} | row for row in rows_of(table)]
        _write(output / "results.csv", rows)
        print(f"{name}: {len(rows)} rows", flush=True)
    return 0


# ---- traces ----


def traced(name: str, output: Path, fluid_source: Path | None) -> Path:
    """The detailed trace of a kernel, all iterations, on one thread."""
    folder = output / "traces" / name
    if not (folder / "workload.json").exists():
        commands = {build: _command(name, build, output, fluid_source) for build in ("coverage", "counting")}
        counting = str(_binary(name, "counting", output))
        level = ("--level", "detailed", "--iterations", "all", "--max-gb", "20", "--counting", counting)
        _trace(level, folder, commands["coverage"])
    return folder


def _trace(level: Sequence[str], folder: Path, command: Sequence[str]) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([*MANYSCALE, "trace", *level, "-o", str(folder), "--", *command], check=True, env=environment)


def _binary(name: str, build: str, output: Path) -> Path:
    return output / "bin" / build / ("fluidanimate" if name in FLUID else KERNELS[name].program)


def _command(name: str, build: str, output: Path, fluid_source: Path | None) -> list[str]:
    """How a build of a kernel is run; it is built first if it is not there."""
    binary = _binary(name, build, output)
    if name in FLUID:
        assert fluid_source is not None
        if not binary.exists():
            _build_fluid(fluid_source, binary, build)
        particles = output / f"{name}.fluid"
        write_particles(particles, FLUID[name])
        frames, parts = _FLUID_ARGUMENTS
        return [str(binary), "1", frames, str(particles), os.devnull, parts]
    kernel = KERNELS[name]
    if not binary.exists():
        if build == "plain":
            flags = ("--variant", "plain", "--marks", "--cc", "clang")
            subprocess.run([PROGRAMS / "build.sh", binary.parent, *flags, kernel.program], check=True)
        else:
            build_kernels([kernel.program], output / "bin")
    start = [shutil.which("mpirun.mpich") or "mpirun", "-n", "1"] if kernel.needs_mpi else []
    return [*start, str(binary), *map(str, kernel.arguments)]


def _build_fluid(source: Path, binary: Path, build: str) -> None:
    added: list[str] = []
    if build != "plain":
        level = "detailed" if build == "coverage" else build
        found = subprocess.run([*MANYSCALE, "trace", "--flags", level], check=True, capture_output=True, text=True)
        added = found.stdout.split()
    binary.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["clang++", "-O2", "-g", "-w", "-fopenmp", source, "-o", binary, *added], check=True)


def write_particles(path: Path, share: Sequence[float]) -> None:
    """Particles at rest that fill that share of the box along x, y and z, from the lower corner: at rest density,
    each moved by up to a quarter of the distance to the next one. The program's format: float32 particles per metre,
    int32 number, and of each float32[9] (place, and two velocities)."""
    size = (_BOX[1] - _BOX[0]) * share
    axes = [(np.arange(int(length * _PARTICLES_PER_METRE)) + 0.5) / _PARTICLES_PER_METRE for length in size]
    places = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3) + _BOX[0]
    places += np.random.default_rng(0).uniform(-0.25, 0.25, places.shape) / _PARTICLES_PER_METRE
    rows = np.zeros((len(places), 9), "<f4")
    rows[:, :3] = places
    header = np.array([_PARTICLES_PER_METRE], "<f4").tobytes() + np.array([len(places)], "<i4").tobytes()
    path.write_bytes(header + rows.tobytes())


# ---- times ----


def simulated(trace: Path, folder: Path, cores: int, caches: str) -> pd.DataFrame:
    """Columns task_type, instructions, cycles, first_cache_misses, last_cache_misses of the instances, in the order in
    which they began; creating instances takes no time, so that all cores have work."""
    if not (folder / "timeline" / "task_instances.parquet").exists():
        marked = workload_folder.read(trace).tables["iterations"].num_rows > 0
        content = {
            "schema": 1,
            "workload": {"path": str(trace)},
            "target": TARGET,
            "model": {"cpu": "detailed"},
            "sampling": {"iterations": "joined"} if marked else {},
            "mapping": {"cores_per_rank": cores},
            "detailed": {"creation": "free", "caches": caches},
        }
        options = study_runs.Options(output=folder, executor="local", cache=folder.parent / "cache", report=False)
        study_runs.run_study(content, "predictability", None, options)
    instances = pd.read_parquet(folder / "timeline" / "task_instances.parquet")
    when = pd.read_parquet(folder / "timeline" / "cores.parquet")
    began = when.groupby("task_instance_id", as_index=False).agg(start_ps=("start_ps", "min"), core=("core", "first"))
    both = instances.merge(began, on="task_instance_id", validate="one_to_one")
    assert len(both) == len(instances)
    return both.sort_values(["start_ps", "core"], kind="stable").reset_index(drop=True)


def natively(name: str, trace: Path, output: Path, runs: int, fluid_source: Path | None) -> pd.DataFrame:
    """As `simulated`, with the median of the CPU times in ps on this machine for cycles, and no misses; also written to
    ``OUT/native/NAME.csv.xz``. What an instance does between the creation of another one and its next event is the
    runtime system's, and left out as what comes before."""
    detailed = workload_folder.read(trace)
    counted = build_program(detailed, 0, 1)
    ends = (counted.piece_event >= 0) & (
        detailed.column("events", "kind")[counted.piece_event] == EventKind.task_create
    )
    order = np.argsort(counted.piece_instance, kind="stable")
    follows = np.zeros_like(ends)
    follows[order[1:]] = ends[order[:-1]] & (np.diff(counted.piece_instance[order]) == 0)
    kept = np.flatnonzero(~creation_pieces(counted, detailed) & ~follows)
    owner = counted.piece_instance[kept]
    times = []
    for run in range(runs):
        folder = output / "native" / f"{name}-{run}"
        if not (folder / "workload.json").exists():
            _trace(("--level", "tasks"), folder, _command(name, "plain", output, fluid_source))
        program = build_program(workload_folder.read(folder), 0, 1)
        if not np.array_equal(program.piece_instance, counted.piece_instance):
            raise SystemExit(f"{name}: the two builds did not create the same task instances")
        times.append(np.bincount(owner, program.piece_ps[kept], program.num_instances))
    first = np.full(counted.num_instances, counted.num_pieces)
    np.minimum.at(first, owner, kept)
    own = {"task_instance_id": counted.instance_id, "cycles": np.median(times, axis=0), "first": first}
    instances = simulated(trace, output / "runs" / f"{name}-{CACHES[0]}-1", 1, CACHES[0])
    both = instances.drop(columns="cycles").merge(pd.DataFrame(own), on="task_instance_id", validate="one_to_one")
    both = both.assign(first_cache_misses=np.nan, last_cache_misses=np.nan).sort_values("first", kind="stable")
    columns = {
        "task_type": both["task_type"],
        "instructions": both["instructions"],
        "ps": both["cycles"].astype(np.int64),
    }
    pd.DataFrame(columns).to_csv(output / "native" / f"{name}.csv.xz", index=False)
    return both


# ---- errors ----


def rows_of(table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Of all types together, and of each that has at least a hundredth of the cycles, if there are several: what there
    is and the errors."""
    code, names = pd.factorize(table["task_type"], sort=True)
    by_chance = chance(table, code)
    instances = Instances(code, table["instructions"].to_numpy(), table["cycles"].to_numpy())
    found: dict[int, dict[str, ErrorRow]] = {}
    for predictor, predict in PREDICTORS.items():
        for row in error_rows(predictor, instances, predict(instances)):
            found.setdefault(row.task_type, {})[predictor] = row
    total = table["cycles"].sum()
    for kind, of in sorted(found.items()):
        mine = table if kind < 0 else table[code == kind]
        if kind < 0 or (len(names) > 1 and mine["cycles"].sum() >= total / 100):
            spread = np.sqrt(np.sum(by_chance**2) if kind < 0 else by_chance[kind] ** 2) / mine["cycles"].sum()
            name = "all" if kind < 0 else str(names[kind]).rsplit("/", 1)[-1]
            yield _row(name, mine, mine["cycles"].sum() / total, of) | {"clusters_chance": round(float(spread), 4)}


def chance(table: pd.DataFrame, code: np.ndarray) -> np.ndarray:
    """float64[types], cycles: standard deviation of what clusters predict of a type, had another instance of about the
    same size stood for each of them (within a tenth of the centre's instructions, at its cycles per instruction): what
    one representative leaves to chance."""
    result = np.zeros(code.max() + 1)
    for kind in range(len(result)):
        mine = table[code == kind]
        label, centres = _clusters(mine["instructions"].to_numpy(), None)
        for cluster, centre in enumerate(centres):
            alike = mine[(label == cluster) & (np.abs(mine["instructions"] - centre) <= 0.1 * centre)]
            if centre > 0 and len(alike):
                spread = (alike["cycles"] / alike["instructions"]).std(ddof=0) * centre
                result[kind] += (spread * np.count_nonzero(label == cluster)) ** 2
    return np.sqrt(result)


def _row(name: str, mine: pd.DataFrame, share: float, errors: Mapping[str, ErrorRow]) -> dict[str, Any]:
    counts, cycles = mine["instructions"], mine["cycles"]
    ipc = (counts / cycles)[(counts > 0) & (cycles > 0)]
    misses = (1000 * mine[f"{which}_cache_misses"].sum(min_count=1) / counts.sum() for which in ("first", "last"))
    first, last = ("" if np.isnan(each) else round(each, 3) for each in misses)
    return {
        "task_type": name,
        "instances": len(mine),
        "least_instructions": counts.min(),
        "mean_instructions": round(counts.mean()),
        "most_instructions": counts.max(),
        "share_of_cycles": round(share, 4),
        "ipc_spread": round(ipc.std() / ipc.mean(), 4),
        "first_cache_mpki": first,
        "last_cache_mpki": last,
        **{f"{each.replace(' ', '_')}_error": f"{row.error:.4f}" for each, row in errors.items()},
        **{f"{each}_measured": errors[each].num_measured for each in ("interpolation", "clusters")},
    }


def _write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    sys.exit(main())
