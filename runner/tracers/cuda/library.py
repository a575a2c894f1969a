"""Builds the libraries that stand in for NVIDIA's runtime and driver, and for NCCL, with the user's C compiler, against
CUDA's own headers, once."""

from __future__ import annotations

import hashlib
import re
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from manyscale.runner import kept
from manyscale.runner.errors import UserError
from manyscale.runner.tracers.build import c_compiler
from manyscale.runner.tracers.cuda import driver_interface, generate, interpreter
from manyscale.runner.tracers.cuda.compiler import Toolkit

RUNTIME: Final = Path(__file__).parent / "runtime"
DRIVER: Final = Path(__file__).parent / "driver"
NCCL: Final = Path(__file__).parent / "nccl"
_NCCL_NAME: Final = "libnccl.so.2"
_DRIVER_NAMES: Final = ("libcuda.so.1", "libcuda.so")
_NCCL_CALL: Final = re.compile(r"^(?:ncclResult_t |const char \*|void |TELLS\(|REFUSED\()(nccl\w+)\(?", re.MULTILINE)
# what is not executed for each instruction is compiled in less time
_COLD: Final = '#ifndef __clang__\n#pragma GCC optimize ("O1")\n#endif\n#line 1\n'
_FLAGS: Final = (*interpreter.FLAGS, "-Wno-error", "-D_GNU_SOURCE", "-Wno-deprecated-declarations")


def runtime_library(kit: Toolkit, cache: Path) -> Path:
    """The library, named as NVIDIA's runtime of the toolkit is; beside it are links of the driver's names, so that a
    process has both in one. Raises UserError where it does not build."""
    name = generate.soname(kit.version)
    compiler = c_compiler("the CUDA runtime that is traced")
    stamp = _stamp_of_inputs(f"{compiler} {kit.version}", kit, cache)
    known = kept.mapped(stamp)
    if known is not None:
        built = stamp.parent / known.to_pybytes().decode() / name
        if kept.mapped(built) is not None:
            return built
    files = interpreter.sources() | {path.name: path.read_text() for path in sorted(RUNTIME.glob("*.[ch]"))}
    sources = {name: text for name, text in files.items() if name.endswith(".c")}
    sources["generated.c"] = generate.source(kit.include, sources.values())
    renamed = generate.aliases(kit.include) | driver_interface.aliases(kit.include)
    script = generate.version_script(kit.version) + driver_interface.version_script()
    files |= {"generated.c": sources["generated.c"]} | driver_interface.sources(kit.include)
    files |= {f"driver/{path.name}": path.read_text() for path in sorted(DRIVER.glob("*.[ch]"))}
    of_interpreter = interpreter.sources()
    files |= {each: _COLD + text for each, text in files.items() if each.endswith(".c") and each not in of_interpreter}
    flags = (*_FLAGS, *interpreter.machine_flags())
    built = _built(name, files, (*compiler.command, *flags), f"{compiler}", kit, cache, script, renamed, _DRIVER_NAMES)
    with kept.written(stamp) as path:
        path.write_text(built.parent.name)
    return built


def _stamp_of_inputs(identity: str, kit: Toolkit, cache: Path) -> Path:
    """A file of the cache that says which library the files made that it is built from, as they are now: reading them
    takes longer than anything else before the program starts."""
    folders = (interpreter.NATIVE, RUNTIME, DRIVER)
    files = [path for folder in folders for path in sorted(folder.rglob("*.[ch]"))]
    files += sorted(Path(__file__).parent.rglob("*.py")) + sorted(kit.include.glob("*.h"))
    state = hashlib.blake2b(f"{identity} {interpreter.machine_flags()}".encode(), digest_size=16)
    for path in files:
        status = path.stat()
        state.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
    return cache.resolve() / "tracers" / f"{state.hexdigest()}.known"


def nccl_library(kit: Toolkit, cache: Path) -> Path:
    """The library that stands in for NCCL, which calls that of ``runtime_library`` in its process; beside it is a link
    of the name that a linker looks for. Raises UserError where it does not build."""
    compiler = c_compiler("the NCCL that is traced")
    files = {path.name: path.read_text() for path in sorted(NCCL.glob("*.[ch]"))}
    calls = sorted({name for text in files.values() for name in _NCCL_CALL.findall(text)})
    renamed = {f"p{name}": name for name in calls}
    script = "{ global: nccl*; pnccl*; local: *; };\n"
    flags = (*_FLAGS, "-fwrapv")
    return _built(
        _NCCL_NAME, files, (*compiler.command, *flags), f"{compiler}", kit, cache, script, renamed, ("libnccl.so",)
    )


def _built(
    name: str,
    files: dict[str, str],
    compiler: Sequence[str],
    identity: str,
    kit: Toolkit,
    cache: Path,
    script: str,
    renamed: dict[str, str],
    links: Sequence[str],
) -> Path:
    state = hashlib.blake2b(f"{compiler} {identity} {kit.version} {renamed} {script}".encode(), digest_size=16)
    for text in files.values():
        state.update(f"{len(text)} {text}".encode())
    built = cache.resolve() / "tracers" / state.hexdigest() / name
    if kept.mapped(built) is None:
        _compile(built, files, compiler, kit, script, renamed, links)
    return built


def _compile(
    built: Path,
    files: dict[str, str],
    compiler: Sequence[str],
    kit: Toolkit,
    script: str,
    renamed: dict[str, str],
    links: Sequence[str],
) -> None:
    """Compile into a folder of its own, then move."""
    try:
        built.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=built.parent) as scratch:
            folder = Path(scratch)
            for name, text in files.items():
                (folder / name).parent.mkdir(exist_ok=True)
                (folder / name).write_text(text)
            (folder / "exports").write_text(script)
            made = folder / built.name
            sources = [str(folder / name) for name in files if name.endswith(".c")]
            linked = [
                f"-Wl,--version-script={folder / 'exports'},-soname,{built.name}",
                *(f"-Wl,--defsym={alias}={name}" for alias, name in sorted(renamed.items())),
            ]
            include = [f"-I{folder}", "-isystem", str(kit.include)]
            command = [*compiler, *include, *sources, *linked, "-o", str(made), "-lm", "-lpthread"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
                told = lines[0].replace(scratch, "native") if lines else f"exit status {done.returncode}"
                raise UserError(f"{built.name} does not build with {shlex.join(compiler[:1])}: {told}")
            kept.seal(made)
            for other in links:
                (folder / other).symlink_to(built.name)
                (folder / other).replace(built.parent / other)
            made.replace(built)
    except OSError as error:
        raise UserError(f"{built.parent}: {error.strerror or error}; name another folder with --cache") from None
