"""``stats.json`` is the text that Python's own encoder makes."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from manyscale.models.workload.notes import Note, changes, informs
from manyscale.runner.predict.statistic import Statistic
from manyscale.runner.report.statistics import write_figures


@pytest.mark.contract
@pytest.mark.parametrize("notes", [(), (changes("a-b", 'says "x" \u00e9\n', "here", 3), informs("c", "d"))])
def test_stats_json_is_as_json_dumps_has_it(notes: tuple[Note, ...], tmp_path: Path) -> None:
    figures = {
        "application.makespan": Statistic(0.1, "s", "total", 'of "all"', 0.05, 1e-30),
        "a\u00fc.b": Statistic(2**70, "1", "count", "\\ and \u2264"),
        "c": Statistic(float("inf"), "B/s", "mean", "", None, float("nan")),
    }
    write_figures(figures, "title", tmp_path, notes)
    order = ("value", "unit", "kind", "ci_low", "ci_high", "description")
    content: dict[str, object] = {name: {key: asdict(each)[key] for key in order} for name, each in figures.items()}
    count = sum(str(note.severity) != "informs" for note in notes)
    text = "notes on what the figures leave out or guess"
    whole = asdict(Statistic(count, "1", "count", text))
    content["notes"] = {key: whole[key] for key in order} | {"list": [asdict(note) for note in notes]}
    assert (tmp_path / "stats.json").read_text() == json.dumps(content, indent=1) + "\n"
