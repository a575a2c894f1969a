"""Runs of workloads whose ranks are graphs of operations: which models take them, and what their results say."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

GOAL = Path(__file__).parents[2] / "data" / "goal"
SCHEDULE = """\
num_ranks 2
rank 0 {
a: calc 1000
b: calc 500
s: send 100b to 1 tag 0
s requires b
}
rank 1 {
r: recv 100b from 0 tag 0
c: calc 300
d: calc 200
d requires r
}
"""


@pytest.mark.theory
def test_compute_ends_with_its_operation_and_the_rest_is_waiting(tmp_path, cli, private_cache) -> None:  # type: ignore[no-untyped-def]
    """Rank 0 computes 1.0 and 0.5 us one after the other, then sends; rank 1 computes 0.3 us at once, waits for the
    message (sent at 1.5 us, there 10 us later, taken in during (100 - 1) 0.8 ns) and computes 0.2 us."""
    (tmp_path / "two.goal").write_text(SCHEDULE)
    outcome = cli("run", "--workload", tmp_path / "two.goal", "--target", "crossbar256", "--model", "network=loggops",
                  "--set", "target.network.envelope=0 B", "-o", tmp_path / "run")  # fmt: skip
    assert outcome.status == 0, outcome.err
    rows = pq.read_table(tmp_path / "run" / "timeline" / "ranks.parquet").to_pylist()
    states = [(row["rank"], row["start_ps"], row["end_ps"], row["state"]) for row in rows]
    arrival = 1_500_000 + 10_000_000 + 99 * 800
    assert states == [
        (0, 0, 1_000_000, "compute"),
        (0, 1_000_000, 1_500_000, "compute"),
        (1, 0, 300_000, "compute"),
        (1, 300_000, arrival, "wait"),
        (1, arrival, arrival + 200_000, "compute"),
    ]
    figures = json.loads((tmp_path / "run" / "stats.json").read_text())
    assert figures["application.makespan"]["value"] == pytest.approx((arrival + 200_000) / 1e12)
    assert figures["application.compute"]["value"] == pytest.approx((1_500_000 + 500_000) / 2 / 1e12)


@pytest.mark.parametrize("name", sorted(path.name for path in GOAL.glob("*.goal")))
def test_every_schedule_runs_or_says_why_not(tmp_path, cli, private_cache, name) -> None:  # type: ignore[no-untyped-def]
    command = ("run", "--workload", GOAL / name, "--target", "crossbar256")
    outcome = cli(*command, "--model", "network=loggops", "-o", tmp_path / "graph")
    assert outcome.status == 0, outcome.err
    assert (tmp_path / "graph" / "report.html").exists()
    other = cli(*command, "-o", tmp_path / "ordered", "--no-report")
    assert other.status == 0 or "choose the network model loggops" in other.err
    assert other.err.count("\n") <= 1
