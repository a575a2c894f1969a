"""Reader for GPU traces of Accel-Sim's NVBit tracer, versions 1 to 6 (Khairy et al., ISCA 2020).

A trace is a folder with ``kernelslist.g``, which names a file for each launch (``kernel-1.traceg``, plain or compressed
by xz, gzip or zstd, whatever the list says) and what the host copied; the list itself; or one file of a launch. Files
are those of the post-processing (``.traceg``: warp by warp) or of the tracer itself (``.trace`` and ``kernelslist``:
in the order of arrival).

Each launch is stored, once read whole, in the user's cache under the hash of its file (``launch_store``): it is not
parsed again, and when a damaged file was mended only that is read. Memory is bounded by a million instructions and a
thread block; raw traces are held launch by launch.

The trace knows no time and no ranks: one rank with one ``other`` operation.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import Workload
from manyscale.models.workload.columns import to_arrow
from manyscale.models.workload.gpu_tables import COPIES_SCHEMA, LAUNCHES_SCHEMA
from manyscale.runner.cache import default_cache
from manyscale.runner.errors import UserError
from manyscale.runner.readers.accelsim.launch import READER_VERSION, read_launch
from manyscale.runner.readers.archive import read_head
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions
from manyscale.runner.readers.stacks.tables import rank_tables
from manyscale.runner.readers.stores.launch_store import (
    VERSION,
    LaunchStore,
    StoredLaunch,
    launches_table,
)

NAME: Final = "accelsim"
_LISTS: Final = ("kernelslist.g", "kernelslist")
_SUFFIXES: Final = ("", ".xz", ".gz", ".zst")
_TRACE_NAME: Final = re.compile(r"(.+\.traceg|kernel.*\.trace)(\.xz|\.gz|\.zst)?")
_COPY: Final = re.compile(r"MemcpyHtoD\s*,\s*(?:0[xX])?([0-9a-fA-F]{1,16})\s*,\s*(\d{1,18})")
_HEAD: Final = re.compile(rb"\s*-(kernel name|kernel id|grid dim|block dim) *=")
_LIST_LINE: Final = re.compile(rb"\s*(Memcpy\w+,|kernel\S*\.traceg?)")
_MAX_NAMED: Final = 5  # opcodes, keys or lines that a note lists


def can_read(path: Path) -> bool:
    """Whether the path is a folder with a list of kernels or with traces of kernels, such a list, or such a trace."""
    if path.is_dir():
        files = _trace_files(path)
        has_traces = bool(files) and bool(_HEAD.match(read_head(files[0], 256) or b""))
        return any((path / name).is_file() for name in _LISTS) or has_traces
    head = read_head(path, 256)
    if head is None:
        return False
    return bool(_HEAD.match(head)) or bool(_LIST_LINE.match(head) and "kernelslist" in path.name)


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The workload of a trace; of a list, the launches that ``options`` choose. Raises UserError with file and line."""
    commands = _commands(path)
    chosen = _chosen(commands, options.launches)
    launches = {launch_id: _launch(commands.files[launch_id - 1]) for launch_id in chosen}
    copies = np.array(commands.copies, np.int64).reshape(-1, 3)
    tables: dict[str, pa.Table] = rank_tables(1, {}) | {
        "launches": launches_table(LAUNCHES_SCHEMA, launches),
        "copies": pa.Table.from_arrays(
            [to_arrow(copies[:, 0].astype(np.int32)), to_arrow(copies[:, 1]), to_arrow(copies[:, 2])],
            schema=COPIES_SCHEMA,
        ),
    }
    name = (path if path.is_dir() else path.parent if commands.is_list else path).resolve().name
    name = name if path.is_dir() or commands.is_list else name.split(".")[0]
    notes = (*commands.notes, *_notes(launches))
    return Workload(name, 1, tables, notes, NAME, gpu=LaunchStore(launches))


@dataclass(frozen=True)
class _Commands:
    """What a list says: a trace file for each launch, with the list's line; copies (launch that follows, address,
    bytes)."""

    source: Path
    files: tuple[Path, ...]
    copies: tuple[tuple[int, int, int], ...] = ()
    notes: tuple[str, ...] = ()
    is_list: bool = True


def _trace_files(folder: Path) -> list[Path]:
    try:
        return sorted(file for file in folder.iterdir() if _TRACE_NAME.fullmatch(file.name) and file.is_file())
    except OSError as error:
        raise UserError(f"{folder}: cannot be read ({error.strerror or error})") from None


def _commands(path: Path) -> _Commands:
    if path.is_dir():
        for name in _LISTS:
            if (path / name).is_file():
                return _read_list(path / name)
        files = _trace_files(path)
        if len(files) != 1:
            raise UserError(
                f"{path}: has {len(files)} traces of kernels and no list of their order (kernelslist.g); "
                "copy the list that stood beside them, or name one trace"
            )
        return _Commands(files[0], (files[0],), is_list=False)
    head = read_head(path, 256) or b""
    if _HEAD.match(head) or not _LIST_LINE.match(head):
        return _Commands(path, (path,), is_list=False)
    return _read_list(path)


def _read_list(path: Path) -> _Commands:
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from None
    files, copies = [], []
    other: Counter[str] = Counter()
    for number, line in enumerate(text.splitlines(), 1):
        command = line.strip()
        if command.startswith("kernel"):
            files.append(_trace_file(path, number, command))
        elif command.startswith("MemcpyHtoD"):
            match = _COPY.fullmatch(command)
            if match is None:
                raise UserError(f"{path}:{number}: {command[:60]!r} is no 'MemcpyHtoD,0xADDRESS,BYTES'; mend the line")
            address = int(match[1], 16)
            copies.append((len(files) + 1, address - (address >> 63 << 64), int(match[2])))
        elif command:
            other[command.split(",")[0][:40]] += 1
    if not files:
        raise UserError(f"{path}: names no kernel; a line for each launch is expected, such as kernel-1.traceg")
    notes = []
    if other:
        number = sum(other.values())
        notes.append(f"{path.name}: {number} lines are neither launches nor MemcpyHtoD, left out: {_named(other)}")
    return _Commands(path, tuple(files), tuple(copies), tuple(notes))


def _trace_file(path: Path, number: int, name: str) -> Path:
    """The file that a list names, compressed or not."""
    plain = re.sub(r"\.(xz|gz|zst)$", "", name)
    for candidate in (name, *(plain + suffix for suffix in _SUFFIXES)):
        file = path.parent / candidate
        if file.is_file():
            return file
    raise UserError(
        f"{path}:{number}: names {name}, which does not stand beside it (nor compressed, as .xz, .gz or .zst); "
        "copy the file, or take the line out"
    )


def _chosen(commands: _Commands, wanted: Iterable[int] | None) -> list[int]:
    """The launches that are read: all, where none is named."""
    number = len(commands.files)
    chosen = sorted(set(wanted or range(1, number + 1)))
    missing = [launch_id for launch_id in chosen if not 1 <= launch_id <= number]
    if missing:
        raise UserError(f"{commands.source}: has no launch {missing[0]}; its launches are 1 to {number}")
    return chosen


def _launch(file: Path) -> StoredLaunch:
    """The launch of a trace file, from the cache if it was read before."""
    folder = default_cache() / "launches" / _key(file)
    if folder.is_dir():
        try:
            return StoredLaunch(folder)
        except UserError:  # damaged: read the trace itself again
            pass
    return read_launch(file, folder)


def _key(file: Path) -> str:
    state = hashlib.blake2b(f"{READER_VERSION} {VERSION}".encode(), digest_size=20)
    try:
        with file.open("rb") as stream:
            while block := stream.read(1 << 22):
                state.update(block)
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror or error})") from None
    return state.hexdigest()


def _notes(launches: dict[int, StoredLaunch]) -> list[str]:
    """What the launches' traces hold that is not known or not kept, over all of them."""
    unknown: Counter[str] = Counter()
    newer: Counter[str] = Counter()
    other: Counter[str] = Counter()
    notes: Counter[str] = Counter()
    for launch in launches.values():
        unknown.update(launch.head["unknown_opcodes"])
        newer.update(launch.head["newer_opcodes"])
        other.update(launch.head["other_lines"])
        notes.update(launch.head["notes"])
    found = []
    if unknown:
        found.append(f"opcodes in no table, classed by their names' families: {_named(unknown)}")
    if newer:
        found.append(f"opcodes newer than the binary version of their launch, classed all the same: {_named(newer)}")
    if other:
        found.append(f"lines of keys that are not known, left out: {_named(other)}")
    found += [f"{note} ({count} launches)" for note, count in sorted(notes.items())]
    return found


def _named(counts: Counter[str]) -> str:
    """The most frequent with their numbers: "FOO 12, BAR 3 and 2 more"."""
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    text = ", ".join(f"{name} {count}" for name, count in ranked[:_MAX_NAMED])
    return text if len(ranked) <= _MAX_NAMED else f"{text} and {len(ranked) - _MAX_NAMED} more"
