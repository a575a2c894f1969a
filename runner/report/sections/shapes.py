"""Section of a sweep's page: shapes of a step of training, the best first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from manyscale.runner.report.figures.sweep import Points
from manyscale.runner.report.text import duration, escape, percent, table
from manyscale.runner.run.sweeps.best import MEMORY_SHARE, TOKENS_RATE, best_first, exceeds, short
from manyscale.runner.study.shapes import COPIES

MOST_ROWS: Final = 2_000
PAGED_ABOVE: Final = 100  # rows, which report.js shows by pages
_STEP: Final = "step.whole"
_MFU: Final = "step.model_flops_utilisation"
_MEMORY: Final = "step.memory"
_BUBBLE: Final = "step.pipeline_bubble"
_PARTS: Final = {
    "gpu.time.compute": "compute", "gpu.time.exposed_transfer": "exposed transfer",
    "gpu.time.exposed_wait": "exposed wait", "gpu.time.idle": "idle",
}  # fmt: skip
COLUMNS: Final = (_STEP, TOKENS_RATE, _MFU, _MEMORY, MEMORY_SHARE, _BUBBLE, *_PARTS, COPIES)
_NOTE: Final = (
    "By tokens that are trained in a second; what needs more memory than a GPU has stands behind the rest. Memory: of "
    "the fullest GPU. Shares are of the GPUs' time; the bubble of a pipeline is part of its waits. The page of a point "
    "is written by manyscale report DIR --point N; sweep.parquet has all."
)


def note(points: Points) -> str:
    """What the table's columns are, and how many of the shapes it has."""
    count = len(points["point_id"])
    return f"The best {MOST_ROWS:,} of {count:,}. {_NOTE}" if count > MOST_ROWS else _NOTE


def that_fit(points: Points) -> list[int]:
    """Places of the points that need no more memory than a GPU has, as far as is known."""
    shares = points.get(MEMORY_SHARE, [None] * len(points["point_id"]))
    return [place for place, share in enumerate(shares) if not exceeds(share)]


def best_table(points: Points, axes: Sequence[str], directory: Path) -> str:
    """A row a shape, of many the best ones."""
    names = [*axes, *([COPIES] if COPIES in points and COPIES not in axes else [])]
    nothing = [None] * len(points["point_id"])
    share, use, bubble = (points.get(name, nothing) for name in (MEMORY_SHARE, _MFU, _BUBBLE))
    shown = best_first(points[TOKENS_RATE], share)[:MOST_ROWS]
    rows = []
    for index in shown:
        link = f"{int(points['point_id'][index]):04d}"
        if (directory / "points" / link / "report.html").is_file():
            link = f'<a href="points/{link}/report.html">{link}</a>'
        parts = [points[name][index] or 0.0 for name in _PARTS]
        whole = sum(parts) or 1.0
        rows.append(
            (
                link,
                *(escape(points[name][index]) for name in names),
                escape(duration(points[_STEP][index])),
                f"{points[TOKENS_RATE][index]:,.0f}",
                "-" if use[index] is None else percent(use[index]),
                f"{points[_MEMORY][index] / 1e9:.1f} GB" + (" (too much)" if exceeds(share[index]) else ""),
                "-" if bubble[index] is None else percent(bubble[index]),
                *(percent(part / whole) for part in parts),
            )
        )
    header = (
        "point", *map(escape, short(names).values()), "step", "tokens/s", "MFU", "memory", "bubble", *_PARTS.values(),
    )  # fmt: skip
    return table(header, rows, css="paged" if len(rows) > PAGED_ABOVE else "")
