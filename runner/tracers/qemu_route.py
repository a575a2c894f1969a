"""The detailed level by QEMU's user-mode emulation and a plugin (``native/qemu_plugin.c``): any x86-64 program as it
is, some hundred times as fast as lackey. What it leaves is read by ``qemu_trace.read(output)``."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from manyscale.runner.errors import UserError
from manyscale.runner.tracers import build
from manyscale.runner.tracers.function_entry import find_program, function_entry

EMULATOR: Final = "qemu-x86_64"
# The dynamic linker looks all functions up when the program starts, not inside what is measured.
ENVIRONMENT: Final = {"LD_BIND_NOW": "1"}


def command(
    program: Sequence[str], output: Path, region: str | None = None, *, cache: Path, limit_bytes: int | None = None
) -> list[str]:
    """The words that run a command under QEMU and leave its trace in ``output``, which must not exist. Run it with
    ``ENVIRONMENT`` added.

    ``region``: record only while this function of the program runs. ``cache`` keeps the plugin. Recording stops when
    the file has ``limit_bytes``. Raises UserError where QEMU or a compiler is missing.
    """
    emulator = shutil.which(EMULATOR)
    if emulator is None:
        raise UserError(f"{EMULATOR} is not installed; install it (Debian: qemu-user) or use another route")
    if not program:
        raise UserError("no program to trace; give its words behind --")
    path = find_program(program[0])
    words = [str(build.qemu_plugin(cache)), f"out={output.absolute()}"]
    if region is not None:
        entry = function_entry(path, region)
        words.append(f"entry={entry.address - entry.code:#x}")
    if limit_bytes is not None:
        words.append(f"limit={limit_bytes}")
    plugin = ",".join(word.replace(",", ",,") for word in words)
    # the most capable processor that QEMU emulates: programs may use AVX2
    return [emulator, "-cpu", "max", "-plugin", plugin, str(path), *program[1:]]
