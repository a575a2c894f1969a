"""The command that compares sampled simulations with full detail, and the parameters of the source that it knows."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from manyscale.runner.run.evaluation.tasks import changes_of
from manyscale.runner.shipped import folder
from manyscale.runner.study import assign, parse_study
from manyscale.sampling.taskpoint.options import TaskPointChoice, source_choices

EXAMPLE = str(folder() / "multizone-8-detail.tar.zst")
# Grass (UPC 2017), sections 5.3 and 5.4: W = 2, one instance before each resampling, H = 4, P = 250, five instances
# without one of a rare class; the mean IPC of those that have ended, by task type, with caches left alone. What the
# source does not settle (how instances per core are counted, how far the number of busy cores must differ) is as
# TaskPointParameters has it.
SOURCE = {
    "warm_up": 2, "resample_warm_up": 1, "history": 4, "period": 250, "cut_off": 5, "admit": "finish", "scope": "all",
    "complete": "seen", "mean": "ipc", "classes": "types", "correction": "none", "fast_forward": "stale", "settle": 0,
    "stagger": 0.0, "rare": 0.0, "longest": None, "target": None, "count": "total", "busy_change": 0.25,
    "busy_persistence": 2.0,
}  # fmt: skip


@pytest.mark.golden
def test_the_source_s_choices() -> None:
    found = TaskPointChoice.model_validate(source_choices()).model_dump()
    assert {name: found[name] for name in SOURCE} == SOURCE
    assert set(found) - set(SOURCE) == {"most_history", "correct"}  # without effect: no target, no model
    default = TaskPointChoice().model_dump()
    assert all(default[name] != value for name, value in source_choices().items())


@pytest.mark.golden
@pytest.mark.parametrize(("method", "tasks"), [("lazy+source", "lazy"), ("periodic+source", "periodic")])
def test_a_method_by_the_source(method: str, tasks: str) -> None:
    """What stands behind wins: +source+warm has the source's parameters but for the caches."""
    for name, changes in ((method, {}), (f"{method}+warm", {"fast_forward": "warm"})):
        content = {"schema": 1, "workload": {"path": "none"}, "target": "marenostrum3", "model": {"cpu": "detailed"}}
        for key, value in changes_of(name):
            content = assign(content, key, value)
        study = parse_study(content, "test")
        assert study.sampling.tasks == tasks
        given = study.options(TaskPointChoice).model_dump()
        assert {key: given[key] for key in SOURCE} == SOURCE | changes


@pytest.mark.contract
@pytest.mark.parametrize("methods", ["fast", "lazy+cold", "interval+warm", "source", "lazy+sources", "lazy,"])
def test_methods_that_there_are_not(cli, refused, tmp_path, methods):
    outcome = cli("evaluate", EXAMPLE, "--method", methods, "-o", "out")
    refused(outcome, "--method", repr(methods.rpartition(",")[2]), "write lazy or periodic", "source")
    assert not (tmp_path / "out").exists()


@pytest.mark.contract
@pytest.mark.parametrize("cores", ["0", "4,x", "-1"])
def test_numbers_of_cores_that_make_no_sense(cli, refused, tmp_path, cores):
    refused(cli("evaluate", EXAMPLE, f"--cores={cores}", "-o", "out"), "--cores", repr(cores), "at least 1")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.contract
def test_evaluate_compares_with_full_detail(cli, tmp_path: Path) -> None:
    """On the shipped example: within 5 % of full detail, less than all in detail."""
    methods = ["lazy", "lazy+classes+warm", "lazy+source"]
    arguments = (EXAMPLE, "--target", "grass-high-performance", "--cores", "4", "--method", ",".join(methods))
    outcome = cli("evaluate", *arguments, "-o", "out")
    assert outcome.status == 0
    full, *rows = pq.read_table(tmp_path / "out" / "evaluation.parquet").to_pylist()
    assert (full["method"], full["error"], full["detailed_share"]) == ("full", 0.0, 1.0)
    assert [row["method"] for row in rows] == methods
    for row in rows:
        assert row["error"] == pytest.approx(row["time"] / full["time"] - 1)
        assert 0 < row["detailed_share"] < 1
    for row in rows[:2]:
        assert abs(row["error"]) < 0.05
    assert rows[0]["time"] == rows[1]["time"] != rows[2]["time"]  # the first two say the same
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "cache", "evaluation.parquet", "evaluation.txt", "multizone-8-detail", "report.html",
    ]  # fmt: skip
    page = (tmp_path / "out" / "report.html").read_text()
    assert all(f"multizone-8-detail, 4 cores: {method}" in page for method in methods)
