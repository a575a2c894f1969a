"""What a target's core leaves out is said."""

from __future__ import annotations

import pytest

from manyscale.models.cpu.core_domain import core_notes
from manyscale.models.machine.processor import Core
from manyscale.models.workload.detail_tables import InstructionClass
from manyscale.models.workload.notes import Severity
from manyscale.runner.study.targets import build_machine, load_yaml, shipped_targets


def core(cycles: dict[str, float], **more: object) -> Core:
    """A class costs 1 cycle unless ``cycles`` say otherwise."""
    costs = {each.name: f"{cycles.get(each.name, 1)} cycles" for each in InstructionClass}
    content = {"width": 4, "reorder_buffer": 64, "loads_per_cycle": 2, "stores_per_cycle": 1, "line_fill_buffers": 8}
    instructions = {name: {"latency": cost, "reciprocal_throughput": cost} for name, cost in costs.items()}
    given = {"store_to_load": "5 cycles", "misprediction": "15 cycles", "instructions": instructions}
    return Core.model_validate(content | given | more)


def codes(one: Core) -> dict[str, tuple[Severity, int]]:
    return {note.code: (note.severity, note.count) for note in core_notes(one, "mine")}


@pytest.mark.contract
def test_a_core_that_costs_nothing_says_so() -> None:
    everything = {each.name: 0.0 for each in InstructionClass}
    assert core(everything).costs_nothing
    assert codes(core(everything)) == {"free-instructions": (Severity.changes, len(everything))}
    (note,) = core_notes(core(everything), "mine")
    assert str(note).startswith("changes [free-instructions] mine: no instruction")
    assert str(note).endswith("(the time is too short)")


@pytest.mark.contract
def test_classes_that_cost_nothing_are_named() -> None:
    some = core({"fp_add": 0, "fp_mul": 0, "nop": 0})
    assert not some.costs_nothing
    assert codes(some) == {"free-instructions": (Severity.changes, 2)}
    assert "fp_add, fp_mul" in core_notes(some, "mine")[0].text


@pytest.mark.contract
def test_nothing_is_said_of_a_core_that_has_all() -> None:
    assert core_notes(core({"nop": 0}), "mine") == ()
    assert codes(core({}, misprediction="0 cycles")) == {"no-mispredictions": (Severity.changes, 1)}


@pytest.mark.contract
def test_of_the_shipped_targets_those_of_tasksim_alone_cost_nothing() -> None:
    machines = {name: build_machine(load_yaml(path), name) for name, path in shipped_targets().items()}
    free = {
        name for name, each in machines.items() if each.node.core is not None and each.node.core.free_classes - {"nop"}
    }
    assert free == {name for name in machines if name.endswith("-tasksim")}
    assert len(free) == 5
