"""Run directories at an address. A run is written in its copy on this machine, and published from there; whoever asks
a run gets it copied first.

What grows while a run goes on (the journals) is published in pieces, each an object with the lines of some seconds,
since objects cannot be appended to: ``units.jsonl.parts/ATTEMPT-NUMBER``. At its end the whole takes their place. All
other files follow then: first those that it consists of, then ``files.json`` with their sizes and checksums, and
``manifest.json`` as the last one: a run of which it says "complete" is there as a whole. Points of a sweep are
published where they are written; ``points.jsonl`` has their checksums.

A process that writes holds a lock on this machine's copy, and who reads on the same machine reads what is written. At
the address it holds a lease (``lease.py``), which keeps other machines from writing there.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from manyscale.runner import kept
from manyscale.runner.errors import UserError
from manyscale.runner.storage.address import Place, copies_of, origin, parsed
from manyscale.runner.storage.locks import alone_in, locked, writing

if TYPE_CHECKING:
    from manyscale.runner.storage.remote import Entry, Remote

INDEX: Final = "files.json"
MANIFEST: Final = "manifest.json"
GROWING: Final = ("units.jsonl", "points.jsonl")
PARTS: Final = ".parts"
POINTS: Final = "points"
SECONDS_BETWEEN: Final = 5.0  # pieces of journals
_BEGIN: Final = ("resolved.yaml", "status.json")  # what a run that goes on has, beside its manifest

_fetched: Final[set[Path]] = set()  # in this process


# Reading


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
        _say(f"{self._source.place(entry.name)}: is damaged (its checksum differs) and is left out")

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
            _replace(path, b"".join(lines))
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


def _replace(path: Path, content: bytes) -> None:
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
    _say(f"{origin(path)}: is damaged; the files of the run are taken as they are")
    return {}


def _say(line: str) -> None:
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


# Writing


class _Publication:
    """What of a run directory is at its address by now. ``end`` is called once; a thread calls ``_tick`` until then."""

    def __init__(self, directory: Path, place: Place) -> None:
        from manyscale.runner.storage.lease import Lease
        from manyscale.runner.storage.remote import remote

        self._directory, self._target = directory, remote(place.url)
        self._below = f"{place.name}/" if place.name else ""
        self._lease = Lease(self._target, copies_of(parsed(place.url)).parent)
        self._attempt = f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}"
        self._put: dict[str, tuple[int, int, int]] = {}  # by name: inode, bytes, time of change
        self._grown: dict[str, tuple[int, int]] = {}  # by name: inode, bytes that are in pieces
        self._pieces: list[str] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="publication", daemon=True)
        self._is_told = False

    def begin(self) -> None:
        """Raises UserError where another process writes the run, or has written it since it was read."""
        self._lease.take()
        try:
            path, there = self._directory / MANIFEST, self._target.read(self._below + MANIFEST)
            if there is not None and not (path.is_file() and path.read_bytes() == there):
                raise UserError(
                    f"{self._target.address.url}: another process has written there meanwhile; give the command again"
                )
        except BaseException:
            self._lease.leave()
            raise
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.wait(SECONDS_BETWEEN) and not self._lease.is_lost:
            try:
                self._tick()
            except (UserError, OSError) as error:
                if not self._is_told:
                    _say(f"{error}" if self._lease.is_lost else f"{error}; it is tried again")
                self._is_told = True

    def _tick(self) -> None:
        self._lease.check()
        for name in _BEGIN:
            self._put_if_new(name)
        self._tell_that_it_runs()
        for name in GROWING:
            self._put_lines(name)

    def _put_if_new(self, name: str) -> None:
        path = self._directory / name
        try:
            status = os.stat(path)
        except FileNotFoundError:
            return
        stamp = status.st_ino, status.st_size, status.st_mtime_ns
        if self._put.get(name) != stamp:
            self._target.put(self._below + name, path)
            self._put[name] = stamp

    def _tell_that_it_runs(self) -> None:
        """Publish the manifest of a run that goes on, once; of one that has ended it follows when all else is there."""
        if MANIFEST in self._put:
            return
        try:
            content = (self._directory / MANIFEST).read_bytes()
            if json.loads(content)["status"] == "running":
                self._target.put(self._below + MANIFEST, content)
                self._put[MANIFEST] = (0, 0, 0)
        except (FileNotFoundError, ValueError, KeyError):
            return

    def _put_lines(self, name: str) -> None:
        path = self._directory / name
        try:
            with path.open("rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                known, begin = self._grown.get(name, (inode, 0))
                begin = begin if known == inode else 0  # it was written anew
                file.seek(begin)
                content = file.read()
        except FileNotFoundError:
            return
        content = content[: content.rfind(b"\n") + 1]
        if content:
            piece = f"{self._below}{name}{PARTS}/{self._attempt}-{len(self._pieces):06d}"
            self._target.put(piece, content)
            self._pieces.append(piece)
            self._grown[name] = inode, begin + len(content)

    def end(self) -> None:
        """Publish all that is left, the manifest last; or, of a run that was taken back, nothing. Raises UserError."""
        self._ends.set()
        self._thread.join()
        try:
            self._publish_rest()
        finally:
            self._lease.leave()

    def _publish_rest(self) -> None:
        from manyscale.runner.storage.remote import PROBE, side_by_side

        self._lease.check()
        if not _files(self._directory):
            for name in [*(self._below + each for each in self._put), *self._pieces, f"{self._below}{PROBE}"]:
                self._target.remove(name)
            return
        names = [name for name in _files(self._directory) if name not in (MANIFEST, INDEX)]
        for _ in side_by_side(self._put_if_new, names):
            pass
        for name in self._put.keys() - {*names, MANIFEST}:  # it told of the run while that went on
            self._target.remove(self._below + name)
        index = {name: _size_and_checksum(self._directory / name) for name in names}
        _replace(
            self._directory / INDEX,
            json.dumps({"files": index, "check": kept.checksum_of_text(json.dumps(index))}, indent=1).encode(),
        )
        self._put_if_new(INDEX)
        for entry in self._target.entries(self._below.rstrip("/")):
            if entry.name.removeprefix(self._below).startswith(tuple(f"{name}{PARTS}/" for name in GROWING)):
                self._target.remove(entry.name)
        self._lease.check()
        self._put_if_new(MANIFEST)  # where there is one: results of other commands have none


def _files(directory: Path) -> list[str]:
    """Names of the files of a run, without those of its points."""
    found = []
    for folder, folders, names in os.walk(directory):
        here = Path(folder).relative_to(directory)
        folders[:] = [name for name in folders if not name.startswith(".") and (here, name) != (Path(), POINTS)]
        found += [(here / name).as_posix() for name in names if not name.startswith(".")]
    return sorted(found)


def _size_and_checksum(path: Path) -> tuple[int, str]:
    return path.stat().st_size, kept.checksum(path)


@contextmanager
def published(directory: Path) -> Iterator[None]:
    """Be the one process that writes a run, and while it is written in a copy, publish it. Raises UserError if another
    process writes it, here or on another machine, or if it cannot be published."""
    place = origin(directory)
    if place is None:
        with alone_in(directory) as is_mine:
            if not is_mine:
                raise UserError(f"{directory}: another process writes there; wait, or name another folder with -o")
            yield
        return
    root = copies_of(parsed(place.url))
    with writing(root) as is_mine:
        if not is_mine:
            raise UserError(
                f"{place}: another process of this machine writes there; wait, or name another place with -o"
            )
        publication = _Publication(directory, place)
        publication.begin()
        try:
            yield
        except BaseException:
            try:
                publication.end()
            except (UserError, OSError) as error:  # what ended the run is told, too
                _say(str(error))
            raise
        publication.end()


def publish_point(folder: Path) -> None:
    """Put the files of a sweep's point to where its folder is copied from, those that tell of the others last; nothing
    for a path of this machine alone. Raises UserError."""
    place = origin(folder)
    if place is None:
        return
    from manyscale.runner.storage.remote import remote, side_by_side

    target = remote(place.url)
    names = _files(folder)
    last = [name for name in names if name in ("stats.json", MANIFEST)]
    for _ in side_by_side(
        lambda name: target.put(f"{place.name}/{name}", folder / name), [name for name in names if name not in last]
    ):
        pass
    for name in sorted(last, reverse=True):
        target.put(f"{place.name}/{name}", folder / name)


def prepare(directory: Path, *, resume: bool) -> bool:
    """Make ready to write a run at an address: bring what is there of one that is resumed, or clear this machine's
    copy. Whether something is there. Raises UserError where it cannot be written."""
    place = origin(directory)
    assert place is not None
    from manyscale.runner.storage.remote import remote

    target = remote(place.url)
    target.check()
    if resume:
        fetch(directory)
        return True
    is_taken = bool(target.entries(place.name))
    if not is_taken:
        with writing(copies_of(parsed(place.url))) as is_mine:
            if is_mine:
                shutil.rmtree(directory, ignore_errors=True)
    return is_taken
