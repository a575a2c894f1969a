"""What cores do to each other in regions, against counts made by hand."""

from __future__ import annotations

import sys
from dataclasses import make_dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "models" / "node"))
from node_programs import node_program

from manyscale.models.node.detailed import OVERHEAD
from manyscale.models.node.instance_lines import InstanceLines
from manyscale.models.node.program.node_program import Action, LoopFlag
from manyscale.models.node.program.regions import cut_at_waits
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.runner.errors import UserError
from manyscale.runner.predict.intervals import region_counters, region_units
from manyscale.runner.predict.intervals.open_regions import Before
from manyscale.runner.predict.intervals.region_counters import intervals_of_profile, native_counters, traced_counters
from manyscale.runner.shipped import folder
from manyscale.runner.study.targets import target_named
from manyscale.sampling.population import IntervalPopulation
from manyscale.sampling.vectors import Vectors

LOOP, COMPUTE = Action.loop, Action.compute
A, B, C = range(3)  # lines
# of instances 1 to 4, two in each of two loops: what they use, and whether they write it
USES = [[(A, True), (B, True)], [(C, True)], [(C, False), (A, False)], [(A, False), (B, True)]]
BEFORE = Before(np.array([1, 2, 3, 4]), np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1]))


def regions() -> SimpleNamespace:
    program = node_program([[(LOOP, 0), (LOOP, 1)], *[[(COMPUTE, 1)]] * 4], loops=[(1, 3), (3, 5)])
    program = cut_at_waits(program, np.ones(4, np.int64))
    none = Vectors(np.zeros(3, np.int64), np.zeros(0, np.int64), np.zeros(0))
    return SimpleNamespace(
        program=program, phase=np.array([0, 1, 2]), creates=np.zeros(4, bool), begin=np.array([0, 50, 100]),
        pieces=SimpleNamespace(num_instructions=np.array([10, 20, 30, 40]), stack=None),
        population=IntervalPopulation(np.arange(2), np.array([50.0, 50.0]), none, 1),
    )  # fmt: skip


def lines() -> InstanceLines:
    uses = [[], *USES, [], []]  # the initial task; behind instances, it in each phase
    first = np.concatenate(([0], np.cumsum([len(each) for each in uses])))
    line, written = np.array([use for each in uses for use in each]).T
    return InstanceLines(64, first, line.astype(np.int32), written.astype(bool), np.array([100, 200, 300]))


@pytest.mark.theory
@pytest.mark.slow  # compiles
def test_cores_answer_for_lines_that_they_wrote_last() -> None:
    node = target_named("marenostrum3")[0].node
    found = traced_counters(regions(), lines(), BEFORE, node, 2, ("sbbv", "ccv", "mcv", "tcv"))
    # core 1 answers for C; core 0 for A, which is nobody's then, and for B
    assert found.thread_counters["coherence_answers"].tolist() == [[0, 0], [2, 1]]
    assert found.thread_instructions.tolist() == [[10, 20], [30, 40]]
    # one socket: all is there in the second loop; in caches of their own core 0 lacks C, core 1 A and B
    assert found.thread_counters["llc_misses"].tolist() == [[2, 1], [0, 0]]
    assert found.thread_counters["offcore_requests"].tolist() == [[2, 1], [1, 2]]
    assert set(traced_counters(regions(), lines(), BEFORE, node, 2, ("icv",)).thread_counters) == set()


@pytest.mark.theory
def test_a_native_run_is_laid_on_regions_by_its_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100 instructions the first interval has 80, with 8 misses, the second 20 with 4: half have 5, half 3 + 4."""
    none = Vectors(np.zeros(3, np.int64), np.zeros(0, np.int64), np.zeros(0))
    of_threads = {"llc_misses": np.array([[8.0, 0.0], [4.0, np.nan]])}
    profile = IntervalPopulation(
        np.arange(2), np.array([80.0, 20.0]), none, 2, {}, np.array([[80.0, 0], [10, 10]]), of_threads
    )
    monkeypatch.setattr(region_counters, "intervals_of_profile", lambda path: profile)
    found, note = native_counters(regions(), Path("app.bb"), "trace")
    assert found.thread_counters["llc_misses"].tolist() == [[5, 0], [7, 0]]
    assert found.thread_instructions.tolist() == [[50, 0], [40, 10]]
    assert note.code == "counters-by-position"


@pytest.mark.contract
def test_what_is_no_profile_is_refused() -> None:
    with pytest.raises(UserError, match=r"stream-9600.*: has no intervals; a profile of basic-block vectors"):
        intervals_of_profile(folder() / "stream-9600.tar.zst")


@pytest.mark.theory
@pytest.mark.parametrize(
    ("is_part", "chunks", "cycles"),
    [(True, [600, 300], 80), (True, [500, 500], 60), (True, [900, 0], 120), (False, [600, 300], 100)],
)
def test_a_window_takes_the_longest_chunks_share_of_all_its_cycles(
    is_part: bool, chunks: list[int], cycles: int
) -> None:
    """Parts take 100 and 20 cycles. Of 120, a chunk of two thirds of the loop has 80; one of half has 60, which leaves
    no wait of the first core; one that is the loop takes them all."""
    program = node_program([[(LOOP, 0)], [(COMPUTE, 1)], [(COMPUTE, 1)]], loops=[(1, 3)])
    windows = SimpleNamespace(row_is_part=np.full(3, is_part), row=np.arange(3))
    opened = SimpleNamespace(
        regions=SimpleNamespace(windows=windows),
        cell=SimpleNamespace(node=SimpleNamespace(frequency_hz=1e12)),  # a cycle a ps
        whole_instructions=np.array([0, *chunks]),
    )
    stretch = SimpleNamespace(program=program, row=np.arange(3))
    result = SimpleNamespace(
        makespan_ps=np.array([100]), core_stack=np.array([[60.0, 40, 0], [15, 5, 80]]),
        instances={"cycles": np.array([0.0, 100, 20])},
    )  # fmt: skip
    phase_ps, stack = region_units._without_waits(opened, stretch, result, np.array([1, 2]), 0, 1)
    assert phase_ps.tolist() == [cycles]
    assert stack.sum(axis=1) == pytest.approx([cycles, cycles])
    assert stack[1].tolist() == pytest.approx([15, 5, cycles - 20])
    assert stack[0, 2] == max(cycles - 100, 0)


@pytest.mark.theory
@pytest.mark.parametrize(
    ("costs", "flags", "is_part", "saved"),
    [
        ({"barrier": "10 ps", "fork": "6 ps"}, 0, True, 10),  # half of two doublings on four cores
        ({"barrier": "10 ps", "fork": "6 ps"}, LoopFlag.forks, False, 16),
        ({"barrier": "10 ps", "schedule": "3 ps", "complete": "1 ps"}, 0, True, 12),
        ({"schedule": "3 ps", "complete": "1 ps"}, 0, False, 0),  # of whole chunks, which the loop takes, too
        ({"schedule": "3 ps", "chunk": "4 ps"}, 0, True, 0),
        ({"schedule": "3 ps", "chunk": "4 ps"}, LoopFlag.asked, True, 2),
    ],
)
def test_windows_share_what_their_loop_pays_the_runtime_system_once(
    costs: dict[str, str], flags: int, is_part: bool, saved: int
) -> None:
    """Two windows of a loop, and a loop of its own, of 100 ps each. The creating core has 60 in the runtime system, in
    which the other waits."""
    steps = [[(LOOP, 0), (LOOP, 1), (LOOP, 2)], *[[(COMPUTE, 1)]] * 3]
    program = node_program(steps, loops=[(1, 2), (2, 3), (3, 4)])
    program = cut_at_waits(replace(program, loop_flags=np.array([flags, 0] * 3, np.uint8)), np.ones(3, np.int64))
    windows = SimpleNamespace(
        row_is_part=np.array([False, is_part, is_part, False]), num_windows=2, of_loop=np.array([1, 2, 2, 1])
    )
    cell = SimpleNamespace(node=SimpleNamespace(frequency_hz=1e12), runtime=RuntimeSystem.model_validate(costs))
    opened = SimpleNamespace(regions=SimpleNamespace(windows=windows), cell=cell, cores=4)
    result = make_dataclass("Result", ["core_parts", "makespan_ps", "core_stack"])(
        ("base", OVERHEAD, "idle"), np.array([100] * 3), np.array([[240.0, 60, 0], [240, 0, 60]])
    )
    found = region_units._without_meetings(opened, SimpleNamespace(program=program, row=np.arange(4)), result, 0, 3)
    assert found.makespan_ps.tolist() == [100 - saved, 100 - saved, 100]
    assert found.core_stack.tolist() == [[240, 60 - 2 * saved, 0], [240, 0, 60 - 2 * saved]]
