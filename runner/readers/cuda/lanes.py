"""The addresses of each thread, which the tracer keeps with ``--keep-addresses`` beside a launch's record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from manyscale.models.workload.launch_trace import LaunchTrace
from manyscale.runner.errors import UserError
from manyscale.runner.readers.stores.launch_counts import CountedLaunches
from manyscale.runner.readers.stores.launch_store import StoredLaunch
from manyscale.runner.readers.stores.launches import LaunchStore

_WINDOWS: Final = np.dtype("<u8")
_COUNTS: Final = np.dtype("<u4")


@dataclass(frozen=True)
class Recorded:
    """What the tracer's folder has of a launch, beside what is stored. ``lanes``: the file of its addresses, which may
    be missing; ``listed``: of each static instruction its registers, opcode and width as Accel-Sim's traces have them,
    none where an older tracer wrote the folder."""

    lanes: Path
    listed: tuple[str, ...]


@dataclass(frozen=True)
class Lanes:
    """Of a block's warp instructions, warp by warp: ``mask`` uint32[n], lanes that execute; ``count`` uint8[n],
    addresses of each, none or one for each of these lanes; ``address`` int64[sum of count]."""

    mask: np.ndarray
    count: np.ndarray
    address: np.ndarray


class RecordedLaunches(LaunchStore):
    """Launches that a tracer's folder still has. ``heads``: of counted ones, for their table."""

    def __init__(
        self,
        launches: dict[int, StoredLaunch],
        recorded: Mapping[int, Recorded],
        counted: CountedLaunches | None = None,
        heads: Mapping[int, Mapping[str, Any]] | None = None,
    ) -> None:
        super().__init__(launches, counted)
        self.heads = dict(heads or {})
        self.recorded = dict(recorded)


class LanesFile:
    """Raises UserError with the offset of a block that is cut or does not hold together."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._content = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.zeros(0, np.uint8)
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror or error}); trace the program again") from None
        windows = self._array(0, _WINDOWS, 2)
        self.shared_base, self.local_base = (int(each) for each in windows)

    def blocks(self) -> Iterator[Lanes]:
        """In the order of the grid."""
        place = 2 * _WINDOWS.itemsize
        while place < len(self._content):
            start = place
            instructions, addresses = (int(each) for each in self._array(place, _COUNTS, 2))
            place += 2 * _COUNTS.itemsize
            mask = self._array(place, np.dtype("<u4"), instructions)
            place += 4 * instructions
            count = self._array(place, np.dtype("u1"), instructions)
            place += instructions
            address = self._array(place, np.dtype("<i8"), addresses)
            place += 8 * addresses
            has_all = (count == 0) | (count == np.bitwise_count(mask))
            if not has_all.all() or int(count.sum(dtype=np.int64)) != addresses:
                raise self._damaged(start)
            yield Lanes(mask, count, address)

    def check(self, of_block: Lanes | None, trace: LaunchTrace, first: int, end: int) -> Lanes:
        """The lanes of the warp instructions [first, end) of a trace, if they are that. Raises UserError."""
        if of_block is None or not np.array_equal(np.bitwise_count(of_block.mask), trace.active[first:end]):
            raise UserError(f"{self._path}: does not go with the launch's record; trace the program again")
        return of_block

    def _array(self, place: int, kind: np.dtype, count: int) -> np.ndarray:
        end = place + count * kind.itemsize
        if end > len(self._content):
            raise self._damaged(place)
        return np.frombuffer(self._content[place:end], kind)

    def _damaged(self, place: int) -> UserError:
        return UserError(f"{self._path}: byte {place}: the addresses of a block are cut; trace the program again")
