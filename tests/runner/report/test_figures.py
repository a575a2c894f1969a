"""Figures of results: what they draw follows from the tables, and plotly takes all of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyscale.runner.report import figures
from manyscale.runner.report.data import CATEGORIES
from manyscale.runner.report.figures.labels import MOST_LABELLED, spread
from manyscale.runner.report.figures.timeline import MAX_COLUMNS
from manyscale.runner.report.palette import LINE_COLOURS, line_style, line_symbol

from . import tiny

go = pytest.importorskip("plotly.graph_objects")


def views(figure: dict[str, Any]) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """What each button changes: of the traces, and of the layout. Plotly takes the figure, and each view of it."""
    whole = go.Figure(figure)
    buttons = figure["layout"].get("updatemenus", [{"buttons": []}])[0]["buttons"]
    for button in buttons:
        changed, layout = button["args"]
        shown = go.Figure(figure).update_layout({key.replace(".", "_"): value for key, value in layout.items()})
        assert all(len(values) == len(whole.data) for values in changed.values())
        assert shown.layout.yaxis is not None
    return {button["label"]: tuple(button["args"]) for button in buttons}


def sweep_of(axes: dict[str, list[Any]], seconds: list[float]) -> pa.Table:
    return pa.table({"point_id": list(range(len(seconds))), **axes, "application.makespan": seconds})


@pytest.mark.theory
def test_a_sweep_shows_change_in_per_cent_of_the_first_point() -> None:
    figure = figures.sweep(sweep_of({"cpu_ratio": [1.0, 2.0, 3.0]}, [0.040, 0.036, 0.050]), ["cpu_ratio"])
    found = views(figure)
    assert list(found) == ["Time", "Time from zero", "Change"]
    changed, layout = found["Change"]
    assert changed["y"] == [pytest.approx([0.0, -10.0, 25.0])]
    assert layout["yaxis.zeroline"]
    assert "%" in layout["yaxis.title.text"]
    # the first view spans the values, in the unit that fits them; another begins at zero
    assert figure["data"][0]["y"] == pytest.approx([40.0, 36.0, 50.0])
    assert figure["layout"]["yaxis"]["rangemode"] == "normal"
    assert figure["layout"]["yaxis"]["title"]["text"] == "predicted time (ms)"
    assert found["Time from zero"][1]["yaxis.rangemode"] == "tozero"


@pytest.mark.theory
@pytest.mark.parametrize(("largest", "kind"), [(0.39, "linear"), (0.4, "log"), (40.0, "log")])
def test_times_over_decades_have_a_logarithmic_axis(largest: float, kind: str) -> None:
    """From 20 times the smallest on."""
    figure = figures.sweep(sweep_of({"cpu_ratio": [1.0, 2.0]}, [0.02, largest]), ["cpu_ratio"])
    assert figure["layout"]["yaxis"]["type"] == kind
    assert views(figure)["Change"][1]["yaxis.type"] == "linear"


@pytest.mark.theory
def test_bars_of_names_stand_on_zero() -> None:
    figure = figures.sweep(sweep_of({"target": ["a", "b", "c"]}, [2.0, 1.9, 2.2]), ["target"])
    assert list(views(figure)) == ["Change", "Time from zero"]
    assert figure["data"][0]["y"] == pytest.approx([0.0, -5.0, 10.0])
    assert figure["layout"]["yaxis"]["rangemode"] == "tozero"


@pytest.mark.contract
def test_a_dozen_lines_are_told_apart_and_named_at_their_ends() -> None:
    names = [f"m{number}" for number in range(12)]
    points = list(itertools.product(names, (1.0, 2.0)))
    seconds = [1.0 + 0.001 * number for number in range(len(points))]
    table = sweep_of({"target": [name for name, _ in points], "cpu_ratio": [ratio for _, ratio in points]}, seconds)
    figure = figures.sweep(table, ["target", "cpu_ratio"], along=1)
    looks = {(each["line"]["color"], each["line"]["dash"], each["marker"]["symbol"]) for each in figure["data"]}
    assert len(figure["data"]) == len(looks) == 12
    labels = figure["layout"]["annotations"]
    assert [label["text"] for label in labels] == [f"target = {name}" for name in names]
    assert not figure["layout"]["showlegend"]
    # each beside the last point of its line
    assert [label["x"] for label in labels] == [2.0] * 12
    assert [label["y"] for label in labels] == [trace["y"][-1] for trace in figure["data"]]


@pytest.mark.contract
def test_more_lines_than_have_room_have_a_legend() -> None:
    names = [f"m{number:02d}" for number in range(MOST_LABELLED + 1)]
    points = list(itertools.product(names, (1.0, 2.0)))
    table = sweep_of({"target": [a for a, _ in points], "cpu_ratio": [b for _, b in points]}, [1.0] * len(points))
    layout = figures.sweep(table, ["target", "cpu_ratio"], along=1)["layout"]
    assert layout["showlegend"]
    assert layout["annotations"] == []


@pytest.mark.contract
def test_no_two_of_56_lines_look_the_same() -> None:
    looks = {(*line_style(index), line_symbol(index)) for index in range(56)}
    assert len(looks) == 56
    assert len({line_symbol(index) for index in range(8)}) == 8
    assert len(set(LINE_COLOURS)) == len(LINE_COLOURS)


@pytest.mark.property
@given(wanted=st.lists(st.floats(0, 300), min_size=1, max_size=24))
def test_spread_labels_are_apart_in_order_and_no_further_than_needed(wanted: Sequence[float]) -> None:
    gap = 15.0
    placed = spread(wanted, gap)
    order = np.argsort(wanted, kind="stable")
    steps = np.diff(np.array(placed)[order])
    assert (steps >= gap - 1e-6).all()
    if (np.diff(np.array(wanted)[order]) >= gap).all():  # apart already
        assert placed == pytest.approx(list(wanted))
    # a shift of all together cannot be better: the least squares have no mean move
    assert float(np.mean(np.array(placed) - np.array(wanted))) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.theory
def test_what_ifs_are_changes_against_their_own_base() -> None:
    table = pa.table(
        {
            "point_id": [0, 1, 2, 3],
            "cpu_ratio": [1.0, 1.0, 2.0, 2.0],
            "what_if": ["base", "zero-latency", "base", "zero-latency"],
            "makespan_seconds": [2.0, 1.5, 4.0, 4.4],
            "base_seconds": [2.0, 2.0, 4.0, 4.0],
            "change_seconds": [0.0, -0.5, 0.0, 0.4],
            "speedup": [1.0, 2.0 / 1.5, 1.0, 4.0 / 4.4],
        }
    )
    figure = figures.what_if(table)
    assert [(trace["name"], trace["y"], trace["x"]) for trace in figure["data"]] == [
        ("cpu_ratio = 1.0", ["zero-latency"], pytest.approx([-25.0])),
        ("cpu_ratio = 2.0", ["zero-latency"], pytest.approx([10.0])),
    ]
    assert figure["layout"]["xaxis"]["zeroline"]
    assert figure["data"][0]["text"] == ["-25.0 % (-500.0 ms)"]
    times = views(figure)["Time"][0]
    assert times["x"] == [[2.0, 1.5], [4.0, 4.4]]


@pytest.mark.theory
def test_a_comparison_shows_groups_that_differ() -> None:
    rows = [
        ("figure", "makespan", 1.0, 1.2, 0.2, "s"),
        ("state", "compute", 0.5, 0.7, 0.2, "s"),
        ("state", "wait", 0.4, 0.3, -0.1, "s"),
        ("state", "send", 0.1, 0.1, 0.0, "s"),
        ("launch", "launch 0 of k", 100.0, 90.0, -10.0, "cycles"),
        ("rank", "rank 0, wait", 0.4, 0.4, 0.0, "s"),
    ]
    names = ("group", "item", "a", "b", "difference", "unit")
    figure = figures.compare(pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows]))
    found = views(figure)
    assert list(found) == ["By state", "By launch"]
    changed, layout = found["By state"]
    assert changed["y"] == [["compute", "wait"]]
    assert changed["x"] == [pytest.approx([200.0, -100.0])]
    assert layout["xaxis.title.text"] == "B - A (ms)"
    assert changed["text"] == [["+200.0 ms (+40.0 %)", "-100.0 ms (-25.0 %)"]]
    longer, shorter = changed["marker.color"][0]
    assert longer != shorter
    assert found["By launch"][0]["x"] == [[-10.0]]


def scaling_table(labels: list[str], cores: list[int | None], seconds: list[float | None]) -> pa.Table:
    known = [(n, t) for n, t in zip(cores, seconds, strict=True) if n and t]
    first = min(known)[1] if known else 1.0
    speed_up = [None if t is None else first / t for t in seconds]
    return pa.table(
        {
            "label": pa.array(labels), "num_ranks": pa.array([8] * len(labels), pa.int64()),
            "num_cores": pa.array(cores, pa.int64()), "makespan_s": pa.array(seconds, pa.float64()),
            "speed_up": pa.array(speed_up, pa.float64()),
            "efficiency": pa.array([None] * len(labels), pa.float64()),
        }
    )  # fmt: skip


@pytest.mark.theory
def test_scaling_against_the_ideal() -> None:
    figure = figures.scaling(scaling_table(["a", "b", "c"], [32, 8, 16], [1.0, 2.0, 1.25]))
    own, ideal = figure["data"]
    assert (own["x"], own["y"]) == ([8.0, 16.0, 32.0], pytest.approx([1.0, 1.6, 2.0]))
    assert (ideal["x"], ideal["y"]) == ([8.0, 16.0, 32.0], [1.0, 2.0, 4.0])
    found = views(figure)
    assert found["Time"][0]["y"][1] == pytest.approx([2.0, 1.0, 0.5])
    assert found["Efficiency"][0]["y"][1] == [100.0, 100.0, 100.0]
    assert figure["layout"]["xaxis"]["type"] == "log"  # four times as many


@pytest.mark.contract
def test_rows_of_one_label_are_a_line() -> None:
    figure = figures.scaling(scaling_table(["a", "a", "b", "b"], [1, 2, 1, 2], [4.0, 2.0, 8.0, 5.0]))
    assert [trace["name"] for trace in figure["data"]] == ["a", "b", "ideal"]


@pytest.mark.contract
def test_without_times_there_is_nothing_to_draw() -> None:
    assert figures.scaling(scaling_table(["a"], [8], [None]))["data"] == []
    assert figures.sweep(sweep_of({}, []), [])["data"] == []
    empty = pa.table({name: pa.array([], pa.string()) for name in ("group", "item", "a", "b", "difference", "unit")})
    assert figures.compare(empty)["data"] == []


@pytest.mark.theory
def test_the_timeline_has_the_state_that_takes_most_of_each_column() -> None:
    figure = figures.timeline(tiny.two_ranks())
    go.Figure(figure)
    heat = figure["data"][0]
    z = np.array(heat["z"])
    assert z.shape == (2, MAX_COLUMNS)
    # rank 0 computes to 1.5 us of 10.0004, waits to 4.0005, computes to 5.0005, is in a collective to 9, and is idle
    names = [CATEGORIES[z[0, int(us / 10.0004 * MAX_COLUMNS)]] for us in (0.5, 2.0, 4.5, 7.0, 9.5)]
    assert names == ["compute", "wait", "compute", "collective", "idle"]
    assert heat["x0"] == pytest.approx(10.0004 / MAX_COLUMNS / 2)
    assert [trace["name"] for trace in figure["data"][1:]] == [CATEGORIES[i] for i in np.unique(z)]


@pytest.mark.contract
def test_equal_tables_give_equal_figures() -> None:
    table = sweep_of({"cpu_ratio": [1.0, 2.0], "target": ["a", "b"]}, [1.0, 2.0])
    assert figures.sweep(table, ["cpu_ratio", "target"]) == figures.sweep(table, ["cpu_ratio", "target"])
    assert figures.timeline(tiny.two_ranks()) == figures.timeline(tiny.two_ranks())
