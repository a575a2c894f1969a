"""What the passes of a transformer ask of one GPU, kernel by kernel.

Products of matrices are (batch, m, n, k); other kernels move ``bytes``, their least traffic: what they read and write
once, elements of two bytes, masks of dropout of one. ``count`` kernels of one kind stand in one record; ``bytes`` and
``flops`` are those of all.

e: elements of a micro batch's activations, M x h with M = micro batch x sequence tokens; what tensor parallelism does
not divide (normalisation, dropout, residuals) is divided by tokens with sequence parallelism. A layer has two blocks,
attention and the wide products; collectives of tensor parallelism stand between blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.transformer.shape import ELEMENT_BYTES, Transformer
from manyscale.models.workload.gpu_step_tables import KernelClass

KERNEL: Final = np.dtype(
    [
        ("kind", "i1"),  # KernelClass
        ("is_core", "i1"),  # of attention: what selective recomputation does again
        ("count", "f8"),
        ("batch", "f8"), ("m", "f8"), ("n", "f8"), ("k", "f8"),  # of a product; 0 of others
        ("flops", "f8"),
        ("bytes", "f8"),
    ]
)  # fmt: skip
_C: Final = KernelClass


@dataclass(frozen=True)
class Layer:
    """KERNEL[] of the two blocks of a layer, forward and backward; the backward blocks in the order of the forward
    ones."""

    forward: tuple[np.ndarray, np.ndarray]
    backward: tuple[np.ndarray, np.ndarray]

    def again(self, recompute: str) -> tuple[np.ndarray, np.ndarray]:
        """What the backward pass computes again, by block."""
        if recompute == "full":
            return self.forward
        first = self.forward[0]
        return (first[first["is_core"] == 1] if recompute == "selective" else first[:0]), first[:0]


def layer(step: Transformer) -> Layer:
    """Of one GPU and micro batch."""
    t, h, s = step.tp, step.hidden, step.sequence
    tokens = step.micro_batch * s
    e = float(tokens * h)
    whole = e / t if step.sequence_parallel else e
    wide = 4 * e / t
    depth, batch = h / step.heads, step.micro_batch * step.heads / t
    scores = batch * s * s
    summed = ELEMENT_BYTES + 2 * step.gradient_bytes  # of a parameter: its gradient read, the sum read and written
    attention = _joined(
        _moves(_C.normalisation, 4 * whole),
        _product(tokens, 3 * h / t, h),
        _moves(_C.movement, 12 * e / t, 3),
        _core(step, batch, depth, scores, e / t, back=False),
        _moves(_C.movement, 4 * e / t),
        _product(tokens, h, h / t),
        _moves(_C.elementwise, 7 * whole),
    )
    products = _joined(
        _moves(_C.normalisation, 4 * whole),
        _product(tokens, 4 * h / t, h),
        _moves(_C.elementwise, 4 * wide),
        _product(tokens, h, 4 * h / t),
        _moves(_C.elementwise, 7 * whole),
    )
    attention_back = _joined(
        _moves(_C.elementwise, 5 * whole, 3),
        _gradients(tokens, h, h / t),
        _core(step, batch, depth, scores, e / t, back=True),
        _moves(_C.movement, 16 * e / t, 5),
        _gradients(tokens, 3 * h / t, h),
        _moves(_C.normalisation, 8 * whole, 3),
        _moves(_C.elementwise, summed * 4 * h * h / t, 6),
    )
    products_back = _joined(
        _moves(_C.elementwise, 5 * whole, 3),
        _gradients(tokens, h, 4 * h / t),
        _moves(_C.elementwise, 6 * wide, 3),
        _gradients(tokens, 4 * h / t, h),
        _moves(_C.normalisation, 8 * whole, 3),
        _moves(_C.elementwise, summed * 8 * h * h / t, 6),
    )
    return Layer((attention, products), (attention_back, products_back))


def embedding(step: Transformer) -> tuple[np.ndarray, np.ndarray]:
    """KERNEL[] of the first stage: vectors of words and places, dropout; and back."""
    e = float(step.micro_batch * step.sequence * step.hidden)
    forward = _joined(_moves(_C.embedding, 6 * e, 2), _moves(_C.elementwise, 5 * e))
    return forward, _joined(_moves(_C.elementwise, 5 * e), _moves(_C.embedding, 8 * e, 2))


def head(step: Transformer) -> tuple[np.ndarray, np.ndarray]:
    """KERNEL[] of the last stage: normalisation, logits, and the loss, whose sums are of 32 bits; and back."""
    tokens, h, words = step.micro_batch * step.sequence, step.hidden, step.padded_vocabulary
    e, logits = float(tokens * h), float(tokens * words)
    forward = _joined(
        _moves(_C.normalisation, 4 * e), _product(tokens, words, h), _moves(_C.elementwise, 18 * logits, 5)
    )
    back = _joined(
        _moves(_C.elementwise, 18 * logits, 3), _gradients(tokens, words, h), _moves(_C.normalisation, 8 * e, 3),
        _moves(_C.elementwise, (ELEMENT_BYTES + 2 * step.gradient_bytes) * words * h, 1),
    )  # fmt: skip
    return forward, back


def optimiser(parameters: float, bytes_per_parameter: float, tensors: float) -> np.ndarray:
    """KERNEL[]: Adam with what goes with it (scale and norm of gradients, copies between 16 and 32 bits)."""
    return _moves(_C.optimiser, parameters * bytes_per_parameter, tensors)


def _core(step: Transformer, batch: float, depth: float, scores: float, e: float, *, back: bool) -> np.ndarray:
    """Scores, their softmax and dropout, and the sums that they weight."""
    s = step.sequence
    if step.flash_attention:  # of the scores before a token alone; backward makes them again: five products for two
        made = _moves(_C.attention, (8 if not back else 16) * e)
        made["flops"] = 2.0 * batch * s * s * depth * (2.5 if back else 1.0)
    elif back:
        made = _joined(
            _product(s, depth, s, batch), _product(s, s, depth, batch), _moves(_C.elementwise, 5 * scores),
            _moves(_C.elementwise, 6 * scores), _product(s, depth, s, batch), _product(s, depth, s, batch),
        )  # fmt: skip
    else:
        made = _joined(
            _product(s, s, depth, batch), _moves(_C.elementwise, 4 * scores), _moves(_C.elementwise, 5 * scores),
            _product(s, depth, s, batch),
        )  # fmt: skip
    made["is_core"] = 1
    return made


def _gradients(m: float, n: float, k: float) -> np.ndarray:
    """Of the input and of the weight of a product."""
    return _joined(_product(m, k, n), _product(k, n, m))


def _product(m: float, n: float, k: float, batch: float = 1.0) -> np.ndarray:
    made = np.zeros(1, KERNEL)
    size = ELEMENT_BYTES * batch * (m * k + k * n + m * n)
    made[0] = (int(_C.matrix), 0, 1.0, batch, m, n, k, 2.0 * batch * m * n * k, size)
    return made


def _moves(kind: KernelClass, size: float, count: float = 1.0) -> np.ndarray:
    made = np.zeros(1, KERNEL)
    made[0] = (int(kind), 0, count, 0.0, 0.0, 0.0, 0.0, 0.0, size)
    return made


def _joined(*parts: np.ndarray) -> np.ndarray:
    return np.concatenate(parts)
