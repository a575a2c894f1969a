"""What is wrong with a trace of Accel-Sim, in one line with file and line."""

from __future__ import annotations

import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
from accelsim_writer import block_text, head, one_warp, write_trace

from manyscale.runner.errors import UserError
from manyscale.runner.readers import accelsim

HEAD_LINES = head().count("\n")
EXIT = "0000 ffffffff 0 EXIT 0 0"


@pytest.fixture(autouse=True)
def _own_cache(private_cache: Path) -> None:
    """Nothing of what others stored is read."""


def problem(path: Path) -> str:
    with pytest.raises(UserError) as error:
        accelsim.read(path)
    text = str(error.value)
    assert "\n" not in text
    return text


def body(*lines: str) -> str:
    """A trace of one block of two warps, with lines of its own behind the head."""
    return head(block="(64,1,1)") + "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("lines", "line", "expected"),
    [
        (["thread block = 0,0,0"], 1, "outside a thread block"),
        (["#BEGIN_TB", "#BEGIN_TB"], 2, "inside another"),
        (["#END_TB"], 1, "never began"),
        (["#BEGIN_TB", "#END_TB"], 2, "without warps"),
        (["#BEGIN_TB", "thread block = 0,0,0", "#END_TB"], 3, "without warps"),
        (["#BEGIN_TB", "thread block = 0,0"], 2, "no 'thread block = x,y,z'"),
        (["#BEGIN_TB", "thread block = 0,0,0", "thread block = 0,0,0"], 3, "the second of its block"),
        (["#BEGIN_TB", "thread block = 1,0,0"], 2, "outside the grid"),
        (["#BEGIN_TB", "warp = 0"], 2, "inside a named thread block"),
        (["#BEGIN_TB", "thread block = 0,0,0", "warp = 2"], 3, "does not have"),
        (["#BEGIN_TB", "thread block = 0,0,0", "insts = 1"], 3, "stands in no warp"),
        (["#BEGIN_TB", "thread block = 0,0,0", EXIT], 3, "stands in no warp"),
        (["#BEGIN_TB", "thread block = 0,0,0", "warp = 0", EXIT], 4, "before its warp's line 'insts = '"),
        (["#BEGIN_TB", "thread block = 0,0,0", "warp = 0", "insts = 1", EXIT, EXIT], 6, "one instruction more"),
        (["#BEGIN_TB", "thread block = 0,0,0", "warp = 0", "insts = 2", EXIT, "#END_TB"], 6, "fewer instructions"),
        (["#BEGIN_TB", "thread block = 0,0,0", "warp = 0", "insts = 2", EXIT, "warp = 1"], 6, "fewer instructions"),
        (["#BEGIN_TB", "thread block = 0,0,0", "warp = 0", "insts = -1"], 4, "no 'insts = number'"),
        (["#BEGIN_TB", "thread block = 0,0,0", "warp = 0", "insts = 1", "garbage"], 5, "neither an instruction"),
    ],
)
def test_the_frame_of_blocks(tmp_path: Path, lines: list[str], line: int, expected: str) -> None:
    path = tmp_path / "k.traceg"
    path.write_text(body(*lines))
    text = problem(path)
    assert text.startswith(f"{path}:{HEAD_LINES + line}: ")
    assert expected in text
    assert text.endswith("; the trace is damaged or cut short: copy it again, or trace the kernel again")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("0000 fffffffff 0 EXIT 0 0", "mask"),
        ("0000 ffgfffff 0 EXIT 0 0", "mask"),
        ("0000 ffffffff 1 EXIT 0 0", "registers, opcode"),
        ("0000 ffffffff 0 EXIT 2 R1 0", "registers, opcode"),
        ("0000 ffffffff 0 EXIT 0", "registers, opcode"),
        ("0000 ffffffff 1 X7 MOV 0 0", "registers, opcode"),
        ("0000 ffffffff 1 R256 MOV 0 0", "registers, opcode"),
        ("0000 ffffffff 0 EXIT 0 0 0", "more fields"),
        ("0000 ffffffff 1 R2 LDG.E 1 R4 4 1 0x1000 4 0", "more fields"),
        ("0000 00000003 1 R2 LDG.E 1 R4 4 2 0x1000", "addresses that its mask asks for"),
        ("0000 00000003 1 R2 LDG.E 1 R4 4 0 0x1000", "addresses that its mask asks for"),
        ("0000 00000003 1 R2 LDG.E 1 R4 4 2 0x1000 4x", "addresses that its mask asks for"),
        ("0000 00000003 1 R2 LDG.E 1 R4 4 1 7fc8 4", "addresses that its mask asks for"),
        ("0000 00000003 1 R2 LDG.E 1 R4 4 3 0x1000 4", "addresses that its mask asks for"),
        ("0000 00000003 1 R2 LDG.E 1 R4 4 1 0x12345678123456789 4", "addresses that its mask asks for"),
        ("0000 00000003 1 R2 LDG.E 1 R4 4", "addresses that its mask asks for"),
    ],
)
def test_an_instruction(tmp_path: Path, line: str, expected: str) -> None:
    """The fourth line of the body, behind one that is right and looks alike."""
    path = one_warp(tmp_path / "k.traceg", "0000 00000003 1 R2 LDG.E 1 R4 4 1 0x1000 4", EXIT, line, EXIT)
    text = problem(path)
    number = path.read_text().splitlines().index(f"{line} ") + 1
    assert text.startswith(f"{path}:{number}: '{line[:70]}")
    assert expected in text


def test_version_5_needs_its_immediate(tmp_path: Path) -> None:
    path = one_warp(tmp_path / "k.traceg", "0000 ffffffff 1 R2 LDG.E 1 R4 4 1 0x1000 4", version=5)
    assert "has no immediate at its end" in problem(path)
    path = one_warp(tmp_path / "k.traceg", EXIT, version=5)
    assert "has no immediate at its end" in problem(path)


def test_a_cut_file(tmp_path: Path) -> None:
    whole = write_trace(tmp_path / "k.traceg", {"0,0,0": {0: [EXIT]}, "1,0,0": {0: [EXIT]}}, grid="(2,1,1)").read_text()
    for cut, expected in (
        (whole.rindex("#END_TB"), "ends inside thread block 1,0,0"),
        (whole.rindex("thread block"), "ends inside a thread block"),
        (whole.rindex("#BEGIN_TB"), "thread block 1,0,0 is missing; the body has 1 of the 2 thread blocks of the grid"),
        (whole.index("#BEGIN_TB"), "thread block 0,0,0 is missing; the body has 0 of the 2"),
        (whole.rindex("EXIT"), "registers, opcode"),
    ):
        (tmp_path / "cut.traceg").write_text(whole[:cut])
        assert expected in problem(tmp_path / "cut.traceg")


def test_a_cut_archive(tmp_path: Path) -> None:
    text = write_trace(tmp_path / "k.traceg", {"0,0,0": {0: [EXIT] * 1000}}).read_bytes()
    (tmp_path / "cut.traceg.xz").write_bytes(lzma.compress(text)[:-20])
    assert problem(tmp_path / "cut.traceg.xz").startswith(f"{tmp_path / 'cut.traceg.xz'}: the archive is damaged")


def test_blocks_that_are_not_those_of_the_grid(tmp_path: Path) -> None:
    block = {0: [EXIT]}
    path = tmp_path / "k.traceg"
    path.write_text(head(grid="(2,2,2)") + "".join(block_text(f"{x},0,{z}", block) for z in (0, 1) for x in (0, 1)))
    assert "thread block 0,1,0 is missing; the body has 4 of the 8" in problem(path)
    path.write_text(head(grid="(2,1,1)") + block_text("0,0,0", block) + block_text("0,0,0", block))
    assert "warp 0 of thread block 0,0,0 stands there twice" in problem(path)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("5 0 0 0 0000 ffffffff 0 EXIT 0 0", "outside the grid"),
        ("0 0 0 1 0000 ffffffff 0 EXIT 0 0", "outside the grid"),
        ("0 0 0000 ffffffff 0 EXIT 0 0", "does not begin with thread block x y z and warp"),
    ],
)
def test_raw_lines_without_their_place(tmp_path: Path, line: str, expected: str) -> None:
    path = tmp_path / "k.trace"
    path.write_text(head() + f"0 0 0 0 {EXIT}\n{line}\n")
    text = problem(path)
    assert text.startswith(f"{path}:{HEAD_LINES + 2}: ")
    assert expected in text


def test_old_lines_of_another_warp(tmp_path: Path) -> None:
    path = one_warp(tmp_path / "k.traceg", f"0 0 0 0 {EXIT}", f"0 0 0 1 {EXIT}", block="(64,1,1)", version=2)
    assert "belongs to another thread block or warp" in problem(path)


@pytest.mark.parametrize(
    ("change", "line", "expected"),
    [
        (lambda text: text.replace("-grid dim", "-grit dim"), 1, "has no line '-grid dim = (x,y,z)'"),
        (lambda text: text.replace("(1,1,1)", "(1,1)"), 3, "is no (x,y,z) of numbers from 1"),
        (lambda text: text.replace("(1,1,1)", "(0,1,1)"), 3, "is no (x,y,z) of numbers from 1"),
        (lambda text: text.replace("(32,1,1)", "(32,64,1)"), 4, "a block of 2048 threads"),
        (lambda text: text.replace("-nregs = 17", "-nregs = many"), 6, "nregs = 'many' is no number that fits"),
        (lambda text: text.replace("-nregs = 17", "-nregs = -1"), 6, "nregs = '-1' is no number that fits"),
        (lambda text: text.replace("0x00007f0002000000", "0x" + "f" * 20), 9, "is no number that fits"),
        (lambda text: text.replace("-nregs = 17", "-nregs"), 6, "is no line '-key = value'"),
    ],
)
def test_a_head(tmp_path: Path, change: Callable[[str], str], line: int, expected: str) -> None:
    path = one_warp(tmp_path / "k.traceg", EXIT)
    path.write_text(change(path.read_text()))
    text = problem(path)
    assert text.startswith(f"{path}:{line}: ")
    assert expected in text
