"""Measured ping-pongs and message streams: the output of OSU's benchmarks, of Intel's (IMB), of NetPIPE, or CSV.

* OSU ``osu_latency``: size and one-way latency in us; ``osu_bw``: size and MB/s (10^6), a stream of messages;
* IMB ``PingPong``: #bytes, repetitions, t[usec] one way, Mbytes/sec; ``Uniband`` (no times): size, repetitions, MB/s;
* NetPIPE 3 ``np.out``: bytes, Mbit/s, one-way seconds; or its progress lines, ``0: 1 bytes 100 times --> 2 Mbps in
  3 usec``;
* CSV with a header: ``bytes`` and one of ``time_s, time_ms, time_us, time_ns`` (one way).
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from manyscale.runner.errors import UserError
from manyscale.runner.plain_files import refuse_special
from manyscale.runner.readers import bounds

_MOST_BYTES: Final = 2.0**53  # exact as a float
_PS: Final = {"s": 1e12, "ms": 1e9, "us": 1e6, "usec": 1e6, "usecs": 1e6, "ns": 1e3}
_NUMBER: Final = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_NETPIPE: Final = re.compile(
    r"\s*\d+:\s+(\d+)\s+(?:bytes|B)\s+\d+\s+times\s+-->\s+\S+\s+[MG]bps\s+in\s+([0-9.eE+-]+)\s+(\w+)"
)


@dataclass(frozen=True)
class Measurements:
    """``sizes`` int64 bytes, increasing; ``times_ps`` float64: one way if ``is_stream`` is false, else from one message
    to the next. ``benchmark``: what wrote the file."""

    benchmark: str
    is_stream: bool
    sizes: np.ndarray
    times_ps: np.ndarray


def read(path: Path) -> Measurements:
    """Read one file. Several measurements of one size count as their median. Raises UserError, one line."""
    try:
        lines = refuse_special(path).read_text(errors="replace").splitlines()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    text = "\n".join(lines[:400]).lower()
    if "osu" in text and "latency" in text:
        return _columns(path, lines, "OSU latency", 0, 1, 2, is_stream=False)
    if "osu" in text and "bandwidth" in text:
        return _columns(path, lines, "OSU bandwidth", 0, 1, 2, is_stream=True)
    if "#bytes" in text and "t[usec]" in text:
        return _columns(path, _section(lines, "t[usec]"), "IMB PingPong", 0, 2, 4, is_stream=False)
    if "#bytes" in text and "mbytes/sec" in text:
        return _columns(path, _section(lines, "mbytes/sec"), "IMB Uniband", 0, 2, 3, is_stream=True)
    if "-->" in text and "bps" in text:
        return _netpipe(path, lines)
    first = next((line for line in lines if line.strip()), "")
    if "," in first and "bytes" in first.lower():
        return _csv(path, lines)
    if len(first.split()) >= 3 and all(_NUMBER.fullmatch(word) for word in first.split()):
        return _columns(path, lines, "NetPIPE", 0, 2, 3, is_stream=False, unit_ps=1e12)
    raise UserError(f"{path}: is no ping-pong that is known (OSU, IMB, NetPIPE, or CSV with the columns bytes,time_us)")


def _section(lines: list[str], header: str) -> list[str]:
    """The lines behind the first header that holds ``header``, up to the next blank line or comment."""
    heads = (index for index, line in enumerate(lines) if "#bytes" in line.lower() and header in line.lower())
    begin = next(heads, len(lines))
    body: list[str] = [""] * (begin + 1)
    for line in lines[begin + 1 :]:
        if not line.strip() or line.lstrip().startswith("#"):
            break
        body.append(line)
    return body


def _columns(
    path: Path, lines: list[str], benchmark: str, size_at: int, value_at: int, least: int, *, is_stream: bool,
    unit_ps: float = 1e6,
) -> Measurements:  # fmt: skip
    """Rows of numbers; ``value_at`` holds a time in units of ``unit_ps``, or of a stream MB/s."""
    sizes: list[float] = []
    values: list[float] = []
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if not _NUMBER.fullmatch(words[0]):
            if sizes:
                break  # what a program prints behind its table
            continue
        if len(words) < least or not _NUMBER.fullmatch(words[value_at]):
            raise UserError(f"{path}:{number}: a row of {benchmark} needs {least} numbers, this is {line.strip()!r}")
        sizes.append(_size(words[size_at], f"{path}:{number}"))
        values.append(bounds.finite(words[value_at], f"{path}:{number}", "what was measured"))
    if is_stream:  # MB/s: bytes per us
        positive = [(size, size / rate) for size, rate in zip(sizes, values, strict=True) if rate > 0 and size > 0]
        sizes, values = [size for size, _ in positive], [time for _, time in positive]
    return _measurements(path, benchmark, sizes, [value * unit_ps for value in values], is_stream)


def _size(word: object, place: str) -> float:
    return bounds.finite(word, place, "the size", most=_MOST_BYTES)


def _netpipe(path: Path, lines: list[str]) -> Measurements:
    found = [
        (_size(match[1], f"{path}:{number}"), bounds.finite(match[2], f"{path}:{number}", "the time"), match[3])
        for number, line in enumerate(lines, start=1)
        if (match := _NETPIPE.match(line))
    ]
    unknown = next((unit for _, _, unit in found if unit.lower() not in _PS), None)
    if unknown is not None:
        raise UserError(f"{path}: {unknown!r} is no unit of time that is known ({', '.join(_PS)})")
    times = [time * _PS[unit.lower()] for _, time, unit in found]
    return _measurements(path, "NetPIPE", [size for size, _, _ in found], times, False)


def _csv(path: Path, lines: list[str]) -> Measurements:
    reader = csv.DictReader(line for line in lines if line.strip() and not line.startswith("#"))
    names = {name.strip().lower(): name for name in reader.fieldnames or ()}
    time = next((name for name in names if name.startswith("time_") and name[5:] in _PS), None)
    if "bytes" not in names or time is None:
        raise UserError(f"{path}:1: the header needs the columns bytes and time_us (or time_s, time_ms, time_ns)")
    sizes, times = [], []
    for number, row in enumerate(reader, start=2):
        sizes.append(_size(row[names["bytes"]], f"{path}:{number}"))
        times.append(bounds.finite(row[names[time]], f"{path}:{number}", time) * _PS[time[5:]])
    return _measurements(path, "CSV", sizes, times, False)


def _measurements(path: Path, benchmark: str, sizes: list[float], times: list[float], is_stream: bool) -> Measurements:
    if not sizes:
        raise UserError(f"{path}: the file of {benchmark} holds no measurement")
    size, time = np.array(sizes), np.array(times)
    if np.any(size != np.floor(size)) or np.any(size < 0):
        raise UserError(f"{path}: the size {size[(size != np.floor(size)) | (size < 0)][0]:g} is no number of bytes")
    if not np.all(np.isfinite(time) & (time > 0)):
        raise UserError(
            f"{path}: the time of {size[~(np.isfinite(time) & (time > 0))][0]:g} B is not positive; measure again"
        )
    distinct = np.unique(size)
    median = np.array([np.median(time[size == value]) for value in distinct])
    return Measurements(benchmark, is_stream, distinct.astype(np.int64), median)
