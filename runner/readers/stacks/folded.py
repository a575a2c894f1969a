"""Reader for folded call stacks (``a;b;c count`` in each line, the outermost frame first), plain or compressed.

What stackcollapse-perf.pl, ``py-spy record --format raw``, async-profiler and others write. A folded profile says how
often each stack was seen, and neither when nor of which thread: it is one sampling unit, which no sampler can choose
from. Names of frames may have blanks; the count is what follows the last blank. Counts may have fractions, as those
of times and bytes have: all are then scaled by one power of ten. Where two numbers end every line, these are the two
counts of a comparison (``difffolded.pl``), not names that end in a number: refused.

Cost: one pass in Python, a line per distinct stack.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
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
_COUNT: Final = re.compile(r"(\d{1,18}(\.\d{0,30})?|\.\d{1,30})([eE][+-]?\d{1,2})?", re.ASCII)
_MOST_DECIMALS: Final = 6
_LARGEST: Final = 2**53  # of all counts together: up to there float64 has all integers
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")


def can_read(path: Path) -> bool:
    """Whether the first lines of the file are folded stacks, at least one of them of several frames (a line of other
    text may end in a number, too)."""
    lines = [_split(line) for _, line in _first_lines(path)]
    return all(lines) and any(line and _has_several(line[0]) for line in lines)


def resembles(path: Path) -> int | None:
    """The first line that is a stack of several frames with a count, if one is."""
    lines = ((number, _split(line)) for number, line in _first_lines(path))
    return next((number for number, line in lines if line and _has_several(line[0])), None)


def reads_one_file(path: Path) -> bool:
    return path.is_file()


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS, *, rules: UnitRules = DEFAULT_RULES) -> Workload:
    """The workload of one profile (of ``options`` those of threads count). Raises UserError with file and line for a
    line that is no stack with a count."""
    from manyscale.models.workload.notes import informs
    from manyscale.runner.readers.stacks.tables import workload

    profile = Profile(has_common_clock=False, has_order=False)
    collect(path, profile, 0)
    if profile.scale > 1:
        text = f"counts have fractions: {profile.scale} call stacks stand for one of the profile's"
        profile.notes.append(informs("fractional-counts", text, path.name))
    text = "folded stacks have no times and no threads: all of them are one sampling unit"
    profile.notes.append(informs("one-unit", text))
    return workload(profile, path, path.name.split(".")[0], 1, rules.chosen(options), NAME)


def collect(path: Path, profile: Profile, rank: int) -> None:
    """Add the stacks of a file to a profile as thread 0 of a rank."""
    event = profile.event(SAMPLES)
    profile.names[rank, 0] = "all threads"
    with guarded(path), open_stream(path) as stream:
        text = _decoded(stream.read())
    stacks: list[tuple[int, Decimal]] = []
    before = 0  # lines that have a number before the last one
    for number, line in _stripped(text):
        found = _split(line)
        if found is None:
            raise UserError(
                f"{path}:{number}: a line is frames separated by ';', a blank and a count; got {line[:60]!r}"
            )
        frames, count = found
        before += _split(frames) is not None
        stack = profile.stack(profile.frame(name.strip() or UNKNOWN) for name in frames.split(";"))
        stacks.append((stack, Decimal(count)))
    total = sum(count for _, count in stacks)
    if not total:
        raise UserError(f"{path}: has no stacks; profile the program again")
    if before == len(stacks):
        raise UserError(
            f"{path}: two numbers end every line: it compares two profiles (difffolded.pl) and is none; give one of "
            "the two"
        )
    if total > _LARGEST:
        raise UserError(f"{path}: its counts add up to {total:.3g}, more than {_LARGEST}; count in a larger unit")
    decimals = max(0, *(-int(count.normalize().as_tuple().exponent) for _, count in stacks))
    decimals = min(decimals, _MOST_DECIMALS, len(str(_LARGEST // int(total + 1))) - 1)
    profile.scale = 10**decimals
    for stack, exact in stacks:
        if scaled := round(exact * profile.scale):
            profile.add(rank, 0, 0, stack, event=event, count=scaled, weight=scaled)


def _split(line: str) -> tuple[str, str] | None:
    """Frames and count of a line; None if it is no such line."""
    words = line.rsplit(None, 1)
    return (words[0], words[1]) if len(words) == 2 and _COUNT.fullmatch(words[1]) else None


def _has_several(frames: str) -> bool:
    parts = frames.split(";")
    return len(parts) > 1 and all(parts)


def _stripped(text: str) -> Iterator[tuple[int, str]]:
    """Number and text of all lines but empty ones and comments."""
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            yield number, stripped


def _first_lines(path: Path) -> list[tuple[int, str]]:
    head = read_head(path, _HEAD_BYTES)
    if head is None or (b"\0" in head and not head.startswith(_UTF_16)):
        return []
    lines = list(_stripped(_decoded(head)))
    return lines[:-1] if len(head) == _HEAD_BYTES else lines


def _decoded(content: bytes) -> str:
    """Text in UTF-8 or, as PowerShell writes it, in UTF-16."""
    encoding = "utf-16" if content.startswith(_UTF_16) else "utf-8-sig"
    return content.decode(encoding, errors="replace")
