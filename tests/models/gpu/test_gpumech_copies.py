"""Copies from global to shared memory in GPUMech's extended form: a warp waits for groups of them, and not before."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_programs import atomic, copy, integer, launch, other

from manyscale.models.gpu.gpumech import model as gpumech
from manyscale.models.gpu.gpumech.segments import EXITS, WAITS, segments
from manyscale.models.gpu.launch_program import launch_program
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload.launch_trace import Access, UnitClass
from manyscale.runner.study.targets import shipped_content

CHAIN = 7  # cycles from an integer instruction to the next that needs it: 5 of the pipeline, 2 of its unit
DRAM, PAST_L1 = 508, 469  # cycles of a load whose sector is in DRAM; without the 39 of L1
FAR = 256  # sectors between those of copies: other lines
GROUP = other(UnitClass.copy_group)


@pytest.fixture(scope="module")
def gpu():
    return Gpu.model_validate(shipped_content("rtx3070")["node"]["gpu"])


def cycles(warp, gpu):
    return gpumech.predict(gpumech.collect(launch([[warp]]), gpu), gpu).cycles


def pipelined(steps, stages, work, past_l1):
    """A loop that has copies of so many steps on their way: it waits for the oldest group, copies for a later step, and
    works on what has come."""
    found = [each for i in range(stages) for each in (copy(FAR * i, bypasses_l1=past_l1), GROUP)]
    for i in range(steps):
        found.append(other(UnitClass.copy_wait, immediate=stages - 1))
        found += [copy(FAR * (stages + i), bypasses_l1=past_l1), GROUP]
        found += [integer(1, 1)] * work
    return found


@pytest.mark.theory
@pytest.mark.parametrize("past_l1", [True, False])
@pytest.mark.parametrize("work", [8, 30, 100])
@pytest.mark.parametrize("stages", [1, 2, 4])
def test_a_loop_takes_the_longer_of_its_copies_and_its_work(gpu, stages, work, past_l1):
    """A step takes its chain, or the share of a copy's latency that its stages leave."""
    latency = PAST_L1 if past_l1 else DRAM
    times = [cycles(pipelined(steps, stages, work, past_l1), gpu) for steps in (20, 60)]
    assert (times[1] - times[0]) / 40 == pytest.approx(max(CHAIN * work, latency / stages), abs=12)


@pytest.mark.theory
def test_copies_of_a_group_overlap(gpu):
    """Twenty take one latency, and a cycle each."""
    ends = [GROUP, other(UnitClass.copy_wait), integer(1)]
    apart = [copy(FAR * i, bypasses_l1=True) for i in range(20)]
    assert cycles([*apart, *ends], gpu) - cycles([apart[0], *ends], gpu) == pytest.approx(20, abs=12)


@pytest.mark.theory
def test_a_slice_takes_requests_of_many_sms_one_after_the_other(gpu):
    """Forty SMs ask it for a sector each in the same cycle: the last is answered 39 cycles after the first."""
    far = [FAR * i for i in range(4000)]
    l2 = gpumech.l2_of(gpu)
    of_slice = gpumech.collect(launch([[[copy(each, bypasses_l1=True) for each in far]]]), gpu, l2).found["slice"]
    same = [each for each, number in zip(far, of_slice.tolist(), strict=True) if number == of_slice[0]][:40]
    blocks = [[[copy(each, bypasses_l1=True), GROUP, other(UnitClass.copy_wait), integer(1)]] for each in same]
    times = [gpumech.predict(gpumech.collect(launch(blocks[:n]), gpu, l2), gpu).cycles for n in (1, 40)]
    assert times[1] - times[0] == 39


@pytest.mark.parametrize("past_l1", [True, False])
def test_which_segment_waits_for_a_copy(gpu, past_l1):
    """That which waits for its group; of those whose group nobody waits for, the last."""
    copies = [copy(FAR * i, bypasses_l1=past_l1) for i in range(3)]
    warp = [copies[0], GROUP, copies[1], GROUP, other(UnitClass.copy_wait, 1), copies[2], integer(1)]
    cut = segments(launch_program(launch([[warp]]), gpu), gpu)
    assert cut.segment["end"].tolist() == [WAITS, EXITS]
    assert cut.access["wait"].tolist() == [0, 1, 1]


def test_atomics_and_reductions_are_waited_for(gpu):
    """As in the cycle-level model."""
    reduces = replace(atomic(1, FAR), to=None, access=Access.reduction)
    cut = segments(launch_program(launch([[[atomic(1, 0), reduces, integer(2)]]]), gpu), gpu)
    assert cut.access["wait"].tolist() == [0, 1]
