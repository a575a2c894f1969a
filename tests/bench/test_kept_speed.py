"""What it costs to verify what is reused, as a share of the CPU seconds of a run that computes nothing."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from manyscale.models.kernels import compiled

pytestmark = pytest.mark.bench

RUNS = 3  # each compares within itself
COUNTED = """
import shutil, sys, time
from pathlib import Path
import pyarrow as pa
from manyscale.runner import kept
from manyscale.runner.cli import process

more, beside = 0.0, 0.0  # CPU seconds: that verifying costs; that only this comparison does

def compared(work, plain):
    def timed(*arguments):
        global more, beside
        before = time.process_time()
        plain(*arguments)  # whoever comes first has the system read the file
        begin = time.process_time()
        result = work(*arguments)
        middle = time.process_time()
        plain(*arguments)
        end = time.process_time()
        more += middle - begin - (end - middle)
        for path in arguments:
            path.with_name("plain").unlink(missing_ok=True)
        beside += begin - before + time.process_time() - middle
        return result
    return timed

kept.mapped = compared(kept.mapped, lambda path: path.exists() and pa.memory_map(str(path)).read_buffer())
kept.is_whole = compared(kept.is_whole, Path.is_dir)
kept.copied = compared(
    kept.copied, lambda source, target: shutil.copyfile(source, target.with_name("plain"))
)
process()
print(more / (time.process_time() - beside), file=sys.stderr)
"""


@pytest.mark.parametrize("case", ["lulesh-64", "nas-cg-A-64"])
def test_verifying_costs_at_most_three_percent(case: str, tmp_path: Path) -> None:
    """In the very run, call by call: beside mapping and copying files, which a run does anyway."""
    environment = dict(os.environ, XDG_CACHE_HOME=str(tmp_path), NUMBA_CACHE_DIR=str(compiled.folder().parent))
    shares = []
    for turn in range(RUNS + 2):  # the first computes, the second has its results
        command = [sys.executable, "-c", COUNTED, "run", case, "-o", str(tmp_path / f"{turn}")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        shares.append(float(done.stderr.splitlines()[-1]))
    share = statistics.median(shares[2:])
    print(f"\n{case}: {share:.2%} of the CPU time of a run that computes nothing")
    assert share <= 0.03
