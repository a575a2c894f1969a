"""What L2 is shown of launches that are not simulated: nearly what a simulation leaves, as RESULTS.md says."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from .measure_table_vi import target
from .measure_warm import base_of, differences, sweep
from .populations import real_launches

DATA = Path(os.environ.get("MANYSCALE_DATA", "/nowhere")) / "gpu"


def test_a_sweep_by_hand() -> None:
    """Each of 368 x 4 warps copies a line in each round."""
    trace = sweep(100, 2)
    lines = np.arange(100, 100 + 2 * 1472)
    assert np.array_equal(np.unique(trace.sector[trace.written == 0] // 4), lines)
    assert np.array_equal(np.unique(trace.sector[trace.written != 0] // 4), 4_000_000 + lines)


@pytest.mark.peer
@pytest.mark.skipif(not DATA.is_dir(), reason="needs the traces in $MANYSCALE_DATA")
@pytest.mark.parametrize(
    ("name", "changes"),
    [("rtx3070", {"size": "128 KiB", "ways": 4}), ("fermi-tbpoint", {})],
)
def test_launches_behind_those_of_bfs(name: str, changes: dict[str, object]) -> None:
    """Of an L2 that holds all of BFS's graph nothing differs; of one that holds a part, little. (Block by block, with
    nothing hidden by L1: 6 % of the cycles and 0.06 of the miss ratio on the one, 2 % and 0.015 on the other.)"""
    gpu = target(name, l2={**base_of(name, "l2"), **changes})
    found = list(differences(real_launches(DATA / "bfs"), gpu))
    assert np.mean([one.lines for one in found]) > (0.98 if changes else 0.999)
    assert np.mean([abs(one.cycles) for one in found]) < (0.01 if changes else 1e-6)
    assert np.mean([abs(one.misses) for one in found]) < (0.003 if changes else 1e-6)
