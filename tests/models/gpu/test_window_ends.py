"""What lies across the end of a window, and what is in flight there: nothing is forgotten, and nothing lost."""

import numpy as np
import pytest
from gpu_micro import BASE, LINE, MIB, Kernel, alu, integers, load, store, write

from manyscale.models.gpu import detailed, memory_state
from manyscale.models.gpu.groups import simulate_in_groups
from manyscale.models.gpu.l2.warm import touch_blocks
from manyscale.runner.problems import load_yaml
from manyscale.runner.readers import accelsim
from manyscale.runner.study.targets import build_machine, shipped_targets

DRAM_CYCLES = 508  # of a load, on Accel-Sim
MOST_BEFORE = 420  # FFMAs, one a cycle: two windows


def gpu(**changes):
    content = load_yaml(shipped_targets()["rtx3070"])
    for name, value in changes.items():
        own = content["node"]["gpu"]
        own[name] = own[name] | value if isinstance(value, dict) else value
    return build_machine(content, "rtx3070").node.gpu


@pytest.fixture(scope="module")
def loads(tmp_path_factory):
    """Launches of a warp that executes 6, 7, ... FFMAs, and then loads a sector."""
    floats = [alu("FFMA", 10 + i % 40, 200) for i in range(MOST_BEFORE)]
    lines = [[*floats[:count], load(2, BASE, 0), alu("IADD3", 4, 2)] for count in range(6, MOST_BEFORE)]
    folder = write(tmp_path_factory.mktemp("loads"), [Kernel(lambda _b, _w, one=one: one) for one in lines])
    streams = accelsim.read(folder).gpu
    return [streams.trace(number) for number in range(1, len(lines) + 1)]


@pytest.mark.parametrize("simulate", [detailed.simulate, simulate_in_groups])
def test_a_load_takes_as_long_wherever_it_lies_in_a_window(loads, simulate):
    """One that leaves the SM in a window's last cycles is seen by the next window, though nothing else happens."""
    target = gpu(sms=1)
    assert memory_state.shortest_reply_cycles(target) < MOST_BEFORE // 2
    cycles = np.array([simulate(trace, target)[0].busy_cycles for trace in loads])
    assert set(np.diff(cycles)) == {1}
    assert cycles[0] == pytest.approx(DRAM_CYCLES, abs=30)  # and 6 instructions, and the last one


@pytest.mark.parametrize("simulate", [detailed.simulate, simulate_in_groups])
def test_reads_that_write_back_whole_lines(tmp_path, simulate):
    """Each load reads one sector and has four written back: five requests of DRAM for one of L2. An SM sends one a
    cycle, DRAM takes 12 (448 GB/s at 1132 MHz), so that is how long they take, and the last one's way."""
    target = gpu(sms=1, l2={"size": "512 KiB"})
    lines = (512 << 10) // LINE
    fill = Kernel(lambda b, w: [store(BASE + LINE * (64 * (8 * b + w) + i)) for i in range(64)], blocks=8, warps=8)

    def far(block, warp):
        address = BASE + 64 * MIB + LINE * 1024 * (8 * block + warp)
        return [load(10 + i, address + 32 * LINE * i, LINE, op="LDG.E.STRONG.GPU") for i in range(32)]

    streams = accelsim.read(write(tmp_path / "trace", [fill, Kernel(far, warps=8)])).gpu
    _, memory = simulate(streams.trace(1), target)
    assert int((memory.line["dirty"] == 15).sum()) > 0.95 * lines
    result, memory = simulate(streams.trace(2), target, memory)
    requests = 8 * 32 * 32
    assert result.l2_accesses == result.dram_reads == requests
    assert result.dram_writes == pytest.approx(4 * lines, rel=0.05)
    assert requests < result.busy_cycles < requests + 2 * DRAM_CYCLES
    assert memory.free.tolist() == [len(memory.node)] * 2


@pytest.mark.parametrize("level", ["l1", "l2"])
def test_lines_that_were_written_do_not_hold_up_others_for_ever(tmp_path, level):
    """Written lines stay below half of all lines; but all of one set's may be written long before."""
    target = gpu(sms=1, **{level: {"dirty_share": 0.5}})
    sets, ways = (target.l1.num_sets, target.l1.ways) if level == "l1" else (target.l2.num_sets, target.l2.ways)
    stride = LINE * sets * (1 if level == "l1" else target.l2.slices)
    lines = [store(BASE + stride * i, 0) for i in range(3 * ways)]
    trace = accelsim.read(write(tmp_path, [Kernel(lambda _b, _w: lines)])).gpu.trace(1)
    result, _ = detailed.simulate(trace, target)
    assert result.l2_accesses == 3 * ways


class Skipping:
    """Simulates one block of ``step``."""

    def __init__(self, num_blocks, step):
        self._end, self._step, self._next = num_blocks, step, 0

    def next(self):
        first = self._next
        block = min(first + self._step - 1 if first else 0, self._end)
        self._next = block + 1
        return first, block

    def dispatched(self, block, time, issued):
        pass

    def ended(self, block, time, issued):
        pass


@pytest.mark.parametrize("ways", [1, 2, 4])
def test_l2_is_whole_after_blocks_were_shown_to_it(tmp_path, ways):
    """A small L2 is shown skipped blocks while requests are in flight: none is lost, and what is counted line by line
    is what it counts as it goes."""

    def lines(block, warp):
        address = BASE + LINE * (block % 7) + 2048 * LINE * warp
        work = [load(10 + i, address + 64 * LINE * i, LINE) for i in range(6)]
        work.insert(block % 5, store(address + 256 * LINE * (block % 3), LINE))
        return [*work, *integers(5 * (block % 11)), alu("IADD3", 20, 10)]

    folder = write(tmp_path, [Kernel(lines, blocks=240, warps=2)])
    trace = accelsim.read(folder).gpu.trace(1)
    target = gpu(sms=2, blocks=6, l2={"size": f"{64 * ways * LINE >> 10} KiB", "ways": ways})
    while_pending = 0

    def skip(memory, first, end):
        nonlocal while_pending
        while_pending += int((memory.line["pending"] > 0).any())
        touch_blocks(trace, target, memory, first, end)

    memory = None
    for step in (2, 3, 5):
        result, memory = detailed.simulate(trace, target, memory, Skipping(trace.num_blocks, step), skip)
        assert int((result.block_sm >= 0).sum()) == 1 + (trace.num_blocks - 1) // step
        assert not memory.line["pending"].any()
        assert not memory.slice["blocked"].any()
        assert not memory.slice["misses"].any()
        assert np.array_equal(memory.slice["dirty_lines"], (memory.line["dirty"] > 0).sum(axis=(1, 2)))
        assert memory.free[0] == len(memory.node)
    assert while_pending > 10
