"""``manyscale predict``: hit rates and time of a program at input sizes that never ran, from traces of small ones."""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.machine import Machine
from manyscale.models.machine.processor import Cache
from manyscale.models.memory.amm.amm import AmmParameters
from manyscale.models.memory.amm.profile_extrapolation import AMM_RECIPE, SITE_RECIPE, TrainingRun
from manyscale.runner.cache import default_cache
from manyscale.runner.cli import commands
from manyscale.runner.cli.execution import execution_of
from manyscale.runner.cli.profile import target_and_content
from manyscale.runner.errors import UserError
from manyscale.runner.predict.memory import profile_units
from manyscale.runner.predict.memory.hit_rates import caches_of, line_bytes
from manyscale.runner.predict.memory.prediction import Prediction, Predictor
from manyscale.runner.predict.memory.training import (
    InputRun,
    TrainingSet,
    check_one_program,
    parse_inputs,
    parse_sizes,
    read_training,
)
from manyscale.runner.predict.statistic import Statistic
from manyscale.runner.report import statistics
from manyscale.runner.report.text import duration, percent
from manyscale.runner.run import directory as rundir
from manyscale.runner.run.execute.execution import Execution
from manyscale.runner.run.parquet import write_table
from manyscale.runner.study import parse_assignment

RECIPES: Final = {"operands": SITE_RECIPE, "paper": AMM_RECIPE}
MODELS: Final = {
    "printed": "AMM as published: memory and computation one after the other",
    "corrected": "AMM with conditional hit rates and every class of instructions apart",
    "overlap": "the dataflow model: memory and computation overlap",
}


@dataclass(frozen=True)
class PredictResult:
    """Predictions by ascending size, with the runs they come from and, where they are given, measured seconds."""

    name: str
    machine: Machine
    caches: Mapping[str, Cache]
    training: TrainingSet
    runs: Sequence[TrainingRun]
    predictions: Sequence[Prediction]
    measured: Mapping[int, float]
    recipe: str
    steady: bool


def predict(options: argparse.Namespace) -> int:
    """Read, predict, print and write."""
    inputs, sizes = parse_inputs(options.traces), parse_sizes(options.sizes)
    amm = amm_parameters(options.amm)
    measured = read_measured(options.measured) if options.measured is not None else {}
    commands.check_executor(options)
    machine, content = target_and_content(options.target)
    cache = options.cache or default_cache()
    training = read_training(inputs, options.format, cache)
    with execution_of(options, cache, 0) as execution:
        runs = training_runs(training, line_bytes(machine), execution, steady=options.steady)
        recipe = RECIPES[options.recipe]
        predictor = Predictor(training, runs, machine, content["node"], recipe, steady=options.steady, amm=amm)
        predictions = predictor.at(sizes, execution)
    name = training.runs[-1].workload.name
    result = PredictResult(
        name, machine, caches_of(machine), training, runs, predictions, measured, options.recipe, options.steady
    )  # fmt: skip
    directory = rundir.new_directory(options.output, f"{name}-predict", resume=False)
    write(result, directory, options)
    print("\n".join(summary(result)))
    print(f"results: {directory}")
    return 0


def amm_parameters(assignments: Sequence[str]) -> AmmParameters:
    """AMM's parameters from KEY=VALUE of the command line. Raises UserError."""
    given = dict(parse_assignment(text, "--amm") for text in assignments)
    known = [field.name for field in fields(AmmParameters) if field.name not in ("form", "shares")]
    unknown = [key for key in given if key not in known]
    if unknown:
        raise UserError(f"--amm {unknown[0]}: unknown; known are {', '.join(known)}")
    try:
        for key, value in given.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if key not in ("bound", "operations") and not is_number:
                raise ValueError(f"{key}: {value!r} is no number")
        return AmmParameters(**given)
    except ValueError as error:
        raise UserError(f"--amm: {error}") from None


def training_runs(training: TrainingSet, granularity: int, execution: Execution, *, steady: bool) -> list[TrainingRun]:
    """Executions and exact profile of every small input, in the set's numbering. Profiles stay in the cache. Raises
    UserError where the inputs are not of one program."""
    found = []
    executions = [_executions(run, training) for run in training.runs]
    check_one_program(training, executions)
    for run, counts in zip(training.runs, executions, strict=True):
        (profile,) = profile_units.profiles([run.stream], run.sites, granularity, execution, steady=steady)
        found.append(TrainingRun(run.size, counts, profile.relabelled(run.site_number)))
    return found


def _executions(run: InputRun, training: TrainingSet) -> np.ndarray:
    """int64[blocks], in the set's numbering."""
    executions = np.zeros(training.sites.num_blocks, np.int64)
    np.add.at(executions, run.block_number, run.stream.executions(len(run.block_number)))
    return executions


def read_measured(path: Path) -> dict[int, float]:
    """Seconds by size, from a CSV file with the columns ``size`` and ``seconds``. Raises UserError."""
    found: dict[int, float] = {}
    try:
        with path.open(newline="") as file:
            rows = csv.DictReader(file)
            for row in rows:
                size, seconds = _measured_row(row, f"{path}, line {rows.line_num}")
                if size in found:
                    raise UserError(f"{path}, line {rows.line_num}: a second row of size {size}; give each size once")
                found[size] = seconds
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
    if not found:
        raise UserError(f"{path}: holds no row; write the columns size and seconds")
    return found


def _measured_row(row: Mapping[str, str | None], place: str) -> tuple[int, float]:
    try:
        size, seconds = int(row["size"] or ""), float(row["seconds"] or "")
    except (KeyError, ValueError):
        raise UserError(f"{place}: needs the columns size and seconds, with numbers") from None
    if not (size > 0 and 0 < seconds < float("inf")):
        raise UserError(f"{place}: give sizes and seconds above zero")
    return size, seconds


def write(result: PredictResult, directory: Path, options: argparse.Namespace) -> None:
    """All files of a prediction."""
    inputs = {str(run.size): run.workload.digest for run in result.training.runs}
    rundir.write_manifest(directory, "running", 0, inputs)
    write_table(predictions_table(result), directory / "predictions.parquet")
    write_table(times_table(result), directory / "times.parquet")
    write_table(blocks_table(result), directory / "blocks.parquet")
    write_table(profiles_table(result), directory / "profile.parquet")
    statistics.write_figures(figures(result), f"{result.name} on {result.machine.name}", directory)
    if not options.no_report:
        from manyscale.runner.report import predict_page as report_predict

        report_predict.write(result, directory)
    rundir.write_manifest(directory, "complete", 0, inputs)


def figures(result: PredictResult) -> dict[str, Statistic]:
    """The figures of ``stats.json``: ``size.N.`` and what is predicted at N."""
    found: dict[str, Statistic] = {}
    for each in result.predictions:
        at = f"size.{each.size}"
        found[f"{at}.accesses"] = Statistic(each.num_accesses, "1", "count", "accesses")
        if each.num_instructions is not None:
            found[f"{at}.instructions"] = Statistic(each.num_instructions, "1", "count", "instructions")
        for level, rate in each.sdcm.items():
            found[f"{at}.{level}.sdcm.hit_ratio"] = Statistic(
                rate.value, "1", "ratio", "SDCM on the extrapolated profile: hits of all accesses", rate.low, rate.high
            )
        if each.set_aware is not None:
            for level, ratio in zip(each.set_aware.names, each.set_aware.whole, strict=True):
                found[f"{at}.{level}.set_aware.hit_ratio"] = Statistic(
                    ratio, "1", "ratio", "with the cache's real sets: hits of all accesses"
                )
        for model, time in each.times.items():
            found[f"{at}.time.{model}"] = Statistic(
                time.seconds, "s", "total", MODELS[model], time.low, time.high
            )  # fmt: skip
        measured = result.measured.get(each.size)
        if measured is not None:
            found[f"{at}.time.measured"] = Statistic(measured, "s", "total", "as given with --measured")
            for model, time in each.times.items():
                found[f"{at}.error.{model}"] = Statistic(
                    time.seconds / measured - 1, "1", "ratio", f"{model}: predicted over measured, minus 1"
                )
    return found


def predictions_table(result: PredictResult) -> pa.Table:
    """``predictions.parquet``: a row per size, model and quantity: ``value``, ``low``, ``high``, ``unit``."""
    rows = []
    for name, figure in figures(result).items():
        _, size, quantity = name.split(".", 2)
        rows.append(
            {
                "size": int(size), "quantity": quantity, "value": float(figure.value), "low": figure.ci_low,
                "high": figure.ci_high, "unit": figure.unit,
            }
        )  # fmt: skip
    schema = pa.schema(
        [
            ("size", pa.int64()), ("quantity", pa.string()), ("value", pa.float64()), ("low", pa.float64()),
            ("high", pa.float64()), ("unit", pa.string()),
        ]
    )  # fmt: skip
    return pa.Table.from_pylist(rows, schema=schema)


def times_table(result: PredictResult) -> pa.Table:
    """``times.parquet``: what each model's time consists of: size, model, cause, seconds, which add up."""
    rows = [
        {"size": each.size, "model": model, "cause": cause, "seconds": seconds}
        for each in result.predictions
        for model, time in each.times.items()
        for cause, seconds in time.parts.items()
    ]
    columns = [("size", pa.int64()), ("model", pa.string()), ("cause", pa.string()), ("seconds", pa.float64())]
    return pa.Table.from_pylist(rows, schema=pa.schema(columns))


def blocks_table(result: PredictResult) -> pa.Table:
    """``blocks.parquet``: executions of every block at every size, traced and predicted."""
    blocks = result.training.program.tables["blocks"]
    parts = []
    traced = [(run.input_size, "traced", run.executions) for run in result.runs]
    predicted = [(each.size, "predicted", each.executions) for each in result.predictions]
    for size, kind, executions in [*traced, *predicted]:
        count = blocks.num_rows
        columns = {
            "size": pa.array(np.full(count, size, np.int64)),
            "kind": pa.array([kind] * count),
            "block_id": pa.array(np.arange(count, dtype=np.int32)),
            **{name: blocks.column(name) for name in ("function", "file", "line", "module", "offset")},
            "executions": pa.array(executions.astype(np.int64)),
        }
        parts.append(pa.table(columns))
    return pa.concat_tables(parts)


def profiles_table(result: PredictResult) -> pa.Table:
    """``profile.parquet``: the extrapolated profile at every size: size, block_id, distance (-1: first use), count."""
    parts = []
    for each in result.predictions:
        profile = each.extrapolation.profile
        by_block = profile if result.recipe == "paper" else profile.relabelled(result.training.sites.block)
        parts.append(
            pa.table(
                {
                    "size": pa.array(np.full(len(by_block.site), each.size, np.int64)),
                    "block_id": pa.array(by_block.site),
                    "distance": pa.array(by_block.distance),
                    "count": pa.array(by_block.count),
                }
            )
        )
    return pa.concat_tables(parts)


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
    lines += [f"note: {note}" for note in dict.fromkeys(note for each in result.predictions for note in each.notes)]
    return lines
