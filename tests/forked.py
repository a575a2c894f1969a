"""Programs in a child of this process, which has loaded already what takes a new Python its first second."""

from __future__ import annotations

import faulthandler
import io
import os
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path

from numba.core import config

from manyscale.models.kernels import compiled


def run(
    program: str, *arguments: str, folder: Path, kernels: Path, check: bool = False
) -> subprocess.CompletedProcess[str]:
    """What ``python -c PROGRAM ARGUMENTS`` does in ``folder``, with an empty cache of kernels at ``kernels`` or what
    others have put there. What this process has imported is there already."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as error:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.dup2(out.fileno(), 1)
                os.dup2(error.fileno(), 2)
                os.chdir(folder)
                status = _executed(program, arguments, kernels)
            finally:
                os._exit(status)
        _, ended = os.waitpid(child, 0)
        said = []
        for file in (out, error):
            file.seek(0)
            said.append(file.read())
    done = subprocess.CompletedProcess(["python", "-c", program, *arguments], os.waitstatus_to_exitcode(ended), *said)
    if check:
        assert done.returncode == 0, done.stderr
    return done


def _executed(program: str, arguments: Sequence[str], kernels: Path) -> int:
    """In the child: its exit status."""
    sys.stdout, sys.stderr = (io.TextIOWrapper(io.FileIO(number, "w", closefd=False)) for number in (1, 2))
    sys.argv, sys.path[:0] = ["-c", *arguments], [""]
    sys.dont_write_bytecode = True  # a module that changes within a second would be taken for what it was
    config.CACHE_DIR = str(kernels)
    compiled.folder.cache_clear()
    compiled._remove_unused.cache_clear()  # once in a process
    warnings.resetwarnings()  # a test's are errors
    faulthandler.disable()  # it would print where the test run does
    status = 0
    try:
        exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as stop:
        status = int(stop.code or 0)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return status
