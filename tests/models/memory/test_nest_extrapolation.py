"""Nests recognised at small inputs, run at others."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nest_programs import Block, Loop, P, Q, R, factorisation, matrix_multiply, run, sites_of
from told import told

from manyscale.models.memory.access_stream import Sites, access_sites
from manyscale.models.memory.nests.exact_polynomials import polynomial_through, value_at
from manyscale.models.memory.nests.extrapolation import IRREGULAR, NestProgram, common_blocks, recognise
from manyscale.models.memory.nests.instance import NestInstance
from manyscale.models.memory.nests.loop_nests import NotAffineError

INPUTS = (6, 7, 8, 9, 10)


def recognised(body: list[Block | Loop], inputs: tuple[int, ...] = INPUTS, min_coverage: float = 1.0) -> NestProgram:
    return recognise([run(body, x) for x in inputs], sites_of(body), min_coverage)


def whole(instance: NestInstance, **options: int) -> tuple[np.ndarray, np.ndarray]:
    blocks, addresses = zip(*instance.generate(**options), strict=True)
    return np.concatenate(blocks), np.concatenate(addresses)


def shifts(body: list[Block | Loop], program: NestProgram, x: int, seed: int | None = None) -> dict[int, set[int]]:
    """How far the addresses of every site at x lie from true ones; block ids and counts must be right."""
    _, block_ids, addresses = run(body, x)
    made_ids, made = whole(program.at(x, seed))
    np.testing.assert_array_equal(made_ids, block_ids)
    np.testing.assert_array_equal(program.counts(x), np.bincount(block_ids, minlength=program.num_blocks))
    assert program.num_accesses(x) == len(addresses)
    site = access_sites(block_ids, sites_of(body))
    difference = made.astype(np.int64) - addresses.astype(np.int64)
    return {int(s): set(difference[site == s].tolist()) for s in np.unique(site)}


@pytest.mark.theory
@pytest.mark.parametrize("x", [6, 10, 11, 40])
def test_matrix_multiply_at_other_inputs(x: int) -> None:
    program = recognised(matrix_multiply())
    assert (program.modulus, program.coverage) == (1, 1.0)
    moved = shifts(matrix_multiply(), program, x)
    assert all(len(one) == 1 and not min(one) % 4096 for one in moved.values())  # whole arrays moved by whole pages
    assert program.num_accesses(x) == 2 * x**3 + x**2
    assert program.counts(x).tolist() == [1, x**2, x**3, x**2, x, 1]


@pytest.mark.theory
def test_counts_of_large_inputs_follow_from_formulas_without_running_them() -> None:
    x = 10**5
    assert recognised(matrix_multiply()).num_accesses(x) == 2 * x**3 + x**2
    inner = recognised(factorisation()).counts(2000)[2]
    assert inner == sum((2000 - 1 - k) ** 2 for k in range(1999))


@pytest.mark.theory
@pytest.mark.parametrize("x", [6, 9, 17, 30])
def test_triangular_loops_at_other_inputs(x: int) -> None:
    moved = shifts(factorisation(), recognised(factorisation()), x)
    assert len(set.union(*moved.values())) == 1  # one array, moved as a whole


@pytest.mark.theory
def test_arrays_keep_their_page_offsets_and_do_not_overlap() -> None:
    program = recognised(matrix_multiply())
    assert told(program.notes) == ("arrays that grow are laid out anew; where they begin in a page is as traced",)
    for seed in (None, 1, 2):
        _, addresses = whole(program.at(40, seed))
        true = run(matrix_multiply(), 40)[2]
        regions = [addresses[(true >= low) & (true < low + 0x10000000)] for low in (P, Q, R - 64)]
        assert [int(region.min() % 4096) for region in regions] == [0, 0, 64]
        bounds = [(int(region.min()), int(region.max())) for region in regions]
        assert all(high - low == 8 * (40 * 40 - 1) for low, high in bounds)
        assert all(before[1] + 4096 <= after[0] for before, after in pairwise(bounds))
    places = [whole(program.at(40, seed))[1][0] for seed in (None, 1, 1, 2)]
    assert places[1] == places[2]
    assert len(set(places)) == 3


@pytest.mark.theory
def test_what_does_not_grow_stays_where_it_is() -> None:
    body: list[Block | Loop] = [Loop(lambda x, c: x, [Block(0, [lambda x, c: 0x7FFF0010, lambda x, c: P + 8 * c[0]])])]
    moved = shifts(body, recognised(body), 20)
    assert moved[0] == {0}
    assert moved[1] != {0}


@pytest.mark.theory
@pytest.mark.parametrize(
    ("slope", "inputs"), [(16, (400, 410, 420, 430)), (16, (250, 260, 300)), (2400, (10, 12, 15, 18))]
)
def test_an_array_whose_first_access_moves_over_pages_keeps_its_offset(slope: int, inputs: tuple[int, ...]) -> None:
    """As to[1][1] of a stencil does."""
    body: list[Block | Loop] = [Loop(lambda x, c: x, [Block(0, [lambda x, c: P + slope * x + 8 + 8 * c[0]])])]
    moved = shifts(body, recognised(body, inputs), 1000)
    assert {shift % 4096 for shift in moved[0]} == {0}


@pytest.mark.theory
def test_places_that_follow_no_rule_are_said_to_be_assumed() -> None:
    places = {6: 0x30, 7: 0x810, 8: 0x120, 9: 0x550, 10: 0x70}
    body: list[Block | Loop] = [Loop(lambda x, c: x, [Block(0, [lambda x, c: P + places[x] + 8 * c[0]])])]
    program = recognised(body)
    assert any("where an array begins in its page follows no rule" in note for note in told(program.notes))
    assert whole(program.at(20))[1][0] % 4096 == 0x70
    gaps = {6: 8, 7: 32, 8: 16, 9: 24, 10: 40}
    body = [Loop(lambda x, c: x, [Block(0, [lambda x, c: P + 8 * c[0], lambda x, c: P + 8 * c[0] + gaps[x]])])]
    program = recognised(body)
    assert any("taken as different arrays" in note for note in told(program.notes))
    assert np.ptp(whole(program.at(20))[1].astype(np.int64)) > 4096


@pytest.mark.theory
def test_vector_loops_are_taken_apart_by_remainder() -> None:
    body: list[Block | Loop] = [
        Block(0),
        Loop(lambda x, c: x // 4, [Block(1, [lambda x, c: P + 32 * c[0]])]),
        Loop(lambda x, c: x % 4, [Block(2, [lambda x, c: P + 32 * (x // 4) + 8 * c[0]])]),
        Block(3),
    ]
    program = recognised(body, tuple(range(10, 22)))
    assert program.modulus == 4
    for x in (52, 101, 402, 1003):
        assert len(set.union(*shifts(body, program, x).values())) == 1
    even = recognised(body, (16, 24, 32, 40, 48))
    assert shifts(body, even, 128)
    with pytest.raises(NotAffineError, match="input 130: a trip count or an address would be 65/2"):
        even.at(130)
    some = recognised(body, (11, 12, 13, 15, 16, 17, 19, 20, 21))
    with pytest.raises(NotAffineError, match="input 50: trace inputs that are 2 modulo 4; those traced are 0, 1, 3"):
        some.at(50)


@pytest.mark.theory
def test_iterations_by_turns() -> None:
    body: list[Block | Loop] = [
        Loop(
            lambda x, c: x // 2,
            [Block(0), Block(1, [lambda x, c: P + 16 * c[0]]), Block(0), Block(2, [lambda x, c: P + 16 * c[0] + 8])],
        ),
        Block(3),
    ]
    assert shifts(body, recognised(body, (20, 30, 40, 50)), 1000)


@pytest.mark.theory
def test_loops_that_share_their_header() -> None:
    body: list[Block | Loop] = [
        Block(0),
        Loop(
            lambda x, c: x,
            [Loop(lambda x, c: x - c[0], [Block(1, [lambda x, c: P + 8 * (x * c[0] + c[1])])]), Block(2)],
        ),
        Block(3),
    ]
    assert shifts(body, recognised(body), 25)


@pytest.mark.theory
def test_scattered_addresses_are_refused_or_left_out() -> None:
    scattered = lambda x, c: Q + 8 * (c[0] * c[0] * 2654435761 % (4 * x))  # noqa: E731
    body: list[Block | Loop] = [Loop(lambda x, c: x, [Block(0, [lambda x, c: P + 4 * c[0], scattered])]), Block(1)]
    with pytest.raises(NotAffineError, match=r"50.0% of the accesses are not affine .* such as those of block 0"):
        recognised(body)
    program = recognised(body, min_coverage=0.5)
    assert program.coverage == 0.5
    _, addresses = whole(program.at(30))
    assert set(addresses[1::2].tolist()) == {IRREGULAR}
    assert set(np.diff(addresses[::2].astype(np.int64)).tolist()) == {4}


@pytest.mark.theory
def test_what_is_no_nest_is_refused_with_a_reason() -> None:
    sites = sites_of([Block(block) for block in range(4)])
    nothing = np.empty(0, np.uint64)

    def traces(lengths: list[int]) -> list[tuple[int, np.ndarray, np.ndarray]]:
        return [(x, np.array([0, *[1, 2] * n, 3], np.int32), nothing) for x, n in enumerate(lengths)]

    assert recognise(traces([4, 5, 6]), sites)
    with pytest.raises(NotAffineError, match="loop that begins with block 1: no polynomial in the inputs"):
        recognise(traces([4, 9, 3, 6, 5, 3, 7]), sites)
    with pytest.raises(NotAffineError, match="block 1: not affine in the counters of the loops around"):
        recognise(
            [
                (x, np.array([block for i in range(x) for block in [0] + [1] * (2 + i * i)] + [3], np.int32), nothing)
                for x in (7, 8, 9)
            ],
            sites,
        )
    with pytest.raises(NotAffineError, match="at least 3 different ones"):
        recognise(traces([4, 5]), sites)
    with pytest.raises(ValueError, match="input 0: blocks make 0 accesses, but 1 addresses are given"):
        recognise([(0, np.array([0], np.int32), np.ones(1, np.uint64)), *traces([4, 5, 6])[1:]], sites)
    with pytest.raises(NotAffineError, match="input -9: too small"):
        recognise(traces([4, 5, 6]), sites).at(-9)


@pytest.mark.property
@pytest.mark.parametrize("max_accesses", [1, 7, 1000])
def test_batches_are_the_stream_in_pieces(max_accesses: int) -> None:
    for body in (matrix_multiply(), factorisation()):
        instance = recognised(body).at(9)
        blocks, addresses = whole(instance)
        pieces = list(instance.generate(max_accesses=max_accesses))
        np.testing.assert_array_equal(np.concatenate([piece[0] for piece in pieces]), blocks)
        np.testing.assert_array_equal(np.concatenate([piece[1] for piece in pieces]), addresses)
        assert max(len(piece[1]) for piece in pieces) <= max(max_accesses, 3)


@pytest.mark.property
def test_outer_iterations_put_together_are_the_whole() -> None:
    two_loops = [*matrix_multiply(), Loop(lambda x, c: 3, [Block(6, [lambda x, c: P + 8 * x * c[0]])]), Block(7)]
    for body in (matrix_multiply(), factorisation(), two_loops):
        instance = recognised(body).at(12)
        blocks, addresses = whole(instance)
        cuts = [0, 0, 1, 5, instance.num_outer]
        parts = [list(instance.generate(a, b)) for a, b in pairwise(cuts)]
        np.testing.assert_array_equal(np.concatenate([piece[0] for part in parts for piece in part]), blocks)
        np.testing.assert_array_equal(np.concatenate([piece[1] for part in parts for piece in part]), addresses)
        np.testing.assert_array_equal(sum(instance.counts(a, b) for a, b in pairwise(cuts)), instance.counts())
        assert [instance.num_accesses(a, b) for a, b in pairwise(cuts)] == [
            sum(len(piece[1]) for piece in part) for part in parts
        ]
    with pytest.raises(ValueError, match="outer iterations 3 to 99 are not within 0 to 15"):
        next(instance.generate(3, 99))


@pytest.mark.theory
def test_windows_divide_the_outer_iterations() -> None:
    instance = recognised(matrix_multiply()).at(103)
    windows = instance.windows(10, 5)
    bounds = [(w.stratum_first, w.stratum_end) for w in windows]
    assert bounds == [(103 * k // 10, 103 * (k + 1) // 10) for k in range(10)]
    assert all(w.stratum_first <= w.first < w.end <= w.stratum_end and w.end - w.first == 5 for w in windows)
    few = recognised(matrix_multiply()).windows(6, 100, 5)
    assert [(w.first, w.end) for w in few] == [(k, k + 1) for k in range(6)]
    with pytest.raises(ValueError, match="at least one window"):
        instance.windows(0)


@pytest.mark.theory
def test_every_outermost_loop_has_windows_by_its_accesses() -> None:
    body: list[Block | Loop] = [
        Loop(lambda x, c: x, [Block(0, [lambda x, c: P + 8 * c[0]] * 3)]),
        Block(1),
        Loop(lambda x, c: x, [Block(2, [lambda x, c: P + 8 * c[0]])]),
        Block(3),
        Loop(lambda x, c: 4, [Block(4)]),
        Block(5),
    ]
    windows = recognised(body).windows(1000, 4, min_accesses=60)
    strata = [(w.stratum_first, w.stratum_end) for w in windows]
    assert strata == [(0, 333), (333, 666), (666, 1000), (1000, 2000), (2000, 2004)]
    assert [w.end - w.first for w in windows] == [20, 20, 20, 60, 4]


@pytest.mark.theory
def test_a_function_called_from_two_places() -> None:
    """Its blocks 1 to 3 run a loop of another length each time."""
    calls = [
        [Block(1), Loop(lambda x, c, k=k: k * x, [Block(2, [lambda x, c: P + 8 * c[1]])]), Block(3)] for k in (1, 2)
    ]
    body: list[Block | Loop] = [Loop(lambda x, c: x, [Block(0), *calls[0], Block(4), *calls[1], Block(5)]), Block(6)]
    assert shifts(body, recognised(body), 30)


@pytest.mark.property
def test_a_loop_written_out_runs_the_same() -> None:
    sweeps: list[Block | Loop] = [Block(0), Loop(lambda x, c: 3, [Block(1), Loop(lambda x, c: x - c[0], [Block(2, [
        lambda x, c: P + 8 * (x * c[0] + c[1])])]), Block(3)]), Block(4)]  # fmt: skip
    for body, outer in ((sweeps, 9 + 8 + 7), (factorisation(), 36), (matrix_multiply(), 81)):
        instance = recognised(body).at(9)
        flat = instance.unrolled(10)
        for one, other in zip(whole(instance), whole(flat), strict=True):
            np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(instance.counts(), flat.counts())
        assert flat.num_outer == outer
        assert instance.unrolled(2).num_outer == instance.num_outer


@pytest.mark.property
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_nest_is_given_back_at_an_input_that_never_ran(data: st.DataObject) -> None:
    small = st.integers(-4, 8)
    body = _nodes(data, [], [0], small)
    program = recognise([run(body, x) for x in INPUTS], sites_of(body))
    for x in (7, 13):
        assert all(len(shift) == 1 for shift in shifts(body, program, x).values())


def _nodes(
    data: st.DataObject, around: list[int], used: list[int], small: st.SearchStrategy[int]
) -> list[Block | Loop]:
    """A body that begins with a block, as loops do that share no header."""
    nodes: list[Block | Loop] = []
    for k in range(data.draw(st.integers(1, 3))):
        if k and len(around) < 3 and data.draw(st.booleans()):
            grows, constant, slope = data.draw(st.integers(0, 1)), data.draw(st.integers(1, 3)), 0
            if around and around[-1] and grows:
                slope = data.draw(st.integers(-1, 1))  # at most as steep as the loop around, so at least one iteration
                constant = constant + 3
            trip = lambda x, c, g=grows, k=constant, s=slope: g * x + k + (s * c[-1] if s else 0)  # noqa: E731
            nodes.append(Loop(trip, _nodes(data, [*around, grows], used, small)))
        else:
            addresses = []
            for array in range(data.draw(st.integers(0, 2))):
                parts = [(data.draw(small), data.draw(small)) for _ in range(1 + len(around))]
                addresses.append(
                    lambda x, c, p=parts, a=array: (
                        (1 << 30) * (a + 1) + 8 * sum((u + v * x) * i for (u, v), i in zip(p, [1, *c], strict=True))
                    )
                )
            nodes.append(Block(used[0], addresses))
            used[0] += 1
    return nodes


@pytest.mark.theory
def test_blocks_get_common_numbers_by_their_place() -> None:
    def sites(*counts: int) -> Sites:
        block = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        bounds = np.concatenate(([0], np.cumsum(counts)))
        return Sites(block, np.zeros(len(block), bool), np.full(len(block), 8, np.int32), bounds)

    maps, common = common_blocks(
        [["a", "a", "b"], ["b", "a", "a"]],
        [np.array([10, 20, 10]), np.array([10, 30, 10])],
        [sites(1, 0, 2), sites(2, 3, 1)],
    )
    assert [m.tolist() for m in maps] == [[0, 1, 2], [2, 3, 0]]
    assert np.diff(common.offsets).tolist() == [1, 0, 2, 3]
    assert common.block.tolist() == [0, 2, 2, 3, 3, 3]


@pytest.mark.theory
def test_polynomials_are_exact_or_refused() -> None:
    def through(*values: int) -> tuple[Fraction, ...] | None:
        return polynomial_through(tuple(zip((2, 3, 5, 9, 10), values, strict=False)))

    assert through(7, 7) == (7,)
    assert through(0, 0) == ()
    assert through(4, 6, 10) == (0, 2)
    assert through(3, 6, 15, 45, 55) == (0, Fraction(1, 2), Fraction(1, 2))  # x (x + 1) / 2
    assert value_at((Fraction(0), Fraction(1, 2), Fraction(1, 2)), 100) == 5050
    assert through(8, 27, 125, 729, 1000) == (0, 0, 0, 1)
    assert through(8, 27, 125, 729) is None  # nothing confirms a cubic
    assert through(4, 6, 11) is None
    assert through(5) is None
    assert through(16, 81, 625, 6561, 10000) is None
