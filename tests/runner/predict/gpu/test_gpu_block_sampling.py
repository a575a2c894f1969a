"""TBPoint inside launches, with the detailed model: what is left out, and how far off that is."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_launches import Launch, gpu_workload

from manyscale.runner.api import studies

TARGET = {"name": "rtx3070", "node": {"gpu": {"sms": 1, "blocks": 4}}}


@pytest.fixture
def run_sampled(tmp_path, monkeypatch):
    def run(launches, blocks, **keys):
        monkeypatch.setattr("manyscale.runner.run.study_runs.read_workload", lambda choice, cache=None: launches)
        study = {"schema": 1, "workload": {"path": "x"}, "target": TARGET, "sampling": {"blocks": blocks}, **keys}
        return studies.run(study, tmp_path / blocks, executor="local", cache=tmp_path / "cache", report=False)

    return run


def inside(result):
    return result.statistics["gpu.cycles"].value - result.statistics["gpu.launch_latency"].value


def test_blocks_that_are_all_alike_need_few_of_them(run_sampled):
    alike = gpu_workload(Launch("a", (200,) * 1000))
    full, sampled = (run_sampled(alike, blocks) for blocks in ("full", "tbpoint"))
    assert inside(sampled) == pytest.approx(inside(full), rel=0.02)  # the last blocks overlap less
    share = sampled.statistics["gpu.simulated_share"].value
    assert share < 0.15
    blocks = sampled.blocks.to_pylist()
    ran = [row for row in blocks if row["sm"] is not None]
    assert len(blocks) == 1000
    assert len(ran) == pytest.approx(1000 * share, abs=1)
    assert all(row["start_cycle"] is None for row in blocks if row["sm"] is None)
    assert sum(sampled.gpu_cpi_stacks.column("cycles").to_pylist()) == pytest.approx(inside(sampled))
    assert sampled.statistics["gpu.warp_instructions"].value == 200_000


def test_blocks_that_all_differ_are_all_simulated(run_sampled):
    """Sizes that triple and shrink: each epoch's blocks vary by more than the variation factor."""
    varied = gpu_workload(Launch("a", (50, 500) * 40))
    full, sampled = (run_sampled(varied, blocks) for blocks in ("full", "tbpoint"))
    assert inside(sampled) == inside(full)
    assert sampled.statistics["gpu.simulated_share"].value == 1
    assert sampled.statistics["gpu.cycles"].ci_low is None


def test_what_the_rules_say_counts(run_sampled):
    varied = gpu_workload(Launch("a", (100, 200) * 300))
    rules = {"tbpoint": {"regions": {"variation": 1.0}}}  # now they may differ
    sampled = run_sampled(varied, "tbpoint", **rules)
    assert sampled.statistics["gpu.simulated_share"].value < 1


def test_an_interval_is_given_for_what_was_left_out(run_sampled):
    alike = gpu_workload(Launch("a", tuple(200 + number % 3 for number in range(1000))))
    full, sampled = (run_sampled(alike, blocks, tbpoint={"warming": {"samples": 4}}) for blocks in ("full", "tbpoint"))
    cycles = sampled.statistics["gpu.cycles"]
    if cycles.ci_low is not None:
        assert cycles.ci_low <= cycles.value <= cycles.ci_high
        assert np.isfinite([cycles.ci_low, cycles.ci_high]).all()
    assert inside(sampled) == pytest.approx(inside(full), rel=0.03)
