"""What is kept: used only as it was written, whoever else writes it, damages it or puts something else in its place."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from manyscale.runner import kept

CONTENT = bytes(range(100))


@pytest.fixture(autouse=True)
def _nothing_told_yet() -> Iterator[None]:
    yield
    kept._told.clear()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "folder" / "file"
    with kept.written(path) as made:
        made.write_bytes(CONTENT)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return sealed(tmp_path / "kept" / "folder")


def sealed(path: Path) -> Path:
    (path / "inner").mkdir(parents=True)
    (path / "first").write_bytes(CONTENT)
    (path / "inner" / "second").write_bytes(CONTENT[::-1])
    (path / "empty").touch()
    kept.seal_folder(path)
    return path


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def content(path: Path) -> bytes | None:
    found = kept.mapped(path)
    return None if found is None else found.to_pybytes()


def flipped(whole: bytes, bit: int) -> bytes:
    changed = bytearray(whole)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_what_was_written_is_read(file: Path) -> None:
    assert content(file) == CONTENT
    assert files(file.parent) == ["file"]


def test_xxh3_of_128_bits() -> None:
    """The value of an empty input, of xxHash's own sanity checks (tests/sanity_test_vectors.h)."""
    assert kept._of_file(Path(os.devnull)).digest().hex() == "99aa06d3014798d86001c324468d497f"


def test_a_large_file_is_verified_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with kept.written(path) as made:
        made.write_bytes(bytes(3 * (1 << 18) + 5))
    whole = path.read_bytes()
    path.write_bytes(flipped(whole, 8 * (3 * (1 << 18) + 4)))
    assert content(path) is None
    with kept.written(path) as made:
        made.write_bytes(whole[:-24])
    assert content(path) == whole[:-24]


def test_no_flipped_bit_and_no_cut_is_read(file: Path) -> None:
    whole = file.read_bytes()
    for bit in range(8 * len(whole)):
        file.write_bytes(flipped(whole, bit))
        assert content(file) is None
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        assert content(file) is None
    file.write_bytes(whole + b"x")
    assert content(file) is None
    file.write_bytes(whole)
    assert content(file) == CONTENT


def test_damage_is_told_in_one_line_once(file: Path, capsys: pytest.CaptureFixture) -> None:
    file.write_bytes(flipped(file.read_bytes(), 5))
    assert content(file) is content(file) is None
    assert capsys.readouterr().err == f"manyscale: {file}: what was kept is damaged; it is made again\n"


def test_what_is_missing_is_not_told(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert content(tmp_path / "nothing") is None
    assert not kept.is_whole(tmp_path / "nothing")
    assert capsys.readouterr().err == ""


def test_many_lines_are_not_told(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for index in range(3 * kept.MOST_TOLD):
        (tmp_path / f"{index}").write_text("of an earlier version, without a checksum")
        assert content(tmp_path / f"{index}") is None
    *lines, last = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[1] for line in lines] == [str(tmp_path / f"{index}") for index in range(kept.MOST_TOLD)]
    assert last == "manyscale: more of what was kept is damaged or of another version; it is made again"


@pytest.mark.parametrize("foreign", ["text", "folder", "empty", "of another name"])
def test_what_is_not_ours_is_not_read(file: Path, foreign: str, capsys: pytest.CaptureFixture) -> None:
    other = file.with_name("other")
    if foreign == "text":
        other.write_text("a note that someone left here\n" * 100)
    elif foreign == "folder":
        other.mkdir()
    elif foreign == "empty":
        other.touch()
    else:
        other.write_bytes(file.read_bytes())
    assert content(other) is None
    assert capsys.readouterr().err.startswith(f"manyscale: {other}: what was kept ")


def test_a_file_is_verified_once_and_again_when_it_has_changed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert content(file) == CONTENT
    with monkeypatch.context() as patch:
        patch.setattr(kept.xxhash, "xxh3_128", None)
        assert content(file) == CONTENT
    time = os.stat(file).st_mtime_ns
    file.write_bytes(flipped(file.read_bytes(), 5))
    os.utime(file, ns=(time, time + 1))
    assert content(file) is None


def test_a_writer_that_fails_leaves_what_was_there(file: Path) -> None:
    with pytest.raises(KeyboardInterrupt), kept.written(file) as made:  # noqa: PT012
        made.write_bytes(b"new")
        raise KeyboardInterrupt
    assert content(file) == CONTENT
    assert files(file.parent) == ["file"]


def test_a_copy_comes_with_the_checksum_of_what_was_copied(file: Path, tmp_path: Path) -> None:
    assert kept.copied(file, tmp_path / "copy") == kept.checksum(file) == kept.checksum(tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == file.read_bytes()


def test_a_whole_folder_is_one(folder: Path) -> None:
    assert kept.is_whole(folder)
    assert files(folder) == ["checksums", "empty", "first", "inner/second"]


@pytest.mark.parametrize("name", ["checksums", "first", "inner/second"])
def test_no_flipped_bit_and_no_cut_of_a_folder_is_missed(folder: Path, name: str) -> None:
    path = folder / name
    whole = path.read_bytes()
    for bit in range(0, 8 * len(whole), 3):
        path.write_bytes(flipped(whole, bit))
        assert not kept.is_whole(folder)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert not kept.is_whole(folder)
    path.write_bytes(whole)
    assert kept.is_whole(folder)


@pytest.mark.parametrize("name", ["checksums", "empty", "first", "inner/second"])
def test_a_folder_that_lacks_a_file_is_told(folder: Path, name: str, capsys: pytest.CaptureFixture) -> None:
    (folder / name).unlink()
    assert not kept.is_whole(folder)
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_damaged_folder_is_replaced_and_a_whole_one_stays(folder: Path, tmp_path: Path) -> None:
    (folder / "first").write_bytes(b"damaged")
    kept.install(sealed(tmp_path / "kept" / "made"), folder)
    assert kept.is_whole(folder)
    before = os.stat(folder / "first").st_ino
    kept.install(sealed(tmp_path / "kept" / "made"), folder)
    assert os.stat(folder / "first").st_ino == before
    assert sorted(path.name for path in folder.parent.iterdir()) == ["folder"]


def test_a_file_in_a_folder_s_place_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "kept" / "folder"
    folder.parent.mkdir()
    folder.write_text("a note")
    assert not kept.is_whole(folder)
    kept.install(sealed(tmp_path / "kept" / "made"), folder)
    assert kept.is_whole(folder)
    assert sorted(path.name for path in folder.parent.iterdir()) == ["folder"]


_HEALER = """
import sys, shutil
from pathlib import Path
from manyscale.runner import kept
root, me = Path(sys.argv[1]), sys.argv[2]
for turn in range(60):
    folder = root / f"folder-{turn}"
    if not kept.is_whole(folder):
        made = root / f"made-{me}"
        made.mkdir()
        (made / "first").write_bytes(b"right" * 1000)
        kept.seal_folder(made)
        kept.install(made, folder)
    assert kept.is_whole(folder) and (folder / "first").read_bytes() == b"right" * 1000
    file = root / f"file-{turn}"
    if kept.mapped(file) is None:
        with kept.written(file) as path:
            path.write_bytes(b"right" * 1000)
    assert kept.mapped(file).to_pybytes() == b"right" * 1000
"""


def test_processes_that_heal_at_a_time_do_not_disturb_each_other(tmp_path: Path) -> None:
    for turn in range(60):
        folder = tmp_path / f"folder-{turn}"
        folder.mkdir()
        (folder / "first").write_bytes(b"right" * 1000)
        kept.seal_folder(folder)
        (folder / "first").write_bytes(b"wrong" * 1000)
        (tmp_path / f"file-{turn}").write_bytes(b"wrong" * 1000)
    healers = [subprocess.Popen([sys.executable, "-c", _HEALER, str(tmp_path), str(me)]) for me in range(3)]
    assert [healer.wait() for healer in healers] == [0, 0, 0]
    names = {f"{kind}-{turn}" for kind in ("file", "folder") for turn in range(60)}
    assert {path.name for path in tmp_path.iterdir()} == names
