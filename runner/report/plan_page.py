"""The page of ``manyscale plan``: what a method, or a study, chose to simulate, and what each choice stands for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload.columns import to_numpy
from manyscale.models.workload.notes import Note
from manyscale.runner.report import figures
from manyscale.runner.report.figures.plan import of_kind
from manyscale.runner.report.page import Page
from manyscale.runner.report.text import cards_html, escape, notes_html
from manyscale.runner.report.text import table as html_table

MOST_ROWS: Final = 100
_PLURAL: Final = {"launch": "launches"}


def page(table: pa.Table, title: str, summary: str = "", notes: Sequence[Note] = ()) -> str:
    """The page of a table of ``plan.parquet``: element_kind, element_id, stratum, weight, model; ``summary``: what the
    command prints of it. Equal tables give equal text."""
    made = Page(title, "What would be simulated, and how much of the whole each choice stands for.")
    kind_of = table.column("element_kind").to_pylist()
    kinds = list(dict.fromkeys(kind_of))
    cards = [(_many(kind).capitalize(), f"{kind_of.count(kind):,}", "") for kind in kinds]
    strata = len(set(table.column("stratum").to_pylist()) - {None})
    models = list(dict.fromkeys(map(str, table.column("model").to_pylist())))
    cards.append(("Groups", f"{strata:,}", "strata, phases or clusters"))
    cards.append(("Method", ", ".join(models), ""))
    lines = "".join(f"<p>{escape(line)}</p>" for line in summary.splitlines() if line.strip())
    made.add("", cards_html(cards, first=""), notes_html(notes))
    made.add("What the method says", lines)
    for number, kind in enumerate(kinds):
        own = of_kind(table, kind)
        made.add(
            f"Chosen {_many(kind)}",
            made.chart(f"plan-{number}", "figure", 380, figures.plan(own), f"weight of each chosen {kind}"),
            _strata(own),
            note=f"Each point is a chosen {kind}, at its number in the order of the run; colours and markers tell the "
            "groups apart.",
        )
        made.add(f"All chosen {_many(kind)}", _rows(own, kind))
    return made.html()


def _many(kind: str) -> str:
    return _PLURAL.get(kind, f"{kind}s").replace("_", " ")


def _strata(own: pa.Table) -> str:
    """Number and weight of what was chosen, by stratum; nothing where there is one, or one choice in each."""
    stratum = own.column("stratum").to_pylist()
    names = list(dict.fromkeys(stratum))
    if len(names) < 2 or len(names) == len(stratum):
        return ""
    weight = to_numpy(own.column("weight")).astype(float)
    whole = float(weight.sum()) or 1.0
    rows = []
    for name in names[:MOST_ROWS]:
        mine = np.array([each == name for each in stratum])
        total = float(weight[mine].sum())
        rows.append(
            (escape("-" if name is None else name), f"{mine.sum():,}", f"{total:.6g}", f"{100 * total / whole:.1f} %")
        )
    return html_table(("group", "chosen", "weight", "share of all weights"), rows)


def _rows(own: pa.Table, kind: str) -> str:
    heaviest = np.sort(np.argsort(-to_numpy(own.column("weight")).astype(float), kind="stable")[:MOST_ROWS])
    rows = [
        (
            f"{row['element_id']:,}",
            escape("-" if row["stratum"] is None else row["stratum"]),
            f"{row['weight']:.6g}",
            escape(row["model"]),
        )
        for row in own.take(heaviest).to_pylist()
    ]
    left = own.num_rows - len(rows)
    more = f'<p class="note">The {len(rows)} of most weight; {left:,} more are in plan.parquet.</p>' if left > 0 else ""
    return html_table((escape(kind.replace("_", " ")), "group", "weight", "model"), rows) + more
