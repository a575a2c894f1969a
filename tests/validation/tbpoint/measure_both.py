"""TBPoint between launches and GPUMech, each alone and together, against the cycle-level model.

``python -m tbpoint.measure_both DATA`` in tests/validation, with manyscale importable, prints the table of RESULTS.md.
DATA holds ``bfs`` and ``misc`` (traces by github.com/sarchlab/mgpusim, MIT).

Truth: the cycle-level model of an RTX 3070, of all launches one after the other, L2 as those before left it, launch
latency left out. GPUs: as it is (46 SMs), and with 4 SMs. Populations (SEQUENCES) are BFS's 16 launches as traced, and
rounds of real launches: of BFS with pages of its own for each round, and of all applications in turn on the same data.

* TBPoint: the launch nearest to each cluster's centre is simulated, L2 is shown the accesses of the others.
* GPUMech: each launch is predicted, in the extended form, functional caches kept from launch to launch.
* both: the launches that TBPoint chooses are predicted by GPUMech, its L2 is shown the accesses of the others.
* auto: the same two with representatives drawn at random, several of a cluster (``representatives: auto``).

CPU time is of this process, without reading traces, the least of REPEATS; kernels are compiled before.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Final, TypeVar

import numpy as np

from manyscale.models.gpu import detailed
from manyscale.models.gpu.gpumech import model as gpumech
from manyscale.models.gpu.l2 import warm as warm_l2
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload.launch_trace import LaunchTrace
from manyscale.sampling.tbpoint.estimate import estimate
from manyscale.sampling.tbpoint.launches import LaunchCounts, LaunchSampling, choose

from .measure_blocks import gpu_of, profile_of
from .populations import packed, real_launches

Result = TypeVar("Result")
SMS: Final = (46, 4)
METHODS: Final = ("TBPoint", "GPUMech", "both", "TBPoint, auto", "both, auto")
REPEATS: Final = 3
_MISC: Final = ("simple-trace-example", "rodinia-b+tree-128-1000", "simtune-ffmakernel-4096-16")
_ALL: Final = ("bfs", *(f"misc/{name}" for name in _MISC))


@dataclass(frozen=True)
class LaunchSequence:
    """Launches of ``folders``, in ``rounds``; ``is_shifted``: each round has pages of its own."""

    name: str
    folders: tuple[str, ...]
    rounds: int
    is_shifted: bool = True

    def traces(self, data: Path) -> list[LaunchTrace]:
        """Launches, their kernels named by application. O(accesses)."""
        parts = [
            replace(trace, kernel_name=f"{folder}: {trace.kernel_name}")
            for folder in self.folders
            for trace in real_launches(data / folder)
        ]
        touched, count = packed([one.sector for one in parts]) if self.is_shifted else ([p.sector for p in parts], 0)
        rounds = [
            [replace(one, sector=sector + turn * count) for one, sector in zip(parts, touched, strict=True)]
            for turn in range(self.rounds)
        ]
        return [replace(one, launch_id=place) for place, one in enumerate(chain(*rounds), start=1)]


SEQUENCES: Final = (
    LaunchSequence("bfs", ("bfs",), 1, False),
    LaunchSequence("bfs x8", ("bfs",), 8),
    LaunchSequence("all x8, same data", _ALL, 8, False),
)


@dataclass(frozen=True)
class Outcome:
    """``error`` of the cycles of all launches, relative, with its sign; ``cpu``: of the cycle-level model's CPU time,
    of all launches; ``launches`` that were simulated or predicted, ``share`` of warp instructions in them."""

    sequence: str
    sms: int
    num_launches: int
    method: str
    error: float
    launches: int
    share: float
    cpu: float


def counts_of(traces: Sequence[LaunchTrace]) -> LaunchCounts:
    profiles = [profile_of(trace) for trace in traces]
    kernel = np.unique([trace.kernel_name for trace in traces], return_inverse=True)[1]
    names = ("thread_instructions", "warp_instructions", "memory_requests")
    columns = [np.array([getattr(one, name).sum() for one in profiles]) for name in names]
    return LaunchCounts(kernel, *columns, np.array([one.size_variation for one in profiles]))


def simulated(traces: Sequence[LaunchTrace], gpu: Gpu, chosen: np.ndarray) -> np.ndarray:
    """Cycles of the launches ``chosen``, by the cycle-level model."""
    memory, cycles = detailed.l2_of(gpu), []
    for index, trace in enumerate(traces):
        if index in chosen:
            result, memory = detailed.simulate(trace, gpu, memory)
            cycles.append(result.busy_cycles)
        else:
            warm_l2.touch(trace, gpu, memory)
    return np.array(cycles, np.float64)


def predicted(traces: Sequence[LaunchTrace], gpu: Gpu, chosen: np.ndarray) -> np.ndarray:
    """Cycles of the launches ``chosen``, by GPUMech."""
    l2, cycles = gpumech.l2_of(gpu), []
    for index, trace in enumerate(traces):
        if index in chosen:
            profile = gpumech.collect(trace, gpu, l2, representative=False)
            cycles.append(gpumech.predict(profile, gpu).cycles)
        else:
            gpumech.touch(trace, gpu, l2)
    return np.array(cycles)


def outcomes(sequence: LaunchSequence, traces: Sequence[LaunchTrace], gpu: Gpu) -> Iterator[Outcome]:
    """One for each of METHODS."""
    every = np.arange(len(traces))
    truth, whole = timed(lambda: simulated(traces, gpu, every))
    counts, profiling = timed(lambda: counts_of(traces))
    samples = {"": choose(counts, LaunchSampling()), ", auto": choose(counts, LaunchSampling(representatives="auto"))}
    instructions = counts.warp_instructions
    for method in METHODS:
        is_sampled = method != "GPUMech"
        sample = samples[", auto" if method.endswith("auto") else ""]
        chosen = sample.chosen if is_sampled else every
        model = simulated if method.startswith("TBPoint") else predicted
        cycles, seconds = timed(lambda m=model, c=chosen: m(traces, gpu, c))
        total = estimate(sample, instructions, cycles).total_cycles if is_sampled else cycles.sum()
        yield Outcome(
            sequence.name, gpu.sms, len(traces), method, total / truth.sum() - 1, len(chosen),
            instructions[chosen].sum() / instructions.sum(), (seconds + profiling * is_sampled) / whole,
        )  # fmt: skip


def timed(call: Callable[[], Result]) -> tuple[Result, float]:
    """What ``call`` returns, and its CPU seconds, the least of REPEATS."""
    least = np.inf
    for _ in range(REPEATS):
        begin = time.process_time()
        result = call()
        least = min(least, time.process_time() - begin)
    return result, least


def table(rows: Sequence[Outcome]) -> Iterator[str]:
    """Errors and shares in %."""
    yield "| launches | SMs | of | method | launches run | instructions in them | error | CPU time |"
    yield "| --- " * 8 + "|"
    for row in rows:
        yield (
            f"| {row.sequence} | {row.sms} | {row.num_launches} | {row.method} | {row.launches} | "
            f"{100 * row.share:.1f} | {100 * row.error:+.1f} | {100 * row.cpu:.0f} |"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="TBPoint between launches and GPUMech, alone and together.")
    parser.add_argument("data", type=Path)
    parser.add_argument("--only", help="sequences whose names contain this")
    asked = parser.parse_args(arguments)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    few = SEQUENCES[0].traces(asked.data)[:2]
    for model in (simulated, predicted):  # compile both, and what warms their caches
        model(few, gpu_of(1), np.array([1]))
    rows: list[Outcome] = []
    for sequence in SEQUENCES:
        if asked.only is None or asked.only in sequence.name:
            traces = sequence.traces(asked.data)
            for sms in SMS:
                rows += outcomes(sequence, traces, gpu_of(sms))
    print("\n".join(table(rows)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
