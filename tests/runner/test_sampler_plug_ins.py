"""Samplers and blocks of options of somebody else's, found by entry points at every level."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from gpu_launches import Launch, gpu_workload

from manyscale.runner import registry
from manyscale.runner.study import parse_study
from manyscale.runner.study.samplers import rules_of, sampler_named

pytestmark = pytest.mark.contract

MODULE = '''
from typing import Annotated
import numpy as np
from dataclasses import replace
from pydantic import Field
from manyscale.models.workload.parameters import Strict
from manyscale.sampling.plan import Plan
from manyscale.sampling.population import Choice
from manyscale.sampling.sampler import Sampler

class Drawn(Strict):
    """``number`` of ranks."""
    number: Annotated[int, Field(ge=1)] = 2
    def check(self, study):
        if self.number > 5:
            raise ValueError("drawn.number: five are enough")

def ranks(population, rules, seed):
    count = population.workload.num_ranks
    chosen = np.sort(np.random.default_rng(seed).permutation(count)[: rules.number])
    return replace(Plan.of_strata("rank", chosen, np.zeros(count)), is_random=True)

def last_iteration(population, rules, seed):
    one = np.ones(1)
    return Plan("iteration", np.array([population.number - 1]), one.astype(np.int32), one, "", 1)

def largest(population, rules, seed):
    """The largest launch stands for all, the largest interval, too."""
    own = population.instructions
    return Choice(np.array([int(own.argmax())]), np.zeros(1, np.int32), np.ones(1))

RANKS = Sampler(ranks, Drawn, options="drawn")
'''
WHILE_IT_RUNS = """
from manyscale.runner.predict.gpu.block_sampling import BlockSampler
from manyscale.runner.predict.node.cells.task_sampling import EveryInstance

class Blocks(BlockSampler):
    @staticmethod
    def begin(trace, gpu, options):
        return None

class Tasks(EveryInstance):
    @staticmethod
    def options(study):
        return {"name": "every"}
"""
ENTRY_POINTS = """
[manyscale.options]
drawn = others:Drawn
[manyscale.rank-sampler]
drawn = others:RANKS
[manyscale.iteration-sampler]
last = others:last_iteration
[manyscale.launch-sampler]
largest = others:largest
[manyscale.interval-sampler]
largest = others:largest
[manyscale.block-sampler]
none-at-all = while_it_runs:Blocks
[manyscale.task-sampler]
every = while_it_runs:Tasks
"""


@pytest.fixture
def others(tmp_path) -> Path:
    folder = tmp_path / "site"
    metadata = folder / "others-1.0.dist-info"
    metadata.mkdir(parents=True)
    (folder / "others.py").write_text(MODULE)
    (folder / "while_it_runs.py").write_text(WHILE_IT_RUNS)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    return folder


@pytest.fixture
def plugged_in(others, monkeypatch):
    """In this process, where studies were built before: all but the block of options."""
    monkeypatch.syspath_prepend(str(others))
    importlib.invalidate_caches()
    registry._plug_ins.cache_clear()
    yield
    registry._plug_ins.cache_clear()
    registry.lookup.cache_clear()
    for name in ("others", "while_it_runs"):
        sys.modules.pop(name, None)


def run(others: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(others), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "manyscale", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, check=False)


def test_a_block_of_options_stands_in_the_study_and_reaches_its_sampler(others, write_trace, tmp_path):
    trace = write_trace({rank: ["init", f"compute {1000 * (rank + 1)}", "finalize"] for rank in range(8)})
    common = ("run", "--workload", trace, "--target", "crossbar256", "--sampling", "ranks=drawn", "--executor", "local",
              "--no-report")  # fmt: skip
    done = run(others, *common, "--set", "drawn.number=3", "--seed", "4", "-o", tmp_path / "out")
    assert (done.returncode, done.stderr) == (0, "")
    resolved = yaml.safe_load((tmp_path / "out" / "resolved.yaml").read_text())
    assert resolved["drawn"] == {"number": 3}
    assert list(resolved)[-4:] == ["timeline", "drawn", "seed", "sweep"]
    plan = pq.read_table(tmp_path / "out" / "plan.parquet")
    expected = np.sort(np.random.default_rng(4).permutation(8)[:3]).tolist()
    assert plan.column("element_id").to_pylist() == expected
    figures = json.loads((tmp_path / "out" / "stats.json").read_text())
    assert figures["sampling.ranks"]["value"] == 3
    assert figures["application.compute"]["ci_low"] < figures["application.compute"]["ci_high"]
    for assignment, words in (
        ("drawn.numbr=3", "drawn.numbr: unknown key; did you mean 'number'?"),
        ("drawn.number=0", "drawn.number: 0 is below 1"),
        ("drawn.number=6", "drawn.number: five are enough"),
        ("drwn.number=1", "drwn: unknown key; did you mean 'drawn'?"),
    ):
        done = run(others, *common, "--set", assignment, "-o", tmp_path / "refused")
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert words in done.stderr


def test_every_level_knows_them_by_name(plugged_in):
    base = {"workload": {"path": "t"}, "target": "rtx3070", "model": {"cpu": "detailed"}}
    sampling = {"iterations": "last", "tasks": "every", "launches": "largest", "blocks": "none-at-all"}
    assert parse_study({**base, "sampling": sampling}, "here").sampling.model_dump().items() >= sampling.items()
    assert registry.lookup("task-sampler", "every").options(None) == {"name": "every"}
    assert parse_study({**base, "sampling": {"intervals": "largest"}}, "here").sampling.intervals == "largest"
    for level in ("iteration", "launch", "interval"):
        name = "last" if level == "iteration" else "largest"
        sampler = sampler_named(level, name)
        assert sampler is not None
        assert rules_of(sampler).model_dump() == {}


def test_a_launch_stands_for_all_others(plugged_in, gpu_results):
    """Of kernel a's launches with 460, 920 and 460 warp instructions the second stands for all."""
    full, sampled = gpu_results(sampling={}), gpu_results(sampling={"launches": "largest"})
    assert sampled.statistics["gpu.simulated_launches"].value == 1
    assert sampled.plan.column("weight").to_pylist() == [3.0]
    assert sampled.plan.column("element_id").to_pylist() == [1]
    assert full.statistics["gpu.warp_instructions"] == sampled.statistics["gpu.warp_instructions"]


def test_blocks_are_asked_of_the_sampler_that_is_named(plugged_in, gpu_results):
    """One that simulates every block finds what no sampler does, in units of its own."""
    full, sampled = gpu_results(sampling={}), gpu_results(sampling={"blocks": "none-at-all"})
    assert full.statistics["gpu.cycles"] == sampled.statistics["gpu.cycles"]
    assert full.plan.column("unit_key") != sampled.plan.column("unit_key")


@pytest.fixture
def gpu_results(tmp_path, monkeypatch):
    from manyscale.runner.api import studies

    launches = gpu_workload(Launch("a", (115,) * 4), Launch("a", (230,) * 4), Launch("a", (115,) * 4))
    monkeypatch.setattr("manyscale.runner.run.study_runs.read_workload", lambda choice, cache=None: launches)

    def results(**keys):
        study = {"schema": 1, "workload": {"path": "launches"}, "target": "rtx3070", **keys}
        return studies.run(study, executor="local", cache=tmp_path / "cache", report=False,
                       output=tmp_path / f"out{len(list(tmp_path.iterdir()))}")  # fmt: skip

    return results


def test_reading_a_study_loads_nothing_heavy():
    """Blocks of options come without the models and methods that they are of."""
    code = (
        "import sys; from manyscale.runner.study import parse_study\n"
        "parse_study({'workload': {'path': 't'}, 'target': 'laptop'}, 'here')\n"
        "print([name for name in ('numba', 'sklearn', 'scipy', 'pandas', 'ray') if name in sys.modules])\n"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"
