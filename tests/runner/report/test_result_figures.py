"""Figures of plans, evaluations, profiles, predictions and calibrations: what they draw follows by hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from manyscale.models.memory.amm.profile_extrapolation import HitRate
from manyscale.models.memory.amm.sdcm import HitRates
from manyscale.models.memory.reuse_profile import COLD, ReuseProfile
from manyscale.models.workload.notes import Note, Severity
from manyscale.runner.predict.memory.prediction import Time
from manyscale.runner.report import evaluation_page, figures
from manyscale.runner.report.figures import calibration, prediction
from manyscale.runner.report.figures.evaluation import evaluation
from manyscale.runner.report.figures.memory import reuse_profiles
from manyscale.runner.run.calibration.network import calibrate_network
from manyscale.runner.run.evaluation import profiles

from .test_report import check_self_contained

go = pytest.importorskip("plotly.graph_objects")

NOTE = Note("made-up", Severity.changes, "of <b>something</b>")


@pytest.mark.theory
@pytest.mark.parametrize(("weights", "title"), [([0.5, 0.25, 0.25], "share"), ([10.0, 1.0, 4.0], "elements")])
def test_a_plan_shows_the_weights_of_the_first_kind(weights: list[float], title: str) -> None:
    table = pa.table(
        {
            "element_kind": ["interval"] * 3 + ["rank"], "element_id": [3, 7, 9, 0], "stratum": [0, 1, 1, 0],
            "weight": [*weights, 99.0], "model": ["simpoint"] * 4,
        }
    )  # fmt: skip
    figure = figures.plan(table)
    go.Figure(figure)
    assert [(trace["name"], trace["x"], trace["y"]) for trace in figure["data"]] == [
        ("group 0", [3.0], weights[:1]),
        ("group 1", [7.0, 9.0], weights[1:]),
    ]
    assert title in figure["layout"]["yaxis"]["title"]["text"]
    assert figures.plan(table.slice(0, 0))["data"] == []


def evaluated() -> pa.Table:
    rows = [
        ("a", "full", 0.0, None, None), ("a", "lazy", -0.02, 0.03, 1), ("a", "lazy", 0.06, 0.05, 0),
        ("b", "full", 0.0, None, None), ("b", "lazy", 0.01, None, None), ("b", "periodic", -0.005, None, None),
    ]  # fmt: skip
    names = ("workload", "method", "error", "half_width", "holds")
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])


@pytest.mark.theory
def test_an_evaluation_shows_the_mean_size_of_errors_and_their_span() -> None:
    figure = evaluation(evaluated())
    go.Figure(figure)
    first, second = figure["data"]
    assert (first["name"], first["x"], second["name"], second["x"]) == ("a", ["lazy"], "b", ["lazy", "periodic"])
    assert first["y"] == pytest.approx([4.0])  # of 2 and 6 per cent
    assert first["error_y"]["array"] == first["error_y"]["arrayminus"] == pytest.approx([2.0])
    assert second["y"] == pytest.approx([1.0, 0.5])
    assert first["customdata"][0].split("<br>") == [
        "4.00% in the mean of 2, 6.00% at most",
        "own interval: ±4.00%, holds 1 of 2 times",
    ]
    assert "interval" not in second["customdata"][0]
    assert evaluation(evaluated().slice(0, 1))["data"] == []


@pytest.mark.contract
def test_pages_of_evaluations_have_errors_by_method_and_notes(tmp_path: Path) -> None:
    row = profiles.Row(
        "<p>", "simpoint", 9, np.array([0.02, -0.04]), np.full(2, np.nan), np.zeros(2, bool), np.array([3, 3]),
        np.array([0.3, 0.3]), None, 0.1,
    )  # fmt: skip
    known = {"time": 1.0, "half_width": None, "holds": None, "detailed_share": 1.0, "cpu_seconds": 1.0, "speedup": 1.0}
    rows = [
        {"workload": "w", "cores": 4, "method": "full", "error": 0.0, "notes": [], **known},
        {"workload": "w", "cores": 8, "method": "lazy", "error": -0.25, "notes": [NOTE], **known},
    ]
    of_profiles = evaluation_page.profiles_page(profiles.Evaluation(2, [row], []), [NOTE])
    for text, y in ((of_profiles, 3.0), (evaluation_page.tasks_page(rows, tmp_path), 25.0)):
        page = check_self_contained(text)
        assert "changes [made-up] of <b>something</b>" in page.text.split("\n")
        assert page.charts["errors"]["data"][0]["y"] == pytest.approx([y])


@pytest.mark.theory
def test_a_profile_shows_the_probability_of_each_distance() -> None:
    """First uses count in the whole and have no bar; distance 0 stands at 0.5."""

    def part(*counts: tuple[int, float]) -> ReuseProfile:
        distance, count = (np.array(column) for column in zip(*counts, strict=True))
        return ReuseProfile.of(64, np.zeros(len(counts), np.int32), distance, count)

    small = [("one", part((COLD, 2.0), (0, 4.0), (3, 1.0))), ("other", part((1, 3.0)))]
    figure = reuse_profiles({"small": small})
    go.Figure(figure)
    assert [(trace["name"], trace["x"], trace["y"]) for trace in figure["data"]] == [
        ("one", [0.5, 3.0], [0.4, 0.1]),
        ("other", [1.0], [0.3]),
    ]
    assert figure["layout"]["barmode"] == "stack"
    both = reuse_profiles({"small": small, "large": [("one", part((2, 1.0)))]})
    assert [trace["visible"] for trace in both["data"]] == [True, True, False]
    button = both["layout"]["updatemenus"][0]["buttons"][1]
    assert (button["label"], button["args"][0]) == ("large", {"visible": [False, False, True]})


def predicted(times: dict[int, dict[str, Time]], measured: dict[int, float]) -> Any:
    rates = {10: HitRate(0.9, 0.8, 0.95), 20: HitRate(0.7, 0.7, 0.7)}
    known = {10: HitRates(("L1",), (0.85,)), 20: None}
    each = [
        SimpleNamespace(size=size, times=times.get(size, {}), sdcm={"L1": rates[size]}, set_aware=known[size])
        for size in rates
    ]
    return SimpleNamespace(predictions=each, caches={"L1": None}, measured=measured)


@pytest.mark.theory
def test_a_prediction_shows_times_above_hit_rates() -> None:
    times = {10: {"printed": Time(2.0, {}, 1.5, 4.0)}, 20: {"printed": Time(3.0, {}), "overlap": Time(1.0, {})}}
    figure = prediction.predict(predicted(times, {20: 1.1, 5: 0.2}))
    go.Figure(figure)
    traces = {(trace["name"], trace.get("yaxis", "y")): trace for trace in figure["data"]}
    assert list(traces) == [
        ("printed", "y"), ("overlap", "y"), ("measured", "y"), ("L1, SDCM", "y2"), ("L1, real sets", "y2"),
    ]  # fmt: skip
    printed, overlap, measured, sdcm, real = traces.values()
    assert (printed["x"], printed["y"]) == ([10, 20], [2.0, 3.0])
    assert (printed["error_y"]["array"], printed["error_y"]["arrayminus"]) == ([2.0, 0.0], [0.5, 0.0])
    assert (overlap["x"], overlap["y"]) == ([20], [1.0])
    assert (measured["x"], measured["y"], measured["mode"]) == ([5, 20], [0.2, 1.1], "markers")
    assert sdcm["y"] == [0.9, 0.7]
    assert sdcm["error_y"]["arrayminus"] == pytest.approx([0.1, 0.0])
    assert (real["x"], real["y"]) == ([10], [0.85])
    below, above = figure["layout"]["yaxis2"]["domain"], figure["layout"]["yaxis"]["domain"]
    assert below[1] < above[0]


@pytest.mark.contract
def test_a_prediction_without_times_shows_hit_rates() -> None:
    figure = prediction.predict(predicted({}, {}))
    assert [trace["name"] for trace in figure["data"]] == ["L1, SDCM", "L1, real sets"]


@pytest.mark.theory
def test_a_calibrated_network_shows_measured_and_fitted_times(tmp_path: Path) -> None:
    """A straight line through the sizes, 2 us and 1 GB/s, is fitted as it is."""
    sizes = [0, 8, 64, 512, 4096, 32768, 262144]
    rows = "".join(f"{size},{2e-6 + size * 1e-9:.12g}\n" for size in sizes)
    (tmp_path / "ping.csv").write_text(f"bytes,time_s\n{rows}")
    figure = calibration.network_times(calibrate_network([tmp_path / "ping.csv"]))
    go.Figure(figure)
    fitted, measured = figure["data"]
    assert measured["x"] == [0.5, *sizes[1:]]
    assert measured["y"] == pytest.approx([2.0 + size / 1e3 for size in sizes])
    assert fitted["y"] == pytest.approx([2.0 + x / 1e3 for x in fitted["x"]], rel=0.01)
    assert len(fitted["x"]) > len(sizes)


@pytest.mark.theory
def test_a_calibrated_node_shows_latency_in_cycles_and_bandwidth() -> None:
    """At 2 GHz a cycle takes 0.5 ns; 0.25 ns per byte are 4 GB/s."""
    best = {"clock": 0.5, "chase:4096": 2.0, "chase:1024": 1.5, "read:1024": 0.25}
    found: Any = SimpleNamespace(
        figures={name: SimpleNamespace(best=value) for name, value in best.items()},
        measured=SimpleNamespace(latency_cycles={"L1D": 3.5}),
        system=SimpleNamespace(data_caches={"L1D": SimpleNamespace(size_bytes=2048)}),
    )
    figure = calibration.node_latency(found)
    go.Figure(figure)
    (usual,) = figure["data"]
    assert (usual["name"], usual["x"], usual["y"]) == ("usual pages", [1024, 4096], [3.0, 4.0])
    cache, plateau = figure["layout"]["shapes"]
    assert (cache["x0"], plateau["y0"]) == (2048.0, 3.5)
    read = calibration.node_bandwidth(found)["data"][0]
    assert (read["name"], read["x"], read["y"]) == ("read", [1024], [4.0])
