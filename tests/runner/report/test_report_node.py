"""The report's sections on nodes, the machine's table and a sweep over cores: numbers derived by hand, bounded size."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyscale.runner.predict.node.tables import (
    CPI_STACKS_SCHEMA,
    MODELS,
    cores_table,
    task_instances_table,
)
from manyscale.runner.predict.statistic import Statistic
from manyscale.runner.problems import load_yaml
from manyscale.runner.report import run_page as report
from manyscale.runner.report.palette import LINE_COLOURS
from manyscale.runner.report.sections import node as report_node
from manyscale.runner.report.sections import task_types as report_task_types
from manyscale.runner.report.sections.machine import machine_table
from manyscale.runner.report.sweep_page import write_sweep
from manyscale.runner.run.results import Result
from manyscale.runner.study.targets import build_machine, shipped_targets

from . import tiny
from .test_report import Outline, check_self_contained

NAMES = ["solve", "<b>sweep</b>", "initial task"]


def cores(rows: Sequence[tuple[int, ...]], names: Sequence[str] = NAMES) -> pa.Table:
    """Rows: (rank, core, start, end, type)."""
    columns = [np.array([row[i] for row in rows], np.int64) for i in range(5)]
    return cores_table(names, *columns[:4], columns[0], columns[4], *[columns[0] * 0] * 5)


def instances(
    kind: Any, instructions: Any, cycles: Any, model: str = "detailed", names: Sequence[str] = NAMES
) -> pa.Table:
    """Instances of rank 0 and iteration 0 by number; each misses the first cache three times and the last once."""
    number = np.arange(len(kind))
    columns = (np.asarray(kind), np.asarray(instructions), np.asarray(cycles, float))
    misses = (np.full(len(number), 3), np.ones(len(number), np.int64))
    models = np.full(len(number), MODELS.index(model))
    others = [misses[1], number, *[np.full(len(number), -1)] * 6]
    return task_instances_table(names, number * 0, number * 0, number, *columns, *misses, models, *others)


def stacks(rows: Sequence[tuple[int, int, str, str, float, int]]) -> pa.Table:
    """Rows: (iteration, core, type, part, cycles, instructions)."""
    columns = [
        pa.array([0] * len(rows), pa.int32()),
        *(pa.array([row[i] for row in rows], pa.int32()) for i in range(2)),
        *(
            pa.array([row[i] for row in rows]).dictionary_encode().cast(CPI_STACKS_SCHEMA.field(i + 1).type)
            for i in (2, 3)
        ),
        pa.array([row[4] for row in rows], pa.float64()),
        pa.array([row[5] for row in rows], pa.int64()),
    ]
    return pa.Table.from_arrays(columns, schema=CPI_STACKS_SCHEMA)


def inside(**tables: Any) -> Result:
    """A result with a node's figures and the given tables."""
    result = tiny.two_ranks(**tables)
    figures = {
        "node.cores_per_rank": Statistic(3, "1", "count", "cores of each rank"),
        "node.ipc": Statistic(1.25, "1", "ratio", "of <all>", 1.2, 1.3),
    }
    return replace(result, statistics={**result.statistics, **figures})


def written(result: Result, directory: Path) -> Outline:
    report.write(result, directory)
    return check_self_contained((directory / "report.html").read_text(encoding="utf-8"))


@pytest.mark.contract
def test_without_nodes_there_is_no_section(tmp_path: Path) -> None:
    page = written(tiny.two_ranks(), tmp_path)
    assert "Inside the nodes" not in page.text
    assert not {"cores", "cpi", "ipc", "heat"} & set(page.charts)


@pytest.mark.contract
def test_figures_are_on_the_page_and_every_chart_is_plotly_s(tmp_path: Path) -> None:
    graph_objects = pytest.importorskip("plotly.graph_objects")
    tables = {
        "cores": cores([(0, 0, 0, 500, 0), (0, 1, 100, 900, 1)]),
        "cpi_stacks": stacks([(0, -1, "solve", "base", 1.0, 2), (0, 0, "initial task", "base", 3.0, 0)]),
        "task_instances": instances([0, 1, 1], [100, 200, 300], [50, 100, 100]),
    }
    page = written(inside(**tables), tmp_path)
    lines = page.text.split("\n")
    for text in ("node.cores_per_rank", "3", "1.25", "1.2 to 1.3", "of <all>", "<b>sweep</b>", "Where cycles go"):
        assert text in lines
    assert {"cores", "cpi", "core-cycles", "ipc", "heat"} < set(page.charts)
    for name in ("cores", "cpi", "core-cycles", "ipc", "heat"):
        chart = page.charts[name]
        assert chart["kind"] == "figure"
        graph_objects.Figure(data=chart["data"], layout=chart["layout"])  # raises for what plotly does not know
        assert name in page.ids
    again = tmp_path / "again"
    again.mkdir()
    report.write(inside(**tables), again)
    assert (again / "report.html").read_bytes() == (tmp_path / "report.html").read_bytes()


# ---- cores over time ----


@pytest.mark.theory
def test_a_column_has_the_type_that_takes_most_of_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Five columns of 100 ps, from 1,000 ps on; the type that takes most time, sweep, has the first colour."""
    monkeypatch.setattr(report_node, "MAX_BINS", 5)
    rows = [
        (7, 0, 1000, 1130, 1), (7, 0, 1130, 1200, 0),  # sweep, then 30 against 70 ps
        (7, 0, 1200, 1249, 0),  # not half of its column
        (7, 1, 1250, 1500, 1),  # just half, then whole columns
        (3, 0, 0, 9000, 0),  # a rank with fewer rows is not shown
    ]  # fmt: skip
    page = written(inside(cores=cores(rows)), tmp_path)
    chart = page.charts["cores"]
    (data,) = chart["data"]
    assert data["z"] == [[1, 2, 0, 0, 0], [0, 0, 1, 1, 1]]
    assert data["x"] == pytest.approx([1.0, 1.1, 1.2, 1.3, 1.4, 1.5])
    assert chart["layout"]["xaxis"]["title"]["text"] == "time (ns)"
    assert chart["layout"]["yaxis"]["title"]["text"] == "core of rank 7"
    colours = [colour for _, colour in data["colorscale"]][::2]
    assert colours[1:] == list(LINE_COLOURS[:2])
    assert "Of 2 ranks in these, the one with most of them is shown." in page.text
    legend = page.text[: page.text.index("Where the time goes")] + page.text
    assert legend.index("idle\n") < legend.rindex("<b>sweep</b>\n") < legend.rindex("solve\n")


@pytest.mark.property
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), bins=st.integers(1, 9))
def test_columns_against_a_count_of_every_picosecond(seed: int, bins: int) -> None:
    generator = np.random.default_rng(seed)
    rows = []
    for core in range(3):
        times = np.sort(generator.integers(5, 60, 8))
        rows += [
            (core, int(a), int(b), int(generator.integers(1, 4))) for a, b in zip(times[::2], times[1::2], strict=True)
        ]
    core, start, end, code = np.array(rows).T
    begin, finish = 5, 60
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report_node, "MAX_BINS", bins)
        found = report_node._majority(core, start, end, code, begin, finish)
    assert found.shape == (3, bins)
    parts = 1000  # of a picosecond, so that columns are whole numbers of them
    fine = np.zeros((4, 3, (finish - begin) * bins))
    for row, a, b, kind in rows:
        fine[kind, row, (a - begin) * bins : (b - begin) * bins] += 1
    share = fine.reshape(4, 3, bins, finish - begin).mean(axis=3)
    for row in range(3):
        for column in range(bins):
            value = found[row, column]
            busy = share[:, row, column].sum()
            if value == 0:
                assert busy < 0.5 + 1 / parts
            else:
                assert busy > 0.5 - 1 / parts
                assert share[value, row, column] >= share[:, row, column].max() - 1e-9


@pytest.mark.contract
def test_more_types_than_colours_share_the_last_one() -> None:
    names = [f"type {each}" for each in range(12)]
    code, legend = report_node._colour_codes(np.arange(11), np.arange(11)[::-1] + 5, names)
    assert len(legend) == len(LINE_COLOURS) + 1
    assert legend == ["idle", *names[: len(LINE_COLOURS) - 1], "other types"]
    assert code.tolist() == [1, 2, 3, 4, 5, 6, 7, 7, 7, 7, 7]
    code, legend = report_node._colour_codes(np.array([3, 4]), np.array([1, 2]), names)
    assert (code.tolist(), legend) == ([2, 1], ["idle", "type 4", "type 3"])


@pytest.mark.contract
def test_stretches_of_no_time_are_drawn() -> None:
    assert report_node._majority(*np.array([[0], [5], [5], [1]]), 5, 6).tolist() == [[0]]


# ---- cycles by cause ----


@pytest.mark.theory
def test_cycles_per_instruction_are_summed_over_cells(tmp_path: Path) -> None:
    """Of solve 30 + 50 instructions in two iterations: base (10 + 30) / 80, memory (20 + 40) / 80."""
    rows = [
        (0, -1, "solve", "base", 10.0, 30), (0, -1, "solve", "memory", 20.0, 30),
        (1, -1, "solve", "base", 30.0, 50), (1, -1, "solve", "memory", 40.0, 50),
        (0, -1, "initial task", "base", 5.0, 1000), (0, -1, "initial task", "memory", 0.0, 1000),
        (0, 0, "initial task", "base", 15.0, 0), (0, 0, "initial task", "idle", 5.0, 0),
        (1, 0, "initial task", "base", 5.0, 0), (1, 0, "initial task", "idle", 15.0, 0),
        (1, 2, "initial task", "branch", 0.0, 0), (1, 2, "initial task", "idle", 15.0, 0),
    ]  # fmt: skip
    charts = written(inside(cpi_stacks=stacks(rows)), tmp_path).charts
    bars = {bar["name"]: dict(zip(bar["x"], bar["y"], strict=True)) for bar in charts["cpi"]["data"]}
    assert bars["base"] == {"initial task": 0.005, "solve": 0.5}
    assert bars["memory"] == {"initial task": 0.0, "solve": 0.75}
    bars = {bar["name"]: bar["y"] for bar in charts["core-cycles"]["data"]}
    assert bars == {"base": [0.5, 0, 0], "memory": [0, 0, 0], "idle": [0.5, 0, 1.0]}
    markers = [{bar["name"]: bar["marker"] for bar in charts[name]["data"]} for name in ("cpi", "core-cycles")]
    assert markers[0]["memory"] == markers[1]["memory"]


@pytest.mark.contract
def test_many_parts_remain_distinct() -> None:
    names = [f"part {each}" for each in range(20)]
    markers = report_node.part_markers(names, np.arange(20) != 3)
    assert markers.pop("part 3") == {}
    assert len({json.dumps(marker) for marker in markers.values()}) == 19


# ---- task types ----


@pytest.mark.theory
def test_boxes_misses_and_predictability_by_hand(tmp_path: Path) -> None:
    """Instances of solve have 1,000 instructions and an IPC of 1.00, 1.01, ... 2.00."""
    ipc = 1 + np.arange(101) / 100
    kind = np.append(np.zeros(101, int), [1, 1])
    instructions = np.append(np.full(101, 1000), [10, 30])
    cycles = np.append(1000 / ipc, [10, 40])
    page = written(inside(task_instances=instances(kind, instructions, cycles)), tmp_path)
    (box,) = page.charts["ipc"]["data"]
    assert box["x"] == ["solve", "<b>sweep</b>"]
    first = {key: box[key][0] for key in ("lowerfence", "q1", "median", "q3", "upperfence")}
    assert first == pytest.approx({"lowerfence": 1.05, "q1": 1.25, "median": 1.5, "q3": 1.75, "upperfence": 1.95})
    lines = page.text.split("\n")
    row = lines.index("101 of 101")
    mean = 101_000 / cycles[:101].sum()
    # the spread of 1.00 ... 2.00 is 0.2915 / 1.5; three misses of the first cache and one of the last of 1,000
    assert [line for line in lines[row : row + 14] if line][:6] == [
        "101 of 101", "1,000", f"{mean:.3g}", "19.4 %", "3", "1"
    ]  # fmt: skip
    # sweep: the first instance stands for both: 20 instead of 50 cycles; the second: 80
    start = lines.index("Predictability")
    row = lines.index("<b>sweep</b>", start)
    cells = [line for line in lines[row : row + 12] if line]
    assert cells[1:4] == ["60.0 % (1)", "60.0 % (1)", "0.0 % (2)"]
    heat = page.charts["heat"]
    counts = [sum(count or 0 for row in trace["z"] for count in row) for trace in heat["data"]]
    assert counts == [101, 2]
    assert [choice["label"] for choice in heat["choices"]] == ["solve", "<b>sweep</b>"]
    assert [trace["visible"] for trace in heat["data"]] == [True, False]


@pytest.mark.contract
def test_what_was_fast_forwarded_is_left_out(tmp_path: Path) -> None:
    both = pa.concat_tables([instances([0, 0], [100, 100], [50, 50]), instances([0], [100], [1], "fast-forward")])
    page = written(inside(task_instances=both), tmp_path)
    assert "2 of 3" in page.text
    assert page.charts["ipc"]["data"][0]["upperfence"] == [2.0]
    assert "Predictability" not in page.text  # of what was not all simulated
    only = written(inside(task_instances=instances([0], [100], [1], "fast-forward")), tmp_path)
    assert "Task types" not in only.text


@pytest.mark.contract
def test_the_interval_model_counts_no_misses(tmp_path: Path) -> None:
    page = written(inside(task_instances=instances([0, 0], [100, 100], [50, 50], "interval")), tmp_path)
    lines = [line for line in page.text.split("\n") if line]
    assert lines[lines.index("2 of 2") + 4 :][:2] == ["-", "-"]
    assert "Predictability" not in page.text


@pytest.mark.contract
def test_instances_are_taken_in_the_order_of_creation(tmp_path: Path) -> None:
    """By iteration, then by number, whatever the order of the rows: the first is that of 10 cycles, of 40 in all."""
    table = instances([0, 0, 0], [10, 10, 10], [10, 10, 20])
    shuffled = table.take([2, 0, 1])
    page = written(inside(task_instances=shuffled), tmp_path)
    lines = page.text.split("\n")
    row = lines.index("all types")
    assert [line for line in lines[row : row + 6] if line][1] == "25.0 % (1)"


@pytest.mark.contract
def test_the_sections_are_of_bounded_size(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    names = [f"type {each}" for each in range(300)] + ["initial task"]
    count = 30_000
    kind = generator.integers(0, 300, count)
    start = np.sort(generator.integers(0, 10**9, count))
    columns = (np.zeros(count, int), generator.integers(0, 300, count), start, start + 3000, kind)
    tables = {
        "cores": cores_table(names, *columns[:4], np.arange(count), kind, *[columns[0]] * 5),
        "task_instances": instances(kind, generator.integers(1, 10**6, count), start + 1, names=names),
    }
    page = written(inside(**tables), tmp_path)
    sizes = {name: len(json.dumps(page.charts[name])) for name in ("cores", "ipc", "heat")}
    assert sum(sizes.values()) < 700_000
    assert len(page.charts["cores"]["data"][0]["z"]) == report_node.MAX_CORES
    assert f"The first {report_node.MAX_CORES} of 300 cores are shown." in page.text
    assert len(page.charts["ipc"]["data"][0]["x"]) == report_task_types.MAX_TYPES
    assert f"The {report_task_types.MAX_TYPES} types with most instructions are shown." in page.text


# ---- the machine ----


@pytest.mark.golden
@pytest.mark.parametrize(
    ("target", "texts"),
    [
        (
            "musa-high-performance",
            (
                "reorder buffer of 168, issues 4 and commits 4 per cycle",
                # Grass, table 6.3: 128 MB shared by 64 cores, 28 cycles, 20 ways; four channels of DDR3-1600
                "20 ways, 28 cycles, shared by 64 cores, 22.6 GB/s for a core, 1331 GB/s for all that share it",
                "65 ns, 51.2 GB/s for a core; all cores 51.2 GB/s",
                "4 channels of 12.8 GB/s, each 8 banks, rows of 8 KiB",
                "13.75 ns, 13.75 ns, 13.75 ns, 48.75 ns",
            ),
        ),
        ("marenostrum3", ("4 KiB, in the memory of the socket that first touches them",)),
    ],
)
def test_the_machine_s_memory_is_on_the_page(target: str, texts: tuple[str, ...]) -> None:
    machine = build_machine(load_yaml(shipped_targets()[target]), target)
    lines = Outline(machine_table(machine)).text.split("\n")
    for text in texts:
        assert any(line.endswith(text) for line in lines), text
    assert ("between sockets" in lines) == (target == "marenostrum3")


@pytest.mark.contract
def test_a_core_that_commits_more_than_it_issues_says_so() -> None:
    content = load_yaml(shipped_targets()["musa-high-performance"])
    content["node"]["core"]["commit"] = 7
    assert "issues 4 and commits 7 per cycle" in Outline(machine_table(build_machine(content, "seven"))).text


@pytest.mark.contract
def test_what_a_machine_does_not_say_is_left_out() -> None:
    text = Outline(machine_table(tiny.machine())).text
    for row in ("core\n", "main memory", "DRAM", "between sockets", "pages"):
        assert row not in text


# ---- sweeps ----


def sweep(directory: Path, axes: dict[str, list[Any]], **columns: list[Any]) -> Outline:
    table = pa.table({"point_id": list(range(len(next(iter(axes.values()))))), **axes, **columns})
    write_sweep(table, list(axes), directory, "sweep")
    page = check_self_contained((directory / "report.html").read_text(encoding="utf-8"))
    graph_objects = pytest.importorskip("plotly.graph_objects")
    for chart in page.charts.values():
        graph_objects.Figure(data=chart["data"], layout=chart["layout"])
    return page


@pytest.mark.theory
def test_speed_up_over_the_fewest_cores_of_each_line(tmp_path: Path) -> None:
    axes = {"mapping.cores_per_rank": [8, 2, 4, 8, 2, 4], "target": ["a"] * 3 + ["b"] * 3}
    columns = {
        "application.makespan": [2.0, 6.0, 3.0, 5.0, 5.0, 5.0],
        "node.mpki.first_cache": [3.0, 1.0, 2.0, 6.0, 4.0, 5.0],
    }
    page = sweep(tmp_path, axes, **columns)
    lines = {line["name"]: (line["x"], line["y"]) for line in page.charts["speed-up"]["data"]}
    assert lines == {
        "target = a": ([2.0, 4.0, 8.0], [1.0, 2.0, 3.0]),
        "target = b": ([2.0, 4.0, 8.0], [1.0, 1.0, 1.0]),
        "linear": ([2.0, 4.0, 8.0], [1.0, 2.0, 4.0]),
    }
    efficiencies = {line["name"]: line["y"] for line in page.charts["speed-up-efficiency"]["data"]}
    assert efficiencies == {"target = a": [100.0, 100.0, 75.0], "target = b": [100.0, 50.0, 25.0]}  # per cent
    misses = {line["name"]: line["y"] for line in page.charts["misses-0"]["data"]}
    assert misses == {"target = a": [1.0, 2.0, 3.0], "target = b": [4.0, 5.0, 6.0]}
    assert "misses-1" not in page.charts


@pytest.mark.contract
def test_a_sweep_of_one_rank_with_and_without_cores(tmp_path: Path) -> None:
    """A trace without tasks, of which cores say nothing, beside one with: nothing is known of one core."""
    for cores, shown in ((1, []), (4, ["parallel"])):
        columns = {
            "application.makespan": [2.0, 1.0], "application.ranks": [1, 1],
            "application.parallel_efficiency": [1.0, 0.5], "node.cores_per_rank": [None, cores],
        }  # fmt: skip
        page = sweep(tmp_path, {"cpu_ratio": [1.0, 2.0]}, **columns)
        assert [line["name"] for line in page.charts.get("efficiency-0", {"data": []})["data"]] == shown


@pytest.mark.theory
def test_a_sweep_says_what_cores_wait_for(tmp_path: Path) -> None:
    """Two machines, the second without a third cache: 6 of 8, and 3 of 4 cycles are for what is named."""
    columns: dict[str, list[Any]] = {
        "application.makespan": [2.0, 1.0],
        "node.ipc": [0.125, 0.25],
        "node.cpi": [8.0, 4.0],
        "node.cpi.base": [1.0, 3.0],
        "node.cpi.dependency": [1.0, 1.0],
        "node.cpi.L3": [6.0, None],
    }
    page = sweep(tmp_path, {"target": ["a", "b"]}, **columns)
    stacks = {bar["name"]: bar["y"] for bar in page.charts["node-stacks"]["data"]}
    assert stacks == {"base": [1.0, 3.0], "dependency": [1.0, 1.0], "L3": [6.0, 0.0]}
    assert "cores mostly wait for" in page.text
    assert "L3 75.0 %" in page.text
    assert "base 75.0 %" in page.text


@pytest.mark.contract
def test_names_are_groups_of_bars_and_numbers_lines(tmp_path: Path) -> None:
    axes = {"target": ["a", "a", "b", "b"], "node.core.width": [1, 4, 1, 4]}
    page = sweep(tmp_path, axes, **{"application.makespan": [4.0, 1.0, 5.0, 3.0]})
    bars, lines = page.charts["makespan-0"], page.charts["makespan-1"]
    assert [(bar["type"], bar["name"], bar["x"], bar["y"]) for bar in bars["data"]] == [
        ("bar", "width = 1", ["a", "b"], [0.0, 25.0]),  # per cent more than the first point's 4 s
        ("bar", "width = 4", ["a", "b"], [-75.0, -25.0]),
    ]
    times = bars["layout"]["updatemenus"][0]["buttons"][1]["args"][0]["y"]
    assert times == [[4.0, 5.0], [1.0, 3.0]]
    assert bars["layout"]["barmode"] == "group"
    assert bars["layout"]["showlegend"]
    assert {line["type"] for line in lines["data"]} == {"scatter"}
    assert "speed-up" not in page.charts
