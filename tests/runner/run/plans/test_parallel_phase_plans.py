"""``manyscale plan --method sbbv+ccv`` and other parts: plans of parallel programs, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

NUMBERS = range(20)


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """Two threads that execute the same blocks all the time; in the last five intervals thread 2 answers what thread 1
    did before, and all takes twice the time."""
    for name in ("prog.bb", "prog.bb.2"):
        (tmp_path / name).write_text("T:1:300 :2:200\n" * len(NUMBERS))
    rows = ["interval,tid,instrs,cycles,readfrom1,readfrom2,l1d_miss,l2_miss"]
    for number in NUMBERS:
        late = number >= 15
        rows.append(f"{number},1,500,{1000 * (1 + late)},0,{90 * late},30,3")
        rows.append(f"{number},2,500,{1000 * (1 + late)},{90 * (not late)},0,30,3")
    (tmp_path / "prog.csv").write_text("\n".join(rows) + "\n")
    return tmp_path / "prog.bb"


@pytest.mark.parametrize(("method", "points"), [
    ("sbbv", 1), ("icv+tcv", 1), ("sbbv+mcv", 1), ("ccv", 2), ("sbbv+ccv", 2), ("icv+ccv", 2), ("sbbv+ccv+mcv", 2),
])  # fmt: skip
def test_who_communicates_makes_phases(cli, profile, tmp_path, method, points):
    """Three quarters of CPI 2 and a quarter of 4 are 2.5."""
    done = cli("plan", "--method", method, profile, "-o", tmp_path / "out")
    assert done.status == 0, done.err
    plan = pq.read_table(tmp_path / "out" / "plan.parquet").to_pydict()
    assert plan["weight"] == ([1.0] if points == 1 else [0.75, 0.25])
    assert plan["model"] == [method] * points
    assert ("2.5, of all 2.5 (+0.00%)" in done.out) == (points == 2)
    assert len((tmp_path / "out" / "prog.labels").read_text().splitlines()) == 20


def test_rules_of_parts(cli, profile, tmp_path):
    """Where CCV weighs next to nothing, nothing tells intervals apart but sampling: of one seed the same each time."""
    given = ["--set", "part_weights.ccv=0.001", "--set", "sampling_period=10", "--set", "max_k=4"]
    for name in ("one", "two"):
        done = cli("plan", "--method", "sbbv+ccv", profile, *given, "-o", tmp_path / f"{name}.parquet")
        assert done.status == 0, done.err
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "two.parquet").read_bytes()


def test_counts_of_nothing_are_told(cli, profile, tmp_path):
    table = profile.with_name("prog.csv")
    table.write_text(table.read_text().replace(",30,3", ",30,0"))
    done = cli("plan", "--method", "sbbv+mcv", profile, "-o", tmp_path / "out")
    assert "mcv: all of its counts are 0, so it tells no intervals apart" in done.out


@pytest.mark.parametrize(("method", "gone", "line"), [
    ("sbbv+ccv", "readfrom", "prog.bb: ccv needs a column 'coherence_answers' (or 'readfrom1', 'readfrom2' ..., "),
    ("mcv", "l2_miss", "prog.bb: mcv needs a column 'llc_misses' (or 'l3_miss', 'l2_miss') for each thread "),
    ("icv+tcv", "l1d_miss", "prog.bb: tcv needs a column 'offcore_requests' (or 'l1d_miss', "),
])  # fmt: skip
def test_a_missing_column_is_named(cli, profile, tmp_path, method, gone, line):
    table = profile.with_name("prog.csv")
    table.write_text(table.read_text().replace(gone, "other"))
    done = cli("plan", "--method", method, profile, "-o", tmp_path / "out")
    assert done.status == 2
    assert line in done.err
    assert "there are: cycles, " in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("arguments", "line"), [
    (["sbbv+cvc"], "--method 'sbbv+cvc': unknown; known are simpoint, code"),
    (["ccv+ccv"], "and any of sbbv, ccv, mcv, icv, tcv joined by +"),
    (["sbbv+ccv", "--set", "part_weights.ccv=0"], "--set: part_weights.ccv: "),
    (["sbbv+ccv", "--set", "part_weights.cvc=1"], "--set: part_weights.cvc: unknown key"),
    (["sbbv", "--set", "sampling_period=0"], "--set: sampling_period: "),
    (["sbbv", "--set", "scale=core"], "--set: scale: 'core' is not one of 'interval' or 'joint'"),
])  # fmt: skip
def test_what_is_refused(cli, profile, tmp_path, arguments, line):
    done = cli("plan", "--method", *arguments, profile, "-o", tmp_path / "out")
    assert done.status == 2
    assert line in done.err
