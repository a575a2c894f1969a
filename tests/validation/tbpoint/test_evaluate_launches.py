"""``manyscale evaluate`` on counters of real GPUs: the same errors as measure_counters.py finds by itself."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from .measure_counters import automatic, one_each, populations

DATA = Path(os.environ.get("MANYSCALE_DATA", "/nowhere")) / "gpu" / "hardware" / "gpuperfpredict"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.peer,
    pytest.mark.skipif(not DATA.is_dir(), reason="needs the counters in $MANYSCALE_DATA"),
]
SEEDS = 20


@pytest.mark.parametrize("name", ["lud_diagonal-GTX-980", "kernel-Tesla-K40"])
def test_errors_and_intervals(cli, tmp_path: Path, name: str) -> None:
    file = DATA / f"{name}.csv.gz"
    methods = "tbpoint,tbpoint:auto,random"
    done = cli("evaluate", file, "--method", methods, "--draws", SEEDS, "-o", tmp_path / "e")
    assert done.status == 0, done.err
    table = pq.read_table(tmp_path / "e" / "evaluation.parquet").to_pandas().set_index(["method", "seed"])
    whole, _ = populations(file)
    assert table.loc["tbpoint"].error.tolist() == pytest.approx([one_each(whole).error] * SEEDS)
    found = [automatic(whole, seed) for seed in range(SEEDS)]
    drawn = table.loc["tbpoint:auto"]
    assert drawn.error.tolist() == pytest.approx([each.error for each in found])
    # theirs are relative to the estimate, those of the table to the truth
    assert drawn.half_width.tolist() == pytest.approx([each.half_width * (1 + each.error) for each in found])
    assert drawn.detailed_share.tolist() == pytest.approx([each.instruction_share for each in found])
    assert drawn.holds.mean() >= 0.85
