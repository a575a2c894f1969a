"""Reader for Valgrind's Callgrind (version 1 of its format): call stacks with instructions, and cycles by its caches.

``--dump-every-bb=N`` writes a part of the file after N basic blocks, or rather when Valgrind's scheduler runs next,
once in about 100,000. All parts must be in one file (``--combine-dumps=yes``), plain or compressed. A sampling unit is
as many parts, one after the other, as have the instructions of the largest of all: units are of nearly one length.

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
from manyscale.runner.readers.archive import guarded, open_stream, read_head
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions
from manyscale.runner.readers.stacks.profile import UNIT_LENGTH, Profile

if TYPE_CHECKING:
    from manyscale.models.workload import Workload

NAME: Final = "callgrind"
SNAPSHOT: Final = 1000  # instructions
_HEAD_BYTES: Final = 1 << 10
_NAMED: Final = re.compile(r"(?P<key>c?fn)=\((?P<id>\d+)\)(?: (?P<name>.*))?")
_COST: Final = re.compile(r"(\d+|0x[0-9a-fA-F]+|[+*-]\d*)( .*)?")
_CYCLES: Final = {  # cycles of an event beside the instruction's own
    "I1mr": 10, "D1mr": 10, "D1mw": 10, "Bcm": 10, "Bim": 10, "ILmr": 100, "DLmr": 100, "DLmw": 100,
}  # fmt: skip
_NEEDED: Final = {"I1mr", "D1mr", "D1mw", "ILmr", "DLmr", "DLmw"}


def can_read(path: Path) -> bool:
    """Whether the file is what Callgrind wrote, by its first lines."""
    head = read_head(path, _HEAD_BYTES)
    return head is not None and (head.startswith(b"# callgrind format") or b"\ncreator: callgrind" in head)


def reads_one_file(path: Path) -> bool:
    return path.is_file()


@dataclass
class _Part:
    """What is read between two dumps: costs of the ``events`` by function with its callers, of which ``instructions``;
    the thread."""

    thread: int = 1
    positions: int = 1
    events: list[str] = field(default_factory=list)
    costs: dict[str, list[int]] = field(default_factory=dict)
    instructions: int = 0

    def add(self, name: str, cost: list[int]) -> None:
        total = self.costs.setdefault(name, [0] * len(self.events))
        for column, value in enumerate(cost):
            total[column] += value
        self.instructions += cost[0] if cost else 0


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
    for key, one in _units(parts):
        sums = [sum(column) for column in zip(*one.costs.values(), strict=True)]
        measured[key] = _counters(dict(zip(one.events, sums, strict=True)))
        done = 0
        for name, cost in one.costs.items():
            seen = (done + cost[0]) // SNAPSHOT - done // SNAPSHOT
            done += cost[0]
            if seen:
                rows.append((*key, profile.stack([profile.frame(one) for one in _frames(name)]), seen))
    ids = sorted(measured)
    threads = sorted({thread for thread, _ in ids})
    thread, unit, stack, weight = np.array(sorted(rows), np.int64).reshape(-1, 4).T
    tables = unit_tables(ids, threads, thread, unit, stack, weight, measured)
    tables |= frame_tables(list(profile.frames), list(profile.stacks)) | rank_tables(1, {})
    notes = [informs("units-without-times", "the units have no times")]
    if all(len(one) < 2 for one in profile.stacks):
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
    """((thread, number), costs) of each unit. What is left at a thread's end is a unit, if it is half of one."""
    length = max(part.instructions for part in parts)
    for thread in sorted({part.thread for part in parts}):
        units: list[_Part] = []
        for part in parts:
            if part.thread != thread:
                continue
            if not units or units[-1].instructions >= length:
                units.append(_Part(thread, part.positions, part.events))
            for name, cost in part.costs.items():
                units[-1].add(name, cost)
        if len(units) > 1 and 2 * units[-1].instructions < length:
            for name, cost in units.pop().costs.items():
                units[-1].add(name, cost)
        yield from (((thread, number), unit) for number, unit in enumerate(units))


def _parts(path: Path) -> Iterator[_Part]:
    """The parts in their order."""
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
            elif named := _NAMED.fullmatch(line):
                identity = int(named["id"])
                if named["name"]:
                    names[identity] = named["name"]
                elif identity not in names:
                    raise UserError(f"{path}:{number}: no line before names function ({identity}); is the file cut?")
                if named["key"] == "fn":
                    function = names[identity]
            elif line.startswith("calls="):
                skip = True
            elif line.startswith("part:") and part.events:
                yield part
                part, function = _Part(positions=part.positions), ""
            elif line.startswith("thread:"):
                part.thread = int(line.partition(":")[2])
            elif line.startswith("positions:"):
                part.positions = len(line.split()) - 1
            elif line.startswith("events:"):
                part.events = line.split()[1:]
                if not part.events or part.events[0] != "Ir":
                    raise UserError(f"{path}:{number}: its first event is not Ir, instructions; record with callgrind")
            elif "=" not in line and ":" not in line:
                raise UserError(f"{path}:{number}: is no line of callgrind's; got {line[:60]!r}")
    yield part


def _count(path: Path, number: int, part: _Part, function: str, line: str) -> None:
    words = line.split()[part.positions :]
    if not function or len(words) > len(part.events) or not all(word.isdigit() for word in words):
        raise UserError(f"{path}:{number}: is no cost of a function; got {line[:60]!r}")
    part.add(function, list(map(int, words)))


def _frames(name: str) -> list[str]:
    """Of a function's name with its callers, from the outermost; levels of recursion (``f'2``) are no frames."""
    return [one for one in reversed(name.split("'")) if one and not one.isdigit()]


def _counters(sums: dict[str, int]) -> dict[str, float]:
    found = {name: float(value) for name, value in sums.items() if name != "Ir"} | {UNIT_LENGTH: float(sums["Ir"])}
    if set(sums) >= _NEEDED:
        found["cycles"] = sums["Ir"] + sum(sums.get(event, 0) * cost for event, cost in _CYCLES.items())
    return found
