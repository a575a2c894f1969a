"""Sampling units: which threads become one, where units end, and what falls into them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyscale.runner.readers.stacks.units import (
    NO_CPU,
    Lives,
    UnitRules,
    cut,
    lives,
    merge,
    number_threads,
    spread,
)


def threads(*spans: tuple[int, int, int]) -> Lives:
    """Threads 10, 11, ... of rank 0 as (core, first, last)."""
    core, first, last = np.array(spans, np.int64).T
    count = len(spans)
    return Lives(
        np.zeros(count, np.int32), np.arange(10, 10 + count), core.astype(np.int32), first, last, np.empty(0, np.int64)
    )


def names(found: Lives, *texts: str) -> dict[tuple[int, int], str]:
    return {(0, thread): text for thread, text in zip(found.thread.tolist(), texts, strict=True)}


def merged(found: Lives, *texts: str) -> list[int]:
    return merge(found, names(found, *(texts or ("exec-1",) * len(found.rank)))).tolist()


class TestMerge:
    def test_threads_that_follow_one_another_on_a_core_are_one(self):
        assert merged(threads((0, 0, 10), (0, 11, 20), (0, 21, 30))) == [0, 0, 0]

    def test_threads_that_take_turns_on_a_core_stay_apart(self):
        assert merged(threads((0, 0, 10), (0, 5, 20), (0, 11, 30))) == [0, 1, 0]

    def test_threads_of_other_cores_stay_apart(self):
        assert merged(threads((0, 0, 10), (1, 11, 20), (0, 21, 30))) == [0, 1, 0]

    def test_only_names_that_differ_in_numbers_alone_are_merged(self):
        found = threads((0, 0, 10), (0, 11, 20), (0, 21, 30))
        assert merged(found, "exec-1", "main", "exec-22") == [0, 1, 0]

    def test_an_end_at_the_other_s_begin_is_an_overlap(self):
        assert merged(threads((0, 0, 10), (0, 10, 20))) == [0, 1]

    @pytest.mark.property
    @settings(deadline=None, max_examples=200)
    @given(st.lists(st.tuples(st.integers(-1, 2), st.integers(0, 30), st.integers(0, 12)), min_size=1, max_size=25))
    def test_as_many_remain_as_ran_at_once(self, spans):
        """Intervals that share no point can be put into as few rows as overlap at most in one point."""
        found = threads(*((core, first, first + length) for core, first, length in spans))
        into = np.array(merged(found))
        for core in np.unique(found.core):
            mine = found.core == core
            at_once = max(
                np.count_nonzero(mine & (found.first_ns <= time) & (found.last_ns >= time))
                for time in found.first_ns[mine]
            )
            assert len(np.unique(into[mine])) == at_once
        for one in np.unique(into):
            parts = np.flatnonzero(into == one)
            parts = parts[np.argsort(found.first_ns[parts])]
            assert parts[0] == one
            assert np.all(found.last_ns[parts[:-1]] < found.first_ns[parts[1:]])


def test_a_thread_lives_on_the_core_of_most_of_its_samples():
    rank = np.array([1, 0, 0, 0, 0])
    thread = np.array([7, 7, 7, 7, 8])
    found = lives(rank, thread, np.array([3, 2, 1, 2, NO_CPU]), np.array([50, 30, 20, 10, 5]))
    assert found.rank.tolist() == [0, 0, 1]
    assert found.thread.tolist() == [7, 8, 7]
    assert found.core.tolist() == [2, NO_CPU, 3]
    assert found.first_ns.tolist() == [10, 5, 50]
    assert found.last_ns.tolist() == [30, 5, 50]
    assert found.row.tolist() == [2, 0, 0, 0, 1]


def test_threads_are_numbered_in_each_rank_by_their_first_sample():
    found = lives(np.array([0, 0, 0, 1]), np.array([9, 5, 7, 5]), np.zeros(4), np.array([1, 2, 3, 0]))
    assert found.thread.tolist() == [5, 7, 9, 5]
    assert number_threads(found, np.array([0, 0, 2, 3])).tolist() == [1, 1, 0, 0]


class TestCut:
    @pytest.mark.golden
    def test_ten_snapshots_each_ten_million_instructions_are_a_unit(self):
        units = cut(np.zeros(25, np.int64), np.full(25, 10_000_000), 100_000_000)
        assert units.tolist() == [0] * 10 + [1] * 10 + [2] * 5

    def test_each_thread_begins_anew(self):
        assert cut(np.array([3, 3, 3, 8, 8, 8]), np.ones(6, np.int64), 2).tolist() == [0, 0, 1, 0, 0, 1]

    def test_a_sample_belongs_where_its_stretch_began(self):
        assert cut(np.zeros(4, np.int64), np.array([3, 3, 3, 3]), 4).tolist() == [0, 0, 1, 2]

    def test_units_without_a_sample_are_not_counted(self):
        assert cut(np.zeros(3, np.int64), np.array([50, 5, 5]), 10).tolist() == [0, 1, 1]

    def test_nothing(self):
        assert cut(np.empty(0, np.int64), np.empty(0, np.int64), 10).tolist() == []


class TestSpread:
    def test_a_value_is_shared_by_overlap(self):
        units = spread(np.array([5]), np.array([25]), np.array([200.0]), np.array([0, 10, 20]), np.array([10, 20, 30]))
        assert units.tolist() == [50.0, 100.0, 50.0]

    def test_what_lies_outside_is_lost(self):
        units = spread(np.array([-10, 40]), np.array([10, 50]), np.array([8.0, 9.0]), np.array([0]), np.array([20]))
        assert units.tolist() == [4.0]

    def test_values_at_one_instant(self):
        units = spread(np.array([5]), np.array([5]), np.array([3.0]), np.array([0, 6]), np.array([5, 9]))
        assert units.sum() == 3.0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"snapshots": 0}, "snapshots is 0"),
        ({"cpu_ps": -1}, "cpu_ps is -1"),
        ({"threads": "("}, "no regular expression"),
    ],
)
def test_rules_are_checked(wrong, said):
    with pytest.raises(ValueError, match=said):
        UnitRules(**wrong)
