"""Sampled cells: which lines of skipped task instances are touched, and a traced application sampled end to end."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from manyscale.models.node.memory_system import new_memory_system
from manyscale.runner.node.sampled_kernel import SkippedLines, skip, skipped_lines, touch_skipped
from manyscale.runner.study import parse_study
from manyscale.runner.targets import resolve_target

EXAMPLE = Path(__file__).parents[3] / "runner" / "examples" / "multizone-8-detail.tar.zst"


def lines_of(
    uses: list[list[int]], own_lines: int, most: int = 100, *, own: tuple[int, ...] = (), writes: bool = False
) -> SkippedLines:
    """Instance i uses the lines ``uses[i]``, in that order, and ``writes`` them or not; two cores take instances in
    turn. Of the lines ``own`` each core has its own."""
    ends = np.cumsum([0, *(len(each) for each in uses)])
    line = np.array([one for each in uses for one in each], np.int32)
    number = np.arange(line.max() + 1, dtype=np.int64) + 100
    is_own = np.isin(np.arange(len(number)), own)
    lines = skipped_lines(ends, line, np.full(len(line), writes), number, 2, own_lines, most, is_own)
    for instance in range(len(uses)):
        skip(lines, instance, instance % 2)
    return lines


def touched(lines: SkippedLines) -> list[tuple[int, int]]:
    """(line, core), in order."""
    content = {"schema": 1, "workload": {"path": "none"}, "target": "grass-high-performance"}
    lines.chosen[:] = -1
    touch_skipped(new_memory_system(resolve_target(parse_study(content, "test"))[0].node, 2), lines)
    assert lines.num[0] == 0
    return [(line, core) for line, core, _ in lines.chosen.tolist() if line >= 0]


@pytest.mark.theory
def test_last_uses_are_touched_in_order() -> None:
    """Cores without caches of their own: each line once, where it was used last."""
    assert touched(lines_of([[0, 1], [1, 2], [0, 3]], 0)) == [(1, 1), (2, 1), (0, 0), (3, 0)]


@pytest.mark.theory
def test_own_caches_hold_what_a_core_used_lately() -> None:
    """Core 1 used line 0 before core 0 did: it has it, too, if there is room behind line 1. No core has it twice."""
    uses = [[9, 0], [0, 1], [0]]
    assert touched(lines_of(uses, 2)) == [(9, 0), (0, 1), (1, 1), (0, 0)]
    assert touched(lines_of(uses, 1)) == [(9, 0), (1, 1), (0, 0)]


@pytest.mark.theory
def test_what_one_core_writes_to_its_own_line_is_no_other_cores_concern() -> None:
    """Both wrote lines 0 and 1; each core has its own line 0, the other one went to core 1."""
    assert touched(lines_of([[0, 1], [0, 1]], 4, writes=True, own=(0,))) == [(0, 0), (0, 1), (1, 1)]
    assert touched(lines_of([[0, 1], [0, 1]], 4, writes=True)) == [(0, 1), (1, 1)]


@pytest.mark.theory
def test_no_more_lines_are_touched_than_caches_hold() -> None:
    assert touched(lines_of([[0, 1], [1, 2], [0, 3]], 0, most=3)) == [(2, 1), (0, 0), (3, 0)]


@pytest.mark.slow
@pytest.mark.golden
def test_a_sampled_application(tmp_path: Path) -> None:
    """TaskPoint on the shipped example: within 5 % of full detail, less than all in detail."""
    from manyscale.runner.node.evaluate_command import evaluate

    options = Namespace(
        traces=[str(EXAMPLE)], target="grass-high-performance", cores="4", iterations="joined", assignments=[],
        methods="lazy,lazy+classes+warm", output=tmp_path / "evaluation",
    )  # fmt: skip
    assert evaluate(options) == 0
    rows = pq.read_table(tmp_path / "evaluation" / "evaluation.parquet").to_pylist()
    assert [row["method"] for row in rows] == ["full", "lazy", "lazy+classes+warm"]
    for row in rows[1:]:
        assert abs(row["error"]) < 0.05
        assert row["detailed_share"] < 1
