"""Whether shapes of one model, batch and number of GPUs come in the measured order of Megatron-DeepSpeed's steps
(``megatron.py``): those of the single node that were not fitted, by the closed form, and the 64 GPUs, by a sweep.

``python tests/validation/ai/shapes_in_order.py``; RESULTS-SHAPES.md has what it prints.
"""

from __future__ import annotations

import copy
import time
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import megatron
import numpy as np
import yaml
from scipy.stats import kendalltau, spearmanr

import manyscale
from manyscale.models.transformer.shape import Transformer
from manyscale.runner.run.calibration.training import TrainingCalibration, read_steps


def in_order(measured: np.ndarray, predicted: np.ndarray) -> tuple[float, float, float]:
    """Rank correlations, Kendall's (tau b) and Spearman's, and how much longer than the quickest shape the one takes
    that is predicted to be it."""
    tau, rho = (float(each(measured, predicted)[0]) for each in (kendalltau, spearmanr))
    return tau, rho, float(measured[predicted.argmin()] / measured.min() - 1)


def shape_of(step: Transformer) -> tuple[int, ...]:
    return step.tp, step.pp, step.dp, step.micro_batch


def by_rule(shapes: list[tuple[int, ...]]) -> np.ndarray:
    """What a rule of thumb says in place of times: as little tensor parallelism as can be, then as few stages, then
    the largest micro batch."""
    order = sorted(range(len(shapes)), key=lambda place: (shapes[place][0], shapes[place][1], -shapes[place][3]))
    return np.argsort(order).astype(np.float64)


def order_of_single_node(found: TrainingCalibration) -> dict[str, np.ndarray]:
    """What ``in_order`` says of each model with three shapes and more, float64[models, 3], predicted and by rule."""
    groups = defaultdict(list)
    for place in np.flatnonzero(~found.was_fitted).tolist():
        step = found.steps[place]
        groups[step.hidden, step.layers, step.heads, step.sequence, step.global_batch, step.ranks].append(place)
    some = [group for group in groups.values() if len(group) >= 3]
    rule = [by_rule([shape_of(found.steps[place]) for place in group]) for group in some]
    told = {}
    for name, said in (("predicted", [found.predicted_s[group] for group in some]), ("by rule", rule)):
        each = [in_order(found.measured_s[group], mine) for group, mine in zip(some, said, strict=True)]
        told[name] = np.array(each)
        tau, rho, lost = told[name].T
        print(f"{len(some)} models on a node, 3 shapes and more, {name}: mean Kendall {tau.mean():.2f}, Spearman "
              f"{rho.mean():.2f}; first is the quickest in {np.count_nonzero(lost == 0)}, takes "
              f"{100 * lost.mean():.1f} % longer in the mean, {100 * lost.max():.0f} at most", flush=True)  # fmt: skip
    return told


def order_of_64_gpus(machine: dict[str, Any]) -> None:
    """By a sweep over the shapes that were measured, and others between them."""
    steps, measured, _ = read_steps(megatron.DATA / "megatron_multi_node_3.6b.csv", megatron.RECOMPUTE)
    known = {shape_of(step): took for step, took in zip(steps, measured.tolist(), strict=True)}
    varied = {"tp", "pp", "dp", "micro_batch"}
    base = {name: value for name, value in steps[0].model_dump().items() if name not in varied}
    assert all({**step.model_dump(exclude=varied)} == base for step in steps)
    axes = {name: sorted({getattr(step, name) for step in steps}) for name in ("tp", "pp", "micro_batch")}
    with TemporaryDirectory() as scratch:
        target = Path(scratch) / "machine.yaml"
        target.write_text(yaml.safe_dump(machine, sort_keys=False))
        study = {
            "workload": {"synthesise": {**base, "gpus": 64, "target": str(target)}}, "target": str(target),
            "sweep": {f"workload.synthesise.{name}": values for name, values in axes.items()},
        }  # fmt: skip
        began = time.process_time()
        kept = {"cache": Path(scratch) / "cache", "executor": "local", "report": False}
        swept = manyscale.sweep(study, Path(scratch) / "run", **kept)
        found = [
            (tuple(point.axes[f"workload.synthesise.{name}"] for name in ("tp", "pp", "dp", "micro_batch")),
             float(point.statistics["step.longest"].value), float(point.statistics["step.memory"].value))
            for point in swept.points
        ]  # fmt: skip
    print(f"{len(found)} points, {time.process_time() - began:.0f} CPU s", flush=True)
    mine = sorted((took, shape, known.get(shape), needs) for shape, took, needs in found)
    for took, shape, reference, needs in mine:
        print(f"tp {shape[0]} pp {shape[1]} dp {shape[2]} micro batch {shape[3]}: {1e3 * took:.0f} ms"
              + (f", measured {1e3 * reference:.0f}" if reference else "") + f", {needs / 1e9:.0f} GB")  # fmt: skip
    both = [(took, shape, reference) for took, shape, reference, _ in mine if reference]
    predicted, references = (np.array([each[place] for each in both]) for place in (0, 2))
    assert len(both) == len(known)
    for name, said in (("predicted", predicted), ("by rule", by_rule([shape for _, shape, _ in both]))):
        tau, rho, lost = in_order(references, said)
        print(f"64 GPUs, {len(both)} shapes, {name}: Kendall {tau:.2f}, Spearman {rho:.2f}; the first takes "
              f"{100 * lost:.1f} % longer than the quickest")  # fmt: skip


def main() -> None:
    found = megatron.fitted()
    machine = copy.deepcopy(found.machine)
    machine["network"]["nccl"]["nics"] = megatron.NICS
    order_of_single_node(found)
    order_of_64_gpus(machine)


if __name__ == "__main__":
    main()
