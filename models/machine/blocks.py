"""Blocks: parameters that a model adds to a machine, under a key of its own in ``node`` or ``network``.

The machine carries them and knows none: each stands with the model that reads it. Who builds a machine from a file
knows which blocks there are, and refuses other keys (study/targets.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import ConfigDict, model_validator

from manyscale.models.workload.parameters import Strict


class Extensible(Strict):
    """A part of a machine that carries blocks beside its own keys: each a mapping as in a file, or a Block."""

    model_config = ConfigDict(extra="allow")

    @model_validator(mode="after")
    def _blocks_alone(self) -> Self:
        for key, value in self.blocks.items():
            if value is not None and not isinstance(value, Mapping | Strict):
                raise ValueError(f"{key}: unknown key; remove it or mend its spelling")
        return self

    @property
    def blocks(self) -> Mapping[str, Any]:
        """The blocks by key, as they were given."""
        return self.model_extra or {}

    def has_block(self, key: str) -> bool:
        return self.blocks.get(key) is not None


class Block(Strict):
    """Parameters of a model. ``key``: where they stand in a machine, such as ``network.flow``."""

    key: ClassVar[str]

    @classmethod
    def of(cls, part: Extensible) -> Self | None:
        """The block of a node or network; None if it has none. Raises ValidationError for one that is wrong."""
        value = getattr(part, cls.key.rpartition(".")[2], None)
        return value if value is None or isinstance(value, cls) else cls.model_validate(value)
