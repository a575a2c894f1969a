"""TBPoint between launches with GPUMech: sequences are what they say; errors are what RESULTS.md says, loosely."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from .measure_blocks import gpu_of
from .measure_both import METHODS, SEQUENCES, Outcome, outcomes, table
from .populations import real_launches

DATA = Path(os.environ.get("MANYSCALE_DATA", "/nowhere")) / "gpu"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="needs the traces in $MANYSCALE_DATA")


def test_table_by_hand() -> None:
    row = Outcome("one", 46, 16, "both", -0.123, 4, 0.25, 0.1)
    assert list(table([row]))[2] == "| one | 46 | 16 | both | 4 | 25.0 | -12.3 | 10 |"


@needs_data
@pytest.mark.parametrize("is_shifted", [True, False])
def test_rounds_are_the_real_launches(is_shifted: bool) -> None:
    """Launches of each round execute what was traced, on the same distances inside pages; in shifted rounds on pages of
    their own."""
    real = real_launches(DATA / "bfs")
    found = replace(SEQUENCES[1], rounds=3, is_shifted=is_shifted).traces(DATA)
    assert [trace.launch_id for trace in found] == list(range(1, 49))
    for index, trace in enumerate(found):
        assert np.array_equal(trace.instruction, real[index % 16].instruction)
        assert np.array_equal(trace.sector % 2048, real[index % 16].sector % 2048)
    rounds = [np.concatenate([trace.sector for trace in found[16 * one : 16 * one + 16]]) for one in range(3)]
    assert np.array_equal(np.unique(rounds[0]), np.unique(rounds[2])) != is_shifted
    assert (rounds[0].max() < rounds[1].min()) == is_shifted


@needs_data
@pytest.mark.slow
def test_errors_of_both_are_those_of_each() -> None:
    """128 launches of BFS. One launch of each cluster errs by an eighth: one of two with the same features takes six
    times as long as the other. Several of them do not."""
    rows = {row.method: row for row in outcomes(SEQUENCES[1], SEQUENCES[1].traces(DATA), gpu_of(46))}
    assert tuple(rows) == METHODS
    assert abs(rows["GPUMech"].error) < 0.1
    for model in ("TBPoint", "both"):
        assert abs(rows[model].error) < 0.2
        assert abs(rows[f"{model}, auto"].error) < 0.05 + abs(rows["GPUMech"].error)
        assert rows[model].launches < rows[f"{model}, auto"].launches < 40
    for auto in ("", ", auto"):
        of_each = abs(rows[f"TBPoint{auto}"].error) + abs(rows["GPUMech"].error)
        assert abs(rows[f"both{auto}"].error) < of_each + 0.02
