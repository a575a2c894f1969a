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

``due`` is the cycle in which the turn begins, ``core`` the number of the core; other arguments are those of the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from numba.extending import overload

_Function = TypeVar("_Function", bound=Callable[..., Any])
_POINTS: Final = ("core_due", "piece_due", "turn_end", "turn_begins", "turn_over")
# As kernels.inlined. (With inline="always" the compiled loop is another one, also without a watch: simulated times of a
# parallel program came out 23 % shorter.)
_OPTIONS: Final = {"_nrt": False, "forceinline": True, "no_cfunc_wrapper": True}
_by_kind: dict[tuple[str, type], Callable[..., Any]] = {}


def watches(kind: type) -> Callable[[_Function], _Function]:
    """Decorates a function that is compiled with the loop for watches of the class ``kind``. Its name is that of a
    point, and its arguments are those of the function of that name below."""

    def register(function: _Function) -> _Function:
        if function.__name__ not in _POINTS:
            raise ValueError(f"{function.__name__}: the loop has no such point; there are {', '.join(_POINTS)}")
        _by_kind[function.__name__, kind] = function
        return function

    return register


def _own(point: str, watch: Any) -> Callable[..., Any] | None:
    """``watch``: Numba's type of one."""
    return _by_kind.get((point, getattr(watch, "instance_class", type(None))))


def core_due(watch: Any, sch: Any, records: Any, core: Any) -> Any:
    raise NotImplementedError("compiled code only")


def piece_due(watch: Any, sch: Any, mem: Any, pieces: Any, records: Any, core: Any, cycles_per_ps: Any) -> Any:
    raise NotImplementedError("compiled code only")


def turn_end(watch: Any, due: Any, until: Any) -> Any:
    raise NotImplementedError("compiled code only")


def turn_begins(watch: Any, cores: Any, mem: Any, core: Any) -> Any:
    raise NotImplementedError("compiled code only")


def turn_over(
    watch: Any, mark: Any, cores: Any, mem: Any, code: Any, block_ids: Any, addresses: Any, core: Any, due: Any,
    is_over: Any,
) -> Any:  # fmt: skip
    raise NotImplementedError("compiled code only")


@overload(core_due, jit_options=_OPTIONS)
def _core_due(watch, sch, records, core):  # type: ignore[no-untyped-def]
    return _own("core_due", watch) or (lambda watch, sch, records, core: None)


@overload(piece_due, jit_options=_OPTIONS)
def _piece_due(watch, sch, mem, pieces, records, core, cycles_per_ps):  # type: ignore[no-untyped-def]
    return _own("piece_due", watch) or (lambda watch, sch, mem, pieces, records, core, cycles_per_ps: None)


@overload(turn_end, jit_options=_OPTIONS)
def _turn_end(watch, due, until):  # type: ignore[no-untyped-def]
    return _own("turn_end", watch) or (lambda watch, due, until: until)


@overload(turn_begins, jit_options=_OPTIONS)
def _turn_begins(watch, cores, mem, core):  # type: ignore[no-untyped-def]
    return _own("turn_begins", watch) or (lambda watch, cores, mem, core: 0)


@overload(turn_over, jit_options=_OPTIONS)
def _turn_over(  # type: ignore[no-untyped-def]
    watch, mark, cores, mem, code, block_ids, addresses, core, due, is_over
):
    def nothing(watch, mark, cores, mem, code, block_ids, addresses, core, due, is_over):  # type: ignore[no-untyped-def]
        return None

    return _own("turn_over", watch) or nothing
