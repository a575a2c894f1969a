"""An export of Nsight Systems as events of the kind that Kineto writes, by process."""

from __future__ import annotations

import re
import sqlite3
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from manyscale.models.workload import Workload
from manyscale.models.workload.notes import Note, informs
from manyscale.runner.errors import UserError
from manyscale.runner.plain_files import refuse_special
from manyscale.runner.readers.kineto.events import Args, Document, Event
from manyscale.runner.readers.kineto.reader import workload_of
from manyscale.runner.readers.kineto.trace import Trace, trace_of
from manyscale.runner.readers.nsys.files import files_of
from manyscale.runner.readers.nsys.ranges import Range, collective_args, is_collective, step_of

NAME: Final = "nsys"
_PROCESS: Final = 1 << 24  # a globalTid is the process's number times this, and the thread's
_NUMBERS: Final = (1 << 24) - 1
# CUpti_ActivityMemcpyKind, and CUpti_ActivityMemoryKind where the export has no table of its own for it
_COPIES: Final = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH",
                  10: "PtoP"}  # fmt: skip
_MEMORY: Final = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed"}
_OF_EVENTS: Final = (1, 2)  # CUpti_ActivitySynchronizationType: a host, a stream waits for an event
_RANGES: Final = (59, 60)  # NVTX_EVENTS.eventType: pushed and popped, started and ended
_VERSION: Final = re.compile(r"_v\d+$")
_OF_COLLECTIVES: Final = ("collective", "in_elements", "out_elements", "element_type", "group", "place")
_KERNEL: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
_RUNTIME: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"


@dataclass
class _Process:
    """Events of a process, and ranges of NCCL's calls by thread, in the order of their begins."""

    events: list[Event] = field(default_factory=list)
    ranges: dict[int, list[Range]] = field(default_factory=dict)
    calls: dict[int, tuple[int, int]] = field(default_factory=dict)  # (thread, begin) by correlation
    kernels: list[tuple[int, Event]] = field(default_factory=list)  # NCCL's, by correlation
    collectives: int = 0


def read(path: Path) -> Workload:
    """The workload. Raises UserError."""
    traces: list[Trace] = []
    notes: list[Note] = []
    for file in files_of(path):
        traces += _traces(file, len(traces), notes)
    if not traces:
        raise UserError(f"{path}: no process used a GPU; trace it with nsys profile --trace=cuda,nvtx")
    return workload_of(path, traces, NAME, notes)


def _traces(file: Path, first: int, notes: list[Note]) -> list[Trace]:
    """Of the processes of a file that use a GPU."""
    refuse_special(file)
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as database:
            database.text_factory = lambda raw: raw.decode(errors="replace")
            tables = {name: _columns(database, name) for (name,) in
                      database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}  # fmt: skip
            if _RUNTIME not in tables or "StringIds" not in tables:
                missing = _RUNTIME if _RUNTIME not in tables else "StringIds"
                raise UserError(f"{file}: has no table {missing}; export a profile of CUDA: nsys profile "
                                "--trace=cuda,nvtx, then nsys export --type sqlite")  # fmt: skip
            found = _Export(database, tables, file)
            processes, gpus = found.processes(), found.gpus()
    except UserError:
        raise
    except (sqlite3.Error, ValueError, TypeError, OverflowError) as error:
        raise UserError(f"{file}: cannot be read as SQLite ({error}); copy or export it again") from None
    traces: list[Trace] = []
    for number, process in sorted(processes.items()):
        if not any(each.cat in ("kernel", "gpu_memcpy", "gpu_memset") for each in process.events):
            continue
        told = _with_collectives(process)
        place = f"{file}: process {number}" if len(processes) > 1 else str(file)
        if told:
            text = f"{told} collectives are those of NCCL's ranges"
            notes.append(informs("collectives-of-ranges", text, f"rank {first + len(traces)}", told))
        document = Document(
            [*process.events], [{"id": each, "name": name} for each, name in gpus.items()],
            {"rank": first + len(traces)}, 0,
        )  # fmt: skip
        traces.append(trace_of(document, place))
    return traces


def _columns(database: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in database.execute(f'PRAGMA table_info("{table}")')}


@dataclass(frozen=True)
class _Export:
    database: sqlite3.Connection
    tables: Mapping[str, set[str]]
    file: Path

    def rows(self, table: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        """Columns of a table by start; None for those that it lacks; nothing if there is no such table."""
        known = self.tables.get(table)
        if known is None:
            return
        chosen = ", ".join(f'"{each}"' if each in known else "NULL" for each in columns)
        yield from self.database.execute(f'SELECT {chosen} FROM "{table}" ORDER BY "start"')

    def processes(self) -> dict[int, _Process]:
        found: dict[int, _Process] = {}
        text = dict(self.database.execute("SELECT id, value FROM StringIds"))
        origin = min(
            (int(start) for table in self.tables if "start" in self.tables[table] and table.startswith("CUPTI")
             for (start,) in self.database.execute(f'SELECT MIN("start") FROM "{table}"') if start is not None),
            default=0,
        )  # fmt: skip
        kinds = self._kinds_of_memory()
        of_context: dict[int, int] = {}
        for start, end, thread, correlation, name in self.rows(
            _RUNTIME, "start", "end", "globalTid", "correlationId", "nameId"
        ):
            process = found.setdefault(int(thread or 0) // _PROCESS & _NUMBERS, _Process())
            called = _VERSION.sub("", str(text.get(name, name)))
            process.calls[int(correlation or -1)] = (int(thread or 0), int(start))
            process.events.append(self._event("cuda_runtime", called, start, end, origin, thread, correlation))
        for table, category in ((_KERNEL, "kernel"), ("CUPTI_ACTIVITY_KIND_MEMCPY", "gpu_memcpy"),
                                ("CUPTI_ACTIVITY_KIND_MEMSET", "gpu_memset")):  # fmt: skip
            for start, end, device, stream, correlation, owner, name, short, size, copy, source, target in self.rows(
                table, "start", "end", "deviceId", "streamId", "correlationId", "globalPid", "demangledName",
                "shortName", "bytes", "copyKind", "srcKind", "dstKind",
            ):  # fmt: skip
                process = found.setdefault(self._owner(found, owner, correlation), _Process())
                of_context.setdefault(int(device or 0), 0)
                called = str(text.get(name, text.get(short, "kernel")))
                if category == "gpu_memcpy":
                    ends = (kinds.get(each, "Unknown") for each in (source, target))
                    called = f"Memcpy {_COPIES.get(copy, 'DtoD')} ({' -> '.join(ends)})"
                elif category == "gpu_memset":
                    called = "Memset"
                event = self._event(category, called, start, end, origin, stream, correlation)
                assert event.args is not None
                event.args.stream, event.args.device, event.args.bytes = int(stream or 0), int(device or 0), size
                process.events.append(event)
                if "nccl" in called[:40].lower():
                    process.kernels.append((int(correlation or -1), event))
        for start, end, kind, thread, own, number, more in self.rows(
            "NVTX_EVENTS", "start", "end", "eventType", "globalTid", "text", "textId", "jsonText"
        ):
            mark = own if own is not None else text.get(number)
            if end is None or mark is None or kind not in _RANGES:
                continue
            called = str(mark)
            process = found.setdefault(int(thread or 0) // _PROCESS & _NUMBERS, _Process())
            if is_collective(called):
                each = Range(int(start), int(end), called, more)
                process.ranges.setdefault(int(thread or 0), []).append(each)
            step = step_of(called)
            shown = f"ProfilerStep#{step}" if step is not None else called
            process.events.append(self._event("user_annotation", shown, start, end, origin, thread, None))
        self._add_waits(found, origin)
        return found

    def _add_waits(self, found: Mapping[int, _Process], origin: int) -> None:
        """Which stream and event calls wait for, where the export tells it."""
        recorded: dict[tuple[int, int], list[tuple[int, int]]] = {}  # (correlation, stream) by process and event
        for table in ("CUPTI_ACTIVITY_KIND_CUDA_EVENT",):
            if {"eventId", "streamId", "correlationId"} <= self.tables.get(table, set()):
                owner = "globalPid" if "globalPid" in self.tables[table] else "NULL"
                query = f'SELECT eventId, streamId, correlationId, {owner} FROM "{table}" ORDER BY correlationId'
                for event, stream, correlation, process in self.database.execute(query):
                    own = self._owner(found, process, correlation)
                    recorded.setdefault((own, int(event)), []).append((int(correlation), int(stream)))
        for start, end, stream, correlation, owner, kind, event in self.rows(
            "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "start", "end", "streamId", "correlationId", "globalPid",
            "syncType", "eventId",
        ):  # fmt: skip
            own = self._owner(found, owner, correlation)
            if own not in found or correlation is None:
                continue
            told = self._event("cuda_sync", "sync", start, end, origin, stream, correlation)
            assert told.args is not None
            told.args.stream = -1 if stream is None else int(stream)
            records = recorded.get((own, -1 if event is None else int(event)), [])
            before = bisect_left(records, (int(correlation),))  # records of the event before the call
            if before:
                told.args.recorded_by, told.args.awaited_stream = records[before - 1]
            if kind not in _OF_EVENTS or before:
                found[own].events.append(told)

    def _event(
        self, category: str, name: str, start: Any, end: Any, origin: int, thread: Any, correlation: Any
    ) -> Event:
        if not isinstance(start, int) or not isinstance(end, int) or end < start:
            raise UserError(f"{self.file}: {name[:60]!r} lasts from {start!r} to {end!r} ns; export it again")
        args = Args(correlation=-1 if correlation is None else int(correlation))
        begin = start - origin
        ts, took = begin / 1000, (end - start) / 1000
        return Event("X", category, name, "host", int(thread or 0), ts, took, args)

    def _owner(self, found: Mapping[int, _Process], owner: Any, correlation: Any) -> int:
        """The process of something on a GPU; older exports do not say it."""
        if owner is not None:
            return int(owner) // _PROCESS & _NUMBERS
        called = (number for number, each in found.items() if int(correlation or -1) in each.calls)
        return next(called, next(iter(found), 0))

    def _kinds_of_memory(self) -> dict[int, str]:
        if "ENUM_CUDA_MEM_KIND" not in self.tables or "label" not in self.tables["ENUM_CUDA_MEM_KIND"]:
            return _MEMORY
        return dict(self.database.execute("SELECT id, label FROM ENUM_CUDA_MEM_KIND"))

    def gpus(self) -> dict[int, str]:
        """Names of GPUs by the number that CUDA gives them."""
        if "TARGET_INFO_GPU" not in self.tables or not {"id", "name"} <= self.tables["TARGET_INFO_GPU"]:
            return {}
        names = dict(self.database.execute("SELECT id, name FROM TARGET_INFO_GPU"))
        if {"gpuId", "cudaId"} <= self.tables.get("TARGET_INFO_CUDA_DEVICE", set()):
            numbers = self.database.execute("SELECT cudaId, gpuId FROM TARGET_INFO_CUDA_DEVICE")
            return {int(cuda): str(names[gpu]) for cuda, gpu in numbers if gpu in names}
        return {int(number): str(name) for number, name in names.items()}


def _with_collectives(process: _Process) -> int:
    """Give NCCL's kernels what the ranges around their launches tell, and say of how many."""
    told = 0
    launches: dict[int, list[tuple[int, Event]]] = {}
    for correlation, event in process.kernels:
        if correlation in process.calls:
            thread, at = process.calls[correlation]
            launches.setdefault(thread, []).append((at, event))
    for thread, own in launches.items():
        ranges, begun = process.ranges.get(thread, []), 0
        around: list[Range] = []  # the innermost last
        for at, event in sorted(own, key=lambda each: each[0]):
            while begun < len(ranges) and ranges[begun].begin <= at:
                around.append(ranges[begun])
                begun += 1
            while around and around[-1].end < at:
                around.pop()
            args = collective_args(around[-1]) if around else None
            if args is not None and event.args is not None:
                for name in _OF_COLLECTIVES:
                    setattr(event.args, name, getattr(args, name))
                told += 1
    return told
