"""An export of Nsight Systems as events of the kind that Kineto writes, by process."""

from __future__ import annotations

import re
import sqlite3
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from manyscale.models.workload import Workload
from manyscale.models.workload.notes import Errs, Note, changes, informs
from manyscale.runner.errors import UserError
from manyscale.runner.plain_files import refuse_special
from manyscale.runner.readers.kineto.events import Args, Document, Event
from manyscale.runner.readers.kineto.reader import workload_of
from manyscale.runner.readers.kineto.trace import Trace, trace_of
from manyscale.runner.readers.nsys.files import files_of
from manyscale.runner.readers.nsys.grouped import tell
from manyscale.runner.readers.nsys.ranges import Range, is_of_nccl, step_of

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
_RUNTIME: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
_KERNEL: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
_GRAPH: Final = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_NEEDED: Final = {
    _RUNTIME: ("start", "end", "globalTid", "correlationId", "nameId"),
    _KERNEL: ("start", "end", "deviceId", "streamId", "correlationId", "demangledName"),
    "CUPTI_ACTIVITY_KIND_MEMCPY": ("start", "end", "deviceId", "streamId", "correlationId", "bytes", "copyKind"),
    "CUPTI_ACTIVITY_KIND_MEMSET": ("start", "end", "deviceId", "streamId", "correlationId"),
    _GRAPH: ("start", "end", "deviceId", "streamId", "correlationId"),
    "StringIds": ("id", "value"),
}
_SCHEMAS: Final = 3  # of exports: the version that is known begins so (META_DATA_EXPORT)


@dataclass
class _Process:
    """Events of a process, and ranges of NCCL's calls by thread, in the order of their begins."""

    events: list[Event] = field(default_factory=list)
    ranges: dict[int, list[Range]] = field(default_factory=dict)
    calls: dict[int, tuple[int, int]] = field(default_factory=dict)  # (thread, begin) by correlation
    kernels: list[tuple[int, Event]] = field(default_factory=list)  # NCCL's, by correlation
    graphs: int = 0  # traced as a whole, and those of them without times
    untimed: int = 0


def read(path: Path) -> Workload:
    """The workload. Raises UserError."""
    traces: list[Trace] = []
    notes: list[Note] = []
    for file in files_of(path):
        traces += _traces(file, len(traces), notes)
    if not traces:
        raise UserError(f"{path}: no process used a GPU; trace it with nsys profile --trace=cuda,nvtx")
    _tell_group_sizes(traces)
    return workload_of(path, traces, NAME, notes)


def _tell_group_sizes(traces: Sequence[Trace]) -> None:
    """Communicators of which several processes name the same have these as members: what NCCL calls one is the same in
    all of its processes (commHash). A name that one process alone has may be an address."""
    collectives = [
        [args for args in trace.given.args if args is not None and args.group is not None] for trace in traces
    ]
    users = Counter(group for own in collectives for group in {args.group for args in own})
    for own in collectives:
        for args in own:
            if users[args.group] > 1:
                args.group_size = users[args.group]


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
            for table, columns in _NEEDED.items():
                if table in tables and (lacks := set(columns) - tables[table]):
                    raise UserError(f"{file}: table {table} has no column {min(lacks)}; export the profile again")
            found = _Export(database, tables, file)
            processes = found.processes()
            session = found.session()
            base = session + found.origin() if session else 0
            gpus = {number: found.gpus(number) for number in processes}
            if found.nameless:
                text = (
                    f"{len(found.nameless)} rows have names or kinds that the export does not list "
                    f"({', '.join(sorted(set(found.nameless)))}): what they do is not known"
                )
                notes.append(changes("names-unknown", text, str(file), len(found.nameless)))
            if found.ambiguous:
                text = (
                    f"{len(found.ambiguous)} correlations are of calls of several processes, and the export does not "
                    "tell whose kernels are: they are the first one's"
                )
                notes.append(changes("calls-ambiguous", text, str(file), len(found.ambiguous)))
            if found.is_newer():
                text = f"{file} is of a later schema than {_SCHEMAS}: what is new in it is left out"
                notes.append(changes("schema-unknown", text))
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
        where = f"rank {first + len(traces)}"
        if process.graphs:
            text = f"{process.graphs} graphs were traced as a whole: each is a kernel of its stream, whatever it does"
            notes.append(changes("graphs-whole", text, where, process.graphs))
        if process.untimed:
            text = f"{process.untimed} graphs have no times: they take none"
            notes.append(changes("events-untimed", text, where, process.untimed, Errs.short))
        document = Document(
            [*process.events], [{"id": each, "name": name} for each, name in gpus[number].items()],
            {"rank": first + len(traces)}, base,
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
    ambiguous: set[int] = field(default_factory=set)  # correlations that several processes have, and no process is told
    nameless: list[str] = field(default_factory=list)  # tables of rows whose name is in no text, or whose kind is none

    def rows(self, table: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        """Columns of a table by start; None for those that it lacks; nothing if there is no such table."""
        known = self.tables.get(table)
        if known is None:
            return
        chosen = ", ".join(f'"{each}"' if each in known else "NULL" for each in columns)
        yield from self.database.execute(f'SELECT {chosen} FROM "{table}" ORDER BY "start"')

    def origin(self) -> int:
        """When the first CUDA activity begins, ns from the begin of the session."""
        return min(
            (int(start) for table in self.tables if "start" in self.tables[table] and table.startswith("CUPTI")
             for (start,) in self.database.execute(f'SELECT MIN("start") FROM "{table}" WHERE "start" <> 0')
             if start is not None),
            default=0,
        )  # fmt: skip

    def session(self) -> int:
        """When the session began, ns since 1970; 0 where the export does not tell it."""
        if "utcEpochNs" not in self.tables.get("TARGET_INFO_SESSION_START_TIME", set()):
            return 0
        (told,) = self.database.execute("SELECT MAX(utcEpochNs) FROM TARGET_INFO_SESSION_START_TIME").fetchone()
        return int(told or 0)

    def processes(self) -> dict[int, _Process]:
        found: dict[int, _Process] = {}
        text = dict(self.database.execute("SELECT id, value FROM StringIds"))
        origin = self.origin()
        kinds = self._kinds_of_memory()
        of_context: dict[int, int] = {}
        for start, end, thread, correlation, name in self.rows(
            _RUNTIME, "start", "end", "globalTid", "correlationId", "nameId"
        ):
            process = found.setdefault(int(thread or 0) // _PROCESS & _NUMBERS, _Process())
            if name not in text:
                self.nameless.append(_RUNTIME)
            called = _VERSION.sub("", str(text.get(name, name)))
            process.calls[int(correlation or -1)] = (int(thread or 0), int(start))
            process.events.append(self._event("cuda_runtime", called, start, end, origin, thread, correlation))
        for table, category in ((_KERNEL, "kernel"), ("CUPTI_ACTIVITY_KIND_MEMCPY", "gpu_memcpy"),
                                ("CUPTI_ACTIVITY_KIND_MEMSET", "gpu_memset")):  # fmt: skip
            for (
                start, end, device, stream, correlation, owner, name, short, size, copy, source, target, *launched
            ) in self.rows(
                table, "start", "end", "deviceId", "streamId", "correlationId", "globalPid", "demangledName",
                "shortName", "bytes", "copyKind", "srcKind", "dstKind", "gridX", "gridY", "gridZ", "blockX", "blockY",
                "blockZ",
            ):  # fmt: skip
                process = found.setdefault(self._owner(found, owner, correlation), _Process())
                of_context.setdefault(int(device or 0), 0)
                called = str(text.get(name, text.get(short, "kernel")))
                if (category == "kernel" and name not in text and short not in text) or (
                    category == "gpu_memcpy" and copy not in _COPIES
                ):
                    self.nameless.append(table)
                if category == "gpu_memcpy":
                    ends = (kinds.get(each, "Unknown") for each in (source, target))
                    called = f"Memcpy {_COPIES.get(copy, 'DtoD')} ({' -> '.join(ends)})"
                elif category == "gpu_memset":
                    called = "Memset"
                event = self._event(category, called, start, end, origin, stream, correlation)
                assert event.args is not None
                event.args.stream, event.args.device, event.args.bytes = int(stream or 0), int(device or 0), size
                event.args.grid, event.args.block = (msgspec.Raw(msgspec.json.encode(each))
                                                     for each in (launched[:3], launched[3:]))  # fmt: skip
                process.events.append(event)
                if "nccl" in called[:40].lower():
                    process.kernels.append((int(correlation or -1), event))
        self._add_graphs(found, origin)
        for start, end, kind, thread, own, number, more, payload in self.rows(
            "NVTX_EVENTS", "start", "end", "eventType", "globalTid", "text", "textId", "jsonText", "jsonTextId"
        ):
            mark = own if own is not None else text.get(number)
            more = text.get(payload) if more is None else more
            if end is None or mark is None or kind not in _RANGES:
                continue
            called = str(mark)
            process = found.setdefault(int(thread or 0) // _PROCESS & _NUMBERS, _Process())
            if is_of_nccl(called):
                each = Range(int(start), int(end), called, more)
                process.ranges.setdefault(int(thread or 0), []).append(each)
            step = step_of(called)
            shown = f"ProfilerStep#{step}" if step is not None else called
            process.events.append(self._event("user_annotation", shown, start, end, origin, thread, None))
        self._add_waits(found, origin)
        return found

    def _add_graphs(self, found: dict[int, _Process], origin: int) -> None:
        """Graphs that were traced as a whole (--cuda-graph-trace=graph): one row each, and none of their kernels."""
        for start, end, device, stream, correlation, owner, graph in self.rows(
            _GRAPH, "start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphId"
        ):
            process = found.setdefault(self._owner(found, owner, correlation), _Process())
            process.graphs += 1
            if not start and not end:  # what CUPTI writes where it has no times
                start = end = process.calls.get(int(correlation or -1), (0, origin))[1]
                process.untimed += 1
            event = self._event("kernel", f"CUDA graph {graph}", start, end, origin, stream, correlation)
            assert event.args is not None
            event.args.stream, event.args.device = int(stream or 0), int(device or 0)
            process.events.append(event)

    def _add_waits(self, found: Mapping[int, _Process], origin: int) -> None:
        """Which stream and event calls wait for, where the export tells it."""
        of_events = self._kinds_of_waits()
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
            if kind not in of_events or before:
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
        called = [number for number, each in found.items() if int(correlation or -1) in each.calls]
        self.ambiguous.update([int(correlation or -1)] * (len(called) > 1))
        return called[0] if called else next(iter(found), 0)

    def _kinds_of_waits(self) -> Collection[int]:
        """Of synchronisations, those that are for events."""
        if not {"id", "name"} <= self.tables.get("ENUM_CUPTI_SYNC_TYPE", set()):
            return _OF_EVENTS
        return {number for number, name in self.database.execute("SELECT id, name FROM ENUM_CUPTI_SYNC_TYPE")
                if "EVENT" in str(name).upper()}  # fmt: skip

    def is_newer(self) -> bool:
        """Whether the export is of a later schema than those that are known."""
        if not {"name", "value"} <= self.tables.get("META_DATA_EXPORT", set()):
            return False
        told = dict(self.database.execute("SELECT name, value FROM META_DATA_EXPORT"))
        version = str(told.get("EXPORT_SCHEMA_VERSION_MAJOR", told.get("EXPORT_SCHEMA_VERSION", ""))).partition(".")[0]
        return version.isdigit() and int(version) > _SCHEMAS

    def _kinds_of_memory(self) -> dict[int, str]:
        if "ENUM_CUDA_MEM_KIND" not in self.tables or "label" not in self.tables["ENUM_CUDA_MEM_KIND"]:
            return _MEMORY
        return dict(self.database.execute("SELECT id, label FROM ENUM_CUDA_MEM_KIND"))

    def gpus(self, process: int) -> dict[int, str]:
        """Names of GPUs by the number that CUDA gives them in a process."""
        if "TARGET_INFO_GPU" not in self.tables or not {"id", "name"} <= self.tables["TARGET_INFO_GPU"]:
            return {}
        names = dict(self.database.execute("SELECT id, name FROM TARGET_INFO_GPU"))
        if {"gpuId", "cudaId"} <= self.tables.get("TARGET_INFO_CUDA_DEVICE", set()):
            has_process = "pid" in self.tables["TARGET_INFO_CUDA_DEVICE"]
            numbers = self.database.execute(
                f"SELECT cudaId, gpuId, {'pid' if has_process else 'NULL'} FROM TARGET_INFO_CUDA_DEVICE"
            )
            return {int(cuda): str(names[gpu]) for cuda, gpu, pid in numbers
                    if gpu in names and pid in (None, process)}  # fmt: skip
        return {int(number): str(name) for number, name in names.items()}


def _with_collectives(process: _Process) -> int:
    """Give NCCL's kernels what the ranges around their launches tell, and say of how many."""
    launches: dict[int, list[tuple[int, Event]]] = {}
    for correlation, event in process.kernels:
        if correlation in process.calls:
            thread, at = process.calls[correlation]
            launches.setdefault(thread, []).append((at, event))
    return sum(tell(process.ranges.get(thread, []), own) for thread, own in launches.items())
