"""Functions of the Python interface besides runs: each gives what its command writes, from the same input."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

import manyscale as ms
from manyscale.models.workload.quantities import measured
from manyscale.runner.api.frames import numbers
from manyscale.runner.api.python_words import translated

DATA = Path(__file__).parents[2] / "data"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(private_cache, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.contract
def test_profile_is_what_the_command_writes(cli, tmp_path) -> None:
    assert cli("profile", "matmul-10", "--target", "laptop", "--no-report", "-o", "out").status == 0
    found = ms.profile("matmul-10", target="laptop")
    for name in found.tables:
        if name != "statistics":
            assert pq.read_table(tmp_path / "out" / f"{name}.parquet").equals(found.table(name)), name
    assert found.directory is None
    saved = found.save(tmp_path / "saved")
    assert (saved / "stats.json").read_bytes() == (tmp_path / "out" / "stats.json").read_bytes()
    with pytest.raises(ms.UserError, match=r"^cores: are those that interval simulates"):
        ms.profile("matmul-10", cores=2)
    with pytest.raises(ms.UserError, match=r"^together: is of stack distances, which interval does not"):
        ms.profile("cholesky-8", target="laptop", interval=1000, together=True)


@pytest.mark.contract
def test_predict_takes_traces_by_size_or_a_name(cli, tmp_path) -> None:
    assert cli("predict", "matmul", "--target", "epyc-zen4", "--sizes", "40", "--no-report", "-o", "out").status == 0
    by_name = ms.predict("matmul", 40, target="epyc-zen4")
    by_size = ms.predict({size: f"matmul-{size}" for size in (10, 12, 15, 17, 20)}, [40], target="epyc-zen4")
    assert by_name.figures == by_size.figures
    assert pq.read_table(tmp_path / "out" / "predictions.parquet").equals(by_name.table("predictions"))
    with pytest.raises(ms.UserError, match=r"^target: must be given: a YAML file, or one of a100"):
        ms.predict("matmul", 40)
    with pytest.raises(ms.UserError, match=r"^sizes 0: write whole numbers"):
        ms.predict("matmul", [0])
    with pytest.raises(ms.UserError, match=r"amm\.colour: unknown"):
        ms.predict("matmul", 40, amm={"colour": 1})


@pytest.mark.contract
def test_plan_and_evaluate_take_profiles(cli, tmp_path) -> None:
    profile = DATA / "detail" / "phases.m.bb.xz"
    assert cli("plan", "--method", "simpoint", profile, "-o", "out").status == 0
    found = ms.plan(profile, "simpoint")
    assert pq.read_table(tmp_path / "out" / "plan.parquet").equals(found.table())
    assert ms.plan(profile, "simpoint", tmp_path / "one.parquet").file == tmp_path / "one.parquet"
    assert pq.read_table(tmp_path / "one.parquet").equals(found.table())
    assert cli("evaluate", profile, "--method", "simpoint,random", "--draws", "3", "-o", "judged").status == 0
    judged = ms.evaluate(profile, methods=["simpoint", "random"], draws=3)
    assert pq.read_table(tmp_path / "judged" / "evaluation.parquet").equals(judged.table())
    assert judged.directory is None
    with pytest.raises(ms.UserError, match=r"^exports, projection, warmup: are for intervals; choose them with method"):
        ms.plan("lulesh-8", exports=["gem5"])
    with pytest.raises(ms.UserError, match=r"^draws 0: at least one"):
        ms.evaluate(profile, draws=0)


@pytest.mark.contract
def test_convert_without_output_makes_a_trace_that_others_read(tmp_path) -> None:
    found = ms.convert("lulesh-8")
    assert found.path.is_dir()
    assert ms.read_workload(found.path).num_operations == found.workload.num_operations
    assert not list(tmp_path.glob("[!c]*"))
    path = found.path
    del found
    assert not path.exists()


@pytest.mark.contract
def test_a_calibrated_machine_is_a_target(tmp_path) -> None:
    """A straight line through the sizes: 2 us and 1 GB/s."""
    rows = "".join(f"{size},{2e-6 + size * 1e-9:.12g}\n" for size in (0, 8, 64, 512, 4096, 32768, 262144))
    (tmp_path / "ping.csv").write_text(f"bytes,time_s\n{rows}")
    found = ms.calibrate("ping.csv")
    latency, unit = measured(found.machine["network"]["latency"]) or (0.0, "")
    assert (latency, unit) == (pytest.approx(2e-6, rel=0.01), "s")
    assert ms.run("lulesh-8", target=found.machine).machine.name == found.machine["name"]
    assert found.save(tmp_path / "out") == tmp_path / "out"
    assert {file.name for file in (tmp_path / "out").iterdir()} >= {"machine.yaml", "calibration.json"}
    with pytest.raises(ms.UserError, match="needs measured ping-pongs, or node to measure"):
        ms.calibrate()
    with pytest.raises(ms.UserError, match=r"^quick goes with node"):
        ms.calibrate("ping.csv", quick=True)


@pytest.mark.contract
def test_accuracy_and_examples() -> None:
    found = ms.accuracy(["lulesh-8"])
    assert found.holds
    assert found.frame()["name"].tolist() == ["lulesh-8"]
    assert "crossbar256" in ms.examples().frame("targets")["name"].tolist()


@pytest.mark.theory
@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["2 us", "1 ms"], ([2e-6, 1e-3], "s")),
        (["64 KiB", "1 MB"], ([65536.0, 1e6], "B")),
        (["1.25 GB/s", "8 Gbit/s", "inf B/s"], ([1.25e9, 1e9, float("inf")], "B/s")),
        (["2.6 GHz"], ([2.6e9], "Hz")),
        (["4 cycles"], ([4.0], "cycles")),
        (["2 us", "1 GHz"], None),
        (["2 us", 3], None),
        (["laptop"], None),
        (["3"], None),
    ],
)
def test_quantities_are_numbers_in_their_base_unit(texts, expected) -> None:
    assert numbers(texts) == expected


@pytest.mark.contract
def test_errors_name_what_was_written_in_a_program(tmp_path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(ms.UserError, match="full: is not empty; name another directory with output,"):
        ms.run("lulesh-8", tmp_path / "full")
    with pytest.raises(ms.UserError, match=r"workload.format: unknown format 'otf9'"):
        ms.run("lulesh-8", format="otf9")
    assert translated("--export x: --on-line is a-b--exports, -o DIR", ["exports", "output"]) == (
        "exports x: --on-line is a-b--exports, output"
    )
