"""Several views of one figure behind buttons: absolute times, the change in per cent, from zero, and the like.

They stand in the figure itself as plotly's own buttons (``updatemenus``), so that they work wherever the figure is
shown; the script of a report makes buttons of the page of them, which the keyboard reaches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class View:
    """One view: what differs from the others of each trace (``data``: a list per property, an entry per trace) and of
    the layout (``layout``, by plotly's dotted names)."""

    label: str
    data: Mapping[str, Sequence[Any]]
    layout: Mapping[str, Any] = field(default_factory=dict)


def with_views(data: list[dict[str, Any]], layout: dict[str, Any], views: Sequence[View]) -> dict[str, Any]:
    """The figure at its first view, with buttons for all of them if there are several."""
    first = views[0]
    shown = []
    for i, trace in enumerate(data):
        for name, values in first.data.items():
            trace = _assigned(trace, name.split("."), values[i])
        shown.append(trace)
    whole = dict(layout)
    for name, value in first.layout.items():
        whole = _assigned(whole, name.split("."), value)
    if len(views) > 1:
        buttons = [
            {
                "label": view.label,
                "method": "update",
                "args": [{key: list(values) for key, values in view.data.items()}, dict(view.layout)],
            }
            for view in views
        ]
        whole["updatemenus"] = [
            {
                "type": "buttons", "direction": "right", "showactive": True, "x": 0, "xanchor": "left", "y": 1.02,
                "yanchor": "bottom", "buttons": buttons,
            }
        ]  # fmt: skip
    return {"data": shown, "layout": whole}


def without_legend(figure: Mapping[str, Any]) -> dict[str, Any]:
    """The figure where its names stand beside it, in the page."""
    return {**figure, "layout": {**figure["layout"], "showlegend": False}}


def _assigned(mapping: dict[str, Any], keys: list[str], value: Any) -> dict[str, Any]:
    if len(keys) == 1:
        return mapping | {keys[0]: value}
    return mapping | {keys[0]: _assigned(mapping.get(keys[0], {}), keys[1:], value)}
