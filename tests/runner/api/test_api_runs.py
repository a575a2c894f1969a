"""Runs from Python: the files of the commands where they are asked for, else none that stay; results that show
themselves. On crossbar256 a message of S bytes takes 10 us + 0.8 ns (S + 16); one unit of ``compute`` is 1 ns."""

from __future__ import annotations

import gc
import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import manyscale as ms

# rank 0 computes 100 us and sends 984 bytes; rank 1 computes 20 us, receives, computes 30 us
UNEQUAL = {
    0: ["init", "compute 100000", "send 1 0 984 6", "finalize"],
    1: ["init", "compute 20000", "recv 0 0 984 6", "compute 30000", "finalize"],
}
MAKESPAN = 100e-6 + 10e-6 + 0.8e-9 * 1000 + 30e-6


@pytest.fixture
def study(write_trace, private_cache, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return {"workload": {"path": str(write_trace(UNEQUAL))}, "target": "crossbar256"}


def files(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


@pytest.mark.theory
def test_a_run_has_the_time_that_follows_by_hand(study) -> None:
    result = ms.run(study)
    assert result.makespan_seconds == pytest.approx(MAKESPAN, rel=1e-12)
    assert result.figures["application.makespan"] == result.makespan_seconds
    statistics = result.frame("statistics").set_index("name")
    assert statistics.loc["application.makespan", ["value", "unit"]].tolist() == [result.makespan_seconds, "s"]
    frame = result.frame("ranks")
    assert frame["end_ps"].max() == round(MAKESPAN * 1e12)
    assert frame.attrs["units"] == {"start_ps": "ps", "end_ps": "ps"}
    assert result.frame().equals(result.frame(result.tables[0]))


@pytest.mark.contract
def test_without_output_no_file_stays(study, tmp_path, capfd) -> None:
    before = files(tmp_path) | {"cache"}
    result = ms.run(study)
    folder = result.directory
    assert folder is not None
    assert (folder / "stats.json").is_file()
    assert not (folder / "report.html").exists()
    assert {name for name in files(tmp_path) if not name.startswith("cache/")} <= before
    assert capfd.readouterr() == ("", "")
    del result
    gc.collect()
    assert not folder.exists()


@pytest.mark.contract
def test_output_is_what_the_command_writes(study, cli, tmp_path) -> None:
    result = ms.run(study, tmp_path / "by-python")
    assert result.directory == tmp_path / "by-python"
    trace = study["workload"]["path"]
    outcome = cli("run", "--workload", trace, "--target", "crossbar256", "-o", "by-command")
    assert outcome.status == 0, outcome.err
    one, other = tmp_path / "by-python", tmp_path / "by-command"
    assert files(one) == files(other)
    # host time, what was reused
    differing = {"manifest.json", "simulator.json", "status.json", "units.jsonl", "units.parquet"}
    for name in files(one) - differing:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


@pytest.mark.contract
@pytest.mark.parametrize("report", [True, False])
def test_save_writes_the_run_directory(study, tmp_path, report) -> None:
    result = ms.run(study)
    assert result.save(tmp_path / "saved", report=report) == tmp_path / "saved"
    ms.run(study, tmp_path / "direct", report=report)
    assert files(tmp_path / "saved") == files(tmp_path / "direct")
    name = "report.html" if report else "stats.json"
    assert (tmp_path / "saved" / name).read_bytes() == (tmp_path / "direct" / name).read_bytes()
    with pytest.raises(ms.UserError, match="is not empty"):
        result.save(tmp_path / "saved")


@pytest.mark.contract
def test_keywords_replace_what_the_options_replace(study) -> None:
    slow = ms.run(study, set={"target.network.latency": "110 us"})
    assert slow.makespan_seconds == pytest.approx(MAKESPAN + 100e-6, rel=1e-12)
    assert ms.run(study, set={"cpu_ratio": 2}).makespan_seconds == pytest.approx(MAKESPAN + 130e-6, rel=1e-12)
    other = ms.run(study, target="laptop", model={"network": "loggops"}, seed=7)
    assert other.resolved["target"]["name"] == "laptop"
    assert (other.resolved["model"]["network"], other.resolved["seed"]) == ("loggops", 7)


@pytest.mark.contract
def test_what_stands_for_a_study(study, tmp_path) -> None:
    trace = study["workload"]["path"]
    made = ms.run(trace, tmp_path / "run", target="crossbar256", report=False)
    for named in (
        tmp_path / "run",
        made.directory / "resolved.yaml",
        ms.load_study(tmp_path / "run" / "resolved.yaml"),
    ):
        assert ms.run(named).figures == made.figures
    with pytest.raises(ms.UserError, match="is a trace, which needs a target"):
        ms.run(trace)
    with pytest.raises(ms.UserError, match=r"call manyscale\.sweep"):
        ms.run({**study, "sweep": {"cpu_ratio": [1, 2]}})
    with pytest.raises(ms.UserError, match="has no sweep"):
        ms.sweep(study)


@pytest.mark.contract
def test_progress_is_told_to_who_asks(study, capfd) -> None:
    told: list[tuple[float, float, str]] = []
    ms.run(study, progress=lambda *what: told.append(what))
    assert "simulating" in {what for _, _, what in told} or told
    assert all(done <= total or not total for done, total, _ in told)
    assert capfd.readouterr() == ("", "")
    ms.run(study, progress=True)
    assert capfd.readouterr().err


@pytest.mark.theory
def test_axes_come_out_as_numbers_with_their_unit(study) -> None:
    axes = {"target.network.latency": ["10 us", "0.5 ms"], "cpu_ratio": [1, 2]}
    found = ms.sweep(study, axes=axes)
    frame = found.frame()
    assert frame["target.network.latency"].tolist() == ["10 us", "10 us", "0.5 ms", "0.5 ms"]
    assert frame["target.network.latency_s"].tolist() == [1e-5, 1e-5, 5e-4, 5e-4]
    assert frame["cpu_ratio"].tolist() == [1, 2, 1, 2]
    assert frame.attrs["units"]["target.network.latency_s"] == "s"
    assert frame.attrs["units"]["application.makespan"] == "s"
    assert frame["application.makespan"].iloc[0] == pytest.approx(MAKESPAN, rel=1e-12)
    assert frame["application.makespan"].iloc[2] == pytest.approx(MAKESPAN + 490e-6, rel=1e-12)


@pytest.mark.contract
def test_a_sweep_is_written_as_the_command_writes_it(study, tmp_path) -> None:
    found = ms.sweep(study, axes={"cpu_ratio": [1, 2]})
    saved = found.save(tmp_path / "saved")
    assert pq.read_table(saved / "sweep.parquet").equals(found.sweep_table())
    assert {"report.html", "points/0000/stats.json", "points/0001/stats.json"} <= files(saved)


@pytest.mark.theory
def test_what_ifs_by_hand(study, tmp_path) -> None:
    """Without latency and transfer rank 1 waits for rank 0's 100 us; balanced, each computes 75 us."""
    found = ms.what_if(study, ["ideal-network", "faster:rank:0=4"], tmp_path / "asked")
    assert found.makespan_seconds["base"] == pytest.approx(MAKESPAN, rel=1e-12)
    assert found.makespan_seconds["ideal-network"] == pytest.approx(130e-6, rel=1e-12)
    assert found.makespan_seconds["faster:rank:0=4"] == pytest.approx(MAKESPAN - 75e-6, rel=1e-12)
    rows = found.frame().set_index("what_if")
    assert rows.loc["ideal-network", "change_seconds"] == pytest.approx(130e-6 - MAKESPAN, rel=1e-9)
    assert (tmp_path / "asked" / "report.html").is_file()
    with pytest.raises(ms.UserError, match="is a sweep"):
        ms.what_if({**study, "sweep": {"cpu_ratio": [1, 2]}})


@pytest.mark.contract
def test_results_are_short_and_pages_hold_no_script(study, tmp_path) -> None:
    run = ms.run(study)
    answers = [
        run, ms.sweep(study, axes={"cpu_ratio": [1, 2]}), ms.what_if(study), ms.compare(run, run),
        ms.pop([run, run]), ms.plan(study), ms.convert(study["workload"]["path"]), ms.iterations("lulesh-8"),
        ms.examples(), ms.scaling(study, axis=("cpu_ratio", [1, 2])), ms.status(run.directory),
        ms.run({**study, "name": "a" * 300}), ms.what_if(study, [f"cpu_ratio={number}" for number in range(2, 14)]),
    ]  # fmt: skip
    for answer in answers:
        assert len(repr(answer)) <= 400, repr(answer)
        assert answer.title.split()[0][:50] in repr(answer)
        page = answer._repr_html_()
        assert re.search("<script|src=|href=|http", page) is None
        json.loads(answer.to_json())
        for name in answer.tables:
            assert len(answer.frame(name)) == answer.table(name).num_rows


@pytest.mark.contract
def test_an_unknown_table_is_told_with_the_known_ones(study) -> None:
    with pytest.raises(
        ms.UserError, match="table 'rank': the result has none of this name; its tables are statistics, ranks"
    ):
        ms.run(study).frame("rank")


@pytest.mark.contract
def test_plots_are_the_figures_of_the_reports(study) -> None:
    plotly = pytest.importorskip("plotly.graph_objects")
    run = ms.run(study)
    drawn = [
        run,
        ms.sweep(study, axes={"cpu_ratio": [1, 2]}),
        ms.what_if(study),
        ms.compare(run, ms.run(study, seed=1)),
    ]
    for answer in (*drawn, ms.scaling(study, axis=("cpu_ratio", [1, 2]))):
        assert isinstance(answer.plot(), plotly.Figure)
    with pytest.raises(ms.UserError, match="nothing to draw"):
        ms.examples().plot()
