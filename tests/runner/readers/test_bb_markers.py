"""Markers of profiles: where intervals begin and end, by lines as LoopPoint's profiler writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from manyscale.runner.errors import UserError
from manyscale.runner.readers.simpoint_bb import markers as bb_markers
from manyscale.runner.readers.simpoint_bb.markers import NOWHERE, Marker

LINES = [
    "I: 0",
    "S: 0x401000 3 /opt/my/prog 0x400000 + 0x1000 # main.c:3",
    "T:1:10 :2:6 ",
    "M: 7f0010 12 no_image 0",
    "T:2:9 ",
    "S: 0x401000 5 /opt/my/prog 0x400000 + 0x1000 # Unknown:0",
    "T:1:5 ",
    "Block id: 1 0x401000:0x401010 static instructions: 5 block count: 3 block size: 20",
    "Block id: 2 0x7f0008:0x7f0010 static instructions: 3 block count: 5 block size: 12",
]


def written(folder: Path, lines: list[str]) -> Path:
    path = folder / "prog.bb"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_by_hand(tmp_path: Path) -> None:
    """The run begins with the first execution of its first place; its end has no marker."""
    found = bb_markers.read(written(tmp_path, LINES), {0, 1, 2})
    assert found is not None
    assert found.at == [
        Marker(0x401000, 1, "prog", 0x1000), Marker(0x7F0010, 12), Marker(0x401000, 5, "prog", 0x1000), NOWHERE
    ]  # fmt: skip
    assert found.executed == {0: [{1: 10, 2: 6}], 1: [{2: 9}], 2: [{1: 5}]}
    assert found.blocks == {1: (0x401000, 0x401010, 5), 2: (0x7F0008, 0x7F0010, 3)}


@pytest.mark.theory
@pytest.mark.parametrize(("first", "end", "count"), [(0, 1, 3), (1, 2, 1), (0, 2, 2)])
def test_how_often_an_end_comes_by(tmp_path: Path, first: int, end: int, count: int) -> None:
    """Interval 0 executes block 2, which holds its end, 6 / 3 times and then comes to it: 3. Interval 1 does not
    execute block 1, so its end is the first. Both together begin and end at block 1, which runs 10 / 5 times."""
    found = bb_markers.read(written(tmp_path, LINES), {0, 1})
    assert found is not None
    assert found.relative_count(first, end) == count


def test_threads_of_one_file_have_blocks_of_their_own(tmp_path: Path) -> None:
    """Block 2 of the second of two threads has the number 2 + 2."""
    lines = ["#make-balanced-concat-vectors.py num_threads 2", *LINES]
    lines[3] = "T:2:6 :4:12 "
    found = bb_markers.read(written(tmp_path, lines), {0})
    assert found is not None
    assert found.relative_count(0, 1) == 1 + 6 // 3 + 12 // 3


def test_profiles_without_markers(tmp_path: Path) -> None:
    assert bb_markers.read(written(tmp_path, [line for line in LINES if line[0] == "T"]), {0}) is None


@pytest.mark.parametrize(("place", "line", "what"), [
    (3, "M: here 12", r"prog\.bb:4: 'M: here 12' is no marker"),
    (3, "# nothing", r"prog\.bb: no marker \(S: or M:\) tells where interval 1 begins"),
])  # fmt: skip
def test_what_is_refused(tmp_path: Path, place: int, line: str, what: str) -> None:
    with pytest.raises(UserError, match=what):
        bb_markers.read(written(tmp_path, [*LINES[:place], line, *LINES[place + 1 :]]), {0})
