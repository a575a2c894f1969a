"""Which points of a sweep over shapes are best."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from manyscale.runner.study.shapes import PREFIX

TOKENS_RATE: Final = "step.tokens_per_second"
MEMORY_SHARE: Final = "step.memory_share"


def best_first(tokens_per_second: Sequence[Any], memory_share: Sequence[Any]) -> list[int]:
    """Places by the tokens that are trained in a second, the most first, of equal ones the first; behind them those
    that need more memory than a GPU has. Where all steps have as many tokens, the shortest is first."""

    def order(place: int) -> tuple[bool, float, int]:
        return exceeds(memory_share[place]), -(tokens_per_second[place] or 0.0), place

    return sorted(range(len(tokens_per_second)), key=order)


def exceeds(memory_share: Any) -> bool:
    """Whether the step cannot run; None: what a GPU has is not known."""
    return memory_share is not None and memory_share > 1


def short(names: Iterable[str]) -> dict[str, str]:
    """What axes are called where they need not be unique: those of shapes by their last word."""
    return {name: name.removeprefix(PREFIX) for name in names}
