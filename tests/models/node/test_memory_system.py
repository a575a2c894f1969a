"""The timed memory of a node: what is where as in the hierarchy without time, and times of closed forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from node_memory import CORE, caches, flow, node, run, run_touch

from manyscale.models.machine.processor import Cache
from manyscale.models.memory.caches.counts import Counter
from manyscale.models.memory.caches.hierarchy import CacheHierarchy
from manyscale.models.node.memory.cache_rows import EMPTY, FLAG_BITS
from manyscale.models.node.memory.directory import FREE, WORD_BITS
from manyscale.models.node.memory.system import (
    INVALIDATED,
    MISSED,
    SERVED,
    WRITTEN_BACK,
    MemorySystem,
    new_memory_system,
)

pytestmark = pytest.mark.slow  # its kernels take half a minute to compile

PRIVATE = {"L1D": (1024, 2, 1), "L2": (4096, 4, 1)}
FETCHER = {"streams": 4, "confirm": 2, "degree": 2, "distance": 4, "page": "1 KiB"}


def streams(seed: int, num_cores: int, num_accesses: int = 20_000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cores, lines and stores: random lines, sequences up and down, and lines that all cores use."""
    rng = np.random.default_rng(seed)
    core = rng.integers(0, num_cores, num_accesses)
    walk = np.cumsum(rng.choice([-1, 1, 1, 1, 0], num_accesses)) % 700
    kind = rng.integers(0, 4, num_accesses)
    line = np.select(
        [kind == 0, kind == 1, kind == 2],
        [rng.integers(0, 1000, num_accesses), walk + 100 * core, rng.integers(0, 40, num_accesses)],
        (rng.integers(0, 4, num_accesses) << 10) + core,
    )
    return core, line.astype(np.int64), rng.random(num_accesses) < 0.3


def agrees(levels: dict[str, Cache], num_cores: int, seed: int, *, touched: bool = False) -> MemorySystem:
    """Run both, and compare all counts."""
    core, line, store = streams(seed, num_cores)
    memory = new_memory_system(node(num_cores, levels), num_cores)
    reference = CacheHierarchy(levels, num_cores=num_cores, plain=False)
    half = len(line) // 2
    for part in (slice(0, half), slice(half, None)):
        if touched and part.start == 0:
            run_touch(memory, core[part], line[part], store[part])
            assert not memory.counts[:num_cores].any()
        else:
            run(memory, core[part], line[part], store[part], np.arange(len(line[part]), dtype=float))
        given = (line[part] * 64).astype(np.uint64), np.full(len(line[part]), 8, np.int32), store[part]
        reference.feed(*given, core=core[part].astype(np.int32))
        if touched and part.start == 0:
            reference.reset_counts()
    counts = reference.counts()
    values = counts.values.sum(axis=3)  # [levels, counters, cores]
    ours = memory.counts[:num_cores]
    for k, name in enumerate(counts.levels):
        hits = values[k, Counter.load_hits] + values[k, Counter.store_hits]
        misses = values[k, Counter.load_misses] + values[k, Counter.store_misses]
        np.testing.assert_array_equal(ours[:, k, SERVED], hits, f"{name} served")
        np.testing.assert_array_equal(ours[:, k, MISSED], misses, f"{name} missed")
        np.testing.assert_array_equal(ours[:, k, WRITTEN_BACK], values[k, Counter.write_backs], f"{name} written back")
        assert ours[:, k, INVALIDATED].sum() == values[k, Counter.invalidations].sum(), name
    directory_is_exact(memory)
    return memory


def directory_is_exact(memory: MemorySystem) -> None:
    """Of private levels: the directory says what they hold, no more and no less."""
    first = memory.memory[0]
    if first["groups"] == 1:
        return
    held = set()
    for k in range(first["private"]):
        level = memory.level[k]
        for group in range(level["instances"]):
            begin = level["first"] + group * level["slots"]
            tags = memory.tag[begin : begin + level["slots"]]
            held |= {(tag >> FLAG_BITS, group) for tag in tags[tags != EMPTY].tolist()}
    said = set()
    for key, *words in memory.directory[memory.directory[:, 0] != FREE].tolist():
        for w, word in enumerate(words):
            said |= {(key >> 1, w * WORD_BITS + bit) for bit in range(WORD_BITS) if word >> bit & 1}
    assert said == held


@pytest.mark.theory
@pytest.mark.parametrize("last", ["neither", "inclusive", "exclusive"])
@pytest.mark.parametrize("second", ["neither", "inclusive"])
def test_counts_of_several_cores(last: str, second: str) -> None:
    """As the hierarchy without time: private levels and one that all share."""
    levels = caches(PRIVATE | {"L3": (16384, 4, 4)}, L2={"inclusion": second}, L3={"inclusion": last})
    agrees(levels, 4, 1)


@pytest.mark.theory
def test_counts_of_other_hierarchies() -> None:
    """One core and an exclusive private level; a number of sets that is no power of two; one level; no level shared;
    two last levels, of which each serves half of the cores; more than 63 cores."""
    three = PRIVATE | {"L3": (12288, 3, 4)}
    agrees(caches(three), 1, 2)
    agrees(caches(three, L2={"inclusion": "exclusive"}), 1, 3)
    agrees(caches({"L1D": (1024, 2, 1)}), 3, 4)
    agrees(caches(PRIVATE), 3, 5)
    agrees(caches(PRIVATE | {"L3": (12288, 3, 2)}), 4, 6)
    agrees(caches({"L1D": (1024, 2, 1), "L2": (8192, 4, 2), "L3": (16384, 4, 4)}), 4, 7)
    agrees(caches({"L1D": (1024, 2, 1), "L2": (65536, 4, 70)}), 70, 8)


@pytest.mark.theory
def test_counts_with_prefetchers() -> None:
    """Prefetched lines are where they are in the hierarchy without time."""
    agrees(caches(PRIVATE | {"L3": (16384, 4, 4)}, L1D={"prefetcher": FETCHER}), 1, 9)
    agrees(caches(PRIVATE | {"L3": (16384, 4, 4)}, L2={"prefetcher": FETCHER}, L3={"prefetcher": FETCHER}), 1, 10)


@pytest.mark.theory
def test_touch_leaves_what_accesses_leave() -> None:
    """Without counts; what is counted afterwards is as if they had been accesses."""
    agrees(caches(PRIVATE | {"L3": (16384, 4, 4)}, L3={"inclusion": "inclusive"}), 4, 11, touched=True)


@pytest.mark.theory
@pytest.mark.parametrize("levels", [PRIVATE | {"L3": (16384, 4, 4)}, {"L1D": (1024, 2, 1), "L2": (16384, 4, 4)}])
def test_a_directory_of_as_many_lines_as_are_asked_for(levels: dict[str, tuple[int, int, int]]) -> None:
    """It is smaller, and nothing else is different: fewer lines than all private caches hold, each in use by all."""
    core, _, store = streams(12, 4)
    line = np.random.default_rng(12).integers(0, 30, len(core)) * 1000
    of_node = node(4, caches(levels))
    large, small = new_memory_system(of_node, 4), new_memory_system(of_node, 4, most_lines=30)
    assert small.directory.shape[0] == 64  # the power of two that is at least twice as many
    assert large.directory.shape[0] > 64
    done = [run(memory, core, line, store, np.arange(len(line), dtype=float)) for memory in (large, small)]
    np.testing.assert_array_equal(*done)
    np.testing.assert_array_equal(large.counts, small.counts)
    np.testing.assert_array_equal(large.tag, small.tag)
    assert large.counts[:, :, INVALIDATED].sum() > 0
    for memory in (large, small):
        directory_is_exact(memory)


@pytest.mark.theory
def test_lines_that_are_known_to_be_many_change_nothing() -> None:
    """No more than private caches hold are ever in the directory."""
    of_node = node(4, caches(PRIVATE | {"L3": (16384, 4, 4)}))
    sizes = {len(new_memory_system(of_node, 4, most_lines=most).directory) for most in (None, 4 * 80, 10**6)}
    assert sizes == {1024}  # 4 x (16 + 64) lines, twice
    assert len(new_memory_system(of_node, 4, most_lines=0).directory) >= 2


TIMED = {"L1D": (1024, 2, 1), "L2": (4096, 4, 1), "L3": (65536, 16, 4)}
LATENCY = {"L1D": {"latency": "4 cycles"}, "L2": {"latency": "12 cycles"}, "L3": {"latency": "40 cycles"}}


def timed(num_cores: int = 4, *, first_core: int = 0, in_use: int | None = None, **changes: Any) -> MemorySystem:
    """Latencies 4, 12, 40 and 100 cycles; ``changes`` of the node, or of a cache by its name."""
    levels = {name: LATENCY[name] | changes.pop(name, {}) for name in TIMED}
    of_node = node(num_cores, caches(TIMED, **levels), **changes)
    return new_memory_system(of_node, num_cores if in_use is None else in_use, first_core=first_core)


@pytest.mark.theory
def test_latency_of_each_level() -> None:
    """Chases through working sets that only one level holds: each access takes that level's latency."""
    for num_lines, latency, level in ((8, 4, 0), (64, 12, 1), (1024, 40, 2), (1 << 15, 100, 3)):
        memory = timed()
        chain = np.tile(np.random.default_rng(0).permutation(num_lines), 2)
        flow(memory, 0, chain, depth=0)
        again = timed()
        done = flow_of_one(again, chain)
        assert done[-1] - done[num_lines - 1] == pytest.approx(latency * num_lines, rel=0.02), num_lines
        assert again.served[0] == level


def flow_of_one(memory: MemorySystem, line: np.ndarray, depth: int = 1, core: int = 0) -> np.ndarray:
    """Accesses of one core, of which each waits for the one ``depth`` before."""
    done = np.zeros(len(line))
    for i, each in enumerate(line):
        done[i] = flow(memory, core, each, False, done[i - depth] if i >= depth else 0.0)[0]
    return done


@pytest.mark.theory
def test_line_fill_buffers_bound_misses() -> None:
    """Little's law: independent misses come at line_fill_buffers / latency."""
    for buffers in (1, 4, 10):
        memory = timed(core=CORE | {"line_fill_buffers": buffers})
        done = flow(memory, 0, np.arange(1000) * 64, False, 0.0)
        assert done.max() == pytest.approx(1000 / buffers * 100, rel=0.01)


@pytest.mark.theory
def test_chains_ahead_in_time_hold_one_buffer() -> None:
    """Ten misses that wait for each other are asked for first, then nine that wait for nothing: at once."""
    memory = timed()
    flow(memory, 0, np.arange(10) * 1024, False, np.arange(10) * 100.0)
    assert (flow(memory, 0, (100 + np.arange(9)) * 1024, False, 50.0) == 150.0).all()


@pytest.mark.theory
def test_hits_on_lines_that_are_on_their_way() -> None:
    """They are there when the first miss is; the other core asks the shared cache, in which the line is to come."""
    memory = timed()
    assert flow(memory, [0, 0, 0, 1, 1], [5, 5, 5, 5, 5], False, [0.0, 1.0, 99.0, 10.0, 90.0]).tolist() == [
        100.0, 100.0, 103.0, 100.0, 100.0,
    ]  # fmt: skip


@pytest.mark.theory
def test_bandwidth_of_a_level() -> None:
    """A line takes 64 B / bandwidth: of one core 16 cycles, of all four together 8 each, 32 for all."""
    line = np.tile(np.arange(256), 12)
    of_core = timed(L3={"latency": "40 cycles", "bandwidth": "4 GB/s"})
    flow(of_core, 0, line, False, 0.0)
    start = of_core.buffer_free.max()
    done = flow(of_core, 0, line, False, start)
    assert done.max() - start == pytest.approx(len(line) * 16, rel=0.02)
    shared = timed(L3={"latency": "40 cycles", "shared_bandwidth": "8 GB/s"})
    core, lines = np.tile(np.arange(4), len(line)), np.repeat(line, 4) + 256 * np.tile(np.arange(4), len(line))
    flow(shared, core, lines, False, 0.0)
    start = shared.buffer_free.max()
    done = flow(shared, core, lines, False, start, depth=8)
    assert done.max() - start == pytest.approx(len(lines) * 8, rel=0.03)
    ends = [done[core == each].max() - start for each in range(4)]
    assert max(ends) == pytest.approx(min(ends), rel=0.02)


@pytest.mark.theory
def test_bandwidth_of_main_memory_and_of_lines_written_back() -> None:
    """Reading a line takes 8 cycles of the node's bandwidth; stores to new lines write another back for each, unless
    they are written back aside."""
    memory = {"latency": "100 ns", "bandwidth": "inf B/s", "node_bandwidth": "8 GB/s"}
    for is_store, aside, cycles in ((False, False, 8), (True, False, 16), (True, True, 8)):
        system = timed(memory=memory, core=CORE | {"line_fill_buffers": 20, "writes_back_aside": aside})
        done = flow(system, 0, np.arange(8000), is_store, 0.0)
        assert done[-1] - done[2000] == pytest.approx(5999 * cycles, rel=0.02)
    one_core = timed(memory=memory | {"bandwidth": "4 GB/s"})
    assert flow(one_core, 0, np.arange(2000), False, 0.0).max() == pytest.approx(2000 * 16, rel=0.02)


@pytest.mark.theory
def test_stores_take_lines_from_other_cores() -> None:
    """A store of core 0 makes core 1 miss; the modified line comes after 40 + 4 cycles, the latencies of the level that
    both share and of the cache that has it, and core 0 pays 40 for taking it."""
    memory = timed()
    flow(memory, [0, 1], [7, 7], False, [0.0, 200.0])
    assert flow(memory, 1, 7, False, 400.0)[0] == 404.0
    assert flow(memory, 0, 7, True, 500.0)[0] == 500.0 + 4 + 40
    assert memory.served[0] == 4
    assert memory.counts[1, :2, INVALIDATED].tolist() == [1, 1]
    assert flow(memory, 0, 7, True, 600.0)[0] == 604.0  # it is its own now
    assert flow(memory, 1, 7, False, 700.0)[0] == 700.0 + 40 + 4
    assert memory.served[1] == 4
    assert memory.counts[1, 4, SERVED] == 1
    assert flow(memory, 1, 7, False, 800.0)[0] == 804.0


@pytest.mark.theory
def test_prefetched_lines_take_their_time() -> None:
    """A stream that is asked for in vain every 200 cycles has its lines there after the first few; asked for as fast as
    it comes, they are waited for; without bandwidth left, prefetching cannot help."""
    fetcher = {"streams": 4, "confirm": 2, "degree": 2, "distance": 8, "page": "64 KiB"}
    changes: dict[str, Any] = {"L1D": {"latency": "4 cycles", "prefetcher": fetcher}}
    slow = flow(timed(**changes), 0, np.arange(500), False, np.arange(500) * 200.0) - np.arange(500) * 200.0
    assert slow[:3].tolist() == [100.0] * 3
    assert (slow[8:] == 4.0).all()
    chased = flow_of_one(timed(**changes), np.arange(500))
    assert 4 * 500 < chased[-1] < 0.25 * 100 * 500
    bound = {"latency": "100 ns", "bandwidth": "0.64 GB/s"}
    assert flow_of_one(timed(memory=bound, **changes), np.arange(500))[-1] == pytest.approx(100 * 500, rel=0.05)


NUMA = {"latency": "60 ns", "bandwidth": "4 GB/s"}


@pytest.mark.theory
def test_other_sockets() -> None:
    """A page belongs to the socket that touched it first, or to the sockets in turn: a line from the other takes 60
    cycles more, and its link carries one in 16 cycles. A modified line of the other socket comes over the link, too."""
    levels = {"L3": {"latency": "40 cycles", "shared_by_cores": 2}}
    first_touch = timed(4, sockets=2, numa=NUMA, **levels)
    assert flow(first_touch, [0, 3, 3], [0, 1, 64], False, [0.0, 200.0, 400.0]).tolist() == [100.0, 360.0, 500.0]
    assert first_touch.counts[3, 4, SERVED] == 1
    assert flow(first_touch, 3, 64, True, 600.0)[0] == 604.0
    assert flow(first_touch, 0, 64, False, 700.0)[0] == 700.0 + 40 + 4 + 60
    interleaved = timed(4, sockets=2, numa=NUMA | {"pages": "interleave"}, **levels)
    assert flow(interleaved, 0, [0, 64, 128], False, [0.0, 200.0, 400.0]).tolist() == [100.0, 360.0, 500.0]
    other_cores = timed(4, sockets=2, numa=NUMA | {"pages": "interleave"}, first_core=2, in_use=2, **levels)
    assert flow(other_cores, 0, [0, 64, 128], False, [0.0, 200.0, 400.0]).tolist() == [160.0, 300.0, 560.0]
    streamed = timed(4, sockets=2, numa=NUMA | {"pages": "interleave"}, core=CORE | {"line_fill_buffers": 30}, **levels)
    remote = (np.arange(64)[None, :] + 64 * (2 * np.arange(40)[:, None] + 1)).ravel()
    assert flow(streamed, 0, remote, False, 0.0).max() == pytest.approx(len(remote) * 16, rel=0.02)


@pytest.mark.property
def test_times_do_not_fall_where_latencies_grow() -> None:
    """Isolated accesses of several cores, with any latency raised."""
    core, line, store = streams(12, 4, 3000)
    cycle = np.arange(len(line)) * 500.0
    base = flow(timed(), core, line, store, cycle)
    assert (base >= cycle + 4).all()
    for name, slower in (("L1D", "6 cycles"), ("L2", "20 cycles"), ("L3", "60 cycles")):
        assert (flow(timed(**{name: {"latency": slower}}), core, line, store, cycle) >= base).all(), name
    slow_memory = {"latency": "150 ns", "bandwidth": "inf B/s"}
    assert (flow(timed(memory=slow_memory), core, line, store, cycle) >= base).all()


@pytest.mark.contract
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"L2": {"replacement": "tree-plru"}}, "L2: replacement tree-plru: not simulated with time"),
        ({"L2": {"sector": "32 B"}}, "L2: sectors: not simulated"),
        ({"L2": {"write": "write-through"}}, "L2: write-through"),
        ({"L2": {"inclusion": "exclusive"}}, "L2: private and exclusive"),
        ({"L3": {"line": "128 B"}}, "L3: lines of 128 B after 64 B"),
        ({"L2": {"latency": None}}, "L2: latency is not given"),
        ({"memory": None}, "node: main_memory is not given"),
        ({"core": None}, "node: core is not given"),
        ({"in_use": 5}, "cores 0 to 4 are not all of the node's 4"),
    ],
)
def test_what_is_not_simulated_is_refused(changes: dict[str, Any], message: str) -> None:
    """In one line that names it."""
    with pytest.raises(ValueError, match=r"^[^\n]*$") as error:
        timed(**changes)
    assert message in str(error.value)
