"""Launches above a size are read a piece at a time; their results are those of launches that are held as a whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from manyscale.runner import shipped
from manyscale.runner.predict.gpu import launch_units, pieces
from manyscale.runner.predict.gpu.models import Detailed
from manyscale.runner.predict.units import Arrays
from manyscale.runner.problems import load_yaml
from manyscale.runner.readers import accelsim
from manyscale.runner.study import load_study_content
from manyscale.runner.study.targets import shipped_targets

PARTS = (([3, 4], [1, 2]), ([11], []))  # launches, and those whose accesses L2 has seen


@pytest.fixture(scope="module")
def bfs():
    return accelsim.read(Path(load_study_content(shipped.studies()["bfs-16"])["workload"]["path"])).gpu


def results(streams, **options: str) -> list[Arrays]:
    chosen = {"order": "strict", "sampler": "full", "warming": None, "regions": {}, **options}
    content = load_yaml(shipped_targets()["rtx3070"])["node"]["gpu"] | {"sms": 1}  # blocks wait for room
    own = {"gpu": content, "options": chosen, "model": "detailed"}
    return [
        launch_units.simulate_launches(
            {**own, "launches": launches, "before": before, "sizes": [1] * len(launches)}, {"launches": streams}
        )
        for launches, before in PARTS
    ]


def test_pieces_give_what_whole_launches_give(bfs, monkeypatch):
    expected = results(bfs)
    monkeypatch.setattr(pieces, "WHOLE", 500)
    monkeypatch.setattr(pieces, "PIECE", 300)
    monkeypatch.setattr(type(bfs), "trace", lambda *_: pytest.fail("a whole launch is read"))
    for one, other in zip(expected, results(bfs), strict=True):
        assert one.keys() == other.keys()
        for name in one:
            assert np.array_equal(one[name], other[name]), name


@pytest.mark.parametrize(("changes", "takes"), [
    ({}, True), ({"order": "windows"}, False), ({"sampler": "tbpoint"}, False),
])  # fmt: skip
def test_who_looks_at_all_blocks_is_given_the_whole(changes, takes):
    assert Detailed.takes_pieces({"order": "strict", "sampler": "full", **changes}) is takes
