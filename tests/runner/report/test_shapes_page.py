"""The page of a sweep over shapes: what does not fit into a GPU's memory is never the best."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from manyscale.runner.report.sections import shapes
from manyscale.runner.report.sweep_page import write_sweep
from manyscale.runner.study.shapes import PREFIX

AXIS = f"{PREFIX}tp"


def table(step_s: list[float], share: list[float | None]) -> pa.Table:
    whole = {"step.whole": step_s, "application.makespan": step_s}
    rates = {"step.tokens_per_second": [1000 / each for each in step_s]}
    memory = {"step.memory": [1e9 * (each or 0.0) for each in share], "step.memory_share": share}
    parts = {name: [0.25] * len(step_s) for name in shapes.COLUMNS if name.startswith("gpu.time.")}
    return pa.table(
        {"point_id": range(len(step_s)), AXIS: range(1, 1 + len(step_s)), **whole, **rates, **memory, **parts}
    )


def told(page: str) -> list[str]:
    cells = re.findall(r"<td[^>]*>(\d{4})</td>", page)
    cards = re.findall(r'<div class="value">([^<]*)</div><div class="exact">([^<]*)</div>', page)
    return [*cells, *(text for card in cards for text in card)]


def test_what_does_not_fit_is_neither_first_nor_fastest(tmp_path: Path) -> None:
    write_sweep(table([0.125, 0.5, 0.25], [1.5, 0.5, 0.25]), [AXIS], tmp_path, "shapes")
    page = (tmp_path / "report.html").read_text()
    assert told(page) == [
        "0002", "0001", "0000", "250.0 ms", f"{AXIS} = 3", "500.0 ms", f"{AXIS} = 2", "2",
        "3 points, 2 of which fit into memory",
    ]  # fmt: skip
    assert page.count("(too much)") == 1


@pytest.mark.parametrize("share", [[1.5, 2.0], [None, None]])
def test_where_none_fits_or_nothing_is_known_all_count(tmp_path: Path, share: list[float | None]) -> None:
    write_sweep(table([0.125, 0.5], share), [AXIS], tmp_path, "shapes")
    assert {"125.0 ms", "500.0 ms", "4"} <= {*told((tmp_path / "report.html").read_text())}


def test_a_table_that_is_cut_says_so() -> None:
    assert shapes.note({"point_id": list(range(2_000))}).startswith("By tokens")
    assert shapes.note({"point_id": list(range(2_001))}).startswith("The best 2,000 of 2,001. By tokens")
