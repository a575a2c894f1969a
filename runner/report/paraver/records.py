"""Records of a Paraver trace, made batch by batch: their order, and their lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload.columns import to_arrow
from manyscale.runner.report.text_columns import batches, contents, integers, join, picked

_PS_PER_NS: Final = 1000


@dataclass(frozen=True)
class Records:
    """Records of one type, each rank's in order of time: when each happens and ends, and the lines of some of them."""

    time_ns: np.ndarray
    last_ns: np.ndarray
    lines: Callable[[np.ndarray], pa.Array]


def states(who: Sequence[str], place: np.ndarray, begin: np.ndarray, end: np.ndarray, number: np.ndarray) -> Records:
    """States by their Paraver number, of the threads that ``place`` indexes; times in ns. What takes no time is left
    out."""
    kept = np.flatnonzero(begin < end)
    place, begin, end, number = (each[kept] for each in (place, begin, end, number))
    prefix = [f"1:{name}" for name in who]

    def lines(rows: np.ndarray) -> pa.Array:
        return join(
            picked(prefix, place[rows]), integers(begin[rows]), ":", integers(end[rows]), ":", integers(number[rows]),
            "\n",
        )  # fmt: skip

    return Records(begin, end, lines)


def write_sorted(file: BinaryIO, records: list[Records]) -> None:
    """All records by time; at equal time by type, and within a type in their own order."""
    bounds = np.cumsum([0, *(len(part.time_ns) for part in records)])
    order = np.argsort(np.concatenate([part.time_ns for part in records]), kind="stable")
    for batch in batches(len(order)):
        rows = order[batch]
        owner = np.searchsorted(bounds, rows, side="right") - 1
        places = [np.flatnonzero(owner == index) for index in range(len(records))]
        texts = [part.lines(rows[at] - bounds[i]) for i, (part, at) in enumerate(zip(records, places, strict=True))]
        place = np.empty(len(rows), np.int64)
        place[np.concatenate(places)] = np.arange(len(rows))
        file.write(contents(pa.concat_arrays(texts).take(to_arrow(place))))


def nanoseconds(picoseconds: np.ndarray) -> np.ndarray:
    return (picoseconds + _PS_PER_NS // 2) // _PS_PER_NS
