"""Traces as Kineto writes them, made by hand: calls of a thread with what they give the GPU. Times are us."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from manyscale.models.workload import Workload

MAIN, BACKWARD = 70, 71  # threads
ONE_STEP = "one-step-assumed"


class Recorded:
    """A rank's trace. Calls begin at ``at`` and take ``took``; what they give begins at ``begin`` and takes
    ``lasted`` on ``stream``."""

    def __init__(self, rank: int = 0, world: int = 1, **more: Any) -> None:
        self.head: dict[str, Any] = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "Tesla V100-SXM2-32GB"}],
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world},
            **more,
        }
        self.events: list[dict[str, Any]] = []
        self.correlation = 0

    def add(self, cat: str, name: str, at: float, took: float, thread: Any, **args: Any) -> int:
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": thread, "ts": at, "dur": took, "args": args}
        )
        return len(self.events) - 1

    def call(self, name: str, at: float, took: float, thread: int = MAIN) -> int:
        """Its correlation."""
        self.correlation += 1
        self.add("cuda_runtime", name, at, took, thread, correlation=self.correlation)
        return self.correlation

    def work(
        self,
        correlation: int,
        begin: float,
        lasted: float,
        stream: int = 7,
        name: str = "sgemm",
        cat: str = "kernel",
        **args: Any,
    ) -> None:
        self.add(cat, name, begin, lasted, stream, correlation=correlation, stream=stream, device=0, **args)

    def launch(
        self,
        at: float,
        begin: float,
        lasted: float,
        stream: int = 7,
        name: str = "sgemm",
        thread: int = MAIN,
        **args: Any,
    ) -> None:
        self.work(self.call("cudaLaunchKernel", at, 5, thread), begin, lasted, stream, name, **args)

    def operator(self, name: str, at: float, took: float, thread: int = MAIN, **args: Any) -> None:
        self.add("cpu_op", name, at, took, thread, **args)

    def step(self, number: int, at: float, took: float) -> None:
        self.add("user_annotation", f"ProfilerStep#{number}", at, took, MAIN)

    def write(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**self.head, "traceEvents": self.events}))
        return path


def told(name: str, elements: int, group: str = "0", members: str = "[0, 1]", **more: Any) -> dict[str, Any]:
    """What PyTorch 2.2 and later says of a collective of floats at its kernel."""
    return {
        "Collective name": name, "In msg nelems": elements, "Out msg nelems": elements, "Group size": 2,
        "dtype": "Float", "In split size": "[]", "Out split size": "[]", "Process Group Name": group,
        "Process Group Description": "default_pg", "Process Group Ranks": members, **more,
    }  # fmt: skip


def two_ranks(folder: Path) -> Path:
    """Two ranks of one step: two kernels and an all-reduce, for which the first rank waits for 40 us."""
    for rank, late in enumerate((0, 40)):
        made = Recorded(rank, 2)
        made.step(3, 0, 300)
        made.launch(10 + late, 17 + late, 20)
        made.launch(40 + late, 47 + late, 30)
        collective = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"
        made.launch(60 + late, 80 + late, 90 - late, 20, collective, **told("allreduce", 1000))
        made.work(made.call("cudaMemcpyAsync", 90 + late, 100 - late), 180, 2, 7, "Memcpy DtoH (Device -> Pageable)",
                  "gpu_memcpy", bytes=4)  # fmt: skip
        made.write(folder / f"rank{rank}.pt.trace.json")
    return folder


def gpu_rows(workload: Workload, *kinds: int) -> list[dict[str, int]]:
    rows = workload.tables["gpu_operations"].to_pylist()
    return [each for each in rows if not kinds or each["kind"] in kinds]


def gaps(workload: Workload, rank: int = 0) -> dict[int, float]:
    """Compute before operations of a rank, us; operations are counted without the begin of a step that the trace does
    not mark."""
    begins = [each["first_operation_id"] for each in workload.tables["steps"].to_pylist() if each["rank"] == rank]
    first = begins[0] if ONE_STEP in [note.code for note in workload.notes] else 1 << 62
    found: dict[int, float] = {}
    for each in workload.tables["phases"].to_pylist():
        if each["rank"] == rank and each["kind"] == 0:
            at = each["operation_id"] - (each["operation_id"] > first)
            found[at] = found.get(at, 0) + each["duration_ps"] / 1_000_000
    return found


def codes(workload: Workload) -> list[str]:
    """Of notes, but for that of a trace that marks no steps, as most here do."""
    return [note.code for note in workload.notes if note.code != ONE_STEP]


def host_trace(path: Path, *records: tuple[str, int, int, list[int], list[int]], place: int = 0) -> None:
    """Schema 1.0.1: (name, elements sent, received, parts sent, received) of floats; and a wait. ``place``: of the
    rank, or of a partner or root."""
    nodes = [{"name": "record_param_comms", "id": 1, "rf_id": 99, "inputs": [0, 0, 0, "wait", [], []], "outputs": []}]
    for at, (name, sent, received, parts, theirs) in enumerate(records):
        inputs = [[1, 2, 0, sent, 4, "cuda:0"], at, 94594108284448, place, name, parts, theirs]
        outputs = [[3, 4, 0, received, 4, "cuda:0"]]
        nodes.append({"name": "record_param_comms", "id": 2 + at, "rf_id": at, "inputs": inputs, "outputs": outputs})
    path.write_text(json.dumps({"schema": "1.0.1", "pid": 7, "nodes": nodes}))
