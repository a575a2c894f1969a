"""Measured steps of Megatron-DeepSpeed (vTrain's, on nodes of 8 A100) against synthesised ones.

``python tests/validation/ai/megatron.py fit``: parameters fitted to every third row of the single node's, sorted by
configuration, and errors of these and of all others, by the closed form.
``python tests/validation/ai/megatron.py single [N [FIRST]]``: the others, every N-th of them, synthesised and replayed.
``python tests/validation/ai/megatron.py multi [NAME ...]``: 3.6 billion parameters on 64 GPUs, from the single node's
calibration.

The machine is ``dgx-a100`` with vTrain's tables of NCCL's all-reduce on 2 and 4 A100 (sizes of powers of two), A100 of
80 GB and the calibrated ``node.framework``. Between nodes, four ports of 200 Gbit/s each node: vTrain's configurations
say 800 Gbit/s (``inter_node_bandwidth``), NCCL's tuner says the rest. They also say that activations are recomputed
(``use_checkpoint``), and that there are 50,257 words (``vocab_size``), and so it is here. ``choices`` says that memory
leaves nothing else for 64 GPUs, and how the alternatives do within the fitted third. RESULTS-MEGATRON.md says what the
errors stand for.

``python tests/validation/ai/megatron.py choices``: the fitted third by five-fold cross-validation, by bandwidth and
recomputation; configurations of 64 GPUs that do not fit into memory.
"""

from __future__ import annotations

import copy
import lzma
import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import yaml

import manyscale
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.machine import Machine
from manyscale.models.transformer.closed_form import Steps
from manyscale.models.transformer.memory import memory
from manyscale.models.transformer.shape import Transformer
from manyscale.models.transformer.times import peak_flops
from manyscale.runner.run.calibration.training import (
    TrainingCalibration,
    calibrate_training,
    collectives,
    fit,
    read_steps,
)
from manyscale.runner.study.targets import target_named
from manyscale.runner.study.workload import Synthesis

DATA = Path(os.environ.get("MANYSCALE_DATA", "/nowhere")) / "ai" / "vtrain"
RECOMPUTE = "full"
EVERY = 3
DRAM = {"size": "80 GiB", "bandwidth": "2039.04 GB/s"}
NICS = {"count": 4, "bandwidth": "25 GB/s"}


def table(gpus: int) -> dict[str, Any]:
    """The measured all-reduce, at sizes of powers of two; a time that falls is that of the size before."""
    text = lzma.decompress((DATA / "nccl" / f"a100-{gpus}.lut.xz").read_bytes()).decode()
    lines = [line.split(",") for line in text.splitlines() if line[:1].isdigit()]
    took = {int(size): int(ns) for size, _, _, ns, *_ in lines}
    sizes = [2**power for power in range(20, 30) if 2**power in took]
    times = np.maximum.accumulate([took[size] for size in sizes])
    return {
        "collective": "allreduce", "gpus": gpus, "sizes": [f"{size} B" for size in sizes],
        "times": [f"{each} ns" for each in times.tolist()],
    }  # fmt: skip


def base() -> dict[str, Any]:
    return {"name": "dgx-a100", "node": {"gpu": {"dram": DRAM}}, "network": {"nccl": {"tables": [table(2), table(4)]}}}


def fitted() -> TrainingCalibration:
    return calibrate_training(DATA / "megatron_single_node.csv", base(), recompute=RECOMPUTE, every=EVERY)


def replayed_s(step: Transformer, machine: dict[str, Any]) -> float:
    """The longest step of a rank."""
    with TemporaryDirectory() as scratch:
        target = Path(scratch) / "machine.yaml"
        target.write_text(yaml.safe_dump(machine, sort_keys=False))
        keys = step.model_dump(include=set(Synthesis.model_fields))
        made = manyscale.synthesise(target=target, output=Path(scratch) / "step", **keys)
        study = {"workload": {"path": str(made.path)}, "target": str(target)}
        manyscale.run(study, Path(scratch) / "run", cache=Path(scratch) / "cache", report=False)
        steps = pq.read_table(Path(scratch) / "run" / "timeline" / "steps.parquet")
        took = steps.column("end_ps").to_numpy() - steps.column("start_ps").to_numpy()
        return float(took.max()) / 1e12


def choices() -> None:
    """What is chosen without the times of 64 GPUs: how the fitted third does, each fifth of it predicted by the rest,
    and what the configurations need of a GPU."""
    for recompute in ("none", "selective", "full"):
        for bandwidth in ("1555.2 GB/s", "2039.04 GB/s"):
            content = base()
            content["node"]["gpu"]["dram"] = {**DRAM, "bandwidth": bandwidth}
            machine, _ = target_named(content)
            steps, measured, _ = read_steps(DATA / "megatron_single_node.csv", recompute)
            third = np.arange(0, len(steps), EVERY)
            told(
                f"recompute {recompute}, {bandwidth}",
                cross_validated([steps[at] for at in third], measured[third], machine),
            )
    for zero in (0, 1):
        for recompute in ("none", "full"):
            steps, _, _ = read_steps(DATA / "megatron_multi_node_3.6b.csv", recompute)
            needs = [max(memory(step.model_copy(update={"zero": zero}), stage).total for stage in range(step.pp))
                     for step in steps]  # fmt: skip
            over = [sum(each > size * 2**30 for each in needs) for size in (40, 80)]
            print(f"64 GPUs, recompute {recompute}, ZeRO {zero}: at most {max(needs) / 1e9:.0f} GB; of {len(needs)} "
                  f"rows {over[0]} need more than 40 GiB, {over[1]} more than 80")  # fmt: skip


def cross_validated(steps: list[Transformer], measured: np.ndarray, machine: Machine, folds: int = 5) -> np.ndarray:
    """float64[steps]: relative errors, each of a fifth by what is fitted to the others."""
    fold = np.arange(len(steps)) % folds
    error = np.empty(len(steps))
    for left in range(folds):
        framework = fit(
            [each for each, of in zip(steps, fold, strict=True) if of != left], measured[fold != left], machine
        )
        known = Steps([each for each, of in zip(steps, fold, strict=True) if of == left])
        gpu = Gpu.of(machine.node)
        assert gpu is not None
        took = known.step_ps(gpu, peak_flops(gpu, "fp16"), framework, *collectives(known, machine)) / 1e12
        error[fold == left] = took / measured[fold == left] - 1
    return error


def told(name: str, error: np.ndarray) -> None:
    print(f"{name}: {len(error)} rows, mean of absolute errors {100 * np.abs(error).mean():.2f} %, largest "
          f"{100 * np.abs(error).max():.1f} %, mean {100 * error.mean():+.1f} %", flush=True)  # fmt: skip


def rows(steps: list[Transformer], measured: np.ndarray, machine: dict[str, Any], name: str) -> None:
    found = []
    for step, each in zip(steps, measured.tolist(), strict=True):
        began = time.process_time()
        predicted = replayed_s(step, machine)
        found.append(predicted / each - 1)
        print(f"tp {step.tp} pp {step.pp} dp {step.dp} micro batch {step.micro_batch} of {step.global_batch}, hidden "
              f"{step.hidden}, {step.layers} layers: {1e3 * each:.1f} ms, predicted {1e3 * predicted:.1f} ms "
              f"({100 * found[-1]:+.1f} %), {time.process_time() - began:.1f} CPU s", flush=True)  # fmt: skip
    told(name, np.array(found))


def main() -> None:
    question, *more = sys.argv[1:]
    if question == "choices":
        choices()
        return
    found = fitted()
    if question == "fit":
        print(found.machine["node"]["framework"])
        told("fitted, closed form", found.error[found.was_fitted])
        told("others, closed form", found.error[~found.was_fitted])
    elif question == "single":
        step, first = int(more[0]) if more else 1, int(more[1]) if len(more) > 1 else 0
        chosen = np.flatnonzero(~found.was_fitted)[first::step]
        rows([found.steps[at] for at in chosen.tolist()], found.measured_s[chosen], found.machine, "others, replayed")
    else:
        machine = copy.deepcopy(found.machine)
        machine["network"]["nccl"]["nics"] = NICS
        steps, measured, _ = read_steps(DATA / "megatron_multi_node_3.6b.csv", RECOMPUTE)
        rows(list(steps), measured, machine, "64 GPUs, replayed")


if __name__ == "__main__":
    main()
