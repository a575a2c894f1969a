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

RUNS = 5
COUNTED = """
import sys, time
from manyscale.runner import kept
from manyscale.runner.cli import main

spent = 0.0

def counted(work):
    def timed(*arguments):
        global spent
        begin = time.process_time()
        try:
            return work(*arguments)
        finally:
            spent += time.process_time() - begin
    return timed

def copied(source, target, copied=kept.copied):
    result = copied(source, target)
    kept.checksum(target)  # what the copy's checksum costs beside the copy
    return result

kept.mapped, kept.is_whole, kept.checksum = map(counted, (kept.mapped, kept.is_whole, kept.checksum))
kept.copied = copied
main(sys.argv[1:])
print(spent / time.process_time(), file=sys.stderr)
"""


@pytest.mark.parametrize("case", ["lulesh-64", "nas-cg-A-64"])
def test_verifying_costs_at_most_three_percent(case: str, tmp_path: Path) -> None:
    """More is counted than is spent: mapping files, which a run does anyway, and reading a copy once more."""
    environment = dict(os.environ, XDG_CACHE_HOME=str(tmp_path), NUMBA_CACHE_DIR=str(compiled.folder().parent))
    shares = []
    for turn in range(RUNS + 2):  # the first computes, the second has its results
        command = [sys.executable, "-c", COUNTED, "run", case, "-o", str(tmp_path / f"{turn}")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        shares.append(float(done.stderr.splitlines()[-1]))
    share = statistics.median(shares[2:])
    print(f"\n{case}: {share:.2%} of the CPU time of a run that computes nothing")
    assert share <= 0.03
