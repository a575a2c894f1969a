"""Tiny kernel launches made by hand, a workload of them, and a model that is easy to foresee."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload import Workload
from manyscale.models.workload.columns import text_array, to_arrow
from manyscale.models.workload.gpu_tables import LAUNCHES_SCHEMA
from manyscale.models.workload.instruction_details import InstructionCounts
from manyscale.models.workload.launch_trace import (
    MAX_OPERANDS,
    NO_REGISTER,
    LaunchTrace,
    StaticInstructions,
    UnitClass,
)
from manyscale.runner.predict.gpu.launch_results import LaunchResult
from manyscale.runner.predict.units import array_digest
from manyscale.runner.readers.rank_tables import rank_tables
from manyscale.runner.study.traces import with_phases

CAUSES = ("issue", "dram")


@dataclass(frozen=True)
class Launch:
    """``blocks``: warp instructions of each block, which has one warp."""

    kernel: str
    blocks: tuple[int, ...]
    threads: int = 32
    registers: int = 16
    shared_bytes: int = 0
    binary_version: int = 80
    opcode: str = "IADD3"
    stream: int = 0


def trace_of(launch_id: int, launch: Launch) -> LaunchTrace:
    """Integer instructions that depend on nothing, all threads active."""
    count = sum(launch.blocks)
    none = np.full((1, MAX_OPERANDS), NO_REGISTER, np.int16)
    static = StaticInstructions(
        (launch.opcode,), np.zeros(1, np.int64), np.zeros(1, np.int32), np.array([UnitClass.int], np.uint8),
        np.zeros(1, np.uint8), np.zeros(1, np.uint8), np.zeros(1, np.int32), np.zeros(1, np.bool_), none, none,
    )  # fmt: skip
    bounds = np.concatenate(([0], np.cumsum(launch.blocks)))
    return LaunchTrace(
        launch_id, launch.kernel, (len(launch.blocks), 1, 1), (launch.threads, 1, 1), launch.shared_bytes,
        launch.registers, launch.binary_version, static, np.arange(len(bounds)), bounds,
        np.zeros(len(bounds), np.int64), np.zeros(count, np.int32), np.full(count, 32, np.uint8),
        np.zeros(count, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.uint32),
    )  # fmt: skip


class Streams:
    """Launches in memory (``models.gpu_tables.LaunchStreams``)."""

    def __init__(self, launches: Mapping[int, Launch]) -> None:
        self._launches = dict(launches)

    counted_ids: tuple[int, ...] = ()
    rules: dict[str, Any] | None = None

    @property
    def launch_ids(self) -> tuple[int, ...]:
        return tuple(self._launches)

    @property
    def digest(self) -> str:
        return array_digest(np.array([str(self._launches)]))

    def launch_digest(self, launch_id: int) -> str:
        return array_digest(np.array([str(self._launches[launch_id])]))

    def executed(self, launch_id: int) -> dict[str, int]:
        return {self._launches[launch_id].opcode.split(".")[0]: sum(self._launches[launch_id].blocks)}

    def has_words(self, launch_id: int) -> bool:
        return False

    def cluster_blocks(self, launch_id: int) -> int:
        return 1

    def detailed_counts(self, launch_id: int) -> tuple[bytes, InstructionCounts] | None:
        static, counts = self.instruction_counts(launch_id)
        return None if static.details is None else (static.pc.tobytes(), counts)

    def instruction_counts(self, launch_id: int) -> tuple[StaticInstructions, InstructionCounts]:
        trace = self.trace(launch_id)
        rows = len(trace.static.pc)
        executed, threads = (
            np.bincount(trace.instruction),
            np.bincount(trace.instruction, trace.active).astype(np.int64),
        )
        return trace.static, InstructionCounts.of_rows(rows, executed, threads, None)

    def recorded_blocks(self, launch_id: int) -> np.ndarray | None:
        return None

    def trace(self, launch_id: int) -> LaunchTrace:
        return trace_of(launch_id, self._launches[launch_id])

    def block_batches(self, launch_id: int, max_instructions: int) -> Iterator[LaunchTrace]:
        yield self.trace(launch_id)


class TracedStreams(Streams):
    """Launches of any instructions, by their numbers."""

    def __init__(self, traces: Mapping[int, LaunchTrace]) -> None:
        super().__init__({})
        self._traces = dict(traces)

    @property
    def launch_ids(self) -> tuple[int, ...]:
        return tuple(self._traces)

    @property
    def digest(self) -> str:
        return array_digest(np.array([self.launch_digest(each) for each in self._traces]))

    def launch_digest(self, launch_id: int) -> str:
        trace = self._traces[launch_id]
        arrays = [value for value in vars(trace).values() if isinstance(value, np.ndarray)]
        return array_digest(*arrays, np.array([str(trace.static)]), np.array([trace.registers, trace.shared_bytes]))

    def executed(self, launch_id: int) -> dict[str, int]:
        return {"IADD3": self._traces[launch_id].num_instructions}

    def trace(self, launch_id: int) -> LaunchTrace:
        return self._traces[launch_id]


def workload_of_traces(*traces: LaunchTrace, streams: Sequence[int] = ()) -> Workload:
    """Launches numbered from 1, as phases of rank 0, each in one of ``streams`` (default: of its number)."""
    numbered = {number: replace(trace, launch_id=number) for number, trace in enumerate(traces, start=1)}
    workload = gpu_workload(
        *(
            Launch(
                trace.kernel_name, tuple(np.diff(trace.warp_instructions[trace.block_warps]).tolist()), trace.block[0],
                trace.registers, trace.shared_bytes, trace.binary_version, stream=streams[k] if streams else k + 1,
            )
            for k, trace in enumerate(traces)
        )
    )  # fmt: skip
    own = TracedStreams(numbered)
    table = workload.tables["launches"]
    columns = {
        "warps": np.array([trace.num_warps for trace in traces]),
        "memory_requests": np.array([int(trace.accesses.sum(dtype=np.int64)) for trace in traces]),
    }
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        field = table.schema.field(at)
        table = table.set_column(at, field, to_arrow(values.astype(field.type.to_pandas_dtype())))
    at = table.schema.get_field_index("digest")
    table = table.set_column(at, table.schema.field(at), text_array([own.launch_digest(each) for each in numbered]))
    return replace(workload, tables={**workload.tables, "launches": table}, gpu=own)


def gpu_workload(*launches: Launch) -> Workload:
    """Launches numbered from 1, as phases of rank 0."""
    streams = Streams(dict(enumerate(launches, start=1)))
    columns: dict[str, list[Any]] = {field.name: [] for field in LAUNCHES_SCHEMA}
    for launch_id, launch in enumerate(launches, start=1):
        blocks = np.array(launch.blocks)
        row = {
            "launch_id": launch_id, "kernel_name": launch.kernel, "grid_x": len(blocks), "grid_y": 1, "grid_z": 1,
            "block_x": launch.threads, "block_y": 1, "block_z": 1, "shared_bytes": launch.shared_bytes,
            "registers": launch.registers, "binary_version": launch.binary_version, "stream": launch.stream,
            "blocks": len(blocks), "warps": len(blocks), "warp_instructions": int(blocks.sum()),
            "thread_instructions": 32 * int(blocks.sum()), "memory_requests": 0,
            "block_size_cov": float(blocks.std() / blocks.mean()), "digest": streams.launch_digest(launch_id),
        }  # fmt: skip
        for name, value in row.items():
            columns[name].append(value)
    arrays = [
        text_array(columns[field.name])
        if pa.types.is_string(field.type)
        else to_arrow(np.array(columns[field.name], field.type.to_pandas_dtype()))
        for field in LAUNCHES_SCHEMA
    ]
    table = pa.Table.from_arrays(arrays, schema=LAUNCHES_SCHEMA)
    return with_phases(Workload("launches", 1, {**rank_tables(1, {}), "launches": table}, gpu=streams))


def foreseen(
    launches: Iterable[LaunchTrace],
    before: Iterable[LaunchTrace],
    gpu: Gpu,
    options: Mapping[str, Any],
    groups: int,
) -> list[LaunchResult]:
    """Each launch takes ten cycles per warp instruction, over the SMs, and 100 more if nothing ran before it."""
    results, warm = [], bool(list(before))
    for trace in launches:
        cycles = 10 * trace.num_instructions // gpu.sms + (0 if warm else 100)
        block = np.arange(trace.num_blocks)
        results.append(
            LaunchResult(
                launch_id=trace.launch_id, cycles=cycles, warp_instructions=trace.num_instructions,
                simulated_instructions=trace.num_instructions, causes=CAUSES,
                stack=np.array([0.75 * cycles, 0.25 * cycles]), l1_accesses=40, l1_misses=10, l2_accesses=10,
                l2_misses=5, occupancy=0.5, block=block, block_sm=block % gpu.sms, block_start=10 * block,
                block_end=10 * block + 15, bin_cycles=100,
                ipc_instructions=np.array([trace.num_instructions]),
            )
        )  # fmt: skip
        warm = True
    return results
