"""Report of training steps: how long they take, where the GPUs' time goes, and what groups communicate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload.columns import to_numpy
from manyscale.models.workload.quantities import PS_PER_SECOND
from manyscale.runner.kernel_names import function_name
from manyscale.runner.predict.node.tables import codes_and_names
from manyscale.runner.predict.statistic import Statistic
from manyscale.runner.report.page import Page
from manyscale.runner.report.palette import COLOURS
from manyscale.runner.report.sections.gpu_streams import add_streams
from manyscale.runner.report.text import duration, escape, percent, size, swatch_style, table
from manyscale.runner.run.results import Result

MAX_STEPS: Final = 64  # rows: the first
MAX_PATH: Final = 12  # rows of each table of the critical path
MAX_KERNELS: Final = 32  # rows: those that take longest in all
_PATH_NOTE: Final = (
    "What the end of the run waited for, back through streams, collectives, messages and threads: shorter work "
    "elsewhere changes nothing. timeline/step_path.parquet holds every part."
)
_PARTS: Final = (
    ("compute", "compute", "computes or moves memory"),
    ("exposed_transfer", "collective", "transfers, and computes nothing meanwhile"),
    ("exposed_wait", "wait", "waits for other members, and computes nothing meanwhile"),
    ("idle", "idle", "idles: its host gives it nothing"),
)


def add_steps(page: Page, result: Result) -> None:
    """Of a run whose kernels have traced times (headline.has_steps)."""
    figures = result.statistics
    parts = [_parts_table(figures)]
    if result.steps is not None and result.steps.num_rows:
        parts.append(_steps_table(result.steps))
    page.add("Where the GPUs' time goes", *parts, note="Mean over ranks, from the begin of their first step on.")
    groups = _groups_table(figures)
    if groups:
        page.add(
            "Groups that communicate", groups,
            note="Means over members, of all collectives and messages together; exposed: the GPU runs nothing else.",
        )  # fmt: skip
    if result.step_path is not None and result.step_path.num_rows:
        page.add("Critical path", _path_tables(result.step_path), note=_PATH_NOTE)
    streams = result.gpu_streams
    if streams is not None and streams.num_rows:
        page.add("Kernels", _kernels_table(streams))
        add_streams(page, streams, result.makespan_seconds)


def _path_tables(path: pa.Table) -> str:
    """By kind, by rank, and by kernel or collective."""
    took = (to_numpy(path.column("end_ps")) - to_numpy(path.column("start_ps"))) / PS_PER_SECOND
    whole = float(took.sum()) or 1.0
    kind, kinds = codes_and_names(path.column("kind"))
    name, names = codes_and_names(path.column("name"))
    rank = to_numpy(path.column("rank"))
    called = [function_name(each) for each in names]

    def shares(title: str, labels: Sequence[str], of: np.ndarray, shown: np.ndarray) -> str:
        total = np.bincount(of[shown], took[shown], len(labels))
        order = [each for each in np.argsort(-total, kind="stable").tolist() if total[each] > 0][:MAX_PATH]
        rows = [
            (escape(labels[each]), duration(float(total[each])), percent(float(total[each]) / whole)) for each in order
        ]
        return table((title, "time", "share"), rows)

    every = np.ones(len(took), np.bool_)
    known = np.array([bool(each) for each in names], np.bool_)[name]
    ranks = [f"rank {each}" for each in range(int(rank.max()) + 1)]
    left = shares("kind", kinds, kind, every) + "<br>" + shares("rank", ranks, rank, every)
    return f'<div class="pair"><div>{left}</div><div>{shares("kernel or collective", called, name, known)}</div></div>'


def _value(figures: Mapping[str, Statistic], name: str) -> float:
    return float(figures[name].value)


def _parts_table(figures: Mapping[str, Statistic]) -> str:
    values = [_value(figures, f"gpu.time.{name}") for name, _, _ in _PARTS]
    whole = sum(values) or 1.0
    rows = [
        (
            f'<i class="swatch" style="{swatch_style(COLOURS[colour])}"></i>{escape(f"a GPU {text}")}',
            duration(value), percent(value / whole),
        )
        for (_, colour, text), value in zip(_PARTS, values, strict=True)
    ]  # fmt: skip
    bar = "".join(
        f'<i style="width:{100 * value / whole:.4f}%;{swatch_style(COLOURS[colour])}"></i>'
        for (_, colour, _), value in zip(_PARTS, values, strict=True)
        if value > 0
    )
    return f'<div class="bar">{bar}</div>{table(("", "time", "share"), rows)}'


def _steps_table(steps: pa.Table) -> str:
    number, start, end = (to_numpy(steps.column(name)) for name in ("step", "start_ps", "end_ps"))
    took = (end - start) / PS_PER_SECOND
    rows = []
    known = np.unique(number)
    for each in known[:MAX_STEPS].tolist():
        mine = number == each
        whole = (end[mine].max() - start[mine].min()) / PS_PER_SECOND
        own = took[mine]
        cells = (float(own.mean()), float(own.min()), float(own.max()), float(whole))
        rows.append((f"{each}", *(duration(value) for value in cells)))
    more = f"<p>The first {MAX_STEPS} of {len(known):,} steps; timeline/steps.parquet has all.</p>"
    head = ("step", "mean over ranks", "shortest", "longest", "first begin to last end")
    return table(head, rows) + (more if len(known) > MAX_STEPS else "")


def _groups_table(figures: Mapping[str, Statistic]) -> str:
    names = [
        name.removesuffix(".exposed") for name in figures if name.startswith("group.") and name.endswith(".exposed")
    ]
    rows = []
    for name in names:
        count, moved = int(figures[f"{name}.operations"].value), _value(figures, f"{name}.bytes")
        times = [duration(_value(figures, f"{name}.{what}")) for what in ("transfer", "wait", "exposed")]
        rows.append((escape(name.removeprefix("group.")), f"{count:,}", size(moved), *times))
    return table(("group", "collectives, messages", "bytes", "transfer", "wait", "exposed"), rows) if rows else ""


def _kernels_table(streams: pa.Table) -> str:
    kernel, names = codes_and_names(streams.column("kernel_name"))
    took = (to_numpy(streams.column("end_ps")) - to_numpy(streams.column("start_ps"))) / PS_PER_SECOND
    total = np.bincount(kernel, took, len(names))
    count = np.bincount(kernel, minlength=len(names))
    is_kernel = np.array([bool(name) for name in names], np.bool_)
    whole = float(total[is_kernel].sum()) or 1.0
    order = [each for each in np.argsort(-total, kind="stable").tolist() if is_kernel[each] and count[each]]
    rows = [
        (
            escape(function_name(names[each])), f"{count[each]:,}", duration(float(total[each])),
            duration(float(total[each]) / int(count[each])), percent(float(total[each]) / whole),
        )
        for each in order[:MAX_KERNELS]
    ]  # fmt: skip
    more = f"<p>Those that take longest of {len(order):,}.</p>" if len(order) > MAX_KERNELS else ""
    return table(("kernel", "launches", "time", "each", "of all kernels"), rows) + more
