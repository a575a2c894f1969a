"""What the tracer recorded of a CUDA program, as a workload."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
import weakref
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import Workload
from manyscale.models.workload.columns import to_arrow
from manyscale.models.workload.gpu_tables import COPIES_SCHEMA, LAUNCHES_SCHEMA
from manyscale.models.workload.instruction_details import KINDS, InstructionDetails
from manyscale.models.workload.launch_trace import StaticInstructions
from manyscale.models.workload.notes import Errs, Note, changes, informs, to_json
from manyscale.runner.errors import UserError
from manyscale.runner.readers.bounds import MOST, whole
from manyscale.runner.readers.cuda.lanes import Recorded, RecordedLaunches
from manyscale.runner.readers.cuda.layout import EVENTS, KERNELS, PROCESS, STATIC_COLUMNS, STATICS
from manyscale.runner.readers.cuda.records import block_batches
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions
from manyscale.runner.readers.rank_tables import rank_tables
from manyscale.runner.readers.stores.launch_store import LaunchWriter, StoredLaunch, launches_table

NAME: Final = "cuda"
MOST_OF_COLUMN: Final = 2**31 - 1  # of the table of launches


@dataclass(frozen=True)
class _Launch:
    launch_id: int
    kernel: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared: int
    stream: int
    is_whole: bool


@dataclass
class Events:
    """What the text of a process says. ``copies``: (launch that follows, address, bytes)."""

    path: Path
    launches: list[_Launch] = field(default_factory=list)
    copies: list[tuple[int, int, int]] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    is_ended: bool = False


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The workload, with the launches that ``options`` choose. Raises UserError with file and place."""
    processes = sorted(each for each in path.glob(PROCESS) if (each / EVENTS).is_file())
    if not processes:
        raise UserError(f"{path}: no process used the GPU; is it another program that does, or one of a script's?")
    if len(processes) > 1:
        raise UserError(f"{path}: {len(processes)} processes used the GPU; trace one of them at a time")
    events = events_of(processes[0] / EVENTS)
    if not events.launches:
        raise UserError(f"{path}: the program launched no kernel{_last(events)}")
    chosen = {launch.launch_id: launch.launch_id for launch in _chosen(events, options)}
    store = store_of(path, [(processes[0], events, chosen)])
    tables = rank_tables(1, {}) | gpu_tables(store, np.array(events.copies, np.int64).reshape(-1, 3))
    return Workload(path.resolve().name, 1, tables, tuple(notes_of(events)), NAME, gpu=store)


def store_of(path: Path, processes: Sequence[tuple[Path, Events, Mapping[int, int]]]) -> RecordedLaunches:
    """The launches of processes, in a temporary folder: of each its folder, its events, and the number that each of its
    launches that are chosen has in the workload. Raises UserError."""
    kernels = _kernels(path)
    folder = Path(tempfile.mkdtemp(prefix="manyscale-launches-"))
    launches: dict[int, StoredLaunch] = {}
    recorded: dict[int, Recorded] = {}
    try:
        for process, events, chosen in processes:
            for launch in events.launches:
                number = chosen.get(launch.launch_id)
                stored = None if number is None else _stored(launch, kernels, process, folder / str(number))
                if number is None or stored is None:
                    continue
                listed = tuple(kernels[launch.kernel][0].get("listed", ()))
                lanes = process / f"launch-{launch.launch_id}.lanes"
                launches[number], recorded[number] = stored, Recorded(lanes, listed)
        if not launches:
            raise UserError(
                f"{path}: no launch completed a block{''.join(_last(events) for _, events, _ in processes)}"
            )
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    store = RecordedLaunches(launches, recorded)
    weakref.finalize(store, shutil.rmtree, folder, True)
    return store


def gpu_tables(store: RecordedLaunches, copies: np.ndarray) -> dict[str, pa.Table]:
    """``launches`` and ``copies``; ``copies`` int64[n, 3]: launch that follows, address, bytes."""
    columns = [to_arrow(copies[:, 0].astype(np.int32)), to_arrow(copies[:, 1]), to_arrow(copies[:, 2])]
    return {
        "launches": launches_table(LAUNCHES_SCHEMA, {each: store.stored(each) for each in store.launch_ids}),
        "copies": pa.Table.from_arrays(columns, schema=COPIES_SCHEMA),
    }


def _chosen(events: Events, options: ReadOptions) -> list[_Launch]:
    known = {launch.launch_id: launch for launch in events.launches}
    wanted = sorted(set(options.launches or known))
    missing = [each for each in wanted if each not in known]
    if missing:
        raise UserError(f"{events.path}: has no launch {missing[0]}; its launches are 1 to {len(known)}")
    return [known[each] for each in wanted]


def _kernels(path: Path) -> list[tuple[dict[str, Any], StaticInstructions]]:
    try:
        described = json.loads((path / KERNELS).read_text())
        with np.load(path / STATICS, allow_pickle=False) as stored:
            columns = {name: stored[name].astype(kind) for name, kind in STATIC_COLUMNS.items()}
            known = {name: stored[name].astype(kind) for name, kind in KINDS.items() if name in stored}
        found, first = [], 0
        for each in described:
            end = first + int(each["rows"])
            rows = {name: values[first:end] for name, values in columns.items()}
            if len(each.get("listed", ())) not in (0, end - first):
                raise ValueError(f"{end - first} instructions are listed")
            if not isinstance(each["name"], str):
                raise ValueError("a kernel's name is no text")
            for name in ("shared_bytes", "registers", "architecture"):
                each[name] = whole(each[name], path / KERNELS, name, most=MOST_OF_COLUMN)
            details = _details(each, known, first, end) if "texts" in each else None
            found.append((each, StaticInstructions(tuple(each["opcodes"]), **rows, details=details)))
            first = end
        if any(len(values) != first for values in (columns | known).values()):
            raise ValueError(f"{first} rows are expected")
    except (OSError, ValueError, KeyError, TypeError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        told = str(error).splitlines()[0][:100]
        raise UserError(f"{path}: {KERNELS} or {STATICS} is damaged ({told}); trace the program again") from None
    return found


def _details(described: dict[str, Any], columns: dict[str, np.ndarray], first: int, end: int) -> InstructionDetails:
    """Raises ValueError where they are not of as many instructions."""
    texts = {"text": described["texts"], "listed": described["listed"]}
    if any(len(each) != end - first for each in texts.values()):
        raise ValueError(f"texts of {end - first} instructions are expected")
    rows: dict[str, Any] = {name: values[first:end] for name, values in columns.items()}
    rows |= {name: tuple(map(str, each)) for name, each in texts.items()}
    found = InstructionDetails(files=tuple(map(str, described["files"])), **rows)
    if end > first and int(found.source_file.max()) >= len(found.files):
        raise ValueError("a file of source has no name")
    return found


def _stored(
    launch: _Launch, kernels: list[tuple[dict[str, Any], StaticInstructions]], process: Path, folder: Path
) -> StoredLaunch | None:
    """The launch, written to ``folder``; None of one that stopped before it completed a block."""
    if not 0 <= launch.kernel < len(kernels):
        raise UserError(f"{process / EVENTS}: launch {launch.launch_id} is of a kernel that {KERNELS} does not have")
    described, static = kernels[launch.kernel]
    writer = LaunchWriter(folder)
    try:
        record = process / f"launch-{launch.launch_id}"
        for blocks in block_batches(record, len(static.pc)):
            writer.add(blocks)
        if writer.num_blocks != math.prod(launch.grid) and launch.is_whole:
            raise UserError(f"{record}: holds {writer.num_blocks} blocks of {math.prod(launch.grid)}; trace it again")
        if not writer.num_blocks:
            return None
        head = {
            "kernel_name": described["name"],
            "grid": list(launch.grid),
            "block": list(launch.block),
            "shared_bytes": described["shared_bytes"] + launch.dynamic_shared,
            "registers": described["registers"],
            "binary_version": described["architecture"],
            "stream": launch.stream,
            "notes": to_json(()),
        }
        return writer.close(static, head)
    finally:
        writer.abandon()


def events_of(path: Path) -> Events:
    """Raises UserError with the line that is no event."""
    found = Events(path)
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from None
    for number, line in enumerate(lines, 1):
        words = line.split(" ")
        try:
            _add(found, words, f"{path}:{number}")
        except (ValueError, IndexError):
            raise UserError(f"{path}:{number}: {line[:60]!r} is no event; trace the program again") from None
    return found


def _add(found: Events, words: list[str], place: str) -> None:
    if words[0] == "launch":
        launch_id, kernel, *shape, shared, stream = (
            whole(word, place, "a launch", most=MOST_OF_COLUMN if k < 9 else MOST) for k, word in enumerate(words[1:11])
        )
        grid, block = (shape[0], shape[1], shape[2]), (shape[3], shape[4], shape[5])
        found.launches.append(_Launch(launch_id, kernel, grid, block, shared, stream, words[12] == "whole"))
    elif words[0] == "copy":
        before, address, size = (whole(word, place, "a copy") for word in words[1:4])
        found.copies.append((min(before, MOST_OF_COLUMN), address, size))
    elif words[0] == "note":
        found.notes.append(_note(words[1], whole(words[2], place, "a note's count"), " ".join(words[3:])))
    elif words[0] == "problem":
        found.problems.append(" ".join(words[2:]))
    elif words[0] == "end":
        found.is_ended = True
    elif words[0] != "profiler":
        raise ValueError


def _last(events: Events) -> str:
    if any(note.code == "cuda-undocumented-tables" for note in events.notes) and not events.problems:
        return (
            " (a library of it has a CUDA runtime of its own, which is linked statically and cannot be traced; use one "
            "that is linked with the shared runtime or calls the driver)"
        )
    return f" ({events.problems[-1]})" if events.problems else ""


def notes_of(events: Events) -> list[Note]:
    """What is to be said of a process."""
    found: list[Note] = []
    for problem in events.problems:
        text = f"a launch stopped, and everything after it failed: {problem}"
        found.append(changes("cuda-launch-stopped", text, errs=Errs.short))
    if not events.is_ended:
        text = "the program did not end by itself: what it did after its last launch is not there"
        found.append(changes("cuda-program-ended-early", text, errs=Errs.short))
    return found + events.notes


def _note(code: str, count: int, name: str) -> Note:
    if code == "cuda-not-supported":
        text = f"{name} is not supported: {count} calls failed, and what the program did instead was traced"
        return changes("cuda-not-supported", text, count=count)
    if code == "cuda-kernel-not-run":
        text = f"kernel {name} was not run: {count} launches of it failed"
        return changes("cuda-kernel-not-run", text, count=count, errs=Errs.short)
    if code == "cuda-managed-memory":
        text = f"{count} allocations of managed memory: no pages are moved between host and GPU"
        return changes("cuda-managed-memory", text, count=count, errs=Errs.short)
    if code == "cuda-outside-allocation":
        text = f"kernel {name} accesses memory that is not allocated, where hardware notices nothing"
        return informs("cuda-outside-allocation", text, count=count)
    if code == "cuda-system-functions":
        text = f"kernel {name} calls printf, malloc, free or assert of the system, which take no time here"
        return changes("cuda-system-functions", text, count=count, errs=Errs.short)
    if code == "cuda-undocumented-tables":
        text = f"{count} requests for tables of the driver that NVIDIA does not document were refused"
        return informs("cuda-undocumented-tables", text, count=count)
    if code == "cuda-host-times":
        text = f"{count} times between events are the host's, of the emulation: decisions that rest on them may differ"
        return informs("cuda-host-times", text, count=count)
    raise ValueError(code)
