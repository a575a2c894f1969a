"""Notes are part of a number: they stand wherever it stands, and refuse it where they have to."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import manyscale
from manyscale.models.workload.notes import (
    Errs,
    Note,
    Severity,
    changes,
    forbids,
    from_json,
    in_order,
    informs,
    to_json,
)
from manyscale.runner.errors import UserError
from manyscale.runner.notes import MOST_SHOWN, accepted, admit, lines
from manyscale.runner.readers import simgrid_ti, workload_folder

LOST = forbids("calls-lost", "7 calls are not recorded", "rank 1", 7, Errs.short)
GUESSED = changes("waits-guessed", "3 waits do not say for what", count=3)
TOLD = informs("local-calls", "2 local calls take no part")


@pytest.fixture
def traced(write_trace, tmp_path):
    """``traced(*notes)``: the folder of a workload with these."""
    text = {0: ["init", "compute 1e6", "send 1 0 100 6", "finalize"], 1: ["init", "recv 0 0 100 6", "finalize"]}
    read = simgrid_ti.read(write_trace(text))

    def write(*notes: Note) -> Path:
        folder = tmp_path / f"w{len(list(tmp_path.iterdir()))}"
        workload_folder.write(replace(read, notes=notes, is_checked=True), folder)
        return folder

    return write


def codes(directory: Path) -> list[str]:
    return [note["code"] for note in json.loads((directory / "stats.json").read_text())["notes"]["list"]]


@pytest.mark.theory
class TestNote:
    def test_the_most_severe_first_and_equal_ones_once(self):
        assert in_order([TOLD, GUESSED, TOLD, LOST]) == (LOST, GUESSED, TOLD)

    def test_what_a_user_reads(self):
        assert str(LOST) == "forbids [calls-lost] rank 1: 7 calls are not recorded (the time is too short)"
        assert str(TOLD) == "informs [local-calls] 2 local calls take no part"

    def test_json_and_back(self):
        assert from_json(to_json([LOST, GUESSED, TOLD])) == (LOST, GUESSED, TOLD)

    def test_the_rest_is_counted(self):
        many = [changes("a-kind", f"{number} of them") for number in range(MOST_SHOWN)]
        assert lines(many)[-1] == f"note: {many[-1]}"
        assert lines([*many, TOLD, GUESSED])[-1] == "note: and 2 more (1 changes, 1 informs)"

    def test_of_several_runs_what_reads_alike_stands_once(self):
        points = [changes("shared-links", "links are not shared", count=count) for count in (4, 7)]
        assert lines([*points, TOLD]) == [f"note: {points[0]}", f"note: {TOLD}"]

    def test_what_is_refused(self):
        admit([GUESSED, TOLD])
        admit([TOLD], strict=True)
        admit([LOST, GUESSED], ["calls-lost", "waits-guessed"], strict=True)
        with pytest.raises(UserError, match=r"rank 1: 7 calls are not recorded: forbids.*--accept calls-lost"):
            admit([GUESSED, LOST], ["waits-guessed"])
        with pytest.raises(UserError, match=r"3 waits.*changes the number, with --strict.*--accept waits-guessed"):
            admit([TOLD, GUESSED], strict=True)

    def test_what_was_accepted_stands_with_the_number(self):
        assert accepted([LOST, GUESSED, TOLD], ["calls-lost", "local-calls", "other"]) == " [accepted: calls-lost]"
        assert not accepted([LOST, TOLD], [])


@pytest.mark.parametrize("code", ["calls-lost", ""])
def test_a_forbidden_number_is_refused_unless_it_is_accepted(code, traced, cli, tmp_path, private_cache):
    folder = traced(LOST, TOLD)
    words = ["run", "--workload", folder, "--target", "laptop", "-o", "out", "--no-report"]
    outcome = cli(*words, *(["--accept", code] if code else []))
    if not code:
        assert outcome.status == 2
        assert "forbids a number" in outcome.err
        assert len(outcome.err.splitlines()) == 1
        assert not (tmp_path / "out").exists()
        return
    assert outcome.status == 0, outcome.err
    assert "[accepted: calls-lost]" in outcome.out.splitlines()[0]
    assert outcome.out.splitlines()[-2:] == [f"note: {LOST}", f"note: {TOLD}"]
    assert codes(tmp_path / "out") == ["calls-lost", "local-calls"]
    assert f"# {LOST}\n" in (tmp_path / "out" / "stats.txt").read_text()


def test_strict_refuses_a_changed_number_too(traced, cli, tmp_path, private_cache):
    words = ["run", "--workload", traced(GUESSED), "--target", "laptop", "--no-report", "-o"]
    assert cli(*words, "a").status == 0
    outcome = cli(*words, "b", "--strict")
    assert outcome.status == 2
    assert "waits-guessed" in outcome.err
    assert cli(*words, "b", "--strict", "--accept", "waits-guessed").status == 0
    assert cli("run", "--workload", traced(TOLD), "--target", "laptop", "--strict", "-o", "c").status == 0


def test_a_run_is_resumed_as_it_was_accepted(traced, cli, tmp_path, private_cache):
    assert cli(
        "run", "--workload", traced(LOST), "--target", "laptop", "--no-report", "-o", "out", "--accept", "calls-lost"
    ).status == 0  # fmt: skip
    before = (tmp_path / "out" / "stats.json").read_bytes()
    assert cli("run", "--resume", "-o", "out", "--no-report").status == 0
    assert cli("report", "out").status == 0
    assert (tmp_path / "out" / "stats.json").read_bytes() == before


def test_a_sweep_has_a_column_of_codes(traced, cli, tmp_path, private_cache):
    study = tmp_path / "study.yaml"
    study.write_text(
        f"schema: 1\nworkload: {{path: {traced(GUESSED, TOLD)}}}\ntarget: crossbar256\n"
        "sweep: {model.network: [flow, latency-bandwidth]}\n"
    )
    outcome = cli("run", study, "-o", "out", "--no-report")
    assert outcome.status == 0, outcome.err
    assert pq.read_table(tmp_path / "out" / "sweep.parquet").column("notes").to_pylist() == [
        "waits-guessed", "waits-guessed shared-links",
    ]  # fmt: skip
    assert outcome.out.count("waits-guessed") == 1  # what all points have is said once


def test_the_report_and_the_result_have_them(traced, tmp_path, private_cache):
    study = {"workload": {"path": str(traced(GUESSED, TOLD))}, "target": "laptop"}
    result = manyscale.run(study, tmp_path / "out", executor="local")
    assert result.notes == (GUESSED, TOLD)
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.index(GUESSED.text) < page.index("Where the time goes")
    with pytest.raises(UserError, match="waits-guessed"):
        manyscale.run(study, tmp_path / "strict", executor="local", strict=True)
    assert not (tmp_path / "strict").exists()


def test_a_sample_that_does_not_tell_how_far_it_is_off(cli, tmp_path, private_cache):
    words = ["run", "bfs-16", "--no-report", "--model", "gpu=gpumech", "-o"]
    assert cli(*words, "some", "--sampling", "launches=[1, 2, 9]").status == 0
    assert "sample-without-interval" in codes(tmp_path / "some")
    assert cli(*words, "all").status == 0
    assert "sample-without-interval" not in codes(tmp_path / "all")


def test_compare_says_what_both_and_what_one_has(traced, cli, tmp_path, private_cache):
    for name, notes in (("a", (GUESSED,)), ("b", (GUESSED, TOLD))):
        assert cli("run", "--workload", traced(*notes), "--target", "laptop", "--no-report", "-o", name).status == 0
    outcome = cli("compare", "a", "b", "--json", "c.json")
    assert outcome.status == 0, outcome.err
    assert f"note: {GUESSED}" in outcome.out.splitlines()
    assert "note: informs [local-calls] b: 2 local calls take no part" in outcome.out.splitlines()
    found = json.loads((tmp_path / "c.json").read_text())["notes"]
    assert {"waits-guessed", "local-calls"} <= {note["code"] for note in found}
    assert cli("compare", "a", "b", "--strict").status == 2


def test_what_if_and_plan_say_and_refuse(traced, cli, tmp_path, private_cache):
    folder = traced(LOST, TOLD)
    for command in (["what-if"], ["plan"]):
        words = [*command, "--workload", folder, "--target", "laptop", "-o", command[0]]
        assert cli(*words).status == 2
        outcome = cli(*words, "--accept", "calls-lost")
        assert outcome.status == 0, outcome.err
        assert outcome.out.splitlines()[-2:] == [f"note: {LOST}", f"note: {TOLD}"]


def test_severities_are_in_the_order_of_what_they_do():
    assert [each.value for each in Severity] == ["forbids", "changes", "informs"]
