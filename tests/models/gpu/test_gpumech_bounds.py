"""GPUMech's extended form on random launches and configurations: between bounds of rooflines and of a machine that does
one thing after the other, no slower where it has more, and as fast as an SM's port lets it."""

from __future__ import annotations

import random

import gpu_small as small
import numpy as np
import pytest
from gpu_programs import BARRIER, atomic, integer, launch, load, load_shared, special, store

from manyscale.models.gpu import detailed
from manyscale.models.gpu.gpumech import model as gpumech
from manyscale.models.gpu.gpumech.outline import outline_of
from manyscale.models.gpu.gpumech.replay_state import times
from manyscale.models.gpu.gpumech.segments import LOADS
from manyscale.models.gpu.parameters import Gpu
from manyscale.runner.problems import load_yaml
from manyscale.runner.study.targets import shipped_targets

SEEDS = [*range(12), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(12, 100))]
FEWER = [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 30))]
TOLERANCE = 1.06  # of an order of events that changes with what is faster
SLACK = 600  # cycles: about a load that memory answers


def _warp(draw, lines):
    found = []
    for _ in range(draw.randrange(1, 25)):
        kind = draw.randrange(8)
        register = 10 + draw.randrange(30)
        first = 4 * draw.randrange(lines)
        if kind < 3:
            count = draw.choice((1, 4, 4, 32))
            sectors = sorted({first + (4 * draw.randrange(lines) if count == 32 else i) for i in range(count)})
            found.append(load(register, *sectors, bypasses_l1=draw.randrange(8) == 0))
        elif kind == 3:
            found.append(store(*range(first, first + 4), source=register))
        elif kind == 4:
            found.append(draw.choice((atomic(register, first), load_shared(register, draw.choice((1, 8))))))
        else:
            made = special if kind == 5 else integer
            found += [made(register, 10 + draw.randrange(30)) for _ in range(draw.randrange(1, 12))]
    return found


def drawn_launch(draw):
    warps, lines, barriers = draw.choice((1, 2, 4, 8)), draw.choice((8, 200, 5000)), draw.randrange(3)
    alike = [_warp(draw, lines) for _ in range(warps)]
    blocks = []
    for _ in range(draw.choice((1, 5, 60, 120))):
        own = alike if draw.randrange(2) else [_warp(draw, lines) for _ in range(warps)]
        blocks.append([warp + [BARRIER, integer(1)] * barriers for warp in own])
    return launch(blocks)


def gpu_of(draw, **changes):
    content = load_yaml(shipped_targets()["rtx3070"])["node"]["gpu"]
    warps = draw.choice((8, 16, 24, 32, 48))
    content |= {
        "sms": draw.choice((1, 3, 16, 46)), "warps": warps, "threads": 32 * warps,
        "scheduler": draw.choice(("loose-round-robin", "greedy-then-oldest", "oldest-first", "two-level")),
    }  # fmt: skip
    content["l1"]["mshrs"] = draw.choice((1, 2, 8, 32, 384))
    content["dram"]["bandwidth"] = f"{draw.choice((20, 112, 448, 1792))} GB/s"
    for name, value in changes.items():
        *path, last = name.split("__")
        own = content
        for part in path:
            own = own[part]
        own[last] = value
    return Gpu.model_validate(content)


def _found(profile, own):
    """Requests that leave SMs (of loads, of all by slice) and those that memory answers."""
    of_loads = (own.access["kind"] == LOADS) * profile.answer["sent"]
    slices = np.bincount(profile.found["slice"], profile.found["sent"])
    return int(of_loads.sum()), int(slices.max(initial=0)), int(profile.found["fetched"].sum())


@pytest.mark.theory
@pytest.mark.parametrize("l2", [(1, 32, 16, "4 MiB"), (2, 80, 40, "40 MiB"), (4, 6, 6, "768 KiB")])
@pytest.mark.parametrize("seed", SEEDS)
def test_between_the_bounds(seed, l2):
    """``l2``: sectors that a port passes in a cycle, slices, channels of DRAM, size."""
    draw = random.Random(seed)
    sectors, slices, channels, size = l2
    changes = {"crossbar__sectors": sectors, "l2__slices": slices, "dram__channels": channels, "l2__size": size}
    trace, gpu = drawn_launch(draw), gpu_of(draw, **changes)
    own = outline_of(trace, gpu)
    profile = gpumech.profile_of(own, gpu)
    found, cycles = gpumech.predict(profile, gpu), times(gpu)
    sms = int(profile.shape[0])
    loads, of_slice, fetched = _found(profile, own)
    lower = {
        "issue": trace.num_instructions / (sms * gpu.schedulers),
        "longest warp": max(own.segment["cycles"][first:end].sum() for first, end in _warps(own)),
        "entries for misses": loads / sms * cycles.l2 / gpu.l1.mshrs,  # Little's law, all misses hits of L2
        "a slice": of_slice / sectors,
        "the SMs' ports": int(profile.found["sent"].sum()) / sms / sectors,
        "bandwidth": fetched * cycles.burst,
    }
    access = cycles.front + cycles.l1 + cycles.shared + cycles.l2 + cycles.dram + 4
    requests = int(own.access["passes"].sum()) + int(profile.found["sent"].sum()) + int(profile.answer["waited"].sum())
    moved = (fetched + int(profile.found["written_back"].sum())) * cycles.channel_burst
    units = sum(own.segment["busy"])
    serial = own.segment["cycles"].sum() + own.segment["issued"].sum() + units + 8 * requests + 2 * moved
    serial += len(own.access) * access + loads * (cycles.l2 + cycles.dram) + 4 * trace.num_blocks
    for name, bound in lower.items():
        assert found.cycles >= bound, name
    assert found.cycles <= serial


@pytest.mark.theory
@pytest.mark.parametrize("sectors", [1, 2, 4])
def test_stores_of_an_sm_take_their_sectors_over_the_width_of_its_port(sectors):
    """Forty lines more of each of eight warps, all slices in turn: to the cycle in the cycle-level model, nearly in
    GPUMech's, where a warp that has waited for room brings a piece of its instructions at once."""
    target = small.gpu(crossbar={"sectors": sectors, "past_l1": 4}, l2={"slices": 8}, dram={"bandwidth": "4096 GB/s"})
    of_warp = [[store(*range(4 * (8 * i + w), 4 * (8 * i + w) + 4), source=1) for i in range(80)] for w in range(8)]
    half, whole = (launch([[warp[:count] for warp in of_warp]]) for count in (40, 80))
    exact = [detailed.simulate(trace, target)[0].busy_cycles for trace in (half, whole)]
    assert exact[1] - exact[0] == 8 * 40 * 4 / sectors
    found = [gpumech.predict(gpumech.collect(trace, target), target).cycles for trace in (half, whole)]
    assert found[1] - found[0] == pytest.approx(8 * 40 * 4 / sectors, rel=0.05)


def _warps(own):
    return zip(own.first_segment[:-1], own.first_segment[1:], strict=True)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("l1__mshrs", (1, 3, 16, 64, 384)),
        ("dram__bandwidth", ("20 GB/s", "112 GB/s", "448 GB/s", "1792 GB/s")),
        ("dram__latency", ("900 cycles", "254 cycles", "50 cycles")),
        ("l2__latency", ("600 cycles", "187 cycles", "60 cycles")),
    ],
)
@pytest.mark.parametrize("seed", FEWER)
def test_more_is_no_slower(name, values, seed):
    draw = random.Random(1000 + seed)
    trace, state = drawn_launch(draw), draw.getstate()
    last = float("inf")
    profile = None
    for value in values:
        draw.setstate(state)
        gpu = gpu_of(draw, **{name: value})
        if profile is None or name == "l2__latency":
            profile = gpumech.collect(trace, gpu, representative=False)
        cycles = gpumech.predict(profile, gpu).cycles
        assert cycles <= TOLERANCE * last + SLACK, value
        last = min(last, cycles)


@pytest.mark.parametrize("l2", [(1, 32, 16, "4 MiB"), (2, 80, 40, "40 MiB"), (4, 6, 6, "768 KiB")])
@pytest.mark.parametrize("seed", FEWER)
def test_near_the_cycle_level_model(seed, l2):
    """No case of the design space is more than 60 % off, and none of these is; the mean of 300 was 5.7 %, the worst
    35 %."""
    draw = random.Random(2000 + seed)
    sectors, slices, channels, size = l2
    changes = {"crossbar__sectors": sectors, "l2__slices": slices, "dram__channels": channels, "l2__size": size}
    trace, gpu = drawn_launch(draw), gpu_of(draw, **changes)
    exact = detailed.simulate(trace, gpu)[0].busy_cycles
    found = gpumech.predict(gpumech.collect(trace, gpu, representative=False), gpu).cycles
    assert found == pytest.approx(exact, rel=0.6)
