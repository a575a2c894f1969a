"""``manyscale plan --method``: plans of intervals, SimPoint's files, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from manyscale.runner.registry import names

SHARES = np.random.default_rng(0).integers(95, 106, (24, 40))  # of blocks, which vary a little
ROWS = [  # two kinds of intervals
    "T" + "   ".join(f":{block + (100 if 12 <= number < 18 else 1)}:{share}" for block, share in enumerate(shares))
    for number, shares in enumerate(SHARES)
]
TABLE = ["interval,tid,instrs,centicycles"] + [
    f"{number},1,1000,{200000 if 12 <= number < 18 else 100000}" for number in range(24)
]


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "prog.bb"
    path.write_text("".join(f"{row}\n" for row in ROWS))
    (tmp_path / "prog.cpi.csv").write_text("".join(f"{row}\n" for row in TABLE))
    return path


def test_a_plan_of_simpoint_and_its_files(cli, profile, tmp_path):
    done = cli("plan", "--method", "simpoint", profile, "-o", tmp_path / "out")
    assert done.status == 0, done.err
    plan = pq.read_table(tmp_path / "out" / "plan.parquet").to_pydict()
    assert plan["element_kind"] == ["interval"] * 2
    assert plan["model"] == ["simpoint"] * 2
    points = plan["element_id"]
    expected = [0.25 if 12 <= point < 18 else 0.75 for point in points]
    assert sorted(expected) == [0.25, 0.75]
    assert plan["weight"] == pytest.approx(expected)
    assert "2 of 24 intervals, " in done.out
    assert "CPI by the profile's cycles 1.25, of all 1.25 (+0.00%)" in done.out
    lines = {suffix: (tmp_path / "out" / f"prog.{suffix}").read_text().split("\n")[:-1]
             for suffix in ("simpoints", "weights", "labels")}  # fmt: skip
    assert [int(line.split()[0]) for line in lines["simpoints"]] == points
    assert [line.split()[1] for line in lines["simpoints"]] == [line.split()[1] for line in lines["weights"]]
    assert [float(line.split()[0]) for line in lines["weights"]] == expected
    assert len(lines["labels"]) == 24


@pytest.mark.parametrize("method", ["simpoint", "code"])
def test_several_of_each_cluster_have_an_interval(cli, profile, tmp_path, method):
    """Both kinds have one CPI, so the interval is a point."""
    done = cli("plan", "--method", method, profile, "--set", "per_cluster=3", "-o", tmp_path / "out")
    assert done.status == 0, done.err
    plan = pq.read_table(tmp_path / "out" / "plan.parquet").to_pydict()
    of_kind = np.array([12 <= point < 18 for point in plan["element_id"]])
    assert np.count_nonzero(of_kind) == np.count_nonzero(~of_kind) == 3
    assert np.array(plan["weight"])[of_kind] == pytest.approx(0.25 / 3)
    assert sum(plan["weight"]) == pytest.approx(1)
    assert "(+0.00%, 95 % interval 1.25 to 1.25)" in done.out


@pytest.mark.contract
@pytest.mark.parametrize("method", names("interval-sampler"))
def test_weights_of_every_method_sum_to_one(cli, profile, tmp_path, method):
    """And the same seed gives the same bytes."""
    for name in ("one", "two"):
        done = cli("plan", "--method", method, profile, "--seed", "3", "-o", tmp_path / f"{name}.parquet")
        assert done.status == 0, done.err
    plan = pq.read_table(tmp_path / "one.parquet")
    weight = np.array(plan.column("weight"))
    assert weight.sum() == pytest.approx(1, abs=1e-12)
    assert np.all(weight > 0)
    element = np.array(plan.column("element_id"))
    assert np.all(np.diff(element) > 0)
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "two.parquet").read_bytes()


@pytest.mark.contract
def test_a_full_plan_has_no_error(cli, profile, tmp_path):
    done = cli("plan", "--method", "full", profile, "-o", tmp_path / "out")
    assert "24 of 24 intervals, 100.00% of the instructions" in done.out
    assert "(+0.00%)" in done.out


def test_rules_are_set_by_name(cli, profile, tmp_path):
    done = cli("plan", "--method", "random", profile, "--set", "intervals=5", "-o", tmp_path / "five.parquet")
    assert done.status == 0, done.err
    assert pq.read_table(tmp_path / "five.parquet").num_rows == 5


@pytest.mark.parametrize(("arguments", "line"), [
    (["--method", "simpiont"], "--method 'simpiont': unknown; did you mean 'simpoint'? known are simpoint, code"),
    (["--method", "simpoint", "--set", "max_k=0"], "--set: max_k: "),
    (["--method", "simpoint", "--set", "clusters=3"], "--set: clusters: unknown key"),
])  # fmt: skip
def test_what_is_refused(cli, profile, tmp_path, arguments, line):
    done = cli("plan", *arguments, profile, "-o", tmp_path / "out")
    assert done.status == 2
    assert line in done.err
    assert not (tmp_path / "out").exists()


def test_a_profile_is_needed(cli, tmp_path):
    done = cli("plan", "--method", "simpoint", "-o", tmp_path / "out")
    assert (done.status, "--method needs a profile" in done.err) == (2, True)


def test_a_plan_is_not_overwritten(cli, profile, tmp_path):
    (tmp_path / "out.parquet").write_text("mine")
    done = cli("plan", "--method", "full", profile, "-o", tmp_path / "out.parquet")
    assert (done.status, "is there already" in done.err) == (2, True)
    assert (tmp_path / "out.parquet").read_text() == "mine"


def test_a_trace_without_intervals(cli, tmp_path, write_trace):
    trace = write_trace({0: ["init", "compute 1000", "finalize"]})
    done = cli("plan", "--method", "simpoint", trace, "-o", tmp_path / "out")
    assert (done.status, "has no intervals; a profile of basic-block vectors" in done.err) == (2, True)
