"""Measured collectives of GPUs: the output of nccl-tests, or CSV of it, plain or compressed.

* Text, as ``all_reduce_perf`` and its like print it: the columns that its head names (``size``, ``time`` in us, out of
  place first, ``busbw``), the ranks and hosts that it lists, and the collective, where it tells it;
* CSV with a head: ``bytes`` or ``size(B)``, one of ``time(ns), time(us), time_us, out_time_us`` and so on, and where it
  has it ``busbw(GB/s)`` or ``out_busbw``.

Sizes are nccl-tests': the whole message, of all-gather and reduce-scatter all blocks. How many GPUs took part follows
from the bus bandwidth, which nccl-tests makes of time and size by their number: 2 (n - 1) / n of an all-reduce,
(n - 1) / n of all-gather, reduce-scatter and all-to-all (nccl-tests, doc/PERFORMANCE.md).
"""

from __future__ import annotations

import csv
import lzma
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from manyscale.runner.errors import UserError
from manyscale.runner.readers import bounds
from manyscale.runner.readers.archive import open_stream

COLLECTIVES: Final = ("allreduce", "allgather", "reduce_scatter", "bcast", "reduce", "alltoall", "sendrecv")
_NAMES: Final = {
    "allreduce": "allreduce", "allgather": "allgather", "reducescatter": "reduce_scatter", "broadcast": "bcast",
    "bcast": "bcast", "alltoall": "alltoall", "sendrecv": "sendrecv", "reduce": "reduce",
}  # fmt: skip
_MOST_BYTES: Final = 64 << 20  # of a file, read
_PS: Final = {"ns": 1e3, "us": 1e6, "ms": 1e9, "s": 1e12}
_TIME: Final = re.compile(r"(?:out_|oop_)?time[_(](ns|us|ms|s)\)?")
_RANK: Final = re.compile(r"#\s+Rank\s+\d+.*\bon\s+(\S+)\s+device")


@dataclass(frozen=True)
class CollectiveTimes:
    """``sizes`` int64 bytes, rising; ``times_ps`` float64 out of place. ``collective``, ``gpus`` and ``nodes``: None
    where the file does not tell."""

    sizes: np.ndarray
    times_ps: np.ndarray
    collective: str | None
    gpus: int | None
    nodes: int | None


def read(path: Path, collective: str | None = None) -> CollectiveTimes:
    """Read one file. Several measurements of one size count as their median. ``collective``: which one it was, whatever
    the file tells. Raises UserError, one line."""
    lines = _lines(path)
    first = next((line for line in lines if line.strip()), "")
    is_csv = "," in first and not first.startswith("#")
    rows = _csv_rows(path, lines) if is_csv else _text_rows(path, lines)
    kept = [row for row in rows if row[0] > 0]
    if not kept:
        raise UserError(f"{path}: no measured collective (the output of nccl-tests, or CSV with bytes and time_us)")
    size, time, bus = (np.array([row[column] for row in kept]) for column in range(3))
    if np.any(time <= 0):
        raise UserError(f"{path}: the time of {size[time <= 0][0]:.0f} B is not positive; measure again")
    hosts = [match[1] for line in lines if (match := _RANK.match(line))]
    collective = collective or _collective(path, lines)
    gpus = len(hosts) or _gpus(size, time, bus, collective or "allreduce")
    distinct = np.unique(size)
    median = np.array([np.median(time[size == value]) for value in distinct])
    return CollectiveTimes(distinct.astype(np.int64), median, collective, gpus, len(set(hosts)) or None)


def _lines(path: Path) -> list[str]:
    try:
        with open_stream(path) as file:
            text = file.read(_MOST_BYTES + 1).decode(errors="replace")
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise UserError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if len(text) > _MOST_BYTES:
        raise UserError(f"{path}: more than {_MOST_BYTES >> 20} MiB; this is no output of nccl-tests")
    return text.splitlines()


def _csv_rows(path: Path, lines: Sequence[str]) -> list[tuple[float, float, float]]:
    reader = csv.reader(line for line in lines if line.strip() and not line.startswith("#"))
    names = [name.strip().lower() for name in next(reader, ())]
    size_at = next((place for place, name in enumerate(names) if name in ("bytes", "size(b)", "size")), None)
    times = [(place, match[1]) for place, name in enumerate(names) if (match := _TIME.fullmatch(name))]
    if size_at is None or not times:
        raise UserError(f"{path}:1: the head needs the columns bytes and time_us (or out_time_us, time(ns))")
    time_at, unit = times[0]
    bus_at = next((place for place, name in enumerate(names) if name.endswith(("busbw", "busbw(gb/s)"))), None)
    rows = []
    for number, cells in enumerate(reader, start=2):
        place = f"{path}:{number}"
        if len(cells) != len(names):
            raise UserError(f"{place}: {len(names)} columns are needed")
        bus = 0.0 if bus_at is None else bounds.finite(cells[bus_at], place, names[bus_at])
        time = bounds.finite(cells[time_at], place, names[time_at]) * _PS[unit]
        rows.append((bounds.finite(cells[size_at], place, "the size", most=2.0**53), time, bus))
    return rows


def _text_rows(path: Path, lines: Sequence[str]) -> list[tuple[float, float, float]]:
    heads = [line.lstrip("# ").split() for line in lines if line.startswith("#") and " size " in f" {line[1:]} "]
    head = next((words for words in heads if "time" in words), None)
    if head is None:
        raise UserError(f"{path}: no head with the columns size and time, which nccl-tests prints")
    time_at, bus_at = head.index("time"), head.index("busbw") if "busbw" in head else None
    rows = []
    for number, line in enumerate(lines, start=1):
        words, place = line.split(), f"{path}:{number}"
        if not words or not words[0].isdigit():
            continue
        if len(words) <= time_at:
            raise UserError(f"{place}: a row of nccl-tests needs {len(head)} columns, this is {line.strip()!r}")
        bus = 0.0 if bus_at is None or len(words) <= bus_at else bounds.finite(words[bus_at], place, "busbw")
        time = bounds.finite(words[time_at], place, "the time") * _PS["us"]
        rows.append((bounds.finite(words[0], place, "the size", most=2.0**53), time, bus))
    return rows


def _collective(path: Path, lines: Sequence[str]) -> str | None:
    """As the output tells it, or its file's name."""
    told = next((line for line in lines if "test starting" in line.lower()), "")
    for text in (told, path.name):
        plain = re.sub(r"[^a-z]", "", text.lower())
        found = next((name for word, name in _NAMES.items() if word in plain), None)
        if found:
            return found
    return None


def _gpus(size: np.ndarray, time: np.ndarray, bus: np.ndarray, collective: str) -> int | None:
    """By the ratio of bus bandwidth and size / time, from the largest sizes, where rounding matters least."""
    part = {"allreduce": 2.0, "allgather": 1.0, "reduce_scatter": 1.0, "alltoall": 1.0}.get(collective)
    large = np.argsort(size)[-8:]
    ratio = float(np.median(bus[large] * 1e-3 * time[large] / size[large]))
    if part is None or not 0 < ratio < part:
        return None
    count = 1 / (1 - ratio / part)
    return round(count) if abs(count - round(count)) < 0.05 * count else None
