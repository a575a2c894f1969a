"""CPU time of the analytical node as a share of the detailed one's, same process, warm kernels."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cpu_time import least_cpu

sys.path.insert(0, str(Path(__file__).parents[1] / "validation"))
from interval.cases import machine, run
from interval.test_analytical_campaign import DATA, Shipped

pytestmark = pytest.mark.bench


def test_the_analytical_node_is_several_times_as_fast() -> None:
    """A small program (the larger, the more): from a profile and costs that are kept, with costs for a new core, and
    with the profile, too."""
    program, on, cores = Shipped(DATA / "matrix_multiply-coarse-detailed.tar.zst"), machine("grass-low-power"), 16
    profile = program.profile(cores, on)
    kept = profile | program.costs(on, profile)
    cell = program.open(cores, on)
    detailed = least_cpu(lambda: run(cell, cores, "detailed", None, caches="cold"), 1)  # no run before, to fill caches
    alone = least_cpu(lambda: run(program.open_profiled(cores, on, profile), cores, "interval", kept), 3)
    costs = least_cpu(lambda: program.costs(on, profile), 3)
    collected = least_cpu(lambda: program.profile(cores, on), 3)
    print(
        f"\n{detailed / alone:.1f} times as fast, {detailed / (alone + costs):.1f} with costs, "
        f"{detailed / (alone + costs + collected):.1f} with its profile, too"
    )
    assert detailed / alone >= 130
    assert detailed / (alone + costs) >= 20
    assert detailed / (alone + costs + collected) >= 5
