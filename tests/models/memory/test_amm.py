"""AMM's equations against worked numbers and hand calculation, and what must hold for every machine."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from manyscale.models.machine import Node
from manyscale.models.memory.access_stream import Sites
from manyscale.models.memory.amm.amm import (
    ARITHMETIC,
    DIVISIONS,
    AmmEstimate,
    AmmParameters,
    estimate,
    memory_time_ps,
    predict,
    served_shares,
    transferred_bytes,
)
from manyscale.models.memory.amm.program_counts import ProgramCounts
from manyscale.models.memory.amm.sdcm import HitRates
from manyscale.models.memory.reuse_profile import COLD, ReuseProfile
from manyscale.models.workload.detail_tables import InstructionClass
from manyscale.runner.study.targets import build_machine, shipped_targets

RATES = HitRates(("L1D", "L2"), (0.90, 0.95))
COSTS = {
    "fp_add": (3, 1),
    "fp_mul": (5, 0.5),
    "fp_div": (20, 14),
}


def content() -> dict[str, Any]:
    """A node at 1 GHz, so that a cycle is a nanosecond."""
    costs = {each.name: COSTS.get(each.name, (1, 0.25)) for each in InstructionClass}
    return {
        "sockets": 1,
        "cores_per_socket": 1,
        "frequency": "1 GHz",
        "caches": {
            "L1D": {"size": "32 KiB", "line": "64 B", "ways": 8, "latency": "4 cycles", "bandwidth": "100 GB/s"},
            "L1I": {"size": "32 KiB"},
            "L2": {"size": "1 MiB", "line": "64 B", "ways": 8, "latency": "14 cycles", "bandwidth": "50 GB/s"},
        },
        "tlbs": {"L1": {"entries": 64, "ways": 64}, "L2": {"entries": 1024, "ways": 1024, "latency": "8 cycles"}},
        "main_memory": {"latency": "100 ns", "bandwidth": "10 GB/s", "page_walk": "20 cycles"},
        "core": {
            "width": 4,
            "reorder_buffer": 100,
            "loads_per_cycle": 2,
            "stores_per_cycle": 1,
            "line_fill_buffers": 10,
            "store_to_load": "5 cycles",
            "instructions": {
                name: {"latency": f"{latency} cycles", "reciprocal_throughput": f"{beta} cycles"}
                for name, (latency, beta) in costs.items()
            },
        },
    }


def node(**changes: Any) -> Node:
    return Node.model_validate(content() | changes)


def estimated(
    instructions: dict[str, float], total_bytes: float = 0, at: Node | None = None, **changes: Any
) -> AmmEstimate:
    return estimate(total_bytes, total_bytes / 8, instructions, RATES, at or node(), AmmParameters(**changes))


@pytest.mark.golden
def test_eq_8_with_the_worked_rates():
    # global .90 and .95: 5 % miss both, not .5 %
    assert served_shares(RATES, "corrected") == pytest.approx([0.90, 0.05, 0.05])
    assert served_shares(RATES, "printed") == pytest.approx([0.90, 0.095, 0.005])
    corrected, printed = estimated({}, 8000), estimated({}, 8000, form="printed")
    assert corrected.latency_ps == pytest.approx(0.90 * 4000 + 0.05 * 14_000 + 0.05 * 100_000)
    assert printed.latency_ps == pytest.approx(0.90 * 4000 + 0.095 * 14_000 + 0.005 * 100_000)
    assert corrected.ps_per_byte == pytest.approx(0.90 * 10 + 0.05 * 20 + 0.05 * 100)
    assert dict(corrected.served) == pytest.approx({"L1D": 0.90, "L2": 0.05, "main": 0.05})


@pytest.mark.theory
def test_eq_7_by_hand():
    # a word of 8 bytes: (lambda + 7 beta) / 8 a byte
    assert memory_time_ps(8000, 4000, 10, 8) == pytest.approx(1000 * (4000 + 7 * 10))
    assert memory_time_ps(8000, 4000, 10, 1) == pytest.approx(8000 * 4000)
    made = estimated({}, 8000)
    assert made.of("memory") == pytest.approx(1000 * (made.latency_ps + 7 * made.ps_per_byte), abs=2)
    assert dict(made.parts) == {
        "memory.L1D": 900 * (4000 + 70),
        "memory.L2": 50 * (14_000 + 140),
        "memory.main": 50 * (100_000 + 700),
    }


@pytest.mark.theory
def test_block_of_the_size_of_the_accesses():
    made = estimate(4000, 1000, {}, RATES, node(), AmmParameters(block_bytes=None))
    assert dict(made.parts)["memory.L1D"] == 900 * (4000 + 3 * 10)


@pytest.mark.theory
@pytest.mark.parametrize(
    ("block", "moved"),
    [(8, 64), (64, 64), (65, 128), (128, 128), (1000, 1024), (1024, 1024), (5000, 1024)],
)
def test_blocks_that_are_not_contiguous(block, moved):
    assert transferred_bytes(block, 64, 1024) == moved


@pytest.mark.theory
def test_gaps_cost_transfers_and_as_printed_make_programs_faster():
    gaps = {"gap_bytes": 24, "transfer_bytes": 64, "cache_bytes": 32_768}
    corrected = estimated({}, 8000, **gaps)
    assert dict(corrected.parts)["memory.L1D"] == 900 * (4000 + 63 * 10)
    printed = estimated({}, 8000, form="printed", **gaps)
    assert dict(printed.parts)["memory.L1D"] == pytest.approx(0.9 * 8000 / 64 * (4000 + 63 * 10), abs=1)
    without = estimated({}, 8000, form="printed")
    assert printed.total_ps < without.total_ps < estimated({}, 8000).total_ps < corrected.total_ps


@pytest.mark.theory
def test_cpu_time_by_hand():
    some = {"fp_add": 100, "fp_mul": 50, "fp_div": 10, "branch": 70}
    assert dict(estimated(some).parts[3:]) == {
        "cpu.fp_add": 3000 + 99 * 1000,
        "cpu.fp_mul": 5000 + 49 * 500,
        "cpu.fp_div": 20_000 + 9 * 14_000,
    }
    assert dict(estimated(some, bound="latency").parts[3:]) == {
        "cpu.fp_add": 300_000,
        "cpu.fp_mul": 250_000,
        "cpu.fp_div": 200_000,
    }
    # as printed: N_in - N_div - 1 = 149 at the mean of additions and multiplications, N_div - 1 = 9
    latency, beta = (100 * 3000 + 50 * 5000) / 150, (100 * 1000 + 50 * 500) / 150
    assert dict(estimated(some, form="printed").parts[3:]) == {
        "cpu.other": round(latency + 149 * beta),
        "cpu.division": 20_000 + 9 * 14_000,
    }
    assert dict(estimated(some, form="printed", bound="latency").parts[3:]) == {
        "cpu.other": round(149 * latency),
        "cpu.division": 9 * 20_000,
    }
    assert dict(estimated(some, operations="all").parts)["cpu.branch"] == 1000 + 69 * 250


@pytest.mark.golden
@pytest.mark.parametrize("form", ["printed", "corrected"])
@pytest.mark.parametrize("bound", ["throughput", "latency"])
def test_without_division_division_costs_nothing(form, bound):
    made = estimated({"fp_add": 10, "fp_div": 0}, form=form, bound=bound)
    expected = {
        ("corrected", "throughput"): 3000 + 9 * 1000,
        ("printed", "throughput"): 3000 + 9 * 1000,
        ("corrected", "latency"): 30_000,
        ("printed", "latency"): 27_000,  # one is dropped
    }
    assert made.of("cpu") == made.total_ps == expected[form, bound]
    assert estimated({}, form=form, bound=bound).total_ps == 0


def test_classes_that_count():
    assert DIVISIONS == ("int_div", "fp_div", "fp_sqrt")
    assert not {"move", "branch", "call", "call_return", "nop", "other"} & set(ARITHMETIC)
    assert len(ARITHMETIC) == len(InstructionClass) - 6


@pytest.mark.theory
def test_translation_costs_what_the_farther_tlb_and_the_walk_cost():
    pages = HitRates(("L1", "L2"), (0.9, 0.99))
    made = estimate(8000, 1000, {}, RATES, node(), AmmParameters(), pages)
    assert made.of("translation") == 90 * 8000 + 10 * 20_000
    assert made.of("translation.L1") == 0
    assert made.total_ps == made.of("translation") + estimated({}, 8000).total_ps


@pytest.mark.theory
def test_prefetched_streams_wait_for_the_cache_that_they_are_fetched_to():
    caches = content()["caches"]
    with_one = node(caches=caches | {"L2": caches["L2"] | {"prefetcher": {}}})
    made = estimated({}, 8000, with_one, stream_ratio=0.8, hidden_ratio=0.5)
    plain = dict(estimated({}, 8000).parts)
    assert dict(made.parts) == plain | {"memory.main": 50 * (0.6 * 100_000 + 0.4 * 14_000 + 700)}
    with pytest.raises(ValueError, match="stream_ratio: no data cache of the node has a prefetcher"):
        estimated({}, 8000, stream_ratio=0.8)


def counts() -> ProgramCounts:
    """Two blocks: 100 executions of a load of 8 B and two additions, 10 of a store of 4 B."""
    sites = Sites(np.array([0, 1]), np.array([False, True]), np.array([8, 4]), np.array([0, 1, 2]))
    add = int(InstructionClass.fp_add)
    known = np.array([True, True])
    columns = (np.array([0]), np.array([add]), np.array([1]), np.array([2]))
    return ProgramCounts(np.array([100.0, 10.0]), sites, *columns, known)


def profile(granularity: int = 64) -> ReuseProfile:
    rows = np.array([[0, 0, 80], [0, 600, 15], [0, COLD, 5], [1, 10**6, 10]])
    return ReuseProfile.of(granularity, rows[:, 0], rows[:, 1], rows[:, 2])


@pytest.mark.theory
def test_a_program_from_its_profile():
    caches = content()["caches"]
    for cache in ("L1D", "L2"):  # fully associative, so that hits follow by hand
        caches[cache] = caches[cache] | {"ways": 512 if cache == "L1D" else 16_384}
    made = predict(counts(), profile(), node(caches=caches), AmmParameters(shares=(("L2", 1.0),)), profile(4096))
    assert dict(made.served) == pytest.approx({"L1D": 80 / 110, "L2": 15 / 110, "main": 15 / 110})
    assert made.of("memory.L2") == round(840 / 8 * 15 / 110 * (14_000 + 7 * 20))
    assert made.of("cpu") == 3000 + 199 * 1000
    assert made.of("translation") == round(105 * 15 / 110 * 8000) + round(105 * 15 / 110 * 20_000)
    half = predict(counts(), profile(), node(caches=caches), AmmParameters(shares=(("L2", 599 / 16_384),)))
    assert dict(half.served)["L2"] == 0


@pytest.mark.property
@settings(max_examples=60)
@given(
    st.sampled_from(["printed", "corrected"]),
    st.sampled_from(["throughput", "latency"]),
    st.lists(st.integers(0, 10**6), min_size=4, max_size=4),
    st.lists(st.floats(0, 1), min_size=2, max_size=2),
    st.integers(0, 4),
    st.floats(0, 50),
    st.floats(0, 100),
)
def test_no_latency_makes_a_program_faster(form, bound, numbers, rates, which, more, gap):
    slower = content()
    place = [
        (slower["caches"]["L1D"], "latency"),
        (slower["caches"]["L2"], "latency"),
        (slower["core"]["instructions"]["fp_add"], "latency"),
        (slower["core"]["instructions"]["fp_div"], "reciprocal_throughput"),
        (slower["tlbs"]["L2"], "latency"),
    ][which]
    place[0][place[1]] = f"{float(place[0][place[1]].split()[0]) + more:.6f} cycles"
    instructions = dict(zip(("fp_add", "fp_mul", "fp_div"), numbers, strict=False))
    parameters = AmmParameters(form=form, bound=bound, gap_bytes=gap)
    args = (8.0 * numbers[3], float(numbers[3]), instructions, HitRates(("L1D", "L2"), tuple(rates)))
    pages = HitRates(("L1", "L2"), tuple(rates))
    before, after = (estimate(*args, each, parameters, pages) for each in (node(), Node.model_validate(slower)))
    assert after.total_ps >= before.total_ps >= 0
    assert before.total_ps == sum(before.of(cause) for cause in ("memory", "translation", "cpu"))
    assert sum(share for _, share in before.served) == pytest.approx(1)
    assert all(time >= 0 for _, time in before.parts)


@pytest.mark.contract
@pytest.mark.parametrize("form", ["printed", "corrected"])
def test_free_memory_takes_no_time(form):
    free = content()
    for cache in ("L1D", "L2"):
        free["caches"][cache] |= {"latency": "0 cycles", "bandwidth": "inf B/s"}
    free["main_memory"] = {"latency": "0 s", "bandwidth": "inf B/s"}
    made = estimated({"fp_add": 5}, 8000, Node.model_validate(free), form=form)
    assert made.of("memory") == 0
    assert made.total_ps == made.of("cpu") > 0


@pytest.mark.contract
def test_estimates_are_values():
    made = predict(counts(), profile(), node())
    assert predict(counts(), profile(), node()) == made == pickle.loads(pickle.dumps(made))
    assert pickle.loads(pickle.dumps(AmmParameters())) == AmmParameters()
    assert made.seconds == made.total_ps / 1e12 > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"form": "other"}, "form: unknown value 'other'; known are printed, corrected"),
        ({"bound": ""}, "bound: unknown value ''; known are"),
        ({"operations": "some"}, "operations: unknown value 'some'; known are"),
        ({"block_bytes": 0}, "block_bytes: 0 is less than a byte"),
        ({"gap_bytes": -1}, "gap_bytes: -1 is not at least 0"),
        ({"transfer_bytes": float("nan")}, "transfer_bytes: nan"),
        ({"stream_ratio": 1.5}, "stream_ratio: 1.5 is not from 0 to 1"),
    ],
)
def test_wrong_parameters_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        AmmParameters(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"frequency": None}, "node.frequency is not given; add it to the machine"),
        ({"core": None}, "node.core is not given"),
        ({"main_memory": None}, "node.main_memory is not given"),
        ({"caches": {"L1D": {"size": "1 KiB"}, "L2": {"size": "1 MiB"}}}, r"node.caches.L1D.latency is not given"),
        ({"caches": {"L1D": {"size": "1 KiB"}}}, r"hit rates are of \('L1D', 'L2'\), the node's data caches are"),
    ],
)
def test_what_the_machine_lacks_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        estimated({"fp_add": 1}, 8, node(**changes))


def test_wrong_counts_and_page_rates_are_refused():
    with pytest.raises(ValueError, match="unknown class of instructions 'fadd'"):
        estimated({"fadd": 1})
    with pytest.raises(ValueError, match="a count of -1 is negative"):
        estimated({"fp_add": -1})
    with pytest.raises(ValueError, match="page hit rates are of"):
        estimate(8, 1, {}, RATES, node(), AmmParameters(), RATES)


@pytest.mark.golden
@pytest.mark.parametrize(
    ("name", "frequency", "sizes", "sharing"),
    [
        ("xeon-e5-2695", 2.10e9, (64 << 10, 256 << 10, 45 << 20), 18),
        ("core-i7-4770hq", 2.20e9, (256 << 10, 1 << 20, 6 << 20), 1),
    ],
)
def test_the_papers_processors_have_the_sizes_of_its_table(name, frequency, sizes, sharing):
    machine = build_machine(yaml.safe_load(shipped_targets()[name].read_text()), name)
    assert machine.node.frequency_hz == frequency
    assert tuple(cache.size_bytes for cache in machine.node.caches.values()) == sizes
    assert machine.node.caches["L3"].shared_by_cores == sharing
    made = predict(counts(), profile(), machine.node, AmmParameters(stream_ratio=0.5), profile(4096))
    assert made.total_ps > 0
    # 1024 lines in the Xeon's first cache, as the paper's example says
    assert (machine.node.caches["L1D"].num_lines == 1024) == (name == "xeon-e5-2695")
