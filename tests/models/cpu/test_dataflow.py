"""The dataflow model against what follows by hand from a core's parameters: width 4, reorder buffer 64, 1 GHz."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyscale.models.cpu.branch_predictor import new_predictor
from manyscale.models.cpu.branch_predictor import predict as predict_branches
from manyscale.models.cpu.dataflow import Dataflow, DataflowParameters, Runtime, predict, predict_stream, windows
from manyscale.models.cpu.dataflow_code import fused_instructions
from manyscale.models.machine import Node
from manyscale.models.workload import SCHEMAS, Workload
from manyscale.models.workload.detail_tables import DetailBatch
from manyscale.models.workload.detail_tables import InstructionClass as Kind

LINE = 64
FLAGS = 16


@dataclass(frozen=True)
class Op:
    """An instruction: class, registers read and written, accesses (is_store, bytes)."""

    kind: Kind
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    accesses: tuple[tuple[bool, int], ...] = ()


def load(to: int, address: int = 7, size: int = 8) -> Op:
    return Op(Kind.move, (address,), (to,), ((False, size),))


def store(data: int, address: int = 7, size: int = 8) -> Op:
    return Op(Kind.move, (address, data), (), ((True, size),))


def workload(*blocks: list[Op], offsets: list[int] | None = None, detail: Any = None) -> Workload:
    """Blocks of 64 B each, unless ``offsets`` say otherwise."""
    flat = [(block, place, op) for block, ops in enumerate(blocks) for place, op in enumerate(ops)]
    accesses = [(block, place, *access) for block, place, op in flat for access in op.accesses]
    rows = {
        "blocks": [
            {"function": "f", "file": "", "line": 0, "module": "m", "offset": at, "is_entry": False}
            | {"num_instructions": len(ops)}
            for ops, at in zip(blocks, offsets or range(0, 64 * len(blocks), 64), strict=True)
        ],
        "instructions": [
            {"block_id": block, "instruction_class": int(op.kind), "lanes": 1, "sources": op.reads}
            | {"destinations": op.writes}
            for block, _, op in flat
        ],
        "block_accesses": [dict(zip(SCHEMAS["block_accesses"].names, row, strict=True)) for row in accesses],
    }
    if detail is not None:
        total = int(np.array([len(ops) for ops in blocks])[detail.block_ids].sum())
        counts = {"num_blocks": len(detail.block_ids), "num_accesses": len(detail.addresses), "num_instructions": total}
        first = {"rank": 0, "thread": 0, "operation_id": 0, "event_id": -1, "task_instance_id": -1}
        rows["segments"] = [first | counts]
    tables = {level: pa.Table.from_pylist(rows.get(level, []), schema) for level, schema in SCHEMAS.items()}
    return Workload("made", 1, tables, detail=detail)


COSTS = {kind.name: {"latency": "1 cycle", "reciprocal_throughput": "0.25 cycles"} for kind in Kind} | {
    "fp_add": {"latency": "3 cycles", "reciprocal_throughput": "0.5 cycles"},
    "fp_div": {"latency": "13 cycles", "reciprocal_throughput": "5 cycles"},
}


def node(**core: Any) -> Node:
    """Latencies of 4, 14, 50 (L1D, L2, memory); of the memory a line takes 64 / 4 = 16 cycles."""
    cache = {"line": "64 B", "ways": 4}
    prefetcher = core.pop("prefetcher", None)
    latencies = core.pop("latencies", (4, 14, 50))
    caches = {
        "L1D": {**cache, "size": "4 KiB", "latency": f"{latencies[0]} cycles", "bandwidth": "64 GB/s"},
        "L2": {**cache, "size": "64 KiB", "latency": f"{latencies[1]} cycles", "bandwidth": "64 GB/s"},
    }
    if prefetcher:
        caches["L1D"]["prefetcher"] = prefetcher
    memory = {"latency": f"{latencies[2]} ns", "bandwidth": f"{core.pop('memory_bandwidth', 4)} GB/s"}
    given_core = {
        "width": 4, "reorder_buffer": 64, "loads_per_cycle": 2.0, "stores_per_cycle": 1.0, "line_fill_buffers": 8,
        "store_to_load": "5 cycles", "instructions": COSTS,
    }  # fmt: skip
    rest = {"tlbs": core.pop("tlbs", {}), "core": given_core | core}
    walk = {"page_walk": "30 cycles"} if rest["tlbs"] else {}
    return Node.model_validate(
        {"sockets": 1, "cores_per_socket": 1, "frequency": "1 GHz", "caches": caches, "main_memory": memory | walk}
        | rest
    )


def cycles(program: Workload, machine: Node, block_ids: Any, addresses: Any = (), warm: bool = False) -> float:
    """Of a stream, per execution; 1 cycle = 1000 ps."""
    batch = np.asarray(block_ids, np.int32), np.asarray(addresses, np.uint64)
    found = predict_stream(program, machine, [batch], warm_up=[batch] if warm else [])
    return found.time_ps / 1000 / len(batch[0])


@pytest.mark.theory
def test_a_chain_of_additions_takes_their_latency():
    chain = workload([Op(Kind.fp_add, (32, 33), (32,))] * 4)
    assert cycles(chain, node(), [0] * 1000) == pytest.approx(12, abs=0.01)


@pytest.mark.theory
def test_independent_instructions_take_the_width():
    free = workload([Op(Kind.int_alu, (), (k,)) for k in range(8)])
    assert cycles(free, node(), [0] * 1000) == pytest.approx(8 / 4, abs=0.01)


@pytest.mark.theory
@pytest.mark.parametrize(("kind", "each"), [(Kind.fp_add, 0.5), (Kind.fp_div, 5)])
def test_independent_instructions_of_one_class_take_its_throughput(kind: Kind, each: float):
    free = workload([Op(kind, (), (32 + k,)) for k in range(8)])
    assert cycles(free, node(), [0] * 1000) == pytest.approx(8 * each, rel=0.01)


@pytest.mark.theory
def test_each_of_two_threads_of_a_core_has_half_of_what_they_share():
    """Twice the time for what the width, a unit or bandwidth bounds, none for a chain; half of a cache's lines."""
    alone = node(memory_bandwidth=64, line_fill_buffers=64)
    both = node(hardware_threads=2, memory_bandwidth=64, line_fill_buffers=64)
    free = workload([Op(Kind.int_alu, (), (k,)) for k in range(8)])
    assert cycles(free, both, [0] * 1000) == pytest.approx(2 * 8 / 4, abs=0.01)
    divided = workload([Op(Kind.fp_div, (), (32 + k,)) for k in range(8)])
    assert cycles(divided, both, [0] * 1000) == pytest.approx(2 * 8 * 5, rel=0.01)
    chain = workload([Op(Kind.fp_add, (32, 33), (32,))] * 4)
    assert cycles(chain, both, [0] * 1000) == pytest.approx(12, abs=0.01)
    again = workload([Op(Kind.int_alu, (7, 1), (7,)), load(1)])  # the next address waits for the data
    addresses = np.arange(2000) % 48 * LINE  # of 64 lines that the first cache holds, 32 are left
    assert cycles(again, alone, [0] * 2000, addresses, warm=True) == pytest.approx(4 + 1, rel=0.01)
    assert cycles(again, both, [0] * 2000, addresses, warm=True) == pytest.approx(14 + 1, rel=0.02)


@pytest.mark.theory
def test_divisions_and_roots_share_their_unit():
    both = workload([Op(Kind.fp_div, (), (32,)), Op(Kind.fp_sqrt, (), (33,))])
    assert cycles(both, node(), [0] * 1000) == pytest.approx(5 + 0.25, rel=0.01)


@pytest.mark.theory
def test_registers_are_renamed():
    # each addition overwrites the register that the one before wrote: no chain
    same = workload([Op(Kind.fp_add, (33, 34), (32,))] * 4)
    assert cycles(same, node(), [0] * 1000) == pytest.approx(4 * 0.5, rel=0.01)


@pytest.mark.theory
def test_a_chase_of_pointers_takes_the_latency_of_the_level():
    chase = workload([load(7)])
    assert cycles(chase, node(), [0] * 1000, [4096] * 1000, warm=True) == pytest.approx(4, rel=0.01)
    # 128 lines of 4,096 B / 64 B in the first cache: a circle of 8 KiB is served by the second
    circle = np.tile(np.arange(128) * LINE, 10)
    assert cycles(chase, node(), [0] * len(circle), circle, warm=True) == pytest.approx(14, rel=0.01)
    far = np.arange(1000) * LINE
    assert cycles(chase, node(memory_bandwidth=64), [0] * 1000, far) == pytest.approx(50, rel=0.01)


@pytest.mark.theory
@pytest.mark.parametrize("buffers", [1, 2, 8])
def test_misses_overlap_as_far_as_the_line_fill_buffers_allow(buffers: int):
    free = workload([load(1), *[Op(Kind.nop)] * 3])
    machine = node(line_fill_buffers=buffers, memory_bandwidth=1000)
    assert cycles(free, machine, [0] * 2000, np.arange(2000) * LINE) == pytest.approx(50 / buffers, rel=0.02)


@pytest.mark.theory
def test_misses_overlap_as_far_as_the_reorder_buffer_allows():
    """Of 64 places and a miss every 16 instructions, 4 are under way: 50 / 4 cycles each."""
    sparse = workload([load(1), *[Op(Kind.nop)] * 15])
    machine = node(line_fill_buffers=64, memory_bandwidth=1000)
    got = cycles(sparse, machine, [0] * 2000, np.arange(2000) * LINE)
    # each miss enters once the one four before it has left, and that leaves 50 cycles after it entered
    assert got == pytest.approx(50 / 4, rel=0.05)


@pytest.mark.theory
def test_what_hits_a_line_on_its_way_waits_for_it():
    two = workload([load(1), load(32), Op(Kind.fp_add, (32,), (32,))])
    # the second load hits, but not before the 50 cycles of the first; then the addition
    assert cycles(two, node(memory_bandwidth=1000), [0], [4096, 4104]) == pytest.approx(50 + 3, abs=1)


@pytest.mark.theory
def test_a_stream_takes_the_bandwidth():
    stream = workload([load(1)])
    machine = node(line_fill_buffers=64)
    assert cycles(stream, machine, [0] * 1000, np.arange(1000) * LINE) == pytest.approx(16, rel=0.05)


@pytest.mark.theory
def test_lines_that_stores_miss_are_moved_twice_unless_written_back_aside():
    stream = workload([store(1)])
    machine = node(line_fill_buffers=64, store_buffer=8)
    assert cycles(stream, machine, [0] * 1000, np.arange(1000) * LINE) == pytest.approx(32, rel=0.05)
    aside = node(line_fill_buffers=64, store_buffer=8, writes_back_aside=True)
    assert cycles(stream, aside, [0] * 1000, np.arange(1000) * LINE) == pytest.approx(16, rel=0.05)


@pytest.mark.theory
def test_foreseen_lines_take_bandwidth_and_no_latency():
    chain = workload([Op(Kind.int_alu, (7, 1), (7,)), load(1)])  # the next address waits for the data
    prefetcher = {"confirm": 2, "distance": 4, "page": "1 MiB"}
    addresses = np.arange(1000) * LINE
    assert cycles(chain, node(), [0] * 1000, addresses) == pytest.approx(51, rel=0.01)
    # 16 cycles of bandwidth per line hide 1 + 4 of the chain
    assert cycles(chain, node(prefetcher=prefetcher), [0] * 1000, addresses) == pytest.approx(16, rel=0.02)


@pytest.mark.theory
@pytest.mark.parametrize(("others", "least", "most"), [(1, 5, 10), (2, 0.97 * 5000 / 16, 1.03 * 5000 / 16)])
def test_a_sequence_begins_anew_in_each_page_where_others_come_between(others: int, least: float, most: float):
    """A chain through lines in order, beside loads from the second cache in no order. One between two lines stops
    nothing. With two, the first two lines of a page of 16 are not foreseen (2 x 1000 cycles), the second of them asks
    for two more, and so each for two, at most four ahead: lines 4 to 8, 9 to 13 and 14 to 15 come a memory's latency
    later each (by hand: line 9 is the eighth known, asked for with the fourth known, line 5, after line 4 came)."""
    chain = workload([load(7, 7)] + [load(1, 8)] * others)
    lines = 1600
    drawn = np.random.default_rng(1).permutation(128)
    addresses = np.empty((lines, 1 + others), np.int64)
    addresses[:, 0] = (1 << 20) + np.arange(lines) * LINE
    addresses[:, 1:] = drawn[np.arange(lines * others) % 128].reshape(lines, others) * LINE
    prefetcher = {"confirm": 2, "degree": 2, "distance": 4, "page": "1 MiB", "interrupted_page": "1 KiB"}
    machine = node(prefetcher=prefetcher, latencies=(4, 14, 1000), memory_bandwidth=64)
    assert least < cycles(chain, machine, [0] * lines, addresses.ravel(), warm=True) < most


@pytest.mark.theory
def test_a_load_takes_what_the_store_before_it_wrote():
    counter = workload([load(32), Op(Kind.fp_add, (32, 33), (32,)), store(32)])
    addresses = [4096] * 3000
    taken = cycles(counter, node(), [0] * 1500, addresses, warm=True)
    assert taken == pytest.approx(3 + 5, rel=0.01)
    # through general registers, by renaming: what the machine says of these
    counter = workload([load(1), Op(Kind.int_alu, (1,), (1,)), store(1)])
    renaming = node(general_store_to_load="0 cycles")
    assert cycles(counter, renaming, [0] * 1500, addresses, warm=True) == pytest.approx(1, rel=0.05)


@pytest.mark.theory
def test_a_wide_load_is_answered_once():
    # loads of 16 B, each answered by the store before the last: one per cycle, however many words they have
    copy = workload([load(32, size=16), store(33, size=16)])
    addresses = np.arange(4000) // 2 * 16 % 256
    addresses[::2] = (addresses[::2] - 32) % 256
    machine = node(forwarded_loads_per_cycle=1.0, store_buffer=64)
    assert cycles(copy, machine, [0] * 2000, addresses, warm=True) == pytest.approx(1, rel=0.05)


@pytest.mark.theory
@pytest.mark.parametrize(("offset", "each"), [(0, 0.5), (48, 0.5), (56, 1.0)])
def test_a_load_from_two_lines_takes_two_steps(offset: int, each: float):
    """Of two loads per cycle, width 4."""
    free = workload([load(32, size=16)])
    addresses = np.arange(2000) % 8 * LINE + offset
    assert cycles(free, node(), [0] * 2000, addresses, warm=True) == pytest.approx(each, rel=0.02)


@pytest.mark.theory
@pytest.mark.parametrize("updates", [False, True])
def test_loads_that_an_update_answers_are_tried_again(updates: bool):
    """Of three accesses per cycle: a load, a store and two loads of the same bytes, of which three are answered."""
    change = [Op(Kind.int_alu, (7,), (FLAGS,), ((False, 8), (True, 8)))] if updates else [load(1), store(1)]
    program = workload([*change, load(2), load(3)])
    machine = node(
        width=8, loads_per_cycle=3.0, accesses_per_cycle=3.0, repeated_accesses=1.0, general_store_to_load="0 cycles"
    )
    taken = cycles(program, machine, [0] * 2000, [4096] * 8000, warm=True)
    assert taken == pytest.approx((4 + 3 * updates) / 3, rel=0.02)


@pytest.mark.theory
def test_atomic_operations_take_their_own_unit():
    costs = COSTS | {"atomic": {"latency": "9 cycles", "reciprocal_throughput": "7 cycles"}}
    count = Op(Kind.atomic, (1,), (FLAGS,), ((False, 8), (True, 8)))
    beside = [Op(Kind.int_alu, (), (2,))] * 8
    addresses = np.arange(4000) // 2 * 8 % 1024
    assert cycles(workload([count, *beside]), node(instructions=costs), [0] * 2000, addresses, warm=True) == (
        pytest.approx(7, rel=0.02)
    )


@pytest.mark.contract
def test_machines_that_do_not_name_atomic_operations_take_them_as_integer_ones():
    named = {name: cost for name, cost in COSTS.items() if name != "atomic"}
    core = node(instructions=named).core
    assert core is not None
    assert core.instructions["atomic"] == core.instructions["int_alu"]
    with pytest.raises(ValueError, match="no cost of branch"):
        node(instructions={name: cost for name, cost in COSTS.items() if name != "branch"})


@pytest.mark.theory
def test_stores_to_one_address_complete_in_order():
    slow, fast = [Op(Kind.fp_div, (32,), (32,)), store(32)], [store(33)]
    read = [load(34), Op(Kind.fp_add, (34,), (34,))]
    # the load waits for the second store, which completes after the first: 13 + 5 + 3
    assert cycles(workload(slow + fast + read), node(), [0], [4096] * 3, warm=True) == pytest.approx(
        13 + 5 + 3, abs=1.5
    )


@pytest.mark.theory
def test_an_addition_from_memory_does_not_load_later_because_of_its_other_source():
    total = workload([Op(Kind.fp_add, (32, 7), (32,), ((False, 8),))])
    assert cycles(total, node(), [0] * 1000, [4096] * 1000, warm=True) == pytest.approx(3, rel=0.01)


@pytest.mark.theory
def test_compare_and_branch_are_one_and_moves_are_nothing():
    pair = [Op(Kind.int_alu, (1,), (FLAGS,)), Op(Kind.branch, (FLAGS,))]
    loop = workload([*[Op(Kind.nop)] * 3, *pair])
    assert cycles(loop, node(), [0] * 1000) == pytest.approx(1, rel=0.01)
    assert cycles(loop, node(fuses_branches=False), [0] * 1000) == pytest.approx(5 / 4, rel=0.01)
    moves = workload([Op(Kind.move, (1,), (2,)), Op(Kind.move, (2,), (1,))])
    assert cycles(moves, node(), [0] * 1000) == pytest.approx(2 / 4, rel=0.01)
    assert cycles(moves, node(eliminates_moves=False), [0] * 1000) == pytest.approx(2, rel=0.01)


@pytest.mark.theory
def test_classes_that_share_units_take_turns():
    """An addition and a multiplication, each 0.5 cycles of its units: 0.5 beside each other, 1 after each other."""
    both = workload([Op(Kind.fp_add, (33,), (32,)), Op(Kind.fp_mul, (33,), (34,))])
    costs = COSTS | {
        name: {"latency": "3 cycles", "reciprocal_throughput": "0.5 cycles"} for name in ("fp_add", "fp_mul")
    }
    assert cycles(both, node(instructions=costs), [0] * 1000) == pytest.approx(0.5, rel=0.02)
    shared = node(instructions=costs, shared_units=[["fp_add", "fp_mul"]])
    assert cycles(both, shared, [0] * 1000) == pytest.approx(1, rel=0.02)
    # what already shared the units of one shares them, too
    fused = workload([Op(Kind.fp_add, (33,), (32,)), Op(Kind.fp_fma, (33,), (34,)), Op(Kind.fp_fma, (33,), (35,))])
    costs |= {"fp_fma": costs["fp_add"]}
    shared = node(instructions=costs, shared_units=[["fp_add", "fp_mul"]])
    assert cycles(fused, shared, [0] * 1000) == pytest.approx(1.5, rel=0.02)


@pytest.mark.contract
@pytest.mark.parametrize(
    ("groups", "message"),
    [([["fp_add", "fp_mul"], ["fp_add"]], "fp_add stands in it twice"), ([["adds"]], "unknown class 'adds'")],
)
def test_shared_units_name_each_class_once(groups: list[list[str]], message: str):
    with pytest.raises(ValueError, match=f"shared_units: {message}"):
        node(shared_units=groups)


@pytest.mark.theory
def test_instructions_that_are_one_with_their_branch_are_counted():
    pair = [Op(Kind.int_alu, (1,), (FLAGS,)), Op(Kind.branch, (FLAGS,))]
    program = workload([*pair, *pair], [Op(Kind.int_alu, (1,), (2,)), Op(Kind.branch, (FLAGS,))], pair[:1])
    assert fused_instructions(program).tolist() == [2, 0, 0]


@pytest.mark.theory
def test_a_loop_in_two_windows_of_code_takes_two_cycles():
    one = [Op(Kind.int_alu, (), (1,)), Op(Kind.branch)]
    end = [Op(Kind.nop)]
    inside = workload(one, end, offsets=[0, 8])
    across = workload(one, end, offsets=[60, 68])
    machine = node(fetch="64 B")
    assert cycles(inside, machine, [0] * 1000) == pytest.approx(1, rel=0.02)
    assert cycles(across, machine, [0] * 1000) == pytest.approx(2, rel=0.02)
    # straight on inside a window nothing more is fetched
    straight = workload(*[[Op(Kind.nop)] * 2] * 4, offsets=[0, 16, 32, 48])
    assert cycles(straight, machine, [0, 1, 2, 3] * 250) == pytest.approx(2 / 4, rel=0.02)


@pytest.mark.theory
def test_a_mispredicted_branch_stops_what_follows():
    coin = np.random.default_rng(1).integers(0, 2, 4000)
    fair = workload([Op(Kind.branch)], [Op(Kind.branch)])
    free, dear = (cycles(fair, node(misprediction=f"{n} cycles"), coin) for n in (0, 20))
    assert dear - free == pytest.approx(20 / 2, rel=0.1)  # half of them are guessed


@pytest.mark.theory
def test_translation_adds_what_the_tlb_costs():
    chase = workload([load(7)])
    tlbs = {"L1": {"entries": 4, "ways": 4}, "L2": {"entries": 16, "ways": 16, "latency": "7 cycles"}}
    pages = np.tile(np.arange(8) * (4096 + LINE), 200)  # in the first cache; 8 pages
    assert cycles(chase, node(tlbs=tlbs), [0] * 1600, pages, warm=True) == pytest.approx(4 + 7, rel=0.01)
    far = {"L1": {"entries": 4, "ways": 4}}
    assert cycles(chase, node(tlbs=far), [0] * 1600, pages, warm=True) == pytest.approx(4 + 30, rel=0.01)


@pytest.mark.theory
@pytest.mark.parametrize(("pages", "each"), [(16, 4 + 0), (64, 4 + 7), (65, 4 + 30)])
def test_beyond_the_reach_of_the_tlbs_every_access_walks(pages: int, each: float):
    """A chase over N pages in turn, one line of each: up to 16 pages for nothing, up to 64 at the second TLB's cost,
    and with one page more than it has entries every access misses it, too. The lines stay in the first cache."""
    tlbs = {"L1": {"entries": 16, "ways": 16, "page": "4 KiB"}, "L2": {"entries": 64, "ways": 64, "page": "4 KiB"}}
    tlbs["L2"]["latency"] = "7 cycles"
    chase, around = workload([load(7)]), np.arange(pages) * (4096 + 64)
    machine = node(tlbs=tlbs).model_copy()
    large = machine.caches["L1D"].model_copy(update={"size_bytes": 65536, "ways": 1024})
    machine = machine.model_copy(update={"caches": machine.caches | {"L1D": large}})
    stream = np.tile(around, 3000 // pages)
    assert cycles(chase, machine, [0] * len(stream), stream, warm=True) == pytest.approx(each, rel=0.01)


@pytest.mark.theory
@pytest.mark.parametrize(("depends", "total"), [(False, 1000 + 20), (True, 2000)])
def test_loads_behind_a_mispredicted_branch_ask_for_their_lines_as_it_waits(depends: bool, total: float):
    """A branch waits for a miss of 1000 cycles and is mispredicted (20 cycles). Behind it a miss whose address is known
    is on its way since the wrong path ran through it, too; one whose address is the first one's data is not."""
    waits = [load(1), Op(Kind.int_alu, (1,), (FLAGS,)), Op(Kind.branch, (FLAGS,), ())]
    other, far = [Op(Kind.nop)], [load(2, 1 if depends else 7)]
    program = workload(waits, other, far)
    machine = node(latencies=(4, 14, 1000), misprediction="20 cycles", memory_bandwidth=1000)
    # 40 times the other way, which the predictor learns, and the reorder buffer has done with its first mistake
    ids, places = np.array([0, 1] * 40 + [0, 2], np.int32), np.array([0] * 40 + [1 << 20, 1 << 21], np.uint64)
    whole, before = (
        predict_stream(program, machine, [(ids[:end], places[: end // 2 + (end > 80)])]).time_ps / 1000
        for end in (82, 80)
    )
    assert whole - before == pytest.approx(total, abs=30)


@pytest.mark.theory
def test_vector_registers_bound_what_is_under_way():
    """Loads that miss, to 4 registers: 4 are under way."""
    free = workload([load(32)])
    machine = node(vector_registers=4, memory_bandwidth=1000, line_fill_buffers=64)
    assert cycles(free, machine, [0] * 1000, np.arange(1000) * LINE) == pytest.approx(50 / 4, rel=0.05)


@pytest.mark.theory
def test_a_string_instruction_moves_so_many_bytes_per_cycle():
    turn = Op(Kind.int_alu, (1, 6, 7), (1, 6, 7), ((False, 1), (True, 1)))
    copy = workload([Op(Kind.nop)], [turn])
    machine = node(string_bytes_per_cycle=16.0)
    addresses = np.stack([4096 + np.arange(512), 5120 + np.arange(512)], axis=1).ravel()
    assert cycles(copy, machine, [1] * 512, addresses, warm=True) * 512 == pytest.approx(512 / 16, rel=0.05)


@dataclass(frozen=True)
class Recorded:
    """A stream in memory."""

    block_ids: np.ndarray
    addresses: np.ndarray
    per_block: int

    digest = "recorded"

    def execution_bounds(self) -> np.ndarray:
        return np.array([0, len(self.block_ids) // 3, len(self.block_ids)])

    def read_executions(self, first: int, end: int) -> DetailBatch:
        places = np.array([0, end - first]), np.array([0, (end - first) * self.per_block])
        taken = slice(first * self.per_block, end * self.per_block)
        return DetailBatch(0, *places, self.block_ids[first:end], self.addresses[taken])


def recorded(num: int) -> tuple[Workload, Recorded]:
    stream = Recorded(np.zeros(num, np.int32), (np.arange(num) * 24).astype(np.uint64), 1)
    ops = [load(32), Op(Kind.fp_add, (32, 33), (33,)), Op(Kind.int_alu, (7,), (7,)), Op(Kind.branch)]
    return workload(ops, detail=stream), stream


@pytest.mark.theory
def test_windows_stand_for_the_whole():
    whole, _ = recorded(30_000)
    full = predict(whole, node())
    part = predict(whole, node(), DataflowParameters(most_instructions=12_000, num_windows=10))
    assert full.num_simulated == full.num_instructions == part.num_instructions == 120_000
    assert part.num_simulated == 12_000
    assert part.time_ps == pytest.approx(full.time_ps, rel=0.02)


@pytest.mark.theory
def test_windows_lie_in_the_middle_of_equal_shares():
    ranges = windows(1000, 4000, DataflowParameters(most_instructions=400, num_windows=4))
    assert ranges.tolist() == [[112, 137], [362, 387], [612, 637], [862, 887]]


@pytest.mark.property
def test_pieces_make_the_whole():
    whole, stream = recorded(3000)
    together = predict_stream(whole, node(), [(stream.block_ids, stream.addresses)])
    parts = [(stream.block_ids[k : k + 7], stream.addresses[k : k + 7]) for k in range(0, 3000, 7)]
    apart = predict_stream(whole, node(), parts)
    assert apart.time_ps == together.time_ps
    assert predict_stream(whole, node(), parts, num_instructions=240_000).time_ps == pytest.approx(
        20 * together.time_ps, rel=1e-6
    )


REGISTERS = st.integers(0, 3) | st.integers(32, 35)
OPS = st.builds(
    Op,
    st.sampled_from([Kind.int_alu, Kind.fp_add, Kind.fp_div, Kind.move, Kind.fp_other, Kind.branch]),
    st.tuples(REGISTERS, REGISTERS),
    st.tuples(REGISTERS),
    st.sampled_from([(), ((False, 8),), ((True, 8),), ((False, 4), (True, 4))]),
)
BLOCKS = st.lists(st.lists(OPS, min_size=1, max_size=6), min_size=1, max_size=4)


def run(blocks: list[list[Op]], machine: Node, seed: int) -> Runtime:
    random = np.random.default_rng(seed)
    ids = random.integers(0, len(blocks), 200).astype(np.int32)
    per_block = np.array([sum(len(op.accesses) for op in ops) for ops in blocks])
    addresses = random.integers(0, 1 << 14, int(per_block[ids].sum())).astype(np.uint64) * 8
    core = Dataflow(workload(*blocks), machine)
    core.execute(ids, addresses)
    return core.runtime()


@pytest.mark.property
@given(BLOCKS, st.integers(0, 1000), st.sampled_from(["fp_add", "fp_div", "int_alu"]), st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_no_latency_that_grows_makes_it_faster(blocks: list[list[Op]], seed: int, kind: str, more: int):
    options = {"prefetcher": {"page": "4 KiB"}, "load_buffer": 16, "store_buffer": 8, "vector_registers": 24}
    before = run(blocks, node(**options), seed)
    cost = {"latency": f"{3 + more + 13} cycles", "reciprocal_throughput": COSTS[kind]["reciprocal_throughput"]}
    assert run(blocks, node(**options, instructions=COSTS | {kind: cost}), seed).time_ps >= before.time_ps - 20
    for latencies in ((4 + more, 14 + more, 50 + more), (4, 14 + more, 50 + more), (4, 14, 50 + more)):
        assert run(blocks, node(**options, latencies=latencies), seed).time_ps >= before.time_ps - 20


@pytest.mark.contract
@given(BLOCKS, st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_parts_add_up_and_runs_repeat(blocks: list[list[Op]], seed: int):
    found = run(blocks, node(), seed)
    assert sum(found.parts_ps.values()) == found.time_ps > 0
    assert min(found.parts_ps.values()) >= 0
    assert run(blocks, node(), seed) == found


@pytest.mark.theory
@pytest.mark.parametrize(
    ("part", "program", "machine", "addresses"),
    [
        ("base", [Op(Kind.nop)] * 4, {}, 0),
        ("units", [Op(Kind.fp_div, (), (32,))], {}, 0),
        ("dependency", [Op(Kind.fp_add, (32,), (32,))], {}, 0),
        ("L2", [load(7)], {}, 128),
        ("memory", [load(7)], {}, 100_000),
        ("bandwidth", [load(1)], {"line_fill_buffers": 64, "memory_bandwidth": 1}, 100_000),
        ("forwarding", [load(32), store(32)], {}, 1),
    ],
)
def test_time_is_given_to_what_it_is_spent_on(part: str, program: list[Op], machine: dict[str, Any], addresses: int):
    made = workload(program)
    per_block = sum(len(op.accesses) for op in program)
    lines = np.repeat(np.arange(1000) % max(addresses, 1), per_block).astype(np.uint64) * np.uint64(LINE)
    batch = np.zeros(1000, np.int32), lines
    found = predict_stream(made, node(**machine), [batch], warm_up=[batch] if addresses < 1000 else [])
    assert found.parts_ps[part] > 0.7 * found.time_ps


@pytest.mark.theory
def test_the_predictor_learns_loops_and_not_coins():
    def wrong(block_ids: np.ndarray) -> float:
        predictor, result = new_predictor(), np.zeros(len(block_ids), bool)
        predict_branches(block_ids.astype(np.int32), -1, np.array([True, True, True]), predictor, result)
        return float(result[len(result) // 2 :].mean())

    assert wrong(np.tile([0] * 9 + [1], 400)) == 0
    assert wrong(np.tile([0, 1, 2, 0, 2], 400)) == 0
    assert wrong(np.random.default_rng(1).integers(0, 2, 8000)) == pytest.approx(0.5, abs=0.03)


@pytest.mark.contract
def test_what_is_missing_is_named():
    made = workload([Op(Kind.nop)])
    bare = node().model_copy(update={"core": None})
    with pytest.raises(ValueError, match=r"node\.core is not given"):
        Dataflow(made, bare)
    with pytest.raises(ValueError, match="no detailed level"):
        predict(made, node())
    with pytest.raises(ValueError, match="show no instructions"):
        Dataflow(workload([]), node())
    with pytest.raises(ValueError, match="1 accesses, but 2 addresses"):
        Dataflow(workload([load(1)]), node()).execute(np.zeros(1, np.int32), np.zeros(2, np.uint64))
    with pytest.raises(ValueError, match="most_instructions"):
        DataflowParameters(most_instructions=-1)
