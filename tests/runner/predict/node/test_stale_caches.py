"""What stale caches hide: programs of a few lines whose places in caches are known, and prices worked out by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from node_memory import caches, node

from manyscale.runner.predict.node.cells import stale_caches
from manyscale.runner.predict.node.cells.sampled_kernel import skipped_lines
from manyscale.runner.predict.node.cells.stale_caches import hidden_cycles
from manyscale.sampling.taskpoint.state import FORWARDED, VALID, WARM_UP

# own caches of 4 lines, a shared one of 8; beyond the first cache it takes 10 cycles, main memory 100
LEVELS = caches(
    {"L1D": (256, 4, 1), "L2": (512, 8, 2)}, L1D={"latency": "4 cycles"}, L2={"latency": "14 cycles"}
)  # fmt: skip
NODE = node(2, LEVELS, memory={"latency": "104 ns", "bandwidth": "64 GB/s"})
SKIPPED = [list(range(k, k + 2)) for k in range(2, 18, 2)]  # eight instances, 16 lines


def hidden(
    rows: list[tuple[int, int, list[int]]], *, waited: float = 200.0, begins_warm: bool = False, own: int = 0
) -> float:
    """``rows``: role, core and lines of instances 1, 2, ... in the order in which they begin, a piece of 100
    instructions each. In detail two accesses were served by main memory, 200 cycles of latency, of which the cores
    waited for ``waited``. The first ``own`` lines are each core's own."""
    count = len(rows) + 1
    lines = [line for _, _, mine in rows for line in mine]
    first = np.cumsum([0, 0, *(len(mine) for _, _, mine in rows)])
    number = np.arange(max(lines) + 1)
    instances = np.zeros(count, [("start_ps", "i8"), ("core", "i2")])
    instances["start_ps"] = np.arange(count) - 1
    instances["core"][1:] = [core for _, core, _ in rows]
    point = SimpleNamespace(
        role=np.array([0, *(role for role, _, _ in rows)], np.uint8), round=np.ones(count, np.int32),
        class_of=np.zeros(count, np.int32), classes=np.zeros(1), instructions=np.array([0, *[100] * len(rows)]),
    )  # fmt: skip
    result = SimpleNamespace(
        instances=instances, served=np.array([[50, 0, 2, 0]]), core_stack=np.zeros((2, 1)),
        type_stack=np.array([[500, 0, 0, 0, 70, 0, waited, 0.0]]),
    )  # fmt: skip
    program = SimpleNamespace(piece_instance=np.arange(count), num_instances=count)
    known = skipped_lines(
        first, np.array(lines, np.int32), np.zeros(len(lines), bool), number, 2, 4, 12, number < own
    )  # fmt: skip
    return hidden_cycles(point, result, program, known, NODE, begins_warm)


def skipped(core: int = 0) -> list[tuple[int, int, list[int]]]:
    return [(FORWARDED, core, mine) for mine in SKIPPED]


@pytest.mark.theory
@pytest.mark.parametrize("waited", [200.0, 50.0, 900.0])
def test_lines_that_would_have_been_driven_out(waited: float) -> None:
    """The sample finds the two lines of the warm-up, between which and it 16 others were used, more than both caches
    hold. The last instance uses two of these 16 and would ask main memory: 200 cycles, as far as cores wait for that.
    What was skipped before has lines that none has used, which also the first in detail had."""
    rows = [(WARM_UP, 0, [0, 1]), *skipped(), (VALID, 0, [0, 1]), (FORWARDED, 0, [2, 3])]
    of_skipped = 8 * 200  # the sample stands for them, too
    assert hidden(rows, waited=waited) == pytest.approx((200 + of_skipped) * min(waited / 200, 1.0))


@pytest.mark.theory
def test_a_line_that_another_core_has_used_since() -> None:
    """All lines fit. In stale caches the sample's are where core 0 has left them; the skipped instance on core 0 uses
    lines that one on core 1 had used since: 10 cycles each."""
    rows = [(VALID, 0, [0, 1]), (VALID, 0, [0, 1]), (FORWARDED, 1, [0, 1]), (FORWARDED, 0, [0, 1])]
    of_samples = 200 / 2  # the first one's lines were used by none, the second one's by itself
    assert hidden(rows) == pytest.approx(2 * 10 + 2 * 10 - 2 * of_samples)
    assert hidden(rows, begins_warm=True) == pytest.approx(2 * 20)
    assert hidden(rows, begins_warm=True, own=2) == 0  # a stack of each core


@pytest.mark.theory
def test_nothing_is_hidden_where_all_lines_fit() -> None:
    rows = [(VALID, 0, [0, 1]), *[(FORWARDED, 0, [0, 1])] * 5, (VALID, 0, [0, 1]), (FORWARDED, 0, [0, 1])]
    assert hidden(rows, begins_warm=True) == 0


@pytest.mark.property
def test_lines_by_a_sample_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """All lines come from main memory, 100 of the sample's, 50 of those that go by it. A part of the lines says as much
    as all, but for what a sample of some 250 errs."""
    far = [list(range(k, k + 50)) for k in range(100, 900, 50)]
    rows = [(WARM_UP, 0, list(range(100))), *[(FORWARDED, 0, mine) for mine in far], (VALID, 0, list(range(100)))]
    exact = hidden(rows)
    monkeypatch.setattr(stale_caches, "MOST_USES", 1000)
    assert exact == pytest.approx(16 * (50 - 100) * 100)
    assert hidden(rows) == pytest.approx(exact, rel=0.2)
    assert hidden(rows) != exact
