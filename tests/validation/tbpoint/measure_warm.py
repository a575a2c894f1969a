"""What launches leave in L2 that are not simulated, against what a simulation leaves there.

``python -m tbpoint.measure_warm DATA [--scratch FOLDER]`` in tests/validation, with manyscale and what is in tests
importable, prints the table of RESULTS.md. DATA holds ``bfs`` and ``misc`` (traces by github.com/sarchlab/mgpusim,
MIT); FOLDER what measure_table_vi.py traced.

Each launch but the first is simulated twice: behind launches that were simulated, and behind the same launches of which
L2 was only shown the accesses.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from gpu_programs import Instruction, launch, load, store

from manyscale.models.gpu import detailed
from manyscale.models.gpu.l2 import warm as warm_l2
from manyscale.models.gpu.memory_state import Memory
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload.launch_trace import LaunchTrace
from manyscale.runner.problems import load_yaml
from manyscale.runner.readers import workload_folder
from manyscale.runner.study.targets import shipped_targets

from .measure_table_vi import target
from .populations import real_launches

TARGETS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("rtx3070", {}),
    ("fermi-tbpoint", {}),
    ("rtx3070", {"l2": {"size": "128 KiB", "ways": 4}}),
    ("fermi-tbpoint", {"l2": {"size": "96 KiB"}}),
)
PROGRAMS: Final = {"cfd": (0, 8), "spmv": (0, 4), "mst": (2, 8), "conv": (0, 5)}  # launches of table VI's
_BLOCKS: Final = 368  # of a sweep, of _WARPS warps
_WARPS: Final = 4
_COPIES: Final = 4_000_000  # line from which on a sweep writes


@dataclass(frozen=True)
class Difference:
    """``lines``: share of L2's lines that both hold, ``readable`` and ``written``: shares of these with the same such
    sectors; ``cycles`` relative, ``misses`` of the miss ratio of L2: of the launch behind, with their signs."""

    lines: float
    readable: float
    written: float
    cycles: float
    misses: float


def sweep(first: int, rounds: int) -> LaunchTrace:
    """A copy of lines from ``first`` on: in each round a warp reads a line and writes another one."""

    def warp(number: int) -> Iterator[Instruction]:
        for turn in range(rounds):
            line = first + turn * _BLOCKS * _WARPS + number
            yield load(10, *range(4 * line, 4 * line + 4), source=11)
            yield store(*range(4 * (_COPIES + line), 4 * (_COPIES + line) + 4), source=10)

    return launch([[list(warp(block * _WARPS + each)) for each in range(_WARPS)] for block in range(_BLOCKS)])


def held(memory: Memory) -> dict[int, tuple[int, int]]:
    """{line: (sectors that can be read, that were written)}"""
    places = memory.tag >= 0
    lines = memory.line[places]
    sectors = zip(lines["valid"].tolist(), lines["dirty"].tolist(), strict=True)
    return dict(zip(memory.tag[places].tolist(), sectors, strict=True))


def differences(traces: Sequence[LaunchTrace], gpu: Gpu) -> Iterator[Difference]:
    true, shown = detailed.l2_of(gpu), detailed.l2_of(gpu)
    for number, trace in enumerate(traces):
        lines, found = held(true), held(shown)
        behind = Memory(*(each.copy() for each in shown))
        of_true, true = detailed.simulate(trace, gpu, true)
        if number > 0:
            of_shown, _ = detailed.simulate(trace, gpu, behind)
            both = lines.keys() & found.keys()
            yield Difference(
                len(both) / max(len(lines), len(found)),
                *(float(np.mean([lines[one][i] == found[one][i] for one in both])) for i in (0, 1)),
                of_shown.busy_cycles / of_true.busy_cycles - 1,
                of_shown.l2_miss_ratio - of_true.l2_miss_ratio,
            )
        warm_l2.touch(trace, gpu, shown)


def sequences(data: Path, scratch: Path | None) -> Iterator[tuple[str, list[LaunchTrace]]]:
    yield "bfs-16", real_launches(data / "bfs")
    yield "b+tree x2", 2 * real_launches(data / "misc/rodinia-b+tree-128-1000")
    yield "copies of 29,440 lines, overlapping", [sweep(first, 20) for first in (0, 10_000, 0)]
    for name, (first, end) in PROGRAMS.items() if scratch else ():
        assert scratch is not None
        streams = workload_folder.read(scratch / f"{name}-small" / "traced").gpu
        assert streams is not None
        yield f"{name}, small", [streams.trace(one) for one in list(streams.launch_ids)[first:end]]


def base_of(gpu: str, part: str) -> dict[str, Any]:
    """A part of a shipped target's GPU."""
    content: dict[str, Any] = load_yaml(shipped_targets()[gpu])["node"]["gpu"][part]
    return content


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="What launches leave in L2, shown and simulated.")
    parser.add_argument("data", type=Path)
    parser.add_argument("--scratch", type=Path)
    asked = parser.parse_args(arguments)
    print("| launches | GPU | same lines | readable | written | cycles, % | worst | L2 miss ratio | worst |")
    print("| --- " * 9 + "|")
    for name, traces in sequences(asked.data, asked.scratch):
        for gpu, changes in TARGETS:
            changed = {part: {**base_of(gpu, part), **more} for part, more in changes.items()}
            found = list(differences(traces, target(gpu, **changed)))
            mean = [
                float(np.mean([getattr(one, field) for one in found])) for field in ("lines", "readable", "written")
            ]
            cycles, misses = (np.abs([getattr(one, field) for one in found]) for field in ("cycles", "misses"))
            size = f", L2 of {changes['l2']['size']}" if changes else ""
            print(
                f"| {name} | {gpu}{size} | {mean[0]:.3f} | {mean[1]:.3f} | {mean[2]:.3f} | {100 * cycles.mean():.2f} | "
                f"{100 * cycles.max():.2f} | {misses.mean():.4f} | {misses.max():.4f} |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
