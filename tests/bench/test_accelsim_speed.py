"""Speed of the reader of GPU traces, in warp instructions a CPU second, on the text of real traces (without what xz
takes, which is printed beside it).

The bound is a ratio to reading the same bytes with NumPy (their sum), measured in the same run: it moves with the
machine. Goals: 8 million a CPU second for BFS, 3 for b+tree, printed with `pytest -m bench -s`.
"""

from __future__ import annotations

import io
import lzma
import os
import time
from pathlib import Path

import numpy as np
import pytest
from cpu_time import median_cpu

from manyscale.runner.readers.accelsim.header import MAX_HEADER_BYTES, split_header
from manyscale.runner.readers.accelsim.parser import LaunchParser

pytestmark = pytest.mark.bench

TRACES = Path(os.environ.get("MANYSCALE_DATA", "/nonexistent")) / "gpu"
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="MANYSCALE_DATA does not name the folder of the traces")
SUM_SECONDS_PER_BYTE = 2.8e-10  # of NumPy, where the goals were set


def parsed(path: Path, text: bytes) -> int:
    header, length = split_header(path, text[:MAX_HEADER_BYTES])
    parser = LaunchParser(path, header, length)
    parser.read(text[length:MAX_HEADER_BYTES], io.BytesIO(text[MAX_HEADER_BYTES:]))
    return len(parser.columns()[0].instruction)


@needs_traces
@pytest.mark.parametrize(("name", "goal"), [("bfs", 8e6), ("misc/rodinia-b+tree-128-1000", 3e6)])
def test_text_to_arrays(name: str, goal: float) -> None:
    begin = time.process_time()
    texts = {path: lzma.decompress(path.read_bytes()) for path in sorted((TRACES / name).glob("*.xz"))}
    unpacking = time.process_time() - begin
    size = sum(map(len, texts.values()))
    everything = np.frombuffer(b"".join(texts.values()) * 10, np.uint8)

    number = sum(parsed(path, text) for path, text in texts.items())
    taken = median_cpu(lambda: [parsed(path, text) for path, text in texts.items()], runs=9)
    read_once = median_cpu(lambda: int(everything.sum(dtype=np.int64))) / 10

    print(
        f"\n{name}: {number} warp instructions, {size / 1e6:.1f} MB: {number / taken / 1e6:.1f} million a CPU s; "
        f"xz takes {unpacking:.3f} s, NumPy sums the bytes in {read_once * 1e3:.2f} ms, the reader {taken * 1e3:.2f}"
    )
    assert taken < number / goal * (read_once / size) / SUM_SECONDS_PER_BYTE
