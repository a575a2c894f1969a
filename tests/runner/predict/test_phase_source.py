"""What predicts the times of phases: somebody else's source in the pipe, and what points of a sweep share."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from manyscale.runner import registry
from manyscale.runner.predict.phase_source import Case, SweepShared
from manyscale.runner.predict.sources import TracedTimes, phase_source
from manyscale.runner.shipped import folder
from manyscale.runner.study import parse_study
from manyscale.runner.study.targets import resolve_target
from manyscale.runner.study.traces import read_workload

pytestmark = pytest.mark.contract

OTHERS = '''
import numpy as np
from manyscale.runner.predict.phase_source import PhaseSource, Stage
from manyscale.runner.predict.statistic import Statistic
from manyscale.runner.predict.units import WorkUnit, unit_key
from manyscale.sampling.ranks import full

VERSION = 1

class Fixed(PhaseSource):
    """All phases take 2 us, without a unit."""
    def __init__(self, case):
        self.case = case
    def plans(self):
        return [full.plan(self.case.workload, "fixed")]
    def content(self):
        return ["2 us"]
    def phase_times(self, done):
        return np.full_like(self.case.workload.column("phases", "duration_ps"), 2_000_000)

class Twice(Fixed):
    """A unit says how long phases take, a second one, from it, how often."""
    def stages(self, done):
        if "length" not in done:
            return [self.stage("length", {"value": 3_000_000}, {})]
        if "times" not in done:
            (found,) = done["length"].results
            return [self.stage("times", {"value": 2}, {"length": found["value"]})]
        return []
    def stage(self, name, parameters, inputs):
        key = unit_key(name, VERSION, parameters, [], 0)
        unit = WorkUnit(key, "others:unit", parameters, {each: each for each in inputs})
        return Stage(name, [unit], inputs)
    def phase_times(self, done):
        return np.full(self.case.workload.tables["phases"].num_rows, done["times"].results[0]["value"][0])
    def figures(self, of_run, done):
        return of_run | {"others.length": Statistic(int(done["length"].results[0]["value"][0]), "1", "count", "ps")}

def unit(parameters, inputs):
    return {"value": np.array([parameters["value"]]) * inputs.get("length", 1)}
'''


@pytest.fixture
def plugged_in(tmp_path, monkeypatch):
    (tmp_path / "others.py").write_text(OTHERS)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("fixed", "twice"):
        monkeypatch.setitem(registry._BUILT_IN["cpu"], name, "others")
        monkeypatch.setitem(registry._BUILT_IN["phase-times"], name, f"others:{name.capitalize()}")
    yield
    registry.lookup.cache_clear()
    sys.modules.pop("others", None)


def figures(directory: Path) -> dict[str, float]:
    return {name: each["value"] for name, each in json.loads((directory / "stats.json").read_text()).items()}


def test_a_source_of_somebody_else_predicts_phases(cli, plugged_in, write_trace, tmp_path):
    trace = write_trace({0: ["init", "compute 8000", "compute 1000", "finalize"]})
    arguments = ("--workload", trace, "--target", "crossbar256", "--executor", "local", "--no-report")
    for name in ("fixed", "twice", "burst"):
        outcome = cli("run", *arguments, "--model", f"cpu={name}", "-o", name)
        assert outcome.status == 0, outcome.err
    found = {name: figures(tmp_path / name) for name in ("fixed", "twice", "burst")}
    assert {name: each["application.makespan"] for name, each in found.items()} == {
        "fixed": 4e-6, "twice": 12e-6, "burst": 9e-6,
    }  # fmt: skip
    assert found["twice"]["others.length"] == 3_000_000
    units = pq.read_table(tmp_path / "twice" / "units.parquet").column("kind").to_pylist()
    assert sorted(units) == ["burst", "others:unit", "others:unit", "replay"]


def test_its_times_go_through_the_corrections_of_a_study(cli, plugged_in, write_trace, tmp_path):
    trace = write_trace({0: ["init", "compute 8000", "finalize"]})
    arguments = ("--workload", trace, "--target", "crossbar256", "--executor", "local", "--no-report")
    assert cli("run", *arguments, "--model", "cpu=fixed", "--set", "ipc_correction.default=2", "-o", "a").status == 0
    assert figures(tmp_path / "a")["application.makespan"] == 1e-6
    refused = cli("run", *arguments, "--model", "cpu=fixed", "--set", "cpu_ratio=2", "-o", "b")
    assert refused.status == 2
    assert "model cpu: fixed computes it" in refused.err


def test_a_value_of_a_sweep_is_made_once():
    shared, made = SweepShared(), []
    for key in ("a", ("a", 1), "a"):
        assert shared.once(key, lambda key=key: made.append(key) or key) == key
    assert made == ["a", ("a", 1)]


def case(shared: SweepShared, **keys: object) -> Case:
    study = parse_study({"workload": {"path": str(folder() / "bfs-16")}, "target": "rtx3070", **keys}, "study")
    return Case(read_workload(study.workload), study, *resolve_target(study), shared)


def test_points_that_sample_launches_differently_have_plans_of_their_own():
    shared = SweepShared()
    sampled = {"sampling": {"launches": "tbpoint"}}
    counts = [
        len(phase_source(case(shared, **sampled, tbpoint={"launches": {"threshold": each}})).plans()[0].element_id)
        for each in (0.001, 10.0, 0.001)
    ]
    assert counts[0] == counts[2] > counts[1]


def test_traced_times_have_no_stage_and_take_the_study_s_ratio():
    given = case(SweepShared(), cpu_ratio=0.5)
    source = TracedTimes(given)
    assert (source.stages({}), source.content(), source.cpu_ratio) == ([], [], 0.5)
    assert np.array_equal(source.phase_times({}), given.workload.column("phases", "duration_ps"))
