"""The formulas of collectives in a Dimemas configuration: its file of collectives, and the machine's key for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from manyscale.runner.errors import UserError
from manyscale.runner.plain_files import refuse_special

_MODEL_WORDS: Final = {"0": "none", "CTE": "constant", "CT": "constant", "LIN": "linear", "LOG": "logarithmic"}
_SIZE_WORDS: Final = {"MIN": "min", "MAX": "max", "MEAN": "mean", "2MAX": "twice-max", "S+R": "sum"}
OPERATIONS: Final = (  # by Dimemas' number; None: taken as the one before it that has the same kind
    "barrier", "bcast", "gather", "gatherv", "scatter", "scatterv", "allgather", "allgatherv", "alltoall", "alltoallv",
    "reduce", "allreduce", "reduce_scatter", None, "scan", None,
)  # fmt: skip
_GLOBALOP: Final = re.compile(
    r"(Machine globalop:\s*(?P<machine>\d+)\s+|External globalop:\s*)?(?P<number>\d+)\s+(?P<words>.*)"
)

Formulas = dict[str, dict[str, str]]  # of each kind


def read_text(path: Path) -> str:
    """A file's text. Raises UserError."""
    try:
        return refuse_special(path).read_text()
    except UnicodeDecodeError:
        raise UserError(f"{path}: is not a text file; a Dimemas configuration is expected") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None


def rules(formulas: Mapping[str, Mapping[str, str]]) -> Any:
    """The machine's key ``collectives`` for the formula of each kind."""
    kinds_of: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for kind, formula in formulas.items():
        constant = {"fan_in": "constant", "fan_out": "constant"}
        logarithmic = {"fan_in": "logarithmic", "fan_out": "logarithmic"}
        if formula != (constant if kind == "reduce" else logarithmic):  # what the preset has
            kinds_of.setdefault(tuple(formula.items()), []).extend([kind, "exscan"] if kind == "scan" else [kind])
    rules = [{"collectives": kinds, "formula": dict(formula)} for formula, kinds in kinds_of.items()]
    return {"preset": "dimemas", "rules": rules} if rules else "dimemas"


def read_file(path: Path, formulas: Formulas, leave_out: Callable[[str], None]) -> None:
    """Change ``formulas`` as a file of collectives says. Raises UserError."""
    for number, line in enumerate(read_text(path).splitlines(), 1):
        words = line.split()
        place = f"{path}:{number}"
        if not words or words[0].startswith(("#", "//")):
            continue
        if "policy:" in line.lower():
            if words[-1] != "FIFO":
                raise UserError(f"{place}: communication policy {words[-1]!r}; only FIFO can be modelled")
        elif line.startswith("Flight time:"):
            leave_out("flight times")
        elif (match := _GLOBALOP.fullmatch(line.strip())) is not None:
            _change_formula(match, line, formulas, leave_out, place)
        else:
            raise UserError(f"{place}: {line.strip()[:60]!r} is no line of a file of collectives; remove it")


def _change_formula(
    match: re.Match[str], line: str, formulas: Formulas, leave_out: Callable[[str], None], place: str
) -> None:
    words = match["words"].split()
    if line.startswith("External"):
        leave_out("collectives between machines")
        return
    if match["machine"] not in (None, "0"):
        raise UserError(f"{place}: machine {match['machine']}; there is only machine 0")
    if int(match["number"]) >= len(OPERATIONS):
        raise UserError(f"{place}: unknown collective {match['number']}; known are 0 to {len(OPERATIONS) - 1}")
    if len(words) < 4:
        raise UserError(f"{place}: a collective needs FAN_IN model, size, FAN_OUT model, size")
    kind = OPERATIONS[int(match["number"])]
    if kind is None:
        leave_out(f"formula of collective {match['number']}")
        return
    if kind == "reduce" and match["machine"] is not None:
        return  # as Dimemas, which keeps it constant
    for model, size in (words[0:2], words[2:4]):
        if model not in _MODEL_WORDS or size not in _SIZE_WORDS:
            raise UserError(
                f"{place}: {model} {size}: models are {', '.join(_MODEL_WORDS)}, sizes {', '.join(_SIZE_WORDS)}"
            )
    formulas[kind] = {
        "fan_in": _MODEL_WORDS[words[0]],
        "fan_in_size": _SIZE_WORDS[words[1]],
        "fan_out": _MODEL_WORDS[words[2]],
        "fan_out_size": _SIZE_WORDS[words[3]],
    }
