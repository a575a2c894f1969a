"""Profiles that are projected while they are read: the same intervals, points and plans as from a workload."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from told import told

from manyscale.runner.errors import UserError
from manyscale.runner.predict.intervals import stream
from manyscale.runner.readers import simpoint_bb
from manyscale.sampling.population import intervals_of


def write(path: Path, rows: int, seed: int) -> Path:
    random = np.random.default_rng(seed)
    lines = []
    for _ in range(rows):
        pairs = zip(random.choice(500, 20, replace=False) + 1, random.integers(1, 1000, 20), strict=True)
        lines.append("T" + "   ".join(f":{block}:{count}" for block, count in pairs) + "\n")
    path.write_text("".join(lines))
    return path


def test_one_thread(tmp_path: Path) -> None:
    path = write(tmp_path / "prog.bb", 40, 0)
    found, notes = stream.streamed(path, 7, 15)
    whole = intervals_of(simpoint_bb.read(path))
    assert notes == ()
    assert found.number.tolist() == whole.number.tolist()
    assert found.instructions.tolist() == whole.instructions.tolist()
    assert np.array_equal(found.projected(7, 15), found.points)
    assert found.points == pytest.approx(whole.projected(7, 15), abs=1e-14)


def test_threads_of_which_one_ends_early(tmp_path: Path) -> None:
    """Vectors of threads side by side: those of an interval sum to 1 over all threads."""
    write(tmp_path / "prog.bb", 9, 0)
    write(tmp_path / "prog.bb.2", 6, 1)
    found, _ = stream.streamed(tmp_path / "prog.bb", 7, 15)
    whole = intervals_of(simpoint_bb.read(tmp_path / "prog.bb"))
    assert (len(found), found.num_threads) == (9, 2)
    assert found.instructions.tolist() == whole.instructions.tolist()
    alone = write(tmp_path / "alone.bb", 9, 0)
    assert found.points[6:] == pytest.approx(stream.streamed(alone, 7, 15)[0].points[6:], abs=1e-14)
    assert not np.allclose(found.points[:6], stream.streamed(alone, 7, 15)[0].points[:6])


def test_a_plan_is_the_same(cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "prog.bb", 60, 3)
    plans = []
    for name, bound in (("read", 1 << 28), ("streamed", 1)):
        monkeypatch.setattr(stream, "LARGE_BYTES", bound)
        assert stream.is_large(path) == (name == "streamed")
        done = cli("plan", "--method", "simpoint", path, "-o", tmp_path / f"{name}.parquet")
        assert done.status == 0, done.err
        plans.append((tmp_path / f"{name}.parquet").read_bytes())
    assert plans[0] == plans[1]


def test_a_table_beside_it_is_read(tmp_path: Path) -> None:
    """Rows belong to intervals as it says, and what it counted stands in the same place as in a workload."""
    write(tmp_path / "prog.bb", 9, 0)
    write(tmp_path / "prog.bb.2", 6, 1)
    rows = [f"{interval},{thread},{100 * thread + interval},{7 * interval + thread},"
            for thread, intervals in ((1, range(9)), (2, range(3, 9))) for interval in intervals]  # fmt: skip
    rows[4] += "3"
    (tmp_path / "prog.cpi.csv").write_text("\n".join(["interval,tid,instrs,cycles,l2_miss", *rows]) + "\n")
    found, notes = stream.streamed(tmp_path / "prog.bb", 7, 15)
    whole = intervals_of(simpoint_bb.read(tmp_path / "prog.bb"))
    assert found.number.tolist() == whole.number.tolist()
    assert found.instructions.tolist() == whole.instructions.tolist()
    assert found.counters.keys() == whole.counters.keys() == {"cycles", "l2_miss"}
    for name, values in whole.counters.items():
        assert found.counters[name] == pytest.approx(values, nan_ok=True)
    assert "prog.cpi.csv: l2_miss was not measured in 8 of 9 intervals" in told(notes)


def test_a_given_matrix_projects(tmp_path: Path) -> None:
    path = write(tmp_path / "prog.bb", 9, 0)
    matrix = np.random.default_rng(2).uniform(-1, 1, (500, 4))
    found, _ = stream.streamed(path, 7, 4, matrix)
    whole = intervals_of(simpoint_bb.read(path))
    assert found.points == pytest.approx(whole.vectors.normalised().times(matrix), abs=1e-14)
    with pytest.raises(ValueError, match="the matrix has 10 rows, a vector has column"):
        stream.streamed(path, 7, 4, matrix[:10])
    write(tmp_path / "prog.bb.2", 9, 0)
    with pytest.raises(ValueError, match="of several threads"):
        stream.streamed(path, 7, 4, matrix)


def test_what_is_odd_and_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "prog.bb"
    path.write_text("T:1:5\nT\nT:2:5")
    found, notes = stream.streamed(path, 0, 15)
    assert found.instructions.tolist() == [5, 0, 5]
    assert found.points[1].tolist() == [0] * 15
    assert "no newline" in " ".join(told(notes))
    assert "a bare T" in " ".join(told(notes))
    path.write_text("T:1:5\nT:0:5\n")
    with pytest.raises(UserError, match=r"prog\.bb:2: 'T:0:5' has a dimension that is no number from 1"):
        stream.streamed(path, 0, 15)
