"""Sampled cells: which lines of skipped task instances are touched."""

from __future__ import annotations

import numpy as np
import pytest

from manyscale.models.node.memory.system import new_memory_system
from manyscale.runner.predict.node.cells.sampled_kernel import SkippedLines, skip_all, skipped_lines, touch_skipped
from manyscale.runner.study import parse_study
from manyscale.runner.study.targets import resolve_target


def lines_of(
    uses: list[list[int]], own_lines: int, most: int = 100, *, own: tuple[int, ...] = (),
    writes: bool | list[list[bool]] = False,
) -> SkippedLines:  # fmt: skip
    """Instance i uses the lines ``uses[i]``, in that order, and ``writes`` them or not; two cores take instances in
    turn. Of the lines ``own`` each core has its own."""
    ends = np.cumsum([0, *(len(each) for each in uses)])
    line = np.array([one for each in uses for one in each], np.int32)
    number = np.arange(line.max() + 1, dtype=np.int64) + 100
    is_own = np.isin(np.arange(len(number)), own)
    written = np.full(len(line), writes) if isinstance(writes, bool) else np.concatenate(writes)
    lines = skipped_lines(ends, line, written, number, 2, own_lines, most, is_own)
    skip_all(lines, np.arange(len(uses)), np.arange(len(uses)) % 2)
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


@pytest.mark.theory
def test_the_last_use_that_a_cache_shows_tells_whether_it_writes() -> None:
    """Core 0 reads line 0, core 1 writes it, core 0 reads it: what was before the write is not to be seen. Line 1 is
    written by core 1 alone, in its last use."""
    written = [[False], [True, False], [False], [True]]
    lines = lines_of([[0], [0, 1], [0], [1]], 10, writes=written)
    assert touched(lines) == [(0, 1), (0, 0), (1, 1)]
    assert lines.chosen[-3:].tolist() == [[0, 1, 1], [0, 0, 0], [1, 1, 1]]
