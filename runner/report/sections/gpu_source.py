"""Report of kernels' source: lines that execute most, and branches that part the threads of a warp."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from manyscale.runner.report.page import Page
from manyscale.runner.report.sections.gpu_roofline import kernel_cell
from manyscale.runner.report.text import escape, percent, table
from manyscale.runner.run.results import Result

MAX_ROWS: Final = 20


def add_source(page: Page, result: Result) -> None:
    """Nothing where the trace tells nothing of it."""
    if result.gpu_lines is not None:
        note = "Those that execute most; an inlined function's instructions count for their line in that function."
        known = result.gpu_lines.column("cycles")
        whole = 0.0
        if known.null_count < len(known):
            whole = float(result.statistics["gpu.cycles"].value) - float(result.statistics["gpu.launch_latency"].value)
            note = (
                "Those that take most cycles, of all that the GPU takes without launch latency. The cycles of each "
                "cause (above) are spread over the instructions that can be it: those of issue by how often an "
                "instruction is issued, of memory by the sectors that a load asks for, of units and dependences by "
                "what it takes. For waits it is an estimate: the model does not count for which instruction it "
                "waits. An inlined function's instructions count for their line in that function."
            )
        page.add("Where cycles go by line" if whole else "Lines of source", _lines(result.gpu_lines, whole), note=note)
    branches = result.gpu_branches
    if branches is not None and branches.num_rows and branches.column("diverged")[0].as_py():
        note = "Branches after which some threads of a warp go on elsewhere; those that do so most often."
        page.add("Divergent branches", _branches(branches), note=note)


def _lines(lines: pa.Table, all_cycles: float) -> str:
    """``all_cycles``: those of the GPU; 0 where it is not known how many are for which line."""
    whole = sum(lines.column("warp_instructions").to_pylist())
    shown = sorted(lines.to_pylist(), key=lambda row: -(row["cycles"] or 0)) if all_cycles else lines.to_pylist()
    rows = []
    for each in shown[:MAX_ROWS]:
        share = each["warp_instructions"] / whole
        cycles: tuple[str, ...] = ()
        if all_cycles:
            own = each["cycles"] or 0.0
            cycles = f"{own:,.0f}", escape(percent(own / all_cycles)), escape(each["waits_for"] or "-")
        rows.append(
            (
                _place(each), _name(each), *cycles, f"{each['warp_instructions']:,}", escape(percent(share)),
                f"{each['active_threads']:.1f}", f"{each['memory_instructions']:,}",
            )
        )  # fmt: skip
    of_cycles = ("cycles", "share", "most of them") if all_cycles else ()
    heads = ("line", "kernel", *of_cycles, "warp instructions", "share", "threads of 32", "of them memory")
    return table(heads, rows, numeric_from=2)


def _branches(branches: pa.Table) -> str:
    rows = []
    for each in branches.slice(0, MAX_ROWS).to_pylist():
        if not each["diverged"]:
            break
        share = each["diverged"] / each["executed"]
        rows.append(
            (
                _place(each), _name(each), f"<code>{each['pc']:04x} {escape(each['text'])}</code>",
                f"{each['executed']:,}", f"{each['diverged']:,}", escape(percent(share)),
            )
        )  # fmt: skip
    return table(("line", "kernel", "instruction", "executed by warps", "diverged", "share"), rows, numeric_from=3)


def _place(row: dict[str, object]) -> str:
    """The file without its folder, which the title has."""
    file = row["file"]
    if file is None:
        return ""
    return f'<span title="{escape(str(file))}">{escape(str(file).rpartition("/")[2])}:{row["line"]}</span>'


def _name(row: dict[str, object]) -> str:
    return kernel_cell(str(row["kernel"]), 40)
