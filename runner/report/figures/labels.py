"""Names of lines at their right ends, spread so that none covers another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

_LINE: Final = 15  # pixels that a label takes
_HEIGHT: Final = 310  # pixels between the ends of the value axis of a chart of 400
MOST_LABELLED: Final = 24  # lines


def end_labels(
    names: Sequence[str], ends: Sequence[tuple[Any, float | None]], values: Sequence[float], *, logarithmic: bool
) -> list[dict[str, Any]]:
    """Annotations: a name beside the last point (x, y) of each line. ``values``: all that the value axis has to show,
    which says how far apart two ends lie in pixels. Nothing for one line, or for more than MOST_LABELLED."""
    drawn = [(name, x, y) for name, (x, y) in zip(names, ends, strict=True) if y is not None]
    if len(drawn) < 2 or len(drawn) > MOST_LABELLED:
        return []
    low, high = min(values), max(values)
    scale = math.log10 if logarithmic else float
    span = (scale(high) - scale(low)) or 1.0
    wanted = [(scale(y) - scale(low)) / span * _HEIGHT for _, _, y in drawn]
    placed = spread(wanted, _LINE)
    return [
        {
            "x": x, "y": math.log10(y) if logarithmic else y, "text": name, "showarrow": False, "xanchor": "left",
            "xshift": 9, "yshift": round(place - want, 1), "name": "line", "font": {"size": 12},
        }
        for (name, x, y), want, place in zip(drawn, wanted, placed, strict=True)
    ]  # fmt: skip


def spread(wanted: Sequence[float], gap: float) -> list[float]:
    """Places in the order of ``wanted`` and at least ``gap`` apart, with the least sum of squared moves.

    Isotonic regression of ``wanted`` less what the gaps take (pool adjacent violators).
    """
    order = np.argsort(np.asarray(wanted), kind="stable")
    pools: list[tuple[float, int]] = []  # mean and number
    for rank, index in enumerate(order.tolist()):
        pools.append((wanted[index] - rank * gap, 1))
        while len(pools) > 1 and pools[-2][0] >= pools[-1][0]:
            (mean, count), (other, more) = pools[-2:]
            pools[-2:] = [((mean * count + other * more) / (count + more), count + more)]
    means = [mean for mean, count in pools for _ in range(count)]
    placed = [0.0] * len(wanted)
    for rank, index in enumerate(order.tolist()):
        placed[index] = means[rank] + rank * gap
    return placed
