"""TBPoint inside launches of equal blocks on whole GPUs, by the default rules.

``python -m tbpoint.measure_waves DATA [--blocks N,N] [--only NAME,...] [--target NAME,...] [--workload FOLDER]`` in
tests/validation, with manyscale importable. DATA holds ``bfs`` and ``misc``. Launches are the blocks of a traced one
again and again, each round with pages of its own (populations.py), as many as are asked for or just above; and of each
FOLDER (a workload) the first one of the most blocks. Truth: the cycle-level model. Launches of fewer than two waves are
left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from manyscale.models.gpu import detailed
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload.launch_trace import LaunchTrace
from manyscale.runner.problems import load_yaml
from manyscale.runner.readers import workload_folder
from manyscale.runner.study.targets import build_machine, shipped_targets
from manyscale.sampling.tbpoint.regions import RegionRules
from manyscale.sampling.tbpoint.rules import RegionSamplingRules

from .measure_blocks import SAMPLED, fits, sampled
from .populations import REGULAR

TARGETS: Final = ("fermi-tbpoint", "rtx3070", "h100")
BLOCKS: Final = (1849, 7396)
NAMES: Final = ("vectorAdd", "ffmakernel", "bfs-9", "bfs-7")


@dataclass(frozen=True)
class Outcome:
    population: str
    target: str
    blocks: int
    resident: int
    share: float
    error: float
    half_width: float
    cycles: int

    @property
    def waves(self) -> float:
        return self.blocks / self.resident


def gpu_of(name: str) -> Gpu:
    gpu = build_machine(load_yaml(shipped_targets()[name]), name).node.gpu
    assert gpu is not None
    return gpu


def launches(data: Path, names: str, blocks: str, folders: Sequence[Path]) -> Iterator[tuple[str, LaunchTrace]]:
    """``names`` and ``blocks`` with commas between them."""
    for name in filter(None, names.split(",")):
        population = next(one for one in REGULAR if one.name.startswith(name))
        one = replace(population, rounds=1).trace(data)
        for number in map(int, blocks.split(",")):
            yield name, replace(population, rounds=-(-number // one.num_blocks)).trace(data)
    for folder in folders:
        workload = workload_folder.read(folder)
        assert workload.gpu is not None
        row = int(np.argmax(workload.column("launches", "blocks")))
        trace = workload.gpu.trace(int(workload.column("launches", "launch_id")[row]))
        yield trace.kernel_name, trace


def outcomes(name: str, trace: LaunchTrace, targets: Sequence[str]) -> Iterator[Outcome]:
    for target in targets:
        gpu = gpu_of(target)
        resident = gpu.sms * fits(trace, gpu)
        if trace.num_blocks < 2 * resident:
            continue
        full, _ = detailed.simulate(trace, gpu)
        found, _, _ = sampled(trace, gpu, RegionSamplingRules(), RegionRules())
        yield Outcome(
            name, target, trace.num_blocks, resident, found.block_share, found.cycles / full.busy_cycles - 1,
            found.half_width_cycles / full.busy_cycles, full.busy_cycles,
        )  # fmt: skip


def table(rows: Sequence[Outcome]) -> Iterator[str]:
    yield "| blocks of | GPU | blocks | resident | waves | simulated, % | error, % | half-width, % |"
    yield "| --- " * 8 + "|"
    for row in sorted(rows, key=lambda one: one.waves):
        yield (
            f"| {row.population} | {row.target} | {row.blocks} | {row.resident} | {row.waves:.1f} | "
            f"{100 * row.share:.1f} | {100 * row.error:+.2f} | {100 * row.half_width:.2f} |"
        )
    some = [row for row in rows if row.share < SAMPLED]
    error = np.abs([row.error for row in some])
    held = sum(abs(row.error) <= row.half_width for row in some)
    yield ""
    yield (
        f"{len(some)} of {len(rows)} are sampled: {100 * error.mean():.2f} % off in the mean, "
        f"{100 * error.max():.2f} % at most; {held} intervals hold."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="TBPoint inside launches of equal blocks on whole GPUs.")
    parser.add_argument("data", type=Path)
    parser.add_argument("--blocks", default=",".join(map(str, BLOCKS)))
    parser.add_argument("--only", default=",".join(NAMES))
    parser.add_argument("--target", default=",".join(TARGETS))
    parser.add_argument("--workload", type=Path, action="append", default=[])
    asked = parser.parse_args(arguments)
    rows: list[Outcome] = []
    for name, trace in launches(asked.data, asked.only, asked.blocks, asked.workload):
        rows += outcomes(name, trace, asked.target.split(","))
    print("\n".join(table(rows)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
