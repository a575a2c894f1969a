"""The interval model against closed forms: what each mechanism takes where it is alone."""

from __future__ import annotations

import numpy as np
import pytest
from instance_streams import Execution, Op, profiles_of

from manyscale.models.cpu.block_windows import window_cycles
from manyscale.models.cpu.interval import PARTS, IntervalParameters, predict
from manyscale.models.machine import Node
from manyscale.models.node.instance_profile import InstanceProfiles
from manyscale.models.workload.detail_tables import InstructionClass

pytestmark = pytest.mark.slow  # its kernels take half a minute to compile

WIDTH, REORDER_BUFFER, L1, MEMORY = 4, 128, 4, 200
BANDWIDTH = 16  # bytes per cycle, of the node
FREQUENCY = 1e9
A = 8  # a register
FREE = {"latency": "0 cycles", "reciprocal_throughput": "0 cycles"}
ALU = [Op() for _ in range(8)]
STREAM = [Op(loads=1), *[Op() for _ in range(15)]]  # 16 instructions
CHASE = [Op(reads=(A,), writes=(A,), loads=1, kind=InstructionClass.move), *[Op() for _ in range(15)]]
BLOCKS = [ALU, STREAM, CHASE]


def node(cores: int = 1, **changes: object) -> Node:
    core: dict[str, object] = {
        "width": WIDTH, "reorder_buffer": REORDER_BUFFER, "loads_per_cycle": WIDTH, "stores_per_cycle": WIDTH,
        "line_fill_buffers": 1000, "store_to_load": "0 cycles",
        "instructions": {k.name: FREE for k in InstructionClass},
    }  # fmt: skip
    memory: dict[str, object] = {"latency": f"{MEMORY} ns", "bandwidth": "inf B/s"}
    caches: dict[str, dict[str, object]] = {
        "L1D": {"size": "32 KiB", "line": "64 B", "ways": 8, "latency": f"{L1} cycles"},
        "L2": {"size": "1 MiB", "line": "64 B", "ways": 16, "latency": "20 cycles", "shared_by_cores": cores},
    }
    for key, value in changes.items():
        for part in (memory, core):
            if key in part or (part is core and key in ("load_buffer", "misprediction", "commit", "shared_units")):
                part[key] = value
                break
        else:
            memory[key] = value
    return Node.model_validate(
        {"sockets": 1, "cores_per_socket": cores, "frequency": f"{FREQUENCY:g} Hz", "caches": caches, "core": core,
         "main_memory": memory}
    )  # fmt: skip


def instance(block: int, lines: list[int]) -> list[Execution]:
    return [(block, () if block == 0 else (64 * line,)) for line in lines]


def alone(block: int, lines: list[int]) -> InstanceProfiles:
    return profiles_of(BLOCKS, [(0, instance(block, lines))])


def cold(count: int = 400, begin: int = 0) -> list[int]:
    return list(range(begin, begin + count))


@pytest.mark.theory
def test_without_misses_the_width_alone_counts() -> None:
    times = predict(alone(0, [0] * 1000), node(), 1)
    assert times.cycles[0] == pytest.approx(8000 / WIDTH)
    assert times.parts["base"][0] == times.cycles[0]


@pytest.mark.theory
def test_hits_that_depend_on_each_other_take_the_latency() -> None:
    """A chain of loads of one line: 16 instructions and 4 cycles each; two loads per 8 instructions are too slow."""
    times = predict(alone(2, [7] * 1000), node(), 1)
    assert times.cycles[0] == pytest.approx(1000 * 16 / WIDTH, rel=0.05)
    slow = predict(alone(2, [7] * 1000), node(width=8), 1)
    assert slow.cycles[0] == pytest.approx(1000 * L1, rel=0.06)
    assert slow.parts["dependency"][0] > 0


@pytest.mark.theory
def test_long_misses_that_depend_on_each_other() -> None:
    """MLP 1: each takes the whole latency."""
    times = predict(alone(2, cold()), node(), 1)
    assert times.cycles[0] == pytest.approx(400 * MEMORY, rel=0.03)
    assert times.parts["memory"][0] / times.cycles[0] > 0.9


@pytest.mark.theory
def test_long_misses_that_do_not_depend_on_each_other() -> None:
    """128 instructions fit into the reorder buffer, so 8 lines come at once: the latency for each 8 of them."""
    times = predict(alone(1, cold()), node(), 1)
    assert times.cycles[0] == pytest.approx(400 / 8 * MEMORY, rel=0.03)


@pytest.mark.theory
def test_few_buffers_bound_what_comes_at_once() -> None:
    times = predict(alone(1, cold()), node(line_fill_buffers=2), 1)
    assert times.cycles[0] == pytest.approx(400 / 2 * MEMORY, rel=0.01)


@pytest.mark.theory
@pytest.mark.parametrize("cores", [1, 4, 16])
def test_memory_bandwidth(cores: int) -> None:
    """Cores that ask for more than there is take bytes / bandwidth together."""
    profiles = profiles_of(BLOCKS, [(i, instance(1, cold(200, 200 * i))) for i in range(64)])
    limited = node(cores, node_bandwidth=f"{BANDWIDTH / 16} GB/s")
    times = predict(profiles, limited, cores)
    taken = times.cycles[1:].sum() / cores
    assert taken == pytest.approx(63 * 200 * 64 / (BANDWIDTH / 16), rel=0.05)
    assert times.parts["bandwidth"].sum() > 0


@pytest.mark.theory
def test_bandwidth_enough_for_all_costs_next_to_nothing() -> None:
    profiles = profiles_of(BLOCKS, [(i, instance(1, cold(200, 200 * i))) for i in range(64)])
    free, wide = predict(profiles, node(), 1), predict(profiles, node(node_bandwidth="1000 GB/s"), 1)
    assert wide.cycles.sum() == pytest.approx(free.cycles.sum(), rel=1e-3)


@pytest.mark.theory
def test_shared_cache_is_shared() -> None:
    """Eight instances of 300 KB each, twice one after the other, fit into 1 MiB one at a time, not all at once."""
    lines = [cold(4800, 4800 * i) for i in range(8)]
    profiles = profiles_of(BLOCKS, [(i, instance(1, each + each)) for i, each in enumerate(lines)])
    one, eight = predict(profiles, node(8), 1), predict(profiles, node(8), 8)
    assert one.misses[1:, 1] == pytest.approx(4800)
    assert eight.misses[1:, 1] == pytest.approx(9600)
    same = predict(profiles, node(8), 8, IntervalParameters(contention=False))
    assert np.array_equal(same.cycles, one.cycles)


@pytest.mark.theory
def test_lines_that_the_instance_before_used() -> None:
    """Written data stay in the only core's cache; of four cores, it is the same one in a quarter of the cases."""
    profiles = profiles_of([[Op(stores=1)]], [(i, [(0, (64 * k,)) for k in range(100)]) for i in range(9)])
    assert predict(profiles, node(4), 1).misses[1:, 0] == pytest.approx(0)
    shared = predict(profiles, node(4), 4)
    assert shared.misses[1:, 0] == pytest.approx(75)
    assert shared.misses[1:, 1] == pytest.approx(0)


@pytest.mark.theory
@pytest.mark.parametrize(("lines", "beyond"), [(400, [0, 0]), (2048, [2048, 0]), (24_000, [24_000, 24_000])])
def test_a_cell_that_ran_before_finds_what_fits(lines: int, beyond: list[int]) -> None:
    """A loop over lines: 512 fit into the first cache and 16,384 into the second; LRU has gone by the rest."""
    profiles = profiles_of(BLOCKS, [(0, instance(1, cold(lines // 2))), (1, instance(1, cold(lines // 2, lines // 2)))])
    first = predict(profiles, node(), 1)
    again = predict(profiles, node(), 1, warm=True)
    assert first.misses.sum(axis=0) == pytest.approx([lines, lines])
    assert again.misses.sum(axis=0) == pytest.approx(beyond)
    ideal = 16 * lines / WIDTH
    if not any(beyond):
        assert again.cycles.sum() == pytest.approx(ideal)
    assert first.cycles.sum() == pytest.approx(max(lines / 8 * MEMORY, ideal), rel=0.03)


@pytest.mark.theory
def test_warm_the_first_instance_finds_what_the_last_one_left() -> None:
    """As test_lines_that_the_instance_before_used: any of four cores may have written its 100 lines last."""
    profiles = profiles_of([[Op(stores=1)]], [(i, [(0, (64 * k,)) for k in range(100)]) for i in range(9)])
    shared = predict(profiles, node(4), 4, warm=True)
    assert shared.misses[:, 0] == pytest.approx(75)
    assert shared.misses[:, 1] == pytest.approx(0)
    assert predict(profiles, node(4), 4).misses[0] == pytest.approx([100, 100])


@pytest.mark.theory
def test_branches_cost_resolution_and_refill() -> None:
    outcomes = np.random.default_rng(1).integers(0, 2, 4000).tolist()
    executed: list[Execution] = [each for taken in outcomes for each in ((0, ()), (1 + taken, ()))]
    profiles = profiles_of([[Op()], [Op()], [Op()]], [(0, executed)])
    free = predict(profiles, node(), 1)
    assert free.parts["branches"][0] == 0
    half = IntervalParameters(miss_rate_slope=0.5, miss_rate_at_0=0.0)
    taken = predict(profiles, node(misprediction="20 cycles"), 1, half)
    misses = 4000 * 0.5 * profiles.entropy[0]
    assert taken.parts["branches"][0] == pytest.approx(20 * misses, rel=0.01)
    assert profiles.num_branches[0] == 4000


@pytest.mark.property
def test_units_bound_from_below() -> None:
    costs = {k.name: {"latency": "0 cycles", "reciprocal_throughput": "2 cycles"} for k in InstructionClass}
    assert predict(alone(0, [0] * 100), node(instructions=costs), 1).cycles[0] == pytest.approx(1600)


@pytest.mark.theory
def test_classes_that_share_units_bound_together() -> None:
    """An addition and a multiplication of 2 cycles each: 2 cycles beside each other, 4 one after the other."""
    both = [Op(kind=InstructionClass.fp_add), Op(kind=InstructionClass.fp_mul)]
    profiles = profiles_of([both], [(0, [(0, ())] * 100)])
    costs = {k.name: {"latency": "0 cycles", "reciprocal_throughput": "2 cycles"} for k in InstructionClass}
    assert predict(profiles, node(instructions=costs), 1).cycles[0] == pytest.approx(200)
    together = node(instructions=costs, shared_units=[["fp_add", "fp_mul"]])
    assert predict(profiles, together, 1).cycles[0] == pytest.approx(400)


@pytest.mark.property
def test_parts_add_up_and_cycles_rise_with_latency_and_fall_with_the_reorder_buffer() -> None:
    rng = np.random.default_rng(3)
    blocks = [ALU, STREAM, CHASE, [Op(stores=1), Op(loads=1)]]
    pieces = []
    for i in range(40):
        kinds = rng.integers(0, 4, 200)
        lines = rng.integers(0, 30_000, (200, 2))
        accesses = [0, 1, 1, 2]
        pieces.append((i, [(int(k), tuple(64 * int(x) for x in lines[j, : accesses[k]])) for j, k in enumerate(kinds)]))
    profiles = profiles_of(blocks, pieces)
    before = np.zeros(40)
    for latency in (20, 50, 100, 200, 400):
        times = predict(profiles, node(4, latency=f"{latency} ns", node_bandwidth="8 GB/s"), 4)
        assert set(times.parts) == set(PARTS)
        assert sum(times.parts.values()) == pytest.approx(times.cycles)
        assert all((part >= -1e-6).all() for part in times.parts.values())
        assert (times.cycles >= before * (1 - 1e-6)).all()
        before = times.cycles
    before = np.full(40, np.inf)
    for size in (16, 32, 64, 128, 256, 512):
        times = predict(profiles, node(1, reorder_buffer=size), 1)
        # what a sampled window takes is measured on its second half, into which more of the first may reach
        assert (times.cycles <= before * (1 + 2e-3)).all()
        before = times.cycles


@pytest.mark.theory
def test_windows_take_latency_or_width() -> None:
    profiles = alone(2, [1] * 600)
    core = node().core
    assert core is not None
    found = window_cycles(profiles.code, profiles.windows, core, np.array([4.0, 40.0]), 128)
    assert found.per_instruction[2] == pytest.approx([0.25, 40 / 16], rel=0.05)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cores": 0}, "0 cores"),
        ({"caches": {}}, "node.caches"),
        ({"core": None}, "node.core"),
        ({"line": 32}, "lines of"),
    ],
)
def test_refused(change: dict[str, object], message: str) -> None:
    machine = node()
    if "line" in change:
        caches = {k: c.model_copy(update={"line_bytes": 32}) for k, c in machine.caches.items()}
        machine = machine.model_copy(update={"caches": caches})
    elif "cores" not in change:
        machine = machine.model_copy(update=change)
    with pytest.raises(ValueError, match=message):
        predict(alone(0, [0] * 10), machine, 0 if "cores" in change else 1)
    with pytest.raises(ValueError, match="neighbours"):
        IntervalParameters(neighbours=0)
