"""SHARDS against exact distances; when it refuses; whether its standard error is honest."""

from __future__ import annotations

import numpy as np
import pytest
from access_patterns import LINE_BYTES, exact_profile, hit_ratio, joined, matmul

from manyscale.models.memory.access_stream import Accesses
from manyscale.models.memory.distances.shards import Shards, hashes
from manyscale.models.memory.reuse_profile import COLD, ReuseProfile

CACHE = (1 << 20, 16)


def popular(num_accesses: int, num_units: int, seed: int = 0) -> Accesses:
    """Units as popular as words (Zipf, exponent 0.8), in any order."""
    weight = (1 + np.arange(num_units)) ** -0.8
    draws = np.random.default_rng(seed).random(num_accesses)
    unit = np.searchsorted(np.cumsum(weight) / weight.sum(), draws)
    return Accesses(unit.astype(np.int64), (unit % 3).astype(np.int32))


def sampled(accesses: Accesses, pieces: int = 1, **options: object) -> Shards:
    model = Shards(**options)  # type: ignore[arg-type]
    for unit, site in zip(np.array_split(accesses.unit, pieces), np.array_split(accesses.site, pieces), strict=True):
        model.feed(Accesses(unit, site))
    return model


def lru_ratio(profile: ReuseProfile, num_units: int) -> float:
    hits = (profile.distance >= 0) & (profile.distance < num_units)
    return float(profile.count[hits].sum() / profile.num_accesses)


def equal(one: ReuseProfile, other: ReuseProfile) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("site", "distance", "count"))


def test_all_units_are_the_exact_profile() -> None:
    _, accesses = joined(matmul(20))
    model = sampled(accesses, rate=1.0)
    assert equal(model.profile(LINE_BYTES, largest_error=1), exact_profile(accesses))


def test_hashes_are_uniform_for_neighbours_and_strides() -> None:
    for stride in (1, 64, 4096, 1 << 40):
        value = hashes(np.arange(100_000) * stride, np.uint64(5)) / 2**32
        # mean of 100,000 uniform numbers: standard deviation 0.0009; share below 1 %: 0.0003
        assert value.mean() == pytest.approx(0.5, abs=0.005)
        assert (value < 0.01).mean() == pytest.approx(0.01, abs=0.0015)


@pytest.mark.peer
@pytest.mark.parametrize("options", [{"rate": 0.2}, {"rate": 1.0, "max_units": 6000}])
def test_hit_ratios(options: dict[str, float]) -> None:
    accesses = popular(400_000, 30_000)
    truth = exact_profile(accesses)
    model = sampled(accesses, **options)
    profile = model.profile(LINE_BYTES)
    assert model.expected_relative_error < 0.015
    for num_units in (3000, 10_000):
        assert lru_ratio(profile, num_units) == pytest.approx(lru_ratio(truth, num_units), abs=0.03)
    assert hit_ratio(profile, *CACHE) == pytest.approx(hit_ratio(truth, *CACHE), abs=0.03)
    cold = [float(p.count[p.distance == COLD].sum()) for p in (truth, profile)]
    assert cold[1] == pytest.approx(cold[0], rel=0.1)


@pytest.mark.parametrize("options", [{"rate": 0.05}, {"rate": 1.0, "max_units": 300}])
def test_batches_do_not_matter(options: dict[str, float]) -> None:
    accesses = popular(50_000, 10_000)
    one, many = (sampled(accesses, pieces, **options) for pieces in (1, 13))
    assert one.rate == many.rate
    assert equal(one.profile(LINE_BYTES), many.profile(LINE_BYTES))


def test_fixed_size_keeps_to_its_size() -> None:
    model = Shards(1.0, max_units=200)
    for first in range(0, 40_000, 1000):
        model.feed(Accesses(np.arange(first, first + 1000), np.zeros(1000, np.int32)))
        assert model.num_sampled_units <= 300
    assert model.rate == pytest.approx(200 / 40_000, rel=0.3)
    profile = model.profile(LINE_BYTES)
    assert profile.num_accesses == pytest.approx(40_000)
    # of the units that were sampled none was used again; what the adjustment adds is the sample's error, 1 / sqrt(200)
    assert profile.count[profile.distance != COLD].sum() < 3 * 40_000 / 200**0.5


def test_a_hot_unit_in_the_sample_or_not() -> None:
    """Half of the accesses go to one unit. Without the adjustment hit ratios would be half, or nearly all."""
    unit = np.random.default_rng(2).integers(1, 20_000, 100_000)
    unit[::2] = 0
    accesses = Accesses(unit, np.zeros(len(unit), np.int32))
    truth = lru_ratio(exact_profile(accesses), 2000)
    sampled_hot = []
    for seed in range(30):
        model = sampled(accesses, rate=0.05, seed=seed)
        assert lru_ratio(model.profile(LINE_BYTES), 2000) == pytest.approx(truth, abs=0.06)
        sampled_hot.append(hashes(np.zeros(1, np.int64), model._seed)[0] < 0.05 * 2**32)
    assert any(sampled_hot)
    assert not all(sampled_hot)


def test_each_site_keeps_its_number_of_accesses() -> None:
    accesses = popular(100_000, 20_000)
    profile = sampled(accesses, rate=0.02).profile(LINE_BYTES)
    assert np.bincount(profile.site, profile.count) == pytest.approx(np.bincount(accesses.site))


def test_small_footprints_are_refused() -> None:
    accesses = Accesses(np.tile(np.arange(150), 100), np.zeros(15_000, np.int32))
    with pytest.raises(ValueError, match=r"SHARDS sampled \d distinct units of 64 B: expected relative error \d+ %"):
        sampled(accesses, rate=0.01).profile(LINE_BYTES)
    with pytest.raises(ValueError, match=r"use a rate of at least 0\.\d+"):
        sampled(accesses, rate=0.2).profile(LINE_BYTES)
    assert sampled(accesses, rate=0.9).profile(LINE_BYTES).num_accesses == pytest.approx(15_000)


def test_the_standard_error_is_honest() -> None:
    """Over hash seeds, estimates spread as much as the standard errors say."""
    accesses = popular(100_000, 20_000)
    truth = lru_ratio(exact_profile(accesses), 3000)
    off, stated = [], []
    for seed in range(16):
        model = sampled(accesses, rate=0.03, seed=seed)
        off.append(lru_ratio(model.profile(LINE_BYTES), 3000) - truth)
        stated.append(model.standard_error(num_units=3000))
    assert 0.5 < np.sqrt(np.mean(np.square(off))) / np.sqrt(np.mean(np.square(stated))) < 1.7
    model = sampled(accesses, rate=0.03)
    assert model.standard_error(np.ones(3000)) == model.standard_error(num_units=3000)


@pytest.mark.contract
def test_a_stream_without_accesses() -> None:
    model = sampled(Accesses(np.empty(0, np.int64), np.empty(0, np.int32)), rate=1.0)
    assert model.profile(LINE_BYTES, largest_error=1).num_accesses == 0
    assert np.isnan(model.standard_error(num_units=3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 0.0}, "a rate of 0 of the units cannot be sampled"),
        ({"rate": 1.1}, "a rate of 1.1 of the units cannot be sampled"),
        ({"max_units": 1}, "1 units are too few to sample"),
        ({"num_parts": 1}, "1 parts have no standard error"),
    ],
)
def test_bad_parameters_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Shards(**options)  # type: ignore[arg-type]
