"""Steps that were measured, beside those that are predicted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from gpu_steps import Steps
from kineto_traces import two_ranks

import manyscale as ms
from manyscale.models.workload.gpu_step_tables import MEASURED_STEPS_SCHEMA
from manyscale.models.workload.notes import informs
from manyscale.runner.cli import main
from manyscale.runner.errors import UserError
from manyscale.runner.readers import kineto
from manyscale.runner.run.questions.compare import Side, compare, load_trace, measured_of
from manyscale.runner.run.questions.measured_steps import compared, errors
from manyscale.runner.run.results import RANKS_SCHEMA

_US = 1_000_000


def steps(*rows: tuple[int, int, int, int]) -> pa.Table:
    names = MEASURED_STEPS_SCHEMA.names
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], MEASURED_STEPS_SCHEMA)


def test_errors_are_those_of_the_steps_that_both_sides_have() -> None:
    """100 us measured and 110 predicted, 200 and 150, 0 and 7; step 9 of rank 0 and 4 of rank 2 are of one side."""
    a = steps((0, 3, 0, 100 * _US), (0, 9, 0, 1), (1, 3, 50 * _US, 250 * _US), (1, 4, 5, 5))
    b = steps((0, 3, 7, 110 * _US + 7), (1, 3, 0, 150 * _US), (1, 4, 0, 7 * _US), (2, 4, 0, 1))
    rows, notes = compared(a, b)
    assert [(row["item"], row["a"], row["b"]) for row in rows] == [
        ("rank 1, step 3", 200e-6, 150e-6), ("rank 0, step 3", 100e-6, 110e-6), ("rank 1, step 4", 0.0, 7e-6),
    ]  # fmt: skip
    assert [(note.code, note.count) for note in notes] == [("not-compared", 2)]
    found = errors(pa.Table.from_pylist(rows))
    assert found is not None
    assert (found.count, found.worst_step) == (2, "rank 1, step 3")
    assert (found.mean, found.worst) == (pytest.approx((0.1 + 0.25) / 2), pytest.approx(-0.25))


def test_a_run_is_compared_with_what_its_trace_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both ranks' steps are traced from 0 to 300 us; predicted, they take 300 us but for what launches take less."""
    folder = two_ranks(tmp_path / "traces")
    assert kineto.read(folder).tables["measured_steps"].to_pylist() == [
        {"rank": rank, "step": 3, "start_ps": 0, "end_ps": 300 * _US} for rank in (0, 1)
    ]
    study = {"schema": 1, "workload": {"path": str(folder)}, "target": "dgx1-v100"}
    run = ms.run(study, output=tmp_path / "run", report=False)
    predicted = {
        f"rank {row['rank']}, step 3": (row["end_ps"] - row["start_ps"]) / 1e12 for row in run.steps.to_pylist()
    }
    for found in (ms.compare(run), ms.compare(folder, run)):
        rows = {row["item"]: row for row in found.differences.to_pylist()}
        assert {item: (row["group"], row["a"], row["b"]) for item, row in rows.items()} == {
            item: ("step", pytest.approx(300e-6), pytest.approx(took)) for item, took in predicted.items()
        }
        worst = max((took / 300e-6 - 1 for took in predicted.values()), key=abs)
        assert found.step_errors.worst == pytest.approx(worst)
    assert main(["compare", str(tmp_path / "run"), "-o", str(tmp_path / "page")]) == 0
    assert f"2 steps: B differs from A by {found.step_errors.mean:.2%} in the mean" in capsys.readouterr().out
    assert "By rank and step" in (tmp_path / "page" / "report.html").read_text()


def test_a_trace_that_measured_nothing_is_refused() -> None:
    """Or one that is not there any more: its line is told."""
    run = Side("run", 1, RANKS_SCHEMA.empty_table(), {}, {}, Steps().workload())
    with pytest.raises(UserError, match="the trace does not say when its operations began and ended"):
        measured_of(run)
    with pytest.raises(UserError, match="run: it is gone; name what it is compared with"):
        measured_of(replace(run, workload=None, notes=(informs("not-compared", "it is gone"),)))


def test_a_trace_is_not_compared_with_itself(tmp_path: Path) -> None:
    """Its errors would be none, whatever a prediction says."""
    folder = two_ranks(tmp_path / "traces")
    with pytest.raises(UserError, match="is what was measured, and no run; name the run"):
        ms.compare(folder)
    measured = load_trace(folder)
    larger = replace(measured, name="run", num_ranks=4, figures={"application.ranks": 4.0})
    with pytest.raises(UserError, match="run: has 4 ranks, and its trace 2; name what"):
        measured_of(larger)
    with pytest.raises(UserError, match="has 2 ranks, and run 4: the steps of which ranks are the same is not known"):
        compare(measured, larger)
