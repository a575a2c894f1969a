"""Speed of the Paraver reader as a ratio of CPU time to decompressing the same trace, and of its writer to compressing
what it wrote, measured in the same run.

Where the bounds were set, the reader took 3.0 M records a CPU second (233 MB/s) and zlib 545 MB/s of text; the writer
0.9 M task instances with counters (265 MB/s) and zlib's compression 255 MB/s. The figures are printed:
`pytest -m bench -s`.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from cpu_time import least_cpu

from manyscale.runner.predict.node.tables import MODELS
from manyscale.runner.readers import paraver
from manyscale.runner.report.core_rows import CoreRows
from manyscale.runner.report.paraver.hierarchy import Hierarchy
from manyscale.runner.report.paraver.instances import records_of
from manyscale.runner.report.paraver.records import write_sorted

pytestmark = pytest.mark.bench

TRACE = Path(__file__).parents[1] / "data" / "paraver" / "lulesh-7+1.prv.gz"
REPEATS = 40
MOST_TIMES_ZLIB = 5.0
MOST_TIMES_PACKING = 2.5
TIME_FIELDS = {"1": (5, 6), "2": (5,), "3": (5, 6, 11, 12)}


def repeated(times: int) -> bytes:
    """The records of a real trace again and again, each time later."""
    lines = gzip.decompress(TRACE.read_bytes()).decode().splitlines()
    body = [line.split(":") for line in lines if line[0] in TIME_FIELDS]
    head = [line for line in lines if line[0] not in TIME_FIELDS]
    length = 600_000_000
    parts = ["\n".join(head)]
    for repeat in range(times):
        for record in body:
            moved = list(record)
            for place in TIME_FIELDS[record[0]]:
                moved[place] = str(int(record[place]) + repeat * length)
            parts.append(":".join(moved))
    return ("\n".join(parts) + "\n").encode()


def test_reading_is_about_as_fast_as_decompressing(tmp_path):
    text = repeated(REPEATS)
    path = tmp_path / "trace.prv"
    path.write_bytes(text)
    packed = gzip.compress(text, 6)
    reading, unpacking = least_cpu(lambda: paraver.read(path)), least_cpu(lambda: gzip.decompress(packed))
    records = text.count(b"\n")
    print(
        f"\nread {records / reading / 1e6:.2f} M records/s, {len(text) / reading / 1e6:.0f} MB/s; "
        f"zlib {len(text) / unpacking / 1e6:.0f} MB/s; ratio {reading / unpacking:.2f}"
    )
    assert reading < MOST_TIMES_ZLIB * unpacking


def instances(count: int, cores: int = 16) -> CoreRows:
    """Of one rank: each takes 1.9 us of 2, and all of them were counted."""
    number = np.arange(count)
    start = number // cores * 2_000_000 + number % cores * 1000
    numbers = {"rank": 0 * number, "core": number % cores, "task_instance_id": number, "instance_id": number}
    return CoreRows(
        **numbers, start_ps=start, end_ps=start + 1_900_000, created_ps=start - 2_000, ready_ps=start - 1_000,
        creator_id=0 * number, kind=number % 2, types=["f", "g"],
        model=0 * number + 2, models=list(MODELS), instructions=500 + number % 1000, cycles=700 + number % 900,
        ipc=(500 + number % 1000) / (700 + number % 900), misses=dict.fromkeys((1, 2, 3), number % 99),
    )  # fmt: skip


def test_writing_instances_is_about_as_fast_as_compressing_them(tmp_path):
    rows = instances(50_000)
    threads = Hierarchy(np.zeros(1, np.int64), np.array([16]), np.zeros(1, np.int64))
    path = tmp_path / "trace.prv"

    def write() -> None:
        with path.open("wb") as file:
            write_sorted(file, records_of(rows, threads))

    writing = least_cpu(write)
    text = path.read_bytes()
    packing = least_cpu(lambda: gzip.compress(text, 4))
    print(f"\nwrite {len(rows) / writing / 1e6:.2f} M instances/s, {len(text) / writing / 1e6:.0f} MB/s; "
          f"zlib {len(text) / packing / 1e6:.0f} MB/s; ratio {writing / packing:.2f}")  # fmt: skip
    assert writing < MOST_TIMES_PACKING * packing
