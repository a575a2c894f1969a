"""Report of kernel launches: figures, a table of launches, cycles by cause, IPC over time, and thread blocks.

The views of Huang et al.: CPI stacks by kernel and launch (GPUMech, thesis figure 33), sizes of thread blocks (TBPoint,
IPDPS 2014, figure 8; thesis figure 10), homogeneous regions (IPDPS figure 6; thesis figure 8). Everything drawn is
bounded, whatever the number of launches and blocks.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload.columns import to_numpy
from manyscale.runner.kernel_names import function_name
from manyscale.runner.predict.node.tables import codes_and_names
from manyscale.runner.report.page import Page
from manyscale.runner.report.palette import COLORSCALE, LINE_COLOURS, axis
from manyscale.runner.report.sections.gpu_roofline import add_roofline, kernel_cell, shortened
from manyscale.runner.report.sections.gpu_source import add_source
from manyscale.runner.report.sections.gpu_streams import add_streams
from manyscale.runner.report.sections.node import colour_steps, figures_table, part_markers, stack_chart
from manyscale.runner.report.text import escape, percent, side_by_side, table
from manyscale.runner.run.results import Result

MAX_LAUNCHES: Final = 60  # of the table and the stacks: those with most cycles
MAX_POINTS: Final = 4000  # of a line or a cloud
MAX_SMS: Final = 128
MAX_REGION_ROWS: Final = 40
_BINS: Final = 400
_PATTERNS: Final = {
    "even": "regular: all about equally large", "repeated": "regular: every launch has the same sizes",
    "periodic": "regular: sizes come back", "stretches": "regular: long stretches of one size", "none": "irregular",
}  # fmt: skip


def add_launches(page: Page, result: Result) -> None:
    """Nothing where no kernel was launched."""
    launches = result.launches
    if launches is None or not launches.num_rows:
        return
    figures = [(name, each) for name, each in result.statistics.items() if name.startswith("gpu.")]
    note = "Cycles are those of an SM, launch latency included. L1 and L2: misses / accesses."
    if launches.num_rows > MAX_LAUNCHES:
        note += (
            f" Of {launches.num_rows:,} launches the {MAX_LAUNCHES} with most cycles (all: timeline/launches.parquet)."
        )
    whole = f"<details><summary>All figures of the GPU</summary>{figures_table(figures)}</details>"
    page.add(
        "Kernels", _kernels_table(launches), whole, note="Cycles without launch latency, of all launches together."
    )
    gpu = Gpu.of(result.machine.node)
    if result.gpu_resources is not None and gpu is not None:
        add_roofline(page, launches, result.gpu_resources, gpu)
    if result.gpu_streams is not None:
        add_streams(page, result.gpu_streams, result.makespan_seconds)
    if result.gpu_cpi_stacks is not None:
        _add_stacks(page, launches, result.gpu_cpi_stacks)
    add_source(page, result)
    if result.gpu_ipc is not None:
        _add_ipc(page, launches, result.gpu_ipc)
    page.add("Kernel launches", _launches_table(launches), note=note)
    if result.blocks is not None and result.blocks.num_rows:
        _add_blocks(page, launches, result.blocks)


def _chosen(launches: pa.Table, most: int) -> np.ndarray:
    """Rows of the launches with most cycles, in their order."""
    cycles = to_numpy(launches.column("cycles"))
    return np.sort(np.argsort(-cycles, kind="stable")[:most])


def _launches_table(launches: pa.Table) -> str:
    shown = launches.take(_chosen(launches, MAX_LAUNCHES)).to_pylist()
    rows = []
    for each in shown:
        inside = each["cycles"] - each["launch_latency_cycles"]
        stands = each["representative_id"] != each["launch_id"]
        rows.append(
            (
                f"{each['launch_id']:,}",
                kernel_cell(each["kernel"]),
                f"{each['blocks']:,}",
                f"{each['cycles']:,}",
                f"{each['warp_instructions'] / inside:.3g}" if inside else "-",
                f"{each['warp_instructions']:,}",
                escape(percent(each["occupancy"])),
                escape(percent(each["l1_miss_ratio"])),
                escape(percent(each["l2_miss_ratio"])),
                f"like {each['representative_id']:,}" if stands else escape(each["model"]),
            )
        )
    header = (
        "launch", "kernel", "blocks", "cycles", "IPC", "warp instructions", "occupancy", "L1", "L2", "predicted by",
    )  # fmt: skip
    return table(header, rows, numeric_from=2)


def _kernels_table(launches: pa.Table) -> str:
    """A row per kernel, those with most cycles first."""
    inside = to_numpy(launches.column("cycles")) - to_numpy(launches.column("launch_latency_cycles"))
    names = launches.column("kernel").to_pylist()
    kernels = list(dict.fromkeys(names))
    row = np.array([kernels.index(name) for name in names])
    sums = {
        name: np.bincount(row, to_numpy(launches.column(name)).astype(float), len(kernels))
        for name in ("warp_instructions", "blocks", "l1_accesses", "l1_misses", "l2_accesses", "l2_misses")
    }
    cycles = np.bincount(row, inside.astype(float), len(kernels))
    whole = max(float(cycles.sum()), 1.0)

    def ratio(part: str, of: str, each: int) -> str:
        return escape(percent(sums[part][each] / sums[of][each])) if sums[of][each] else "-"

    rows = [
        (
            kernel_cell(kernels[each]), f"{np.count_nonzero(row == each):,}",
            f"{sums['blocks'][each]:,.0f}", f"{cycles[each]:,.0f}", escape(percent(cycles[each] / whole)),
            f"{sums['warp_instructions'][each] / cycles[each]:.3g}" if cycles[each] else "-",
            ratio("l1_misses", "l1_accesses", each), ratio("l2_misses", "l2_accesses", each),
        )
        for each in np.argsort(-cycles, kind="stable")[:MAX_LAUNCHES].tolist()
    ]  # fmt: skip
    return table(("kernel", "launches", "blocks", "cycles", "share", "IPC", "L1 misses", "L2 misses"), rows)


def _short(name: str) -> str:
    return shortened(function_name(name))


# ---- cycles by cause ----


def _add_stacks(page: Page, launches: pa.Table, stacks: pa.Table) -> None:
    part, parts = codes_and_names(stacks.column("part"))
    ids = to_numpy(stacks.column("launch_id"))
    known, row = np.unique(ids, return_inverse=True)
    cycles = np.zeros((len(known), len(parts)))
    np.add.at(cycles, (row, part), to_numpy(stacks.column("cycles")))
    first = _first_rows(launches, known)
    work = np.maximum(to_numpy(launches.column("warp_instructions"))[first].astype(float), 1)
    kernels = [launches.column("kernel")[int(each)].as_py() for each in first]
    looks = part_markers(parts, cycles.sum(axis=0) > 0)
    names = list(dict.fromkeys(kernels))
    of_kernel = np.array([names.index(name) for name in kernels])
    by_kernel = np.zeros((len(names), len(parts)))
    np.add.at(by_kernel, of_kernel, cycles)
    by_kernel /= np.bincount(of_kernel, work, len(names))[:, None]
    most = np.argsort(-by_kernel.sum(axis=1) * np.bincount(of_kernel, work, len(names)), kind="stable")[:MAX_LAUNCHES]
    shown = np.sort(np.argsort(-cycles.sum(axis=1), kind="stable")[:MAX_LAUNCHES])
    left = stack_chart(
        page, "gpu-kernels", ("cycles per warp instruction", "kernel"), [_short(names[each]) for each in most], looks,
        by_kernel[most],
    )  # fmt: skip
    right = stack_chart(
        page, "gpu-launches", ("cycles per warp instruction", "launch"), [str(known[each]) for each in shown], looks,
        (cycles / work[:, None])[shown],
    )  # fmt: skip
    note = (
        "Cycles without launch latency per warp instruction of the whole GPU, by what the schedulers of the SMs do or "
        "wait for; of launches that were simulated."
    )
    if len(shown) < len(known):
        note += f" The {MAX_LAUNCHES} launches with most cycles are shown."
    page.add("Where the GPU's cycles go", side_by_side(left, right), note=note)


def _first_rows(launches: pa.Table, ids: np.ndarray) -> np.ndarray:
    """A row of ``launches`` of each of ``ids``."""
    known, first = np.unique(to_numpy(launches.column("launch_id")), return_index=True)
    return np.asarray(first[np.searchsorted(known, ids)])


# ---- IPC over time ----


def _add_ipc(page: Page, launches: pa.Table, ipc: pa.Table) -> None:
    """Warp instructions per cycle against cycles, launches one after the other, a colour for each kernel."""
    ids, start, end, issued = (
        to_numpy(ipc.column(name)) for name in ("launch_id", "start_cycle", "end_cycle", "warp_instructions")
    )
    if not len(ids):
        return
    known, row = np.unique(ids, return_inverse=True)
    length = np.zeros(len(known), np.int64)
    np.maximum.at(length, row, end)
    begins = np.concatenate(([0], np.cumsum(length)))
    step = -(-len(ids) // MAX_POINTS)
    group = np.zeros(len(ids), np.int64)  # consecutive bins of a launch that are drawn as one
    place = np.arange(len(ids)) - np.searchsorted(row, row, "left")
    group = np.unique(row.astype(np.int64) * (len(ids) + 1) + place // step, return_inverse=True)[1]
    firsts = np.searchsorted(group, np.arange(group[-1] + 1))
    lasts = np.append(firsts[1:], len(ids)) - 1
    value = np.add.reduceat(issued, firsts) / np.add.reduceat(end - start, firsts)
    x0, x1 = begins[row[firsts]] + start[firsts], begins[row[firsts]] + end[lasts]
    kernels = [launches.column("kernel")[int(each)].as_py() for each in _first_rows(launches, known)]
    names = list(dict.fromkeys(kernels))
    of_row = np.array([names.index(name) for name in kernels])[row[firsts]]
    data: list[dict[str, Any]] = []
    for number, name in enumerate(names[: len(LINE_COLOURS)]):
        mine = of_row == number if number < len(LINE_COLOURS) - 1 else of_row >= number
        # steps, interrupted where a bin does not follow on the one before
        begin, finish, height = x0[mine], x1[mine], np.round(value[mine], 5)
        breaks = np.flatnonzero(begin[1:] != finish[:-1]) + 1
        xs = _interrupted(np.stack((begin, finish), axis=1), breaks)
        ys = _interrupted(np.stack((height, height), axis=1), breaks)
        label = _short(name) if number < len(LINE_COLOURS) - 1 or len(names) == len(LINE_COLOURS) else "other kernels"
        data.append(
            {
                "type": "scatter", "mode": "lines", "name": label, "x": xs, "y": ys,
                "line": {"color": LINE_COLOURS[number], "width": 1.5},
                "hovertemplate": "%{y:.3~g} at cycle %{x:,}<extra>%{fullData.name}</extra>",
            }
        )  # fmt: skip
    layout = {
        "xaxis": axis("cycles, launches one after the other without their latencies", exponentformat="none"),
        "yaxis": axis("warp instructions per cycle", rangemode="tozero"),
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"}, "showlegend": len(data) > 1,
    }  # fmt: skip
    chart = page.chart("gpu-ipc", "figure", 360, {"data": data, "layout": layout}, "instructions per cycle over time")
    page.add("IPC over time", chart, note="All SMs together; of launches that were simulated.")


def _interrupted(pairs: np.ndarray, breaks: np.ndarray) -> list[float | int | None]:
    """The values of ``pairs`` one after the other, with a gap before each of the pairs ``breaks``."""
    return [
        each
        for number, part in enumerate(np.split(pairs, breaks))
        for each in ((None,) if number else ()) + tuple(part.ravel().tolist())
    ]


# ---- thread blocks ----


def _add_blocks(page: Page, launches: pa.Table, blocks: pa.Table) -> None:
    parts = [_kinds(launches, blocks), side_by_side(_sizes(page, blocks), _residency(page, blocks))]
    note = (
        "Left: thread instructions of each block over their mean, launches one after the other, red where one begins. "
        "Right: blocks of the longest launch that are resident on each SM."
    )
    regions = _regions(page, blocks)
    if regions:
        parts.append(regions)
        note += (
            " Below: TBPoint's homogeneous regions, stretches of blocks that are expected to run at one IPC; blocks of "
            "no region are white."
        )
    page.add("Thread blocks", *parts, note=note)


def _kinds(launches: pa.Table, blocks: pa.Table) -> str:
    """Regular and irregular kernels."""
    from manyscale.sampling.tbpoint.kinds import classify

    ids, size = to_numpy(blocks.column("launch_id")), to_numpy(blocks.column("thread_instructions"))
    known, count = np.unique(ids, return_counts=True)
    kernels = np.array([launches.column("kernel")[int(each)].as_py() for each in _first_rows(launches, known)])
    rows = []
    for name in list(dict.fromkeys(kernels.tolist()))[:MAX_LAUNCHES]:
        mine = known[kernels == name]
        kind = classify(size[np.isin(ids, mine)], count[kernels == name])
        text = _PATTERNS[kind.pattern] + (f" every {kind.period:,} blocks" if kind.period else "")
        rows.append(
            (
                kernel_cell(name), f"{len(mine):,}",
                f"{count[kernels == name].sum():,}", escape(percent(kind.variation)), escape(text),
            )
        )  # fmt: skip
    return table(("kernel", "launches simulated", "blocks", "spread of sizes", "kind"), rows)


def _sizes(page: Page, blocks: pa.Table) -> str:
    ids = to_numpy(blocks.column("launch_id"))
    size = to_numpy(blocks.column("thread_instructions")).astype(float)
    ratio = size / max(float(size.mean()), 1.0)
    begins = np.flatnonzero(np.diff(ids, prepend=ids[0] - 1))
    step = -(-len(ids) // MAX_POINTS)
    shown = np.arange(0, len(ids), step)
    starts = begins[:: -(-len(begins) // MAX_POINTS)]
    data = []
    for name, rows, colour, width in (
        ("block", shown, LINE_COLOURS[0], 3),
        ("first of a launch", starts, "#d62728", 6),
    ):
        data.append(
            {
                "type": "scatter", "mode": "markers", "name": name, "x": rows.tolist(),
                "y": [float(f"{each:.5g}") for each in ratio[rows]], "marker": {"color": colour, "size": width},
                "hovertemplate": "block %{x:,}: %{y:.3~g} times the mean<extra></extra>",
            }
        )  # fmt: skip
    layout = {
        "xaxis": axis("thread block", exponentformat="none"), "yaxis": axis("size / mean", rangemode="tozero"),
        "showlegend": False,
    }  # fmt: skip
    return page.chart("gpu-block-sizes", "figure", 360, {"data": data, "layout": layout}, "sizes of thread blocks")


def _residency(page: Page, blocks: pa.Table) -> str:
    """Mean number of resident blocks of each SM in each bin of time, of the launch that lasts longest."""
    ran = blocks.filter(blocks.column("sm").is_valid())
    if not ran.num_rows:
        return ""
    ids, sm, start, end = (to_numpy(ran.column(name)) for name in ("launch_id", "sm", "start_cycle", "end_cycle"))
    longest = ids[np.argmax(end)]
    mine = (ids == longest) & (sm < MAX_SMS)
    length = max(int(end[ids == longest].max()), 1)
    num_sms = int(sm[mine].max()) + 1
    cells = np.zeros((num_sms, _BINS + 1))
    # a block adds its share to the bins that it begins and ends in, and 1 to those between: sums of two ramps
    for place, sign in ((start[mine], 1.0), (end[mine], -1.0)):
        at = place / length * _BINS
        whole = np.minimum(at.astype(np.int64), _BINS - 1)
        part = at - whole
        np.add.at(cells, (sm[mine], whole), sign * (1 - part))
        np.add.at(cells, (sm[mine], whole + 1), sign * part)
    resident = np.cumsum(cells, axis=1)[:, :_BINS].clip(0)
    edges = np.linspace(0, length, _BINS + 1)
    data = {
        "type": "heatmap", "z": [[round(float(each), 2) for each in row] for row in resident],
        "x": [round(float(each), 1) for each in edges], "y": list(range(num_sms)), "colorscale": COLORSCALE, "zmin": 0,
        "colorbar": {"title": {"text": "blocks"}, "thickness": 14, "outlinewidth": 0},
        "hovertemplate": "SM %{y}, cycle %{x:,.0f}: %{z:.2~g} blocks<extra></extra>",
    }  # fmt: skip
    layout = {
        "xaxis": axis(f"cycles of launch {longest}", exponentformat="none"),
        "yaxis": axis("SM", autorange="reversed", tick0=0, dtick=-(-num_sms // 12)),
    }
    return page.chart("gpu-residency", "figure", 360, {"data": [data], "layout": layout}, "resident blocks of each SM")


def _regions(page: Page, blocks: pa.Table) -> str:
    """A row per launch of more than one region or of blocks outside: the region that most blocks of a bin are in."""
    ids, region = to_numpy(blocks.column("launch_id")), to_numpy(blocks.column("region")).astype(np.int64)
    known, first, count = np.unique(ids, return_index=True, return_counts=True)
    varied = [
        row for row in range(len(known)) if np.ptp(region[first[row] : first[row] + count[row]]) > 0
    ]  # fmt: skip
    if not varied:
        return ""
    rows = sorted(sorted(varied, key=lambda row: -int(count[row]))[:MAX_REGION_ROWS])
    colours = len(LINE_COLOURS)
    cells = []
    for row in rows:
        own = region[first[row] : first[row] + count[row]]
        at = (np.arange(len(own)) * _BINS // len(own)).astype(np.int64)
        code = np.where(own < 0, 0, own % colours + 1)
        votes = np.zeros((_BINS, colours + 1))
        np.add.at(votes, (at, code), 1)
        most = votes.argmax(axis=1)
        held = np.maximum.accumulate(np.where(votes.any(axis=1), np.arange(_BINS), 0))  # fewer blocks than bins
        cells.append(most[held].tolist())
    palette = ["#ffffff", *LINE_COLOURS]
    data = {
        "type": "heatmap", "z": cells, "x": [100 * each / _BINS for each in range(_BINS + 1)],
        "y": [str(known[row]) for row in rows], "zmin": -0.5, "zmax": len(palette) - 0.5,
        "colorscale": colour_steps(palette), "showscale": False, "ygap": 2,
        "hovertemplate": "launch %{y}, %{x:.0f} % of its blocks<extra></extra>",
    }  # fmt: skip
    layout = {
        "xaxis": axis("blocks of the launch (%)"),
        "yaxis": axis("launch", type="category", autorange="reversed"),
    }
    height = int(np.clip(len(rows) * 18 + 100, 180, 640))
    label = "homogeneous regions of thread blocks"
    return page.chart("gpu-regions", "figure", height, {"data": [data], "layout": layout}, label)
