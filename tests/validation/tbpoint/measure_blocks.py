"""TBPoint inside launches, against full simulation.

``python -m tbpoint.measure_blocks DATA [--csv FILE] [--only NAME] [--kind KIND] [--occupancy NAME,...]`` in
tests/validation, with manyscale importable, prints the tables of RESULTS.md. DATA holds ``bfs`` and ``misc`` (traces by
github.com/sarchlab/mgpusim, MIT).

Truth: the cycle-level model of an RTX 3070 with 1, 2 and 4 SMs, each as full as it can be, with half and with a quarter
of the resident blocks (OCCUPANCIES, rounded up), on populations.py. Launch latency is left out. Baselines take units of
UNIT_INSTRUCTIONS of the full simulation: 10 % at random, as many systematically, and Ideal-SimPoint. Cases are summed
up by kind of population, and by kind and occupancy.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from manyscale.models.gpu import detailed
from manyscale.models.gpu.l2 import warm as warm_l2
from manyscale.models.gpu.memory_state import Memory
from manyscale.models.gpu.occupancy import resident_blocks
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload.launch_trace import LaunchTrace
from manyscale.runner.predict.gpu.blocks import profile_of
from manyscale.runner.predict.gpu.region_sampling import RegionChoice
from manyscale.runner.problems import load_yaml
from manyscale.runner.study.targets import build_machine, shipped_targets
from manyscale.sampling.tbpoint.block_estimate import SampledLaunch
from manyscale.sampling.tbpoint.estimate import estimate
from manyscale.sampling.tbpoint.launches import LaunchCounts, LaunchSampling, choose
from manyscale.sampling.tbpoint.regions import BlockProfile, RegionRules
from manyscale.sampling.tbpoint.rules import RegionSamplingRules

from .baselines import RANDOM_SHARE, Baseline, random_units, simpoint_units, systematic_units
from .populations import AS_TRACED, IRREGULAR, REGULAR, Population, scaled_bfs

UNIT_INSTRUCTIONS: Final = 10_000
FLOOR: Final = 1e-4  # of errors in geometric means
SAMPLED: Final = 0.995  # above this share nothing was skipped
SMS: Final = (1, 2, 4)
OCCUPANCIES: Final = {"full": 1, "half": 2, "quarter": 4}  # divisors of the blocks that fit on an SM
METHODS: Final = {
    "spread": (RegionSamplingRules(), RegionRules()),
    "source": (RegionSamplingRules(rules="source"), RegionRules()),
    "one region": (RegionSamplingRules(), RegionRules(threshold=1e9, variation=1e9)),
}


@dataclass(frozen=True)
class Outcome:
    """Relative errors with their signs; ``l1`` and ``l2`` of miss ratios, absolute; NaN: not known."""

    kind: str
    population: str
    sms: int
    occupancy: str
    blocks: int  # resident, of an SM
    epochs: int
    method: str
    error: float
    half_width: float
    share: float
    l1: float
    l2: float


def gpu_of(sms: int, **changes: object) -> Gpu:
    content = load_yaml(shipped_targets()["rtx3070"])
    content["node"]["gpu"] |= {"sms": sms} | changes
    gpu = build_machine(content, "rtx3070").node.gpu
    assert gpu is not None
    return gpu


def fits(trace: LaunchTrace, gpu: Gpu) -> int:
    x, y, z = trace.block
    return resident_blocks(gpu, x * y * z, trace.registers, trace.shared_bytes)


def configurations(trace: LaunchTrace) -> Iterator[tuple[Gpu, str, int]]:
    """(GPU, occupancy, blocks resident on an SM); of occupancies with as many blocks the first."""
    full = fits(trace, gpu_of(1))
    resident: dict[int, str] = {}
    for name, divisor in OCCUPANCIES.items():
        resident.setdefault(-(-full // divisor), name)
    for blocks, name in resident.items():
        for sms in SMS:
            yield gpu_of(sms) if blocks == full else gpu_of(sms, blocks=blocks), name, blocks


def sampled(
    trace: LaunchTrace,
    gpu: Gpu,
    rules: RegionSamplingRules,
    regions: RegionRules,
    memory: Memory | None = None,
    profile: BlockProfile | None = None,
) -> tuple[SampledLaunch, detailed.LaunchResult, Memory]:
    """``profile``: of the trace, if it is at hand. Counts of the second result are estimated for the whole launch."""
    options = {"regions": regions.model_dump(), "warming": rules.model_dump()}
    choice = RegionChoice(trace, gpu, options, profile)
    result, memory = detailed.simulate(trace, gpu, memory, choice, choice.skipped)
    own = np.array([getattr(result, name) for name in detailed.ASKED_COUNTS])
    counts = choice.counts(result.asked_at, result.asked_counts, own)
    result = replace(result, **dict(zip(detailed.ASKED_COUNTS, counts.tolist(), strict=True)))
    return choice.launch(result.busy_cycles), result, memory


def units_of(
    trace: LaunchTrace, full: detailed.LaunchResult, count: int | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(instructions, cycles, instructions by address) of ``count`` units (None: of UNIT_INSTRUCTIONS, two at least).
    Instructions of a block come evenly."""
    count = count or max(2, round(trace.num_instructions / UNIT_INSTRUCTIONS))
    issued = np.concatenate(([0], np.cumsum(full.ipc)))
    clock = np.minimum(np.arange(len(issued)) * full.ipc_cycles, full.busy_cycles)
    edges = np.interp(np.linspace(0, issued[-1], count + 1), issued, clock)
    edges[0], edges[-1] = 0, full.busy_cycles
    begin, end = full.block_begin, np.maximum(full.block_end, full.block_begin + 1)
    first = np.clip(np.searchsorted(edges, begin, side="right") - 1, 0, count - 1)
    last = np.clip(np.searchsorted(edges, end, side="left") - 1, first, count - 1)
    number = last - first + 1
    block = np.repeat(np.arange(len(begin)), number)
    unit = np.repeat(first, number) + np.arange(len(block)) - np.repeat(np.cumsum(number) - number, number)
    overlap = np.minimum(end[block], edges[unit + 1]) - np.maximum(begin[block], edges[unit])
    share = np.maximum(overlap, 0) / (end - begin)[block]
    address = np.unique(trace.static.pc, return_inverse=True)[1]
    begins = trace.warp_instructions[trace.block_warps]
    of_block = np.repeat(np.arange(trace.num_blocks), np.diff(begins))
    width = int(address.max()) + 1
    counts = np.bincount(of_block * width + address[trace.instruction], minlength=trace.num_blocks * width)
    vectors = np.zeros((count, width))
    np.add.at(vectors, unit, share[:, None] * counts.reshape(-1, width)[block])
    return np.full(count, trace.num_instructions / count), np.diff(edges), vectors


def _random_count(units: np.ndarray) -> int:
    return max(1, round(RANDOM_SHARE * len(units)))


BASELINES: Final[dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], Baseline]]] = {
    "random": lambda instructions, cycles, _: random_units(instructions, cycles, _random_count(cycles), 0),
    "systematic": lambda instructions, cycles, _: systematic_units(instructions, cycles, _random_count(cycles), 0),
    "simpoint": simpoint_units,
}


def outcomes(
    population: Population,
    kind: str,
    data: Path,
    methods: Sequence[str],
    occupancies: Sequence[str] = tuple(OCCUPANCIES),
    baselines: Sequence[str] = tuple(BASELINES),
) -> Iterator[Outcome]:
    trace = population.trace(data)
    profile = profile_of(trace)
    for gpu, occupancy, blocks in configurations(trace):
        if occupancy not in occupancies:
            continue
        full, _ = detailed.simulate(trace, gpu)
        epochs = trace.num_blocks // (gpu.sms * blocks)
        same = (kind, population.name, gpu.sms, occupancy, blocks, epochs)
        for method in methods:
            found, result, _ = sampled(trace, gpu, *METHODS[method], profile=profile)
            yield Outcome(
                *same, method, found.cycles / full.busy_cycles - 1, found.half_width_cycles / full.busy_cycles,
                found.instruction_share, result.l1_miss_ratio - full.l1_miss_ratio,
                result.l2_miss_ratio - full.l2_miss_ratio,
            )  # fmt: skip
        units = units_of(trace, full)
        for method in baselines:
            found = BASELINES[method](*units)
            error = found.total_cycles / full.busy_cycles - 1
            yield Outcome(*same, method, error, np.nan, found.instruction_share, np.nan, np.nan)


def combined(data: Path, sms: int, rounds: int = 40) -> tuple[float, float, int]:
    """(error, share of instructions, representatives): BFS's 16 launches, each of as many ``rounds``, one after the
    other. Representatives of clusters run with their blocks sampled; L2 is shown the accesses of the other launches."""
    gpu = gpu_of(sms)
    traces = scaled_bfs(data, rounds)
    memory, cycles = None, []
    for trace in traces:
        result, memory = detailed.simulate(trace, gpu, memory)
        cycles.append(result.busy_cycles)
    profiles = [profile_of(trace) for trace in traces]
    counts = LaunchCounts(
        np.arange(16) % 2,
        *(np.array([getattr(one, name).sum() for one in profiles]) for name in (
            "thread_instructions", "warp_instructions", "memory_requests",
        )),
        np.array([one.size_variation for one in profiles]),
    )  # fmt: skip
    sample = choose(counts, LaunchSampling())
    found, simulated = [], 0.0
    memory = detailed.l2_of(gpu)
    for index, trace in enumerate(traces):
        if index not in sample.chosen:
            warm_l2.touch(trace, gpu, memory)
            continue
        launch, _, memory = sampled(trace, gpu, *METHODS["spread"], memory)
        found.append(launch.cycles)
        simulated += launch.instruction_share * trace.num_instructions
    whole = estimate(sample, counts.warp_instructions, np.array(found))
    return whole.total_cycles / sum(cycles) - 1, simulated / counts.warp_instructions.sum(), len(sample.chosen)


def table(rows: Sequence[Outcome], by: Sequence[str] = ("kind",)) -> Iterator[str]:
    """Errors in %, one line for each method and each value of the columns ``by``, of the cases in which something was
    skipped."""
    names = (*by, "method")
    columns = (*names, "cases", "skipped", "mean", "worst", "geometric", "held", "half-width", "size", "L1", "L2")
    yield f"| {' | '.join(columns)} |"
    yield "| --- " * len(columns) + "|"
    for group in dict.fromkeys(tuple(getattr(row, name) for name in names) for row in rows):
        every = [row for row in rows if tuple(getattr(row, name) for name in names) == group]
        head = f"| {' | '.join(group)} | {len(every)}"
        own = [row for row in every if row.share < SAMPLED]
        if not own:
            yield f"{head} | 0 |" + " |" * 8
            continue
        error = np.abs([row.error for row in own])
        has_interval = own[0].method in METHODS
        held = np.mean([abs(row.error) <= row.half_width for row in own])
        width = np.median([row.half_width for row in own])
        l1, l2 = (np.mean(np.abs([getattr(row, name) for row in own])) for name in ("l1", "l2"))
        of_interval = f"{100 * held:.0f} | {100 * width:.2g}" if has_interval else " | "
        of_caches = f"{l1:.4f} | {l2:.4f}" if has_interval else " | "
        yield (
            f"{head} | {len(own)} | {100 * error.mean():.2f} | {100 * error.max():.2f} | "
            f"{100 * np.exp(np.log(np.maximum(error, FLOOR)).mean()):.2f} | {of_interval} | "
            f"{100 * np.mean([row.share for row in own]):.1f} | {of_caches} |"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="TBPoint inside launches against full simulation.")
    parser.add_argument("data", type=Path)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--only", help="populations whose names contain this")
    parser.add_argument("--kind", help="of populations: regular, irregular or as traced")
    parser.add_argument("--occupancy", default=",".join(OCCUPANCIES), help="of " + ", ".join(OCCUPANCIES))
    asked = parser.parse_args(arguments)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads of k-means wait for each other longer than they compute
    rows: list[Outcome] = []
    groups = (
        ("regular", REGULAR, ("spread", "source")),
        ("irregular", IRREGULAR, ("spread", "source", "one region")),
        ("as traced", AS_TRACED, ("spread", "source")),
    )
    for kind, populations, methods in groups:
        for population in populations:
            if asked.kind in (None, kind) and (asked.only is None or asked.only in population.name):
                rows += outcomes(population, kind, asked.data, methods, asked.occupancy.split(","))
                print(population.name, file=sys.stderr, flush=True)
    print("\n".join(table(rows)))
    print("\n" + "\n".join(table([row for row in rows if row.kind != "as traced"], ("kind", "occupancy"))))
    if asked.csv and rows:
        with asked.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(asdict(rows[0])), lineterminator="\n")
            writer.writeheader()
            for row in rows:
                values = asdict(row)
                writer.writerow({key: f"{v:.6g}" if isinstance(v, float) else v for key, v in values.items()})
    if asked.only is asked.kind is None:
        for sms in (1, 2, 4):
            error, share, count = combined(asked.data, sms)
            print(f"bfs, 16 launches x40, {sms} SMs: {count} representatives, {error:+.2%}, {share:.1%} simulated")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
