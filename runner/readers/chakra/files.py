"""Which files make a Chakra trace, and how they begin."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from manyscale.runner.readers.archive import read_head

_TRACE: Final = re.compile(r"(?P<name>.*?)\.?(?P<rank>\d+)\.(?P<kind>et|json)")
_HEAD_BYTES: Final = 4096
_GRAPH: Final = re.compile(rb'\s*\{\s*"(workload_graph|workload_name|ngpus|soc)"')
_MOST_RANK: Final = 2**31


@dataclass(frozen=True)
class TraceFile:
    """A file of ``rank`` of a trace ``name``; ``is_json``: in the JSON form."""

    path: Path
    name: str
    rank: int

    @property
    def is_json(self) -> bool:
        return self.path.suffix == ".json"


def files_of(path: Path) -> list[TraceFile]:
    """Files that are named as traces, by name and rank; of a folder those in protobuf, else those in JSON. Raises
    OSError."""
    if path.is_file():
        found = _named(path)
        return [found or TraceFile(path, path.stem, 0)] if path.suffix in (".et", ".json") else []
    if not path.is_dir():
        return []
    with os.scandir(path) as entries:
        names = sorted(each.name for each in entries if each.is_file())
    every = [found for name in names if (found := _named(path / name)) is not None]
    binary = [each for each in every if not each.is_json]
    return sorted(binary or every, key=lambda each: (each.name, each.rank))


def looks_like(path: Path) -> bool:
    """Whether a file begins as a trace does: a short message of metadata or a node, or the graph's first key."""
    head = read_head(path, _HEAD_BYTES)
    if not head:
        return False
    if path.suffix == ".json":
        return _GRAPH.match(head) is not None
    length, at = varint(head, 0)
    if length is None or at is None:
        return False
    # metadata's version or attribute, or a node's number; or no metadata at all
    return length == 0 or (at < len(head) and head[at] in (0x0A, 0x12, 0x08))


def varint(content: bytes, at: int) -> tuple[int | None, int | None]:
    """A number as protobuf writes them, from byte ``at``, and the place behind it; (None, None) if it is cut or longer
    than 64 bits."""
    number = shift = 0
    while at < len(content) and shift < 64:
        byte = content[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at
    return None, None


def _named(path: Path) -> TraceFile | None:
    found = _TRACE.fullmatch(path.name)
    if found is None or int(found["rank"]) >= _MOST_RANK:
        return None
    return TraceFile(path, found["name"], int(found["rank"]))
