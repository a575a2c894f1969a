"""How much of a run TaskPoint did in detail, and how far its estimate may be off: an interval of the busy time.

The busy time is the sum over instances of their cycles. Those done in detail are known; of those fast-forwarded, by
samples of their class, the error is that of a mean of few samples applied to many (Cochran, "Sampling Techniques",
3rd ed., sections 2.6 and 6.3: mean and ratio estimates). With v the relative variance of a class's samples, instances
that go by n samples and take F cycles in all, each f_i, have the variance v (F^2 / n + sum f_i^2): the second term is
their own spread, which makes that of a class of which nothing is fast-forwarded, or next to nothing, small (with equal
f_i the two are the finite-population correction). Variances of groups (class, round of samples) add up; degrees of
freedom are Satterthwaite's (Biometrics Bulletin 2, 1946).

* v is taken over the valid samples of all rounds, about their common mean: drift from round to round widens it. A class
  with fewer than two valid samples takes all its instances done in detail; with fewer than two of those, the mean v of
  the other classes, weighted by their degrees of freedom. If there is none, the interval is infinite.
* Samples that ran side by side share what the run did then. What of a round began while samples were taken are two
  *batches* of a class: its samples, and what began behind them and is in detail for nothing else but that it cannot end
  otherwise. So the first term is F^2 times the variance of the batches' ratios about their mean, if that is more than
  v / n. Its degrees of freedom are the batches less one, but no more than the rounds: two batches of a round are not
  independent. (Batches of one instance tell nothing.)
* Few batches leave few degrees of freedom, and Student's quantile of one is 12.7. So the half-width is at most what
  drift may add: each class's rate is taken to be off by no more than RANGE times what its batches differ by at most, at
  all instances alike, beside the interval of v alone. RANGE is measured: with 1.5 as many intervals hold the truth as
  without this bound, with 1 some less (tests/validation/taskpoint).
* The mean of IPC underestimates cycles by about v (1 - 1/n) of them (Jensen's inequality, second order). The estimate
  is left as the source has it, the interval is widened on both sides by that. The mean by cycles has no such term.

Assumptions: a class's samples are drawn from the instances that go by them as by chance, independently. They are not
where a class drifts between samplings, where samples that ran side by side met the same contention, where the first
ones to end are the short ones (admit: finish), or where detail begins with caches that fast-forwarding left behind:
then the interval is too narrow. It holds for the time of the run as far as that scales with the busy time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.sampling.taskpoint.state import (
    CANDIDATE,
    EMPTY,
    FORWARDED,
    FORWARDED_BY_ALL,
    NOT_BEGUN,
    REASONS,
    SURPLUS,
    VALID,
    WARM_UP,
    TaskPoint,
)

RANGE: Final = 1.5


@dataclass(frozen=True)
class ClassEstimates:
    """Arrays of one entry per class: instances begun, in detail, valid samples; cycles of all and of those
    fast-forwarded; mean IPC of the samples, their relative standard deviation, and the relative half-width of the
    confidence interval of their mean (NaN where not known; see the module on what stands for few samples)."""

    num_instances: np.ndarray
    num_detailed: np.ndarray
    num_samples: np.ndarray
    cycles: np.ndarray
    forwarded_cycles: np.ndarray
    ipc: np.ndarray
    deviation: np.ndarray
    half_width: np.ndarray


@dataclass(frozen=True)
class Estimate:
    """Of a finished run. ``busy_cycles`` +- ``half_width_cycles`` holds the busy time with ``confidence``; ``errors``
    are what it was made of. ``resamples``: by reason."""

    confidence: float
    busy_cycles: float
    half_width_cycles: float
    errors: ForwardedErrors
    num_instances: int
    num_detailed: int
    num_instructions: int
    detailed_instructions: int
    resamples: dict[str, int]
    classes: ClassEstimates

    @property
    def relative_half_width(self) -> float:
        return self.half_width_cycles / self.busy_cycles if self.busy_cycles else 0.0

    @property
    def detailed_share(self) -> float:
        """Of instances that have instructions."""
        return self.num_detailed / self.num_instances if self.num_instances else 0.0

    @property
    def detailed_instruction_share(self) -> float:
        return self.detailed_instructions / self.num_instructions if self.num_instructions else 0.0


def estimate(state: TaskPoint, confidence: float = 0.95) -> Estimate:
    """What a run has shown. O(instances log instances). Raises ValueError for a confidence not between 0 and 1."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; it must lie between 0 and 1")
    begun = np.flatnonzero((state.role != NOT_BEGUN) & (state.role != EMPTY))
    role, of_class = state.role[begun], state.class_of[begun]
    instructions = state.instructions[begun]
    cycles = instructions * state.cpi[begun]
    num_classes = len(state.classes)
    forwarded = (role == FORWARDED) | (role == FORWARDED_BY_ALL)
    spread = _spread(state, begun, cycles, num_classes)
    errors = _errors(state, begun[forwarded], cycles[forwarded], spread)
    classes = ClassEstimates(
        num_instances=_per_class(of_class, num_classes),
        num_detailed=_per_class(of_class[~forwarded], num_classes),
        num_samples=_per_class(of_class[role == VALID], num_classes),
        cycles=np.bincount(of_class, cycles, num_classes),
        forwarded_cycles=np.bincount(of_class[forwarded], cycles[forwarded], num_classes),
        ipc=spread.ipc,
        deviation=np.sqrt(spread.variance),
        half_width=_quantile(spread.freedom, confidence) * np.sqrt(spread.variance / np.maximum(spread.count, 1)),
    )
    return Estimate(
        confidence=confidence,
        busy_cycles=float(cycles.sum()),
        half_width_cycles=errors.half_width_cycles(confidence),
        errors=errors,
        num_instances=len(begun),
        num_detailed=int(np.count_nonzero(~forwarded)),
        num_instructions=int(instructions.sum()),
        detailed_instructions=int(instructions[~forwarded].sum()),
        resamples=dict(zip(REASONS, state.resamples.tolist(), strict=True)),
        classes=classes,
    )


def _per_class(of_class: np.ndarray, num_classes: int) -> np.ndarray:
    return np.bincount(of_class, minlength=num_classes)


@dataclass(frozen=True)
class _Spread:
    """Per class: number of samples, their relative variance, degrees of freedom of that, and the samples' mean IPC; the
    relative variance of batches (0 where there is one), its degrees of freedom (1 at least), and what they differ by at
    most."""

    count: np.ndarray
    variance: np.ndarray
    freedom: np.ndarray
    ipc: np.ndarray
    of_batches: np.ndarray
    batch_freedom: np.ndarray
    range: np.ndarray


def _spread(state: TaskPoint, begun: np.ndarray, cycles: np.ndarray, num_classes: int) -> _Spread:
    """See the module's first bullet."""
    role = state.role[begun]
    in_detail = (role >= WARM_UP) & (cycles > 0)
    num_valid = _per_class(state.class_of[begun[role == VALID]], num_classes)
    model = np.ones(len(begun))
    if len(state.model_cpi) > 1:  # of classes that go by it in the end
        model = np.where(state.classes["by_model"][state.class_of[begun]] > 0, state.model_cpi[begun], 1.0)
    all_work = state.instructions[begun] * model
    in_batch = in_detail & ((role == VALID) | (role == SURPLUS) | (role == CANDIDATE))
    batches = _batches(
        state.class_of[begun[in_batch]], state.round[begun[in_batch]], role[in_batch] == VALID,
        all_work[in_batch], cycles[in_batch], num_classes,
    )  # fmt: skip
    chosen = in_detail & ((role == VALID) | (num_valid[state.class_of[begun]] < 2))
    of_class, cycles, work = state.class_of[begun[chosen]], cycles[chosen], all_work[chosen]
    instructions = state.instructions[begun[chosen]]
    count = _per_class(of_class, num_classes)
    with np.errstate(invalid="ignore", divide="ignore"):
        if state.rule["of_cycles"][0]:
            ratio = np.bincount(of_class, cycles, num_classes) / np.bincount(of_class, work, num_classes)
            mean = np.bincount(of_class, cycles, num_classes) / count
            relative = (cycles - ratio[of_class] * work) / mean[of_class]
        else:
            mean = np.bincount(of_class, work / cycles, num_classes) / count
            relative = work / cycles / mean[of_class] - 1
        variance = np.bincount(of_class, relative**2, num_classes) / (count - 1)
        ipc = np.bincount(of_class, instructions / cycles, num_classes) / count
    known = count > 1
    freedom = np.where(known, count - 1.0, 0.0)
    other, others_freedom = np.nan, 0.0
    if np.any(known):
        others_freedom = float(freedom.sum())
        other = float(variance[known] @ freedom[known] / others_freedom)
    return _Spread(
        count, np.where(known, variance, other), np.where(known, freedom, others_freedom), ipc,
        *batches,
    )  # fmt: skip


def _batches(
    of_class: np.ndarray, number: np.ndarray, is_sample: np.ndarray, work: np.ndarray, cycles: np.ndarray,
    num_classes: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """float64[classes] each, of instances by round (``number``): relative variance of batches' cycles by work, 0 of
    fewer than two; its degrees of freedom; the range of the batches."""
    code = (number.astype(np.int64) * 2 + is_sample) * num_classes + of_class
    there = np.flatnonzero(np.bincount(code) > 1)
    of_batch, round_of_batch = there % num_classes, there // (2 * num_classes)
    ratio = np.bincount(code, cycles)[there] / np.bincount(code, work)[there]
    count = np.bincount(of_batch, minlength=num_classes)
    mean = np.bincount(of_batch, ratio, num_classes) / np.maximum(count, 1)
    relative = ratio / mean[of_batch] - 1
    rounds = np.bincount(np.unique(round_of_batch * num_classes + of_batch) % num_classes, minlength=num_classes)
    most, least = np.zeros(num_classes), np.zeros(num_classes)  # one of them is never below the mean
    np.maximum.at(most, of_batch, relative)
    np.minimum.at(least, of_batch, relative)
    variance = np.bincount(of_batch, relative**2, num_classes) / np.maximum(count - 1, 1)
    return variance, np.maximum(np.minimum(count - 1, rounds), 1.0), most - least


@dataclass(frozen=True)
class ForwardedErrors:
    """How the fast-forwarded instances of a run may err. ``instance``, ``cycles`` and ``group`` of each; relative
    standard deviations of ``mean_deviation`` float64[groups], of what its samples' mean says of a whole group (class,
    round of samples), and ``own_deviation`` float64[instances], of each instance about that (NaN: not known).
    ``degrees_of_freedom`` of their sum's, infinite if there are none, and its ``bias_cycles``, which is on neither
    side. ``sample_cycles`` and ``sample_freedom``: standard error of the sum, and its degrees of freedom, if batches
    differed by chance alone; ``drift_cycles``: by how much it is off at most for what changes from batch to batch."""

    instance: np.ndarray
    cycles: np.ndarray
    group: np.ndarray
    mean_deviation: np.ndarray
    own_deviation: np.ndarray
    degrees_of_freedom: float
    bias_cycles: float
    sample_cycles: float
    sample_freedom: float
    drift_cycles: float

    def half_width_cycles(self, confidence: float) -> float:
        """Of the interval of the sum of their cycles; infinite where it is not known."""
        error = self.standard_error_cycles
        if not np.isfinite(error):
            return float(np.inf)
        by_batches, by_samples = error, self.sample_cycles
        if error:
            by_batches *= float(_quantile(self.degrees_of_freedom, confidence))
        if self.sample_cycles:
            by_samples *= float(_quantile(self.sample_freedom, confidence))
        return min(by_batches, float(np.hypot(by_samples, self.drift_cycles))) + self.bias_cycles

    @property
    def standard_error_cycles(self) -> float:
        """Of the sum of their cycles; NaN where a class has no sample, and none of another says how they differ."""
        total = np.bincount(self.group, self.cycles, len(self.mean_deviation))
        variances = (total * self.mean_deviation) ** 2, (self.cycles * self.own_deviation) ** 2
        return float(np.sqrt(variances[0].sum() + variances[1].sum()))


def _errors(state: TaskPoint, forwarded: np.ndarray, cycles: np.ndarray, spread: _Spread) -> ForwardedErrors:
    if not len(forwarded):
        none = np.zeros(0)
        return ForwardedErrors(forwarded, cycles, np.zeros(0, np.int64), none, none, np.inf, 0.0, 0.0, np.inf, 0.0)
    count = len(state.classes)
    of_class = state.class_of[forwarded].astype(np.int64)
    by_all = state.role[forwarded] == FORWARDED_BY_ALL
    group_code = (state.round[forwarded].astype(np.int64) * count + of_class) * 2 + by_all
    group = (np.cumsum(np.bincount(group_code) > 0) - 1)[group_code]
    first = np.empty(group.max() + 1, np.int64)
    first[group[::-1]] = np.arange(len(group))[::-1]  # the last one written stays
    class_of_group = of_class[first]
    total = np.bincount(group, cycles)
    support = np.bincount(group, cycles * state.support[forwarded]) / total
    # by class: which of the two says more of the means
    shared = spread.variance * np.bincount(class_of_group, total**2 / support, count)
    between = spread.of_batches * np.bincount(class_of_group, total**2, count)
    by_batches = between > shared
    of_group = spread.variance[class_of_group] / support
    of_group = np.where(by_batches[class_of_group], spread.of_batches[class_of_group], of_group)
    own = spread.variance * np.bincount(of_class, cycles**2, count)
    concerned = np.bincount(of_class, minlength=count) > 0
    variances = (own + np.where(by_batches, between, shared))[concerned]
    freedom = _satterthwaite(variances, np.where(by_batches, spread.batch_freedom, spread.freedom)[concerned])
    of_samples = (own + shared)[concerned]
    drift = RANGE * float(spread.range @ np.bincount(class_of_group, total, count))
    bias = 0.0
    if not state.rule["of_cycles"][0]:
        bias = float(spread.variance[class_of_group] @ (total * (1 - 1 / support)))
    own_deviation = np.sqrt(spread.variance)[of_class]
    return ForwardedErrors(
        forwarded, cycles, group, np.sqrt(of_group), own_deviation, freedom, bias,
        float(np.sqrt(of_samples.sum())), _satterthwaite(of_samples, spread.freedom[concerned]), drift,
    )  # fmt: skip


def _satterthwaite(variances: np.ndarray, freedoms: np.ndarray) -> float:
    """Degrees of freedom of a sum of variances; 1 where one is not known."""
    variance = float(variances.sum())
    if np.isnan(variance):
        return 1.0
    return variance**2 / float((variances**2 / freedoms).sum()) if variance else np.inf


def _quantile(freedom: np.ndarray | float, confidence: float) -> np.ndarray:
    """Student's, two-sided; NaN for no degree of freedom."""
    from scipy.special import ndtri, stdtrit

    share = (1 + confidence) / 2
    freedom = np.where(np.asarray(freedom) > 0, freedom, np.nan)
    quantile: np.ndarray = np.where(np.isinf(freedom), ndtri(share), stdtrit(freedom, share))
    return quantile
