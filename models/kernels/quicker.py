"""What Numba does slowly, done quickly, with the same outcome: Python's part of compiling, which is the larger one.

Each of these was most of what a profile of `run bfs-16` without kept kernels showed of its part; tests/models/kernels
hold them against Numba's own. What Numba may change of itself, the bound on its version in pyproject.toml keeps.
"""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any, Final

from numba.core import inline_closurecall, ir
from numba.core.targetconfig import TargetConfig

_WITHOUT_COPIES: Final = SimpleNamespace(deepcopy=lambda held: held, copy=copy.copy)


def flags_are_equal(one: Any, other: Any) -> Any:
    """Whether two sets of flags, with which functions are compiled, say the same.

    Numba looks for a function's typing by its flags, at every operator of a kernel, and for each hash and comparison of
    them asks for some thirty by name. These are those that are set; others have their class's defaults.
    """
    if one is other:
        return True
    if type(one) is not type(other):
        return _equal_by_name(one, other)
    return one._values == other._values or _set_flags(one) == _set_flags(other)


def _set_flags(flags: Any) -> dict[str, Any]:
    options = flags.options
    return {name: value for name, value in flags._values.items() if value != options[name].default}


def variables_of(instruction: Any, held: Any) -> list[Any]:
    """Variables in what an instruction holds, in order: what Numba asks of every statement some ten times."""
    found: list[Any] = []
    _add_variables(instruction, held, found)
    return found


def _add_variables(instruction: Any, held: Any, found: list[Any]) -> None:
    kind = type(held)
    if kind is ir.Var:
        found.append(held)
    elif kind is dict:
        for value in held.values():
            if type(value) not in _PLAIN:
                _add_variables(instruction, value, found)
    elif kind is list or kind is tuple:
        for value in held:
            if type(value) not in _PLAIN:
                _add_variables(instruction, value, found)
    elif kind is ir.Expr:
        _add_variables(instruction, held._kws, found)
    elif kind not in _PLAIN:
        found += _variables_by_kind(instruction, held)


def inline_function(worker: Any, caller: Any, block: Any, place: int, function: Any, arg_typs: Any = None) -> Any:
    """Put a function into a block of its caller. Numba copies the function twice more, though it was made for this, and
    with each of its blocks copies all variables of the function."""
    callee = worker.run_untyped_passes(function)
    names: Any = inline_closurecall
    names.copy = _WITHOUT_COPIES
    try:
        return worker.inline_ir(caller, block, place, callee, function.__code__.co_freevars, arg_typs=arg_typs)
    finally:
        names.copy = copy


_PLAIN: Final = frozenset({ir.Loc, str, int, bool, type(None), float, type(ir.UNDEFINED)})
_equal_by_name: Final = TargetConfig.__eq__
_variables_by_kind: Final = ir.Inst._rec_list_vars


def take_effect() -> None:
    """Have Numba use them."""
    flags: Any = TargetConfig
    flags.__eq__, flags.__hash__ = flags_are_equal, lambda self: hash(type(self))
    instruction: Any = ir.Inst
    instruction._rec_list_vars = variables_of
    worker: Any = inline_closurecall.InlineWorker
    worker.inline_function = inline_function
