"""Reader for call stacks that are already cut into sampling units (``NAME.stk``, plain or compressed).

Fields are separated by tabs. ``M id name`` names a frame; ``S unit thread ids`` is one snapshot: the number of its
unit, its thread, and the frames' ids from the innermost outwards, separated by commas. Beside it may stand
``NAME.cpi.csv``, plain or compressed, with a row per unit and thread: ``interval, tid, instrs, centicycles`` and
further counters. It holds SimProf's input (Huang, Georgia Tech 2015, section 5.3.1) of a run whose units' cycles are
known.

The units' numbers are kept; ``centicycles`` become the counter ``cycles``. The format knows no times: they are 0.

Cost: one pass in Python, a line per snapshot.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from manyscale.runner.errors import UserError
from manyscale.runner.readers import bounds
from manyscale.runner.readers.archive import first_line, guarded, open_stream
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions
from manyscale.runner.readers.stacks.profile import UNIT_LENGTH, Profile

if TYPE_CHECKING:
    from manyscale.models.workload import Workload

NAME: Final = "unit-stacks"
_LONGEST_LINE: Final = 1 << 16
_SUFFIXES: Final = ("", ".xz", ".gz", ".zst")
_SNAPSHOT: Final = re.compile(rb"S\t\d+\t\d+\t[\d,]+\s*$")
_UNIT, _THREAD = "interval", "tid"


def can_read(path: Path) -> bool:
    """Whether the first lines of the file name frames and take snapshots of units."""
    return [fields for fields in head_fields(path) if fields[0] == "S" and len(fields) == 4] != []


def resembles(path: Path) -> int | None:
    """The first line that is a snapshot of a unit, if one is."""
    return first_line(path, _SNAPSHOT)


def reads_one_file(path: Path) -> bool:
    return path.is_file() and counters_beside(path, ".cpi.csv") is None


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The workload of a file and of the counters beside it (``options`` play no part). Raises UserError with file and
    line for what does not fit the format, and for snapshots of units that the counters do not have."""
    from manyscale.models.workload import Workload
    from manyscale.models.workload.notes import changes, informs
    from manyscale.runner.readers.rank_tables import rank_tables
    from manyscale.runner.readers.stacks.tables import frame_tables, unit_tables

    profile = Profile()
    rows: list[tuple[int, int, int]] = []
    for number, fields, seen in snapshots(path, profile):
        if len(fields) != 4 or not fields[1].isdecimal() or not fields[2].isdecimal() or len(fields[1]) > 9:
            raise UserError(f"{path}:{number}: a snapshot is 'S unit thread frames', separated by tabs")
        rows.append((bounds.whole(fields[2], f"{path}:{number}", "the thread"), int(fields[1]), seen))
    thread, unit, stack = np.array(rows, np.int64).reshape(-1, 3).T
    order = np.lexsort((unit, thread))
    thread, unit, stack = thread[order], unit[order], stack[order]
    notes = [informs("units-without-times", "the units have no times")]
    beside = counters_beside(path, ".cpi.csv")
    if beside is None:
        text = "no counters beside the stacks (NAME.cpi.csv): the units' instructions and cycles are not known"
        notes.append(informs("counters-missing", text))
        measured: dict[tuple[int, int], dict[str, float]] = {}
    else:
        measured = _measured(beside)
    ids = sorted(set(zip(thread.tolist(), unit.tolist(), strict=True)) | set(measured))
    if measured and len(measured) != len(ids):
        lost = next(one for one in ids if one not in measured)
        raise UserError(
            f"{beside}: has no row for unit {lost[1]} of thread {lost[0]}, of which {path.name} has snapshots"
        )
    without = len(ids) - len(np.unique(thread << 32 | unit))
    if without:
        notes.append(changes("units-without-snapshots", f"{without} units have no snapshot", count=without))
    threads = sorted({one for one, _ in ids})
    tables = unit_tables(ids, threads, thread, unit, stack, np.ones(len(stack), np.int64), measured)
    tables |= frame_tables(list(profile.frames), list(profile.stacks)) | rank_tables(1, {})
    return Workload(path.name.split(".")[0], 1, tables, tuple(notes), NAME)


def _measured(path: Path) -> dict[tuple[int, int], dict[str, float]]:
    """Counters by thread and unit."""
    result: dict[tuple[int, int], dict[str, float]] = {}
    with guarded(path), open_stream(path) as stream:
        rows = csv.DictReader(io.TextIOWrapper(stream, errors="replace"))
        if not {_UNIT, _THREAD, UNIT_LENGTH} <= set(rows.fieldnames or ()):
            raise UserError(f"{path}:1: a table of units has the columns {_UNIT}, {_THREAD} and {UNIT_LENGTH}")
        for row in rows:
            try:
                values = {name: float(value) for name, value in row.items()}
                key = int(row[_THREAD]), int(row[_UNIT])
            except (TypeError, ValueError, AttributeError):
                raise UserError(f"{path}:{rows.line_num}: each column must have a number in each row") from None
            del values[_UNIT], values[_THREAD]
            if "centicycles" in values:
                values["cycles"] = values.pop("centicycles") / 100
            if key in result:
                raise UserError(f"{path}:{rows.line_num}: unit {key[1]} of thread {key[0]} stands twice")
            result[key] = values
    return result


def counters_beside(path: Path, ending: str) -> Path | None:
    """The table of counters beside a file of stacks: NAME and ``ending`` instead of NAME.stk."""
    name = path.name.split(".")[0]
    return next((one for suffix in _SUFFIXES if (one := path.with_name(f"{name}{ending}{suffix}")).is_file()), None)


def head_fields(path: Path) -> list[list[str]]:
    """The fields of the lines up to the first snapshot, if the file is a list of frames and snapshots; else none. Never
    raises."""
    fields: list[list[str]] = []
    if not path.is_file():
        return fields
    try:
        with guarded(path), open_stream(path) as stream:
            while not fields or fields[-1][0] != "S":  # all frames may stand first
                raw = stream.readline(_LONGEST_LINE)
                line = raw.decode(errors="replace").rstrip("\r\n")
                if line.startswith("#"):
                    continue
                fields.append(line.split("\t"))
                if not raw or fields[-1][0] not in ("M", "S") or len(fields[-1]) < 3:
                    return []
    except UserError:
        return []
    return fields


def snapshots(
    path: Path, profile: Profile, renamed: Callable[[str], str] = str
) -> Iterator[tuple[int, list[str], int]]:
    """(line, fields, stack) of each snapshot; stacks, and frames by the names that ``renamed`` makes of theirs, are
    entered into the profile.

    The last field of a snapshot lists the frames' ids from the innermost outwards. Raises UserError.
    """
    frames: dict[str, int] = {}
    known: dict[str, int] = {}  # stacks by their list of ids
    num_snapshots = 0
    with guarded(path), open_stream(path) as stream:
        for number, raw in enumerate(stream, 1):
            line = raw.decode(errors="replace").rstrip("\r\n")
            if not line or line.startswith("#"):
                continue
            fields = line.split("\t")
            if fields[0] == "M" and len(fields) == 3:
                frames[fields[1]] = profile.frame(renamed(fields[2]))
            elif fields[0] == "S" and len(fields) > 2:
                stack = known.get(fields[-1])
                if stack is None:
                    try:
                        ids = [frames[one] for one in reversed(fields[-1].split(","))]
                    except KeyError as error:
                        raise UserError(
                            f"{path}:{number}: no line before names frame {error}; the file may be damaged"
                        ) from None
                    stack = known[fields[-1]] = profile.stack(ids)
                num_snapshots += 1
                yield number, fields, stack
            else:
                raise UserError(f"{path}:{number}: is neither a frame (M) nor a snapshot (S); got {line[:60]!r}")
    if not num_snapshots:
        raise UserError(f"{path}: has no snapshots; profile the program again")
