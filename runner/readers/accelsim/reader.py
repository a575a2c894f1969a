"""What an Accel-Sim trace holds, as a workload: the launches of its list, from the cache or read now."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import Workload
from manyscale.models.workload.columns import to_arrow
from manyscale.models.workload.gpu_tables import COPIES_SCHEMA, LAUNCHES_SCHEMA
from manyscale.models.workload.notes import Errs, Note, changes, from_json, informs
from manyscale.runner import kept
from manyscale.runner.cache import default_cache
from manyscale.runner.errors import UserError
from manyscale.runner.readers.accelsim.launch import READER_VERSION, read_launch
from manyscale.runner.readers.accelsim.lists import Commands, commands_of, named
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions
from manyscale.runner.readers.rank_tables import rank_tables
from manyscale.runner.readers.stores.launch_store import VERSION, StoredLaunch
from manyscale.runner.readers.stores.launches import LaunchStore, launches_table

NAME: Final = "accelsim"


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The workload of a trace; of a list, the launches that ``options`` choose. Raises UserError with file and line."""
    commands = commands_of(path)
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
    notes = (*_notes_on_list(commands), *_notes(launches))
    return Workload(name, 1, tables, notes, NAME, gpu=LaunchStore(launches))


def _chosen(commands: Commands, wanted: Iterable[int] | None) -> list[int]:
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
    return StoredLaunch(folder) if kept.is_whole(folder) else read_launch(file, folder)


def _key(file: Path) -> str:
    state = hashlib.blake2b(f"{READER_VERSION} {VERSION}".encode(), digest_size=20)
    try:
        with file.open("rb") as stream:
            while block := stream.read(1 << 22):
                state.update(block)
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror or error})") from None
    return state.hexdigest()


def _notes_on_list(commands: Commands) -> list[Note]:
    found = []
    if number := commands.other.total():
        text = f"{number} lines are neither launches nor MemcpyHtoD, left out: {named(commands.other)}"
        found.append(changes("commands-left-out", text, commands.source.name, number, Errs.short))
    if commands.moved:
        text = (
            f"{commands.moved} traces do not exist where the list names them: those of the same name beside it are read"
        )
        found.append(informs("traces-beside-the-list", text, commands.source.name, commands.moved))
    return found


def _notes(launches: dict[int, StoredLaunch]) -> list[Note]:
    """What the launches' traces hold that is not known or not kept, over all of them."""
    unknown: Counter[str] = Counter()
    newer: Counter[str] = Counter()
    other: Counter[str] = Counter()
    notes: Counter[Note] = Counter()
    for launch in launches.values():
        unknown.update(launch.head["unknown_opcodes"])
        newer.update(launch.head["newer_opcodes"])
        other.update(launch.head["other_lines"])
        notes.update(from_json(launch.head["notes"]))
    found = []
    if unknown:
        text = f"opcodes in no table, classed by their names' families: {named(unknown)}"
        found.append(changes("unknown-opcodes", text, count=unknown.total()))
    if newer:
        text = f"opcodes newer than the binary version of their launch, classed all the same: {named(newer)}"
        found.append(informs("newer-opcodes", text, count=newer.total()))
    if other:
        text = f"lines of keys that are not known, left out: {named(other)}"
        found.append(changes("unknown-keys", text, count=other.total()))
    return found + [
        replace(note, text=f"{note.text} ({count} launches)", count=count)
        for note, count in sorted(notes.items(), key=lambda item: item[0].text)
    ]
