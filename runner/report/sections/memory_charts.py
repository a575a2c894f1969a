"""Charts of memory models: reuse profiles (AMM, figures 2 and 3), hit probability by distance (figure 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from manyscale.models.machine.processor import Cache
from manyscale.models.memory.amm.sdcm import geometry_of, hit_probability
from manyscale.models.memory.reuse_profile import COLD, ReuseProfile
from manyscale.runner.predict.memory.hit_rates import miss_ratio_curve
from manyscale.runner.report.page import Page, line_legend
from manyscale.runner.report.palette import GREY, LINE_COLOURS, axis
from manyscale.runner.report.text import binary_size, escape, percent

MOST_POINTS: Final = 400  # of one line or histogram
LEAST_SHOWN: Final = 0.5  # where distance 0 stands on a logarithmic axis
_MARK: Final = {"dash": "dot", "width": 1, "color": GREY}

Parts = Sequence[tuple[str, ReuseProfile]]  # of one profile, by name; they add up


def blocks_apart(by_block: ReuseProfile, blocks: Sequence[int], names: Sequence[str]) -> Parts:
    """The profiles of ``blocks``, named, and of all others together, where there are any."""
    parts = [(name, by_block.of_site(block)) for block, name in zip(blocks, names, strict=True)]
    rest = ~np.isin(by_block.site, blocks)
    if rest.any():
        columns = (by_block.site[rest], by_block.distance[rest], by_block.count[rest])
        parts.append(("other blocks", ReuseProfile(by_block.granularity_bytes, *columns)))
    return parts


def profile_chart(page: Page, element: str, profiles: Mapping[str, Parts]) -> str:
    """Probability against stack distance, stacked by part, in bins where there are too many distances; of several
    profiles the reader chooses one by its name. All have the same parts, or lack the last one."""
    edges = _edges(max(int(part.distance.max(initial=0)) for parts in profiles.values() for _, part in parts))
    data: list[dict[str, Any]] = []
    owner, first_uses = [], []
    for index, (label, parts) in enumerate(profiles.items()):
        total = sum(part.num_accesses for _, part in parts)
        bars = [
            _bars(name, part, edges, total, colour) for (name, part), colour in zip(parts, LINE_COLOURS, strict=False)
        ]
        data += [bar | {"visible": index == 0} for bar in bars]
        owner += [index] * len(bars)
        cold = sum(float(part.count[part.distance == COLD].sum()) for _, part in parts) / total
        first_uses.append((f"{label}: " if len(profiles) > 1 else "") + percent(cold))
    layout = {
        "barmode": "stack", "showlegend": False,
        "xaxis": axis("stack distance (units)", type="log"),
        "yaxis": axis("probability", tickformat=".0%"),
    }  # fmt: skip
    content: dict[str, Any] = {"data": data, "layout": layout}
    if len(profiles) > 1:
        content["choices"] = [
            {"label": label, "shown": [index == mine for mine in owner]} for index, label in enumerate(profiles)
        ]
    names = max(([name for name, _ in parts] for parts in profiles.values()), key=len)
    chart = page.chart(element, "figure", 340, content, "probability of stack distances")
    note = f'<p class="note">First uses, which have no distance: {escape("; ".join(first_uses))}.</p>'
    return line_legend(names) + chart + note


def _bars(name: str, part: ReuseProfile, edges: np.ndarray, total: float, colour: str) -> dict[str, Any]:
    used = part.distance != COLD
    place = np.searchsorted(edges, part.distance[used], "right") - 1
    height = np.bincount(place, part.count[used], len(edges)) / total
    present = np.flatnonzero(height)
    return {
        "type": "bar", "name": name, "x": np.maximum(edges[present], LEAST_SHOWN).tolist(),
        "y": [float(f"{value:.5g}") for value in height[present]], "marker": {"color": colour},
        "width": _widths(edges, present), "offset": 0, "customdata": [_span(edges, i) for i in present.tolist()],
        "hovertemplate": "distance %{customdata}<br>%{y:.3%}<extra>" + escape(name) + "</extra>",
    }  # fmt: skip


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


def curve_chart(page: Page, whole: ReuseProfile, caches: Mapping[str, Cache]) -> str:
    """Miss ratio against capacity, with the machine's caches."""
    capacity, ratio = miss_ratio_curve(whole)
    size = capacity * whole.granularity_bytes
    line = {
        "type": "scatter", "mode": "lines", "x": size.tolist(), "y": ratio.tolist(),
        "line": {"shape": "hv", "color": LINE_COLOURS[0]},
        "text": [binary_size(value) for value in size.tolist()],
        "hovertemplate": "%{text}<br>%{y:.3%}<extra></extra>",
    }  # fmt: skip
    layout: dict[str, Any] = {
        "showlegend": False,
        "xaxis": axis("capacity (bytes)", type="log"),
        "yaxis": axis("miss ratio", tickformat=".0%", rangemode="tozero"),
    }
    layout |= _marks([(name, cache.size_bytes) for name, cache in caches.items()])
    return page.chart("curve", "figure", 320, {"data": [line], "layout": layout}, "miss ratio by capacity")


def _marks(places: Sequence[tuple[str, float]]) -> dict[str, Any]:
    """Dotted vertical lines with names, on a logarithmic axis."""
    return {
        "shapes": [
            {"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1, "line": _MARK} for _, x in places
        ],
        "annotations": [
            {"x": float(np.log10(x)), "y": 1.04, "yref": "paper", "text": escape(name), "showarrow": False}
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
        data.append(line(name, distance, probability, LINE_COLOURS[index % len(LINE_COLOURS)]))
    distances, probabilities = profile.distribution()
    used = distances != COLD
    cumulated = np.concatenate(([0.0], np.cumsum(probabilities[used])))
    share = cumulated[np.searchsorted(distances[used], distance, "right")]
    data.append(line("share of accesses within", distance, share, GREY) | {"fill": "tozeroy"})
    layout: dict[str, Any] = {
        "showlegend": False,
        "xaxis": axis("stack distance (lines)", type="log"),
        "yaxis": axis("probability of a hit", tickformat=".0%", range=[0, 1.02]),
    }
    layout |= _marks([(f"B {name}", level.num_lines) for name, level in levels.items()])
    chart = page.chart(element, "figure", 320, {"data": data, "layout": layout}, "hit probability by distance")
    return line_legend(list(levels)) + chart + '<p class="note">Grey: share of the accesses within a distance.</p>'


def line(name: str, x: np.ndarray, y: np.ndarray, colour: str) -> dict[str, Any]:
    """A line of ratios."""
    return {
        "type": "scatter", "mode": "lines", "name": name, "x": x.tolist(), "y": np.round(y, 6).tolist(),
        "line": {"color": colour, "width": 2},
        "hovertemplate": "%{x:,}<br>%{y:.2%}<extra>" + escape(name) + "</extra>",
    }  # fmt: skip
