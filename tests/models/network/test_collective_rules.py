"""Rules that choose an algorithm or a formula by collective, size and number of ranks."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from test_replay import cost, ends, network, trace

from manyscale.models.network.collectives.algorithms import PRESETS, Choice, choose
from manyscale.models.network.collectives.call import CollectiveCall
from manyscale.models.network.collectives.formulas import Formula
from manyscale.models.network.collectives.rules import (
    CollectiveRules,
    rule_bytes,
)
from manyscale.models.network.program import build_program


def rules(*entries: dict[str, object], preset: str = "mpich") -> CollectiveRules:
    return CollectiveRules.model_validate({"preset": preset, "rules": list(entries)})


def call(kind: str, n: int, size: int) -> CollectiveCall:
    return CollectiveCall(kind, n, send_bytes=size)


RING = {"collectives": ["allreduce"], "min_bytes": "1 KiB", "max_bytes": "2 KiB", "min_ranks": 4, "max_ranks": 9}


@pytest.mark.contract
@pytest.mark.parametrize(
    ("n", "size", "covered"),
    [(4, 1024, True), (8, 2047, True), (3, 1024, False), (9, 1024, False), (4, 1023, False), (4, 2048, False)],
)
def test_ranges_are_half_open(n: int, size: int, covered: bool) -> None:
    chosen = rules(RING | {"algorithm": "ring"}).choice(call("allreduce", n, size))
    assert chosen == (Choice("ring") if covered else choose(call("allreduce", n, size), "mpich"))


@pytest.mark.contract
def test_the_first_rule_that_fits_decides() -> None:
    both = rules(
        {"collectives": ["bcast"], "max_bytes": "100 B", "algorithm": "linear"},
        {"collectives": ["bcast", "reduce"], "algorithm": "chain", "segment": "8 KiB"},
    )
    assert both.choice(call("bcast", 4, 99)) == Choice("linear")
    assert both.choice(call("bcast", 4, 100)) == Choice("chain", 8192)
    assert both.choice(call("reduce", 4, 5)) == Choice("chain", 8192)
    assert both.choice(call("barrier", 4, 0)) == Choice("dissemination")


@pytest.mark.contract
def test_a_non_blocking_kind_follows_the_blocking_one_unless_named() -> None:
    ring = {"collectives": ["allreduce"], "algorithm": "ring"}
    own = {"collectives": ["iallreduce"], "max_bytes": "10 B", "algorithm": "linear"}
    assert rules(ring).choice(call("iallreduce", 4, 5)) == Choice("ring")
    assert rules(ring, own).choice(call("iallreduce", 4, 5)) == Choice("linear")
    assert rules(ring, own).choice(call("iallreduce", 4, 50)) == choose(call("iallreduce", 4, 50), "mpich")
    assert rules(ring, own).choice(call("allreduce", 4, 5)) == Choice("ring")


@pytest.mark.contract
def test_formulas_and_other_presets() -> None:
    mixed = rules(
        {"collectives": ["bcast"], "formula": {"fan_in": "none", "fan_out": "linear", "fan_out_size": "max"}},
        {"collectives": ["alltoall"], "preset": "openmpi"},
    )
    assert mixed.choice(call("bcast", 4, 9)) == Formula(fan_in="none", fan_out="linear", fan_out_size="max")
    assert mixed.choice(call("alltoall", 2, 9)) == choose(call("alltoall", 2, 9), "openmpi")
    assert CollectiveRules(preset="dimemas").choice(call("reduce", 4, 9)) == Formula(
        fan_in="constant", fan_out="constant"
    )


@pytest.mark.theory
def test_the_size_that_rules_compare() -> None:
    counts = np.array([1, 2, 9])
    assert rule_bytes(call("barrier", 3, 0)) == 0
    assert (
        rule_bytes(call("allreduce", 3, 12))
        == rule_bytes(call("alltoall", 3, 12))
        == rule_bytes(call("gather", 3, 12))
        == 12
    )
    assert rule_bytes(CollectiveCall("allgatherv", 3, receive_counts=counts)) == 4
    assert rule_bytes(CollectiveCall("reduce_scatter", 3, receive_counts=counts)) == 4
    assert rule_bytes(CollectiveCall("alltoallv", 3, send_counts=np.full((3, 3), 7))) == 7


@pytest.mark.contract
@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (
            {"collectives": ["allreduce"], "algorithm": "gossip"},
            "algorithm of allreduce 'gossip'; known are .*ring",
        ),
        ({"collectives": ["ibcast"], "algorithm": "ring"}, "unknown algorithm of ibcast 'ring'; .*binomial"),
        ({"collectives": ["allreduc"], "algorithm": "ring"}, "unknown collective 'allreduc'; did you mean 'allreduce'"),
        ({"collectives": [], "algorithm": "ring"}, "at least 1 item"),
        ({"collectives": ["allreduce"]}, "either algorithm, formula or preset"),
        ({"collectives": ["allreduce"], "algorithm": "ring", "preset": "mpich"}, "either algorithm"),
        ({"collectives": ["allreduce"], "preset": "lam"}, "unknown preset 'lam'; known are simgrid-3.32, mpich"),
        ({"collectives": ["allreduce"], "algorithm": "ring", "min_bytes": 5}, "no unit"),
        ({"collectives": ["allreduce"], "algorithm": "ring", "min_bytes": "5 B", "max_bytes": "5 B"}, "leaves nothing"),
        ({"collectives": ["allreduce"], "algorithm": "ring", "min_ranks": 8, "max_ranks": 4}, "leaves nothing"),
        ({"collectives": ["bcast"], "algorithm": "linear", "segment": "1 KiB"}, "segments: binary, .*knomial"),
        ({"collectives": ["barrier"], "preset": "mpich", "segment": "1 KiB"}, "segments: none"),
        ({"collectives": ["bcast"], "formula": {"fan_in": "cubic", "fan_out": "none"}}, "'none', 'constant'"),
        ({"collectives": ["bcast"], "formula": {"fan_in": "none"}}, "fan_out"),
        ({"collectives": ["bcast"], "algorithm": "linear", "colour": 1}, "colour"),
    ],
)
def test_refusals(rule: dict[str, object], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        rules(rule)


@pytest.mark.contract
def test_a_name_stands_for_its_preset() -> None:
    adapter = TypeAdapter(CollectiveRules)
    assert adapter.validate_python("openmpi") == CollectiveRules(preset="openmpi")
    with pytest.raises(ValidationError, match=r"unknown preset 'lam'; known are .*openmpi, dimemas"):
        adapter.validate_python("lam")
    assert [str(adapter.validate_python(name)) for name in PRESETS] == list(PRESETS)


@pytest.mark.contract
def test_what_the_report_says_of_them() -> None:
    linear = {"collectives": ["bcast"], "algorithm": "linear"}
    by_formula = {"collectives": ["bcast"], "formula": {"fan_in": "none", "fan_out": "linear"}}
    assert str(rules(linear, by_formula)) == "mpich, with 2 rules before it"
    for content, formulas, messages in (
        (rules(linear), False, True),
        (rules(by_formula), True, True),
        (rules(preset="dimemas"), True, False),
        (rules(linear, preset="dimemas"), True, True),
        (rules({"collectives": ["bcast"], "preset": "dimemas"}), True, True),
    ):
        assert (content.has_formulas, content.sends_messages) == (formulas, messages)


@pytest.mark.theory
def test_rules_reach_the_replay(tmp_path) -> None:
    workload = trace(tmp_path, *["bcast 1500"] * 4)
    pipeline = {"collectives": ["bcast"], "algorithm": "chain", "segment": "500 B"}
    law = network(preset={"preset": "mpich", "rules": [pipeline]})
    assert build_program(workload, law.collectives).bytes.tolist() == [500] * 9
    # two receives are open at a time: a rank gets its third segment one transfer after the first two
    assert ends(workload, law) == [0, 2 * cost(500), 3 * cost(500), 4 * cost(500)]
    assert ends(workload, network(preset="openmpi")) == [0, cost(1500), cost(1500), 2 * cost(1500)]
