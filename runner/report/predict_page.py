"""What ``manyscale predict`` leaves: its files, the lines that it prints, and the page with figures 3 to 6 of AMM for a
program at inputs that never ran, and tables."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from manyscale.runner.predict.memory import predict_result
from manyscale.runner.predict.memory.growth import blocks_by_accesses, by_block
from manyscale.runner.predict.memory.predict_result import MODELS, PredictResult
from manyscale.runner.predict.memory.prediction import Time
from manyscale.runner.report.figures.memory import MOST_BLOCKS, Parts, blocks_apart
from manyscale.runner.report.page import Page
from manyscale.runner.report.sections import predict_charts as charts
from manyscale.runner.report.sections.machine import machine_table
from manyscale.runner.report.sections.memory_charts import level_chart, profile_chart
from manyscale.runner.report.statistics import write_figures
from manyscale.runner.report.text import cards_html, duration, escape, items, notes_html, percent, table
from manyscale.runner.run import directory as rundir
from manyscale.runner.run.parquet import write_table

MOST_PROFILES: Final = 6  # predicted sizes whose profiles are drawn
LEAST_CAUSE: Final = 0.0005  # of the time at some size; a smaller cause has no row


def write(result: PredictResult, directory: Path, *, page: bool = True) -> None:
    """All files of a prediction; ``report.html`` with ``page``."""
    inputs = {str(run.size): run.workload.digest for run in result.training.runs}
    rundir.write_manifest(directory, "running", 0, inputs)
    write_table(predict_result.predictions_table(result), directory / "predictions.parquet")
    write_table(predict_result.times_table(result), directory / "times.parquet")
    write_table(predict_result.blocks_table(result), directory / "blocks.parquet")
    write_table(predict_result.profiles_table(result), directory / "profile.parquet")
    write_figures(predict_result.figures(result), f"{result.name} on {result.machine.name}", directory, result.notes)
    if page:
        (directory / "report.html").write_text(_page(result), encoding="utf-8", errors="backslashreplace")
    rundir.write_manifest(directory, "complete", 0, inputs)


def summary(result: PredictResult) -> list[str]:
    """Lines to read."""
    sizes = ", ".join(str(run.size) for run in result.training.runs)
    state = "; steady state" if result.steady else ""
    lines = [f"{result.name} on {result.machine.name}, from inputs {sizes}{state}"]
    lines += dict.fromkeys(each.how for each in result.predictions)
    models = list(dict.fromkeys(model for each in result.predictions for model in each.times))
    head = [f"{level + ' hits':>10}" for level in result.caches] + [f"{model:>12}" for model in models]
    has_measured = any(each.size in result.measured for each in result.predictions)
    if has_measured:
        head += [f"{'measured':>12}", f"{'error':>8}"]
    lines.append(f"{'size':>8} {'accesses':>16} " + " ".join(head))
    for each in result.predictions:
        cells = [f"{percent(rate):>10}" for rate in each.hit_rates.whole]
        cells += [f"{duration(each.times[model].seconds) if model in each.times else '-':>12}" for model in models]
        measured = result.measured.get(each.size)
        if has_measured:
            time = each.time
            error = "-" if measured is None or time is None else f"{100 * (time.seconds / measured - 1):+.1f} %"
            cells += [f"{'-' if measured is None else duration(measured):>12}", f"{error:>8}"]
        lines.append(f"{each.size:>8} {each.num_accesses:>16,.0f} " + " ".join(cells))
    return lines


def _page(result: PredictResult) -> str:
    state = "steady state: as if the same had run just before" if result.steady else "from cold caches"
    page = Page(
        f"{result.name} on {result.machine.name}",
        f"Predicted at {_listed([each.size for each in result.predictions])} from traces at "
        f"{_listed([run.size for run in result.training.runs])}; {state}.",
    )
    page.add("", _cards(result), notes_html(result.notes))
    if any(each.times for each in result.predictions):
        _add_times(page, result)
    page.add(
        "Hit rates",
        charts.hit_rate_chart(page, result),
        _hit_rates(result),
        note="Of all accesses: what a level and those nearer to the core hold together. SDCM reads the extrapolated "
        "profile, with its band; with real sets the stream itself, where it could be made again, meets the caches.",
    )
    page.add(
        "Reuse profiles",
        profile_chart(page, "profile", _profiles(result)),
        note=f"Probability of each stack distance in lines of {_line_bytes(result)} B (0 is drawn at 0.5): of the "
        "largest traced input as measured, of the others extrapolated.",
    )
    page.add(
        "How blocks and distances grow",
        charts.block_chart(page, result),
        charts.growth_chart(page, result),
        note="Above: the share of each block in all executions of blocks. Below: the mean distance of each fourth "
        "of a block's accesses, in the order of distances: traced (points) and extrapolated (lines with their band).",
    )
    last = result.predictions[-1]
    page.add(
        f"Hit probability at a stack distance, input {last.size:,}",
        level_chart(page, "levels", result.caches, last.extrapolation.profile),
        note="By SDCM, which maps lines to sets at random.",
    )
    page.add("How sure this is", items(_notes(result)))
    page.add("What the models leave out", items(_limits(result)))
    page.add(f"Target machine: {result.machine.name}", machine_table(result.machine, with_network=False))
    return page.html()


def _add_times(page: Page, result: PredictResult) -> None:
    page.add(
        "Run time",
        charts.time_chart(page, result),
        _times(result),
        note="; ".join(f"{name}: {text}" for name, text in MODELS.items() if name in predict_result.models_of(result))
        + ".",
    )
    if charts.compared(result):
        page.add("Error of the run time", charts.error_chart(page, result), note="Predicted over measured, minus 1.")
    page.add(
        "What the time goes into",
        _causes(result),
        note=f"By the best model ({charts.best_model(result)}); parts add up to the time.",
    )


def _cards(result: PredictResult) -> str:
    last = result.predictions[-1]
    cards = []
    if last.time is not None:
        cards.append((f"Time at input {last.size:,}", duration(last.time.seconds), f"model {last.best_model}"))
    cards.append(("Accesses", f"{last.num_accesses:,.0f}", f"at input {last.size:,}"))
    source = "SDCM" if last.set_aware is None else "real sets"
    for name, ratio in zip(last.hit_rates.names, last.hit_rates.whole, strict=True):
        cards.append((f"{name} hits", percent(ratio), f"of all accesses, {source}"))
    errors = [abs(error) for error in charts.compared(result).get(charts.best_model(result), {}).values()]
    if errors:
        cards.append(
            ("Error", percent(float(np.mean(errors))), f"mean of {len(errors)}, at most {percent(max(errors))}")
        )
    return cards_html(cards)


def _profiles(result: PredictResult) -> dict[str, Parts]:
    """By name: the largest traced input's, and those of the largest predicted ones."""
    blocks = blocks_by_accesses(result)[:MOST_BLOCKS]
    names = [charts.block_name(result, block) for block in blocks]
    run = result.runs[-1]
    traced = run.profile.relabelled(result.training.sites.block)
    found = {f"{run.input_size:,.0f} (traced)": blocks_apart(traced, blocks, names)}
    for each in result.predictions[-MOST_PROFILES:]:
        found[f"{each.size:,}"] = blocks_apart(by_block(result, each.extrapolation.profile), blocks, names)
    return found


def _hit_rates(result: PredictResult) -> str:
    header = ["input", "accesses"]
    for name in result.caches:
        header += [f"{name}: SDCM", "band", "real sets"]
    rows = []
    for each in result.predictions:
        cells = [f"{each.size:,}", f"{each.num_accesses:,.0f}"]
        for index, rate in enumerate(each.sdcm.values()):
            cells += [_exact(rate.value), f"{_exact(rate.low)} to {_exact(rate.high)}"]
            cells.append("-" if each.set_aware is None else _exact(each.set_aware.whole[index]))
        rows.append(cells)
    return table(header, rows)


def _times(result: PredictResult) -> str:
    models = predict_result.models_of(result)
    errors = charts.compared(result)
    header = ["input", "instructions", *(escape(model) for model in models)]
    header += ["measured", *(f"error of {escape(model)}" for model in errors)] if errors else []
    rows = []
    for each in result.predictions:
        count = "-" if each.num_instructions is None else f"{each.num_instructions:,.0f}"
        cells = [f"{each.size:,}", count, *(_time(each.times.get(model)) for model in models)]
        if errors:
            measured = result.measured.get(each.size)
            cells.append("-" if measured is None else duration(measured))
            cells += [f"{100 * found[each.size]:+.1f} %" if each.size in found else "-" for found in errors.values()]
        rows.append(cells)
    return table(header, rows)


def _causes(result: PredictResult) -> str:
    """Time by cause and input, of the best model."""
    times = [(each.size, time) for each in result.predictions if (time := each.times.get(charts.best_model(result)))]
    causes = dict.fromkeys(cause for _, time in times for cause in time.parts)
    rows = []
    for cause in causes:
        shares = [time.parts.get(cause, 0.0) / time.seconds if time.seconds > 0 else 0.0 for _, time in times]
        if max(shares) >= LEAST_CAUSE:
            cells = [
                f"{duration(time.parts.get(cause, 0.0))} ({escape(percent(share))})"
                for (_, time), share in zip(times, shares, strict=True)
            ]
            rows.append([escape(cause), *cells])
    rows.append(["all", *(duration(time.seconds) for _, time in times)])
    return table(["cause", *(f"input {size:,}" for size, _ in times)], rows)


def _notes(result: PredictResult) -> list[str]:
    """Each note once, with the inputs that it is about."""
    about: dict[str, list[int]] = {}
    for each in result.predictions:
        about.setdefault(each.how, []).append(each.size)
    every = len(result.predictions)
    found = [text if len(sizes) == every else f"input {_listed(sizes)}: {text}" for text, sizes in about.items()]
    return [*found, *map(str, result.training.runs[-1].workload.notes)]


def _limits(result: PredictResult) -> list[str]:
    found = [
        "One thread runs alone: nobody else uses the shared caches or main memory's bandwidth.",
        "SDCM maps lines to sets at random; where many addresses lie a power of two apart, fewer accesses hit.",
    ]
    models = predict_result.models_of(result)
    if "printed" in models or "corrected" in models:
        found.append(
            "AMM (printed, corrected): nothing overlaps, so times are upper bounds, several times too long on cores "
            "that execute out of order. As printed it knows neither address translation nor prefetching."
        )
    if "overlap" in models:
        found.append(
            "The dataflow model (overlap): instructions of a class cost the same, and each is one operation of the "
            "core; page tables are walked at a fixed cost."
        )
    else:
        found.append("No overlap of memory and computation: the dataflow model has no answer, see above.")
    if any(each.set_aware is not None for each in result.predictions):
        found.append("Real sets: pages lie in memory as in the address space.")
    return found


def _listed(sizes: list[int]) -> str:
    return ", ".join(f"{size:,}" if size > 9999 else f"{size}" for size in sizes)


def _line_bytes(result: PredictResult) -> int:
    return result.runs[0].profile.granularity_bytes


def _exact(ratio: float) -> str:
    return f"{100 * ratio:.2f} %"


def _time(time: Time | None) -> str:
    if time is None:
        return "-"
    if time.low is None or time.high is None:
        return duration(time.seconds)
    return f"{duration(time.seconds)} ({duration(time.low)} to {duration(time.high)})"
