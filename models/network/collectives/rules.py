"""Which algorithm, or which formula, a collective takes: a preset's name, or rules with a preset for what they leave.

The size that a rule compares is that of the call's own arguments: the whole message of bcast, reduce, allreduce, scan
and exscan; the block of one participant (for alltoall, of one pair) of the others, and where blocks differ their mean,
rounded down; 0 for barrier. Ranges are half open: from ``min_bytes`` up to but without ``max_bytes``, likewise ranks.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, field_validator, model_validator

from manyscale.models.machine.blocks import Block
from manyscale.models.network.collectives.algorithms import (
    ALGORITHMS,
    FORMULA_PRESETS,
    PRESETS,
    SEGMENTED,
    Choice,
    choose,
    known_presets,
)
from manyscale.models.network.collectives.call import KINDS, CollectiveCall
from manyscale.models.network.collectives.formulas import Formula
from manyscale.models.spelling import unknown
from manyscale.models.workload.parameters import Bytes, Count, Strict


class Rule(Strict):
    """What the ``collectives`` it names take if size and number of ranks lie in its range: an ``algorithm`` (with
    ``segment``, the size of the pieces in which some algorithms send), a ``formula``, or what another ``preset`` has.

    A rule for a blocking kind holds for the non-blocking one too, unless some rule names that.
    """

    collectives: Annotated[tuple[str, ...], Field(min_length=1, json_schema_extra={"items": {"enum": [*KINDS]}})]
    """The collectives that the rule is for."""
    min_bytes: Bytes = 0
    """The smallest size that the rule is for."""
    max_bytes: Bytes | None = None
    """The size from which on it is no longer for. By default there is no limit."""
    min_ranks: Count = 1
    """The smallest number of ranks that the rule is for."""
    max_ranks: Count | None = None
    """The number of ranks from which on it is no longer for. By default there is no limit."""
    algorithm: str | None = None
    """The algorithm that they take."""
    segment_bytes: Bytes = Field(default=0, alias="segment")
    """The size of the pieces in which some algorithms send."""
    formula: Formula | None = None
    """The formula that says what they cost, in place of an algorithm."""
    preset: str | None = None
    """The preset whose choice they take, in place of an algorithm."""

    @field_validator("collectives")
    @classmethod
    def _known_kinds(cls, kinds: tuple[str, ...]) -> tuple[str, ...]:
        for kind in kinds:
            if kind not in KINDS:
                raise ValueError(unknown("collective", kind, KINDS))
        return kinds

    @field_validator("preset")
    @classmethod
    def _known_preset(cls, preset: str) -> str:
        return known_presets(preset)

    @model_validator(mode="after")
    def _says_one_thing(self) -> Rule:
        if [self.algorithm, self.formula, self.preset].count(None) != 2:
            raise ValueError("a rule says either algorithm, formula or preset")
        for low, high, what in (
            (self.min_bytes, self.max_bytes, "bytes"),
            (self.min_ranks, self.max_ranks, "ranks"),
        ):
            if high is not None and high <= low:
                raise ValueError(f"max_{what} {high} leaves nothing above min_{what} {low} (max is not included)")
        for kind in self.collectives:
            base = kind if kind in ALGORITHMS else kind[1:]
            if self.algorithm is not None and self.algorithm not in ALGORITHMS[base]:
                raise ValueError(unknown(f"algorithm of {kind}", self.algorithm, ALGORITHMS[base]))
            if self.segment_bytes and self.algorithm not in SEGMENTED.get(base, ()):
                known = ", ".join(sorted(SEGMENTED.get(base, ()))) or "none"
                raise ValueError(f"only some algorithms for {kind} send in segments: {known}")
        return self

    def covers(self, kind: str, num_bytes: int, num_ranks: int) -> bool:
        """Whether the rule holds for a collective that it names as ``kind``."""
        return (
            kind in self.collectives
            and self.min_bytes <= num_bytes
            and (self.max_bytes is None or num_bytes < self.max_bytes)
            and self.min_ranks <= num_ranks
            and (self.max_ranks is None or num_ranks < self.max_ranks)
        )

    def choice(self, call: CollectiveCall) -> Choice | Formula:
        """What the rule says of a call that it covers."""
        if self.preset is not None:
            return choose(call, self.preset)
        return self.formula or Choice(self.algorithm or "", self.segment_bytes)


class CollectiveRules(Block):
    """The first of the ``rules`` that covers a call decides, else the ``preset``; in a file also a preset's name."""

    key: ClassVar[str] = "network.collectives"

    preset: str = Field(json_schema_extra={"enum": [*PRESETS]})
    """Whose algorithms are taken where no rule fits."""
    rules: tuple[Rule, ...] = ()
    """The rules, of which the first that fits holds."""

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: object) -> object:
        return {"preset": value} if isinstance(value, str) else value

    @field_validator("preset")
    @classmethod
    def _known_preset(cls, preset: str) -> str:
        return known_presets(preset)

    def choice(self, call: CollectiveCall) -> Choice | Formula:
        """What the call takes. O(rules)."""
        kind, size = call.base_kind, rule_bytes(call)
        if any(call.kind in rule.collectives for rule in self.rules):
            kind = call.kind
        for rule in self.rules:
            if rule.covers(kind, size, call.num_participants):
                return rule.choice(call)
        return choose(call, self.preset)

    @property
    def has_formulas(self) -> bool:
        """Whether some collectives cost what a formula says."""
        return bool(self._presets & FORMULA_PRESETS) or any(rule.formula is not None for rule in self.rules)

    @property
    def sends_messages(self) -> bool:
        """Whether some collectives are the messages of an algorithm."""
        return bool(self._presets - FORMULA_PRESETS) or any(rule.algorithm is not None for rule in self.rules)

    @property
    def _presets(self) -> set[str]:
        return {self.preset} | {rule.preset for rule in self.rules if rule.preset is not None}

    def __str__(self) -> str:
        count = len(self.rules)
        return f"{self.preset}, with {count} rule{'' if count == 1 else 's'} before it" if count else self.preset


def rule_bytes(call: CollectiveCall) -> int:
    """The size that rules compare; see the module's docstring."""
    if call.base_kind == "barrier":
        return 0
    if call.base_kind in ("bcast", "reduce", "allreduce", "scan", "exscan", "alltoall"):
        return call.send_bytes
    blocks = call.pair_bytes if call.base_kind == "alltoallv" else call.block_bytes
    return int(blocks.sum()) // blocks.size
