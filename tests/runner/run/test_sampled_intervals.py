"""``manyscale profile --interval`` of what ``perf script`` prints: intervals of a native run by samples."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from manyscale.models.workload.notes import Note
from manyscale.runner.errors import UserError
from manyscale.runner.readers import simpoint_bb
from manyscale.runner.run.questions.sampled_intervals import sampled_intervals
from manyscale.sampling.population import intervals_of

RECORDED = Path(__file__).parents[2] / "data" / "stacks" / "threads.perf.txt.gz"

# two threads, samples of 100 instructions; f has two lines of 64 bytes of code, g one. Cycles of the same threads, and
# loads that another core's modified line answered.
ROWS = [
    (1, 0.10, 100, "instructions", "f+0x4"),
    (2, 0.11, 100, "instructions", "g+0x0"),
    (1, 0.12, 150, "cycles", "f+0x8"),
    (1, 0.20, 100, "instructions", "f+0x3f"),
    (1, 0.21, 100, "instructions", "f+0x40"),
    (2, 0.25, 400, "cycles", "g+0x0"),
    (2, 0.26, 7, "mem_load_l3_hit_retired.xsnp_hitm", "g+0x0"),
    (2, 0.30, 100, "instructions", "g+0x8"),
    (2, 0.40, 100, "instructions", "g+0x9"),
    (2, 0.41, 90, "cycles", "g+0x9"),
    (1, 0.50, 100, "instructions", "f+0x44"),
]


def printed(rows: list[tuple[int, float, int, str, str]], path: Path) -> Path:
    text = "".join(
        f"app 7/{thread} [000] {time:.6f}: {period:>10} {event}:  {0x1000:x} {symbol} (/bin/app)\n"
        for thread, time, period, event, symbol in rows
    )
    path.write_text(text)
    return path


def codes(notes: Any) -> set[str]:
    return {note.code for note in notes if isinstance(note, Note)}


def test_samples_fall_into_the_intervals_in_which_their_periods_end(tmp_path: Path) -> None:
    found = sampled_intervals(str(printed(ROWS, tmp_path / "app.perf")), 200)
    population = found.population
    assert population.thread_instructions.tolist() == [[100, 100], [200, 0], [0, 200], [100, 0]]
    assert population.thread_counters["cycles"].tolist() == [[0, 0], [150, 0], [0, 400], [0, 90]]
    assert population.thread_counters["coherence_answers"].tolist() == [[0, 0], [0, 0], [0, 7], [0, 0]]
    blocks = found.num_blocks
    assert blocks == 3
    first, column, value = population.vectors.first, population.vectors.column, population.vectors.value
    rows = [sorted(zip((column[a:b] // blocks).tolist(), value[a:b].tolist(), strict=True)) for a, b in pairwise(first)]
    assert rows == [[(0, 100), (1, 100)], [(0, 100), (0, 100)], [(1, 200)], [(0, 100)]]
    assert {"blocks-by-address", "askers-for-answers"} <= codes(found.notes)


def test_what_is_written_is_read_and_planned(tmp_path: Path, cli: Callable[..., Any]) -> None:
    path = printed(ROWS, tmp_path / "app.perf")
    ran = cli("profile", path, "--interval", 200, "-o", tmp_path / "out")
    assert (ran.status, ran.err) == (0, "")
    read = intervals_of(simpoint_bb.read(tmp_path / "out" / "app.bb"))
    ours = sampled_intervals(str(path), 200).population
    assert read.thread_instructions.tolist() == ours.thread_instructions.tolist()
    assert read.thread_counters["cycles"].tolist() == ours.thread_counters["cycles"].tolist()
    assert read.vectors.value.tolist() == ours.vectors.value.tolist()
    assert cli("plan", "--method", "sbbv+ccv", tmp_path / "out" / "app.bb", "-o", tmp_path / "plan").status == 0


def test_a_recording_without_instructions_is_cut_by_its_cpu_time() -> None:
    """71 + 52 samples of a millisecond each in the program's own functions, as perf report counts them, and two in the
    kernel; SOURCES.md."""
    found = sampled_intervals(str(RECORDED), 25_000_000)
    assert found.event == "task-clock"
    assert len(found.population) == 5
    assert found.population.instructions.tolist() == [25e6] * 5
    assert "intervals-of-other-counts" in codes(found.notes)


@pytest.mark.parametrize(
    ("rows", "interval", "words"),
    [
        (ROWS, 50, "a sample stands for up to 100 counts of instructions"),
        (ROWS, 100_000, "the run has 700 counts of instructions"),
        (ROWS, 0, "at least one instruction"),
    ],
)
def test_intervals_that_make_no_sense(rows: Any, interval: int, words: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=words):
        sampled_intervals(str(printed(rows, tmp_path / "app.perf")), interval)


@pytest.mark.parametrize("words", [("--cores", 2), ("--rank", 0), ("--steady",)])
def test_options_of_simulated_intervals_are_refused(
    words: tuple[Any, ...], tmp_path: Path, cli: Callable[..., Any]
) -> None:
    ran = cli("profile", printed(ROWS, tmp_path / "app.perf"), "--interval", 200, *words)
    assert ran.status == 2
    assert f"{words[0]}: is of traces that --interval simulates" in ran.err
