"""Reader for folded call stacks (``a;b;c count`` in each line, the outermost frame first), plain or compressed.

What stackcollapse-perf.pl, ``py-spy record --format raw``, async-profiler and others write. A folded profile says how
often each stack was seen, and neither when nor of which thread: it is one sampling unit, which no sampler can choose
from. Names of frames may have blanks; the count is what follows the last blank.

Cost: one pass in Python, a line per distinct stack.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from manyscale.runner.errors import UserError
from manyscale.runner.readers.archive import guarded, open_stream, read_head
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions
from manyscale.runner.readers.stacks.profile import SAMPLES, UNKNOWN, Profile
from manyscale.runner.readers.stacks.units import DEFAULT_RULES, UnitRules

if TYPE_CHECKING:
    from manyscale.models.workload import Workload

NAME: Final = "folded"
KEEPS_THREADS: Final = True  # read takes options.threads and options.idle
_HEAD_BYTES: Final = 1 << 14
_LINE: Final = re.compile(r"(?P<frames>.*\S)\s+(?P<count>\d{1,18})")
# a line of other text may end in a number: one stack of several frames must be among the first lines
_MANY: Final = re.compile(r"[^;]+(;[^;]+)+\s\d{1,18}")
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")


def can_read(path: Path) -> bool:
    """Whether the first lines of the file are folded stacks, at least one of them of several frames."""
    head = read_head(path, _HEAD_BYTES)
    if head is None:
        return False
    if b"\0" in head and not head.startswith(_UTF_16):
        return False
    lines = _decoded(head).splitlines()
    lines = [line.strip() for line in (lines[:-1] if len(head) == _HEAD_BYTES else lines)]
    lines = [line for line in lines if line and not line.startswith("#")]
    return any(map(_MANY.fullmatch, lines)) and all(map(_LINE.fullmatch, lines))


def reads_one_file(path: Path) -> bool:
    return path.is_file()


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS, *, rules: UnitRules = DEFAULT_RULES) -> Workload:
    """The workload of one profile (of ``options`` those of threads count). Raises UserError with file and line for a
    line that is no stack with a count."""
    from manyscale.models.workload.notes import informs
    from manyscale.runner.readers.stacks.tables import workload

    profile = Profile(has_common_clock=False, has_order=False)
    collect(path, profile, 0)
    text = "folded stacks have no times and no threads: all of them are one sampling unit"
    profile.notes.append(informs("one-unit", text))
    return workload(profile, path, path.name.split(".")[0], 1, rules.chosen(options), NAME)


def collect(path: Path, profile: Profile, rank: int) -> None:
    """Add the stacks of a file to a profile as thread 0 of a rank."""
    event = profile.event(SAMPLES)
    profile.names[rank, 0] = "all threads"
    with guarded(path), open_stream(path) as stream:
        text = _decoded(stream.read())
    num_samples = 0
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        found = _LINE.fullmatch(stripped)
        if found is None:
            raise UserError(
                f"{path}:{number}: a line is frames separated by ';', a blank and a count; got {line[:60]!r}"
            )
        count = int(found["count"])
        stack = profile.stack(profile.frame(name.strip() or UNKNOWN) for name in found["frames"].split(";"))
        if count:
            profile.add(rank, 0, 0, stack, event=event, count=count, weight=count)
            num_samples += 1
    if not num_samples:
        raise UserError(f"{path}: has no stacks; profile the program again")


def _decoded(content: bytes) -> str:
    """Text in UTF-8 or, as PowerShell writes it, in UTF-16."""
    encoding = "utf-16" if content.startswith(_UTF_16) else "utf-8-sig"
    return content.decode(encoding, errors="replace")
