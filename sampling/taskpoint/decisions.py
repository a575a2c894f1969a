"""TaskPoint: which task instances a simulation of many cores does in detail, and how fast the others go.

Method: Grass, "Simulation methodologies for future large-scale parallel systems" (UPC 2017), section 5.3.
All cores are in detail or all are fast-forwarded, and a core changes only between two instances. Detail begins with
warm-up; then what finishes is a *valid* sample of its class, kept in a first-in-first-out history of H. Once the
histories of all classes are full, instances that begin go on at the mean rate of their class. Detail comes back
(*resampling*, which forgets the valid samples) after P instances fast-forwarded by one core, when another number of
cores is busy, and when an instance has no history. A second history of H per class takes every instance done in detail:
what a class without valid samples goes by. An instance begun in detail ends in detail; if sampling has ended by then it
counts there alone.

A sample is the ratio of model cycles to detailed cycles: with the cycles per instruction of a model of the core given
for each instance, that is equation 5.1; without, the model is one cycle per instruction, and the ratio is the IPC. A
model that is wrong makes instances differ that do not, so it is used of a class only as long as its samples bear it out
(see ``correct``), unless asked for always.

What the source leaves open, settled here or by a parameter (see TaskPointParameters): an instance belongs to the
warm-up if it *begins* there; warm-up ends when enough instances have *ended*; the cut-off for rare classes counts
instances that have ended, from the last beginning of an instance of a class that is not full; P counts the instances
that a core has begun in fast-forward. Instances without instructions are fast-forwarded in no time and count nowhere.

The caller owns time: `decide` when a core begins an instance, `observe` when one begun in detail has ended, both in the
order of simulated time. "Instance" may be any unit that a core does in one piece and that has a class.

Cost: `decide` and `observe` O(1) amortised (O(H) for an instance done in detail; O(classes + cores) when resampling
begins). Memory: 37 B per instance with the arrays given, 48 B x H per class, H never above the class's instances.
"""

from __future__ import annotations

import numpy as np

from manyscale.models.kernels import allocation_free, by_reference, inner, separate
from manyscale.models.kernels.hashing import mix
from manyscale.sampling.taskpoint.state import (
    BUSY,
    BUSY_CORES,
    CANDIDATE,
    DETAILED,
    EMPTY,
    FAST,
    FORWARDED,
    FORWARDED_BY_ALL,
    FORWARDING,
    NEW_CLASS,
    NO_HISTORY,
    PER_THREAD,
    PERIOD,
    RARE,
    SAMPLING,
    SURPLUS,
    VALID,
    WARM_UP,
    WARMING,
    TaskPoint,
    TaskPointParameters,
    new_taskpoint,
)

LEAST_SPREAD = 0.02  # relative standard deviation; less is not worth a correction
_EXPLAINED = 0.5  # of the variance may be left

__all__ = ["DETAILED", "FAST", "LEAST_SPREAD", "TaskPoint", "TaskPointParameters", "decide", "new_taskpoint", "observe"]


@allocation_free
def decide(state, instance, core, busy_cores):  # type: ignore[no-untyped-def]
    """DETAILED or FAST, for an instance that ``core`` begins now; ``busy_cores`` execute one, this included. If FAST,
    its pieces go at ``state.cpi[instance]`` cycles per instruction. O(1), O(classes + cores) where resampling begins.
    """
    state = by_reference(state)
    if state.instructions[instance] == 0:
        state.role[instance] = EMPTY
        return FAST
    now = state.now[0]
    rule = state.rule[0]
    one = state.classes[state.class_of[instance]]
    if one.is_rare:
        state.role[instance] = RARE
        return DETAILED
    if rule.levels > 1:
        state.class_of[instance] += _level(busy_cores)
        one = state.classes[state.class_of[instance]]
    one.num_begun += 1
    if now.mode == FORWARDING and not one.sampling:
        reason = _resample_reason(state, one, core, busy_cores)
        if reason < 0:
            _forward(state, one, instance, core)
            return FAST
        if rule.scope_class and (reason == NEW_CLASS or reason == NO_HISTORY):
            _resample_class(state, one, reason)
        else:
            _resample(state, reason)
    now.most_busy = max(now.most_busy, busy_cores)
    _want(now, one)
    state.round[instance] = now.round
    state.role[instance] = _detailed_role(state, one, busy_cores)
    return DETAILED


@allocation_free
def observe(state, instance, core, cycles, busy_cores):  # type: ignore[no-untyped-def]
    """An instance begun in detail has ended after ``cycles`` of its core's time (suspensions apart). Others are
    ignored. O(H), O(cores) where sampling ends."""
    state = by_reference(state)
    role = state.role[instance]
    if role < WARM_UP:
        return
    now = state.now[0]
    of_class = state.class_of[instance]
    one = state.classes[of_class]
    instructions = state.instructions[instance]
    state.cpi[instance] = cycles / instructions
    if role == RARE:
        return
    is_of_round = state.round[instance] >= one.round
    if cycles > 0:
        model = state.model_cpi[instance] if state.model_cpi.shape[0] > 1 else state.model_cpi[0]
        work = model * instructions
        _add_to_all(state, one, of_class, work, cycles, instructions)
        if role == CANDIDATE and is_of_round and (now.mode == SAMPLING or one.sampling):
            state.role[instance] = VALID
            _add_to_valid(state, one, of_class, work, cycles, instructions)
    elif role == CANDIDATE and is_of_round:
        one.admitted -= 1
    if now.mode == WARMING and state.round[instance] >= now.round:
        warm_up = state.rule[0].warm_up if now.round == 1 else state.rule[0].resample_warm_up
        if _enough_done(state, core, warm_up):
            now.mode = SAMPLING  # the first to begin as a sample clears what was counted
    elif now.mode == SAMPLING:
        counts = role != WARM_UP and state.round[instance] >= now.round and one.full
        is_cut_off = counts and _enough_done(state, core, state.rule[0].cut_off)
        now.sampled += 1
        is_long = now.sampled >= state.rule[0].longest * state.core_done.shape[0]
        if (now.wanting == 0 and one.full) or is_cut_off or is_long:
            _forward_from_now(state, busy_cores)


@inner
def _level(busy_cores):  # type: ignore[no-untyped-def]
    """The nearest power of two, of those that are equally far the larger one. O(log cores)."""
    level = 0
    while 3 << level <= 2 * busy_cores:  # halfway between 1 << level and the next is 3 << level halves
        level += 1
    return level


@inner
def _want(now, one):  # type: ignore[no-untyped-def]
    """Count a class that is met for the first time in this detail among those that must become full."""
    if now.mode != FORWARDING and one.met < now.round:
        one.met = now.round
        now.wanting += 1 - one.full


@inner
def _detailed_role(state, one, busy_cores):  # type: ignore[no-untyped-def]
    now = state.now[0]
    if now.mode == WARMING:
        return WARM_UP
    if now.mode == FORWARDING:  # the class is sampled alone
        if one.warm_left > 0:
            one.warm_left -= 1
            return WARM_UP
    else:
        now.busy_sum += busy_cores
        now.busy_count += 1
        if not one.full:
            _clear_done(state)
    if state.rule[0].admit_start and one.admitted >= one.limit:
        return SURPLUS
    one.admitted += 1
    return CANDIDATE


@inner
def _resample_reason(state, one, core, busy_cores):  # type: ignore[no-untyped-def]
    """Why an instance cannot be fast-forwarded, -1 if it can."""
    now = state.now[0]
    rule = state.rule[0]
    if one.num_all == 0:
        return NEW_CLASS if one.num_begun == 1 else NO_HISTORY
    if state.core_forwarded[core] >= now.next_period:
        return PERIOD
    sampled_busy = now.busy_sum / max(now.busy_count, 1)
    if abs(busy_cores - sampled_busy) > rule.busy_change * sampled_busy:
        now.deviations += 1
        if now.deviations >= rule.busy_persistence * busy_cores:
            return BUSY
    else:
        now.deviations = 0
    return -1


@inner
def _forward(state, one, instance, core):  # type: ignore[no-untyped-def]
    """Fast-forward an instance of a class that has a history."""
    has_valid = one.num_valid > 0
    model = state.model_cpi[instance] if state.model_cpi.shape[0] > 1 and one.by_model else 1.0
    state.cpi[instance] = model / (one.rate if has_valid else one.rate_of_all)
    state.role[instance] = FORWARDED if has_valid else FORWARDED_BY_ALL
    state.support[instance] = one.num_valid if has_valid else one.num_all
    state.round[instance] = one.round
    state.core_forwarded[core] += 1
    state.now[0].forwarded += 1


@separate
def _resample(state, reason):  # type: ignore[no-untyped-def]
    """All cores in detail from now on, the valid samples forgotten. O(classes + cores)."""
    now = state.now[0]
    rule = state.rule[0]
    state.resamples[reason] += 1
    if reason == PERIOD:
        now.period = min(4 * now.period, rule.period) if rule.settle > 0 else rule.period
        now.next_period = now.period
        if now.period == rule.period and rule.stagger > 0:
            drawn = np.float64(mix(np.uint64(0), np.uint64(now.round)) >> np.uint64(11)) * 2.0**-53
            now.next_period = max(np.int64(1), np.int64(now.period * (1 + rule.stagger * (2 * drawn - 1))))
    now.round += 1
    now.mode = WARMING if rule.resample_warm_up > 0 else SAMPLING
    now.wanting = 0
    now.most_busy = 0
    now.sampled = 0
    now.busy_sum = 0
    now.busy_count = 0
    _clear_done(state)
    for i in range(state.classes.shape[0]):
        one = state.classes[i]
        if rule.levels == 1 or reason == PERIOD:
            _forget(state, one)
        one.sampling = 0
        if one.num_begun > 0 and not rule.current:
            one.met = now.round
            now.wanting += 1 - one.full


@inner
def _resample_class(state, one, reason):  # type: ignore[no-untyped-def]
    """Instances of one class in detail from now on."""
    state.resamples[reason] += 1
    state.now[0].round += 1
    one.sampling = 1
    one.warm_left = state.rule[0].resample_warm_up
    _forget(state, one)


@inner
def _forget(state, one):  # type: ignore[no-untyped-def]
    one.round = state.now[0].round
    one.full = 0
    one.num_valid = 0
    one.next_valid = 0
    one.admitted = 0
    one.ended = 0
    one.limit = state.rule[0].history


@inner
def _forward_from_now(state, busy_cores):  # type: ignore[no-untyped-def]
    """Sampling has ended."""
    now = state.now[0]
    now.mode = FORWARDING
    now.deviations = 0
    if now.busy_count == 0:
        now.busy_sum = busy_cores
        now.busy_count = 1
    for core in range(state.core_forwarded.shape[0]):
        state.core_forwarded[core] = 0


@inner
def _clear_done(state):  # type: ignore[no-untyped-def]
    """Begin to count instances again. O(cores) if any was counted."""
    now = state.now[0]
    if now.done > 0:
        now.done = 0
        now.cores_done = 0
        for core in range(state.core_done.shape[0]):
            state.core_done[core] = 0


@inner
def _enough_done(state, core, per_core):  # type: ignore[no-untyped-def]
    """Count an instance that a core has ended; whether that makes ``per_core`` per core."""
    now = state.now[0]
    now.done += 1
    state.core_done[core] += 1
    now.cores_done += state.core_done[core] == per_core
    num_cores = state.core_done.shape[0]
    if state.rule[0].count == PER_THREAD:
        return now.cores_done == num_cores
    return now.done >= per_core * (now.most_busy if state.rule[0].count == BUSY_CORES else num_cores)


@separate
def _add_to_all(state, one, of_class, work, cycles, instructions):  # type: ignore[no-untyped-def]
    capacity = state.all.shape[1]
    state.all[of_class, one.next_all, 0] = work
    state.all[of_class, one.next_all, 1] = cycles
    state.all[of_class, one.next_all, 2] = instructions
    one.next_all = (one.next_all + 1) % capacity
    one.num_all = min(one.num_all + 1, capacity)
    if one.num_valid == 0:
        one.by_model = _explains(state, state.all, of_class, one.num_all)
    one.rate_of_all = _rate(state.all, of_class, one.num_all, state.rule[0].of_cycles, one.by_model)


@separate
def _add_to_valid(state, one, of_class, work, cycles, instructions):  # type: ignore[no-untyped-def]
    """A valid sample more; whether its class is full."""
    rule = state.rule[0]
    now = state.now[0]
    capacity = state.valid.shape[1]
    state.valid[of_class, one.next_valid, 0] = work
    state.valid[of_class, one.next_valid, 1] = cycles
    state.valid[of_class, one.next_valid, 2] = instructions
    one.next_valid = (one.next_valid + 1) % capacity
    one.num_valid = min(one.num_valid + 1, capacity)
    one.by_model = _explains(state, state.valid, of_class, one.num_valid)
    one.rate = _rate(state.valid, of_class, one.num_valid, rule.of_cycles, one.by_model)
    one.rate_of_all = _rate(state.all, of_class, one.num_all, rule.of_cycles, one.by_model)
    one.ended += 1
    if one.full or one.num_valid < rule.history:
        return
    if one.num_valid >= rule.most_history or _half_width(state, of_class, one.num_valid) <= rule.target:
        one.full = 1
        one.sampling = 0
        now.wanting -= now.mode == SAMPLING
    elif one.ended >= one.limit:
        one.limit = min(one.limit + rule.history, rule.most_history)


@inner
def _explains(state, history, of_class, count):  # type: ignore[no-untyped-def]
    """Whether instances of the class go by the model: the rule ``correct``. O(count)."""
    rule = state.rule[0]
    if state.model_cpi.shape[0] == 1 or not rule.correct_explained:
        return 1
    if count < 3:
        return 0
    plain = _relative_variance(history, of_class, count, 0)
    return plain > LEAST_SPREAD**2 and _relative_variance(history, of_class, count, 1) <= _EXPLAINED * plain


@inner
def _relative_variance(history, of_class, count, by_model):  # type: ignore[no-untyped-def]
    """Of a class's ratios of work to cycles. O(count)."""
    mean = _rate(history, of_class, count, 0, by_model)
    work = 0 if by_model else 2
    squares = 0.0
    for i in range(count):
        squares += (history[of_class, i, work] / history[of_class, i, 1] / mean - 1) ** 2
    return squares / (count - 1)


@inner
def _rate(history, of_class, count, of_cycles, by_model):  # type: ignore[no-untyped-def]
    """Mean ratio of model cycles, or of instructions, to detailed cycles. O(count)."""
    column = 0 if by_model else 2
    ratios = 0.0
    work = 0.0
    cycles = 0.0
    for i in range(count):
        ratios += history[of_class, i, column] / history[of_class, i, 1]
        work += history[of_class, i, column]
        cycles += history[of_class, i, 1]
    return work / cycles if of_cycles else ratios / count


@inner
def _half_width(state, of_class, count):  # type: ignore[no-untyped-def]
    """Of the confidence interval of a class's mean ratio, relative to it; 0 without a target. O(count)."""
    if state.rule[0].target == np.inf:
        return 0.0
    by_model = state.classes[of_class].by_model
    return state.student[count] * np.sqrt(_relative_variance(state.valid, of_class, count, by_model) / count)
