"""Files of a trace that other hosts read: told by path and digest, and copied where the path is not there."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, RLock

import numpy as np
import pytest

from manyscale.runner.errors import UserError
from manyscale.runner.readers.stores import elsewhere
from manyscale.runner.readers.stores.detail_store import DetailStore, DetailWriter
from manyscale.runner.readers.stores.elsewhere import fetching


def stream(path: Path, blocks: list[int]) -> DetailStore:
    writer = DetailWriter(path)
    writer.add(np.array(blocks, np.int32), np.zeros(len(blocks), np.int32), np.empty(0, np.uint64))
    writer.end_segment(0, 0, 0, 0, 0, 0)
    return writer.close()[1]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/manyscale/traces"


def copier(source: Path, log: list[Path]) -> Callable[[Path, Path], None]:
    """Copies from where the files really are, as another host would."""

    def fetch(path: Path, copy: Path) -> None:
        log.append(path)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, copy)

    return fetch


def test_a_stream_that_was_told_is_opened_when_it_is_read(tmp_path):
    store = stream(tmp_path / "detail", [3, 1, 2])
    told = pickle.dumps(store)
    (tmp_path / "detail").unlink()
    again = pickle.loads(told)  # nothing is read
    with pytest.raises(UserError, match="cannot be read"):
        again.read(0, 1)
    assert stream(tmp_path / "detail", [3, 1, 2]).digest == store.digest
    assert again.read(0, 1).block_ids.tolist() == [3, 1, 2]
    assert pickle.loads(pickle.dumps(pickle.loads(told))).digest == store.digest


def test_a_file_that_was_changed_meanwhile_is_refused(tmp_path):
    told = pickle.dumps(stream(tmp_path / "detail", [3, 1, 2]))
    stream(tmp_path / "detail", [3, 1, 1])
    with pytest.raises(UserError, match="was changed since the run began"):
        _ = pickle.loads(told).num_segments


def test_what_is_not_here_is_copied_once(tmp_path, cache):
    told = pickle.dumps(stream(tmp_path / "detail", [3, 1, 2]))
    there = (tmp_path / "detail").rename(tmp_path / "on-the-other-host")
    log: list[Path] = []
    for _ in range(2):
        again = pickle.loads(told)
        found = fetching(copier(there, log), lambda again=again: again.read(0, 1))
        assert found.block_ids.tolist() == [3, 1, 2]
    assert log == [tmp_path / "detail"]


def test_what_stands_here_at_that_path_may_be_something_else(tmp_path, cache):
    told = pickle.dumps(stream(tmp_path / "detail", [3, 1, 2]))
    there = (tmp_path / "detail").rename(tmp_path / "on-the-other-host")
    stream(tmp_path / "detail", [1, 1, 1])
    found = fetching(copier(there, []), lambda: pickle.loads(told).read(0, 1))
    assert found.block_ids.tolist() == [3, 1, 2]
    (tmp_path / "detail").write_text("no stream")
    found = fetching(copier(there, []), lambda: pickle.loads(told).read(0, 1))
    assert found.block_ids.tolist() == [3, 1, 2]


def test_a_damaged_copy_is_made_again(tmp_path, cache):
    told = pickle.dumps(stream(tmp_path / "detail", [3, 1, 2]))
    there = (tmp_path / "detail").rename(tmp_path / "on-the-other-host")
    log: list[Path] = []
    for _ in range(2):
        assert fetching(copier(there, log), lambda: pickle.loads(told).read(0, 1)).block_ids.tolist() == [3, 1, 2]
        (copy,) = cache.glob("*/content")
        content = bytearray(copy.read_bytes())
        content[20] ^= 1
        copy.write_bytes(content)
    assert len(log) == 2


def test_a_copy_that_fails_leaves_nothing(tmp_path, cache):
    told = pickle.dumps(stream(tmp_path / "detail", [3, 1, 2]))
    (tmp_path / "detail").unlink()

    def fetch(_path: Path, copy: Path) -> None:
        copy.write_text("half")
        raise OSError("the link is down")

    with pytest.raises(OSError, match="the link is down"):
        fetching(fetch, lambda: pickle.loads(told).read(0, 1))
    assert not list(cache.iterdir())


def test_threads_that_read_at_once_wait_for_the_one_that_opens(tmp_path, cache, monkeypatch):
    told = pickle.dumps(stream(tmp_path / "detail", [3, 1, 2]))
    there = (tmp_path / "detail").rename(tmp_path / "on-the-other-host")
    log: list[Path] = []
    again, copy = pickle.loads(told), copier(there, log)
    begins, waits = Event(), Event()
    lock = RLock()

    class Watched:
        def __enter__(self) -> None:
            if begins.is_set():
                waits.set()
            lock.acquire()

        def __exit__(self, *_error: object) -> None:
            lock.release()

    def fetch(path: Path, to: Path) -> None:
        begins.set()
        assert waits.wait(10)
        copy(path, to)

    def late() -> list[int]:
        assert begins.wait(10)
        return again.read(0, 1).block_ids.tolist()

    monkeypatch.setattr(elsewhere, "_opening", Watched())

    with ThreadPoolExecutor(2) as threads:
        both = [threads.submit(late), threads.submit(lambda: fetching(fetch, lambda: again.num_segments))]
        assert [each.result() for each in both] == [[3, 1, 2], 1]
    assert log == [tmp_path / "detail"]
