"""Run directories: numbering, refusals, atomic writes, the journal."""

from __future__ import annotations

import json

import pytest

from manyscale.runner.errors import UserError
from manyscale.runner.predict.units import Outcome
from manyscale.runner.run import directory as rundir


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
    with pytest.raises(UserError, match="out: is not empty"):
        rundir.new_directory(tmp_path / "out", "a", resume=False)
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


def test_manifest_says_how_the_run_was_made(tmp_path):
    rundir.write_manifest(tmp_path, "complete", 7, {"trace": "abc"})
    manifest = rundir.read_manifest(tmp_path)
    assert (manifest["status"], manifest["seed"], manifest["inputs"]) == ("complete", 7, {"trace": "abc"})
    assert manifest["command"].startswith("manyscale")
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
    assert rundir.read_journal(tmp_path) == expected
    whole = (tmp_path / "units.jsonl").read_text()
    for length in range(len(whole)):
        (tmp_path / "units.jsonl").write_text(whole[:length])
        assert rundir.read_journal(tmp_path) == expected[: whole[: length + 1].count("\n")]


def test_no_journal_is_an_empty_one(tmp_path):
    assert rundir.read_journal(tmp_path) == []


@pytest.mark.parametrize("remove", [True, False])
def test_a_refused_run_is_taken_back_unless_it_holds_results(tmp_path, remove):
    directory = tmp_path / "out"
    for results in (False, True):
        directory.mkdir(exist_ok=True)
        for name in ("resolved.yaml", "manifest.json", "units.jsonl"):
            (directory / name).write_text("x")
        if results:
            (directory / "points").mkdir()
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
