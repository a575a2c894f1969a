"""Finished points of a sweep that have not the traces which a run that goes on is asked for: it leaves them as they
are, and says so."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from manyscale.runner.run.shown import Shown, kinds_among
from manyscale.runner.run.sweeps import point_files
from manyscale.runner.run.sweeps.finished import Finished

_MOST_SHOWN = 8  # ranges of points


def line(directory: Path, place: str, points: Iterable[Finished], shows: Shown) -> str:
    """Which of the finished ``points`` of the sweep in ``directory`` (for the user ``place``) lack traces, and what
    writes them; empty if none does."""
    found = [point.index for point in points if _lacks(directory, point, shows)]
    if not found:
        return ""
    which = f"point {found[0]} was" if len(found) == 1 else f"points {_ranges(found)} were"
    return f"{which} finished without traces and left so; manyscale report {place} --point N (or all) writes them"


def _lacks(directory: Path, point: Finished, shows: Shown) -> bool:
    """By what the journal tells of the point; only where that says so, its folder is looked at for what ``report`` has
    written since."""
    missing = {*shows.kinds(point.records, is_point=True)} - {*point.traces}
    return bool(missing) and not missing <= {*kinds_among(os.listdir(point_files.folder(directory, point.index)))}


def _ranges(numbers: Sequence[int]) -> str:
    runs = [[number for _, number in group] for _, group in groupby(enumerate(numbers), lambda each: each[1] - each[0])]
    words = [f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs[:_MOST_SHOWN]]
    more = sum(map(len, runs[_MOST_SHOWN:]))
    return ", ".join(words) + (f" and {more} others" if more else "")
