"""Charts of memory models: reuse profiles (AMM, figures 2 and 3), hit probability by distance (figure 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from manyscale.models.machine.processor import Cache
from manyscale.models.memory.amm.sdcm import geometry_of, hit_probability
from manyscale.models.memory.reuse_profile import COLD, ReuseProfile
from manyscale.runner.predict.memory.hit_rates import miss_ratio_curve
from manyscale.runner.report.figures.choices import without_legend
from manyscale.runner.report.figures.memory import Parts, reuse_profiles
from manyscale.runner.report.page import Page, line_legend
from manyscale.runner.report.palette import GREY, LINE_COLOURS, axis
from manyscale.runner.report.text import binary_size, escape, percent

MOST_POINTS: Final = 400  # of one line
_MARK: Final = {"dash": "dot", "width": 1, "color": GREY}


def profile_chart(page: Page, element: str, profiles: Mapping[str, Parts]) -> str:
    """``figures.memory.reuse_profiles`` with its names and the share of first uses, which have no distance."""
    figure = without_legend(reuse_profiles(profiles))
    shares = []
    for label, parts in profiles.items():
        cold = sum(float(part.count[part.distance == COLD].sum()) for _, part in parts)
        share = percent(cold / sum(part.num_accesses for _, part in parts))
        shares.append(f"{label}: {share}" if len(profiles) > 1 else share)
    names = max(([name for name, _ in parts] for parts in profiles.values()), key=len)
    chart = page.chart(element, "figure", 340, figure, "probability of stack distances")
    note = f'<p class="note">First uses, which have no distance: {escape("; ".join(shares))}.</p>'
    return line_legend(names) + chart + note


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
