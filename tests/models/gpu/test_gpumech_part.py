"""GPUMech's extended form on launches of which some SMs are followed.

Launches here are small; the bounds below which all SMs are followed are taken away.
"""

from __future__ import annotations

import numpy as np
import pytest
from gpu_programs import copy, integer, launch, load, store

from manyscale.models.gpu.gpumech import model as gpumech
from manyscale.models.gpu.gpumech import outline as gpumech_outline
from manyscale.models.gpu.gpumech import part, replay_state
from manyscale.models.gpu.parameters import Gpu
from manyscale.runner.problems import load_yaml
from manyscale.runner.study.targets import shipped_targets

SMS, CHANNELS, SLICES = 46, 16, 32
CHAIN = 7  # cycles from an integer instruction to the next that needs it


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch):
    monkeypatch.setattr(part, "LEAST_INSTRUCTIONS", 0)
    monkeypatch.setattr(part, "WANTED", 0)


def rtx3070(**changes):
    content = load_yaml(shipped_targets()["rtx3070"])["node"]["gpu"]
    dram = content["dram"] | changes.pop("dram", {})
    return Gpu.model_validate(content | {"dram": dram} | changes)


@pytest.fixture(scope="module")
def gpu():
    return rtx3070()


def chain(length):
    return [integer(1, 1)] * length


def stream(block, length=24, base=0):
    """A warp that reads lines of its own, 4 sectors each, one after the other."""
    first = base + 4 * length * block
    body = [load(2, *range(first + 4 * i, first + 4 * i + 4)) for i in range(length)]
    return [*body, integer(3, 2)]


def collected(blocks, gpu):
    return gpumech.collect(launch(blocks), gpu, representative=False)


def whole(blocks, gpu, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(part, "LEAST_INSTRUCTIONS", 1 << 60)
        return collected(blocks, gpu)


@pytest.mark.parametrize("rounds", [1, 3])
def test_arithmetic_takes_as_long_as_its_chain(gpu, rounds):
    """A block's life is 300 x 7 cycles, and a few to begin and to end; those of an SM run at once, with an EXIT."""
    profile = collected([[chain(300)]] * (SMS * rounds), gpu)
    found = gpumech.predict(profile, gpu)
    assert found.cycles == pytest.approx(300 * CHAIN, rel=0.01)
    assert found.warp_instructions == 301 * SMS * rounds
    assert sorted(set(found.block_sm.tolist())) == [-1, *profile.outline.sms.tolist()]
    assert (found.block_sm >= 0).sum() == len(profile.outline.sms) * rounds
    assert np.array_equal(np.flatnonzero(found.block_sm >= 0) % SMS, found.block_sm[found.block_sm >= 0])
    assert np.all(found.block_begin[found.block_sm < 0] == -1)
    assert found.half_width >= part.LEAST_OFF
    assert found.cpi == pytest.approx(found.cycles * SMS / found.warp_instructions)
    assert sum(found.stack.values()) == pytest.approx(found.cpi)


@pytest.mark.parametrize("bandwidth", [60, 120])
def test_a_stream_takes_what_memory_takes_for_it(bandwidth):
    """Bytes over bandwidth, and some latencies at the begin and the end; each line is missed once in L1 and L2."""
    gpu = rtx3070(dram={"bandwidth": f"{bandwidth} GB/s"})
    blocks = [[stream(4 * block + warp) for warp in range(4)] for block in range(SMS * 3)]
    found = gpumech.predict(collected(blocks, gpu), gpu)
    sectors = 4 * 24 * 4 * len(blocks)
    least = sectors * 32 / (bandwidth * 1e9) * gpu.frequency_hz
    assert (found.block_sm < 0).any()
    assert least * 0.99 <= found.cycles <= least * 1.2 + 1000
    assert (found.l1_misses, found.l2_misses) == (sectors, sectors)


@pytest.mark.parametrize("bandwidth", [30, 60])
def test_a_longer_stream_takes_what_memory_takes_for_what_is_more(bandwidth):
    """Latencies at the begin and the end are the same. (Six SMs of 46 with two channels of 16 are 4 % more than their
    channels' share.)"""
    gpu = rtx3070(dram={"bandwidth": f"{bandwidth} GB/s"})
    cycles = [
        gpumech.predict(
            collected([[stream(4 * block + warp) for warp in range(4)] for block in range(SMS * rounds)], gpu), gpu
        ).cycles
        for rounds in (3, 9)
    ]
    num_bytes = 4 * 24 * 4 * 32 * SMS * 6
    assert cycles[1] - cycles[0] == pytest.approx(num_bytes / (bandwidth * 1e9) * gpu.frequency_hz, rel=0.002)


@pytest.mark.parametrize(("channels", "share"), [(2, 6 / 46), (2, 0.125), (4, 0.3), (8, 0.4)])
def test_what_is_followed_gets_its_share(gpu, channels, share):
    """Of the bytes a cycle of DRAM, and of the requests a cycle of L2, to the cycles that a period has."""
    whole = replay_state.times(gpu)
    own = replay_state.followed_times(whole, channels, share)
    assert own.channels / own.channel_burst == pytest.approx(share * whole.channels / whole.channel_burst)
    requests = share * whole.slices * whole.slice_period
    assert own.slices * own.slice_period == pytest.approx(requests, abs=own.slices / 2)


def shared(block):
    """Half of its lines are its own, half are those that all blocks read."""
    return [each for pair in zip(stream(block, 20), stream(0, 20, 1 << 24), strict=True) for each in pair]


def test_what_sms_share_is_missed_once_by_all_together(gpu):
    """L2 has room for all; the followed SMs have it fetched as often as is their part of the SMs, but for chance."""
    blocks = [[shared(block)] for block in range(SMS * 4)]
    profile = collected(blocks, gpu)
    sectors = np.unique([each for block in blocks for one in block[0] for each in one.sectors])
    assert gpumech.predict(profile, gpu).l2_misses == len(sectors)
    own = profile.outline.line["tag"] < (1 << 24) // 4
    fetched = profile.found["fetched"]
    assert fetched[own].sum() == 4 * 20 * len(profile.outline.sms) * 4
    expected = 4 * 20 * len(profile.outline.sms) / SMS
    assert fetched[~own].sum() == pytest.approx(expected, abs=3 * np.sqrt(4 * expected))


@pytest.mark.parametrize("blocks", [
    [[stream(4 * block + warp, 30) for warp in range(4)] for block in range(SMS * 4)],
    [[shared(2 * block), shared(2 * block + 1)] for block in range(SMS * 2 + 7)],
    [[chain(60 + block % 40), [*stream(block), store(1 << 26)]] for block in range(SMS * 5)],
])  # fmt: skip
def test_near_what_all_sms_take(gpu, monkeypatch, blocks):
    found, exact = (gpumech.predict(each, gpu) for each in (collected(blocks, gpu), whole(blocks, gpu, monkeypatch)))
    assert (exact.block_sm >= 0).all()
    assert (found.block_sm < 0).any()
    assert found.cycles == pytest.approx(exact.cycles, rel=0.1)
    assert found.l2_misses == pytest.approx(exact.l2_misses, rel=0.01)
    assert found.l1_accesses == pytest.approx(exact.l1_accesses, rel=0.05)


def test_blocks_of_a_launch(gpu):
    trace = launch([[stream(3 * block + warp, 5 + block % 3) for warp in range(1 + block % 2)] for block in range(20)])
    chosen = np.array([0, 3, 4, 11, 19])
    found = part.of_blocks(trace, chosen)
    assert found.num_blocks == len(chosen)
    for i, block in enumerate(chosen):
        mine, theirs = (np.arange(*each.block_warps[at : at + 2]) for each, at in ((found, i), (trace, block)))
        for warp, of in zip(mine, theirs, strict=True):
            for name, bounds in (
                ("instruction", "warp_instructions"), ("accesses", "warp_instructions"), ("sector", "warp_accesses"),
                ("written", "warp_accesses"),
            ):  # fmt: skip
                one, other = (
                    getattr(each, name)[slice(*getattr(each, bounds)[at : at + 2])]
                    for each, at in ((found, warp), (trace, of))
                )
                assert np.array_equal(one, other)


def test_the_sms_followed_are_spread_over_the_work():
    gpu = rtx3070()
    work = np.random.default_rng(5).permutation(SMS) * 10 + 10
    sms = part.followed_sms(launch([[chain(int(each))] for each in work]), gpu)
    of_group = np.sort(np.argsort(np.argsort(-work))[sms] * len(sms) // SMS)
    assert of_group.tolist() == list(range(len(sms)))
    assert work[sms].mean() == pytest.approx(work.mean(), rel=0.05)


def test_busy_slices_stay_busy():
    """A channel stands for four: as busy ones together; each of their slices for one of each."""
    load = np.zeros(SLICES)
    busy = [3, 5, 9, 14]
    for channel in busy:
        load[2 * channel + channel % 2] = 1000
    which = part.together(load, CHANNELS, 4)
    assert np.bincount(which).tolist() == [4] * 8
    assert np.array_equal(which[0::2] // 2, which[1::2] // 2)
    assert np.bincount(which, load, 8).tolist() == [4000, 0, 0, 0, 0, 0, 0, 0]
    even = part.together(np.full(SLICES, 1000.0), CHANNELS, 4)
    assert np.array_equal(even, np.arange(SLICES) // 8 * 2 + np.arange(SLICES) % 2)


def test_the_last_of_all_sms():
    """Uniform ends in [0, 1]: the last of n is expected at n / (n + 1)."""
    rng = np.random.default_rng(1)
    found = np.array([(ends.max(), *part.last_end(ends, 46)) for ends in rng.random((4000, 6))])
    assert found[:, :2].sum(axis=1).mean() == pytest.approx(46 / 47, abs=0.02)
    assert part.last_end(np.full(6, 5.0), 46) == (0, 0)
    assert part.last_end(np.arange(6.0), 6) == (0, 0)


def test_who_follows_all_sms(gpu, monkeypatch):
    blocks = [[stream(block)] for block in range(SMS)]
    assert len(gpumech_outline.outline_of(launch(blocks), gpu, instructions=False).sms)
    assert not len(
        gpumech_outline.outline_of(launch(blocks), gpu, instructions=True).sms
    )  # the printed form chooses among all warps
    copies = [[[copy(4 * block), *chain(3)]] for block in range(SMS)]
    assert not len(gpumech_outline.outline_of(launch(copies), gpu, instructions=False).sms)
    assert not len(gpumech_outline.outline_of(launch(blocks[:8]), gpu, instructions=False).sms)
    monkeypatch.setattr(part, "LEAST_INSTRUCTIONS", 26 * SMS + 1)
    assert not len(gpumech_outline.outline_of(launch(blocks), gpu, instructions=False).sms)


@pytest.mark.parametrize("change", [{"sms": 40}, {"dram": {"channels": 8}}])
def test_an_outline_of_some_sms_is_of_no_other_gpu(gpu, change):
    outlined = gpumech_outline.outline_of(launch([[stream(block)] for block in range(SMS)]), gpu, instructions=False)
    with pytest.raises(gpumech.ProfileError, match="the outline is of other SMs"):
        gpumech.profile_of(outlined, rtx3070(**change))


def test_it_can_be_kept(gpu):
    profile = collected([[shared(block)] for block in range(SMS)], gpu)
    arrays, own = gpumech.to_arrays(profile), gpumech_outline.to_arrays(profile.outline)
    for array in (*arrays.values(), *own.values()):
        array.flags.writeable = False
    kept = gpumech.from_arrays(arrays, gpumech_outline.from_arrays(own))
    assert gpumech.predict(kept, gpu).stack == gpumech.predict(profile, gpu).stack
    again = gpumech.profile_of(gpumech_outline.from_arrays(own), gpu)
    assert gpumech.predict(again, gpu).cycles == gpumech.predict(profile, gpu).cycles
