"""Steps of ranks that drive GPUs, written by hand: threads, streams, kernels and collectives with their times, as the
readers of frameworks' traces make them (models/workload/gpu_step_tables.py).

Operations stand in the order in which they are added, which is the order of their times; ``gap`` (ps) is what their
thread computes before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from manyscale.models.workload import NO_RANK, SCHEMAS, OperationKind, PhaseKind, Workload
from manyscale.models.workload.gpu_step_tables import KernelClass
from manyscale.models.workload.gpu_tables import GpuFlag, GpuOperationKind

G: Final = GpuOperationKind
US: Final = 1_000_000
V100: Final = "Tesla V100-SXM2-32GB"


class Steps:
    """Of ``num_ranks`` ranks, each with a GPU called ``gpu_name``. ``groups``: members of process groups by name."""

    def __init__(
        self, num_ranks: int = 1, groups: Mapping[str, Sequence[int]] | None = None, gpu_name: str = V100
    ) -> None:
        self.num_ranks, self.gpu_name = num_ranks, gpu_name
        self.groups = dict(groups or {})
        self.operations: list[list[dict[str, Any]]] = [[] for _ in range(num_ranks)]
        self.gpu_operations: list[list[dict[str, Any]]] = [[] for _ in range(num_ranks)]
        self.phases: list[list[dict[str, Any]]] = [[] for _ in range(num_ranks)]
        self.steps: list[dict[str, int]] = []
        self.kernels: dict[tuple[Any, ...], int] = {}

    # What a thread of a rank does

    def launch(
        self, rank: int, takes: int, stream: int = 20, *, name: str = "kernel", of: KernelClass = KernelClass.other,
        precision: str = "fp32", flops: float = float("nan"), moves: float = float("nan"),
        shape: tuple[int, int] = (0, 0), **more: Any,
    ) -> int:  # fmt: skip
        """``moves``: bytes of DRAM; ``shape``: blocks, threads of each."""
        kernel = self.kernels.setdefault((name, int(of), precision, flops, moves, *shape), len(self.kernels))
        return self.give(rank, G.launch, stream, kernel_id=kernel, duration_ps=takes, **more)

    def copy(self, rank: int, kind: GpuOperationKind, size: int, stream: int = 20, *, takes: int = -1,
             waits: bool = False, **more: Any) -> int:  # fmt: skip
        return self.give(rank, kind, stream, bytes=size, duration_ps=takes, flags=int(GpuFlag.waits) * waits, **more)

    def record(self, rank: int, event: int, stream: int = 20, **more: Any) -> int:
        return self.give(rank, G.record_event, stream, event=event, **more)

    def wait(self, rank: int, event: int, stream: int = 20, **more: Any) -> int:
        return self.give(rank, G.wait_event, stream, event=event, **more)

    def synchronize(self, rank: int, stream: int | None = None, *, event: int = 0, **more: Any) -> int:
        """With a stream, an event, or all."""
        if event:
            return self.give(rank, G.synchronize_event, event=event, **more)
        kind = G.synchronize_device if stream is None else G.synchronize_stream
        return self.give(rank, kind, stream or 0, **more)

    def signal(self, rank: int, event: int, thread: int, **more: Any) -> int:
        return self.give(rank, G.signal_thread, event=event, thread=thread, **more)

    def wait_for_thread(self, rank: int, event: int, thread: int, **more: Any) -> int:
        return self.give(rank, G.await_thread, event=event, thread=thread, **more)

    def collective(
        self, rank: int, kind: OperationKind, size: int, group: str, takes: int = -1, stream: int = 84, **more: Any
    ) -> int:
        """``size`` as OPERATIONS_SCHEMA has ``bytes``."""
        of = {"kind": kind, "bytes": size, "receive_bytes": size, "communicator_id": 1 + list(self.groups).index(group)}
        return self.give(rank, G.communication, stream, duration_ps=takes, of_network=of, **more)

    def send(self, rank: int, peer: int, size: int, *, receives: bool = False, stream: int = 84, request: int = 0,
             group: str | None = None, **more: Any) -> int:  # fmt: skip
        """NCCL's send, or receive, whose group ``group_end`` ends."""
        kind = OperationKind.irecv if receives else OperationKind.isend
        of = {"kind": kind, "peer": peer, "bytes": 0 if receives else size, "receive_bytes": size if receives else 0}
        of |= {"tag": 0, "request": request}
        if group is not None:
            of["communicator_id"] = 1 + list(self.groups).index(group)
        return self.give(rank, G.communication, stream, of_network=of, **more)

    def group_end(self, rank: int, requests: Sequence[int]) -> int:
        return self._row(rank, {"kind": OperationKind.waitall, "completes": list(requests)}, 0)

    def mark(self, rank: int, gap: int = 0) -> int:
        """A row that does nothing: the border of a step."""
        return self._row(rank, {}, gap)

    def call(self, rank: int, what: Mapping[str, Any], gap: int = 0) -> int:
        """A call of MPI: columns of OPERATIONS_SCHEMA, ``kind`` an OperationKind."""
        return self._row(rank, what, gap)

    def step(self, rank: int, number: int, first: int, last: int) -> None:
        """``first`` and ``last``: rows of ``mark``."""
        self.steps.append({"rank": rank, "step": number, "first_operation_id": first, "last_operation_id": last})

    def sleep(self, rank: int, gap: int) -> int:
        """The time at which a rank enters."""
        row = self._row(rank, {}, 0)
        self.phases[rank].append(self._phase(rank, row, gap, PhaseKind.sleep))
        return row

    def give(
        self, rank: int, kind: GpuOperationKind, stream: int = 0, *, gap: int = 0,
        of_network: Mapping[str, Any] | None = None, flags: int = 0, **more: int,
    ) -> int:  # fmt: skip
        """Any operation: columns of GPU_OPERATIONS_SCHEMA. Streams but 0 do not wait for the default one."""
        row = self._row(rank, of_network or {}, gap)
        flags |= int(GpuFlag.default_stream) if stream == 0 else int(GpuFlag.non_blocking)
        default = {"stream": stream, "launch_id": 0, "bytes": 0, "event": 0, "device": 0, "peer": -1, "priority": 0,
                   "thread": 0, "kernel_id": -1, "duration_ps": -1}  # fmt: skip
        self.gpu_operations[rank].append(
            {**default, "rank": rank, "operation_id": row, "kind": int(kind), "flags": flags, **more}
        )
        return row

    def _row(self, rank: int, what: Mapping[str, Any], gap: int) -> int:
        default = {"peer": NO_RANK, "source": NO_RANK, "tag": -1, "bytes": 0, "receive_bytes": 0, "communicator_id": 0,
                   "request": -1, "completes": [], "send_counts": [], "receive_counts": []}  # fmt: skip
        kind = what.get("kind", OperationKind.other)
        row = len(self.operations[rank])
        self.operations[rank].append({**default, **what, "rank": rank, "kind": kind.name})
        if gap:
            self.phases[rank].append(self._phase(rank, row, gap, PhaseKind.compute))
        return row

    def _phase(self, rank: int, row: int, gap: int, kind: PhaseKind) -> dict[str, int]:
        return {"rank": rank, "operation_id": row, "kind": int(kind), "region_id": -1, "duration_ps": gap}

    # The whole

    def workload(self, name: str = "steps") -> Workload:
        names = ("kernel_name", "kernel_class", "precision", "flops", "bytes", "blocks", "block_threads")
        rows: dict[str, list[dict[str, Any]]] = {
            "operations": [row for mine in self.operations for row in mine],
            "phases": [row for mine in self.phases for row in mine],
            "gpu_operations": [row for mine in self.gpu_operations for row in mine],
            "regions": [],
            "communicators": [{"members": list(each)} for each in (range(self.num_ranks), *self.groups.values())],
            "kernels": [dict(zip(names, each, strict=True)) for each in self.kernels],
            "traced_gpus": [{"rank": rank, "device": 0, "gpu_name": self.gpu_name} for rank in range(self.num_ranks)],
            "groups": [{"communicator_id": 1 + k, "group_name": each} for k, each in enumerate(self.groups)],
            "steps": sorted(self.steps, key=lambda row: (row["rank"], row["step"])),
        }
        tables = {level: pa.Table.from_pylist(each, SCHEMAS[level]) for level, each in rows.items()}
        return Workload(name, self.num_ranks, tables)
