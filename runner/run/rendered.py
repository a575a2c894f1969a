"""Traces and reports that an earlier run wrote of an equal result: copied from its directory, not made again.

A record in the cache says which files of a run directory show a result, with size, time and checksum of each. What they
show follows from the keys of the result's units, the resolved study and the code that writes them. Files that are gone,
damaged or were changed since are made again.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from manyscale.models.workload.notes import Note, to_json
from manyscale.runner import kept, limits
from manyscale.runner.run.pipeline import Simulated

_DRAW_WITH: Final = ("numpy", "pandas", "plotly", "pyarrow")


def key(simulated: Simulated, resolved: Mapping[str, Any], notes: Sequence[Note], writers: Sequence[str]) -> str:
    """Of everything that the files of a point follow from, and of the writers of these."""
    point = simulated.point
    units = [unit.key for stage in simulated.time_units.values() for unit in stage]
    content = {
        "workload": point.case.workload.digest,
        "units": [*units, *simulated.burst_keys, simulated.replay.key],
        "resolved": resolved,
        "axes": point.axes,
        "notes": to_json(notes),
        "writers": list(writers),
        "code": _code(),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


@cache
def _code() -> list[str]:
    """Sizes and times of all modules, and versions of the libraries that draw."""
    stamps = [
        f"{folder} {name} {status.st_size} {status.st_mtime_ns}"
        for package in ("models", "runner", "sampling")
        for folder, _, names in os.walk(sys.modules[f"manyscale.{package}"].__path__[0])
        if "__pycache__" not in folder
        for name in names
        if name.endswith((".py", ".css", ".js"))
        for status in [os.stat(os.path.join(folder, name))]
    ]
    return [*sorted(stamps), *map(_version, _DRAW_WITH)]


def _version(library: str) -> str:
    """ "none" of plotly, where it is not installed and pages have no charts."""
    try:
        return version(library)
    except PackageNotFoundError:
        return "none"


@dataclass(frozen=True)
class Record:
    """A record in the folder ``records`` of files that will stand at ``to``; ``name``: its ``key``."""

    records: Path
    name: str
    to: Path


def write(directory: Path, asked: Record, make: Callable[[Path], None]) -> None:
    """Copy the files of a record into ``directory``, or ``make`` them there and leave a record."""
    record = asked.records / f"{asked.name}.json"
    if _copy(record, directory):
        return
    with tempfile.TemporaryDirectory(dir=directory, prefix=".traces-") as scratch:
        make(Path(scratch))
        files = {file.name: [*_stamp(file), kept.checksum(file)] for file in sorted(Path(scratch).iterdir())}
        for file in files:
            os.replace(Path(scratch, file), directory / file)
    with kept.written(record) as made:
        made.write_text(json.dumps({"directory": str(asked.to.absolute()), "files": files}))


def _copy(record: Path, directory: Path) -> bool:
    content = kept.mapped(record)
    if content is None:
        return False
    known = json.loads(content.to_pybytes())
    source = Path(known["directory"])
    try:
        if any(_stamp(source / name) != stamp for name, (*stamp, _) in known["files"].items()):
            return False
        for name, (*_, checksum) in known["files"].items():
            made, here = source / name, directory / name
            is_same = here.exists() and os.path.samefile(made, here)
            if (kept.checksum(here) if is_same else kept.copied(made, here)) != checksum:
                kept.tell(made, "is damaged")
                return False
    except OSError as error:  # what the record names is gone
        limits.refuse(error, directory, "written")
        return False
    return True


def _stamp(file: Path) -> list[int]:
    status = file.stat()
    return [status.st_size, status.st_mtime_ns]
