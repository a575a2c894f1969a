"""Workloads on disk, read and written."""

from __future__ import annotations

import json
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from manyscale.models.workload import REQUIRED_LEVELS, SCHEMAS, Workload, WorkloadError
from manyscale.models.workload.notes import Note, changes, from_json
from manyscale.models.workload.rules import RULES_VERSION
from manyscale.runner import limits
from manyscale.runner.errors import UserError
from manyscale.runner.plain_files import parse_json, read_json, refuse_special
from manyscale.runner.readers.archive import tar_members
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions
from manyscale.runner.readers.stores.detail_store import DetailStore
from manyscale.runner.readers.stores.launch_counts import COUNTED, CountedLaunches
from manyscale.runner.readers.stores.launch_store import StoredLaunch
from manyscale.runner.readers.stores.launches import LaunchStore
from manyscale.runner.readers.workload_folder.layout import (
    DETAIL,
    HEADER,
    LATER,
    LAUNCHES,
    TABLE,
    TEXTS_FOR_NOTES,
    VERSION,
)

NAME = "workload"


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS, *, verify: bool = True) -> Workload:
    """The workload of a folder or an archive (``options`` play no part: all is settled). With ``verify`` the tables are
    compared with their digest; those that broke no rule when they were written are not held to the rules again. Raises
    UserError for one that is incomplete, damaged or was changed."""
    header = path / HEADER if path.is_dir() else path
    try:
        members = {}
        if path.is_file():
            members = {_inside(name): stream.read() for name, stream in tar_members(path)}
        content = parse_json(members[HEADER]) if members else read_json(header)
        if content["version"] not in (VERSION, TEXTS_FOR_NOTES):
            raise UserError(
                f"{header}: version {content['version']} is not {VERSION}; convert the original trace again"
            )
        tables = {}
        for level in content["levels"]:
            name = f"{level}{TABLE}"
            source = pa.BufferReader(members[name]) if members else pa.memory_map(str(refuse_special(path / name)))
            tables[level] = pa.ipc.open_file(source).read_all()
            if verify:
                tables[level].validate(full=True)
        earlier = {name: table for name, table in tables.items() if name in LATER and _lacks(table, name)}
        tables |= {name: _with_later(table, name) for name, table in earlier.items()}
        detail = None
        if content["has_detail"]:
            detail = _unpacked(members[DETAIL]) if members else DetailStore(path / DETAIL)
        launches = None
        if content.get("launches") or content.get("counted"):
            launches = _unpacked_launches(members) if members else _launches(path / LAUNCHES, content["launches"])
        workload = Workload(
            content["name"],
            content["num_ranks"],
            tables,
            _notes(content),
            content["source_format"],
            detail,
            launches,
            is_checked=content.get("rules") == RULES_VERSION,
        )
        digest = content["digest"]
    except (
        OSError,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        RecursionError,
        pa.ArrowException,
        WorkloadError,
    ) as error:
        limits.refuse(error, header, "read")
        raise UserError(f"{header}: the workload is damaged ({error}); convert the original trace again") from None
    if not verify:
        if not earlier:
            workload.__dict__["digest"] = digest  # where cached_property keeps it
    elif (workload.digest_with(earlier) if earlier else workload.digest) != digest:
        raise UserError(f"{header}: the tables were changed since they were written; convert the original trace again")
    return workload


def _lacks(table: pa.Table, name: str) -> bool:
    return all(column not in table.schema.names for column in LATER[name])


def _with_later(table: pa.Table, name: str) -> pa.Table:
    """With the columns that the table did not have when it was written."""
    for column, value in LATER[name].items():
        field = SCHEMAS[name].field(column)
        table = table.append_column(field, pa.array(np.full(table.num_rows, value), field.type))
    return table.select(SCHEMAS[name].names)


def _notes(content: Mapping[str, Any]) -> tuple[Note, ...]:
    """What an earlier version wrote as texts may have changed the number: it does not say."""
    if content["version"] == TEXTS_FOR_NOTES:
        return tuple(changes("note-without-code", str(text)) for text in content["notes"])
    return from_json(json.dumps(content["notes"]))


def _unpacked(stream: bytes) -> DetailStore:
    folder = Path(tempfile.mkdtemp(prefix="manyscale-detail-"))
    try:
        (folder / DETAIL).write_bytes(stream)
        store = DetailStore(folder / DETAIL)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(store, shutil.rmtree, folder, True)
    return store


def _inside(name: str) -> str:
    """The name of an archive's member, below the folder that was archived."""
    parts = name.split("/")
    return "/".join(parts[-3:]) if LAUNCHES in parts[-3:-2] else parts[-1]


def _launches(folder: Path, launch_ids: Iterable[int]) -> LaunchStore:
    counted = CountedLaunches(folder / COUNTED) if (folder / COUNTED).is_dir() else None
    return LaunchStore({launch_id: StoredLaunch(folder / str(launch_id)) for launch_id in launch_ids}, counted)


def _unpacked_launches(members: Mapping[str, bytes]) -> LaunchStore:
    folder = Path(tempfile.mkdtemp(prefix="manyscale-launches-"))
    try:
        files = {name: stream for name, stream in members.items() if name.startswith(f"{LAUNCHES}/")}
        for name, stream in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(stream)
        store = _launches(
            folder / LAUNCHES, sorted({int(number) for name in files if (number := name.split("/")[1]) != COUNTED})
        )
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(store, shutil.rmtree, folder, True)
    return store


def write(workload: Workload, path: Path, *, compression: str | None = "zstd", links: bool = False) -> None:
    """Write a workload; the header last, so that a folder without it is incomplete. ``links``: files of launches are
    linked, not copied, where the file system can: whoever made them takes them away."""
    path.mkdir(parents=True, exist_ok=True)
    options = pa.ipc.IpcWriteOptions(compression=compression, unify_dictionaries=True)
    if isinstance(workload.detail, DetailStore) and workload.detail.path != path / DETAIL:
        workload.detail.copy(path / DETAIL)
    launch_ids: tuple[int, ...] = ()
    if isinstance(workload.gpu, LaunchStore):
        launch_ids = workload.gpu.launch_ids
        workload.gpu.copy(path / LAUNCHES, links=links)
    levels = [level for level in SCHEMAS if level in REQUIRED_LEVELS or workload.tables[level].num_rows]
    for level in levels:
        table = workload.tables[level]
        with (
            pa.OSFile(str(path / f"{level}{TABLE}"), "wb") as sink,
            pa.ipc.new_file(sink, table.schema, options=options) as writer,
        ):
            writer.write_table(table)
    content = {
        "version": VERSION,
        "name": workload.name,
        "num_ranks": workload.num_ranks,
        "source_format": workload.source_format,
        "notes": [asdict(note) for note in workload.notes],
        "levels": levels,
        "has_detail": workload.detail is not None,
        "launches": list(launch_ids),
        "counted": workload.gpu is not None and len(workload.gpu.counted_ids),
        "rules": RULES_VERSION,  # that hold in the tables: who reads them unchanged need not check them again
        "digest": workload.digest,
    }
    (path / HEADER).write_text(json.dumps(content, indent=1) + "\n")
