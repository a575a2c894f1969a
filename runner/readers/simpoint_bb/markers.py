"""Markers of LoopPoint's and PinPlay's profiles (.bb): the program counter and its count at which intervals begin.

``S: PC COUNT IMAGE BASE + OFFSET # SOURCE`` or ``M: PC COUNT no_image 0`` before the first vector says where the run
begins, each one behind a vector where that interval ends and the next begins. In the files of threads, ``GS:`` and
``GM:`` count over all threads, which is what intervals of all threads need. At the end, ``Block id: N FIRST:LAST static
instructions: SIZE`` tells where block N lies.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from manyscale.runner.errors import UserError
from manyscale.runner.readers import bounds
from manyscale.runner.readers.archive import guarded, open_stream
from manyscale.runner.readers.simpoint_bb.files import thread_files

_MARKER: Final = re.compile(
    rb"(?P<kind>G?[SM]):\s*(?P<pc>(0x)?[0-9a-f]+)\s+(?P<count>\d+)"
    rb"(\s+(?P<image>\S+)\s+(0x)?[0-9a-f]+(\s*\+\s*(?P<offset>(0x)?[0-9a-f]+))?)?"
)
_BLOCK: Final = re.compile(rb"Block id:\s*(\d+)\s+(0x[0-9a-f]+):(0x[0-9a-f]+)\s+static instructions:\s*(\d+)")
_PAIR: Final = re.compile(rb":\s*(\d+)\s*:\s*(\d+)")
_THREADS: Final = re.compile(rb"#.*num_threads\s+(\d+)")


@dataclass(frozen=True)
class Marker:
    """``count``: executions of ``pc`` since the program began. ``image`` is the file's name, ``no_image`` where it is
    not known; ``offset`` of ``pc`` in it."""

    pc: int
    count: int
    image: str = "no_image"
    offset: int = 0


NOWHERE: Final = Marker(0, 0)  # the program's end, which has no marker


@dataclass(frozen=True)
class Markers:
    """``at``: interval i lies between ``at[i]`` and ``at[i + 1]``. ``executed``: of intervals that were asked for, the
    instructions of each block, in a dictionary for each file. ``blocks``: first and last address and size of each;
    block b of thread t has the number b + t x (number of the last block) where one file holds ``threads`` of them."""

    at: list[Marker]
    executed: dict[int, list[dict[int, int]]]
    blocks: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    threads: int = 1

    def relative_count(self, first: int, end: int) -> int:
        """How often the end of intervals [``first``, ``end``) comes by from their beginning on, itself included; a
        beginning at the same place is not counted (LoopPoint's global_pcregions_control.H)."""
        stop = self.at[end]
        total = int(self.at[first].pc != stop.pc)
        most = max(self.blocks, default=0)
        for block, (low, high, size) in self.blocks.items():
            if size and low <= stop.pc <= high:
                for interval in range(first, end):
                    for done in self.executed[interval]:
                        total += sum(done.get(block + most * thread, 0) // size for thread in range(self.threads))
        return total


def read(path: Path, wanted: Collection[int]) -> Markers | None:
    """The markers of a profile, and what its intervals ``wanted`` executed; None if it has none. Raises UserError for
    markers that are none, and where some intervals have one and others do not. O(bytes)."""
    first, *others = (_read_file(file, wanted) for file in thread_files(path))
    if all(marker == NOWHERE for marker in first.at):
        return None
    missing = [place for place, marker in enumerate(first.at[:-1]) if marker == NOWHERE]
    if missing:
        raise UserError(f"{path}: no marker (S: or M:) tells where interval {missing[0]} begins; profile again")
    for other in others:
        first.blocks.update(other.blocks)
        for interval, done in other.executed.items():
            first.executed.setdefault(interval, []).extend(done)
    return first


def _read_file(path: Path, wanted: Collection[int]) -> Markers:
    own, of_all = [NOWHERE], [NOWHERE]
    executed: dict[int, list[dict[int, int]]] = {}
    blocks: dict[int, tuple[int, int, int]] = {}
    threads = 1
    with guarded(path), open_stream(path) as stream:
        for number, line in enumerate(stream, 1):
            if line.startswith(b"T"):
                if len(own) - 1 in wanted:
                    executed[len(own) - 1] = [_counts(line)]
                own.append(NOWHERE)
                of_all.append(NOWHERE)
            elif line.startswith((b"S:", b"M:", b"GS:", b"GM:")):
                (of_all if line.startswith(b"G") else own)[-1] = _marker(line, f"{path}:{number}")
            elif block := _BLOCK.match(line):
                place = f"{path}:{number}"
                number_of = bounds.whole(block[1], place, "the number of a block")
                first, end = (bounds.whole(block[at], place, "an address", base=16, most=2**64 - 1) for at in (2, 3))
                blocks[number_of] = first, end, bounds.whole(block[4], place, "a number of instructions")
            elif header := _THREADS.match(line):
                threads = bounds.whole(header[1], f"{path}:{number}", "num_threads")
    at = own if all(marker == NOWHERE for marker in of_all) else of_all
    if at[0] != NOWHERE:
        at[0] = replace(at[0], count=1)  # where the run begins
    return Markers(at, executed, blocks, threads)


def _marker(line: bytes, place: str) -> Marker:
    found = _MARKER.match(line)
    if found is None:
        shown = line[:60].decode(errors="replace").rstrip()
        raise UserError(f"{place}: {shown!r} is no marker (S: PC COUNT IMAGE BASE + OFFSET); profile again")
    image = (found["image"] or b"no_image").decode(errors="replace").rsplit("/", 1)[-1]
    pc, offset = (bounds.whole(found[name] or b"0", place, name, base=16, most=2**64 - 1) for name in ("pc", "offset"))
    return Marker(pc, bounds.whole(found["count"], place, "the count"), image, offset)


def _counts(line: bytes) -> dict[int, int]:
    counts: dict[int, int] = {}
    for block, count in _PAIR.findall(line):
        counts[int(block)] = counts.get(int(block), 0) + int(count)
    return counts
