"""``manyscale calibrate training``: steps whose framework is known show it again; wrong tables are told in one line."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from manyscale.models.transformer.shape import Transformer
from manyscale.models.transformer.times import FITTED, Framework
from manyscale.runner.cli import main
from manyscale.runner.errors import UserError
from manyscale.runner.run.calibration import training
from manyscale.runner.study.targets import build_machine, target_named

HEAD = [*training.COLUMNS, training.TIME]
KNOWN = Framework(
    matrix_efficiency=0.7, matrix_start=400, memory_efficiency=0.8, host_launch="20 us",
    host_collective="9 us", host_message="800 us", host_tensor="30 us",
)  # fmt: skip


def table(path: Path, rows: list[list[object]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([HEAD, *rows])
    return path


def steps() -> list[Transformer]:
    ways = [(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (4, 1, 1), (2, 2, 2), (8, 1, 1), (1, 4, 2)]
    return [
        Transformer(layers=layers, hidden=hidden, heads=16, sequence=1024, global_batch=16, micro_batch=micro_batch,
                    tp=tp, dp=dp, pp=pp)
        for tp, dp, pp in ways for hidden in (1024, 4096) for layers in (12, 24) for micro_batch in (1, 4)
    ]  # fmt: skip


def measured(tmp_path: Path, every: int = 1) -> Path:
    """What the closed form says of them, with what is KNOWN."""
    made = steps()[::every]
    known = training.Steps(made)
    _, content = target_named("dgx-a100", "test")
    machine = build_machine(content, "dgx-a100")
    gpu, peak = training._gpu(machine)
    took = known.step_ps(gpu, peak, KNOWN, *training.collectives(known, machine)) / 1e9
    rows = [[each.ranks, each.global_batch, each.micro_batch, each.hidden, each.heads, each.layers, each.sequence,
             each.tp, each.dp, each.pp, ms] for each, ms in zip(made, took.tolist(), strict=True)]  # fmt: skip
    return table(tmp_path / "steps.csv", rows)


@pytest.mark.theory
def test_what_is_known_is_found_again(tmp_path):
    found = training.calibrate_training(measured(tmp_path), every=2)
    assert np.abs(found.error).max() < 0.01
    assert found.was_fitted.sum() == len(steps()) / 2
    for name in ("matrix_efficiency", "matrix_start", "memory_efficiency", "host_launch_ps",
                 "host_message_ps"):  # fmt: skip
        assert getattr(found.framework, name) == pytest.approx(getattr(KNOWN, name), rel=0.1), name


def test_the_command_writes_a_machine_that_has_it(tmp_path, capsys):
    words = ["calibrate", "training", str(measured(tmp_path, every=5)), "-o", str(tmp_path / "machine")]
    assert main(words) == 0
    told = capsys.readouterr().out
    assert "fitted: mean" in told
    (note,) = (line for line in told.splitlines() if "[shape-assumed]" in line)
    assert "50,257 words; nothing computed again; " in note
    assert "columns that may say it: vocabulary size, recompute, " in note
    _, content = target_named(str(tmp_path / "machine" / "machine.yaml"), "test")
    found = Framework.of(build_machine(content, "machine.yaml").node)
    figures = json.loads((tmp_path / "machine" / "calibration.json").read_text())
    assert found is not None
    assert found.model_fields_set == FITTED
    assert "50,257 words" in content["sources"]["node.framework"]
    assert found.matrix_efficiency == figures["framework"]["matrix_efficiency"]
    assert len(figures["steps"]) == len(steps()[::5])


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([], "has no rows; the first line names the columns"),
        ([[1, 16, 1, 1024, 16, 12, 1024, 1, 1, 1, "quick"]], "steps.csv:2: could not convert string to float: 'quick'"),
        ([[1, 16, 1, 1024, 16, 12, 1024, 1, 1, 1, "inf"]], "steps.csv:2: 1 GPUs of 1 ranks, inf s; mend the row"),
        ([[1, 16, 1, 1024, 16, 12, 1024, 2, 1, 1, 5.0]], "steps.csv:2: 1 GPUs of 2 ranks"),
        ([[2, 15, 2, 1024, 16, 12, 1024, 1, 2, 1, 5.0]], "steps.csv:2: global_batch: 15 is no multiple"),
        ([[1, 10**8, 1, 1024, 16, 12, 1024, 1, 1, 1, 5.0]], "steps.csv:2: 100000000 micro batches are more than 65536"),
        ([[1, 16, 1, 1024, 16, 12, 1024, 1, 1, 1, 5.0]] * 7, "7 rows are fitted; 7 parameters need more"),
    ],
)
def test_wrong_tables_are_one_line(tmp_path, capsys, rows, told):
    path = table(tmp_path / "steps.csv", rows)
    assert main(["calibrate", "training", str(path), "-o", str(tmp_path / "machine")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert told in lines[0]


def test_a_column_says_what_is_computed_again(tmp_path):
    """In any case of its letters, as the other columns; a row without it takes what the command says."""
    path = tmp_path / "steps.csv"
    row = [1, 16, 1, 1024, 16, 12, 1024, 1, 1, 1]
    with path.open("w", newline="", encoding="utf-8-sig") as file:  # as spreadsheets write it
        csv.writer(file).writerows([[*HEAD, "Recompute"], [*row, 5.0, "full"], [*row, 6.0, ""]])
    found, _, lacks = training.read_steps(path, "selective")
    assert [step.recompute for step in found] == ["full", "selective"]
    assert lacks["recompute"] == 1


def test_columns_may_say_the_rest_of_a_shape(tmp_path):
    path = tmp_path / "steps.csv"
    row = [2, 16, 1, 1024, 16, 12, 1024, 2, 1, 1, 5.0]
    with path.open("w", newline="") as file:
        more = ["Vocabulary Size", "flash attention", "sequence parallelism"]
        csv.writer(file).writerows([[*HEAD, *more], [*row, 32000, "yes", "True"], [*row, "", "no", ""]])
    (one, other), _, lacks = training.read_steps(path)
    assert (one.vocabulary, one.flash_attention, one.sequence_parallel) == (32000, True, True)
    assert (other.vocabulary, other.flash_attention, other.sequence_parallel) == (50257, False, False)
    assert lacks == {"vocabulary": 1, "recompute": 2, "sequence_parallel": 1, "flash_attention": 0}


def test_columns_without_a_name_say_nothing(tmp_path):
    """Tables that pandas has written number their rows in one."""
    path = tmp_path / "steps.csv"
    rows = [[1, 2, 16, 1, 1024, 16, 12, 1024, 2, 1, 1, 5.0]] * 2
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["", *HEAD], *rows])
    found, _, lacks = training.read_steps(path)
    assert [(step.vocabulary, step.flash_attention) for step in found] == [(50257, False)] * 2
    assert set(lacks.values()) == {2}


def test_parameters_that_the_rows_do_not_show_are_told():
    """The search ends at a bound: efficiencies above what it tries, hosts that take nothing for messages."""
    assert training._at_bounds(KNOWN) == ()
    at_ends = KNOWN.model_copy(update={"matrix_efficiency": 0.9, "host_message_ps": 0})
    (note,) = training._at_bounds(at_ends)
    assert note.text.startswith("matrix_efficiency, host_message: at the end of the range")
    assert training.content(at_ends.model_copy(update={"host_tensor_ps": 0.3}))["host_tensor"] == "0 ps"


def test_gpus_without_such_tensor_cores_are_refused():
    _, content = target_named("dgx-a100", "test")
    gpu = {**content["node"]["gpu"]}
    gpu["matrix"] = {**gpu["matrix"], "rates": {"bf16": 1024}}
    with pytest.raises(UserError, match=r"has no node\.gpu\.matrix\.rates\.fp16"):
        training._gpu(build_machine({**content, "node": {**content["node"], "gpu": gpu}}, "machine.yaml"))
