"""Speed of the DUMPI decoder and reader, in calls a CPU second, on a stream made by repeating a real rank's calls.

The bound is a ratio to reading the same bytes once with NumPy (their sum), measured in the same run: it moves with the
machine. Goal: 2 million calls a CPU second, printed with `pytest -m bench -s`.
"""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from cpu_time import median_cpu

from manyscale.runner.readers.dumpi.operations import convert
from manyscale.runner.readers.dumpi.records import read_rank_file

sys.path.insert(0, str(Path(__file__).parents[1] / "runner" / "readers"))
from dumpi_writer import dumpi_file

pytestmark = pytest.mark.bench

traces = Path(os.environ.get("MANYSCALE_DATA", "/nonexistent")) / "formats" / "dumpi" / "sst-macro"
needs_traces = pytest.mark.skipif(not traces.is_dir(), reason="MANYSCALE_DATA does not name the folder of the traces")
REPEATS = 10_000
GOAL_PER_SECOND = 2e6
SUM_SECONDS = 0.041  # of NumPy, where the bound was set


@needs_traces
def test_decoding(tmp_path: Path) -> None:
    source = traces / "testbgp-0000.bin"
    content = source.read_bytes()
    header = struct.unpack(">7Q", content[-56:])[3]
    stream = content[16 : header - 2] * REPEATS  # without the biases before, and the end of the stream behind
    path = tmp_path / "t-0000.bin"
    path.write_bytes(dumpi_file(stream, with_footer=False))
    num_calls = len(read_rank_file(source).calls) * REPEATS

    decode = median_cpu(lambda: read_rank_file(path), runs=3)
    file = read_rank_file(path)
    conversion = median_cpu(lambda: convert(file, 0), runs=1)
    read_once = median_cpu(lambda: int(np.fromfile(path, np.uint8).sum(dtype=np.int64)))

    assert len(file.calls) == num_calls
    megabytes = path.stat().st_size / 1e6
    print(
        f"\n{num_calls} calls, {megabytes:.0f} MB: decoded {num_calls / decode / 1e6:.1f} million calls a CPU s, "
        f"converted {num_calls / conversion / 1e6:.1f}; NumPy sums the bytes in {read_once:.3f} s"
    )
    assert decode < num_calls / GOAL_PER_SECOND * read_once / SUM_SECONDS
