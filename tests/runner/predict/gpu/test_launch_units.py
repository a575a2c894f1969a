"""How launches are put into work units, and what the keys of these depend on."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from gpu_launches import Launch, gpu_workload

from manyscale.models.workload.columns import to_arrow
from manyscale.runner.predict.gpu import launch_units
from manyscale.runner.predict.gpu.plan import LaunchPlan
from manyscale.runner.problems import load_yaml
from manyscale.runner.study import parse_study
from manyscale.runner.study.targets import build_machine, shipped_targets


def study(**keys):
    return parse_study({"schema": 1, "workload": {"path": "x"}, "target": "rtx3070", **keys}, "here")


@pytest.fixture
def machine():
    return build_machine(load_yaml(shipped_targets()["rtx3070"]), "rtx3070")


def plan_of(chosen, count=6):
    rows = np.array(chosen)
    return LaunchPlan(np.arange(count), np.zeros(count, np.int32), np.full(count, rows[0]), rows)


def with_requests(workload, requests):
    table = workload.tables["launches"]
    place = table.schema.get_field_index("memory_requests")
    column = to_arrow(np.array(requests, np.int64))
    changed = table.set_column(place, table.schema.field(place), pa.chunked_array([column]))
    return type(workload)(
        workload.name, 1, {**workload.tables, "launches": changed}, workload.notes, "", None, workload.gpu
    )  # fmt: skip


def parts(workload, chosen, machine, **keys):
    found = launch_units.parts_of(workload, plan_of(chosen), machine.node.gpu, study(**keys))
    return [(each.simulated, each.before) for each in found]


SIX = tuple(Launch("a", (100,)) for _ in range(6))


def test_all_launches_in_a_row_are_one_unit(machine):
    assert parts(gpu_workload(*SIX), range(6), machine) == [((0, 1, 2, 3, 4, 5), ())]


def test_a_gap_ends_a_unit(machine):
    assert parts(gpu_workload(*SIX), [0, 1, 4, 5], machine) == [((0, 1), ()), ((4, 5), (0, 1, 2, 3))]


def test_long_traces_are_several_units(machine, monkeypatch):
    monkeypatch.setattr(launch_units, "MOST_IN_UNIT", 250)
    assert parts(gpu_workload(*SIX), range(6), machine) == [((0, 1), ()), ((2, 3), (0, 1)), ((4, 5), (0, 1, 2, 3))]


def test_what_lies_far_back_is_left_out(machine):
    """Eight times the sectors of L2 (4 MiB) and of the L1s (46 x 128 KiB) are 2,555,904 requests."""
    enough = 8 * (4 * 2**20 + 46 * 128 * 2**10) // 32
    launches = with_requests(gpu_workload(*SIX), [9, 9, enough - 1, 1, 0, 0])
    assert parts(launches, [5], machine) == [((5,), (2, 3, 4))]
    launches = with_requests(gpu_workload(*SIX), [9, 9, enough - 2, 1, 0, 0])
    assert parts(launches, [5], machine) == [((5,), (1, 2, 3, 4))]


def test_sampled_and_cold_launches_are_units_of_their_own(machine):
    workload = gpu_workload(*SIX)
    assert parts(workload, [1, 2], machine, sampling={"launches": [2, 3]}) == [((1,), (0,)), ((2,), (0, 1))]
    assert parts(workload, [1, 2], machine, gpu={"caches": "cold"}) == [((1,), ()), ((2,), ())]


def test_keys_follow_what_a_unit_reads(machine, monkeypatch, foreseen):
    workload = gpu_workload(Launch("a", (100,)), Launch("b", (10,)), Launch("a", (50,)))

    def key(chosen=(1,), launches=workload, gpu=machine.node.gpu, **keys):
        found = launch_units.parts_of(launches, plan_of(chosen, 3), gpu, study(**keys))
        (unit,) = launch_units.first_stage(launches, found, gpu, {}, study(**keys)).units
        return unit.key

    same = key()
    gpu = machine.node.gpu
    assert key(gpu=gpu.model_copy(update={"launch_latency_cycles": 1.0})) == same
    other_last = gpu_workload(Launch("a", (100,)), Launch("b", (10,)), Launch("a", (51,)))
    assert key(launches=other_last) == same  # what comes later is not read
    other_first = gpu_workload(Launch("a", (101,)), Launch("b", (10,)), Launch("a", (50,)))
    different = [
        key(launches=other_first),
        key(gpu=gpu.model_copy(update={"sms": 45})),
        key(chosen=(2,)),
        key(tbpoint={"regions": {"threshold": 0.3}}),
    ]
    assert len({same, *different}) == 5


def test_plans_tell_what_their_launches_do_not() -> None:
    """Several launches of each cluster have an interval, without what L2 is off that others leave."""
    plan = plan_of([0, 3])
    drawn = replace(plan, sample=SimpleNamespace(is_drawn=True))
    (note,) = drawn.notes("kept")
    assert (note.code, note.count) == ("left-out-in-caches", 6)
    assert "of 4 launches" in note.text
    assert drawn.notes("cold") == plan.notes("kept") == []
    assert replace(plan_of(range(6)), sample=SimpleNamespace(is_drawn=True)).notes("kept") == []
