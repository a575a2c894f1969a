"""What watches the loop of detailed_kernel.py: functions that it calls at certain points, chosen when it is compiled.

A watch is a named tuple of arrays with functions of its own for some of these points (``watches``). The loop is
compiled for each kind of watch; what a watch does not implement, and everything where there is none (None), leaves no
instruction behind. A simulation in which functions change nothing but their watch is the same simulation; a sampler's
``piece_due`` decides whether the piece is simulated in detail, and how long it takes if not.

| point | when | gives back |
| --- | --- | --- |
| ``core_due`` | the runtime system is told of a core, which may have ended a piece | |
| ``piece_due`` | the core is about to begin the piece that the scheduler gave it | |
| ``turn_end`` | a core is to go on until the cycle ``until`` | the cycle at which it stops to be looked at |
| ``turn_begins`` | before the core's step | numbers that ``turn_over`` gets as ``mark`` |
| ``turn_over`` | after it; ``is_over``: the core's piece has ended | |

``sim`` is the simulation (detailed_kernel.NodeState), ``due`` the cycle in which the turn begins, ``core`` the number
of the core.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from numba.extending import overload

_Function = TypeVar("_Function", bound=Callable[..., Any])
_points: list[str] = []  # their names
# As kernels.inlined. (With inline="always" the compiled loop is another one, also without a watch: simulated times of a
# parallel program came out 23 % shorter.)
_OPTIONS: Final = {"_nrt": False, "forceinline": True, "no_cfunc_wrapper": True}
_by_kind: dict[tuple[str, type], Callable[..., Any]] = {}


def watches(kind: type) -> Callable[[_Function], _Function]:
    """Decorates a function that is compiled with the loop for watches of the class ``kind``. Its name is that of a
    point, and its arguments are those of the function of that name below."""

    def register(function: _Function) -> _Function:
        if function.__name__ not in _points:
            raise ValueError(f"{function.__name__}: the loop has no such point; there are {', '.join(_points)}")
        _by_kind[function.__name__, kind] = function
        return function

    return register


def _own(point: str, watch: Any) -> Callable[..., Any] | None:
    """``watch``: Numba's type of one, or of a reference to one."""
    return _by_kind.get((point, getattr(getattr(watch, "held", watch), "instance_class", type(None))))


def _point(function: Callable[..., Any]) -> Any:
    """Decorates what the loop does at a point where a watch has no function of its own."""
    _points.append(function.__name__)
    return function


@_point
def core_due(watch, sim, core):  # type: ignore[no-untyped-def]
    """Nothing."""


@_point
def piece_due(watch, sim, core):  # type: ignore[no-untyped-def]
    """Nothing: the piece is simulated as the loop has it."""


@_point
def turn_end(watch, due, until):  # type: ignore[no-untyped-def]
    """The turn is not cut short."""
    return until


@_point
def turn_begins(watch, sim, core):  # type: ignore[no-untyped-def]
    """There is nothing to remember."""
    return 0


@_point
def turn_over(watch, sim, core, mark, due, is_over):  # type: ignore[no-untyped-def]
    """Nothing."""


@overload(core_due, jit_options=_OPTIONS)
def _core_due(watch, sim, core):  # type: ignore[no-untyped-def]
    return _own("core_due", watch) or core_due


@overload(piece_due, jit_options=_OPTIONS)
def _piece_due(watch, sim, core):  # type: ignore[no-untyped-def]
    return _own("piece_due", watch) or piece_due


@overload(turn_end, jit_options=_OPTIONS)
def _turn_end(watch, due, until):  # type: ignore[no-untyped-def]
    return _own("turn_end", watch) or turn_end


@overload(turn_begins, jit_options=_OPTIONS)
def _turn_begins(watch, sim, core):  # type: ignore[no-untyped-def]
    return _own("turn_begins", watch) or turn_begins


@overload(turn_over, jit_options=_OPTIONS)
def _turn_over(watch, sim, core, mark, due, is_over):  # type: ignore[no-untyped-def]
    return _own("turn_over", watch) or turn_over
