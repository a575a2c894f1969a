"""What a page shows of large sweeps."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from browser import browser as browser
from browser import visit

from manyscale.runner.report.figures.drawn_points import FASTEST_ROWS, MOST_ALONG, MOST_LINES, MOST_ROWS, drawn, listed
from manyscale.runner.report.figures.sweep import lines_of
from manyscale.runner.report.sweep_page import write_sweep

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def grid(*sizes: int) -> tuple[dict[str, list[float]], list[str]]:
    axes = [f"axis{number}" for number in range(len(sizes))]
    rows = list(itertools.product(*(range(size) for size in sizes)))
    columns: dict[str, list[float]] = {name: [float(row[k]) for row in rows] for k, name in enumerate(axes)}
    return columns | {"application.makespan": [1.0 + sum(row) for row in rows]}, axes


@pytest.mark.contract
@pytest.mark.parametrize("sizes", [(3,), (5, 24), (2, 3, 4)])
def test_all_of_a_small_sweep_is_drawn(sizes: tuple[int, ...]) -> None:
    points, axes = grid(*sizes)
    assert drawn(points, axes, 0) == (points, "")
    assert listed(points) == (list(range(len(points["axis0"]))), "")


@pytest.mark.contract
@pytest.mark.parametrize(("sizes", "along"), [((300,), 0), ((30, 40), 0), ((30, 40), 1), ((6, 7, 8), 1), ((2, 400), 1)])
def test_of_a_large_sweep_whole_lines_between_its_ends_are_drawn(sizes: tuple[int, ...], along: int) -> None:
    points, axes = grid(*sizes)
    some, words = drawn(points, axes, along)
    lines = lines_of(some, axes, along)
    assert 1 < len(lines) <= MOST_LINES or len(sizes) == 1
    assert {len(line) for line in lines.values()} == {min(sizes[along], MOST_ALONG)}
    for name in axes:
        assert (min(some[name]), max(some[name])) == (min(points[name]), max(points[name]))
        assert (name in words) == (set(some[name]) != set(points[name]))


@pytest.mark.contract
def test_the_table_of_a_large_sweep_has_the_fastest_points_and_says_what_it_leaves_out() -> None:
    points, _ = grid(100, 50)
    rows, words = listed(points)
    times = points["application.makespan"]
    assert len(set(rows)) == len(rows) == MOST_ROWS
    assert sorted(times[row] for row in rows)[:FASTEST_ROWS] == sorted(times)[:FASTEST_ROWS]
    assert {0, len(times) - 1} <= set(rows)
    assert "2,000 of 5,000 points" in words


@pytest.mark.contract
def test_the_page_of_ten_thousand_points_stays_small(tmp_path: Path) -> None:
    points, axes = grid(100, 100)
    table = pa.table({"point_id": list(range(10_000)), **points, "application.parallel_efficiency": [0.5] * 10_000})
    write_sweep(table, axes, tmp_path, "large")
    page = (tmp_path / "report.html").read_text()
    page = re.sub(r'<script type="application/octet-stream".*?</script>', "", page, flags=re.S)
    assert len(page) < 1_000_000
    assert "2,000 of 10,000 points" in page
    assert "24 of 100 values of axis1" in page


@pytest.mark.slow
def test_a_long_table_is_shown_by_pages(tmp_path: Path, browser: Browser) -> None:
    points, axes = grid(15, 20)
    write_sweep(pa.table({"point_id": list(range(300)), **points}), axes, tmp_path, "large")
    with visit(browser, (tmp_path / "report.html").as_uri()) as visited:
        page, shown = visited.page, "table.paged tbody tr:visible td:first-child"
        assert page.locator(shown).all_inner_texts() == [f"{index:04d}" for index in range(100)]
        page.get_by_role("button", name="Next").click()
        assert page.locator(shown).all_inner_texts() == [f"{index:04d}" for index in range(100, 200)]
        page.get_by_role("searchbox").fill("0299")
        assert page.locator(shown).all_inner_texts() == ["0299"]
        assert page.get_by_role("status").inner_text().strip() == "1 to 1 of 1 rows"
        assert visited.errors == []
