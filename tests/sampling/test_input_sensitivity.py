"""Phases that change with a program's input (eq. 38), and samples of which a part is kept."""

from __future__ import annotations

import numpy as np
import pytest

from manyscale.sampling.simprof.input_sensitivity import drawn_again, reference_estimate, sensitivity

LABEL = np.repeat([0, 1, 2, 3], 2)
CPI = np.array([0.5, 1.5, 2, 2, 4, 6, 7, 9])
OTHER = np.array([0.55, 1.55, 2.5, 2.5, 3.8, 6.2])


def test_by_hand() -> None:
    """Phase 0: mean 1 -> 1.05 and deviation 0.5 -> 0.5; 1: mean 2 -> 2.5; 2: deviation 1 -> 1.2; 3: not visited."""
    found = sensitivity(LABEL, CPI, [(LABEL[:6], OTHER)])
    assert found.sensitive.tolist() == [False, True, True, False]
    assert found.units.tolist() == [[2, 2, 2, 2], [2, 2, 2, 0]]
    assert found.mean[1, :3] == pytest.approx([1.05, 2.5, 5.0])
    assert found.deviation[1, :3] == pytest.approx([0.5, 0.0, 1.2])
    assert np.isnan(found.mean[1, 3])


def test_the_mean_alone_and_another_tolerance() -> None:
    assert sensitivity(LABEL, CPI, [(LABEL[:6], OTHER)], by="mean").sensitive.tolist() == [False, True, False, False]
    assert sensitivity(LABEL, CPI, [(LABEL[:6], OTHER)], 0.3).sensitive.tolist() == [False, False, False, False]


def test_any_reference_decides() -> None:
    """Algorithm 5.1: a phase is sensitive if one of the references moves it."""
    found = sensitivity(LABEL, CPI, [(LABEL, CPI), (LABEL[:6], OTHER)])
    assert found.moved.tolist() == [[False] * 4, [False, True, True, False]]
    assert found.sensitive.tolist() == [False, True, True, False]


def test_one_unit_has_no_deviation() -> None:
    found = sensitivity(np.array([0, 0, 1]), np.array([1.0, 3, 5]), [(np.array([0, 1, 1]), np.array([2.0, 4, 6]))])
    assert found.sensitive.tolist() == [False, False]


def test_units_in_sensitive_phases_are_simulated_again() -> None:
    found = sensitivity(LABEL, CPI, [(LABEL[:6], OTHER)])
    assert found.share_again(np.array([4, 3, 2, 1])) == 0.5
    label = np.array([2, 1, 1, 1, 0, 2, 2])
    drawn = drawn_again(found, np.array([4, 2, 5, 1]), 1, label, 0)
    assert list(map(len, drawn)) == [0, 2, 3, 0]
    assert set(drawn[1]) < {1, 2, 3}
    assert drawn[2].tolist() == [0, 5, 6]
    again = drawn_again(found, np.array([4, 2, 5, 1]), 1, label, 0)
    assert [each.tolist() for each in again] == [each.tolist() for each in drawn]


def test_an_estimate_of_another_input_by_hand() -> None:
    """Phase 0 (not sensitive) from the training sample, 1 (sensitive) anew; the reference has 3 and 1 units of them."""
    label, cpi = np.array([0, 0, 1, 1]), np.array([1.0, 1.2, 4, 4])
    found = sensitivity(label, cpi, [(np.array([0, 0, 0, 1]), np.array([1.05, 1.15, 1.1, 8]))], by="mean")
    assert found.sensitive.tolist() == [False, True]
    told = reference_estimate(found, 1, [cpi[:2], cpi[2:]], [np.array([]), np.array([8.0])], 0.95)
    assert told.mean == pytest.approx(0.75 * 1.1 + 0.25 * 8)
    assert told.standard_error == 0  # all units of the phase were drawn


def test_estimates_of_an_input_that_changes_two_phases() -> None:
    """Units of a program on two inputs; phases 1 and 2 change, and are visited more often. Over 400 draws the estimate
    is unbiased and 95 % intervals hold, with half of the sample kept."""
    random = np.random.default_rng(6)
    shape = ((200, 150, 1.0, 1.0), (100, 150, 2.0, 3.0), (100, 200, 3.0, 2.0), (300, 100, 4.0, 4.0))
    label, other = (np.repeat(np.arange(4), [phase[row] for phase in shape]) for row in (0, 1))
    noise = random.standard_normal(1000) * 0.1
    cpi = np.concatenate([noise[:own] + mean for own, _, mean, _ in shape])
    changed = np.concatenate([noise[:own] + mean for _, own, _, mean in shape])
    found = sensitivity(label, cpi, [(other, changed)], by="mean")
    assert found.sensitive.tolist() == [False, True, True, False]
    count, truth = np.full(4, 8), float(changed.mean())
    assert found.share_again(count) == 0.5
    means, held = [], 0
    for draw in range(400):
        kept = [cpi[random.choice(np.flatnonzero(label == phase), 8, replace=False)] for phase in range(4)]
        again = [changed[each] for each in drawn_again(found, count, 1, other, draw)]
        told = reference_estimate(found, 1, kept, again, 0.95)
        means.append(told.mean)
        held += told.low <= truth <= told.high
    # what the kept phases differ by between the inputs stays
    rest = sum(
        own / 600 * (noise[:was].mean() - noise[:own].mean()) for phase, (was, own, *_) in enumerate(shape)
        if not found.sensitive[phase]
    )  # fmt: skip
    assert np.mean(means) == pytest.approx(truth + rest, abs=3 * np.std(means) / 20)
    assert held / 400 > 0.9
