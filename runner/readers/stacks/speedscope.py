"""Reader for call stacks in speedscope's format (JSON), plain or compressed: what ``py-spy record --format speedscope``
writes.

Each profile of the file is a thread. Its samples have stacks and weights; a unit of time makes the weights CPU time.
Each thread's times begin at 0 and leave out when it waited, so threads cannot be compared in time and are not merged.

Assumptions: a frame is a function and its file's name, without the line. py-spy's frame for a whole process, which
names its pid, is left out. Its weights are of wall time in which it found a thread not idle, and it leaves out samples
when it is late: their sums differ from the CPU time by some percent.

Cost: one pass in Python over the samples; the file is held in memory.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from manyscale.runner.errors import UserError
from manyscale.runner.plain_files import parse_json
from manyscale.runner.readers import bounds
from manyscale.runner.readers.archive import first_line, guarded, open_stream
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions
from manyscale.runner.readers.stacks.profile import CPU_TIME, SAMPLES, UNKNOWN, Profile
from manyscale.runner.readers.stacks.units import DEFAULT_RULES, UnitRules

if TYPE_CHECKING:
    from manyscale.models.workload import Workload

NAME: Final = "speedscope"
KEEPS_THREADS: Final = True  # read takes options.threads and options.idle
_HEAD_BYTES: Final = 1 << 12
_NANOSECONDS: Final = {"seconds": 1e9, "milliseconds": 1e6, "microseconds": 1e3, "nanoseconds": 1.0}
_SCHEMA: Final = re.compile(rb'\s*[{"].*speedscope\.app/|\s*\{.*"shared"\s*:\s*\{\s*"frames"')
_PY_SPY_PROCESS: Final = re.compile(r'process \d+:".*"', re.DOTALL)
_PY_SPY_THREAD: Final = re.compile(r'(?:Process (?P<pid>\d+) )?Thread (?P<tid>\d+) "(?P<name>.*)"')


def can_read(path: Path) -> bool:
    """Whether the file is JSON that names speedscope's schema at its beginning."""
    if not path.is_file():
        return False
    try:
        with guarded(path), open_stream(path) as stream:
            head = stream.read(_HEAD_BYTES)
    except UserError:
        return False
    return head.lstrip().startswith(b"{") and b"speedscope.app/file-format-schema.json" in head.replace(b"\\/", b"/")


def resembles(path: Path) -> int | None:
    """The first line that is a speedscope file's beginning or names its schema, if one is."""
    return first_line(path, _SCHEMA)


def reads_one_file(path: Path) -> bool:
    return path.is_file()


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS, *, rules: UnitRules = DEFAULT_RULES) -> Workload:
    """The workload of one file (of ``options`` those of threads count). Raises UserError, one line, for what cannot be
    read."""
    from manyscale.runner.readers.stacks.tables import workload

    profile = Profile(has_common_clock=False)
    collect(path, profile, 0)
    return workload(profile, path, path.name.split(".")[0], 1, rules.chosen(options), NAME)


def collect(path: Path, profile: Profile, rank: int) -> None:
    """Add the samples of a file to a profile as those of a rank."""
    try:
        with guarded(path), open_stream(path) as stream:
            content = parse_json(stream.read())
        shared = content["shared"]["frames"]
        names = [_frame_name(frame) for frame in shared]
        frames = [-1 if _PY_SPY_PROCESS.fullmatch(name) else profile.frame(name) for name in names]
        for number, thread in enumerate(content["profiles"]):
            _add(path, profile, rank, number, thread, frames)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise UserError(
            f"{path}: is no file of speedscope, or a damaged one ({type(error).__name__}: {error})"
        ) from None


def _add(path: Path, profile: Profile, rank: int, number: int, thread: dict[str, Any], frames: list[int]) -> None:
    if thread["type"] != "sampled":
        raise UserError(f"{path}: profile {number} is {thread['type']!r}; only sampled profiles have snapshots")
    scale = _NANOSECONDS.get(thread["unit"])
    event = profile.event(CPU_TIME if scale else SAMPLES)
    named = _PY_SPY_THREAD.fullmatch(thread["name"])
    profile.names[rank, number] = (named["name"] or f"thread {named['tid']}") if named else thread["name"]
    clock, place = 0.0, f"{path}: profile {number}"
    for stack, given in zip(thread["samples"], thread["weights"], strict=True):
        weight = bounds.finite(given, place, "a weight")
        clock = bounds.finite(clock + weight * (scale or 1.0), place, "the sum of weights")
        count = max(round(weight * scale), 1) if scale else 1
        known = profile.stack([frames[one] for one in stack if frames[one] >= 0] or [profile.frame(UNKNOWN)])
        times = max(round(weight), 1) if thread["unit"] == "none" else 1  # a weight of no unit is a number of samples
        profile.add(rank, number, round(clock), known, event=event, count=count, weight=times)


def _frame_name(frame: dict[str, Any]) -> str:
    file = str(frame.get("file") or "").rsplit("/", 1)[-1]
    return f"{frame['name']} ({file})" if file else str(frame["name"])
