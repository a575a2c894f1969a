"""Launches whose SMs are simulated in groups side by side: the same tables, whoever simulates them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from manyscale.runner import shipped
from manyscale.runner.api import studies
from manyscale.runner.run.results import Result
from manyscale.runner.study import load_study_content

pytestmark = [pytest.mark.slow, pytest.mark.contract]


def run(folder: Path, executor: str, groups: int | str, cache: str = "") -> Result:
    """Of three launches of BFS."""
    study = load_study_content(shipped.studies()["bfs-16"])
    study["workload"]["launches"] = [1, 9, 16]
    study["gpu"] = {"order": "windows", "groups": groups}
    out = folder / f"{executor}-{groups}{cache}"
    return studies.run(study, out, executor=executor, cache=folder / (cache or out.name + "-cache"), report=False)


def test_any_executor_and_number_of_groups_give_the_same_tables(tmp_path: Path) -> None:
    alone = run(tmp_path, "local", 1)
    assert alone.launches.num_rows == 3
    for executor, groups in (("local", 2), ("local", "auto"), ("ray", 2), ("ray", "auto")):
        found = run(tmp_path, executor, groups)
        for name in ("launches", "blocks", "gpu_ipc", "gpu_cpi_stacks"):
            assert getattr(found, name).equals(getattr(alone, name)), (executor, groups, name)


def test_another_number_of_groups_simulates_nothing_again(tmp_path: Path) -> None:
    run(tmp_path, "local", 1, "shared")
    run(tmp_path, "local", 2, "shared")
    units = [json.loads(line) for line in (tmp_path / "local-2shared" / "units.jsonl").read_text().splitlines()]
    assert [each["status"] for each in units if each["kind"] == "gpu-launches"] == ["reused"]
