"""``manyscale plan --method taskpoint``: classes of a trace's task instances, and which would be simulated."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from manyscale.models.workload.notes import changes
from manyscale.runner.predict.node.cells import analytical_cell
from manyscale.runner.shipped import folder

EXAMPLE = folder() / "multizone-8-detail.tar.zst"


@pytest.mark.slow
def test_a_plan_of_a_trace(cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lazy, one core, nothing settles: 2 instances warm up, then the first 3 of each class are samples. What the core
    says of the code is told."""
    lost, costs = changes("instructions-unknown", "of 3 blocks"), analytical_cell.piece_costs

    def told(*given: Any, **named: Any) -> Any:
        found, notes = costs(*given, **named)
        return found, (*notes, lost)

    monkeypatch.setattr(analytical_cell, "piece_costs", told)
    rules = ["cores=1", "period=lazy", "warm_up=2", "history=3", "rare=0", "longest=null", "scope=class"]
    rules += ["settle=0", "resample_warm_up=0", "admit=finish"]
    given = [part for rule in rules for part in ("--set", rule)]
    done = cli("plan", "--method", "taskpoint", EXAMPLE, *given, "--target", "marenostrum3", "-o", tmp_path / "out")
    assert done.status == 0, done.err
    assert f"note: {lost}" in done.out.splitlines()
    plan = pq.read_table(tmp_path / "out" / "plan.parquet").to_pydict()
    assert set(plan["element_kind"]) == {"task_instance"}
    assert sum(plan["weight"]) == pytest.approx(1)
    with (tmp_path / "out" / "multizone-8-detail.instances.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["instance"]) for row in rows if row["role"] != "forwarded"] == plan["element_id"]
    classes = {row["class"] for row in rows}
    samples = [row["class"] for row in rows if row["role"] == "sample"]
    assert {each: samples.count(each) for each in classes} == dict.fromkeys(classes, 3)
    assert sum(row["role"] == "warm-up" for row in rows) == 2
    assert "expected within" in done.out
    share = {each: sum(int(row["instructions"]) for row in rows if row["class"] == each) for each in classes}
    total = sum(share.values())
    for each in classes:
        mine = [weight for weight, of in zip(plan["weight"], plan["stratum"], strict=True) if of == int(each)]
        assert sum(mine) == pytest.approx(share[each] / total)


@pytest.mark.contract
@pytest.mark.parametrize(("arguments", "needles"), [
    (["--set", "histori=3"], ["--set: histori: unknown key"]),
    (["--set", "rank=5"], ["rank 5", "has no detailed level"]),
    (["--target", "laptop"], ["laptop: simulated cores need"]),
])  # fmt: skip
def test_what_is_refused(cli, refused, tmp_path: Path, arguments, needles) -> None:
    refused(cli("plan", "--method", "taskpoint", EXAMPLE, *arguments, "-o", tmp_path / "out"), *needles)
    assert not (tmp_path / "out").exists()


def test_a_trace_without_tasks(cli, refused, tmp_path: Path, write_trace) -> None:
    trace = write_trace({0: ["init", "compute 1000", "finalize"]})
    refused(cli("plan", "--method", "taskpoint", trace, "-o", tmp_path / "out"), "has no detailed level")
    refused(cli("plan", "--method", "taskpoint", "-o", tmp_path / "out"), "--method needs a workload")
