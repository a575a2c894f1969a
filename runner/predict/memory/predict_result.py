"""What ``manyscale predict`` finds of a program at input sizes that never ran, as figures and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.machine import Machine
from manyscale.models.machine.processor import Cache
from manyscale.models.memory.amm.profile_extrapolation import AMM_RECIPE, SITE_RECIPE, TrainingRun
from manyscale.models.workload.notes import Note, in_order
from manyscale.runner.predict.memory.prediction import Prediction
from manyscale.runner.predict.memory.training import TrainingSet
from manyscale.runner.predict.statistic import Statistic

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

    @property
    def notes(self) -> tuple[Note, ...]:
        """On the predictions and the traces that they come from."""
        traces = [note for run in self.training.runs for note in run.workload.notes]
        return in_order([*(note for each in self.predictions for note in each.notes), *traces])


def models_of(result: PredictResult) -> list[str]:
    """The models that give a time at some input, the plainest first."""
    return [name for name in MODELS if any(name in each.times for each in result.predictions)]


def figures(result: PredictResult) -> dict[str, Statistic]:
    """The figures of ``stats.json``: ``size.N.`` and what is predicted at N."""
    found: dict[str, Statistic] = {}
    for each in result.predictions:
        at = f"size.{each.size}"
        band = each.accesses_band or (None, None)
        found[f"{at}.accesses"] = Statistic(each.num_accesses, "1", "count", "accesses", *band)
        if each.num_instructions is not None:
            band = each.instructions_band or (None, None)
            found[f"{at}.instructions"] = Statistic(each.num_instructions, "1", "count", "instructions", *band)
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
