"""Results on disk: whole or absent, whoever writes them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from manyscale.runner.cache import default_cache
from manyscale.runner.errors import UserError
from manyscale.runner.run.store import Store

KEY = "ab" + 30 * "0"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "units")


def files(store: Store) -> list[Path]:
    return sorted(path for path in store.root.rglob("*") if path.is_file())


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "float64"])
@pytest.mark.parametrize("count", [0, 1, 7, 1000])
def test_arrays_come_back_as_they_were(store: Store, dtype: str, count: int) -> None:
    values = (np.arange(count) % 100).astype(dtype)
    store.write(KEY, {"first": values, "second": values[:0]})
    found = store.read(KEY)
    assert found is not None
    assert list(found) == ["first", "second"]
    np.testing.assert_array_equal(found["first"], values)
    assert found["first"].dtype == values.dtype
    assert len(found["second"]) == 0


def test_a_result_is_read_without_a_copy_and_cannot_be_written_to(store: Store) -> None:
    store.write(KEY, {"values": np.arange(100_000)})
    before = pa.total_allocated_bytes()
    found = store.read(KEY)
    assert found is not None
    assert pa.total_allocated_bytes() - before < 10_000
    with pytest.raises(ValueError, match="read-only"):
        found["values"][0] = 1


def test_a_result_stays_readable_while_it_is_replaced_or_removed(store: Store) -> None:
    store.write(KEY, {"values": np.arange(10_000)})
    found = store.read(KEY)
    store.write(KEY, {"values": np.arange(10_000)})
    store.path(KEY).unlink()
    assert found is not None
    np.testing.assert_array_equal(found["values"], np.arange(10_000))


def test_a_missing_result_is_none(store: Store) -> None:
    assert not store.has(KEY)
    assert store.read(KEY) is None


@pytest.mark.parametrize("keep", [0, 1, 100, -200, -1])
def test_a_truncated_file_counts_as_missing_and_is_replaced(store: Store, keep: int) -> None:
    store.write(KEY, {"values": np.arange(1000)})
    path = store.path(KEY)
    path.write_bytes(path.read_bytes()[:keep])
    assert store.read(KEY) is None
    assert not store.has(KEY)
    store.write(KEY, {"values": np.arange(3)})
    assert store.read(KEY) is not None


def test_a_file_of_something_else_counts_as_missing(store: Store) -> None:
    store.path(KEY).parent.mkdir()
    store.path(KEY).write_text("a note that someone left here\n" * 100)
    assert store.read(KEY) is None


def test_writing_is_atomic(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that dies before its last step leaves the key without a result."""
    store.write(KEY, {"values": np.arange(3)})
    old = store.path(KEY).read_bytes()
    seen: list[bool] = []

    def stop(self: Path, target: Path) -> Path:
        seen.append(self != target and self.parent == target.parent and self.stat().st_size > 0)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        store.write(KEY, {"values": np.arange(4)})
    assert seen == [True]  # a whole file stood beside it, on the same file system
    assert store.path(KEY).read_bytes() == old


def test_a_failed_write_is_told_and_leaves_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_self: Path, _target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(UserError, match=rf"{KEY}\.arrow: cannot be written: its file system is full"):
        store.write(KEY, {"values": np.arange(4)})
    assert files(store) == []


_WRITER = """
import sys
from pathlib import Path
import numpy as np
from manyscale.runner.run.store import Store
store = Store(Path(sys.argv[1]))
for _ in range(100):
    store.write(sys.argv[2], {"values": np.arange(5000)})
"""


def test_two_writers_and_a_reader_of_one_key_do_not_disturb_each_other(store: Store) -> None:
    command = [sys.executable, "-c", _WRITER, str(store.root), KEY]
    writers = [subprocess.Popen(command) for _ in range(2)]
    num_found = 0
    while any(writer.poll() is None for writer in writers):
        found = store.read(KEY)
        if found is not None:
            num_found += 1
            np.testing.assert_array_equal(found["values"], np.arange(5000))
    assert [writer.wait() for writer in writers] == [0, 0]
    assert num_found > 0
    assert files(store) == [store.path(KEY)]


def test_equal_results_are_equal_bytes(store: Store, tmp_path: Path) -> None:
    other = Store(tmp_path / "other")
    for each in (store, other):
        each.write(KEY, {"values": np.arange(10), "more": np.ones(3)})
    assert store.path(KEY).read_bytes() == other.path(KEY).read_bytes()


def test_a_folder_that_cannot_be_made_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"the cache cannot be written \(Not a directory\); name another with --cache"):
        Store(tmp_path / "file" / "units")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_write_permission_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UserError, match="Permission denied"):
        Store(tmp_path)


def test_the_default_cache_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache() == tmp_path / "manyscale"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert default_cache() == Path.home() / ".cache" / "manyscale"
