"""Publish run directories at their addresses. A run is written in its copy on this machine, and published from there;
whoever asks a run gets it copied first (``fetching``).

What grows while a run goes on (the journals) is published in pieces, each an object with the lines of some seconds,
since objects cannot be appended to: ``units.jsonl.parts/ATTEMPT-NUMBER``. At its end the whole takes their place. All
other files follow then: first those that it consists of, then ``files.json`` with their sizes and checksums, and
``manifest.json`` as the last one: a run of which it says "complete" is there as a whole. Points of a sweep are
published where they are written; ``points.jsonl`` has their checksums.

A process that writes holds a lock on this machine's copy, and who reads on the same machine reads what is written. At
the address it holds a lease (``lease.py``), which keeps other machines from writing there. Processes that write points
for it know the lease by the name of its claim, and ask for that before each of them.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from manyscale.runner import kept
from manyscale.runner.errors import UserError
from manyscale.runner.storage.address import Place, copies_of, origin, parsed
from manyscale.runner.storage.fetching import GROWING, INDEX, PARTS, POINTS, fetch, replace_content, say
from manyscale.runner.storage.locks import alone_in, writing

if TYPE_CHECKING:
    from manyscale.runner.storage.lease import Lease

MANIFEST: Final = "manifest.json"
SECONDS_BETWEEN: Final = 5.0  # pieces of journals
_BEGIN: Final = ("resolved.yaml", "status.json")  # what a run that goes on has, beside its manifest

_leases: Final[dict[str, Lease]] = {}  # that this process holds, by their claims


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

    def begin(self) -> str:
        """Take the lease, and return its claim. Raises UserError where another process writes the run, or has written
        it since it was read."""
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
        _leases[self._lease.claim] = self._lease
        return self._lease.claim

    def _run(self) -> None:
        while not self._ends.wait(SECONDS_BETWEEN) and not self._lease.is_lost:
            try:
                self._tick()
            except (UserError, OSError) as error:
                if not self._is_told:
                    say(f"{error}" if self._lease.is_lost else f"{error}; it is tried again")
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
            del _leases[self._lease.claim]
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
        replace_content(
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
def published(directory: Path) -> Iterator[str]:
    """Be the one process that writes a run, and while it is written in a copy, publish it; what comes is the claim to
    its address for ``publish_point``. Raises UserError if another process writes it, here or on another machine, or if
    it cannot be published."""
    place = origin(directory)
    if place is None:
        with alone_in(directory) as is_mine:
            if not is_mine:
                raise UserError(f"{directory}: another process writes there; wait, or name another folder with -o")
            yield ""
        return
    root = copies_of(parsed(place.url))
    with writing(root) as is_mine:
        if not is_mine:
            raise UserError(
                f"{place}: another process of this machine writes there; wait, or name another place with -o"
            )
        publication = _Publication(directory, place)
        claim = publication.begin()
        try:
            yield claim
        except BaseException as end:
            try:
                publication.end()
            except (UserError, OSError) as error:  # what ended the run is told, too
                if str(error) != str(end):
                    say(str(error))
            raise
        publication.end()


def publish_point(folder: Path, claim: str) -> None:
    """Put the files of a sweep's point to where its folder is copied from, those that tell of the others last; nothing
    for a path of this machine alone. ``claim``: that of the process which ``published`` the sweep, maybe on another
    machine. Raises UserError, also where that process has lost it: another may write the points by now."""
    place = origin(folder)
    if place is None:
        return
    from manyscale.runner.storage.lease import check_claim
    from manyscale.runner.storage.remote import remote, side_by_side

    target = remote(place.url)
    if claim in _leases:
        _leases[claim].check()
    else:
        check_claim(target, claim)
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
