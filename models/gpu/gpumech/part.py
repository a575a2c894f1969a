"""Large launches in GPUMech's extended form: some SMs are followed, with their part of L2's slices and of DRAM.

Blocks are given to SMs in turn, so those of SM s are s, s + SMs, ... as long as all take as long. The SMs of a launch
are put in the order of the instructions of these blocks, cut into as many groups as are followed, and the middle one of
each group is followed. What those are asked for of the slices of L2 and of the channels of DRAM is their share of what
all are, and so is what slices and channels give them: whole channels, with their slices, stand for several each, those
that are asked for about as much together, so that a busy one stays one. L2 itself is whole: what the other SMs ask it
for goes through it as well (gpu/gpumech/bystanders.py).

In the source (Huang, dissertation, Georgia Institute of Technology, 2015, sec. 4.3.3) one warp stands for all; here SMs
do, so that warps wait for each other as they do on the whole GPU.

Cost: O(warps), and O(instructions + requests) of the SMs that are followed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from manyscale.models.gpu.parameters import SECTOR_BYTES, Gpu
from manyscale.models.workload.launch_trace import Access, LaunchTrace, Space

LEAST_INSTRUCTIONS: Final = 1_000_000  # warp instructions of a launch, below which all SMs are followed
WANTED: Final = 100_000  # of those that are followed, at least,
LEAST_SMS: Final = 6  # and so many SMs
LEAST_OFF: Final = 0.05  # relative: the least that the interval of such a launch's cycles is wide, to each side
_LINE: Final = 4  # sectors
_FEW_LINES: Final = 16  # to which most atomics of a launch go, where slices are not asked for alike
_CHANCE: Final = 5.0  # standard deviations of what slices are asked for that come by chance


def reads(trace: LaunchTrace, gpu: Gpu) -> tuple[int, int]:
    """What of a GPU the choice depends on: SMs that get a block, and channels of DRAM."""
    return min(gpu.sms, trace.num_blocks), gpu.dram.channels


def followed_sms(trace: LaunchTrace, gpu: Gpu) -> np.ndarray:
    """int64[n]: the SMs that are followed, ascending; empty: all that get a block."""
    none = np.zeros(0, np.int64)
    sms, channels = reads(trace, gpu)
    if trace.num_instructions < LEAST_INSTRUCTIONS or gpu.l1.sector_bytes != SECTOR_BYTES or _copies(trace):
        return none
    if _few_lines(trace):
        return none
    wanted = max(LEAST_SMS, sms * WANTED / trace.num_instructions)
    shares = (round(sms * part / channels) for part in range(1, channels + 1) if channels % part == 0)
    count = next((each for each in shares if each >= wanted), sms)
    if 2 * count > sms:
        return none
    of_block = np.diff(trace.warp_instructions[trace.block_warps])
    work = np.bincount(np.arange(trace.num_blocks) % sms, of_block, sms)
    order = np.argsort(-work, kind="stable")
    middle = (np.arange(count) * 2 + 1) * sms // (2 * count)
    return np.sort(order[middle])


def _copies(trace: LaunchTrace) -> bool:
    """Whether operands are copied to shared memory: such launches' SMs go from slice to slice of L2 together, so that
    none stands for several."""
    static = trace.static
    copies = np.flatnonzero((static.access == Access.copy) & (static.space != Space.none))
    return bool(len(copies)) and bool(np.isin(trace.instruction, copies).any())


def _few_lines(trace: LaunchTrace) -> bool:
    """Whether atomics, which all go to L2, mostly go to few lines: all SMs wait for the same few slices then."""
    static = trace.static
    in_memory = np.isin(static.space, (Space.global_, Space.local))
    atomics = in_memory & np.isin(static.access, (Access.atomic, Access.reduction))
    if not np.isin(trace.instruction, np.flatnonzero(atomics)).any():
        return False
    asked = np.repeat(atomics[trace.instruction], np.where(in_memory[trace.instruction], trace.accesses, 0))
    line, requests = np.unique(trace.sector[asked] // _LINE, return_counts=True)
    if not len(line):
        return False
    requests.sort()
    return bool(requests[-_FEW_LINES:].sum() > requests.sum() / 2)


def blocks_of(sms: np.ndarray, num_sms: int, num_blocks: int) -> np.ndarray:
    """int64[]: blocks of these SMs, ascending."""
    rows = -(-num_blocks // num_sms)
    blocks = (np.arange(rows)[:, None] * num_sms + sms).ravel()
    return np.asarray(blocks[blocks < num_blocks])


def of_blocks(trace: LaunchTrace, blocks: np.ndarray) -> LaunchTrace:
    """A launch that has these blocks only, without their active threads."""
    warps, block_warps = _chosen(trace.block_warps, blocks)
    instructions, warp_instructions = _chosen(trace.warp_instructions, warps)
    accesses, warp_accesses = _chosen(trace.warp_accesses, warps)
    return replace(
        trace,
        block_warps=block_warps,
        warp_instructions=warp_instructions,
        warp_accesses=warp_accesses,
        instruction=trace.instruction[instructions],
        active=np.zeros(0, np.uint8),
        accesses=trace.accesses[instructions],
        sector=trace.sector[accesses],
        written=trace.written[accesses],
        warp_words=None,
        words=None,
    )


def _chosen(bounds: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int64[] each: where what stands in these rows is, row after row, and its bounds there."""
    counts = bounds[rows + 1] - bounds[rows]
    ends = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    return np.repeat(bounds[rows] - ends[:-1], counts) + np.arange(ends[-1]), ends


def together(load: np.ndarray, channels: int, parts: int) -> np.ndarray:
    """int64[slices]: of each slice, that which stands for it, where ``parts`` stand for all ``channels``, each with as
    many slices as they have. ``load`` float64[slices]: what each is asked for."""
    of_channel = len(load) // channels
    by_channel = load.reshape(channels, of_channel)
    slices = np.broadcast_to(np.arange(of_channel), (channels, of_channel)).copy()
    order = np.arange(channels)
    mean = load.mean()
    if load.max() > mean + _CHANCE * np.sqrt(mean):
        order = np.argsort(-by_channel.sum(axis=1), kind="stable")
        np.put_along_axis(slices, np.argsort(-by_channel, axis=1, kind="stable"), np.arange(of_channel)[None], axis=1)
    group = np.empty(channels, np.int64)
    group[order] = np.arange(channels) * parts // channels
    return np.asarray((group[:, None] * of_channel + slices).ravel())


def last_end(ends: np.ndarray, num_sms: int) -> tuple[float, float]:
    """(cycles by which the last of ``num_sms`` SMs ends behind the last of those that are followed, half the width of
    the 95 % interval of the mean end), from their ``ends`` float64[n]. No SM ends much later than others, since blocks
    go where room is: ends are taken to be uniform, and of n such the last is (n - 1) / (n + 1) of half their range
    behind the mean (David and Nagaraja, "Order Statistics", 2003, sec. 2.2)."""
    count = len(ends)
    off = float(ends.std(ddof=1))
    later = (num_sms - 1) / (num_sms + 1) - (count - 1) / (count + 1)
    return float(np.sqrt(3)) * off * later, 2 * off * float(np.sqrt(1 / count - 1 / num_sms))
