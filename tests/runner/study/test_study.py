"""Studies: dotted keys, points of a sweep, files."""

from __future__ import annotations

import pytest

from manyscale.runner.errors import UserError
from manyscale.runner.study import (
    assign,
    load_study_content,
    parse_assignment,
    parse_study,
    sweep_points,
)
from manyscale.runner.study.targets import shipped_targets

CONTENT = {"schema": 1, "workload": {"path": "t"}, "target": "laptop"}


def test_defaults():
    study = parse_study(CONTENT, "here")
    assert study.workload.model_dump() == {
        "path": "t",
        "format": "auto",
        "flop_rate": "1 Gflop/s",
        "time_unit": "1 ns",
        "application": 1,
        "launches": None,
        "threads": "",
        "idle": "",
        "polls": "drop",
        "time": "auto",
        "unequal_collectives": "infer",
        "missing_ranks": "drop",
        "ranks": None,
        "detail": None,
        "gpu_trace": None,
        "beside": [],
        "job": None,
        "repeat": None,
        "synthesise": None,
    }
    assert study.model.model_dump() == {"cpu": "burst", "gpu": None, "network": "latency-bandwidth"}
    assert study.sampling.model_dump() == {
        "ranks": "auto",
        "iterations": "auto",
        "tasks": "full",
        "intervals": None,
        "launches": "full",
        "blocks": "full",
    }
    assert study.mapping.model_dump() == {
        "placement": "block",
        "ranks_per_node": None,
        "cores_per_rank": 1,
        "oversubscribe": False,
        "launches": None,
    }
    assert (study.name, study.cpu_ratio, study.seed, study.sweep) == (None, 1.0, 0, {})
    assert (study.target_name, study.target_overrides) == ("laptop", {})


def test_a_resolved_study_is_a_study():
    more = {"runtime": {"create": "0.3 us"}, "taskpoint": {"period": 100}, "timeline": {"ranks": [0]}}
    study = parse_study({**CONTENT, "sweep": {"seed": [1, 2]}, "ipc_correction": {"ranks": {0: 2.0}}, **more}, "here")
    assert parse_study(study.model_dump(mode="json", by_alias=True), "again") == study


@pytest.mark.parametrize(
    ("dotted", "value", "expected"),
    [
        ("seed", 5, {"seed": 5}),
        ("model.cpu", "burst", {"model": {"cpu": "burst"}}),
        ("workload.format", "x", {"workload": {"path": "t", "format": "x"}}),
        ("target.nodes", 2, {"target": {"name": "laptop", "nodes": 2}}),  # a name becomes a mapping
        (
            "target.network.self.latency",
            "1 us",
            {"target": {"name": "laptop", "network": {"self": {"latency": "1 us"}}}},
        ),
        ("target", "crossbar256", {"target": "crossbar256"}),
    ],
)
def test_assign(dotted, value, expected):
    before = {**CONTENT, "workload": dict(CONTENT["workload"])}
    assert assign(before, dotted, value) == {**CONTENT, **expected}
    assert before == CONTENT, "the content itself was changed"


@pytest.mark.parametrize("dotted", ["", ".", ".a", "a.", "workload..path", "schema.x", "workload.path.x"])
def test_assign_refuses_what_is_no_key(dotted):
    with pytest.raises(UserError, match=r"dotted key|holds no keys"):
        assign(CONTENT, dotted, 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("seed=5", ("seed", 5)), ("a.b=1 us", ("a.b", "1 us")), ("x=[1, 2]", ("x", [1, 2])), ("x=", ("x", None)),
        ("x=a=b", ("x", "a=b")), (" x =true", ("x", True)), ("x='5'", ("x", "5")),
    ],
)  # fmt: skip
def test_parse_assignment(text, expected):
    assert parse_assignment(text) == expected


def test_sweep_points_have_the_last_axis_fastest():
    content = {**CONTENT, "sweep": {"cpu_ratio": [1, 2], "target.network.latency": ["1 us", "2 us"]}}
    points = list(sweep_points(content, "here"))
    assert [tuple(axes.values()) for axes, _ in points] == [(1, "1 us"), (1, "2 us"), (2, "1 us"), (2, "2 us")]
    assert [study.cpu_ratio for _, study in points] == [1.0, 1.0, 2.0, 2.0]
    assert points[1][1].target_overrides == {"network": {"latency": "2 us"}}
    assert all(study.sweep == {} for _, study in points)


def test_axes_may_replace_keys_of_one_another():
    content = {**CONTENT, "sweep": {"target": ["laptop", "crossbar256"], "target.nodes": [1, 2]}}
    found = [(study.target_name, study.target_overrides["nodes"]) for _, study in sweep_points(content, "here")]
    assert found == [("laptop", 1), ("laptop", 2), ("crossbar256", 1), ("crossbar256", 2)]


def test_without_a_sweep_there_is_one_point():
    [(axes, study)] = sweep_points(CONTENT, "here")
    assert axes == {}
    assert study == parse_study(CONTENT, "here")


@pytest.mark.parametrize(
    ("axis", "value", "words"),
    [
        ("cpu_ratio", -1, "here: sweep cpu_ratio=-1: cpu_ratio: "),
        ("seed.x", 1, "here: sweep: 'seed.x': 'seed' holds no keys"),
        ("workload.path", "b", "here: sweep: 'workload.path' is the same for all points of a sweep"),
    ],
)
def test_a_bad_point_is_named(axis, value, words):
    with pytest.raises(UserError, match=f"^{words}"):
        list(sweep_points({**CONTENT, "seed": 1, "sweep": {axis: [value]}}, "here"))


def test_a_relative_trace_stands_beside_its_study(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "t").touch()
    study = tmp_path / "there" / "s.yaml"
    study.write_text("workload: {path: t}\ntarget: laptop\n")
    assert load_study_content(study)["workload"]["path"] == str(tmp_path / "there" / "t")
    study.write_text("workload: {path: u}\ntarget: laptop\n")
    assert load_study_content(study)["workload"]["path"] == "u"  # as seen from the working directory


def test_relative_targets_stand_beside_their_study(tmp_path):
    (tmp_path / "m.yaml").touch()
    (tmp_path / "laptop").touch()  # shipped names come first
    study = tmp_path / "s.yaml"
    here = str(tmp_path / "m.yaml")
    for text, expected in (
        ("target: m.yaml", {"target": here}),
        ("target: {name: m.yaml, nodes: 2}", {"target": {"name": here, "nodes": 2}}),
        ("target: laptop", {"target": "laptop"}),
        ("target: n.yaml", {"target": "n.yaml"}),
        ("sweep: {target: [m.yaml, laptop]}", {"sweep": {"target": [here, "laptop"]}}),
    ):
        study.write_text(text + "\n")
        assert load_study_content(study) == expected


def test_a_sweep_on_a_target_file_can_be_resumed(cli, write_trace, tmp_path):
    (tmp_path / "there").mkdir()
    write_trace({0: ["init", "compute 5", "finalize"]}, "there/trace")
    (tmp_path / "there" / "m.yaml").write_bytes(shipped_targets()["laptop"].read_bytes())
    study = tmp_path / "there" / "s.yaml"
    study.write_text("workload: {path: trace}\ntarget: m.yaml\nsweep: {cpu_ratio: [1, 2]}\n")
    assert cli("run", study, "-o", "out", "--no-report").status == 0
    before = (tmp_path / "out" / "sweep.parquet").read_bytes()
    for command in (("run", study, "-o", "out"), ("run", "-o", "out")):
        outcome = cli(*command, "--resume", "--no-report")
        assert (outcome.status, outcome.err) == (0, "")
    assert (tmp_path / "out" / "sweep.parquet").read_bytes() == before
