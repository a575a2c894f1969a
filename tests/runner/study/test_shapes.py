"""Sweeps over the shape of a step: which combinations are points, what follows, and what is told of others."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from manyscale.models.transformer.memory import fullest
from manyscale.runner.errors import UserError
from manyscale.runner.study import Sweep, num_points, parse_study
from manyscale.runner.study.shapes import COPIES, PREFIX
from manyscale.runner.study.workload import Synthesis

STEP = {"layers": 6, "hidden": 96, "heads": 12, "sequence": 64, "global_batch": 24, "gpus": 12, "target": "a100"}


def content(sweep: dict[str, list[Any]], **keys: Any) -> dict[str, Any]:
    axes = {name if "." in name else PREFIX + name: values for name, values in sweep.items()}
    return {"workload": {"synthesise": {**STEP, **keys}}, "target": "dgx-a100", "sweep": axes}


def told(sweep: dict[str, list[Any]], **keys: Any) -> str:
    with pytest.raises(UserError) as refused:
        Sweep(content(sweep, **keys), "here")
    return str(refused.value)


def test_points_are_the_shapes_that_divide_everything():
    """12 GPUs, 12 heads, 6 layers, 24 sequences."""
    sweep = Sweep(content({"tp": [1, 2, 4, 5, 12], "micro_batch": [1, 2, 4], "pp": [1, 2, 3, 4]}), "here")
    expected = [
        (tp, micro, pp, 12 // (tp * pp))
        for tp, micro, pp in product([1, 2, 4, 5, 12], [1, 2, 4], [1, 2, 3, 4])
        if 12 % (tp * pp) == 0 and 6 % pp == 0 and 12 % tp == 0 and 24 % (micro * (12 // (tp * pp))) == 0
    ]
    assert [tuple(sweep.values(index).values()) for index in range(len(sweep))] == expected
    assert sweep.columns == [f"{PREFIX}tp", f"{PREFIX}micro_batch", f"{PREFIX}pp", COPIES]
    made = [sweep.study(index).workload.synthesise for index in range(len(sweep))]
    assert [(each.tp, each.micro_batch, each.pp, each.dp) for each in made if each is not None] == expected
    (note,) = sweep.notes
    assert (note.code, note.count) == ("shapes-left-out", 60 - len(expected))
    assert num_points(parse_study(content(sweep={"tp": [1, 5], "pp": [1, 4]}), "here"), "here") == 1


def test_other_keys_are_swept_between_those_of_shapes():
    latencies = ["1 us", "2 us", "3 us"]
    sweep = Sweep(content({"tp": [8, 2], "target.network.latency": latencies, "pp": [5, 3, 1]}), "here")
    assert [list(sweep.values(index).values()) for index in range(len(sweep))] == [
        [2, latency, pp, 6 // pp] for latency, pp in product(latencies, [3, 1])
    ]
    assert sweep.study(2).target == {"name": "dgx-a100", "network": {"latency": "2 us"}}
    assert sweep.first_with_each_value() == [0, 2, 4]
    assert [sweep.shape(index) for index in range(4)] == [("2", "3", "2"), ("2", "1", "6")] * 2


def test_data_parallelism_may_be_an_axis():
    sweep = Sweep(content({"tp": [1, 2, 3], "dp": [12, 6, 4]}), "here")
    assert [tuple(sweep.values(index).values()) for index in range(len(sweep))] == [(1, 12), (2, 6), (3, 4)]
    some = Sweep(content({"gpus": [12, None], "tp": [1, 2]}), "here")
    assert [some.values(index)[COPIES] for index in range(len(some))] == [12, 6, 1, 1]
    free = Sweep(content({"tp": [1, 2], "dp": [1, 3]}, gpus=None), "here")
    assert [sweep.study(0).workload.synthesise.ranks, len(free)] == [12, 4]


def test_what_needs_more_memory_than_there_is_is_left_out():
    needs = [fullest(Synthesis(**{**STEP, "tp": tp}))[0].total for tp in (1, 2)]
    middle = f"{round(sum(needs) / 2)} B"
    sweep = Sweep(content({"tp": [1, 2]}, gpu_memory=middle), "here")
    assert [sweep.values(index)[f"{PREFIX}tp"] for index in range(len(sweep))] == [2]
    assert "1 for gpu_memory (such as: a GPU of stage 0 needs" in sweep.notes[0].text


def test_what_is_written_is_read_as_the_same():
    study = parse_study(content({"tp": [8, 4, 2], "pp": [1, 3]}), "here")
    again = parse_study(study.model_dump(mode="json", by_alias=True), "here")
    assert again == study
    assert study.workload.synthesise is not None
    assert "dp" not in study.workload.synthesise.model_dump()
    assert (study.workload.synthesise.tp, study.workload.synthesise.dp) == (4, 3), "the first that can be"


@pytest.mark.parametrize(
    ("sweep", "keys", "needle"),
    [
        ({"tp": [5, 7]}, {}, "none of the 2 shapes can be: 2 for gpus (such as: 12 is no multiple of tp x pp, 5)"),
        ({"tp": [1, "x"]}, {}, "sweep workload.synthesise.tp=x: workload.synthesise.tp: 'x' is not a whole number"),
        ({"tp": [0]}, {}, "workload.synthesise.tp: 0 is below 1"),
        ({"tq": [1]}, {}, "workload.synthesise.tq: unknown key"),
        ({"tp": []}, {}, "sweep.workload.synthesise.tp: [] is too short"),
        ({"workload.path": ["a"]}, {}, "'workload.path' is the same for all points"),
        ({name: list(range(1, 102)) for name in ("tp", "pp", "dp")}, {}, "1,030,301 shapes are more than 1,000,000"),
        ({name: [5] * 101 for name in ("tp", "pp", "micro_batch")}, {}, "1,030,301 shapes are more than 1,000,000"),
        ({"tp": [1]}, {"layers": 0}, "workload.synthesise.layers: 0 is below 1"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line(sweep, keys, needle):
    assert needle in told(sweep, **keys)


@pytest.mark.parametrize("keys", [{"sweep": {5: [1], f"{PREFIX}tp": [1, 2]}}, {"workload": {"synthesise": "x"}}])
def test_what_is_no_study_is_one_line(keys):
    with pytest.raises(UserError, match=r"here: .*(sweep|workload\.synthesise)"):
        Sweep({**content({"tp": [1, 2]}), **keys}, "here")


def test_only_what_is_made_has_a_shape():
    traced = {"workload": {"path": "lulesh-8"}, "target": "laptop", "sweep": {f"{PREFIX}tp": [1]}}
    with pytest.raises(UserError, match=r"is a key of a step that is made, and workload\.synthesise makes none"):
        Sweep(traced, "here")
    beside = content({"tp": [1, 2]})
    beside["workload"]["beside"] = [{"path": "dlrm-8"}]
    with pytest.raises(UserError, match="jobs that share a machine have a shape each"):
        Sweep(beside, "here")
