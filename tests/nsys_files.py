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
# what exports of 2024 and later have beside; the columns stand elsewhere, too
_LATER: Final = {
    "META_DATA_EXPORT": "name TEXT NOT NULL, value TEXT",
    "TARGET_INFO_GPU": "vmId INTEGER, id INTEGER NOT NULL, busLocation TEXT, name TEXT, smCount INTEGER",
    "TARGET_INFO_CUDA_DEVICE": "gpuId INTEGER NOT NULL, cudaId INTEGER NOT NULL, pid INTEGER NOT NULL, uuid TEXT",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER, utcTime TEXT, localTime TEXT",
    "ENUM_CUPTI_SYNC_TYPE": "id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId "
    "INTEGER, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, "
    "demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER, gridX INTEGER, "
    "graphNodeId INTEGER",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, "
    "contextId INTEGER, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, "
    "deprecatedSyncType INTEGER, syncType INTEGER NOT NULL, eventId INTEGER NOT NULL, eventSyncId INTEGER",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": "timestamp INTEGER, deviceId INTEGER NOT NULL, contextId INTEGER, greenContextId "
    "INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, eventId INTEGER NOT NULL, "
    "eventSyncId INTEGER",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, "
    "graphId INTEGER NOT NULL, contextId INTEGER, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId "
    "INTEGER, globalPid INTEGER, graphExecId INTEGER",
    "NVTX_EVENTS": "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, "
    "category INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, "
    "uint64Value INTEGER, jsonText TEXT, jsonTextId INTEGER, binaryData TEXT",
}
PROCESS: Final = 1 << 24
_VM: Final = 1 << 48  # of a globalTid and a globalPid in exports of several machines


class Export:
    """Of one process, ``pid``; ``later``: with the tables of 2024 and later. Times in us; each call has an own
    correlation."""

    def __init__(self, path: Path, pid: int = 4711, *, later: bool = False) -> None:
        self.path, self.pid, self.later = path, pid, later
        self.owner = pid * PROCESS + _VM * later
        self.rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in _TABLES}
        self.version = "3.24.14"
        self.session_ns = 1_764_000_000_000_000_000
        self.strings: dict[str, int] = {}
        self.correlation = 0

    def text(self, value: str) -> int:
        return self.strings.setdefault(value, len(self.strings) + 1)

    def call(self, name: str, start: float, end: float, thread: int = 1) -> int:
        self.correlation += 1
        self.rows["CUPTI_ACTIVITY_KIND_RUNTIME"].append(
            (_ns(start), _ns(end), 0, self.owner + thread, self.correlation, self.text(name), 0, None)
        )
        return self.correlation

    def kernel(self, name: str, start: float, end: float, correlation: int, stream: int = 7) -> None:
        of = (0, 1, stream, correlation, self.owner, self.text(name), self.text(name))
        self.rows["CUPTI_ACTIVITY_KIND_KERNEL"].append((_ns(start), _ns(end), *of))

    def copy(self, start: float, end: float, correlation: int, size: int, kind: int, stream: int = 7) -> None:
        of = (0, 1, stream, correlation, self.owner, size, kind, 1, 2)
        self.rows["CUPTI_ACTIVITY_KIND_MEMCPY"].append((_ns(start), _ns(end), *of))

    def wait(self, start: float, end: float, correlation: int, kind: int, stream: int, event: int = 0) -> None:
        of = (0, 1, stream, correlation, self.owner, kind, event)
        self.rows["CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"].append((_ns(start), _ns(end), *of))

    def record(self, correlation: int, stream: int, event: int) -> None:
        self.rows["CUPTI_ACTIVITY_KIND_CUDA_EVENT"].append((0, 1, stream, correlation, self.owner, event))

    def graph(self, start: float, end: float, correlation: int, number: int = 1, stream: int = 7) -> None:
        """A graph that was traced as a whole. Times of 0: none."""
        times = (_ns(start), _ns(end)) if end else (0, 0)
        self.rows.setdefault("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", []).append(
            (*times, 0, number, 1, None, stream, correlation, self.owner, None)
        )

    def mark(self, text: str, start: float, end: float, thread: int = 1, payload: str | None = None) -> None:
        """A range of NVTX; later exports keep its text and payload with other texts."""
        of: tuple[Any, ...] = (59, text, self.owner + thread, None, 0, payload)
        if self.later:
            number = None if payload is None else self.text(payload)
            of = (59, None, self.owner + thread, self.text(text), 0, None, number)
        self.rows["NVTX_EVENTS"].append((_ns(start), _ns(end), *of))

    def write(self, gpu: str = "Tesla V100-SXM2-32GB") -> Path:
        self.rows["StringIds"] = [(number, value) for value, number in self.strings.items()]
        self.rows["TARGET_INFO_GPU"] = [(0, gpu)]
        tables = _TABLES | _LATER if self.later else _TABLES
        if self.later:
            self.rows["META_DATA_EXPORT"] = [("EXPORT_SCHEMA_VERSION", self.version)]
            self.rows["TARGET_INFO_CUDA_DEVICE"] = [(0, 0, self.pid, "")]
            self.rows["TARGET_INFO_SESSION_START_TIME"] = [(self.session_ns, "", "")]
            kinds = ("EVENT_SYNCHRONIZE", "STREAM_WAIT_EVENT", "STREAM_SYNCHRONIZE", "CONTEXT_SYNCHRONIZE")
            self.rows["ENUM_CUPTI_SYNC_TYPE"] = [
                (at, f"CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_{kind}", kind) for at, kind in enumerate(kinds, 1)
            ]
        with closing(sqlite3.connect(self.path)) as database, database:
            for name, columns in tables.items():
                database.execute(f"CREATE TABLE {name} ({columns})")
                known = _names(_TABLES.get(name, columns)) + ["jsonTextId"] * (self.later and name == "NVTX_EVENTS")
                for row in self.rows.get(name, []):
                    places = ", ".join("?" * len(row))
                    database.execute(f"INSERT INTO {name} ({', '.join(known)}) VALUES ({places})", row)
        return self.path


def _names(columns: str) -> list[str]:
    return [each.split()[0] for each in columns.split(",")]


def _ns(us: float) -> int:
    return 1_000_000_000 + round(us * 1000)


def rank(path: Path, pid: int = 4711, late: float = 0.0, *, later: bool = False) -> Export:
    """Two kernels, a copy to the host that is waited for, and an all-reduce of 4096 bytes that waits for the second
    kernel; 30 us of it are its own, the rest is waiting for a rank that is ``late`` (us)."""
    made = Export(path, pid, later=later)
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
