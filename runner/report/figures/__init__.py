"""Figures of results as plotly's dictionaries ``{"data": [...], "layout": {...}}``: what the reports draw, and what the
Python interface's ``.plot()`` gives (``plotly.graph_objects.Figure(figure)``).

Several views of a figure are plotly's own buttons in it (``layout.updatemenus``). Equal results give equal figures.
"""

from __future__ import annotations

from manyscale.runner.report.figures.differences import compare, what_if
from manyscale.runner.report.figures.plan import plan
from manyscale.runner.report.figures.scaling import scaling, scaling_factors
from manyscale.runner.report.figures.sweep import sweep
from manyscale.runner.report.figures.timeline import timeline
from manyscale.runner.report.figures.workload import workload

__all__ = ["compare", "plan", "scaling", "scaling_factors", "sweep", "timeline", "what_if", "workload"]
