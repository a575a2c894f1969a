"""GPUMech as a whole: closed forms of the extended form, what a profile serves for, stacks."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from gpu_programs import (
    BARRIER,
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

from manyscale.models.gpu.gpumech import model as gpumech
from manyscale.models.gpu.gpumech import outline as gpumech_outline
from manyscale.models.gpu.gpumech.segments import EXITS, MEETS, WAITS, segments
from manyscale.models.gpu.launch_program import launch_program
from manyscale.models.gpu.occupancy import DoesNotFitError
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload.launch_trace import UnitClass
from manyscale.runner.problems import load_yaml
from manyscale.runner.study.targets import shipped_targets

LINE = 4  # sectors
CHAIN = 7  # cycles from an integer instruction to the next that needs it: 5 of the pipeline, 2 of its unit
L1, L2, DRAM = 43, 239, 508  # cycles from a load to what needs it


def rtx3070(**changes):
    content = load_yaml(shipped_targets()["rtx3070"])["node"]["gpu"]
    for name, value in changes.items():
        *path, last = name.split("__")
        own = content
        for part in path:
            own = own[part]
        own[last] = value
    return Gpu.model_validate(content)


@pytest.fixture(scope="module")
def gpu():
    return rtx3070()


def extended(trace, gpu, l2=None):
    return gpumech.predict(gpumech.collect(trace, gpu, l2), gpu)


def cycles_of(warp, gpu, warps=1, blocks=1, l2=None):
    return extended(launch([[warp] * warps] * blocks), gpu, l2).cycles


def chain(count):
    return [integer(1, 1)] * count


@pytest.mark.theory
def test_dependent_chain(gpu):
    assert cycles_of(chain(200), gpu) - cycles_of(chain(100), gpu) == 100 * CHAIN


@pytest.mark.theory
@pytest.mark.parametrize(("of_unit", "interval"), [(integer, 2), (special, 8)])
def test_a_unit_takes_an_instruction_each_interval(gpu, of_unit, interval):
    """Four warps of each scheduler that wait for nothing."""
    times = [cycles_of([of_unit(i % 100) for i in range(n)], gpu, warps=16) for n in (64, 128)]
    assert times[1] - times[0] == 4 * 64 * interval


@pytest.mark.theory
def test_issue_of_a_scheduler(gpu):
    """Moves to uniform registers take their unit a cycle each: one instruction a cycle of each scheduler."""
    uniform = other(UnitClass.uniform)
    times = [cycles_of([uniform] * n, gpu, warps=16) for n in (64, 128)]
    assert times[1] - times[0] == 4 * 64


@pytest.mark.theory
@pytest.mark.parametrize(("level", "latency"), [(0, L1), (1, L2), (2, DRAM)])
def test_load_to_use(gpu, level, latency):
    """A chain of loads of one sector each: in DRAM; then again, past L1, in L2; then of one sector, in L1."""
    far = [load(1, 64 * LINE * i, source=1, bypasses_l1=level == 1) for i in range(40)]
    l2 = gpumech.l2_of(gpu)
    if level == 1:
        cycles_of(far, gpu, l2=l2)
    chosen = [load(1, 0, source=1)] * 40 if level == 0 else far
    times = [cycles_of(chosen[:n], gpu, l2=l2 if level == 1 else None) for n in (20, 40)]
    past_l1 = 39 if level == 1 else 0  # that L1 takes
    assert (times[1] - times[0]) / 20 == pytest.approx(latency - past_l1, abs=2)


@pytest.mark.theory
def test_loads_that_nothing_waits_for_overlap(gpu):
    """Twenty loads of different lines take one latency, and a cycle each."""
    apart = [load(10 + i, 64 * LINE * i) for i in range(20)]
    assert cycles_of(apart, gpu) - cycles_of(apart[:1], gpu) == pytest.approx(20, abs=12)


@pytest.mark.theory
def test_entries_for_misses_limit_loads():
    """One entry: each miss waits for the one before it."""
    apart = [load(10 + i, 64 * LINE * i) for i in range(20)]
    times = [cycles_of(apart[:n], rtx3070(l1__mshrs=1)) for n in (10, 20)]
    assert (times[1] - times[0]) / 10 == pytest.approx(DRAM - L1, abs=8)


@pytest.mark.theory
@pytest.mark.parametrize("entries", [1, 8, 32])
def test_entries_for_misses_limit_a_load_of_many_lines(entries):
    """Of a load of 32 lines so many are on their way at once: 32, 4 and 1 times what a miss takes."""
    chased = [load(1, *range(64 * LINE * 32 * i, 64 * LINE * 32 * (i + 1), 64 * LINE), source=1) for i in range(20)]
    times = [cycles_of(chased[:n], rtx3070(l1__mshrs=entries)) for n in (10, 20)]
    assert (times[1] - times[0]) / 10 == pytest.approx(32 / entries * (DRAM - L1), rel=0.06, abs=L1 + 64)


@pytest.mark.theory
def test_port_of_an_sm(gpu):
    """Requests that L2 answers come back one a cycle."""
    l2 = gpumech.l2_of(gpu)
    warps = [[load(10 + i, *range(LINE * (32 * w + i), LINE * (32 * w + i) + 4)) for i in range(32)] for w in range(32)]
    extended(launch([warps]), gpu, l2)
    times = [extended(launch([warps[:n]]), gpu, l2).cycles for n in (16, 32)]
    assert times[1] - times[0] == pytest.approx(16 * 32 * 4, rel=0.02)


@pytest.mark.theory
def test_bandwidth_of_dram():
    """Sectors of all SMs at 44.8 GB/s and 1.132 GHz: 39.6 B a cycle."""
    gpu = rtx3070(dram__bandwidth="44.8064 GB/s")

    def blocks(count):
        line = iter(range(10**6))
        return [
            [
                [load(10 + i, *range(LINE * at, LINE * at + 4)) for i, at in zip(range(8), line, strict=False)]
                for _ in range(8)
            ]
            for _ in range(count)
        ]

    times = [extended(launch(blocks(n)), gpu).cycles for n in (46, 92)]
    assert times[1] - times[0] == pytest.approx(46 * 64 * 128 / 39.58, rel=0.03)


@pytest.mark.theory
@pytest.mark.parametrize("words", [1, 4, 32])
def test_banks_of_shared_memory(gpu, words):
    warp = [load_shared(10 + i % 40, words) for i in range(40)]
    times = [cycles_of(warp[:n], gpu, warps=4) for n in (20, 40)]
    assert times[1] - times[0] == 4 * 20 * words


@pytest.mark.theory
def test_shared_memory_is_waited_for(gpu):
    """29 cycles in the memory, one of its bank, one on, and three before: as Accel-Sim."""
    times = [cycles_of([load_shared(1)] * n, gpu) for n in (20, 40)]  # (each writes what the one before it wrote)
    assert (times[1] - times[0]) / 20 == pytest.approx(34, abs=1)


@pytest.mark.theory
def test_a_barrier_waits_for_the_slowest(gpu):
    """Of four warps in turn another one is slow, in each of four phases."""
    warps = [[each for phase in range(4) for each in (*chain(100 if phase == w else 1), BARRIER)] for w in range(4)]
    alone = cycles_of(chain(400), gpu)
    assert extended(launch([warps]), gpu).cycles == pytest.approx(alone, abs=4 * 4 * CHAIN)


def test_who_ends_is_not_waited_for(gpu):
    warps = [[*chain(5)], [*chain(5), BARRIER, *chain(100)]]
    assert extended(launch([warps]), gpu).cycles == pytest.approx(cycles_of(chain(105), gpu), abs=3 * CHAIN)


@pytest.mark.theory
def test_blocks_are_list_scheduled():
    """Two SMs of one slot, blocks of 40, 10, 10, 30 and 20 links: 40 + 20 and 10 + 10 + 30."""
    gpu = rtx3070(sms=2, blocks=1)
    lengths = (400, 100, 100, 300, 200)
    found = extended(launch([[chain(n)] for n in lengths]), gpu)
    assert found.block_sm.tolist() == [0, 1, 1, 1, 0]
    assert found.cycles == pytest.approx(600 * CHAIN, rel=0.02)
    assert (found.block_end - found.block_begin) / CHAIN == pytest.approx(np.array(lengths), rel=0.1)


@pytest.mark.theory
def test_a_block_ends_when_its_stores_are_acknowledged(gpu):
    """About as long as a load that L2 answers."""
    assert cycles_of([*chain(10), store(0)], gpu) - cycles_of(chain(10), gpu) == pytest.approx(L2, abs=12)


def test_what_only_one_long_warp_does_sets_the_time(gpu):
    """Seven short warps and a long one: the representative warp is short, the launch is as long as the long one."""
    trace = launch([[chain(10)] * 7 + [chain(1000)]])
    profile = gpumech.collect(trace, gpu)
    assert gpumech.predict(profile, gpu).cycles == pytest.approx(1000 * CHAIN, rel=0.02)
    assert gpumech.predict(profile, gpu, form="printed").cycles < 500 * CHAIN


@pytest.mark.theory
def test_printed_form_of_one_warp(gpu):
    """A chain of 100: 99 x 7 + 1 cycles, whatever the scheduler; nothing else is counted."""
    profile = gpumech.collect(launch([[chain(99)]]), gpu)  # and EXIT, which depends on nothing
    found = gpumech.predict(profile, gpu.model_copy(update={"schedulers": 4}), form="printed")
    assert found.cycles == pytest.approx(98 * CHAIN + 2)
    assert found.stack["BASE"] / found.stack["DEP"] == pytest.approx(100 / (98 * (CHAIN - 1)))


def several(gpu):
    """A launch in which everything occurs."""
    warp = [
        integer(1), load(2, 0, 1, 2, 3), integer(3, 2), load(4, 400), load(5, 400, 800), special(6, 4, 5), BARRIER,
        load_shared(7, 3), integer(8, 7), store(1200, source=8), atomic(9, 1600), integer(10, 9), copy(2000),
        other(UnitClass.copy_group), other(UnitClass.copy_wait), other(UnitClass.memory_barrier), *chain(4),
    ]  # fmt: skip
    return launch([[warp] * 4] * 100)


@pytest.mark.parametrize("scheduler", ["loose-round-robin", "greedy-then-oldest"])
@pytest.mark.parametrize(
    "options",
    [{}, {"form": "printed"}, {"form": "printed", "parts": ("naive",)}, {"form": "printed", "parts": ("markov",)}],
)
def test_parts_of_the_stack_sum_to_the_total(options, scheduler):
    gpu = rtx3070(scheduler=scheduler)
    found = gpumech.predict(gpumech.collect(several(gpu), gpu), gpu, **options)
    assert tuple(found.stack) == gpumech.CAUSES
    assert sum(found.stack.values()) == pytest.approx(found.cpi, rel=1e-12)
    assert found.cycles * 46 / found.warp_instructions == pytest.approx(found.cpi, rel=1e-12)
    assert min(found.stack.values()) >= 0


def arrays_of(profile):
    return {"outline": gpumech_outline.to_arrays(profile.outline), "profile": gpumech.to_arrays(profile)}


def same(one, other):
    a, b = arrays_of(one), arrays_of(other)
    return all(a[each][name].tobytes() == b[each][name].tobytes() for each in a for name in a[each])


def test_a_profile_can_be_kept(gpu):
    profile = gpumech.collect(several(gpu), gpu)
    expected = {form: gpumech.predict(profile, gpu, form).stack for form in ("extended", "printed")}
    arrays = arrays_of(profile)
    assert {array.dtype.kind for each in arrays.values() for array in each.values()} <= set("iu")
    for each in arrays.values():
        for array in each.values():
            array.flags.writeable = False  # as where they are kept
    kept = gpumech.from_arrays(arrays["profile"], gpumech_outline.from_arrays(arrays["outline"]))
    assert same(kept, profile)
    assert {form: gpumech.predict(kept, gpu, form).stack for form in expected} == expected


def test_collected_twice(gpu):
    assert same(gpumech.collect(several(gpu), gpu), gpumech.collect(several(gpu), gpu))


@pytest.mark.parametrize("change", [{"l1__mshrs": 1}, {"dram__bandwidth": "20 GB/s"}, {"l2__latency": "300 cycles"}])
def test_a_profile_serves_other_gpus(gpu, change):
    """Of the same blocks and caches: as if it had been collected there."""
    changed = rtx3070(**change)
    found = gpumech.predict(gpumech.collect(several(gpu), gpu), changed)
    assert found.cycles == extended(several(gpu), changed).cycles
    assert found.cycles > extended(several(gpu), gpu).cycles


@pytest.mark.parametrize(
    "change",
    [
        {"sms": 8}, {"l1__ways": 128}, {"pipeline": "6 cycles"}, {"warps": 8, "threads": 256}, {"l1__dirty_share": 0.5},
        {"l2__write_allocate": False},
    ],
)  # fmt: skip
def test_a_profile_of_another_shape_is_refused(gpu, change):
    profile = gpumech.collect(several(gpu), gpu)
    with pytest.raises(gpumech.ProfileError, match="launch 1: "):
        gpumech.predict(profile, rtx3070(**change))


@pytest.mark.parametrize("change", [{"sms": 8}, {"warps": 4, "threads": 128}])
def test_a_profile_of_few_blocks_serves_more_gpus(gpu, change):
    """A block on each of four SMs, whatever else there would be room for."""
    trace = launch([[[load(1, 0), integer(2, 1)]] * 4] * 4)
    changed = rtx3070(**change)
    assert same(gpumech.collect(trace, gpu), gpumech.collect(trace, changed))
    assert gpumech.predict(gpumech.collect(trace, gpu), changed).cycles == extended(trace, gpu).cycles


@pytest.mark.parametrize("change", [{"l1__mshrs": 8}, {"dram__bandwidth": "20 GB/s"}, {"scheduler": "oldest-first"}])
def test_gpus_of_equal_profiles(gpu, change):
    assert gpumech.profile_reads(rtx3070(**change)) == gpumech.profile_reads(gpu)


@pytest.mark.parametrize(
    "change",
    [
        {"sms": 8}, {"l1__merges": 8}, {"l2__latency": "300 cycles"}, {"registers": 4096}, {"l1__dirty_share": 0.5},
        {"l2__dirty_share": 0.5},
    ],
)  # fmt: skip
def test_gpus_of_different_profiles(gpu, change):
    assert gpumech.profile_reads(rtx3070(**change)) != gpumech.profile_reads(gpu)


@pytest.mark.parametrize(
    "change",
    [{"sms": 8}, {"warps": 8, "threads": 256}, {"l2__size": "2 MiB"}, {"l1__ways": 128}, {"l1__latency": "50 cycles"}],
)
def test_an_outline_serves_other_gpus(gpu, change):
    """Of other caches and numbers of SMs and warps: as if it had been made there."""
    changed = rtx3070(**change)
    outline = gpumech_outline.outline_of(several(gpu), gpu)
    gpumech.profile_of(outline, gpu)  # changes nothing in it
    assert same(gpumech.profile_of(outline, changed), gpumech.collect(several(gpu), changed))


@pytest.mark.parametrize("change", [{"pipeline": "6 cycles"}, {"l1__banks": 8}, {"shared_memory__latency": "9 cycles"}])
def test_an_outline_of_another_pipeline_is_refused(gpu, change):
    outline = gpumech_outline.outline_of(several(gpu), gpu)
    with pytest.raises(gpumech.ProfileError, match="launch 1: "):
        gpumech.profile_of(outline, rtx3070(**change))


@pytest.mark.theory
def test_lines_of_an_access(gpu):
    """Sectors 0, 1, 5 and 4 x 100 + 3 are in lines 0, 1 and 100; an atomic's requests stand alone; four banks take
    sectors 0, 4 and 8 in three cycles."""
    warp = [load(1, 0, 1, 5, 403), store(0, 1, 7, source=2), atomic(2, 0, 1), load(3, 0, 4, 8)]
    found = gpumech_outline.outline_of(launch([[warp]]), gpu)
    assert found.access["lines"].tolist() == [3, 2, 2, 3]
    assert found.access["passes"].tolist() == [2, 1, 2, 3]
    assert found.line["tag"].tolist() == [100, 1, 0, 1, 0, 0, 0, 2, 1, 0]
    assert found.line["sectors"].tolist() == [8, 2, 3, 8, 3, 1, 2, 1, 1, 1]
    assert found.line["full"].tolist() == [0, 0, 0, 8, 3, 1, 2, 0, 0, 0]


def test_printed_form_needs_representatives(gpu):
    profile = gpumech.collect(several(gpu), gpu, representative=False)
    with pytest.raises(gpumech.ProfileError, match="representative"):
        gpumech.predict(profile, gpu, form="printed")


def test_l2_is_kept_between_launches(gpu):
    l2 = gpumech.l2_of(gpu)
    apart = launch([[[load(10 + i, 64 * LINE * i) for i in range(20)]]])
    first, second = gpumech.collect(apart, gpu, l2), gpumech.collect(apart, gpu, l2)
    assert (first.l2_counts[1], second.l2_counts[1]) == (20, 0)
    touched = gpumech.l2_of(gpu)
    gpumech.touch(apart, gpu, touched)
    assert gpumech.predict(gpumech.collect(apart, gpu, touched), gpu).cycles == gpumech.predict(second, gpu).cycles


def test_pending_hits_are_optional(gpu):
    """Four warps load one line: three of them wait for the first one's miss, or hit."""
    trace = launch([[[load(1, 0), integer(2, 1)]] * 4])
    waiting, hitting = (gpumech.collect(trace, gpu, pending_hits=each) for each in (True, False))
    levels = (waiting.met[0, :3].tolist(), hitting.met[0, :3].tolist())
    assert levels == ([0, 0, 4], [3, 0, 1])


def test_empty_warps_and_blocks(gpu):
    trace = launch([[chain(3)], [chain(3)]])
    bounds = trace.warp_instructions.copy()
    bounds[1] = 0  # the first warp's instructions are the second one's
    without = dataclasses.replace(trace, warp_instructions=bounds)
    assert extended(without, gpu).cycles > 7 * CHAIN - CHAIN
    assert gpumech.predict(gpumech.collect(without, gpu), gpu, form="printed").cycles > 0
    no_warps = dataclasses.replace(trace, block_warps=np.array([0, 2, 2]))
    assert extended(no_warps, gpu).block_end.tolist()[1] <= 3


def test_a_block_that_does_not_fit(gpu):
    with pytest.raises(DoesNotFitError):
        gpumech.collect(launch([[chain(1)]], shared=1 << 20), gpu)


def ends_of(warp, gpu):
    """(instructions, accesses, how it ends) of each segment."""
    cut = segments(launch_program(launch([[warp]]), gpu), gpu)
    return [(int(each["issued"]), int(each["accesses"]), int(each["end"])) for each in cut.segment]


def test_segments_end_at_the_first_use_of_a_load(gpu):
    warp = [load(1, 0), load(2, 4), integer(3), integer(4, 1), integer(5, 1, 2), integer(6, 5)]
    assert ends_of(warp, gpu) == [(3, 2, WAITS), (1, 0, WAITS), (3, 0, EXITS)]


def test_segments_end_at_barriers_atomics_and_waits(gpu):
    assert ends_of([integer(1), BARRIER, integer(1)], gpu) == [(2, 0, MEETS), (2, 0, EXITS)]
    assert ends_of([atomic(1, 0), integer(2)], gpu) == [(1, 1, WAITS), (2, 0, EXITS)]
    assert ends_of([load(1, 0), other(UnitClass.memory_barrier), integer(2)], gpu)[0] == (2, 1, WAITS)


def test_segments_end_where_copies_are_waited_for(gpu):
    """All but the last group: the first copy is waited for, the second not before the end."""
    group = other(UnitClass.copy_group)
    warp = [copy(0), group, copy(64), group, other(UnitClass.copy_wait, 1), integer(1)]
    assert ends_of(warp, gpu) == [(5, 2, WAITS), (2, 0, EXITS)]
    cut = segments(launch_program(launch([[warp]]), gpu), gpu)
    assert cut.access["wait"].tolist() == [0, 1]


def test_equal_warps_have_equal_segments(gpu):
    """Those that are copied, with accesses of their own."""
    warp = [load(1, 0), integer(2, 1), store(64, source=2)]
    other_lines = [load(1, 0, 100, 200), integer(2, 1), store(64, source=2)]
    cut = segments(launch_program(launch([[warp, other_lines, [*warp, integer(3)], warp]]), gpu), gpu)
    assert cut.first_segment.tolist() == [0, 2, 4, 6, 8]
    assert cut.access["requests"].tolist() == [1, 1, 3, 1, 1, 1, 1, 1]
    assert cut.access["wait"].tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
