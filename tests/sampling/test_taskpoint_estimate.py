"""Intervals of TaskPoint's estimates: closed forms, and how often they hold the truth of populations made for it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from task_simulator import run, run_in_turn

from manyscale.sampling.taskpoint.decisions import new_taskpoint
from manyscale.sampling.taskpoint.estimate import Estimate, _batches, estimate
from manyscale.sampling.taskpoint.state import TaskPointParameters

LAZY = {"warm_up": 0, "period": "lazy", "busy_change": "never"}
IPC = np.array([2.0, 2.2, 1.8, 2.0])  # the source's example, section 5.3.2


def parameters(**given: object) -> TaskPointParameters:
    return TaskPointParameters.model_validate(LAZY | given)


@pytest.mark.theory
def test_interval_by_hand() -> None:
    """Four samples of mean 2.0 with relative variance v = (0.1^2 + 0.1^2) / 3, six instances of 500 cycles by them:
    F = 3000, variance v (F^2 / 4 + 6 x 500^2), t of 3 degrees of freedom, and v (1 - 1/4) F beside."""
    cycles = [*(1000 / IPC), *[0.0] * 6]
    found = estimate(run(parameters(history=4), cycles, 1).state)
    v = 0.02 / 3
    error = np.sqrt(v * (3000**2 / 4 + 6 * 500**2))
    assert found.busy_cycles == pytest.approx((1000 / IPC).sum() + 3000)
    assert found.errors.standard_error_cycles == pytest.approx(error)
    assert found.errors.degrees_of_freedom == pytest.approx(3)
    assert found.errors.bias_cycles == pytest.approx(v * 0.75 * 3000)
    assert found.half_width_cycles == pytest.approx(stats.t.ppf(0.975, 3) * error + found.errors.bias_cycles)
    assert found.relative_half_width == pytest.approx(found.half_width_cycles / found.busy_cycles)
    assert (found.num_detailed, found.num_instances, found.detailed_share) == (4, 10, 0.4)
    assert found.classes.deviation.tolist() == pytest.approx([np.sqrt(v)])
    assert found.classes.half_width.tolist() == pytest.approx([stats.t.ppf(0.975, 3) * np.sqrt(v / 4)])
    assert found.classes.ipc.tolist() == pytest.approx([2.0])


@pytest.mark.theory
def test_ratio_estimate_by_hand() -> None:
    """Samples of 1000 and 3000 instructions take 500 and 2000 cycles: 0.625 cycles per instruction; residuals -125 and
    +125 of a mean of 1250, v = 2 x 0.1^2. One more instance of 2000 instructions takes 1250: v F^2 (1/2 + 1)."""
    given = parameters(history=2, mean="cycles")
    found = estimate(run(given, [500.0, 2000.0, 0.0], 1, instructions=[1000, 3000, 2000]).state, 0.9)
    error = np.sqrt(0.02 * 1250**2 * 1.5)
    assert found.busy_cycles == pytest.approx(3750)
    assert found.half_width_cycles == pytest.approx(stats.t.ppf(0.95, 1) * error)
    assert found.detailed_instruction_share == pytest.approx(4000 / 6000)
    assert found.errors.bias_cycles == 0


@pytest.mark.theory
def test_finite_population() -> None:
    """With equal instances that is Cochran's eq. 2.8 for a total: N^2 v (1 - n/N) / n, in units of an instance."""
    found = estimate(run(parameters(history=4), [*(1000 / IPC), *[0.0] * 16], 1).state)
    n, total = 4, 20
    assert found.errors.standard_error_cycles / 500 == pytest.approx(
        np.sqrt(total**2 * (0.02 / 3) * (1 - n / total) / n)
    )


@pytest.mark.theory
def test_rounds_and_classes_add_up() -> None:
    """Two rounds of two samples each, of 1.0 +- 0.1 in IPC; two forwarded in each (P = 2). v of all four is 0.04 / 3;
    each round has the variance v ((2000)^2 / 2 + 2 x 1000^2). A second class, done in detail, adds nothing."""
    ipc = [1.1, 0.9, 1, 1] * 2
    cycles = [1000 / each for each in ipc]
    given = parameters(history=2, period=2, resample_warm_up=0)
    found = estimate(run(given, cycles, 1).state)
    assert found.resamples == {"period": 1, "busy cores": 0, "new class": 0, "no history": 0}
    assert found.errors.standard_error_cycles == pytest.approx(np.sqrt(2 * 0.04 / 3 * 4e6))
    assert found.errors.degrees_of_freedom == pytest.approx(3)
    beside = estimate(run(given, [*cycles, 7000.0], 1, classes=[0] * 8 + [1]).state)
    assert beside.errors.standard_error_cycles == pytest.approx(found.errors.standard_error_cycles)
    assert beside.busy_cycles == pytest.approx(found.busy_cycles + 7000)


@pytest.mark.theory
def test_rounds_that_differ_by_more_than_their_samples() -> None:
    """Two rounds of two equal samples each, of 1 and 2 cycles per instruction; two forwarded in each (P = 2), F = 2000
    and 4000. Relative to 1.5 the rounds are 1/3 off, a variance of 2/9, which counts for the mean instead of v / 2,
    with one degree of freedom; v of all four, of IPC 1, 1, 1/2, 1/2 about 3/4, is 4/27: the spread of the forwarded."""
    cycles = [1000.0] * 4 + [2000.0] * 4
    found = estimate(run(parameters(history=2, period=2, resample_warm_up=0), cycles, 1).state)
    assert found.busy_cycles == pytest.approx(12000)
    own = 4 / 27 * (2 * 1000**2 + 2 * 2000**2)
    assert found.errors.standard_error_cycles == pytest.approx(np.sqrt(own + 2 / 9 * (2000**2 + 4000**2)))
    assert found.errors.degrees_of_freedom == pytest.approx(1)


@pytest.mark.theory
def test_few_batches_are_off_by_one_and_a_half_of_their_range_at_most() -> None:
    """As above, but rounds of 1.00 and 1.01 cycles per instruction: Student's quantile of one degree of freedom would
    make 12.7 times their deviation, 0.01 / sqrt(2), of it; they differ by 0.01, about 1.005. Samples of a round differ
    by nothing, and those of both by 0.01 about their mean: v = 4 (0.005)^2 / 3 of the mean IPC."""
    cycles = [1000.0] * 4 + [1010.0] * 4
    found = estimate(run(parameters(history=2, period=2, resample_warm_up=0), cycles, 1).state)
    ipc = np.array([1.0, 1.0, 1 / 1.01, 1 / 1.01])
    v = float(((ipc / ipc.mean() - 1) ** 2).sum() / 3)
    of_samples = v * (2000**2 / 2 + 2 * 1000**2 + 2020**2 / 2 + 2 * 1010**2)
    alone = stats.t.ppf(0.975, 3) * np.sqrt(of_samples)
    drift = 1.5 * 0.01 / 1.005 * 4020
    assert found.half_width_cycles == pytest.approx(np.hypot(alone, drift) + found.errors.bias_cycles)
    assert found.half_width_cycles < stats.t.ppf(0.975, 1) * found.errors.standard_error_cycles


@pytest.mark.theory
def test_what_began_behind_the_samples_is_a_batch_of_its_own() -> None:
    """Two cores, four samples: the fourth, of 3500 instructions, runs until two that are none have begun. Samples take
    a cycle per instruction, the two 1.5: 0.2 off their mean each, a variance of 2 x 0.2^2 for all six forwarded of
    1000, of one degree of freedom; samples alone have none."""
    cycles = [1000.0, 1000.0, 1000.0, 3500.0, *[1500.0] * 2, *[0.0] * 6]
    instructions = [1000, 1000, 1000, 3500, *[1000] * 8]
    state = run(parameters(history=4, admit="start", mean="cycles"), cycles, 2, instructions=instructions).state
    found = estimate(state)
    assert found.errors.degrees_of_freedom == pytest.approx(1)
    assert found.errors.standard_error_cycles == pytest.approx(np.sqrt(2 * 0.2**2) * 6000)


@pytest.mark.theory
def test_what_ended_too_late_for_a_sample_is_a_batch_of_its_own() -> None:
    """As above, of four cores that begin together, where the first two instances to end are the samples; one more
    begins when the first of these ends."""
    found = estimate(run(parameters(history=2, mean="cycles"), [1000.0] * 2 + [1500.0] * 3 + [0.0] * 6, 4).state)
    assert found.errors.degrees_of_freedom == pytest.approx(1)
    assert found.errors.standard_error_cycles == pytest.approx(np.sqrt(2 * 0.2**2) * 6000)


@pytest.mark.theory
def test_batches_of_two_rounds_have_two_degrees_of_freedom() -> None:
    """Two of each round, of 1, 2, 3 and 4 cycles per instruction: 0.6 and 0.2 off their mean of 2.5 on both sides. A
    batch of one instance, of 9, tells nothing, and nor does the one batch of another class."""
    rounds, ratio = [1, 1, 1, 1, 2, 2, 2, 2, 3, 1, 1], [1, 1, 2, 2, 3, 3, 4, 4, 9, 5, 5]
    is_sample = np.array([True, True, False, False] * 2 + [True] * 3)
    of_class, work = np.array([0] * 9 + [1] * 2), np.arange(1, 12) * 100.0
    variance, freedom, spans = _batches(of_class, np.array(rounds), is_sample, work, work * ratio, 2)
    assert variance.tolist() == pytest.approx([2 * (0.6**2 + 0.2**2) / 3, 0])
    assert freedom.tolist() == [2, 1]
    assert spans.tolist() == pytest.approx([1.2, 0])


@pytest.mark.theory
def test_a_class_with_one_sample_is_as_uncertain_as_the_others() -> None:
    alone = estimate(run(parameters(history=1), [500.0, 0.0], 1).state)
    assert alone.half_width_cycles == alone.relative_half_width == np.inf
    classes = [1, *[0] * 10, 1]
    cycles = [1000.0, *(1000 / IPC), *[500.0] * 6, 0.0]
    found = estimate(run(parameters(history=4, cut_off=5), cycles, 1, classes=classes).state)
    assert found.classes.num_samples.tolist()[1] == 1
    assert found.classes.deviation[1] == pytest.approx(found.classes.deviation[0])
    assert np.isfinite(found.half_width_cycles)


@pytest.mark.theory
def test_one_valid_sample_takes_all_done_in_detail() -> None:
    """Warm-up at an IPC of 2.0, the only valid sample at 2.2: mean 2.1, s^2 = 2 (0.1 / 2.1)^2."""
    found = estimate(run(parameters(history=1, warm_up=1), [500.0, 1000 / 2.2, 0.0], 1).state)
    assert found.classes.num_samples.tolist() == [1]
    assert found.classes.deviation.tolist() == pytest.approx([np.sqrt(2) * 0.1 / 2.1])


@pytest.mark.property
@pytest.mark.parametrize("num_cores", [1, 3])
def test_full_sampling_has_no_error(num_cores: int) -> None:
    """A history that never fills: everything is in detail."""
    random = np.random.default_rng(0)
    cycles, classes = random.uniform(500, 1500, 100), random.integers(0, 3, 100)
    found = run(parameters(history=1000, warm_up=2), cycles, num_cores, classes=classes)
    result = estimate(found.state)
    assert result.busy_cycles == pytest.approx(cycles.sum())
    assert result.half_width_cycles == 0
    assert result.detailed_share == result.detailed_instruction_share == 1


def test_nothing_begun() -> None:
    state = new_taskpoint(np.array([0]), np.array([5]), None, 1)
    result = estimate(state)
    assert (result.busy_cycles, result.half_width_cycles, result.relative_half_width) == (0, 0, 0)
    with pytest.raises(ValueError, match=r"confidence is 1\.0"):
        estimate(state, 1.0)


def coverage(given: dict, deviation: list[float], *, runs: int = 400, draw: str = "normal") -> float:
    """Share of runs of 600 instances, in classes of the given relative deviation of cycles per instruction, whose
    interval holds the true sum of cycles."""
    held = 0
    for seed in range(runs):
        random = np.random.default_rng(seed)
        classes = random.integers(0, len(deviation), 600)
        spread = np.array(deviation)[classes]
        instructions = random.integers(2_000, 10_000, 600)
        if draw == "normal":
            factor = np.maximum(1 + spread * random.standard_normal(600), 0.05)
        elif draw == "lognormal":
            factor = np.exp(spread * random.standard_normal(600))
        else:  # drift by the deviation from the first instance to the last
            factor = 1 + spread * np.linspace(0, 1, 600) + 0.01 * random.standard_normal(600)
        cycles = instructions * (1.0 + classes) * factor
        state = new_taskpoint(classes, instructions, None, 4, TaskPointParameters.model_validate(given))
        run_in_turn(state, cycles)
        result: Estimate = estimate(state)
        held += abs(result.busy_cycles - cycles.sum()) <= result.half_width_cycles
    return held / runs


@pytest.mark.property
@pytest.mark.parametrize(
    ("given", "deviation", "draw", "least"),
    [
        ({"period": "lazy"}, [0.1], "normal", 0.92),
        ({"period": "lazy"}, [0.05, 0.1, 0.2], "normal", 0.92),
        ({"period": 20}, [0.05, 0.1, 0.2], "normal", 0.92),
        ({"period": 20, "mean": "cycles"}, [0.05, 0.1, 0.2], "normal", 0.92),
        ({"period": "lazy"}, [0.3], "lognormal", 0.92),
        ({"period": "lazy", "target": 0.05}, [0.2], "normal", 0.85),
    ],
)
def test_intervals_hold_the_truth(given: dict, deviation: list[float], draw: str, least: float) -> None:
    """95 % are meant (a share of 400 runs has a standard error of 1.1 %), but more may be held where bias is added."""
    share = coverage(given, deviation, draw=draw)
    print(f"{given} {deviation} {draw}: {share:.1%} of intervals hold the truth")
    assert share >= least


@pytest.mark.known_gap
def test_drift_inside_a_class_is_not_seen() -> None:
    """Lazy samples come from the beginning; cycles rise by 35 % until the end, as a Cholesky factorisation's may."""
    assert coverage({"period": "lazy"}, [0.35], draw="drift", runs=50) < 0.2
    assert coverage({"period": 10}, [0.35], draw="drift", runs=50) > 0.9
