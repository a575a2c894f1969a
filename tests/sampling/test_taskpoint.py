"""TaskPoint's states, step by step: Grass, UPC 2017, figures 5.3 to 5.5, on a small simulator of cores that take task
instances in order; histories recomputed from a log; and each choice's effect by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from task_simulator import Run, run

from manyscale.sampling.taskpoint.decisions import DETAILED, FAST, decide, new_taskpoint, observe
from manyscale.sampling.taskpoint.state import (
    CANDIDATE,
    EMPTY,
    FORWARDED,
    FORWARDED_BY_ALL,
    FORWARDING,
    REASONS,
    SAMPLING,
    SURPLUS,
    VALID,
    WARM_UP,
    TaskPointParameters,
)

# One letter per role, in the order of the numbers: instances in figures below
LETTERS = ".0fawscvr"
# The number of busy cores has tests of its own
SOURCE = {"count": "per-thread", "busy_change": "never", "correct": "always"}


def parameters(**given: object) -> TaskPointParameters:
    return TaskPointParameters.model_validate({**SOURCE, "warm_up": 1, "history": 2, "period": "lazy"} | given)


def roles(result: Run) -> str:
    """f: fast-forwarded, a: by the history of all, w: warm-up, v: valid, c: ended too late, s: surplus, r: rare."""
    return "".join(LETTERS[role] for role in result.roles)


def resamples(result: Run) -> dict[str, int]:
    return {name: count for name, count in zip(REASONS, result.state.resamples.tolist(), strict=True) if count}


@pytest.mark.theory
def test_periodic_sampling() -> None:
    """Figures 5.3 and 5.4a, two cores: each warms one instance up; core 0 begins a second before core 1 has; from then
    on samples; the second valid one ends sampling, and what core 1 has begun ends in detail; three instances each."""
    expected = "www" + "vvc" + "ffffff" + "www" + "vvc" + "ffffff" + "www"
    result = run(parameters(period=3), [1000] * len(expected), 2)
    assert roles(result) == expected
    assert resamples(result) == {"period": 2}
    assert result.end == 1000 * -(-len(expected) // 2)


@pytest.mark.theory
def test_lazy_sampling() -> None:
    """Figure 5.4b."""
    result = run(parameters(), [1000] * 40, 2)
    assert roles(result) == "www" + "vvc" + "f" * 34
    assert resamples(result) == {}


@pytest.mark.theory
def test_warm_up_before_resampling_has_its_own_size() -> None:
    result = run(parameters(warm_up=3, period=2, history=1), [1000] * 16, 1)
    assert roles(result) == "wwwv" + "ff" + "wv" + "ff" + "wv" + "ff" + "wv"
    assert roles(run(parameters(warm_up=0, resample_warm_up=0, period=2), [1000] * 8, 1)) == "vvff" + "vvff"


@pytest.mark.theory
def test_number_of_busy_cores_changes() -> None:
    """Figure 5.5a: two cores instead of one make the samples of one core void, at once if nothing is to persist."""
    phases = [(6, 1), (10, 2)]
    at_once = parameters(busy_change=0, busy_persistence=0, count="total", warm_up=0)
    # The first instance of the second phase begins with one busy core, as before; the next finds two of them.
    assert roles(run(at_once, [1000] * 16, 2, phases=phases)) == "vvffff" + "f" + "www" + "vvc" + "fff"
    assert resamples(run(at_once, [1000] * 16, 2, phases=phases)) == {"busy cores": 1}
    # A persistence of 2 waits for 2 x 2 beginnings in a row with two busy cores.
    persistent = parameters(busy_change=0.5, busy_persistence=2, count="total", warm_up=0)
    assert roles(run(persistent, [1000] * 16, 2, phases=phases)) == "vvffff" + "f" + "fff" + "www" + "vvc"
    # Two are 100 % more than one.
    assert resamples(run(parameters(busy_change=1.0, warm_up=0), [1000] * 16, 2, phases=phases)) == {}
    assert resamples(run(parameters(warm_up=0), [1000] * 16, 2, phases=phases)) == {}


@pytest.mark.theory
@pytest.mark.parametrize(("persistence", "expected"), [(2, {}), (1, {"busy cores": 1})])
def test_filling_of_the_cores_is_no_change(persistence: float, expected: dict[str, int]) -> None:
    """At the beginning of a parallel phase 1, 2, 3, ... cores are busy."""
    result = run(parameters(busy_change=0.25, busy_persistence=persistence), [1000] * 400, 16, phases=[(200, 16)] * 2)
    assert resamples(result) == expected


@pytest.mark.theory
def test_a_number_of_busy_cores_that_comes_and_goes_is_no_change() -> None:
    """One and two in turn: never four beginnings in a row with two."""
    given = parameters(busy_change=0.5, busy_persistence=2, warm_up=0, count="total")
    assert resamples(run(given, [1000] * 46, 2, phases=[(6, 1)] + [(2, 2)] * 20)) == {}


@pytest.mark.theory
def test_a_class_that_is_still_to_come_need_not_be_full() -> None:
    result = run(parameters(warm_up=0, history=1, period=3), [1000] * 13, 1, classes=[0] * 12 + [1])
    assert roles(result) == "v" + "fff" + "wv" + "fff" + "wv" + "f" + "w"


@pytest.mark.theory
def test_first_instance_of_a_new_class() -> None:
    """Figure 5.5b: it is simulated in detail, and everything is sampled again."""
    classes = [0] * 8 + [1] + [0] * 12
    result = run(parameters(history=1), [1000] * 21, 1, classes=classes)
    # warm-up, sample, six forwarded; then one of the new class as warm-up. Class 0 is full with its next instance,
    # class 1 never: five instances of class 0 (per core) end sampling.
    assert roles(result) == "wv" + "f" * 6 + "w" + "vvvvv" + "f" * 7
    assert resamples(result) == {"new class": 1}


@pytest.mark.theory
def test_rare_class_goes_by_the_history_of_all() -> None:
    """Its only instance in detail was warm-up, at half the speed. Sampling is cut off five ends after the beginning
    of the second sample of class 0, the last to begin while a history was not full."""
    classes = [1] + [0] * 10 + [1]
    result = run(parameters(history=2), [2000] + [1000] * 11, 1, classes=classes)
    assert roles(result) == "w" + "vvvvvv" + "ffff" + "a"
    assert result.state.cpi[-1] == 2.0
    assert result.state.cpi[-2] == 1.0


@pytest.mark.theory
def test_meeting_a_rare_class_puts_the_cut_off_off() -> None:
    classes = [0] * 4 + [1] + [0] * 7
    result = run(parameters(history=2, warm_up=0, cut_off=3), [1000] * 12, 1, classes=[1, *classes[1:]])
    # 1 0 0 0 | 1: the third of class 0 to end with a full history would be the fourth instance of it
    assert roles(result) == "vvvvv" + "fffffff"  # class 1 is full with its second instance
    later = run(parameters(history=3, warm_up=0, cut_off=3), [1000] * 12, 1, classes=[1, *classes[1:]])
    # class 0 is full with its third (the fourth in all), then class 1 comes once more: three more of class 0
    assert roles(later) == "vvvv" + "v" + "vvv" + "ffff"


@pytest.mark.theory
def test_sampling_is_cut_off_per_core() -> None:
    """Core 1 spends the time in one long instance: it has not done its number."""
    cycles = [1000, 9000] + [1000] * 12
    result = run(parameters(history=2, warm_up=0, cut_off=2), cycles, 2, classes=[0, 1] + [0] * 12)
    assert "f" not in roles(result)
    total = run(parameters(history=2, warm_up=0, cut_off=2, count="total"), cycles, 2, classes=[0, 1] + [0] * 12)
    # Of class 0 the second fills the history, and counts; four have been counted when the fifth has ended.
    assert roles(total) == "vc" + "vvvv" + "f" * 8


@pytest.mark.theory
def test_idle_cores_keep_per_thread_warm_up_going() -> None:
    """Four cores, one at work: a warm-up of 2 per core ends after 8 in total, 2 per busy core, per thread never."""
    phases = [(20, 1)]
    given = {"warm_up": 2, "history": 1}
    assert roles(run(parameters(**given), [1000] * 20, 4, phases=phases)) == "w" * 20
    assert roles(run(parameters(**given, count="total"), [1000] * 20, 4, phases=phases)) == "w" * 8 + "v" + "f" * 11
    assert roles(run(parameters(**given, count="busy"), [1000] * 20, 4, phases=phases)) == "w" * 2 + "v" + "f" * 17


@pytest.mark.theory
def test_samples_in_order_of_their_beginning() -> None:
    """Two classes' worth of behaviour in one: of four cores, those with short instances end first."""
    cycles = [4000, 4000, 1000, 1000] + [1000] * 12
    ends = run(parameters(warm_up=0, count="total"), cycles, 4)
    assert roles(ends)[:4] == "ccvv"
    assert ends.state.cpi[8] == 1.0
    # One per core is more than H. The long ones end at 4000; before, cores 2 and 3 have begun two more at 1000, 2000
    # and 3000, then core 0 one before core 1 ends the last sample. The mean IPC of 1/4, 1/4, 1 and 1 is 5/8.
    starts = run(parameters(warm_up=0, count="total", admit="start"), cycles, 4)
    assert roles(starts) == "vvvv" + "s" * 7 + "f" * 5
    assert starts.state.cpi[-1] == pytest.approx(1.6)
    assert SURPLUS in starts.roles
    # H is more than one per core: the third sample, which core 1 begins at 1000, is the last to end, at 10000. Core 0
    # has begun others from 4000 on.
    more = run(parameters(warm_up=0, count="total", admit="start", history=3), [4000, 1000, 9000] + [1000] * 12, 2)
    assert roles(more) == "vvv" + "s" * 7 + "f" * 5
    assert more.state.cpi[-1] == pytest.approx(3 / (1 / 4 + 1 + 1 / 9))


@pytest.mark.theory
def test_a_new_class_sampled_alone() -> None:
    classes = [0] * 6 + [1, 0, 1, 0, 1, 0, 1, 0]
    result = run(parameters(scope="class"), [1000] * 14, 1, classes=classes)
    assert roles(result) == "wvv" + "fff" + "wfvfvf" + "ff"
    assert resamples(result) == {"new class": 1}


@pytest.mark.theory
def test_only_classes_met_since_detail_began_have_to_be_full() -> None:
    """Class 1 never comes back: it makes the source's resampling run into the cut-off. (Of class 0 the second begins
    while the history is not full, and is the first of the five that end after that.)"""
    classes = [1, 1, 1] + [0] * 30
    seen = run(parameters(period=10, warm_up=0), [1000] * 33, 1, classes=classes)
    assert roles(seen) == "vv" + "f" + "w" + "v" * 6 + "f" * 10 + "w" + "v" * 6 + "f" * 6
    current = run(parameters(period=10, warm_up=0, complete="current"), [1000] * 33, 1, classes=classes)
    assert roles(current) == "vv" + "f" + "w" + "vv" + "f" * 10 + "w" + "vv" + "f" * 10 + "w" + "vv" + "f"


@pytest.mark.theory
def test_history_grows_until_the_mean_is_known() -> None:
    """Ratios 1.1, 0.9, ... of mean 1: with n of them s = 0.1 sqrt(n / (n - 1)), half-width t s / sqrt(n).
    n = 2: 12.706 x 0.1 = 1.27; n = 4: 3.182 x 0.1 / sqrt(3) = 0.184; n = 6: 2.571 x 0.1 / sqrt(5) = 0.115."""
    cycles = [1000 / 1.1, 1000 / 0.9] * 20
    for target, needed in ((1.3, 2), (0.19, 4), (0.12, 6), (1e-6, 8)):
        for admit in ("finish", "start"):
            given = parameters(warm_up=0, target=target, most_history=8, admit=admit)
            result = run(given, cycles, 1)
            assert roles(result) == "v" * needed + "f" * (40 - needed)
            assert result.state.cpi[-1] == pytest.approx(1.0)


@pytest.mark.golden
def test_mean_ipc_of_the_source() -> None:
    """IPC 2.0, 2.2, 1.8 and 2.0 make 500,000 cycles of 1,000,000 instructions (section 5.3.2, equation for C)."""
    cycles = [1000 / ipc for ipc in (2.0, 2.2, 1.8, 2.0)]
    result = run(parameters(history=4, warm_up=0), [*cycles, 0.0], 1, instructions=[1000] * 4 + [1_000_000])
    assert roles(result) == "vvvvf"
    assert result.end - sum(cycles) == pytest.approx(500_000, rel=1e-12)
    # All work over all cycles is the harmonic mean for equal instances: 1,000,000 x mean(1 / IPC).
    other = run(parameters(history=4, warm_up=0, mean="cycles"), [*cycles, 0.0], 1, instructions=[1000] * 4 + [10**6])
    assert other.end - sum(cycles) == pytest.approx(1e6 * (0.5 + 1 / 2.2 + 1 / 1.8 + 0.5) / 4, rel=1e-12)


@pytest.mark.theory
def test_correction_by_a_model() -> None:
    """Equation 5.1: IPC_j = IPC_i,detailed x IPC_j,model / IPC_i,model. Instance i: detailed 0.8, model 1.0; the model
    says 0.5 for j, so 0.4, and 2,500 cycles for 1,000 instructions."""
    result = run(parameters(history=1, warm_up=0), [1250.0, 0.0], 1, model=[1.0, 2.0])
    assert roles(result) == "vf"
    assert result.state.cpi[1] == pytest.approx(2.5)
    # Two samples: ratios 0.8 / 1.0 and 0.3 / 0.5, mean 0.7; j at 0.25 by the model goes at 0.175.
    two = run(parameters(history=2, warm_up=0), [1250.0, 1000 / 0.3, 0.0], 1, model=[1.0, 2.0, 4.0])
    assert two.state.cpi[2] == pytest.approx(1 / 0.175)


@pytest.mark.theory
@pytest.mark.parametrize(("period", "later"), [("lazy", [8, 32, 40]), (20, [8, 20, 20]), (5, [5, 5, 5])])
def test_settling_samples_ever_more_seldom(period: object, later: list[int]) -> None:
    """Two instances fast-forwarded, then 8, 32, 128, ..., but no more than the period."""
    given = parameters(warm_up=0, resample_warm_up=0, history=1, settle=2, period=period)
    expected = "".join("v" + "f" * count for count in (2, *later))
    assert roles(run(given, [1000.0] * len(expected), 1)) == expected


@pytest.mark.theory
def test_staggered_periods() -> None:
    """From half to one and a half of P, not all the same, the same in each run; none before they have settled."""
    given = parameters(warm_up=0, resample_warm_up=0, history=1, settle=4, period=100, stagger=0.5)
    first, second = (roles(run(given, [1000.0] * 5000, 1)) for _ in range(2))
    assert first == second
    periods = [len(each) for each in first.split("v")[1:-1]]
    assert periods[:3] == [4, 16, 64]
    settled = periods[3:]
    assert len(settled) > 30
    assert 50 <= min(settled) < 75
    assert 125 < max(settled) <= 150
    # Uniform, mean 100 and standard deviation 100 / sqrt(12): of so many, five standard errors
    assert np.mean(settled) == pytest.approx(100, abs=5 * 100 / np.sqrt(12 * len(settled)))


@pytest.mark.theory
def test_short_periods_are_staggered_to_one_at_least() -> None:
    given = parameters(warm_up=0, resample_warm_up=0, history=1, period=1, stagger=0.5)
    assert roles(run(given, [1000.0] * 40, 1)) == "vf" * 20


@pytest.mark.theory
def test_rare_classes_are_those_with_the_fewest_instructions() -> None:
    """Of 1, 2, 3 and 94 % of all instructions: as many from the smallest on as together have no more than the share."""
    classes, instructions = [3, 1, 0, 2, 3], [47, 2, 1, 3, 47]
    for share, expected in ((0.0, []), (0.009, []), (0.01, [0]), (0.029, [0]), (0.035, [0, 1]), (0.06, [0, 1, 2])):
        state = new_taskpoint(np.array(classes), np.array(instructions), None, 1, parameters(rare=share))
        assert np.flatnonzero(state.classes["is_rare"]).tolist() == expected


@pytest.mark.theory
def test_rare_classes_leave_the_others_alone() -> None:
    """They neither count as warm-up, as samples or as fast-forwarded, nor make others be sampled again."""
    classes = [1, 0, 1, 0, 1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]
    cycles = [3000 if each else 1000 for each in classes]
    given = {"count": "total", "complete": "seen", "period": 4, "cut_off": 1, "longest": 2}
    result = run(parameters(rare=0.4, **given), cycles, 1, classes=classes)
    assert roles(result) == "rw" + "rv" + "rv" + "frfffr" + "wvvr"
    assert resamples(result) == {"period": 1}
    assert result.end == sum(cycles)
    assert {result.state.cpi[i] for i in range(16) if classes[i]} == {3.0}
    # else the class that is met late makes all be sampled again
    late = [0] * 8 + [1] + [0] * 8
    assert resamples(run(parameters(), [1000] * 17, 1, classes=late)) == {"new class": 1}
    assert roles(run(parameters(rare=0.06), [1000] * 17, 1, classes=late)) == "wvv" + "fffff" + "r" + "f" * 8


@pytest.mark.theory
def test_each_number_of_busy_cores_is_sampled_once() -> None:
    """An instance takes 1000 cycles alone, 2000 beside another. Two cores: the first instance of a phase begins alone;
    what begins with both busy has a history of its own, which the fourth instance comes too late for."""
    phases = [(8, 1), (12, 2)] * 3
    cycles = ([1000] * 8 + [1000] + [2000] * 11) * 3
    given = {"warm_up": 0, "resample_warm_up": 0, "count": "total"}
    levels = run(parameters(busy_change="levels", **given), cycles, 2, phases=phases)
    assert roles(levels) == "vvffffff" + "fvvcffffffff" + "f" * 40
    assert resamples(levels) == {"new class": 1}
    assert (levels.state.cpi * 1000).tolist() == cycles
    # Otherwise each change of the number is one: five of them.
    one = run(parameters(busy_change=0.25, busy_persistence=2, **given), cycles, 2, phases=phases)
    assert resamples(one) == {"busy cores": 5}


@pytest.mark.theory
def test_levels_are_forgotten_by_period_alone() -> None:
    """Core 0 has fast-forwarded four since two cores were sampled, then sixteen: all forget, and two cores go by the
    history of all, since they are not met while one core is sampled."""
    phases = [(8, 1), (12, 2), (30, 1), (12, 2)]
    given = parameters(
        busy_change="levels", warm_up=0, resample_warm_up=0, count="total", period=20, complete="current"
    )
    result = run(given, [1000] * 62, 2, phases=phases)
    assert roles(result) == "vvffffff" + "fvvcffffffff" + "f" * 16 + "vv" + "f" * 12 + "f" + "a" * 11
    assert resamples(result) == {"new class": 1, "period": 1}


@pytest.mark.theory
def test_levels_are_the_nearest_powers_of_two() -> None:
    """1; 2; 3 to 5; 6 to 11; 12 to 23: the larger one of two that are equally far; of each class by itself."""
    for busy in range(1, 24):
        state = new_taskpoint(np.array([0, 1]), np.array([1, 1]), None, 23, parameters(busy_change="levels"))
        first_of_class = len(state.classes) // 2
        decide(state, 1, 0, busy)
        nearest = min((1, 2, 4, 8, 16), key=lambda power: (abs(power - busy), -power))
        assert state.class_of.tolist() == [0, first_of_class + nearest.bit_length() - 1]
        assert nearest.bit_length() <= first_of_class


@pytest.mark.theory
def test_sampling_takes_no_longer_than_asked_for() -> None:
    """Two cores, three each: with the sixth end sampling is over, though no history is full. Warm-up counts apart."""
    given = parameters(warm_up=0, history=10, longest=3)
    assert roles(run(given, [1000] * 12, 2)) == "vvvvvv" + "c" + "f" * 5
    assert roles(run(parameters(warm_up=0, history=10), [1000] * 14, 2)) == "v" * 10 + "c" + "fff"
    # Three instances of the warm-up, of which the third ends in the sampling, and counts
    assert roles(run(parameters(history=10, longest=2), [1000] * 12, 2)) == "www" + "vvv" + "c" + "f" * 5


@pytest.mark.theory
@pytest.mark.parametrize(
    ("cycles", "model", "used"),
    [
        ([1000.0, 2000.0, 3000.0], [1.0, 2.0, 3.0], True),  # the model explains all of the spread
        ([2000.0, 2000.0, 2000.0], [1.0, 2.0, 3.0], False),  # there is none, and the model makes one
        ([2000.0, 2010.0, 1990.0], [1.0, 1.005, 0.995], False),  # so small that it is not worth it
        ([3000.0, 2000.0, 1000.0], [1.0, 2.0, 3.0], False),  # the model says the contrary
    ],
)
def test_a_model_is_used_where_samples_bear_it_out(cycles: list[float], model: list[float], used: bool) -> None:
    """1,000 instructions each; the fourth goes at the mean IPC, unless the model explains why samples differ."""
    given = parameters(history=3, warm_up=0, correct="explained")
    result = run(given, [*cycles, 0.0], 1, model=[*model, 4.0])
    ipc = [1000 / each for each in cycles]
    by_model = np.mean([a * b for a, b in zip(ipc, model, strict=True)])
    assert result.state.cpi[3] == pytest.approx(4.0 / by_model if used else 1 / np.mean(ipc))


@pytest.mark.property
def test_a_right_model_leaves_no_error() -> None:
    """If detail is everywhere 1.3 times what the model says, every instance is predicted exactly."""
    model = np.random.default_rng(5).uniform(0.2, 3, 200)
    result = run(parameters(history=3, warm_up=1), 1300 * model, 4, model=model)
    assert result.state.cpi == pytest.approx(1.3 * model)
    assert FORWARDED in result.roles


@st.composite
def programs(draw: st.DrawFn) -> dict[str, object]:
    count = draw(st.integers(1, 120))
    integer = st.integers(0, 2)
    seed = draw(st.integers(0, 1000))
    random = np.random.default_rng(seed)
    classes = random.integers(0, draw(st.integers(1, 4)), count)
    return {
        "parameters": TaskPointParameters.model_validate(
            {
                "warm_up": draw(integer), "resample_warm_up": draw(integer), "history": draw(st.integers(1, 4)),
                "period": draw(st.sampled_from(["lazy", 1, 3, 10])), "cut_off": draw(st.integers(1, 5)),
                "count": draw(st.sampled_from(["total", "per-thread", "busy"])),
                "admit": draw(st.sampled_from(["finish", "start"])), "scope": draw(st.sampled_from(["all", "class"])),
                "complete": draw(st.sampled_from(["seen", "current"])),
                "correct": "always",
                "busy_change": draw(st.sampled_from(["never", 0.0, 0.5, "levels"])), "busy_persistence": draw(integer),
                "rare": draw(st.sampled_from([0.0, 0.3])), "longest": draw(st.sampled_from([None, 1, 3])),
                "settle": draw(integer),
            }
        ),
        "cycles": random.integers(100, 5000, count).astype(float),
        "num_cores": draw(st.integers(1, 5)),
        "classes": classes,
        "instructions": random.integers(0, 4000, count),
        "model": random.uniform(0.2, 3, count) if draw(st.booleans()) else None,
    }  # fmt: skip


@pytest.mark.property
@settings(max_examples=60, deadline=None)
@given(programs())
def test_histories_are_what_the_log_says(program: dict) -> None:
    """Whatever is fast-forwarded goes by the latest H valid samples of its class (and number of busy cores, if they are
    told apart) since the last resampling that forgot them, else by the latest H done in detail; nothing without any
    is, and no rare class; and P bounds what a core forwards between two samplings."""
    given = program["parameters"]
    result = run(given, program["cycles"], program["num_cores"], **{
        name: program[name] for name in ("classes", "instructions", "model")
    })  # fmt: skip
    state, of_class = result.state, result.state.class_of
    depth = max(given.history, program["num_cores"]) if given.admit == "start" else given.history
    model = np.ones(len(of_class)) if program["model"] is None else program["model"]
    ended: dict[int, list[int]] = {one: [] for one in range(len(state.classes))}
    forwarded = [0] * program["num_cores"]
    mode_before = SAMPLING
    for what, i, core, _, mode in result.log:
        role = state.role[i]
        if role == EMPTY:
            assert program["instructions"][i] == state.cpi[i] == 0
        elif what == "end" and role >= WARM_UP:
            ended[of_class[i]].append(i)
            assert state.cpi[i] * program["instructions"][i] == pytest.approx(program["cycles"][i])
        elif what == "begin" and role < WARM_UP:
            forwarded[core] += 1
            assert not state.classes["is_rare"][of_class[i]]
            assert given.period == "lazy" or forwarded[core] <= given.period
            valid = [j for j in ended[of_class[i]] if state.role[j] == VALID and state.round[j] >= state.round[i]]
            assert (role == FORWARDED) == bool(valid)
            used = (valid or ended[of_class[i]])[-depth:]
            assert len(used) == state.support[i] > 0
            ratio = np.mean([model[j] * program["instructions"][j] / program["cycles"][j] for j in used])
            assert state.cpi[i] == pytest.approx(model[i] / ratio)
        if mode == FORWARDING != mode_before:
            forwarded = [0] * program["num_cores"]
        mode_before = mode


@pytest.mark.property
def test_deterministic() -> None:
    random = np.random.default_rng(1)
    cycles, classes = random.uniform(500, 1500, 300), random.integers(0, 3, 300)
    first, second = (run(TaskPointParameters(period=5), cycles, 4, classes=classes) for _ in range(2))
    for name in first.state._fields:
        assert getattr(first.state, name).tobytes() == getattr(second.state, name).tobytes()


def test_instances_without_instructions_count_nowhere() -> None:
    instructions = [0, 1000] * 8
    result = run(parameters(), [0, 1000] * 8, 1, instructions=instructions)
    assert roles(result) == "0w0v0v" + "0f" * 5
    assert result.end == 8000


def test_what_ends_late_stays_out_of_the_next_round() -> None:
    """Begun while sampling, it ends while the next round samples: by then it is no valid sample."""
    cycles = [1000, 12000] + [1000] * 14
    result = run(parameters(warm_up=0, resample_warm_up=0, history=1, period=3), cycles, 2)
    # core 1 works on instance 1 until 12000; core 0: v, three forwarded, v, three forwarded, v at 8000, fff, v
    assert roles(result)[1] == "c"
    assert result.roles[1] == CANDIDATE
    assert roles(result)[:10] == "vc" + "fff" + "v" + "fff" + "v"


def test_what_ends_late_is_no_warm_up_of_the_next_round() -> None:
    """Core 1 works on instance 1 until 5500; resampling begins at 4000 and needs two that began after that: those that
    end at 5000 and 6000."""
    cycles = [1000, 5500] + [1000] * 9
    result = run(parameters(warm_up=0, history=1, period=3, count="total"), cycles, 2)
    assert roles(result) == "vc" + "fff" + "www" + "vc" + "f"


def test_what_ends_late_of_the_warm_up_does_not_count_for_the_cut_off() -> None:
    """Class 1 is met in the warm-up, which ends at 2000, and never again. Class 0 is full at 3000 (the first that
    counts); what core 1 began in the warm-up ends at 3500; the second that counts ends at 4000."""
    cycles = [1000, 3500] + [1000] * 6
    given = parameters(history=1, cut_off=1, count="total")
    assert roles(run(given, cycles, 2, classes=[1] + [0] * 7)) == "www" + "vvc" + "ff"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"warm_up": -1}, "warm_up"),
        ({"history": 0}, "history"),
        ({"period": 0}, "period"),
        ({"period": "never"}, "period"),
        ({"target": 0.0}, "target"),
        ({"target": 0.1, "most_history": 3}, "most_history is 3; it must be at least history, 4"),
        ({"target": 0.1, "history": 1}, "at least 2 samples"),
        ({"busy_change": -0.1}, "busy_change"),
        ({"busy_change": "level"}, "busy_change"),
        ({"rare": 1.0}, "rare"),
        ({"stagger": 1.0}, "stagger"),
        ({"longest": 0}, "longest"),
        ({"warmup": 2}, "warmup"),
    ],
)
def test_refuses_parameters(given: dict, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TaskPointParameters.model_validate(given)


@pytest.mark.parametrize(
    ("arrays", "num_cores", "message"),
    [
        (([0, 0], [1, 1], None), 0, "0 cores; at least one is needed"),
        (([0, 0], [1], None), 1, "2 classes, 1 numbers of instructions: one of each"),
        (([0, 0], [1, 1], [1.0]), 1, "and 1 of the model"),
        (([0, -1], [1, 1], None), 1, "task instance 1 has no class"),
        (([0, 0], [1, -5], None), 1, "task instance 1 has a negative number"),
        (([0, 0], [1, 1], [1.0, 0.0]), 1, "task instance 1: 0.0 cycles per instruction of the model"),
        (([0, 0], [1, 1], [np.nan, 1.0]), 1, "task instance 0: nan"),
    ],
)
def test_refuses_arrays(arrays: tuple, num_cores: int, message: str) -> None:
    classes, instructions, model = arrays
    with pytest.raises(ValueError, match=message):
        new_taskpoint(np.array(classes), np.array(instructions), None if model is None else np.array(model), num_cores)


def test_a_model_may_be_silent_where_nothing_is_executed() -> None:
    state = new_taskpoint(np.array([0, 0]), np.array([0, 10]), np.array([0.0, 1.0]), 1)
    assert decide(state, 0, 0, 1) == FAST
    assert decide(state, 1, 0, 1) == DETAILED
    observe(state, 1, 0, 20.0, 1)
    assert state.cpi.tolist() == [0.0, 2.0]


def test_a_class_that_ended_nothing_yet_has_no_history() -> None:
    """Two of a class begin at the same time, the first of them in a long instance: the other has nothing to go by."""
    cycles = [1000, 9000, 1000, 1000, 1000, 1000, 1000]
    result = run(parameters(warm_up=0, history=1, cut_off=1, count="total"), cycles, 2, classes=[0, 1, 0, 0, 0, 1, 0])
    assert resamples(result) == {"no history": 1}
    assert FORWARDED_BY_ALL not in result.roles
