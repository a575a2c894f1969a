"""Runs of tiny launches under a model that is easy to foresee."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpu_launches
import pytest
from gpu_launches import Launch, gpu_workload

from manyscale.models.workload import Workload
from manyscale.runner.api import studies
from manyscale.runner.predict.gpu import models
from manyscale.runner.run.results import Result


@pytest.fixture
def foreseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Model ``gpu: detailed`` is gpu_launches.foreseen."""
    monkeypatch.setattr(models.Detailed, "simulate", staticmethod(gpu_launches.foreseen))
    monkeypatch.setattr(models.Detailed, "version", staticmethod(lambda: -1))
    monkeypatch.delattr(models.Detailed, "runs_together")


@pytest.fixture
def run_launches(tmp_path, monkeypatch, foreseen) -> Callable[..., Result]:
    """``run_launches(workload, **keys of the study)``: the result on rtx3070, its files in the folder ``out``."""

    def run(launches: Workload, report: bool = False, **keys: Any) -> Result:
        monkeypatch.setattr("manyscale.runner.run.study_runs.read_workload", lambda choice, cache=None: launches)
        study = {"schema": 1, "workload": {"path": "launches"}, "target": "rtx3070", **keys}
        return studies.run(study, tmp_path / "out", executor="local", cache=tmp_path / "cache", report=report)

    return run


@pytest.fixture
def two_kernels() -> Workload:
    """Launches 1, 3, 4 of kernel a: 460, 920 and 460 warp instructions in 4 blocks; launch 2 of kernel b: 46 in one."""
    return gpu_workload(
        Launch("a", (115,) * 4), Launch("b", (46,)), Launch("a", (230,) * 4), Launch("a", (115,) * 4)
    )  # fmt: skip
