"""What a machine says of cores and memory: geometry that fits, quantities with units, gaps that are named."""

from __future__ import annotations

import pickle

import pytest
from pydantic import ValidationError

from manyscale.models.machine.processor import Cache, Core, InstructionCost, Tlb, data_caches, needed
from manyscale.models.workload.detail_tables import InstructionClass

FAST = {"latency": "1 cycle", "reciprocal_throughput": "0.25 cycles"}
CORE = {
    "width": 6, "reorder_buffer": 320, "loads_per_cycle": 2.0, "stores_per_cycle": 1.0, "line_fill_buffers": 24,
    "store_to_load": "7 cycles", "instructions": {each.name: FAST for each in InstructionClass},
}  # fmt: skip


@pytest.mark.theory
def test_lines_and_sets():
    cache = Cache(size="32 KiB", line="64 B", ways=8, latency="4 cycles", bandwidth="157 GB/s")
    assert (cache.num_lines, cache.num_sets, cache.latency_cycles) == (512, 64, 4.0)
    assert cache.ps_per_byte == pytest.approx(1e12 / 157e9)
    assert Cache(size="45 MiB", line="64 B", ways=20).num_sets == 36864


@pytest.mark.contract
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"line": "48 B"}, "line: 48 B is not a power of two"),
        ({"line": "4 B"}, "line: 4 B is not a power of two of at least 8"),
        ({"size": "100 B", "line": "64 B"}, "no whole number of lines"),
        ({"line": "64 B", "ways": 7}, "cannot be divided into sets of 7"),
        ({"line": "64 B", "sector": "128 B"}, "sector"),
        ({"line": "64 B", "ways": 12, "size": "48 KiB", "replacement": "tree-plru"}, "tree-plru needs a power of two"),
        ({"latency": 4}, "has no unit"),
        ({"latency": "4 ns"}, "'ns' is not a unit of count"),
        ({"replacement": "fifo"}, "replacement"),
        ({"associativity": 8}, "associativity"),
    ],
)
def test_impossible_caches_are_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        Cache.model_validate({"size": "32 KiB", **changes})


@pytest.mark.contract
@pytest.mark.parametrize(("entries", "ways", "page"), [(64, 5, "4 KiB"), (64, 4, "3 KiB"), (64, 4, "256 B")])
def test_impossible_tlbs_are_refused(entries, ways, page):
    with pytest.raises(ValidationError):
        Tlb(entries=entries, ways=ways, page=page)


@pytest.mark.contract
def test_what_is_not_given_is_named_when_it_is_needed():
    cache = Cache(size="32 KiB")
    with pytest.raises(ValueError, match="line is not given"):
        _ = cache.num_lines
    with pytest.raises(ValueError, match=r"node\.caches\.L1D\.ways is not given"):
        needed(cache.ways, "ways", "node.caches.L1D.")


@pytest.mark.contract
def test_a_core_has_a_cost_for_every_class():
    core = Core.model_validate(CORE)
    assert core.instructions["fp_add"] == InstructionCost.model_validate(FAST)
    assert pickle.loads(pickle.dumps(core)) == core
    without = {name: cost for name, cost in CORE["instructions"].items() if name != "fp_div"}
    with pytest.raises(ValidationError, match="no cost of fp_div"):
        Core.model_validate({**CORE, "instructions": without})
    with pytest.raises(ValidationError, match="unknown class 'fpdiv'"):
        Core.model_validate({**CORE, "instructions": {**CORE["instructions"], "fpdiv": FAST}})


@pytest.mark.theory
def test_data_do_not_pass_instruction_caches():
    caches = {name: Cache(size="32 KiB") for name in ("L1D", "L1I", "L2")}
    assert list(data_caches(caches)) == ["L1D", "L2"]
