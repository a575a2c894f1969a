"""GPUMech behind a study: against the detailed model on a real trace, and what a sweep computes again."""

from __future__ import annotations

from itertools import pairwise

import pytest

from manyscale.models.gpu.gpumech import model as gpumech
from manyscale.models.gpu.gpumech import outline as gpumech_outline
from manyscale.runner.api import studies
from manyscale.runner.shipped import folder

BFS = folder() / "bfs-16"
STUDY = {"schema": 1, "workload": {"path": str(BFS), "format": "accelsim"}}


def target(**gpu):
    return {"name": "rtx3070", "node": {"gpu": gpu}}


@pytest.fixture
def run_of(tmp_path):
    def run(name, changes=None, cache="cache", **keys):
        study = {**STUDY, "target": target(**(changes or {})), **keys}
        return studies.run(study, tmp_path / name, executor="local", cache=tmp_path / cache, report=False)

    return run


def inside(result):
    return result.statistics["gpu.cycles"].value - result.statistics["gpu.launch_latency"].value


@pytest.fixture(scope="module")
def detailed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("detailed")
    return studies.run(
        {**STUDY, "target": target()}, folder / "run", executor="local", cache=folder / "c", report=False
    )


def test_the_extended_form_is_near_the_detailed_model(run_of, detailed):
    """The source's mean error is 13.2 % (MICRO 2014, abstract)."""
    found = run_of("extended", model={"gpu": "gpumech"})
    assert inside(found) == pytest.approx(inside(detailed), rel=0.132)
    assert found.statistics["gpu.warp_instructions"].value == detailed.statistics["gpu.warp_instructions"].value
    assert sum(found.gpu_cpi_stacks.column("cycles").to_pylist()) == pytest.approx(inside(found))
    blocks = found.blocks.to_pylist()
    assert len(blocks) == len(detailed.blocks)
    assert all(0 <= row["start_cycle"] <= row["end_cycle"] for row in blocks)


def test_more_bandwidth_takes_no_longer_and_no_new_profile(run_of, monkeypatch):
    slow = run_of("slow", {"dram": {"bandwidth": "60 GB/s"}}, model={"gpu": "gpumech"})
    monkeypatch.setattr(gpumech, "profile_of", lambda *_: pytest.fail("a profile was made again"))
    runs = [slow] + [
        run_of(f"at-{bw}", {"dram": {"bandwidth": f"{bw} GB/s"}}, model={"gpu": "gpumech"}) for bw in (200, 900)
    ]
    assert all(inside(fast) <= inside(slow) for slow, fast in pairwise(runs))
    assert inside(runs[-1]) < inside(runs[0])


@pytest.mark.parametrize("change", [{"sms": 8}, {"l2": {"size": "2 MiB"}}, {"warps": 16, "threads": 512}])
def test_other_caches_and_sms_need_no_new_outline(run_of, monkeypatch, change):
    """The run is the same as one without anything that was kept."""
    run_of("first", model={"gpu": "gpumech"})
    alone = run_of("alone", change, "empty", model={"gpu": "gpumech"})
    monkeypatch.setattr(gpumech_outline, "outline_of", lambda *_: pytest.fail("an outline was made again"))
    assert inside(run_of("again", change, model={"gpu": "gpumech"})) == inside(alone)


def test_the_printed_form_knows_no_blocks(run_of):
    found = run_of("printed", model={"gpu": "gpumech"}, gpu={"form": "printed"})
    assert inside(found) > 0
    assert sum(found.gpu_cpi_stacks.column("cycles").to_pylist()) == pytest.approx(inside(found))
    assert not len(found.blocks)
