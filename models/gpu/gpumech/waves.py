"""Large launches of like blocks in GPUMech's extended form: the first waves and the last ones are replayed, whole waves
between them are skipped.

A wave is as many consecutive blocks as all SMs hold at a time. What each wave does is known of all of them, since the
walk through the caches (gpu/gpumech/collector.py) goes through every access: instructions, cycles of segments,
requests, those that leave the SM, wait, are answered by memory or written back to it, those of the busiest slice of L2,
and its longest block. Waves are skipped only where each of these is, in the mean over the waves that are skipped, as in
the waves that say how long one takes, and no skipped wave is far from it. How long a wave takes is the mean time from
each block's begin to that of the block one wave behind, once it agrees between waves (the rule of
sampling/tbpoint/state.py, which lies above models); where it never does, all waves are replayed. A wave that is skipped
takes as long; the interval is the range of the measured ones, and no narrower than what may differ unnoticed.

Not in the source (Huang, dissertation, Georgia Institute of Technology, 2015). Cost: O(segments + accesses + lines)
once for a profile, O(blocks) and a replay of few waves for each prediction.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.gpu.gpumech.collector import WAITS_L1, WAITS_L2
from manyscale.models.gpu.gpumech.outline import Outline
from manyscale.models.gpu.gpumech.segments import IN_SHARED
from manyscale.models.kernels import inner

LEAST_INSTRUCTIONS: Final = 1_000_000  # warp instructions of a launch, below which all of it is replayed
FIRST_WAVES: Final = 8  # that are always replayed
KNOWN: Final = 6  # waves, the first half of which must agree with the other, and which say how long a wave takes;
AGREE: Final = 0.02  # relative
LAST_WAVES: Final = 1  # at least, and less than one more, that are replayed at the end
_LEAST_SKIPPED: Final = 0.5  # of the blocks: else all are replayed
_MEAN_DIFFERS: Final = 0.02  # most that skipped waves may differ from the measured ones, in the mean,
_WAVE_DIFFERS: Final = 0.15  # and each of them, relative;
_FLOOR: Final = 0.002  # beyond that, a share of the largest measure of requests, since small ones come by chance
_COUNTS: Final = (
    "instructions", "cycles", "accesses", "passes", "sent", "fetched", "written_back", "waiting", "busiest",
)  # fmt: skip
NUM_MEASURES: Final = len(_COUNTS) + 1  # and the longest block
_REQUESTS: Final = slice(2, len(_COUNTS))  # those of accesses


def measures(outlined: Outline, found: np.ndarray, size: int, slices: int) -> np.ndarray:
    """int64[waves, NUM_MEASURES] of a launch in waves of ``size`` blocks; without rows for one that is always replayed
    as a whole."""
    if size == 0 or outlined.launch[1] < LEAST_INSTRUCTIONS or outlined.num_blocks < 2 * FIRST_WAVES * size:
        return np.zeros((0, NUM_MEASURES), np.int64)
    warp = np.append(outlined.block_warps[:-1:size], outlined.block_warps[-1])
    segments, accesses, lines = (
        first[warp] for first in (outlined.first_segment, outlined.first_access, outlined.first_line)
    )
    waits = (found["waits"] & (WAITS_L1 | WAITS_L2)) != 0
    of_segments = _sums(outlined.segment["issued"], segments), _sums(outlined.segment["cycles"], segments)
    past_l1 = np.where(outlined.access["kind"] == IN_SHARED, 0, outlined.access["requests"])
    of_accesses = _sums(past_l1, accesses), _sums(outlined.access["passes"], accesses)
    of_lines = (_sums(found[name], lines) for name in ("sent", "fetched", "written_back"))
    wave = np.repeat(np.arange(len(warp) - 1), np.diff(lines))
    slot = wave * slices + found["slice"]
    busiest = np.bincount(slot, found["sent"], (len(warp) - 1) * slices).reshape(-1, slices).max(axis=1)
    long = np.maximum.reduceat(
        _sums(outlined.segment["cycles"], outlined.first_segment[outlined.block_warps]),
        np.arange(0, outlined.num_blocks, size),
    )
    rows = [*of_segments, *of_accesses, *of_lines, _sums(waits, lines), busiest.astype(np.int64), long]
    return np.stack(rows, axis=1)


def _sums(values: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """int64[n - 1]: of the values between each two of ``bounds`` int64[n]."""
    whole = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=whole[1:])
    return np.asarray(np.diff(whole[bounds]))


def may_skip(measured: np.ndarray, num_blocks: int, size: int) -> np.ndarray:
    """uint8[waves]: 1 where all waves but the last ones may be skipped from that one on, for what the waves before it
    do; ``measured`` as ``measures`` returns it. O(waves)."""
    result = np.zeros(len(measured), np.uint8)
    if not len(measured):
        return result
    end = num_blocks // size - LAST_WAVES
    whole = np.concatenate((np.zeros((1, NUM_MEASURES), np.int64), np.cumsum(measured[:end], axis=0)))
    backwards = measured[:end][::-1]
    highest, lowest = np.maximum.accumulate(backwards)[::-1], np.minimum.accumulate(backwards)[::-1]
    for first in range(FIRST_WAVES, end):
        if (end - first) * size < _LEAST_SKIPPED * num_blocks:
            break
        known = (whole[first] - whole[first - KNOWN]) / KNOWN
        skipped = (whole[end] - whole[first]) / (end - first)
        most = _MEAN_DIFFERS * known
        most[_REQUESTS] += _FLOOR * known[_REQUESTS].max()
        apart = np.maximum(highest[first] - known, known - lowest[first])
        apart[-1] = highest[first][-1] - measured[first - KNOWN : first, -1].max()  # a shorter one does no harm
        of_mean = np.abs(skipped - known)
        of_mean[-1] = 0
        result[first] = np.all(of_mean <= most) and np.all(apart <= most * (_WAVE_DIFFERS / _MEAN_DIFFERS))
    return result


@inner
def skipped_blocks(block, given, size, waves, lasting):  # type: ignore[no-untyped-def]
    """How many blocks to skip when block ``given`` is the next one to begin; ``waves`` as ``may_skip`` returns it;
    ``lasting``: waves at the end that stay."""
    if size == 0 or given % size != 0 or given // size >= len(waves) or waves[given // size] == 0:
        return np.int64(0)
    half = KNOWN // 2 * size
    begun, middle, before = 0, 0, 0
    for i in range(given - size, given):
        begun += block[i].begin
        middle += block[i - half].begin
        before += block[i - 2 * half].begin
    whole = begun - before
    if whole <= 0 or abs(begun - 2 * middle + before) > AGREE / 2 * whole:
        return np.int64(0)
    return (len(block) // size - lasting) * size - given


def skip_cycles(begin: np.ndarray, first: int, size: int) -> tuple[float, float]:
    """(cycles of a wave, how many it may be off), from when the blocks [0, ``first``) began: half the range of those of
    single waves, but no less than the share by which what skipped waves do may differ in the mean."""
    of_wave = begin[first - (KNOWN + 1) * size : first].reshape(-1, size).mean(axis=1)
    apart = np.diff(of_wave)
    mean = float(apart.mean())
    return mean, max(float(np.ptp(apart)) / 2, _MEAN_DIFFERS * mean)


def placed(blocks: np.ndarray, first: int, end: int, cycles: int) -> None:
    """Blocks [``first``, ``end``) were skipped, and took ``cycles``: they are on SM -1, and begin and end at -1."""
    for name in ("sm", "begin", "end"):
        blocks[name][first:end] = -1
    for name in ("begin", "end"):
        blocks[name][end:] += cycles
