"""The detailed level by Valgrind's lackey: any program as it is, at about 0.3 M accesses per CPU second.

Lackey cannot record a part of the run. The reader keeps what a function does, by the address of its entry:
``lackey.read(output, entry=entry_address(program, region))``.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from manyscale.runner.errors import UserError
from manyscale.runner.tracers.function_entry import find_program, function_entry

# Valgrind loads programs that can be loaded anywhere to this address (its own choice on amd64, for 3.10 to 3.24)
_LOADED_AT: Final = 0x108000
# The dynamic linker looks all functions up when the program starts, not inside what is measured.
ENVIRONMENT: Final = {"LD_BIND_NOW": "1"}


def command(program: Sequence[str], output: Path, region: str | None = None) -> list[str]:
    """The words that run a command under lackey and leave its trace in ``output``. Run it with ``ENVIRONMENT`` added.

    ``region``: checked to be a function of the program. Raises UserError where Valgrind is missing.
    """
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise UserError("valgrind is not installed; install it (Debian: valgrind) or use another route")
    if not program:
        raise UserError("no program to trace; give its words behind --")
    if region is not None:
        entry_address(program, region)
    # in the name of a log file % begins what Valgrind fills in
    log = str(output.absolute()).replace("%", "%%")
    return [valgrind, "--tool=lackey", "--trace-mem=yes", f"--log-file={log}", *program]


def entry_address(program: Sequence[str], region: str) -> int:
    """Where the function begins when Valgrind runs the program."""
    entry = function_entry(find_program(program[0]), region)
    return entry.address + (_LOADED_AT if entry.is_movable else 0)
