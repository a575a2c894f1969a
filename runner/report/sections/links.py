"""The report's part about the network's links: the most used ones as a heat map over time, and as a table."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload.columns import to_numpy
from manyscale.runner.report.data import makespan_ps
from manyscale.runner.report.page import Page
from manyscale.runner.report.palette import COLORSCALE, axis
from manyscale.runner.report.text import duration, escape, percent, size, table, time_unit
from manyscale.runner.run.links import busy_ps, carried_bytes, link_names
from manyscale.runner.run.results import Result

_MAX_LINKS: Final = 64
_MAX_LISTED: Final = 20
_MAX_BINS: Final = 256


def add_links(page: Page, result: Result) -> None:
    """The section, if the network's model knows links."""
    links = result.links
    if links is None:
        return
    heading = "Network links"
    names = link_names(links)
    if not names:
        page.add(heading, "<p>No link carried anything.</p>")
        return
    busy = busy_ps(links)
    order = np.argsort(-busy, kind="stable")
    shown = order[:_MAX_LINKS]
    page.add(
        heading,
        _heat_map(page, links, names, shown, makespan_ps(result)),
        _table(links, names, order[:_MAX_LISTED], busy, makespan_ps(result)),
        note=_note(len(names)),
    )


def _heat_map(page: Page, links: pa.Table, names: list[str], shown: np.ndarray, span: int) -> str:
    """Link against time, coloured by utilisation; the most used link at the top."""
    length, unit = time_unit(span * 1e-12)
    step = span * 1e-12 / length / _MAX_BINS
    heat = {
        "type": "heatmap",
        "z": np.round(100 * binned_utilisation(links, shown, span, _MAX_BINS), 2).tolist(),
        "x0": step / 2,
        "dx": step,
        "y": [names[link] for link in shown.tolist()],
        "zmin": 0,
        "zmax": 100,
        "colorscale": COLORSCALE,
        "colorbar": {"title": {"text": "used (%)"}},
        "hovertemplate": f"%{{y}}<br>%{{x:.4~g}} {unit}: %{{z:.3~g}} %<extra></extra>",
    }
    layout = {
        "xaxis": axis(f"time ({unit})", range=[0, step * _MAX_BINS], showgrid=False, ticks="outside"),
        "yaxis": {"type": "category", "autorange": "reversed", "automargin": True, "showgrid": False},
    }
    height = int(np.clip(len(shown) * 14 + 90, 180, 990))
    return page.chart("links", "figure", height, {"data": [heat], "layout": layout}, "utilisation of links over time")


def binned_utilisation(links: pa.Table, shown: np.ndarray, span_ps: int, num_bins: int) -> np.ndarray:
    """float64[links shown, bins]: share of the capacity used in equal bins of the makespan. O(rows + shown x bins).

    What a link has carried up to a moment is piecewise linear in that moment; it is read off at the edges of the bins.
    """
    code, start, end, used = (to_numpy(links.column(name)) for name in ("link", "start_ps", "end_ps", "utilisation"))
    edges = np.linspace(0.0, max(span_ps, 1), num_bins + 1)
    bounds = np.searchsorted(code, np.stack((shown, shown + 1)))  # rows are sorted by link
    result = np.empty((len(shown), num_bins))
    for place, (first, last) in enumerate(bounds.T.tolist()):
        total = np.cumsum(used[first:last] * (end[first:last] - start[first:last]))
        before = np.concatenate(([0.0], total[:-1]))
        moments = np.stack((start[first:last], end[first:last]), axis=1).ravel()
        at_edges = np.interp(edges, moments, np.stack((before, total), axis=1).ravel())
        result[place] = np.diff(at_edges) / np.diff(edges)
    return result


def _table(links: pa.Table, names: list[str], listed: np.ndarray, busy: np.ndarray, span: int) -> str:
    carried = carried_bytes(links)
    most = np.zeros(len(names))
    np.maximum.at(most, to_numpy(links.column("link")), to_numpy(links.column("utilisation")))
    rows = [
        (
            escape(names[link]),
            size(float(carried[link])),
            duration(float(busy[link]) * 1e-12),
            percent(float(busy[link]) / max(span, 1)),
            percent(float(most[link])),
        )
        for link in listed.tolist()
    ]
    return table(
        ("link, most used first", "carried", "at full rate", "used of the run", "in the busiest interval"), rows
    )


def _note(num_links: int) -> str:
    text = "Share of a link's capacity that is in use, envelopes included."
    if num_links > _MAX_LISTED:
        charted = min(num_links, _MAX_LINKS)
        text += f" {num_links:,} links carried something; the chart shows the {charted} most used, the table"
        text += f" {_MAX_LISTED}, timeline/links.parquet all."
    return text
