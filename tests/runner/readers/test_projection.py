"""Projection matrices as SimPoint writes them, and as it reads them."""

from __future__ import annotations

import gzip
import lzma
import re
from pathlib import Path

import numpy as np
import pytest

from manyscale.runner.errors import UserError
from manyscale.runner.readers.simpoint_bb import projection
from manyscale.runner.run.plans import simpoint_files

DATA = Path(__file__).parents[2] / "data" / "simpoint"


@pytest.mark.golden
@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
def test_a_matrix_that_simpoint_wrote(tmp_path: Path, pack) -> None:
    """12 blocks to 6 dimensions; the first numbers are copied from the file."""
    path = tmp_path / "a.proj"
    path.write_bytes(pack((DATA / "lengths.proj").read_bytes()))
    matrix = projection.read(path)
    assert matrix.shape == (12, 6)
    assert matrix[0, :2].tolist() == [-0.85266585648059844971, -0.42302840948104858398]
    assert np.all(np.abs(matrix) <= 1)


def test_what_is_written_is_read_and_has_simpoints_form(tmp_path: Path) -> None:
    matrix = np.random.default_rng(1).uniform(-1, 1, (7, 15))
    text = simpoint_files.projection(matrix)
    (tmp_path / "a.proj").write_text(text)
    assert np.array_equal(projection.read(tmp_path / "a.proj"), matrix)
    number = r"-?\d\.?\d*(e-\d+)?"
    for ours, theirs in zip(text.splitlines(), (DATA / "lengths.proj").read_text().splitlines(), strict=False):
        for line in (ours, theirs):
            assert re.fullmatch(rf"\d+:w|{number} \d+:( {number})+ ?", line)


def test_weights_may_be_absent(tmp_path: Path) -> None:
    (tmp_path / "a.proj").write_text("2:\n2: 0.5 -0.25\n2: 1 0\n")
    assert projection.read(tmp_path / "a.proj").tolist() == [[0.5, -0.25], [1.0, 0.0]]


@pytest.mark.parametrize(("text", "line"), [
    ("", "a.proj:1: '' is not the header ROWS:w"),
    ("T:1:4\n", "a.proj:1: 'T:1:4' is not the header"),
    ("2:w\n0.5 2: 1 0\n", "a.proj: has 1 rows, but its header tells 2"),
    ("0:w\n", "a.proj: has 0 rows"),
    ("2:w\n0.5 2: 1 0\n0.5 3: 1 0 0\n", "a.proj:3: has 3 numbers, not 2 finite ones"),
    ("2:w\n0.5 2: 1 0\n0.5 2: 1\n", "a.proj:3: has 1 numbers, not 2"),
    ("1:w\n0.5 2: 1 nan\n", "a.proj:2: has 2 numbers, not 2 finite ones"),
    ("1:w\n1 0\n", "a.proj:2: is no row 'WEIGHT COLUMNS: NUMBERS'"),
    ("1:w\n0.5 2: 1 x\n", "a.proj:2: is no row"),
])  # fmt: skip
def test_what_is_refused(tmp_path: Path, text: str, line: str) -> None:
    (tmp_path / "a.proj").write_text(text)
    with pytest.raises(UserError, match=re.escape(line)):
        projection.read(tmp_path / "a.proj")
