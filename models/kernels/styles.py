"""How kernels are compiled, and what they call that hand many arrays on to each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import (
    intrinsic,
)

from manyscale.models.kernels import quicker
from manyscale.models.kernels.compiled import link_by_name, njit
from manyscale.models.kernels.references import Placed, by_reference, row_of
from manyscale.models.kernels.wanted import Seldom

__all__ = [
    "allocation_free", "apart", "by_reference", "count_ones", "entry", "inlined", "inner", "inner_inlined", "merged",
    "njit", "read_soon", "row_of", "seldom", "separate",
]  # fmt: skip


quicker.take_effect()


def _compiled_once(*, is_separate: bool = False, **options: Any) -> Callable[[Any], Any]:
    """``njit`` for functions that kernels call with integers of any kind: they are compiled once, for int64, not once
    more for each signed type (of records' members) and for each number that stands in a call. ``is_separate``: see
    ``separate``."""

    def decorate(function: Any) -> Any:
        dispatcher = njit(cache=True, nogil=True, **options)(function)
        template = dispatcher.get_call_template

        def widened(args: Any, kws: Any) -> Any:
            found = template(tuple(map(_widest, args)), {name: _widest(kind) for name, kind in kws.items()})
            if is_separate:
                link_by_name(dispatcher)
            return found

        dispatcher.get_call_template = widened
        if options.get("no_cpython_wrapper"):
            _refuse_python(dispatcher)
        return dispatcher

    return decorate


def _refuse_python(dispatcher: Any) -> None:
    """A call by Python raises TypeError: Numba would go where it has put no code."""

    def add(result: Any) -> None:
        dispatcher.overloads[tuple(result.signature.args)] = result

    def refuse(*_: Any, **__: Any) -> None:
        raise TypeError(f"{dispatcher.py_func.__qualname__} is for kernels to call: Python cannot")

    dispatcher.add_overload, dispatcher._compile_for_args = add, refuse


def _widest(kind: Any) -> Any:
    plain = types.unliteral(kind)
    if isinstance(plain, types.Integer) and plain.signed:
        return types.int64
    return plain if isinstance(plain, types.Boolean) else kind


# Numba counts references to every array that a function takes apart or hands on, which for small functions on twenty
# arrays takes longer than what they do (measured: 80 ns of 105 a call). A function that allocates nothing needs no
# counts. The option is Numba's own, undocumented; without it the results are the same, and slower. (What does not say
# ``forceinline`` inherits it of the function for which it is compiled first.)
allocation_free: Final = _compiled_once(_nrt=False, forceinline=False, no_cfunc_wrapper=True)

# The same, put into its callers whatever its size: a call hands on seven words and more of each array. For what runs
# for each access, and is called in few places.
inlined: Final = _compiled_once(_nrt=False, forceinline=True, no_cfunc_wrapper=True)

# As these two, for functions that only kernels call: without what makes them callable by Python, which takes much of
# the time of compiling small functions of many arrays.
inner: Final = _compiled_once(_nrt=False, forceinline=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)
inner_inlined: Final = _compiled_once(_nrt=False, forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)

# As ``inner``, for large functions: what calls them refers to their code, where that of others is part of the caller's,
# compiled once more with each caller, with the callers of these, and so on. So they are never put into their callers.
separate: Final = _compiled_once(is_separate=True, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def seldom(function: Any, *, gives: str) -> Any:
    """As ``separate``, for what few calls need: compiled once somebody calls its ``want``. It ``gives`` "nothing", an
    "int" or a "bool"."""
    return Seldom(separate(function), gives, _widest).call()


class _Entry:
    """``placed`` is for who calls it often with the same tuples, and keeps these as long as what it gives is used."""

    placed = Placed

    def __init__(self, kernel: Any) -> None:
        self.kernel, self.py_func = kernel, kernel.py_func

    def __call__(self, *arguments: Any) -> Any:
        return self.kernel(*(Placed(value) if hasattr(value, "_fields") else value for value in arguments))


def entry(function: Any) -> Any:
    """``allocation_free``, for what Python calls with named tuples of many arrays: it takes them by reference. Python
    writes where the arrays lie, so that no code is compiled that takes a hundred objects apart (half of the kernel's
    time, where it does little but call others)."""
    return _Entry(allocation_free(function))


# Put into its callers before these are compiled: for functions of one or two callers. What is compiled by itself is
# compiled once more with each caller, and with the callers of these.
merged: Final = njit(inline="always")


@intrinsic
def apart(context):  # type: ignore[no-untyped-def]
    """Called anywhere in a function: LLVM must not put that function into its callers. For large ones that are seldom
    run, which would else be copied, and compiled, many times."""

    def mark(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), mark


@intrinsic
def count_ones(context, value):  # type: ignore[no-untyped-def]
    """How many bits of an integer are 1."""

    def count(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.ctpop(arguments[0])

    return value(value), count


@intrinsic
def read_soon(context, array, index):  # type: ignore[no-untyped-def]
    """Have the host bring ``array[index]`` (of several dimensions: the first element of that row) into its caches, and
    go on at once. Nothing is read where that could fail, so any index will do."""

    def fetch(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        stride = cgutils.unpack_tuple(builder, view.strides)[0]
        place = context.cast(builder, arguments[1], signature.args[1], types.intp)
        start = builder.ptrtoint(view.data, stride.type)
        address = builder.inttoptr(builder.add(start, builder.mul(place, stride)), ir.IntType(8).as_pointer())
        kinds = [ir.IntType(32)] * 3
        name = ir.FunctionType(ir.VoidType(), [address.type, *kinds])
        function = cgutils.get_or_insert_function(builder.module, name, "llvm.prefetch.p0i8")
        builder.call(function, [address, *(kind(value) for kind, value in zip(kinds, (0, 3, 1), strict=True))])
        return context.get_dummy_value()

    return types.void(array, index), fetch
