"""Every timing model keeps its contract on a workload of its kind; those that do not are found out."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from manyscale.models.workload import PhaseKind
from manyscale.runner import registry
from manyscale.runner.errors import UserError
from manyscale.runner.predict.phase_source import PhaseSource, Stage
from manyscale.runner.predict.statistic import Statistic
from manyscale.runner.predict.units import WorkUnit, unit_key
from manyscale.runner.registry import names
from manyscale.sampling.ranks.rank_samplers import RankPopulation, every_rank
from manyscale.testing import ContractError, check_timing_model

pytestmark = pytest.mark.contract
KERNEL = Path(__file__).parents[1] / "data" / "node" / "vector_operation-coarse-detailed.tar.zst"
CORES = {"workload": {"path": str(KERNEL)}, "target": "marenostrum3"}
# Costs of lines are told from windows, each of which loses or gains up to a latency at its edges: 0.06 % of this
# program's time, of which the lines that wait hardly take any.
SAMPLED = {**CORES, "within": 1e-3}
STUDIES = {"burst": {}, "amm": CORES, "interval": SAMPLED, "detailed": CORES}


@pytest.mark.slow
@pytest.mark.parametrize("name", names("cpu"))
def test_built_in(name):
    check_timing_model(name, **STUDIES[name])


def test_the_simplest_of_them():
    check_timing_model("burst")


VERSION = 1  # of the models below


class Fixed(PhaseSource):
    """All phases take 2 us, without a unit."""

    def __init__(self, case):
        self.case = case

    def plans(self):
        return [every_rank(RankPopulation(self.case.workload, np.zeros(0, np.int64)), None, 0)]

    def phase_times(self, done):
        traced = self.case.workload.column("phases", "duration_ps")
        sleeps = self.case.workload.column("phases", "kind") == PhaseKind.sleep
        return np.where(sleeps, traced, self.length(done))

    def length(self, done):
        return 2_000_000


class WithUnit(Fixed):
    """The same, said by a unit."""

    parameters: ClassVar = {"value": 2_000_000}

    def stages(self, done):
        if done:
            return []
        key = unit_key("others", VERSION, {}, [], 0)
        return [Stage("all", [WorkUnit(key, f"{__name__}:unit", self.parameters)])]

    def length(self, done):
        return done["all"].results[0]["value"][0]


def unit(parameters, inputs):
    if parameters["value"] < 0:
        raise ValueError("less than no time")
    return {"value": np.array([parameters["value"]])}


class Random(Fixed):
    def length(self, done):
        return np.random.default_rng().integers(1, 10**12)


class NoTime(Fixed):
    def length(self, done):
        return 0


class Floats(Fixed):
    def phase_times(self, done):
        return super().phase_times(done).astype(float)


class Short(Fixed):
    def phase_times(self, done):
        return super().phase_times(done)[1:]


class Wakes(Fixed):
    def phase_times(self, done):
        return np.full_like(super().phase_times(done), 2_000_000)


class FasterWithLatency(Fixed):
    def length(self, done):
        return int(1_000_000 / self.case.machine.node.caches["L1D"].latency_cycles)


class NoPlan(Fixed):
    def plans(self):
        return []


class TwoPlans(Fixed):
    def plans(self):
        return super().plans() * 2


class StacksOpen(Fixed):
    def figures(self, of_run, done):
        parts = {"core.cpi": 3.0, "core.cpi.base": 1.0, "core.cpi.memory": 1.5}
        return of_run | {name: Statistic(value, "1", "ratio", name) for name, value in parts.items()}


class Unsendable(WithUnit):
    parameters: ClassVar = {"value": lambda: 0}


class Fails(WithUnit):
    parameters: ClassVar = {"value": -1}


class Refuses(Fixed):
    def __init__(self, case):
        raise UserError("nothing can be predicted")


class Stranger:
    plans, stages, phase_times = Fixed.plans, PhaseSource.stages, Fixed.phase_times

    def __init__(self, case):
        self.case = case


def check(monkeypatch, model, **study):
    monkeypatch.setitem(registry._BUILT_IN["cpu"], "other", __name__)
    monkeypatch.setitem(registry._BUILT_IN["phase-times"], "other", f"{__name__}:{model.__name__}")
    registry.lookup.cache_clear()
    try:
        check_timing_model("other", **study)
    finally:
        registry.lookup.cache_clear()


@pytest.mark.parametrize("model", [Fixed, WithUnit])
def test_a_model_of_somebody_else(monkeypatch, model):
    check(monkeypatch, model)


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (Random, "the same question has other times when it is asked again"),
        (NoTime, "computed in the trace, and takes no time"),
        (Floats, "times are float64, not int64"),
        (Short, "times for"),
        (Wakes, "changes the time of a sleep"),
        (NoPlan, "has no plan"),
        (TwoPlans, "two plans of one kind of elements"),
        (StacksOpen, "the parts of core.cpi come to 2.5, the whole is 3"),
        (Unsendable, "cannot be sent away"),
        (Fails, r"a unit of stage all fails \(less than no time\)"),
        (Refuses, r"the study is refused \(nothing can be predicted\)"),
        (Stranger, "is no PhaseSource"),
    ],
)
def test_broken(monkeypatch, broken, reason):
    with pytest.raises(ContractError, match=reason):
        check(monkeypatch, broken)


def test_faster_with_slower_caches(monkeypatch):
    with pytest.raises(ContractError, match="with twice the latencies phases take"):
        check(monkeypatch, FasterWithLatency, target="marenostrum3")


def test_without_a_version(monkeypatch):
    monkeypatch.setitem(registry._BUILT_IN["cpu"], "other", "manyscale.runner.errors")
    registry.lookup.cache_clear()
    with pytest.raises(ContractError, match="VERSION is None"):
        check_timing_model("other")
    registry.lookup.cache_clear()
