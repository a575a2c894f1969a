"""The order in which a stage of a pipeline makes its passes: 1F1B, and interleaved 1F1B (Narayanan et al., 2.2).

A stage holds ``interleaved`` pieces of layers; piece c of stage i is part c x stages + i of the model. Its first passes
fill the pipeline, then each forward pass is followed by a backward one.
"""

from __future__ import annotations

from typing import NamedTuple

from manyscale.models.transformer.shape import Transformer


class Pass(NamedTuple):
    """Of one micro batch through a piece of layers."""

    is_forward: bool
    micro_batch: int
    chunk: int


def passes(step: Transformer, stage: int) -> list[Pass]:
    """Of a stage, in its order. O(micro batches x pieces)."""
    count = step.micro_batches * step.interleaved
    first = min(_filling(step, stage), count)
    found = [_forward(step, number) for number in range(first)]
    for number in range(count - first):
        found += [_forward(step, first + number), _backward(step, number)]
    return found + [_backward(step, number) for number in range(count - first, count)]


def _filling(step: Transformer, stage: int) -> int:
    """Forward passes before the first backward one can follow."""
    if step.interleaved == 1:
        return step.pp - stage - 1
    if step.micro_batches == step.pp:
        return step.micro_batches * step.interleaved
    return 2 * (step.pp - stage - 1) + (step.interleaved - 1) * step.pp


def _forward(step: Transformer, number: int) -> Pass:
    """Micro batches pass a piece in groups of as many as there are stages."""
    turn, within = divmod(number, step.pp * step.interleaved)
    if step.interleaved == 1:
        return Pass(True, number, 0)
    return Pass(True, turn * step.pp + within % step.pp, within // step.pp)


def _backward(step: Transformer, number: int) -> Pass:
    like = _forward(step, number)
    return Pass(False, like.micro_batch, step.interleaved - 1 - like.chunk)
