"""What is kept at an address, as machines with caches of their own see it: here the address of a folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from manyscale.runner import kept
from manyscale.runner.errors import UserError
from manyscale.runner.run.store import Store, seen
from manyscale.runner.storage import mirror
from manyscale.runner.storage import remote as objects
from manyscale.runner.storage.address import located

KEY = "ab" + 30 * "0"
ARRAYS = {"numbers": np.arange(5000), "empty": np.zeros(0)}


@pytest.fixture(autouse=True)
def _nothing_told_yet() -> Iterator[None]:
    yield
    kept._told.clear()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """``machine(name)`` goes on as on a machine with a cache of that name; the root of the storage as it sees it."""

    def go_to(name: str) -> Path:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
        return located(f"file://{tmp_path}/bucket")

    return go_to


def test_a_result_is_made_once_for_all_machines(machine: Callable[[str], Path], tmp_path: Path) -> None:
    first = Store(machine("one") / "units")
    first.write(KEY, ARRAYS)
    assert first.settle() == {}
    found = Store(machine("two") / "units").read(KEY)
    assert {name: values.tolist() for name, values in (found or {}).items()} == {
        name: values.tolist() for name, values in ARRAYS.items()
    }
    made = tmp_path / "bucket" / "units" / "ab" / f"{KEY}.arrow"
    made.unlink()
    assert Store(machine("two") / "units").read(KEY) is not None, "the copy serves"
    assert Store(machine("three") / "units").read(KEY) is None


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty"])
def test_a_damaged_object_is_told_and_made_again(
    damage: str, machine: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    store = Store(machine("one") / "units")
    store.write(KEY, ARRAYS)
    store.settle()
    made = tmp_path / "bucket" / "units" / "ab" / f"{KEY}.arrow"
    whole = made.read_bytes()
    changed = bytearray(whole)
    changed[len(whole) // 2] ^= 1
    made.write_bytes({"flipped": bytes(changed), "cut": whole[:-7], "empty": b""}[damage])
    store = Store(machine("two") / "units")
    assert store.read(KEY) is None
    line = capsys.readouterr().err
    assert line.startswith(f"manyscale: file://{made}: what was kept is ")
    assert line.count("\n") == 1
    store.write(KEY, ARRAYS)
    store.settle()
    assert made.read_bytes() == whole
    assert Store(machine("three") / "units").read(KEY) is not None


def test_a_damaged_copy_is_fetched_again(machine: Callable[[str], Path]) -> None:
    root = machine("one")
    with kept.written(root / "file") as made:
        made.write_bytes(b"content")
    (root / "file").write_bytes(b"damaged")
    found = kept.mapped(root / "file")
    assert found is not None
    assert found.to_pybytes() == b"content"


def test_a_folder_comes_as_a_whole(machine: Callable[[str], Path], tmp_path: Path) -> None:
    root = machine("one")
    made = root / "workloads" / "made"
    (made / "inner").mkdir(parents=True)
    (made / "inner" / "file").write_bytes(b"content")
    (made / "empty").touch()
    kept.seal_folder(made)
    kept.install(made, root / "workloads" / "folder")
    there = tmp_path / "bucket" / "workloads" / "folder"
    assert sorted(path.relative_to(there).as_posix() for path in there.rglob("*") if path.is_file()) == [
        "checksums", "empty", "inner/file",
    ]  # fmt: skip
    copy = machine("two") / "workloads" / "folder"
    assert kept.is_whole(copy)
    assert (copy / "inner" / "file").read_bytes() == b"content"
    (there / "inner" / "file").write_bytes(b"c0ntent")
    assert not kept.is_whole(machine("three") / "workloads" / "folder")
    (there / "inner" / "file").unlink()
    assert not kept.is_whole(machine("four") / "workloads" / "folder")
    assert not (machine("four") / "workloads" / "folder").exists()


def test_a_folder_that_another_made_meanwhile_is_left(
    machine: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was damaged when it was looked at may be whole, and in use, by the time that another came."""

    def make(root: Path) -> Path:
        made = root / "made"
        made.mkdir(parents=True)
        (made / "file").write_bytes(b"content")
        kept.seal_folder(made)
        return made

    root = machine("one")
    kept.install(make(root), root / "folder")
    root = machine("two")
    (root / "folder").mkdir(parents=True)
    (root / "folder" / "file").write_bytes(b"half of it")
    fetch = mirror.fetch_folder

    def slow(folder: Path, sums: str, made: Path) -> bool:
        found = fetch(folder, sums, made)
        kept.install(make(root), folder)  # another process
        first.append((folder / "file").stat().st_ino)
        return found

    first: list[int] = []
    monkeypatch.setattr(mirror, "fetch_folder", slow)
    assert kept.is_whole(root / "folder")
    assert [(root / "folder" / "file").stat().st_ino] == first
    assert sorted(path.name for path in root.iterdir()) == ["folder"]


def test_what_a_folder_refuses_is_said_as_of_a_folder(tmp_path: Path) -> None:
    """No word on keys and regions, whatever its name is."""
    (tmp_path / "region").write_bytes(b"a file")
    there = objects.remote(f"file://{tmp_path}/region")
    for refused, what in ((lambda: there.put("x", b"content"), "written"), (lambda: there.read("x"), "read")):
        with pytest.raises(UserError, match=rf"/region/x: cannot be {what}: (Not a directory|File exists); mend this"):
            refused()


def test_names_in_a_folder_s_checksums_stay_in_it(machine: Callable[[str], Path], tmp_path: Path) -> None:
    there = tmp_path / "bucket" / "folder"
    there.mkdir(parents=True)
    (there / "checksums").write_text('{"../../outside": "00"}')
    (tmp_path / "outside").write_text("of someone else")
    assert not kept.is_whole(machine("one") / "folder")
    assert not list((tmp_path / "one").rglob("outside"))


def test_a_worker_knows_the_store_by_its_token(machine: Callable[[str], Path]) -> None:
    store = Store(machine("driver") / "units")
    token, place = store.leave_token(), store.address
    machine("worker")
    mine = seen(place, token)
    assert mine is not None
    mine.write(KEY, ARRAYS)
    assert mine.settle() == {}
    assert seen(place, ".token-of-another") is None
    machine("driver")
    assert store.read(KEY) is not None
    store.remove_token(token)
    machine("late")
    assert seen(place, token) is None


def test_what_cannot_be_put_there_is_named_by_its_key(
    machine: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(machine("one") / "units")

    def refused(self: objects.Remote, name: str, content: object) -> None:
        raise UserError(f"{name}: cannot be written")

    monkeypatch.setattr(objects.Remote, "put", refused)
    store.write(KEY, ARRAYS)
    assert list(store.settle()) == [KEY]
    assert store.read(KEY) is not None, "it is here"


def test_many_results_are_looked_for_once(machine: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [f"{number:032x}" for number in range(40)]
    store = Store(machine("one") / "units")
    for key in keys[:20]:
        store.write(key, ARRAYS)
    store.settle()
    asked: list[str] = []
    get = objects.Remote.get

    def counted(self: objects.Remote, name: str, to: Path) -> bool:
        asked.append(name)
        return get(self, name, to)

    monkeypatch.setattr(objects.Remote, "get", counted)
    store = Store(machine("two") / "units")
    store.expect(keys)
    assert [store.has(key) for key in keys] == 20 * [True] + 20 * [False]
    assert [store.read(key) is not None for key in keys] == 20 * [True] + 20 * [False]
    assert len(asked) == 40


@pytest.mark.slow
def test_a_run_without_an_address_loads_nothing_of_object_storage() -> None:
    code = (
        "import sys; from manyscale.runner.cli import main; main(['run', 'lulesh-8', '--dry-run']);"
        "bad = {'boto3', 'fsspec', 'manyscale.runner.storage.remote'} & set(sys.modules);"
        "sys.exit(1 if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done
