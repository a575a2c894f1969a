"""Report of what kernels achieve against the peaks of the GPU: a table of shares, and rooflines.

A point of a roofline is a kernel: how much it does for each byte that a memory moves, and how fast. It lies below the
memory's ceiling, a slope, and below that of what it does. Drawn are instructions (Ding and Williams, "An Instruction
Roofline Model for GPUs", PMBS 2019), which every kernel has, and arithmetic operations by type (Williams, Waterman,
Patterson, "Roofline", CACM 2009) where there are some.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from manyscale.models.gpu.parameters import Gpu
from manyscale.models.gpu.roofline.ceilings import MEMORIES, ceilings
from manyscale.models.gpu.roofline.operations import OPERATIONS, TENSOR
from manyscale.models.workload.columns import to_numpy
from manyscale.runner.kernel_names import function_name
from manyscale.runner.predict.node.tables import codes_and_names
from manyscale.runner.report.page import Page, colour_legend
from manyscale.runner.report.palette import GREY, LINE_DASHES, axis, line_style, line_symbol
from manyscale.runner.report.text import escape, percent, side_by_side, table

MAX_KERNELS: Final = 12  # that are drawn, and have a row: those with most cycles
_NAMES: Final = {
    "issue": "issue", "fp64": "FP64", "fp32": "FP32", "fp16": "FP16", "tensor_fp64": "tensor FP64",
    "tensor_tf32": "tensor TF32", "tensor_bf16": "tensor BF16", "tensor_fp16": "tensor FP16",
    "tensor_fp8": "tensor FP8", "tensor_int8": "tensor INT8", "tensor_int4": "tensor INT4",
    "tensor_binary": "tensor binary", "l1": "L1", "l2": "L2", "dram": "DRAM",
}  # fmt: skip
_RATES: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True)
class Kernels:
    """What kernels come to, those with most cycles first: ``name``; ``cycles`` float64[kernels]; by resource,
    float64[kernels]: its ``amount`` and the cycles ``at_peak``; of resources that no kernel uses there is nothing."""

    name: list[str]
    cycles: np.ndarray
    amount: Mapping[str, np.ndarray]
    at_peak: Mapping[str, np.ndarray]

    def share(self, *resources: str) -> np.ndarray:
        """Of the peak, float64[kernels]; of several that take the same unit, their sum."""
        used = [self.at_peak[each] for each in resources if each in self.at_peak]
        return np.asarray(sum(used, np.zeros(len(self.name))) / np.maximum(self.cycles, 1))


def kernels_of(launches: pa.Table, resources: pa.Table) -> Kernels:
    """Of the launches that were simulated."""
    ids = to_numpy(resources.column("launch_id"))
    known, first = np.unique(to_numpy(launches.column("launch_id")), return_index=True)
    simulated, of_row = np.unique(ids, return_inverse=True)
    row = first[np.searchsorted(known, simulated)]
    names = [launches.column("kernel")[int(each)].as_py() for each in row]
    kernels = list(dict.fromkeys(names))
    kernel = np.array([kernels.index(name) for name in names], np.int64)
    inside = to_numpy(launches.column("cycles")) - to_numpy(launches.column("launch_latency_cycles"))
    cycles = np.bincount(kernel, inside[row].astype(float), len(kernels))
    code, all_names = codes_and_names(resources.column("resource"))
    order = np.argsort(-cycles, kind="stable")[:MAX_KERNELS]
    sums: dict[str, dict[str, np.ndarray]] = {"amount": {}, "peak_cycles": {}}
    for number, name in enumerate(all_names):
        mine = code == number
        if mine.any():
            for column, found in sums.items():
                values = to_numpy(resources.column(column))[mine]
                found[name] = np.bincount(kernel[of_row[mine]], values, len(kernels))[order]
    return Kernels([kernels[each] for each in order], cycles[order], sums["amount"], sums["peak_cycles"])


def add_roofline(page: Page, launches: pa.Table, resources: pa.Table, gpu: Gpu) -> None:
    """Nothing where nothing was simulated."""
    if not resources.num_rows:
        return
    kernels = kernels_of(launches, resources)
    charts = [_instructions(page, kernels, gpu)]
    if any(name in kernels.amount for name in OPERATIONS):
        charts.append(_operations(page, kernels, gpu))
    note = (
        "Shares of what the whole GPU could do in the kernel's cycles, launch latency left out; of operations a fused "
        "multiplication and addition is two. A mark of a roofline is a kernel by the bytes of one memory (left: "
        "circles of L1, squares of L2, diamonds of DRAM); what is nearest to a ceiling is held up by it, what lies far "
        "below all of them by latencies."
    )
    if "fp16" in kernels.amount and "half" not in gpu.instructions:
        note += (
            " FP16 outside tensor cores is taken at the rate of FP32 instructions, two numbers each, since the target "
            "does not say otherwise (node.gpu.instructions)."
        )
    colours = [(line_style(place)[0], shortened(function_name(name), 40)) for place, name in enumerate(kernels.name)]
    page.add("Achieved against peak", _table(kernels), side_by_side(*charts), colour_legend(colours), note=note)


def _table(kernels: Kernels) -> str:
    groups: dict[str, tuple[str, ...]] = {_NAMES[name]: (name,) for name in ("issue", "fp64", "fp32", "fp16")}
    groups |= {"tensor": TENSOR} | {_NAMES[name]: (name,) for name in MEMORIES}
    units = [name for name in kernels.at_peak if name.endswith("_unit")]
    shares = {name: kernels.share(*of) for name, of in groups.items() if any(each in kernels.at_peak for each in of)}
    of_units = {f"{name.removesuffix('_unit')} unit": kernels.share(name) for name in units}
    rows = []
    for place, name in enumerate(kernels.name):
        unit = max(of_units, key=lambda each: of_units[each][place], default="")
        every = {each: float(values[place]) for each, values in (shares | of_units).items()}
        nearest = max(every, key=lambda each: every[each])
        rows.append(
            (
                kernel_cell(name),
                *(escape(percent(float(values[place]))) for values in shares.values()),
                escape(f"{percent(float(of_units[unit][place]))} ({unit})") if unit else "-",
                escape(nearest),
            )
        )
    return table(("kernel", *shares, "busiest unit", "nearest ceiling"), rows, text_from=len(shares) + 2)


def kernel_cell(name: str, most: int = 60) -> str:
    """A kernel's name in a table: the function; all of it as the title."""
    return f'<span class="meaning" title="{escape(name)}">{escape(shortened(function_name(name), most))}</span>'


def shortened(name: str, most: int = 60) -> str:
    """At most so many letters."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


# ---- rooflines: amounts per byte against amounts in time ----


@dataclass(frozen=True)
class _Point:
    label: str
    group: int  # colour
    symbol: int
    x: float
    y: float


def _instructions(page: Page, kernels: Kernels, gpu: Gpu) -> str:
    """Warp instructions per cycle against warp instructions per byte of each memory."""
    most = ceilings(gpu)
    issued = kernels.amount["issue"]
    points = [
        _Point(f"{shortened(function_name(name), 40)}, {_NAMES[memory]}", place, MEMORIES.index(memory),
               float(issued[place] / kernels.amount[memory][place]), float(issued[place] / kernels.cycles[place]))
        for place, name in enumerate(kernels.name)
        for memory in MEMORIES
        if memory in kernels.amount and kernels.amount[memory][place] > 0 and kernels.cycles[place] > 0
    ]  # fmt: skip
    slopes = {f"{_NAMES[name]} {most[name]:,.4g} B/cycle": most[name] for name in MEMORIES}
    flats = {f"issue {most['issue']:,.4g}": most["issue"]}
    titles = "warp instructions per byte", "warp instructions per cycle"
    return _roofline(page, "gpu-roofline-instructions", titles, points, slopes, flats)


def _operations(page: Page, kernels: Kernels, gpu: Gpu) -> str:
    """Operations per second of each type against operations per byte of DRAM, or of L2 where DRAM moves nothing."""
    most = ceilings(gpu)
    hz = gpu.frequency_hz
    kinds = [name for name in OPERATIONS if name in kernels.amount]
    points = []
    for place, name in enumerate(kernels.name):
        for memory in ("dram", "l2"):
            moved = kernels.amount.get(memory)
            if moved is None or not moved[place] or not kernels.cycles[place]:
                continue
            points += [
                _Point(f"{shortened(function_name(name), 40)}, {_NAMES[kind]}, {_NAMES[memory]}", place,
                       OPERATIONS.index(kind), float(kernels.amount[kind][place] / moved[place]),
                       float(kernels.amount[kind][place] / kernels.cycles[place] * hz))
                for kind in kinds if kernels.amount[kind][place] > 0
            ]  # fmt: skip
    peaks = {kind: most[kind] * hz for kind in ("fp32", *kinds) if kind in most}
    for kind in kinds:
        if kind in TENSOR:
            at_peak = kernels.at_peak[kind]
            executed = float((kernels.amount[kind] / np.where(at_peak > 0, at_peak, np.inf)).max())
            peaks[kind] = max(executed, most.get(kind, 0.0)) * hz
    slopes = {f"{_NAMES[name]} {_rate(most[name] * hz)}B/s": most[name] * hz for name in ("l2", "dram")}
    flats = {f"{_NAMES[kind]} {_rate(peak)}OP/s": peak for kind, peak in peaks.items()}
    titles = "operations per byte", "operations per second"
    return _roofline(page, "gpu-roofline-operations", titles, points, slopes, flats)


def _roofline(
    page: Page, element: str, titles: tuple[str, str], points: Sequence[_Point], slopes: Mapping[str, float],
    flats: Mapping[str, float],
) -> str:  # fmt: skip
    """``slopes``: y of x = 1 by name; ``flats``: y by name."""
    highest = max(flats.values())
    ridges = [highest / slope for slope in slopes.values()]
    xs = [each.x for each in points] or [1.0]
    left, right = min(xs + ridges) / 4, max(xs + ridges) * 4
    data: list[dict[str, Any]] = []
    for number, (name, slope) in enumerate(slopes.items()):
        data.append(_ceiling(name, (left, left * slope), (highest / slope, highest), number))
    steepest = max(slopes.values())
    for number, (name, height) in enumerate(flats.items(), len(slopes)):
        data.append(_ceiling(name, (height / steepest, height), (right, height), number))
    for each in points:
        data.append(
            {
                "type": "scatter", "mode": "markers", "name": each.label, "x": [_short(each.x)], "y": [_short(each.y)],
                "marker": {"color": line_style(each.group)[0], "symbol": line_symbol(each.symbol), "size": 10},
                "hovertemplate": "%{y:.3~s} at %{x:.3~g} per byte<extra>%{fullData.name}</extra>", "showlegend": False,
            }
        )  # fmt: skip
    layout = {
        "xaxis": axis(titles[0], type="log"), "yaxis": axis(titles[1], type="log"),
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"}, "showlegend": True,
    }  # fmt: skip
    label = f"roofline: {titles[1]} against {titles[0]}"
    return page.chart(element, "figure", 420, {"data": data, "layout": layout}, label)


def _ceiling(name: str, begin: tuple[float, float], end: tuple[float, float], number: int) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "lines", "name": name, "x": [_short(begin[0]), _short(end[0])],
        "y": [_short(begin[1]), _short(end[1])], "hovertemplate": "%{fullData.name}<extra></extra>",
        "line": {"color": GREY, "width": 2, "dash": LINE_DASHES[number % len(LINE_DASHES)][0]},
    }  # fmt: skip


def _short(number: float) -> float:
    return float(f"{number:.5g}")


def _rate(number: float) -> str:
    length, unit = next(((length, unit) for length, unit in _RATES if number >= length), (1.0, ""))
    return f"{number / length:.3g} {unit}"
