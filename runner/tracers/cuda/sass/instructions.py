"""The table of instructions: of each root what it does, which modifiers the decoder takes, on which unit timing models
run it and what it accesses. It joins the decoder's rules (``rules.py``), their meanings (``meanings.py``) and the
classes by which all models know opcodes (``readers/accelsim/opcodes.py``); the documentation's page is made from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from manyscale.models.workload.launch_trace import Access, Space, UnitClass
from manyscale.runner.readers.accelsim.opcodes import classify
from manyscale.runner.tracers.cuda.sass.given import Given, Rule
from manyscale.runner.tracers.cuda.sass.meanings import MEANINGS
from manyscale.runner.tracers.cuda.sass.rules import rules

_NEWEST: Final = 120  # an SM version that has all roots


@dataclass(frozen=True)
class Instruction:
    """``root``: as programs have it; ``uniform``: that of its form for uniform registers, or nothing; ``modifiers``
    that are taken (none of a rule that looks at no list of them); ``since``: the SM version that brought it, 0 for
    Kepler or earlier; ``is_classed``: whether models know its unit by name."""

    root: str
    uniform: str
    meaning: str
    modifiers: tuple[str, ...]
    unit: UnitClass
    space: Space
    access: Access
    since: int
    is_classed: bool


class _TakenError(Exception):
    """The modifiers that a rule takes."""


@dataclass(frozen=True)
class _Asked(Given):
    def left(self, *known: str) -> None:
        raise _TakenError(*known)


def instructions() -> list[Instruction]:
    """All of them, by their roots."""
    return sorted((_instruction(root, rule) for root, rule in rules().items()), key=lambda each: each.root)


def _instruction(root: str, rule: Rule) -> Instruction:
    plain, uniform = classify(root, False, _NEWEST), classify(f"U{root}", False, _NEWEST)
    name = root if plain.is_known or not uniform.is_known else f"U{root}"
    found = plain if name == root else uniform
    other = f"U{root}" if name == root and uniform.is_known else ""
    taken = _modifiers(root, rule)
    return Instruction(
        name, other, MEANINGS.get(root, ""), taken, found.unit, found.space, found.access, found.since, found.is_known
    )


def _modifiers(root: str, rule: Rule) -> tuple[str, ...]:
    """Those that a rule names before it looks at anything else."""
    try:
        rule(_Asked(root, (), (), 0, 0))
    except _TakenError as taken:
        return tuple(sorted({str(each) for each in taken.args if each}, key=_order))
    except (IndexError, ValueError, StopIteration):
        pass
    return ()


def _order(modifier: str) -> tuple[bool, str]:
    """Names before numbers."""
    return not modifier[0].isalpha(), modifier
