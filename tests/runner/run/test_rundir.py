"""Run directories: numbering, refusals, atomic writes, the journal."""

from __future__ import annotations

import contextlib
import json

import pytest

from manyscale.runner.errors import UserError
from manyscale.runner.predict.phase_source import SweepShared
from manyscale.runner.predict.units import Outcome
from manyscale.runner.run import directory as rundir
from manyscale.runner.run.sweeps.resolved import resolved_study
from manyscale.runner.study import parse_study


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_runs_are_numbered(tmp_path):
    assert [str(rundir.new_directory(None, "a", resume=False)) for _ in range(2)] == ["runs/a-001", "runs/a-002"]
    assert str(rundir.new_directory(None, "b", resume=False)) == "runs/b-001"
    (tmp_path / "runs" / "a-999").mkdir()
    (tmp_path / "runs" / "a-x").mkdir()
    (tmp_path / "runs" / "a-b-1234").mkdir()
    assert str(rundir.new_directory(None, "a", resume=False)) == "runs/a-1000"


@pytest.mark.parametrize(("name", "stem"), [("a b/c", "a-b-c"), ("../up", "..-up"), ("", "run"), ("é", "-")])
def test_names_become_file_names(name, stem):
    assert str(rundir.new_directory(None, name, resume=False)) == f"runs/{stem}-001"


def test_an_empty_directory_is_taken_a_full_one_is_not(tmp_path):
    (tmp_path / "out").mkdir()
    assert rundir.new_directory(tmp_path / "out", "a", resume=False) == tmp_path / "out"
    (tmp_path / "out" / "x").touch()
    with pytest.raises(UserError, match=r"out: is not empty; .* or continue a run with --resume$"):
        rundir.new_directory(tmp_path / "out", "a", resume=False)
    with pytest.raises(UserError, match=r"out: is not empty; name another directory with -o$"):
        rundir.new_directory(tmp_path / "out", "a")
    with pytest.raises(UserError, match="out: is no run directory"):
        rundir.new_directory(tmp_path / "out", "a", resume=True)
    (tmp_path / "out" / "manifest.json").touch()
    assert rundir.new_directory(tmp_path / "out", "a", resume=True) == tmp_path / "out"


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "f"
    rundir.write_atomically(path, "old")
    with pytest.raises(UnicodeEncodeError):
        rundir.write_atomically(path, "new \udcff")
    assert path.read_text() == "old"


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["/usr/bin/manyscale", "run", "a b"], "manyscale run 'a b'"),
        (["/lib/manyscale/__main__.py", "run"], "manyscale run"),
        (["/home/me/study.py", "7"], "study.py 7"),
        ([""], "python"),
    ],
)
def test_manifest_says_what_was_called(tmp_path, monkeypatch, words, command):
    monkeypatch.setattr("sys.argv", words)
    rundir.write_manifest(tmp_path, "complete", 7, {})
    assert rundir.read_manifest(tmp_path)["command"] == command


def test_manifest_says_how_the_run_was_made(tmp_path):
    rundir.write_manifest(tmp_path, "complete", 7, {"trace": "abc"})
    manifest = rundir.read_manifest(tmp_path)
    assert (manifest["status"], manifest["seed"], manifest["inputs"]) == ("complete", 7, {"trace": "abc"})
    assert {"manyscale", "python", "numpy", "numba", "pyarrow"} <= set(manifest["versions"])


def test_journal_grows_and_survives_a_crash(tmp_path):
    for key, error in (("a", ""), ("b", "bad")):
        journal = rundir.Journal(tmp_path)
        journal.record("burst", Outcome(key, 0.5, error, 2), "failed" if error else "simulated")
        journal.close()
    expected = [
        {"key": "a", "kind": "burst", "status": "simulated", "attempts": 2, "cpu_seconds": 0.5, "error": ""},
        {"key": "b", "kind": "burst", "status": "failed", "attempts": 2, "cpu_seconds": 0.5, "error": "bad"},
    ]
    assert rundir.read_journal(tmp_path) == (expected, 0)
    whole = (tmp_path / "units.jsonl").read_text()
    for length in range(len(whole)):
        (tmp_path / "units.jsonl").write_text(whole[:length])
        assert rundir.read_journal(tmp_path) == (expected[: whole[:length].count("\n")], 0)
        journal = rundir.Journal(tmp_path)  # of the run that is resumed
        journal.record("burst", Outcome("c"), "simulated")
        journal.close()
        entries, num_damaged = rundir.read_journal(tmp_path)
        assert entries[:-1] == expected[: whole[:length].count("\n")]
        assert (entries[-1]["key"], num_damaged) == ("c", 0)


@pytest.mark.parametrize("kind", ["bit", "zeros", "line"])
def test_damaged_lines_of_a_journal_are_counted_and_left_out(tmp_path, capsys, kind):
    journal = rundir.Journal(tmp_path)
    for key in "abc":
        journal.record("burst", Outcome(key), "simulated")
    journal.close()
    path = tmp_path / "units.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = {
        "bit": lines[1].replace(b'"b"', b'"d"'),
        "zeros": bytes(len(lines[1]) - 1) + b"\n",
        "line": b"{}\n",
    }[kind]
    path.write_bytes(b"".join(lines))
    entries, num_damaged = rundir.read_journal(tmp_path)
    assert ([entry["key"] for entry in entries], num_damaged) == (["a", "c"], 1)
    rundir.Journal(tmp_path).close()
    assert capsys.readouterr().err == f"manyscale: {path}: damaged lines are left out\n"
    assert path.read_bytes() == lines[0] + lines[2]


def test_every_flipped_bit_of_a_manifest_is_noticed(tmp_path):
    rundir.write_yaml(tmp_path / rundir.RESOLVED, {"seed": 7})
    rundir.write_manifest(tmp_path, "interrupted", 7, {"trace": "abc"}, ["copies-left-out"])
    path = tmp_path / "manifest.json"
    whole, manifest = path.read_bytes(), rundir.read_manifest(tmp_path)
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 7]) + whole[place + 1 :])
        with contextlib.suppress(UserError):
            assert rundir.read_manifest(tmp_path).items() >= manifest.items()  # only the checksum's key was hit


def test_a_resolved_study_that_is_not_as_it_was_written_is_refused(tmp_path):
    rundir.write_yaml(tmp_path / rundir.RESOLVED, {"seed": 7})
    rundir.write_manifest(tmp_path, "interrupted", 7, {})
    assert rundir.read_resolved(tmp_path) == {"seed": 7}
    (tmp_path / rundir.RESOLVED).write_text("seed: 5\n")
    with pytest.raises(UserError, match=r"resolved\.yaml: is damaged or was changed since the run wrote it; give the"):
        rundir.read_resolved(tmp_path)


def test_all_traces_of_a_resolved_study_are_found_from_anywhere(tmp_path):
    jobs = [{key: f"{job}-{key}" for key in ("path", "detail", "gpu_trace")} for job in ("one", "other")]
    content = {"workload": {**jobs[0], "beside": jobs[1:]}, "target": "laptop"}
    found = resolved_study(parse_study(content, "here"), "name", SweepShared())["workload"]
    told = [{key: job[key] for key in jobs[0]} for job in (found, *found["beside"])]
    assert told == [{key: str(tmp_path / name) for key, name in job.items()} for job in jobs]


def test_no_journal_is_an_empty_one(tmp_path):
    assert rundir.read_journal(tmp_path) == ([], 0)


@pytest.mark.parametrize("remove", [True, False])
def test_a_refused_run_is_taken_back_unless_it_holds_results(tmp_path, remove):
    directory = tmp_path / "out"
    for results in (False, True):
        directory.mkdir(exist_ok=True)
        for name in ("resolved.yaml", "manifest.json", "units.jsonl"):
            (directory / name).write_text("x")
        if results:
            (directory / "points" / "0000").mkdir(parents=True)
        rundir.discard(directory, remove=remove)
        if results:
            assert len(list(directory.iterdir())) == 4
        else:
            assert directory.exists() is not remove
            assert not remove or not directory.exists()


def test_yaml_keeps_the_order_of_keys(tmp_path):
    rundir.write_yaml(tmp_path / "r.yaml", {"b": 1, "a": {"z": "1 us", "c": [1]}})
    assert (tmp_path / "r.yaml").read_text() == "b: 1\na:\n  z: 1 us\n  c:\n  - 1\n"
    assert json.loads('{"b": 1}') == {"b": 1}
