"""Steps of ten models of up to 1,008 billion parameters on up to 3,072 A100, as published: Narayanan et al., SC 2021
(arXiv:2104.04473), table 1.

DGX A100 nodes (80 GB, eight HDR ports). The framework is the default one, fitted to single nodes with models of at most
1.3 billion parameters (megatron.py); nothing is fitted here. The table does not give micro batches, of which the best
counted: here the best of 1, 2 and 4. Stages have their layers in a row here, they were interleaved there; the closed
form (models/transformer/closed_form.py) stands for the replay.
"""

from __future__ import annotations

import numpy as np
import pytest

from manyscale.models.gpu.parameters import Gpu
from manyscale.models.transformer.closed_form import Steps
from manyscale.models.transformer.shape import Transformer
from manyscale.models.transformer.times import Framework, peak_flops
from manyscale.runner.run.calibration.training import collectives
from manyscale.runner.study.targets import target_named

pytestmark = [pytest.mark.peer, pytest.mark.slow]
MODELS = (  # layers, hidden, heads, tp, pp, GPUs, batch, achieved Tflop/s of a GPU
    (24, 2304, 24, 1, 1, 32, 512, 137), (30, 3072, 32, 2, 1, 64, 512, 138), (36, 4096, 32, 4, 1, 128, 512, 142),
    (40, 6144, 48, 8, 1, 256, 1024, 135), (48, 8192, 64, 8, 2, 512, 1536, 138), (60, 10240, 80, 8, 4, 1024, 1792, 140),
    (80, 12288, 96, 8, 8, 1536, 2304, 148), (96, 16384, 128, 8, 16, 1920, 2160, 155),
    (105, 20480, 128, 8, 35, 2520, 2520, 163), (128, 25600, 160, 8, 64, 3072, 3072, 163),
)  # fmt: skip


def step(model: tuple[int, ...], micro_batch: int) -> Transformer | None:
    layers, hidden, heads, tp, pp, gpus, batch, _ = model
    dp = gpus // (tp * pp)
    if batch % (micro_batch * dp):
        return None
    return Transformer(layers=layers, hidden=hidden, heads=heads, sequence=2048, vocabulary=51200, global_batch=batch,
                       micro_batch=micro_batch, tp=tp, pp=pp, dp=dp, recompute="full")  # fmt: skip


def test_throughput_of_published_models() -> None:
    """Floating-point operations by their eq. 3, 96 B s l h^2 (1 + s/6h + V/16lh), of which a third is recomputation."""
    memory = {"size": "80 GiB", "bandwidth": "2039.04 GB/s"}
    machine, _ = target_named({"name": "dgx-a100", "nodes": 384, "node": {"gpu": {"dram": memory}}})
    gpu = Gpu.of(machine.node)
    assert gpu is not None
    best = np.zeros(len(MODELS))
    for micro_batch in (1, 2, 4):
        of = [(at, found) for at, model in enumerate(MODELS) if (found := step(model, micro_batch)) is not None]
        known = Steps([each for _, each in of])
        took = known.step_ps(gpu, peak_flops(gpu, "fp16"), Framework(), *collectives(known, machine)) / 1e12
        for (at, each), time_s in zip(of, took.tolist(), strict=True):
            h, l = each.hidden, each.layers  # noqa: E741
            flops = 96 * each.tokens * l * h**2 * (1 + 2048 / (6 * h) + 51200 / (16 * l * h))
            best[at] = max(best[at], flops / each.ranks / time_s / 1e12)
    error = best / np.array([model[-1] for model in MODELS]) - 1
    assert np.abs(error).mean() < 0.05, error
    assert np.abs(error).max() < 0.1, error
