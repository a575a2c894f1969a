"""NVIDIA's compilers, which the user installs under NVIDIA's licence: those of pip's packages (extra ``cuda``) or of a
toolkit, and the words with which a program is linked with the shared runtime.

They are looked for in the packages of this Python first, then in the folder that the environment variable CUDA_HOME (or
CUDA_PATH) names, beside the ``nvcc`` of the PATH, and in /usr/local/cuda.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from manyscale.runner.errors import UserError
from manyscale.runner.tracers.cuda.generate import soname, version

EXTRA: Final = "pip install 'manyscale[cuda]'"
_PIP_FOLDERS: Final = ("nvidia/cu13", "nvidia/cu14")


@dataclass(frozen=True)
class Toolkit:
    """A folder with ``bin``, ``include`` and libraries."""

    home: Path

    def tool(self, name: str) -> Path:
        """Raises UserError, with the extra that has it, where it is missing."""
        path = self.home / "bin" / name
        if path.is_file():
            return path
        elsewhere = shutil.which(name)
        if elsewhere is None:
            raise UserError(f"{self.home}: has no {name}, which reads the program's device code; {EXTRA}")
        return Path(elsewhere)

    @property
    def include(self) -> Path:
        targets = self.home / "targets" / "x86_64-linux" / "include"
        return targets if not (self.home / "include").is_dir() and targets.is_dir() else self.home / "include"

    @cached_property
    def version(self) -> int:
        """13050 for 13.5."""
        return version(self.include)

    @cached_property
    def shared_runtime(self) -> Path:
        """NVIDIA's own shared runtime, with which programs are linked. Raises UserError."""
        name = soname(self.version)
        for folder in ("lib", "lib64", "targets/x86_64-linux/lib"):
            if (self.home / folder / name).exists():
                return self.home / folder / name
        raise UserError(f"{self.home}: has no {name}; {EXTRA}")


def toolkit(main_version: int | None = None) -> Toolkit:
    """The first toolkit that is found, of CUDA ``main_version`` where that is given. Raises UserError."""
    others = []
    for home in dict.fromkeys(_homes()):
        found = Toolkit(home)
        if not (found.include / "cuda_runtime_api.h").is_file():
            continue
        if main_version is None or found.version // 1000 == main_version:
            return found
        others.append(f"CUDA {found.version // 1000} in {home}")
    if others:
        raise UserError(
            f"the program is linked with the runtime of CUDA {main_version}, and here is {', '.join(others)}; build it "
            f"with that, or name the toolkit of CUDA {main_version} in the variable CUDA_HOME"
        )
    raise UserError(f"no CUDA compiler is installed (nvcc, cuobjdump and CUDA's headers); {EXTRA}")


def flags(kit: Toolkit, cache: Path) -> list[str]:
    """Words to add to an nvcc command that links a program with the shared runtime; ``cache``: where a folder is made
    that names it as the linker looks for it, since pip's packages have ``libcudart.so.13`` alone.

    The program finds NVIDIA's own library when it runs elsewhere, and manyscale's under ``manyscale trace``."""
    library = kit.shared_runtime
    folder = cache.resolve() / "cuda-link" / f"{kit.version}"
    link = folder / "libcudart.so"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink() or link.resolve() != library.resolve():
            made = folder / f".libcudart.so.{os.getpid()}"
            made.unlink(missing_ok=True)
            made.symlink_to(library)
            made.replace(link)
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror or error}; name another folder with --cache") from None
    return [
        "-cudart", "shared", f"-L{folder}",
        "-Xlinker", "--enable-new-dtags", "-Xlinker", f"-rpath={library.parent}",
    ]  # fmt: skip


def _homes() -> Iterator[Path]:
    for place in dict.fromkeys(sysconfig.get_paths()[name] for name in ("platlib", "purelib")):
        yield from (Path(place) / folder for folder in _PIP_FOLDERS)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if value := os.environ.get(variable):
            yield Path(value)
    if nvcc := shutil.which("nvcc"):
        yield Path(nvcc).resolve().parent.parent
    yield Path("/usr/local/cuda")
