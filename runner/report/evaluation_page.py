"""The pages of ``manyscale evaluate``: of samples of profiles, and of task instances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from manyscale.models.workload.columns import one_chunk
from manyscale.models.workload.notes import Note, in_order
from manyscale.runner.report.figures.evaluation import evaluation
from manyscale.runner.report.page import Page
from manyscale.runner.report.sections.phases import phases_over_time
from manyscale.runner.report.text import notes_html, table
from manyscale.runner.run.evaluation import profiles, tasks
from manyscale.runner.run.evaluation.profiles import Evaluation

_ONE: Final = {"intervals": "interval", "units": "unit", "launches": "launch"}
_BARS: Final = "Bars: the mean size of the errors; lines: from the least to the largest, over all"


def profiles_page(found: Evaluation, notes: Sequence[Note] = ()) -> str:
    """Errors, and of methods that find phases CPI over the run, by phase."""
    page = Page("Samples of profiles against the whole", f"Estimates of CPI, {found.seeds} seeds for each method.")
    page.add("", notes_html(notes))
    header = (
        "profile",
        "method",
        "elements",
        "of",
        "mean error",
        "largest",
        "half-width",
        "holds",
        "IPC within phases",
    )
    cells = [
        (
            row.profile, row.method, f"{row.sizes.mean():.1f}", f"{row.population:,}",
            f"{np.abs(row.errors).mean():.2%}", f"{np.abs(row.errors).max():.2%}",
            "" if row.half_width is None else f"{row.half_width:.2%}", "" if row.held is None else f"{row.held:.0%}",
            profiles.shown_share(row.within),
        )
        for row in found.rows
    ]  # fmt: skip
    chart = _errors(page, profiles.table(found.rows))
    page.add("Errors", chart, table(header, cells, numeric_from=2), note=f"{_BARS} seeds.")
    for number, (profile, method, choice) in enumerate(found.shown):
        names = [f"phase {each}" for each in range(int(choice.label.max()) + 1)]
        chart = phases_over_time(
            page, f"phases-{number}", profile.cpi, choice.label, choice.element, names, one=_ONE[profile.kind],
            caption=f"CPI of {profile.name} by phase",
        )  # fmt: skip
        page.add(
            f"{profile.name}: {method}", chart, note=f"CPI of the {profile.kind} in their order, by phase; of seed 0."
        )
    return page.html()


def tasks_page(rows: Sequence[Mapping[str, Any]], directory: Path) -> str:
    """All rows, and CPI over the task instances by task type as they are in full detail, with those that each method
    simulated in detail; of the first number of cores."""
    page = Page("Samples of task instances against full detail", "Errors of the time of the simulated iterations.")
    page.add("", notes_html(in_order(note for row in rows for note in row["notes"])))
    header = ("workload", "cores", "method", "error", "half-width", "holds", "in detail", "speed-up")
    sampled = [row for row in rows if row["method"] != tasks.FULL]
    cells = [
        (
            row["workload"], str(row["cores"]), row["method"], f"{row['error']:+.2%}",
            tasks.shown_share(row["half_width"]),
            "" if row["holds"] is None else "yes" if row["holds"] else "no", f"{row['detailed_share']:.2%}",
            f"{row['speedup']:.1f}",
        )
        for row in sampled
    ]  # fmt: skip
    chart = _errors(page, tasks.table(rows))
    page.add("Errors", chart, table(header, cells, numeric_from=3), note=f"{_BARS} numbers of cores.")
    for number, row in enumerate(sampled):
        if row["cores"] == rows[0]["cores"]:
            full, own = (
                pq.read_table(
                    tasks.place(directory, row["workload"], row["cores"], method) / "timeline/task_instances.parquet"
                )
                for method in (tasks.FULL, row["method"])
            )
            kind = one_chunk(full.column("task_type"))
            cpi = np.array(full.column("cycles")) / np.maximum(np.array(full.column("instructions")), 1)
            detailed = np.flatnonzero(np.array(own.column("model").to_pylist()) == "detailed")
            chart = phases_over_time(
                page, f"instances-{number}", cpi, np.array(kind.indices), detailed, kind.dictionary.to_pylist(),
                one="task instance", caption=f"CPI of {row['workload']} by task type",
            )  # fmt: skip
            note = "CPI of task instances in full detail, in the order of their creation; marked: simulated in detail."
            page.add(f"{row['workload']}, {row['cores']} cores: {row['method']}", chart, note=note)
    return page.html()


def _errors(page: Page, found: pa.Table) -> str:
    return page.chart("errors", "figure", 360, evaluation(found), "error of each method") if found.num_rows else ""
