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
    done = cli("evaluate", profile, "--draws", "4", "--method", "simpoint,random,systematic,full", "-o", tmp_path / "e")
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


def test_intervals_of_several_of_each_cluster(cli, profile, tmp_path):
    """Each kind has one CPI, so all intervals are points that hold."""
    done = cli("evaluate", profile, "--draws", "3", "--method", "simpoint:2,code:4,simpoint", "-o", tmp_path / "e")
    assert done.status == 0, done.err
    rows = [line.split() for line in (tmp_path / "e" / "evaluation.txt").read_text().splitlines()[1:]]
    assert [(row[1], row[2]) for row in rows] == [("simpoint:2", "4.0"), ("code:4", "8.0"), ("simpoint", "2.0")]
    assert rows[0][5:7] == rows[1][5:7] == ["0.00%", "100%"]
    assert rows[2][5:] == ["0%"]  # of IPC within phases alone


@pytest.mark.contract
def test_the_same_seeds_give_the_same_bytes(cli, profile, tmp_path):
    for name in ("one", "two"):
        assert cli("evaluate", profile, "--draws", "2", "-o", tmp_path / name).status == 0
    for file in ("evaluation.parquet", "evaluation.txt", "report.html"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


@pytest.mark.parametrize(("arguments", "line"), [
    (["--method", "simpiont"], "--method 'simpiont': unknown; did you mean 'simpoint'?"),
    (["--method", "simprof"], "--method 'simprof': prog has no call stacks"),
    (["--method", "random:2"], "--method 'random:2': random makes no clusters; leave the number out"),
    (["--method", "simpoint:x"], "--method 'simpoint:x': write NAME:N, such as simpoint:3"),
    (["--draws", "0"], "--draws 0: at least one is needed"),
])  # fmt: skip
def test_what_is_refused(cli, profile, tmp_path, arguments, line):
    done = cli("evaluate", profile, *arguments, "-o", tmp_path / "e")
    assert (done.status, line in done.err) == (2, True), done.err
    assert not (tmp_path / "e").exists()


def test_cycles_must_be_known(cli, profile, tmp_path):
    (tmp_path / "prog.cpi.csv").unlink()
    done = cli("evaluate", profile, "-o", tmp_path / "e")
    assert (done.status, "prog.bb: the cycles of its intervals are not known" in done.err) == (2, True)


class TestAnotherMachine:
    """Its cycles: 2 in the first ten intervals, 4 in the next, and in both kinds more with each ten."""

    CPI = np.repeat([2.0, 4.0, 2.5, 5.0], 10)

    def table(self, path: Path, cpi: np.ndarray, instructions: int = 1000) -> Path:
        rows = [f"{number},{instructions},{each * instructions:.0f}\n" for number, each in enumerate(cpi)]
        path.write_text("interval,instrs,cycles\n" + "".join(rows))
        return path

    def errors(self, cli, tmp_path, *arguments) -> np.ndarray:
        done = cli("evaluate", *arguments, "--draws", "3", "-o", tmp_path / "e")
        assert done.status == 0, done.err
        return pq.read_table(tmp_path / "e" / "evaluation.parquet").column("error").to_numpy()

    @pytest.mark.theory
    def test_points_of_one_are_judged_on_the_other(self, cli, profile, tmp_path):
        """What plan chooses of the profile alone, with the other's CPI."""
        expected = []
        for seed in range(3):
            out = tmp_path / f"{seed}.parquet"
            assert cli("plan", "--method", "simpoint", profile, "--seed", seed, "-o", out).status == 0
            plan = pq.read_table(out)
            of_points = self.CPI[plan.column("element_id").to_numpy()]
            expected.append(plan.column("weight").to_numpy() @ of_points / self.CPI.mean() - 1)
        assert np.any(np.abs(expected) > 0.01)
        other = self.table(tmp_path / "other.csv", self.CPI)
        found = self.errors(cli, tmp_path, profile, "--method", "simpoint", "--on", other)
        assert found == pytest.approx(expected)

    def test_a_profile_judges_like_its_table(self, cli, profile, tmp_path):
        table = self.table(tmp_path / "other.csv", self.CPI)
        by_table = self.errors(cli, tmp_path, profile, "--method", "simpoint,random", "--on", table)
        (tmp_path / "e").rename(tmp_path / "before")
        (tmp_path / "b").mkdir()
        (tmp_path / "b" / "that.bb").write_text("T:1:1000\n" * 40)  # its vectors play no part
        self.table(tmp_path / "b" / "that.cpi.csv", self.CPI)
        assert np.array_equal(by_table, self.errors(
            cli, tmp_path, profile, "--method", "simpoint,random", "--on", tmp_path / "b" / "that.bb"
        ))  # fmt: skip

    @pytest.mark.theory
    def test_how_much_ipc_varies_within_phases(self, cli, profile, tmp_path):
        """IPC 1/2 and 1/4 on the other machine, alike in each kind: nothing of it within; and by hand if it is not."""
        for cpi, within in (np.repeat([2.0, 4.0, 2.0, 4.0], 10), 0.0), (self.CPI, None):
            done = cli("evaluate", profile, "--method", "simpoint", "--on", self.table(tmp_path / "o.csv", cpi),
                       "--draws", "1", "-o", tmp_path / f"e{within}")  # fmt: skip
            shown = float(done.out.splitlines()[1].split()[-1].rstrip("%")) / 100
            ipc = (1 / cpi).reshape(2, 2, 10)
            expected = np.mean([ipc[:, kind].std() for kind in (0, 1)]) / ipc.std()
            assert shown == pytest.approx(expected, abs=0.005)

    @pytest.mark.parametrize(("text", "line"), [
        (None, "--on other.csv: there is no such file"),
        ("interval,instrs\n" + "".join(f"{i},5\n" for i in range(40)), "the cycles of its intervals are not known"),
        ("interval,cycles\n" + "".join(f"{i + 1},5\n" for i in range(40)), "have different intervals (40 and 40)"),
        ("interval,cycles\n0,5\n", "has 1 rows for the 40 intervals"),
    ])  # fmt: skip
    def test_what_is_refused(self, cli, profile, tmp_path, monkeypatch, text, line):
        monkeypatch.chdir(tmp_path)
        if text is not None:
            Path("other.csv").write_text(text)
        done = cli("evaluate", profile, "--on", "other.csv", "-o", tmp_path / "e")
        assert (done.status, line in done.err) == (2, True), done.err
        assert not (tmp_path / "e").exists()

    def test_one_for_each_profile(self, cli, profile, tmp_path):
        done = cli("evaluate", profile, profile, "--on", "other.csv", "-o", tmp_path / "e")
        assert (done.status, "--on: names 1 of 2 profiles; give one for each" in done.err) == (2, True)
