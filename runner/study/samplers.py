"""Samplers by the names that a study uses (registry: the seams ``LEVEL-sampler``)."""

from __future__ import annotations

import inspect
from dataclasses import replace
from functools import reduce
from typing import Any, Final

from manyscale.models.spelling import unknown
from manyscale.models.workload.parameters import Strict
from manyscale.runner.errors import UserError
from manyscale.runner.registry import lookup, names
from manyscale.sampling.sampler import Sampler

LEVELS: Final = {
    "ranks": "rank", "iterations": "iteration", "tasks": "task", "launches": "launch", "blocks": "block",
}  # fmt: skip
_NUMBER: Final = "-N"  # the end of a name in the registry that stands for a number


def sampler_named(level: str, name: str) -> Sampler | None:
    """The sampler of a level, None if the name is not known. ``NAME-N`` of the registry is known as ``NAME-4`` and so
    on, which sets its rule ``number``."""
    seam = f"{level}-sampler"
    if name in names(seam) and not name.endswith(_NUMBER):
        return _as_sampler(lookup(seam, name))
    head, _, number = name.rpartition("-")
    if head + _NUMBER in names(seam) and number.isascii() and number.isdigit() and len(number) < 10 and int(number):
        return replace(_as_sampler(lookup(seam, head + _NUMBER)), preset={"number": int(number)})
    return None


def chosen_sampler(level: str, name: str) -> Sampler:
    """As ``sampler_named``. Raises UserError, listing the known ones, for a name that is not known."""
    found = sampler_named(level, name)
    if found is None:
        raise UserError(unknown(f"{level} sampler", name, names(f"{level}-sampler")))
    return found


def rules_of(sampler: Sampler, study: Strict | None = None) -> Strict:
    """What a study says of a sampler; without one, and of a sampler without options, its defaults."""
    if study is None or not sampler.options:
        return sampler.rules.model_validate(sampler.preset)
    found: Strict = reduce(getattr, sampler.options.split("."), study)
    return found


def _as_sampler(found: Any) -> Sampler:
    """A plug-in may be no more than its function, one of ranks (workload, model) -> Plan as it was before."""
    if isinstance(found, Sampler):
        return found
    if len(inspect.signature(found).parameters) == 2:
        return Sampler(lambda population, rules, seed: found(population.workload, ""))
    return Sampler(found)
