"""How the interpreter is compiled: its C files, the header that ``codes`` makes, and flags that its results rest on."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path
from typing import Final

from manyscale.runner.tracers.cuda.sass import codes

NATIVE: Final = Path(__file__).parent / "native"
# products and sums are rounded one by one, and rounding modes are heeded
FLAGS: Final = (
    "-std=gnu11", "-O3", "-g1", "-fPIC", "-shared", "-ffp-contract=off", "-frounding-math", "-fno-math-errno",
    "-fno-strict-aliasing", "-Wall", "-Wextra", "-Werror",
)  # fmt: skip


@cache
def machine_flags() -> tuple[str, ...]:
    """Instructions of this machine that the interpreter is many times slower without: fused products."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return ()
    try:
        words = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return ()
    return ("-march=x86-64-v3",) if {"avx2", "fma", "bmi2", "f16c", "movbe"} <= words else ()


def sources() -> dict[str, str]:
    """C files by name, and ``ops.h``."""
    return {path.name: path.read_text() for path in sorted(NATIVE.rglob("*.[ch]"))} | {"ops.h": codes.header()}
