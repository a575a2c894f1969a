"""``.plot()`` gives what the page of a result draws, and what a result prints never cuts a figure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from report.test_report import Outline

import manyscale as ms
from manyscale.models.workload.columns import text_array
from manyscale.runner.api.answer import Answer, _shortened
from manyscale.runner.api.comparisons import PopResult

PHASES = Path(__file__).parents[2] / "data" / "detail" / "phases.m.bb.xz"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(private_cache, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


def calibrated() -> Answer:
    rows = "".join(f"{size},{2e-6 + size * 1e-9:.12g}\n" for size in (0, 8, 64, 512, 4096, 32768, 262144))
    Path("ping.csv").write_text(f"bytes,time_s\n{rows}")
    return ms.calibrate("ping.csv")


RESULTS: dict[str, tuple[str, Callable[[], Answer]]] = {  # with the first chart of the page
    "plan": ("plan-0", lambda: ms.plan(PHASES, "simpoint")),
    "evaluate": ("errors", lambda: ms.evaluate(PHASES, methods=["simpoint", "random"], draws=3)),
    "profile": ("profile", lambda: ms.profile("matmul-10", target="laptop")),
    "predict": ("times", lambda: ms.predict("matmul", 40, target="epyc-zen4")),
    "calibrate": ("times", calibrated),
}


@pytest.mark.contract
@pytest.mark.parametrize("name", RESULTS)
def test_plot_draws_the_first_chart_of_the_page(name: str, tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    chart, make = RESULTS[name]
    found = make()
    drawn = found.plot().to_plotly_json()["data"]
    (page,) = found.save(tmp_path / "saved").glob("*.html")
    outline = Outline(page.read_text(encoding="utf-8"))
    assert next(each for each in outline.ids if each in outline.charts) == chart
    traces = outline.charts[chart]["data"]
    assert traces
    for mine, own in zip(drawn, traces, strict=False):  # predict draws the hit rates, too
        assert all(list(mine[axis]) == list(own[axis]) for axis in "xy")
        assert mine["name"] == own["name"]
    assert len(drawn) >= len(traces)


@pytest.mark.contract
def test_a_taken_folder_of_what_ifs_is_not_to_be_resumed(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(ms.UserError, match=r"full: is not empty; name another directory with output$"):
        ms.what_if("lulesh-8", output=tmp_path / "full")


@pytest.mark.contract
def test_lines_of_efficiencies_are_whole() -> None:
    names = ["lulesh-8 on crossbar256: 8 ranks", "a" * 200]
    table = pa.table(
        {
            "name": text_array(names), "num_ranks": [1024, 8], "run_time_ps": [37_530_000_000, 1],
            "speedup": [123.456, 1.0], "parallel_efficiency": [0.758, 1.0],
        }
    )  # fmt: skip
    text = repr(PopResult(table))
    assert "1024 ranks, 37.53 ms, speed-up 123.456, parallel efficiency 75.8 %\n" in text
    assert text.endswith("speed-up 1.000, parallel efficiency 100.0 %")
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.theory
@pytest.mark.parametrize(
    ("longest", "expected"),
    [
        (32, "8 ranks, 37.53 ms, speed-up 1.00"),
        (31, "8 ranks, 37.53 ms ..."),
        (21, "8 ranks, 37.53 ms ..."),
        (20, "8 ranks ..."),
        (9, "8 ..."),
        (5, "8 ..."),
    ],
)
def test_a_long_text_is_cut_between_its_parts(longest: int, expected: str) -> None:
    assert _shortened("8 ranks, 37.53 ms, speed-up 1.00", longest) == expected


@pytest.mark.theory
def test_a_long_word_is_cut_where_there_is_no_other_place() -> None:
    assert _shortened("a" * 9, 8) == "aaaa ..."
