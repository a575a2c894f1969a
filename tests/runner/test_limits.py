"""Limits of the environment: told as limits, never taken for damage, and what is damaged is proved to be."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from manyscale.runner import kept, limits
from manyscale.runner.errors import UserError
from manyscale.runner.run import study_runs

LARGE = bytes(range(256)) * 1000  # is mapped
SMALL = b"small"  # is read


@pytest.fixture(autouse=True)
def _nothing_told_yet() -> Iterator[None]:
    yield
    kept._told.clear()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    with kept.written(tmp_path / "file") as made:
        made.write_bytes(LARGE)
    return tmp_path / "file"


def in_a_process(code: str, *arguments: object) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True)


_OPEN_FILES = """
import resource, sys
from pathlib import Path
from manyscale.runner import kept, limits
kept.mapped(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_NOFILE, (40, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
held = []
try:
    while True:
        held.append(open(sys.argv[1], "rb"))
except OSError:
    pass
try:
    kept.mapped(Path(sys.argv[1]))
except limits.LimitError as error:
    print(error)
held.clear()
assert kept.mapped(Path(sys.argv[1])) is not None
"""


def test_open_files_are_told_as_that_limit(file: Path) -> None:
    before = file.read_bytes(), os.stat(file).st_ino
    done = in_a_process(_OPEN_FILES, file)
    assert done.returncode == 0, done.stderr
    assert f"{file}: cannot be read: this process may open 40 files at a time" in done.stdout
    assert "ulimit -n" in done.stdout
    assert done.stderr == ""
    assert (file.read_bytes(), os.stat(file).st_ino) == before


_MAPS = """
import sys
from pathlib import Path
import pyarrow as pa
from manyscale.runner import kept, limits
path, held = Path(sys.argv[1]), []
try:
    while True:
        held.append(pa.memory_map(str(path)).read_buffer())
except OSError:
    pass
assert len(held) > 30_000, len(held)
assert limits.maps_are_exhausted()
try:
    kept.mapped(path)
except limits.LimitError as error:
    held.clear()
    print(error)
assert kept.mapped(path).to_pybytes() == bytes(range(256)) * 1000
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/sys/vm/max_map_count").exists(), reason="only Linux limits memory maps so")
def test_where_no_further_map_is_granted_that_is_told(file: Path) -> None:
    done = in_a_process(_MAPS, file)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "no file was taken for damaged"
    assert f"{file}: cannot be read: this process has all the " in done.stdout
    assert "sysctl -w vm.max_map_count=" in done.stdout


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EIO, errno.EACCES, errno.ESTALE])
def test_what_cannot_be_read_is_not_damaged(
    number: int, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def refuses(path: str) -> None:
        raise (
            OSError(number, os.strerror(number), path)
            if number != errno.ENOMEM
            else OSError(
                "Memory mapping file failed: Cannot allocate memory"  # as pyarrow has it, without the number
            )
        )

    whole = file.read_bytes()
    with monkeypatch.context() as patch, pytest.raises(UserError, match="cannot be read"):  # noqa: PT012
        patch.setattr(pa, "memory_map", refuses)
        kept.mapped(file)
    assert capsys.readouterr().err == ""
    assert file.read_bytes() == whole
    assert kept.mapped(file) is not None


def test_what_a_map_shows_is_read_again_before_it_is_damaged(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    wrong = bytearray(file.read_bytes())
    wrong[1000] ^= 4

    class Map:
        def read_buffer(self) -> pa.Buffer:
            return pa.py_buffer(bytes(wrong))

    monkeypatch.setattr(pa, "memory_map", lambda _path: Map())
    kept._known.clear()
    found = kept.mapped(file)
    assert found is not None
    assert found.to_pybytes() == LARGE
    assert capsys.readouterr().err == ""


def test_bytes_that_change_from_read_to_read_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kept.written(tmp_path / "file") as made:
        made.write_bytes(SMALL)
    turns = iter(range(1, 100))
    whole = (tmp_path / "file").read_bytes()
    monkeypatch.setattr(Path, "read_bytes", lambda _path: bytes([next(turns)]) + whole[1:])
    with pytest.raises(UserError, match="gives other bytes each time it is read"):
        kept.mapped(tmp_path / "file")


def test_a_folder_s_file_that_cannot_be_read_is_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "first").write_bytes(LARGE)
    kept.seal_folder(folder)
    kept._known.clear()

    def refuses(_path: Path) -> str:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch, pytest.raises(limits.LimitError, match="ulimit -n"):  # noqa: PT012
        patch.setattr(kept, "checksum", refuses)
        kept.is_whole(folder)
    assert capsys.readouterr().err == ""
    assert kept.is_whole(folder)


Room = namedtuple("Room", "f_files f_favail f_bavail f_frsize f_blocks")


@pytest.mark.parametrize(
    ("room", "needle"),
    [
        (Room(100, 9, 10**6, 4096, 10**6), "takes some 10 files, and its file system takes 9 more"),
        (Room(100, 10, 10, 4096, 10**6), "takes at least 1 MB, and 0 MB are free"),
        (Room(100, 10, 10**6, 4096, 10**6), ""),
        (Room(0, 0, 10**6, 4096, 10**6), ""),  # file systems that make inodes as they are needed
    ],
)
def test_room_is_compared_at_the_start(
    room: Room, needle: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _path: room)
    need = limits.Needs(tmp_path / "not" / "there", "the cache", "--cache", 10, 1_000_000)
    if not needle:
        assert limits.at_start((need,)) == []
        return
    with pytest.raises(limits.LimitError, match=needle):
        limits.at_start((need,))


def test_memory_of_a_control_group_and_of_ulimit_counts() -> None:
    code = (
        "import resource; from manyscale.runner import limits;"
        "resource.setrlimit(resource.RLIMIT_AS, (3 << 30, resource.RLIM_INFINITY));"
        "assert limits.memory_bytes() <= 3 << 30, limits.memory_bytes();"
        "limits.at_start((), memory=4 << 30)"
    )
    done = in_a_process(code)
    assert "LimitError: the run takes at least 4.0 GiB of memory, and this process may use " in done.stderr


def test_open_files_are_raised_to_what_is_allowed() -> None:
    code = (
        "import resource; from manyscale.runner import limits;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 300)); limits.allow_open_files();"
        "assert resource.getrlimit(resource.RLIMIT_NOFILE) == (300, 300)"
    )
    assert in_a_process(code).returncode == 0


def test_little_shared_memory_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _path: Room(0, 0, 0, 4096, (64 << 20) // 4096))
    (line,) = limits.at_start((), uses_ray=True)
    assert "64 MiB" in line
    assert "--shm-size" in line


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a file system")
@pytest.mark.parametrize("options", ["size=64k", "nr_inodes=6"])
def test_a_full_file_system_is_told_as_that(options: str, tmp_path: Path) -> None:
    folder = tmp_path / "full"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        with pytest.raises(OSError) as full:  # noqa: PT012
            for number in range(100):
                with kept.written(folder / f"{number}") as made:
                    made.write_bytes(bytes(4096))
        assert limits.is_limit(full.value)
        line = limits.in_words(full.value, folder)
        assert ("inodes" if "inodes" in options else "is full") in line
        assert not [path for path in folder.iterdir() if path.name.startswith(".")], "nothing half-written"
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_the_soft_limit_of_this_process_is_read() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert f"{soft:,} files" in limits.in_words(OSError(errno.EMFILE, ""))


@pytest.mark.slow
def test_readers_of_what_is_kept_tell_limits(
    cli: Callable, refused: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A workload and a launch whose files cannot be opened are not damaged: the same command works a moment later."""

    def refuses(*_arguments: object, **_more: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    assert cli("convert", "lulesh-8", "-o", "workload").status == 0
    assert cli("convert", "bfs-16", "-o", "launches").status == 0
    before = {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()}
    for trace, module, name in (("workload", pa, "memory_map"), ("launches", pq, "ParquetFile")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, refuses)
            refused(cli("show", trace, "-o", f"shown-{trace}"), trace, "cannot be read: this process may open")
    assert {path: path.read_bytes() for path in before} == before
    assert cli("show", "launches", "-o", "shown").status == 0


def test_a_run_that_finds_no_room_is_refused_before_it_begins(
    cli: Callable, refused: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "statvfs", lambda _path: Room(100, 3, 10**6, 4096, 10**6))
        refused(cli("run", "lulesh-8", "-o", "run"), "(inodes); remove some, or name another place with -o")
    assert not (tmp_path / "run").exists()
    assert cli("run", "lulesh-8", "-o", "run", "--no-report").status == 0
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert len(files) >= study_runs.FILES_OF_POINT, "it takes at least as many as are asked for"
    assert all(path.stat().st_size for path in files)
