"""Points of a sweep that are finished: a line each in ``points.jsonl``, with the checksums of their files, by which a
run that goes on knows them again and leaves them as they are."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from manyscale.runner import kept
from manyscale.runner.run import directory as rundir
from manyscale.runner.run.sweeps import point_files

NAME: Final = "points.jsonl"


@dataclass(frozen=True)
class Finished:
    """A point that is written. ``target``: the name of its machine; ``stamp``: of all that its files follow from beside
    its number; ``files``: checksums by name; ``traces``: kinds of traces among what it left, packed or not;
    ``records``: as many as traces of it hold (``shown.num_records``)."""

    index: int
    target: str
    stamp: str
    files: Mapping[str, str]
    traces: Collection[str] = ()
    records: int = 0

    def line(self) -> str:
        content: dict[str, Any] = {
            "point": self.index, "target": self.target, "stamp": self.stamp, "files": dict(self.files),
            "traces": list(self.traces), "records": self.records,
        }  # fmt: skip
        content["check"] = kept.checksum_of_text(json.dumps(content))
        return json.dumps(content) + "\n"


class FinishedPoints:
    """The journal of finished points of the sweep in ``directory``; those of other ``stamp`` are not of this run."""

    def __init__(self, directory: Path, stamp: str) -> None:
        self._directory, self._stamp = directory, stamp
        self._path = directory / NAME
        self.known = {each.index: each for each in _read(self._path) if each.stamp == stamp}
        self._file: IO[str] | None = None

    def whole(self) -> Iterator[tuple[Finished, bytes]]:
        """Finished points whose files are as they were written, with their statistics. What is missing or damaged is
        told, and forgotten."""
        for index in sorted(self.known):
            stats = self._stats_if_whole(self.known[index])
            if stats is None:
                del self.known[index]
            else:
                yield self.known[index], stats

    def _stats_if_whole(self, point: Finished) -> bytes | None:
        folder = point_files.folder(self._directory, point.index)
        stats = b""
        for name, expected in point.files.items():
            path = folder / name
            try:
                if name == point_files.STATISTICS:
                    stats = path.read_bytes()
                    found = kept.checksum_of_bytes(stats)
                else:
                    found = kept.checksum(path)
            except FileNotFoundError:
                kept.tell(path, "is missing")
                return None
            if found != expected:
                kept.tell(path, "is damaged")
                return None
        return stats

    def begin(self) -> None:
        """Go on with the journal, from the points that are known."""
        rundir.write_atomically(self._path, "".join(self.known[index].line() for index in sorted(self.known)))
        self._file = self._path.open("a", buffering=1)

    def add(self, point: Finished) -> None:
        """Tell of a point whose files are written."""
        assert self._file is not None
        self.known[point.index] = point
        self._file.write(point.line())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def sort(self) -> None:
        """Write the journal in the order of the points; it ends with this."""
        self.close()
        rundir.write_atomically(self._path, "".join(self.known[index].line() for index in sorted(self.known)))


def count(directory: Path) -> int:
    """How many points of a sweep are written. An earlier version left no journal of them."""
    if not (directory / NAME).is_file():
        return len(list((directory / "points").glob("*/manifest.json")))
    return len({each.index for each in _read(directory / NAME)})


def _read(path: Path) -> list[Finished]:
    """Lines of a journal that are whole."""
    if not path.is_file():
        return []
    found, damaged = [], 0
    for line in path.read_text(errors="replace").splitlines(keepends=True):
        try:
            content = json.loads(line)
            check = content.pop("check")
            if check != kept.checksum_of_text(json.dumps(content)):
                raise ValueError(line)
            told = content["files"], content.get("traces", ()), content.get("records", 0)  # once neither was told
            found.append(Finished(content["point"], content["target"], content["stamp"], *told))
        except (ValueError, KeyError, TypeError, AttributeError):
            damaged += line.endswith("\n")  # the last one may have been cut short by whatever ended the run
    if damaged:
        print(f"manyscale: {path}: {damaged} damaged lines are left out", file=sys.stderr)
    return found
