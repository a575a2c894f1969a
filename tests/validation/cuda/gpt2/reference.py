"""GPT-2 in NumPy, in double precision, and llm.c's file of a model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Parameters = dict[str, npt.NDArray[np.float64]]
MAGIC = 20240326
VERSIONS = {"fp32": 3, "bf16": 5}


@dataclass(frozen=True)
class Shape:
    """Sizes of a model and of its input: ``padded`` is that of the vocabulary in the file."""

    layers: int = 2
    heads: int = 4
    channels: int = 128
    vocabulary: int = 300
    padded: int = 384
    batch: int = 2
    tokens: int = 64

    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Shape of each tensor, in the order of the file."""
        wide, deep = self.channels, self.layers
        return {
            "wte": (self.padded, wide), "wpe": (self.tokens, wide), "ln1w": (deep, wide), "ln1b": (deep, wide),
            "qkvw": (deep, 3 * wide, wide), "qkvb": (deep, 3 * wide), "attprojw": (deep, wide, wide),
            "attprojb": (deep, wide), "ln2w": (deep, wide), "ln2b": (deep, wide), "fcw": (deep, 4 * wide, wide),
            "fcb": (deep, 4 * wide), "fcprojw": (deep, wide, 4 * wide), "fcprojb": (deep, wide), "lnfw": (wide,),
            "lnfb": (wide,),
        }  # fmt: skip


def to_bf16(values: npt.ArrayLike) -> npt.NDArray[np.uint16]:
    """Upper halves of float32, rounded to nearest even; finite numbers only."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float64]:
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def random_model(shape: Shape, type_of_data: str, seed: int) -> Parameters:
    """Parameters that the type of data holds exactly, large enough that the logits spread over some units."""
    generator = np.random.default_rng(seed)
    made: Parameters = {}
    for name, size in shape.parameters().items():
        scale = 1 / math.sqrt(size[-1]) if name.endswith("w") and len(size) == 3 else 0.1
        values = generator.normal(0, scale, size) + (name in ("ln1w", "ln2w", "lnfw"))
        if name == "wte":
            values[shape.vocabulary :] = 0
        exact = values.astype(np.float32).astype(np.float64)
        made[name] = exact if type_of_data == "fp32" else from_bf16(to_bf16(values))
    return made


def write_model(path: Path, shape: Shape, type_of_data: str, parameters: Mapping[str, npt.NDArray[np.float64]]) -> None:
    header = np.zeros(256, np.int32)
    sizes = (shape.tokens, shape.vocabulary, shape.layers, shape.heads, shape.channels, shape.padded)
    header[:8] = (MAGIC, VERSIONS[type_of_data], *sizes)
    flat = np.concatenate([parameters[name].ravel() for name in shape.parameters()])
    path.write_bytes(
        header.tobytes() + (flat.astype(np.float32) if type_of_data == "fp32" else to_bf16(flat)).tobytes()
    )


def _normalised(
    x: npt.NDArray[np.float64], weight: npt.NDArray[np.float64], bias: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * weight + bias


def _attention(x: npt.NDArray[np.float64], heads: int) -> npt.NDArray[np.float64]:
    """Causal attention of queries, keys and values (B, T, 3C), to (B, T, C)."""
    batch, tokens, three = x.shape
    query, key, value = x.reshape(batch, tokens, 3, heads, three // 3 // heads).transpose(2, 0, 3, 1, 4)
    scores = query @ key.transpose(0, 1, 3, 2) / math.sqrt(three // 3 // heads)
    scores = np.where(np.tri(tokens, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = weights / weights.sum(-1, keepdims=True) @ value
    return mixed.transpose(0, 2, 1, 3).reshape(batch, tokens, three // 3)


def logits_of(
    shape: Shape, p: Mapping[str, npt.NDArray[np.float64]], inputs: npt.NDArray[np.int32]
) -> npt.NDArray[np.float64]:
    """Logits (B, T, V) of tokens (B, T)."""
    x = p["wte"][inputs] + p["wpe"][: inputs.shape[1]]
    for layer in range(shape.layers):
        of = {name: p[name][layer] for name in p if name not in ("wte", "wpe", "lnfw", "lnfb")}
        mixed = _attention(_normalised(x, of["ln1w"], of["ln1b"]) @ of["qkvw"].T + of["qkvb"], shape.heads)
        x = x + mixed @ of["attprojw"].T + of["attprojb"]
        wide = _normalised(x, of["ln2w"], of["ln2b"]) @ of["fcw"].T + of["fcb"]
        gelu = 0.5 * wide * (1 + np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)))
        x = x + gelu @ of["fcprojw"].T + of["fcprojb"]
    return _normalised(x, p["lnfw"], p["lnfb"]) @ p["wte"][: shape.vocabulary].T


def losses_of(logits: npt.NDArray[np.float64], targets: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
    """Cross-entropy of each token (B, T)."""
    highest = logits.max(-1, keepdims=True)
    normaliser = np.log(np.exp(logits - highest).sum(-1)) + highest[..., 0]
    return normaliser - np.take_along_axis(logits, targets[..., None].astype(np.int64), -1)[..., 0]


def slope(
    shape: Shape,
    p: Parameters,
    tokens: npt.NDArray[np.int32],
    direction: Mapping[str, npt.NDArray[np.float64]],
    step: float,
) -> float:
    """Derivative of the mean loss along a direction, by differences of fourth order."""

    def loss(far: float) -> float:
        moved = {name: p[name] + far * direction[name] if name in direction else p[name] for name in p}
        return float(losses_of(logits_of(shape, moved, tokens[0]), tokens[1]).mean())

    return (8 * (loss(step) - loss(-step)) - (loss(2 * step) - loss(-2 * step))) / (12 * step)
