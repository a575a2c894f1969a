"""A program that checks what it computes, and a suite of such programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

PASSES = r"(?i)\bpass(es|ed)?\b"
BY_STATUS = r""  # a program that says by its exit status alone whether its results are right
FAILS = r"(?i)\b(fail(s|ed|ure)?|mismatch(es)?|incorrect|wrong)\b"


@dataclass(frozen=True)
class Program:
    """``folder`` in the suite; ``sources``: its files, patterns allowed, "" for all ``*.cu`` and ``*.cpp``;
    ``needs``: other files and folders of the suite that it includes or reads.

    ``passes``, ``fails``: patterns that the output must have, and must not have. ``alike``: by how much the results may
    differ between architectures and levels of optimisation, 0: not in a bit; else relative to the largest number of a
    copy, of ``numbers`` ("f4", "f8"); None: they depend on times or on the order of threads. ``edits``: (file, old,
    new), where a size is a constant of the source. ``why`` of what is not alike. ``least``: architecture that it needs.
    ``inputs(folder)`` writes what it reads.
    """

    name: str
    folder: str
    sources: str = ""
    arguments: str = ""
    passes: str = PASSES
    fails: str = FAILS
    alike: float | None = 0.0
    numbers: str = "f4"
    words: str = ""
    needs: tuple[str, ...] = ()
    edits: tuple[tuple[str, str, str], ...] = ()
    why: str = ""
    least: int = 0
    inputs: Callable[[Path], None] | None = None


@dataclass(frozen=True)
class Suite:
    """``checkout``: name of its folder among the sources; ``words`` for the compiler, ``{root}`` is the copy;
    ``unoptimised_every``: of how many programs one is also run at -O0; ``left_out``: programs that
    were tried and are not counted, with the reason."""

    name: str
    checkout: str
    url: str
    commit: str
    licence: str
    programs: tuple[Program, ...]
    words: str = ""
    needs: tuple[str, ...] = ()
    unoptimised_every: int = 1
    left_out: Mapping[str, str] = field(default_factory=dict)
