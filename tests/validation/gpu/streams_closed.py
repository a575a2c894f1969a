"""What launches that share a GPU should take, from launches alone or from the rate of a unit: three and more of them,
priorities, one that comes in the middle of another, other shapes of blocks, other shares of shared memory."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_host import Gives
from gpu_programs import integer, launch, load, special
from validation.gpu.streams import (
    SMS,
    WARPS,
    Block,
    computing,
    cycles_of,
    reading,
    run,
    simulated,
    small_gpu,
    using,
    waiting,
)

from manyscale.models.gpu import detailed
from manyscale.models.workload.launch_trace import LaunchTrace
from manyscale.runner.run.results import Result

FULL = SMS * 48 // WARPS  # blocks that fill the GPU


def alone(blocks: list[Block]) -> int:
    return simulated(blocks, small_gpu())[1].busy_cycles


def ps(cycles: float) -> int:
    return round(cycles * 1e12 / small_gpu().frequency_hz)


def ends(result: Result) -> list[int]:
    """Cycles at which each launch ends, in the order in which the host gave them."""
    rows = [row for row in result.gpu_streams.to_pylist() if row["operation"] == "launch"]
    return [
        round(row["end_ps"] * small_gpu().frequency_hz * 1e-12)
        for row in sorted(rows, key=lambda row: row["launch_id"])
    ]


def three_kinds() -> tuple[int, int]:
    """Integers, chains, and loads that nothing waits for, a sixth, a third and a sixth of the GPU, as one launch."""
    blocks = [
        [computing(300)] * (FULL // 6), [waiting(150)] * (FULL // 3),
        [reading(24, b, 1 << 24) for b in range(FULL // 6)],
    ]  # fmt: skip
    both = alone([block for own in blocks for block in own])
    return both, cycles_of(run(*(Gives(launch(own), k + 1) for k, own in enumerate(blocks))))


def four_of_memory() -> tuple[int, int]:
    """Four launches that each use lines of DRAM of their own, a wave each, as one launch."""
    blocks = [[using(16, b, (1 + k) << 24) for b in range(FULL)] for k in range(4)]
    both = alone([block for own in blocks for block in own])
    return both, cycles_of(run(*(Gives(launch(own), k + 1) for k, own in enumerate(blocks))))


def in_the_middle() -> tuple[int, int]:
    """The unit of integers is busy from the first cycle to the last, though B comes in the middle of A: both take what
    they take one after the other."""
    blocks = [computing(600)] * (FULL // 2)
    whole = alone(blocks)
    return 2 * whole, cycles_of(run(Gives(launch(blocks), 1), Gives(launch(blocks), 2, after_ps=ps(whole / 2))))


def _waves(count: int) -> list[Block]:
    """Chains in blocks that fill an SM each: a wave takes what a block takes."""
    return [[[special(1, 1) for _ in range(100)] for _ in range(48)]] * (count * SMS)


def urgent() -> tuple[int, int]:
    """A has four waves. B, of one wave and a higher priority, comes in the middle of the first and begins behind it."""
    wave = alone(_waves(1))
    found = ends(
        run(Gives(launch(_waves(4)), 1), Gives(launch(_waves(1)), 2, priority=-1, after_ps=ps(wave / 2)))
    )  # fmt: skip
    return 2 * wave, found[1]


def patient() -> tuple[int, int]:
    """The same without a priority: B begins behind A's last wave."""
    wave = alone(_waves(1))
    found = ends(run(Gives(launch(_waves(4)), 1), Gives(launch(_waves(1)), 2, after_ps=ps(wave / 2))))
    return 5 * wave, found[1]


def other_shapes() -> tuple[int, int]:
    """Chains in blocks of 3 and of 7 warps, one of each on each SM: nothing holds them up."""
    first = [[[special(1, 1) for _ in range(90)] for _ in range(3)]] * SMS
    second = [[[special(1, 1) for _ in range(140)] for _ in range(7)]] * SMS
    result = run(Gives(launch(first), 1), Gives(launch(second), 2))
    return max(alone(first), alone(second)), cycles_of(result)


def _rereading(shared: int) -> LaunchTrace:
    """A warp of each SM reads the same 32 KiB three times, each load behind the one before."""
    lines = [each for k in range(256) for each in (load(k % 40, *range(4 * k, 4 * k + 4)), integer(200, k % 40))]
    return launch([[lines * 3]] * SMS, shared=shared)


def small_l1() -> tuple[int, int]:
    """Beside blocks that take 100 of an SM's 128 KiB for shared memory, for some cycles: what it takes alone when its
    own blocks have as much."""
    expected, _ = detailed.simulate(_rereading(90_000), small_gpu())
    large = launch([[[special(1, 1) for _ in range(40)]]] * SMS, shared=90_000)
    return expected.busy_cycles, ends(run(Gives(_rereading(0), 1), Gives(large, 2)))[0]


def of_chains() -> tuple[int, int]:
    """Five launches of two streams in turn, on SMs of their own: the longer stream's sum."""
    sizes = (150, 400, 220, 90, 310)
    launches = [[[[special(1, 1) for _ in range(count)]]] for count in sizes]
    times = [alone(each) for each in launches]
    found = cycles_of(run(*(Gives(launch(each), 1 + k % 2) for k, each in enumerate(launches))))
    return max(times[0] + times[2] + times[4], times[1] + times[3]), found


CLOSED = {
    "integers + chains + loads, three streams (as one launch)": three_kinds,
    "four streams of memory (as one launch)": four_of_memory,
    "integers, B in the middle of A": in_the_middle,
    "B of a higher priority in the middle of A's first of four waves: end of B": urgent,
    "the same without a priority: end of B": patient,
    "chains in blocks of 3 and of 7 warps": other_shapes,
    "32 KiB that are read again beside a launch with 90 KB of shared memory": small_l1,
    "five launches in two streams, on SMs of their own": of_chains,
}


def closed_cases() -> Iterator[tuple[str, int, int]]:
    """Name, expected cycles, and those of a run."""
    for name, case in CLOSED.items():
        yield name, *case()
