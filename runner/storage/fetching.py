"""Bring run directories, and traces, from addresses to their copies on this machine.

A run is whole at its address when ``manifest.json`` says "complete"; ``files.json`` has sizes and checksums of its
files, ``points.jsonl`` those of a sweep's points. Of a run that goes on, journals stand there in pieces
(``publishing``).
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from manyscale.runner import kept
from manyscale.runner.errors import UserError
from manyscale.runner.storage.address import copies_of, origin, parsed
from manyscale.runner.storage.locks import locked

if TYPE_CHECKING:
    from manyscale.runner.storage.remote import Entry, Remote

INDEX: Final = "files.json"
GROWING: Final = ("units.jsonl", "points.jsonl")
PARTS: Final = ".parts"
POINTS: Final = "points"

_fetched: Final[set[Path]] = set()  # in this process


def fetch(directory: Path, *, again: bool = False) -> None:
    """Bring this machine's copy of a run directory, of a point of a sweep with what it needs of that, or of a folder of
    runs up to date, once in a process or ``again``. What is damaged there is told and left out. Nothing for a path of
    this machine alone. Raises UserError."""
    place = origin(directory)
    if place is None or (not again and _is_fetched(directory)):
        return
    from manyscale.runner.storage.remote import remote

    root = copies_of(parsed(place.url))
    with locked(root, "reading", waits=True), locked(root, "writing") as is_free:
        if is_free:  # else it is being written here
            _Fetching(remote(place.url), root, place.name).run()
    _fetched.add(directory)


def _is_fetched(directory: Path) -> bool:
    """Whether this process has brought it, or all of what it is in: a sweep of many points is listed once."""
    return directory in _fetched or (directory.exists() and not _fetched.isdisjoint(directory.parents))


class _Fetching:
    def __init__(self, source: Remote, root: Path, below: str) -> None:
        self._source, self._root, self._below = source, root, below
        self._sums: dict[str, str] = {}

    def run(self) -> None:
        from manyscale.runner.storage.remote import side_by_side

        is_point = self._below.startswith(f"{POINTS}/")
        there = {entry.name: entry for entry in self._source.entries("" if is_point else self._below)}
        if is_point:  # its own files, and those of the sweep itself
            there = {name: each for name, each in there.items() if _is_of_point(name, self._below)}
        parts = sorted(name for name in there if f"{PARTS}/" in name)
        for name in parts:
            del there[name]
        first = [name for name in there if PurePosixPath(name).name in (INDEX, *GROWING)]
        for _ in side_by_side(lambda name: self.bring(there[name]), first):
            pass
        grown = self._append(parts, there)
        for name in {*first, *grown}:
            self._read_sums(name)
        for _ in side_by_side(lambda name: self.bring(there[name]), [name for name in there if name not in first]):
            pass
        self._remove_others({*there, *grown})

    def bring(self, entry: Entry) -> None:
        path, expected = self._root / entry.name, self._sums.get(entry.name)
        with suppress(OSError):
            status = os.stat(path)
            if status.st_size == entry.num_bytes and (
                status.st_mtime_ns == entry.changed_ns if expected is None else kept.checksum(path) == expected
            ):
                return
        for _ in range(2):  # was it the object, or the way here?
            if not self._source.get(entry.name, path):
                return
            if expected is None or kept.checksum(path) == expected:
                os.utime(path, ns=(entry.changed_ns, entry.changed_ns))
                return
        path.unlink(missing_ok=True)
        say(f"{self._source.place(entry.name)}: is damaged (its checksum differs) and is left out")

    def _read_sums(self, name: str) -> None:
        path = PurePosixPath(name)
        prefix = "" if str(path.parent) == "." else f"{path.parent}/"
        if path.name == INDEX:
            self._sums |= {f"{prefix}{each}": check for each, check in _index(self._root / name).items()}
        elif path.name == "points.jsonl":
            for line in (self._root / name).read_text(errors="replace").splitlines():
                with suppress(ValueError, KeyError, TypeError, AttributeError):
                    point = json.loads(line)
                    folder = f"{prefix}{POINTS}/{point['point']:04d}"
                    self._sums |= {f"{folder}/{each}": str(check) for each, check in point["files"].items()}

    def _append(self, parts: Sequence[str], there: Mapping[str, Entry]) -> set[str]:
        """Put the lines of pieces behind those of the whole, as far as they are not there; the files that grew so."""
        pieces: dict[str, list[str]] = {}
        for name in parts:
            pieces.setdefault(name.partition(f"{PARTS}/")[0], []).append(name)
        for name, mine in pieces.items():
            path = self._root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            lines = path.read_bytes().splitlines(keepends=True) if name in there and path.is_file() else []
            seen = set(lines)
            for piece in mine:
                lines += [
                    line for line in (self._source.read(piece) or b"").splitlines(keepends=True) if line not in seen
                ]
            replace_content(path, b"".join(lines))
        return set(pieces)

    def _remove_others(self, names: set[str]) -> None:
        """What stands in the copy alone is of a former run."""
        begin = self._root / self._below if self._below else self._root
        for path in sorted(begin.rglob("*"), reverse=True):
            if path.is_dir() and not path.is_symlink():
                with suppress(OSError):  # it is not empty
                    path.rmdir()
            elif path.relative_to(self._root).as_posix() not in names:
                path.unlink(missing_ok=True)


def _is_of_point(name: str, folder: str) -> bool:
    return "/" not in name or name.startswith((f"{folder}/", *(f"{each}{PARTS}/" for each in GROWING)))


def replace_content(path: Path, content: bytes) -> None:
    """Write a file, which appears when it is whole."""
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _index(path: Path) -> dict[str, str]:
    """Checksums by name; none of a file that is damaged."""
    try:
        content = json.loads(path.read_bytes())
        files = content["files"]
        if content["check"] == kept.checksum_of_text(json.dumps(files)):
            return {str(name): str(check) for name, (_size, check) in files.items()}
    except (OSError, ValueError, KeyError, TypeError):
        pass
    say(f"{origin(path)}: is damaged; the files of the run are taken as they are")
    return {}


def say(line: str) -> None:
    """Tell the user."""
    print(f"manyscale: {line}", file=sys.stderr, flush=True)


def fetched_trace(text: str) -> Path:
    """The copy of a trace at an address, a file with those beside it that are read with it, or a folder. Raises
    UserError."""
    from manyscale.runner.storage.remote import remote

    address = parsed(text)
    if not address.prefix:
        raise UserError(f"{address.url}: is a bucket; name a trace in it")
    plain, _, query = address.url.partition("?")
    above, name = plain.rpartition("/")[0], address.prefix.rpartition("/")[2]
    root = copies_of(parsed(f"{above}?{query}" if query else above))
    folder = remote(str(origin(root)))
    if not remote(address.url).is_file():
        fetch(root / name)
        return root / name
    beside = [name]
    stem = name.removesuffix(".gz")
    if stem.endswith(".prv"):
        beside += [stem.removesuffix(".prv") + suffix for suffix in (".pcf", ".row")]
    for each in beside:
        entry = folder.entry(each)
        if entry is not None:
            _Fetching(folder, root, "").bring(entry)
    return root / name
