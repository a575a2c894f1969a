"""What ``manyscale profile`` leaves: its files, the lines it prints, and the page: a trace's profile as AMM's figures 2
and 5, its miss-ratio curve, and tables."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from manyscale.runner.predict.memory import profile_result
from manyscale.runner.predict.memory.profile_result import ProfileResult
from manyscale.runner.report.figures.memory import most_used_blocks
from manyscale.runner.report.page import Page
from manyscale.runner.report.sections.machine import machine_table
from manyscale.runner.report.sections.memory_charts import (
    curve_chart,
    level_chart,
    profile_chart,
)
from manyscale.runner.report.statistics import write_figures
from manyscale.runner.report.text import binary_size, cards_html, escape, items, notes_html, percent, table
from manyscale.runner.run import directory as rundir
from manyscale.runner.run.parquet import write_table

MOST_ROWS: Final = 100
MOST_PRINTED: Final = 12


def write(result: ProfileResult, directory: Path, *, seed: int = 0, page: bool = True) -> None:
    """All files of a profile; ``report.html`` with ``page``."""
    inputs = {result.trace: result.workload.digest}
    rundir.write_manifest(directory, "running", seed, inputs)
    write_table(profile_result.profile_table(result), directory / "profile.parquet")
    write_table(profile_result.blocks_table(result), directory / "blocks.parquet")
    write_table(profile_result.curve_table(result), directory / "miss_ratio_curve.parquet")
    write_table(profile_result.hit_rates_table(result), directory / "hit_rates.parquet")
    write_table(profile_result.transitions_table(result), directory / "transitions.parquet")
    if result.simulated is not None and result.simulated.counters is not None:
        write_table(profile_result.counters_table(result.simulated.counters, result), directory / "counters.parquet")
    write_figures(profile_result.statistics(result), f"{result.workload.name} on {result.machine.name}", directory)
    if page:
        (directory / "report.html").write_text(_page(result), encoding="utf-8", errors="backslashreplace")
    rundir.write_manifest(directory, "complete", seed, inputs)


def summary(result: ProfileResult) -> list[str]:
    """Lines to read."""
    figures = profile_result.statistics(result)
    streams = "" if len(result.streams) == 1 else f", {len(result.streams)} threads"
    lines = [
        f"{result.workload.name}{streams}: {figures['memory.accesses'].value:,.0f} accesses, "
        f"{figures['memory.first_uses'].value:,.0f} first uses; units of {result.granularity_bytes} B; {result.method}"
        + ("; steady state" if result.steady else "")
    ]
    rates = profile_result.models(result)
    if rates:
        lines.append(f"{'level':<6} {'size':>8} {'ways':>5}  " + "  ".join(f"{name + ' hits':>15}" for name in rates))
        for row, (name, cache) in enumerate(result.caches.items()):
            ratios = (percent(rates[m].whole[row], profile_result.half_width(result, m, row)) for m in rates)
            shown = "  ".join(f"{text:>15}" for text in ratios)
            lines.append(f"{name:<6} {binary_size(cache.size_bytes):>8} {cache.ways:>5}  {shown}")
    table = profile_result.blocks_table(result)
    head = "  ".join(f"{name + ' hits':>9}" for name in result.caches)
    lines.append(f"{'block':>6} {'executions':>12} {'accesses':>14} {'share':>7}  {head}  where")
    for block in table.slice(0, MOST_PRINTED).to_pylist():
        hits = "  ".join(f"{percent(block[f'{name}_hit_ratio']):>9}" for name in result.caches)
        lines.append(
            f"{block['block_id']:>6} {block['executions']:>12,} {block['accesses']:>14,.0f} "
            f"{percent(block['share']):>7}  {hits}  {profile_result.place(block)}"
        )
    if table.num_rows > MOST_PRINTED:
        lines.append(f"{table.num_rows - MOST_PRINTED} more blocks: blocks.parquet")
    return lines


def _page(result: ProfileResult) -> str:
    name = result.workload.name
    page = Page(f"Memory profile of {name}", f"Units of {result.granularity_bytes} B; {result.method}.")
    page.add("", _cards(result), notes_html(result.notes))
    page.add(
        "Reuse profile",
        profile_chart(page, "profile", {name: most_used_blocks(result)}),
        note="Probability of each stack distance: distinct units between two uses of a unit (0 is drawn at 0.5). "
        "Profiles of blocks are weighed by their accesses and add up to the whole.",
    )
    page.add(
        "Miss ratio by capacity",
        curve_chart(page, result.whole, result.caches),
        note="Of fully associative caches with LRU replacement.",
    )
    if result.caches:
        page.add(
            "Hit probability at a stack distance",
            level_chart(page, "levels", result.caches, result.whole),
            note="The stack distance based cache model (SDCM) maps lines to sets at random; where many addresses lie a "
            "power of two apart, sets are used unevenly and fewer accesses hit.",
        )
        page.add("Hit rates", _hit_rates(result))
    page.add("Basic blocks", _blocks_table(result))
    page.add("What this leaves out", items(_limits(result)))
    page.add(f"Target machine: {result.machine.name}", machine_table(result.machine, with_network=False))
    return page.html()


def _cards(result: ProfileResult) -> str:
    figures = profile_result.statistics(result)
    cards = [
        ("Accesses", f"{figures['memory.accesses'].value:,.0f}", f"{figures['memory.stores'].value:,.0f} stores"),
        (
            "First uses", f"{figures['memory.first_uses'].value:,.0f}",
            "steady state: as if it had run just before" if result.steady else "from cold caches",
        ),
    ]  # fmt: skip
    for model, rates in profile_result.models(result).items():
        for index, name in enumerate(rates.names):
            hits = percent(rates.whole[index], profile_result.half_width(result, model, index))
            cards.append((f"{name} hits", hits, f"of all accesses, {model}"))
    return cards_html(cards)


def _hit_rates(result: ProfileResult) -> str:
    models = profile_result.models(result)
    header = ["level", "size", "ways"]
    for model in models:
        header += [f"{model}: of all accesses", f"{model}: of those that reach it"]
    rows = []
    for index, (name, cache) in enumerate(result.caches.items()):
        cells = [escape(name), binary_size(cache.size_bytes), f"{cache.ways}"]
        for model, rates in models.items():
            hits = percent(rates.whole[index], profile_result.half_width(result, model, index))
            cells += [escape(hits), escape(percent(rates.conditional[index]))]
        rows.append(cells)
    return table(header, rows)


def _blocks_table(result: ProfileResult) -> str:
    blocks = profile_result.blocks_table(result)
    header = ["block", "where", "executions", "accesses", "share", "first uses"]
    header += [f"{name} hits" for name in result.caches]
    rows = []
    for row in blocks.slice(0, MOST_ROWS).to_pylist():
        where = f"{profile_result.place(row)} {row['file']}".strip()
        cells = [
            f"{row['block_id']}", escape(where), f"{row['executions']:,}",
            f"{row['accesses']:,.0f}", escape(percent(row["share"])), f"{row['first_uses']:,.0f}",
        ]  # fmt: skip
        rows.append(cells + [escape(percent(row[f"{name}_hit_ratio"])) for name in result.caches])
    more = blocks.num_rows - MOST_ROWS
    note = f'<p class="note">{more:,} more are in blocks.parquet.</p>' if more > 0 else ""
    return table(header, rows, numeric_from=2) + note


def _limits(result: ProfileResult) -> list[str]:
    found = []
    if result.method != "exact":
        found.append(f"Distances were sampled ({result.method}): rare ones may be missing.")
    if len(result.streams) > 1 and not result.concurrent:
        found.append(
            f"{len(result.streams)} threads have been profiled each for itself: none disturbs the caches of another."
        )
    if result.caches and result.simulated is None:
        found.append("Hit rates are SDCM's; --simulate adds those of the caches with their real sets, for comparison.")
    return found or ["Nothing known."]
