"""The device code of a program: the cubins in its executable and in the libraries that it loads, those that the GPU
that is shown can run. Where there is PTX alone, ``ptxas`` compiles it, as CUDA's driver does."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from manyscale.runner import kept
from manyscale.runner.errors import UserError
from manyscale.runner.tracers.cuda.compiler import Toolkit
from manyscale.runner.tracers.cuda.cubin import Cubin

_NAME: Final = re.compile(r"\.sm_(\d+)([af]?)\.(cubin|ptx)$")
_FATBIN: Final = ".nv_fatbin"


@dataclass(frozen=True)
class Linked:
    """``files``: the program and its libraries that hold device code; ``runtime``: the version of CUDA whose shared
    runtime it is linked with, None for none; ``has_nccl``: whether it is linked with NCCL."""

    files: tuple[Path, ...]
    runtime: int | None
    has_nccl: bool = False


NOTHING: Final = Linked((), None)


def linked(program: Path) -> Linked:
    """What a program is made of, by what the loader finds for it. Raises UserError."""
    listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False).stdout
    paths = [Path(match[1]) for match in re.finditer(r"=> (/\S+)", listed)]
    versions = re.findall(r"\blibcudart\.so\.(\d+)", listed)
    system = ("/lib/", "/lib64/", "/usr/lib/")
    stood_in = ("libcudart.so", "libnccl.so")
    libraries = [each for each in paths if not str(each).startswith(system) and not each.name.startswith(stood_in)]
    files = tuple(each for each in (program, *libraries) if _has_device_code(each))
    return Linked(files, int(versions[0]) if versions else None, "libnccl.so" in listed)


def check(program: Path, found: Linked) -> int | None:
    """The version of CUDA that a program was built with, None where it is not seen in the program, which may load CUDA
    when it runs, as Python does. Raises UserError, saying how to link it, for one that cannot be traced."""
    if found.runtime is None and found.files:
        raise UserError(
            f"{program}: is linked with the static CUDA runtime, for which nothing can stand in; link it with the "
            "shared one: add to nvcc what `manyscale trace --nvcc` prints"
        )
    return found.runtime


def extract(files: Iterable[Path], capability: int, kit: Toolkit, scratch: Path) -> list[Cubin]:
    """The cubins of files, in their order, that a GPU of a compute capability (86: 8.6) runs; ``scratch``: a folder for
    them. Raises UserError where a file has none that it could run."""
    found: list[Cubin] = []
    for number, path in enumerate(files):
        folder = scratch / str(number)
        folder.mkdir(parents=True)
        _cuobjdump(kit, ["-xelf", "all", str(path.resolve())], folder, path)
        cubins = [cubin for cubin in _cubins(folder) if cubin.is_linked]
        chosen = _runnable(cubins, capability)
        if not chosen:
            chosen = _compiled(path, capability, kit, folder)
        if not chosen:
            has = ", ".join(sorted({f"sm_{cubin.architecture}" for cubin in cubins})) or "no machine code"
            raise UserError(
                f"{path}: has {has}, and no PTX for a GPU of compute capability {capability // 10}.{capability % 10}; "
                f"compile it with nvcc -arch=sm_{capability}, or show another GPU with --as"
            )
        found += chosen
    return found


def _cubins(folder: Path) -> list[Cubin]:
    found = []
    for path in sorted(folder.glob("*.cubin"), key=_order):
        match = _NAME.search(path.name)
        if match is not None:
            found.append(Cubin(path, int(match[1])))
    return found


def _order(path: Path) -> list[int]:
    return [int(word) for word in re.findall(r"\.(\d+)\.sm_", path.name)]


def _runnable(cubins: Sequence[Cubin], capability: int) -> list[Cubin]:
    """Those of the best architecture (of the same main number, and not newer), and of others those with kernels that no
    better one has; code that is for one GPU alone (sm_90a) runs on that."""
    fitting = [
        each
        for each in cubins
        if each.architecture == capability
        or (each.architecture // 10 == capability // 10 and each.architecture < capability and not _is_for_one(each))
    ]
    chosen: list[Cubin] = []
    for architecture in sorted({each.architecture for each in fitting}, reverse=True):
        known = {name for each in chosen for name in each.kernels}
        chosen += [
            each
            for each in fitting
            if each.architecture == architecture and (not known or not set(each.kernels) <= known)
        ]
    return chosen


def _is_for_one(cubin: Cubin) -> bool:
    """Whether it is code for one GPU or one family alone."""
    match = _NAME.search(cubin.path.name)
    return match is not None and bool(match[2])


def _compiled(path: Path, capability: int, kit: Toolkit, folder: Path) -> list[Cubin]:
    """What ptxas makes of the PTX in a file."""
    _cuobjdump(kit, ["-xptx", "all", str(path.resolve())], folder, path)
    sources = {each: _NAME.search(each.name) for each in sorted(folder.glob("*.ptx"), key=_order)}
    best = max((int(match[1]) for match in sources.values() if match and int(match[1]) <= capability), default=None)
    made = []
    for source, match in sources.items():
        if match is None or int(match[1]) != best:
            continue
        cubin = folder / f"{source.stem.rpartition('.sm_')[0]}.sm_{capability}.cubin"
        command = [str(kit.tool("ptxas")), f"-arch=sm_{capability}", str(source), "-o", str(cubin)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UserError(f"{path}: ptxas cannot compile its PTX: {_last_line(done.stderr)}")
        made.append(Cubin(cubin, capability))
    if made:
        print(f"manyscale: {path.name}: its PTX was compiled for sm_{capability}", file=sys.stderr)
    return made


def disassembled(cubin: Cubin, kit: Toolkit, cache: Path | None = None) -> str:
    """What ``cuobjdump -sass`` writes of a cubin; of the same bytes it is kept in ``cache``. Raises UserError."""
    words = ["-sass", cubin.path.name]
    if cache is None:
        return _cuobjdump(kit, words, cubin.path.parent, cubin.path)
    tool = kit.tool("cuobjdump")
    status = tool.stat()
    state = hashlib.blake2b(f"{tool} {status.st_size} {status.st_mtime_ns} ".encode(), digest_size=16)
    state.update(cubin.path.read_bytes())
    place = cache.resolve() / "cuda-listings" / state.hexdigest()
    known = kept.mapped(place)
    if known is not None:
        return zlib.decompress(known).decode()
    text = _cuobjdump(kit, words, cubin.path.parent, cubin.path)
    try:
        with kept.written(place) as path:
            path.write_bytes(zlib.compress(text.encode(), 1))
    except OSError as error:
        raise UserError(f"{place.parent}: {error.strerror or error}; name another folder with --cache") from None
    return text


def _cuobjdump(kit: Toolkit, words: Sequence[str], folder: Path, path: Path) -> str:
    environment = {**os.environ, "PATH": f"{kit.home / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"}
    command = [str(kit.tool("cuobjdump")), *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)
    if done.returncode and "does not contain device code" not in done.stderr:
        raise UserError(f"{path}: cuobjdump cannot read its device code: {_last_line(done.stderr)}")
    return done.stdout


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it says nothing"])[-1]


def _has_device_code(path: Path) -> bool:
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        with path.open("rb") as file:
            return ELFFile(file).get_section_by_name(_FATBIN) is not None
    except (OSError, ELFError):
        return False
