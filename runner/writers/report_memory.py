"""Pages of memory models: a trace's profile, drawn as AMM's figures 2 and 5, with the miss-ratio curve and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from manyscale.models.memory.reuse_profile import COLD, ReuseProfile
from manyscale.models.memory.sdcm import geometry_of, hit_probability
from manyscale.models.processor import Cache
from manyscale.runner.memory import profile_result
from manyscale.runner.memory.hit_rates import miss_ratio_curve
from manyscale.runner.memory.profile_result import ProfileResult
from manyscale.runner.writers.report_machine import machine_table
from manyscale.runner.writers.report_page import LINE_COLOURS, Page, axis, line_legend
from manyscale.runner.writers.report_text import binary_size, escape, items, percent, table

MOST_POINTS: Final = 400  # of one line or histogram
MOST_BLOCKS: Final = 6  # drawn apart
MOST_ROWS: Final = 100
LEAST_SHOWN: Final = 0.5  # where distance 0 stands on a logarithmic axis


def write_profile(result: ProfileResult, directory: Path) -> None:
    """``report.html`` of a profile."""
    name = result.workload.name
    page = Page(f"Memory profile of {name}", f"Units of {result.granularity_bytes} B; {result.method}.")
    page.add("", _cards(result))
    page.add(
        "Reuse profile",
        profile_chart(page, "profile", _blocks(result)),
        note="Probability of each stack distance: distinct units between two uses of a unit (0 is drawn at 0.5). "
        "Profiles of blocks are weighed by their accesses and add up to the whole.",
    )
    page.add(
        "Miss ratio by capacity", curve_chart(page, result), note="Of fully associative caches with LRU replacement."
    )
    if result.caches:
        page.add(
            "Hit probability at a stack distance",
            level_chart(page, "levels", result.caches, result.whole),
            note="The stack distance based cache model (SDCM) maps lines to sets at random; where many addresses lie a "
            "power of two apart, sets are used unevenly and fewer accesses hit.",
        )
        page.add("Hit rates", _hit_rates(result))
    page.add("Basic blocks", _blocks_table(result))
    page.add("What this leaves out", items(_limits(result)))
    page.add(f"Target machine: {result.machine.name}", machine_table(result.machine))
    (directory / "report.html").write_text(page.html(), encoding="utf-8")


def _cards(result: ProfileResult) -> str:
    figures = profile_result.statistics(result)
    cards = [
        ("Accesses", f"{figures['memory.accesses'].value:,.0f}", f"{figures['memory.stores'].value:,.0f} stores"),
        (
            "First uses", f"{figures['memory.first_uses'].value:,.0f}",
            "steady state: as if it had run just before" if result.steady else "from cold caches",
        ),
    ]  # fmt: skip
    for model, rates in profile_result.models(result).items():
        for name, ratio in zip(rates.names, rates.whole, strict=True):
            cards.append((f"{name} hits", percent(ratio), f"of all accesses, {model}"))
    return cards_html(cards)


def cards_html(cards: Sequence[tuple[str, str, str]]) -> str:
    """Cards of (label, value, more), the first one stressed."""
    return '<div class="cards">' + "".join(
        f'<div class="card{" first" if i == 0 else ""}"><div class="label">{escape(label)}</div>'
        f'<div class="value">{escape(value)}</div><div class="exact">{escape(more)}</div></div>'
        for i, (label, value, more) in enumerate(cards)
    ) + "</div>"  # fmt: skip


def _blocks(result: ProfileResult) -> list[tuple[str, ReuseProfile]]:
    """The profiles of the blocks with most accesses, and of the others together, named."""
    by_block = result.by_block
    count = np.bincount(by_block.site, by_block.count)
    order = np.argsort(-count, kind="stable")
    shown = order[:MOST_BLOCKS]
    functions = result.workload.tables["blocks"].column("function")
    parts = []
    for block in shown[count[shown] > 0].tolist():
        parts.append((f"{functions[block].as_py()} block {block}", by_block.of_site(block)))
    rest = ~np.isin(by_block.site, shown)
    if rest.any():
        columns = (by_block.site[rest], by_block.distance[rest], by_block.count[rest])
        parts.append(("other blocks", ReuseProfile(by_block.granularity_bytes, *columns)))
    return parts


def profile_chart(page: Page, element: str, parts: Sequence[tuple[str, ReuseProfile]]) -> str:
    """Probability against stack distance, stacked by part, in bins where there are too many distances."""
    total = sum(part.num_accesses for _, part in parts)
    largest = max(int(part.distance.max(initial=0)) for _, part in parts)
    edges = _edges(largest)
    data = []
    for index, (name, part) in enumerate(parts):
        used = part.distance != COLD
        place = np.searchsorted(edges, part.distance[used], "right") - 1
        height = np.bincount(place, part.count[used], len(edges)) / total
        present = np.flatnonzero(height)
        text = [_span(edges, i) for i in present.tolist()]
        data.append(
            {
                "type": "bar", "name": name, "x": np.maximum(edges[present], LEAST_SHOWN).tolist(),
                "y": height[present].tolist(), "marker": {"color": LINE_COLOURS[index % len(LINE_COLOURS)]},
                "width": _widths(edges, present), "offset": 0, "customdata": text,
                "hovertemplate": "distance %{customdata}<br>%{y:.3%}<extra>" + escape(name) + "</extra>",
            }
        )  # fmt: skip
    cold = sum(float(part.count[part.distance == COLD].sum()) for _, part in parts) / total
    layout = {
        "barmode": "stack", "showlegend": False,
        "xaxis": axis("stack distance (units)", type="log"),
        "yaxis": axis("probability", tickformat=".0%"),
    }  # fmt: skip
    chart = page.chart(element, "figure", 340, {"data": data, "layout": layout}, "probability of stack distances")
    note = f'<p class="note">First uses, which have no distance: {percent(cold)}.</p>' if cold else ""
    return line_legend([name for name, _ in parts]) + chart + note


def _edges(largest: int) -> np.ndarray:
    """int64[]: lower ends of the bins of distances 0 to ``largest``: one each while there are few, then of equal
    ratio."""
    if largest < MOST_POINTS:
        return np.arange(largest + 1, dtype=np.int64)
    ratio = np.geomspace(1, largest + 1, MOST_POINTS)
    return np.concatenate(([0], np.unique(ratio.astype(np.int64))))


def _widths(edges: np.ndarray, present: np.ndarray) -> list[float]:
    ends = np.append(edges[1:], edges[-1] + max(1, edges[-1] // 50))
    return (ends[present] - np.maximum(edges[present], LEAST_SHOWN)).tolist()


def _span(edges: np.ndarray, index: int) -> str:
    last = int(edges[index + 1]) - 1 if index + 1 < len(edges) else int(edges[index])
    return f"{int(edges[index]):,}" if last <= edges[index] else f"{int(edges[index]):,} to {last:,}"


def curve_chart(page: Page, result: ProfileResult) -> str:
    """Miss ratio against capacity, with the machine's caches."""
    capacity, ratio = miss_ratio_curve(result.whole)
    size = capacity * result.granularity_bytes
    line = {
        "type": "scatter", "mode": "lines", "x": size.tolist(), "y": ratio.tolist(), "line": {"shape": "hv"},
        "text": [binary_size(value) for value in size.tolist()],
        "hovertemplate": "%{text}<br>%{y:.3%}<extra></extra>",
    }  # fmt: skip
    layout: dict[str, Any] = {
        "showlegend": False,
        "xaxis": axis("capacity (bytes)", type="log"),
        "yaxis": axis("miss ratio", tickformat=".0%", rangemode="tozero"),
    }
    layout |= _marks([(name, cache.size_bytes) for name, cache in result.caches.items()])
    return page.chart("curve", "figure", 320, {"data": [line], "layout": layout}, "miss ratio by capacity")


def _marks(places: Sequence[tuple[str, float]]) -> dict[str, Any]:
    """Dotted vertical lines with names, on a logarithmic axis."""
    return {
        "shapes": [
            {"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1, "line": {"dash": "dot", "width": 1}}
            for _, x in places
        ],
        "annotations": [
            {"x": float(np.log10(x)), "y": 1.04, "yref": "paper", "text": name, "showarrow": False}
            for name, x in places
        ],
    }


def level_chart(page: Page, element: str, caches: Mapping[str, Cache], profile: ReuseProfile) -> str:
    """P(hit | D) of each level, with the share of accesses of at most that distance (AMM, figure 5)."""
    levels = {name: geometry_of(cache, name) for name, cache in caches.items()}
    largest = max([4 * level.num_lines for level in levels.values()] + [int(profile.distance.max(initial=0)) + 1])
    distance = np.unique(np.round(np.geomspace(1, largest, MOST_POINTS)).astype(np.int64))
    data: list[dict[str, Any]] = []
    for index, (name, level) in enumerate(levels.items()):
        probability = hit_probability(distance, level.ways, level.num_lines)
        data.append(_line(name, distance, probability, LINE_COLOURS[index % len(LINE_COLOURS)]))
    distances, probabilities = profile.distribution()
    used = distances != COLD
    cumulated = np.concatenate(([0.0], np.cumsum(probabilities[used])))
    share = cumulated[np.searchsorted(distances[used], distance, "right")]
    data.append(_line("share of accesses within", distance, share, "#9aa5b1") | {"fill": "tozeroy"})
    layout: dict[str, Any] = {
        "showlegend": False,
        "xaxis": axis("stack distance (lines)", type="log"),
        "yaxis": axis("probability of a hit", tickformat=".0%", range=[0, 1.02]),
    }
    layout |= _marks([(f"B {name}", level.num_lines) for name, level in levels.items()])
    chart = page.chart(element, "figure", 320, {"data": data, "layout": layout}, "hit probability by distance")
    return line_legend(list(levels)) + chart


def _line(name: str, x: np.ndarray, y: np.ndarray, colour: str) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "lines", "name": name, "x": x.tolist(), "y": np.round(y, 6).tolist(),
        "line": {"color": colour, "width": 2},
        "hovertemplate": "%{x:,}<br>%{y:.2%}<extra>" + escape(name) + "</extra>",
    }  # fmt: skip


def _hit_rates(result: ProfileResult) -> str:
    models = profile_result.models(result)
    header = ["level", "size", "ways"]
    for model in models:
        header += [f"{model}: of all accesses", f"{model}: of those that reach it"]
    rows = []
    for index, (name, cache) in enumerate(result.caches.items()):
        cells = [escape(name), binary_size(cache.size_bytes), f"{cache.ways}"]
        for rates in models.values():
            cells += [percent(rates.whole[index]), percent(rates.conditional[index])]
        rows.append(cells)
    return table(header, rows)


def _blocks_table(result: ProfileResult) -> str:
    blocks = profile_result.blocks_table(result)
    header = ["block", "where", "executions", "accesses", "share", "first uses"]
    header += [f"{name} hits" for name in result.caches]
    rows = []
    for row in blocks.slice(0, MOST_ROWS).to_pylist():
        cells = [
            f"{row['block_id']}", escape(f"{row['function']} {row['file']}:{row['line']}"), f"{row['executions']:,}",
            f"{row['accesses']:,.0f}", percent(row["share"]), f"{row['first_uses']:,.0f}",
        ]  # fmt: skip
        rows.append(cells + [percent(row[f"{name}_hit_ratio"]) for name in result.caches])
    more = blocks.num_rows - MOST_ROWS
    note = f'<p class="note">{more:,} more are in blocks.parquet.</p>' if more > 0 else ""
    return table(header, rows, numeric_from=2) + note


def _limits(result: ProfileResult) -> list[str]:
    found = list(result.notes)
    if result.method != "exact":
        found.append(f"Distances were sampled ({result.method}): rare ones may be missing.")
    if len(result.streams) > 1 and not result.concurrent:
        found.append(
            f"{len(result.streams)} threads have been profiled each for itself: none disturbs the caches of another."
        )
    if result.caches and result.simulated is None:
        found.append("Hit rates are SDCM's; --simulate adds those of the caches with their real sets, for comparison.")
    return [*found, *result.workload.notes] or ["Nothing known."]
