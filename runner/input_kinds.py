"""What ``plan --method`` and ``evaluate`` take: kinds of input, the methods that choose among their elements, and the
options that only these have. Their help and their refusals are made from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from manyscale.runner.errors import UserError
from manyscale.runner.registry import names


@dataclass(frozen=True)
class InputKind:
    """``elements`` of an ``input``. Methods: the names of ``seams`` in the registry, and ``further`` ones.
    ``plan_options`` and ``evaluate_options``: those that not all kinds take."""

    elements: str
    input: str
    seams: tuple[str, ...]
    further: tuple[str, ...]
    plan_options: tuple[str, ...]
    evaluate_options: tuple[str, ...]
    evaluate_methods: tuple[str, ...] = ()  # where these are others than those of plan

    @property
    def methods(self) -> tuple[str, ...]:
        return (*(name for seam in self.seams for name in names(seam)), *self.further)


BASELINES: Final = ("random", "systematic", "second")
TASK_METHODS: Final = ("lazy", "periodic", "interval")
TASK_SUFFIXES: Final = ("source", "types", "classes", "model", "stale", "warm", "settle", "unsettled")

INTERVALS: Final = InputKind(
    "intervals", "basic-block vectors (NAME.bb)", ("interval-sampler",), ("sbbv+ccv", "FILE.simpoints"),
    ("--set", "--seed", "--export", "--warmup", "--projection"), ("--on", "--draws"),
)  # fmt: skip
STACKS: Final = InputKind(
    "sampling units", "call stacks", (), ("simprof", "code", *BASELINES),
    ("--set", "--seed", "--sensitivity", "--measured"), ("--draws",),
)  # fmt: skip
LAUNCHES: Final = InputKind(
    "kernel launches", "a GPU's trace, or counters of launches", ("launch-sampler",), ("tbpoint:auto", "tbpoint:N"),
    ("--set", "--seed", "--target", "--launch", "--cycles"), ("--cycles", "--draws"),
)  # fmt: skip
RUNS: Final = InputKind(
    "predicted launches, against what a profiler measured", "run directories", (), (), (), ("--cycles",),
)  # fmt: skip
TASKS: Final = InputKind(
    "task instances", "a trace with tasks and their detailed level", (), ("taskpoint",),
    ("--set", "--seed", "--target"), ("--target", "--cores", "--sampling", "--set"),
    evaluate_methods=(*TASK_METHODS[:2], *(f"+{name}" for name in TASK_SUFFIXES), TASK_METHODS[2]),
)  # fmt: skip
KINDS: Final = (INTERVALS, STACKS, LAUNCHES, RUNS, TASKS)


def refuse_others(kind: InputKind, given: Iterable[str], method: str) -> None:
    """Raises UserError for an option among those ``given`` to plan that is of other kinds than this."""
    for option in given:
        owners = [each for each in KINDS if option in each.plan_options]
        if owners and kind not in owners:
            of = " and ".join(f"{each.elements} of {each.input}" for each in owners)
            raise UserError(f"{option}: is of {of}; {method} chooses {kind.elements} here")


def plan_table() -> str:
    """For the help of plan."""
    rows = [(each.input, each.elements, each.methods, each.plan_options) for each in KINDS]
    return _table("--method chooses of an input, named instead of a study:", rows)


def evaluate_table() -> str:
    """For the help of evaluate."""
    rows = [(each.input, each.elements, each.evaluate_methods or each.methods, each.evaluate_options) for each in KINDS]
    return _table("inputs, and the methods and options of each:", rows)


def _table(title: str, rows: Iterable[tuple[str, str, Iterable[str], Iterable[str]]]) -> str:
    from textwrap import fill

    lines = [title]
    for given, elements, *of_each in rows:
        told = [(name, list(words)) for name, words in zip(("methods", "options"), of_each, strict=True) if words]
        if not told:  # of the other command
            continue
        lines += ["", f"  {given}: {elements}"]
        for name, words in told:
            lines.append(fill(", ".join(words), 78, initial_indent=f"    {name}  ", subsequent_indent=" " * 13,
                              break_on_hyphens=False))  # fmt: skip
    return "\n".join(lines)
