"""How often blocks are executed: by hand, from real traces, and what cannot be solved."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from manyscale.models.memory.access_stream import accesses, sites_of
from manyscale.models.memory.amm.block_probabilities import (
    access_weights,
    count_executions,
    count_transitions,
    execution_probabilities,
    expected_executions,
)
from manyscale.models.memory.distances.stack_distance import StackDistances
from manyscale.models.memory.reuse_profile import ReuseProfile
from manyscale.models.workload import SCHEMAS, Workload, WorkloadError
from manyscale.models.workload.detail_tables import BLOCKS_SCHEMA
from manyscale.runner.readers import lackey, omt, sancov_npz
from manyscale.runner.readers.stores.detail_store import DetailWriter

DATA = Path(__file__).parents[2] / "data" / "detail"
TRACES = {
    "bs16_O0.lk.xz": lackey,
    "matmul25_O1.lk.xz": lackey,
    "bs16_clangO1_sancov.npz": sancov_npz,
    "cholesky-4.omt.xz": omt,  # several tasks, so several runs
}


def read(name: str) -> Workload:
    return TRACES[name].read(DATA / name)


def made(folder: Path, num_blocks: int, *segments: list[int]) -> Workload:
    """A workload of blocks without accesses, whose segments execute them as listed."""
    writer = DetailWriter(folder / "stream")
    for blocks in segments:
        writer.add(np.array(blocks, np.int32), np.zeros(len(blocks), np.int32), np.empty(0, np.uint64))
        writer.end_segment(0, 0, 0, -1, -1)
    table, detail = writer.close()
    rows = [["f"] * num_blocks, ["f.c"] * num_blocks, [0] * num_blocks, ["m"] * num_blocks]
    rows += [list(range(num_blocks)), [False] * num_blocks, [-1] * num_blocks]
    blocks_table = pa.table(
        [pa.array(r, f.type) for r, f in zip(rows, BLOCKS_SCHEMA, strict=True)], schema=BLOCKS_SCHEMA
    )
    levels = ("operations", "phases", "regions", "communicators")
    tables = {level: pa.Table.from_batches([], SCHEMAS[level]) for level in levels}
    return Workload("made", 1, {**tables, "blocks": blocks_table, "segments": table}, detail=detail)


def loop(iterations: int) -> np.ndarray:
    """Entry 0, a loop of one block 1, what follows it 2."""
    stay = (iterations - 1) / iterations
    return np.array([[0, 1, 0], [0, stay, 1 - stay], [0, 0, 0]])


@pytest.mark.theory
@pytest.mark.parametrize("iterations", [1, 2, 7, 1000])
def test_a_loop_by_hand(iterations):
    assert expected_executions(loop(iterations), np.array([1, 0, 0])) == pytest.approx([1, iterations, 1])


@pytest.mark.theory
@pytest.mark.parametrize("n", [1, 12_345, 10**6])
def test_three_nested_loops_at_an_input_that_was_not_traced(n):
    # blocks: entry, i, j, k (the body), end of j, end of i: a matrix multiply of n x n
    go, end = (n - 1) / n, 1 / n
    pi = np.zeros((6, 6))
    pi[0, 1] = pi[1, 2] = pi[2, 3] = 1
    pi[3, 3], pi[3, 4] = go, end
    pi[4, 2], pi[4, 5] = go, end
    pi[5, 1] = go
    computed = expected_executions(csr_array(pi), np.eye(6)[0], np.array([0, 0, 0, 0, 0, end]))
    assert computed == pytest.approx([1, n, n**2, n**3, n**2, n], rel=1e-13)


@pytest.mark.theory
def test_the_end_of_a_long_loop_keeps_its_digits_where_it_is_given():
    n = 10**9
    exact = expected_executions(np.array([[(n - 1) / n]]), np.ones(1), np.array([1 / n]))
    assert exact == pytest.approx([n], rel=1e-15)
    assert expected_executions(np.array([[(n - 1) / n]]), np.ones(1)) == pytest.approx([n], rel=1e-6)


@pytest.mark.theory
def test_several_entries_and_blocks_that_nothing_leads_to():
    pi = np.zeros((4, 4))
    pi[0, 2] = pi[1, 2] = 1
    pi[3, 3] = 1  # never left, but never entered either
    assert expected_executions(pi, np.array([1, 4, 0, 0])).tolist() == [1, 4, 5, 0]
    assert expected_executions(pi, np.zeros(4)).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("pi", "entries", "message"),
    [
        ([[1.0]], [1], "block 0 is executed without end"),
        ([[0, 1, 0], [0, 0, 1], [0, 1, 0]], [1, 0, 0], "block 0 is executed without end: every way"),
        ([[0.5, 0.6], [0, 0]], [1, 0], "block 0: what follows and its end .* 1.1 in all, not 1"),
        ([[-0.5, 0.6], [0, 0]], [1, 0], "negative or no number"),
        ([[float("nan")]], [1], "negative or no number"),
        ([[0.5, 0.5], [0, 0]], [1, -1], "negative or no number"),
        ([[0.5]], [1, 0], "2 blocks need 2 x 2 probabilities"),
    ],
)
def test_what_has_no_solution_is_one_clear_error(pi, entries, message):
    with pytest.raises(ValueError, match=message):
        expected_executions(np.array(pi), np.array(entries))


def test_counts_beyond_numbers_are_refused():
    pi = np.diag(np.full(399, 0.5), 1)  # each block goes on or back to the first: 2^400 executions
    pi[:, 0] += 0.5
    with pytest.raises(ValueError, match=r"block \d+ is executed more than 1e\+100 times"):
        expected_executions(pi, np.eye(400)[0])


def test_an_end_that_contradicts_the_probabilities_is_refused():
    with pytest.raises(ValueError, match=r"block 0: what follows and its end have probabilities of 0.7 in all"):
        expected_executions(np.array([[0.5]]), np.ones(1), np.array([0.2]))


@pytest.mark.property
@given(st.integers(0, 2**32 - 1), st.integers(1, 30))
def test_any_program_solves_equation_2(seed, size):
    generator = np.random.default_rng(seed)
    pi = generator.random((size, size)) * (generator.random((size, size)) < 0.2)
    pi *= 0.99 / np.maximum(1.0, pi.sum(axis=1, keepdims=True))
    entries = generator.integers(0, 3, size)
    computed = expected_executions(pi, entries)
    assert computed == pytest.approx(entries + pi.T @ computed, rel=1e-12, abs=1e-12)


@pytest.mark.contract
@pytest.mark.parametrize("name", TRACES)
def test_counts_from_transitions_are_those_of_the_trace(name):
    workload = read(name)
    counted, transitions = count_executions(workload), count_transitions(workload)
    assert transitions.executions.tolist() == counted.tolist()
    segments = workload.column("segments", "num_blocks")
    assert counted.sum() == segments.sum()
    assert transitions.entries.sum() == transitions.exits.sum() == (segments > 0).sum()
    pi, ends = transitions.probabilities()
    assert expected_executions(pi, transitions.entries, ends) == pytest.approx(counted, rel=1e-12)
    assert expected_executions(pi, transitions.entries) == pytest.approx(counted, rel=1e-10)


def test_transitions_do_not_cross_segments(tmp_path):
    transitions = count_transitions(made(tmp_path, 4, [0, 1, 1, 2], [1, 2], [2]))
    rows = zip(transitions.source.tolist(), transitions.target.tolist(), transitions.count.tolist(), strict=True)
    assert list(rows) == [(0, 1, 1), (1, 1, 1), (1, 2, 2)]
    assert transitions.entries.tolist() == [1, 1, 1, 0]
    assert transitions.exits.tolist() == [0, 0, 3, 0]


@pytest.mark.property
@settings(deadline=None)  # the first example may compile
@given(st.lists(st.lists(st.integers(0, 3), max_size=12), max_size=5), st.integers(1, 7))
def test_transitions_of_any_parts_are_those_of_the_whole(tmp_path_factory, segments, part):
    if not any(segments):
        return
    workload = made(tmp_path_factory.mktemp("w"), 4, *segments)
    whole = count_transitions(workload)
    assert workload.detail is not None
    total = int(workload.detail.execution_bounds()[-1])
    bounds = np.unique([*range(0, total, part), total])
    object.__setattr__(workload.detail, "execution_bounds", lambda: bounds)
    parts = count_transitions(workload)
    for name in ("source", "target", "count", "entries", "exits"):
        assert getattr(parts, name).tolist() == getattr(whole, name).tolist()
    expected = sorted((a, b) for each in segments for a, b in pairwise(each))
    pairs = np.repeat(np.stack([whole.source, whole.target], axis=1), whole.count, axis=0)
    assert [tuple(pair) for pair in pairs.tolist()] == expected


@pytest.mark.golden
def test_weights_by_executions_and_by_accesses():
    # blocks with 3 and 1 accesses, one run each
    assert execution_probabilities(np.array([1, 1])).tolist() == [0.5, 0.5]
    assert access_weights(np.array([1, 1]), np.array([3, 1])).tolist() == [0.75, 0.25]
    with pytest.raises(ValueError, match="no block is executed that accesses memory"):
        access_weights(np.array([1, 1]), np.array([0, 0]))


@pytest.mark.theory
def test_profiles_of_blocks_add_up_to_the_program_only_by_accesses():
    workload = read("bs16_O0.lk.xz")
    sites = sites_of(workload)
    batch = workload.detail.read_executions(0, int(workload.detail.execution_bounds()[-1]))
    all_accesses = accesses(batch.block_ids, batch.addresses, sites, 1)
    distances = StackDistances().feed(all_accesses.unit)
    by_block = ReuseProfile.of(1, sites.block[all_accesses.site], distances, np.ones(len(distances)))
    executions = count_executions(workload)
    by_accesses = access_weights(executions, np.diff(sites.offsets))
    by_executions = execution_probabilities(executions)
    whole, probability = by_block.distribution()
    parts = {b: by_block.of_site(b).distribution() for b in np.unique(by_block.site).tolist()}

    def recombined(weights: np.ndarray) -> np.ndarray:
        return np.array([sum(weights[b] * p[d == each].sum() for b, (d, p) in parts.items()) for each in whole])

    assert recombined(by_accesses) == pytest.approx(probability, abs=1e-14)
    assert np.abs(recombined(by_executions) - probability).max() > 0.01


def test_a_workload_without_detailed_level_is_refused(tmp_path):
    workload = made(tmp_path, 1, [0])
    bare = Workload("bare", 1, {k: v for k, v in workload.tables.items() if k != "segments"})
    with pytest.raises(WorkloadError, match="bare: has no detailed level"):
        count_transitions(bare)
