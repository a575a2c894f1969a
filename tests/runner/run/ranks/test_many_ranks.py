"""Runs of many ranks: the makespan is a closed form's, and the memory of a rank is bounded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import halo_program
import numpy as np
import pytest

from manyscale.models.network import matching
from manyscale.models.network import program as program_module
from manyscale.runner.run import results

MOST_MB_A_RANK = 0.2  # 0.16 measured; 0.3 with collectives written out

# Runs a study in a process of its own and tells the peak of its memory
RUN = """
import resource, subprocess, sys
subprocess.run([sys.executable, "-m", "manyscale", *sys.argv[1:]], check=True, capture_output=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def makespan_ps(num_ranks: int, iterations: int) -> int:
    """All ranks compute and exchange at the same time: each iteration is its compute, a message to each neighbour,
    which do not hinder each other, and the rounds of recursive doubling, in which each rank exchanges with one
    other."""
    latency, ps_per_byte, envelope = 10_000_000, 800, 16
    of_halo = latency + (halo_program.SIDE_BYTES + envelope) * ps_per_byte
    of_round = latency + (halo_program.REDUCED_BYTES + envelope) * ps_per_byte
    return iterations * (halo_program.COMPUTE_PS + of_halo + (num_ranks.bit_length() - 1) * of_round)


def run(num_ranks: int, folder: Path, iterations: int) -> tuple[dict[str, dict[str, float]], float]:
    """Statistics, and the peak of memory in MB, of a run with page and traces."""
    halo_program.write(num_ranks, folder, iterations, spread_ps=0)
    asked = ["run", "--workload", folder / "halo", "--target", folder / "wide.yaml", "-o", folder / "run"]
    command = [sys.executable, "-c", RUN, *map(str, [*asked, "--cache", folder / "cache"])]
    outcome = subprocess.run(command, check=True, capture_output=True, text=True)
    assert (folder / "run" / "report.html").stat().st_size < 8_000_000
    return json.loads((folder / "run" / "stats.json").read_text()), int(outcome.stdout) / 1000


@pytest.mark.theory
def test_makespan_of_a_halo(tmp_path: Path) -> None:
    found, _ = run(64, tmp_path, 3)
    assert found["application.makespan"]["value"] == makespan_ps(64, 3) / 1e12


@pytest.mark.slow
@pytest.mark.theory
def test_makespan_and_memory_of_4096_ranks(tmp_path: Path) -> None:
    _, few = run(64, tmp_path / "few", 100)
    found, many = run(4096, tmp_path / "many", 100)
    assert found["application.makespan"]["value"] == makespan_ps(4096, 100) / 1e12
    assert (many - few) / (4096 - 64) < MOST_MB_A_RANK


def test_what_is_made_piece_by_piece_is_as_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = halo_program.halo(16, 3, spread_ps=1000)
    compute = np.arange(workload.num_operations) % 3
    ends = np.cumsum(compute + np.arange(workload.num_operations) % 2)
    whole = program_module.build_program(workload, "mpich"), results.ranks_table(workload, compute, ends)
    monkeypatch.setattr(program_module, "_ROWS_AT_ONCE", 1)
    monkeypatch.setattr(matching, "_FEW_CHANNELS", 1)
    monkeypatch.setattr(results, "_ROWS_AT_ONCE", 7)
    pieces = program_module.build_program(workload, "mpich"), results.ranks_table(workload, compute, ends)
    assert pieces[1].equals(whole[1])
    for name, values in vars(whole[0]).items():
        assert np.array_equal(getattr(pieces[0], name), values)
