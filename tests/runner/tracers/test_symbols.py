"""Places of addresses: what each tool finds, and what is said where nothing can be found."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from tracer_programs import need

from manyscale.runner.readers.binaries import symbols
from manyscale.runner.readers.binaries.symbols import Place

pytestmark = pytest.mark.theory
_SOURCE = """\
__attribute__((noinline)) int twice(int x) {
    return 2 * x;
}
int main(int argc, char **argv) {
    (void)argv;
    return twice(argc);
}
"""


def built(folder: Path, *flags: str) -> tuple[Path, int]:
    """A program and the address of its function ``twice``."""
    need("gcc", "nm")
    source, program = folder / "twice.c", folder / "twice"
    source.write_text(_SOURCE)
    subprocess.run(["gcc", "-O1", *flags, str(source), "-o", str(program)], check=True)
    listed = subprocess.run(["nm", str(program)], capture_output=True, text=True, check=True).stdout
    address = next(line.split()[0] for line in listed.splitlines() if line.endswith(" twice"))
    return program, int(address, 16)


@pytest.mark.parametrize("tool", ["addr2line", "llvm-symbolizer"])
def test_places(tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need(tool)
    program, address = built(tmp_path, "-g")
    found = shutil.which(tool)
    monkeypatch.setattr(shutil, "which", lambda name: found if name == tool else None)
    places, notes = symbols.resolve(str(program), [address, 0x10])
    assert places[0].function == "twice"
    assert (Path(places[0].file).name, places[0].line) in (("twice.c", 1), ("twice.c", 2))  # its head or its body
    assert places[1] == Place("0x10", "", 0)
    assert "1 of 2 places have no line" in notes[0].text


def test_symbol_without_debug_information(tmp_path: Path) -> None:
    need("addr2line")
    program, address = built(tmp_path)
    places, notes = symbols.resolve(str(program), [address])
    assert places == [Place("twice", "", 0)]
    assert "compile it with -g" in notes[0].text


def test_what_cannot_be_found_is_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(symbols.glob, "glob", lambda pattern: [])
    places, notes = symbols.resolve(str(tmp_path / "app"), [31])
    assert places == [Place("0x1f", "", 0)]
    assert "neither addr2line nor llvm-symbolizer" in notes[0].text
    assert symbols.resolve("app", []) == ([], ())


def test_file_that_is_no_program(tmp_path: Path) -> None:
    need("addr2line")
    (tmp_path / "app").write_text("no program")
    places, notes = symbols.resolve(str(tmp_path / "app"), [31])
    assert places == [Place("0x1f", "", 0)]
    assert "cannot read it" in notes[0].text
