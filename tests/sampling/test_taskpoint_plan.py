"""TaskPoint played through: the same decisions as a simulator that is as small as can be, and weights by hand."""

from __future__ import annotations

import numpy as np
import pytest
import task_simulator

from manyscale.sampling.taskpoint.decisions import new_taskpoint
from manyscale.sampling.taskpoint.plan import choice_of, is_detailed, play
from manyscale.sampling.taskpoint.state import TaskPoint, TaskPointParameters

LAZY = TaskPointParameters(period="lazy", warm_up=1, history=2, busy_change="never")


def played(
    labels: list[int], instructions: list[int], cycles: list[float], cores: int, rules: TaskPointParameters = LAZY
) -> TaskPoint:
    state = new_taskpoint(np.array(labels), np.array(instructions), None, cores, rules)
    play(state, np.array(cycles, float))
    return state


@pytest.mark.peer
@pytest.mark.parametrize("cores", [1, 3, 8])
@pytest.mark.parametrize("rules", [LAZY, TaskPointParameters(), TaskPointParameters(period=20, settle=3)])
def test_the_same_as_a_small_simulator(cores: int, rules: TaskPointParameters) -> None:
    random = np.random.default_rng(cores)
    labels, cycles = random.integers(0, 3, 400), random.uniform(500, 3000, 400)
    state = played(labels.tolist(), [1000] * 400, cycles.tolist(), cores, rules)
    other = task_simulator.run(rules, cycles.tolist(), cores, classes=labels.tolist())
    assert state.role.tolist() == other.roles
    assert state.cpi == pytest.approx(other.state.cpi)


@pytest.mark.theory
def test_weights_by_hand() -> None:
    """One core: an instance warms up, two are samples, seven of 1,000 instructions are fast-forwarded. The samples, of
    1,000 and 3,000 instructions, stand for 7,000 more as 1 to 3; all are 12,000."""
    instructions = [1000, 1000, 3000, *[1000] * 7]
    state = played([0] * 10, instructions, [2.0 * each for each in instructions], 1)
    assert is_detailed(state).tolist() == [True] * 3 + [False] * 7
    choice = choice_of(state, np.zeros(10, np.int32))
    assert choice.element.tolist() == [0, 1, 2]
    assert choice.weight * 12_000 == pytest.approx([1000, 1000 + 7000 / 4, 3000 + 7000 * 3 / 4])


@pytest.mark.contract
@pytest.mark.parametrize("rules", [LAZY, TaskPointParameters(busy_change="levels", rare=0.1)])
def test_weights_sum_to_one_and_of_each_class_to_its_share(rules: TaskPointParameters) -> None:
    random = np.random.default_rng(5)
    labels, instructions = random.integers(0, 4, 300).astype(np.int32), random.integers(0, 5000, 300)
    state = played(labels.tolist(), instructions.tolist(), (instructions * 1.5).tolist(), 4, rules)
    choice = choice_of(state, labels)
    assert 0 < len(choice.element) < 300
    assert np.all(choice.weight > 0)
    of_class = np.bincount(choice.stratum, choice.weight, 4)
    assert of_class == pytest.approx(np.bincount(labels, instructions, 4) / instructions.sum())
