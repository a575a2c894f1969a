"""The policy data-reuse on simulated cores, on programs whose tasks find data in caches or do not.

``python -m scheduling.compare_reuse trace OUT`` in tests/validation, with manyscale importable and clang installed,
traces the programs of reuse.c; ``python -m scheduling.compare_reuse caches OUT`` prints rows of RESULTS.md: cycles of
the detailed model by policy, and lines that memory or another core's cache serves, on cores with caches that are empty
at first, of several sizes; ``kinds`` those of the factorisation on nodes whose cores are alike and not. ``without
data``: data-reuse by predecessors alone.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from interval.cases import Program, cycles_of
from interval.trace_programs import trace

from manyscale.models.machine import Machine
from manyscale.runner.predict.node.cells import profile_units, simulated_cell
from manyscale.runner.predict.node.cells.open_cell import OpenCell
from manyscale.runner.predict.node.cells.plan import WHOLE
from manyscale.runner.predict.node.options import DetailedChoice
from manyscale.runner.predict.units import Arrays
from manyscale.runner.study.targets import target_named

HERE: Final = Path(__file__).parent
PROGRAMS: Final = {
    "heat": ("64", "1024", "16"),
    "passes": ("128", "1024", "8"),
    "matmul": ("10", "24"),
    "cholesky": ("18", "24"),
}
CORES: Final = 8
# a target, the cache that is changed, and its sizes
MACHINES: Final = (
    ("grass-low-power", "L2", ("256 KiB", "512 KiB", "1 MiB", "2 MiB")),
    ("marenostrum3", "L3", ("640 KiB", "1280 KiB", "2560 KiB")),
)
TARGET: Final = "grass-high-performance"
# what is other of three in four cores
KINDS: Final[dict[str, dict[str, Any]]] = {
    "alike": {},
    "of two clocks": {"frequency": "1.04 GHz"},
    "big and little": {
        "frequency": "1.3 GHz", "core": {"width": 2, "reorder_buffer": 40}, "caches": {"L2": {"size": "512 KiB"}}
    },
}  # fmt: skip
POLICIES: Final = ("fifo", "lifo", "work-stealing", "predicted-critical-path", "critical-path", "without data",
                   "data-reuse")  # fmt: skip


@dataclass(frozen=True)
class Whole(Program):
    """All of a program that has no iterations."""

    @property
    def iteration(self) -> int:
        return WHOLE


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["trace", "caches", "kinds"])
    parser.add_argument("folder", type=Path, metavar="OUT")
    parser.add_argument("--only", default="", help="rows whose name PROGRAM/TARGET/SIZE has this in it")
    options = parser.parse_args()
    folder = options.folder.absolute()
    if options.what == "trace":
        for variant in ("coverage", "counting"):
            (folder / "bin" / variant).mkdir(parents=True, exist_ok=True)
        for name, arguments in PROGRAMS.items():
            trace(folder, name, ["clang", "-O2", "-fopenmp", str(HERE / "reuse.c"), "-lm"], (name, *arguments), HERE)
        return 0
    print(f"{'':44}" + " ".join(f"{each:>24}" for each in POLICIES))
    if options.what == "kinds":
        program = Whole(folder / "apps" / "cholesky")
        for cores, (name, kinds) in ((cores, each) for cores in (16, 64) for each in KINDS.items()):
            given = [{"cores": cores // 4, "speed": 1.0}, {"cores": cores - cores // 4, "speed": 0.4, **kinds}]
            node = {"cores_per_socket": cores, "caches": {"L3": {"shared_by_cores": cores}}}
            row = f"cholesky/{cores} {name}"
            if options.only in row:
                machine = target_named({"name": TARGET, "node": node | ({"core_kinds": given} if kinds else {})})[0]
                print(f"{row:44}" + " ".join(cells(program, machine, cores)), flush=True)
        return 0
    for name in PROGRAMS:
        program = Whole(folder / "apps" / name)
        for target, level, sizes in MACHINES:
            for size in sizes:
                row = f"{name}/{target}/{size}"
                if options.only in row:
                    print(f"{row:44}" + " ".join(cells(program, with_cache(target, level, size), CORES)), flush=True)
    return 0


def with_cache(target: str, level: str, size: str) -> Machine:
    """A target with so much of a cache that all cores share."""
    node: dict[str, Any] = {"caches": {level: {"size": size}}}
    if target == "grass-low-power":
        node |= {"cores_per_socket": CORES}
        node["caches"][level]["shared_by_cores"] = CORES
    return target_named({"name": target, "node": node})[0]


def cells(program: Program, machine: Machine, cores: int) -> list[str]:
    """Cycles of each policy, and the lines that memory or another core's cache serves."""
    cell = program.open(cores, machine)
    own = {"rank": 0, "iteration": WHOLE, "cores": cores, "line_bytes": 64, "instances": True, "analytical": False}
    profile = profile_units.profile_cell(own, program.inputs())
    found = []
    for policy in POLICIES:
        name = "data-reuse" if policy == "without data" else policy
        cycles, lines = simulated(cell, name, profile if policy == "data-reuse" else None, machine, cores)
        found.append(f"{cycles:12.0f} {lines:9.0f}")
    return found


def simulated(cell: OpenCell, policy: str, profile: Arrays | None, machine: Machine, cores: int) -> tuple[float, int]:
    parameters = {
        "rank": 0, "cores": cores, "first_core": 0, "model": "detailed", "seed": 0, "tasks": "full", "taskpoint": None,
        "detailed": DetailedChoice(creation="free", caches="cold").model_dump(mode="json"),
    }  # fmt: skip
    runtime = cell.runtime.model_copy(update={"policy": policy})
    found = simulated_cell.simulate(replace(cell, runtime=runtime), parameters, profile)
    last = int(np.sum(found.arrays["last_misses"]))
    return cycles_of(found, machine), last


if __name__ == "__main__":
    sys.exit(main())
