"""Ready views of a Paraver trace: configuration files (.cfg) that Paraver loads with the trace.

Format: Paraver's configuration 3.4, as its kernel reads it (bsc-performance-tools/paraver-kernel, api/cfg.cpp):
windows, each of which shows one value per thread over time, and tables (2D analyzers), whose columns are values of a
window.

``trace.timeline.cfg``
    What ranks and cores do: task types on cores, states with messages, MPI calls (as figure 6.2 of Grass, UPC 2017).
``trace.task-times.cfg``
    How long instances of each task type take on each core: mean and standard deviation, which say how far one instance
    stands for all (as figure 4.1); of a run, how long they were created, and ready, before they began.
``trace.task-ipc.cfg``
    How IPC varies over the instances of each task type: a histogram per type (as figure 5.1).
``trace.task-counters.cfg``
    Instructions, cycles and misses per 1,000 instructions of the instances on each core.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from manyscale.runner.readers.paraver import labels
from manyscale.runner.report.core_rows import CoreRows
from manyscale.runner.report.paraver.instances import IPC_UNIT

_MOST: Final = "1000000000000000000.000000"
_IPC_STEP: Final = 0.05
_MOST_IPC: Final = 8
_LAST: Final = "Last Evt Val"
_NEXT: Final = "Next Evt Val"


@dataclass
class View:
    """The text of a file in the making: windows are known by their numbers, from 1."""

    windows: list[str] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)

    def text(self) -> str:
        head = f"#ParaverCFG\nConfigFile.Version: 3.4\nConfigFile.NumWindows: {len(self.windows)}\n\n"
        return head + "\n".join(self.windows + self.tables)

    def events(
        self, name: str, types: Sequence[int], shown: str = _LAST, *, most: float = 0, factor: float = 1,
        color: bool = True,
    ) -> int:  # fmt: skip
        """A window of the values of events. ``color``: a value is a name, else a size."""
        chosen = f"window_filter_module evt_type {len(types)} {' '.join(map(str, types))}\n"
        return self._single(name, shown, chosen, "=", is_open=color, factor=factor, most=most, color=color)

    def states(self, name: str) -> int:
        """A window of states, with lines for messages."""
        return self._single(name, "State As Is", "", "All", is_open=True, lines=True)

    def quotient(self, name: str, one: int, other: int, factor: float) -> int:
        """A window of the quotient of two windows."""
        number = len(self.windows) + 1
        self.windows.append(
            _head(name, "composed", number)
            + f"window_factors {factor:.12f} 1.000000000000\nwindow_operation divide\n"
            + f"window_identifiers {one} {other}\n"
            + _look(is_open=True, lines=False, color=False, most=100)
            + "window_selected_functions { 5, { {appl, Adding}, {task, Adding}, {node, Adding}, {system, Adding}, "
            "{workload, Adding}, } }\n" + _composed("As Is")
        )
        return number

    def table(
        self, name: str, columns: int, data: int, statistic: str, *, limits: tuple[float, float, float] | None = None,
        planes: int | None = None,
    ) -> None:  # fmt: skip
        """A row per thread and a column per value of window ``columns``, all of them or between ``limits`` (least,
        most, step), with a ``statistic`` of window ``data``; ``planes``: a table for each value of this window."""
        least, most, step = limits or (1, 1e6, 1)
        lines = [
            "< NEW ANALYZER2D >", f"Analyzer2D.Name: {name}", "Analyzer2D.X: 414", "Analyzer2D.Y: 54",
            "Analyzer2D.Width: 700", "Analyzer2D.Height: 400", f"Analyzer2D.ControlWindow: {columns}",
            f"Analyzer2D.DataWindow: {data}", "Analyzer2D.Accumulator: Semantic", f"Analyzer2D.Statistic: {statistic}",
            "Analyzer2D.CalculateAll: True", "Analyzer2D.HideCols: True", "Analyzer2D.HorizVert: Horizontal",
            "Analyzer2D.Color: True", "Analyzer2D.SemanticColor: False", "Analyzer2D.Zoom: Disabled",
            "Analyzer2D.SortCols: False", "Analyzer2D.SortCriteria: Average",
            f"Analyzer2D.Parameters: 2 -{_MOST} {_MOST}", "Analyzer2D.AnalysisLimits: Alltrace",
            f"Analyzer2D.ComputeYScale: {limits is None}", f"Analyzer2D.Minimum: {least:.12f}",
            f"Analyzer2D.Maximum: {most:.12f}", f"Analyzer2D.Delta: {step:.12f}", "Analyzer2D.ComputeGradient: True",
            "Analyzer2D.MinimumGradient: 0", "Analyzer2D.MaximumGradient: 1", "Analyzer2D.PixelSize: 1",
            "Analyzer2D.CodeColor: False",
        ]  # fmt: skip
        if planes is not None:
            lines += [
                f"Analyzer2D.3D_ControlWindow: {planes}", "Analyzer3D.ComputeYScale: True",
                "Analyzer2D.3D_Minimum: 1.000000000000", "Analyzer2D.3D_Maximum: 1000000.000000000000",
                "Analyzer2D.3D_Delta: 1.000000000000", "Analyzer2D.3D_FixedValue: 1.000000000000",
            ]  # fmt: skip
        self.tables.append("\n".join(lines) + "\n")

    def _single(
        self, name: str, shown: str, chosen: str, compare: str, *, is_open: bool, lines: bool = False,
        color: bool = True, factor: float = 1, most: float = 0,
    ) -> int:  # fmt: skip
        number = len(self.windows) + 1
        self.windows.append(
            _head(name, "single", number)
            + _look(is_open=is_open, lines=lines, color=color, most=most)
            + "window_selected_functions { 14, { {cpu, Active Thd}, {appl, Adding}, {task, Adding}, {thread, "
            + shown
            + "}, {node, Adding}, {system, Adding}, {workload, Adding}, {from_obj, All}, {to_obj, All}, "
            "{tag_msg, All}, {size_msg, All}, {bw_msg, All}, {evt_type, "
            + compare
            + "}, {evt_value, All} } }\n"
            + _composed("As Is" if factor == 1 else "Prod")
            + (f"window_semantic_module compose_thread Prod {{ 1, {{ 1 {factor:.12f} }} }}\n" if factor != 1 else "")
            + chosen
        )
        return number


def _head(name: str, kind: str, number: int) -> str:
    bar = "#" * 80
    title = f"{bar}\n< NEW DISPLAYING WINDOW {name} >\n{bar}\n"
    return f"{title}window_name {name}\nwindow_type {kind}\nwindow_id {number}\n"


def _look(*, is_open: bool, lines: bool, color: bool, most: float) -> str:
    switches = {True: "true", False: "false"}
    mode = "window_in_code_mode" if color else "window_in_null_gradient_mode"
    return (
        "window_position_x 300\nwindow_position_y 60\nwindow_width 900\nwindow_height 300\n"
        f"window_comm_lines_enabled {switches[lines]}\nwindow_flags_enabled false\nwindow_noncolor_mode true\n"
        f"window_color_mode {mode}\nwindow_logical_filtered true\nwindow_physical_filtered false\n"
        "window_comm_fromto true\nwindow_comm_tagsize true\nwindow_comm_typeval true\nwindow_units Microseconds\n"
        f"window_maximum_y {most or 20:.12f}\nwindow_minimum_y 0.000000000000\n"
        f"window_compute_y_max {switches[not most]}\nwindow_level thread\nwindow_scale_relative 1.000000000000\n"
        "window_end_time_relative 1.000000000000\nwindow_object appl { 1, { All } }\n"
        f"window_begin_time_relative 0.000000000000\nwindow_open {switches[is_open]}\nwindow_drawmode 1\n"
        "window_drawmode_rows 1\nwindow_pixel_size 1\nwindow_labels_to_draw 1\n"
    )


def _composed(of_thread: str) -> str:
    return (
        "window_compose_functions { 9, { {compose_cpu, As Is}, {compose_appl, As Is}, {compose_task, As Is}, "
        f"{{compose_thread, {of_thread}}}, {{compose_node, As Is}}, {{compose_system, As Is}}, "
        "{compose_workload, As Is}, {topcompose1, As Is}, {topcompose2, As Is} } }\n"
    )


def write_views(directory: Path, rows: CoreRows | None, more: Mapping[str, int]) -> None:
    """Write the views that a run's trace has something for: without cores, the first alone, without task types.
    ``more``: events of the first, by the titles of their windows."""
    events = {"Task types on cores": labels.TASK_TYPE, "Model that times are from": labels.MODEL}
    files = {"timeline": timeline((events if rows is not None else {}) | dict(more))}
    if rows is not None:
        files["task-times"] = task_times()
        _add_waits(files["task-times"])
        if (rows.instructions >= 0).any():
            files["task-ipc"] = _task_ipc()
            files["task-counters"] = _task_counters(rows)
    write_files(files, directory, "trace")


def write_files(files: Mapping[str, View], directory: Path, stem: str) -> None:
    """Views of the trace ``stem``.prv, by name."""
    for name, view in files.items():
        (directory / f"{stem}.{name}.cfg").write_text(view.text())


def timeline(events: Mapping[str, int]) -> View:
    """States with messages, MPI calls, and windows of some events, by their titles."""
    view = View()
    view.states("States and messages")
    view.events("MPI calls", (labels.POINT_TO_POINT, labels.COLLECTIVE, labels.OTHER))
    for title, event in events.items():
        view.events(title, (event,))
    return view


def task_times() -> View:
    """How long instances of each task type take."""
    view = View()
    kind = view.events("Task type", (labels.TASK_TYPE,))
    for statistic in ("Average Burst Time", "Stdev Burst Time", "# Bursts", "Time"):
        view.table(f"{statistic} by task type", kind, kind, statistic)
    return view


def _add_waits(view: View) -> None:
    """How long instances of each task type wait, where they begin for the first time."""
    kind = view.events("Task type", (labels.TASK_TYPE,))
    for what, event in (("creation", labels.SINCE_CREATED), ("readiness", labels.SINCE_READY)):
        waited = view.events(f"Time from {what} to begin (ns)", (event,), color=False)
        view.table(
            f"Mean time from {what} to begin by task type (ns), of those above 0", kind, waited, "Average value != 0"
        )


def _task_ipc() -> View:
    view = View()
    kind = view.events("Task type", (labels.TASK_TYPE,))
    ipc = view.events(
        "IPC of the task instance", (labels.IPC,), factor=1 / IPC_UNIT, most=_MOST_IPC // 2, color=False
    )  # fmt: skip
    limits = (_IPC_STEP, float(_MOST_IPC), _IPC_STEP)
    view.table("Instances by IPC, a plane for each task type", ipc, ipc, "# Bursts", limits=limits, planes=kind)
    view.table("Mean IPC by task type, weighted by time", kind, ipc, "Average value != 0")
    return view


def _task_counters(rows: CoreRows) -> View:
    view = View()
    kind = view.events("Task type", (labels.TASK_TYPE,))
    instructions = view.events("Instructions", (labels.INSTRUCTIONS,), _NEXT, color=False)
    cycles = view.events("Cycles", (labels.CYCLES,), _NEXT, color=False)
    for name, window in (("Instructions", instructions), ("Cycles", cycles)):
        view.table(f"{name} by task type", kind, window, "Sum bursts")
    for level in rows.misses:
        event = labels.MISSES[min(level, len(labels.MISSES)) - 1]
        missed = view.events(f"Misses of level {level}", (event,), _NEXT, color=False)
        view.quotient(f"Misses of level {level} per 1,000 instructions", missed, instructions, 1000)
        view.table(f"Misses of level {level} by task type", kind, missed, "Sum bursts")
    return view
