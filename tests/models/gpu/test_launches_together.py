"""Several launches on one GPU in the cycle model: when blocks may begin, and what launches take that hinder each other
in nothing, or in all."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_controlled import core, fadd
from gpu_controlled import launch as sass_launch
from gpu_controlled import load as sass_load
from gpu_controlled import load_shared as sass_shared
from gpu_programs import FULL, Instruction, integer, launch, load, load_shared, special, store
from test_asynchronous import copies, loading, target, waits
from validation.gpu.streams import SMS, small_gpu

from manyscale.models.gpu import detailed
from manyscale.models.gpu.occupancy import allocated
from manyscale.models.gpu.parameters import BlockDispatch, Gpu
from manyscale.models.gpu.together.model import Arriving, Ended, simulate_together
from manyscale.models.workload.launch_trace import LaunchTrace

GPU = small_gpu()


def chain(count: int, warps: int = 1) -> list[list[Instruction]]:
    """A block whose warps wait for each of their own instructions: others on the SM slow it down in nothing."""
    return [[special(1, 1) for _ in range(count)] for _ in range(warps)]


def ends(*launches: Arriving) -> list[Ended]:
    return simulate_together(launches, GPU)[0]


def alone(trace: LaunchTrace) -> int:
    return detailed.simulate(trace, GPU)[0].busy_cycles


@pytest.mark.theory
def test_launches_that_share_nothing_take_what_they_take_alone():
    """One warp each, of other SMs."""
    first, second = launch([chain(100)], 1), launch([chain(250)], 2)
    found = ends(Arriving(first), Arriving(second, at=1000))
    assert [each.arrival for each in found] == [0, 1000]
    assert [each.cycles for each in found] == [alone(first), alone(second)]
    assert found[0].block_sm != found[1].block_sm
    assert [each.launch_id for each in found] == [1, 2]


@pytest.mark.theory
@pytest.mark.parametrize("gap", [0, 1, 150, 5000])
def test_a_launch_behind_another_arrives_when_that_one_has_ended(gap):
    first, second = launch([chain(100)], 1), launch([chain(250)], 2)
    found = ends(Arriving(first), Arriving(second, at=gap, after=0))
    assert found[1].arrival == found[0].end + gap
    # it may come a window late where it comes at once
    assert 0 <= found[1].cycles - alone(second) <= (200 if gap < 200 else 0)


@pytest.mark.theory
def test_blocks_of_the_higher_priority_go_first():
    """A has three waves of blocks that fill the GPU. B, of one wave, comes in the first: its blocks begin when those
    end, and A's two others after them; at A's own priority all of A goes first."""
    wave = [chain(100, warps=48)] * SMS
    one = alone(launch(wave))
    first, second = launch(wave * 3, 1), launch(wave, 2)
    a, b = ends(Arriving(first), Arriving(second, at=one // 2, priority=-1))
    assert b.block_begin.min() == a.block_end[: len(wave)].min()
    assert a.block_begin[len(wave) :].min() >= b.block_end.min()
    a, b = ends(Arriving(first), Arriving(second, at=one // 2))
    assert b.block_begin.min() >= a.block_begin.max()
    assert a.cycles == alone(first)


@pytest.mark.theory
@pytest.mark.parametrize(("shared", "fits"), [(0, True), (90_000, False)])
def test_l1_is_beside_the_largest_share_of_shared_memory(shared, fits):
    """A block reads 32 KiB twice. Where a launch beside it makes SMs keep 100 of their 128 KiB for shared memory, L1
    does not hold them, whichever launch comes first."""
    lines = [load(k % 40, *range(4 * k, 4 * k + 4)) for k in range(256)]
    reads, small = launch([[[*lines, integer(1, *range(3)), *lines]]], 1), launch([[[integer()]]], 2, shared=shared)
    for both in ([Arriving(reads), Arriving(small)], [Arriving(small), Arriving(reads)]):
        _, found, _ = simulate_together(both, GPU)
        assert found.l1_accesses == 2 * 256 * 4
        assert (found.l1_misses == 256 * 4) == fits
        assert found.l1_misses >= 256 * 4


def blocks_of(seed: int) -> list[LaunchTrace]:
    """Launches of blocks of 1 to 7 warps, with and without shared memory, that compute, load, store and wait."""
    draw = np.random.default_rng(seed)

    def warp(number: int) -> list[Instruction]:
        first = 4 * int(draw.integers(1 << 16))
        kinds = [
            integer(1, 2), special(3, 1), load(4, *range(first, first + 4)), store(first, written=FULL), load_shared(5)
        ]  # fmt: skip
        return [kinds[int(k)] for k in draw.integers(len(kinds), size=5 + number % 20)]

    found = []
    for number in range(4):
        warps, count = int(draw.integers(1, 8)), int(draw.integers(20, 90))
        blocks = [[warp(k) for k in range(warps)] for _ in range(count)]
        found.append(launch(blocks, number + 1, registers=int(draw.integers(16, 128)), shared=3000 * (number % 2)))
    return found


@pytest.mark.parametrize("seed", [1, 2])
def test_no_sm_ever_holds_more_than_it_has_room_for(seed):
    """All blocks run once, none before its launch arrives, and what is resident fits."""
    traces = blocks_of(seed)
    arriving = [
        Arriving(traces[0]), Arriving(traces[1], at=100), Arriving(traces[2], at=300, priority=-1),
        Arriving(traces[3], at=50, after=1),
    ]  # fmt: skip
    found, of_all, _ = simulate_together(arriving, GPU)
    assert of_all.warp_instructions == sum(trace.num_instructions for trace in traces)
    rows = []
    for trace, each in zip(traces, found, strict=True):
        assert each.block_begin.min() >= each.arrival
        assert each.end == each.block_end.max() + 1
        need = (1, *allocated(GPU, trace.block[0], trace.registers, trace.shared_bytes))
        for sm, begin, end in zip(each.block_sm, each.block_begin, each.block_end, strict=True):
            rows += [(sm, end, -1, need), (sm, begin, 1, need)]
    most = (GPU.blocks, min(GPU.warps, GPU.threads // 32), GPU.registers, GPU.shared_memory.size_bytes)
    fullest = np.zeros(4, np.int64)
    for sm in range(SMS):
        held = np.zeros(4, np.int64)
        for _, _, sign, need in sorted((row for row in rows if row[0] == sm), key=lambda row: row[1:3]):
            held += sign * np.array(need)
            fullest = np.maximum(fullest, held)
    assert (fullest <= most).all()
    assert (fullest / most).max() > 0.9  # somewhere it is full: the test tells something


def test_the_same_twice():
    traces = blocks_of(4)
    arriving = [Arriving(trace, at=70 * k) for k, trace in enumerate(traces)]
    one, two = (ends(*arriving) for _ in range(2))
    assert [each.cycles for each in one] == [each.cycles for each in two]


@pytest.mark.theory
@pytest.mark.peer
@pytest.mark.parametrize("dispatch", [{}, {"interval": "3 cycles", "turnaround": "250 cycles"}])
def test_blocks_of_one_shape_run_as_one_launch_of_all_of_them(dispatch):
    """As gpu/detailed.py runs them, which knows one launch."""
    gpu = GPU.model_copy(update={"dispatch": BlockDispatch.model_validate(dispatch)})
    draw = np.random.default_rng(5)
    first = 4 * draw.integers(1 << 14, size=(200, 8))
    blocks = [[[integer(1), load(2, *range(f, f + 4)), integer(3, 2)] * 6 for f in row] for row in first.tolist()]
    whole = detailed.simulate(launch(blocks), gpu)[0]
    _, both, _ = simulate_together([Arriving(launch(blocks[:90])), Arriving(launch(blocks[90:]))], gpu)
    assert both.busy_cycles == whole.busy_cycles
    assert (both.block_end == whole.block_end).all()
    assert (both.stack == whole.stack).all()


def controlled() -> tuple[LaunchTrace, Gpu]:
    """With control bits: loads, shared memory, stores and arithmetic of several blocks, lines of code and constants."""
    warp = [*[fadd(2)] * 40, sass_load(sectors=tuple(range(8))), fadd(waits=1), sass_shared(), fadd(waits=1)] * 3
    return sass_launch([[warp] * 3] * 40), core(sms=4)


def asynchronous() -> tuple[LaunchTrace, Gpu]:
    """Bulk copies into shared memory, with barriers at which each block's warps wait."""
    blocks = [[loading(copies(0, 4096 * k, 32, 16, 32)), *[[integer(2), waits(0)]] * 3] for k in range(30)]
    return launch(blocks, shared=4096), target(sms=4)


def paced() -> tuple[LaunchTrace, Gpu]:
    """Waves of blocks of several lengths, of which an SM takes several, given out at a rate and behind a turnaround."""
    blocks = [[[fadd(3)] * (30 + 17 * (k % 7)), [fadd(2)] * (20 + 90 * (k % 3))] for k in range(60)]
    return sass_launch(blocks), core(sms=4, blocks=3, dispatch={"interval": "7 cycles", "turnaround": "480 cycles"})


def cold() -> tuple[LaunchTrace, Gpu]:
    """Without control bits on a target whose launches fetch their code first, for longer than a window."""
    dispatch = {"interval": "2.5 cycles", "turnaround": "90 cycles"}
    trace = launch([chain(5 + k % 9, warps=1 + k % 3) for k in range(300)])
    return trace, core(sms=4, core={"cold_start": "630 cycles"}, dispatch=dispatch)


@pytest.mark.theory
@pytest.mark.peer
@pytest.mark.parametrize("of", [controlled, asynchronous, paced, cold])
def test_a_launch_that_is_alone_runs_as_gpu_detailed_has_it(of):
    """To the cycle of each block."""
    trace, gpu = of()
    alone, _ = detailed.simulate(trace, gpu)
    (found,), _, _ = simulate_together([Arriving(trace)], gpu)
    assert found.cycles == alone.busy_cycles
    assert (found.block_begin == alone.block_begin).all()
    assert (found.block_end == alone.block_end).all()


@pytest.mark.theory
def test_each_launch_gets_its_blocks_at_the_targets_rate_from_its_arrival_on():
    """One block an SM, of two launches, the second of which comes while SMs still have room for it."""
    gpu = core(sms=4, blocks=2, core={"cold_start": "100 cycles"}, dispatch={"interval": "3 cycles"})
    both = [Arriving(launch([chain(50)] * 4)), Arriving(launch([chain(50)] * 4), at=40)]
    for each, found in zip(both, simulate_together(both, gpu)[0], strict=True):
        assert found.block_begin.tolist() == [each.at + 100 + 3 * s for s in range(4)]


@pytest.mark.theory
def test_blocks_of_another_launch_wait_for_the_turnaround_of_a_place():
    gpu = core(sms=1, blocks=1, core={}, dispatch={"turnaround": "300 cycles"})
    a, b = simulate_together([Arriving(launch([chain(50)])), Arriving(launch([chain(50)]))], gpu)[0]
    assert b.block_begin.tolist() == [a.block_end[0] + 300]


@pytest.mark.theory
def test_launches_with_control_bits_on_sms_of_their_own_take_what_they_take_alone():
    """Each finds its own lines of code and constants."""
    gpu = core(sms=2)
    blocks = [[[[fadd(3)] * (900 + 700 * k) for _ in range(2)]] for k in range(2)]
    alone = [detailed.simulate(sass_launch(each), gpu)[0].busy_cycles for each in blocks]
    found, _, _ = simulate_together([Arriving(sass_launch(each)) for each in blocks], gpu)
    assert [each.cycles for each in found] == alone


@pytest.mark.theory
def test_launches_of_two_processes_have_no_memory_in_common():
    """Both read the same addresses; in one process the second finds them in L2."""
    reads = [launch([[[load(1, *range(4 * k, 4 * k + 4)) for k in range(64)]]], number) for number in (1, 2)]
    for spaces, misses in (((0, 0), 64 * 4), ((0, 1), 2 * 64 * 4)):
        both = [Arriving(reads[k], at=50_000 * k, space=spaces[k]) for k in range(2)]
        assert simulate_together(both, GPU)[1].l2_misses == misses


def test_launches_that_cannot_be_together_are_refused():
    trace, gpu = controlled()
    plain = launch([chain(10)])
    with pytest.raises(ValueError, match="some launches have control bits"):
        simulate_together([Arriving(trace), Arriving(plain)], gpu)
