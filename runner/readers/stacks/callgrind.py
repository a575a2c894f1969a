"""Reader for Valgrind's Callgrind (version 1 of its format): call stacks with instructions, and cycles by its caches.

``--dump-every-bb=N`` writes a part of the file after N basic blocks, or rather when Valgrind's scheduler runs next,
once in about 100,000. All parts must be in one file (``--combine-dumps=yes``), plain or compressed. A sampling unit is
as many parts, one after the other, as come nearest to the instructions of the largest of all: units are of nearly one
length, although parts are not of exactly one.

The grammar is that of Valgrind's manual ("Callgrind Format Specification"), of which all optional parts may be missing:
names with or without ``(id)``, absolute and relative positions of one or two numbers, jumps, parts, files of functions,
``totals:`` and ``summary:``. Where one of these two is there, the costs are held against it.

With ``--separate-callers=N`` a function's name carries its N callers (``f'caller'caller``), and that is a call stack;
without, stacks have one frame. Each unit's instructions are shared among its stacks exactly; a snapshot here stands for
1,000 of them. With ``--cache-sim=yes --branch-sim=yes`` a unit's cycles are those that KCachegrind estimates: Ir + 10
(L1 misses + branch misses) + 100 (last-level misses). They are a model's, not a machine's.

Cost: one pass in Python over the lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from manyscale.runner.errors import UserError
from manyscale.runner.readers import bounds
from manyscale.runner.readers.archive import first_line, guarded, open_stream, read_head
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions
from manyscale.runner.readers.stacks.profile import UNIT_LENGTH, UNKNOWN, Profile

if TYPE_CHECKING:
    from manyscale.models.workload import Workload

NAME: Final = "callgrind"
SNAPSHOT: Final = 1000  # instructions
_HEAD_BYTES: Final = 1 << 14
_NAMED: Final = re.compile(r"(?P<key>c?fn)=\s*(?:\((?P<id>\d{1,18})\)\s*)?(?P<name>.*)")
_COST: Final = re.compile(r"(?:[+-]?(?:0x[0-9a-fA-F]+|\d+)|\*)(?:[ \t].*)?")
_NAMED_EVENTS: Final = re.compile(rb"events:[ \t]*Ir\b")
_HEADER: Final = re.compile(r"(version|creator|pid|cmd|part|thread|desc|event|events|positions)\s*:(?P<value>.*)")
_OTHER: Final = re.compile(r"[a-z]+\s*[:=].*")  # files, objects, jumps, sums, what later versions add
_LARGEST: Final = 2**63 - 1
_CYCLES: Final = {  # cycles of an event beside the instruction's own
    "I1mr": 10, "D1mr": 10, "D1mw": 10, "Bcm": 10, "Bim": 10, "ILmr": 100, "DLmr": 100, "DLmw": 100,
}  # fmt: skip
_NEEDED: Final = {"I1mr", "D1mr", "D1mw", "ILmr", "DLmr", "DLmw"}


def can_read(path: Path) -> bool:
    """Whether the file is in Callgrind's format, by its first lines: by its first one, or else by the names of events
    and of a function, since only these must be there."""
    head = read_head(path, _HEAD_BYTES)
    if head is None or b"\0" in head:
        return False
    lines = b"\n" + head.replace(b"\r", b"")
    return head.startswith(b"# callgrind format") or (
        b"\nevents:" in lines and (b"\ncreator: callgrind" in lines or b"\nfn=" in lines)
    )


def resembles(path: Path) -> int | None:
    """The first line that is the names of Callgrind's events, if one is."""
    return first_line(path, _NAMED_EVENTS)


def reads_one_file(path: Path) -> bool:
    return path.is_file()


@dataclass
class _Part:
    """What is read between two dumps: costs of the ``events`` by function with its callers, of which ``instructions``;
    the thread; ``said``: the instructions that it has by its own account, ``totals:`` before ``summary:``."""

    thread: int = 1
    positions: int = 1
    events: list[str] = field(default_factory=list)
    costs: dict[str, list[int]] = field(default_factory=dict)
    instructions: int = 0
    said: dict[str, int] = field(default_factory=dict)
    has_body: bool = False

    @property
    def expected(self) -> int:
        return self.said.get("totals", self.said.get("summary", self.instructions))

    def add(self, name: str, cost: list[int]) -> None:
        total = self.costs.setdefault(name, [0] * len(self.events))
        for column, value in enumerate(cost):
            total[column] += value
        at = self.events.index("Ir")
        self.instructions += cost[at] if at < len(cost) else 0


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The workload of a file (``options`` play no part). Raises UserError with file and line for what is not
    Callgrind's."""
    from manyscale.models.workload import Workload
    from manyscale.models.workload.notes import changes, informs
    from manyscale.runner.readers.rank_tables import rank_tables
    from manyscale.runner.readers.stacks.tables import frame_tables, unit_tables

    profile = Profile()
    rows: list[tuple[int, int, int, int]] = []
    measured: dict[tuple[int, int], dict[str, float]] = {}
    parts = [part for part in _parts(path) if part.instructions]
    if not parts:
        raise UserError(f"{path}: has no costs; did the program run under callgrind to its end?")
    notes = [informs("units-without-times", "the units have no times")]
    missing = sum(max(part.expected - part.instructions, 0) for part in parts)
    if missing:
        text = f"{missing} of {sum(part.expected for part in parts)} instructions that it says it has are not there"
        notes.append(changes("counts-incomplete", text, path.name, missing))
    for key, one in _units(parts):
        columns = zip(*one.costs.values(), strict=True)
        sums = [bounds.whole(sum(column), path, "the sum of a unit's costs") for column in columns]
        measured[key] = _counters(dict(zip(one.events, sums, strict=True)))
        done = 0
        for name, cost in one.costs.items():
            count = cost[one.events.index("Ir")]
            seen = (done + count) // SNAPSHOT - done // SNAPSHOT
            done += count
            if seen:
                rows.append((*key, profile.stack([profile.frame(one) for one in _frames(name)]), seen))
    ids = sorted(measured)
    threads = sorted({thread for thread, _ in ids})
    thread, unit, stack, weight = np.array(sorted(rows), np.int64).reshape(-1, 4).T
    tables = unit_tables(ids, threads, thread, unit, stack, weight, measured)
    tables |= frame_tables(list(profile.frames), list(profile.stacks)) | rank_tables(1, {})
    if all(len(_frames(name)) < 2 for part in parts for name in part.costs):
        notes.append(informs("no-callers", "no function has its callers with it; record with --separate-callers=32"))
    if not all("cycles" in values for values in measured.values()):
        text = "its caches were not simulated, so cycles are not known; record with --cache-sim=yes"
        notes.append(informs("counters-missing", text))
    else:
        text = "cycles are estimated as KCachegrind does: Ir + 10 (L1 + branch misses) + 100 LL misses"
        notes.append(changes("cycles-estimated", text))
    if len(parts) == len(threads):
        text = "it has one part, which is one unit; record with --dump-every-bb=N --combine-dumps=yes"
        notes.append(informs("one-unit", text))
    return Workload(path.name.split(".")[0], 1, tables, tuple(notes), NAME)


def _units(parts: list[_Part]) -> Iterator[tuple[tuple[int, int], _Part]]:
    """((thread, number), costs) of each unit: a part is taken into one if this brings it nearer to the length of the
    longest part, or as near. What is left at a thread's end is a unit, if it is half of one."""
    length = max(part.instructions for part in parts)
    for thread in sorted({part.thread for part in parts}):
        units: list[_Part] = []
        for part in parts:
            if part.thread != thread:
                continue
            if not units or 2 * (length - units[-1].instructions) < part.instructions:
                units.append(_Part(thread, part.positions, part.events))
            for name, cost in part.costs.items():
                units[-1].add(name, cost)
        if len(units) > 1 and 2 * units[-1].instructions < length:
            for name, cost in units.pop().costs.items():
                units[-1].add(name, cost)
        yield from (((thread, number), unit) for number, unit in enumerate(units))


def _parts(path: Path) -> Iterator[_Part]:
    """The parts in their order: a line of a header behind costs begins the next one."""
    names: dict[int, str] = {}
    part, function, skip = _Part(), "", False
    with guarded(path), open_stream(path) as stream:
        for number, raw in enumerate(stream, 1):
            line = raw.decode(errors="replace").rstrip("\r\n")
            if not line or line.startswith("#"):
                continue
            if _COST.fullmatch(line):
                if skip:  # what a call cost stands at the functions that it called
                    skip = False
                    continue
                _count(path, number, part, function, line)
                continue
            if skip:
                raise UserError(f"{path}:{number}: 'calls=' is not followed by what they cost; got {line[:60]!r}")
            if named := _NAMED.fullmatch(line):
                function = _function(path, number, named, names, function)
                part.has_body = True
            elif line.startswith("calls="):
                skip = True
            elif header := _HEADER.fullmatch(line):
                if part.has_body:
                    yield part
                    part, function = _Part(positions=part.positions, events=part.events), ""
                _take_header(path, number, part, header)
            elif line.startswith(("totals:", "summary:")):
                key, _, costs = line.partition(":")
                part.said[key] = _instructions(part.events, costs.split())
            elif not _OTHER.fullmatch(line):
                raise UserError(f"{path}:{number}: is no line of callgrind's; got {line[:60]!r}")
    yield part


def _function(path: Path, number: int, named: re.Match[str], names: dict[int, str], current: str) -> str:
    """Which function costs are of from this line on; ``names`` are by the numbers that stand for them."""
    name: str | None = named["name"]
    if named["id"] is not None:
        identity = bounds.whole(named["id"], f"{path}:{number}", "the number of a function")
        if name:
            names[identity] = name
        name = names.get(identity)
        if name is None:
            raise UserError(f"{path}:{number}: no line before names function ({identity}); is the file cut?")
    return (name or UNKNOWN) if named["key"] == "fn" else current


def _take_header(path: Path, number: int, part: _Part, header: re.Match[str]) -> None:
    key, words = header[1], header["value"].split()
    if key == "thread":
        if len(words) != 1 or not words[0].isdecimal() or len(words[0]) > 9:
            raise UserError(f"{path}:{number}: names no thread by its number; got {header[0][:60]!r}")
        part.thread = int(words[0])
    elif key == "positions":
        part.positions = len(words)
    elif key == "events":
        part.events = words
        if "Ir" not in words:
            raise UserError(
                f"{path}:{number}: no event is Ir, instructions, but {', '.join(words[:8]) or 'none'}; units are cut "
                "by instructions: record with callgrind"
            )


def _instructions(events: list[str], costs: list[str]) -> int:
    """Of a line of costs; 0 where it has none."""
    at = events.index("Ir") if "Ir" in events else len(costs)
    return int(costs[at]) if at < len(costs) and costs[at].isdecimal() and len(costs[at]) < 19 else 0


def _count(path: Path, number: int, part: _Part, function: str, line: str) -> None:
    if not part.events:
        raise UserError(f"{path}:{number}: no line before says what is counted (events: Ir ...); got {line[:60]!r}")
    words = line.split()
    costs = words[part.positions :]
    try:
        cost = [int(word, 16) if word.startswith("0x") else int(word) for word in costs]
    except ValueError:
        cost = [-1]
    if (
        not function or len(words) < part.positions or len(cost) > len(part.events)
        or not all(0 <= value <= _LARGEST for value in cost)
    ):  # fmt: skip
        raise UserError(f"{path}:{number}: is no cost of a function; got {line[:60]!r}")
    part.has_body = True
    part.add(function, cost)


def _frames(name: str) -> list[str]:
    """Of a function's name with its callers, from the outermost; levels of recursion (``f'2``) are no frames."""
    return [one for one in reversed(name.split("'")) if one and not one.isdigit()]


def _counters(sums: dict[str, int]) -> dict[str, float]:
    found = {name: float(value) for name, value in sums.items() if name != "Ir"} | {UNIT_LENGTH: float(sums["Ir"])}
    if set(sums) >= _NEEDED:
        found["cycles"] = sums["Ir"] + sum(sums.get(event, 0) * cost for event, cost in _CYCLES.items())
    return found
