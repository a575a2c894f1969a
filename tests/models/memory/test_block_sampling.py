"""AMM's algorithms 1 and 2: which executions are chosen, exact walks, and what a sample of 1 % misses."""

from __future__ import annotations

import numpy as np
import pytest
from access_patterns import (
    LINE_BYTES,
    MATMUL_SITES,
    STREAM_SITES,
    errors,
    exact_profile,
    joined,
    matmul,
    sites_with,
)
from access_patterns import stream as stream_pieces
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_programs import stream, traced
from walking_back import walked_back, walked_back_profile

from manyscale.models.memory.access_stream import Accesses, Sites, accesses, executions_per_block
from manyscale.models.memory.distances.block_sampling import (
    BACKWARDS,
    FORWARDS,
    ExactSampledBlocks,
    ExecutionSampler,
    SampledBlocks,
    unit_offsets,
)
from manyscale.models.memory.distances.stack_distance import StackDistances
from manyscale.models.memory.reuse_profile import COLD, ReuseProfile

SLACK = 0.02


def sampled(block_ids: np.ndarray, batch: Accesses, sites: Sites, seed: int = 0, share: float = 0.01) -> ReuseProfile:
    model = SampledBlocks(executions_per_block([block_ids], sites.num_blocks), sites, LINE_BYTES, share, seed=seed)
    model.feed_units(block_ids, batch)
    return model.profile()


def walked(block_ids: np.ndarray, batch: Accesses, sites: Sites, seed: int = 0) -> ReuseProfile:
    sampler = ExecutionSampler(executions_per_block([block_ids], sites.num_blocks), sites, seed=seed)
    return walked_back_profile(block_ids, batch, sampler, LINE_BYTES)


def choices(sampler: ExecutionSampler, pieces: list[np.ndarray], direction: int) -> list[tuple[int, int, int, int]]:
    """(execution, first access, end access, weight) in the whole stream, in order."""
    found, execution, access = [], 0, 0
    num_accesses = np.array([3, 0, 1, 2])
    firsts = []
    for piece in pieces:
        firsts.append((execution, access))
        execution, access = execution + len(piece), access + int(num_accesses[piece].sum())
    for number in range(len(pieces))[::direction]:
        chosen = sampler.choose(pieces[number])
        execution, access = firsts[number]
        columns = (
            chosen.execution + execution,
            chosen.first_access + access,
            chosen.end_access + access,
            chosen.weight,
        )
        found += list(zip(*(column.tolist() for column in columns), strict=True))
    return sorted(found)


@pytest.mark.property
@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 1 << 20), size=st.integers(0, 600), share=st.sampled_from([0.01, 0.2, 1.0]))
def test_the_choice_depends_on_neither_batches_nor_direction(seed: int, size: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    block_ids = rng.choice(4, size, p=[0.7, 0.1, 0.17, 0.03]).astype(np.int32)
    sites = sites_with([3, 0, 1, 2])
    counts = executions_per_block([block_ids], 4)
    pieces = np.split(block_ids, np.sort(rng.integers(0, size + 1, 3)))

    def sampler(direction: int) -> ExecutionSampler:
        return ExecutionSampler(counts, sites, share, at_least=7, seed=seed, direction=direction)

    whole = choices(sampler(FORWARDS), [block_ids], FORWARDS)
    assert choices(sampler(FORWARDS), pieces, FORWARDS) == whole
    assert choices(sampler(BACKWARDS), pieces, BACKWARDS) == whole
    first_access = np.append(0, np.cumsum(np.diff(sites.offsets)[block_ids]))
    weights = np.zeros(4, np.int64)
    chosen = np.zeros(4, np.int64)
    for execution, first, end, weight in whole:
        assert (first, end) == (first_access[execution], first_access[execution + 1])
        weights[block_ids[execution]] += weight
        chosen[block_ids[execution]] += 1
    assert weights.tolist() == counts.tolist()
    assert chosen.tolist() == np.minimum(np.maximum(np.ceil(share * counts), 7), counts).tolist()


def test_rare_blocks_are_sampled() -> None:
    """1 % of 16 executions would be none; a hundred executions, or all, are chosen."""
    block_ids = np.repeat(np.array([0, 1, 2], np.int32), [16, 5_000, 50_000])
    sites = sites_with([1, 1, 1])
    chosen = ExecutionSampler(executions_per_block([block_ids], 3), sites).choose(block_ids)
    assert np.bincount(block_ids[chosen.execution]).tolist() == [16, 100, 500]
    assert set(chosen.weight.tolist()) == {1, 50, 100}


def test_seeds_choose_differently_and_every_execution_equally_often() -> None:
    block_ids = np.zeros(200, np.int32)
    times = np.zeros(200, np.int64)
    for seed in range(2000):
        sampler = ExecutionSampler(np.array([200]), sites_with([1]), 0.1, at_least=0, seed=seed)
        times[sampler.choose(block_ids).execution] += 1
    # 200 each, binomial standard deviation 13.4
    assert abs(times - 200).max() < 5 * 13.4


def test_more_executions_than_said_are_refused() -> None:
    with pytest.raises(ValueError, match="more often"):
        ExecutionSampler(np.array([2]), sites_with([1])).choose(np.zeros(3, np.int32))
    with pytest.raises(ValueError, match="more often"):
        ExecutionSampler(np.array([200]), sites_with([1])).choose(np.zeros(300, np.int32))


@pytest.mark.parametrize("options", [{"share": 0.0}, {"share": 1.5}, {"at_least": -1}])
def test_bad_parameters_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="cannot be sampled"):
        ExecutionSampler(np.array([2]), sites_with([1]), **options)  # type: ignore[arg-type]


@pytest.mark.property
@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 1 << 20), size=st.integers(1, 500), num_units=st.integers(1, 300))
def test_walking_back_is_exact(seed: int, size: int, num_units: int) -> None:
    unit = np.random.default_rng(seed).integers(0, num_units, size)
    assert walked_back(unit, np.arange(size)).tolist() == StackDistances().feed(unit).tolist()


def test_walking_back_past_many_units() -> None:
    unit = np.append(np.arange(20_000), 0)
    assert walked_back(unit, np.array([20_000, 5])).tolist() == [19_999, COLD]


@pytest.mark.property
@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 1 << 20), cut=st.integers(0, 400), share=st.sampled_from([0.02, 0.3, 1.0]))
def test_exact_distances_are_those_of_walking_back(seed: int, cut: int, share: float) -> None:
    random = np.random.default_rng(seed)
    sites = sites_with(np.array([3, 0, 1, 2]))
    block_ids = random.integers(0, 4, 400).astype(np.int32)
    addresses = (random.integers(0, 200, int(np.diff(sites.offsets)[block_ids].sum())) * LINE_BYTES).astype(np.uint64)
    executions = executions_per_block([block_ids], sites.num_blocks)
    model = ExactSampledBlocks(executions, sites, LINE_BYTES, share, at_least=5, seed=seed)
    place = int(np.diff(sites.offsets)[block_ids[:cut]].sum())
    model.feed(block_ids[:cut], addresses[:place])
    model.feed(block_ids[cut:], addresses[place:])
    sampler = ExecutionSampler(executions, sites, share, 5, seed)
    expected = walked_back_profile(block_ids, accesses(block_ids, addresses, sites, LINE_BYTES), sampler, LINE_BYTES)
    found = model.profile()
    for name in ("site", "distance", "count"):
        assert np.array_equal(getattr(found, name), getattr(expected, name))


@pytest.mark.parametrize("share", [0.02, 1.0])
def test_backwards_in_batches(share: float) -> None:
    pieces = list(matmul(30))
    counts = executions_per_block((block_ids for block_ids, _ in pieces), 2)
    model = SampledBlocks(counts, MATMUL_SITES, LINE_BYTES, share)
    for block_ids, batch in reversed(pieces):
        model.feed_units(block_ids, batch)
    profile = model.profile()
    whole = sampled(*joined(iter(pieces)), MATMUL_SITES, share=share)
    assert profile.distance.tolist() == whole.distance.tolist()
    assert profile.count.tolist() == whole.count.tolist()
    assert np.bincount(profile.site, profile.count).tolist() == [27_000, 27_000, 900]


def test_all_executions_show_first_uses_where_they_are() -> None:
    block_ids, batch = joined(matmul(20))
    truth, profile = exact_profile(batch), sampled(block_ids, batch, MATMUL_SITES, share=1.0)
    for site in range(3):
        cold = [float(p.of_site(site).count[p.of_site(site).distance == COLD].sum()) for p in (truth, profile)]
        assert cold[0] == cold[1]


def test_accesses_that_straddle_lines() -> None:
    sites = Sites(np.zeros(2, np.int32), np.zeros(2, bool), np.array([8, 16], np.int32), np.array([0, 2]))
    rng = np.random.default_rng(4)
    block_ids = np.zeros(3000, np.int32)
    addresses = (8 * rng.integers(0, 400, 6000)).astype(np.uint64)
    batch = accesses(block_ids, addresses, sites, LINE_BYTES)
    assert len(batch.unit) > 6000
    offsets = unit_offsets(block_ids, addresses, sites, LINE_BYTES)
    assert offsets[-1] == len(batch.unit)
    assert (batch.unit[offsets[:-1]] == addresses // LINE_BYTES).all()
    assert unit_offsets(block_ids, addresses, sites, 8).tolist() == list(range(6001))
    model = SampledBlocks(np.array([3000]), sites, LINE_BYTES, share=1.0)
    for first in (2000, 1000, 0):
        model.feed(block_ids[first : first + 1000], addresses[2 * first : 2 * first + 2000])
    profile = model.profile()
    assert np.bincount(profile.site, profile.count).tolist() == np.bincount(batch.site).tolist()
    assert errors(profile, exact_profile(batch), 0.2)[0] < 0.03


@pytest.mark.peer
@pytest.mark.parametrize("seed", range(2))
def test_one_per_cent_of_matmul(seed: int) -> None:
    block_ids, batch = joined(matmul(100))
    truth = exact_profile(batch)
    distance, hits = errors(sampled(block_ids, batch, MATMUL_SITES, seed), truth, SLACK)
    assert distance <= 0.005
    assert hits <= 0.003


@pytest.mark.peer
def test_one_per_cent_of_matmul_by_walking_back() -> None:
    block_ids, batch = joined(matmul(60))
    distance, hits = errors(walked(block_ids, batch, MATMUL_SITES), exact_profile(batch))
    assert distance <= 0.02
    assert hits <= 0.01


@pytest.mark.peer
@pytest.mark.parametrize("n", [10_000, 40_000])
def test_one_per_cent_of_stream(n: int) -> None:
    """Walking back keeps the distribution; StatStack's mean over phases moves long distances, caches hardly notice."""
    block_ids, batch = joined(stream_pieces(n))
    truth = exact_profile(batch)
    for seed in range(2):
        distance, hits = errors(sampled(block_ids, batch, STREAM_SITES, seed), truth, SLACK)
        assert distance <= 0.06
        assert hits <= 0.02
    if n == 10_000:
        distance, hits = errors(walked(block_ids, batch, STREAM_SITES), truth)
        assert distance <= 0.02
        assert hits <= 0.02


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.parametrize(("name", "size"), [("matmul", 50), ("stream", 10_000), ("black_scholes", 128)])
def test_one_per_cent_of_a_real_trace(name: str, size: int) -> None:
    block_ids, addresses, sites = stream(traced(name, 1, size))
    truth = exact_profile(accesses(block_ids, addresses, sites, LINE_BYTES))
    model = SampledBlocks(executions_per_block([block_ids], sites.num_blocks), sites, LINE_BYTES)
    model.feed(block_ids, addresses)
    distance, hits = errors(model.profile(), truth, SLACK)
    assert distance <= 0.08
    assert hits <= 0.02


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.parametrize("n", [20_000, 30_000, 40_000])
def test_one_per_cent_of_a_large_stream_by_walking_back(n: int) -> None:
    block_ids, batch = joined(stream_pieces(n))
    distance, hits = errors(walked(block_ids, batch, STREAM_SITES), exact_profile(batch))
    assert distance <= 0.02
    assert hits <= 0.02
