"""What a choice of blocks, and who watches, is told of a launch while it is simulated."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest
from gpu_launches import Launch, gpu_workload
from gpu_micro import BASE, LINE, Kernel, load, write

from manyscale.models.gpu import detailed, groups, memory_state
from manyscale.runner.problems import load_yaml
from manyscale.runner.readers import accelsim
from manyscale.runner.study.targets import build_machine, shipped_targets

SIZE = 300


class All:
    """Chooses every block, and keeps how many were dispatched, ended, and what had been issued then."""

    def __init__(self):
        self.block = -1
        self.num_dispatched = self.num_ended = 0
        self.told = []

    def next(self):
        self.block += 1
        return self.block, self.block

    def dispatched(self, block, time, issued):
        self.num_dispatched += 1
        self.told.append((self.num_ended, self.num_dispatched - 1, issued))

    def ended(self, block, time, issued):
        self.num_ended += 1
        self.told.append((self.num_ended, self.num_dispatched, issued))


def small_gpu():
    content = load_yaml(shipped_targets()["rtx3070"])
    content["node"]["gpu"] |= {"sms": 1, "blocks": 2}
    return build_machine(content, "rtx3070").node.gpu


def test_issued_lies_between_blocks_that_ended_and_those_that_began():
    gpu = small_gpu()
    choice = All()
    detailed.simulate(gpu_workload(Launch("a", (SIZE,) * 40)).gpu.trace(1), gpu, None, choice)
    assert len(choice.told) > 70
    slack = SIZE / 50  # blocks that end in one cycle are told of one by one
    for ended, began, issued in choice.told[2:]:
        assert SIZE * ended - slack <= issued <= SIZE * began + slack


def test_counts_lie_between_blocks_that_ended_and_those_that_began(tmp_path):
    """Each block loads 20 lines that no other one does, sector by sector: a miss each in both caches. L2 is some
    hundred cycles ahead of, or behind, the time at which it is asked; no block is as short."""
    requests = 20 * 4
    kernel = Kernel(lambda b, _w: [load(10, BASE + LINE * (20 * b + i), 4, 10) for i in range(20)], blocks=40)
    gpu = small_gpu()
    choice = All()
    result, _ = detailed.simulate(accelsim.read(write(tmp_path, [kernel])).gpu.trace(1), gpu, None, choice)
    assert len(result.asked_at) == len(result.asked_counts) == 40
    assert np.all(np.diff(result.asked_at) >= 0)
    lives = result.block_end - result.block_begin
    assert lives.min() > 2 * memory_state.shortest_reply_cycles(gpu)
    for time, counts in zip(result.asked_at.tolist(), result.asked_counts, strict=True):
        ended, began = (int((times <= time).sum()) for times in (result.block_end, result.block_begin))
        *reads, writes = counts.tolist()
        assert writes == 0  # of DRAM
        for count, slack in zip(reads, (4, 4, requests, requests, requests), strict=True):
            assert requests * ended - slack <= count <= requests * began + slack
    assert result.l1_accesses == result.l1_misses == result.l2_accesses == result.l2_misses == 40 * requests
    assert (result.dram_reads, result.dram_writes) == (40 * requests, 0)


class EverySecond(All):
    """Skips the blocks of odd numbers."""

    def next(self):
        first = self.block + 1
        self.block = min(first + first % 2, 40)
        return first, self.block


class Rounds(All):
    """Blocks 0 to 9, four from ``behind`` on, and no other."""

    def __init__(self, behind):
        super().__init__()
        self.jumps = {10: behind, behind + 4: 210}

    def next(self):
        first = self.block + 1
        self.block = self.jumps.get(first, first)
        return first, self.block


@pytest.mark.parametrize(("behind", "lines", "misses"), [(202, 4000, 14 * 80), (202, 20, 80), (12, 200, 10 * 80)])
def test_skipped_blocks_leave_in_l1_what_is_not_driven_out(tmp_path, behind, lines, misses):
    """Blocks load 20 lines each, of ``lines`` of which L1 holds 1,024 at most. In rounds of 200 blocks, what blocks 2
    to 5 have left has long gone when blocks 202 to 205 ask for it: all requests miss. What all blocks load stays, and
    in rounds of 10 what blocks 12 to 15 ask for."""

    def block(b, _w):
        return [load(10, BASE + LINE * ((20 * b + i) % lines), 4, 10) for i in range(20)]

    trace = accelsim.read(write(tmp_path, [Kernel(block, blocks=210)])).gpu.trace(1)
    result, _ = detailed.simulate(trace, small_gpu(), None, Rounds(behind))
    assert int((result.block_sm >= 0).sum()) == 14
    assert (result.l1_accesses, result.l1_misses) == (14 * 80, misses)


@pytest.fixture
def shares(monkeypatch):
    """Of what is watched: at its beginning, and at its end."""
    seen = []

    @contextmanager
    def watched(done, told):
        if told is not None:
            seen.append(done())
        yield
        if told is not None:
            seen.append(done())

    for module in (detailed, groups):
        monkeypatch.setattr(module, "watched", watched)
    return seen


@pytest.mark.parametrize("choice", [None, All, EverySecond])
def test_all_of_a_launch_is_done_at_its_end_what_was_skipped_too(choice, shares, monkeypatch):
    launch = gpu_workload(Launch("a", (SIZE,) * 40)).gpu.trace(1)

    def run():
        detailed.simulate(launch, small_gpu(), None, choice and choice(), None, print)

    run()
    assert shares == []  # it is small
    monkeypatch.setattr(detailed, "SMALL", launch.num_instructions - 1)
    run()
    assert shares == [0.0, 1.0]


def test_in_groups_too(shares, monkeypatch):
    launch = gpu_workload(Launch("a", (SIZE,) * 40)).gpu.trace(1)
    monkeypatch.setattr(detailed, "SMALL", 0)
    groups.simulate_in_groups(launch, small_gpu(), told=print)
    assert shares == [0.0, 1.0]
