"""Interval profiles of warps, and the warp that represents the others.

Source: GPUMech (Huang, dissertation, Georgia Institute of Technology, 2015): interval algorithm (sec. 4.3.2, eq. 13),
representative warp (sec. 4.3.3, eq. 14 and 15), latency of an instruction as its average access time (sec. 4.5.2).

An instruction is issued a cycle after the one before it and after its operands are done; where it comes later, the
instructions since the last stall are an interval, and the difference its stall cycles. Dependences are those through
the registers that the tracer saw, written ones, too (a scoreboard waits for these).

Cost: O(instructions x operands) for all warps, O(warps) for each pass of the clustering.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.gpu.gpumech.collector import FETCHED, REQUESTS, SENT, TO_DRAM, TO_L1, TO_L2
from manyscale.models.gpu.gpumech.segments import equal
from manyscale.models.gpu.launch_program import MEMORY, SHARED, STORE
from manyscale.models.kernels import inlined, njit

REPRESENTATIVES: Final = ("clustering", "max", "min")
_PASSES: Final = 100  # of the clustering
_NOTHING: Final = -1
_INTERVAL: Final = np.dtype(  # as in IntervalProfile; ``end``: the position behind its last instruction
    [("instructions", "i8"), ("stall_cycles", "f8"), ("cause", "i8"), ("end", "i8")]
)


@dataclass(frozen=True)
class IntervalProfile:
    """Intervals of a warp, in their order: ``instructions`` int64; ``stall_cycles`` float64 (0 behind the last);
    ``cause`` int64: the static instruction whose result ends the stall, -1: none. Expected of each interval, float64:
    ``memory_instructions`` that load, ``miss_requests`` of loads that leave L1, ``dram_requests``."""

    instructions: np.ndarray
    stall_cycles: np.ndarray
    cause: np.ndarray
    memory_instructions: np.ndarray
    miss_requests: np.ndarray
    dram_requests: np.ndarray


def average_access_cycles(shares: np.ndarray, cycles: np.ndarray) -> np.ndarray:
    """Latency of instructions whose executions L1, L2 and DRAM answer in ``shares`` [rows, 3], after ``cycles`` [3]."""
    return shares @ cycles


def level_shares(met: np.ndarray) -> np.ndarray:
    """float64[static, 3]: by which level the executions of each instruction are answered (L1, where there are none)."""
    counts = met[:, TO_L1 : TO_DRAM + 1].astype(np.float64)
    total = counts.sum(axis=1)
    counts[total == 0, TO_L1] = 1
    return counts / np.maximum(total, 1)[:, None]


def latencies(static: np.ndarray, results: np.ndarray, met: np.ndarray, cycles: np.ndarray) -> np.ndarray:
    """float64[static]: from the issue of an instruction to the cycle in which its result is done, which is the one
    before the issue of an instruction that needs it. ``results``: gpumech_segments.results; ``cycles`` [3]: the same
    for loads that L1, L2 and DRAM answer; ``met``: gpumech_collector.walk."""
    found = results.astype(np.float64)
    memory = static["kind"] == MEMORY
    found[memory] = average_access_cycles(level_shares(met)[memory], cycles)
    shared = static["kind"] == SHARED
    found[shared] += met[shared, REQUESTS] / np.maximum(met[shared, TO_L1], 1)
    return found - 1


@inlined
def _issue(own, operand, ready, producer, clock):  # type: ignore[no-untyped-def]
    """When an instruction is issued that could be at ``clock`` but for its operands, and which of them is last."""
    time = clock
    slowest = -1
    for i in range(own.first, own.end):
        register = operand[i]
        if ready[register] > time:
            time = ready[register]
            slowest = register
    return time, producer[slowest] if slowest >= 0 else _NOTHING


@njit(cache=True, nogil=True)
def warp_cycles(static, operand, latency, warp_first, instruction, registers, cycles):  # type: ignore[no-untyped-def]
    """``cycles`` float64[warps]: of each warp, alone on a core (instructions and stalls)."""
    ready = np.zeros(registers)
    clock = 0.0  # goes on from warp to warp, so that ``ready`` needs no emptying
    like = 0  # the last warp that is not like the one before it
    for warp in range(len(warp_first) - 1):
        count = warp_first[warp + 1] - warp_first[warp]
        alike = warp > 0 and warp_first[like + 1] - warp_first[like] == count
        if alike and equal(instruction, warp_first[warp], warp_first[like], count):
            cycles[warp] = cycles[like]
            continue
        like = warp
        begin = clock
        latest = clock
        for at in range(warp_first[warp], warp_first[warp + 1]):
            row = instruction[at]
            own = static[row]
            for i in range(own.first, own.end):
                clock = max(clock, ready[operand[i]])
            done = clock + latency[row] + 1
            for i in range(own.first, own.written):
                ready[operand[i]] = done
            latest = max(latest, done)
            clock += 1
        cycles[warp] = clock - begin
        clock = max(clock, latest)


@njit(cache=True, nogil=True)
def _intervals(static, operand, latency, rows, registers, interval):  # type: ignore[no-untyped-def]
    """Fill in a warp's intervals: how many."""
    ready = np.zeros(registers)
    producer = np.full(registers, _NOTHING)
    clock = 0.0
    count = 0
    issued = 0
    for at in range(len(rows)):
        row = rows[at]
        own = static[row]
        time, slowest = _issue(own, operand, ready, producer, clock)
        if time > clock:
            found = interval[count]
            found.instructions = issued
            found.stall_cycles = time - clock
            found.cause = slowest
            found.end = at
            count += 1
            issued = 0
        issued += 1
        done = time + latency[row] + 1
        for i in range(own.first, own.written):
            ready[operand[i]] = done
            producer[operand[i]] = row
        clock = time + 1
    if issued:
        found = interval[count]
        found.instructions = issued
        found.stall_cycles = 0
        found.cause = _NOTHING
        found.end = len(rows)
        count += 1
    return count


def interval_profile(
    static: np.ndarray, operand: np.ndarray, rows: np.ndarray, latency: np.ndarray, met: np.ndarray, registers: int,
    written_back: float,
) -> IntervalProfile:  # fmt: skip
    """Of a warp that executes ``rows`` (into ``static``). ``latency``: see ``latencies``; ``written_back``: requests to
    DRAM for each request of a store."""
    n = len(rows)
    interval = np.empty(n, _INTERVAL)
    interval = interval[: _intervals(static, operand, latency, rows, registers, interval)]
    instructions, stalls, cause = (interval[name].copy() for name in ("instructions", "stall_cycles", "cause"))
    bounds = np.concatenate(([0], interval["end"]))
    executed = np.maximum(met[:, TO_L1] + met[:, TO_L2] + met[:, TO_DRAM], 1)
    memory = static["kind"] == MEMORY
    loads = memory & (static["access"] != STORE)
    fetched = np.where(loads, met[:, FETCHED], met[:, REQUESTS] * written_back)

    def of_intervals(each: np.ndarray) -> np.ndarray:
        sums: np.ndarray = np.diff(np.concatenate(([0.0], np.cumsum(each[rows])))[bounds])
        return sums

    return IntervalProfile(
        instructions, stalls, cause, of_intervals(loads.astype(np.float64)),
        of_intervals(np.where(loads, met[:, SENT] / executed, 0)),
        of_intervals(np.where(memory, fetched / executed, 0)),
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _two_means(x, y, second):  # type: ignore[no-untyped-def]
    """Lloyd's algorithm from the point that is farthest from the mean and the one that is farthest from that:
    ``second`` bool[points], those of the other cluster. Returns the centres."""
    n = len(x)
    ax, ay = x.mean(), y.mean()
    for pair in range(2):
        bx, by, most = ax, ay, -1.0
        for i in range(n):
            distance = (x[i] - ax) ** 2 + (y[i] - ay) ** 2
            if distance > most:
                bx, by, most = x[i], y[i], distance
        if pair == 0:
            ax, ay = bx, by
    for step in range(_PASSES):
        changed = step == 0
        sums = np.zeros((2, 3))
        for i in range(n):
            is_second = (x[i] - bx) ** 2 + (y[i] - by) ** 2 < (x[i] - ax) ** 2 + (y[i] - ay) ** 2
            changed |= is_second != second[i]
            second[i] = is_second
            row = sums[1 if is_second else 0]
            row[0] += x[i]
            row[1] += y[i]
            row[2] += 1
        if sums[0, 2]:
            ax, ay = sums[0, 0] / sums[0, 2], sums[0, 1] / sums[0, 2]
        if sums[1, 2]:
            bx, by = sums[1, 0] / sums[1, 2], sums[1, 1] / sums[1, 2]
        if not changed:
            break
    return ax, ay, bx, by


def representatives(instructions: np.ndarray, cycles: np.ndarray) -> dict[str, int]:
    """The warp that stands for all by each method of REPRESENTATIVES, from ``instructions`` and ``cycles`` of each.
    Of warps that are equally near the first is taken; those without instructions are none."""
    warps = np.flatnonzero(instructions > 0)
    if not len(warps):
        return dict.fromkeys(REPRESENTATIVES, 0)
    performance = instructions[warps] / cycles[warps]
    x, y = performance / performance.mean(), instructions[warps] / instructions[warps].mean()
    second = np.zeros(len(warps), np.bool_)
    ax, ay, bx, by = _two_means(x, y, second)
    larger = second if 2 * int(second.sum()) > len(warps) else ~second
    cx, cy = (bx, by) if larger is second else (ax, ay)
    distance = np.where(larger, (x - cx) ** 2 + (y - cy) ** 2, np.inf)
    chosen = (distance.argmin(), performance.argmax(), performance.argmin())
    return {name: int(warps[each]) for name, each in zip(REPRESENTATIVES, chosen, strict=True)}
