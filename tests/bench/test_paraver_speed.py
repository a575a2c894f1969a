"""Speed of the Paraver reader as a ratio of CPU time to decompressing the same trace, measured in the same run.

Where the bound was set, the reader took 3.0 M records a CPU second (233 MB/s) and zlib 545 MB/s of text. The figures
are printed: `pytest -m bench -s`.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from cpu_time import least_cpu

from manyscale.runner.readers import paraver

pytestmark = pytest.mark.bench

TRACE = Path(__file__).parents[1] / "data" / "paraver" / "lulesh-7+1.prv.gz"
REPEATS = 40
MOST_TIMES_ZLIB = 5.0
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
