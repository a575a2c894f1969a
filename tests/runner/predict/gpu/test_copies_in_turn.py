"""Traces that tell launches and the copies before them: each copy takes 8 us and its bytes at 12 GB/s on rtx3070, and
the launches behind it wait."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from gpu_launches import Launch, gpu_workload

from manyscale.models.workload.gpu_tables import COPIES_SCHEMA

US = 1_000_000
KB = 12_000  # bytes that take 1 us


def with_copies(workload, *copies):
    rows = [{"before_launch_id": launch, "address": -1, "bytes": size} for launch, size in copies]
    tables = {**workload.tables, "copies": pa.Table.from_pylist(rows, COPIES_SCHEMA)}
    return replace(workload, tables=tables, is_checked=True)


@pytest.fixture
def launches():
    """Each of 4,600 instructions, which take 10 cycles over 46 SMs; the first takes 100 more; latencies are 5,000."""
    return gpu_workload(Launch("a", (4600,)), Launch("b", (4600,)), Launch("a", (4600,)))


CYCLES = 3 * (1000 + 5000) + 100
FIRST, LAUNCH, ALL = (cycles * 1e12 / 1132e6 for cycles in (6100, 6000, CYCLES))


@pytest.mark.theory
def test_a_copy_between_launches_of_two_streams(run_launches):
    """It is of the default stream, which waits for both, and they for it; the host waits, too."""
    two = gpu_workload(Launch("a", (4600,), stream=1), Launch("a", (4600,), stream=2))
    result = run_launches(with_copies(two, (2, 3 * KB)))
    figures = {name: each.value for name, each in result.statistics.items()}
    assert figures["application.makespan"] * 1e12 == pytest.approx(11 * US + FIRST + LAUNCH, abs=3)
    assert (figures["gpu.copies"], figures["gpu.copied_bytes"], figures["gpu.overlap_ratio"]) == (1, 3 * KB, 0)
    assert figures["gpu.copy_time"] * 1e12 == pytest.approx(11 * US)
    assert [row["operation"] for row in result.gpu_streams.to_pylist()] == ["launch", "copy_to_device", "launch"]
    codes = {note.code for note in result.notes}
    assert {"copies-in-turn", "streams-at-once"} <= codes
    assert "copies" not in codes


@pytest.mark.theory
def test_launches_wait_for_the_copies_before_them(run_launches, launches):
    copied = with_copies(launches, (1, 3 * KB), (1, 5 * KB), (3, KB))
    result = run_launches(copied)
    assert result.launches.column("start_ps").to_pylist() == pytest.approx(
        [24 * US, 24 * US + FIRST, 33 * US + FIRST + LAUNCH], abs=3
    )
    figures = {name: each.value for name, each in result.statistics.items()}
    assert figures["application.makespan"] * 1e12 == pytest.approx(33 * US + ALL, abs=3)
    assert figures["gpu.cycles"] == CYCLES
    assert figures["gpu.time"] * 1e12 == pytest.approx(ALL, abs=3)
    assert (figures["gpu.copies"], figures["gpu.copied_bytes"]) == (3, 9 * KB)
    assert figures["gpu.copy_time"] * 1e12 == pytest.approx(33 * US)
    rows = [(row["operation"], row["bytes"]) for row in result.gpu_streams.to_pylist()]
    copies = [("copy_to_device", size * KB) for size in (3, 5, 1)]
    assert rows == [*copies[:2], *[("launch", 0)] * 2, copies[2], ("launch", 0)]
    starts = [row["start_ps"] for row in result.gpu_streams.to_pylist()]
    assert starts[:3] == [0, 11 * US, 24 * US]
    assert starts[4] == pytest.approx(24 * US + FIRST + LAUNCH, abs=3)
    codes = {note.code for note in result.notes}
    assert "copies-in-turn" in codes
    assert "copies" not in codes


def test_a_copy_behind_the_last_launch_takes_no_time_and_says_so(run_launches, launches):
    result = run_launches(with_copies(launches, (4, 1 << 30)))
    assert result.statistics["application.makespan"].value * 1e12 == pytest.approx(ALL, abs=3)
    codes = {note.code for note in result.notes}
    assert "copies" in codes
    assert "copies-in-turn" not in codes
    assert result.gpu_streams is None


def test_a_target_without_a_link_copies_in_no_time_and_says_so(run_launches, launches):
    target = {"name": "rtx3070", "node": {"gpu": {"host_link": None}}}
    result = run_launches(with_copies(launches, (1, 1 << 30)), target=target)
    assert result.statistics["application.makespan"].value * 1e12 == pytest.approx(ALL, abs=3)
    assert "copies" in {note.code for note in result.notes}
