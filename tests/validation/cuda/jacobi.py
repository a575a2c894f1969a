"""NVIDIA's multi-GPU Jacobi solvers in five styles of communication, traced and run on machines without a GPU.

    python tests/validation/cuda/jacobi.py SOURCES [--only STYLE] [--nccl FOLDER] [--scratch FOLDER]

SOURCES is a folder that holds a checkout of NVIDIA's multi-gpu-programming-models under this name; if it is not there,
it is cloned. The commit stands below. FOLDER of NCCL has ``include/nccl.h`` and ``lib/libnccl.so.2``, as the packages
nvidia-nccl-cu12 and nvidia-nccl-cu13 have them; by default it is looked for among this Python's packages.

Each program compares its result with that of one GPU, which it computes as well. Each trace is run on rtx3070, a rank
to a node, with host phases that take next to nothing, and the predicted time is compared with ``by_hand``: a recurrence
over the calls of the trace, of streams whose launches take as long as the run has them, copies, events and waits,
messages of latency and size over bandwidth, and collectives of as many rounds of messages as the base-2 logarithm of
their ranks. Its section of ``RESULTS-RANKS.md`` is
written; traces and runs that the scratch folder holds are not made again.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from tracing import MANYSCALE, called, checkout, first_error, nvcc, write_section

from manyscale.models.workload import COLLECTIVES, OperationKind, Workload
from manyscale.models.workload.gpu_tables import GpuFlag, GpuOperationKind
from manyscale.runner.readers import workload_folder

URL = "https://github.com/NVIDIA/multi-gpu-programming-models"
CHECKOUT = "multi-gpu-programming-models"
COMMIT = "9a600f5ea8f5e53614e30b7b36e9136107178dd8"
STYLES = ("mpi", "mpi_overlap", "nccl", "nccl_overlap", "nccl_graphs")
CASES = (("mpich", 1), ("mpich", 2), ("mpich", 4), ("openmpi", 2))
START = {
    "mpich": ["mpiexec.mpich", "-n"],
    "openmpi": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n"],
}
# an even number: nccl_graphs compares the buffer that odd ones do not write last
ARGUMENTS = ["-nx", "128", "-ny", "128", "-niter", "6"]
WORDS = [
    "-arch=sm_86",
    "-std=c++17",
    "-DHAVE_CUB",
    "-DSKIP_CUDA_AWARENESS_CHECK",
    "-DOMPI_SKIP_MPICXX",
    "-DMPICH_SKIP_MPICXX",
]
LATENCY, PER_BYTE = 1_000_000, 1000  # ps: 1 us, 1 GB/s
NETWORK = ("latency=1 us", "bandwidth=1 GB/s", "eager_threshold=1 GiB", "self={latency: 1 us, bandwidth: 1 GB/s}")
_K, _G = OperationKind, GpuOperationKind
# Of copies and sets of rtx3070: latency, ps a byte, and that of pageable memory.
COPY_PS = {
    _G.copy_to_device: (8e6, 1e12 / 25e9, 1e12 / 12e9),
    _G.copy_to_host: (8e6, 1e12 / 25e9, 1e12 / 12e9),
    _G.copy_on_device: (0.0, 2e12 / 448.064e9, 2e12 / 448.064e9),
    _G.set: (0.0, 1e12 / 448.064e9, 1e12 / 448.064e9),
}


@dataclass(frozen=True)
class Ran:
    """``problem``: why it is not right, or None; times in seconds."""

    style: str
    library: str
    ranks: int
    problem: str | None
    launches: int = 0
    on_device: int = 0  # MPI calls on memory of GPUs
    of_nccl: int = 0
    time: float = 0.0
    by_hand: float = 0.0


def built(style: str, library: str, sources: Path, nccl: Path, scratch: Path) -> Path:
    """The program. Raises RuntimeError."""
    program = scratch / f"{style}-{library}"
    compiler, linked = nvcc()
    _, shown, _ = called([f"mpicc.{library}", "-show"], scratch)
    of_mpi = re.findall(r"(?<!\S)-[ILl]\S+", shown)
    files = [str(sources / style / name) for name in ("jacobi.cpp", "jacobi_kernels.cu")]
    of_nccl = [f"-I{nccl / 'include'}", f"-L{nccl / 'lib'}", "-l:libnccl.so.2"] if style.startswith("nccl") else []
    status, _, told = called([compiler, *WORDS, *files, "-o", str(program), *of_nccl, *of_mpi, *linked], scratch)
    if status:
        raise RuntimeError(first_error(told))
    return program


def ran(style: str, library: str, ranks: int, program: Path, scratch: Path) -> Ran:
    trace, out = scratch / f"trace-{style}-{library}-{ranks}", scratch / f"run-{style}-{library}-{ranks}"
    command = [*START[library], str(ranks), str(program), *ARGUMENTS]
    words = ["trace", "--level", "gpu", "--as", "rtx3070", "--mpi", library, "-o", str(trace), "--", *command]
    status, _, told = called([*MANYSCALE, *words], scratch) if not trace.exists() else (0, "", "")
    if status:
        said = [line for line in told.splitlines() if not line.startswith("manyscale: tracing")]
        return Ran(style, library, ranks, first_error("\n".join(said)))
    target = [word for key in NETWORK for word in ("--set", f"target.network.{key}")]
    words = ["run", "--workload", str(trace), "--target", "rtx3070", "--set", f"target.nodes={ranks}", *target,
             "--set", "mapping.ranks_per_node=1", "--set", "cpu_ratio=1e-9", "--no-report", "-o", str(out)]  # fmt: skip
    status, _, told = called([*MANYSCALE, *words], scratch) if not out.exists() else (0, "", "")
    if status:
        return Ran(style, library, ranks, first_error(told))
    workload = workload_folder.read(trace)
    launches = pq.read_table(out / "timeline" / "launches.parquet")
    times = dict(
        zip(
            launches.column("launch_id").to_pylist(),
            zip(*(launches.column(name).to_pylist() for name in ("start_ps", "end_ps")), strict=True),
            strict=True,
        )
    )
    return Ran(
        style,
        library,
        ranks,
        None,
        len(times),
        sum(note.count for note in workload.notes if note.code == "gpu-aware-mpi"),
        int(np.count_nonzero(workload.column("gpu_operations", "kind") == GpuOperationKind.communication)),
        float(json.loads((out / "stats.json").read_text())["application.makespan"]["value"]),
        by_hand(workload, times) * 1e-12,
    )


class _Rank:
    """Where a rank is in its calls, and when."""

    def __init__(self) -> None:
        self.at = 0
        self.time = 0.0
        self.requests: dict[
            int, tuple[int, int, int, int] | float
        ] = {}  # a message that is waited for, or when it is sent
        self.half: tuple[int, int, int, int] | None = None  # of a sendrecv whose own half is sent
        self.streams: dict[int, float] = {}  # when each has done all that it was given
        self.blocking: set[int] = set()  # streams that the default one waits for
        self.events: dict[int, float] = {}
        self.engines: dict[int, float] = {}  # of copies, by kind: when each is free

    def begin(self, row: dict[str, int]) -> float:
        """When a stream can begin what it is given now."""
        stream, is_blocking = row["stream"], not row["flags"] & GpuFlag.non_blocking
        begins = max(self.time, self.streams.get(stream, 0.0))
        if stream == 0:
            return max([begins, *(self.streams[each] for each in self.blocking)])
        if is_blocking:
            self.blocking.add(stream)
            begins = max(begins, self.streams.get(0, 0.0))
        return begins

    def given(self, row: dict[str, int], launch: tuple[int, int] | None) -> None:
        """What a rank gives a stream, but for communications, or where it waits for one. ``launch``: begin and end, as
        the run has them, of which the time between is taken."""
        kind, stream = row["kind"], row["stream"]
        if kind == _G.synchronize_device:
            self.time = max([self.time, *self.streams.values()])
        elif kind == _G.synchronize_stream:
            self.time = max(self.time, self.streams.get(stream, 0.0))
        elif kind == _G.synchronize_event:
            self.time = max(self.time, self.events.get(row["event"], 0.0))
        elif kind == _G.device_buffer:
            return
        else:
            at = self.begin(row)
            if kind == _G.wait_event:
                at = max(at, self.events.get(row["event"], 0.0))
            if kind == _G.launch and launch is not None:
                at += launch[1] - launch[0]
            elif kind in COPY_PS:
                latency, per_byte, pageable = COPY_PS[kind]
                at = max(at, self.engines.get(kind, 0.0)) + latency
                at += row["bytes"] * (pageable if row["flags"] & GpuFlag.pageable else per_byte)
                self.engines[kind] = at
            self.streams[stream] = at
            if kind == _G.record_event:
                self.events[row["event"]] = at
            if row["flags"] & GpuFlag.waits:
                self.time = max(self.time, at)


def by_hand(workload: Workload, launched_ps: dict[int, tuple[int, int]]) -> float:
    """When the last rank ends, ps. Raises RuntimeError where ranks wait for ever."""
    rows = workload.tables["operations"].to_pylist()
    first = workload.rank_offsets.tolist()
    kinds = workload.column("operations", "kind").tolist()
    members = workload.tables["communicators"].column("members").to_pylist()
    of_gpu = {first[row["rank"]] + row["operation_id"]: row for row in workload.tables["gpu_operations"].to_pylist()}
    ranks = [_Rank() for _ in range(workload.num_ranks)]
    arrived: dict[tuple[int, int, int, int], list[float]] = defaultdict(list)  # by communicator, from, to, tag
    met: dict[tuple[int, int], dict[int, float]] = defaultdict(dict)
    calls: dict[tuple[int, int], int] = defaultdict(int)

    def sent(rank: int, row: dict[str, int], at: float) -> None:
        came = at + row["bytes"] * PER_BYTE + LATENCY  # messages do not wait for each other
        arrived[(row["communicator_id"], rank, row["peer"], row["tag"])].append(came)

    def step(rank: int) -> bool:
        """Whether the rank's next call could be done: the host's, or, of NCCL's, that of its stream."""
        me, row, index = ranks[rank], rows[first[rank] + ranks[rank].at], first[rank] + ranks[rank].at
        kind, communicator = kinds[index], row["communicator_id"]
        stream = of_gpu.get(index)
        of_stream = stream is not None and stream["kind"] == _G.communication
        ends_group = kind == _K.waitall and index - 1 in of_gpu and of_gpu[index - 1]["kind"] == _G.communication
        if ends_group:
            stream = of_gpu[index - 1]
        now = me.begin(stream) if stream is not None and (of_stream or ends_group) else me.time
        ends = now
        if kind == _K.sendrecv and row["peer"] == row["source"] == rank:
            pass  # free, as in the models
        elif kind == _K.sendrecv:
            if me.half is None:
                sent(rank, row, now)
                me.half = (communicator, row["source"], rank, row["tag"])
            if not arrived[me.half]:
                return False
            ends, me.half = max(now, arrived[me.half].pop(0)), None
        elif kind == _K.isend:
            sent(rank, row, now)
            me.requests[row["request"]] = now
        elif kind == _K.irecv:
            me.requests[row["request"]] = (communicator, row["peer"], rank, row["tag"])
        elif kind in (_K.wait, _K.waitall):
            for request in row["completes"]:
                of = me.requests[request]
                if isinstance(of, tuple):
                    if not arrived[of]:
                        return False
                    me.requests[request] = arrived[of].pop(0)
            ends = max([now, *(float(me.requests.pop(each)) for each in row["completes"])])  # type: ignore[arg-type]
        elif kind in COLLECTIVES:
            key = (communicator, calls[communicator, rank])
            met[key].setdefault(rank, now)
            if len(met[key]) < len(members[communicator]):
                return False
            rounds = math.ceil(math.log2(len(members[communicator])))
            ends = max(met[key].values()) + rounds * (LATENCY + row["bytes"] * PER_BYTE)
            calls[communicator, rank] += 1
        elif stream is not None:
            me.given(stream, launched_ps.get(stream["launch_id"]))
            ends = me.time
        elif kind not in (_K.other, _K.init, _K.finalize, _K.test):
            raise RuntimeError(f"{_K(kind).name} is not done by hand")
        if stream is not None and (of_stream or ends_group):
            me.streams[stream["stream"]] = ends
        else:
            me.time = ends
        me.at += 1
        return True

    def moves(rank: int) -> bool:
        return ranks[rank].at < first[rank + 1] - first[rank] and step(rank)

    while sum(moves(rank) for rank in range(len(ranks))):
        pass
    if any(me.at < first[rank + 1] - first[rank] for rank, me in enumerate(ranks)):
        raise RuntimeError("ranks wait for ever")
    return max(max([me.time, *me.streams.values()]) for me in ranks)


def write_report(results: list[Ran]) -> None:
    lines = [
        f"Written by `jacobi.py` from {URL}",
        f"at {COMMIT[:12]}: `{' '.join(ARGUMENTS)}`. *Right* is the program's own comparison with the result of one",
        "GPU. *Time* is that of `manyscale run` on rtx3070, a rank to a node, with a network of 1 us and 1 GB/s, and",
        "hosts that take next to nothing; *by hand* goes along the calls with streams, launches, copies, waits and "
        "messages (`by_hand`).",
        "",
        "| style | MPI | ranks | right | launches | MPI on GPU memory | NCCL calls | time | by hand | difference |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for each in results:
        if each.problem:
            lines.append(f"| {each.style} | {each.library} | {each.ranks} | no: {each.problem} | | | | | | |")
            continue
        counts = f"{each.launches} | {each.on_device or ''} | {each.of_nccl or ''}"
        times = (
            f"{each.time * 1e6:.1f} us | {each.by_hand * 1e6:.1f} us | {100 * (each.time / each.by_hand - 1):+.1f} %"
        )
        lines.append(f"| {each.style} | {each.library} | {each.ranks} | yes | {counts} | {times} |")
    write_section("RESULTS-RANKS.md", "NVIDIA's multi-GPU Jacobi without a GPU", "\n".join(lines) + "\n")


def found_nccl() -> Path | None:
    places = [Path(each) / "nvidia" / "nccl" for each in sys.path]
    return next((each for each in places if (each / "include" / "nccl.h").is_file()), None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path)
    parser.add_argument("--only", choices=STYLES)
    parser.add_argument("--nccl", type=Path, default=found_nccl())
    parser.add_argument("--scratch", type=Path)
    options = parser.parse_args()
    scratch = (options.scratch or Path(tempfile.mkdtemp(prefix="jacobi-"))).resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    repository = checkout(options.sources, CHECKOUT, URL)
    sources = scratch / "sources"
    sources.mkdir(exist_ok=True)
    status, _, told = called(["sh", "-c", f"git -C '{repository}' archive {COMMIT} | tar x -C '{sources}'"], scratch)
    if status:
        sys.exit(told)
    if options.nccl is None:
        sys.exit("nccl.h is not found; pip install nvidia-nccl-cu13, or name its folder with --nccl")
    results = []
    for style in STYLES if options.only is None else (options.only,):
        for library, ranks in CASES:
            try:
                program = scratch / f"{style}-{library}"
                if not program.exists():
                    program = built(style, library, sources, options.nccl.resolve(), scratch)
                results.append(ran(style, library, ranks, program, scratch))
            except RuntimeError as error:
                results.append(Ran(style, library, ranks, str(error)))
            print(results[-1], flush=True)
    if options.only is None:
        write_report(results)
    return int(any(each.problem for each in results))


if __name__ == "__main__":
    sys.exit(main())
