"""``report.html``: what was predicted, where the time goes, and how far to trust it, on one self-contained page.

Charts: plotly, drawn in the browser from data in the page. Everything drawn is bounded (report/data.py), so the page
stays below 6 MB plus plotly for any number of ranks and states; the tables are exact. Equal results give equal bytes.

Cost: O(states + messages log messages); measured 0.1 s of CPU for 150,000 states and 50,000 messages with the
imports, 1.2 s for 2 million states on 1,024 ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from manyscale.runner.readers.paraver.labels import call_name
from manyscale.runner.report.data import (
    CATEGORIES,
    calls,
    makespan_ps,
    message_matrix,
    time_by_state,
    timeline,
    timeline_of_chosen,
)
from manyscale.runner.report.headline import has_launches, has_ranks, has_steps, headline, subtitle
from manyscale.runner.report.page import Page
from manyscale.runner.report.palette import COLOURS
from manyscale.runner.report.sections import charts
from manyscale.runner.report.sections.critical_path import add_section as add_critical_path
from manyscale.runner.report.sections.limits import certainty, limits
from manyscale.runner.report.sections.links import add_links
from manyscale.runner.report.sections.machine import machine_table
from manyscale.runner.report.sections.node import add_sections as add_node_sections
from manyscale.runner.report.text import (
    duration,
    escape,
    items,
    notes_html,
    percent,
    swatch_style,
    table,
)
from manyscale.runner.run import script
from manyscale.runner.run.chosen_ranks import chosen_ranks
from manyscale.runner.run.questions.factors import shown_factors
from manyscale.runner.run.results import Result

_PS = 1e-12
_LABELS = {
    "compute": "computing",
    "send": "in sends",
    "receive": "in receives",
    "wait": "waiting for requests",
    "collective": "in collectives",
    "overhead": "other",
    "idle": "idle: ended, others still run",
}


def write(result: Result, directory: Path) -> None:
    """Write ``report.html``, which holds all that it needs."""
    _write(result, directory, "")


def write_point(result: Result, directory: Path) -> None:
    """Write ``report.html`` of a point of a sweep, which draws with the script at the top of the sweep's folder."""
    _write(result, directory, f"../../{script.NAME}")


def _write(result: Result, directory: Path, drawing: str) -> None:
    page = Page(f"{result.name} on {result.machine.name}", subtitle(result))
    page.add("", headline(result), notes_html(result.notes))
    if has_launches(result):
        from manyscale.runner.report.sections.gpu import add_launches  # loads more than a run without launches needs

        add_launches(page, result)
    if has_steps(result):
        from manyscale.runner.report.sections.steps import add_steps  # the same

        add_steps(page, result)
    if result.intervals is not None:
        from manyscale.runner.report.sections.intervals import add_intervals

        add_intervals(page, result)
    if has_ranks(result):
        _add_ranks(page, result)
    elif shown_factors({name: float(each.value) for name, each in result.statistics.items()}):
        page.add("Efficiency", _efficiencies(result))
    add_node_sections(page, result)
    if has_ranks(result):
        add_critical_path(page, result)
        page.add("MPI calls", _calls_table(result))
        _messages(page, result)
        add_links(page, result)
    page.add("How sure this is", certainty(result), "<h3>What the models leave out</h3>", items(limits(result)))
    page.add(f"Target machine: {result.machine.name}", machine_table(result.machine, with_network=has_ranks(result)))
    page.add("Study", f"<details><summary>As it was run, defaults filled in</summary>{_study(result)}</details>")
    page.write(directory / "report.html", drawing)


def _add_ranks(page: Page, result: Result) -> None:
    """How ranks spend their time."""
    spent = time_by_state(result)
    if has_steps(result):
        page.add("Where the hosts' time goes", _time_table(spent), note="Waits for GPUs count as computing.")
    else:
        page.add("Where the time goes", f'<div class="pair">{_time_table(spent)}{_efficiencies(result)}</div>')
    runs = timeline(result)
    page.add("Timeline", charts.timeline_chart(page, result, runs), note=charts.timeline_note(result, runs))
    chosen = chosen_ranks(result)
    if chosen is not None:
        single = timeline_of_chosen(result, chosen.ranks)
        note = f"{chosen.words[0].upper()}{chosen.words[1:]}. {charts.timeline_note(result, single)}"
        page.add("Timeline of chosen ranks", charts.timeline_chart(page, result, single, "chosen-timeline"), note=note)
    page.add("Time of each rank", charts.ranks_chart(page, result, spent), note=charts.ranks_note(result))


def _swatch(category: str) -> str:
    return f'<i class="swatch" style="{swatch_style(COLOURS[category])}"></i>'


def _time_table(spent: np.ndarray) -> str:
    """Mean over ranks by category, with the least and the most of a rank, and a bar of the shares."""
    mean = spent.mean(axis=0)
    whole = max(float(mean.sum()), 1.0)
    present = [i for i in range(len(CATEGORIES)) if mean[i] > 0]
    bar = "".join(
        f'<i style="width:{100 * mean[i] / whole:.4f}%;{swatch_style(COLOURS[CATEGORIES[i]])}"></i>' for i in present
    )
    rows = [
        (
            _swatch(CATEGORIES[i]) + escape(_LABELS[CATEGORIES[i]]),
            duration(mean[i] * _PS),
            percent(mean[i] / whole),
            duration(spent[:, i].min() * _PS),
            duration(spent[:, i].max() * _PS),
        )
        for i in present
    ]
    columns = ("per rank", "mean", "share", "least", "most")
    return f'<div><div class="bar">{bar}</div>{table(columns, rows)}</div>'


def _efficiencies(result: Result) -> str:
    rows = []
    for name, label, _, depth in shown_factors({name: float(each.value) for name, each in result.statistics.items()}):
        statistic = result.statistics[f"application.{name}"]
        value = float(statistic.value)
        width = 100 * min(max(value, 0.0), 1.0)
        gauge = f'<span class="gauge"><i style="width:{width:.2f}%"></i></span>'
        meaning = f'<span class="meaning">{escape(statistic.description)}</span>'
        rows.append((f'<div class="level{depth + 1}">{label}{meaning}</div>', gauge, percent(value)))
    return f"<div>{table(('efficiency', '', 'value'), rows)}</div>"


def _calls_table(result: Result) -> str:
    found = calls(result)
    num_ranks = result.workload.num_ranks
    whole = max(makespan_ps(result) * num_ranks, 1)
    rows = [
        (
            call_name(kind),
            f"{count:,}",
            duration(time * _PS),
            duration(time / num_ranks * _PS),
            duration(time / count * _PS),
            percent(time / whole),
        )
        for kind, count, time in zip(found.kind, found.count.tolist(), found.time_ps.tolist(), strict=True)
    ]
    return table(("call", "calls", "time, all ranks", "time per rank", "time per call", "share"), rows)


def _messages(page: Page, result: Result) -> None:
    heading = "Point-to-point messages"
    if not result.messages.num_rows:
        return
    matrix = message_matrix(result)
    both = f'<div class="pair">{charts.matrix_chart(page, result, matrix)}{charts.sizes_chart(page, result)}</div>'
    page.add(heading, both, note=charts.messages_note(result, matrix))


def _study(result: Result) -> str:
    text = yaml.safe_dump(_plain(result.resolved), sort_keys=False, allow_unicode=True, width=110)
    return f"<pre>{escape(text)}</pre>"


def _plain(value: Any) -> Any:
    """Plain containers and scalars; a long list of numbers as one text, so that it takes one line."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        plain = [_plain(inner) for inner in value]
        if len(plain) > 8 and all(isinstance(inner, int) for inner in plain):
            return f"[{', '.join(map(str, plain[:8]))}, ... {len(plain):,} in all]"
        return plain
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
