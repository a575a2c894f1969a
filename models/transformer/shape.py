"""A transformer, its step, and how both are spread over GPUs.

h: hidden, s: sequence, V: vocabulary, l: layers, B: global batch, t, p, d: tensor, pipeline, data parallelism.
"""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from manyscale.models.workload.parameters import Count, Strict

ELEMENT_BYTES = 2  # of weights and activations: fp16 and bf16


class ImpossibleShapeError(ValueError):
    """Numbers that are right each, and that no step can have together."""


class Transformer(Strict):
    """A step of training a decoder of GPT's kind: layers of attention and of two products that widen four times."""

    layers: Count
    """The layers."""
    hidden: Count
    """The size of a token's vector."""
    heads: Count
    """The attention heads of a layer."""
    sequence: Count
    """The tokens of a sequence."""
    vocabulary: Count = 50257
    """The different tokens; tensor parallelism divides them, rounded up."""
    micro_batch: Count = 1
    """The sequences that pass the layers at a time."""
    global_batch: Count
    """The sequences of a step."""
    tp: Count = 1
    """Tensor parallelism: the GPUs that share each layer."""
    pp: Count = 1
    """Pipeline parallelism: the stages, each with its layers."""
    dp: Count = 1
    """Data parallelism: the copies of the model, each with its sequences."""
    interleaved: Count = 1
    """The pieces of a stage's layers that take turns (interleaved 1F1B); 1: each stage has its layers in a row."""
    recompute: Literal["none", "selective", "full"] = "none"
    """What the backward pass computes again, to save memory: nothing, the core of attention, or all of a layer."""
    zero: Literal[0, 1, 2, 3] = 0
    """What data parallelism shards: nothing, the optimiser's states, gradients as well, parameters as well."""
    sequence_parallel: bool = False
    """Whether tensor parallelism divides the rest of a layer by tokens; on one GPU there is nothing to divide."""
    flash_attention: bool = False
    """Whether attention is one kernel that keeps its scores on the chip."""
    precision: Literal["fp16", "bf16"] = "fp16"
    """Of weights and activations; states of the optimiser have 32 bits, and so have sums of bf16's gradients."""

    @model_validator(mode="after")
    def _divides(self) -> Transformer:
        for what, whole, by, parts in (
            ("hidden", self.hidden, "heads", self.heads),
            ("heads", self.heads, "tp", self.tp),
            ("4 x hidden", 4 * self.hidden, "tp", self.tp),
            ("layers", self.layers, "pp x interleaved", self.pp * self.interleaved),
            ("global_batch", self.global_batch, "micro_batch x dp", self.micro_batch * self.dp),
        ):
            if whole % parts:
                raise ImpossibleShapeError(f"{what}: {whole} is no multiple of {by}, {parts}")
        if self.interleaved > 1 and self.pp == 1:
            raise ImpossibleShapeError(
                "interleaved: a pipeline of one stage has nothing to interleave; set pp, or leave it out"
            )
        if self.interleaved > 1 and self.micro_batches % self.pp:
            raise ImpossibleShapeError(
                f"interleaved: {self.micro_batches} micro batches are no multiple of pp, {self.pp}, as it needs"
            )
        if self.zero >= 2 and self.pp > 1:
            raise ImpossibleShapeError(
                f"zero: stage {self.zero} shards gradients of each micro batch; use 0 or 1 with pp"
            )
        if self.sequence_parallel and self.sequence % self.tp:
            raise ImpossibleShapeError(f"sequence_parallel: sequence, {self.sequence}, is no multiple of tp, {self.tp}")
        return self

    @property
    def gradient_bytes(self) -> int:
        """Of the sum of a parameter's gradients in memory and in collectives: Megatron-LM (arguments.py,
        accumulate_allreduce_grads_in_fp32) keeps those of bf16, which has few digits, in 32 bits."""
        return 4 if self.precision == "bf16" else ELEMENT_BYTES

    @property
    def ranks(self) -> int:
        return self.tp * self.pp * self.dp

    @property
    def micro_batches(self) -> int:
        """Of a pipeline in a step."""
        return self.global_batch // (self.micro_batch * self.dp)

    @property
    def tokens(self) -> int:
        """Of a step."""
        return self.global_batch * self.sequence

    @property
    def chunk_layers(self) -> int:
        """Layers of a piece of a stage."""
        return self.layers // (self.pp * self.interleaved)

    @property
    def padded_vocabulary(self) -> int:
        """Of one GPU's share."""
        return -(-self.vocabulary // self.tp)

    @property
    def layer_parameters(self) -> int:
        """Of one layer: 12 h^2 + 13 h."""
        return self.hidden * (12 * self.hidden + 13)

    @property
    def parameters(self) -> int:
        """Narayanan et al., eq. 2, with the last normalisation: l (12 h^2 + 13 h) + (V + s) h + 2 h."""
        return self.layers * self.layer_parameters + self.hidden * (self.vocabulary + self.sequence + 2)

    @property
    def model_flops(self) -> float:
        """Of a step, without what is recomputed (Narayanan et al., eq. 3, whose 96 = 4 x 24 has the forward pass
        twice): 72 B s l h^2 (1 + s / 6h + V / 12lh)."""
        return 6.0 * self.tokens * (
            12.0 * self.layers * self.hidden**2 + 2.0 * self.layers * self.sequence * self.hidden
            + self.hidden * self.vocabulary
        )  # fmt: skip

    def parameters_of_stage(self, stage: int) -> int:
        """Of one GPU of a stage: its layers' share, and that of the words' vectors on the first stage and, once more,
        on the last (of a pipeline; they are tied)."""
        layers = self.chunk_layers * self.interleaved
        own = layers * (self.hidden // self.tp * (12 * self.hidden + 7) + 6 * self.hidden)
        if stage == 0:
            own += self.hidden * (self.padded_vocabulary + self.sequence)
        elif stage == self.pp - 1:
            own += self.hidden * self.padded_vocabulary
        return own
