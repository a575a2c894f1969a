"""Exports of Nsight Systems, with tables and columns as NVIDIA documents them (User Guide, SQLite export schema)."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

_TABLES: Final = {
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "TARGET_INFO_GPU": "id INTEGER NOT NULL PRIMARY KEY, name TEXT",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER, globalTid "
    "INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId "
    "INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL, "
    "shortName INTEGER NOT NULL",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId "
    "INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL, copyKind "
    "INTEGER NOT NULL, srcKind INTEGER, dstKind INTEGER",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, "
    "contextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, syncType INTEGER NOT "
    "NULL, eventId INTEGER NOT NULL",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": "deviceId INTEGER NOT NULL, contextId INTEGER, streamId INTEGER NOT NULL, "
    "correlationId INTEGER, globalPid INTEGER, eventId INTEGER NOT NULL",
    "NVTX_EVENTS": "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT, globalTid INTEGER, "
    "textId INTEGER, domainId INTEGER, jsonText TEXT",
}  # fmt: skip
PROCESS: Final = 1 << 24


class Export:
    """Of one process, ``pid``. Times in us; each call has a correlation of its own."""

    def __init__(self, path: Path, pid: int = 4711) -> None:
        self.path, self.pid = path, pid
        self.rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in _TABLES}
        self.strings: dict[str, int] = {}
        self.correlation = 0

    def text(self, value: str) -> int:
        return self.strings.setdefault(value, len(self.strings) + 1)

    def call(self, name: str, start: float, end: float, thread: int = 1) -> int:
        self.correlation += 1
        self.rows["CUPTI_ACTIVITY_KIND_RUNTIME"].append(
            (_ns(start), _ns(end), 0, self.pid * PROCESS + thread, self.correlation, self.text(name), 0, None)
        )
        return self.correlation

    def kernel(self, name: str, start: float, end: float, correlation: int, stream: int = 7) -> None:
        of = (0, 1, stream, correlation, self.pid * PROCESS, self.text(name), self.text(name))
        self.rows["CUPTI_ACTIVITY_KIND_KERNEL"].append((_ns(start), _ns(end), *of))

    def copy(self, start: float, end: float, correlation: int, size: int, kind: int, stream: int = 7) -> None:
        of = (0, 1, stream, correlation, self.pid * PROCESS, size, kind, 1, 2)
        self.rows["CUPTI_ACTIVITY_KIND_MEMCPY"].append((_ns(start), _ns(end), *of))

    def wait(self, start: float, end: float, correlation: int, kind: int, stream: int, event: int = 0) -> None:
        of = (0, 1, stream, correlation, self.pid * PROCESS, kind, event)
        self.rows["CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"].append((_ns(start), _ns(end), *of))

    def record(self, correlation: int, stream: int, event: int) -> None:
        self.rows["CUPTI_ACTIVITY_KIND_CUDA_EVENT"].append((0, 1, stream, correlation, self.pid * PROCESS, event))

    def mark(self, text: str, start: float, end: float, thread: int = 1, payload: str | None = None) -> None:
        """A range of NVTX."""
        of = (59, text, self.pid * PROCESS + thread, None, 0, payload)
        self.rows["NVTX_EVENTS"].append((_ns(start), _ns(end), *of))

    def write(self, gpu: str = "Tesla V100-SXM2-32GB") -> Path:
        self.rows["StringIds"] = [(number, value) for value, number in self.strings.items()]
        self.rows["TARGET_INFO_GPU"] = [(0, gpu)]
        with closing(sqlite3.connect(self.path)) as database, database:
            for name, columns in _TABLES.items():
                database.execute(f"CREATE TABLE {name} ({columns})")
                for row in self.rows[name]:
                    database.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", row)
        return self.path


def _ns(us: float) -> int:
    return 1_000_000_000 + round(us * 1000)


def rank(path: Path, pid: int = 4711, late: float = 0.0) -> Export:
    """Two kernels, a copy to the host that is waited for, and an all-reduce of 4096 bytes that waits for the second
    kernel; 30 us of it are its own, the rest is waiting for a rank that is ``late`` (us)."""
    made = Export(path, pid)
    made.mark("step 3", 0, 300)
    made.kernel("gemm", 14, 24, made.call("cudaLaunchKernel_v7000", 5, 10))
    made.kernel("add", 24, 34, made.call("cudaLaunchKernel_v7000", 12, 16))
    recorded = made.call("cudaEventRecord_v3020", 17, 18)
    made.record(recorded, 7, 5)
    waits = made.call("cudaStreamWaitEvent_v3020", 19, 20)
    made.wait(19, 20, waits, 2, 20, 5)
    text = "ncclAllReduce(): commHash 0xab, stream 0x7, data_size 4096, type_size 4, red_op 0, pid 1"
    made.mark(text, 21, 30)
    launched = made.call("cuLaunchKernelEx", 22, 28)
    made.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096>)", 40, 70 + late, launched, 20)
    made.copy(35, 39, made.call("cudaMemcpyAsync_v3020", 31, 33), 256, 2)
    synced = made.call("cudaStreamSynchronize_v3020", 34, 40)
    made.wait(34, 40, synced, 3, 7)
    return made


def sample(folder: Path) -> Path:
    """One rank, small."""
    made = Export(folder / "report.sqlite")
    made.kernel("gemm", 14, 24, made.call("cudaLaunchKernel_v7000", 5, 10))
    return made.write()
