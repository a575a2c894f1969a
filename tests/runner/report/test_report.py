"""The report: one file that fetches nothing, escapes what it is given, and draws what the tables say."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyscale.models.workload.notes import informs
from manyscale.runner.predict.statistic import Statistic
from manyscale.runner.report import data as report_data
from manyscale.runner.report import run_page as report
from manyscale.runner.report.data import CATEGORIES, IDLE, calls, message_matrix, message_sizes, timeline
from manyscale.runner.report.figures.sweep import axis_of
from manyscale.runner.report.palette import COLOURS
from manyscale.runner.report.sweep_page import write_sweep
from manyscale.runner.report.text import binary_size, duration, embedded_json, percent, size
from manyscale.runner.run import chosen_ranks
from manyscale.runner.run.results import STATES, Result

from . import tiny


class Outline(HTMLParser):
    """Elements of a page, its texts outside of scripts and style, and the scripts by id."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.scripts: dict[str, str] = {}
        self._open = ""
        self._script = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags[tag] += 1
        self.ids += [str(given["id"])] if "id" in given else []
        self.links += [str(value) for key, value in attrs if key in ("src", "href", "action", "data")]
        if tag in ("script", "style"):
            self._open, self._script = tag, str(given.get("id", ""))

    def handle_endtag(self, tag: str) -> None:
        self._open = "" if tag == self._open else self._open

    def handle_data(self, data: str) -> None:
        if self._open == "script":
            self.scripts[self._script] = self.scripts.get(self._script, "") + data
        elif not self._open:
            self.text += data + "\n"

    @property
    def charts(self) -> dict[str, dict[str, Any]]:
        return json.loads(self.scripts["charts"])


def check_self_contained(html: str) -> Outline:
    """Asserts that a page fetches nothing and links to nothing outside."""
    outline = Outline(html)
    assert outline.tags["link"] == outline.tags["iframe"] == outline.tags["img"] == 0
    assert outline.tags["script"] == len(outline.scripts) == 3
    assert "default-src 'none'" in html
    assert re.search(r"script-src 'nonce-[0-9a-f]{32}';", html)
    own = html.replace(outline.scripts["plotly"], "")
    assert not re.search(r"https?:|@import|url\(|fetch\(|XMLHttpRequest", own)
    assert not [link for link in outline.links if not re.fullmatch(r"points/\d{4}/report\.html", link)]
    assert len(outline.ids) == len(set(outline.ids))
    return outline


def written(result: Result, directory: Path) -> Outline:
    report.write(result, directory)
    assert [path.name for path in directory.iterdir()] == ["report.html"]
    return check_self_contained((directory / "report.html").read_text(encoding="utf-8"))


def unpacked(text: str, dtype: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype)


@pytest.mark.golden
def test_the_numbers_are_on_the_page(tmp_path: Path) -> None:
    page = written(tiny.two_ranks(), tmp_path)
    lines = page.text.split("\n")
    # makespan 10.0004 us; rank 0 computes 2.500001 us, rank 1 2.0004 us: 2.2502005 us on average, 22.5 %
    for text in ("10.00 us", "1.00004e-05 s", "2.250 us", "22.5 %", "2.000 us", "2.500 us", "tiny on pair"):
        assert text in lines
    assert "Predicted run of 2 ranks. Eight nodes of two cores" in page.text
    assert "informs [no-clock] the trace has <no> clock" in lines
    assert "made up, <b>too</b>" in lines
    assert "Nothing was sampled." in lines
    assert "scaled by cpu_ratio = 2 " in page.text
    assert "Links and adapters are never shared" in page.text
    assert "0 of 1 messages reach the eager threshold of 1 KiB" in page.text
    assert "cpu_ratio: 2.0\n" in page.text
    assert "MPI_Allreduce" in lines


@pytest.mark.contract
def test_equal_results_give_equal_bytes(tmp_path: Path) -> None:
    contents = []
    for _ in range(2):
        report.write(tiny.random_result(3, 3, 20), tmp_path)
        contents.append((tmp_path / "report.html").read_bytes())
    assert contents[0] == contents[1]


@pytest.mark.contract
def test_text_cannot_become_markup(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script>\"'&<!--"
    result = tiny.two_ranks(name=evil, sweep_point={evil: evil}, resolved={"model": {"network": evil}, evil: evil})
    result = replace(result, workload=replace(result.workload, notes=(informs("evil", evil),)))
    page = written(result, tmp_path)
    assert page.tags["script"] == 3
    assert page.text.count(evil) >= 4
    assert embedded_json({"a": evil}).count("<") == 0


@pytest.mark.contract
@pytest.mark.parametrize(
    "added",
    [
        '<script src="https://example.org/x.js"></script>',
        '<img src="x.png">',
        '<a href="https://example.org">there</a>',
        '<style>@import "x.css"</style>',
        '<p id="charts"></p>',
    ],
)
def test_the_check_fails_on_a_page_that_fetches(tmp_path: Path, added: str) -> None:
    report.write(tiny.two_ranks(), tmp_path)
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    with pytest.raises(AssertionError):
        check_self_contained(html.replace("</main>", f"{added}</main>"))


@pytest.mark.peer
def test_plotly_accepts_the_charts(tmp_path: Path) -> None:
    graph_objects = pytest.importorskip("plotly.graph_objects")
    page = written(tiny.random_result(3, 3, 20), tmp_path)
    assert set(page.charts) == {"timeline", "ranks", "matrix", "sizes"}
    for chart in page.charts.values():
        graph_objects.Figure(data=chart.get("data"), layout=chart["layout"])  # raises for what plotly does not know
    for element in page.charts:
        assert element in page.ids


@pytest.mark.contract
def test_the_bars_of_a_rank_add_up_to_the_makespan(tmp_path: Path) -> None:
    bars = written(tiny.two_ranks(), tmp_path).charts["ranks"]["data"]
    assert {bar["name"]: bar["y"] for bar in bars} == {
        "compute": [2.5, 2.0004],
        "receive": [0.0, 3.0005],
        "wait": [2.5005, 0.0],
        "collective": [3.9995, 4.9995],
        "idle": [1.0004, 0.0],
    }


@pytest.mark.contract
def test_states_have_one_distinct_colour_each() -> None:
    assert list(COLOURS) == list(CATEGORIES)
    assert len(set(COLOURS.values())) == len(COLOURS)


@pytest.mark.theory
def test_timeline_of_two_ranks() -> None:
    runs = timeline(tiny.two_ranks())
    assert runs.offsets.tolist() == [0, 5, 9]
    names = [CATEGORIES[category] for category in runs.category]
    assert names[:5] == ["compute", "wait", "compute", "collective", "idle"]
    assert names[5:] == ["compute", "receive", "collective", "compute"]
    assert runs.end_ps.tolist()[:5] == [1_500_000, 4_000_499, 5_000_500, 9_000_000, 10_000_400]
    assert (runs.bin_ps, runs.ranks_per_row) == (0.0, 1)


@pytest.mark.theory
def test_time_without_a_state_is_idle() -> None:
    load = tiny.workload(2, [tiny.operation(0, "init"), tiny.operation(1, "init")])
    ranks = tiny.states([(0, 0, 5, "compute", 0), (1, 2, 3, "compute", 0), (1, 4, 5, "overhead", 0)])
    runs = timeline(tiny.result(load, ranks, tiny.messages([])))
    assert runs.offsets.tolist() == [0, 1, 5]
    assert [CATEGORIES[category] for category in runs.category[1:]] == ["idle", "compute", "idle", "overhead"]
    assert runs.end_ps.tolist() == [5, 2, 3, 4, 5]


def time_in_runs(runs: report_data.Runs) -> np.ndarray:
    """ps of each row in each category."""
    spent = np.zeros((len(runs.offsets) - 1, len(CATEGORIES)), np.int64)
    for row, (first, last) in enumerate(zip(runs.offsets[:-1], runs.offsets[1:], strict=True)):
        lengths = np.diff(runs.end_ps[first:last], prepend=0)
        assert (lengths > 0).all()
        np.add.at(spent[row], runs.category[first:last], lengths)
    return spent


@pytest.mark.property
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), num_ranks=st.integers(1, 5), num_operations=st.integers(0, 30))
def test_the_timeline_holds_all_time(seed: int, num_ranks: int, num_operations: int) -> None:
    result = tiny.random_result(seed, num_ranks, num_operations)
    spent = report_data.time_by_state(result)
    assert (spent.sum(axis=1) == report_data.makespan_ps(result)).all()
    assert (time_in_runs(timeline(result)) == spent).all()


@pytest.mark.contract
def test_the_page_carries_the_timeline(tmp_path: Path) -> None:
    result = tiny.two_ranks()
    chart = written(result, tmp_path).charts["timeline"]
    runs = timeline(result)
    assert unpacked(chart["offsets"], "<u4").tolist() == runs.offsets.tolist()
    assert unpacked(chart["categories"], "u1").tolist() == runs.category.tolist()
    ends = unpacked(chart["ends"], "<u4") * (10_000_400 / (2**32 - 1))
    assert np.abs(ends - runs.end_ps).max() < 0.01
    assert chart["names"] == list(CATEGORIES)
    assert (chart["span"], chart["unit"]) == (pytest.approx(10.0004), "us")


@pytest.mark.property
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), num_ranks=st.integers(1, 4))
def test_a_long_timeline_keeps_what_takes_most_of_each_bin(seed: int, num_ranks: int) -> None:
    result = tiny.random_result(seed, num_ranks, 30)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report_data, "MAX_RUNS", 8 * num_ranks)
        patch.setattr(report_data, "MAX_BINS", 8 * num_ranks)
        runs = timeline(result)
    if not runs.bin_ps:
        return
    span = report_data.makespan_ps(result)
    assert runs.bin_ps == span / 8
    for rank in range(num_ranks):
        rows = [row for row in result.ranks.to_pylist() if row["rank"] == rank]
        end, category = (values[runs.offsets[rank] : runs.offsets[rank + 1]] for values in (runs.end_ps, runs.category))
        for index in range(8):
            low, high = span * index / 8, span * (index + 1) / 8
            covered = np.zeros(len(CATEGORIES))
            for row in rows:
                covered[STATES.index(row["state"])] += max(0.0, min(row["end_ps"], high) - max(row["start_ps"], low))
            covered[IDLE] = high - low - covered.sum()
            drawn = category[np.searchsorted(end, (low + high) / 2)]
            assert covered[drawn] >= covered.max() - 1


@pytest.mark.contract
def test_many_ranks_are_drawn_in_ranges_and_the_page_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_data, "MAX_ROWS", 2)
    monkeypatch.setattr(report_data, "MAX_CELLS", 2)
    result = tiny.random_result(3, 5, 20)
    runs = timeline(result)
    assert (len(runs.offsets) - 1, runs.ranks_per_row) == (2, 3)
    text = written(result, tmp_path).text
    assert "Each row is 3 of 5 ranks" in text
    assert "A cell of the matrix stands for 3 ranks each way." in text


@pytest.mark.property
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), num_ranks=st.integers(3, 7), most_runs=st.sampled_from([9, 1000]))
def test_a_row_of_several_ranks_has_the_state_that_takes_most_of_their_time(
    seed: int, num_ranks: int, most_runs: int
) -> None:
    """Against sums over all pairs of states and bins."""
    result = tiny.random_result(seed, num_ranks, 30)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report_data, "MAX_ROWS", 2)
        patch.setattr(report_data, "MAX_BINS", 16)
        patch.setattr(report_data, "MAX_RUNS", most_runs)
        runs = timeline(result)
    span, step = report_data.makespan_ps(result), runs.ranks_per_row
    num_bins = round(span / runs.bin_ps)
    assert num_bins == 8 or len(runs.end_ps) <= most_runs
    for row in range(len(runs.offsets) - 1):
        ranks = range(row * step, min((row + 1) * step, num_ranks))
        states = [each for each in result.ranks.to_pylist() if each["rank"] in ranks]
        end, category = (values[runs.offsets[row] : runs.offsets[row + 1]] for values in (runs.end_ps, runs.category))
        for index in range(num_bins):
            low, high = span * index / num_bins, span * (index + 1) / num_bins
            covered = np.zeros(len(CATEGORIES))
            for each in states:
                covered[STATES.index(each["state"])] += max(0.0, min(each["end_ps"], high) - max(each["start_ps"], low))
            covered[IDLE] = len(ranks) * (high - low) - covered.sum()
            drawn = category[np.searchsorted(end, (low + high) / 2)]
            assert covered[drawn] >= covered.max() - 1


@pytest.mark.contract
def test_chosen_ranks_are_drawn_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen_ranks, "MOST_RANKS", 3)
    monkeypatch.setattr(chosen_ranks, "MOST_CHOSEN", 2)
    monkeypatch.setattr(chosen_ranks, "_OF_PATH", 0)
    monkeypatch.setattr(chosen_ranks, "_LONGEST", 1)
    result = tiny.random_result(3, 5, 20)
    computing = report_data.time_by_state(result)[:, STATES.index("compute")]
    chosen = chosen_ranks.chosen_ranks(result)
    assert chosen is not None
    assert len(chosen.ranks) == 2
    assert int(np.argmax(computing)) in chosen.ranks
    runs = report_data.timeline_of_chosen(result, chosen.ranks)
    assert (time_in_runs(runs) == report_data.time_by_state(result)[chosen.ranks]).all()
    text = written(result, tmp_path).text
    assert "2 of 5 ranks: 0 on which the critical path is longest, 1 that compute longest" in text


@pytest.mark.property
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), num_ranks=st.integers(1, 6), max_cells=st.integers(1, 6))
def test_matrix_and_sizes_hold_every_message(seed: int, num_ranks: int, max_cells: int) -> None:
    result = tiny.random_result(seed, num_ranks, 30)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report_data, "MAX_CELLS", max_cells)
        matrix = message_matrix(result)
    assert matrix.num_cells <= max_cells
    count, total = Counter(), Counter()  # type: ignore[var-annotated]
    for row in result.messages.to_pylist():
        pair = row["source"] // matrix.ranks_per_cell, row["destination"] // matrix.ranks_per_cell
        count[pair] += 1
        total[pair] += row["bytes"]
    pairs = list(zip(matrix.source.tolist(), matrix.destination.tolist(), strict=True))
    assert dict(zip(pairs, matrix.count.tolist(), strict=True)) == count
    assert dict(zip(pairs, matrix.bytes.tolist(), strict=True)) == total
    sizes = message_sizes(result)
    for upper, number, amount in zip(sizes.upper_bytes, sizes.count.tolist(), sizes.bytes.tolist(), strict=True):
        mine = [s for s in result.messages.column("bytes").to_pylist() if upper // 2 < s <= upper or s == upper]
        assert (number, amount) == (len(mine), sum(mine))
    assert sum(sizes.count.tolist()) == result.messages.num_rows


@pytest.mark.theory
def test_calls_with_their_times() -> None:
    found = calls(tiny.two_ranks())
    # collective: 3,999,500 on rank 0, 4,999,501 on rank 1; receive 3,000,499; wait 2,500,499; by number where equal
    assert [kind.name for kind in found.kind] == ["allreduce", "recv", "wait", "init", "finalize", "isend"]
    assert found.time_ps.tolist() == [8_999_001, 3_000_499, 2_500_499, 0, 0, 0]
    assert found.count.tolist() == [2, 1, 1, 2, 2, 1]


@pytest.mark.contract
def test_without_messages_there_is_no_section_of_them(tmp_path: Path) -> None:
    page = written(replace(tiny.two_ranks(), messages=tiny.messages([])), tmp_path)
    assert "Point-to-point messages" not in page.text
    assert "matrix" not in page.charts


@pytest.mark.contract
def test_an_empty_run_has_a_report(tmp_path: Path) -> None:
    page = written(tiny.random_result(1, 2, 0), tmp_path)
    assert "0 s" in page.text.split("\n")


@pytest.mark.contract
def test_intervals_are_shown_where_something_was_sampled(tmp_path: Path) -> None:
    result = tiny.two_ranks()
    sampled = Statistic(1e-5, "s", "total", "predicted time", 9e-6, 1.2e-5)
    page = written(replace(result, statistics={**result.statistics, "application.makespan": sampled}), tmp_path)
    assert "9.000 us to 12.00 us" in page.text
    assert "Nothing was sampled." not in page.text


@pytest.mark.theory
@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (duration(0.0), "0 s"),
        (duration(0.0369618564), "36.96 ms"),
        (duration(1.0), "1.000 s"),
        (duration(999.94), "999.9 s"),
        (duration(12345.6), "12,346 s"),
        (duration(5e-12), "0.005000 ns"),
        (size(52_990_000), "52.99 MB"),
        (size(999), "999 B"),
        (binary_size(65536), "64 KiB"),
        (binary_size(1000), "1,000 B"),
        (percent(0.5427), "54.3 %"),
        (percent(0.0002), "< 0.1 %"),
        (percent(0.0), "0.0 %"),
    ],
)
def test_numbers_as_text(shown: str, expected: str) -> None:
    assert shown == expected


def sweep(axes: dict[str, list[Any]], **columns: list[float]) -> pa.Table:
    count = len(next(iter(axes.values())))
    return pa.table({"point_id": list(range(count)), **axes, **columns})


@pytest.mark.contract
def test_a_sweep_of_one_axis(tmp_path: Path) -> None:
    points = sweep(
        {"target.network.latency": ["10 us", "1 us", "100 us"]},
        **{
            "application.makespan": [0.02, 0.01, 0.05],
            "application.parallel_efficiency": [0.5, 0.75, 0.25],
            "application.load_balance": [0.9, 0.9, 0.9],
        },
    )
    for name in ("0000", "0002"):  # pages that were asked for
        (tmp_path / "points" / name).mkdir(parents=True)
        (tmp_path / "points" / name / "report.html").touch()
    write_sweep(points, ["target.network.latency"], tmp_path, "<b>sweep</b>")
    page = check_self_contained((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert page.links == ["points/0000/report.html", "points/0002/report.html"]
    assert "<b>sweep</b>" in page.text
    assert "10.00 ms (fastest)" in page.text
    makespan, efficiency = page.charts["makespan-0"], page.charts["efficiency-0"]
    (line,) = makespan["data"]
    assert (line["x"], line["y"]) == ([1e-6, 1e-5, 1e-4], [10.0, 20.0, 50.0])
    assert makespan["layout"]["xaxis"]["type"] == "log"
    assert makespan["layout"]["xaxis"]["ticktext"] == ["1 us", "10 us", "100 us"]
    assert [trace["name"] for trace in efficiency["data"]] == ["parallel", "load balance"]
    assert efficiency["data"][0]["y"] == [75.0, 50.0, 25.0]
    graph_objects = pytest.importorskip("plotly.graph_objects")
    for chart in page.charts.values():
        graph_objects.Figure(data=chart["data"], layout=chart["layout"])


@pytest.mark.contract
def test_a_sweep_of_two_axes_has_a_line_per_value_of_the_other(tmp_path: Path) -> None:
    points = sweep(
        {"cpu_ratio": [1.0, 1.0, 2.0, 2.0], "target": ["a", "b", "a", "b"]},
        **{"application.makespan": [1.0, 2.0, 3.0, 4.0], "application.parallel_efficiency": [0.1, 0.2, 0.3, 0.4]},
    )
    write_sweep(points, ["cpu_ratio", "target"], tmp_path, "two")
    charts = check_self_contained((tmp_path / "report.html").read_text(encoding="utf-8")).charts
    lines = {trace["name"]: (trace["x"], trace["y"]) for trace in charts["makespan-0"]["data"]}
    assert lines == {"target = a": ([1.0, 2.0], [1.0, 3.0]), "target = b": ([1.0, 2.0], [2.0, 4.0])}
    lines = {trace["name"]: (trace["x"], trace["y"]) for trace in charts["makespan-1"]["data"]}
    # bars show the change against the first point, which took 1 s; the first button says so
    assert lines == {"cpu_ratio = 1.0": (["a", "b"], [0.0, 100.0]), "cpu_ratio = 2.0": (["a", "b"], [200.0, 300.0])}
    assert [trace["y"] for trace in charts["efficiency-0"]["data"]] == [[10.0, 30.0], [20.0, 40.0]]


@pytest.mark.theory
@pytest.mark.parametrize(
    ("values", "positions", "kind"),
    [
        ([1, 2, 4], [1.0, 2.0, 4.0], "linear"),
        ([1, 100], [1.0, 100.0], "log"),
        (["1 GB/s", "2500 MB/s"], [1e9, 2.5e9], "linear"),
        (["1 us", "64 KiB"], ["1 us", "64 KiB"], "category"),
        (["inf B/s", "1 GB/s"], ["inf B/s", "1 GB/s"], "category"),
        ([True, False], ["True", "False"], "category"),
        (["block", [0, 1]], ["block", "[0, 1]"], "category"),
        ([0, 100], [0.0, 100.0], "linear"),
    ],
)
def test_axes_of_a_sweep(values: list[Any], positions: list[Any], kind: str) -> None:
    axis = axis_of("x", values)
    assert (axis.positions, axis.settings["type"]) == (positions, kind)
