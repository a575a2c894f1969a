"""Finished points of a sweep that have not the traces which a run that goes on is asked for: it leaves them as they
are, and says so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

import pyarrow.parquet as pq

from manyscale.runner.run.shown import FILES, Shown, records_of
from manyscale.runner.run.sweeps import point_files

_MOST_SHOWN = 8  # ranges of points


def line(directory: Path, place: str, points: Iterable[int], num_ranks: int, shows: Shown) -> str:
    """Which of the finished ``points`` of the sweep in ``directory`` (for the user ``place``) lack traces, and what
    writes them; empty if none does."""
    found = [index for index in points if _lacks(point_files.folder(directory, index), num_ranks, shows)]
    if not found:
        return ""
    which = f"point {found[0]} was" if len(found) == 1 else f"points {_ranges(found)} were"
    return f"{which} finished without traces and left so; manyscale report {place} --point N (or all) writes them"


def _lacks(folder: Path, num_ranks: int, shows: Shown) -> bool:
    names = point_files.names(folder) if point_files.is_packed(folder) else []
    names = [*names, *(path.name for path in folder.iterdir())]
    kinds = shows.kinds(_records(folder, num_ranks) if shows.report else 0, is_point=True)
    return not all(any(name.startswith(FILES[kind]) for name in names) for kind in kinds)


def _records(folder: Path, num_ranks: int) -> int:
    """``shown.num_records`` of a point, by its files."""
    tables = {path.stem: path for path in (folder / "timeline").glob("*.parquet")}
    return records_of({name: pq.read_metadata(path).num_rows for name, path in tables.items()}, num_ranks)


def _ranges(numbers: Sequence[int]) -> str:
    runs = [[number for _, number in group] for _, group in groupby(enumerate(numbers), lambda each: each[1] - each[0])]
    words = [f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs[:_MOST_SHOWN]]
    more = sum(map(len, runs[_MOST_SHOWN:]))
    return ", ".join(words) + (f" and {more} others" if more else "")
