"""Figures of a program at inputs that never ran: run times and hit rates against the input (AMM, figure 6)."""

from __future__ import annotations

from typing import Any

from manyscale.runner.predict.memory.predict_result import PredictResult, models_of
from manyscale.runner.report.palette import LINE_COLOURS, axis
from manyscale.runner.report.text import duration, escape


def predict(result: PredictResult) -> dict[str, Any]:
    """Plotly's figure of the run times above the hit rates; of the hit rates alone where no model gives a time."""
    rates = hit_rates(result)
    if not models_of(result):
        return rates
    times = run_times(result)
    data = [trace | _group("run time") for trace in times["data"]]
    data += [trace | _group("hits") | {"yaxis": "y2"} for trace in rates["data"]]
    layout = {
        "showlegend": True,
        "xaxis": times["layout"]["xaxis"] | {"anchor": "y2"},
        "yaxis": times["layout"]["yaxis"] | {"domain": [0.53, 1.0]},
        "yaxis2": rates["layout"]["yaxis"] | {"domain": [0.0, 0.47]},
    }
    return {"data": data, "layout": layout}


def _group(name: str) -> dict[str, Any]:
    return {"legendgroup": name, "legendgrouptitle": {"text": name}}


def hit_rates(result: PredictResult) -> dict[str, Any]:
    """Plotly's figure of the hit rate of each level against the input: SDCM with its band, and with real sets."""
    sizes = [each.size for each in result.predictions]
    data: list[dict[str, Any]] = []
    for index, name in enumerate(result.caches):
        colour = LINE_COLOURS[index % len(LINE_COLOURS)]
        rates = [each.sdcm[name] for each in result.predictions]
        data.append(
            {
                "type": "scatter", "mode": "lines+markers", "name": f"{name}, SDCM", "x": sizes,
                "y": [rate.value for rate in rates], "line": {"color": colour, "dash": "dot"},
                "error_y": _bars([(rate.value, rate.low, rate.high) for rate in rates]),
                "hovertemplate": f"input %{{x:,}}<br>%{{y:.3%}}<extra>{escape(name)}, SDCM</extra>",
            }
        )  # fmt: skip
        known = [(each.size, each.set_aware.whole[index]) for each in result.predictions if each.set_aware is not None]
        if known:
            data.append(
                {
                    "type": "scatter", "mode": "lines+markers", "name": f"{name}, real sets",
                    "x": [size for size, _ in known], "y": [ratio for _, ratio in known], "line": {"color": colour},
                    "hovertemplate": f"input %{{x:,}}<br>%{{y:.3%}}<extra>{escape(name)}, real sets</extra>",
                }
            )  # fmt: skip
    layout = {"showlegend": True, "xaxis": _inputs(sizes), "yaxis": axis("hits of all accesses", tickformat=".1%")}
    return {"data": data, "layout": layout}


def run_times(result: PredictResult) -> dict[str, Any]:
    """Plotly's figure of the run time against the input, by model, with what was measured."""
    data: list[dict[str, Any]] = []
    for index, model in enumerate(models_of(result)):
        known = [(each.size, each.times[model]) for each in result.predictions if model in each.times]
        ends = [
            (
                time.seconds,
                time.seconds if time.low is None else time.low,
                time.seconds if time.high is None else time.high,
            )
            for _, time in known
        ]
        points = [(size, time.seconds) for size, time in known]
        data.append(_times(model, points, LINE_COLOURS[index % len(LINE_COLOURS)]) | {"error_y": _bars(ends)})
    if result.measured:
        measured = sorted(result.measured.items())
        marker = {"color": "#1c2530", "size": 10, "symbol": "x"}
        data.append(_times("measured", measured, "#1c2530") | {"mode": "markers", "marker": marker})
    sizes = [each.size for each in result.predictions] + list(result.measured)
    layout = {"showlegend": True, "xaxis": _inputs(sizes), "yaxis": axis("run time (s)", type="log")}
    return {"data": data, "layout": layout}


def _times(name: str, points: list[tuple[int, float]], colour: str) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "lines+markers", "name": name, "x": [size for size, _ in points],
        "y": [seconds for _, seconds in points], "line": {"color": colour},
        "customdata": [duration(seconds) for _, seconds in points],
        "hovertemplate": "input %{x:,}<br>%{customdata}<extra>" + escape(name) + "</extra>",
    }  # fmt: skip


def _bars(ends: list[tuple[float, float, float]]) -> dict[str, Any]:
    """Error bars from (value, low, high)."""
    return {
        "type": "data", "symmetric": False, "thickness": 1,
        "array": [max(high - value, 0.0) for value, _, high in ends],
        "arrayminus": [max(value - low, 0.0) for value, low, _ in ends],
    }  # fmt: skip


def _inputs(sizes: list[int]) -> dict[str, Any]:
    return axis("input", type="log" if max(sizes) > 4 * min(sizes) else "linear")
