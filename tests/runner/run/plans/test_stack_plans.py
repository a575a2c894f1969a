"""``manyscale plan --method simprof`` and its options, on units whose phases are known."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

KINDS = (("WC.map", 60, 1.0, 0.05), ("java.util.TimSort.sort", 30, 4.0, 0.5), ("fwrite", 10, 2.0, 0.1))


def written(folder: Path, name: str, kinds=KINDS, seed: int = 0, measured: bool = True) -> Path:
    """A profile: units of each kind (method, units, mean of CPI, deviation), 10 stacks each, 100,000 instructions."""
    random = np.random.default_rng(seed)
    names = ["main", *(method for method, *_ in kinds)]
    lines = [f"M\t{number}\t{method}" for number, method in enumerate(names)]
    table = ["interval,tid,instrs,centicycles"]
    unit = 0
    for number, (_, units, mean, deviation) in enumerate(kinds, 1):
        for _ in range(units):
            lines += [f"S\t{unit}\t1\t{number},0"] * 9 + [f"S\t{unit}\t1\t0"]
            table.append(f"{unit},1,100000,{round(1e7 * max(mean + deviation * random.standard_normal(), 0.1))}")
            unit += 1
    path = folder / f"{name}.stk"
    path.write_text("\n".join(lines) + "\n")
    if measured:
        (folder / f"{name}.cpi.csv").write_text("\n".join(table) + "\n")
    return path


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def cpis(path: Path) -> np.ndarray:
    return np.array([float(row["centicycles"]) / 1e7 for row in rows(path)])


def test_phases_have_kinds_and_names(cli, tmp_path):
    done = cli("plan", "--method", "simprof", written(tmp_path, "wc"), "-o", tmp_path / "out")
    assert done.status == 0, done.err
    assert "20 of 100 sampling units in 3 phases would be simulated" in done.out
    assert "phases by their operations: map 60%, sort 30%, io 10%" in done.out
    assert "2 % and 5 % of error at 99.7 % confidence take" in done.out
    table = {row["kind"]: row for row in rows(tmp_path / "out" / "wc.phases.csv")}
    assert {kind: (row["methods"], int(row["units"])) for kind, row in table.items()} == {
        "map": ("WC.map", 60), "sort": ("java.util.TimSort.sort", 30), "io": ("fwrite", 10)
    }  # fmt: skip
    assert sum(int(row["drawn"]) for row in table.values()) == 20
    plan = pq.read_table(tmp_path / "out" / "plan.parquet").to_pydict()
    assert plan["element_kind"] == ["unit"] * 20
    assert sum(plan["weight"]) == pytest.approx(1, abs=1e-12)


def test_phases_have_misses(cli, tmp_path):
    """Units of 100,000 instructions with 50, 400 and 150 misses, by what they execute; the first one with 110."""
    path = written(tmp_path, "wc")
    lines = (tmp_path / "wc.cpi.csv").read_text().splitlines()
    misses = [50] * 60 + [400] * 30 + [150] * 10
    told = [f"{line},{count}" for line, count in zip(lines[1:], misses, strict=True)]
    told[0] = f"{lines[1]},110"
    (tmp_path / "wc.cpi.csv").write_text("\n".join([f"{lines[0]},cache-misses", *told]) + "\n")
    done = cli("plan", "--method", "simprof", path, "-o", tmp_path / "out")
    assert done.status == 0, done.err
    table = {row["kind"]: row for row in rows(tmp_path / "out" / "wc.phases.csv")}
    found = {kind: float(row["cache-misses per 1000 instructions"]) for kind, row in table.items()}
    assert found == {"map": 0.51, "sort": 4, "io": 1.5}
    assert table["sort"]["methods"] == "java.util.TimSort.sort"


def test_operations_of_the_user(cli, tmp_path):
    done = cli("plan", "--method", "simprof", written(tmp_path, "wc"), "--set", "operations.output=fwrite", "-o",
               tmp_path / "out")  # fmt: skip
    assert done.status == 0, done.err
    assert "map 60%, sort 30%, output 10%" in done.out


def test_pieces_of_units(cli, tmp_path):
    """Each unit is 100 pieces of 1,000: five of them, twenty apart, that weigh together what the unit does."""
    path = written(tmp_path, "wc")
    done = cli("plan", "--method", "simprof", path, "--set", "pieces=5", "-o", tmp_path / "out")
    assert done.status == 0, done.err
    assert "1.000% of the instructions would be simulated instead of 20.00%" in done.out
    plan = pq.read_table(tmp_path / "out" / "plan.parquet").to_pydict()
    found = rows(tmp_path / "out" / "wc.pieces.csv")
    assert [int(row["unit"]) for row in found] == np.repeat(plan["element_id"], 5).tolist()
    begin = np.array([int(row["begin"]) for row in found]).reshape(-1, 5)
    assert np.all(np.diff(begin, axis=1) == 20_000)
    assert begin.min() >= 0
    assert begin.max() <= 99_000
    assert len(np.unique(begin[:, 0])) > 5  # begins are drawn anew for each unit
    weight = np.array([float(row["weight"]) for row in found]).reshape(-1, 5).sum(axis=1)
    assert weight == pytest.approx(plan["weight"], rel=1e-6)
    assert {(row["instructions"], row["warm_up"]) for row in found} == {("1000", "2000")}


def test_a_pilot_and_what_is_simulated_after_it(cli, tmp_path):
    """Cycles of the profile are not known: two units of each phase, then as many as the error takes."""
    path, truth = written(tmp_path, "wc", measured=False), cpis_of_kinds()
    done = cli("plan", "--method", "simprof", path, "-o", tmp_path / "out-0")
    assert done.status == 0, done.err
    assert "a pilot of each phase" in done.out
    plan = pq.read_table(tmp_path / "out-0" / "plan.parquet").to_pydict()
    assert len(plan["element_id"]) == 6
    for step in range(1, 12):
        table = tmp_path / f"measured-{step}.csv"
        table.write_text("unit,cpi\n" + "".join(f"{unit},{truth[unit]}\n" for unit in plan["element_id"]))
        done = cli("plan", "--method", "simprof", path, "--measured", table, "--set", "error=0.03", "-o",
                   tmp_path / f"out-{step}")  # fmt: skip
        assert done.status == 0, done.err
        units = plan["element_id"]
        assert f"{len(units)} of 100 sampling units are measured: CPI " in done.out
        plan = pq.read_table(tmp_path / f"out-{step}" / "plan.parquet").to_pydict()
        assert set(units) <= set(plan["element_id"])
        if "; enough for 0.03" in done.out:
            break
        assert "; not enough for 0.03" in done.out
    assert "\n0 units are to be simulated next" in done.out
    assert 10 < len(units) < 100
    told = float(done.out.split("CPI ")[1].split()[0])
    assert told == pytest.approx(truth.mean(), rel=0.05)


def cpis_of_kinds() -> np.ndarray:
    random = np.random.default_rng(5)
    return np.concatenate([mean + deviation * random.standard_normal(units) for _, units, mean, deviation in KINDS])


def test_measured_pieces(cli, tmp_path):
    """Pieces differ by 0.4 around their units: the estimate is near, and it is told how much is lost inside units."""
    path, random = written(tmp_path, "wc"), np.random.default_rng(1)
    cpi = cpis(tmp_path / "wc.cpi.csv")
    assert cli("plan", "--method", "simprof", path, "--set", "pieces=5", "-o", tmp_path / "out").status == 0
    lines = [f"{row['unit']},{row['piece']},{cpi[int(row['unit'])] + 0.4 * random.standard_normal()}"
             for row in rows(tmp_path / "out" / "wc.pieces.csv")]  # fmt: skip
    (tmp_path / "m.csv").write_text("unit,piece,cpi\n" + "\n".join(lines) + "\n")
    done = cli("plan", "--method", "simprof", path, "--set", "pieces=5", "--measured", tmp_path / "m.csv", "-o",
               tmp_path / "next")  # fmt: skip
    assert done.status == 0, done.err
    assert float(done.out.split("CPI ")[1].split()[0]) == pytest.approx(cpi.mean(), rel=0.1)
    share = int(done.out.split("% of a unit's variance is of the pieces")[0].split()[-1])
    assert 5 < share < 60  # 0.16 / 5 beside 0.0025 to 0.25
    (tmp_path / "m.csv").write_text("unit,piece,cpi\n" + "\n".join(lines[1:]) + "\n")
    done = cli("plan", "--method", "simprof", path, "--set", "pieces=5", "--measured", tmp_path / "m.csv", "-o",
               tmp_path / "other")  # fmt: skip
    assert (done.status, "has 4 pieces, not 5" in done.err) == (2, True)


OTHER = (("WC.map", 20, 1.03, 0.05), ("java.util.TimSort.sort", 60, 6.0, 0.5), ("fwrite", 20, 2.0, 0.1))


def test_another_input(cli, tmp_path):
    """Sorting takes 6 instead of 4 cycles an instruction; the others keep their means."""
    train, other = written(tmp_path, "wc"), written(tmp_path, "big", OTHER, 3)
    done = cli("plan", "--method", "simprof", train, "--sensitivity", other, "--set", "sensitive_by=mean", "-o",
               tmp_path / "out")  # fmt: skip
    assert done.status == 0, done.err
    kinds = {row["phase"]: row for row in rows(tmp_path / "out" / "wc.phases.csv")}
    sorting = next(phase for phase, row in kinds.items() if row["kind"] == "sort")
    kept = 20 - int(kinds[sorting]["drawn"])
    assert f"1 of 3 phases change with the input (CPI's mean by more than 0.1): {sorting}; " in done.out
    assert f"another input takes {kept / 20:.0%} fewer" in done.out
    assert f"big: {20 - kept} of 100 units would be simulated; " in done.out
    off = float(done.out.split("(")[-1].split("%")[0])
    assert abs(off) < 5
    table = rows(tmp_path / "out" / "wc.sensitivity.csv")
    assert {(row["phase"], row["sensitive"]) for row in table} == {(p, str(int(p == sorting))) for p in kinds}
    assert sum(int(row["units"]) for row in table if row["input"] == "big") == 100
    units = rows(tmp_path / "out" / "wc.big.units.csv")
    assert sum(float(row["weight"]) for row in units) == pytest.approx(1, abs=1e-6)
    assert {row["profile"] for row in units if row["phase"] == sorting} == {"big"}
    assert {row["profile"] for row in units if row["phase"] != sorting} == {"wc"}
    plan = pq.read_table(tmp_path / "out" / "plan.parquet").to_pydict()
    assert {int(row["unit"]) for row in units if row["profile"] == "wc"} < set(plan["element_id"])


def test_the_same_input_changes_nothing(cli, tmp_path):
    train = written(tmp_path, "wc")
    (tmp_path / "again").mkdir()
    other = written(tmp_path / "again", "wc2")
    done = cli("plan", "--method", "simprof", train, "--sensitivity", other, "-o", tmp_path / "out")
    assert done.status == 0, done.err
    assert "0 of 3 phases change with the input" in done.out
    assert "another input takes 100% fewer" in done.out


@pytest.mark.contract
@pytest.mark.parametrize("method", ["code", "random", "systematic", "second", "full"])
def test_baselines_on_call_stacks(cli, tmp_path, method):
    path = written(tmp_path, "wc")
    done = cli("plan", "--method", method, path, "-o", tmp_path / "out.parquet")
    assert done.status == 0, done.err
    plan = pq.read_table(tmp_path / "out.parquet").to_pydict()
    assert set(plan["element_kind"]) == {"unit"}
    assert sum(plan["weight"]) == pytest.approx(1, abs=1e-12)
    size = {"code": 3, "random": 20, "systematic": 5, "second": 20, "full": 100}[method]
    assert f"{size} of 100 sampling units would be simulated; CPI by the profile's cycles" in done.out
    if method == "full":
        assert "(+0.00%)" in done.out


@pytest.mark.parametrize(("arguments", "line"), [
    (["--method", "simprof", "--set", "unit=5"], "--set: unit: unknown key"),
    (["--method", "simprof", "--set", "operations.io='['"], "'[' is no regular expression"),
    (["--method", "simprof", "--set", "workload.threads='['"], "'[' is no regular expression"),
    (["--method", "simprof", "--set", "workload.threads=main"], "in units that are cut already"),
    (["--method", "simprof", "--set", "pieces=101"], "--set pieces=101: not all sampling units are known to have 101"),
    (["--method", "simprof", "--set", "units=4"], "4 elements are too few for 3 strata"),
    (["--method", "simprof", "--measured", "none.csv"], "none.csv: cannot be read"),
    (["--method", "simprof", "--export", "gem5"], "--export: is of intervals of basic-block vectors"),
    (["--method", "random", "--measured", "none.csv"], "--measured: is of method simprof"),
    (["--method", "simpoint", "--measured", "none.csv"], "--measured: is of sampling units of call stacks"),
    (["--method", "simprof", "--sensitivity", "SELF"], "is named wc, as another profile"),
    (["--method", "simprof", "--sensitivity", "BARE"], "the cycles of its sampling units are not known"),
])  # fmt: skip
def test_what_is_refused(cli, tmp_path, arguments, line):
    path = written(tmp_path, "wc")
    bare = written(tmp_path, "bare", measured=False)
    words = [{"SELF": path, "BARE": bare}.get(word, word) for word in arguments]
    done = cli("plan", *words, path, "-o", tmp_path / "out")
    assert (done.status, line in done.err) == (2, True), done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", ["--measured", "--sensitivity"])
def test_options_without_a_method(cli, tmp_path, option):
    done = cli("plan", written(tmp_path, "wc"), option, "m.csv", "-o", tmp_path / "out")
    assert (done.status, "--sensitivity, --measured: are of --method simprof" in done.err) == (2, True)


@pytest.mark.contract
@pytest.mark.parametrize(("text", "said"), [
    ("unit,cycles\n0,1\n", ":1: a table of what was measured has the columns unit and cpi"),
    ("unit,cpi\n0,fast\n", ":2: cpi is 'fast', not a number from 0"),
    ("unit,cpi\n100,1\n", ":2: the profile has no unit 100"),
    ("unit,cpi\n0,-1\n", ":2: cpi is '-1', not a number from 0"),
    ("unit,cpi\n0,1\n0,1\n", ":3: unit 0, piece 0 stands twice"),
    ("unit,cpi\n", ": holds no measured unit"),
    ("unit,cpi\n0,1\n1,1\n", "of phase "),
])  # fmt: skip
def test_measured_tables_that_are_wrong(cli, tmp_path, text, said):
    path = written(tmp_path, "wc")
    (tmp_path / "m.csv").write_text(text)
    done = cli("plan", "--method", "simprof", path, "--measured", tmp_path / "m.csv", "-o", tmp_path / "out")
    assert (done.status, said in done.err) == (2, True), done.err
    assert not (tmp_path / "out").exists()


def test_evaluate_compares_code_too(cli, tmp_path):
    done = cli("evaluate", written(tmp_path, "wc"), "--draws", "5", "-o", tmp_path / "e")
    assert done.status == 0, done.err
    table = pq.read_table(tmp_path / "e" / "evaluation.parquet").to_pandas()
    assert set(table.method) == {"simprof", "code", "random", "systematic", "second"}
    mean = table.assign(error=table.error.abs()).groupby("method").error.mean()
    assert mean["simprof"] < mean["random"]
    assert set(table[table.method == "code"].elements) == {3}
