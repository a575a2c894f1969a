"""Links on the critical path of a run."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

COST_PS = 10_000_000 + 800 * (1000 + 16)  # of a message of 1,000 B on crossbar256


@pytest.mark.theory
def test_a_ping_pong_is_on_four_links_each_for_one_message(tmp_path, cli, private_cache, write_trace) -> None:  # type: ignore[no-untyped-def]
    trace = write_trace({0: ["init", "send 1 0 1000", "recv 1 0 1000"], 1: ["init", "recv 0 0 1000", "send 0 0 1000"]})
    outcome = cli("run", "--workload", trace, "--target", "crossbar256", "--model", "network=flow",
                  "-o", tmp_path / "run")  # fmt: skip
    assert outcome.status == 0, outcome.err
    rows = pq.read_table(tmp_path / "run" / "timeline" / "critical_path_links.parquet").to_pylist()
    assert [row["time_ps"] for row in rows] == [COST_PS] * 4
    assert len({row["link"] for row in rows}) == 4
    assert "link of a transfer" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.theory
def test_a_model_without_links_tells_of_none(tmp_path, cli, private_cache, write_trace) -> None:  # type: ignore[no-untyped-def]
    trace = write_trace({0: ["init", "send 1 0 1000"], 1: ["init", "recv 0 0 1000"]})
    outcome = cli("run", "--workload", trace, "--target", "crossbar256", "-o", tmp_path / "run", "--no-report")
    assert outcome.status == 0, outcome.err
    assert not (tmp_path / "run" / "timeline" / "critical_path_links.parquet").exists()


def test_a_machine_without_links_is_refused_before_anything_runs(tmp_path, cli, private_cache, write_trace) -> None:  # type: ignore[no-untyped-def]
    trace = write_trace({0: ["init", "send 1 0 1000"], 1: ["init", "recv 0 0 1000"]})
    outcome = cli("run", "--workload", trace, "--target", "crossbar256", "--model", "network=flow",
                  "--set", "target.network.topology=null", "-o", tmp_path / "run")  # fmt: skip
    assert outcome.status == 2
    assert "crossbar256: the flow network needs links: give the target network.topology" in outcome.err
    assert outcome.err.count("\n") == 1
    assert not (tmp_path / "run").exists()
