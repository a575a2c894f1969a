"""Builds the runtime that stands in for NVIDIA's with the user's C compiler, against CUDA's own headers, once."""

from __future__ import annotations

import hashlib
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from manyscale.runner import kept
from manyscale.runner.errors import UserError
from manyscale.runner.tracers.build import Compiler, c_compiler
from manyscale.runner.tracers.cuda import codes, generate
from manyscale.runner.tracers.cuda.compiler import Toolkit

NATIVE: Final = Path(__file__).parent / "native"  # the interpreter
RUNTIME: Final = Path(__file__).parent / "runtime"
_FLAGS: Final = (
    "-std=gnu11", "-D_GNU_SOURCE", "-O3", "-g1", "-fPIC", "-shared", "-fno-strict-aliasing", "-ffp-contract=off",
    "-fno-math-errno", "-frounding-math", "-Wall", "-Wextra", "-Werror", "-Wno-deprecated-declarations",
)  # fmt: skip


def runtime_library(kit: Toolkit, cache: Path) -> Path:
    """The library, named as NVIDIA's of the toolkit is. Raises UserError where it does not build."""
    name = generate.soname(kit.version)
    compiler = c_compiler("the CUDA runtime that is traced")
    sources = {f"{path.parent.name}_{path.name}": path.read_text() for path in _files("*.c")}
    sources["generated.c"] = generate.source(kit.include, sources.values())
    sources["ops.h"] = codes.header()
    renamed = generate.aliases(kit.include)
    script = generate.version_script(kit.version)
    headers = [path.read_text() for path in _files("*.h")]
    state = hashlib.blake2b(f"{_FLAGS} {compiler} {kit.version} {renamed} {script}".encode(), digest_size=16)
    for text in (*sources.values(), *headers):
        state.update(f"{len(text)} {text}".encode())
    built = cache.resolve() / "tracers" / state.hexdigest() / name
    if kept.mapped(built) is None:
        _compile(built, sources, compiler, kit, script, renamed)
    return built


def _files(pattern: str) -> list[Path]:
    return [path for folder in (NATIVE, RUNTIME) for path in sorted(folder.glob(pattern))]


def _compile(
    built: Path, sources: dict[str, str], compiler: Compiler, kit: Toolkit, script: str, renamed: dict[str, str]
) -> None:
    """Compile each file by itself, two at a time, then link into a folder of its own and move."""
    try:
        built.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=built.parent) as scratch:
            folder = Path(scratch)
            for name, text in sources.items():
                (folder / name).write_text(text)
            (folder / "exports").write_text(script)
            made = folder / built.name
            files = [str(folder / name) for name in sources if name.endswith(".c")]
            linked = [
                f"-Wl,--version-script={folder / 'exports'},-soname,{built.name}",
                *(f"-Wl,--defsym={alias}={name}" for alias, name in sorted(renamed.items())),
            ]
            include = [f"-I{folder}", f"-I{NATIVE}", f"-I{RUNTIME}", "-isystem", str(kit.include)]
            command = [*compiler.command, *_FLAGS, *include, *files, *linked, "-o", str(made), "-lm", "-lpthread"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
                told = lines[0].replace(scratch, "native") if lines else f"exit status {done.returncode}"
                raise UserError(f"the CUDA runtime does not build with {shlex.join(compiler.command)}: {told}")
            kept.seal(made)
            made.replace(built)
    except OSError as error:
        raise UserError(f"{built.parent}: {error.strerror or error}; name another folder with --cache") from None
