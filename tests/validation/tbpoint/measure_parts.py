"""Launches of equal blocks on a part of the GPU: what that would say of the whole GPU.

``python -m tbpoint.measure_parts DATA [--blocks N,N] [--only NAME,...] [--target NAME,...] [--sms N] [--workload
FOLDER]`` in tests/validation, with manyscale importable. Launches as of measure_waves.py, and of each FOLDER (a
workload) the first one of the most blocks.

A part has a few SMs and their share of L2 and DRAM: as many channels as come nearest, their bandwidth and the ways of
L2 so that both are the SMs' share. It runs the SMs' share of each wave, which is as many blocks as the whole GPU holds:
consecutive ones, from another place in each wave (multiples of the golden ratio modulo 1). ``--sms`` 0: the fewest
whose share of the channels is within NEAR of a whole number. Truth: the cycle-level model of the whole GPU. Scale-model
simulation of GPUs (SeyyedAghaei, Naderan-Tahan, Eeckhout, HPCA 2024) scales likewise.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from manyscale.models.gpu import detailed
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload.launch_trace import LaunchTrace

from .measure_blocks import fits
from .measure_waves import BLOCKS, NAMES, gpu_of, launches

NEAR: Final = 0.1
PLACES: Final = (0.0, 0.4, 0.8)  # of the first wave's blocks
TARGETS: Final = ("rtx3070", "h100", "a100")
_GOLDEN: Final = 0.6180339887498949


def part_of(gpu: Gpu, sms: int) -> Gpu:
    """``sms`` of its SMs, and their share of L2 and DRAM."""
    share = sms / gpu.sms
    channels = max(1, round(gpu.dram.channels * share))
    ways = max(1, round(gpu.l2.ways * gpu.dram.channels * share / channels))
    slices = channels * (gpu.l2.slices // gpu.dram.channels)
    size = slices * gpu.l2.num_sets * ways * gpu.l2.line_bytes
    l2 = gpu.l2.model_copy(update={"slices": slices, "ways": ways, "size_bytes": size})
    bandwidth = gpu.dram.bandwidth_ps_per_byte / share
    dram = gpu.dram.model_copy(update={"channels": channels, "bandwidth_ps_per_byte": bandwidth})
    return gpu.model_copy(update={"sms": sms, "l2": l2, "dram": dram})


def fewest_sms(gpu: Gpu) -> int:
    """Whose share of the channels is near a whole number of them."""
    for sms in range(1, gpu.sms):
        channels = gpu.dram.channels * sms / gpu.sms
        if abs(max(1, round(channels)) / channels - 1) <= NEAR:
            return sms
    return gpu.sms


class Thinned(detailed.BlockChoice):
    """Of each wave of ``resident`` blocks the share that ``part`` of them is, from ``place`` on."""

    def __init__(self, count: int, resident: int, part: int, place: float) -> None:
        chosen: list[int] = []
        for wave, begin in enumerate(range(0, count, resident)):
            size = min(resident, count - begin)
            number = -(-size * part // resident)
            first = begin + int((place + wave * _GOLDEN) % 1.0 * (size - number + 1))
            chosen += range(first, first + number)
        self.chosen, self._count, self._at, self._first = chosen, count, 0, 0

    def next(self) -> tuple[int, int]:
        return self._first, self.chosen[self._at] if self._at < len(self.chosen) else self._count

    def dispatched(self, block: int, time: int, issued: float) -> None:
        self._at += 1
        self._first = block + 1

    def ended(self, block: int, time: int, issued: float) -> None:
        pass


@dataclass(frozen=True)
class Outcome:
    """``errors``: relative, of the cycles, with the part at each of PLACES; ``variation`` of the blocks' instructions;
    ``share`` of the blocks that run on ``sms`` SMs."""

    name: str
    target: str
    blocks: int
    waves: float
    variation: float
    sms: int
    share: float
    errors: tuple[float, ...]


def outcome(name: str, trace: LaunchTrace, target: str, sms: int) -> Outcome | None:
    """None for fewer than two waves."""
    gpu = gpu_of(target)
    slots, count = fits(trace, gpu), trace.num_blocks
    if count < 2 * slots * gpu.sms:
        return None
    full, _ = detailed.simulate(trace, gpu)
    sms = sms or fewest_sms(gpu)
    part, errors, ran = part_of(gpu, sms), [], 0
    for place in PLACES:
        choice = Thinned(count, slots * gpu.sms, slots * sms, place)
        found, _ = detailed.simulate(trace, part, None, choice)
        errors.append(found.busy_cycles / full.busy_cycles - 1)
        ran = len(choice.chosen)
    size = np.diff(trace.warp_instructions[trace.block_warps])
    return Outcome(
        name, target, count, count / (slots * gpu.sms), float(size.std() / size.mean()), sms, ran / count, tuple(errors)
    )


def table(rows: Sequence[Outcome]) -> Iterator[str]:
    yield "| blocks of | GPU | blocks | waves | variation | SMs | simulated, % | errors, % |"
    yield "| --- " * 8 + "|"
    for row in rows:
        errors = ", ".join(f"{100 * one:+.1f}" for one in row.errors)
        yield (
            f"| {row.name} | {row.target} | {row.blocks} | {row.waves:.1f} | {row.variation:.3f} | {row.sms} | "
            f"{100 * row.share:.1f} | {errors} |"
        )
    found = np.abs([row.errors for row in rows]).ravel()
    yield ""
    yield (
        f"{len(found)} runs: {100 * found.mean():.2f} % off in the mean, {100 * found.max():.2f} % at most, 95 % of "
        f"them within {100 * np.quantile(found, 0.95):.1f} %, {np.count_nonzero(found <= 0.01)} within 1 %."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Launches of equal blocks on a part of the GPU.")
    parser.add_argument("data", type=Path)
    parser.add_argument("--blocks", default=",".join(map(str, BLOCKS)))
    parser.add_argument("--only", default=",".join(NAMES))
    parser.add_argument("--target", default=",".join(TARGETS))
    parser.add_argument("--sms", type=int, default=0)
    parser.add_argument("--workload", type=Path, action="append", default=[])
    asked = parser.parse_args(arguments)
    rows = [
        found
        for name, trace in launches(asked.data, asked.only, asked.blocks, asked.workload)
        for target in asked.target.split(",")
        if (found := outcome(name, trace, target, asked.sms)) is not None
    ]
    print("\n".join(table(rows)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
