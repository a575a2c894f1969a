"""``manyscale evaluate`` on profiles: errors against known cycles, by method and seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """40 intervals of 1,000 instructions, of two kinds of 1 and 3 cycles per instruction, in turn by tens."""
    shares = np.random.default_rng(0).integers(95, 106, (40, 40))
    kind = np.arange(40) // 10 % 2
    rows = [
        "T" + "   ".join(f":{block + 1 + 100 * which}:{share}" for block, share in enumerate(row)) + "\n"
        for row, which in zip(shares, kind, strict=True)
    ]
    path = tmp_path / "prog.bb"
    path.write_text("".join(rows))
    table = [f"{number},1,1000,{100_000 * (1 + 2 * which)}\n" for number, which in enumerate(kind)]
    (tmp_path / "prog.cpi.csv").write_text("interval,tid,instrs,centicycles\n" + "".join(table))
    return path


def test_methods_against_the_truth(cli, profile, tmp_path):
    done = cli(
        "evaluate", profile, "--seeds", "4", "--methods", "simpoint,random,systematic,full", "-o", tmp_path / "e"
    )
    assert done.status == 0, done.err
    table = pq.read_table(tmp_path / "e" / "evaluation.parquet").to_pandas()
    assert table.groupby("method").size().to_dict() == {"simpoint": 4, "random": 4, "systematic": 4, "full": 4}
    mean = table.assign(error=table.error.abs()).groupby("method").error.mean()
    assert mean["simpoint"] == pytest.approx(0, abs=1e-12)  # each kind has one CPI
    assert mean["full"] == pytest.approx(0, abs=1e-12)
    of = table.set_index(["method", "seed"])
    assert set(of.loc["simpoint"].elements) == set(of.loc["random"].elements) == {2}
    for error in of.loc["random"].error:  # two of 1 and 3 cycles, where 2 is true
        assert error == pytest.approx(-0.5) or error == pytest.approx(0, abs=1e-12) or error == pytest.approx(0.5)
    assert set(of.loc["full"].elements) == {40}
    assert "simpoint" in (tmp_path / "e" / "evaluation.txt").read_text()
    page = (tmp_path / "e" / "report.html").read_text()
    assert "prog: simpoint" in page
    assert "prog: random" not in page  # it has no phases to show


@pytest.mark.contract
def test_the_same_seeds_give_the_same_bytes(cli, profile, tmp_path):
    for name in ("one", "two"):
        assert cli("evaluate", profile, "--seeds", "2", "-o", tmp_path / name).status == 0
    for file in ("evaluation.parquet", "evaluation.txt", "report.html"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


@pytest.mark.parametrize(("arguments", "line"), [
    (["--methods", "simpiont"], "--method 'simpiont': unknown; known are simpoint"),
    (["--methods", "simprof"], "--methods 'simprof': prog has no call stacks"),
    (["--seeds", "0"], "--seeds 0: at least one is needed"),
])  # fmt: skip
def test_what_is_refused(cli, profile, tmp_path, arguments, line):
    done = cli("evaluate", profile, *arguments, "-o", tmp_path / "e")
    assert (done.status, line in done.err) == (2, True), done.err
    assert not (tmp_path / "e").exists()


def test_cycles_must_be_known(cli, profile, tmp_path):
    (tmp_path / "prog.cpi.csv").unlink()
    done = cli("evaluate", profile, "-o", tmp_path / "e")
    assert (done.status, "prog.bb: the cycles of its intervals are not known" in done.err) == (2, True)
