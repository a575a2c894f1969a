"""Tables of NVIDIA's profilers as columns of text, one row per kernel launch; what the numbers in them mean.

Three layouts: a row per launch (nvprof; Nsight Compute's raw page), with or without a row of units behind the header;
and Nsight Compute's long one (``--page details``), a row per launch and metric. Lines of the profilers' logs
(``==PROF== ...``) may stand anywhere. A list of values in one cell (metrics by instance) is no number.

Numbers have separators of thousands, which depend on the locale: ``1,234.5`` or ``1.234,5``. What the file's numbers
can only be decides (`decimal_mark`).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
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
_AMBIGUOUS: Final = re.compile(r"[+-]?\d{1,3}[.,]\d{3}")
_PREFIXES: Final = {"k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_COUNTED: Final = ("inst", "cycle", "sector", "request", "byte", "block", "thread", "warp")
_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True)
class ProfilerTable:
    """``columns``: by simple name (`simple_name`) a text for each launch ("" where there is none); ``units`` by the
    same names, where the file has them; ``lines`` int64[launches]: where each launch (first) stands."""

    path: Path
    columns: dict[str, list[str]]
    units: dict[str, str]
    lines: np.ndarray

    @property
    def num_launches(self) -> int:
        return len(self.lines)


def simple_name(name: str) -> str:
    """A column's name in lower case, with one ``_`` for anything that is no letter or digit."""
    return re.sub(r"[^0-9a-z]+", "_", name.strip().lower()).strip("_")


def header_of(path: Path) -> list[str]:
    """Simple names of the columns, as far as the beginning of the file has a header; else none."""
    head = read_head(path, _HEAD_BYTES)
    if head is None or b"\0" in head:
        return []
    for line in head.decode("utf-8-sig", errors="replace").splitlines():
        if line.strip() and not _LOG.match(line):
            try:
                return [simple_name(name) for name in next(csv.reader([line], delimiter=_delimiter(line)))]
            except csv.Error:
                return []
    return []


def read_table(path: Path) -> ProfilerTable:
    """Raises UserError with file and line for a file without a header or launches, and for rows that do not fit."""
    with guarded(path), open_stream(path) as stream:
        lines = _Lines(stream)
        first = next(iter(lines), None)
        if first is None:
            raise UserError(f"{path}: is empty; profile with --csv and keep what it writes")
        delimiter = _delimiter(first)
        try:
            header = [simple_name(name) for name in next(csv.reader([first], delimiter=delimiter))]
            rows = _rows(path, lines, len(header), delimiter)
            is_long = all(name in header for name in _LONG)
            table = _long_table(path, header, rows) if is_long else _wide_table(path, header, rows)
        except csv.Error as error:
            raise UserError(f"{path}:{lines.number}: is no line of a CSV file ({error}); mend it") from None
    if not table.num_launches:
        raise UserError(f"{path}: has a header but no launches; the profiled program ran no kernel, or the file is cut")
    return table


class _Lines:
    """Lines of the table itself, and the number of the last one."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        for line in self._stream:
            self.number += 1
            text = line.decode("utf-8-sig" if self.number == 1 else "utf-8", errors="replace").rstrip("\r\n")
            if text.strip() and not _LOG.match(text):
                yield text


def _delimiter(header: str) -> str:
    return max(",;\t", key=header.count)


def _rows(path: Path, lines: _Lines, width: int, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    for row in csv.reader(iter(lines), delimiter=delimiter, strict=True):
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
    return ProfilerTable(path, columns, units, np.array(numbers, np.int64))


def _long_table(path: Path, header: Sequence[str], rows: Iterator[tuple[int, list[str]]]) -> ProfilerTable:
    """A launch is an id (of a process, where the file names it), in the order of their first rows."""
    place = {name: header.index(name) for name in header}
    key_places = [place[name] for name in ("process_id", "id") if name in place]
    common = [name for name in header if name not in (*_LONG, "metric_unit", "section_name", "rule_name", "rule_type")]
    launches: dict[tuple[str, ...], int] = {}
    numbers: list[int] = []
    columns: dict[str, list[str]] = {name: [] for name in common}
    units: dict[str, str] = {}
    cells: dict[str, dict[int, str]] = {}
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
        cells.setdefault(name, {})[launch] = row[place["metric_value"]]
        unit = row[place["metric_unit"]].strip() if "metric_unit" in place else ""
        if units.setdefault(name, unit) != unit:
            raise UserError(f"{path}:{number}: {row[place['metric_name']]} is in {unit}, in {units[name]} before; "
                            "profile with --print-units base")  # fmt: skip
    for name, values in cells.items():
        if name not in columns:
            columns[name] = [values.get(launch, "") for launch in range(len(numbers))]
    return ProfilerTable(
        path, columns, {name: unit for name, unit in units.items() if unit}, np.array(numbers, np.int64)
    )


def decimal_mark(table: ProfilerTable, names: Sequence[str], whole: Sequence[str]) -> str:
    """``.`` or ``,``, whichever separates decimals in the columns ``names``; those of ``whole`` hold counts.

    A number with both has decimals behind the last one; one that repeats separates thousands; one that is not followed
    by three digits, or follows more than three, separates decimals. Where each number could be either, it is the mark
    by which all counts are whole, ``.`` if both are. Raises UserError with the line if numbers contradict each other.
    """
    found: dict[str, tuple[str, int]] = {}
    for name in names:
        for text, line in zip(table.columns[name], table.lines.tolist(), strict=True):
            mark = _certain_mark(_SPACES.sub("", text))
            if mark and found.setdefault(mark, (text, line)) and len(found) > 1:
                other, place = found["," if mark == "." else "."]
                raise UserError(
                    f"{table.path}:{line}: {text!r} has another decimal mark than {other!r} in line {place}; "
                    "profile all launches under one locale"
                )
    if found:
        return next(iter(found))
    counts = [_SPACES.sub("", text) for name in whole for text in table.columns[name]]
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


def numbers(table: ProfilerTable, name: str, mark: str) -> np.ndarray | None:
    """float64[launches] of a column, in its base unit (seconds for times); None if the table has no such column, or no
    number in it. Raises UserError with the line where some launches have a number and one has none."""
    texts = table.columns.get(name)
    if texts is None:
        return None
    thousands = "," if mark == "." else "."
    if mark == ".":  # most files: at once, if nothing is odd
        try:
            return np.array(texts).astype(np.float64) * _scale(table.units.get(name, ""))
        except ValueError:
            pass
    values = np.full(len(texts), np.nan)
    for row, text in enumerate(texts):
        plain = _SPACES.sub("", text)
        if _NUMBER.fullmatch(plain):
            try:
                values[row] = float(plain.replace(thousands, "").replace(mark, "."))
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
    return values * _scale(table.units.get(name, ""))


def _scale(unit: str) -> float:
    """Of ``unit``, as nvprof and Nsight Compute write it: ``usecond``, ``us``, ``Kbyte``, ``KB``, ``Minst``."""
    text = unit.lower()
    time = re.fullmatch(r"(n|u|m|)s(ec(ond)?s?)?", text)
    if time:
        return _SECONDS[time[1] + "s"]
    prefixed = re.fullmatch(r"([kmgt])(b|[a-z]+)(/.*)?", text)
    if prefixed and (prefixed[2] == "b" or prefixed[2].rstrip("s") in _COUNTED):
        factor = _PREFIXES[prefixed[1]]
        return float(1024 ** (list(_PREFIXES).index(prefixed[1]) + 1)) if prefixed[2] == "b" else factor
    return 1.0
