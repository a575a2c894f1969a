"""What two tracers recorded of a program whose ranks use GPUs: that of MPI programs the calls of each rank, and those
of the GPU's libraries among them (``raw_trace/gpu_calls.py``), that of CUDA programs the launches of its process. A
program of one process is one rank.

Each launch is a phase of its rank, before an operation ``other`` that stands for the call; the table
``gpu_operations`` has streams, events and waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import PHASE_TIMES_SCHEMA, PHASES_SCHEMA, SCHEMAS, PhaseKind, Workload
from manyscale.models.workload.columns import text_array, to_arrow, to_numpy
from manyscale.models.workload.gpu_tables import GPU_OPERATIONS_SCHEMA, GpuFlag, GpuOperationKind
from manyscale.models.workload.notes import Errs, Note, changes, informs
from manyscale.runner.errors import UserError
from manyscale.runner.readers.cuda.layout import EVENTS, OF_RANKS, PROCESS
from manyscale.runner.readers.cuda.reader import NAME, Collected, Events, events_of, gpu_tables, notes_of, store_of
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions
from manyscale.runner.readers.raw_trace.calls import DEVICE_BUFFER, TABLE, Calls
from manyscale.runner.readers.raw_trace.files import Process, read_processes
from manyscale.runner.readers.raw_trace.gpu_calls import COPY, OF_DIRECTION, OF_GPU, unpacked
from manyscale.runner.readers.raw_trace.reader import choose_ranks, of_processes

_G: Final = GpuOperationKind
_OF_CALL: Final = np.array([OF_GPU.get(name, -1) for name in TABLE.names], np.int64)
_IS_COPY: Final = np.array([name == COPY for name in TABLE.names], np.bool_)
_OF_EVENT: Final = (int(_G.record_event), int(_G.wait_event), int(_G.synchronize_event))


@dataclass(frozen=True)
class _Rank:
    """Of a rank: ``operation`` int64[n] of each thing that it gave its GPU, and their columns of GPU_OPERATIONS_SCHEMA;
    ``launch`` counts those of the process. ``process``: the folder of its launches, and what stands there; None for a
    rank that has none. ``on_device`` int64[]: operations of MPI calls whose buffers are in its GPU's memory."""

    operation: np.ndarray
    kind: np.ndarray
    stream: np.ndarray
    launch: np.ndarray
    bytes: np.ndarray
    event: np.ndarray
    device: np.ndarray
    peer: np.ndarray
    priority: np.ndarray
    flags: np.ndarray
    process: tuple[Path, Events] | None
    on_device: np.ndarray


def read(
    path: Path, options: ReadOptions = DEFAULT_OPTIONS, collected: Mapping[int, Collected] | None = None
) -> Workload:
    """The workload of a tracer's folder, with the launches that ``options`` choose; ``collected``: what was stored of
    each process while it ran. Raises UserError."""
    found = read_processes(path / OF_RANKS)
    known = _events_of(_folder(path, process) for process in found)
    of_mpi = any(process.library for process in found)
    processes, notes = choose_ranks(path / OF_RANKS, found if of_mpi else _launching(path, found, known))
    ranks = [_rank(process, _folder(path, process), known) for process in processes]
    workload = of_processes(path.name, processes, notes)
    if not any(rank.process for rank in ranks):
        raise UserError(f"{path}: no rank used the GPU; trace the program with --level mpi")
    first = np.cumsum([0, *(len(rank.process[1].launches) if rank.process else 0 for rank in ranks)])
    wanted = _chosen(path, options, int(first[-1]))
    of_process, copies = [], []
    for number, rank in zip(first.tolist(), ranks, strict=False):
        if rank.process is None:
            continue
        folder, events = rank.process
        ids = [made.launch.launch_id for made in events.launches]
        of_process.append((folder, events, {each: number + each for each in ids if number + each in wanted}))
        # those behind the last launch are before none
        copies += [(number + before, address, size) for before, address, size in events.copies if before <= len(ids)]
    store = store_of(path, of_process, collected)
    tables = gpu_tables(store, np.array(copies, np.int64).reshape(-1, 3))
    tables["gpu_operations"] = _operations(workload, ranks, first)
    tables |= _phases(workload, tables["gpu_operations"], tables["launches"])
    tables["measured"] = SCHEMAS["measured"].empty_table()  # what the interpreter took is in it
    left_out = _on_launches(tables["gpu_operations"], (*store.launch_ids, *store.counted_ids))
    # what one process left out its own notes say
    told = (*workload.notes, *_notes(ranks), *(left_out if len(ranks) > 1 else ()))
    tables = {**workload.tables, **tables}
    return Workload(workload.name, workload.num_ranks, tables, told, NAME, gpu=store)


def is_readable(path: Path) -> bool:
    """Whether the calls of the ranks were recorded: of MPI or NCCL, or of the one process that launched kernels, all of
    whose launches are among them."""
    processes = read_processes(path / OF_RANKS)
    if any(process.library for process in processes):
        return True
    events = _events_of(path.glob(PROCESS))
    mine = _launching(path, processes, events)
    # a copied process (fork) has a folder, and no calls
    if len(mine) != 1 or sum(bool(each.launches) for each in events.values()) != 1:
        return False
    kind = _OF_CALL[Calls(mine[0]).call]
    return int(np.count_nonzero(kind == _G.launch)) == len(events[_folder(path, mine[0])].launches)


def _events_of(folders: Iterable[Path]) -> dict[Path, Events]:
    """What processes did with GPUs, by folder; others have no file."""
    return {folder: events_of(folder / EVENTS) for folder in folders if (folder / EVENTS).is_file()}


def _launching(path: Path, processes: list[Process], events: Mapping[Path, Events]) -> list[Process]:
    """Those that launched kernels."""
    used = [(process, events.get(_folder(path, process))) for process in processes]
    return [process for process, each in used if each is not None and each.launches]


def _folder(path: Path, process: Process) -> Path:
    return path / f"process-{int(process.start['process'])}"


def _chosen(path: Path, options: ReadOptions, count: int) -> set[int]:
    wanted = set(options.launches or range(1, count + 1))
    missing = sorted(each for each in wanted if not 1 <= each <= count)
    if missing:
        raise UserError(f"{path}: has no launch {missing[0]}; its launches are 1 to {count}")
    return wanted


def _rank(process: Process, folder: Path, known: Mapping[Path, Events]) -> _Rank:
    calls = Calls(process)
    kind = _OF_CALL[calls.call]
    is_copy = _IS_COPY[calls.call]
    direction = np.clip(calls.records["tag"][is_copy].astype(np.int64), 0, len(OF_DIRECTION) - 1)
    kind[is_copy] = np.array(OF_DIRECTION, np.int64)[direction]
    mine = np.flatnonzero(kind >= 0)
    kind, records = kind[mine], calls.records[mine]
    is_launch, is_message = kind == _G.launch, kind == _G.communication
    sizes, second = records["bytes"].astype(np.int64), records["receive_bytes"].astype(np.int64)
    events = known.get(folder)
    launch = np.where(is_launch, sizes, 0)
    if is_launch.any() and (events is None or launch.max() > len(events.launches)):
        raise UserError(
            f"{folder / EVENTS}: lacks launch {launch.max()} of rank {process.rank}; trace the program again"
        )
    on_device = calls.operation_ids()[np.flatnonzero(calls.records["flags"] & DEVICE_BUFFER)]
    stream = np.where(is_message, records["receive_tag"], second).astype(np.int64)
    return _Rank(
        calls.operation_ids()[mine],
        kind,
        stream,
        launch,
        np.where(is_launch | is_message, 0, sizes),
        np.where(np.isin(kind, _OF_EVENT), records["tag"], 0).astype(np.int64),
        *_of_streams(kind, stream, records["receive_tag"]),
        None if events is None else (folder, events),
        on_device,
    )


def _of_streams(
    kind: np.ndarray, stream: np.ndarray, packed: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Device, peer, priority and flags of operations. NCCL does not tell these of its streams: they are what others of
    the stream say, or those of the first device."""
    told = kind != _G.communication
    own = unpacked(np.where(told, packed, 0))
    for name, lasting in (("device", -1), ("priority", -1), ("flags", GpuFlag.non_blocking | GpuFlag.default_stream)):
        number, first = np.unique(stream[told], return_index=True)
        if not len(number):
            continue
        at = np.minimum(np.searchsorted(number, stream[~told]), len(number) - 1)
        own[name][~told] = np.where(number[at] == stream[~told], own[name][told][first][at] & lasting, 0)
    own["peer"][~told] = -1
    return own["device"], own["peer"], own["priority"], own["flags"]


def _on_memory_of_gpus(workload: Workload, rank: int, operation: np.ndarray) -> np.ndarray:
    """Columns of the table, of MPI calls."""
    kept = operation[operation < workload.rank_offsets[rank + 1] - workload.rank_offsets[rank]]
    found = np.zeros((len(GPU_OPERATIONS_SCHEMA), len(kept)), np.int64)
    names = GPU_OPERATIONS_SCHEMA.names
    marked = ("rank", rank), ("operation_id", kept), ("kind", int(_G.device_buffer)), ("peer", -1)
    for name, value in (*marked, ("kernel_id", -1), ("duration_ps", -1)):
        found[names.index(name)] = value
    return found


def _operations(workload: Workload, ranks: Sequence[_Rank], first: np.ndarray) -> pa.Table:
    """The table; what a cut trace does not have left is left out. Launches are numbered rank by rank."""
    columns = []
    for number, rank in enumerate(ranks):
        kept = rank.operation < workload.rank_offsets[number + 1] - workload.rank_offsets[number]
        launch = np.where(rank.launch > 0, rank.launch + first[number], 0)
        nothing = np.zeros(len(rank.operation), np.int64)
        values = (rank.operation, rank.kind, rank.stream, launch, rank.bytes, rank.event, rank.device, rank.peer,
                  rank.priority, rank.flags, nothing, nothing - 1, nothing - 1)  # fmt: skip
        columns.append(np.vstack((np.full(kept.sum(), number), *(each[kept] for each in values))))
        columns.append(_on_memory_of_gpus(workload, number, rank.on_device))
    found = np.hstack(columns)
    found = found[:, np.lexsort((found[1], found[0]))]
    arrays = [
        to_arrow(values.astype(field.type.to_pandas_dtype()))
        for values, field in zip(found, GPU_OPERATIONS_SCHEMA, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=GPU_OPERATIONS_SCHEMA)


def _phases(workload: Workload, operations: pa.Table, launches: pa.Table) -> dict[str, pa.Table]:
    """``phases``, ``phase_times``, ``counters`` and ``regions`` with a phase for each launch, behind the others of its
    operation, in its kernel's region. The trace does not say how long it takes."""
    found = {name: to_numpy(operations.column(name)) for name in ("rank", "operation_id", "launch_id")}
    chosen = np.isin(found["launch_id"], to_numpy(launches.column("launch_id")))
    rank, operation, launch = (found[name][chosen] for name in ("rank", "operation_id", "launch_id"))
    old = {name: workload.column("phases", name) for name in PHASES_SCHEMA.names}
    offsets = workload.rank_offsets
    place = np.concatenate((offsets[old["rank"]] + old["operation_id"], offsets[rank] + operation))
    order = np.argsort(place, kind="stable")
    names = workload.tables["regions"].column("name").to_pylist()
    kernel = launches.column("kernel_name").to_pylist()
    names += [name for name in dict.fromkeys(kernel) if name not in names]
    number = {name: row for row, name in enumerate(names)}
    row = np.searchsorted(to_numpy(launches.column("launch_id")), launch)
    own = {
        "rank": rank,
        "operation_id": operation,
        "kind": np.full(len(rank), PhaseKind.compute),
        "region_id": np.array([number[kernel[each]] for each in row.tolist()], np.int64),
        "duration_ps": np.zeros(len(rank), np.int64),
    }
    tables = {"phases": _joined(PHASES_SCHEMA, old, own, order)}
    tables["regions"] = pa.Table.from_arrays([text_array(names)], schema=SCHEMAS["regions"])
    if workload.tables["phase_times"].num_rows:
        times = {name: workload.column("phase_times", name) for name in PHASE_TIMES_SCHEMA.names}
        nothing = dict.fromkeys(times, np.zeros(len(rank), np.int64))
        tables["phase_times"] = _joined(PHASE_TIMES_SCHEMA, times, nothing, order)
    if workload.tables["counters"].num_rows:
        moved = np.empty(len(order), np.int64)
        moved[order] = np.arange(len(order))
        counters = workload.tables["counters"]
        column = to_arrow(moved[workload.column("counters", "phase_id")])
        tables["counters"] = counters.set_column(0, counters.schema.field(0), column)
    return tables


def _joined(schema: pa.Schema, old: dict[str, np.ndarray], new: dict[str, np.ndarray], order: np.ndarray) -> pa.Table:
    columns = [
        np.concatenate((old[field.name], new[field.name]))[order].astype(field.type.to_pandas_dtype())
        for field in schema
    ]
    return pa.Table.from_arrays(list(map(to_arrow, columns)), schema=schema)


def _notes(ranks: Sequence[_Rank]) -> list[Note]:
    notes = [
        replace(note, where=f"rank {number}") if len(ranks) > 1 else note
        for number, rank in enumerate(ranks)
        if rank.process is not None
        for note in notes_of(rank.process[1])
        if note.code != "cuda-several-gpus"  # each operation tells its own
    ]
    if count := sum(len(rank.on_device) for rank in ranks):
        text = (
            f"{count} MPI calls are on memory of GPUs: between GPUs of a node their messages take node.gpu.peer_link, "
            "where the target names one, and between nodes the network, past the memory of the hosts"
        )
        notes.append(informs("gpu-aware-mpi", text, count=count))
    return notes


def _on_launches(operations: pa.Table, known: Sequence[int]) -> list[Note]:
    launch = to_numpy(operations.column("launch_id"))
    launch = launch[launch > 0]
    notes = []
    if missing := int(np.count_nonzero(~np.isin(launch, known))):
        text = f"{missing} launches whose instructions are not there take no time"
        notes.append(changes("gpu-launches-left-out", text, count=missing, errs=Errs.short))
    return notes
