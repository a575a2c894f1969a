"""Figures of reuse profiles (AMM, figures 2 and 3): the probability of each stack distance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from manyscale.models.memory.reuse_profile import COLD, ReuseProfile
from manyscale.runner.predict.memory.profile_result import ProfileResult
from manyscale.runner.report.figures.choices import View, with_views
from manyscale.runner.report.palette import LINE_COLOURS, axis
from manyscale.runner.report.text import escape

MOST_POINTS: Final = 400  # of one histogram
MOST_BLOCKS: Final = 6  # drawn apart
LEAST_SHOWN: Final = 0.5  # where distance 0 stands on a logarithmic axis

Parts = Sequence[tuple[str, ReuseProfile]]  # of one profile, by name; they add up


def profile(result: ProfileResult) -> dict[str, Any]:
    """Plotly's figure of the stack distances of a trace, stacked by the blocks with most accesses."""
    return reuse_profiles({result.workload.name: most_used_blocks(result)})


def most_used_blocks(result: ProfileResult) -> Parts:
    """The profiles of the blocks with most accesses, and of the others together."""
    by_block = result.by_block
    count = np.bincount(by_block.site, by_block.count)
    shown = [block for block in np.argsort(-count, kind="stable")[:MOST_BLOCKS].tolist() if count[block] > 0]
    functions = result.workload.tables["blocks"].column("function")
    return blocks_apart(by_block, shown, [f"{functions[block].as_py()} block {block}".strip() for block in shown])


def blocks_apart(by_block: ReuseProfile, blocks: Sequence[int], names: Sequence[str]) -> Parts:
    """The profiles of ``blocks``, named, and of all others together, where there are any."""
    parts = [(name, by_block.of_site(block)) for block, name in zip(blocks, names, strict=True)]
    rest = ~np.isin(by_block.site, blocks)
    if rest.any():
        columns = (by_block.site[rest], by_block.distance[rest], by_block.count[rest])
        parts.append(("other blocks", ReuseProfile(by_block.granularity_bytes, *columns)))
    return parts


def reuse_profiles(profiles: Mapping[str, Parts]) -> dict[str, Any]:
    """Plotly's figure of the probability against the stack distance, stacked by part, in bins where there are too many
    distances; of several profiles buttons choose one by its name. All have the same parts, or lack the last one. First
    uses, which have no distance, count only in the whole."""
    edges = _edges(max(int(part.distance.max(initial=0)) for parts in profiles.values() for _, part in parts))
    data: list[dict[str, Any]] = []
    owner: list[str] = []
    for label, parts in profiles.items():
        total = sum(part.num_accesses for _, part in parts)
        data += [
            _bars(name, part, edges, total, colour) for (name, part), colour in zip(parts, LINE_COLOURS, strict=False)
        ]
        owner += [label] * (len(data) - len(owner))
    layout = {
        "barmode": "stack", "showlegend": True, "xaxis": axis("stack distance (units)", type="log"),
        "yaxis": axis("probability", tickformat=".0%"),
    }  # fmt: skip
    return with_views(data, layout, [View(label, {"visible": [mine == label for mine in owner]}) for label in profiles])


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
