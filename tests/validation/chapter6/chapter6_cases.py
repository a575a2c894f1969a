"""The cases of chapter 6: how each program is run, by name.

A case is a program, its input, and a number of ranks. ``traced`` is what the trace of one core comes from.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

HYDRO_INPUT: Final = """&RUN
tend=200
nstepmax={steps}
/
&MESH
nx={nx}
ny={ny}
nxystep={nxystep}
prt=0
dx=0.05
boundary_left=1
boundary_right=1
boundary_down=1
boundary_up=1
testcase=1
/
&HYDRO
courant_factor=0.8
niter_riemann=10
/
"""
NAS_INPUT: Final = "{steps}\n0.0\n0\n"  # steps, time step (0: the class's), timers


@dataclass(frozen=True)
class Case:
    """``arguments`` of the program; ``files``: what stands in its working directory. ``of_threads``: the program to
    trace for predictions on several cores, where it is another one (empty: the same). ``is_own``: it is built from a
    source that stands beside this file, and for bursts alone."""

    program: str
    ranks: int
    arguments: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    of_threads: str = ""
    is_own: bool = False

    def write_files(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in self.files:
            (folder / name).write_text(text)


def hydro(ranks: int, nx: int = 250, ny: int = 125, steps: int = 20) -> Case:
    text = HYDRO_INPUT.format(steps=steps, nx=nx, ny=ny, nxystep=ny)
    return Case("hydro", ranks, ("-i", "input.nml"), (("input.nml", text),))


def lulesh(ranks: int, size: int = 20, steps: int = 20) -> Case:
    """Its number of ranks has to be a cube."""
    return Case("lulesh", ranks, ("-s", str(size), "-i", str(steps)), of_threads="lulesh.threads")


def minife(ranks: int, size: int = 24) -> Case:
    """Conjugate gradients until they converge: 79 iterations of 25^3 rows."""
    return Case("minife", ranks, (f"nx={size}",))


def nas(name: str, ranks: int, size: str = "W", steps: int = 20) -> Case:
    """``name``: bt-mz or sp-mz. Class W: 16 zones; S: 4."""
    text = NAS_INPUT.format(steps=steps)
    return Case(f"{name}.{size}.{ranks}", ranks, (), ((f"input{name}.data", text),))


def creator(work: int, tasks: int = 1000, steps: int = 60) -> Case:
    """Tasks that one thread creates, of ``work`` steps of a chain each: some 1 ns a step."""
    return Case("creator", 1, (str(steps), str(tasks), str(work)), is_own=True)


# ranks whose traces are predicted on many cores each
DESIGN: Final = {
    "hydro-4": hydro(4, nx=500, ny=500, steps=6),
    "lulesh-8": lulesh(8, size=15, steps=6),
    "minife-4": minife(4, size=40),
    **{f"{name}-4": nas(name, 4, steps=6) for name in ("bt-mz", "sp-mz")},
}
# one core each
RANKS: Final = {
    **{f"hydro-{ranks}": hydro(ranks, nx=500, ny=500, steps=6) for ranks in (1, 2, 4, 8, 16)},
    **{f"minife-{ranks}": minife(ranks, size=40) for ranks in (1, 2, 4, 8, 16)},
    **{f"{name}-{ranks}": nas(name, ranks, steps=6) for name in ("bt-mz", "sp-mz") for ranks in (1, 2, 4, 8, 16)},
}
# what two cores can run
NATIVE: Final = {
    **{f"hydro-{ranks}": hydro(ranks) for ranks in (1, 2)},
    "lulesh-1": lulesh(1),
    **{f"minife-{ranks}": minife(ranks) for ranks in (1, 2)},
    **{f"{name}-{ranks}": nas(name, ranks) for name in ("bt-mz", "sp-mz") for ranks in (1, 2)},
    **{f"{name}-s-{ranks}": nas(name, ranks, "S") for name in ("bt-mz", "sp-mz") for ranks in (1, 2)},
    **{f"creator-{work}": creator(work) for work in (50, 200, 500, 1000, 2000, 5000)},
}
