"""Profiles of task instances against counts made by hand and by brute force."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from instance_streams import Op, profiles_of

from manyscale.models.node.instance_profile import InstanceProfiles, profiles_from

LOAD, STORE = Op(loads=1), Op(stores=1)
# block 0: a load among four instructions; block 1: a store, a load
BLOCKS = [[Op(), LOAD, Op(), Op()], [STORE, LOAD]]


def rows(first: np.ndarray, instance: int, *columns: np.ndarray) -> list[tuple[int, ...]]:
    part = slice(first[instance], first[instance + 1])
    return list(zip(*(column[part].tolist() for column in columns), strict=True))


@pytest.mark.theory
def test_counts_and_vectors() -> None:
    profiles = profiles_of(BLOCKS, [(0, [(0, (0,))]), (1, [(1, (64, 0)), (0, (64,)), (1, (8, 128))])])
    assert profiles.num_instructions.tolist() == [4, 8]
    assert rows(profiles.first_vector, 1, profiles.vector_block, profiles.vector_instructions) == [(1, 4), (0, 4)]
    # lines 1, 0, 1, 0, 2: by last use, and which were written
    lines = rows(profiles.first_line, 1, profiles.line_number[profiles.line], profiles.line_written)
    assert lines == [(1, True), (0, True), (2, False)]


@pytest.mark.theory
def test_pieces_of_an_instance_are_one_after_the_other() -> None:
    """A child's lines between two pieces of its parent are not the parent's."""
    child = [(0, (64 * k,)) for k in range(10, 20)]
    profiles = profiles_of(BLOCKS, [(0, [(0, (0,))]), (1, child), (0, [(0, (0,))])])
    assert np.diff(profiles.first_line).tolist() == [1, 10]
    assert profiles.order.tolist() == [0, 1]


@pytest.mark.property
@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.lists(st.integers(0, 12), min_size=1, max_size=12)), min_size=1, max_size=8
    )
)
def test_against_brute_force(pieces: list[tuple[int, list[int]]]) -> None:
    profiles = profiles_of(BLOCKS, [(i, [(0, (64 * line,)) for line in lines]) for i, lines in pieces], 5)
    began: list[int] = []
    for instance, _ in pieces:
        if instance not in began:
            began.append(instance)
    assert profiles.order[began].tolist() == list(range(len(began)))
    for instance in range(5):
        used = [line for owner, lines in pieces if owner == instance for line in lines]
        by_last_use = sorted(set(used), key=lambda line: len(used) - used[::-1].index(line))
        assert rows(profiles.first_line, instance, profiles.line_number[profiles.line]) == [(k,) for k in by_last_use]


@pytest.mark.property
def test_saved_and_read_back() -> None:
    profiles = profiles_of(BLOCKS, [(0, [(0, (0,))]), (1, [(1, (64, 0))])])
    file = io.BytesIO()
    np.savez(file, **profiles.arrays())
    file.seek(0)
    again = profiles_from(dict(np.load(file)))
    assert isinstance(again, InstanceProfiles)
    assert all(np.array_equal(a, b) for a, b in zip(profiles.arrays().values(), again.arrays().values(), strict=True))


def test_many_pages_and_lines() -> None:
    """More pages and lines than the first tables hold."""
    profiles = profiles_of(BLOCKS, [(0, [(0, (8192 * k,)) for k in range(20_000)])])
    assert np.diff(profiles.first_line).tolist() == [20_000]
    assert np.array_equal(profiles.line_number, 128 * np.arange(20_000))
