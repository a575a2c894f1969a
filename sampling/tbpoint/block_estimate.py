"""What a launch takes whose blocks were partly skipped (tbpoint/state.py), and how far that may be off.

Table IV of TBPoint (IPDPS 2014): what was simulated, and instructions of the skipped blocks by an IPC.

*Source*: the IPC of the last unit before the skip. The interval takes the units that agreed as draws from units of one
IPC: their relative variance, pooled over all skips (half the squared relative difference, for two), is that of the IPC
of each skip, which errs independently of the others'. With one skip of two units Student's t has one degree of freedom,
12.7. Units that happened to agree understate how much units vary, and none can say what comes later.

*Spread*: cycles per instruction in the mean of the samples on both sides, which follows a drift along the blocks; of
what is skipped until L2 is full, of the sample before alone; where none follows, of the last two, if they are alike. A
sample's are the cycles of its units (lives, tbpoint/spread.py) by the instructions executed in them. How many these
are is known of ended blocks only; they are taken to come evenly over a block's life, which is less noisy than counting
them as they are issued, as blocks at the edges are in different parts of the kernel. What was simulated between a skip
and the next unit is replaced like the skipped blocks: its caches are not what they would be.

The interval has three parts. Samples are draws: their relative variance within runs, pooled (or that of units in them,
if it says more), and the weight of each give that of the sum; the skipped blocks' own spread counts as that of as many
samples as they would make. To this comes STATE_ERROR of the skipped cycles, for what no sample can see: caches and the
phases of residents are as simulated blocks left them, not as skipped ones would have. It is not from theory: it was
raised until intervals held, and all 34 inside launches in tests/validation/tbpoint/RESULTS.md do: of others
that says little. Student's t with the degrees of freedom between samples, by Satterthwaite's rule.

*Counts* that add up (accesses, misses) are estimated as cycles are: each skip by the counts per instruction of the
samples beside it. So what a launch counts where it begins, with cold caches, stands for itself alone. The source's
units are too short for that (when a request is counted is known to some hundred cycles): there, counts are taken to
grow with instructions.

Cost: O(blocks log blocks).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.sampling.tbpoint.state import RegionSampling

STATE_ERROR: Final = 0.02
ALIKE: Final = 0.05


@dataclass(frozen=True)
class SampledLaunch:
    """A launch whose blocks were partly skipped: ``cycles`` +- ``half_width_cycles`` with ``confidence``, variance of
    ``cycles``, and shares of warp instructions and of blocks that were simulated."""

    cycles: float
    half_width_cycles: float
    variance: float
    skipped_cycles: float
    instruction_share: float
    block_share: float


def sampled_launch(state: RegionSampling, simulated_cycles: float, confidence: float = 0.95) -> SampledLaunch:
    """Table IV: what was simulated, and instructions by IPC of what was skipped. Raises ValueError for a confidence not
    between 0 and 1.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; it must lie between 0 and 1")
    skips = state.skips[: int(state.now["num_skips"][0])]
    units = state.units[: int(state.now["num_units"][0])]
    skipped, variance, freedom = (_by_last_unit if state.rule["is_source"][0] else _by_neighbours)(state, skips, units)
    half_width = 0.0
    if variance > 0:
        from scipy.special import stdtrit

        half_width = float(stdtrit(freedom, (1 + confidence) / 2) * np.sqrt(variance))
    total = max(int(state.instructions[-1]), 1)
    num_skipped = int((skips["last"] - skips["first"] + 1).sum())
    return SampledLaunch(
        cycles=simulated_cycles + skipped,
        half_width_cycles=half_width,
        variance=variance,
        skipped_cycles=skipped,
        instruction_share=1 - int(skips["instructions"].sum()) / total,
        block_share=1 - num_skipped / max(len(state.region), 1),
    )


def _by_last_unit(state: RegionSampling, skips: np.ndarray, units: np.ndarray) -> tuple[float, float, float]:
    """The source's estimate: (skipped cycles, variance, degrees of freedom)."""
    squares, freedom = 0.0, 0
    for skip in skips:
        ipc = units["ipc"][int(skip["first_unit"]) : int(skip["first_unit"] + skip["num_units"])]
        squares += float(((ipc / ipc.mean() - 1) ** 2).sum())
        freedom += len(ipc) - 1
    cycles = skips["instructions"] / units["ipc"][skips["first_unit"] + skips["num_units"] - 1]
    relative = squares / freedom if freedom else 0.0
    return float(cycles.sum()), relative * float((cycles**2).sum()), freedom


def _by_neighbours(state: RegionSampling, skips: np.ndarray, units: np.ndarray) -> tuple[float, float, float]:
    """(skipped cycles, variance, degrees of freedom)."""
    if not len(skips):
        return 0.0, 0.0, 0.0
    samples = _samples(state, units[units["sample"] >= 0])
    cpi = samples.cpi
    before, after, share, until, instructions = _replaced(state, skips, samples)
    cycles = instructions * (share * cpi[before] + (1 - share) * cpi[after])
    weight = np.bincount(before, instructions * share, len(cpi))
    weight += np.bincount(after, instructions * (1 - share), len(cpi))
    relative, freedom = _relative_variance(samples, cpi)
    per_sample = samples.weight[samples.units > 0].mean() * state.rule["epoch"][0]
    as_samples = np.maximum((skips["last"] - skips["first"] + 1) / per_sample, 1.0)
    drawn = relative * float(((weight * cpi) ** 2).sum() + (cycles**2 / as_samples).sum())
    total = float(cycles.sum())
    allowed = (STATE_ERROR * total) ** 2
    variance = drawn + allowed
    skipped = total - float((until - skips["time"]).sum())
    return skipped, variance, freedom * (variance / drawn) ** 2 if drawn else np.inf


def _replaced(
    state: RegionSampling, skips: np.ndarray, samples: _Samples
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of each skip: the sample ``before`` it and another that says what it took, with the ``share`` of the first;
    ``until`` when what was simulated behind it counts as skipped; instructions of both."""
    before = skips["sample"] - 1
    after = np.minimum(before + 1, len(samples.units) - 1)
    after = np.where((samples.run[after] == samples.run[before]) & (samples.units[after] > 0), after, before)
    until = np.where(after > before, np.maximum(samples.begin[after], skips["time"]), skips["time"])
    time, done = _progress(state)
    executed = np.interp(until, time, done) - np.interp(skips["time"], time, done)
    other = _or_before(samples, before, after)
    share = np.where(other < before, 0.5, skips["before"])
    return before, other, share, until, skips["instructions"] + executed


def _or_before(samples: _Samples, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """``after``, and where no sample follows the one before ``before``, if those two are alike: both then say what
    follows, and the last one has been disturbed by a skip."""
    cpi, earlier = samples.cpi, np.maximum(before - 1, 0)
    is_alike = (samples.run[earlier] == samples.run[before]) & (samples.units[earlier] > 0)
    is_alike &= np.abs(cpi[earlier] / np.maximum(cpi[before], 1e-300) - 1) <= ALIKE
    return np.where((after == before) & is_alike, earlier, after)


def sampled_counts(
    state: RegionSampling, asked_at: np.ndarray, asked_counts: np.ndarray, simulated: np.ndarray
) -> np.ndarray:
    """float64[counts] of the launch. ``asked_at`` [n], ascending: cycles at which ``asked_counts`` [n, counts] had been
    reached; ``simulated`` [counts]: of all that was simulated."""
    skips = state.skips[: int(state.now["num_skips"][0])]
    units = state.units[: int(state.now["num_units"][0])]
    if not len(skips) or state.rule["is_source"][0]:
        total, skipped = float(state.instructions[-1]), float(skips["instructions"].sum())
        return np.asarray(simulated, np.float64) * (total / max(total - skipped, 1.0))

    times = np.concatenate(([-1.0], asked_at))
    columns = [np.append(0.0, one) for one in asked_counts.T]

    def reached(when: np.ndarray) -> np.ndarray:
        return np.stack([np.interp(when, times, one) for one in columns], axis=1)

    units = units[units["sample"] >= 0]
    samples = _samples(state, units)
    before, after, share, until, instructions = _replaced(state, skips, samples)
    rate = np.zeros((len(samples.units), asked_counts.shape[1]))
    np.add.at(rate, units["sample"], _in_units(state, units, reached(_dispatches(state))))
    rate /= np.maximum(samples.instructions, 1)[:, None]
    simulated_behind = reached(until) - reached(skips["time"])
    share = share[:, None]
    of_skips = instructions[:, None] * (share * rate[before] + (1 - share) * rate[after]) - simulated_behind
    return np.maximum(simulated + of_skips.sum(axis=0), 0.0)


@dataclass(frozen=True)
class _Samples:
    """Arrays [samples]: ``run`` of blocks (-1: no units), cycle of the ``begin``, ``units``, their ``weight`` in
    epochs, ``cycles`` and ``instructions``, and the sum ``squares`` of squared relative differences of the units' CPI
    from the sample's."""

    run: np.ndarray
    begin: np.ndarray
    units: np.ndarray
    weight: np.ndarray
    cycles: np.ndarray
    instructions: np.ndarray
    squares: np.ndarray

    @property
    def cpi(self) -> np.ndarray:
        return np.asarray(self.cycles / np.maximum(self.instructions, 1))


def _samples(state: RegionSampling, units: np.ndarray) -> _Samples:
    sample = units["sample"]
    count = int(state.now["sample"][0]) + 1
    weight = units["length"] / state.rule["epoch"][0]
    cycles = (units["end"] - units["begin"]) * weight
    time, done = _progress(state)
    work = _in_units(state, units, np.interp(_dispatches(state), time, done)[:, None])[:, 0]
    run = np.full(count, -1)
    run[sample] = units["run"]
    begin = np.full(count, np.inf)
    np.minimum.at(begin, sample, units["begin"])
    total, executed = np.bincount(sample, cycles, count), np.bincount(sample, work, count)
    relative = (cycles / work) / (total / np.maximum(executed, 1))[sample] - 1
    return _Samples(
        run, begin, np.bincount(sample, minlength=count), np.bincount(sample, weight, count), total, executed,
        np.bincount(sample, relative**2, count),
    )  # fmt: skip


def _dispatches(state: RegionSampling) -> np.ndarray:
    """float64[dispatches]: when each was; blocks are dispatched in their order."""
    return state.begin[~np.isnan(state.begin)]


def _in_units(state: RegionSampling, units: np.ndarray, reached: np.ndarray) -> np.ndarray:
    """float64[units, values]: what is counted in each unit, by its weight, of ``reached`` [dispatches, values] at each
    dispatch: in the mean over its dispatches the count from that of the block one epoch before."""
    total = np.concatenate((np.zeros((1, reached.shape[1])), np.cumsum(reached, axis=0)))
    epoch = int(state.rule["epoch"][0])
    first, end = units["first"], units["first"] + units["length"]
    return np.asarray((total[end] - total[first] - total[end - epoch] + total[first - epoch]) / epoch)


def _relative_variance(samples: _Samples, cpi: np.ndarray) -> tuple[float, float]:
    """Of a sample's CPI, and its degrees of freedom: between the samples of a run, or as units in them differ, if that
    is more."""
    squares, freedom = 0.0, 0
    for one in np.unique(samples.run[samples.units > 0]):
        own = cpi[samples.run == one]
        squares += float(((own / own.mean() - 1) ** 2).sum())
        freedom += len(own) - 1
    some = samples.units > 1
    within = float(samples.squares[some].sum()) / max(int((samples.units[some] - 1).sum()), 1)
    per_sample = float(samples.units[samples.units > 0].mean())
    return max(squares / max(freedom, 1), within / per_sample), max(freedom, 1)


def _progress(state: RegionSampling) -> tuple[np.ndarray, np.ndarray]:
    """(times, warp instructions executed until then), if those of a block come evenly over its life. Blocks whose end
    was not told (nothing is dispatched after it) live as long as the last ones that did end."""
    ran = np.flatnonzero(~np.isnan(state.begin))
    life = state.end[ran] - state.begin[ran]
    told = np.flatnonzero(~np.isnan(life))
    life[np.isnan(life)] = life[told[-int(state.rule["epoch"][0]) :]].mean()
    life = np.maximum(life, 1.0)
    rate = np.diff(state.instructions)[ran] / life
    time = np.concatenate((state.begin[ran], state.begin[ran] + life))
    order = np.argsort(time, kind="stable")
    time, change = time[order], np.concatenate((rate, -rate))[order]
    return time, np.concatenate(([0.0], np.cumsum(np.cumsum(change)[:-1] * np.diff(time))))
