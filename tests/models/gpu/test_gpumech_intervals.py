"""Intervals of a warp, and the warp that represents the others (Huang, dissertation, Georgia Tech, 2015, sec. 4.3)."""

from __future__ import annotations

import numpy as np
import pytest

from manyscale.models.gpu.gpumech.collector import NUM_EVENTS
from manyscale.models.gpu.gpumech.intervals import (
    interval_profile,
    level_shares,
    representatives,
    warp_cycles,
)
from manyscale.models.gpu.launch_program import STATIC


def program(*instructions):
    """Static instructions of (written, read) registers."""
    static = np.zeros(len(instructions), STATIC)
    operand = []
    for row, (written, read) in zip(static, instructions, strict=True):
        row["first"] = len(operand)
        row["written"] = len(operand) + len(written)
        operand += [*written, *read]
        row["end"] = len(operand)
    return static, np.array(operand, np.int16)


def intervals(instructions, latency):
    static, operand = program(*instructions)
    rows = np.arange(len(instructions), dtype=np.int32)
    met = np.zeros((len(rows), NUM_EVENTS), np.int64)
    found = interval_profile(static, operand, rows, np.array(latency, float), met, 10, 0.0)
    return list(zip(found.instructions.tolist(), found.stall_cycles.tolist(), found.cause.tolist(), strict=True))


@pytest.mark.theory
def test_what_depends_is_issued_a_cycle_after_its_operand_is_done():
    """Eq. 13: the second is issued at 0 + 6 + 1, six cycles later than it could be."""
    assert intervals([((1,), ()), ((2,), (1,))], [6, 6]) == [(1, 6, 0), (1, 0, -1)]


@pytest.mark.golden
def test_intervals_of_fig_22():
    """Of five instructions the third leads to a stall, since the fifth depends on it; the others cause none."""
    five = [((1,), ()), ((2,), ()), ((3,), ()), ((4,), ()), ((5,), (3,))]
    assert intervals(five, [1, 1, 10, 1, 1]) == [(4, 9, 2), (1, 0, -1)]


@pytest.mark.theory
def test_a_stall_belongs_to_the_operand_that_comes_last():
    three = [((1,), ()), ((2,), ()), ((3,), (1, 2))]
    assert intervals(three, [9, 20, 1]) == [(2, 20, 1), (1, 0, -1)]
    assert intervals(three, [30, 20, 1]) == [(2, 29, 0), (1, 0, -1)]


@pytest.mark.theory
def test_a_register_is_not_written_before_the_one_before_is_done():
    assert intervals([((1,), ()), ((1,), ())], [6, 6]) == [(1, 6, 0), (1, 0, -1)]


@pytest.mark.theory
def test_warps_alone_do_not_depend_on_each_other():
    """Chains of 3, 1 and 3 instructions, 7 cycles apart."""
    static, operand = program(((1,), (1,)))
    cycles = np.zeros(3)
    bounds = np.array([0, 3, 4, 7])
    warp_cycles(static, operand, np.array([6.0]), bounds, np.zeros(7, np.int32), 10, cycles)
    assert cycles.tolist() == [15, 1, 15]


def test_shares_of_levels():
    met = np.zeros((2, NUM_EVENTS), np.int64)
    met[0, :3] = [1, 2, 1]
    assert level_shares(met).tolist() == [[0.25, 0.5, 0.25], [1, 0, 0]]


def test_representative_is_in_the_larger_cluster():
    """Eight warps of about 100 instructions at an IPC of 0.2, three long and slow ones."""
    instructions = np.array([100, 101, 99, 100, 102, 98, 100, 104, 900, 910, 920])
    cycles = instructions * np.array([5.0] * 8 + [20.0, 19.0, 21.0])
    cycles[7] = 104 * 4.9
    found = representatives(instructions, cycles)
    # the centre: 100.5 instructions, an IPC just above 0.2; nearest are those of 101 and 100 instructions
    assert found == {"clustering": 1, "max": 7, "min": 10}


def test_number_of_instructions_separates_warps_of_equal_performance():
    instructions = np.array([10, 500, 505, 495])
    assert representatives(instructions, 5.0 * instructions)["clustering"] == 1


def test_equal_warps():
    assert representatives(np.full(5, 10), np.full(5, 50.0)) == {"clustering": 0, "max": 0, "min": 0}


def test_warps_without_instructions_represent_none():
    assert representatives(np.array([0, 10, 10]), np.array([0.0, 50.0, 50.0]))["min"] == 1
