"""Charts of ``manyscale predict``: blocks and distances against the input (AMM, figure 4), hit rates, run times and
their errors (figure 6)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from manyscale.runner.predict.memory.growth import Growth, growing_parts
from manyscale.runner.predict.memory.predict_result import PredictResult, models_of
from manyscale.runner.report.figures.choices import without_legend
from manyscale.runner.report.figures.prediction import hit_rates, run_times
from manyscale.runner.report.page import Page, colour_legend, line_legend
from manyscale.runner.report.palette import GREY, LINE_COLOURS, axis, line_style
from manyscale.runner.report.text import escape

MOST_BARS: Final = 24  # blocks, and inputs of each
MOST_GROWING: Final = 3  # blocks whose distances are drawn
LEAST_SHARE: Final = 0.001  # of all executions, for a block to be drawn
FOURTHS: Final = ("nearest", "second", "third", "farthest")


def best_model(result: PredictResult) -> str:
    """The best model that gives a time at some input; empty where none does."""
    return (models_of(result) or [""])[-1]


def compared(result: PredictResult) -> dict[str, dict[int, float]]:
    """Predicted over measured, minus 1, by model and input; models with no input that was measured are left out."""
    found: dict[str, dict[int, float]] = {}
    for model in models_of(result):
        for each in result.predictions:
            if model in each.times and each.size in result.measured:
                error = each.times[model].seconds / result.measured[each.size] - 1
                found.setdefault(model, {})[each.size] = error
    return found


def block_name(result: PredictResult, block: int) -> str:
    """Where a block is."""
    function = result.training.program.tables["blocks"].column("function")[block].as_py()
    return f"{function} block {block}".strip()


def block_chart(page: Page, result: PredictResult) -> str:
    """Share of the blocks in all executions of blocks (eq. 3), at each traced and predicted input."""
    traced = [(f"{run.input_size:,.0f} (traced)", GREY, run.executions) for run in result.runs]
    predicted = [(f"{each.size:,}", LINE_COLOURS[0], each.executions) for each in result.predictions]
    inputs = [*traced, *predicted][-MOST_BARS:]
    shares = np.array([executions / max(executions.sum(), 1) for _, _, executions in inputs])
    blocks = np.flatnonzero(shares.max(axis=0) >= LEAST_SHARE)
    if len(blocks) > MOST_BARS:
        blocks = np.sort(np.argsort(-shares.max(axis=0), kind="stable")[:MOST_BARS])
    names = [block_name(result, block) for block in blocks.tolist()]
    data = [
        {
            "type": "bar", "name": name, "x": names, "y": np.round(share[blocks], 6).tolist(),
            "marker": {"color": colour, "opacity": round(0.4 + 0.6 * (index + 1) / len(inputs), 3)},
            "hovertemplate": "%{x}, input " + escape(name) + "<br>%{y:.2%}<extra></extra>",
        }
        for index, ((name, colour, _), share) in enumerate(zip(inputs, shares, strict=True))
    ]  # fmt: skip
    layout = {
        "barmode": "group", "showlegend": False, "xaxis": axis("", type="category"),
        "yaxis": axis("share of executions", tickformat=".0%"),
    }  # fmt: skip
    key = colour_legend([(GREY, "traced inputs"), (LINE_COLOURS[0], "predicted inputs, ascending")])
    return key + page.chart("blocks", "figure", 320, {"data": data, "layout": layout}, "share of blocks by input")


def growth_chart(page: Page, result: PredictResult) -> str:
    """Mean distance of the growing fourths of blocks against the input."""
    parts = growing_parts(result, MOST_GROWING)
    if not parts:
        return '<p class="note">No block\'s distances grow with the input.</p>'
    data: list[dict[str, Any]] = []
    names = []
    for index, part in enumerate(parts):
        name = f"{block_name(result, part.block)}, {FOURTHS[part.fourth]} fourth"
        names.append(name)
        data += _growth_traces(name, part, *line_style(index))
    layout = {
        "showlegend": False,
        "xaxis": axis("input", type="log"),
        "yaxis": axis("mean distance (lines)", type="log"),
    }
    chart = page.chart("growth", "figure", 360, {"data": data, "layout": layout}, "mean distance by input")
    return line_legend(names) + chart


def _growth_traces(name: str, part: Growth, colour: str, dash: str) -> list[dict[str, Any]]:
    hover = "input %{x:,}<br>distance %{y:,.1f}<extra>" + escape(name) + "</extra>"
    sizes = part.sizes.tolist()
    band = {
        "type": "scatter", "mode": "lines", "line": {"width": 0}, "fill": "toself", "fillcolor": colour,
        "opacity": 0.15, "hoverinfo": "skip", "x": sizes + sizes[::-1],
        "y": _positive(np.concatenate((part.high, part.low[::-1]))),
    }  # fmt: skip
    curve = {
        "type": "scatter", "mode": "lines", "name": name, "x": sizes, "y": _positive(part.value),
        "line": {"color": colour, "width": 2, "dash": dash}, "hovertemplate": hover,
    }  # fmt: skip
    points = {
        "type": "scatter", "mode": "markers", "name": name, "x": part.traced_sizes.tolist(),
        "y": _positive(part.traced), "marker": {"color": colour, "size": 8}, "hovertemplate": hover,
    }  # fmt: skip
    return [band, curve, points]


def _positive(values: np.ndarray) -> list[float]:
    """For a logarithmic axis."""
    return [float(f"{max(value, 0.1):.6g}") for value in values.tolist()]


def hit_rate_chart(page: Page, result: PredictResult) -> str:
    """``figures.prediction.hit_rates`` with its names."""
    chart = page.chart("hit-rates", "figure", 320, without_legend(hit_rates(result)), "hit rates by input")
    return line_legend(list(result.caches)) + chart + '<p class="note">Dotted: SDCM; solid: real sets.</p>'


def time_chart(page: Page, result: PredictResult) -> str:
    """``figures.prediction.run_times`` with its names."""
    chart = page.chart("times", "figure", 360, without_legend(run_times(result)), "run time by input")
    note = '<p class="note">Crosses: measured.</p>' if result.measured else ""
    return line_legend(models_of(result)) + chart + note


def error_chart(page: Page, result: PredictResult) -> str:
    """Relative error of the run time by input and model."""
    errors = compared(result)
    data = [
        {
            "type": "bar", "name": model, "x": [f"{size:,}" for size in found], "y": list(found.values()),
            "marker": {"color": LINE_COLOURS[models_of(result).index(model) % len(LINE_COLOURS)]},
            "hovertemplate": "input %{x}<br>%{y:+.1%}<extra>" + escape(model) + "</extra>",
        }
        for model, found in errors.items()
    ]  # fmt: skip
    layout = {
        "barmode": "group", "showlegend": False, "xaxis": axis("input", type="category"),
        "yaxis": axis("error", tickformat="+.0%"),
    }  # fmt: skip
    chart = page.chart("errors", "figure", 300, {"data": data, "layout": layout}, "error of the run time by input")
    return line_legend(models_of(result)) + chart
