"""Use of links: the table, the figures and the report's section, derived by hand."""

from __future__ import annotations

import gzip
import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyscale.models.network import latency_bandwidth
from manyscale.models.network.replay.timeline import LinkLoad
from manyscale.models.network.routes import routes
from manyscale.runner import registry
from manyscale.runner.report import run_page as report
from manyscale.runner.report.perfetto import ranks as perfetto
from manyscale.runner.report.sections.limits import limits
from manyscale.runner.report.sections.links import binned_utilisation
from manyscale.runner.run import links, parquet
from manyscale.runner.run.outputs import summary, sweep_table
from manyscale.runner.run.results import Result

from . import tiny
from .test_report import Outline

# 1 byte/ns, and a link of twice that; intervals of 4 us, the last cut off at 10.0004 us
LOAD = LinkLoad(
    ("node 0 > switch", "idle > idle", "switch > node 1 <&>"),
    np.array([1000.0, 1000.0, 500.0]),
    4_000_000,
    np.array([[1000.0, 0.0, 1000.2], [0.0, 0.0, 0.0], [4000.0, 8000.0, 0.0]]),
)
MAKESPAN_PS = 10_000_400


def with_links(load: LinkLoad | None = LOAD) -> Result:
    table = links.links_table(links.to_arrays(load), MAKESPAN_PS)
    result = tiny.two_ranks(links=table)
    return replace(result, statistics={**result.statistics, **links.statistics(table, MAKESPAN_PS)})


def test_rows_are_the_intervals_in_which_a_link_carried_something():
    table = with_links().links
    assert table.schema == links.SCHEMA
    assert table.to_pylist() == [
        {"link": "node 0 > switch", "start_ps": 0, "end_ps": 4_000_000, "bytes": 1000.0, "utilisation": 0.25},
        {
            "link": "node 0 > switch", "start_ps": 8_000_000, "end_ps": MAKESPAN_PS, "bytes": 1000.2,
            "utilisation": pytest.approx(1000.2 / 2000.4),
        },
        {"link": "switch > node 1 <&>", "start_ps": 0, "end_ps": 4_000_000, "bytes": 4000.0, "utilisation": 0.5},
        {"link": "switch > node 1 <&>", "start_ps": 4_000_000, "end_ps": 8_000_000, "bytes": 8e3, "utilisation": 1.0},
    ]  # fmt: skip


def test_figures_are_shares_of_the_makespan():
    figures = with_links().statistics
    first, second = 2000.2 / 10_000.4, 12_000 / 20_000.8
    assert figures["network.max_link_utilisation"].value == pytest.approx(second)
    assert figures["network.mean_link_utilisation"].value == pytest.approx((first + second) / 2)


def test_busy_time_and_bytes_of_each_link():
    table = with_links().links
    assert links.link_names(table) == ["node 0 > switch", "switch > node 1 <&>"]
    assert links.busy_ps(table).tolist() == pytest.approx([2_000_200, 6_000_000])
    assert links.carried_bytes(table).tolist() == pytest.approx([2000.2, 12_000])


def test_a_model_without_links_leaves_nothing(tmp_path):
    assert links.to_arrays(None) == {}
    result = with_links(None)
    assert result.links is None
    assert not any(name.startswith("network.") for name in result.statistics)
    parquet.write(result, tmp_path)
    assert not (tmp_path / "timeline" / "links.parquet").exists()
    report.write(result, tmp_path)
    assert "Network links" not in (tmp_path / "report.html").read_text()


def test_the_table_is_written(tmp_path):
    result = with_links()
    parquet.write(result, tmp_path)
    read = pq.read_table(tmp_path / "timeline" / "links.parquet")
    assert read.to_pylist() == result.links.to_pylist()


def test_the_report_shows_the_most_used_links(tmp_path):
    report.write(with_links(), tmp_path)
    page = Outline((tmp_path / "report.html").read_text())
    assert "Network links" in page.text
    assert "12 kB" in page.text
    assert "60.0 %" in page.text
    chart = json.loads(page.scripts["charts"])["links"]
    heat = chart["data"][0]
    assert heat["y"] == ["switch > node 1 <&>", "node 0 > switch"]  # the busiest first
    assert [row[0] for row in heat["z"]] == [50.0, 25.0]
    assert (heat["z"][0][128], heat["z"][0][-1], heat["z"][1][-1]) == (100.0, 0.0, 50.0)


def test_limits_name_the_routing():
    def text(topology: dict[str, object]) -> str:
        resolved = {"model": {"network": "flow", "cpu": "burst"}}
        return " ".join(limits(replace(with_links(), machine=tiny.machine(topology=topology), resolved=resolved)))

    assert "Routes are fixed (torus, minimal)" in text({"kind": "torus", "dimensions": [8]})
    assert "Routes are fixed (crossbar)" in text({"kind": "crossbar"})


def test_counters_of_the_chrome_trace(tmp_path):
    perfetto.write(with_links(), tmp_path)
    events = json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))["traceEvents"]
    counters = [(event["name"], event["ts"], event["args"]["percent"]) for event in events if event["ph"] == "C"]
    assert counters == [
        ("node 0 > switch", 0, 25),
        ("node 0 > switch", 4, 0),
        ("node 0 > switch", 8, 50),
        ("node 0 > switch", 10.0004, 0),
        ("switch > node 1 <&>", 0, 50),
        ("switch > node 1 <&>", 4, 100),
        ("switch > node 1 <&>", 8, 0),
    ]
    assert {event["pid"] for event in events if event["ph"] == "C"} == {3}


def test_links_without_traffic_have_no_counters(tmp_path):
    result = with_links()
    perfetto.write(replace(result, links=result.links.slice(0, 0)), tmp_path)
    events = json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))["traceEvents"]
    assert not [event for event in events if event["ph"] == "C"]


def test_links_of_a_model_reach_the_run_directory(cli, write_trace, monkeypatch, tmp_path):
    """One message of 1,000 B + 16 B of envelope from node 0 to 1, as a model that knows links would tell of it."""

    def replay(program, compute_ps, network, placement):
        timeline = latency_bandwidth.replay(program, compute_ps, network, placement)
        node = placement.node_of_rank
        found = routes(network, placement.num_nodes, node[program.source], node[program.destination], np.zeros(1, bool))
        carried = np.zeros((len(found.link_names), 1))
        carried[found.links, 0] = program.bytes[0] + network.envelope_bytes
        load = LinkLoad(found.link_names, found.link_ps_per_byte, timeline.makespan_ps, carried)
        return replace(timeline, links=load)

    model = SimpleNamespace(NAME="told", VERSION=1, replay=replay)
    monkeypatch.setitem(registry._BUILT_IN["network"], "flow", "told")
    monkeypatch.setitem(sys.modules, "told", model)
    registry.lookup.cache_clear()
    folder = write_trace({0: ["init", "send 1 0 1000 6"], 1: ["init", "recv 0 0 1000 6"]})
    target = "target.network.topology={kind: fat-tree, down: [1, 2], up: [1, 1]}"
    common = ("run", "--workload", folder, "--model", "network=flow", "--executor", "local", "-o", "out")
    outcome = cli(*common, "--target", "crossbar256", "--set", target, "--set", "target.nodes=2")
    registry.lookup.cache_clear()
    assert outcome.status == 0, outcome
    rows = pq.read_table(tmp_path / "out" / "timeline" / "links.parquet").to_pylist()
    assert [(row["link"], row["bytes"]) for row in rows] == [
        ("node 0 > switch 1.0", 1016.0),
        ("switch 1.1 > node 1", 1016.0),
        ("switch 1.0 > switch 2.0", 1016.0),
        ("switch 2.0 > switch 1.1", 1016.0),
    ]
    makespan_ps = 10_000_000 + 1016 * 800
    figures = json.loads((tmp_path / "out" / "stats.json").read_text())
    assert figures["network.max_link_utilisation"]["value"] == pytest.approx(1016 * 800 / makespan_ps)
    assert figures["network.mean_link_utilisation"]["value"] == pytest.approx(1016 * 800 / makespan_ps)


def test_nothing_carried_is_said(tmp_path):
    idle = replace(LOAD, bytes=np.zeros((3, 2)))
    result = with_links(idle)
    assert result.links.num_rows == 0
    assert result.statistics["network.max_link_utilisation"].value == 0
    report.write(result, tmp_path)
    assert "No link carried anything." in (tmp_path / "report.html").read_text()


def test_a_run_that_takes_no_time_divides_by_nothing():
    table = links.links_table(links.to_arrays(replace(LOAD, ps_per_byte=np.zeros(3))), 0)
    assert np.isfinite(table.column("utilisation").to_numpy()).all()
    assert links.statistics(table, 0)["network.max_link_utilisation"].value == 0


def test_the_report_is_bounded(tmp_path):
    count = 300
    load = LinkLoad(tuple(f"link {i}" for i in range(count)), np.ones(count), 10, np.ones((count, 1000)))
    table = links.links_table(links.to_arrays(load), 10_000)
    report.write(replace(with_links(), links=table), tmp_path)
    page = Outline((tmp_path / "report.html").read_text())
    heat = json.loads(page.scripts["charts"])["links"]["data"][0]
    assert (len(heat["y"]), {len(row) for row in heat["z"]}) == (64, {256})
    assert "300 links carried something; the chart shows the 64 most used" in page.text


@pytest.mark.property
@settings(max_examples=50, deadline=None)
@given(st.data())
def test_bins_conserve_what_was_carried(data):
    """Sum of utilisation x length over any bins is the time at full rate, whatever the bins."""
    shape = data.draw(st.tuples(st.integers(1, 4), st.integers(1, 30)))
    values = data.draw(st.lists(st.integers(0, 40), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    load = LinkLoad(
        tuple(f"{i}" for i in range(shape[0])), np.ones(shape[0]), 50, np.array(values, float).reshape(shape)
    )
    span = 50 * shape[1] - data.draw(st.integers(0, 49))
    table = links.links_table(links.to_arrays(load), span)
    shown = np.arange(len(links.link_names(table)))
    num_bins = data.draw(st.integers(1, 40))
    binned = binned_utilisation(table, shown, span, num_bins)
    assert binned.sum(axis=1) * span / num_bins == pytest.approx(links.busy_ps(table))


def test_a_sweep_has_the_figures_that_some_points_have_and_null_elsewhere():
    known, unknown = summary(with_links()), summary(with_links(None))
    most = "network.max_link_utilisation"
    value = known.statistics[most].value
    assert sweep_table([known, unknown], []).column(most).to_pylist() == [value, None]
    assert sweep_table([unknown, known], []).column(most).to_pylist() == [None, value]
    # in the order in which the points have them
    tables = [sweep_table(points, []).schema.names for points in ([known, known], [known, unknown], [unknown, known])]
    assert tables[0] == tables[1] == tables[2]
    assert most not in sweep_table([unknown, unknown], []).schema.names
