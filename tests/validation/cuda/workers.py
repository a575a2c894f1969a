"""Whether Rodinia's CUDA programs leave the same bytes for one worker and for more: records, what is copied to and from
the device, what is written and printed.

    python tests/validation/cuda/workers.py SOURCES [--arch 80] [--only NAME] [--scratch FOLDER] [--chunk 16384]

SOURCES as of ``rodinia.py``. Its inputs are small, so that workers are compared more often than by default
(``--chunk``). Programs whose copies hold the time, or that draw random numbers by it, differ between two runs of one
worker, too; they are told as such.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import rodinia
from programs import PROGRAMS, Program
from tracing import SHOWN

from manyscale.runner.study.shown_device import shown_device
from manyscale.runner.tracers.cuda import compiler, device_code, module
from manyscale.runner.tracers.cuda.library import runtime_library

RUNS = (1, 1, 2, 3)  # workers


def digest(program: Program, made: Path, scratch: Path, modules: Path, shown: str, workers: int, chunk: int) -> str:
    """Of all that a run of a program leaves. Raises RuntimeError where it fails."""
    kit = compiler.toolkit()
    raw, run = scratch / "raw", scratch / "x" / "y" / "run"
    for folder in (raw, scratch / "x"):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(modules, raw)
    run.mkdir(parents=True)
    (scratch / "x" / "data").symlink_to(scratch / "data")
    shown_device(shown).write(raw, workers=workers, chunk=chunk)
    environment = {
        **os.environ,
        "MANYSCALE_CUDA_DIR": str(raw),
        "LD_PRELOAD": str(runtime_library(kit, scratch / "cache")),
        "COPIES": str(run / "copies"),
    }
    command = [str(made), *program.arguments.format(scratch).split()]
    done = subprocess.run(command, cwd=run, env=environment, capture_output=True, check=False, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{program.name}: exit status {done.returncode}")
    state = hashlib.blake2b(digest_size=16)
    (process,) = raw.glob("process-*")
    for path in sorted((*process.iterdir(), *run.rglob("*"))):
        if path.is_file():
            state.update(path.name.encode() + path.read_bytes())
    return state.hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path)
    parser.add_argument("--arch", type=int, default=80)
    parser.add_argument("--only", default="", help="names that contain this")
    parser.add_argument("--scratch", type=Path)
    parser.add_argument("--chunk", type=int, default=1 << 14, help="instructions of a worker (default: 16384)")
    options = parser.parse_args()
    scratch = (options.scratch or Path(tempfile.mkdtemp(prefix="rodinia-"))).resolve()
    rodinia.prepare(options.sources, scratch)
    kit, wrong = compiler.toolkit(), 0
    for program in (each for each in PROGRAMS if options.only in each.name):
        made = scratch / "programs" / rodinia.short_name(program)
        problem = rodinia.compiled(
            scratch / "sources", program.folder, program.sources, program.words, [options.arch], made
        )
        if problem:
            raise RuntimeError(f"{program.name}: {problem}")
        modules, cubins = scratch / "modules", scratch / "cubins"
        for folder in (modules, cubins):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        module.write(device_code.extract([made], options.arch, kit, cubins), kit, modules)
        found = [
            digest(program, made, scratch, modules, SHOWN[options.arch], workers, options.chunk) for workers in RUNS
        ]
        same = len(set(found)) == 1
        depends = found[0] != found[1]
        wrong += not same and not depends
        print(f"{program.name}: {'equal' if same else 'two runs of one worker differ' if depends else 'DIFFERS'}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
