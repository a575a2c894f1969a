"""Small runs, for what is made of their results."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from manyscale.models.workload import Workload
from manyscale.runner.readers import workload_folder
from manyscale.runner.run import api
from manyscale.runner.run.results import Result
from manyscale.testing.workloads import known


@cache
def ping_pong_result() -> Result:
    """Messages between two ranks, on the target crossbar256."""
    return result_of(known()[0].workload)


def result_of(workload: Workload, **study: Any) -> Result:
    """What a run of a workload predicts. ``study``: keys of the study, target crossbar256 if nothing else is said.
    Raises UserError, RunError."""
    with tempfile.TemporaryDirectory(prefix="manyscale-check-") as name:
        folder = Path(name)
        workload_folder.write(workload, folder / "trace")
        content = {"workload": {"path": str(folder / "trace")}, "target": "crossbar256", **study}
        return api.run(content, folder / "run", executor="local", cache=folder / "cache", report=False)
