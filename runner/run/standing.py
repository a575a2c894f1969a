"""``status.json``: how far a run is, for ``manyscale status`` in another shell.

A thread renews it every second, as a whole, and less often where a file takes long to write; so a run that hangs, and
one whose process is gone, are told from one that works. What it says of the last moment stays when the run has ended.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from manyscale.runner.progress import Progress
from manyscale.runner.run.directory import STATUS, write_atomically

if TYPE_CHECKING:
    from manyscale.runner.run.execute.execution import Execution

RENEW_SECONDS: Final = 1.0
OLD_SECONDS: Final = 30.0  # a file that was not renewed for so long tells of a process that is gone or stopped
_FIELDS: Final = {"host", "process", "seconds", "phase", "done", "total", "rate", "seconds_left"}
_MOST_OF_TIME: Final = 0.02  # that may be spent on writing
_RATE_SECONDS: Final = 60.0  # over which the rate is told


class Standing:
    """What is told of a run: its ``progress``, which is passed on, and what its execution says of units and nodes."""

    def __init__(self, directory: Path, progress: Progress) -> None:
        self._path, self._progress = directory / STATUS, progress
        self._begin = time.monotonic()
        self._phase: tuple[str, float, float, list[tuple[float, float]]] = ("", 0.0, 0.0, [])
        # what, done, total, and when how much of it was done
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, daemon=True)
        self._execution: Execution | None = None

    def shows(self, execution: Execution) -> None:
        """Tell of its units from now on, and of the nodes where they run."""
        self._execution = execution

    def progress(self, done: float, total: float, what: str, /) -> None:
        """As runner/progress.py says."""
        before, _, size, marks = self._phase
        if (before, size) != (what, total):
            marks = [(time.monotonic(), done)]
        self._phase = (what, done, total, marks)
        self._progress(done, total, what)

    def content(self) -> Mapping[str, Any]:
        """What the file says. ``seconds`` is how long the run takes by now, ``rate`` parts of the phase per second
        (null: not known), ``seconds_left`` of this phase at this rate."""
        now = time.monotonic()
        what, done, total, marks = self._phase
        marks.append((now, done))
        while len(marks) > 2 and now - marks[1][0] > _RATE_SECONDS:
            del marks[0]
        seconds, gone = now - marks[0][0], done - marks[0][1]
        rate = gone / seconds if total and gone > 0 and seconds > 0 else None
        return {
            "host": os.uname().nodename,
            "process": os.getpid(),
            "time": time.time(),
            "seconds": round(now - self._begin, 3),
            "phase": what,
            "done": done,
            "total": total,
            "rate": rate,
            "seconds_left": (total - done) / rate if rate else None,
            **({} if self._execution is None else self._execution.standing()),
        }

    def _renew(self) -> None:
        wait = RENEW_SECONDS
        while not self._ended.wait(wait):
            begin = time.monotonic()
            self.write()
            wait = max(RENEW_SECONDS, (time.monotonic() - begin) / _MOST_OF_TIME)

    def write(self) -> None:
        """Renew the file. Where it cannot be written the run says so itself, by files that matter."""
        with suppress(OSError):
            write_atomically(self._path, json.dumps(self.content()) + "\n")

    def end(self) -> None:
        """Write it a last time."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self.write()

    def begin(self) -> None:
        self._thread.start()


@contextmanager
def told(directory: Path, progress: Progress) -> Iterator[Standing]:
    """A Standing in ``directory`` while a run works."""
    standing = Standing(directory, progress)
    standing.begin()
    try:
        yield standing
    finally:
        standing.end()


def read(directory: Path) -> Mapping[str, Any]:
    """What a run's file says, with ``age``, seconds since it was written, by this host's clock; nothing if there is
    none, as of an earlier version, or one that lacks something."""
    try:
        text = (directory / STATUS).read_text()
        age = time.time() - (directory / STATUS).stat().st_mtime
        found = json.loads(text)
    except (OSError, ValueError):
        return {}
    is_whole = isinstance(found, dict) and found.keys() >= _FIELDS
    return {**found, "age": max(0.0, age)} if is_whole else {}


def lines(said: Mapping[str, Any], *, is_running: bool) -> Sequence[str]:
    """The same in words: a line of progress while a run works, a line per node."""
    if not said:
        return []
    found = []
    if is_running:
        found.append(_progress(said))
        if waiting := said.get("waiting"):
            found.append(f"waiting for {waiting}")
        if said["age"] > OLD_SECONDS:
            found.append(
                f"nothing was heard for {_duration(said['age'])} of process {said['process']} on {said['host']}: "
                "it is stopped or gone; if it is gone, go on with run --resume -o DIR"
            )
    for node in said.get("nodes", ()):
        state = f"left out: {node['reason']}" if node["state"] == "left out" else node["state"]
        work = f"{node['workers']} workers on {node['cpus']} CPUs" if is_running else f"{node['cpus']} CPUs"
        found.append(f"{node['node']}: {work}, {node['units']} units finished, {state}")
    return found


def _progress(said: Mapping[str, Any]) -> str:
    left = f"{said.get('units', {}).get('left', 0)} units left at this stage"
    if not said["total"]:
        return f"{said['phase'] or 'beginning'}, {_duration(said['seconds'])} so far; {left}"
    share = f"{said['phase']} {said['done']:.4g}/{said['total']:.4g} ({100 * said['done'] / said['total']:.0f} %)"
    if said["rate"] is None:
        return f"{share}, {_duration(said['seconds'])} so far; {left}"
    return f"{share}, {said['rate']:.3g}/s, {_duration(said['seconds_left'])} left; {left}"


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole / 3600:.1f} h"
