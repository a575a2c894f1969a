"""Tables of NVIDIA's profilers as columns of text, one row per kernel launch; what the numbers in them mean.

Three layouts: a row per launch (nvprof; Nsight Compute's raw page), with or without a row of units behind the header;
and Nsight Compute's long one (``--page details``), a row per launch and metric. Lines of the profilers' logs
(``==PROF== ...``) may stand anywhere, and what the program printed before the table. A list of values in one cell
(metrics by instance) is no number.

A unit is of one value: Nsight Compute scales each to what is best read, unless it is told ``--print-units base``.

Numbers have separators of thousands, which depend on the locale: ``1,234.5`` or ``1.234,5``. What the file's numbers
can only be decides (`decimal_mark`).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import numpy as np

from manyscale.runner.errors import UserError
from manyscale.runner.readers.archive import guarded, open_stream, read_head

KERNEL_NAMES: Final = ("kernel_name", "name", "kernel")  # of the column that names a launch's kernel
_HEAD_BYTES: Final = 1 << 18
_LOG: Final = re.compile(r"={2,}(\d+|[A-Z]+)={2,}|={6,}")
_LONG: Final = ("metric_name", "metric_value")
_SPACES: Final = re.compile("[\\s'\u2019\u00a0\u202f]")
_NUMBER: Final = re.compile(r"[+-]?[\d.,]+([eE][+-]?\d+)?")
# of a cell that has its unit with it
_WITH_UNIT: Final = re.compile(r"([+-]?[\d.,]+(?:[eE][+-]?\d+)?)([a-zA-Z\u00b5\u03bc%]{1,10})")
_AMBIGUOUS: Final = re.compile(r"[+-]?\d{1,3}[.,]\d{3}")
_PREFIXES: Final = {"k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_COUNTED: Final = ("inst", "cycle", "sector", "request", "byte", "block", "thread", "warp", "hz")
_TIME: Final = re.compile("(n|u|\u00b5|\u03bc|m|)s(ec(ond)?s?)?")
_SECONDS: Final = {"n": 1e-9, "u": 1e-6, "\u00b5": 1e-6, "\u03bc": 1e-6, "m": 1e-3, "": 1.0}
_LONG_TIMES: Final = {"min": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0}


@dataclass(frozen=True)
class ProfilerTable:
    """``columns``: by simple name (`simple_name`) a text for each launch ("" where there is none); ``units`` by the
    same names likewise, where the file has them; ``lines`` int64[launches]: where each launch (first) stands."""

    path: Path
    columns: dict[str, list[str]]
    units: dict[str, list[str]]
    lines: np.ndarray

    @property
    def num_launches(self) -> int:
        return len(self.lines)


def simple_name(name: str) -> str:
    """A column's name in lower case, with one ``_`` for anything that is no letter or digit."""
    return re.sub(r"[^0-9a-z]+", "_", name.strip().lower()).strip("_")


def headers_in(path: Path) -> Iterator[tuple[int, set[str]]]:
    """Number and simple names of the columns, of each line of the file's beginning that could be a header."""
    head = read_head(path, _HEAD_BYTES)
    if head is None or b"\0" in head:
        return
    for number, line in enumerate(head.decode("utf-8-sig", errors="replace").splitlines(), 1):
        names = _names(line)
        if len(names) > 1:
            yield number, set(names)


def is_header(names: set[str]) -> bool:
    """Whether these columns are of a profiler's table: by names that only such have."""
    is_nvprof = bool(names & {"inst_executed", "elapsed_cycles_sm", "thread_inst_executed"}) and bool(
        names & set(KERNEL_NAMES)
    )
    return is_nvprof or (
        {"id", "kernel_name"} <= names
        and (set(_LONG) <= names or any(name.startswith(("smsp_", "sm_", "launch_")) for name in names))
    )


def _names(line: str) -> list[str]:
    if not line.strip() or _LOG.match(line):
        return []
    try:
        return [simple_name(name) for name in next(csv.reader([line], delimiter=_delimiter(line)))]
    except csv.Error:
        return []


def read_table(path: Path, begins: Callable[[set[str]], bool] = is_header) -> ProfilerTable:
    """The table whose header has names that ``begins`` knows (else that of the first line). Raises UserError with file
    and line for a file without a header or launches, and for rows that do not fit."""
    with guarded(path), open_stream(path) as stream:
        skipped = next((number - 1 for number, names in headers_in(path) if begins(names)), 0)
        lines = _Lines(stream, skipped)
        first = next(iter(lines), None)
        if first is None:
            raise UserError(f"{path}: is empty; profile with --csv and keep what it writes")
        delimiter = _delimiter(first)
        try:
            header = [simple_name(name) for name in next(csv.reader([first], delimiter=delimiter))]
            is_long = all(name in header for name in _LONG)
            least = max(map(header.index, _LONG)) + 1 if is_long else len(header)
            rows = _rows(path, lines, len(header), least, delimiter)
            table = _long_table(path, header, rows) if is_long else _wide_table(path, header, rows)
        except csv.Error as error:
            raise UserError(f"{path}:{lines.number}: is no line of a CSV file ({error}); mend it") from None
    if not table.num_launches:
        raise UserError(f"{path}: has a header but no launches; the profiled program ran no kernel, or the file is cut")
    return table


class _Lines:
    """Lines of the table itself, from line number ``skipped`` on, and the number of the last one."""

    def __init__(self, stream: IO[bytes], skipped: int) -> None:
        self._stream = stream
        self._skipped = skipped
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        for line in self._stream:
            self.number += 1
            text = line.decode("utf-8-sig" if self.number == 1 else "utf-8", errors="replace").rstrip("\r\n")
            if self.number > self._skipped and text.strip() and not _LOG.match(text):
                yield text


def _delimiter(header: str) -> str:
    return max(",;\t", key=header.count)


def _rows(path: Path, lines: _Lines, width: int, least: int, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Rows of ``width`` fields, the last of which may be missing behind ``least``: Nsight Compute leaves out what only
    the advice of its rules has."""
    for row in csv.reader(iter(lines), delimiter=delimiter, strict=True):
        if least <= len(row) < width:
            row += [""] * (width - len(row))
        if len(row) != width:
            raise UserError(
                f"{path}:{lines.number}: has {len(row)} fields, the header has {width}; the file may be cut short"
            )
        yield lines.number, row


def _wide_table(path: Path, header: Sequence[str], rows: Iterator[tuple[int, list[str]]]) -> ProfilerTable:
    numbers: list[int] = []
    kept: list[list[str]] = []
    units: dict[str, str] = {}
    naming = [place for place, name in enumerate(header) if name in ("id", "name", "kernel", "kernel_name", "device")]
    for number, row in rows:
        if not kept and not units and not any(row[place].strip() for place in naming):
            units = {name: unit.strip() for name, unit in zip(header, row, strict=True) if unit.strip()}
            continue
        numbers.append(number)
        kept.append(row)
    columns = {name: [row[place] for row in kept] for place, name in reversed(list(enumerate(header)))}
    of_launches = {name: [unit] * len(kept) for name, unit in units.items()}
    return ProfilerTable(path, columns, of_launches, np.array(numbers, np.int64))


def _long_table(path: Path, header: Sequence[str], rows: Iterator[tuple[int, list[str]]]) -> ProfilerTable:
    """A launch is an id (of a process, where the file names it), in the order of their first rows."""
    place = {name: header.index(name) for name in header}
    key_places = [place[name] for name in ("process_id", "id") if name in place]
    common = [name for name in header if name not in (*_LONG, "metric_unit", "section_name", "rule_name", "rule_type")]
    launches: dict[tuple[str, ...], int] = {}
    numbers: list[int] = []
    columns: dict[str, list[str]] = {name: [] for name in common}
    cells: dict[str, dict[int, tuple[str, str]]] = {}  # value and unit
    for number, row in rows:
        key = tuple(row[one] for one in key_places)
        launch = launches.setdefault(key, len(launches))
        if launch == len(numbers):
            numbers.append(number)
            for name in common:
                columns[name].append(row[place[name]])
        name = simple_name(row[place["metric_name"]])
        if not name:  # advice of a rule
            continue
        unit = row[place["metric_unit"]].strip() if "metric_unit" in place else ""
        cells.setdefault(name, {})[launch] = row[place["metric_value"]], unit
    units: dict[str, list[str]] = {}
    for name, values in cells.items():
        if name not in columns:
            of_launches = [values.get(launch, ("", "")) for launch in range(len(numbers))]
            columns[name] = [value for value, _ in of_launches]
            if any(unit for _, unit in of_launches):
                units[name] = [unit for _, unit in of_launches]
    return ProfilerTable(path, columns, units, np.array(numbers, np.int64))


def decimal_mark(table: ProfilerTable, names: Sequence[str], whole: Sequence[str]) -> str:
    """``.`` or ``,``, whichever separates decimals in the columns ``names``; those of ``whole`` hold counts.

    A number with both has decimals behind the last one; one that repeats separates thousands; one that is not followed
    by three digits, or follows more than three, separates decimals. Where each number could be either, it is the mark
    by which all counts are whole, ``.`` if both are. Raises UserError with the line if numbers contradict each other.
    """
    found: dict[str, tuple[str, int]] = {}
    for name in names:
        for text, line in zip(table.columns[name], table.lines.tolist(), strict=True):
            mark = _certain_mark(_plain(text)[0])
            if mark and found.setdefault(mark, (text, line)) and len(found) > 1:
                other, place = found["," if mark == "." else "."]
                raise UserError(
                    f"{table.path}:{line}: {text!r} has another decimal mark than {other!r} in line {place}; "
                    "profile all launches under one locale"
                )
    if found:
        return next(iter(found))
    counts = [_plain(text)[0] for name in whole for text in table.columns[name]]
    is_whole = {mark: all(_is_whole(text, mark) for text in counts) for mark in ".,"}
    return "," if is_whole[","] and not is_whole["."] else "."


def _certain_mark(text: str) -> str:
    if not _NUMBER.fullmatch(text) or _AMBIGUOUS.fullmatch(text):
        return ""
    dots, commas = text.count("."), text.count(",")
    if dots and commas:
        return "." if text.rindex(".") > text.rindex(",") else ","
    if dots > 1 or commas > 1:
        return "," if dots else "."
    return "." if dots else "," if commas else ""


def _is_whole(text: str, mark: str) -> bool:
    decimals = text.partition(mark)[2]
    return not decimals.strip("0")


def _plain(text: str) -> tuple[str, str]:
    """A number without its spaces, and the unit that stands behind it in the same cell."""
    plain = _SPACES.sub("", text)
    found = _WITH_UNIT.fullmatch(plain)
    return (found[1], found[2]) if found and _scale(found[2]) else (plain, "")


def numbers(table: ProfilerTable, name: str, mark: str) -> np.ndarray | None:
    """float64[launches] of a column, in its base unit (seconds for times); None if the table has no such column, or no
    number in it. Raises UserError with the line where some launches have a number and one has none, or a unit of
    another kind than the others."""
    texts = table.columns.get(name)
    if texts is None:
        return None
    units = table.units.get(name, [""] * len(texts))
    thousands = "," if mark == "." else "."
    try:
        if mark == "." and len(set(units)) == 1:  # most files: at once, if nothing is odd
            plain_numbers = np.array(texts).astype(np.float64)
            if np.all(np.isfinite(plain_numbers)):
                return plain_numbers * (_scale(units[0]) or (1.0, ""))[0]
    except ValueError:
        pass
    values = np.full(len(texts), np.nan)
    kinds: dict[str, str] = {}  # the kind of each unit, and the first unit of it
    for row, text in enumerate(texts):
        plain, own_unit = _plain(text)
        if not _NUMBER.fullmatch(plain):
            continue
        unit = own_unit or units[row]
        scale, kind = _scale(unit) or (1.0, unit)
        kinds.setdefault(kind, unit)
        if len(kinds) > 1:
            raise UserError(
                f"{table.path}:{table.lines[row]}: {name} is in {unit or 'no unit'}, in "
                f"{next(iter(kinds.values())) or 'no unit'} before; profile with --print-units base"
            )
        try:
            values[row] = float(plain.replace(thousands, "").replace(mark, ".")) * scale
        except ValueError:  # marks alone, or several
            continue
    missing = np.isnan(values)
    if np.all(missing):
        return None
    if np.any(missing):
        row = int(np.argmax(missing))
        raise UserError(
            f"{table.path}:{table.lines[row]}: {name} is {texts[row]!r}, which is no number; profile this launch again"
        )
    return values


def is_time(unit: str) -> bool:
    """Whether ``unit`` is one of time; "" is taken for seconds."""
    return not unit or (_scale(unit) or (0.0, ""))[1] == "s"


def _scale(unit: str) -> tuple[float, str] | None:
    """Of ``unit``, as nvprof and Nsight Compute write it (``usecond``, ``us``, ``Kbyte``, ``KB``, ``Minst``): how many
    of its base unit it is, and which kind that is, "" for a count; None for an unknown one."""
    text = unit.lower()
    if time := _TIME.fullmatch(text):
        return _SECONDS[time[1]], "s"
    if text in _LONG_TIMES:
        return _LONG_TIMES[text], "s"
    if not text or text == "%":
        return 1.0, text
    what, slash, per = text.partition("/")
    kind = f"{slash}{per}"
    if found := re.fullmatch("([kmgt]?)(i?)b", what):
        return (float(1024 ** ("kmgt".index(found[1]) + 1)) if found[1] else 1.0), f"byte{kind}"
    if found := re.fullmatch("([kmgt]?)([a-z]+?)s?", what):
        base = found[2] if found[2] in _COUNTED else ""
        if base:
            return _PREFIXES.get(found[1], 1.0), f"byte{kind}" if base == "byte" else kind
    return None
