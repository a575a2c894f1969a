"""A trace larger than memory: it streams through the profile, piece by piece."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from manyscale.models.workload import Workload
from manyscale.models.workload.detail_tables import BLOCK_ACCESSES_SCHEMA, BLOCKS_SCHEMA
from manyscale.runner.readers import workload_folder
from manyscale.runner.readers.rank_tables import rank_tables
from manyscale.runner.readers.stores.detail_store import DetailWriter

NUM_LINES = 1 << 16
SWEEPS = 3000  # 197 M accesses, 1.6 GB of addresses
BLOCK_LINES = 8

# Runs the command and tells its peak memory in KiB (getrusage would count what the process was forked from)
MEASURED = (
    "import sys\n"
    "from manyscale.runner.cli import main\n"
    "status = main(sys.argv[1:])\n"
    "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))\n"
    "sys.exit(status)\n"
)


def write_sweeps(folder: Path, num_sweeps: int) -> Path:
    """One block that loads from eight lines, again and again through 4 MiB."""
    folder.mkdir()
    block = {
        "function": "sweep", "file": "", "line": 0, "module": "m", "offset": 64, "is_entry": True,
        "num_instructions": -1,
    }  # fmt: skip
    access = {"block_id": 0, "instruction": -1, "is_store": False, "bytes": 8}
    writer = DetailWriter(folder / "detail.stream")
    addresses = (np.arange(NUM_LINES) * 64 + (1 << 30)).astype(np.uint64)
    counts = np.full(NUM_LINES // BLOCK_LINES, BLOCK_LINES, np.int32)
    for _ in range(num_sweeps):
        writer.add(np.zeros(len(counts), np.int32), counts, addresses)
    writer.end_segment(0, 0, 0, -1, -1)
    segments, store = writer.close()
    blocks = pa.Table.from_pylist([block], schema=BLOCKS_SCHEMA)
    accesses = pa.Table.from_pylist([access] * BLOCK_LINES, schema=BLOCK_ACCESSES_SCHEMA)
    tables = rank_tables(1, {}) | {"blocks": blocks, "block_accesses": accesses, "segments": segments}
    workload_folder.write(Workload("sweeps", 1, tables, (), "made", store), folder)
    return folder


def profiled(trace: Path, output: Path, *options: str) -> int:
    """Peak memory of the profile of a trace, in bytes."""
    words = ["profile", trace, "--executor", "local", "--cache", output.with_suffix(".cache"), "-o", output, *options]
    ran = subprocess.run([sys.executable, "-c", MEASURED, *map(str, words)], capture_output=True, text=True, check=True)
    return 1024 * int(ran.stdout.split()[-1])


@pytest.mark.slow
@pytest.mark.contract
def test_memory_does_not_grow_with_the_trace(tmp_path):
    small, large = write_sweeps(tmp_path / "small", SWEEPS // 20), write_sweeps(tmp_path / "large", SWEEPS)
    used = [profiled(trace, tmp_path / f"{trace.name}-out", "--simulate") for trace in (small, large)]
    num_accesses = SWEEPS * NUM_LINES
    assert used[1] - used[0] < 0.1 * 8 * num_accesses, used
    assert used[1] < 0.5 * 8 * num_accesses, used
    found = json.loads((tmp_path / "large-out" / "stats.json").read_text())
    assert found["memory.accesses"]["value"] == num_accesses
    profile = pq.read_table(tmp_path / "large-out" / "profile.parquet").to_pandas()
    counts = profile.groupby("distance")["count"].sum().to_dict()
    assert counts == {-1: NUM_LINES, NUM_LINES - 1: num_accesses - NUM_LINES}
    # 4 MiB in order: LRU of 32 KiB and 1 MiB misses always, 16 MiB holds all from the second sweep on
    ratios = [found[f"memory.{level}.simulated.hit_ratio"]["value"] for level in ("L1D", "L2", "L3")]
    assert ratios == pytest.approx([0, 0, 1 - 1 / SWEEPS], abs=1e-12)
