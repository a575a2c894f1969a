"""Profiles of task instances against counts made by hand and by brute force."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from instance_streams import Op, profiles_of

from manyscale.models.memory.stack_distance import StackDistances
from manyscale.models.node.instance_profile import GROUP_INSTRUCTIONS, InstanceProfiles, bin_edges, profiles_from
from manyscale.models.node.instance_profile_kernel import NUM_BINS, bin_of

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
    assert profiles.num_loads.tolist() == [1, 3]
    assert profiles.num_stores.tolist() == [0, 2]
    assert rows(profiles.first_vector, 1, profiles.vector_block, profiles.vector_instructions) == [(1, 4), (0, 4)]
    # lines 1, 0, 1, 0, 2: by last use, and which were written
    lines = rows(profiles.first_line, 1, profiles.line_number[profiles.line], profiles.line_written)
    assert lines == [(1, True), (0, True), (2, False)]
    assert rows(profiles.first_reuse, 1, profiles.reuse_bin, profiles.reuse_count) == [(1, 2)]


@pytest.mark.theory
def test_pieces_of_an_instance_are_one_after_the_other() -> None:
    """A child's accesses between two pieces of its parent are not in the parent's distances."""
    child = [(0, (64 * k,)) for k in range(10, 20)]
    profiles = profiles_of(BLOCKS, [(0, [(0, (0,))]), (1, child), (0, [(0, (0,))])])
    assert rows(profiles.first_reuse, 0, profiles.reuse_bin, profiles.reuse_count) == [(0, 1)]
    assert profiles.num_lines.tolist() == [1, 10]
    assert profiles.order.tolist() == [0, 1]


@pytest.mark.theory
def test_earlier_uses_by_other_instances() -> None:
    write, read = [(1, (0, 0))], [(0, (0,))]
    other = [(0, (64 * k,)) for k in range(1, 4)]
    profiles = profiles_of(BLOCKS, [(0, write), (1, other), (2, read), (3, read)])
    cold = 2 * (NUM_BINS - 1)
    found = [rows(profiles.first_earlier, i, profiles.earlier_bin, profiles.earlier_count) for i in range(4)]
    assert found == [[(cold, 1)], [(cold, 3)], [(2 * 3 + 1, 1)], [(0, 1)]]


@pytest.mark.theory
def test_groups_of_first_loads() -> None:
    """A new line every 4 instructions: a window of 16 holds four, one of 1024 all 20."""
    profiles = profiles_of(BLOCKS, [(0, [(0, (64 * k,)) for k in range(20)])])
    groups = dict(zip(GROUP_INSTRUCTIONS.tolist(), profiles.first_load_groups[0, -1].tolist(), strict=True))
    assert groups == {1: 20, 16: 5, 32: 3, 64: 2, 128: 1, 256: 1, 512: 1, 1024: 1}


@pytest.mark.theory
def test_bins_hold_what_their_edges_say() -> None:
    edges = bin_edges()
    for distance in [*range(300), 10**6, 2**40 + 1]:
        assert edges[bin_of(distance)] <= distance < edges[bin_of(distance) + 1]


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
    used = {i: [line for owner, lines in pieces if owner == i for line in lines] for i in range(5)}
    stack = StackDistances()
    for instance in began:
        lines = used[instance]
        expected = sorted(
            k - max(j for j in range(k) if lines[j] == lines[k]) - 1 for k in range(len(lines)) if lines[k] in lines[:k]
        )
        got = rows(profiles.first_reuse, instance, profiles.reuse_bin, profiles.reuse_count)
        assert got == [(k, n) for k, n in enumerate(np.bincount([int(bin_of(d)) for d in expected], minlength=1)) if n]
        by_last_use = sorted(set(lines), key=lambda line: max(k for k, each in enumerate(lines) if each == line))
        assert [
            row[0] for row in rows(profiles.first_line, instance, profiles.line_number[profiles.line])
        ] == by_last_use
        distance = stack.feed(np.array(by_last_use, np.int64))
        bins = np.sort(np.where(distance < 0, NUM_BINS - 1, [bin_of(max(d, 0)) for d in distance]))
        told = rows(profiles.first_earlier, instance, profiles.earlier_bin >> 1, profiles.earlier_count)
        assert [b for b, n in told for _ in range(n)] == bins.tolist()


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
    assert profiles.num_lines.tolist() == [20_000]
    assert np.array_equal(profiles.line_number, 128 * np.arange(20_000))
