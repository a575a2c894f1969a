"""Compiles a CUDA source that is to be traced, for the GPU that it is shown, where a command names it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from manyscale.runner.errors import UserError
from manyscale.runner.tracers.cuda.compiler import flags, toolkit
from manyscale.runner.tracers.cuda.device import Device

SUFFIX: Final = ".cu"


def built(command: Sequence[str], device: Device, cache: Path, folder: Path, *, announces: bool = True) -> list[str]:
    """``command`` with the program, in ``folder``, that nvcc makes of the source that it names; any other as it is.

    The program has lines of source and machine code for the device's compute capability. Raises UserError where nvcc
    is missing or refuses the source; what nvcc says goes to standard error."""
    if not command or not command[0].endswith(SUFFIX):
        return list(command)
    source = Path(command[0])
    if not source.is_file():
        raise UserError(f"{source}: no such file; name a CUDA source, or a program that nvcc made")
    kit = toolkit()
    program = folder / source.stem
    words = [str(kit.tool("nvcc")), f"-arch=sm_{device.capability}", "-lineinfo", str(source), "-o", str(program)]
    if announces:
        print(f"manyscale: compiling for sm_{device.capability}: {source}", file=sys.stderr, flush=True)
    done = subprocess.run([*words, *flags(kit, cache)], capture_output=True, text=True, errors="replace", check=False)
    said = "".join(f"{line}\n" for line in (done.stdout + done.stderr).splitlines())
    print(said, end="", file=sys.stderr)
    if done.returncode:
        raise UserError(f"{source}: nvcc does not compile it; build the program yourself where it needs further words")
    return [str(program), *command[1:]]
