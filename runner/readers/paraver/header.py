"""The head of a Paraver trace: its first line, the communicators, and what stands between them and the first record.

Format: BSC's "Paraver: Parallel Program Visualization and Analysis tool; Trace file description" (2001), and what
Extrae, its mpi2prv and the cutter really write:

``#Paraver (date at hour):END[_ns]:NODES:NUM_APPLICATIONS:APPLICATION[:APPLICATION...]`` with NODES = ``n(cpus,...)``,
``n`` or 0, and APPLICATION = ``tasks(threads:node,...)[,communicators]``. The applications are joined by colons, or by
commas as mpi2prv does; then one count of communicators may stand for all. Without a unit, times are microseconds.
The stated end is not trusted: traces exist that go on for ten times as long.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import numpy as np

from manyscale.runner.errors import UserError
from manyscale.runner.readers import bounds

PS_PER_UNIT: Final = {"": 10**6, "_us": 10**6, "_ns": 10**3, "_ps": 1}
_MOST_THREADS: Final = 1 << 24  # of a task
_FIRST_LINE: Final = re.compile(
    r"#Paraver \([^)]*\):(?P<end>\d+)(?P<unit>_[a-z]+)?:(?P<nodes>\d+(\([\d,]*\))?):(?P<number>\d+):(?P<rest>.*)"
)
_APPLICATION: Final = re.compile(r"(?P<tasks>\d+)\((?P<mapping>[\d:,]*)\)(,(?P<communicators>\d+)(?![\d(]))?")


@dataclass(frozen=True)
class Header:
    """``threads``: per application the number of threads of each of its tasks, int64[tasks]. ``communicators``: per
    application its communicators as (number, tasks from 1). ``ps_per_unit`` of the trace's times; ``end`` as stated, in
    those units. ``comments`` are the lines of the head that start with ``#`` but for the first. ``num_lines`` of the
    head and ``first``, the first bytes behind it."""

    threads: tuple[np.ndarray, ...]
    communicators: tuple[tuple[tuple[int, np.ndarray], ...], ...]
    ps_per_unit: int
    end: int
    comments: tuple[str, ...]
    num_lines: int
    first: bytes


def read_header(path: Path, stream: IO[bytes]) -> Header:
    """Read up to the first record. Raises UserError, naming the line, for a head that is none."""
    line = stream.readline()
    threads, ps_per_unit, end = _first_line(path, line.decode(errors="replace").rstrip())
    communicators: list[list[tuple[int, np.ndarray]]] = [[] for _ in threads]
    comments = []
    number = 1
    while True:
        line = stream.readline()
        number += 1
        text = line.decode(errors="replace").strip()
        if text.startswith("c:"):
            application, communicator = _communicator(f"{path}:{number}", text, len(threads))
            communicators[application - 1].append(communicator)
        elif text.startswith("#"):
            comments.append(text[1:])
        elif text or not line:
            break
    return Header(tuple(threads), tuple(map(tuple, communicators)), ps_per_unit, end, tuple(comments), number - 1, line)


def _first_line(path: Path, text: str) -> tuple[list[np.ndarray], int, int]:
    found = _FIRST_LINE.fullmatch(text)
    if found is None:
        raise UserError(f"{path}:1: {text[:60]!r} is not the first line of a Paraver trace (#Paraver (date):end:...)")
    unit = found["unit"] or ""
    if unit not in PS_PER_UNIT:
        raise UserError(f"{path}:1: unknown unit of time {unit[1:]!r}; known are none (us), us, ns and ps")
    threads = []
    rest = found["rest"]
    place = 0
    for index in range(bounds.whole(found["number"], f"{path}:1", "the number of applications")):
        application = _APPLICATION.match(rest, place)
        if application is None:
            raise UserError(
                f"{path}:1: application {index + 1} of {found['number']} is not 'tasks(threads:node,...)' but "
                f"{rest[place : place + 40]!r}; mend the line"
            )
        counts = (each.split(":")[0] for each in application["mapping"].split(","))
        per_task = [bounds.whole(each, f"{path}:1", "a number of threads", 0, _MOST_THREADS) for each in counts if each]
        if len(per_task) != bounds.whole(application["tasks"], f"{path}:1", "the number of tasks"):
            raise UserError(
                f"{path}:1: application {index + 1} has {application['tasks']} tasks but lists {len(per_task)}; "
                "mend the line"
            )
        threads.append(np.array(per_task, np.int64))
        place = application.end()
        place += rest[place : place + 1] in (":", ",")
    if not threads or rest[place:].strip():
        raise UserError(f"{path}:1: {rest[place:][:40]!r} follows the last application; mend the line")
    return threads, PS_PER_UNIT[unit], bounds.whole(found["end"], f"{path}:1", "the end of the trace")


def _communicator(place: str, text: str, num_applications: int) -> tuple[int, tuple[int, np.ndarray]]:
    """(application, (number, tasks)); an empty communicator may list task -1."""
    try:
        words = text[2:].rstrip(":").split(":")
        application, number, count, *tasks = (bounds.whole(word, place, "a number", -1) for word in words)
    except (ValueError, UserError):
        raise UserError(f"{place}: {text[:60]!r} is not a communicator (c:application:number:tasks:t1:t2...)") from None
    members = np.array([task for task in tasks if task >= 1], np.int64)
    if not 1 <= application <= num_applications:
        raise UserError(f"{place}: application {application} is not one of the {num_applications} of line 1")
    if len(members) != count and tasks != [-1]:
        raise UserError(f"{place}: communicator {number} has {count} tasks but lists {len(members)}; mend the line")
    return application, (number, members)
