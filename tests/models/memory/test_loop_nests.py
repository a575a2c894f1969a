from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyscale.models.memory.nests.loop_nests import LoopStructure, Nest, NotAffineError, affine_fit

pytestmark = pytest.mark.theory


def recognised(
    *traces: list[int], shared_headers: bool = False
) -> tuple[Nest, dict[int, list[list[int]]], dict[int, list[list[int]]]]:
    """(nest, trip counts of each loop by trace, counters of each block's visits in trace 0)."""
    names = [f"trace {i}" for i in range(len(traces))]
    structure = LoopStructure([np.array(t, np.int32) for t in traces], 10, names, shared_headers)
    nest, visits = structure.nest(range(len(traces)))
    trips, counters = {}, {}
    for node, visit in enumerate(visits):
        if nest.loop[node] >= 0:
            trips[int(nest.loop[node])] = [visit.value[visit.trace == t].tolist() for t in range(len(traces))]
        else:
            counters[int(nest.block[node])] = visit.counters[visit.trace == 0].tolist()
    return nest, trips, counters


def test_a_rectangular_nest_of_three_loops() -> None:
    # for i < 2: 1; for j < 3: 2, for k < 4: 3; then 4
    nest, trips, counters = recognised([0] + ([1] + ([2] + [3] * 4) * 3 + [4]) * 2 + [5])
    assert nest.describe() == "0 loop0 { 1 loop1 { 2 loop2 { 3 } } 4 } 5"
    assert trips == {0: [[2]], 1: [[3, 3]], 2: [[4] * 6]}
    assert counters[3] == [[i, j, k] for i in range(2) for j in range(3) for k in range(4)]
    assert nest.depth.tolist() == [0, 0, 1, 1, 2, 2, 3, 1, 0]
    assert nest.end.tolist() == [1, 8, 3, 7, 5, 7, 7, 8, 9]


def test_the_test_at_a_loops_head_runs_once_more_than_its_body() -> None:
    nest, trips, _ = recognised([0] + ([1] + [2, 3] * 5 + [2, 4]) * 3 + [1, 5])
    assert nest.describe() == "0 loop0 { 1 loop1 { 2 3 } 2 4 } 1 5"
    assert trips == {0: [[3]], 1: [[5, 5, 5]]}


def test_a_triangular_loop_has_one_shape_though_it_ends_with_one_and_no_iteration() -> None:
    rows = [([1] + [2] * (4 - i) + [3]) for i in range(4)] + [[1, 3]]
    nest, trips, counters = recognised([0, *chain(*rows), 4])
    assert nest.describe() == "0 loop0 { 1 loop1 { 2 } 3 } 1 3 4"
    assert trips == {0: [[4]], 1: [[4, 3, 2, 1]]}
    assert counters[2] == [[i, j] for i in range(4) for j in range(4 - i)]


def test_a_loop_that_takes_one_iteration_at_one_input_is_a_loop_by_the_other() -> None:
    nest, trips, _ = recognised([0, 1, 1, 1, 2], [0, 1, 2])
    assert nest.describe() == "0 loop0 { 1 } 2"
    assert trips == {0: [[3], [1]]}


def test_a_loop_of_one_iteration_everywhere_is_none() -> None:
    assert recognised([0, 1, 2], [0, 1, 2])[0].describe() == "0 1 2"


def test_iterations_that_take_two_paths_one_after_the_other_are_two_loops() -> None:
    nest, trips, _ = recognised([0] + [1, 2] * 5 + [1, 3] * 7 + [4], [0] + [1, 2] * 6 + [1, 3] * 8 + [4])
    assert nest.describe() == "0 loop0 { 1 2 } loop1 { 1 3 } 4"
    assert trips == {0: [[5], [6]], 1: [[7], [8]]}


@pytest.mark.parametrize("period", [2, 3, 4])
def test_iterations_that_take_paths_by_turns_are_unrolled(period: int) -> None:
    turns = [block for k in range(period) for block in (1, 2 + k)]
    nest, trips, _ = recognised(*([0, *turns * n, 9] for n in (9, 11, 12)))
    assert nest.describe() == f"0 loop0 {{ {' '.join(map(str, turns))} }} 9"
    assert trips == {0: [[9], [11], [12]]}


def test_a_trace_without_loops() -> None:
    assert recognised([3, 1, 2])[0].describe() == "3 1 2"


def test_loops_inside_each_other_that_share_their_header() -> None:
    rows = [[1, 2] * (5 - i) + [3] for i in range(4)]
    nest, trips, _ = recognised([0, *chain(*rows), 4], shared_headers=True)
    assert nest.describe() == "0 loop0 { loop1 { 1 2 } 3 } 4"
    assert trips == {0: [[4]], 1: [[5, 4, 3, 2]]}
    planes = ([1] * 4 + [2]) * 3 + [3]
    assert recognised([0, *planes * 2], shared_headers=True)[0].describe() == "0 loop0 { loop1 { loop2 { 1 } 2 } 3 }"


def test_traces_of_different_paths_are_refused_with_the_place() -> None:
    with pytest.raises(NotAffineError, match="trace 0 runs block 3 where trace 1 runs block 4"):
        recognised([0] + [1, 2] * 3 + [3], [0] + [1, 2] * 3 + [4])
    with pytest.raises(NotAffineError, match="trace 0 runs block 3 where trace 1 runs nothing more"):
        recognised([0, 3], [0])


def test_paths_in_no_order_are_refused() -> None:
    bits = np.random.default_rng(1).integers(0, 2, 200)
    with pytest.raises(NotAffineError, match="the loop at block 1 takes its paths in no regular order"):
        recognised([0, *chain(*([1, 2 + int(bit)] for bit in bits)), 5])


@pytest.mark.property
@given(
    st.lists(st.integers(-(2**20), 2**20), min_size=4, max_size=4),
    st.lists(st.integers(1, 5), min_size=3, max_size=3),
    st.integers(-1, 1),
)
def test_affine_values_are_found_exactly(coefficients: list[int], trips: list[int], slope: int) -> None:
    counters = np.array(
        [
            [i, j, k]
            for i in range(trips[0])
            for j in range(max(1, trips[1] + slope * i))
            for k in range(trips[2] + (slope > 0) * j)
        ]
    )
    values = counters @ np.array(coefficients[1:]) + coefficients[0]
    found, is_exact, is_known = affine_fit(counters, values[:, np.newaxis])
    assert is_exact.all()
    assert is_known.tolist() == [True, *counters.any(axis=0).tolist()]
    assert found[is_known, 0].tolist() == [c for c, known in zip(coefficients, is_known, strict=True) if known]


def test_values_that_are_not_affine_are_said_to_be_so() -> None:
    counters = np.arange(5)[:, np.newaxis]
    _, is_exact, _ = affine_fit(counters, np.column_stack((counters * 3, counters**2)))
    assert is_exact.tolist() == [True, False]
