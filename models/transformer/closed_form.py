"""What a step takes, without a replay: for calibration, where thousands of steps are tried.

A pass of a stage takes what its GPU takes, or its host, whichever is longer; passes follow each other in the schedule's
order, and wait for what other stages send. Gradients are summed behind the last pass, then the optimiser runs. A
replay differs where hosts run ahead of their GPUs, and where collectives share links.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from manyscale.models.gpu.parameters import Gpu
from manyscale.models.transformer import kernels
from manyscale.models.transformer.schedule import passes
from manyscale.models.transformer.shape import ELEMENT_BYTES, Transformer
from manyscale.models.transformer.times import Framework, kernel_ps

PARTS: Final = ("forward", "again", "backward", "embedding", "embedding_back", "head", "head_back")
LAYER_TENSORS: Final = 12  # weights and biases of four products, scales and shifts of two normalisations


class Steps:
    """Steps of transformers, whose kernels are known once, for any Framework."""

    def __init__(self, steps: Sequence[Transformer]):
        self.steps = tuple(steps)
        parts: list[np.ndarray] = []
        group: list[np.ndarray] = []
        for number, step in enumerate(self.steps):
            layer = kernels.layer(step)
            ends = (*kernels.embedding(step), *kernels.head(step))
            of_step = (np.concatenate(layer.forward), np.concatenate(layer.again(step.recompute)),
                       np.concatenate(layer.backward), *ends)  # fmt: skip
            for part, found in enumerate(of_step):
                parts.append(found)
                group.append(np.full(len(found), number * len(PARTS) + part))
        self._kernels, self._group = np.concatenate(parts), np.concatenate(group)
        self._launches = self._sums(self._kernels["count"])
        self._orders = {_key(step): _order(step) for step in self.steps}
        self._column = {
            name: np.array([getattr(step, name) for step in self.steps], np.float64)
            for name in ("layers", "hidden", "sequence", "micro_batch", "tp", "pp", "dp")
        }
        self._weights = np.array(
            [[step.parameters_of_stage(stage) for stage in (0, step.pp - 1)] for step in self.steps], np.float64
        ).max(axis=1)

    def _sums(self, values: np.ndarray) -> np.ndarray:
        """float64[steps, parts]."""
        count = len(self.steps) * len(PARTS)
        return np.bincount(self._group, values, count).reshape(len(self.steps), len(PARTS))

    @property
    def sizes(self) -> tuple[np.ndarray, np.ndarray]:
        """float64[steps]: bytes of a micro batch's activations, and of the gradients of a GPU."""
        column = self._column
        activations = ELEMENT_BYTES * column["micro_batch"] * column["sequence"] * column["hidden"]
        return activations, np.array([step.gradient_bytes for step in self.steps]) * self._weights

    def step_ps(
        self,
        gpu: Gpu,
        peak: float,
        framework: Framework,
        tensor_ps: np.ndarray,
        data_ps: np.ndarray,
        message_ps: np.ndarray,
    ) -> np.ndarray:
        """float64[steps]. ``peak``: flop/s of the tensor cores. float64[steps]: what an all-reduce of activations takes
        (``tensor_ps``), all sums of gradients (``data_ps``), and activations from stage to stage (``message_ps``)."""
        column = self._column
        gpu_ps = self._sums(kernel_ps(self._kernels, gpu, peak, framework))
        host_ps = self._launches * framework.host_launch_ps
        tp = column["tp"]
        reduced = np.where(tp > 1, tensor_ps, 0.0)
        given = np.where(tp > 1, framework.host_launch_ps + (tp - 1) * framework.host_collective_ps, 0.0)
        repeated = np.array([step.recompute == "full" for step in self.steps])
        for part, count in ((0, 2.0), (1, 2.0 * repeated), (2, 2.0)):
            gpu_ps[:, part] += count * reduced
            host_ps[:, part] += count * given
        for part in (3, 6):  # of words' vectors, and of the logits' gradient
            gpu_ps[:, part] += reduced
            host_ps[:, part] += given
        sent = np.where(column["pp"] > 1, message_ps, 0.0)
        host_message = np.where(column["pp"] > 1, float(framework.host_message_ps), 0.0)
        found = np.empty(len(self.steps))
        for number, step in enumerate(self.steps):
            order = self._orders[_key(step)]
            of_stage = np.empty((step.pp, 2, 2))  # [stage, forward or backward, GPU or host]
            for at, part in enumerate((gpu_ps[number], host_ps[number])):
                of_stage[:, 0, at] = step.chunk_layers * part[0]
                of_stage[:, 1, at] = step.chunk_layers * (part[1] + part[2])
                of_stage[0, 0, at] += part[3]
                of_stage[0, 1, at] += part[4]
                of_stage[-1, 0, at] += part[5]
                of_stage[-1, 1, at] += part[6]
            found[number] = _pipeline(order, of_stage.max(axis=2) + host_message[number], sent[number])
        found += data_ps
        layers = column["layers"] / column["pp"]
        adam = self._weights * framework.optimiser_bytes * gpu.dram.bandwidth_ps_per_byte / framework.memory_efficiency
        return found + adam + LAYER_TENSORS * layers * framework.host_tensor_ps


def _key(step: Transformer) -> tuple[int, int, int]:
    return step.pp, step.micro_batches, step.interleaved


def _order(step: Transformer) -> list[tuple[int, bool, int]]:
    """(stage, is forward, micro batch) of all passes, in an order in which they can be made; without interleaving."""
    waiting = [passes(step, stage)[::-1] for stage in range(step.pp)]
    made: set[tuple[int, bool, int]] = set()
    found = []
    while any(waiting):
        for stage, left in enumerate(waiting):
            while left:
                is_forward, micro_batch, _ = left[-1]
                before = (stage - 1 if is_forward else stage + 1, is_forward, micro_batch)
                if 0 <= before[0] < step.pp and before not in made:
                    break
                left.pop()
                made.add((stage, is_forward, micro_batch))
                found.append((stage, is_forward, micro_batch))
    return found


def _pipeline(order: list[tuple[int, bool, int]], pass_ps: np.ndarray, sent_ps: float) -> float:
    stages = len(pass_ps)
    if stages == 1:
        return float(pass_ps.sum() * len(order) / 2)
    free = [0.0] * stages
    end: dict[tuple[int, bool, int], float] = {}
    took = pass_ps.tolist()
    for stage, is_forward, micro_batch in order:
        before = end.get((stage - 1 if is_forward else stage + 1, is_forward, micro_batch))
        begin = free[stage] if before is None else max(free[stage], before + sent_ps)
        free[stage] = end[stage, is_forward, micro_batch] = begin + took[stage][0 if is_forward else 1]
    return max(free)
