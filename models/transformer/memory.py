"""What a step keeps in the memory of a GPU: states of its parameters, and activations of the micro batches under way.

Sources, by equation: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models" (SC
2020), section 3.1 and figure 1: 2 + 2 + 12 bytes of a parameter for its weight, its gradient, and what Adam keeps in 32
bits, each divided among GPUs by a stage of ZeRO; a sum of bf16's gradients takes 4 (Megatron-LM,
training/theoretical_memory_usage.py: 18 in all). Korthikanti et al., "Reducing Activation Recomputation in Large
Transformer Models" (MLSys 2023), eq. 1 to 6, section 4.2.3 and 4.3: activations of elements of two bytes, masks of
dropout of one.

s, b, h, a, t: sequence, micro batch, hidden, heads, tensor parallelism. Left out: what collectives, the allocator and
the driver take for themselves, and parameters that ZeRO's stage 3 has gathered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from manyscale.models.transformer.shape import ELEMENT_BYTES, Transformer

OPTIMISER_BYTES: Final = 12  # of a parameter: weight, momentum and variance, of 32 bits


@dataclass(frozen=True)
class Memory:
    """Of one GPU, in bytes."""

    weights: float
    gradients: float
    optimiser: float
    activations: float

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.optimiser + self.activations


def memory(step: Transformer, stage: int = 0) -> Memory:
    """Of a GPU of a stage."""
    own = float(step.parameters_of_stage(stage))
    of_weights, of_gradients, of_optimiser = (step.dp if step.zero >= least else 1 for least in (3, 2, 1))
    return Memory(
        ELEMENT_BYTES * own / of_weights,
        step.gradient_bytes * own / of_gradients,
        OPTIMISER_BYTES * own / of_optimiser,
        _activations(step, stage),
    )


def fullest(step: Transformer) -> tuple[Memory, int]:
    """That of the fullest GPU, and its stage, the first of several: of the stages between the ends, which have the same
    layers, the first has most under way."""
    stages = sorted({0, min(1, step.pp - 1), step.pp - 1})
    needs = {stage: memory(step, stage) for stage in stages}
    stage = max(stages, key=lambda each: needs[each].total)
    return needs[stage], stage


def _activations(step: Transformer, stage: int) -> float:
    t = step.tp
    by_tokens = t if step.sequence_parallel else 1  # what else tensor parallelism does not divide
    one = float(step.sequence * step.micro_batch * step.hidden)  # sbh
    scores = 0.0 if step.flash_attention else 5.0 * step.heads * step.sequence / step.hidden
    kept = 10.0 / by_tokens + (24.0 + scores) / t
    layer = {"none": kept, "selective": kept - scores / t, "full": 2.0 / by_tokens}[step.recompute]
    passes = _under_way(step, stage)
    held = one * layer * step.chunk_layers * passes
    if step.recompute == "full":
        held += one * kept  # of the layer that is computed again
    if stage == 0:  # the mask of dropout behind the words' vectors
        held += one * min(step.pp, step.micro_batches) / by_tokens
    if stage == step.pp - 1:  # inputs of the last normalisation and of the logits; these as floats
        logits = 4.0 * step.sequence * step.micro_batch * step.padded_vocabulary
        held += 4.0 * one / by_tokens + logits
    return held


def _under_way(step: Transformer, stage: int) -> int:
    """Forward passes of pieces of layers whose backward pass is still to come, at most."""
    if step.interleaved == 1:
        return min(step.pp - stage, step.micro_batches)
    filling = 2 * (step.pp - stage - 1) + (step.interleaved - 1) * step.pp + 1
    return min(filling, step.micro_batches * step.interleaved)
