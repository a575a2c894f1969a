"""MPI programs whose ranks use GPUs: both tracers at once, and what the run makes of it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tracer_programs import MPI, PROGRAMS, Mpi, need

from manyscale.models.workload import OperationKind, Workload
from manyscale.models.workload.columns import to_arrow
from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.runner.api import studies
from manyscale.runner.readers import workload_folder
from manyscale.runner.run.results import Result
from manyscale.runner.tracers.cuda.library import nccl_library

RANKS = 3
BYTES = 10_000 * 8  # what each rank sends
G, K = GpuOperationKind, OperationKind


def words_of(mpi: Mpi) -> list[str]:
    """What a compiler that is not MPI's needs for its programs."""
    shown = subprocess.run([mpi.compiler, "-show"], capture_output=True, text=True, check=True).stdout
    return re.findall(r"(?<!\S)-[ILl]\S+", shown)


@pytest.mark.slow
def test_a_ring_of_ranks_with_gpus(mpi, nvcc, traced, run_on_nodes):
    """The program's own check passes, and its trace and its run are those of its source."""
    program = nvcc(f"ring-{mpi.name}", (PROGRAMS / "cuda_ring.cu").read_text(), "-arch=sm_86", *words_of(mpi))
    made = traced([*mpi.start(RANKS), program], "--level", "gpu", "--mpi", mpi.name)
    assert made.status == 0, made.err
    assert f"PASSED {RANKS * (RANKS + 1) // 2}" in made.out
    ring = workload_folder.read(made.folder)
    launches_stand_between_the_mpi_calls(ring)
    what_the_interpreter_takes_is_not_the_hosts(ring)
    the_time_is_that_of_launches_and_messages(run_on_nodes(without_hosts(ring)))


def launches_stand_between_the_mpi_calls(ring: Workload) -> None:
    """As the program's source has them, in each rank."""
    step = [G.launch, G.synchronize_device, G.device_buffer]
    expected = [None, G.set, *step * RANKS, G.copy_to_host, None, None, None]  # init; allreduce, finalize, the end
    calls = [K.init, K.other, *[K.other, K.other, K.sendrecv] * RANKS, K.other, K.allreduce, K.finalize, K.other]
    assert ring.num_ranks == RANKS
    rank, operation, kind, launch, size = (
        ring.column("gpu_operations", name) for name in ("rank", "operation_id", "kind", "launch_id", "bytes")
    )
    for each in range(RANKS):
        first, last = ring.rank_offsets[each : each + 2]
        assert ring.column("operations", "kind")[first:last].tolist() == calls
        mine = rank == each
        assert list(zip(operation[mine].tolist(), kind[mine].tolist(), strict=True)) == [
            (at, wanted) for at, wanted in enumerate(expected) if wanted is not None
        ]
        assert launch[mine & (kind == G.launch)].tolist() == [each * RANKS + 1 + step for step in range(RANKS)]
        assert size[mine & (kind == G.copy_to_host)].tolist() == [4 * 8]
        assert size[mine & (kind == G.set)].tolist() == [BYTES]
    assert ring.column("operations", "bytes")[ring.column("operations", "kind") == K.sendrecv].tolist() == [BYTES] * 9
    aware = [note for note in ring.notes if note.code == "gpu-aware-mpi"]
    assert [note.count for note in aware] == [RANKS * RANKS]  # the exchanges, and not the sum of the hosts' counts


def what_the_interpreter_takes_is_not_the_hosts(ring: Workload) -> None:
    """The interpreter takes a millisecond for 40 blocks; between two calls of the loop the host does nothing."""
    operation, duration = (ring.column("phases", name) for name in ("operation_id", "duration_ps"))
    of_loop = (operation >= 3) & (operation < 2 + 3 * RANKS)
    assert of_loop.sum() >= RANKS * (RANKS - 1)
    assert np.median(duration[of_loop]) < 50_000_000


def without_hosts(workload: Workload) -> Workload:
    phases = workload.tables["phases"]
    place = phases.schema.get_field_index("duration_ps")
    nothing = to_arrow(np.zeros(phases.num_rows, np.int64))
    tables = {**workload.tables, "phases": phases.set_column(place, phases.schema.field(place), nothing)}
    return replace(workload, tables=tables)


@pytest.fixture
def run_on_nodes(monkeypatch, tmp_path) -> Callable[[Workload], Result]:
    """A rank on each node, a network of 1 us and 1 GB/s."""

    def run(workload: Workload) -> Result:
        monkeypatch.setattr("manyscale.runner.run.study_runs.read_workload", lambda choice, cache=None: workload)
        network = {"latency": "1 us", "bandwidth": "1 GB/s", "eager_threshold": "1 MiB"}
        target = {"name": "rtx3070", "nodes": RANKS, "network": network}
        study = {"schema": 1, "workload": {"path": "ring"}, "target": target, "mapping": {"ranks_per_node": 1}}
        return studies.run(study, tmp_path / "out", executor="local", cache=tmp_path / "cache", report=False)

    return run


def the_time_is_that_of_launches_and_messages(result: Result) -> None:
    """In each step all ranks launch and exchange at once: the slowest launch, and a message."""
    assert result.launches is not None
    launches = result.launches.to_pylist()
    assert [row["rank"] for row in launches] == np.repeat(np.arange(RANKS), RANKS).tolist()
    took = np.array([row["end_ps"] - row["start_ps"] for row in launches]).reshape(RANKS, RANKS)
    assert (took > 5000 * 883).all()  # launch latency at 1132 MHz
    # the same code on memory at the same addresses, on GPUs of their own
    assert (took == took[0]).all()
    message = 1_000_000 + BYTES * 1000
    setting = round(BYTES / 448.064e9 * 1e12)  # DRAM writes what cudaMemset sets
    end = [row["end_ps"] for row in launches if row["launch_id"] % RANKS == 0]
    assert end == [setting + took[0].sum() + (RANKS - 1) * message] * RANKS
    makespan = round(result.statistics["application.makespan"].value * 1e12)
    copied = 8_000_000 + round(4 * 8 / 12e9 * 1e12)  # to pageable memory, for which the host waits
    assert makespan > end[0] + message + copied


@pytest.mark.slow
def test_collectives_of_nccl(nvcc, kit, traced, tracer_cache):
    """The program's own checks pass: every type and operation, groups, a graph, and half the ranks; its trace has what
    its source calls."""
    need("mpicc.mpich", "mpiexec.mpich")
    mpi = Mpi("mpich", *MPI["mpich"])
    link = [f"-L{nccl_library(kit, tracer_cache).parent}", "-lnccl"]
    program = nvcc("nccl", (PROGRAMS / "cuda_nccl.cu").read_text(), "-arch=sm_86", *words_of(mpi), *link)
    made = traced([*mpi.start(RANKS), program], "--level", "gpu", "--mpi", mpi.name)
    assert made.status == 0, made.err
    assert "PASSED" in made.out
    workload = workload_folder.read(made.folder)
    assert workload.tables["communicators"].column("members").to_pylist() == [[0, 1, 2], [0, 1, 2], [2, 0], [1]]
    first = int(workload.rank_offsets[1])
    kind, peer, communicator, size = (
        workload.column("operations", name)[:first] for name in ("kind", "peer", "communicator_id", "bytes")
    )
    # 6 types of whole numbers have 4 reductions, 4 others have 5; each type has a reduce and a reduce_scatter
    of_all = communicator == 1
    counts = {
        each.name: int(np.count_nonzero(of_all & (kind == each))) for each in (K.allreduce, K.reduce, K.allgather)
    }
    assert counts == {"allreduce": 6 * 4 + 4 * 5 + 1, "reduce": 10, "allgather": 1}
    assert sorted(size[of_all & (kind == K.reduce_scatter)].tolist()) == [1, 1, 2, 2, 4, 4, 4, 8, 8, 8]  # an element
    assert peer[of_all & (kind == K.reduce)].tolist() == [RANKS - 1] * 10
    ring = np.flatnonzero(np.isin(kind, (K.isend, K.irecv, K.waitall)))
    assert kind[ring].tolist() == [K.isend, K.irecv, K.waitall] * 3
    assert peer[ring].tolist() == [1, 2, -2] * 3
    assert size[ring].tolist() == [4000, 0, 0] * 3
    # 45 + 10 + 10 + 1 of these, a broadcast, the ring's 6, and the sum of half the ranks
    assert np.count_nonzero(workload.column("gpu_operations", "kind") == G.communication) == RANKS * 74


@pytest.mark.slow
def test_nccl_between_gpus_of_a_process(nvcc, kit, traced, tracer_cache):
    """The program's own checks pass; what its GPUs say to each other takes no time, and a note says so."""
    link = [f"-L{nccl_library(kit, tracer_cache).parent}", "-lnccl"]
    program = nvcc("nccl-process", (PROGRAMS / "cuda_nccl_process.cu").read_text(), "-arch=sm_86", *link)
    made = traced([program], "--level", "gpu", "--gpus", "3")
    assert made.status == 0, made.err
    assert "3 GPUs: PASSED" in made.out
    workload = workload_folder.read(made.folder)
    assert workload.num_ranks == 1
    assert [note.count for note in workload.notes if note.code == "nccl-in-process"] == [3, 3, 3]
