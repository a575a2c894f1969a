"""Warps, blocks and what is told of a launch on a small GPU (gpu_small.py), each number worked out by hand (see
test_closed_forms_sm.py).
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools

import numpy as np
import pytest
from gpu_programs import (
    BARRIER,
    Instruction,
    atomic,
    copy,
    integer,
    launch,
    load,
    load_shared,
    other,
    special,
    store,
)
from gpu_small import (
    BEGIN,
    DEPENDENT,
    END,
    FROM_DRAM,
    FRONT,
    L1_HIT,
    L2_HIT,
    LATENCY,
    LINE,
    SCHEDULERS,
    SHARED,
    chain,
    cycles,
    gpu,
    independent,
    read_before,
    run,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from manyscale.models.gpu import detailed
from manyscale.models.workload.launch_trace import UnitClass

# warps and blocks


@pytest.mark.theory
def test_a_barrier_waits_for_the_slowest_warp():
    """Phases of chains of 1 to 4 instructions, another warp the slowest in each: its three waits, the barrier a cycle
    later, and all go on in the next."""
    blocks = [
        [[each for p in range(n) for each in (*chain(1 + (w + p) % 4), BARRIER)] for w in range(4)] for n in (4, 12)
    ]
    times = [cycles([block]) for block in blocks]
    assert times[1] - times[0] == 8 * (3 * DEPENDENT + 2)


@pytest.mark.theory
def test_a_warp_that_has_ended_holds_up_no_barrier():
    ends_early = [chain(5), *[[*chain(20), BARRIER, *independent(1)]] * 3]
    assert cycles([ends_early]) == BEGIN + 19 * DEPENDENT + 2 + DEPENDENT + END


@pytest.mark.theory
def test_a_warp_that_has_exited_and_still_waits_for_its_stores_holds_up_no_barrier():
    """The store's acknowledgement comes after the others' barrier. (Its warp is the fourth to be fetched.)"""
    ends_early = [[store(0)], *[[*chain(5), BARRIER, *independent(4)]] * 3]
    assert BEGIN + 4 * DEPENDENT + 2 + 4 + DEPENDENT < L2_HIT
    assert cycles([ends_early]) == cycles([[[store(0)]]]) + 1


@pytest.mark.theory
def test_a_memory_barrier_waits_for_loads():
    fenced = [load(2, 0), other(UnitClass.memory_barrier), *chain(10, special)]
    free = [load(3, 0), *chain(10, special)]
    assert cycles([[fenced]]) == BEGIN + FROM_DRAM + 10 * DEPENDENT + END
    assert cycles([[free]]) == BEGIN + FROM_DRAM + END


@pytest.mark.theory
@pytest.mark.parametrize(("left", "waits"), [(0, True), (1, False)])
def test_a_warp_waits_for_all_but_so_many_groups_of_copies(left, waits):
    """The first group hits in L2 and the second does not, nor does it end after the chain that follows."""
    group, wait = other(UnitClass.copy_group), other(UnitClass.copy_wait, immediate=left)
    memory = read_before([0], gpu())
    warp = [copy(0), group, copy(64 * LINE), group, wait, *chain(20)]
    first, second = BEGIN + L2_HIT, BEGIN + 2 + FROM_DRAM
    assert cycles([[warp]], None, memory) == (second if waits else first) + 20 * DEPENDENT + END


@pytest.mark.theory
@pytest.mark.parametrize(
    ("limit", "of_launch"),
    [
        ({"blocks": 4}, {}),
        ({"warps": 8}, {}),
        ({"threads": 64 * 4}, {}),
        ({"registers": 4 * 2 * 512}, {"registers": 16}),
        ({"registers": 5 * 2 * 768 - 1}, {"registers": 17}),  # 17 * 32 are allocated as 3 * 256
        ({"shared_memory": {"size": "4 KiB"}}, {"shared": 1024}),
        ({"shared_memory": {"size": "5119 B"}}, {"shared": 1000}),  # allocated as 8 * 128 B
        ({"shared_memory": {"size": "8 KiB", "per_block_reserved": "1 KiB"}}, {"shared": 1024}),
    ],
)
def test_blocks_run_in_rounds_of_those_that_fit(limit, of_launch):
    """Blocks of two warps, four at a time on each of two SMs or one: an SM takes one a cycle."""
    for sms, rounds in ((1, 3), (2, 2)):
        result = run([[chain(10)] * 2] * (4 * sms * rounds), gpu(sms=sms, **limit), **of_launch)
        assert result.busy_cycles == rounds * (BEGIN + 10 * DEPENDENT) + 3 + END
        begins = np.sort(result.block_begin)
        assert begins[: 4 * sms].tolist() == np.repeat(np.arange(4), sms).tolist()
        assert begins[4 * sms] == BEGIN + 10 * DEPENDENT


@pytest.mark.theory
def test_a_block_goes_to_the_sm_that_has_room_first():
    sizes = [30, 3, 4, 5, 6, 7, 2, 2, 9, 1, 1, 4]
    result = run([[chain(n)] for n in sizes], gpu(sms=3, blocks=1))
    free = [(0, 0), (0, 1), (0, 2)]
    for block, size in enumerate(sizes):
        begin, sm = heapq.heappop(free)
        end = begin + BEGIN + DEPENDENT * size
        assert (result.block_sm[block], result.block_begin[block], result.block_end[block]) == (sm, begin, end)
        heapq.heappush(free, (end, sm))
    assert result.busy_cycles == max(free)[0] + END


@pytest.mark.theory
def test_of_sms_that_have_room_in_the_same_cycle_the_one_behind_the_last_goes_first():
    """One ends two short blocks as the other ends a long one; n instructions take n + 11 cycles."""
    result = run([[independent(n)] for n in (1, 13, 1, 1, 1)], gpu(sms=2, blocks=1))
    assert result.block_end.tolist() == [12, 24, 24, 36, 36]
    assert result.block_sm.tolist() == [0, 1, 0, 1, 0]


@pytest.mark.theory
def test_launch_latency_comes_on_top():
    result = run([[chain(10)]], gpu(launch_latency="1234 cycles"))
    assert (result.cycles, result.busy_cycles) == (1234 + 103, 103)


@pytest.mark.theory
@pytest.mark.parametrize(
    ("scheduler", "first", "second"),
    [  # cycles in which the last instructions of two warps are issued, the second of which may begin at 3
        ("loose-round-robin", 2 + 2 * 20, 3 + 2 * 20),
        ("greedy-then-oldest", 2 + 20, 2 + 41),
        ("oldest-first", 2 + 20, 2 + 41),
        ("two-level", 2 + 20, 2 + 41),
    ],
)
def test_which_of_two_free_warps_goes_first(scheduler, first, second):
    """Two blocks of a warp of 20 instructions and EXIT each, which takes its unit's cycle."""
    result = run([[independent(20)], [independent(20)]], gpu(schedulers=1, scheduler=scheduler, active_warps=1))
    before_exit = 2 if scheduler == "loose-round-robin" else 1
    assert result.block_end.tolist() == [first - before_exit + DEPENDENT, second - before_exit + DEPENDENT]


@pytest.mark.theory
@pytest.mark.parametrize(
    ("scheduler", "first", "second"),
    [  # cycles in which the last instructions before EXIT are issued
        ("oldest-first", 2 + 2 * DEPENDENT, 52 + 3),  # the first warp takes three slots of the second: two and EXIT
        ("greedy-then-oldest", 54 + DEPENDENT, 52),  # it goes on only after the EXIT of the second, at 53
        ("two-level", 2 + 2 * DEPENDENT, 24 + 49),  # waiting for a unit it remains the active one
    ],
)
def test_which_warp_goes_first_where_the_older_one_waits(scheduler, first, second):
    """A warp of three dependent instructions, and one of 50 that depend on nothing."""
    result = run([[chain(3)], [independent(50)]], gpu(schedulers=1, scheduler=scheduler, active_warps=1))
    assert result.block_end.tolist() == [first + DEPENDENT, second + DEPENDENT]


@pytest.mark.theory
@pytest.mark.parametrize("scheduler", ["oldest-first", "greedy-then-oldest"])
def test_the_oldest_warp_is_the_one_that_was_dispatched_first(scheduler):
    """Not that of the lowest slot: the third block takes the first one's, and goes on once the second has ended. Their
    last instructions are issued in cycles 2, 63 (from 4 on) and 94 (from 65 on)."""
    result = run([[independent(n)] for n in (1, 60, 30)], gpu(schedulers=1, blocks=2, scheduler=scheduler))
    assert result.block_end.tolist() == [2 + DEPENDENT, 63 + DEPENDENT, 94 + DEPENDENT]


@pytest.mark.theory
def test_a_two_level_scheduler_swaps_a_warp_that_waits_for_memory():
    """It makes room for the other, whose 30 instructions hide in its wait."""
    warps = [[load(2, 0), *chain(1)], independent(30)]
    assert cycles([warps], gpu(schedulers=1, scheduler="two-level", active_warps=1)) == (
        BEGIN + FROM_DRAM + DEPENDENT + END
    )


# what is told of a launch


@pytest.mark.theory
@pytest.mark.parametrize(
    ("cause", "warp", "waits"),
    [
        ("dependency", chain(10), 9 * (DEPENDENT - 1)),
        ("dram", [load(2, 0), integer(3, 2)], FROM_DRAM - 1),
        ("l1", [load(2, 0), integer(2, 2), load(2, 0, source=2), integer(3, 2)], L1_HIT - 1),
        ("shared", [load_shared(2, 8), integer(3, 2)], FRONT + 8 + SHARED),
    ],
)
def test_a_cycle_without_an_instruction_has_its_cause(cause, warp, waits):
    """Of one warp. EXIT follows in the next cycle, and what is in flight then drains."""
    result = run([[warp]], gpu(schedulers=1))
    stack = dict(zip(detailed.CAUSES, result.stack, strict=True))
    assert stack[cause] == waits
    assert stack["issue"] == result.warp_instructions == len(warp) + 1
    assert stack["empty"] == BEGIN + END
    assert result.stack.sum() == result.busy_cycles


@pytest.mark.theory
@pytest.mark.parametrize(("cause", "more"), [("unit", 10 * 2), ("load_store", 0)])
def test_an_instruction_that_waits_for_its_unit_has_that_as_its_cause(cause, more):
    """Once the registers before it are full, each waits the interval but the cycle of its issue."""
    target = gpu(schedulers=1, units={"int": {"latency": f"{LATENCY} cycles", "interval": "3 cycles"}})
    waits = [run([[independent(n)]], target).stack[detailed.CAUSES.index(cause)] for n in (20, 30)]
    assert waits[1] - waits[0] == more


@pytest.mark.theory
def test_an_instruction_that_waits_for_the_load_store_unit_has_that_as_its_cause():
    """Accesses to shared memory of eight cycles each."""
    waits = [
        run([[[load_shared(10 + i, 8) for i in range(n)]]], gpu(schedulers=1)).stack[
            detailed.CAUSES.index("load_store")
        ]
        for n in (20, 30)
    ]
    assert waits[1] - waits[0] == 10 * 7


@pytest.mark.theory
def test_waiting_at_a_barrier_and_for_l2_are_causes():
    barrier = run([[[*chain(10), BARRIER], [BARRIER]]], gpu(schedulers=2))
    # the second scheduler's warp waits from its barrier, in its first cycle, to the EXIT behind that of the other
    assert barrier.stack[detailed.CAUSES.index("barrier")] == 9 * DEPENDENT + 1
    near = run([[[load(2, 0), integer(3, 2)]]], gpu(schedulers=1), read_before([0], gpu()))
    assert near.stack[detailed.CAUSES.index("l2")] == L2_HIT - 1


@pytest.mark.theory
def test_those_who_wait_for_a_fill_get_it_one_a_cycle():
    """Eight loads of a sector wait for its fill; the last result comes seven cycles after the first."""
    loads = [load(10 + i, 0) for i in range(8)]
    first, last = (cycles([[[*loads, *([integer(2, used)] * 10)]]]) for used in (10, 17))
    assert last - first == 7


@pytest.mark.theory
def test_a_load_s_wait_is_that_for_the_farthest_level_that_answers_it():
    """One of its sectors is on its way from DRAM already and comes before the other, which L2 has."""
    memory = read_before([0], gpu())
    far = 64 * LINE + 1  # in another bank of L1
    warp = [load(3, far), *chain(20), load(4, 0, far), integer(5, 4)]
    stack = run([[warp]], gpu(schedulers=1), memory).stack
    assert 20 * DEPENDENT + L2_HIT > FROM_DRAM
    assert stack[detailed.CAUSES.index("l2")] == 0
    assert stack[detailed.CAUSES.index("dram")] == L2_HIT - 1


@pytest.mark.theory
def test_occupancy_is_of_the_warps_that_an_sm_has_room_for():
    assert run([[chain(10)] * 8]).occupancy == 8 / 32
    # two of three blocks at a time: the third alone for the second half
    halves = run([[chain(10)] * 8] * 3, gpu(blocks=2)).occupancy
    assert halves == pytest.approx(1.5 * 8 / 32, rel=0.01)


programs = st.lists(
    st.one_of(
        st.builds(integer, st.integers(2, 9), st.integers(2, 9)),
        st.builds(special, st.integers(2, 9), st.integers(2, 9)),
        st.builds(load, st.integers(2, 9), st.integers(0, 400), source=st.integers(2, 9)),
        st.builds(store, st.integers(0, 400), source=st.integers(2, 9), written=st.sampled_from([15, 0xFFFFFFFF])),
        st.builds(load_shared, st.integers(2, 9), st.integers(1, 8)),
        st.builds(atomic, st.integers(2, 9), st.integers(0, 8)),
        st.just(BARRIER),
    ),
    max_size=25,
)
same_length = st.integers(1, 4).flatmap(  # blocks whose warps all have a program of their own
    lambda warps: st.lists(st.lists(programs, min_size=warps, max_size=warps), min_size=1, max_size=8)
)
arithmetic = st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=12)


@pytest.mark.property
@settings(max_examples=40, deadline=None)
@given(blocks=same_length, sms=st.integers(1, 3), slots=st.integers(1, 3), scheduler=st.integers(0, 3))
def test_what_holds_for_any_launch(blocks, sms, slots, scheduler):
    names = ("loose-round-robin", "greedy-then-oldest", "oldest-first", "two-level")
    target = gpu(sms=sms, blocks=slots, scheduler=names[scheduler], active_warps=1)
    trace = launch(blocks)
    result, memory = detailed.simulate(trace, target)
    # every cycle of every scheduler is accounted for, every instruction and block once
    assert result.stack.sum() == result.busy_cycles * result.sms_with_blocks * SCHEDULERS
    assert result.stack.min() >= 0
    assert result.stack[detailed.CAUSES.index("issue")] == result.warp_instructions == trace.num_instructions
    assert result.ipc.sum() == trace.num_instructions
    assert result.sms_with_blocks == min(sms, len(blocks))
    assert 0 <= result.block_sm.min() <= result.block_sm.max() < result.sms_with_blocks
    assert np.all(result.block_begin < result.block_end)
    assert result.busy_cycles == result.block_end.max() + END
    assert np.all(np.diff(result.block_begin) >= 0)
    for sm in range(result.sms_with_blocks):  # never more than fit
        own = result.block_sm == sm
        begins, ends = result.block_begin[own], result.block_end[own]
        assert max(int(((begins <= at) & (ends > at)).sum()) for at in begins) <= slots
    # requests are those of the instructions; what a level answers does not reach the next
    requests = [each for block in blocks for warp in block for each in warp if each.sectors]
    of_l1 = [each for each in requests if each.access != atomic(2, 0).access]
    assert result.l1_accesses == len(of_l1)
    stores = sum(each.access == store(0).access for each in of_l1)
    assert result.l1_misses <= result.l1_accesses
    assert result.l2_accesses <= result.l1_misses + stores + len(requests) - len(of_l1)
    # the same again, and the same after L2 was emptied
    again, _ = detailed.simulate(trace, target)
    for field in dataclasses.fields(result):
        assert np.array_equal(getattr(result, field.name), getattr(again, field.name)), field.name
    assert memory.free[0] >= 0


@pytest.mark.property
@settings(max_examples=30, deadline=None)
@given(blocks=arithmetic)
def test_more_sms_are_never_slower_for_blocks_that_wait_for_nothing(blocks):
    """One block at a time on an SM, in the order of the launch: each begins no later with an SM more. (Blocks that
    share an SM, L2 or DRAM hinder each other otherwise then, and some take longer.)"""
    trace = launch([[chain(n) if dependent else independent(n)] for n, dependent in blocks])
    found = [detailed.simulate(trace, gpu(sms=sms, blocks=1))[0] for sms in (1, 2, 3)]
    for fewer, more in itertools.pairwise(found):
        assert np.all(more.block_begin <= fewer.block_begin)
        assert more.busy_cycles <= fewer.busy_cycles


def test_a_difference_is_seen():
    """Of these tests themselves: another latency gives other cycles."""
    slower: Instruction = integer(2, 2)
    target = gpu(units={"int": {"latency": f"{LATENCY + 1} cycles", "interval": "1 cycle"}})
    assert cycles([[[slower] * 10]], target) == cycles([[[slower] * 10]]) + 10
