"""Where code addresses stand in a program's source: binutils' ``addr2line`` or LLVM's ``llvm-symbolizer``, whichever is
installed, called once per program or library. Both print a function and a place for each address."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from manyscale.models.workload.notes import Note, informs

_LLVM = ("--output-style=GNU", "--functions=linkage", "--no-inlines", "--demangle", "--relativenames")


@dataclass(frozen=True)
class Place:
    """``function``: a hexadecimal address where there is no symbol. ``file`` is empty and ``line`` 0 without debug
    information."""

    function: str
    file: str
    line: int


def resolve(module: str, addresses: Sequence[int]) -> tuple[list[Place], tuple[Note, ...]]:
    """Places of addresses in the file ``module`` (as the file counts them, not where it was loaded), and a note on what
    is missing, if anything is. Never raises for what cannot be found."""
    unknown = [Place(hex(address), "", 0) for address in addresses]
    name = os.path.basename(module)
    if not addresses:
        return [], ()
    command = _command(module)
    if command is None:
        text = "neither addr2line nor llvm-symbolizer is installed: its places are bare addresses"
        return unknown, (informs("places-unknown", text, name, len(addresses)),)
    text = "".join(f"{address:#x}\n" for address in addresses)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, errors="replace")
    lines = [line for line in done.stdout.splitlines() if line]
    if len(lines) != 2 * len(addresses):
        text = f"{os.path.basename(command[0])} cannot read it: its places are bare addresses"
        return unknown, (informs("places-unknown", text, name, len(addresses)),)
    places = [_place(*pair) for pair in zip(addresses, lines[::2], lines[1::2], strict=True)]
    missing = sum(not place.line for place in places)
    if missing:
        text = f"{missing} of {len(places)} places have no line; compile it with -g"
        return places, (informs("places-unknown", text, name, missing),)
    return places, ()


def _command(module: str) -> list[str] | None:
    path = shutil.which("addr2line")
    if path is not None:
        return [path, "-f", "-C", "-e", module]
    newest = sorted(glob.glob("/usr/lib/llvm-*/bin/llvm-symbolizer"))[-1:]
    path = shutil.which("llvm-symbolizer") or (newest[0] if newest else None)
    return None if path is None else [path, *_LLVM, f"--obj={module}"]


def _place(address: int, function: str, where: str) -> Place:
    file, _, line = where.rpartition(":")
    number = line.split(" ")[0]  # "12 (discriminator 3)"
    is_known = number.isdigit() and file not in ("", "??")
    if not is_known:
        return Place(hex(address) if function == "??" else function, "", 0)
    return Place(hex(address) if function == "??" else function, os.path.normpath(file), int(number))
