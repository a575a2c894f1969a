"""Profiles of task instances against counts made by hand and by brute force."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from instance_streams import Op, profiles_of

from manyscale.models.node.instance_profile import (
    GROUP_BANDS,
    GROUP_INSTRUCTIONS,
    EarlierUses,
    InstanceProfiles,
    bin_edges,
    profiles_from,
)
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
    unused = 2 * (NUM_BINS - 1)
    assert earlier(profiles.earlier_cold) == [[(unused, 1)], [(unused, 3)], [(2 * 3 + 1, 1)], [(0, 1)]]


def earlier(uses: EarlierUses) -> list[list[tuple[int, ...]]]:
    return [rows(uses.first, i, uses.bin, uses.count) for i in range(len(uses.first) - 1)]


@pytest.mark.theory
def test_earlier_uses_if_the_same_instances_ran_before() -> None:
    """Instance 0 writes line 0, 1 and 2 read lines 1 to 3, 3 reads line 0. Around the end, nothing lies between 3 and
    0; between 2 and 1 lie two of their own lines, and line 0."""
    write, read = [(1, (0, 0))], [(0, (0,))]
    other = [(0, (64 * k,)) for k in range(1, 4)]
    profiles = profiles_of(BLOCKS, [(0, write), (1, other), (2, other), (3, read)])
    known = [[(2 * 2, 3)], [(2 * 3 + 1, 1)]]
    assert earlier(profiles.earlier_cold)[2:] == known
    assert earlier(profiles.earlier_warm) == [[(0, 1)], [(2 * 3, 3)], *known]


@pytest.mark.theory
def test_what_was_written_last_in_the_run_before() -> None:
    """One line, read first and written last: warm, the reader finds what the writer left."""
    profiles = profiles_of(BLOCKS, [(0, [(0, (0,))]), (1, [(1, (0, 0))])])
    assert earlier(profiles.earlier_cold)[1] == [(0, 1)]
    assert earlier(profiles.earlier_warm) == [[(1, 1)], [(0, 1)]]


@pytest.mark.theory
def test_groups_of_loads_whose_lines_the_run_before_used() -> None:
    """300 lines, each once: if they were used before, 299 others lie between, so two bands hold them instead of all."""
    profiles = profiles_of(BLOCKS, [(0, [(0, (64 * k,)) for k in range(300)])])
    assert profiles.earlier_cold.load_groups[0, :, 0].tolist() == [300] * len(GROUP_BANDS)
    assert profiles.earlier_warm.load_groups[0, :, 0].tolist() == [300, 300] + [0] * (len(GROUP_BANDS) - 2)


@pytest.mark.theory
def test_groups_of_first_loads() -> None:
    """A new line every 4 instructions: a window of 16 holds four, one of 1024 all 20."""
    profiles = profiles_of(BLOCKS, [(0, [(0, (64 * k,)) for k in range(20)])])
    groups = dict(zip(GROUP_INSTRUCTIONS.tolist(), profiles.earlier_cold.load_groups[0, -1].tolist(), strict=True))
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
    in_order: list[int] = []  # lines of instances, those of the run before, too
    for is_warm, instance in [(is_warm, each) for is_warm in (False, True) for each in began]:
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
        bins = []
        for line in by_last_use:
            since = in_order[::-1].index(line) if line in in_order else None
            bins.append(NUM_BINS - 1 if since is None else int(bin_of(len(set(in_order[len(in_order) - since :])))))
            in_order.append(line)
        uses = profiles.earlier_warm if is_warm else profiles.earlier_cold
        told = rows(uses.first, instance, uses.bin >> 1, uses.count)
        assert [b for b, n in told for _ in range(n)] == sorted(bins)


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
