"""What is asked of an extrapolation by roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from manyscale.models.workload import MAX_RANKS
from manyscale.runner.errors import UserError
from manyscale.runner.run.extrapolation.roles.speeds import HOWS, How


@dataclass(frozen=True)
class Wanted:
    """``ranks``: None for as many as the groups say, or as traced; ``groups``: sizes by name, the first varies fastest
    (empty: as traced); ``traced``: those of the trace, None for what its communicators say; ``stand_ins``: missing
    ranks of the trace, and who stands in for them. Raises UserError for a spread or a seed that there is not."""

    ranks: int | None = None
    groups: Mapping[str, int] = field(default_factory=dict)
    traced: Mapping[str, int] | None = None
    stand_ins: Mapping[int, int] = field(default_factory=dict)
    spread: How = "fitted"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.spread not in HOWS:
            raise UserError(f"--spread {self.spread}: is none of {', '.join(HOWS)}")
        if self.seed < 0:
            raise UserError(f"--seed {self.seed}: is negative; give 0 or more")


def parsed_roles(texts: Sequence[str]) -> dict[int, int]:
    """``3=0`` and ``4-7=0`` as who stands in for each missing rank. Raises UserError."""
    found: dict[int, int] = {}
    for text in texts:
        ranks, equals, other = (each.strip() for each in text.partition("="))
        first, dash, last = ranks.partition("-")
        numbers = [first, last if dash else first, other]
        if not equals or not all(number.isdecimal() and number.isascii() for number in numbers):
            raise UserError(f"--role {text}: write the missing rank and who stands in for it, e.g. 3=0 or 4-7=0")
        if not int(first) <= int(numbers[1]) < MAX_RANKS:
            raise UserError(f"--role {text}: ranks go upwards, and are below {MAX_RANKS}; mend the range")
        for rank in range(int(first), int(numbers[1]) + 1):
            if found.setdefault(rank, int(other)) != int(other):
                raise UserError(f"--role {text}: rank {rank} takes after {found[rank]} already; name it once")
    return found
